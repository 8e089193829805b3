// fuse_gelu.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

namespace {

constexpr const char* kHead =
    "input %x: f32[3, 40] const %one: f32[] = {1} "
    "const %half: f32[1] = {0.5} ";

void check(const std::string& body, const std::string& approximate) {
  INFO(body);
  check_pass(
      {.pass = "fuse_gelu",
       .before = kHead + body + " output (%y)",
       .after = "input %x: f32[3, 40] (%y: f32[3, 40]) = davit::Gelu \"first+...+last\" (%x) "
                "{ approximate = string \"" +
                approximate + "\" } output (%y)",
       .relative = 1e-6,
       .specials = false});
}

const char* const kHalves[] = {
    "(%w) = Mul (%x, %s) (%y) = Mul \"last\" (%w, %half)",
    "(%w) = Mul (%half, %x) (%y) = Mul \"last\" (%s, %w)",
    "(%w) = Mul (%s, %half) (%y) = Mul \"last\" (%x, %w)",
};

}  // namespace

TEST_CASE("by erf, however the factors are arranged") {
  for (const char* halves : kHalves) {
    const std::string end = std::string("(%e) = Erf (%d) (%s) = Add (%e, %one) ") + halves;
    check("const %r: f32[] = {1.4142135381698608} (%d) = Div \"first\" (%x, %r) " + end, "none");
    check("const %r: f32[] = {0.7071067690849304} (%d) = Mul \"first\" (%r, %x) " + end, "none");
  }
}

TEST_CASE("by tanh, however the cube is written") {
  for (const char* halves : kHalves) {
    const std::string end =
        std::string(
            "const %c: f32[] = {0.044714998453855515} const %k: f32[] = {0.7978845834732056} "
            "(%m) = Mul (%q, %c) (%i) = Add (%x, %m) (%j) = Mul (%i, %k) (%t) = Tanh (%j) "
            "(%s) = Add (%one, %t) ") +
        halves;
    check("const %three: f32[] = {3} (%q) = Pow \"first\" (%x, %three) " + end, "tanh");
    check("(%u) = Mul \"first\" (%x, %x) (%q) = Mul (%u, %x) " + end, "tanh");
    check("const %two: f32[] = {2} (%u) = Pow \"first\" (%x, %two) (%q) = Mul (%x, %u) " + end,
          "tanh");
  }
}

TEST_CASE("something near is not it") {
  const auto kept = [](const std::string& root, const std::string& rest) {
    return check_untouched("fuse_gelu", kHead + ("const %r: f32[] = {" + root + "} ") +
                                            "(%d) = Div (%x, %r) (%e) = Erf (%d) " + rest);
  };
  kept("1.5", "(%s) = Add (%e, %one) (%w) = Mul (%x, %s) (%y) = Mul (%w, %half) output (%y)");
  kept("1.4142135", "(%s) = Sub (%e, %one) (%w) = Mul (%x, %s) (%y) = Mul (%w, %half) output (%y)");
  kept("1.4142135", "(%s) = Add (%e, %one) (%w) = Mul (%d, %s) (%y) = Mul (%w, %half) output (%y)");
  const auto refusals = kept("1.4142135",
                             "(%s) = Add (%e, %one) (%w) = Mul (%x, %s) "
                             "(%y) = Mul \"last\" (%w, %half) output (%e, %y)");
  REQUIRE(!refusals.empty());
  CHECK(refusals[0].node == "last");
  CHECK(refusals[0].reason == "interior value 'e' is a graph output");
}
