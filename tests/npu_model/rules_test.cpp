// Each ordering rule of the device: a program that shows it, in every mode, and a device that
// breaks the rule, which the same program must notice.
#include "npu_model/rules.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)
using davit::npu::Rule;

namespace {

// All vector cores for about 75 us; one vector core; one cube core.
const DvtTaskCost kWide = vector_cost(uint64_t{8} << 20);
const DvtTaskCost kNarrow = vector_cost(64);
const DvtTaskCost kCube = matmul_cost(16, 16, 16);

// A device, and shorthands that remember whether a call failed.
class Bench {
 public:
  explicit Bench(DvtNpuMode mode, std::vector<const char*> overrides = {}, bool timing_only = false,
                 DvtNpu* beside = nullptr, bool check_order = false)
      : npu_(make_npu({.mode = mode,
                       .timing_only = timing_only,
                       .overrides = std::move(overrides),
                       .seed = 5,
                       .check_order = check_order,
                       .beside = beside})),
        npu(npu_.get()) {}

  DvtStream* stream(uint32_t priority = 0) { return make_stream(npu, priority); }
  uint8_t* block(size_t bytes = 16) { return make_array<uint8_t>(npu, bytes); }
  void fill(DvtStream* s, void* to, int value, uint64_t bytes = 16) {
    note(dvt_npu_memset_async(npu, s, to, value, bytes));
  }
  // x = x + 1 on 16 bytes.
  void add(DvtStream* s, uint8_t* data, const DvtTaskCost& cost, const char* name = "add") {
    kept_.push_back(std::make_unique<Arguments>(std::vector<void*>{data}, std::vector<void*>{data},
                                                uint64_t{16}));
    note(launch(npu, s, *kept_.back(), cost, name));
  }
  void timed(DvtStream* s, const DvtTaskCost& cost, const char* name) {
    note(launch_timing(npu, s, cost, name));
  }
  void note(DvtCode code) {
    if (code != DVT_OK && first_ == DVT_OK) first_ = code;
  }
  // Of everything so far, synchronisation included.
  DvtCode finish() {
    note(dvt_npu_synchronize(npu, -1));
    return first_;
  }
  // The first byte of a block, or -1 when something failed.
  int read(DvtStream* s, const uint8_t* from) {
    uint8_t value = 0;
    note(dvt_npu_copy_async(npu, s, DVT_COPY_DEVICE_TO_HOST, &value, from, 1, "read"));
    note(dvt_npu_stream_synchronize(npu, s, -1));
    return first_ == DVT_OK ? value : -1;
  }
  // The task of a name; all times are -1 when there is none.
  DvtNpuTask task(const std::string& name) {
    for (const DvtNpuTask& found : tasks_of(npu)) {
      if (found.name == name) return found;
    }
    DvtNpuTask none{};
    none.start_ps = none.end_ps = none.ready_ps = -1;
    return none;
  }
  size_t count(DvtNpuTaskType type) {
    const auto all = tasks_of(npu);
    return static_cast<size_t>(
        std::count_if(all.begin(), all.end(), [&](const auto& t) { return t.type == type; }));
  }

 private:
  NpuPtr npu_;
  std::vector<std::unique_ptr<Arguments>> kept_;
  DvtCode first_ = DVT_OK;

