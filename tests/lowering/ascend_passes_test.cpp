// What the lowering of static graphs to ascend does beyond what it must: move_to_init, fuse_copies,
// several streams.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "davit/npu.h"
#include "lowering/compile.hpp"
#include "lowering/lower.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

NpyArray f32_array(std::vector<int64_t> dims, float first) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + 0.01F * float(i % 17));
  const auto tensor = f32_tensor(std::move(dims), values);
  return {tensor.dtype, tensor.dims, *tensor.bytes};
}

// Branches of products and pointwise operators over two inputs, which meet twice.
davit::ir::Module branches() {
  TinyModule tiny;
  const auto a = tiny.input("a", {64, 64});
  const auto b = tiny.input("b", {64, 64});
  const auto w = tiny.constant("w", f32_tensor({64, 64}, std::vector<float>(4096, 0.125F)));
  auto left = a;
  auto right = b;
  for (const std::string level : {"0", "1", "2"}) {
    left = tiny.node("MatMul", {left, w}, "left" + level);
    right = tiny.node("Sigmoid", {tiny.node("Tanh", {right}, "tanh" + level)}, "right" + level);
    const auto other = tiny.node("Exp", {right}, "exp" + level);
    right = tiny.node("Add", {other, left}, "sum" + level);
  }
  return tiny.build({tiny.node("Mul", {left, right}, "y"), right});
}

constexpr double kAnyGain = 1e9;  // Streams, whatever they promise.

CompileOptions for_ascend() {
  CompileOptions options;
  options.target = DVT_TARGET_ASCEND;
  return options;
}

// Runs on the Ascend model in every mode of effects; the model refuses what nothing orders.
std::vector<NpyArray> run_everywhere(std::span<const std::byte> image,
                                     std::span<const NpyArray> inputs) {
  std::vector<NpyArray> first;
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL}) {
    for (uint64_t seed = 1; seed <= (mode == DVT_NPU_ADVERSARIAL ? 20U : 1U); ++seed) {
      DvtNpuOptions options;
      dvt_npu_options_init(&options);
      options.mode = mode;
      options.seed = seed;
      options.check_order = 1;
      DvtNpu* npu = nullptr;
      DvtError error{};
      REQUIRE_MESSAGE(dvt_npu_create(&options, &npu, &error) == DVT_OK, error.message);
      const auto outputs = davit::testing::run_image(image, inputs, dvt_npu_device(npu), 3);
      dvt_npu_destroy(npu);
      REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
      if (first.empty()) first = *outputs;
      for (size_t i = 0; i < first.size(); ++i) CHECK(first[i].bytes == (*outputs)[i].bytes);
    }
  }
  return first;
}

uint32_t change_of(const davit::compiler::CompileReport& report, const std::string& pass) {
  for (const auto& [name, changes] : report.pass_changes) {
    if (name == pass) return changes;
  }
  return 0;
}

}  // namespace

