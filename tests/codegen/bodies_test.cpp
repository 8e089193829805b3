// Bodies of If and Loop get generated kernels where their shapes are static.
#include <doctest/doctest.h>

#include <cstring>

#include "lowering/compile.hpp"
#include "tests/lowering/nested_graphs.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::ir::GraphId;
using davit::ir::kMainGraph;
using davit::ir::ValueId;
using davit::testing::NestedGraphs;

namespace {

template <class T>
NpyArray array_of(DvtDType dtype, std::vector<int64_t> dims, const std::vector<T>& values) {
  NpyArray array{.dtype = dtype, .dims = std::move(dims), .bytes = {}};
  array.bytes.resize(values.size() * sizeof(T));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

NpyArray run(const davit::ir::Module& module, const std::vector<NpyArray>& inputs,
             const std::vector<std::string>& isas, uint32_t generated) {
  CompileOptions options{.level = davit::passes::Level(3)};
  options.codegen.isas = isas;
  const auto image = compile_module(module, options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  CHECK(image->report.generated_nodes == generated);
  auto outputs = davit::testing::run_image(image->bytes, inputs, nullptr, 3);
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return std::move((*outputs)[0]);
}

// Sums of few terms that are exact: the bits agree.
void check(const davit::ir::Module& module, const std::vector<NpyArray>& inputs,
           uint32_t generated) {
  const NpyArray expected = run(module, inputs, {}, 0);
  const NpyArray got = run(module, inputs, {"baseline"}, generated);
  CHECK(got.dims == expected.dims);
  CHECK(got.bytes == expected.bytes);
}

const std::vector<float> kWeights = {1, 2, -1, 0.5, 3, 0.25, -2, 1, 1};

}  // namespace

TEST_CASE("branches have generated kernels; weights may be shared with the graph outside") {
  NestedGraphs b;
  const ValueId c = b.input(kMainGraph, "c", DVT_BOOL, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {2, 3});
  const ValueId w = b.constant(kMainGraph, "w", davit::testing::f32_tensor({3, 3}, kWeights));
  const ValueId before = b.node(kMainGraph, "MatMul", {x, w}, "before");
  const ValueId y = b.value(kMainGraph, "y");
  const auto node = b.add(kMainGraph, "If", {c}, {y}, "if");
  b.body(node, "then_branch", [&](GraphId g) -> std::vector<ValueId> {
    return {b.node(g, "MatMul", {before, w}, "product")};
  });
  b.body(node, "else_branch", [&](GraphId g) -> std::vector<ValueId> {
    const ValueId own =
        b.constant(g, "own", davit::testing::f32_tensor({3, 2}, {1, 2, 3, 4, 5, 6}));
    return {b.node(g, "MatMul", {x, own}, "other")};
  });
  b.module.set_graph_outputs(kMainGraph, {y});
  const NpyArray pixels = array_of<float>(DVT_F32, {2, 3}, {1, 2, 3, 4, 5, 6});
  for (const uint8_t choice : {0, 1}) {
    check(b.module, {array_of<uint8_t>(DVT_BOOL, {}, {choice}), pixels}, 3);
  }
}

TEST_CASE("a body of Loop has generated kernels") {
  NestedGraphs b;
  const ValueId trip = b.input(kMainGraph, "trip", DVT_I64, {});
  const ValueId go = b.input(kMainGraph, "go", DVT_BOOL, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {2, 3});
  const ValueId last = b.value(kMainGraph, "last");
  const auto node = b.add(kMainGraph, "Loop", {trip, go, x}, {last}, "loop");
  b.body(node, "body", [&](GraphId g) -> std::vector<ValueId> {
    b.input(g, "i", DVT_I64, {});
    const ValueId condition = b.input(g, "condition", DVT_BOOL, {});
    const ValueId s = b.input(g, "s", DVT_F32, {2, 3});
    const ValueId w = b.constant(g, "w", davit::testing::f32_tensor({3, 3}, kWeights));
    const ValueId next = b.node(g, "MatMul", {s, w}, "next");
    return {b.node(g, "Identity", {condition}, "on"), next};
  });
  b.module.set_graph_outputs(kMainGraph, {last});
  const NpyArray pixels = array_of<float>(DVT_F32, {2, 3}, {1, 2, 3, 4, 5, 6});
  for (const int64_t trips : {0, 1, 4}) {
    check(b.module,
          {array_of<int64_t>(DVT_I64, {}, {trips}), array_of<uint8_t>(DVT_BOOL, {}, {1}), pixels},
          1);
  }
}
