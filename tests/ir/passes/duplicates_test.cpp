// merge_constants and merge_equal_nodes.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

TEST_CASE("constants of one content become one") {
  check_pass({.pass = "merge_constants",
              .before = R"(
    input %x: f32[2]
    const %k: f32[2] = {1, 2} const %same: f32[2] = {1, 2} const %other: f32[2] = {1, 3}
    const %row: f32[1, 2] = {1, 2}
    (%a) = Add (%x, %k) (%b) = Mul (%a, %same) (%c) = Add (%b, %other) (%d) = Add (%c, %row)
    output (%d))",
              .after = R"(
    input %x: f32[2]
    const %k: f32[2] = {1, 2} const %other: f32[2] = {1, 3} const %row: f32[1, 2] = {1, 2}
    (%a) = Add (%x, %k) (%b) = Mul (%a, %k) (%c) = Add (%b, %other) (%d) = Add (%c, %row)
    output (%d))"});
}

TEST_CASE("bits count, not values") {
  check_untouched("merge_constants", R"(
    input %x: f32[1]
    const %zero: f32[1] = {0} const %minus_zero: f32[1] = {-0} const %bits: i32[1] = {0}
    (%a) = Add (%x, %zero) (%b) = Add (%a, %minus_zero) (%c) = Cast (%bits) { to = int 1 }
    output (%b, %c))");
}

TEST_CASE("constants of bodies move out to a twin, and outputs of the model stay") {
  check_pass({.pass = "merge_constants",
              .before = R"(
    input %c: bool[]
    const %k: f32[2] = {1, 2} const %result: f32[2] = {1, 2}
    (%y) = com.x::Choose (%c) {
      yes = graph { const %inner: f32[2] = {1, 2} (%a) = com.x::Use (%inner) output (%a) }
      no = graph { const %other: f32[2] = {5, 5} (%b) = com.x::Use (%other) output (%b) }
    }
    (%z) = com.x::Use (%k)
    output (%y, %z, %result))",
              .after = R"(
    input %c: bool[]
    const %k: f32[2] = {1, 2} const %result: f32[2] = {1, 2}
    (%y) = com.x::Choose (%c) {
      yes = graph { (%a) = com.x::Use (%k) output (%a) }
      no = graph { const %other: f32[2] = {5, 5} (%b) = com.x::Use (%other) output (%b) }
    }
    (%z) = com.x::Use (%k)
    output (%y, %z, %result))",
              .evaluates = false});
}

TEST_CASE("nodes that compute the same become one") {
  check_pass({.pass = "merge_equal_nodes",
              .before = R"(
    input %x: f32[3, 3] input %w: f32[3, 3]
    (%a) = MatMul "first" (%x, %w) (%b) = MatMul "second" (%x, %w)
    (%c) = Relu "third" (%a) (%d) = Relu "fourth" (%b)
    (%e) = Add "sum" (%c, %w) (%f) = Add "turned" (%w, %d)
    (%g) = Mul "last" (%e, %f)
    output (%g))",
              .after = R"(
    input %x: f32[3, 3] input %w: f32[3, 3]
    (%a) = MatMul "first" (%x, %w)
    (%c) = Relu "third" (%a)
    (%e) = Add "sum" (%c, %w)
    (%g) = Mul "last" (%e, %e)
    output (%g))",
              .evaluates = false});
}

TEST_CASE("a node that only names other outputs is merged when the first has them") {
  const std::string split = "{ axis = int 0 }";
  check_pass({.pass = "merge_equal_nodes",
              .before = "input %x: f32[4] (%a, %b) = Split (%x) " + split +
                        " (%c, %d) = Split (%x) " + split +
                        " (%y) = Sum (%a, %b, %c, %d) output (%y)",
              .after = "input %x: f32[4] (%a, %b) = Split (%x) " + split +
                       " (%y) = Sum (%a, %b, %a, %b) output (%y)"});
  // Halves are no thirds.
  check_untouched("merge_equal_nodes",
                  "input %x: f32[6] (%a, %b) = Split (%x) (%c, %d, %e) = Split (%x) "
                  "output (%a, %b, %c, %d, %e)");
}

TEST_CASE("what differs stays") {
  const auto kept = [](const std::string& two, int64_t opset = 13) {
    check_untouched(
        "merge_equal_nodes",
        "input %x: f32[2, 2] input %z: f32[2, 2] " + two + " (%c) = Sub (%a, %b) output (%c)",
        opset);
  };
  kept("(%a) = Relu (%x) (%b) = Neg (%x)");
  kept("(%a) = Relu (%x) (%b) = Relu (%z)");
  kept("(%a) = Sub (%x, %z) (%b) = Sub (%z, %x)");
  // max(0, -0) is not max(-0, 0).
  kept("(%a) = Max (%x, %z) (%b) = Max (%z, %x)");
  kept("(%a) = LeakyRelu (%x) { alpha = float 0.1 } (%b) = LeakyRelu (%x) { alpha = float 0.2 }");
  kept("(%a) = Relu (%x) (%b) = com.x::Relu (%x)");
  kept("(%a) = Add (%x, %z) { broadcast = int 1 } (%b) = Add (%z, %x) { broadcast = int 1 }", 6);
  kept("(%a) = RandomNormalLike (%x) (%b) = RandomNormalLike (%x)");
  kept("#1: (%a) = Relu (%x) (%b) = Relu (%x) after (#1)");
}

TEST_CASE("equal outputs of the model stay two; one of them may serve the rest") {
  check_untouched("merge_equal_nodes",
                  "input %x: f32[2] (%a) = Relu (%x) (%b) = Relu (%x) output (%a, %b)");
  check_pass(
      {.pass = "merge_equal_nodes",
       .before = "input %x: f32[2] (%a) = Relu \"one\" (%x) (%y) = Relu \"two\" (%x) "
                 "(%z) = Neg (%a) output (%y, %z)",
       .after = "input %x: f32[2] (%y) = Relu \"one\" (%x) (%z) = Neg (%y) output (%y, %z)"});
}

TEST_CASE("what a body computes again it takes from around it") {
  check_pass({.pass = "merge_equal_nodes",
              .before = R"(
    input %c: bool[] input %x: f32[2]
    (%r) = Relu "outer" (%x)
    (%y) = com.x::Choose (%c) {
      yes = graph { (%a) = Relu (%x) (%b) = Neg (%a) output (%b) }
      no = graph { (%d) = Relu (%x) output (%d) }
    }
    (%z) = Add (%y, %r)
    output (%z))",
              .after = R"(
    input %c: bool[] input %x: f32[2]
    (%r) = Relu "outer" (%x)
    (%y) = com.x::Choose (%c) {
      yes = graph { (%b) = Neg (%r) output (%b) }
      no = graph { (%d) = Relu (%x) output (%d) }
    }
    (%z) = Add (%y, %r)
    output (%z))",
              .evaluates = false});
}
