// fuse_layer_norm.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

namespace {

// x of f32[2, 3, 4] normalised over the axes given.
std::string written_out(const std::string& axes, const std::string& square,
                        const std::string& end = "(%z) = Add \"last\" (%y, %b) output (%z)") {
  return "(%m) = ReduceMean \"first\" (%x) { axes = ints [" + axes +
         "] } (%d) = Sub (%x, %m) (%s) = " + square + " (%v) = ReduceMean (%s) { axes = ints [" +
         axes +
         "] } (%e) = Add (%v, %eps) (%r) = Sqrt (%e) (%n) = Div (%d, %r) "
         "(%y) = Mul \"scaled\" (%n, %g) " +
         end;
}

constexpr const char* kHead =
    "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[4] "
    "const %eps: f32[1] = {0.001} const %two: f32[] = {2} ";

void check(const std::string& before, const std::string& after, int64_t opset = 13) {
  check_pass({.pass = "fuse_layer_norm",
              .before = before,
              .after = after,
              .opset = opset,
              .relative = 1e-5,
              .specials = false});
}

std::string reason(const std::string& body) {
  const auto refusals = check_untouched("fuse_layer_norm", body);
  return refusals.empty() ? "" : refusals[0].node + ": " + refusals[0].reason;
}

}  // namespace

TEST_CASE("written out with a power or a product, with and without a bias") {
  for (const char* square : {"Pow (%d, %two)", "Mul (%d, %d)"}) {
    check(kHead + written_out("-1", square),
          "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[4] (%z: f32[2, 3, 4]) = "
          "davit::LayerNormalization \"first+...+last\" (%x, %g, %b) "
          "{ axis = int -1 epsilon = float 0.001 } output (%z)");
    check(kHead + written_out("2", square, "(%z) = Neg \"neg\" (%y) output (%z)"),
          "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[4] (%y: f32[2, 3, 4]) = "
          "davit::LayerNormalization \"first+...+scaled\" (%x, %g) "
          "{ axis = int -1 epsilon = float 0.001 } (%z) = Neg \"neg\" (%y) output (%z)");
  }
}

TEST_CASE("over several axes, which may be inputs") {
  check(
      "input %x: f32[2, 3, 4] input %g: f32[3, 4] input %b: f32[3, 4] "
      "const %eps: f32[] = {0.001} const %two: f32[] = {2} " +
          written_out("2, 1", "Mul (%d, %d)"),
      "input %x: f32[2, 3, 4] input %g: f32[3, 4] input %b: f32[3, 4] (%z: f32[2, 3, 4]) = "
      "davit::LayerNormalization \"first+...+last\" (%x, %g, %b) "
      "{ axis = int -2 epsilon = float 0.001 } output (%z)");
  check(
      "input %x: f32[2, 4] input %g: f32[4] const %eps: f32[] = {0.001} const %a: i64[1] = {-1} "
      "(%m) = ReduceMean \"first\" (%x, %a) (%d) = Sub (%x, %m) (%s) = Mul (%d, %d) "
      "(%v) = ReduceMean (%s, %a) (%e) = Add (%eps, %v) (%r) = Sqrt (%e) (%n) = Div (%d, %r) "
      "(%y) = Mul \"last\" (%g, %n) output (%y)",
      "input %x: f32[2, 4] input %g: f32[4] (%y: f32[2, 4]) = "
      "davit::LayerNormalization \"first+...+last\" (%x, %g) "
      "{ axis = int -1 epsilon = float 0.001 } output (%y)",
      18);
}

TEST_CASE("what it is not has a reason") {
  CHECK(reason(kHead + written_out("1", "Mul (%d, %d)")) ==
        "last: means are not over the same last axes, kept");
  CHECK(reason(kHead +
               written_out("-1", "Mul (%d, %d)", "(%z) = Add \"last\" (%y, %b) output (%z, %r)")) ==
        "last: interior value 'r' is a graph output");
}

TEST_CASE("without scale and bias, which other passes remove where they change nothing") {
  const auto without_scale = [](const std::string& end) {
    return std::string(kHead) +
           "(%m) = ReduceMean \"first\" (%x) { axes = ints [-1] } (%d) = Sub (%x, %m) "
           "(%s) = Mul (%d, %d) (%v) = ReduceMean (%s) { axes = ints [-1] } "
           "(%e) = Add (%v, %eps) (%r) = Sqrt (%e) (%n) = Div \"divided\" (%d, %r) " +
           end;
  };
  const std::string ones = "const %x.scale: f32[4] = {1, 1, 1, 1} ";
  check(without_scale("(%z) = Add \"last\" (%n, %b) output (%z)"),
        "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[4] " + ones +
            "(%z: f32[2, 3, 4]) = davit::LayerNormalization \"first+...+last\" "
            "(%x, %x.scale, %b) { axis = int -1 epsilon = float 0.001 } output (%z)");
  check(without_scale("(%z) = Neg \"neg\" (%n) output (%z)"),
        "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[4] " + ones +
            "(%n: f32[2, 3, 4]) = davit::LayerNormalization \"first+...+divided\" "
            "(%x, %x.scale) { axis = int -1 epsilon = float 0.001 } "
            "(%z) = Neg \"neg\" (%n) output (%z)");
}

TEST_CASE("a scale that does not fit stays a Mul") {
  check(std::string(kHead) + written_out("1, 2", "Mul (%d, %d)"),
        "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[4] "
        "const %x.scale: f32[3, 4] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1} "
        "(%n: f32[2, 3, 4]) = davit::LayerNormalization \"first+...+Div_6\" (%x, %x.scale) "
        "{ axis = int -2 epsilon = float 0.001 } (%y) = Mul \"scaled\" (%n, %g) "
        "(%z) = Add \"last\" (%y, %b) output (%z)");
}

TEST_CASE("a bias that does not fit stays an Add") {
  check(
      "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[1] "
      "const %eps: f32[1] = {0.001} const %two: f32[] = {2} " +
          written_out("-1", "Mul (%d, %d)"),
      "input %x: f32[2, 3, 4] input %g: f32[4] input %b: f32[1] (%y: f32[2, 3, 4]) = "
      "davit::LayerNormalization \"first+...+scaled\" (%x, %g) "
      "{ axis = int -1 epsilon = float 0.001 } (%z) = Add \"last\" (%y, %b) output (%z)");
}
