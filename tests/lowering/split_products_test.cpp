// Large operators in pieces: the same bits, no bytes moved, and reasons where they stay whole.
#include "lowering/split_products.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompiledImage;
using davit::compiler::CompileOptions;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

using davit::ir::ValueId;

int64_t count_of(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Values that tell pieces and orders apart.
std::vector<float> ramp(int64_t count, float step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(step * float(i % 61) - 0.7F);
  return values;
}

ValueId weights(TinyModule& tiny, const std::string& name, const std::vector<int64_t>& dims) {
  return tiny.constant(name, f32_tensor(dims, ramp(count_of(dims), 0.013F)));
}

CompiledImage compiled(davit::ir::Module module, uint32_t pieces) {
  CompileOptions options;
  options.level = davit::passes::Level::kFuse;
  options.pieces = pieces;
  auto image = compile_module(std::move(module), options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  return std::move(*image);
}

bool calls(const CompiledImage& image, const std::string& kernel) {
  return std::any_of(image.report.kernels.begin(), image.report.kernels.end(),
                     [&](const std::string& name) { return name.starts_with(kernel); });
}

// make() gives the module; its input has `dims`.
template <class Make>
void check_split(const Make& make, const std::vector<int64_t>& dims, uint32_t pieces,
                 uint32_t split) {
  const CompiledImage whole = compiled(make(), 1);
  const CompiledImage cut = compiled(make(), pieces);
  CHECK(whole.report.split_nodes == 0);
  CHECK(cut.report.split_nodes == split);
  CHECK(cut.report.image_nodes > whole.report.image_nodes);
  for (const char* moves : {"Split", "Concat", "Copy"}) {
    if (!calls(whole, moves)) CHECK_MESSAGE(!calls(cut, moves), moves);
  }
  const auto values = ramp(count_of(dims), 0.031F);
  NpyArray x{.dtype = DVT_F32, .dims = dims, .bytes = std::vector<std::byte>(values.size() * 4)};
  std::memcpy(x.bytes.data(), values.data(), x.bytes.size());
  const auto expected = davit::testing::run_image(whole.bytes, std::vector{x});
  const auto got = davit::testing::run_image(cut.bytes, std::vector{x}, nullptr, 2);
  REQUIRE_MESSAGE(expected.ok(), expected.status().to_string());
  REQUIRE_MESSAGE(got.ok(), got.status().to_string());
  CHECK(got->front().bytes == expected->front().bytes);
}

std::string refusal(davit::ir::Module module) {
  const CompiledImage image = compiled(std::move(module), 2);
  CHECK(image.report.split_nodes == 0);
  for (const auto& refused : image.report.refusals) {
    if (refused.pass == "split_products") return refused.reason;
  }
  return "";
}

}  // namespace

TEST_CASE("convolutions are cut by channels") {
  for (const int64_t channels : {32, 40, 64, 100}) {
    for (const uint32_t pieces : {2U, 3U}) {
      CAPTURE(channels);
      CAPTURE(pieces);
      const auto make = [&] {
        TinyModule tiny;
        const auto x = tiny.input("x", {1, 16, 24, 24});
        const auto w = weights(tiny, "w", {channels, 16, 3, 3});
        const auto bias = weights(tiny, "bias", {channels});
        const auto conv = tiny.node("Conv", {x, w, bias}, "c");
        return tiny.build({tiny.node("GlobalAveragePool", {tiny.node("Relu", {conv}, "r")}, "y")});
      };
      check_split(make, {1, 16, 24, 24}, pieces, 1);
    }
  }
}

TEST_CASE("what a piece needs a part of is cut, too: groups, residuals, factors of channels") {
  const auto make = [] {
    TinyModule tiny;
    const auto x = tiny.input("x", {1, 32, 48, 48});
    const auto first = tiny.node("Conv", {x, weights(tiny, "w1", {64, 32, 1, 1})}, "c1");
    const auto depthwise =
        tiny.node("Conv", {first, weights(tiny, "w2", {64, 1, 5, 5})}, "c2",
                  {{"group", int64_t{64}}, {"pads", std::vector<int64_t>{2, 2, 2, 2}}});
    const auto scaled = tiny.node("Mul", {depthwise, weights(tiny, "f", {1, 64, 1, 1})}, "m");
    const auto last = tiny.node("Conv", {scaled, weights(tiny, "w3", {64, 64, 1, 1})}, "c3");
    const auto sum = tiny.node("Add", {last, first}, "s");
    const auto pool =
        tiny.node("MaxPool", {sum}, "p", {{"kernel_shape", std::vector<int64_t>{3, 3}}});
    return tiny.build({tiny.node("GlobalAveragePool", {pool}, "y")});
  };
  check_split(make, {1, 32, 48, 48}, 2, 4);
}

TEST_CASE("products of matrices are cut by rows") {
  for (const bool gemm : {false, true}) {
    CAPTURE(gemm);
    const auto make = [&] {
      TinyModule tiny;
      const auto x = tiny.input("x", {100, 64});
      const auto a = tiny.node("Tanh", {x}, "a");
      const auto b = weights(tiny, "b", {64, 200});
      const auto product = gemm ? tiny.node("Gemm", {a, b, weights(tiny, "c", {100, 200})}, "p")
                                : tiny.node("MatMul", {a, b}, "p");
      return tiny.build({tiny.node("Softmax", {tiny.node("Relu", {product}, "r")}, "y")});
    };
    check_split(make, {100, 64}, 2, 1);
  }
}

TEST_CASE("what stays whole, and why") {
  const auto conv = [](int64_t channels, bool is_output, int64_t group) {
    TinyModule tiny;
    const auto x = tiny.input("x", {1, 32, 64, 64});
    const auto w = weights(tiny, "w", {channels, 32 / group, 3, 3});
    const auto y = tiny.node("Conv", {x, w}, "c", {{"group", group}});
    return tiny.build({is_output ? y : tiny.node("GlobalAveragePool", {y}, "y")});
  };
  CHECK(refusal(conv(16, false, 1)).find("too few") != std::string::npos);
  CHECK(refusal(conv(64, true, 1)).find("output of the graph") != std::string::npos);
  CHECK(refusal(conv(64, false, 32)).find("'x' is an input") != std::string::npos);
}

TEST_CASE("small operators, and graphs for one worker, are left alone") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 16, 8, 8});
  const auto conv = tiny.node("Conv", {x, weights(tiny, "w", {32, 16, 3, 3})}, "c");
  const CompiledImage image =
      compiled(tiny.build({tiny.node("GlobalAveragePool", {conv}, "y")}), 2);
  CHECK(image.report.split_nodes == 0);
  CHECK(image.report.refusals.empty());
}