 public:
  DvtNpu* npu;
};

// A model whose first stream is its head.
struct Model {
  Bench& bench;
  DvtNpuModel* model = nullptr;
  DvtStream* caller;
  std::vector<DvtStream*> streams;
  Model(Bench& b, size_t count) : bench(b), caller(b.stream()) {
    b.note(dvt_npu_model_create(b.npu, &model));
    for (size_t i = 0; i < count; ++i) {
      streams.push_back(b.stream());
      b.note(dvt_npu_model_bind_stream(b.npu, model, streams[i], i == 0 ? 1 : 0));
    }
  }
  DvtNpuLabel* label() const {
    DvtNpuLabel* out = nullptr;
    bench.note(dvt_npu_label_create(bench.npu, model, &out));
    return out;
  }
  void end_on(size_t stream) const {
    bench.note(dvt_npu_model_end_graph(bench.npu, model, streams[stream]));
    bench.note(dvt_npu_model_build_end(bench.npu, model));
  }
  void run() const {
    bench.note(dvt_npu_model_execute(bench.npu, model, caller));
    bench.note(dvt_npu_stream_synchronize(bench.npu, caller, -1));
  }
};

// ---- Streams -----------------------------------------------------------------------------------

bool stream_is_fifo(DvtNpuMode mode) {
  Bench b(mode);
  DvtStream* s = b.stream();
  uint8_t* data = b.block();
  b.fill(s, data, 0);
  b.add(s, data, kWide);
  b.fill(s, data, 10);
  b.add(s, data, kNarrow);
  return b.read(s, data) == 11;
}

bool streams_are_independent(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  for (int i = 0; i < 8; ++i) b.timed(b.stream(), kCube, "cube");
  b.timed(b.stream(), kWide, "wide");
  b.timed(b.stream(), kCube, "late cube");
  const bool good = b.finish() == DVT_OK;
  return good && b.task("late cube").start_ps < b.task("wide").end_ps;
}

// Both are ready long before the cores are free; the urgent one comes last and starts first.
bool priority_orders_start(DvtNpuMode mode) {
  Bench b(mode, {"host.enqueue=0.1"}, true);
  DvtStream* busy = b.stream(7);
  DvtStream* low = b.stream(7);
  DvtStream* high = b.stream(0);
  const DvtTaskCost long_cost = vector_cost(uint64_t{1} << 30);
  b.timed(busy, long_cost, "busy");
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  b.timed(low, kWide, "low");
  b.timed(high, kWide, "high");
  return b.finish() == DVT_OK && b.task("high").start_ps < b.task("low").start_ps;
}

bool priority_does_not_preempt(DvtNpuMode mode) {
  Bench b(mode, {"host.enqueue=0.1", "hbm.bandwidth=100000", "l2.bandwidth=100000"}, true);
  b.timed(b.stream(7), kWide, "low");
  dvt_npu_host_advance(b.npu, 6'000'000);
  b.timed(b.stream(0), kWide, "high");
  if (b.finish() != DVT_OK || b.task("low").stall_ps != 0) return false;
  return mode == DVT_NPU_ADVERSARIAL || b.task("high").start_ps >= b.task("low").end_ps;
}

bool full_queue_holds_host(DvtNpuMode mode) {
  Bench b(mode, {"sq.depth=4", "sq.reserved=0"}, true);
  DvtStream* s = b.stream();
  for (int i = 0; i < 5; ++i) b.timed(s, kWide, i == 0 ? "first" : "more");
  const int64_t submitted = dvt_npu_host_now_ps(b.npu);
  return b.finish() == DVT_OK && submitted >= b.task("first").end_ps;
}

int after_failure(DvtNpuMode mode, DvtNpuFailureMode failure_mode) {
  Bench b(mode);
  DvtNpuStreamOptions options;
  dvt_npu_stream_options_init(&options);
  options.failure_mode = failure_mode;
  DvtStream* s = nullptr;
  b.note(dvt_npu_stream_create_with(b.npu, &options, &s));
  uint8_t* data = b.block();
  b.fill(s, data, 0);
  const Arguments in_place({data}, {data}, 16);
  b.note(launch(b.npu, s, in_place, kNarrow, "fails", refuse));
  b.add(s, data, kNarrow);
  return dvt_npu_stream_synchronize(b.npu, s, -1) == DVT_KERNEL_FAILED ? b.read(s, data) : -1;
}

bool stop_skips_rest(DvtNpuMode mode) {
  return after_failure(mode, DVT_NPU_STOP_ON_FAILURE) == 0;
}

bool continue_runs_rest(DvtNpuMode mode) {
  return after_failure(mode, DVT_NPU_CONTINUE_ON_FAILURE) == 1;
}

bool callback_is_in_order(DvtNpuMode mode) {
  Bench b(mode);
  DvtStream* s = b.stream();
  uint8_t* data = b.block();
  std::array<uint8_t, 16> host{};
  b.fill(s, data, 1);
  b.note(dvt_npu_copy_async(b.npu, s, DVT_COPY_DEVICE_TO_HOST, host.data(), data, 16, "out"));
  b.note(dvt_npu_host_callback(
      b.npu, s, [](void* raw) { ++*static_cast<uint8_t*>(raw); }, host.data()));
  b.note(dvt_npu_copy_async(b.npu, s, DVT_COPY_HOST_TO_DEVICE, data, host.data(), 16, "in"));
  return b.read(s, data) == 2;
}

bool callback_holds_stream(DvtNpuMode mode) {
  Bench b(mode);
  DvtStream* s = b.stream();
  uint8_t* data = b.block();
  b.fill(s, data, 0);
  b.note(dvt_npu_host_callback(
      b.npu, s, [](void*) {}, nullptr));
  b.add(s, data, kNarrow);
  if (b.finish() != DVT_OK) return false;
  const auto tasks = tasks_of(b.npu);
  return tasks[2].start_ps >= tasks[1].end_ps &&
         tasks[1].end_ps - tasks[1].start_ps == 10'000'000;  // host.callback
}

// ---- Events and notifies -----------------------------------------------------------------------

bool record_captures_prior_work(DvtNpuMode mode) {
  Bench b(mode);
  DvtStream* a = b.stream();
  DvtStream* c = b.stream();
  DvtEvent* event = make_event(b.npu);
  uint8_t* data = b.block();
  b.fill(a, data, 0);
  b.add(a, data, kWide);
  b.note(dvt_npu_event_record(b.npu, a, event));
  b.note(dvt_npu_event_wait(b.npu, c, event));
  b.add(c, data, kCube, "behind");
  const int value = b.read(c, data);
  return value == 2 && b.task("behind").start_ps >= b.task("add").end_ps;
}

bool wait_takes_latest_record(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  DvtStream* a = b.stream();
  DvtStream* c = b.stream();
  DvtEvent* event = make_event(b.npu);
  b.timed(a, kWide, "first");
  b.note(dvt_npu_event_record(b.npu, a, event));
  b.timed(a, kWide, "second");
  b.note(dvt_npu_event_record(b.npu, a, event));
  b.note(dvt_npu_event_wait(b.npu, c, event));
  b.timed(c, kCube, "behind second");
  // Long enough that no delay of the adversarial mode hides it.
  b.timed(a, vector_cost(uint64_t{1} << 32), "third");
  b.note(dvt_npu_event_record(b.npu, a, event));
  if (b.finish() != DVT_OK) return false;
  const int64_t start = b.task("behind second").start_ps;
  return start >= b.task("second").end_ps && start < b.task("third").end_ps;
}

bool record_releases_all(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  DvtStream* a = b.stream();
  DvtEvent* event = make_event(b.npu);
  b.timed(a, kWide, "work");
  b.note(dvt_npu_event_record(b.npu, a, event));
  for (int i = 0; i < 3; ++i) b.note(dvt_npu_event_wait(b.npu, b.stream(), event));
  return b.finish() == DVT_OK;
}

bool reached_event_adds_no_task(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  DvtStream* a = b.stream();
  DvtEvent* event = make_event(b.npu);
  b.note(dvt_npu_event_record(b.npu, a, event));
  b.note(dvt_npu_stream_synchronize(b.npu, a, -1));
  b.note(dvt_npu_event_wait(b.npu, b.stream(), event));
  return b.finish() == DVT_OK && b.count(DVT_NPU_EVENT_WAIT) == 0;
}

bool unrecorded_is_complete(DvtNpuMode mode) {
  Bench b(mode);
  int complete = 0;
  b.note(dvt_npu_event_query(b.npu, make_event(b.npu), &complete));
  return b.finish() == DVT_OK && complete == 1;
}

// Two wait, one is set free; the other one never is.
bool notify_releases_one(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  DvtNotify* notify = make_notify(b.npu);
  DvtStream* first = b.stream();
  DvtStream* second = b.stream();
  b.note(dvt_npu_notify_wait(b.npu, first, notify));
  b.note(dvt_npu_notify_wait(b.npu, second, notify));
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  b.note(dvt_npu_notify_record(b.npu, b.stream(), notify));
  const DvtCode one = dvt_npu_stream_synchronize(b.npu, first, -1);
  const DvtCode other = dvt_npu_stream_synchronize(b.npu, second, -1);
  return (one == DVT_OK) != (other == DVT_OK);
}

bool notify_resets(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  DvtNotify* notify = make_notify(b.npu);
  DvtStream* a = b.stream();
  DvtStream* waiter = b.stream();
  b.note(dvt_npu_notify_record(b.npu, a, notify));
  b.note(dvt_npu_stream_synchronize(b.npu, a, -1));
  b.note(dvt_npu_notify_wait(b.npu, waiter, notify));
  b.note(dvt_npu_stream_synchronize(b.npu, waiter, -1));
  b.note(dvt_npu_notify_wait(b.npu, waiter, notify));
  return dvt_npu_stream_synchronize(b.npu, waiter, -1) == DVT_TIMEOUT && b.finish() == DVT_TIMEOUT;
}

// There is one event id. A wait for the destroyed event uses it until its record is reached.
bool event_id_is_held(DvtNpuMode mode) {
  Bench b(mode, {"event.max=1"}, true);
  DvtStream* a = b.stream();
  DvtEvent* event = make_event(b.npu);
  b.timed(a, kWide, "slow");
  b.note(dvt_npu_event_record(b.npu, a, event));
  b.note(dvt_npu_event_wait(b.npu, b.stream(), event));
  b.note(dvt_npu_event_destroy(b.npu, event));
  b.note(dvt_npu_event_create(b.npu, &event));
  const int64_t created = dvt_npu_host_now_ps(b.npu);
  return b.finish() == DVT_OK && created >= b.task("slow").end_ps;
}

// A stream of one device waits for what another one has done.
bool notify_crosses_devices(DvtNpuMode mode) {
  Bench waits(mode);
  Bench works(mode, {}, false, waits.npu);
  DvtNotify* notify = make_notify(waits.npu);
  DvtNotify* there = nullptr;
  waits.note(dvt_npu_notify_import(works.npu, waits.npu, notify, &there));
  DvtStream* a = works.stream();
  DvtStream* c = waits.stream();
  std::array<uint8_t, 16> host{};
  uint8_t* from = works.block();
  uint8_t* to = waits.block();
  waits.note(dvt_npu_notify_wait(waits.npu, c, notify));
  waits.note(dvt_npu_copy_async(waits.npu, c, DVT_COPY_HOST_TO_DEVICE, to, host.data(), 16, "in"));
  works.fill(a, from, 6);
  works.add(a, from, kWide, "slow");
  works.note(
      dvt_npu_copy_async(works.npu, a, DVT_COPY_DEVICE_TO_HOST, host.data(), from, 16, "out"));
  works.note(dvt_npu_notify_record(works.npu, a, there));
  const int value = waits.read(c, to);
  const int64_t gap = waits.task("in").start_ps - works.task("out").end_ps;
  return value == 7 && gap >= 4'000'000 && works.finish() == DVT_OK;  // Three latencies, 4 us.
}

// Whoever is woken too early looks again.
bool woken_looks_again(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  DvtNotify* notify = make_notify(b.npu);
  DvtStream* waiter = b.stream();
  DvtStream* busy = b.stream();
  b.note(dvt_npu_notify_wait(b.npu, waiter, notify));
  b.timed(waiter, kCube, "behind");
  for (int i = 0; i < 100; ++i) b.timed(busy, kNarrow, i == 99 ? "last" : "before");
  b.note(dvt_npu_notify_record(b.npu, busy, notify));
  return b.finish() == DVT_OK && b.task("behind").start_ps >= b.task("last").end_ps;
}

// ---- Cores and engines -------------------------------------------------------------------------

// 47 of 48 vector cores are busy; the next kernel wants all.
int64_t start_with_one_core_free(DvtNpuMode mode, bool all_cores) {
  Bench b(mode, {}, true);
  DvtTaskCost most = vector_cost(uint64_t{1} << 30);
  most.block_dim = 47;
  b.timed(b.stream(), most, "most");
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  const DvtLaunch wide{increment, nullptr, 0, &kWide, "wide", "Test"};
  DvtStream* s = b.stream();
  b.note(all_cores ? dvt_npu_launch_on_all_cores(b.npu, s, &wide)
                   : dvt_npu_launch(b.npu, s, &wide));
  if (b.finish() != DVT_OK) return -1;
  return b.task("wide").start_ps < b.task("most").end_ps ? 1 : 2;
}

bool starts_on_any_core(DvtNpuMode mode) {
  return start_with_one_core_free(mode, false) == 1;
}

bool all_cores_waits(DvtNpuMode mode) {
  return start_with_one_core_free(mode, true) == 2;
}

bool mix_needs_vector_cores(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  b.timed(b.stream(), vector_cost(uint64_t{1} << 30), "vector");
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  DvtTaskCost mix = matmul_cost(64, 64, 64);
  mix.vector_elements = 64 * 64;
  mix.vector_passes_x100 = 100;
  b.timed(b.stream(), mix, "mix");
  return b.finish() == DVT_OK && b.task("mix").start_ps >= b.task("vector").end_ps;
}

// One of two vector cores stays busy.
bool mix_needs_both_vector_cores(DvtNpuMode mode) {
  Bench b(mode, {"core.aic=1", "core.aiv=2"}, true);
  DvtTaskCost one = vector_cost(uint64_t{1} << 28);
  one.block_dim = 1;
  b.timed(b.stream(), one, "vector");
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  DvtTaskCost mix = matmul_cost(64, 64, 64);
  mix.vector_elements = 64 * 64;
  mix.vector_passes_x100 = 100;
  b.timed(b.stream(), mix, "mix");
  return b.finish() == DVT_OK && b.task("mix").start_ps >= b.task("vector").end_ps;
}

bool copies_have_own_engines(DvtNpuMode mode) {
  Bench b(mode, {}, true);
  std::vector<uint8_t> host(32);
  uint8_t* data = b.block(uint64_t{1} << 30);
  b.note(dvt_npu_copy_async(b.npu, b.stream(), DVT_COPY_HOST_TO_DEVICE, data, host.data(),
                            uint64_t{1} << 30, "in"));
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  b.note(
      dvt_npu_copy_async(b.npu, b.stream(), DVT_COPY_DEVICE_TO_HOST, host.data(), data, 16, "out"));
  b.note(dvt_npu_copy_async(b.npu, b.stream(), DVT_COPY_DEVICE_TO_DEVICE, data, data + 16, 16,
                            "move"));
  if (b.finish() != DVT_OK) return false;
  const int64_t end = b.task("in").end_ps;
  return b.task("out").end_ps < end && b.task("move").end_ps < end;
}

// An AICPU task reads what a copy has brought: behind an invalidation it may.
bool aicpu_has_cache(DvtNpuMode mode) {
  for (const bool invalidates : {false, true}) {
    Bench b(mode, {}, false, nullptr, true);
    DvtStream* s = b.stream();
    uint8_t* data = b.block();
    const std::array<uint8_t, 16> host{};
    b.note(dvt_npu_copy_async(b.npu, s, DVT_COPY_HOST_TO_DEVICE, data, host.data(), 16, "in"));
    DvtTaskCost aicpu{};
    aicpu.kind = DVT_TASK_AICPU;
    aicpu.read_bytes = 16;
    const Arguments in_place({data}, {data}, 16);
    const DvtLaunch reads{
        increment, in_place.bytes().data(), in_place.bytes().size(), &aicpu, "reads", "Test"};
    b.note(invalidates ? dvt_npu_launch_invalidating(b.npu, s, &reads)
                       : dvt_npu_launch(b.npu, s, &reads));
    if ((b.finish() == DVT_OK) != invalidates) return false;
    const bool told = last_message().find("stream 0 task 0 (MEMCPY_H2D in)") != std::string::npos;
    if (!invalidates && !told) return false;
  }
  return true;
}

// ---- Models ------------------------------------------------------------------------------------

bool bound_tasks_stay(DvtNpuMode mode) {
  Bench b(mode);
  Model m(b, 1);
  uint8_t* data = b.block();
  b.fill(m.streams[0], data, 1);
  m.end_on(0);
  dvt_npu_host_advance(b.npu, 60'000'000'000);
  return b.finish() == DVT_OK && dvt_npu_task_count(b.npu) == 0;
}

bool only_heads_start(DvtNpuMode mode) {
  Bench b(mode);
  Model m(b, 2);
  uint8_t* data = b.block(32);
  b.fill(m.streams[0], data, 1);
  b.fill(m.streams[1], data + 16, 1);
  m.end_on(0);
  m.run();
  return b.finish() == DVT_OK && b.count(DVT_NPU_MEMSET) == 1;
}

bool execution_ends_with_graph(DvtNpuMode mode) {
  Bench b(mode);
  Model m(b, 1);
  uint8_t* data = b.block();
  b.fill(m.caller, data, 0);
  b.add(m.streams[0], data, kWide, "in model");
  m.end_on(0);
  b.note(dvt_npu_model_execute(b.npu, m.model, m.caller));
  b.add(m.caller, data, kCube, "behind");
  const int value = b.read(m.caller, data);
  return value == 2 && b.task("behind").start_ps > b.task("in model").end_ps;
}

bool program_is_reused(DvtNpuMode mode) {
  Bench b(mode);
  Model m(b, 1);
  uint8_t* data = b.block();
  b.fill(m.caller, data, 0);
  b.add(m.streams[0], data, kNarrow);
  m.end_on(0);
  for (int i = 0; i < 3; ++i) m.run();
  return b.read(m.caller, data) == 3;
}

// Ten tasks on a stream whose queue on the device holds four: two more streams are chained.
bool long_programs_chain(DvtNpuMode mode) {
  Bench b(mode, {"model.stream_depth=4", "stream.max=4"});
  Model m(b, 1);
  uint8_t* data = b.block();
  b.fill(m.caller, data, 0);
  for (int i = 0; i < 10; ++i) b.add(m.streams[0], data, kNarrow);
  m.end_on(0);
  for (int i = 0; i < 2; ++i) m.run();
  DvtStream* fifth = nullptr;
  const bool full = dvt_npu_stream_create(b.npu, 0, &fifth) == DVT_OUT_OF_RESOURCE;
  return full && b.read(m.caller, data) == 20;
}

bool active_runs_beside(DvtNpuMode mode) {
  Bench b(mode);
  Model m(b, 2);
  uint8_t* data = b.block(32);
  b.note(dvt_npu_stream_active(b.npu, m.streams[0], m.streams[1]));
  b.fill(m.streams[0], data, 1);
  b.fill(m.streams[1], data + 16, 1);
  m.end_on(0);
  m.run();
  return b.finish() == DVT_OK && b.count(DVT_NPU_MEMSET) == 2;
}

bool target_is_of_model(DvtNpuMode mode) {
  Bench b(mode);
  Model m(b, 1);
  Model other(b, 1);
  return dvt_npu_stream_active(b.npu, m.streams[0], other.streams[0]) == DVT_INVALID_ARGUMENT;
}

// 0 == `right`: the target writes 10, the present stream would write 20; both add up.
int switched(DvtNpuMode mode, int64_t right) {
  Bench b(mode);
  Model m(b, 2);
  uint8_t* data = b.block();
  auto* sides = reinterpret_cast<uint8_t*>(make_array<int64_t>(b.npu, 2));
  DvtNpuLabel* end = m.label();
  b.fill(m.caller, data, 0);
  b.fill(m.caller, sides, 0, 8);
  b.fill(m.caller, sides + 8, static_cast<int>(right), 8);
  b.note(dvt_npu_stream_switch(b.npu, m.streams[0], sides, DVT_NPU_EQUAL, sides + 8, m.streams[1]));
  b.add(m.streams[0], data, kNarrow);
  b.add(m.streams[0], data, kNarrow);
  b.note(dvt_npu_label_set(b.npu, m.streams[0], end));
  m.end_on(0);
  m.run();
  return b.read(m.caller, data);
}

// The present stream would end the graph; when it stops, nobody does.
bool switch_stops_stream(DvtNpuMode mode) {
  return switched(mode, 0) == -1;
}

bool false_falls_through(DvtNpuMode mode) {
  return switched(mode, 1) == 2;
}

// Three branches, each writes its number; `index` selects.
int branch(DvtNpuMode mode, int index) {
  Bench b(mode);
  Model m(b, 2);
  uint8_t* data = b.block();
  uint8_t* selector = b.block();
  b.fill(m.caller, data, 0);
  b.fill(m.caller, selector, 0, 4);
  b.fill(m.caller, selector, index, 1);
  DvtNpuLabel* const labels[] = {m.label(), m.label(), m.label()};
  DvtNpuLabel* end = m.label();
  b.note(dvt_npu_label_switch(b.npu, m.streams[0], selector, labels, 3));
  for (size_t i = 0; i < 3; ++i) {
    DvtStream* s = m.streams[i == 2 ? 1 : 0];  // The last one on another stream.
    b.note(dvt_npu_label_set(b.npu, s, labels[i]));
    for (size_t k = 0; k <= i; ++k) b.add(s, data, kNarrow);
    b.note(dvt_npu_label_goto(b.npu, s, end));
  }
  b.note(dvt_npu_label_set(b.npu, m.streams[1], end));
  m.end_on(1);
  m.run();
  return b.read(m.caller, data);
}

bool index_is_clamped(DvtNpuMode mode) {
  return branch(mode, 0) == 1 && branch(mode, 1) == 2 && branch(mode, 2) == 3 &&
         branch(mode, 3) == 3;
}

bool jump_stops_stream(DvtNpuMode mode) {
  return branch(mode, 2) == 3;
}

// ---- Queues ------------------------------------------------------------------------------------

DvtNpuQueue* queue_of(Bench& b) {
  DvtNpuQueue* queue = nullptr;
  b.note(dvt_npu_queue_create(b.npu, 1, &queue));
  return queue;
}

bool pending_frees_aicpu(DvtNpuMode mode) {
  Bench b(mode, {"core.aicpu=1"});
  DvtNpuQueue* queue = queue_of(b);
  uint8_t* data = b.block(32);
  b.note(dvt_npu_dequeue_async(b.npu, b.stream(), queue, data, 16));
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  DvtStream* other = b.stream();
  b.fill(other, data + 16, 1);
  DvtTaskCost aicpu{};
  aicpu.kind = DVT_TASK_AICPU;
  aicpu.read_bytes = 16;
  b.add(other, data + 16, aicpu);
  return b.read(other, data + 16) == 2;
}

bool item_wakes_pending(DvtNpuMode mode) {
  Bench b(mode);
  DvtNpuQueue* queue = queue_of(b);
  uint8_t* data = b.block(32);
  DvtStream* consumer = b.stream();
  DvtStream* producer = b.stream();
  b.note(dvt_npu_dequeue_async(b.npu, consumer, queue, data, 16));
  dvt_npu_host_advance(b.npu, 6'000'000'000);
  b.fill(producer, data + 16, 4);
  b.note(dvt_npu_enqueue_async(b.npu, producer, queue, data + 16, 16));
  return b.read(consumer, data) == 4;
}

struct Case {
  Rule rule;
  const char* text;
  bool (*holds)(DvtNpuMode mode);
  DvtNpuMode broken_in = DVT_NPU_PROMPT;  // Where breaking it shows.
};

constexpr Case kCases[] = {
    {Rule::kStreamIsFifo, "a stream runs its tasks in submission order", stream_is_fifo},
    {Rule::kStreamsAreIndependent, "streams overlap", streams_are_independent},
    {Rule::kPriorityOrdersStart, "urgent streams start first", priority_orders_start},
    {Rule::kPriorityDoesNotPreempt, "running tasks keep their cores", priority_does_not_preempt},
    {Rule::kFullQueueHoldsHost, "a full queue holds the host", full_queue_holds_host},
    {Rule::kStopSkipsRest, "stop on failure", stop_skips_rest},
    {Rule::kContinueRunsRest, "continue on failure", continue_runs_rest},
    {Rule::kCallbackIsInOrder, "a callback is called in stream order", callback_is_in_order},
    {Rule::kCallbackHoldsStream, "and its stream waits for it", callback_holds_stream},
    {Rule::kRecordCapturesPriorWork, "a record captures prior work", record_captures_prior_work},
    {Rule::kWaitTakesLatestRecord, "a wait takes the latest record", wait_takes_latest_record},
    {Rule::kRecordReleasesAll, "a record releases all who wait", record_releases_all},
    {Rule::kReachedEventAddsNoTask, "no task for a reached event", reached_event_adds_no_task},
    {Rule::kUnrecordedIsComplete, "an unrecorded event is complete", unrecorded_is_complete},
    {Rule::kNotifyReleasesOne, "a notify releases one", notify_releases_one},
    {Rule::kNotifyResets, "a notify resets", notify_resets},
    {Rule::kNotifyCrossesDevices, "a notify crosses devices", notify_crosses_devices},
    {Rule::kEventIdIsHeld, "tasks hold the id of their event", event_id_is_held},
    {Rule::kWokenLooksAgain, "who is woken looks again", woken_looks_again, DVT_NPU_ADVERSARIAL},
    {Rule::kStartsOnAnyCore, "a kernel starts on any core", starts_on_any_core},
    {Rule::kAllCoresWaits, "or waits for all, if asked to", all_cores_waits},
    {Rule::kMixNeedsVectorCores, "a mixed kernel needs both kinds", mix_needs_vector_cores},
    {Rule::kMixNeedsBothVectorCores, "two vector cores", mix_needs_both_vector_cores},
    {Rule::kBoundTasksStay, "bound tasks wait for an execution", bound_tasks_stay},
    {Rule::kOnlyHeadsStart, "an execution starts the heads", only_heads_start},
    {Rule::kExecutionEndsWithGraph, "and ends with the graph", execution_ends_with_graph},
    {Rule::kProgramIsReused, "executions reuse the tasks", program_is_reused},
    {Rule::kLongProgramsChain, "long streams are chained", long_programs_chain},
    {Rule::kActiveRunsBeside, "an activated stream runs beside", active_runs_beside},
    {Rule::kTargetIsOfModel, "and is of the same model", target_is_of_model},
    {Rule::kSwitchStopsStream, "a switch stops its stream", switch_stops_stream},
    {Rule::kFalseFallsThrough, "unless the condition is false", false_falls_through},
    {Rule::kIndexIsClamped, "the index of a label is clamped", index_is_clamped},
    {Rule::kJumpStopsStream, "a jump elsewhere stops its stream", jump_stops_stream},
    {Rule::kPendingFreesAicpu, "a pending task frees its AICPU", pending_frees_aicpu},
    {Rule::kItemWakesPending, "an item wakes it", item_wakes_pending},
    {Rule::kCopiesHaveOwnEngines, "copies have their own engines", copies_have_own_engines},
    {Rule::kAicpuHasCache, "AICPUs have a cache", aicpu_has_cache},
};

}  // namespace

TEST_CASE("every rule has a test") {
  std::set<Rule> tested;
  for (const Case& c : kCases) tested.insert(c.rule);
  CHECK(tested.size() == std::size(kCases));
  CHECK(tested.size() + 1 == static_cast<size_t>(Rule::kCount));
}

TEST_CASE("the device keeps every rule, in every mode") {
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL}) {
    for (const Case& c : kCases) {
      INFO(std::string(c.text) << ", mode " << mode);
      CHECK(c.holds(mode));
    }
  }
}

TEST_CASE("a device that breaks a rule is noticed by that rule's test") {
  for (const Case& c : kCases) {
    INFO(std::string(c.text));
    davit::npu::break_rule(c.rule);
    expects_invariants = false;
    const bool held = c.holds(c.broken_in);
    davit::npu::break_rule(Rule::kNone);
    expects_invariants = true;
    CHECK_FALSE(held);
  }
}
