// Random convolutions and products of matrices, with steps behind them, pools, softmax, resizing:
// generated kernels of every instruction set that this processor runs agree with the reference
// kernels.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "exec/code_segment.hpp"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::testing::TinyModule;
using Dims = std::vector<int64_t>;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A module of products, each with inputs of its own.
class Products {
 public:
  explicit Products(uint32_t seed) : random_(seed) {}

  int64_t between(int64_t low, int64_t high) { return low + int64_t(random_() % (high - low + 1)); }
  bool chance(int percent) { return between(1, 100) <= percent; }

  std::vector<float> floats(const Dims& dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    std::vector<float> values(size_t(count), 0.0F);
    for (float& value : values) value = float(between(-1000, 1000)) / 1000;
    return values;
  }

  davit::ir::ValueId input(const Dims& dims) {
    std::vector<float> values = floats(dims);
    // What is not finite stays where it belongs.
    if (values.size() > 8 && chance(20)) {
      values[values.size() / 2] = std::nanf("");
      values.back() = chance(50) ? kInfinity : -kInfinity;
    }
    NpyArray array;
    array.dtype = DVT_F32;
    array.dims = dims;
    array.bytes.resize(values.size() * sizeof(float));
    std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    inputs.push_back(std::move(array));
    return tiny_.input("x" + std::to_string(inputs.size()), dims);
  }
  davit::ir::ValueId constant(const Dims& dims, float scale = 1) {
    std::vector<float> values = floats(dims);
    for (float& value : values) value *= scale;
    return tiny_.constant(name(), davit::testing::f32_tensor(dims, values));
  }

