// Traces of real runs: what is in them, and the environment switch.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "davit/davit.hpp"
#include "exec/execution_trace.hpp"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Executor;
using davit::exec::ExecutionTrace;
using davit::test::TextImage;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using Floats = std::array<float, 4>;

Executor load(const TextImage& text) {
  auto executor = Executor::create(text.image);
  INFO(executor.error().text());
  REQUIRE(executor);
  return std::move(*executor);
}

// Runs once into `trace`.
DvtCode traced_run(Executor& executor, ExecutionTrace& trace) {
  trace.begin_run();
  const DvtCode code =
      dvt_executor_run_observed(executor.get(), &ExecutionTrace::observe, &trace, nullptr);
  trace.end_run(code);
  return code;
}

json document_of(const ExecutionTrace& trace) {
  davit::trace::TraceWriter writer;
  trace.append_to(writer, 1);
  return json::parse(writer.json());
}

std::map<std::string, std::vector<json>> by_phase(const json& document) {
  std::map<std::string, std::vector<json>> phases;
  for (const json& event : document.at("traceEvents")) phases[event.at("ph")].push_back(event);
  return phases;
}

// A diamond: a = x + 1; b = a + 1; y = a + b.
constexpr std::string_view kDiamond = R"text(davit 1.0 target cpu
source_name "diamond \"1\".onnx"
input x: f32[4]
output y: f32[4]
planned a: f32[4] @0
planned b: f32[4] @64
graph main {
  a = t.Inc(x) origin="scope/inc \"a\"" op="test::Inc(1)"
  b = t.Inc(a) origin="scope/inc_b" op="test::Inc(1)"
  y = t.Add(a, b) origin="scope/add" op="test::Add(1)"
}
)text";

}  // namespace

TEST_CASE("a trace has a slice for every node, with its names, shapes and bytes") {
  const TextImage text(kDiamond);
  Executor executor = load(text);
  const Floats x{};
  Floats y{};
  REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
  REQUIRE(!executor.bind_output(0, std::span<float>(y)));
  ExecutionTrace trace(*text.image.get(), 5);
  CHECK(traced_run(executor, trace) == DVT_OK);
  CHECK(traced_run(executor, trace) == DVT_OK);

  const auto phases = by_phase(document_of(trace));
  const auto& slices = phases.at("X");
  REQUIRE(slices.size() == 6);
  CHECK(slices[0]["name"] == "scope/inc \"a\"");
  CHECK(slices[2]["name"] == "scope/add");
  const json& args = slices[5]["args"];
  CHECK(args["node"] == "scope/add");
  CHECK(args["op"] == "test::Add(1)");
  CHECK(args["kernel"] == "t.Add");
  CHECK(args["shapes"] == "f32[4]");
  CHECK(args["inputs"] == "f32[4] f32[4]");
  CHECK(args["dtype"] == "f32");
  CHECK(args["bytes"] == 16);
  CHECK(args["exec_id"] == 5);
  CHECK(args["run_id"] == 1);
  CHECK(slices[5]["tid"] == 5);

  CHECK(phases.at("b").size() == 2);
  CHECK(phases.at("e").size() == 2);
  CHECK(phases.at("b")[0]["id"] != phases.at("b")[1]["id"]);
  CHECK(phases.at("b")[1]["args"]["result"] == "ok");
}

TEST_CASE("nodes of bodies have slices inside that of the node that runs them") {
  const TextImage text(davit::test::kFlowSample);
  Executor executor = load(text);
  const Floats x = {1, 2, 3, 4};
  const int64_t length = 4;
  const int64_t trip = 2;
  const bool yes = true;
  REQUIRE(!executor.bind_input(0, std::span<const float>(x), DVT_F32, std::span(&length, 1)));
  for (const uint32_t i : {1, 2, 4}) {
    REQUIRE(!executor.bind_input(i, std::span<const bool>(&yes, 1)));
  }
  REQUIRE(!executor.bind_input(3, std::span<const int64_t>(&trip, 1)));
  ExecutionTrace trace(*text.image.get(), 1);
  CHECK(traced_run(executor, trace) == DVT_OK);
  auto phases = by_phase(document_of(trace));
  json loop;
  std::vector<json> inside;
  for (const json& slice : phases["X"]) {
    if (slice.at("name") == "loop") loop = slice;
    if (slice.at("name") == "loop.body/add" && slice.at("args").at("kernel") == "dyn.Add") {
      inside.push_back(slice);
    }
  }
  REQUIRE(inside.size() == 2);
  CHECK(!loop.at("args").contains("body"));
  for (const json& slice : inside) {
    CHECK(slice.at("args").at("body") == 5);
    CHECK(slice.at("args").at("node_id") == 2);
    CHECK(slice.at("ts") >= loop.at("ts"));
  }
}

