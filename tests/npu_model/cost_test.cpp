// The cost model: cases worked out by hand, sharing, and what must never happen.
#include <random>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

DvtNpuTask estimate(DvtNpu* npu, const DvtTaskCost& cost, const char* op = "") {
  DvtNpuTask out{};
  REQUIRE(dvt_npu_estimate(npu, &cost, op, &out) == DVT_OK);
  return out;
}

// Products of many aspects, the same on every run.
std::vector<DvtTaskCost> sample_products() {
  std::mt19937_64 random(7);
  const uint64_t extents[] = {1, 3, 16, 17, 64, 100, 256, 777, 1024, 4096, 9999};
  const DvtDType dtypes[] = {DVT_F16, DVT_F32, DVT_I8};
  std::vector<DvtTaskCost> out;
  for (int i = 0; i < 60; ++i) {
    DvtTaskCost cost = matmul_cost(extents[random() % 11], extents[random() % 11],
                                   extents[random() % 11], dtypes[random() % 3]);
    cost.batch = 1 + random() % 5;
    if (random() % 3 == 0) cost.kind = DVT_TASK_CONV;
    if (random() % 4 == 0) {
      cost.vector_elements = cost.m * cost.n;
      cost.vector_passes_x100 = 300;
    }
    out.push_back(cost);
  }
  return out;
}

std::string describe(const DvtTaskCost& cost) {
  return std::to_string(cost.batch) + " x " + std::to_string(cost.m) + " x " +
         std::to_string(cost.k) + " x " + std::to_string(cost.n) + " kind " +
         std::to_string(cost.kind) + " dtype " + std::to_string(cost.dtype);
}

}  // namespace

TEST_CASE("golden: a 16 x 16 x 16 product in fp16") {
  auto npu = make_npu();
  const DvtNpuTask task = estimate(npu.get(), matmul_cost(16, 16, 16));
  // One tile of one fractal, on one core.
  //   MAC   ceil(1 * 0.992 + 30)                                         = 31
  //   MTE1  ceil(16*16*2 / 262 + 16*16*2 / 131) = ceil(1.95 + 3.91)      = 6
  //   MTE2  core: ceil((512 + 512) / 87)                                 = 12
  //         HBM: 1536 B / (0.75 * 1760 GB/s) * 1.8 GHz                   = 2.09
  //         L2:  1536 B / (0.8 * 5000 GB/s) * 1.8 GHz                    = 0.69
  //   FIXP  ceil(35 + 16*16*4 / 134)                                     = 43
  //   body  ceil(43 + 0.05 * 31) = ceil(44.55)                           = 45
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MAC] == 31);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE1] == 6);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 12);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_FIXP] == 43);
  CHECK(task.body_cycles == 45);
  CHECK(task.body_ps == 25'000);     // 45 cycles of 1800 MHz.
  CHECK(task.head_ps == 7'000'000);  // matmul.head
  CHECK(task.block_dim == 1);
  CHECK(task.hbm_bytes == 1536);
  CHECK(task.type == DVT_NPU_AI_CORE);
}

TEST_CASE("golden: a large product") {
  auto npu = make_npu();
  DvtTaskCost cost = matmul_cost(3072, 3072, 3072);
  const DvtNpuTask task = estimate(npu.get(), cost);
  // 256 x 128 tiles: 12 * 24 = 288 tiles = 12 rounds of 24 cores, 16 * 8 * 192 fractals each.
  //   MAC   12 * ceil(24576 * 0.992 + 30) = 12 * 24410                   = 292920
  //   FIXP  12 * ceil(35 + 256*128*4 / 134) = 12 * 1014                  = 12168
  // A tile of 128 KiB fills L0C, so that both add up: 305088.
  //   MTE1  12 * ceil(256*3072*2 / 262 + 128*3072*2 / 131) = 12 * 12007  = 144084
  //   MTE2  12 * ceil((256 + 128) * 3072 * 2 / 87) = 12 * 27119          = 325428
  // so MTE2 is the longest here, and the cube the second:
  //   body  ceil(325428 + 0.05 * 305088)                                 = 340683
  CHECK(task.tile[0] == 256);
  CHECK(task.tile[1] == 128);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MAC] == 292920);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_FIXP] == 12168);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE1] == 144084);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 325428);
  CHECK(task.body_cycles == 340683);
}