  void add_convolution() {
    const int64_t spatial = between(1, chance(80) ? 2 : 3);
    const bool depthwise = chance(25);
    const int64_t groups = depthwise ? between(2, 9) : chance(20) ? between(2, 3) : 1;
    const int64_t in = depthwise ? 1 : between(1, 7);
    const int64_t out = depthwise ? 1 : between(1, 19);
    Dims x = {between(1, 2), groups * in};
    Dims w = {groups * out, in};
    Dims y = {x[0], groups * out};
    Dims strides, dilations, begin, end;
    for (int64_t axis = 0; axis < spatial; ++axis) {
      const int64_t kernel = chance(40) ? 1 : between(2, 5);
      strides.push_back(chance(60) ? 1 : between(2, 3));
      dilations.push_back(chance(80) ? 1 : 2);
      begin.push_back(between(0, kernel - 1));
      end.push_back(between(0, kernel - 1));
      const int64_t reach = (kernel - 1) * dilations.back() + 1;
      x.push_back(std::max<int64_t>(reach - begin.back() - end.back(), 1) + between(0, 21));
      w.push_back(kernel);
      y.push_back((x.back() + begin.back() + end.back() - reach) / strides.back() + 1);
    }
    Dims pads = begin;
    pads.insert(pads.end(), end.begin(), end.end());
    std::vector<davit::ir::ValueId> operands = {input(x), constant(w)};
    if (chance(60)) operands.push_back(constant({groups * out}));
    Dims per_row(size_t(spatial), 1);
    per_row.insert(per_row.begin(), groups * out);
    finish(tiny_.node(
               "Conv", operands, name(),
               {{"group", groups}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}}),
           y, per_row);
  }

  // 3x3 windows with stride 1, large enough for Winograd's way. Its errors are relative to the
  // sums: these are near 1, since steps may bring them there.
  void add_winograd() {
    const int64_t in = between(20, 50), out = between(20, 50);
    const Dims pads = {between(0, 2), between(0, 2), between(0, 2), between(0, 2)};
    const Dims x = {between(1, 2), in, between(12, 34), between(12, 34)};
    const Dims y = {x[0], out, x[2] + pads[0] + pads[2] - 2, x[3] + pads[1] + pads[3] - 2};
    std::vector<davit::ir::ValueId> operands = {input(x), constant({out, in, 3, 3}, 1.0F / 16)};
    if (chance(60)) operands.push_back(constant({out}));
    finish(tiny_.node("Conv", operands, name(), {{"pads", pads}}), y, {out, 1, 1});
  }

  void add_matrix() {
    const int64_t rows = between(1, 30), inner = between(1, 40), columns = between(1, 70);
    if (chance(50)) {
      const Dims batch = chance(30) ? Dims{between(1, 3), rows} : Dims{rows};
      Dims a = batch, y = batch;
      a.push_back(inner);
      y.push_back(columns);
      finish(tiny_.node("MatMul", {input(a), constant({inner, columns})}, name()), y, {columns});
      return;
    }
    const bool transposed = chance(50);
    std::vector<davit::ir::ValueId> operands = {
        input({rows, inner}), constant(transposed ? Dims{columns, inner} : Dims{inner, columns})};
    if (chance(60)) operands.push_back(constant(chance(30) ? Dims{1} : Dims{columns}));
    finish(tiny_.node("Gemm", operands, name(),
                      {{"transB", int64_t(transposed)}, {"alpha", chance(30) ? 0.5F : 1.0F}}),
           {rows, columns}, {columns});
  }

  void add_pool() {
    const int64_t spatial = between(1, 2);
    const bool is_max = chance(60);
    Dims x = {between(1, 2), between(1, 5)};
    Dims kernel, strides, dilations, begin, end;
    for (int64_t axis = 0; axis < spatial; ++axis) {
      kernel.push_back(between(1, 4));
      strides.push_back(between(1, 3));
      dilations.push_back(is_max && chance(20) ? 2 : 1);
      begin.push_back(between(0, kernel.back() - 1));
      end.push_back(between(0, kernel.back() - 1));
      x.push_back((kernel.back() - 1) * dilations.back() + between(1, 60));
    }
    Dims pads = begin;
    pads.insert(pads.end(), end.begin(), end.end());
    std::vector<davit::ir::Attribute> attributes = {{"kernel_shape", kernel},
                                                    {"strides", strides},
                                                    {"pads", pads},
                                                    {"ceil_mode", between(0, 1)}};
    attributes.push_back(is_max ? davit::ir::Attribute{"dilations", dilations}
                                : davit::ir::Attribute{"count_include_pad", between(0, 1)});
    outputs_.push_back(
        tiny_.node(is_max ? "MaxPool" : "AveragePool", {input(x)}, name(), std::move(attributes)));
  }

  void add_rows() {
    const Dims x = {between(1, 2), between(1, 5), between(1, 9), between(1, 70)};
    switch (between(0, 2)) {
      case 0:
        outputs_.push_back(tiny_.node("GlobalAveragePool", {input(x)}, name()));
        break;
      case 1:
        outputs_.push_back(tiny_.node("ReduceMean", {input(x)}, name(), {{"axes", Dims{3}}}));
        break;
      default:
        outputs_.push_back(tiny_.node("Softmax", {input(x)}, name(), {{"axis", int64_t{-1}}}));
    }
  }

  void add_resize() {
    const Dims x = {1, between(1, 4), between(1, 12), between(1, 40)};
    const auto scales = tiny_.constant(
        name(), davit::testing::f32_tensor(
                    {4}, {1, 1, float(between(1, 12)) / 4 + 1, float(between(1, 12)) / 4 + 1}));
    const char* modes[] = {"nearest", "linear", "cubic"};
    const char* coordinates[] = {"half_pixel", "align_corners", "asymmetric"};
    outputs_.push_back(
        tiny_.node("Resize", {input(x), davit::ir::kNoValue, scales}, name(),
                   {{"mode", std::string(modes[between(0, 2)])},
                    {"coordinate_transformation_mode", std::string(coordinates[between(0, 2)])}}));
  }

  davit::ir::Module build() { return tiny_.build(outputs_); }

  std::vector<NpyArray> inputs;

 private:
  std::string name() { return "v" + std::to_string(++names_); }

  // Steps behind the product.
  void finish(davit::ir::ValueId value, const Dims& y, const Dims& spread) {
    for (int64_t steps = between(0, 3); steps > 0; --steps) {
      switch (between(0, 7)) {
        case 0:
          value = tiny_.node("Relu", {value}, name());
          break;
        case 1:
          value = tiny_.node("Add", {value, chance(50) ? input(y) : constant(y)}, name());
          break;
        case 2:
          value = tiny_.node("Mul", {value, constant(spread)}, name());
          break;
        case 3:
          value = tiny_.node("Sub", {constant({1}), value}, name());
          break;
        case 4: {
          const auto gate = tiny_.node("Sigmoid", {value}, name());
          value = tiny_.node("Mul", {value, gate}, name());
          break;
        }
        case 5:
          value = tiny_.node("Tanh", {value}, name());
          break;
        case 6:
          value = tiny_.node("LeakyRelu", {value}, name(), {{"alpha", 0.1F}});
          break;
        default:
          value = tiny_.node("HardSigmoid", {value}, name(), {{"alpha", 0.3F}, {"beta", 0.4F}});
      }
    }
    outputs_.push_back(value);
  }

  std::mt19937 random_;
  TinyModule tiny_;
  std::vector<davit::ir::ValueId> outputs_;
  int names_ = 0;
};

