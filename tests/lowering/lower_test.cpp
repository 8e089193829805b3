// What lowering makes of tiny modules, structure by structure. The golden texts
// (tests/lowering/golden) show whole images.
#include "lowering/lower.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "davit/davit.h"
#include "exec/runtime.h"
#include "ir/passes/passes.hpp"
#include "tests/lowering/tiny_modules.hpp"

using davit::image::ImageModel;
using davit::image::Node;
using davit::image::ValueKind;
using davit::lowering::Lowered;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

// Infers, lowers and places; the result also passes write_image(), which verifies it.
ImageModel lower(davit::ir::Module module, DvtTarget target) {
  REQUIRE(davit::passes::infer_shapes(module).ok());
  auto lowered = target == DVT_TARGET_CPU ? davit::lowering::lower_cpu(module)
                                          : davit::lowering::lower_ascend(module, "910B2");
  REQUIRE_MESSAGE(lowered.ok(), lowered.status().to_string());
  const auto placed = davit::lowering::place_values(*lowered, 0);
  REQUIRE_MESSAGE(placed.ok(), placed.status().to_string());
  const auto written = davit::image::write_image(lowered->model);
  REQUIRE_MESSAGE(written.ok(), written.status().to_string());
  return std::move(lowered->model);
}

ImageModel lower_cpu(davit::ir::Module module) {
  return lower(std::move(module), DVT_TARGET_CPU);
}

const std::string& kernel_of(const ImageModel& model, const Node& node) {
  return model.kernels[node.kernel].name;
}

std::vector<std::string> kernels_of(const ImageModel& model, size_t graph = 0) {
  std::vector<std::string> names;
  for (const Node& node : model.graphs[graph].nodes) names.push_back(kernel_of(model, node));
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("cpu: inputs and outputs are bound, results in between are planned") {
  TinyModule tiny;
  const auto x = tiny.input("x", {2, 3});
  const auto a = tiny.node("Relu", {x}, "a");
  const auto y = tiny.node("Sigmoid", {a}, "y");
  const ImageModel model = lower_cpu(tiny.build({y}));
  REQUIRE(kernels_of(model) == Names{"Relu.f32", "Sigmoid.f32"});
  const auto& nodes = model.graphs[0].nodes;
  CHECK(model.values[nodes[0].inputs[0]].kind == ValueKind::kInput);
  CHECK(model.values[nodes[0].outputs[0]].kind == ValueKind::kPlanned);
  CHECK(nodes[0].outputs[0] == nodes[1].inputs[0]);
  CHECK(model.values[nodes[1].outputs[0]].kind == ValueKind::kOutput);
  CHECK(nodes[0].origin == "Relu_a");
  CHECK(nodes[0].op == "ai.onnx::Relu(13)");
  CHECK(model.inputs[0].name == "x");
  CHECK(model.outputs[0].name == "y");
  CHECK(model.arena_bytes == 64);
}

TEST_CASE("cpu: a kernel works in place on its last read, and only then") {
  TinyModule tiny;
  const auto x = tiny.input("x", {16});
  const auto a = tiny.node("Sigmoid", {x}, "a");
  const auto b = tiny.node("Relu", {a}, "b");    // a is read again: not in place.
  const auto c = tiny.node("Relu", {b}, "c");    // In place.
  const auto d = tiny.node("Add", {c, a}, "d");  // In place on c.
  const auto e = tiny.node("Mul", {d, d}, "e");  // Not: both operands are the same memory.
  const auto y = tiny.node("Relu", {e}, "y");
  const ImageModel model = lower_cpu(tiny.build({y}));
  std::map<std::string, uint64_t> offset;
  for (const auto& value : model.values) {
    if (value.kind == ValueKind::kPlanned) offset[value.name] = value.offset;
  }
  CHECK(offset["b"] != offset["a"]);
  CHECK(offset["c"] == offset["b"]);
  CHECK(offset["d"] == offset["c"]);
  CHECK(offset["e"] != offset["d"]);
  CHECK(model.arena_bytes == 128);
  CHECK(model.lower_bound_bytes == 128);
}

TEST_CASE("cpu: views run no kernel and share their root's place") {
  TinyModule tiny;
  const auto x = tiny.input("x", {2, 3});
  const auto flat = tiny.node("Flatten", {x}, "flat", {{"axis", int64_t(0)}});
  const auto a = tiny.node("Relu", {flat}, "a");
  const auto b = tiny.node("Flatten", {a}, "b", {{"axis", int64_t(2)}});
  const auto c = tiny.node("Sigmoid", {b}, "c");
  const auto y = tiny.node("Flatten", {c}, "y", {{"axis", int64_t(0)}});
  const ImageModel model = lower_cpu(tiny.build({y}));
  REQUIRE(kernels_of(model) == Names{"Relu.f32", "Sigmoid.f32"});
  const auto& nodes = model.graphs[0].nodes;
  const auto& view_of_x = model.values[nodes[0].inputs[0]];
  CHECK(view_of_x.kind == ValueKind::kInput);
  CHECK(view_of_x.tensor.dims[0] == 1);
  CHECK(view_of_x.tensor.dims[1] == 6);
  const auto& view_of_a = model.values[nodes[1].inputs[0]];
  CHECK(view_of_a.offset == model.values[nodes[0].outputs[0]].offset);
  CHECK(view_of_a.tensor.dims[0] == 6);
  // The kernel writes c into the port of its view y.
  CHECK(model.values[nodes[1].outputs[0]].kind == ValueKind::kOutput);
  CHECK(model.values[nodes[1].outputs[0]].name == "c");
  CHECK(model.values[model.outputs[0].value].name == "y");
}

TEST_CASE("cpu: outputs that no kernel can write directly are copied") {
  TinyModule tiny;
  const auto x = tiny.input("x", {4});
  const auto k = tiny.constant("k", f32_tensor({4}, {1, 2, 3, 4}));
  const auto view = tiny.node("Identity", {x}, "view");
  const auto y = tiny.node("Relu", {x}, "y");
  const auto same = tiny.node("Identity", {y}, "same");
  const ImageModel model = lower_cpu(tiny.build({x, k, view, y, same}));
  CHECK(kernels_of(model) == Names{"Relu.f32", "Copy", "Copy", "Copy", "Copy"});
  std::set<uint64_t> written;
  for (const Node& node : model.graphs[0].nodes) {
    const auto& value = model.values[node.outputs[0]];
    CHECK(value.kind == ValueKind::kOutput);
    written.insert(value.offset);
  }
  CHECK(written == std::set<uint64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("cpu: an output that is read again is read from its port") {
  TinyModule tiny;
  const auto x = tiny.input("x", {4});
  const auto y = tiny.node("Relu", {x}, "y");
  const auto z = tiny.node("Sigmoid", {y}, "z");
  const ImageModel model = lower_cpu(tiny.build({y, z}));
  const auto& nodes = model.graphs[0].nodes;
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].outputs[0] == nodes[1].inputs[0]);
  CHECK(model.arena_bytes == 0);
}

TEST_CASE("constants with equal bytes are stored once, aligned to 64") {
  TinyModule tiny;
  const auto x = tiny.input("x", {3});
  const auto k1 = tiny.constant("k1", f32_tensor({3}, {1, 2, 3}));
  const auto k2 = tiny.constant("k2", f32_tensor({1, 3}, {1, 2, 3}));
  const auto k3 = tiny.constant("k3", f32_tensor({3}, {1, 2, 4}));
  const auto a = tiny.node("Add", {x, k1}, "a");
  const auto b = tiny.node("Add", {a, k2}, "b");
  const auto y = tiny.node("Add", {b, k3}, "y");
  const davit::ir::Module module = tiny.build({y});
  for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
    const ImageModel model = lower(module, target);
    CHECK(model.constants.size() == 64 + 12);
    for (const auto& value : model.values) {
      if (value.kind == ValueKind::kConstant) CHECK(value.offset == (value.name == "k3" ? 64 : 0));
    }
  }
}

