// remove_identities.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

namespace {

constexpr const char* kPass = "remove_identities";

void check(const std::string& before, const std::string& after, int64_t opset = 13) {
  check_pass({.pass = kPass, .before = before, .after = after, .opset = opset});
}

// A node on x that is nothing, between two that are something.
void check_gone(const std::string& node, int64_t opset = 13) {
  INFO(node);
  check("input %x: f32[2, 3] (%a) = Relu \"first\" (%x) " + node +
            " (%y) = Neg \"last\" (%b) output (%y)",
        "input %x: f32[2, 3] (%a) = Relu \"first\" (%x) (%y) = Neg \"last\" (%a) output (%y)",
        opset);
}

void check_kept(const std::string& node, int64_t opset = 13) {
  check_untouched(kPass,
                  "input %x: f32[2, 3] (%a) = Relu (%x) " + node + " (%y) = Neg (%b) output (%y)",
                  opset);
}

}  // namespace

TEST_CASE("operators that change nothing go") {
  check_gone("(%b) = Identity \"i\" (%a)");
  check_gone("(%b) = Cast \"c\" (%a) { to = int 1 }");
  check_gone("(%b) = CastLike \"c\" (%a, %x)", 15);
  check_gone("(%b, _) = Dropout \"d\" (%a) { ratio = float 0.5 }", 10);
  check_gone("(%b) = Dropout \"d\" (%a)");
  check_gone(
      "const %ratio: f32[] = {0.5} const %train: bool[] = {0} "
      "(%b) = Dropout \"d\" (%a, %ratio, %train)");
  check_gone("(%b) = Dropout \"d\" (%a) { is_test = int 1 }", 6);
  check_gone("(%b) = Transpose \"t\" (%a) { perm = ints [0, 1] }");
  check_gone("const %s: i64[2] = {0, -1} (%b) = Reshape \"r\" (%a, %s)");
  check_gone("(%b) = Flatten \"f\" (%a) { axis = int 1 }");
  check_gone("const %axes: i64[0] = {} (%b) = Squeeze \"s\" (%a, %axes)");
  check_gone("const %s: i64[2] = {2, 1} (%b) = Expand \"e\" (%a, %s)");
  check_gone("const %n: i64[2] = {1, 1} (%b) = Tile \"t\" (%a, %n)");
  check_gone("const %p: i64[4] = {0, 0, 0, 0} (%b) = Pad \"p\" (%a, %p)");
  check_gone("(%b) = Pad \"p\" (%a) { pads = ints [0, 0, 0, 0] }", 9);
  check_gone("const %f: i64[2] = {0, 0} const %l: i64[2] = {9, 9} (%b) = Slice \"s\" (%a, %f, %l)");
  check_gone("(%b) = Slice \"s\" (%a) { starts = ints [0] ends = ints [2] }", 9);
  check_gone("(%b) = Sum \"s\" (%a)");
  check_gone("(%b) = Mean \"s\" (%a)");
  check_gone("(%b) = Max \"s\" (%a)");
  check_gone("(%b) = Concat \"s\" (%a) { axis = int 0 }");
  check_gone(
      "(%p, %q) = Split \"s\" (%a) { axis = int 0 } "
      "(%b) = Concat \"c\" (%p, %q) { axis = int -2 }");
}