TEST_CASE("golden: a right operand of bytes comes row by row") {
  auto npu = make_npu();
  const DvtNpuTask task = estimate(npu.get(), matmul_cost(16, 64, 16, DVT_I8));
  // One tile, two fractals of 16 x 16 x 32.
  //   MAC   ceil(2 * 0.992 + 30)                                         = 32
  //   FIXP  ceil(35 + 16*16*4 / 134)                                     = 43
  //   MTE2  ceil(16*64 / 87 + 64 rows * 4.5) = ceil(11.8 + 288)          = 300
  //   body  ceil(300 + 0.05 * 43)                                        = 303
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MAC] == 32);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 300);
  CHECK(task.body_cycles == 303);
}

TEST_CASE("golden: fused attention") {
  auto npu = make_npu();
  DvtTaskCost cost = matmul_cost(1024, 256, 1024);  // 1024 queries and keys of 128.
  cost.read_bytes = 3 * 1024 * 128 * 2;
  cost.write_bytes = 1024 * 128 * 2;
  for (const char* op : {"davit.fused::Attention(1)", "FlashAttention"}) {
    const DvtNpuTask task = estimate(npu.get(), cost, op);
    // Eight blocks of 128 queries on eight cores, 1024 keys each.
    //   MAC   ceil(8 * 64 * 16 * 0.992 + 30)                             = 8157
    //   VEC   128 * 1024 * 4 / 256 repeats * 16 / 2 units + 15           = 16399
    //   MTE2  core: ceil(1024 * 256 * 2 / 87)                            = 6027
    //   MTE1  ceil(1024 * 256 * 2 / 131)                                 = 4003
    //   body  ceil(16399 + 0.05 * 8157)                                  = 16807
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_MAC] == 8157);
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_VEC] == 16399);
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 6027);
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE1] == 4003);
    CHECK(task.body_cycles == 16807);
    CHECK(task.head_ps == 12'000'000);
    CHECK(task.block_dim == 8);
    CHECK(task.l2_bytes == 8 * 1024 * 256 * 2 + 1024 * 1024 * 6);
    CHECK(task.type == DVT_NPU_MIX_AIC);
  }
}

TEST_CASE("every built-in SoC runs kernels of all kinds; combined cores do both kinds of work") {
  REQUIRE(dvt_npu_soc_count() == 7);
  for (uint32_t i = 0; i < dvt_npu_soc_count(); ++i) {
    const std::string soc = dvt_npu_soc_name(i);
    CAPTURE(soc);
    auto npu = make_npu({.timing_only = true, .soc = soc.c_str()});
    const bool combined = soc == "910A" || soc == "310P3";
    CHECK(parameter_of(npu.get(), "core.combined") == (combined ? 1 : 0));
    DvtStream* vector = make_stream(npu.get());
    DvtStream* cube = make_stream(npu.get());
    CHECK(launch_timing(npu.get(), vector, vector_cost(uint64_t{1} << 28), "vector") == DVT_OK);
    dvt_npu_host_advance(npu.get(), 1'000'000);
    CHECK(launch_timing(npu.get(), cube, matmul_cost(4096, 4096, 4096), "cube") == DVT_OK);
    CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
    const DvtNpuTask first = task_named(npu.get(), "vector");
    const DvtNpuTask second = task_named(npu.get(), "cube");
    CHECK(first.type == (combined ? DVT_NPU_AI_CORE : DVT_NPU_AI_VECTOR_CORE));
    CHECK((second.start_ps >= first.end_ps) == combined);
    // The cube is never faster than its peak.
    const double fractals = 4096.0 * 4096 * 4096 / 4096 / parameter_of(npu.get(), "core.aic");
    CHECK(static_cast<double>(second.body_cycles) > 0.99 * fractals);
  }
}

