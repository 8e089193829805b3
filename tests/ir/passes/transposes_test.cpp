// merge_transposes and move_transposes.
#include <doctest/doctest.h>

#include "ir/passes/pointwise.hpp"
#include "tests/ir/passes/support.hpp"

using namespace davit;
using testing::check_pass;
using testing::check_untouched;

TEST_CASE("two transposes are one, or none") {
  check_pass({.pass = "merge_transposes",
              .before = R"(
    input %x: f32[2, 3, 4]
    (%a) = Transpose "one" (%x) { perm = ints [1, 2, 0] }
    (%b) = Transpose "two" (%a) { perm = ints [1, 0, 2] }
    (%y) = Relu "y" (%b)
    output (%y))",
              .after = R"(
    input %x: f32[2, 3, 4]
    (%b) = Transpose "two" (%x) { perm = ints [2, 1, 0] }
    (%y) = Relu "y" (%b)
    output (%y))"});
  check_pass({.pass = "merge_transposes",
              .before = R"(
    input %x: f32[2, 3, 4]
    (%a) = Transpose "one" (%x) { perm = ints [1, 2, 0] }
    (%b) = Transpose "two" (%a) { perm = ints [2, 0, 1] }
    (%y) = Relu "y" (%b) (%z) = Neg "z" (%a)
    output (%y, %z))",
              .after = R"(
    input %x: f32[2, 3, 4]
    (%a) = Transpose "one" (%x) { perm = ints [1, 2, 0] }
    (%y) = Relu "y" (%x)
    (%z) = Neg "z" (%a)
    output (%y, %z))"});
  // Without an attribute all axes are reversed.
  check_pass({.pass = "merge_transposes",
              .before = "input %x: f32[2, 3] (%r) = Relu \"r\" (%x) (%a) = Transpose (%r) "
                        "(%y) = Transpose (%a) output (%y)",
              .after = "input %x: f32[2, 3] (%y) = Relu \"r\" (%x) output (%y)"});
}

TEST_CASE("Gemm turns its matrices itself") {
  check_pass({.pass = "merge_transposes",
              .before = R"(
    input %a: f32[2, 3] input %b: f32[2, 4]
    (%ta) = Transpose "ta" (%a) (%tb) = Transpose "tb" (%b)
    (%y) = Gemm "gemm" (%ta, %tb) { transB = int 1 }
    output (%y))",
              .after = R"(
    input %a: f32[2, 3] input %b: f32[2, 4]
    (%y) = Gemm "gemm" (%a, %b) { transB = int 0 transA = int 1 }
    output (%y))"});
}

TEST_CASE("a transpose passes pointwise operators to meet another") {
  check_pass({.pass = "move_transposes",
              .before = R"(
    input %x: f32[2, 3, 4]
    const %k: f32[3, 1] = {1, 2, 3} const %two: f32[] = {2}
    (%a) = Transpose "one" (%x) { perm = ints [0, 2, 1] }
    (%b) = Relu "relu" (%a)
    (%c) = Mul "mul" (%two, %b)
    (%d) = Transpose "two" (%c) { perm = ints [1, 0, 2] }
    output (%d))",
              .after = R"(
    input %x: f32[2, 3, 4]
    const %two: f32[] = {2}
    (%b.1: f32[2, 3, 4]) = Relu "relu" (%x)
    (%c.1: f32[2, 3, 4]) = Mul "mul" (%two, %b.1)
    (%c: f32[2, 4, 3]) = Transpose "one" (%c.1) { perm = ints [0, 2, 1] }
    (%d) = Transpose "two" (%c) { perm = ints [1, 0, 2] }
    output (%d))"});
}

TEST_CASE("constants on the way are turned back") {
  check_pass({.pass = "move_transposes",
              .before = R"(
    input %x: f32[2, 2, 3] const %k: f32[3, 2] = {1, 2, 3, 4, 5, 6}
    (%a) = Transpose "one" (%x) { perm = ints [0, 2, 1] }
    (%b) = Sub "sub" (%k, %a)
    (%d) = Transpose "two" (%b) { perm = ints [2, 1, 0] }
    output (%d))",
              .after = R"(
    input %x: f32[2, 2, 3] const %k.1: f32[1, 2, 3] = {1, 3, 5, 2, 4, 6}
    (%b.1: f32[2, 2, 3]) = Sub "sub" (%k.1, %x)
    (%b: f32[2, 3, 2]) = Transpose "one" (%b.1) { perm = ints [0, 2, 1] }
    (%d) = Transpose "two" (%b) { perm = ints [2, 1, 0] }
    output (%d))"});
}

