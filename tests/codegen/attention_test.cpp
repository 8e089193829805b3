// Attention of random shapes, masks and batches that broadcast: generated kernels of every
// instruction set that this processor runs agree with the reference kernel.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "exec/code_segment.hpp"
#include "lowering/compile.hpp"
#include "lowering/image/image_model.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::ir::ValueId;
using davit::testing::TinyModule;
using Dims = std::vector<int64_t>;

namespace {

class RandomAttention {
 public:
  explicit RandomAttention(uint32_t seed) : random_(seed) {}

  int64_t between(int64_t low, int64_t high) { return low + int64_t(random_() % (high - low + 1)); }
  bool chance(int percent) { return between(1, 100) <= percent; }

  davit::ir::Module build() {
    const int64_t rows = between(1, 40), columns = between(1, 70), inner = between(1, 40);
    const int64_t width = between(1, 50);
    const Dims batch = chance(50) ? Dims{between(1, 3)} : Dims{between(1, 2), between(1, 3)};
    const ValueId q = input(batch, rows, inner);
    const ValueId k = input(batch, inner, columns);
    const ValueId v = input(batch, columns, width);
    ValueId scores = tiny_.node("MatMul", {q, k}, "product");
    if (chance(70)) {
      const auto scale = tiny_.constant("scale", davit::testing::f32_tensor({}, {0.3F}));
      scores = tiny_.node(chance(50) ? "Mul" : "Div", {scores, scale}, "scaled");
    }
    if (chance(60)) {
      const ValueId mask =
          input(batch, chance(50) ? rows : 1, chance(70) ? columns : 1, /*is_mask=*/true);
      scores = tiny_.node("Add", {scores, mask}, "masked");
    }
    const ValueId weights = tiny_.node("Softmax", {scores}, "weights", {{"axis", int64_t{-1}}});
    return tiny_.build({tiny_.node("MatMul", {weights, v}, "y")});
  }

  std::vector<NpyArray> inputs;

 private:
  // Some batch axes may broadcast; Q has all of them.
  ValueId input(const Dims& batch, int64_t rows, int64_t columns, bool is_mask = false) {
    Dims dims = batch;
    for (int64_t& extent : dims) {
      if (!inputs.empty() && chance(25)) extent = 1;
    }
    dims.push_back(rows);
    dims.push_back(columns);
    int64_t count = 1;
    for (const int64_t extent : dims) count *= extent;
    std::vector<float> values(size_t(count), 0.0F);
    for (float& value : values) value = float(between(-1000, 1000)) / 1000;
    if (is_mask && chance(50)) {
      for (float& value : values) {
        if (chance(20)) value = -std::numeric_limits<float>::infinity();
      }
    } else if (chance(15)) {
      values[values.size() / 2] = std::nanf("");
    }
    NpyArray array{.dtype = DVT_F32, .dims = dims, .bytes = {}};
    array.bytes.resize(values.size() * sizeof(float));
    std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    inputs.push_back(std::move(array));
    return tiny_.input("x" + std::to_string(inputs.size()), dims);
  }

  std::mt19937 random_;
  TinyModule tiny_;
};

void check(uint32_t seed, const std::vector<std::string>& isas) {
  CAPTURE(seed);
  CAPTURE(isas[0]);
  RandomAttention attention(seed);
  const davit::ir::Module module = attention.build();
  const auto run = [&](const std::vector<std::string>& with) {
    CompileOptions options{.level = davit::passes::Level(3)};
    options.codegen.isas = with;
    const auto image = compile_module(module, options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    const auto model = davit::image::read_image_model(image->bytes);
    REQUIRE(model.ok());
    const std::string kernel = with.empty() ? "Attention.f32" : "generated.Attention.";
    CHECK(std::any_of(model->kernels.begin(), model->kernels.end(),
                      [&](const auto& each) { return each.name.starts_with(kernel); }));
    auto outputs = davit::testing::run_image(image->bytes, attention.inputs, nullptr, 2);
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    return std::move((*outputs)[0]);
  };
  const NpyArray expected = run({});
  const auto status = davit::testing::compare(
      expected, run(isas), {.relative = 2e-5, .relative_to_max = 5e-6, .absolute = 2e-6});
  CHECK_MESSAGE(status.ok(), status.to_string());
}

}  // namespace

TEST_CASE("generated attention agrees with the reference kernel") {
  uint32_t seed = 1;
  for (const char* isa : {"baseline", "avx2", "avx512"}) {
    if (!davit::exec::processor_runs(isa)) continue;
    for (int round = 0; round < 12; ++round) check(seed++, {isa});
  }
}

TEST_CASE("one image with attention for several instruction sets") {
  check(101, {"baseline", "avx512", "avx2"});
}