std::vector<NpyArray> run(const davit::ir::Module& module, const std::vector<NpyArray>& inputs,
                          const std::vector<std::string>& isas, uint32_t* generated = nullptr) {
  CompileOptions options{.level = davit::passes::Level(3)};
  options.codegen.isas = isas;
  options.codegen.toolchain.jobs = 2;
  const auto image = compile_module(module, options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  if (generated != nullptr) *generated = image->report.generated_nodes;
  auto outputs = davit::testing::run_image(image->bytes, inputs, nullptr, 2);
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return std::move(*outputs);
}

void check(uint32_t seed, const std::vector<std::string>& isas) {
  CAPTURE(seed);
  CAPTURE(isas[0]);
  constexpr int kProducts = 20;
  constexpr int kWinograd = 3;
  constexpr int kPlanewise = 24;
  Products products(seed);
  for (int i = 0; i < kProducts; ++i) {
    i % 2 == 0 ? products.add_convolution() : products.add_matrix();
  }
  for (int i = 0; i < kWinograd; ++i) products.add_winograd();
  for (int i = 0; i < kPlanewise; ++i) {
    i % 4 == 0 ? products.add_rows() : i % 4 == 1 ? products.add_resize() : products.add_pool();
  }
  const davit::ir::Module module = products.build();
  const auto expected = run(module, products.inputs, {});
  uint32_t generated = 0;
  const auto got = run(module, products.inputs, isas, &generated);
  CHECK(generated == kProducts + kWinograd + kPlanewise);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    const auto status = davit::testing::compare(
        expected[i], got[i], {.relative = 2e-5, .relative_to_max = 5e-6, .absolute = 2e-6});
    CHECK_MESSAGE(status.ok(), status.to_string());
  }
}

}  // namespace

TEST_CASE("generated kernels agree with the reference kernels") {
  uint32_t seed = 1;
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    if (!davit::exec::processor_runs(isa)) continue;
    for (int round = 0; round < 2; ++round) check(seed++, {isa});
  }
}

TEST_CASE("one image for several instruction sets") {
  check(101, {"baseline", "avx512", "avx2"});
}

TEST_CASE("a weight that is not finite meets pads as in the reference kernels") {
  for (const float odd : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const size_t tap : {size_t{0}, size_t{4}, size_t{8}}) {
      CAPTURE(odd);
      CAPTURE(tap);
      TinyModule tiny;
      const Dims shape = {1, 32, 28, 28};
      std::vector<float> weights(size_t{32} * 32 * 9, 0.125F);
      weights[tap] = odd;
      const auto y =
          tiny.node("Conv",
                    {tiny.input("x", shape),
                     tiny.constant("w", davit::testing::f32_tensor({32, 32, 3, 3}, weights))},
                    "y", {{"pads", Dims{1, 1, 1, 1}}});
      const davit::ir::Module module = tiny.build({y});
      NpyArray x{.dtype = DVT_F32, .dims = shape, .bytes = {}};
      x.bytes.resize(size_t{32} * 28 * 28 * sizeof(float));  // Zeros.
      const std::vector<NpyArray> inputs = {x};
      const auto expected = run(module, inputs, {});
      uint32_t generated = 0;
      const auto got = run(module, inputs, {"baseline"}, &generated);
      CHECK(generated == 1);
      const auto status = davit::testing::compare(expected[0], got[0], {.relative = 2e-5});
      CHECK_MESSAGE(status.ok(), status.to_string());
    }
  }
}

TEST_CASE("the same module gives the same bytes") {
  Products products(7);
  for (int i = 0; i < 4; ++i) {
    products.add_convolution();
    products.add_matrix();
  }
  const davit::ir::Module module = products.build();
  CompileOptions options;
  options.codegen.isas = {"baseline"};
  const auto first = compile_module(module, options);
  REQUIRE_MESSAGE(first.ok(), first.status().to_string());
  options.codegen.toolchain.jobs = 3;
  const auto second = compile_module(module, options);
  REQUIRE_MESSAGE(second.ok(), second.status().to_string());
  CHECK(first->bytes == second->bytes);
}

TEST_CASE("what is no product of constants is left alone, and why is said") {
  TinyModule tiny;
  const auto x = tiny.input("x", {4, 8});
  const auto w = tiny.input("w", {8, 4});
  const auto module = tiny.build({tiny.node("MatMul", {x, w}, "y")});
  CompileOptions options;
  options.codegen.isas = {"baseline"};
  const auto image = compile_module(module, options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  CHECK(image->report.generated_nodes == 0);
  CHECK(image->report.code_bytes == 0);
  REQUIRE(image->report.generation_refusals.size() == 1);
  CHECK(image->report.generation_refusals[0].first == "MatMul_y");
  CHECK(image->report.generation_refusals[0].second == "its weights are not constant");
}
