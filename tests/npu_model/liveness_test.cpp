// What never completes is reported, with who waits for whom; the device stays usable and can be
// destroyed.
#include <string>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

bool message_has(const std::string& part) {
  const bool found = last_message().find(part) != std::string::npos;
  if (!found) MESSAGE("message: " << last_message() << " lacks: " << part);
  return found;
}

}  // namespace

TEST_CASE("a task that never completes: timeout with stream, task, node and elapsed time") {
  auto npu = make_npu({.hang = "/conv1/Conv"});
  DvtStream* stream = make_stream(npu.get());
  auto* data = make_array<uint8_t>(npu.get(), 16);
  const Arguments in_place({data}, {data}, 16);
  CHECK(launch(npu.get(), stream, in_place, matmul_cost(16, 16, 16), "/conv0/Conv") == DVT_OK);
  CHECK(launch(npu.get(), stream, in_place, matmul_cost(16, 16, 16), "/conv1/Conv") == DVT_OK);
  CHECK(launch(npu.get(), stream, in_place, matmul_cost(16, 16, 16), "/conv2/Conv") == DVT_OK);
  const int64_t before_ps = dvt_npu_host_now_ps(npu.get());
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, 5000) == DVT_TIMEOUT);
  CHECK(dvt_npu_host_now_ps(npu.get()) == before_ps + 5'000'000'000);
  CHECK(message_has("stream 0 is not done after 5000.0 us"));
  CHECK(message_has("stream 0 task 1 (AI_CORE /conv1/Conv) started"));
  CHECK(message_has("deadlock at cycle"));
  CHECK(std::string(dvt_npu_last_error()->node) == "/conv1/Conv");
  // Without a limit it does not spin either.
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_TIMEOUT);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_TIMEOUT);
  // The stream can be destroyed, and the device goes on.
  CHECK(dvt_npu_stream_destroy(npu.get(), stream) == DVT_TIMEOUT);
  CHECK(std::string(dvt_npu_last_error()->hint) == "2 unfinished tasks were dropped");
  DvtStream* fresh = make_stream(npu.get());
  CHECK(launch(npu.get(), fresh, in_place, matmul_cost(16, 16, 16), "/conv0/Conv") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), fresh, -1) == DVT_OK);
}

TEST_CASE("a slow task is a timeout, not a deadlock, and can be waited for again") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  CHECK(launch_timing(npu.get(), stream, vector_cost(uint64_t{1} << 30), "slow") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, 10) == DVT_TIMEOUT);
  CHECK(last_message().find("deadlock") == std::string::npos);
  CHECK(message_has("slow"));
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, 0) == DVT_TIMEOUT);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, INT64_MAX) == DVT_OK);
}

TEST_CASE("a wait on a record behind a task that never completes names that task") {
  auto npu = make_npu({.timing_only = true, .hang = "stuck"});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  CHECK(launch_timing(npu.get(), a, matmul_cost(16, 16, 16), "stuck") == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  CHECK(launch_timing(npu.get(), b, vector_cost(64), "behind") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_TIMEOUT);
  CHECK(message_has("stream 1 task 2 (EVENT_WAIT) waits for stream 0 task 1"));
  CHECK(message_has("stuck"));
  CHECK(std::string(dvt_npu_last_error()->node) == "stuck");
  // Dropping the stuck stream releases the waiter, with the reason.
  CHECK(dvt_npu_stream_destroy(npu.get(), a) == DVT_TIMEOUT);
  CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_TIMEOUT);
  CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_OK);
}

TEST_CASE("circular waits are found and listed, also among bystanders") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* bystander = make_stream(npu.get());
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtStream* c = make_stream(npu.get());
  DvtNotify* from_a = make_notify(npu.get());
  DvtNotify* from_b = make_notify(npu.get());
  DvtNotify* from_c = make_notify(npu.get());
  CHECK(launch_timing(npu.get(), bystander, vector_cost(64)) == DVT_OK);
  CHECK(dvt_npu_notify_wait(npu.get(), a, from_c) == DVT_OK);
  CHECK(dvt_npu_notify_record(npu.get(), a, from_a) == DVT_OK);
  CHECK(dvt_npu_notify_wait(npu.get(), b, from_a) == DVT_OK);
  CHECK(dvt_npu_notify_record(npu.get(), b, from_b) == DVT_OK);
  CHECK(dvt_npu_notify_wait(npu.get(), c, from_b) == DVT_OK);
  CHECK(dvt_npu_notify_record(npu.get(), c, from_c) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), bystander, -1) == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_TIMEOUT);
  CHECK(message_has("deadlock at cycle"));
  CHECK(message_has("circular wait of streams 1 3 2"));
  CHECK(message_has("stream 1 task 1 (NOTIFY_WAIT) waits for stream 3 task 6"));
  CHECK(message_has("stream 2 task 3 (NOTIFY_WAIT) waits for stream 1 task 2"));
}

TEST_CASE("a stream that waits for itself is a circle of one") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  DvtNotify* notify = make_notify(npu.get());
  CHECK(dvt_npu_notify_wait(npu.get(), stream, notify) == DVT_OK);
  CHECK(dvt_npu_notify_record(npu.get(), stream, notify) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_TIMEOUT);
  CHECK(message_has("circular wait of streams 0"));
  CHECK(dvt_npu_notify_destroy(npu.get(), notify) == DVT_FAILED_STATE);
  CHECK(message_has("notify 0 is used by task 0 of stream 0"));
}

TEST_CASE("a wait that somebody records later is not a deadlock for good") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtNotify* notify = make_notify(npu.get());
  CHECK(dvt_npu_notify_wait(npu.get(), a, notify) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), a, -1) == DVT_TIMEOUT);
  CHECK(message_has("waits for notify 0, which nobody records"));
  CHECK(dvt_npu_notify_record(npu.get(), b, notify) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), a, -1) == DVT_OK);
}

TEST_CASE("work that waits for cores of a stuck task is told so") {
  auto npu = make_npu({.timing_only = true, .hang = "stuck"});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  CHECK(launch_timing(npu.get(), a, vector_cost(1'000'000), "stuck") == DVT_OK);
  CHECK(launch_timing(npu.get(), b, vector_cost(1'000'000), "victim") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_TIMEOUT);
  CHECK(message_has("victim) waits for cores, an engine or a stream slot"));
  CHECK(dvt_npu_stream_destroy(npu.get(), a) == DVT_TIMEOUT);
  CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_OK);
}
