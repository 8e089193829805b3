// Kernels that describe themselves: as loop nests and as functions.
#include <string>

#include "davit/loop_nest.h"
#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

bool message_has(const std::string& part) {
  const bool found = last_message().find(part) != std::string::npos;
  if (!found) MESSAGE("message: " << last_message() << " lacks: " << part);
  return found;
}

// The nest that `data` points at.
DvtCode given_nest(void* data, const DvtTaskCost* /*cost*/, DvtLoopNest* out) {
  *out = *static_cast<const DvtLoopNest*>(data);
  return DVT_OK;
}

DvtNestStep step(uint8_t kind, uint32_t depth, uint64_t amount) {
  DvtNestStep out{};
  out.kind = kind;
  out.dtype = DVT_F32;
  out.depth = depth;
  out.amount = amount;
  return out;
}

// Each of 96 blocks: ten times load 4096 bytes, add them to themselves, store them.
DvtLoopNest vector_nest() {
  DvtLoopNest nest{};
  nest.cores = DVT_CORES_VECTOR;
  nest.blocks = 96;
  nest.loop_count = 1;
  nest.extents[0] = 10;
  nest.step_count = 3;
  nest.steps[0] = step(DVT_NEST_LOAD, 1, 4096);
  nest.steps[1] = step(DVT_NEST_VECTOR, 1, 1024);
  nest.steps[1].passes_x100 = 200;
  nest.steps[2] = step(DVT_NEST_STORE, 1, 4096);
  return nest;
}

DvtNpuTask estimate(DvtNpu* npu, const DvtTaskCost& cost = {}, const char* op = "Custom") {
  DvtNpuTask task{};
  REQUIRE(dvt_npu_estimate(npu, &cost, op, &task) == DVT_OK);
  return task;
}

NpuPtr npu_with(DvtLoopNest& nest, std::vector<const char*> overrides = {}) {
  auto npu = make_npu({.timing_only = true, .overrides = std::move(overrides)});
  DvtKernelTime time{};
  time.op = "Custom";
  time.nest = given_nest;
  time.data = &nest;
  REQUIRE(dvt_npu_describe_kernel(npu.get(), &time) == DVT_OK);
  return npu;
}

}  // namespace

TEST_CASE("golden: a vector nest") {
  DvtLoopNest nest = vector_nest();
  auto npu = npu_with(nest);
  // 96 blocks on 48 cores are two rounds of ten iterations.
  //   VEC   20 * (15 + 16 repeats * 2)                                   = 940
  //   MTE2  20 * ceil(147 + 4096 / 51) = 20 * 228                        = 4560
  //   MTE3  20 * ceil(121 + 4096 / 80) = 20 * 173                        = 3460
  //   chip  96 * 10 * 8192 B = 7864320 B at 1320 GB/s: 5.96 us           = 10724.1 of MTE2
  //   body  ceil(10724.07 + 0.05 * 3460)                                 = 10898
  for (const char* op : {"Custom", "Custom.f32", "com.acme::Custom(1)"}) {
    const DvtNpuTask task = estimate(npu.get(), {}, op);
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_VEC] == 940);
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 10725);
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE3] == 3460);
    CHECK(task.body_cycles == 10898);
    CHECK(task.head_ps == 4'100'000);  // vector.head
    CHECK(task.block_dim == 48);
    CHECK(task.hbm_bytes == 7'864'320);
    CHECK(task.type == DVT_NPU_AI_VECTOR_CORE);
  }
  // Another operator is not touched.
  CHECK(estimate(npu.get(), vector_cost(6144, 200), "Other").body_cycles == 159);
  // What stays in L2 does not wait for HBM: 7864320 B at 4000 GB/s are 3539 cycles.
  nest.unique_bytes = 8192;
  auto resident = npu_with(nest);
  CHECK(estimate(resident.get()).pipe_cycles[DVT_NPU_PIPE_MTE2] == 4560);
  CHECK(estimate(resident.get()).body_cycles == 4560 + 173);
  // With one buffer nothing overlaps.
  nest.single_buffer = 1;
  nest.head_ns = 1500;
  auto serial = npu_with(nest);
  CHECK(estimate(serial.get()).body_cycles == 940 + 4560 + 3460);
  CHECK(estimate(serial.get()).head_ps == 1'500'000);
}