TEST_CASE("ascend: Init sinks weights, Main frees after the last launch, DeInit undoes Init") {
  TinyModule tiny;
  const auto x = tiny.input("x", {4});
  const auto unused = tiny.input("unused", {4});
  (void)unused;
  const auto k = tiny.constant("k", f32_tensor({4}, {1, 2, 3, 4}));
  const auto a = tiny.node("Add", {x, k}, "a");
  const auto b = tiny.node("Flatten", {a}, "b");
  const auto y = tiny.node("Relu", {b}, "y");
  const ImageModel model = lower(tiny.build({y}), DVT_TARGET_ASCEND);
  REQUIRE(model.graphs.size() == 3);
  CHECK(kernels_of(model, 0) ==
        Names{"CreateStream", "AllocMemHbm", "LaunchH2DCopy", "SyncStream"});
  CHECK(kernels_of(model, 1) == Names{"AllocMemHbm", "LaunchH2DCopy",                 // x
                                      "AllocMemHbm", "LaunchKernel", "FreeMemHbm",    // a; frees x
                                      "BuildRefTensor",                               // b
                                      "AllocMemHbm", "LaunchKernel", "FreeMemHbm",    // y; frees a
                                      "LaunchD2HCopy", "SyncStream", "FreeMemHbm"});  // frees y
  CHECK(kernels_of(model, 2) == Names{"SyncStream", "FreeMemHbm", "DestroyStream"});
  const auto& main = model.graphs[1].nodes;
  for (const uint32_t free : {4U, 8U}) {  // They may run before the launch with their memory.
    CHECK(main[free].control_inputs.empty());
    CHECK(main[free].free_launches == std::vector<uint32_t>{free - 1});
  }
  CHECK(main[11].control_inputs == std::vector<uint32_t>{10});
  CHECK(model.values[main[8].inputs[0]].name == "a");
  CHECK(model.kernels[main[3].device_kernel].name == "Add.f32");
  CHECK(main[3].has_cost);
  CHECK(main[3].cost.write_bytes == 16);
  CHECK(main[3].lane == DVT_KERNEL_LANE_LAUNCH);
  CHECK(main[3].stream == 0);
  CHECK(main[3].origin == "Add_a");
  CHECK(main[2].origin == "Add_a");
  CHECK(model.stream_count == 1);
  CHECK(model.target_name == "ascend:910B2");
  CHECK(model.arena_bytes == 0);
}

