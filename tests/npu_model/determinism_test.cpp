// The same program gives the same picoseconds; random programs keep all invariants.
#include <random>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

constexpr uint32_t kStreams = 64;

DvtTaskCost random_cost(std::mt19937_64& random) {
  switch (random() % 5) {
    case 0:
      return matmul_cost(16 + random() % 2000, 16 + random() % 2000, 16 + random() % 2000);
    case 1: {
      DvtTaskCost cost = vector_cost(1 + random() % 3'000'000, random() % 3000);
      cost.block_dim = static_cast<uint32_t>(random() % 60);
      return cost;
    }
    case 2: {
      DvtTaskCost cost = vector_cost(random() % 100'000);
      cost.kind = DVT_TASK_MOVE;
      return cost;
    }
    case 3: {
      DvtTaskCost cost{};
      cost.kind = DVT_TASK_AICPU;
      cost.read_bytes = random() % 100'000;
      return cost;
    }
    default: {
      DvtTaskCost cost =
          matmul_cost(1 + random() % 300, 1 + random() % 3000, 1 + random() % 300, DVT_I8);
      cost.vector_elements = cost.m * cost.n;
      cost.vector_passes_x100 = random() % 800;
      return cost;
    }
  }
}

// Kernels, copies, events and host pauses on 64 streams.
void run_random_program(DvtNpu* npu, uint64_t seed, int steps) {
  std::mt19937_64 random(seed);
  std::vector<DvtTaskCost> costs;
  for (int i = 0; i < 50; ++i) costs.push_back(random_cost(random));
  std::vector<DvtStream*> streams;
  for (uint32_t i = 0; i < kStreams; ++i) streams.push_back(make_stream(npu, i % 8));
  std::vector<DvtEvent*> events;
  for (int i = 0; i < 20; ++i) events.push_back(make_event(npu));
  auto* device = make_array<uint8_t>(npu, 1 << 20);
  std::vector<uint8_t> host(1 << 20);
  for (int i = 0; i < steps; ++i) {
    DvtStream* stream = streams[random() % kStreams];
    DvtEvent* event = events[random() % events.size()];
    DvtCode code = DVT_OK;
    switch (random() % 10) {
      case 0:
        code = dvt_npu_event_record(npu, stream, event);
        break;
      case 1:
        code = dvt_npu_event_wait(npu, stream, event);
        break;
      case 2:
        code = dvt_npu_copy_async(npu, stream, DVT_COPY_HOST_TO_DEVICE, device, host.data(),
                                  random() % host.size(), "in");
        break;
      case 3:
        code = dvt_npu_copy_async(npu, stream, DVT_COPY_DEVICE_TO_DEVICE, device, device,
                                  random() % host.size(), "move");
        break;
      case 4:
        if (random() % 50 == 0) code = dvt_npu_stream_synchronize(npu, stream, -1);
        dvt_npu_host_advance(npu, static_cast<int64_t>(random() % 20'000'000));
        break;
      default:
        code = launch_timing(npu, stream, costs[random() % costs.size()]);
        break;
    }
    REQUIRE(code == DVT_OK);
  }
  REQUIRE(dvt_npu_synchronize(npu, -1) == DVT_OK);
}

bool same(const DvtNpuTask& a, const DvtNpuTask& b) {
  return a.id == b.id && a.stream == b.stream && a.submit_ps == b.submit_ps &&
         a.ready_ps == b.ready_ps && a.start_ps == b.start_ps && a.end_ps == b.end_ps &&
         a.stall_ps == b.stall_ps && a.body_cycles == b.body_cycles;
}

}  // namespace

TEST_CASE("64 streams of random work: same times twice, all invariants hold") {
  for (const uint64_t seed : {1, 2, 3}) {
    // A host that submits fast, so that streams really compete.
    const DeviceSettings settings{.timing_only = true, .overrides = {"host.enqueue=0.2"}};
    auto first = make_npu(settings);
    auto second = make_npu(settings);
    run_random_program(first.get(), seed, 4000);
    run_random_program(second.get(), seed, 4000);
    const auto a = tasks_of(first.get());
    const auto b = tasks_of(second.get());
    REQUIRE(a.size() == b.size());
    bool equal = true;
    for (size_t i = 0; i < a.size(); ++i) equal = equal && same(a[i], b[i]);
    CHECK(equal);
    CHECK(dvt_npu_host_now_ps(first.get()) == dvt_npu_host_now_ps(second.get()));
    // They did compete.
    bool stalled = false;
    for (const DvtNpuTask& task : a) stalled = stalled || task.stall_ps > 0;
    CHECK(stalled);
  }
}
