// fold_batch_norms and fold_scales.
#include <doctest/doctest.h>

#include <random>

#include "base/dtype.hpp"
#include "ir/passes/rewrite.hpp"
#include "tests/ir/passes/support.hpp"

using namespace davit;
using testing::check_untouched;
using testing::parse_graph;
using testing::Tensors;

namespace {

// "const %name: f32[dims] = {...}" with numbers in [0.5, 2).
std::string constant(const std::string& name, const std::vector<int64_t>& dims,
                     const std::string& type = "f32") {
  static std::mt19937 random(3);
  uint64_t count = 1;
  std::string text;
  for (const int64_t dim : dims) {
    count *= uint64_t(dim);
    text += (text.empty() ? "" : ", ") + std::to_string(dim);
  }
  std::vector<double> numbers(count);
  for (double& number : numbers) number = 0.5 + double(random() % 1500) / 1000;
  const ir::TensorData data = passes::make_real_tensor(*dtype_from_name(type), dims, numbers);
  std::string hex;
  for (const std::byte byte : *data.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    hex += digits;
  }
  return "const %" + name + ": " + type + "[" + text + "] = hex \"" + hex + "\" ";
}

std::string norm(int64_t channels, const std::string& type = "f32") {
  return constant("scale", {channels}, type) + constant("bias", {channels}, type) +
         constant("mean", {channels}, type) + constant("var", {channels}, type);
}

// The pass leaves `nodes` nodes, the last of which keeps its name and result; results agree.
void check_folded(const std::string& pass, const std::string& body, size_t nodes,
                  double relative = 1e-5, int64_t opset = 13) {
  CAPTURE(body);
  const ir::Module before = parse_graph(body, opset);
  ir::Module after = before;
  passes::SimplifyOptions options;
  options.only = {pass, "remove_dead_nodes"};
  const auto report = passes::simplify(after, options);
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  CHECK(after.graph_nodes(ir::kMainGraph).size() == nodes);
  CHECK(report->refusals.empty());
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const Tensors inputs = testing::random_inputs(before, seed, false);
    const auto wanted = testing::evaluate_graph(before, inputs);
    const auto got = testing::evaluate_graph(after, inputs);
    REQUIRE_MESSAGE(wanted.ok(), wanted.status().to_string());
    REQUIRE_MESSAGE(got.ok(), got.status().to_string());
    const Status same = testing::compare_outputs(*wanted, *got, relative);
    CHECK_MESSAGE(same.ok(), same.to_string());
  }
}

std::string reason(const std::string& pass, const std::string& body, int64_t opset = 13) {
  const passes::Refusals refusals = check_untouched(pass, body, opset);
  return refusals.empty() ? "" : refusals[0].node + ": " + refusals[0].reason;
}

constexpr const char* kNorm =
    "(%y) = BatchNormalization \"norm\" (%p, %scale, %bias, %mean, %var) ";

}  // namespace

TEST_CASE("a BatchNormalization vanishes in the weights of what feeds it") {
  const std::string image = "input %x: f32[2, 4, 5, 6] ";
  check_folded("fold_batch_norms",
               image + constant("w", {6, 4, 3, 3}) + norm(6) + "(%p) = Conv \"conv\" (%x, %w) " +
                   kNorm + "output (%y)",
               1);
  check_folded("fold_batch_norms",
               image + constant("w", {6, 2, 3, 3}) + constant("b", {6}) + norm(6) +
                   "(%p) = Conv (%x, %w, %b) { group = int 2 } " + kNorm + "output (%y)",
               1);
  check_folded("fold_batch_norms",
               image + constant("w", {4, 3, 3, 3}) + norm(6) +
                   "(%p) = ConvTranspose (%x, %w) { group = int 2 strides = ints [2, 2] } " +
                   kNorm + "output (%y)",
               1);
  const std::string matrix = "input %x: f32[3, 5] ";
  check_folded("fold_batch_norms",
               matrix + constant("w", {5, 6}) + constant("b", {1, 6}) + norm(6) +
                   "(%p) = Gemm (%x, %w, %b) { alpha = float 0.5 beta = float 3 } " + kNorm +
                   "output (%y)",
               1);
  check_folded("fold_batch_norms",
               matrix + constant("w", {6, 5}) + norm(6) +
                   "(%p) = Gemm (%x, %w) { transB = int 1 } " + kNorm + "output (%y)",
               1);
  check_folded("fold_batch_norms",
               "input %x: f16[1, 2, 4] " + constant("w", {3, 2, 1}, "f16") + norm(3, "f16") +
                   "(%p) = Conv (%x, %w) " + kNorm + "output (%y)",
               1, 4e-3);
}

TEST_CASE("the product keeps its name and the result its own") {
  ir::Module module = parse_graph("input %x: f32[1, 2, 4] " + constant("w", {3, 2, 1}) + norm(3) +
                                  "(%p) = Conv \"conv\" (%x, %w) " + kNorm + "output (%y)");
  passes::Refusals refusals;
  REQUIRE(*passes::fold_batch_norms(module, refusals) == 1);
  const ir::NodeId node = module.producer(testing::find_value(module, "y"));
  CHECK(module.node_name(node) == "conv");
  CHECK(module.value_name(module.inputs(node)[1]) == "w.1");
  CHECK(module.value_name(module.inputs(node)[2]) == "w.bias");
}

