// fuse_attention: the fused kernel gives the bits of the operators one after the other.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

namespace {

std::string head(const std::string& type, const std::string& mask = "1, 1, 5") {
  return "input %q: " + type + "[2, 3, 4, 6] input %k: " + type + "[2, 3, 6, 5] input %v: " + type +
         "[2, 3, 5, 7] input %mask: " + type + "[" + mask + "] ";
}

void check(const std::string& type, const std::string& mask, const std::string& constant,
           const std::string& nodes, const std::string& operands, const std::string& attributes,
           const std::string& name) {
  check_pass({.pass = "fuse_attention",
              .before = head(type, mask) + constant + "(%s) = MatMul \"scores\" (%q, %k) " + nodes +
                        " (%y) = MatMul \"values\" (%w, %v) output (%y)",
              .after = head(type, mask) + "(%y: " + type + "[2, 3, 4, 7]) = davit::Attention \"" +
                       name + "\" (" + operands + ") " + attributes + " output (%y)"});
}

std::string reason(const std::string& body) {
  const auto refusals = check_untouched("fuse_attention", body);
  return refusals.empty() ? "" : refusals[0].node + ": " + refusals[0].reason;
}

}  // namespace

TEST_CASE("with and without scale and mask, in every float type") {
  const std::string softmax = "(%w) = Softmax \"softmax\" ";
  check("f32", "1", "", softmax + "(%s)", "%q, %k, %v", "", "scores+softmax+values");
  for (const std::string type : {"f32", "f64"}) {
    const std::string scale = "const %c: " + type + "[] = {2.5} ";
    check(type, "1", scale, "(%t) = Div \"d\" (%s, %c) " + softmax + "(%t)", "%q, %k, %v",
          "{ scaling = string \"divide\" scale = float 2.5 }", "scores+d+softmax+values");
    check(type, "1", scale, "(%t) = Mul \"m\" (%c, %s) " + softmax + "(%t)", "%q, %k, %v",
          "{ scaling = string \"multiply\" scale = float 2.5 }", "scores+m+softmax+values");
    for (const char* mask :
         {"", "5", "4, 5", "2, 1, 1, 5", "2, 3, 4, 5", "3, 4, 1", "2, 1, 4, 1"}) {
      check(type, mask, scale,
            "(%t) = Div \"d\" (%s, %c) (%u) = Add \"a\" (%mask, %t) " + softmax + "(%u)",
            "%q, %k, %v, %mask", "{ scaling = string \"divide\" scale = float 2.5 }",
            "scores+...+values");
    }
  }
  check("f16", "4, 5", "const %c: f16[] = hex \"0041\" ",
        "(%t) = Div \"d\" (%s, %c) (%u) = Add \"a\" (%t, %mask) " + softmax + "(%u)",
        "%q, %k, %v, %mask", "{ scaling = string \"divide\" scale = float 2.5 }",
        "scores+...+values");
  check("bf16", "4, 5", "", "(%u) = Add \"a\" (%s, %mask) " + softmax + "(%u)", "%q, %k, %v, %mask",
        "", "scores+a+softmax+values");
}

TEST_CASE("what broadcasts in the operators broadcasts in the kernel") {
  struct Case {
    const char *q, *k, *v, *mask, *y;
  };
  for (const Case& c : {Case{"3, 4, 6", "1, 6, 5", "3, 5, 7", "5", "3, 4, 7"},
                        Case{"1, 4, 6", "3, 6, 5", "1, 5, 7", "4, 5", "3, 4, 7"},
                        Case{"2, 1, 4, 6", "1, 3, 6, 5", "2, 1, 5, 7", "2, 1, 1, 5", "2, 3, 4, 7"},
                        Case{"1, 4, 6", "1, 6, 5", "1, 5, 7", "3, 4, 5", "3, 4, 7"},
                        Case{"1, 4, 6", "1, 6, 5", "3, 5, 7", "1, 1", "3, 4, 7"},
                        Case{"2, 1, 6", "2, 6, 5", "2, 5, 7", "4, 5", "2, 4, 7"},
                        Case{"2, 4, 6", "2, 6, 1", "2, 5, 7", "4, 5", "2, 4, 7"},
                        Case{"1, 1, 6", "1, 6, 1", "2, 5, 7", "2, 4, 5", "2, 4, 7"}}) {
    const std::string inputs = std::string("input %q: f32[") + c.q + "] input %k: f32[" + c.k +
                               "] input %v: f32[" + c.v + "] input %mask: f32[" + c.mask + "] ";
    check_pass({.pass = "fuse_attention",
                .before = inputs + "(%s) = MatMul \"scores\" (%q, %k) (%t) = Add \"a\" (%s, %mask) "
                                   "(%w) = Softmax \"softmax\" (%t) "
                                   "(%y) = MatMul \"values\" (%w, %v) output (%y)",
                .after = inputs + "(%y: f32[" + c.y +
                         "]) = davit::Attention \"scores+a+softmax+values\" (%q, %k, %v, %mask) "
                         "output (%y)"});
  }
}

TEST_CASE("what it is not has a reason, or is no pattern") {
  const auto body = [](const std::string& nodes, const std::string& output = "%y") {
    return head("f32") + "const %c: f32[] = {2} (%s) = MatMul (%q, %k) " + nodes +
           " (%y) = MatMul \"values\" (%w, %v) output (" + output + ")";
  };
  CHECK(reason(body("(%w) = Softmax (%s) { axis = int 1 }")) ==
        "values: the softmax is not over the last axis alone");
  CHECK(reason(body("(%w) = Softmax (%s)", "%y, %w")) ==
        "values: interior value 'w' is a graph output");
  CHECK(reason(body("(%t) = Mul (%s, %mask) (%w) = Softmax (%t)")) ==
        "values: scale 'mask' is not one constant");
  CHECK(reason("input %q: f32[4, 6] input %k: f32[6, 5] input %v: f32[5, 7] "
               "input %mask: f32[1, 4, 5] (%s) = MatMul (%q, %k) (%t) = Add (%s, %mask) "
               "(%w) = Softmax (%t) (%y) = MatMul \"values\" (%w, %v) output (%y)") != "");
  CHECK(reason(body("(%t) = Div (%c, %s) (%w) = Softmax (%t)")) == "");
  CHECK(reason(body("(%w) = Sigmoid (%s)")) == "");
}
