// Misuse, limits and lifetimes: each gets an error that names the thing.
#include <cstdio>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

bool message_has(const std::string& part) {
  const bool found = last_message().find(part) != std::string::npos;
  if (!found) MESSAGE("message: " << last_message() << " lacks: " << part);
  return found;
}

DvtTaskCost slow_cost() {
  return vector_cost(uint64_t{8} << 20);
}

}  // namespace

TEST_CASE("stale, foreign, wrong and NULL handles are told apart") {
  auto npu = make_npu();
  auto other = make_npu();
  DvtStream* stream = make_stream(npu.get());
  DvtStream* foreign = make_stream(other.get());
  DvtEvent* event = make_event(npu.get());
  CHECK(dvt_npu_event_record(npu.get(), foreign, event) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("record: stream belongs to another device"));
  CHECK(dvt_npu_event_wait(other.get(), foreign, event) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("wait: event belongs to another device"));
  CHECK(dvt_npu_event_record(npu.get(), nullptr, event) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("stream is NULL"));
  CHECK(dvt_npu_event_record(npu.get(), reinterpret_cast<DvtStream*>(event), event) ==
        DVT_INVALID_ARGUMENT);
  CHECK(message_has("stream handle is not valid"));
  CHECK(dvt_npu_stream_destroy(npu.get(), stream) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("synchronise: stream 0 is destroyed"));
  DvtStream* again = make_stream(npu.get());  // Takes the index of the destroyed one.
  CHECK(dvt_npu_stream_destroy(npu.get(), stream) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_npu_stream_destroy(npu.get(), again) == DVT_OK);
  CHECK(dvt_npu_event_destroy(npu.get(), event) == DVT_OK);
  CHECK(dvt_npu_event_destroy(npu.get(), event) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("event 0 is destroyed"));
}

TEST_CASE("notifies of other devices: what is not theirs, or gone, is refused by name") {
  auto owner = make_npu();
  auto npu = make_npu({.beside = owner.get()});
  auto alone = make_npu();
  DvtNpu* n = npu.get();
  DvtStream* stream = make_stream(n);
  DvtNotify* notify = make_notify(owner.get());
  DvtNotify* imported = nullptr;
  const auto refused = [](DvtCode code, DvtCode expected, const char* text) {
    CHECK(code == expected);
    CHECK(message_has(text));
  };
  refused(dvt_npu_notify_import(n, nullptr, notify, &imported), DVT_INVALID_ARGUMENT,
          "import: the owner is NULL");
  refused(dvt_npu_notify_import(n, n, make_notify(n), &imported), DVT_INVALID_ARGUMENT,
          "import: the notify is of this device");
  refused(dvt_npu_notify_import(alone.get(), owner.get(), notify, &imported), DVT_INVALID_ARGUMENT,
          "import: the devices are not of one host");
  refused(dvt_npu_notify_import(n, owner.get(), nullptr, &imported), DVT_INVALID_ARGUMENT,
          "import: notify is NULL");
  REQUIRE(dvt_npu_notify_import(n, owner.get(), notify, &imported) == DVT_OK);
  DvtNotify* twice = nullptr;
  refused(dvt_npu_notify_import(owner.get(), n, imported, &twice), DVT_INVALID_ARGUMENT,
          "is imported itself");
  refused(dvt_npu_notify_wait(n, stream, imported), DVT_INVALID_ARGUMENT,
          "is of another device and can only be recorded here");
  refused(dvt_npu_notify_record(n, stream, notify), DVT_INVALID_ARGUMENT,
          "record: notify belongs to another device");
  // The owner's is in use while a record of it is queued.
  CHECK(dvt_npu_notify_record(n, stream, imported) == DVT_OK);
  refused(dvt_npu_notify_destroy(owner.get(), notify), DVT_FAILED_STATE,
          "notify 0 is used by task 0 of stream 0 of device 1");
  CHECK(dvt_npu_synchronize(n, -1) == DVT_OK);
  CHECK(dvt_npu_host_now_ps(n) == dvt_npu_host_now_ps(owner.get()));  // One clock.
  CHECK(dvt_npu_notify_destroy(owner.get(), notify) == DVT_OK);
  refused(dvt_npu_notify_record(n, stream, imported), DVT_INVALID_ARGUMENT,
          "record: the notify that notify 1 stands for is destroyed");
  notify = make_notify(owner.get());
  REQUIRE(dvt_npu_notify_import(n, owner.get(), notify, &imported) == DVT_OK);
  owner.reset();
  refused(dvt_npu_notify_record(n, stream, imported), DVT_INVALID_ARGUMENT, "is destroyed");
  CHECK(dvt_npu_memset_async(n, stream, make_array<uint8_t>(n, 16), 0, 16) == DVT_OK);
  CHECK(dvt_npu_synchronize(n, -1) == DVT_OK);
}

