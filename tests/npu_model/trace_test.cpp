// Trace rows: slices of a row never overlap, every kernel has its core row and its pipes, arrows
// join records and waits. And the adapter behind davit/device.h.
#include "npu_model/trace.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

TEST_CASE("rows of a run with overlapping kernels") {
  auto npu = make_npu({.timing_only = true, .overrides = {"host.enqueue=0.5"}});
  DvtStream* a = make_stream(npu.get());
  DvtStream* b = make_stream(npu.get());
  DvtEvent* event = make_event(npu.get());
  DvtTaskCost mixed = matmul_cost(256, 256, 256, DVT_I8);
  mixed.vector_elements = 256 * 256;
  mixed.vector_passes_x100 = 100;
  for (int i = 0; i < 5; ++i) {
    CHECK(launch_timing(npu.get(), a, matmul_cost(64, 512, 64), "cube") == DVT_OK);
    CHECK(launch_timing(npu.get(), b, mixed, "mixed") == DVT_OK);
    CHECK(launch_timing(npu.get(), a, vector_cost(500'000), "vector") == DVT_OK);
  }
  CHECK(dvt_npu_event_record(npu.get(), a, event) == DVT_OK);
  CHECK(dvt_npu_event_wait(npu.get(), b, event) == DVT_OK);
  CHECK(dvt_npu_synchronize(npu.get(), -1) == DVT_OK);
  davit::trace::TraceWriter writer;
  davit::npu::add_trace(writer, npu.get(), 2);
  const auto json = nlohmann::json::parse(writer.json());
  std::map<int64_t, std::vector<std::pair<double, double>>> slices;
  std::map<int64_t, std::string> names;
  std::set<std::string> phases;
  for (const auto& item : json.at("traceEvents")) {
    const auto phase = item.at("ph").get<std::string>();
    phases.insert(phase);
    if (phase == "X") {
      const double begin = item.at("ts").get<double>();
      slices[item.at("tid").get<int64_t>()].emplace_back(begin,
                                                         begin + item.at("dur").get<double>());
    } else if (phase == "M" && item.at("name") == "thread_name") {
      names[item.at("tid").get<int64_t>()] = item.at("args").at("name").get<std::string>();
    }
  }
  std::set<std::string> rows;
  for (auto& [row, list] : slices) {
    rows.insert(names[row]);
    std::sort(list.begin(), list.end());
    for (size_t i = 1; i < list.size(); ++i) CHECK(list[i].first >= list[i - 1].second - 1e-6);
  }
  for (const char* name : {"stream 0", "stream 1", "AIC 0", "AIC 1", "AIC 0 MAC", "AIC 0 MTE2",
                           "AIC 0 FIXP", "AIV 0", "AIV 0 VEC", "AIV 1 MTE3"}) {
    INFO(std::string(name));
    CHECK(rows.count(name) == 1);
  }
  CHECK(phases.count("s") == 1);
  CHECK(phases.count("f") == 1);
}

TEST_CASE("the adapter: name, work, errors as one line, runs") {
  auto npu = make_npu();
  DvtDevice* device = dvt_npu_device(npu.get());
  const DvtDeviceVtable& v = *device->vtable;
  CHECK(std::string(v.name) == "ascend:910B2");
  void* memory = nullptr;
  DvtStream* stream = nullptr;
  DvtEvent* event = nullptr;
  v.run_begin(device);
  REQUIRE(v.malloc(device, 64, "adapter", &memory) == DVT_OK);
  REQUIRE(v.stream_create(device, 0, &stream) == DVT_OK);
  REQUIRE(v.event_create(device, &event) == DVT_OK);
  std::array<uint8_t, 64> host{};
  CHECK(v.memset_async(device, stream, memory, 5, 64) == DVT_OK);
  const Arguments in_place({memory}, {memory}, 64);
  const DvtLaunch launch{increment, in_place.bytes().data(), in_place.bytes().size(), nullptr, "n",
                         "op"};
  CHECK(v.launch(device, stream, &launch) == DVT_OK);
  CHECK(v.event_record(device, stream, event) == DVT_OK);
  CHECK(v.event_wait(device, stream, event) == DVT_OK);
  CHECK(v.copy_async(device, stream, DVT_COPY_DEVICE_TO_HOST, host.data(), memory, 64, "out") ==
        DVT_OK);
  CHECK(v.stream_synchronize(device, stream, -1) == DVT_OK);
  v.run_end(device);
  CHECK(host[63] == 6);
  DvtNpuRun run{};
  REQUIRE(dvt_npu_run_count(npu.get()) == 1);
  REQUIRE(dvt_npu_run(npu.get(), 0, &run) == DVT_OK);
  CHECK(run.first_task == 0);
  CHECK(run.task_count == dvt_npu_task_count(npu.get()));
  CHECK(run.end_ps == dvt_npu_host_now_ps(npu.get()));
  CHECK(v.free(device, host.data()) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(v.last_error(device)).find("not device memory") != std::string::npos);
  CHECK(v.stream_synchronize(device, nullptr, -1) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(v.last_error(device)) == "synchronise: stream is NULL");
  CHECK(v.free(device, memory) == DVT_OK);
  CHECK(v.event_destroy(device, event) == DVT_OK);
  CHECK(v.stream_destroy(device, stream) == DVT_OK);
}
