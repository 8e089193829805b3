// Random modules of views, in-place candidates and shared operands: the planned image, the device
// image and the one whose shapes are open must give the bits of the folded one, in which every node
// was evaluated alone, on memory of its own.
#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>

#include "davit/device.h"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::testing::TinyModule;

namespace {

struct Case {
  davit::ir::Module module;
  std::map<std::string, davit::ir::TensorData> inputs;
};

Case random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t count) { return size_t(random() % count); };
  const auto data = [&] {
    std::vector<float> values(24);
    for (float& value : values) value = float(int(pick(17)) - 8) / 4;
    return davit::testing::f32_tensor({4, 6}, values);
  };
  TinyModule tiny;
  std::map<std::string, davit::ir::TensorData> inputs;
  std::vector<davit::ir::ValueId> matrices;  // All of [4,6].
  for (const char* name : {"x0", "x1"}) {
    matrices.push_back(tiny.input(name, {4, 6}));
    inputs[name] = data();
  }
  matrices.push_back(tiny.constant("k", data()));
  const size_t nodes = 1 + pick(40);
  for (size_t i = 0; i < nodes; ++i) {
    const std::string name = "v" + std::to_string(i);
    // Mostly recent values, so that lives are short.
    const auto operand = [&] {
      return matrices[matrices.size() - 1 - pick(std::min<size_t>(matrices.size(), 5))];
    };
    switch (pick(6)) {
      case 0:
        matrices.push_back(tiny.node("Relu", {operand()}, name));
        break;
      case 1:
        matrices.push_back(tiny.node("Add", {operand(), operand()}, name));
        break;
      case 2:
        matrices.push_back(tiny.node("Mul", {operand(), operand()}, name));
        break;
      case 3:
        matrices.push_back(tiny.node("Identity", {operand()}, name));
        break;
      case 4:
        matrices.push_back(tiny.node("Flatten", {operand()}, name, {{"axis", int64_t(1)}}));
        break;
      default: {  // A view, a kernel, a view back.
        const auto row = tiny.node("Flatten", {operand()}, name + "r", {{"axis", int64_t(0)}});
        const auto sigmoid = tiny.node("Sigmoid", {row}, name + "s");
        const auto shape = tiny.constant(name + "c", davit::ir::make_i64_tensor({2}, {4, 6}));
        matrices.push_back(tiny.node("Reshape", {sigmoid, shape}, name));
      }
    }
  }
  std::vector<davit::ir::ValueId> outputs;
  const size_t output_count = 1 + pick(4);
  for (size_t i = 0; i < output_count; ++i) outputs.push_back(matrices[pick(matrices.size())]);
  outputs.push_back(matrices.back());
  return {tiny.build(std::move(outputs)), std::move(inputs)};
}

using PoolPtr = std::unique_ptr<DvtPool, void (*)(DvtPool*)>;

PoolPtr make_pool(uint32_t workers) {
  DvtPoolOptions options;
  dvt_pool_options_init(&options);
  options.workers = workers;
  DvtError error{};
  DvtPool* pool = nullptr;
  REQUIRE(dvt_pool_create(&options, &pool, &error) == DVT_OK);
  return {pool, dvt_pool_destroy};
}

// In order, and with each of the pools: the same bits.
std::vector<NpyArray> run(const davit::ir::Module& module, const CompileOptions& options,
                          const std::vector<NpyArray>& inputs, DvtDevice* device,
                          std::span<const PoolPtr> pools = {}) {
  const auto image = compile_module(module, options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  auto outputs = davit::testing::run_image(image->bytes, inputs, device, 2);
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  for (const PoolPtr& pool : pools) {
    const auto shared = davit::testing::run_image(
        image->bytes, inputs, {.device = device, .runs = 4, .pool = pool.get()});
    REQUIRE_MESSAGE(shared.ok(), shared.status().to_string());
    for (size_t i = 0; i < outputs->size(); ++i) {
      CHECK((*shared)[i].dims == (*outputs)[i].dims);
      CHECK((*shared)[i].bytes == (*outputs)[i].bytes);
    }
  }
  return std::move(*outputs);
}

// The same module with open extents, or open ranks.
davit::ir::Module opened(davit::ir::Module module, uint32_t seed) {
  for (const davit::ir::ValueId input : module.graph_inputs(davit::ir::kMainGraph)) {
    const davit::ir::Dim columns = seed % 2 == 0 ? davit::ir::Dim() : davit::ir::Dim(6);
    module.set_shape(input, {davit::ir::Dim(), columns});
  }
  return module;
}

}  // namespace

TEST_CASE("planned, device and dynamic images agree with node-by-node evaluation") {
  const std::unique_ptr<DvtDevice, void (*)(DvtDevice*)> device(dvt_cpu_device_create(),
                                                                dvt_cpu_device_destroy);
  const PoolPtr pools[] = {make_pool(1), make_pool(2), make_pool(3)};
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const Case sample = random_case(seed);
    std::vector<NpyArray> inputs;
    for (const auto& [name, data] : sample.inputs) {
      inputs.push_back({data.dtype, data.dims, *data.bytes});
    }
    CompileOptions folded;
    folded.frozen_inputs = sample.inputs;
    CompileOptions ascend;
    ascend.target = DVT_TARGET_ASCEND;
    const auto expected = run(sample.module, folded, {}, nullptr);
    for (const std::string kind : {"planned", "device", "dynamic", "dynamic device"}) {
      CAPTURE(kind);
      const auto open_module = opened(sample.module, seed);
      const auto got = kind == "planned"   ? run(sample.module, {}, inputs, nullptr, pools)
                       : kind == "device"  ? run(sample.module, ascend, inputs, device.get(), pools)
                       : kind == "dynamic" ? run(open_module, {}, inputs, nullptr, pools)
                                           : run(open_module, ascend, inputs, device.get(), pools);
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].dims == expected[i].dims);
        CHECK(got[i].bytes == expected[i].bytes);
      }
    }
  }
}