TEST_CASE("streams of two devices that wait for each other: both are named") {
  auto first = make_npu({.timing_only = true});
  auto second = make_npu({.timing_only = true, .beside = first.get()});
  DvtStream* a = make_stream(first.get());
  DvtStream* b = make_stream(second.get());
  DvtNotify* of_first = make_notify(first.get());
  DvtNotify* of_second = make_notify(second.get());
  DvtNotify* to_first = nullptr;
  DvtNotify* to_second = nullptr;
  REQUIRE(dvt_npu_notify_import(second.get(), first.get(), of_first, &to_first) == DVT_OK);
  REQUIRE(dvt_npu_notify_import(first.get(), second.get(), of_second, &to_second) == DVT_OK);
  CHECK(dvt_npu_notify_wait(first.get(), a, of_first) == DVT_OK);
  CHECK(dvt_npu_notify_record(first.get(), a, to_second) == DVT_OK);
  CHECK(dvt_npu_notify_wait(second.get(), b, of_second) == DVT_OK);
  CHECK(dvt_npu_notify_record(second.get(), b, to_first) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(first.get(), a, -1) == DVT_TIMEOUT);
  CHECK(message_has("deadlock at cycle"));
  CHECK(message_has(
      "stream 0 task 0 (NOTIFY_WAIT) waits for notify 0, which no device has recorded"));
  CHECK(message_has("device 1: stream 0 task 0 (NOTIFY_WAIT) waits for notify 0"));
}

TEST_CASE("event ids: who holds them when none comes free is said") {
  auto npu = make_npu({.timing_only = true, .overrides = {"event.max=1"}});
  DvtStream* stream = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  CHECK(dvt_npu_notify_wait(npu.get(), stream, make_notify(npu.get())) == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), stream, event) == DVT_OK);
  CHECK(dvt_npu_event_destroy(npu.get(), event) == DVT_OK);
  CHECK(dvt_npu_event_create(npu.get(), &event) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no event left, and the 1 destroyed ones whose tasks have not ended"));
  CHECK(message_has("notify 0, which nobody records"));
  // A dropped task gives the id back.
  CHECK(dvt_npu_stream_abort(npu.get(), stream) == DVT_OK);
  CHECK(dvt_npu_event_create(npu.get(), &event) == DVT_OK);
}

TEST_CASE("a piece of memory is one live block's, or it is said why not") {
  auto npu = make_npu();
  auto other = make_npu();
  DvtDevice* device = dvt_npu_device(npu.get());
  const auto check = [&](const void* address, uint64_t bytes) {
    return device->vtable->check_range(device, address, bytes);
  };
  void* memory = nullptr;
  REQUIRE(dvt_npu_malloc(npu.get(), 1000, "weights", &memory) == DVT_OK);
  auto* bytes = static_cast<char*>(memory);
  CHECK(check(bytes, 1000) == DVT_OK);
  CHECK(check(bytes + 999, 1) == DVT_OK);
  CHECK(check(bytes + 1, 1000) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("reach beyond the block of weights"));
  CHECK(check(&memory, 8) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("not device memory"));
  DvtDevice* foreign = dvt_npu_device(other.get());
  CHECK(foreign->vtable->check_range(foreign, bytes, 1000) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_npu_free(npu.get(), memory) == DVT_OK);
  CHECK(check(bytes, 1000) == DVT_INVALID_ARGUMENT);
}