TEST_CASE("arrows lead from the slice of each producer to that of its consumer") {
  const TextImage text(kDiamond);
  Executor executor = load(text);
  const Floats x{};
  Floats y{};
  REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
  REQUIRE(!executor.bind_output(0, std::span<float>(y)));
  ExecutionTrace trace(*text.image.get(), 1);
  CHECK(traced_run(executor, trace) == DVT_OK);
  const auto phases = by_phase(document_of(trace));
  // a to b, a to y, b to y; x comes from outside.
  REQUIRE(phases.at("s").size() == 3);
  REQUIRE(phases.at("f").size() == 3);
  const auto node_at = [&](const json& end) {
    for (const json& slice : phases.at("X")) {
      const double begin = slice["ts"];
      const double at = end["ts"];
      if (at >= begin && at <= begin + slice["dur"].get<double>()) return slice["name"];
    }
    return json();
  };
  CHECK(node_at(phases.at("s")[0]) == "scope/inc \"a\"");
  CHECK(node_at(phases.at("f")[0]) == "scope/inc_b");
  CHECK(node_at(phases.at("s")[2]) == "scope/inc_b");
  CHECK(node_at(phases.at("f")[2]) == "scope/add");
}

TEST_CASE("a failing node is marked, and so is its run") {
  const TextImage text("davit 1.0 target cpu\ngraph main {\n  t.Step() origin=\"broken\"\n}\n");
  Executor executor = load(text);
  ExecutionTrace trace(*text.image.get(), 1);
  davit::test::control.fail_node = 0;
  CHECK(traced_run(executor, trace) == DVT_KERNEL_FAILED);
  davit::test::control = {};
  const auto phases = by_phase(document_of(trace));
  CHECK(phases.at("X")[0]["args"]["error"] == "kernel failed");
  CHECK(phases.at("b")[0]["args"]["result"] == "kernel failed");
}

TEST_CASE("what does not fit is counted, not stored") {
  const TextImage text(kDiamond);
  Executor executor = load(text);
  const Floats x{};
  Floats y{};
  REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
  REQUIRE(!executor.bind_output(0, std::span<float>(y)));
  ExecutionTrace trace(*text.image.get(), 1, {.events = 4, .runs = 2});
  for (int run = 0; run < 3; ++run) CHECK(traced_run(executor, trace) == DVT_OK);
  CHECK(trace.dropped_events() == 5);
  const json document = document_of(trace);
  CHECK(by_phase(document).at("X").size() == 4);
  CHECK(by_phase(document).at("b").size() == 2);
  CHECK(document["otherData"]["dropped_events_exec_1"] == "5");
}

TEST_CASE("a trace may be written when executor and image are gone") {
  std::unique_ptr<ExecutionTrace> trace;
  std::vector<std::byte> bytes;
  {
    TextImage text(kDiamond);
    Executor executor = load(text);
    const Floats x{};
    Floats y{};
    REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    trace = std::make_unique<ExecutionTrace>(*text.image.get(), 1);
    CHECK(traced_run(executor, *trace) == DVT_OK);
    bytes = std::move(text.bytes);  // Borrowed by the image, so they stay.
  }
  CHECK(by_phase(document_of(*trace)).at("X").size() == 3);
}

TEST_CASE("DAVIT_TRACE traces a host that knows nothing of it, one file for each executor") {
  const fs::path folder =
      fs::temp_directory_path() / ("davit_environment_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const TextImage text(kDiamond);
  const Floats x{};
  Floats y{};
  REQUIRE(::setenv("DAVIT_TRACE", (folder / "t.json").c_str(), 1) == 0);
  for (int i = 0; i < 2; ++i) {
    Executor executor = load(text);
    REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    CHECK(!executor.run());
    CHECK(!executor.run());
    CHECK(y[0] == 3);
  }
  REQUIRE(::unsetenv("DAVIT_TRACE") == 0);
  for (const char* name : {"t.json", "t.2.json"}) {
    CAPTURE(name);
    std::ifstream file(folder / name);
    REQUIRE(file);
    const json document = json::parse(file);
    CHECK(by_phase(document).at("X").size() == 6);
    CHECK(document["otherData"]["image"] == "diamond \"1\".onnx");
    CHECK(document["otherData"]["clock"].get<std::string>().find("MONOTONIC") != std::string::npos);
  }
  fs::remove_all(folder);
}

TEST_CASE("a trace that cannot be written is an error of unload") {
  const TextImage text(kDiamond);
  REQUIRE(::setenv("DAVIT_TRACE", "/nonexistent/folder/t.json", 1) == 0);
  Executor executor = load(text);
  REQUIRE(::unsetenv("DAVIT_TRACE") == 0);
  const davit::Error error = executor.unload();
  CHECK(error.code() == DVT_IO_ERROR);
  CHECK(std::string(error.detail()->message).find("/nonexistent/folder") != std::string::npos);
}
