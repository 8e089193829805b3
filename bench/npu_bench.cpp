// npu_bench: how fast the Ascend model simulates, on one core and without functional kernels, and
// what a queued task takes. All programs have 64 streams and 1,000,000 tasks, submitted through the
// C API.
//
//   paced     the host needs 9 us a submission, as a real one: one or two tasks run at a time
//   mixed     a host that never waits: products, vector work, copies and AICPU tasks compete, one
//   in
//             ten streams waits for an event of another one
//   narrow    32 kernels of one core each run at a time and share out the bandwidth of HBM:
//   whenever
//             one starts or ends, all others change their speed
//
// Each runs three times and must give the same picoseconds. Limit: three million tasks a
// second, paced.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "davit/npu.h"
#include "npu_model/random.hpp"

namespace {

using davit::bench::Clock;
using davit::bench::now_ns;
using davit::bench::Report;
using davit::npu::Random;

constexpr size_t kStreams = 64;
constexpr size_t kTasks = 1'000'000;

struct Destroy {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};
using NpuPtr = std::unique_ptr<DvtNpu, Destroy>;

void require(DvtCode code, const char* what) {
  if (code == DVT_OK) return;
  std::fprintf(stderr, "npu_bench: %s: %s\n", what, dvt_npu_last_error()->message);
  std::_Exit(1);
}

NpuPtr make_npu(const std::vector<const char*>& overrides, bool records) {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.timing_only = 1;
  options.no_records = records ? 0 : 1;
  options.override = overrides.data();
  options.override_count = overrides.size();
  DvtNpu* npu = nullptr;
  require(dvt_npu_create(&options, &npu, nullptr), "create");
  return NpuPtr(npu);
}

DvtTaskCost vector_cost(uint64_t elements, uint32_t cores) {
  DvtTaskCost cost{};
  cost.kind = DVT_TASK_VECTOR;
  cost.dtype = DVT_F32;
  cost.vector_elements = elements;
  cost.vector_passes_x100 = 100;
  cost.read_bytes = cost.write_bytes = elements * 4;
  cost.block_dim = cores;
  return cost;
}

DvtTaskCost matmul_cost(uint64_t m, uint64_t k, uint64_t n) {
  DvtTaskCost cost{};
  cost.kind = DVT_TASK_MATMUL;
  cost.dtype = DVT_F16;
  cost.batch = 1;
  cost.m = m;
  cost.k = k;
  cost.n = n;
  return cost;
}

struct Program {
  const char* name;
  std::vector<const char*> overrides;
  std::vector<DvtTaskCost> costs;
  bool mixed;
};
constexpr double kTaskLimitNs = 333;  // 3 million tasks a second.

std::vector<Program> programs() {
  std::vector<DvtTaskCost> several;
  for (uint64_t i = 1; i <= 8; ++i) {
    several.push_back(vector_cost(i * 3000, 0));
    several.push_back(matmul_cost(16 * i, 128, 64 * i));
  }
  DvtTaskCost aicpu{};
  aicpu.kind = DVT_TASK_AICPU;
  aicpu.read_bytes = 1000;
  several.push_back(aicpu);
  return {
      {"paced", {}, {vector_cost(1000, 0)}, false},
      {"mixed", {"host.enqueue=0.2"}, several, true},
      {"narrow", {"host.enqueue=0.2", "vector.head=0.1"}, {vector_cost(100'000, 1)}, false},
  };
}

// The digest of a run: of all task times when there are records, else of the final clock.
struct Outcome {
  double ns_per_task = 0;  // Of the thread's CPU time.
  int64_t end_ps = 0;
  uint64_t digest = 0;
};

uint64_t digest_of(const DvtNpu* npu) {
  uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3U;
  };
  for (uint64_t i = 0; i < dvt_npu_task_count(npu); ++i) {
    DvtNpuTask task;
    require(dvt_npu_task(npu, i, &task), "task");
    for (const int64_t value : {static_cast<int64_t>(task.id), task.ready_ps, task.start_ps,
                                task.end_ps, task.stall_ps}) {
      add(value);
    }
  }
  return hash;
}

Outcome run(const Program& program, bool records) {
  const NpuPtr npu = make_npu(program.overrides, records);
  std::vector<DvtStream*> streams(kStreams);
  std::vector<DvtEvent*> events(kStreams);
  for (size_t i = 0; i < kStreams; ++i) {
    require(dvt_npu_stream_create(npu.get(), static_cast<uint32_t>(i % 8), &streams[i]), "stream");
    require(dvt_npu_event_create(npu.get(), &events[i]), "event");
  }
  void* data = nullptr;
  require(dvt_npu_malloc(npu.get(), 1 << 20, "data", &data), "malloc");
  std::vector<char> host(1 << 20);
  Random random(1);
  const double begin = now_ns(Clock::kThreadCpu);
  for (size_t i = 0; i < kTasks; ++i) {
    DvtStream* stream = streams[i % kStreams];
    const uint32_t kind = program.mixed ? random.below(20) : 20;
    if (kind == 0) {
      require(dvt_npu_event_record(npu.get(), stream, events[i % kStreams]), "record");
    } else if (kind == 1) {
      require(dvt_npu_event_wait(npu.get(), stream, events[random.below(kStreams)]), "wait");
    } else if (kind == 2) {
      require(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_HOST_TO_DEVICE, data, host.data(),
                                 4096, "input"),
              "copy");
    } else {
      const DvtTaskCost& cost =
          program.costs[random.below(static_cast<uint32_t>(program.costs.size()))];
      const DvtLaunch launch{nullptr, nullptr, 0, &cost, "/layer/kernel", "Kernel"};
      require(dvt_npu_launch(npu.get(), stream, &launch), "launch");
    }
  }
  require(dvt_npu_synchronize(npu.get(), -1), "synchronise");
  const double ns = now_ns(Clock::kThreadCpu) - begin;
  return {ns / kTasks, dvt_npu_host_now_ps(npu.get()), digest_of(npu.get())};
}

// Host memory that a queued task takes, measured with full queues.
double bytes_per_task() {
  const NpuPtr npu = make_npu({}, false);
  constexpr size_t kQueued = 2000;
  const DvtTaskCost cost = vector_cost(uint64_t{1} << 34, 0);
  std::vector<DvtStream*> streams(kStreams);
  for (auto& stream : streams) require(dvt_npu_stream_create(npu.get(), 0, &stream), "stream");
  const DvtLaunch launch{nullptr, nullptr, 0, &cost, "/layer/kernel", "Kernel"};
  require(dvt_npu_launch(npu.get(), streams[0], &launch), "launch");
  const size_t before = mallinfo2().uordblks;
  for (size_t i = 0; i < kQueued * kStreams; ++i) {
    require(dvt_npu_launch(npu.get(), streams[i % kStreams], &launch), "launch");
  }
  return static_cast<double>(mallinfo2().uordblks - before) / (kQueued * kStreams);
}

}  // namespace

int main(int argc, char** argv) {
  Report report("npu_bench", argc, argv);
  bool good = true;
  for (const Program& program : programs()) {
    if (!report.wants(program.name)) continue;
    const Outcome timed = run(program, false);
    const Outcome again = run(program, false);
    const Outcome recorded = run(program, true);
    const bool same = timed.end_ps == again.end_ps && timed.end_ps == recorded.end_ps;
    good = good && same;
    report.add({.metric = std::string(program.name) + ": a task",
                .value = std::min(timed.ns_per_task, again.ns_per_task),
                .unit = "ns"},
               kTaskLimitNs);
    std::printf("  ends at %lld ps%s, digest %016llx\n", static_cast<long long>(timed.end_ps),
                same ? ", three times" : ": NOT THE SAME",
                static_cast<unsigned long long>(recorded.digest));
  }
  if (report.wants("memory")) {
    report.add({.metric = "memory of a queued task", .value = bytes_per_task(), .unit = "bytes"},
               200);
  }
  return good ? report.finish() : 1;
}