TEST_CASE("what a BatchNormalization cannot be folded into has a reason") {
  const auto conv = [](const std::string& rest, const std::string& node = kNorm) {
    return "input %x: f32[1, 2, 4] " + constant("w", {3, 2, 1}) + norm(3) +
           "(%p) = Conv \"conv\" (%x, %w) " + node + rest;
  };
  CHECK(reason("fold_batch_norms", conv("output (%p, %y)")) ==
        "norm: interior value 'p' is a graph output");
  CHECK(reason("fold_batch_norms", conv("(%z) = Neg (%p) output (%y, %z)")) ==
        "norm: interior value 'p' is read more than once");
  CHECK(reason("fold_batch_norms", "input %x: f32[1, 2, 4] input %w: f32[3, 2, 1] " + norm(3) +
                                       "(%p) = Conv (%x, %w) " + kNorm + "output (%y)") ==
        "norm: weights 'w' are not a constant");
  CHECK(reason("fold_batch_norms", conv("(%z) = Conv (%x, %w) output (%y, %z)")) ==
        "norm: weights 'w' are shared");
  CHECK(reason("fold_batch_norms", "input %x: f32[1, 2, 4] input %b: f32[3] " +
                                       constant("w", {3, 2, 1}) + norm(3) +
                                       "(%p) = Conv (%x, %w, %b) " + kNorm + "output (%y)") ==
        "norm: the bias is not one constant per channel");
  CHECK(reason("fold_batch_norms", "input %x: f32[1, 2, 4] const %var: f32[3] = {1, -1, 1} " +
                                       constant("w", {3, 2, 1}) + constant("scale", {3}) +
                                       constant("bias", {3}) + constant("mean", {3}) +
                                       "(%p) = Conv (%x, %w) " + kNorm + "output (%y)") ==
        "norm: channel 1 is not finite");
  CHECK(reason("fold_batch_norms", "input %x: f32[1, 2, 4] " + constant("w", {3, 2, 1}) + norm(3) +
                                       "#1: (%p) = Conv \"conv\" (%x, %w) " + kNorm +
                                       "(%z) = Neg (%x) after (#1) output (%y, %z)") ==
        "norm: the product has control edges");
}

TEST_CASE("other normalizations are no pattern") {
  CHECK(reason("fold_batch_norms", "input %p: f32[1, 3, 4] " + norm(3) + kNorm + "output (%y)") ==
        "");
  const std::string planes = constant("scale", {3, 3}) + constant("bias", {3, 3}) +
                             constant("mean", {3, 3}) + constant("var", {3, 3});
  CHECK(
      reason("fold_batch_norms",
             "input %x: f32[1, 2, 3] " + constant("w", {3, 2, 1}) + planes +
                 "(%p) = Conv (%x, %w) (%y) = BatchNormalization (%p, %scale, %bias, %mean, %var) "
                 "{ spatial = int 0 } output (%y)",
             8) == "");
}

TEST_CASE("factors and addends per channel vanish in the weights") {
  const std::string conv =
      "input %x: f32[2, 4, 5, 6] " + constant("w", {6, 4, 1, 1}) + "(%p) = Conv (%x, %w) ";
  for (const std::string dims : {"", "1", "6, 1, 1", "1, 6, 1, 1", "1, 1, 1, 1"}) {
    std::vector<int64_t> extents;
    for (const char c : dims) {
      if (c >= '1' && c <= '9') extents.push_back(c - '0');
    }
    for (const char* node : {"Mul \"n\" (%p, %k)", "Mul \"n\" (%k, %p)", "Div \"n\" (%p, %k)",
                             "Add \"n\" (%k, %p)", "Sub \"n\" (%p, %k)", "Sub \"n\" (%k, %p)"}) {
      check_folded("fold_scales", conv + constant("k", extents) + "(%y) = " + node + " output (%y)",
                   1);
    }
  }
  // One after the other.
  check_folded("fold_scales",
               conv + constant("k", {6, 1, 1}) + constant("l", {}) + constant("m", {1}) +
                   "(%a) = Mul (%p, %k) (%b) = Add (%a, %l) (%y) = Div (%b, %m) output (%y)",
               1);
  check_folded("fold_scales",
               "input %x: f32[2, 3, 5] " + constant("w", {5, 4}) + constant("k", {4}) +
                   "(%p) = MatMul (%x, %w) (%y) = Mul (%p, %k) output (%y)",
               1);
  check_folded("fold_scales",
               "input %x: f32[3, 5] " + constant("w", {5, 4}) + constant("k", {4}) +
                   "(%p) = Gemm (%x, %w) (%y) = Add (%p, %k) output (%y)",
               1);
}

TEST_CASE("what differs within a channel or broadcasts the product stays") {
  const std::string conv =
      "input %x: f32[2, 4, 5, 6] " + constant("w", {6, 4, 1, 1}) + "(%p) = Conv (%x, %w) ";
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{6}, {5, 1}, {2, 1, 1, 1}, {1, 1, 6, 1, 1}}) {
    CHECK(reason("fold_scales", conv + constant("k", dims) + "(%y) = Mul (%p, %k) output (%y)") ==
          "");
  }
  CHECK(reason("fold_scales", conv + constant("k", {}) + "(%y) = Div (%k, %p) output (%y)") == "");
  CHECK(reason("fold_scales", conv + "input %k: f32[] (%y) = Mul (%p, %k) output (%y)") == "");
  CHECK(reason("fold_scales", "input %x: f32[2, 5] " + constant("w", {5, 4}) + constant("k", {4}) +
                                  "(%p) = MatMul (%x, %w) (%y) = Add (%p, %k) output (%y)") == "");
  CHECK(reason("fold_scales",
               "input %x: i32[2, 2] const %w: i32[2, 2] = {1, 2, 3, 4} "
               "const %k: i32[] = {2} (%p) = MatMul (%x, %w) "
               "(%y) = Mul (%p, %k) output (%y)") == "");
}