TEST_CASE("running out of a resource names it and its limit") {
  auto npu = make_npu(
      {.overrides = {"stream.max=2", "event.max=3", "notify.max=1", "hbm.capacity=0.001"}});
  make_stream(npu.get());
  make_stream(npu.get());
  DvtStream* stream = nullptr;
  CHECK(dvt_npu_stream_create(npu.get(), 0, &stream) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no stream left"));
  CHECK(std::string(dvt_npu_last_error()->expected) == "at most 2 streams at a time");
  for (int i = 0; i < 3; ++i) make_event(npu.get());
  DvtEvent* event = nullptr;
  CHECK(dvt_npu_event_create(npu.get(), &event) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no event left"));
  make_notify(npu.get());
  DvtNotify* notify = nullptr;
  CHECK(dvt_npu_notify_create(npu.get(), &notify) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no notify left"));
  void* address = nullptr;
  CHECK(dvt_npu_malloc(npu.get(), 1'000'000, "weights", &address) == DVT_OK);
  CHECK(dvt_npu_malloc(npu.get(), 1'000'000, "activations", &address) == DVT_OUT_OF_MEMORY);
  CHECK(message_has("activations asks for 1000000 bytes"));
  CHECK(std::string(dvt_npu_last_error()->hint).find("weights") != std::string::npos);
  CHECK(dvt_npu_malloc(npu.get(), UINT64_MAX, "all", &address) == DVT_OUT_OF_MEMORY);
}

TEST_CASE("a full submission queue makes the host wait; one that cannot drain is an error") {
  auto npu = make_npu(
      {.timing_only = true, .overrides = {"sq.depth=10", "sq.reserved=2", "host.enqueue=0"}});
  DvtStream* stream = make_stream(npu.get());
  const DvtTaskCost slow = slow_cost();
  for (int i = 0; i < 8; ++i) CHECK(launch_timing(npu.get(), stream, slow) == DVT_OK);
  CHECK(dvt_npu_host_now_ps(npu.get()) == 0);
  CHECK(launch_timing(npu.get(), stream, slow) == DVT_OK);  // Waits for the first to end.
  CHECK(dvt_npu_host_now_ps(npu.get()) == tasks_of(npu.get())[0].end_ps);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);

  DvtNotify* notify = make_notify(npu.get());
  CHECK(dvt_npu_notify_wait(npu.get(), stream, notify) == DVT_OK);
  for (int i = 0; i < 7; ++i) CHECK(launch_timing(npu.get(), stream, slow) == DVT_OK);
  CHECK(launch_timing(npu.get(), stream, slow) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("submission queue of stream 0 is full"));
  CHECK(message_has("notify 0, which nobody records"));
}

TEST_CASE("frees: double, unknown, inside") {
  auto npu = make_npu();
  auto* block = make_array<uint8_t>(npu.get(), 1000, "block of the test");
  uint8_t local = 0;
  CHECK(dvt_npu_free(npu.get(), block + 8) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("inside the block of block of the test"));
  CHECK(dvt_npu_free(npu.get(), &local) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("not device memory"));
  CHECK(dvt_npu_free(npu.get(), block) == DVT_OK);
  CHECK(dvt_npu_free(npu.get(), block) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("freed memory (was of block of the test)"));
  DvtNpuMemory memory{};
  dvt_npu_memory(npu.get(), &memory);
  CHECK(memory.live_bytes == 0);
  CHECK(memory.peak_bytes == 1024);
  CHECK(memory.largest_hole_bytes == memory.capacity_bytes);
}

TEST_CASE("first fit: the lowest hole that is large enough, merged with its neighbours") {
  auto npu = make_npu({.overrides = {"hbm.capacity=0.000003814697265625"}});  // 4096 bytes
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(make_array<uint8_t>(npu.get(), 512));
  void* address = nullptr;
  CHECK(dvt_npu_malloc(npu.get(), 1, "one more", &address) == DVT_OUT_OF_MEMORY);
  CHECK(dvt_npu_free(npu.get(), blocks[1]) == DVT_OK);
  CHECK(dvt_npu_free(npu.get(), blocks[3]) == DVT_OK);
  CHECK(dvt_npu_malloc(npu.get(), 1024, "wide", &address) == DVT_OUT_OF_MEMORY);
  CHECK(dvt_npu_free(npu.get(), blocks[2]) == DVT_OK);
  CHECK(dvt_npu_malloc(npu.get(), 1536, "wide", &address) == DVT_OK);
}

TEST_CASE("launches and copies with bad addresses are refused at submission") {
  auto npu = make_npu();
  DvtStream* stream = make_stream(npu.get());
  auto* good = make_array<uint8_t>(npu.get(), 64, "good");
  auto* freed = make_array<uint8_t>(npu.get(), 64, "old activations");
  CHECK(dvt_npu_free(npu.get(), freed) == DVT_OK);
  std::array<uint8_t, 64> host{};
  const DvtTaskCost cost = vector_cost(64);
  CHECK(launch(npu.get(), stream, Arguments({freed}, {good}, 64), cost, "conv") ==
        DVT_INVALID_ARGUMENT);
  CHECK(message_has("input 0"));
  CHECK(message_has("freed memory (was of old activations)"));
  CHECK(std::string(dvt_npu_last_error()->node) == "conv");
  CHECK(launch(npu.get(), stream, Arguments({good}, {host.data()}, 64), cost) ==
        DVT_INVALID_ARGUMENT);
  CHECK(message_has("output 0"));
  CHECK(message_has("not device memory"));
  CHECK(launch(npu.get(), stream, Arguments({good + 32}, {good}, 64), cost) ==
        DVT_INVALID_ARGUMENT);
  CHECK(message_has("reach beyond the block of good"));
  CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_HOST_TO_DEVICE, host.data(), good, 64,
                           "swapped") == DVT_INVALID_ARGUMENT);
  CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_HOST_TO_DEVICE, good, good, 64, "device") ==
        DVT_INVALID_ARGUMENT);
  CHECK(message_has("host source"));
  CHECK(dvt_npu_copy_async(npu.get(), stream, static_cast<DvtCopyKind>(0), good, good, 64, "") ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_npu_memset_async(npu.get(), stream, good, 0, 65) == DVT_INVALID_ARGUMENT);
  // Records that point outside themselves.
  Arguments crooked({good}, {good}, 64);
  const uint64_t far = 1 << 20;
  std::memcpy(crooked.bytes().data() + 32, &far, sizeof far);
  CHECK(launch(npu.get(), stream, crooked, cost) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("operand 0 of the argument record lies outside it"));
  const DvtLaunch cut{increment, crooked.bytes().data(), 40, &cost, "cut", "op"};
  CHECK(dvt_npu_launch(npu.get(), stream, &cut) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_npu_launch(npu.get(), stream, nullptr) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_npu_task_count(npu.get()) == 0);
}

