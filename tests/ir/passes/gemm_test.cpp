// fuse_gemm.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

namespace {

std::string reason(const std::string& body, int64_t opset = 13) {
  const auto refusals = check_untouched("fuse_gemm", body, opset);
  return refusals.empty() ? "" : refusals[0].node + ": " + refusals[0].reason;
}

constexpr const char* kMatrices = "input %a: f32[3, 4] input %b: f32[4, 5] ";

}  // namespace

TEST_CASE("a product and a sum are a Gemm, with the same bits") {
  for (const char* c : {"f32[]", "f32[1]", "f32[5]", "f32[1, 5]", "f32[3, 1]", "f32[3, 5]"}) {
    for (const char* sum : {"(%p, %c)", "(%c, %p)"}) {
      const std::string head = std::string(kMatrices) + "input %c: " + c + " ";
      check_pass({.pass = "fuse_gemm",
                  .before = head + "(%p) = MatMul \"product\" (%a, %b) (%y) = Add \"sum\" " + sum +
                            " output (%y)",
                  .after = head + "(%y) = Gemm \"product+sum\" (%a, %b, %c) output (%y)"});
    }
  }
}

TEST_CASE("free extents are fine where they fit") {
  check_pass({.pass = "fuse_gemm",
              .before = "input %a: f32[N, 4] input %b: f32[4, 5] input %c: f32[5] "
                        "(%p) = MatMul (%a, %b) (%y) = Add \"s\" (%p, %c) output (%y)",
              .after = "input %a: f32[N, 4] input %b: f32[4, 5] input %c: f32[5] "
                       "(%y: f32[N, 5]) = Gemm \"MatMul_0+s\" (%a, %b, %c) output (%y)",
              .evaluates = false});
  CHECK(reason("input %a: f32[3, 4] input %b: f32[4, 5] input %c: f32[M] "
               "(%p) = MatMul (%a, %b) (%y) = Add \"s\" (%p, %c) output (%y)") ==
        "s: it is not known that 'c' fits");
}

TEST_CASE("what Gemm cannot do has a reason") {
  const auto with = [](const std::string& c, const std::string& output = "%y") {
    return std::string(kMatrices) + "input %c: " + c +
           " (%p) = MatMul \"p\" (%a, %b) (%y) = Add \"s\" (%p, %c) output (" + output + ")";
  };
  CHECK(reason(with("f32[2, 3, 5]")) == "s: 'c' broadcasts the product");
  CHECK(reason(with("f32[1, 3, 5]")) == "s: 'c' broadcasts the product");
  CHECK(reason(with("f32[5]", "%p, %y")) == "s: interior value 'p' is a graph output");
  CHECK(reason("input %a: f32[3, 4] input %b: f32[4, 5] input %c: f32[3, 5] "
               "(%p) = MatMul (%a, %b) (%y) = Add \"s\" (%p, %c) output (%y)",
               6) == "s: Gemm does not broadcast before opset 7");
  CHECK(reason("input %a: i32[3, 4] input %b: i32[4, 5] input %c: i32[5] "
               "(%p) = MatMul (%a, %b) (%y) = Add \"s\" (%p, %c) output (%y)") ==
        "s: 'p' is i32, not a float");
}

TEST_CASE("a product that is added to itself is no Gemm") {
  CHECK(reason(std::string(kMatrices) +
               "(%p) = MatMul \"p\" (%a, %b) (%y) = Add \"s\" (%p, %p) output (%y)") ==
        "s: the product is added to itself");
}

TEST_CASE("products of more axes are no pattern") {
  CHECK(reason("input %a: f32[2, 3, 4] input %b: f32[4, 5] input %c: f32[5] "
               "(%p) = MatMul (%a, %b) (%y) = Add (%p, %c) output (%y)") == "");
  CHECK(reason("input %a: f32[4] input %b: f32[4, 5] input %c: f32[5] "
               "(%p) = MatMul (%a, %b) (%y) = Add (%p, %c) output (%y)") == "");
}