TEST_CASE("those that change something stay") {
  check_kept("(%b) = Abs (%a)");
  check_kept("(%b) = Transpose (%a) { perm = ints [1, 0] }");
  check_kept("(%b) = Transpose (%a)");
  check_kept("const %s: i64[2] = {3, 2} (%b) = Reshape (%a, %s)");
  check_kept("const %s: i64[3] = {1, 2, 3} (%b) = Expand (%a, %s)");
  check_kept("const %n: i64[2] = {1, 2} (%b) = Tile (%a, %n)");
  check_kept("const %p: i64[4] = {1, 0, -1, 0} (%b) = Pad (%a, %p)");
  // The same extents, but turned round.
  check_kept(
      "const %f: i64[1] = {1} const %l: i64[1] = {-9} const %axis: i64[1] = {0} "
      "const %step: i64[1] = {-1} (%b) = Slice (%a, %f, %l, %axis, %step)");
  check_kept("(%b) = Sum (%a, %a)");
  check_kept("(%p, %q) = Split (%a) { axis = int 0 } (%b) = Concat (%q, %p) { axis = int 0 }");
  check_kept("(%p, %q) = Split (%a) { axis = int 0 } (%b) = Concat (%p, %q) { axis = int 1 }");
  check_kept("(%p, %q) = Split (%a) { axis = int 0 } (%b) = Concat (%p, %p) { axis = int 0 }");
  check_kept(
      "const %ratio: f32[] = {0.5} const %train: bool[] = {1} "
      "(%b) = Dropout (%a, %ratio, %train)");
  check_kept("(%b) = Dropout (%a)", 6);
  check_kept("(%b) = com.x::Identity (%a)");
}

TEST_CASE("a Dropout whose mask is used stays") {
  check_untouched(kPass,
                  "input %x: f32[2] (%y, %m) = Dropout (%x) (%n) = Not (%m) output (%y, %n)");
}

TEST_CASE("extents that are not known are not equal, but symbols are") {
  check_untouched(kPass,
                  "input %x: f32[?, 3] (%a) = Relu (%x) const %s: i64[2] = {-1, 3} "
                  "(%y) = Reshape (%a, %s) (%z) = Neg (%y) output (%z)");
  check_pass({.pass = kPass,
              .before = "input %x: f32[N, 3] (%a) = Relu (%x) const %s: i64[2] = {-1, 3} "
                        "(%y) = Reshape (%a, %s) (%z) = Neg (%y) output (%z)",
              .after = "input %x: f32[N, 3] (%a) = Relu (%x) (%z) = Neg (%a) output (%z)",
              .evaluates = false});
}

TEST_CASE("outputs of the model keep their names") {
  // What computes the value takes the name over.
  check("input %x: f32[2] (%a) = Relu (%x) (%b) = Abs (%a) (%y) = Identity (%a) output (%b, %y)",
        "input %x: f32[2] (%y) = Relu (%x) (%b) = Abs (%y) output (%b, %y)");
  check("input %x: f32[2] (%a) = Identity (%x) (%y) = Identity (%a) output (%y)",
        "input %x: f32[2] (%y) = Identity (%x) output (%y)");
  check_untouched(kPass, "input %x: f32[2] (%y) = Identity (%x) output (%y)");
  check_untouched(kPass, "const %k: f32[2] = {1, 2} (%y) = Identity (%k) output (%y)");
  check_untouched(kPass, "input %x: f32[2] (%a) = Relu (%x) (%y) = Identity (%a) output (%a, %y)");
}

TEST_CASE("bodies of control flow are cleaned too, and return what they own") {
  check_pass({.pass = kPass,
              .before = R"(
    input %c: bool[] input %x: f32[2]
    (%y) = com.x::Choose "if" (%c) {
      yes = graph {
        (%a) = Relu "r" (%x)
        (%b) = Identity "i" (%a)
        output (%b)
      }
      no = graph {
        (%d) = Identity "outer" (%x)
        output (%d)
      }
    }
    output (%y))",
              .after = R"(
    input %c: bool[] input %x: f32[2]
    (%y) = com.x::Choose "if" (%c) {
      yes = graph {
        (%a) = Relu "r" (%x)
        output (%a)
      }
      no = graph {
        (%d) = Identity "outer" (%x)
        output (%d)
      }
    }
    output (%y))",
              .evaluates = false});
}

TEST_CASE("nodes with control edges stay") {
  check_untouched(kPass,
                  "input %x: f32[2] #1: (%a) = Identity (%x) (%b) = Neg (%a) "
                  "(%c) = Abs (%b) after (#1) output (%c)");
}
