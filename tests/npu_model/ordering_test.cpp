// The ordering rules of streams, events, notifies and copies, each in prompt and in lazy mode where
// both promise the same.
#include <string>
#include <thread>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

constexpr DvtNpuMode kModes[] = {DVT_NPU_PROMPT, DVT_NPU_LAZY};

// About 75 us on all vector cores, and a few on one cube core: they do not compete.
const DvtTaskCost kSlow = vector_cost(uint64_t{8} << 20);
const DvtTaskCost kFast = matmul_cost(16, 16, 16);

}  // namespace

TEST_CASE("a stream runs its tasks one after another, in submission order") {
  for (const DvtNpuMode mode : kModes) {
    auto npu = make_npu({.mode = mode});
    DvtStream* stream = make_stream(npu.get());
    auto* data = make_array<uint8_t>(npu.get(), 16);
    std::array<uint8_t, 16> host{};
    CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_HOST_TO_DEVICE, data, host.data(), 16,
                             "in") == DVT_OK);
    const Arguments in_place({data}, {data}, 16);
    CHECK(launch(npu.get(), stream, in_place, kSlow, "first") == DVT_OK);
    CHECK(launch(npu.get(), stream, in_place, kFast, "second") == DVT_OK);
    std::array<uint8_t, 16> out{};
    CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_DEVICE_TO_HOST, out.data(), data, 16,
                             "out") == DVT_OK);
    CHECK(out[0] == 0);  // Nothing has had the time to run.
    CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
    for (const uint8_t value : out) CHECK(value == 2);
    CHECK(task_named(npu.get(), "second").start_ps >= task_named(npu.get(), "first").end_ps);
  }
}