TEST_CASE("golden: a vector operator") {
  auto npu = make_npu();
  const DvtNpuTask task = estimate(npu.get(), vector_cost(6144, 200));
  // 6144 f32 = 24576 B = 96 repeats on 48 cores, two passes.
  //   VEC   15 + 96 * 2 / 48                                             = 19
  //   MTE2  147 + ceil(24576 / 48 / 51)                                  = 158
  //   MTE3  121 + ceil(24576 / 48 / 80)                                  = 128
  //   chip  49152 B / 1100 GB/s * 1.8 GHz                                = 80.4
  //   body  ceil(158 + 0.05 * 19)                                        = 159
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_VEC] == 19);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE2] == 158);
  CHECK(task.pipe_cycles[DVT_NPU_PIPE_MTE3] == 128);
  CHECK(task.body_cycles == 159);
  CHECK(task.body_ps == 88'334);  // 159 / 1800 us = 88333.3 ps, rounded up.
  CHECK(task.head_ps == 4'100'000);
  CHECK(task.block_dim == 48);
  CHECK(task.type == DVT_NPU_AI_VECTOR_CORE);
}

TEST_CASE("golden: an operator with parameters of its own, by any form of its name") {
  auto npu = make_npu();
  DvtTaskCost cost = vector_cost(11'000'000 / 8);  // 5.5 MB in, 5.5 MB out.
  for (const char* op : {"Add", "Add.f32", "ai.onnx::Add(14)"}) {
    const DvtNpuTask task = estimate(npu.get(), cost, op);
    CHECK(task.head_ps == 2'100'000);
    // 11 MB / 1100 GB/s = 10 us = 18000 cycles; VEC = 15 + ceil(21485 / 48) = 463.
    CHECK(task.pipe_cycles[DVT_NPU_PIPE_VEC] == 463);
    CHECK(task.body_cycles == 18000 + 24);  // ceil(0.05 * 463) = 24
  }
}