TEST_CASE("golden: a mixed nest") {
  // 24 blocks of 128 x 64 by 64 x 128 in fp16, from L1 in two halves of k, and a pass over the
  // result.
  DvtLoopNest nest{};
  nest.cores = DVT_CORES_MIX;
  nest.blocks = 24;
  nest.loop_count = 1;
  nest.extents[0] = 2;
  nest.step_count = 6;
  nest.steps[0] = step(DVT_NEST_LOAD, 0, 128 * 64 * 2 * 2);
  nest.steps[1] = step(DVT_NEST_LOAD_LEFT, 1, 128 * 32 * 2);
  nest.steps[2] = step(DVT_NEST_LOAD_RIGHT, 1, 128 * 32 * 2);
  nest.steps[3] = step(DVT_NEST_CUBE, 1, 0);
  nest.steps[3].dtype = DVT_F16;
  nest.steps[3].m = nest.steps[3].n = 128;
  nest.steps[3].k = 32;
  nest.steps[4] = step(DVT_NEST_VECTOR, 0, 128 * 128);
  nest.steps[4].passes_x100 = 100;
  nest.steps[5] = step(DVT_NEST_STORE, 0, 128 * 128 * 4);
  auto npu = npu_with(nest, {"hbm.bandwidth=100000", "l2.bandwidth=100000"});
  // One round.
  //   MAC   2 * ceil(8 * 8 * 2 * 0.992 + 30) = 2 * 157                   = 314
  //   MTE1  2 * (ceil(8192 / 262) + ceil(8192 / 131)) = 2 * (32 + 63)    = 190
  //   MTE2  ceil(32768 / 87)                                             = 377
  //   FIXP  ceil(35 + 65536 / 134)                                       = 525
  //   VEC   15 + 8192 * 4 / 256 repeats, half on each vector core        = 143
  //   body  ceil(525 + 0.05 * 377)                                       = 544
  const DvtNpuTask task = estimate(npu.get());
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MAC] == 314);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE1] == 190);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 377);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_FIXP] == 525);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_VEC] == 143);
  CHECK(task.body_cycles == 544);
  CHECK(task.type == DVT_NPU_MIX_AIC);
  CHECK(task.head_ps == 11'000'000);  // matmul.head and mix.head
}