TEST_CASE("several streams give the results of one, whatever the device does in between") {
  const std::vector<NpyArray> inputs = {f32_array({64, 64}, 0.5F), f32_array({64, 64}, -0.25F)};
  const auto one = compile_module(branches(), for_ascend());
  REQUIRE_MESSAGE(one.ok(), one.status().to_string());
  CHECK(one->report.streams.count == 1);
  const auto expected = run_everywhere(one->bytes, inputs);
  for (const uint32_t streams : {2U, 3U, 8U}) {
    CompileOptions options = for_ascend();
    options.streams = streams;
    options.stream_gain = kAnyGain;
    options.enabled_passes = {"fuse_copies"};
    const auto image = compile_module(branches(), options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    CHECK(image->report.streams.count > 1);
    CHECK(image->report.streams.count <= streams);
    CHECK(image->report.streams.events > 0);
    // Edges from launches to Frees stay.
    CHECK(image->report.launch_edges_removed == 0);
    CHECK(image->report.launch_edges_kept > 0);
    CHECK(image->report.why_edges_kept == "there are several streams");
    const auto outputs = run_everywhere(image->bytes, inputs);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(outputs[i].bytes == expected[i].bytes);
  }
}

namespace {

// A chain of products, listed behind many pointwise nodes that have nothing to do with it.
davit::ir::Module late_chain(int64_t rows, int64_t size) {
  TinyModule tiny;
  const auto a = tiny.input("a", {rows, size});
  const auto w =
      tiny.constant("w", f32_tensor({size, size}, std::vector<float>(size_t(size * size), 0.001F)));
  auto sum = a;
  for (int i = 0; i < 24; ++i) {
    const std::string branch = std::to_string(i);
    const auto e = tiny.node("Exp", {tiny.node("Tanh", {a}, "t" + branch)}, "e" + branch);
    sum = tiny.node("Add", {sum, e}, "s" + branch);
  }
  auto chain = a;
  for (int i = 0; i < 8; ++i) chain = tiny.node("MatMul", {chain, w}, "p" + std::to_string(i));
  return tiny.build({sum, chain});
}

}  // namespace

TEST_CASE("streams that promise less than their events cost are refused, with both times") {
  CompileOptions options = for_ascend();
  options.streams = 4;
  const auto small = compile_module(branches(), options);
  REQUIRE_MESSAGE(small.ok(), small.status().to_string());
  CHECK(small->report.streams.count == 1);
  CHECK(small->report.why_one_stream ==
        "no two tasks would run at a time, as fast as a host submits them");
  options.stream_gain = 0.1;
  const auto large = compile_module(late_chain(256, 2048), options);
  REQUIRE_MESSAGE(large.ok(), large.status().to_string());
  CHECK(large->report.streams.count == 1);
  const std::string& why = large->report.why_one_stream;
  CHECK_MESSAGE(why.find(" promise ") != std::string::npos, why);
  CHECK_MESSAGE(why.find(" events, one ") != std::string::npos, why);
  options.stream_gain = kAnyGain;
  const auto taken = compile_module(branches(), options);
  REQUIRE(taken.ok());
  CHECK(taken->report.streams.count > 1);
  CHECK(taken->report.why_one_stream.empty());
}

TEST_CASE("with several streams, what is furthest from the end is launched first") {
  CompileOptions options = for_ascend();
  options.streams = 2;
  options.disabled_passes = {"merge_equal_nodes"};  // All branches are alike.
  const auto ordered = compile_module(late_chain(256, 2048), options);
  REQUIRE_MESSAGE(ordered.ok(), ordered.status().to_string());
  CHECK(ordered->report.streams.count == 2);
  CHECK(change_of(ordered->report, "order_launches") > 0);
  options.disabled_passes.emplace_back("order_launches");
  const auto listed = compile_module(late_chain(256, 2048), options);
  REQUIRE_MESSAGE(listed.ok(), listed.status().to_string());
  CHECK(change_of(listed->report, "order_launches") == 0);
  CHECK(ordered->report.streams.promised_ns < ordered->report.streams.one_stream_ns);
  // The chain's first product, among the launches.
  const auto place = [](const std::vector<std::byte>& bytes) {
    const auto model = davit::image::read_image_model(bytes);
    REQUIRE(model.ok());
    uint32_t launches = 0;
    for (const davit::image::Graph& graph : model->graphs) {
      if (graph.role != davit::image::GraphRole::kMain) continue;
      for (const davit::image::Node& node : graph.nodes) {
        if (node.origin == "MatMul_p0" && node.device_kernel != davit::image::kNone) break;
        launches += node.device_kernel != davit::image::kNone ? 1 : 0;
      }
    }
    return launches;
  };
  CHECK(place(ordered->bytes) < 36);
  CHECK(place(listed->bytes) == 72);
  // The same results, where a run is cheap.
  options.stream_gain = kAnyGain;
  const std::vector<NpyArray> inputs = {f32_array({4, 32}, 0.5F)};
  const auto expected = compile_module(late_chain(4, 32), options);
  options.disabled_passes.pop_back();
  const auto image = compile_module(late_chain(4, 32), options);
  REQUIRE(expected.ok());
  REQUIRE(image.ok());
  const auto results = run_everywhere(expected->bytes, inputs);
  const auto outputs = run_everywhere(image->bytes, inputs);
  for (size_t i = 0; i < results.size(); ++i) CHECK(outputs[i].bytes == results[i].bytes);
}

TEST_CASE("dynamic graphs and the cpu stay on one stream, and say why") {
  TinyModule tiny;
  const auto x = tiny.input("x", {-1});
  CompileOptions options = for_ascend();
  options.streams = 4;
  const auto dynamic = compile_module(tiny.build({tiny.node("Relu", {x}, "y")}), options);
  REQUIRE_MESSAGE(dynamic.ok(), dynamic.status().to_string());
  CHECK(dynamic->report.streams.count == 1);
  CHECK(dynamic->report.why_one_stream == "shapes are set at run time");
}

TEST_CASE("small inputs share a copy") {
  TinyModule tiny;
  const auto a = tiny.input("a", {3});
  const auto b = tiny.input("b", {3});
  const auto c = tiny.input("c", {1, 3});
  const auto large = tiny.input("large", {256, 256});
  const auto sum = tiny.node("Add", {tiny.node("Add", {a, b}, "ab"), c}, "abc");
  const auto module = tiny.build({tiny.node("Exp", {sum}, "y"), tiny.node("Relu", {large}, "z")});
  CompileOptions options = for_ascend();
  const auto apart = compile_module(module, options);
  options.enabled_passes = {"fuse_copies"};
  const auto together = compile_module(module, options);
  REQUIRE_MESSAGE(apart.ok(), apart.status().to_string());
  REQUIRE_MESSAGE(together.ok(), together.status().to_string());
  CHECK(change_of(apart->report, "fuse_copies") == 0);
  CHECK(change_of(together->report, "fuse_copies") == 3);
  const std::vector<NpyArray> inputs = {f32_array({3}, 1), f32_array({3}, 2), f32_array({1, 3}, 3),
                                        f32_array({256, 256}, -1)};
  const auto expected = run_everywhere(apart->bytes, inputs);
  const auto outputs = run_everywhere(together->bytes, inputs);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(outputs[i].bytes == expected[i].bytes);
}

TEST_CASE("what depends on constants alone is computed once") {
  TinyModule tiny;
  const auto x = tiny.input("x", {2048});  // What is small, inference evaluates for shapes.
  const auto k = tiny.constant("k", f32_tensor({2048}, std::vector<float>(2048, 1.5F)));
  const auto once = tiny.node("Sigmoid", {tiny.node("Exp", {k}, "e")}, "s");
  const auto module = tiny.build({tiny.node("Add", {x, once}, "y"), once});
  CompileOptions options = for_ascend();
  options.disabled_passes = {"fold_constants"};
  const auto moved = compile_module(module, options);
  REQUIRE_MESSAGE(moved.ok(), moved.status().to_string());
  CHECK(change_of(moved->report, "move_to_init") == 2);
  options.disabled_passes.emplace_back("move_to_init");
  const auto stay = compile_module(module, options);
  REQUIRE_MESSAGE(stay.ok(), stay.status().to_string());
  CHECK(change_of(stay->report, "move_to_init") == 0);
  CHECK(moved->report.image_nodes < stay->report.image_nodes);
  const std::vector<NpyArray> inputs = {f32_array({2048}, 1)};
  const auto expected = run_everywhere(stay->bytes, inputs);
  for (const uint32_t streams : {1U, 3U}) {
    options.disabled_passes = {"fold_constants"};
    options.streams = streams;
    options.stream_gain = kAnyGain;
    const auto image = compile_module(module, options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    const auto outputs = run_everywhere(image->bytes, inputs);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(outputs[i].bytes == expected[i].bytes);
  }
}