TEST_CASE("a free may follow the last submission of its stream") {
  auto npu = make_npu({.overrides = {"hbm.capacity=0.000003814697265625"}});  // 4096 bytes
  DvtStream* stream = make_stream(npu.get());
  auto* first = make_array<uint8_t>(npu.get(), 2048, "first");
  auto* result = make_array<uint8_t>(npu.get(), 2048, "result");
  CHECK(dvt_npu_memset_async(npu.get(), stream, first, 4, 2048) == DVT_OK);
  const Arguments use({first}, {result}, 2048);
  CHECK(launch(npu.get(), stream, use, slow_cost(), "use") == DVT_OK);
  CHECK(dvt_npu_free(npu.get(), first) == DVT_OK);
  // Earlier tasks still use the block; new ones may not.
  CHECK(launch(npu.get(), stream, use, slow_cost(), "late") == DVT_INVALID_ARGUMENT);
  CHECK(message_has("freed memory (was of first)"));
  CHECK(dvt_npu_free(npu.get(), first) == DVT_INVALID_ARGUMENT);
  // The same range, while the task has not run.
  auto* second = make_array<uint8_t>(npu.get(), 2048, "second");
  CHECK(dvt_npu_memset_async(npu.get(), stream, second, 9, 2048) == DVT_OK);
  std::array<uint8_t, 2048> out{};
  CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_DEVICE_TO_HOST, out.data(), result, 2048,
                           "out") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(out[2047] == 5);
}

