// When tasks take effect: lazily, or adversarially; and tasks that are not ordered, named.
#include <set>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

constexpr uint64_t kSeeds = 40;
const DvtTaskCost kCost = vector_cost(64);

// Two streams bring a 1 to the host. Returns what the host sees of both, change by change, while
// nothing is synchronised.
std::string order_of_effects(uint64_t seed) {
  auto npu = make_npu({.mode = DVT_NPU_ADVERSARIAL, .seed = seed});
  std::array<uint8_t, 2> host{};
  auto* data = make_array<uint8_t>(npu.get(), 32);
  std::vector<DvtStream*> streams;
  for (int i = 0; i < 2; ++i) {
    streams.push_back(make_stream(npu.get()));
    CHECK(dvt_npu_memset_async(npu.get(), streams[i], data + 16 * i, 1, 1) == DVT_OK);
    CHECK(dvt_npu_copy_async(npu.get(), streams[i], DVT_COPY_DEVICE_TO_HOST, &host[i],
                             data + 16 * i, 1, "out") == DVT_OK);
  }
  std::string seen;
  for (int i = 0; i < 30; ++i) {
    CHECK(dvt_npu_memset_async(npu.get(), streams[i % 2], data + 16 * (i % 2), 1, 1) == DVT_OK);
    const std::string now = {static_cast<char>('0' + host[0]), static_cast<char>('0' + host[1])};
    if (!seen.ends_with(now)) seen += (seen.empty() ? "" : " ") + now;
  }
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  CHECK(host == std::array<uint8_t, 2>{1, 1});
  return seen;
}

// A producer and a consumer on two streams; `ordered` by an event.
struct Pair {
  NpuPtr npu;
  DvtStream* producer;
  DvtStream* consumer;
  uint8_t* data;
  explicit Pair(const DeviceSettings& settings)
      : npu(make_npu(settings)),
        producer(make_stream(npu.get())),
        consumer(make_stream(npu.get())),
        data(make_array<uint8_t>(npu.get(), 32, "activations")) {}
};

bool message_has(const std::string& part) {
  const bool found = last_message().find(part) != std::string::npos;
  if (!found) MESSAGE("message: " << last_message() << " lacks: " << part);
  return found;
}

}  // namespace

TEST_CASE("adversarial: streams that are not ordered take effect in every order; seeds repeat") {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::string seen = order_of_effects(seed);
    CHECK(order_of_effects(seed) == seen);
    orders.insert(seen);
  }
  CHECK(orders.count("00 10 11") + orders.count("00 10") > 0);  // one first,
  CHECK(orders.count("00 01 11") + orders.count("00 01") > 0);  // or the other.
}

TEST_CASE("adversarial: times vary with the seed and repeat with it") {
  std::set<int64_t> ends;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    int64_t end[2] = {};
    for (int64_t& at : end) {
      auto npu = make_npu({.mode = DVT_NPU_ADVERSARIAL, .timing_only = true, .seed = seed});
      DvtStream* stream = make_stream(npu.get());
      for (int i = 0; i < 10; ++i) CHECK(launch_timing(npu.get(), stream, kCost) == DVT_OK);
      CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
      at = dvt_npu_host_now_ps(npu.get());
    }
    CHECK(end[0] == end[1]);
    ends.insert(end[0]);
  }
  CHECK(ends.size() > kSeeds / 2);
}

TEST_CASE("adversarial: what an event orders is right for every seed") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair({.mode = DVT_NPU_ADVERSARIAL, .seed = seed});
    DvtEvent* event = make_event(pair.npu.get());
    const Arguments in_place({pair.data}, {pair.data}, 16);
    std::array<uint8_t, 16> out{};
    for (int round = 1; round <= 5; ++round) {
      CHECK(dvt_npu_memset_async(pair.npu.get(), pair.producer, pair.data, 7, 16) == DVT_OK);
      CHECK(launch(pair.npu.get(), pair.producer, in_place, kCost, "produce") == DVT_OK);
      CHECK(dvt_npu_event_record(pair.npu.get(), pair.producer, event) == DVT_OK);
      CHECK(dvt_npu_event_wait(pair.npu.get(), pair.consumer, event) == DVT_OK);
      CHECK(launch(pair.npu.get(), pair.consumer, in_place, kCost, "consume") == DVT_OK);
      CHECK(dvt_npu_copy_async(pair.npu.get(), pair.consumer, DVT_COPY_DEVICE_TO_HOST, out.data(),
                               pair.data, 16, "out") == DVT_OK);
      CHECK(dvt_npu_stream_synchronize(pair.npu.get(), pair.consumer, -1) == DVT_OK);
      CHECK(out[15] == 9);
    }
  }
}

