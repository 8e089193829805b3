// simplify_arithmetic: every rule is exact, so results are compared bit for bit with NaN,
// infinities and zeros of both signs among the inputs (check_pass() does).
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using namespace davit;
using testing::check_pass;
using testing::check_untouched;

namespace {

constexpr const char* kPass = "simplify_arithmetic";

// `node` computes %b from %a and %x, and is %a.
void check_gone(const std::string& type, const std::string& node, int64_t opset = 13) {
  INFO(node);
  const std::string head = "input %x: " + type + "[40] (%a) = Abs \"first\" (%x) ";
  check_pass({.pass = kPass,
              .before = head + node + " (%y) = Neg \"last\" (%b) output (%y)",
              .after = head + "(%y) = Neg \"last\" (%a) output (%y)",
              .opset = opset});
}

void check_becomes(const std::string& type, const std::string& node, const std::string& other,
                   int64_t opset = 13) {
  INFO(node);
  const std::string head = "input %x: " + type + "[40] ";
  check_pass({.pass = kPass,
              .before = head + node + " (%y) = Sin \"last\" (%b) output (%y)",
              .after = head + other + " (%y) = Sin \"last\" (%b) output (%y)",
              .opset = opset});
}

void check_kept(const std::string& type, const std::string& node, int64_t opset = 13) {
  INFO(node);
  check_untouched(kPass, "input %x: " + type + "[40] " + node + " output (%b)", opset);
}

std::string scalar(const std::string& type, const std::string& number) {
  return "const %k: " + type + "[] = {" + number + "} ";
}

}  // namespace

TEST_CASE("neutral numbers go") {
  for (const std::string type : {"f32", "f64"}) {
    check_gone(type, scalar(type, "1") + "(%b) = Mul \"n\" (%a, %k)");
    check_gone(type, scalar(type, "1") + "(%b) = Mul \"n\" (%k, %a)");
    check_gone(type, scalar(type, "1") + "(%b) = Div \"n\" (%a, %k)");
    check_gone(type, scalar(type, "1") + "(%b) = Pow \"n\" (%a, %k)");
    check_gone(type, scalar(type, "-0") + "(%b) = Add \"n\" (%a, %k)");
    check_gone(type, scalar(type, "0") + "(%b) = Sub \"n\" (%a, %k)");
  }
  check_gone("f16", "const %k: f16[] = hex \"003c\" (%b) = Mul \"n\" (%a, %k)");
  check_gone("i32", scalar("i32", "0") + "(%b) = Add \"n\" (%k, %a)");
  check_gone("i64", scalar("i64", "0") + "(%b) = Sub \"n\" (%a, %k)");
  check_gone("i64", scalar("i64", "1") + "(%b) = Mul \"n\" (%a, %k)");
  check_gone("f32", "const %k: f32[1] = {1} (%b) = Mul \"n\" (%a, %k)");
}

TEST_CASE("adding 0 is not neutral for -0, unless there is none") {
  check_kept("f32", scalar("f32", "0") + "(%b) = Add (%x, %k)");
  check_kept("f32", scalar("f32", "-0") + "(%b) = Sub (%x, %k)");
  check_gone("f32", scalar("f32", "0") + "(%b) = Add \"n\" (%a, %k)");   // Of Abs.
  check_gone("f32", scalar("f32", "-0") + "(%b) = Sub \"n\" (%a, %k)");  // Of Abs.
  check_pass({.pass = kPass,
              .before = "input %x: f32[3, 5] input %w: f32[5, 2] const %k: f32[] = {0} "
                        "(%p) = MatMul \"p\" (%x, %w) (%y) = Add (%p, %k) output (%y)",
              .after = "input %x: f32[3, 5] input %w: f32[5, 2] (%y) = MatMul \"p\" (%x, %w) "
                       "output (%y)"});
  // A sum of halves may be rounded to -0.
  check_untouched(kPass,
                  "input %x: f16[3, 5] input %w: f16[5, 2] const %k: f16[] = hex \"0000\" "
                  "(%p) = MatMul (%x, %w) (%y) = Add (%p, %k) output (%y)");
}

TEST_CASE("what only looks neutral stays") {
  check_kept("f32", scalar("f32", "0") + "(%b) = Mul (%x, %k)");
  check_kept("f32", scalar("f32", "1") + "(%b) = Div (%k, %x)");
  check_kept("f32", scalar("f32", "0") + "(%b) = Sub (%k, %x)");
  check_kept("f32", scalar("f32", "1") + "(%b) = Pow (%k, %x)");
  check_kept("i64", scalar("f32", "1") + "(%b) = Pow (%x, %k)");
  // It broadcasts.
  check_kept("f32", "const %k: f32[2, 1] = {1, 1} (%b) = Mul (%x, %k)");
  check_kept("f32",
             "const %k: f32[2, 40] = hex \"" + std::string(640, '0') + "\" (%b) = Sub (%x, %k)");
  check_kept("f32", "(%b) = Sub (%x, %x)");
  check_kept("f32", scalar("f32", "1") + "(%b) = Mul (%x, %k) { broadcast = int 1 }", 6);
}