TEST_CASE("ascend: each Free names, or follows, the launches that use its memory, and no others") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    TinyModule tiny;
    std::vector<davit::ir::ValueId> values = {tiny.input("x", {4, 1}), tiny.input("y", {4, 1})};
    const uint32_t nodes = 3 + random() % 25;
    for (uint32_t i = 0; i < nodes; ++i) {
      const auto pick = [&] { return values[random() % values.size()]; };
      const std::string name = "n" + std::to_string(i);
      const uint32_t kind = random() % 4;
      const char* const op = kind == 0 ? "Flatten" : kind == 1 ? "Relu" : "Add";
      values.push_back(kind < 2 ? tiny.node(op, {pick()}, name)
                                : tiny.node(op, {pick(), pick()}, name));
    }
    const ImageModel model = lower(tiny.build({values.back(), values[2]}), DVT_TARGET_ASCEND);
    const auto& main = model.graphs[1].nodes;
    std::map<uint32_t, uint32_t> root;  // By image value: the one that was allocated.
    std::map<uint32_t, std::set<uint32_t>> users, readers;
    uint32_t frees = 0;
    for (uint32_t index = 0; index < main.size(); ++index) {
      const Node& node = main[index];
      const std::string& kernel = kernel_of(model, node);
      if (kernel == "AllocMemHbm") root[node.outputs[0]] = node.outputs[0];
      if (kernel == "BuildRefTensor" && root.contains(node.inputs[0])) {
        root[node.outputs[0]] = root[node.inputs[0]];
      }
      if (node.lane == DVT_KERNEL_LANE_LAUNCH) {
        for (const uint32_t value : node.inputs) {
          if (!root.contains(value)) continue;
          users[root[value]].insert(index);
          // What copies a result is followed by SyncStream.
          if (kernel == "LaunchKernel") readers[root[value]].insert(index);
        }
        for (const uint32_t value : node.outputs) {
          if (root.contains(value)) users[root[value]].insert(index);
        }
      }
      if (kernel != "FreeMemHbm") continue;
      ++frees;
      const std::set<uint32_t> named(node.free_launches.begin(), node.free_launches.end());
      const std::set<uint32_t> followed(node.control_inputs.begin(), node.control_inputs.end());
      const bool synchronised = std::ranges::any_of(
          followed, [&](uint32_t at) { return kernel_of(model, main[at]) == "SyncStream"; });
      // Launches go in order, so the one that wrote it is before those that read it.
      const uint32_t last = *users[root[node.inputs[0]]].rbegin();
      CHECK((named.contains(last) || synchronised));
      for (const uint32_t launch : readers[root[node.inputs[0]]]) {
        CHECK((named.contains(launch) || followed.contains(launch)));
      }
      for (const uint32_t launch : named) {
        CHECK(users[root[node.inputs[0]]].contains(launch));
        CHECK(!followed.contains(launch));
      }
      CHECK(named.empty() == synchronised);
    }
    CHECK(frees > 0);
  }
}

TEST_CASE("ascend: inputs, constants and doubled names may be outputs") {
  TinyModule tiny;
  const auto x = tiny.input("x", {4});
  const auto k = tiny.constant("k", f32_tensor({4}, {1, 2, 3, 4}));
  const auto y = tiny.node("Relu", {x}, "y");
  const auto same = tiny.node("Identity", {y}, "same");
  const ImageModel model = lower(tiny.build({x, k, y, same}), DVT_TARGET_ASCEND);
  const Names names = kernels_of(model, 1);
  CHECK(std::ranges::count(names, "LaunchD2HCopy") == 4);
  CHECK(std::ranges::count(names, "AllocMemHbm") == std::ranges::count(names, "FreeMemHbm"));
}

TEST_CASE("what a target cannot hold is refused with its name") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 1, 1, 1, 1, 1, 1, 1, 1});
  davit::ir::Module module = tiny.build({x});
  const auto lowered = davit::lowering::lower_cpu(module);
  REQUIRE(!lowered.ok());
  CHECK(lowered.status().code() == DVT_UNSUPPORTED);
  CHECK(lowered.status().detail().tensor == "x");
}