TEST_CASE("streams are not ordered among each other without an event") {
  auto npu = make_npu();
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  auto* data = make_array<uint8_t>(npu.get(), 32);
  const Arguments one({data}, {data}, 16);
  const Arguments two({data + 16}, {data + 16}, 16);
  CHECK(launch(npu.get(), a, one, kSlow, "slow") == DVT_OK);
  CHECK(launch(npu.get(), b, two, kFast, "fast") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  // Submitted later, done earlier.
  CHECK(task_named(npu.get(), "fast").end_ps < task_named(npu.get(), "slow").end_ps);
}

TEST_CASE("an event orders the waiting stream behind the record") {
  for (const DvtNpuMode mode : kModes) {
    auto npu = make_npu({.mode = mode});
    DvtStream* a = make_stream(npu.get());
    DvtStream* b = make_stream(npu.get());
    DvtEvent* event = make_event(npu.get());
    auto* data = make_array<uint8_t>(npu.get(), 16);
    const Arguments in_place({data}, {data}, 16);
    CHECK(dvt_npu_memset_async(npu.get(), a, data, 7, 16) == DVT_OK);
    CHECK(launch(npu.get(), a, in_place, kSlow, "produce") == DVT_OK);
    CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
    CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
    CHECK(launch(npu.get(), b, in_place, kFast, "consume") == DVT_OK);
    std::array<uint8_t, 16> out{};
    CHECK(dvt_npu_copy_async(npu.get(), b, DVT_COPY_DEVICE_TO_HOST, out.data(), data, 16, "out") ==
          DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_OK);  // b alone pulls a's work.
    CHECK(out[15] == 9);
    const DvtNpuTask consume = task_named(npu.get(), "consume");
    CHECK(consume.start_ps >= task_named(npu.get(), "produce").end_ps + 2'000'000);  // 1 + 1 us.
  }
}

TEST_CASE("a wait takes the latest record at the time of the call") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  CHECK(launch_timing(npu.get(), a, kSlow, "one") == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  // Recording again does not move the wait that was submitted before.
  CHECK(launch_timing(npu.get(), a, kSlow, "two") == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  CHECK(launch_timing(npu.get(), b, kFast, "after one") == DVT_OK);
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  CHECK(launch_timing(npu.get(), b, kFast, "after two") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  const DvtNpuTask one = task_named(npu.get(), "one");
  const DvtNpuTask two = task_named(npu.get(), "two");
  CHECK(task_named(npu.get(), "after one").start_ps > one.end_ps);
  CHECK(task_named(npu.get(), "after one").start_ps < two.end_ps);
  CHECK(task_named(npu.get(), "after two").start_ps > two.end_ps);
}

TEST_CASE("one record releases many streams; its time is the record's") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* a = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  int64_t at_ps = 0;
  CHECK(dvt_npu_event_time(npu.get(), event, &at_ps) == DVT_FAILED_STATE);
  CHECK(launch_timing(npu.get(), a, kSlow, "one") == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  std::vector<std::string> names = {"w0", "w1", "w2"};
  for (const auto& name : names) {
    DvtStream* waiter = make_stream(npu.get());
    CHECK(dvt_npu_event_wait(npu.get(), waiter, event) == DVT_OK);
    CHECK(launch_timing(npu.get(), waiter, kFast, name.c_str()) == DVT_OK);
  }
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  CHECK(dvt_npu_event_time(npu.get(), event, &at_ps) == DVT_OK);
  CHECK(at_ps == task_named(npu.get(), "one").end_ps + 1'000'000);
  for (const auto& name : names) CHECK(task_named(npu.get(), name).start_ps >= at_ps);
}

TEST_CASE("waiting on an event that is not recorded, or is reached, adds no task") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  int complete = 0;
  CHECK(dvt_npu_event_query(npu.get(), event, &complete) == DVT_OK);
  CHECK(complete == 1);  // Never recorded counts as complete.
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  CHECK(launch_timing(npu.get(), a, kSlow) == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  CHECK(dvt_npu_event_query(npu.get(), event, &complete) == DVT_OK);
  CHECK(complete == 0);
  CHECK(dvt_npu_stream_synchronize(npu.get(), a, -1) == DVT_OK);
  CHECK(dvt_npu_event_query(npu.get(), event, &complete) == DVT_OK);
  CHECK(complete == 1);
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  for (const DvtNpuTask& task : tasks_of(npu.get())) CHECK(task.type != DVT_NPU_EVENT_WAIT);
}

TEST_CASE("destroying an event leaves its waits in place") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  CHECK(launch_timing(npu.get(), a, kSlow, "slow") == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  CHECK(dvt_npu_event_destroy(npu.get(), event) == DVT_OK);
  CHECK(launch_timing(npu.get(), b, kFast, "fast") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  CHECK(task_named(npu.get(), "fast").start_ps > task_named(npu.get(), "slow").end_ps);
}

TEST_CASE("a notify may be waited for before it is recorded, and resets itself") {
  for (const DvtNpuMode mode : kModes) {
    auto npu = make_npu({.mode = mode});
    DvtStream* a = make_stream(npu.get());
    DvtStream* b = make_stream(npu.get());
    DvtNotify* notify = make_notify(npu.get());
    auto* data = make_array<uint8_t>(npu.get(), 16);
    std::array<uint8_t, 16> out{};
    CHECK(dvt_npu_notify_wait(npu.get(), b, notify) == DVT_OK);
    CHECK(dvt_npu_copy_async(npu.get(), b, DVT_COPY_DEVICE_TO_HOST, out.data(), data, 16, "out") ==
          DVT_OK);
    CHECK(dvt_npu_memset_async(npu.get(), a, data, 3, 16) == DVT_OK);
    CHECK(dvt_npu_notify_record(npu.get(), a, notify) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_OK);
    CHECK(out[0] == 3);
    // The flag is down again: a second wait does not pass.
    CHECK(dvt_npu_notify_wait(npu.get(), b, notify) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), b, 1000) == DVT_TIMEOUT);
    // Recorded while somebody waits, then recorded ahead of the wait.
    CHECK(dvt_npu_notify_record(npu.get(), a, notify) == DVT_OK);
    CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
    CHECK(dvt_npu_notify_record(npu.get(), a, notify) == DVT_OK);
    CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
    CHECK(dvt_npu_notify_wait(npu.get(), b, notify) == DVT_OK);
    CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
    // That wait has lowered the flag as well.
    CHECK(dvt_npu_notify_wait(npu.get(), b, notify) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), b, 1000) == DVT_TIMEOUT);
  }
}