TEST_CASE("the second time changes nothing") {
  const auto check = [](const std::string& first, const std::string& second) {
    const std::string head = "input %x: f32[40] (%a) = " + first + " \"a\" (%x) ";
    INFO(first, second);
    check_pass({.pass = kPass,
                .before = head + "(%b) = " + second + " (%a) (%y) = Sin \"last\" (%b) output (%y)",
                .after = head + "(%y) = Sin \"last\" (%a) output (%y)"});
  };
  check("Relu", "Relu");
  check("Abs", "Abs");
  check("Sign", "Sign");
  check("Floor", "Ceil");
  check("Round", "Floor");
  check("Exp", "Relu");
  check("Sigmoid", "Relu");
  check("Sqrt", "Relu");
  check_pass({.pass = kPass,
              .before = "input %x: f32[40] (%c) = Cos \"c\" (%x) (%a) = Neg (%c) (%b) = Neg (%a) "
                        "(%y) = Sin \"last\" (%b) output (%y)",
              .after = "input %x: f32[40] (%c) = Cos \"c\" (%x) (%y) = Sin \"last\" (%c) "
                       "output (%y)"});
  check_kept("f32", "(%a) = Neg (%x) (%b) = Relu (%a)");
  check_kept("f32", "(%a) = Relu (%x) (%b) = Abs (%a)");  // -0.
}

TEST_CASE("Where with a condition that never changes") {
  const auto choice = [](const std::string& condition) {
    return "input %x: f32[2] input %z: f32[2] const %c: bool[2] = {" + condition +
           "} (%a) = Sin \"a\" (%x) (%d) = Cos \"d\" (%z) (%b) = Where (%c, %a, %d) "
           "(%y) = Neg \"y\" (%b) output (%y)";
  };
  check_pass({.pass = kPass,
              .before = choice("1, 1"),
              .after = "input %x: f32[2] input %z: f32[2] (%a) = Sin \"a\" (%x) "
                       "(%y) = Neg \"y\" (%a) output (%y)"});
  check_pass({.pass = kPass,
              .before = choice("0, 0"),
              .after = "input %x: f32[2] input %z: f32[2] (%d) = Cos \"d\" (%z) "
                       "(%y) = Neg \"y\" (%d) output (%y)"});
  check_untouched(kPass, choice("0, 1"));
}

TEST_CASE("squares are products, and quotients by powers of two are too") {
  check_becomes("f32", scalar("f32", "2") + "(%b) = Pow \"p\" (%x, %k)",
                "(%b) = Mul \"p\" (%x, %x)");
  check_becomes("f64", scalar("f32", "2") + "(%b) = Pow \"p\" (%x, %k)",
                "(%b) = Mul \"p\" (%x, %x)");
  check_becomes("f32", scalar("f32", "-8") + "(%b) = Div \"d\" (%x, %k)",
                "const %k.reciprocal: f32[] = {-0.125} (%b) = Mul \"d\" (%x, %k.reciprocal)");
  check_becomes("f16", "const %k: f16[] = hex \"0044\" (%b) = Div \"d\" (%x, %k)",
                "const %k.reciprocal: f16[] = hex \"0034\" (%b) = Mul \"d\" (%x, %k.reciprocal)");
  check_kept("f32", scalar("f32", "3") + "(%b) = Div (%x, %k)");
  check_kept("f32", scalar("f32", "0") + "(%b) = Div (%x, %k)");
  check_kept("i32", scalar("i32", "2") + "(%b) = Div (%x, %k)");
  // 2^127 has no normal reciprocal.
  check_kept("f32", scalar("f32", "1.7014118346046923e38") + "(%b) = Div (%x, %k)");
  check_kept("f32", scalar("f32", "3") + "(%b) = Pow (%x, %k)");
}

TEST_CASE("clips of clips are one clip") {
  const std::string bounds =
      "const %zero: f32[] = {0} const %six: f32[] = {6} const %one: f32[] = {1} ";
  check_becomes("f32", bounds + "(%a) = Relu (%x) (%b) = Clip \"c\" (%a, %zero, %six)",
                "const %c.min: f32[] = {0} const %c.max: f32[] = {6} "
                "(%b) = Clip \"c\" (%x, %c.min, %c.max)");
  check_becomes("f32", bounds + "(%a) = Clip (%x, %one, %six) (%b) = Relu \"r\" (%a)",
                "const %r.min: f32[] = {1} const %r.max: f32[] = {6} "
                "(%b) = Clip \"r\" (%x, %r.min, %r.max)");
  check_becomes("f32", bounds + "(%a) = Clip (%x, %zero, %one) (%b) = Clip \"c\" (%a, %one, %six)",
                "const %c.min: f32[] = {1} const %c.max: f32[] = {1} "
                "(%b) = Clip \"c\" (%x, %c.min, %c.max)");
  check_becomes("f32",
                "(%a) = Clip (%x) { min = float -1 max = float 1 } "
                "(%b) = Clip \"c\" (%a) { min = float 0 max = float 6 }",
                "(%b) = Clip \"c\" (%x) { min = float 0 max = float 1 }", 10);
  check_kept("f32", bounds + "(%a) = Relu (%x) (%b) = Clip (%a, %six, %one)");
  check_kept("f32", bounds + "(%a) = Relu (%x) (%b) = Clip (%a, %zero)");
  check_kept("f32", "input %m: f32[] " + bounds + "(%a) = Relu (%x) (%b) = Clip (%a, %zero, %m)");
}