TEST_CASE("scratch memory passes from task to task within a stream, however late they run") {
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY}) {
    auto npu =
        make_npu({.mode = mode, .overrides = {"hbm.capacity=0.000003814697265625"}});  // 4096 bytes
    DvtStream* stream = make_stream(npu.get());
    auto* data = make_array<uint8_t>(npu.get(), 2048, "data");
    CHECK(dvt_npu_memset_async(npu.get(), stream, data, 0, 2048) == DVT_OK);
    // Every task writes a block in the same range, the next one reads it; all are freed before
    // anything runs in lazy mode.
    std::vector<Arguments> records;
    records.reserve(10);
    for (int i = 0; i < 5; ++i) {
      auto* scratch = make_array<uint8_t>(npu.get(), 2048, "scratch");
      const Arguments& there = records.emplace_back(std::vector<void*>{data},
                                                    std::vector<void*>{scratch}, uint64_t{2048});
      const Arguments& back = records.emplace_back(std::vector<void*>{scratch},
                                                   std::vector<void*>{data}, uint64_t{2048});
      CHECK(launch(npu.get(), stream, there, vector_cost(64), "there") == DVT_OK);
      CHECK(launch(npu.get(), stream, back, vector_cost(64), "back") == DVT_OK);
      CHECK(dvt_npu_free(npu.get(), scratch) == DVT_OK);
      if (i < 4) continue;
      std::array<uint8_t, 2048> out{};
      CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_DEVICE_TO_HOST, out.data(), data, 2048,
                               "out") == DVT_OK);
      CHECK(dvt_npu_free(npu.get(), data) == DVT_OK);
      CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
      CHECK(out[0] == 10);
    }
  }
}

TEST_CASE("memory that another stream overwrites too early is reported with both owners") {
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY}) {
    auto npu =
        make_npu({.mode = mode, .overrides = {"hbm.capacity=0.000003814697265625"}});  // 4096 bytes
    DvtStream* slow = make_stream(npu.get());
    DvtStream* fast = make_stream(npu.get());
    auto* first = make_array<uint8_t>(npu.get(), 2048, "first");
    auto* result = make_array<uint8_t>(npu.get(), 2048, "result");
    CHECK(dvt_npu_memset_async(npu.get(), slow, first, 4, 2048) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), slow, -1) == DVT_OK);
    const Arguments use({first}, {result}, 2048);
    CHECK(launch(npu.get(), slow, use, slow_cost(), "use") == DVT_OK);
    CHECK(dvt_npu_free(npu.get(), first) == DVT_OK);
    auto* second = make_array<uint8_t>(npu.get(), 2048, "second");
    CHECK(dvt_npu_memset_async(npu.get(), fast, second, 9, 2048) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), fast, -1) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), slow, -1) == DVT_INVALID_ARGUMENT);
    CHECK(message_has("memory of first"));
    CHECK(message_has("second"));
    CHECK(std::string(dvt_npu_last_error()->node) == "use");
  }
}