TEST_CASE("an event may look unfinished until a synchronisation has made it visible") {
  bool late = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair({.mode = DVT_NPU_ADVERSARIAL, .seed = seed});
    DvtEvent* event = make_event(pair.npu.get());
    CHECK(dvt_npu_memset_async(pair.npu.get(), pair.producer, pair.data, 1, 16) == DVT_OK);
    CHECK(dvt_npu_event_record(pair.npu.get(), pair.producer, event) == DVT_OK);
    dvt_npu_host_advance(pair.npu.get(), int64_t{1'000'000'000'000});
    int complete = 0;
    CHECK(dvt_npu_event_query(pair.npu.get(), event, &complete) == DVT_OK);
    late = late || complete == 0;
    CHECK(dvt_npu_stream_synchronize(pair.npu.get(), pair.producer, -1) == DVT_OK);
    CHECK(dvt_npu_event_query(pair.npu.get(), event, &complete) == DVT_OK);
    CHECK(complete == 1);
  }
  CHECK(late);
}

TEST_CASE("reading what nobody has written names the task, the block and the byte") {
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL}) {
    Pair pair({.mode = mode, .check_order = true});
    const Arguments copy({pair.data}, {pair.data + 16}, 16);
    CHECK(dvt_npu_memset_async(pair.npu.get(), pair.consumer, pair.data, 1, 12) == DVT_OK);
    CHECK(launch(pair.npu.get(), pair.consumer, copy, kCost, "/relu") == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(pair.npu.get(), pair.consumer, -1) == DVT_INVALID_ARGUMENT);
    CHECK(
        message_has("stream 1 task 1 (AI_VECTOR_CORE /relu) input 0: reads byte 12 of "
                    "activations, which no task that was submitted has written"));
  }
}

TEST_CASE("reading before the writer has run names both, whether it is submitted or has run") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair({.mode = DVT_NPU_ADVERSARIAL, .seed = seed});
    const Arguments copy({pair.data}, {pair.data + 16}, 16);
    CHECK(dvt_npu_memset_async(pair.npu.get(), pair.producer, pair.data, 1, 16) == DVT_OK);
    CHECK(launch(pair.npu.get(), pair.consumer, copy, kCost, "/relu") == DVT_OK);
    CHECK(dvt_npu_synchronize(pair.npu.get(), -1) == DVT_INVALID_ARGUMENT);
    CHECK(message_has(
        "stream 1 task 1 (AI_VECTOR_CORE /relu) input 0: reads byte 0 of activations, "));
    CHECK(message_has("stream 0 task 0 (MEMSET)"));
    CHECK(message_has("nothing orders the two"));
    CHECK(std::string(dvt_npu_last_error()->node) == "/relu");
  }
}

TEST_CASE("recycled device memory does not hold the last owner's data") {
  auto npu = make_npu();
  DvtStream* stream = make_stream(npu.get());
  auto* first = make_array<uint8_t>(npu.get(), 512, "first");
  CHECK(dvt_npu_memset_async(npu.get(), stream, first, 3, 512) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(dvt_npu_free(npu.get(), first) == DVT_OK);
  auto* second = make_array<uint8_t>(npu.get(), 512, "second");
  std::array<uint8_t, 512> out{};
  CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_DEVICE_TO_HOST, out.data(), second, 512,
                           "out") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  for (const uint8_t byte : out) CHECK(byte == 0xA5);
}