TEST_CASE("golden: copies and the clock around them") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  constexpr uint64_t kBytes = 23'000'000;
  auto* device = make_array<uint8_t>(npu.get(), kBytes);
  CHECK(dvt_npu_host_now_ps(npu.get()) == 5'000'000);  // host.allocate
  std::vector<uint8_t> host(kBytes);
  CHECK(dvt_npu_copy_async(npu.get(), stream, DVT_COPY_HOST_TO_DEVICE, device, host.data(), kBytes,
                           "in") == DVT_OK);
  CHECK(dvt_npu_memset_async(npu.get(), stream, device, 0, 6'000'000) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  const DvtNpuTask copy = task_named(npu.get(), "in");
  CHECK(copy.submit_ps == 14'000'000);  // + host.enqueue 9 us
  CHECK(copy.start_ps == 14'000'000);
  CHECK(copy.end_ps == 14'000'000 + 8'000'000 + 1'000'000'000);  // 8 us + 23 MB / 23 GB/s
  const DvtNpuTask fill = tasks_of(npu.get())[1];
  CHECK(fill.submit_ps == 23'000'000);
  CHECK(fill.start_ps == copy.end_ps + 1'500'000);                    // ts.task_gap
  CHECK(fill.end_ps == fill.start_ps + 2'000'000 + 10'000'000);       // 2 us + 6 MB / 600 GB/s
  CHECK(dvt_npu_host_now_ps(npu.get()) == fill.end_ps + 10'000'000);  // host.synchronize
}

TEST_CASE("golden: two kernels share HBM fairly") {
  auto npu = make_npu({.timing_only = true, .overrides = {"host.enqueue=0"}});
  DvtTaskCost cost = vector_cost(27'500'000);  // 220 MB: 200 us at 1100 GB/s.
  cost.block_dim = 24;
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  CHECK(launch_timing(npu.get(), a, cost, "a") == DVT_OK);
  CHECK(launch_timing(npu.get(), b, cost, "b") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  // Each wants just under 1100 GB/s of the 1320 there are and gets 660. A body is 200 us plus 5 %
  // of its vector time (429688 repeats / 24 cores = 17904 + 15 cycles = 10 us): 200.5 us, so the
  // demand is 220 MB / 200.5 us = 1097.3 GB/s, and the body takes 1097.3 / 660 times as long.
  for (const char* name : {"a", "b"}) {
    const DvtNpuTask task = task_named(npu.get(), name);
    CHECK(task.body_ps == doctest::Approx(200.5e6).epsilon(1e-4));
    CHECK(task.end_ps - task.start_ps - task.head_ps == doctest::Approx(333.33e6).epsilon(1e-4));
    CHECK(task.stall_ps > 0);
  }
}

TEST_CASE("golden: kernels queue for cores in order of dispatch") {
  auto npu = make_npu({.timing_only = true, .overrides = {"host.enqueue=0", "core.aiv=10"}});
  DvtTaskCost cost = vector_cost(1'000'000, 100'000);  // Bound by the vector unit.
  cost.block_dim = 8;
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtStream* c = make_stream(npu.get());
  CHECK(launch_timing(npu.get(), a, cost, "a") == DVT_OK);
  CHECK(launch_timing(npu.get(), b, cost, "b") == DVT_OK);
  CHECK(launch_timing(npu.get(), c, cost, "c") == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  const DvtNpuTask first = task_named(npu.get(), "a");
  const DvtNpuTask second = task_named(npu.get(), "b");
  const DvtNpuTask third = task_named(npu.get(), "c");
  CHECK(first.stall_ps == 0);
  // b starts on the two free cores, at a quarter of its speed, and has all eight when a ends:
  // by then a quarter is done, the rest takes three quarters of a body.
  CHECK(second.start_ps == first.start_ps);
  CHECK(static_cast<double>(second.stall_ps) ==
        doctest::Approx(0.75 * static_cast<double>(first.body_ps)).epsilon(1e-3));
  CHECK(third.start_ps == first.end_ps);  // No core is free before.
}

TEST_CASE("parts are never negative and pipes never exceed the body") {
  auto npu = make_npu();
  for (const DvtTaskCost& cost : sample_products()) {
    INFO(describe(cost));
    const DvtNpuTask task = estimate(npu.get(), cost);
    CHECK(task.body_cycles > 0);
    CHECK(task.head_ps + task.body_ps == task.end_ps - task.start_ps);
    for (const uint64_t cycles : task.pipe_cycles) CHECK(cycles <= task.body_cycles);
    CHECK(task.block_dim <= 24);
    CHECK(task.l2_bytes >= task.hbm_bytes / 2);
  }
}

TEST_CASE("more cores, more cache, more bandwidth: never slower; more L2: never more HBM traffic") {
  struct Growth {
    const char* key;
    std::vector<double> values;
  };
  const Growth growths[] = {
      {"core.aic", {1, 2, 3, 5, 8, 12, 20, 24, 25, 48}},
      {"core.aiv", {1, 2, 3, 7, 20, 40, 48, 96}},
      {"l2.capacity", {1, 4, 16, 96, 192, 400}},
      {"l0c.capacity", {16, 32, 64, 128, 256, 512}},
      {"hbm.bandwidth", {100, 800, 1760, 4000}},
      {"l2.bandwidth", {500, 5000, 20000}},
  };
  for (const Growth& growth : growths) {
    std::vector<uint64_t> cycles;
    std::vector<uint64_t> traffic;
    for (const double value : growth.values) {
      const std::string setting = std::string(growth.key) + "=" + std::to_string(value);
      auto npu = make_npu({.overrides = {setting.c_str()}});
      std::vector<DvtTaskCost> costs = sample_products();
      for (const uint64_t elements : {1, 100, 10'000, 1'000'000, 50'000'000}) {
        costs.push_back(vector_cost(elements, 400));
      }
      for (size_t i = 0; i < costs.size(); ++i) {
        const DvtNpuTask task = estimate(npu.get(), costs[i]);
        INFO(setting << ": " << describe(costs[i]));
        if (i < cycles.size()) {
          CHECK(task.body_cycles <= cycles[i]);
          if (std::string(growth.key) == "l2.capacity") CHECK(task.hbm_bytes <= traffic[i]);
          cycles[i] = task.body_cycles;
          traffic[i] = task.hbm_bytes;
        } else {
          cycles.push_back(task.body_cycles);
          traffic.push_back(task.hbm_bytes);
        }
      }
    }
  }
}

TEST_CASE("more cores are never slower on a wide graph") {
  int64_t last_ps = INT64_MAX;
  for (const char* cores :
       {"core.aic=2", "core.aic=4", "core.aic=8", "core.aic=16", "core.aic=24", "core.aic=48"}) {
    auto npu = make_npu({.timing_only = true, .overrides = {cores, "host.enqueue=0"}});
    for (int i = 0; i < 40; ++i) {
      DvtStream* stream = make_stream(npu.get());
      CHECK(launch_timing(npu.get(), stream, matmul_cost(256, 1024, 256 + 64 * (i % 5))) == DVT_OK);
      CHECK(launch_timing(npu.get(), stream, matmul_cost(512, 256, 512)) == DVT_OK);
    }
    CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
    const int64_t end_ps = tasks_of(npu.get()).back().end_ps;
    INFO(cores);
    CHECK(end_ps <= last_ps);
    last_ps = end_ps;
  }
}

TEST_CASE("without memory limits the cube is the bound, without a cube the traffic is") {
  auto fast_memory = make_npu({.overrides = {"hbm.bandwidth=1e9", "l2.bandwidth=1e9",
                                             "mte2.aic=1e6", "mte1.l0a=1e6", "mte1.l0b=1e6"}});
  auto fast_cube =
      make_npu({.overrides = {"cube.fractal=0", "cube.round=0", "fixp.rate=1e6", "fixp.start=0",
                              "mte1.l0a=1e6", "mte1.l0b=1e6", "mte2.aic=1e6", "overlap.second=0"}});
  const DvtTaskCost cost = matmul_cost(2048, 2048, 2048);
  const DvtNpuTask cube = estimate(fast_memory.get(), cost);
  const uint64_t compute = cube.pipe_cycles[DVT_NPU_PIPE_MAC] + cube.pipe_cycles[DVT_NPU_PIPE_FIXP];
  CHECK(cube.body_cycles <= compute + compute / 10);
  CHECK(cube.pipe_cycles[DVT_NPU_PIPE_MTE2] < cube.body_cycles / 50);
  const DvtNpuTask memory = estimate(fast_cube.get(), cost);
  const double hbm_cycles = static_cast<double>(memory.hbm_bytes) / 1320e9 * 1.8e9;
  const double l2_cycles = static_cast<double>(memory.l2_bytes) / 4000e9 * 1.8e9;
  CHECK(static_cast<double>(memory.body_cycles) ==
        doctest::Approx(std::max(hbm_cycles, l2_cycles)).epsilon(1e-3));
}

TEST_CASE("a convolution reads its image once per column of tiles, not once per window") {
  auto npu = make_npu();
  DvtTaskCost conv = matmul_cost(112 * 112, 64 * 9, 64);
  const DvtNpuTask product = estimate(npu.get(), conv);
  conv.kind = DVT_TASK_CONV;
  conv.read_bytes = 112 * 112 * 64 * 2 + 64 * 9 * 64 * 2;
  conv.write_bytes = 112 * 112 * 64 * 2;
  const DvtNpuTask image = estimate(npu.get(), conv);
  CHECK(image.hbm_bytes == conv.read_bytes + conv.write_bytes);
  CHECK(image.l2_bytes < product.l2_bytes / 2);
  CHECK(image.body_cycles <= product.body_cycles);
}

TEST_CASE("absurd costs are clamped, empty costs are free") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  DvtTaskCost cost{};
  cost.batch = cost.m = cost.n = cost.k = cost.vector_elements = cost.vector_passes_x100 =
      cost.read_bytes = cost.write_bytes = UINT64_MAX;
  cost.block_dim = UINT32_MAX;
  for (unsigned kind = 0; kind < 256; ++kind) {
    cost.kind = static_cast<uint8_t>(kind);
    cost.dtype = static_cast<DvtDType>(kind);
    CHECK(launch_timing(npu.get(), stream, cost) == DVT_OK);
  }
  DvtTaskCost one = cost;
  one.kind = DVT_TASK_MATMUL;
  one.m = 1;
  CHECK(launch_timing(npu.get(), stream, one) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  const DvtNpuTask free = estimate(npu.get(), DvtTaskCost{});
  CHECK(free.end_ps == 0);
  DvtTaskCost empty = vector_cost(0);
  CHECK(estimate(npu.get(), empty).body_ps == 0);
}