TEST_CASE("fresh and freed memory holds poison") {
  auto npu = make_npu();
  DvtStream* stream = make_stream(npu.get());
  auto* block = make_array<uint8_t>(npu.get(), 64);
  for (int i = 0; i < 64; ++i) CHECK(block[i] == 0xA5);
  CHECK(dvt_npu_memset_async(npu.get(), stream, block, 1, 64) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(block[0] == 1);
  CHECK(dvt_npu_free(npu.get(), block) == DVT_OK);
  for (int i = 0; i < 64; ++i) CHECK(block[i] == 0xA5);  // In quarantine, still readable.
}

TEST_CASE("without backing, memory is accounted, and 60 GiB cost nothing") {
  auto npu = make_npu({.timing_only = true});
  void* address = nullptr;
  CHECK(dvt_npu_malloc(npu.get(), uint64_t{60} << 30, "huge", &address) == DVT_OK);
  DvtStream* stream = make_stream(npu.get());
  CHECK(dvt_npu_memset_async(npu.get(), stream, address, 0, uint64_t{60} << 30) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(dvt_npu_malloc(npu.get(), uint64_t{60} << 30, "again", &address) == DVT_OUT_OF_MEMORY);
}

TEST_CASE("options and parameters that make no sense are refused by name") {
  DvtNpuOptions options;
  DvtNpu* npu = nullptr;
  DvtError error{};
  const auto refused = [&](const char* part) {
    const DvtCode code = dvt_npu_create(&options, &npu, &error);
    CHECK(npu == nullptr);
    const std::string text = std::string(error.message) + error.expected + error.got;
    if (text.find(part) == std::string::npos) MESSAGE("text: " << text << " lacks: " << part);
    return code == DVT_INVALID_ARGUMENT && text.find(part) != std::string::npos;
  };
  dvt_npu_options_init(&options);
  options.soc = "910Z";
  CHECK(refused("unknown SoC 910Z"));
  CHECK(refused("910B2"));
  for (const auto& [text, part] : std::vector<std::pair<const char*, const char*>>{
           {"core.aic", "malformed override"},
           {"core.aic=many", "malformed override"},
           {"core.aic=nan", "malformed override"},
           {"core.aci=24", "unknown parameter"},
           {"core.aic=0", "out of range"},
           {"core.aic=2.5", "out of range"},
           {"hbm.efficiency=2", "out of range"},
           {"sq.reserved=4096", "leaves no queue entry"},
           {"op.Add.hat=3", "unknown parameter"},
           {"op.Add.head=-3", "out of range"},
       }) {
    dvt_npu_options_init(&options);
    options.override = &text;
    options.override_count = 1;
    const std::string shown = text;  // clang 14 captures no structured bindings.
    INFO(shown);
    CHECK(refused(part));
  }
  dvt_npu_options_init(&options);
  options.parameters = "core.clock = 1800 GHz [C] # ini\n";
  CHECK(refused("parameters:1: wrong unit of core.clock"));
  options.parameters = "core.clock = 1800 MHz [C]\n";
  CHECK(refused("no source"));
  options.parameters = "core.clock = 1800 MHz [X] # ini\n";
  CHECK(refused("no evidence"));
  options.parameters = "core.clock = 1800 MHz [C] # ini\ncore.clock = 1 MHz [C] # ini\n";
  CHECK(refused("given twice"));
  options.parameters = "core.clock = 1800 MHz [C] # ini\n";
  CHECK(refused("core.aic is missing"));
  options.parameters = nullptr;
  options.struct_size = 4;
  CHECK(refused("struct_size"));
}

TEST_CASE("parameters can be listed with evidence, and overrides show") {
  auto npu = make_npu({.overrides = {"core.aic=20", "op.Softmax.head=3"}});
  uint32_t assumptions = 0;
  bool found = false;
  for (uint32_t i = 0; i < dvt_npu_parameter_count(npu.get()); ++i) {
    DvtNpuParameter parameter{};
    REQUIRE(dvt_npu_parameter(npu.get(), i, &parameter) == DVT_OK);
    CHECK(std::string(parameter.source) != "");
    assumptions += parameter.evidence == 'A' ? 1 : 0;
    if (std::string(parameter.key) == "core.aic") {
      found = true;
      CHECK(parameter.value == 20);
      CHECK(parameter.overridden == 1);
      CHECK(parameter.evidence == 'C');
    }
  }
  CHECK(found);
  CHECK(assumptions > 5);
}

TEST_CASE("op_summary has msprof's columns, one per field, in every row") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  DvtTaskCost mixed = matmul_cost(128, 128, 128, DVT_I8);
  mixed.vector_elements = 128 * 128;
  mixed.vector_passes_x100 = 100;
  CHECK(launch_timing(npu.get(), stream, matmul_cost(64, 64, 64), "a,\"b\"") == DVT_OK);
  CHECK(launch_timing(npu.get(), stream, mixed, "mixed") == DVT_OK);
  CHECK(launch_timing(npu.get(), stream, vector_cost(1000), "vector") == DVT_OK);
  DvtEvent* event = make_event(npu.get());
  CHECK(dvt_npu_event_record(npu.get(), stream, event) == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  const std::string path = "npu_op_summary_test.csv";
  DvtError error{};
  REQUIRE(dvt_npu_write_op_summary(npu.get(), path.c_str(), &error) == DVT_OK);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::array<char, 4096> line{};
  std::vector<std::string> lines;
  while (std::fgets(line.data(), line.size(), file) != nullptr) lines.emplace_back(line.data());
  std::fclose(file);
  std::remove(path.c_str());
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].find("Task Duration(us)") != std::string::npos);
  CHECK(lines[0].find("aic_mac_ratio") != std::string::npos);
  CHECK(lines[1].find("\"a,\"\"b\"\"\"") != std::string::npos);
  CHECK(lines[2].find("MIX_AIC") != std::string::npos);
  CHECK(lines[3].find(",N/A,N/A,N/A,N/A,N/A,N/A,N/A,") != std::string::npos);  // No operands.
  const auto fields = [](const std::string& text) {
    size_t count = 1;
    bool quoted = false;
    for (const char c : text) {
      quoted = c == '"' ? !quoted : quoted;
      count += c == ',' && !quoted ? 1 : 0;
    }
    return count;
  };
  for (const std::string& text : lines) CHECK(fields(text) == fields(lines[0]));
  CHECK(dvt_npu_write_op_summary(npu.get(), "no_such_folder/x.csv", &error) == DVT_IO_ERROR);
}