TEST_CASE("transposes that join become one") {
  check_pass({.pass = "move_transposes",
              .before = R"(
    input %x: f32[2, 3] input %z: f32[2, 3]
    (%a) = Transpose "one" (%x) (%b) = Transpose "two" (%z) { perm = ints [1, 0] }
    (%y) = Add "sum" (%a, %b)
    output (%y))",
              .after = R"(
    input %x: f32[2, 3] input %z: f32[2, 3]
    (%y.1: f32[2, 3]) = Add "sum" (%x, %z)
    (%y: f32[3, 2]) = Transpose "one" (%y.1) { perm = ints [1, 0] }
    output (%y))"});
  check_pass({.pass = "move_transposes",
              .before = R"(
    input %x: f32[1, 2, 3] input %z: f32[1, 5, 3]
    (%a) = Transpose "one" (%x) { perm = ints [2, 0, 1] }
    (%b) = Transpose "two" (%z) { perm = ints [2, 0, 1] }
    (%y) = Concat "join" (%a, %b) { axis = int -1 }
    output (%y))",
              .after = R"(
    input %x: f32[1, 2, 3] input %z: f32[1, 5, 3]
    (%y.1: f32[1, 7, 3]) = Concat "join" (%x, %z) { axis = int 1 }
    (%y: f32[3, 1, 7]) = Transpose "one" (%y.1) { perm = ints [2, 0, 1] }
    output (%y))"});
}

TEST_CASE("transposes stay where moving gains nothing or is not possible") {
  const auto kept = [](const std::string& body) { check_untouched("move_transposes", body); };
  const std::string head = "input %x: f32[2, 3] input %z: f32[3, 2] (%a) = Transpose (%x) ";
  kept(head + "(%y) = Relu (%a) output (%y)");
  kept(head + "(%y) = Add (%a, %z) (%t) = Transpose (%y) output (%t)");
  kept(head + "(%b) = Relu (%a) (%t) = Transpose (%b) output (%a, %t)");
  kept(head + "(%b) = Relu (%a) (%c) = Neg (%a) (%t) = Transpose (%b) output (%c, %t)");
  kept(head + "(%b) = Softmax (%a) (%t) = Transpose (%b) output (%t)");
  // The other operand adds an axis.
  kept(head + "const %k: f32[1, 1, 1] = {1} (%b) = Add (%a, %k) (%t) = Transpose (%b) output (%t)");
  kept(head +
       "const %k: f32[2, 1, 1] = {1, 2} (%b) = Add (%a, %k) (%t) = Transpose (%b) "
       "output (%t)");
  // Another order of axes.
  kept(
      "input %x: f32[2, 2, 2] input %z: f32[2, 2, 2] "
      "(%a) = Transpose (%x) { perm = ints [1, 0, 2] } "
      "(%b) = Transpose (%z) { perm = ints [2, 1, 0] } (%y) = Add (%a, %b) output (%y)");
}

TEST_CASE("data is moved as Transpose does") {
  const ir::TensorData data = ir::make_i64_tensor({2, 3}, {0, 1, 2, 3, 4, 5});
  const ir::TensorData turned = passes::permuted_data(data, {2, 0, 1});
  CHECK(turned.dims == std::vector<int64_t>{3, 1, 2});
  CHECK(turned.to_i64() == std::vector<int64_t>{0, 3, 1, 4, 2, 5});
  CHECK(passes::permuted_data(ir::make_i64_tensor({0, 3}, {}), {1, 0}).dims ==
        std::vector<int64_t>{3, 0});
  CHECK(passes::permuted_data(ir::make_i64_tensor({}, {7}), {1, 0}).to_i64() ==
        std::vector<int64_t>{7});
}