TEST_CASE("priority orders dispatch when streams compete for slots") {
  auto npu = make_npu({.timing_only = true, .overrides = {"ts.active_streams=1"}});
  DvtStream* busy = make_stream(npu.get(), 0);
  DvtStream* low = make_stream(npu.get(), 7);
  DvtStream* high = make_stream(npu.get(), 1);
  CHECK(launch_timing(npu.get(), busy, kSlow, "busy") == DVT_OK);
  CHECK(launch_timing(npu.get(), low, kFast, "low") == DVT_OK);
  CHECK(launch_timing(npu.get(), high, kFast, "high") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  // Both wait for the only slot; the one submitted later goes first.
  CHECK(task_named(npu.get(), "high").end_ps <= task_named(npu.get(), "low").start_ps);
}

TEST_CASE("copies of one direction share one engine, the directions do not") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtStream* c = make_stream(npu.get());
  constexpr uint64_t kBytes = 10 << 20;
  auto* device = make_array<uint8_t>(npu.get(), 3 * kBytes);
  std::vector<uint8_t> host(3 * kBytes);
  CHECK(dvt_npu_copy_async(npu.get(), a, DVT_COPY_HOST_TO_DEVICE, device, host.data(), kBytes,
                           "in 0") == DVT_OK);
  CHECK(dvt_npu_copy_async(npu.get(), b, DVT_COPY_HOST_TO_DEVICE, device + kBytes,
                           host.data() + kBytes, kBytes, "in 1") == DVT_OK);
  CHECK(dvt_npu_copy_async(npu.get(), c, DVT_COPY_DEVICE_TO_HOST, host.data() + 2 * kBytes,
                           device + 2 * kBytes, kBytes, "out") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  const DvtNpuTask first = task_named(npu.get(), "in 0");
  CHECK(task_named(npu.get(), "in 1").start_ps >= first.end_ps);
  CHECK(task_named(npu.get(), "out").start_ps < first.end_ps);
}

TEST_CASE("lazy mode shows nothing before a synchronisation asks for it") {
  auto lazy = make_npu({.mode = DVT_NPU_LAZY});
  auto prompt = make_npu();
  for (DvtNpu* npu : {lazy.get(), prompt.get()}) {
    DvtStream* stream = make_stream(npu);
    auto* data = make_array<uint8_t>(npu, 16);
    std::array<uint8_t, 16> out{};
    CHECK(dvt_npu_memset_async(npu, stream, data, 1, 16) == DVT_OK);
    CHECK(dvt_npu_copy_async(npu, stream, DVT_COPY_DEVICE_TO_HOST, out.data(), data, 16, "out") ==
          DVT_OK);
    dvt_npu_host_advance(npu, 1'000'000'000);  // 1 ms: done in virtual time.
    CHECK(out[0] == (npu == lazy.get() ? 0 : 1));
    CHECK(dvt_npu_stream_synchronize(npu, stream, -1) == DVT_OK);
    CHECK(out[0] == 1);
  }
  // The clock does not depend on the mode.
  CHECK(dvt_npu_host_now_ps(lazy.get()) == dvt_npu_host_now_ps(prompt.get()));
}

TEST_CASE("after a failure the rest of the stream is skipped until it is reported, then goes on") {
  for (const DvtNpuMode mode : kModes) {
    auto npu = make_npu({.mode = mode});
    DvtStream* a = make_stream(npu.get());
    DvtStream* b = make_stream(npu.get());
    DvtEvent* event = make_event(npu.get());
    auto* data = make_array<uint8_t>(npu.get(), 16);
    CHECK(dvt_npu_memset_async(npu.get(), a, data, 1, 16) == DVT_OK);
    const Arguments in_place({data}, {data}, 16);
    CHECK(launch(npu.get(), a, in_place, kFast, "broken", refuse) == DVT_OK);
    CHECK(launch(npu.get(), a, in_place, kFast, "skipped") == DVT_OK);
    CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
    CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
    CHECK(launch(npu.get(), b, in_place, kFast, "skipped too") == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), b, -1) == DVT_KERNEL_FAILED);
    CHECK(std::string(dvt_npu_last_error()->node) == "broken");
    CHECK(dvt_npu_stream_synchronize(npu.get(), a, -1) == DVT_KERNEL_FAILED);
    std::array<uint8_t, 16> out{};
    CHECK(launch(npu.get(), a, in_place, kFast, "again") == DVT_OK);
    CHECK(dvt_npu_copy_async(npu.get(), a, DVT_COPY_DEVICE_TO_HOST, out.data(), data, 16, "out") ==
          DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), a, -1) == DVT_OK);
    CHECK(out[0] == 2);
  }
}

TEST_CASE("threads may submit to and wait for streams of their own at the same time") {
  constexpr size_t kThreads = 4;
  constexpr int kRounds = 50;
  auto npu = make_npu();
  std::vector<DvtStream*> streams;
  std::vector<uint8_t*> blocks;
  std::vector<Arguments> arguments;
  for (size_t i = 0; i < kThreads; ++i) {
    streams.push_back(make_stream(npu.get()));
    blocks.push_back(make_array<uint8_t>(npu.get(), 16));
    arguments.emplace_back(std::vector<void*>{blocks[i]}, std::vector<void*>{blocks[i]},
                           uint64_t{16});
    REQUIRE(dvt_npu_memset_async(npu.get(), streams[i], blocks[i], 0, 16) == DVT_OK);
  }
  // doctest's checks are not for other threads: each keeps its own count of failures.
  std::array<int, kThreads> failures{};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const DvtTaskCost cost = kFast;
        const DvtLaunch task{
            increment,  arguments[i].bytes().data(), arguments[i].bytes().size(), &cost, "threaded",
            "Increment"};
        failures[i] += dvt_npu_launch(npu.get(), streams[i], &task) == DVT_OK ? 0 : 1;
        if (round % 10 != 0) continue;
        failures[i] += dvt_npu_stream_synchronize(npu.get(), streams[i], -1) == DVT_OK ? 0 : 1;
        // Errors are the thread's own.
        failures[i] += dvt_npu_free(npu.get(), &failures[i]) == DVT_INVALID_ARGUMENT ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(failures[i] == 0);
    CHECK(blocks[i][15] == kRounds);
  }
}