TEST_CASE("op_summary has operands, and no prefixes where cores are combined") {
  for (const bool combined : {false, true}) {
    auto npu = make_npu({.soc = combined ? "910A" : "910B2"});
    DvtStream* stream = make_stream(npu.get());
    auto* data = make_array<uint8_t>(npu.get(), 16);
    CHECK(dvt_npu_memset_async(npu.get(), stream, data, 0, 16) == DVT_OK);
    const Arguments in_place({data, data}, {data}, 16);
    CHECK(launch(npu.get(), stream, in_place, vector_cost(16), "add") == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
    const std::string path = "npu_op_summary_operands_test.csv";
    DvtError error{};
    REQUIRE(dvt_npu_write_op_summary(npu.get(), path.c_str(), &error) == DVT_OK);
    std::FILE* file = std::fopen(path.c_str(), "rb");
    REQUIRE(file != nullptr);
    std::string text(8192, ' ');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    std::remove(path.c_str());
    CHECK(text.find(",\"16;16\",UINT8;UINT8,ND;ND,\"16\",UINT8,ND,N/A,") != std::string::npos);
    CHECK((text.find(",aiv_vec_time(us),aiv_vec_ratio,") != std::string::npos) != combined);
    CHECK((text.find(",total_cycles,vec_time(us),vec_ratio,mac_time(us)") != std::string::npos) ==
          combined);
  }
}

TEST_CASE("operator rows: longest first, shares add up to at most the whole") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  for (int i = 0; i < 3; ++i) {
    CHECK(launch_timing(npu.get(), stream, vector_cost(1000), "s", "Short") == DVT_OK);
  }
  CHECK(launch_timing(npu.get(), stream, slow_cost(), "l", "Long") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  std::array<DvtNpuOperator, 4> rows{};
  CHECK(dvt_npu_operators(npu.get(), 0, UINT64_MAX, nullptr, 0) == 2);
  REQUIRE(dvt_npu_operators(npu.get(), 0, UINT64_MAX, rows.data(), rows.size()) == 2);
  CHECK(std::string(rows[0].op) == "Long");
  CHECK(rows[1].count == 3);
  CHECK(rows[1].total_ps >= 3 * rows[1].min_ps);
  CHECK(rows[0].share_ppm + rows[1].share_ppm <= 1'000'000);
  CHECK(rows[0].share_ppm + rows[1].share_ppm >= 999'998);
  CHECK(dvt_npu_operators(npu.get(), 99, 5, rows.data(), rows.size()) == 0);
}