TEST_CASE("writing what an unordered task still reads names both, even when it ran in good order") {
  Pair pair({.check_order = true});
  std::array<uint8_t, 16> out{};
  CHECK(dvt_npu_memset_async(pair.npu.get(), pair.producer, pair.data, 1, 16) == DVT_OK);
  CHECK(dvt_npu_copy_async(pair.npu.get(), pair.producer, DVT_COPY_DEVICE_TO_HOST, out.data(),
                           pair.data, 16, "read back") == DVT_OK);
  dvt_npu_host_advance(pair.npu.get(), int64_t{1'000'000'000});  // The copy is long over.
  const Arguments in_place({pair.data}, {pair.data}, 16);
  CHECK(dvt_npu_memset_async(pair.npu.get(), pair.consumer, pair.data, 2, 16) == DVT_OK);
  CHECK(dvt_npu_synchronize(pair.npu.get(), -1) == DVT_INVALID_ARGUMENT);
  CHECK(
      message_has("stream 1 task 2 (MEMSET) destination: writes byte 0 of activations, which "
                  "stream 0 task 1 (MEMCPY_D2H read back) reads, and nothing orders the two"));
}

TEST_CASE("events, notifies and host waits order accesses; a wait too early does not") {
  Pair pair({.check_order = true});
  DvtNpu* npu = pair.npu.get();
  DvtEvent* event = make_event(npu);
  DvtNotify* notify = make_notify(npu);
  DvtStream* third = make_stream(npu);
  const Arguments in_place({pair.data}, {pair.data}, 16);
  CHECK(dvt_npu_notify_wait(npu, third, notify) == DVT_OK);
  CHECK(launch(npu, third, in_place, kCost, "third") == DVT_OK);
  CHECK(dvt_npu_memset_async(npu, pair.producer, pair.data, 1, 16) == DVT_OK);
  CHECK(dvt_npu_event_record(npu, pair.producer, event) == DVT_OK);
  CHECK(dvt_npu_event_wait(npu, pair.consumer, event) == DVT_OK);
  CHECK(launch(npu, pair.consumer, in_place, kCost, "second") == DVT_OK);
  CHECK(dvt_npu_notify_record(npu, pair.consumer, notify) == DVT_OK);  // Transitively after both.
  CHECK(dvt_npu_stream_synchronize(npu, third, -1) == DVT_OK);
  CHECK(launch(npu, pair.producer, in_place, kCost, "by the host") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu, -1) == DVT_OK);
  // The record covers what came before it only.
  CHECK(dvt_npu_event_record(npu, pair.producer, event) == DVT_OK);
  CHECK(launch(npu, pair.producer, in_place, kCost, "behind the record") == DVT_OK);
  CHECK(dvt_npu_event_wait(npu, pair.consumer, event) == DVT_OK);
  CHECK(launch(npu, pair.consumer, in_place, kCost, "too early") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu, -1) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("behind the record"));
  CHECK(message_has("too early"));
}

TEST_CASE("a task of the next owner that writes too early is named") {
  auto npu = make_npu();
  DvtStream* slow = make_stream(npu.get());
  DvtStream* fast = make_stream(npu.get());
  auto* old_block = make_array<uint8_t>(npu.get(), 512, "old");
  CHECK(dvt_npu_memset_async(npu.get(), slow, old_block, 1, 512) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), slow, -1) == DVT_OK);
  const Arguments in_place({old_block}, {old_block}, 16);
  CHECK(launch(npu.get(), slow, in_place, vector_cost(uint64_t{8} << 20), "first") == DVT_OK);
  CHECK(launch(npu.get(), slow, in_place, kCost, "reader") == DVT_OK);
  CHECK(dvt_npu_free(npu.get(), old_block) == DVT_OK);
  auto* next = make_array<uint8_t>(npu.get(), 512, "next");
  CHECK(dvt_npu_memset_async(npu.get(), fast, next, 2, 512) == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_INVALID_ARGUMENT);
  CHECK(
      message_has("memory of old is shared with next (by stream 1 task 3 (MEMSET)) after a free"));
  CHECK(std::string(dvt_npu_last_error()->node) == "first");
}

TEST_CASE("callers of an earlier header may pass their shorter options") {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.struct_size = offsetof(DvtNpuOptions, seed);
  options.check_order = 77;  // Behind what they have.
  DvtNpu* npu = nullptr;
  REQUIRE(dvt_npu_create(&options, &npu, nullptr) == DVT_OK);
  dvt_npu_destroy(npu);
  options.struct_size = offsetof(DvtNpuOptions, seed) - 1;
  CHECK(dvt_npu_create(&options, &npu, nullptr) == DVT_INVALID_ARGUMENT);
  options.struct_size = sizeof options + 1;
  CHECK(dvt_npu_create(&options, &npu, nullptr) == DVT_INVALID_ARGUMENT);
}
