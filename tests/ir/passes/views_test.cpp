// merge_views and move_views.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

TEST_CASE("views of views are one Reshape") {
  check_pass({.pass = "merge_views",
              .before = R"(
    input %x: f32[2, 3, 4]
    const %axes: i64[1] = {0}
    (%a) = Flatten "flatten" (%x)
    (%b) = Unsqueeze "add" (%a, %axes)
    (%c) = Squeeze "drop" (%b, %axes)
    (%y) = Relu "y" (%c)
    output (%y))",
              .after = R"(
    input %x: f32[2, 3, 4]
    const %c.shape: i64[2] = {2, 12}
    (%c) = Reshape "drop" (%x, %c.shape)
    (%y) = Relu "y" (%c)
    output (%y))"});
}

TEST_CASE("a Reshape whose target copies no dims just reads from further up") {
  check_pass({.pass = "merge_views",
              .before = R"(
    input %x: f32[2, 3, 4] const %s: i64[2] = {6, -1} const %t: i64[3] = {4, -1, 3}
    (%a) = Reshape "first" (%x, %s)
    (%y) = Reshape "second" (%a, %t)
    output (%a, %y))",
              .after = R"(
    input %x: f32[2, 3, 4] const %s: i64[2] = {6, -1} const %t: i64[3] = {4, -1, 3}
    (%a) = Reshape "first" (%x, %s)
    (%y) = Reshape "second" (%x, %t)
    output (%a, %y))"});
}

TEST_CASE("a 0 in the target would copy another dim: the Reshape gets a target of its own") {
  check_pass({.pass = "merge_views",
              .before = R"(
    input %x: f32[2, 3, 4] const %s: i64[2] = {6, -1} const %t: i64[3] = {0, 2, 2}
    (%a) = Reshape "first" (%x, %s)
    (%y) = Reshape "second" (%a, %t)
    output (%y))",
              .after = R"(
    input %x: f32[2, 3, 4] const %y.shape: i64[3] = {6, 2, 2}
    (%y) = Reshape "second" (%x, %y.shape)
    output (%y))"});
}

TEST_CASE("a Transpose that moves only axes of extent 1 is a view") {
  check_pass({.pass = "merge_views",
              .before = R"(
    input %x: f32[2, 1, 3]
    (%a) = Transpose "turn" (%x) { perm = ints [1, 0, 2] }
    (%y) = Flatten "flat" (%a)
    output (%y))",
              .after = R"(
    input %x: f32[2, 1, 3] const %y.shape: i64[2] = {1, 6}
    (%y) = Reshape "flat" (%x, %y.shape)
    output (%y))"});
  check_untouched("merge_views", R"(
    input %x: f32[2, 1, 3]
    (%a) = Transpose (%x) { perm = ints [2, 1, 0] }
    (%y) = Flatten (%a)
    output (%y))");
}

TEST_CASE("one free dim can be restated, two cannot, and neither can 0") {
  check_pass({.pass = "merge_views",
              .before = R"(
    input %x: f32[N, 3, 4] const %axes: i64[1] = {1}
    (%a) = Flatten "flat" (%x) (%y) = Unsqueeze "add" (%a, %axes)
    output (%y))",
              .after = R"(
    input %x: f32[N, 3, 4] const %y.shape: i64[3] = {-1, 1, 12}
    (%y: f32[N, 1, 12]) = Reshape "add" (%x, %y.shape)
    output (%y))",
              .evaluates = false});
  check_untouched("merge_views", R"(
    input %x: f32[N, 1, M] const %axes: i64[1] = {1}
    (%a) = Squeeze (%x, %axes) (%y) = Unsqueeze (%a, %axes)
    output (%y))");
  check_untouched("merge_views", R"(
    input %x: f32[0, 3, 4] const %axes: i64[1] = {1}
    (%a) = Flatten (%x) (%y) = Unsqueeze (%a, %axes)
    output (%y))");
}

TEST_CASE("pointwise operators move in front of a view when another view follows") {
  check_pass({.pass = "move_views",
              .before = R"(
    input %x: f32[2, 3, 4] const %s: i64[2] = {6, 4} const %k: f32[1] = {3}
    (%a) = Reshape "first" (%x, %s)
    (%b) = Relu "relu" (%a)
    (%c) = Mul "mul" (%k, %b)
    (%y) = Flatten "last" (%c) { axis = int 0 }
    output (%y))",
              .after = R"(
    input %x: f32[2, 3, 4] const %b.shape: i64[2] = {6, 4} const %k: f32[1] = {3}
    (%b.1: f32[2, 3, 4]) = Relu "relu" (%x)
    (%c.1: f32[2, 3, 4]) = Mul "mul" (%k, %b.1)
    (%c: f32[6, 4]) = Reshape "first" (%c.1, %b.shape)
    (%y) = Flatten "last" (%c) { axis = int 0 }
    output (%y))"});
}

TEST_CASE("pointwise operators move to the product they could be fused with") {
  check_pass({.pass = "move_views",
              .before = R"(
    input %x: f32[4, 3] input %w: f32[3, 6] const %s: i64[3] = {2, 2, 6}
    (%p) = MatMul "product" (%x, %w)
    (%a) = Reshape "view" (%p, %s)
    (%y) = Relu "relu" (%a)
    output (%y))",
              .after = R"(
    input %x: f32[4, 3] input %w: f32[3, 6] const %a.shape: i64[3] = {2, 2, 6}
    (%p) = MatMul "product" (%x, %w)
    (%y.1: f32[4, 6]) = Relu "relu" (%p)
    (%y: f32[2, 2, 6]) = Reshape "view" (%y.1, %a.shape)
    output (%y))"});
}

TEST_CASE("views stay where moving gains nothing or is not possible") {
  const std::string head =
      "input %x: f32[2, 3, 4] const %s: i64[2] = {6, 4} "
      "(%a) = Reshape (%x, %s) ";
  check_untouched("move_views", head + "(%y) = Relu (%a) output (%y)");
  check_untouched("move_views", head + "(%b) = Relu (%a) (%y) = Flatten (%b) output (%a, %y)");
  check_untouched("move_views",
                  head +
                      "const %k: f32[4] = {1, 2, 3, 4} (%b) = Add (%a, %k) (%y) = Flatten (%b) "
                      "{ axis = int 0 } output (%y)");
  // The constant has more axes than what it would be added to.
  check_untouched("move_views",
                  "input %x: f32[4] const %s: i64[3] = {1, 2, 2} const %k: f32[1, 1, 1] = {1} "
                  "(%a) = Reshape (%x, %s) (%b) = Add (%a, %k) (%y) = Flatten (%b) output (%y)");
}
