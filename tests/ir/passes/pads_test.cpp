// fold_pads.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;

namespace {

constexpr const char* kImage =
    "input %x: f32[1, 2, 5, 5] const %w: f32[1, 2, 1, 2] = {1, 2, 3, 4} ";
constexpr const char* kPads = "const %pads: i64[8] = {0, 0, 1, 2, 0, 0, 0, 1} ";

void check(const std::string& before, const std::string& after, int64_t opset = 13,
           bool specials = true) {
  check_pass({.pass = "fold_pads",
              .before = kImage + before + " output (%y)",
              .after = kImage + after + " output (%y)",
              .opset = opset,
              .specials = specials});
}

std::string reason(const std::string& body, int64_t opset = 13) {
  const auto refusals = check_untouched("fold_pads", kImage + body + " output (%y)", opset);
  return refusals.empty() ? "" : refusals[0].node + ": " + refusals[0].reason;
}

}  // namespace

TEST_CASE("convolutions pad for themselves") {
  check(std::string(kPads) + "(%a) = Pad (%x, %pads) (%y) = Conv \"conv\" (%a, %w)",
        "(%y) = Conv \"conv\" (%x, %w) { pads = ints [1, 2, 0, 1] }");
  check(
      "(%a) = Pad (%x) { pads = ints [0, 0, 1, 2, 0, 0, 0, 1] value = float 0 } "
      "(%y) = Conv \"conv\" (%a, %w) { auto_pad = string \"VALID\" }",
      "(%y) = Conv \"conv\" (%x, %w) { pads = ints [1, 2, 0, 1] }", 9);
  check(std::string(kPads) +
            "const %zero: f32[] = {0} (%a) = Pad (%x, %pads, %zero) "
            "(%y) = Conv \"conv\" (%a, %w) { pads = ints [1, 1, 1, 1] }",
        "(%y) = Conv \"conv\" (%x, %w) { pads = ints [2, 3, 1, 2] }");
  check(
      "const %pads: i64[4] = {2, 1, 0, 3} const %axes: i64[2] = {-1, 2} "
      "(%a) = Pad (%x, %pads, _, %axes) (%y) = Conv \"conv\" (%a, %w)",
      "(%y) = Conv \"conv\" (%x, %w) { pads = ints [1, 2, 3, 0] }", 18);
}

TEST_CASE("an average counts the padding it was given") {
  check(std::string(kPads) +
            "(%a) = Pad (%x, %pads) "
            "(%y) = AveragePool \"pool\" (%a) { kernel_shape = ints [3, 3] }",
        "(%y) = AveragePool \"pool\" (%x) { kernel_shape = ints [3, 3] pads = ints [1, 2, 0, 1] "
        "count_include_pad = int 1 }",
        13, false);
  CHECK(reason(std::string(kPads) + "(%a) = Pad \"pad\" (%x, %pads) (%y) = AveragePool (%a) "
                                    "{ kernel_shape = ints [3, 3] pads = ints [1, 1, 1, 1] }") ==
        "pad: the reader does not count its own pads");
  CHECK(reason(std::string(kPads) + "(%a) = Pad \"pad\" (%x, %pads) (%y) = AveragePool (%a) "
                                    "{ kernel_shape = ints [3, 3] ceil_mode = int 1 }") ==
        "pad: the reader rounds up its extent");
}

TEST_CASE("a maximum takes padding that is below everything") {
  const std::string lowest = "const %low: f32[] = hex \"000080ff\" ";  // -infinity
  check(kPads + lowest +
            "(%a) = Pad (%x, %pads, %low) "
            "(%y) = MaxPool \"pool\" (%a) { kernel_shape = ints [3, 3] }",
        "(%y) = MaxPool \"pool\" (%x) { kernel_shape = ints [3, 3] pads = ints [1, 2, 0, 1] }");
  CHECK(reason(std::string(kPads) + "(%a) = Pad \"pad\" (%x, %pads) (%y) = MaxPool (%a) "
                                    "{ kernel_shape = ints [3, 3] }") ==
        "pad: the reader takes maxima, and the padding is no lowest number");
  CHECK(reason(kPads + lowest +
               "(%a) = Pad \"pad\" (%x, %pads, %low) (%y) = MaxPool (%a) "
               "{ kernel_shape = ints [2, 2] }") == "pad: a window would see nothing but padding");
}

TEST_CASE("paddings that a window cannot do have a reason") {
  const auto padded = [](const std::string& pads, const std::string& conv = "") {
    return "const %pads: i64[8] = {" + pads + "} (%a) = Pad \"pad\" (%x, %pads) " +
           "(%y) = Conv (%a, %w) " + conv;
  };
  CHECK(reason(padded("0, 0, -1, 0, 0, 0, 0, 0")) == "pad: it crops");
  CHECK(reason("const %pads: i64[8] = {1, 0, 0, 0, 0, 0, 0, 0} (%a) = Pad \"pad\" (%x, %pads) "
               "(%y) = Conv (%a, %w)") == "pad: it pads the batch or the channels");
  CHECK(reason(padded("0, 0, 1, 1, 0, 0, 1, 1", "{ auto_pad = string \"SAME_UPPER\" }")) ==
        "pad: the pads of the reader follow from its input (SAME_UPPER)");
  CHECK(reason("const %one: f32[] = {1} const %pads: i64[8] = {0, 0, 1, 1, 0, 0, 1, 1} "
               "(%a) = Pad \"pad\" (%x, %pads, %one) (%y) = Conv (%a, %w)") ==
        "pad: the reader pads with 0");
  CHECK(reason("const %pads: i64[8] = {0, 0, 1, 1, 0, 0, 1, 1} (%a) = Pad (%x, %pads) "
               "{ mode = string \"reflect\" } (%y) = Conv (%a, %w)") == "");
}

TEST_CASE("a Pad that others read stays, and the window reads past it") {
  check_pass({.pass = "fold_pads",
              .before = std::string(kImage) + kPads +
                        "(%a) = Pad \"pad\" (%x, %pads) "
                        "(%y) = Conv \"c\" (%a, %w) output (%a, %y)",
              .after = std::string(kImage) + kPads +
                       "(%a) = Pad \"pad\" (%x, %pads) "
                       "(%y) = Conv \"c\" (%x, %w) { pads = ints [1, 2, 0, 1] } output (%a, %y)"});
}
