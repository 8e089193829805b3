// If and Loop, from a module to a result.
#include <doctest/doctest.h>

#include <functional>

#include "lowering/compile.hpp"
#include "tests/lowering/nested_graphs.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::ir::GraphId;
using davit::ir::kMainGraph;
using davit::ir::Module;
using davit::ir::NodeId;
using davit::ir::ValueId;
using Builder = davit::testing::NestedGraphs;

namespace {

NpyArray f32(std::vector<int64_t> dims, const std::vector<float>& values) {
  const auto data = davit::testing::f32_tensor(std::move(dims), values);
  return {data.dtype, data.dims, *data.bytes};
}
NpyArray i64(int64_t value) {
  std::vector<std::byte> bytes(8);
  std::memcpy(bytes.data(), &value, 8);
  return {DVT_I64, {}, std::move(bytes)};
}
NpyArray boolean(bool value) {
  return {DVT_BOOL, {}, {value ? std::byte{1} : std::byte{0}}};
}
std::vector<float> floats(const NpyArray& array) {
  std::vector<float> values(array.bytes.size() / 4);
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::vector<NpyArray> run(const Module& module, const std::vector<NpyArray>& inputs) {
  const auto image = compile_module(module, {});
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  auto outputs = davit::testing::run_image(image->bytes, inputs, nullptr, 3);
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return std::move(*outputs);
}

// y = c ? relu(x) + x : k, where `k` is a constant of the else branch.
Module branch() {
  Builder b;
  const ValueId c = b.input(kMainGraph, "c", DVT_BOOL, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {-1});
  const ValueId y = b.value(kMainGraph, "y");
  const NodeId node = b.add(kMainGraph, "If", {c}, {y}, "if");
  b.body(node, "then_branch", [&](GraphId g) -> std::vector<ValueId> {
    const ValueId positive = b.node(g, "Relu", {x}, "positive");
    return {b.node(g, "Add", {positive, x}, "sum")};
  });
  b.body(node, "else_branch", [&](GraphId g) -> std::vector<ValueId> {
    return {b.constant(g, "k", davit::testing::f32_tensor({1}, {7}))};
  });
  b.module.set_graph_outputs(kMainGraph, {y});
  return std::move(b.module);
}

// s starts as x and becomes s + x in each of `trip` iterations, while `go` holds; each s is
// collected, too. `inner_if`: the addition is in a branch of its own.
Module loop(bool inner_if) {
  Builder b;
  const ValueId trip = b.input(kMainGraph, "trip", DVT_I64, {});
  const ValueId go = b.input(kMainGraph, "go", DVT_BOOL, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {-1});
  const ValueId last = b.value(kMainGraph, "last");
  const ValueId all = b.value(kMainGraph, "all");
  const NodeId node = b.add(kMainGraph, "Loop", {trip, go, x}, {last, all}, "loop");
  b.body(node, "body", [&](GraphId g) -> std::vector<ValueId> {
    b.input(g, "i", DVT_I64, {});
    const ValueId condition = b.input(g, "condition", DVT_BOOL, {});
    const ValueId s = b.input(g, "s", DVT_F32, {-1});
    ValueId next;
    if (inner_if) {
      next = b.value(g, "next");
      const NodeId choice = b.add(g, "If", {condition}, {next}, "choice");
      b.body(choice, "then_branch", [&](GraphId inner) -> std::vector<ValueId> {
        return {b.node(inner, "Add", {s, x}, "sum")};
      });
      b.body(choice, "else_branch", [&](GraphId) -> std::vector<ValueId> { return {s}; });
    } else {
      next = b.node(g, "Add", {s, x}, "next");
    }
    return {condition, next, next};
  });
  b.module.set_graph_outputs(kMainGraph, {last, all});
  return std::move(b.module);
}

}  // namespace

TEST_CASE("If: each branch, with captures, a constant result and open shapes") {
  const Module module = branch();
  const NpyArray x = f32({3}, {-1, 0, 2});
  const auto taken = run(module, {boolean(true), x});
  CHECK(taken[0].dims == std::vector<int64_t>{3});
  CHECK(floats(taken[0]) == std::vector<float>{-1, 0, 4});
  const auto other = run(module, {boolean(false), x});
  CHECK(other[0].dims == std::vector<int64_t>{1});
  CHECK(floats(other[0]) == std::vector<float>{7});
}

TEST_CASE("Loop: states, collected results, no iteration, a condition that is false, nesting") {
  for (const bool inner_if : {false, true}) {
    CAPTURE(inner_if);
    const Module module = loop(inner_if);
    const NpyArray x = f32({2}, {1, -2});
    const auto three = run(module, {i64(3), boolean(true), x});
    CHECK(floats(three[0]) == std::vector<float>{4, -8});
    CHECK(three[1].dims == std::vector<int64_t>{3, 2});
    CHECK(floats(three[1]) == std::vector<float>{2, -4, 3, -6, 4, -8});
    for (const auto& [trips, go] : {std::pair(0, true), std::pair(5, false), std::pair(-1, true)}) {
      const int trip = trips;  // clang 14 captures no structured bindings.
      CAPTURE(trip);
      const auto none = run(module, {i64(trip), boolean(go), x});
      CHECK(floats(none[0]) == std::vector<float>{1, -2});
      CHECK(none[1].dims.size() == 2);
      CHECK(none[1].dims[0] == 0);
    }
  }
}

// User report B1.
TEST_CASE("bodies that compute nothing: what they hand on comes out, at once") {
  Builder b;
  const ValueId c = b.input(kMainGraph, "c", DVT_BOOL, {});
  const ValueId trip = b.input(kMainGraph, "trip", DVT_I64, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {-1});
  const ValueId z = b.input(kMainGraph, "z", DVT_F32, {-1});
  const ValueId y = b.value(kMainGraph, "y");
  const NodeId choice = b.add(kMainGraph, "If", {c}, {y}, "if");
  b.body(choice, "then_branch", [&](GraphId) -> std::vector<ValueId> { return {x}; });
  b.body(choice, "else_branch", [&](GraphId) -> std::vector<ValueId> { return {z}; });
  const ValueId last = b.value(kMainGraph, "last");
  const NodeId node = b.add(kMainGraph, "Loop", {trip, c, x}, {last}, "loop");
  b.body(node, "body", [&](GraphId g) -> std::vector<ValueId> {
    b.input(g, "i", DVT_I64, {});
    const ValueId condition = b.input(g, "condition", DVT_BOOL, {});
    return {condition, b.input(g, "s", DVT_F32, {-1})};
  });
  // Without a state or a result, too.
  const NodeId idle = b.add(kMainGraph, "Loop", {trip, c}, {}, "idle");
  b.body(idle, "body", [&](GraphId g) -> std::vector<ValueId> {
    b.input(g, "i2", DVT_I64, {});
    return {b.input(g, "condition2", DVT_BOOL, {})};
  });
  b.module.set_graph_outputs(kMainGraph, {y, last});
  const NpyArray one = f32({2}, {1, -2});
  const NpyArray other = f32({3}, {3, 4, 5});
  for (const int64_t trips : {int64_t{0}, int64_t{1}, int64_t{1000}}) {
    for (const bool taken : {true, false}) {
      CAPTURE(trips);
      CAPTURE(taken);
      const auto got = run(b.module, {boolean(taken), i64(trips), one, other});
      CHECK(floats(got[0]) == floats(taken ? one : other));
      CHECK(floats(got[1]) == floats(one));
    }
  }
}

TEST_CASE("a branch that is never taken may contradict the shapes") {
  Builder b;
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {2, 3});
  const ValueId yes =
      b.constant(kMainGraph, "yes", davit::ir::make_tensor(DVT_BOOL, {}, {std::byte{1}}));
  const ValueId y = b.value(kMainGraph, "y");
  const NodeId node = b.add(kMainGraph, "If", {yes}, {y}, "if");
  b.body(node, "then_branch",
         [&](GraphId g) -> std::vector<ValueId> { return {b.node(g, "Relu", {x}, "r")}; });
  b.body(node, "else_branch", [&](GraphId g) -> std::vector<ValueId> {
    const ValueId k = b.constant(g, "k", davit::testing::f32_tensor({5}, {1, 2, 3, 4, 5}));
    return {b.node(g, "Add", {x, k}, "wrong")};
  });
  b.module.set_graph_outputs(kMainGraph, {y});
  const auto outputs = run(b.module, {f32({2, 3}, {-1, 2, -3, 4, -5, 6})});
  CHECK(floats(outputs[0]) == std::vector<float>{0, 2, 0, 4, 0, 6});
}