TEST_CASE("a function counts itself, with the numbers of the SoC, and by the launch's cost") {
  auto npu = make_npu();
  DvtKernelTime time{};
  time.op = "Scan";
  time.pipes = [](void* data, const DvtTaskCost* cost, const void* soc, DvtSocValueFn value,
                  DvtKernelPipes* out) -> DvtCode {
    ++*static_cast<int*>(data);
    if (cost->vector_elements == 0) return DVT_UNSUPPORTED;
    if (value(soc, "no.such") != -1 || value(soc, nullptr) != -1) return DVT_INTERNAL;
    out->cores = DVT_CORES_VECTOR;
    out->block_dim = 1'000'000;
    out->vec = cost->vector_elements / static_cast<uint64_t>(value(soc, "core.aiv"));
    return DVT_OK;
  };
  int calls = 0;
  time.data = &calls;
  REQUIRE(dvt_npu_describe_kernel(npu.get(), &time) == DVT_OK);
  const DvtNpuTask task = estimate(npu.get(), vector_cost(48'000), "Scan");
  CHECK(task.body_cycles == 1000);
  CHECK(task.block_dim == 48);
  CHECK(task.read_bytes == 192'000);
  // Launches ask once for each cost, and fail with the function's code.
  DvtStream* stream = make_stream(npu.get());
  auto* data = make_array<uint8_t>(npu.get(), 16);
  CHECK(dvt_npu_memset_async(npu.get(), stream, data, 0, 16) == DVT_OK);
  const Arguments in_place({data}, {data}, 16);
  const DvtTaskCost known = vector_cost(96'000);
  DvtLaunch launch{increment, in_place.bytes().data(), in_place.bytes().size(), &known, "s",
                   "Scan"};
  calls = 0;
  for (int i = 0; i < 3; ++i) CHECK(dvt_npu_launch(npu.get(), stream, &launch) == DVT_OK);
  CHECK(calls == 1);
  launch.cost = nullptr;
  CHECK(dvt_npu_launch(npu.get(), stream, &launch) == DVT_UNSUPPORTED);
  CHECK(message_has("the cost of Scan: its pipes() failed"));
  CHECK(std::string(dvt_npu_last_error()->node) == "s");
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(task_named(npu.get(), "s").body_cycles == 2000);
  CHECK(dvt_npu_describe_kernel(npu.get(), &time) == DVT_FAILED_STATE);
  CHECK(message_has("describe: Scan has been launched already"));
}

TEST_CASE("descriptions that make no sense are refused by name; absurd work is clamped") {
  DvtLoopNest nest = vector_nest();
  auto npu = npu_with(nest);
  const auto refused = [&](const DvtLoopNest& bad, const char* text) {
    nest = bad;
    DvtNpuTask task{};
    CHECK(dvt_npu_estimate(npu.get(), nullptr, "Custom", &task) == DVT_INVALID_ARGUMENT);
    CHECK(message_has(std::string("the cost of Custom: ") + text));
  };
  const DvtLoopNest good = nest;
  DvtLoopNest bad = good;
  bad.cores = 3;
  refused(bad, "cores are 3");
  bad = good;
  bad.blocks = 0;
  refused(bad, "the nest has no blocks");
  bad = good;
  bad.loop_count = 9;
  refused(bad, "9 loops, of at most 8");
  bad = good;
  bad.step_count = 33;
  refused(bad, "33 steps, of at most 32");
  bad = good;
  bad.steps[1].depth = 2;
  refused(bad, "step 1 stands in 2 loops of 1");
  bad = good;
  bad.steps[2].kind = 6;
  refused(bad, "step 2 is of no kind");
  bad = good;
  bad.steps[0].kind = DVT_NEST_CUBE;
  refused(bad, "step 0 needs a cube core");
  bad = good;
  bad.cores = DVT_CORES_CUBE;
  refused(bad, "step 1 needs a vector core");
  // As much as there can be of everything.
  nest = good;
  nest.blocks = nest.extents[0] = nest.unique_bytes = nest.head_ns = UINT64_MAX;
  for (DvtNestStep& each : nest.steps) each.amount = each.passes_x100 = UINT64_MAX;
  DvtStream* stream = make_stream(npu.get());
  CHECK(launch_timing(npu.get(), stream, {}, "huge", "Custom") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  DvtKernelTime time{};
  CHECK(dvt_npu_describe_kernel(npu.get(), &time) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("the operator has no name"));
  time.op = "Other";
  CHECK(dvt_npu_describe_kernel(npu.get(), &time) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("Other needs one of nest() and pipes()"));
  CHECK(dvt_npu_describe_kernel(npu.get(), nullptr) == DVT_INVALID_ARGUMENT);
}

TEST_CASE("described kernels share cores and bandwidth with all others") {
  DvtLoopNest nest = vector_nest();
  nest.extents[0] = 1000;
  auto npu = npu_with(nest, {"host.enqueue=0"});
  const int64_t alone_ps = estimate(npu.get()).body_ps;
  for (int i = 0; i < 2; ++i) {
    CHECK(launch_timing(npu.get(), make_stream(npu.get()), {}, "nest", "Custom") == DVT_OK);
  }
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  const auto tasks = tasks_of(npu.get());
  CHECK(tasks[1].start_ps >= tasks[0].end_ps);  // Both want all cores.
  CHECK(tasks[0].body_ps == alone_ps);
  // Combined cores run it as cube work.
  auto combined = make_npu({.soc = "910A"});
  DvtKernelTime time{};
  time.op = "Custom";
  time.nest = given_nest;
  time.data = &nest;
  REQUIRE(dvt_npu_describe_kernel(combined.get(), &time) == DVT_OK);
  CHECK(estimate(combined.get()).type == DVT_NPU_AI_CORE);
}
