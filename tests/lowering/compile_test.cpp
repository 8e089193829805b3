#include "lowering/compile.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "davit/device.h"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

NpyArray f32_array(std::vector<int64_t> dims, const std::vector<float>& values) {
  const auto tensor = f32_tensor(std::move(dims), values);
  return {tensor.dtype, tensor.dims, *tensor.bytes};
}

std::vector<float> floats(const NpyArray& array) {
  std::vector<float> values(array.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

// y = relu(x + k), z = sigmoid(y) as a row; both are outputs, and so is x.
davit::ir::Module sample() {
  TinyModule tiny;
  const auto x = tiny.input("x", {2, -1});
  const auto k = tiny.constant("k", f32_tensor({1}, {-2}));
  const auto sum = tiny.node("Add", {x, k}, "sum");
  const auto y = tiny.node("Relu", {sum}, "y");
  const auto s = tiny.node("Sigmoid", {y}, "s");
  const auto z = tiny.node("Flatten", {s}, "z", {{"axis", int64_t(0)}});
  return tiny.build({y, z, x});
}

}  // namespace

TEST_CASE("a module compiles and runs the same on both targets") {
  const std::vector<NpyArray> inputs = {f32_array({2, 2}, {1, 2, 3, 4})};
  for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
    CompileOptions options;
    options.target = target;
    options.shapes["x"] = {2, 2};
    std::vector<std::string> stages;
    options.on_stage = [&](std::string_view stage) { stages.emplace_back(stage); };
    const auto image = compile_module(sample(), options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    CHECK(stages ==
          std::vector<std::string>{"bind shapes", "passes", "lower", "plan memory", "write image"});
    CHECK(image->report.source_nodes == 4);
    CHECK(image->report.aliased_nodes == 1);
    CHECK(image->report.file_bytes == image->bytes.size());
    CHECK(image->report.stages.size() == stages.size());
    // The cpu device runs ascend images, too.
    DvtDevice* device = dvt_cpu_device_create();
    REQUIRE(device != nullptr);
    const auto outputs = davit::testing::run_image(image->bytes, inputs,
                                                   target == DVT_TARGET_CPU ? nullptr : device, 3);
    dvt_cpu_device_destroy(device);
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    REQUIRE(outputs->size() == 3);
    CHECK(floats((*outputs)[0]) == std::vector<float>{0, 0, 1, 2});
    CHECK((*outputs)[1].dims == std::vector<int64_t>{1, 4});
    CHECK(floats((*outputs)[1])[3] == doctest::Approx(1 / (1 + std::exp(-2.0))));
    CHECK(floats((*outputs)[2]) == std::vector<float>{1, 2, 3, 4});
  }
}

TEST_CASE("weights may go to a file of their own, with the same bytes for the same weights") {
  CompileOptions options;
  options.shapes["x"] = {2, 2};
  const auto inside = compile_module(sample(), options);
  options.external_weights = true;
  const auto beside = compile_module(sample(), options);
  options.target = DVT_TARGET_ASCEND;
  const auto ascend = compile_module(sample(), options);
  REQUIRE(inside.ok());
  REQUIRE_MESSAGE(beside.ok(), beside.status().to_string());
  REQUIRE_MESSAGE(ascend.ok(), ascend.status().to_string());
  CHECK(inside->weights.empty());
  CHECK(inside->weights_name.empty());
  CHECK(beside->weights.size() == inside->report.constant_bytes);
  CHECK(beside->weights_name.ends_with(".weights"));
  CHECK(beside->bytes.size() < inside->bytes.size());
  CHECK(ascend->weights_name == beside->weights_name);
  // Nothing to put there.
  TinyModule tiny;
  const auto x = tiny.input("x", {2});
  const auto none =
      compile_module(tiny.build({tiny.node("Relu", {x}, "y")}), {.external_weights = true});
  REQUIRE_MESSAGE(none.ok(), none.status().to_string());
  CHECK(none->weights_name.empty());
}

TEST_CASE("what is open stays open, on both targets") {
  for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
    CompileOptions options;
    options.target = target;
    const auto image = compile_module(sample(), options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    CHECK(image->report.is_dynamic);
    options.shapes = {{"x", {2, 3}}};
    const auto fixed = compile_module(sample(), options);
    REQUIRE_MESSAGE(fixed.ok(), fixed.status().to_string());
    CHECK(!fixed->report.is_dynamic);
  }
}

TEST_CASE("unsupported operators are all listed at once and there is no image") {
  TinyModule tiny;
  const auto x = tiny.input("x", {4});
  const auto a = tiny.node("NoSuchOp", {x}, "a");
  const auto b = tiny.node("Relu", {a}, "b");
  const auto c = tiny.node("NeitherThis", {b}, "c");
  const auto d = tiny.node("NoSuchOp", {c}, "d");
  const auto image = compile_module(tiny.build({d}), {});
  REQUIRE(!image.ok());
  CHECK(image.status().code() == DVT_UNSUPPORTED);
  const std::string text = image.status().to_string();
  for (const char* part : {"NoSuchOp(13)", "NoSuchOp_a", "NoSuchOp_d", "NeitherThis_c"}) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  }
}

TEST_CASE("wrong names and shapes are refused") {
  CompileOptions options;
  options.shapes["nope"] = {1};
  CHECK(compile_module(sample(), options).status().to_string().find("nope") != std::string::npos);
  options.shapes = {{"x", {3, 2}}};
  CHECK(!compile_module(sample(), options).ok());
  options.shapes = {{"x", {2, 2}}};
  options.disabled_passes = {"no such pass"};
  CHECK(!compile_module(sample(), options).ok());
}

TEST_CASE("strings go through an image, and are refused where numbers are computed with") {
  const std::vector<std::string> words = {"word", ""};
  const auto data = *davit::ir::make_string_tensor({2}, words);
  TinyModule moved;
  const auto c = moved.constant("c", data);
  auto image =
      compile_module(moved.build({moved.node("Concat", {c, c}, "y", {{"axis", int64_t(0)}})}), {});
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  const auto outputs = davit::testing::run_image(image->bytes, {});
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK((*outputs)[0].dtype == DVT_STRING);
  const davit::ir::TensorData got =
      davit::ir::make_tensor(DVT_STRING, (*outputs)[0].dims, (*outputs)[0].bytes);
  CHECK(davit::ir::strings_of(got) == std::vector<std::string>{"word", "", "word", ""});

  TinyModule through_node;
  const auto d = through_node.constant("d", data);
  const auto yes = through_node.input("yes", {2});
  const auto b = through_node.node("Cast", {yes}, "b", {{"to", int64_t(DVT_BOOL)}});
  image = compile_module(through_node.build({through_node.node("Where", {b, d, d}, "y")}), {});
  REQUIRE(!image.ok());
  CHECK(image.status().code() == DVT_UNSUPPORTED);
  CHECK(image.status().to_string() ==
        "lower: Where_y (ai.onnx::Where(13)): the node reads a tensor of strings; tensor d; "
        "expected numbers");
}

TEST_CASE("a frozen input becomes part of the image") {
  CompileOptions options;
  options.frozen_inputs["x"] = f32_tensor({2, 1}, {5, 0});
  const auto image = compile_module(sample(), options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  const auto outputs = davit::testing::run_image(image->bytes, {});
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK(floats((*outputs)[0]) == std::vector<float>{3, 0});
}

TEST_CASE("empty tensors flow through") {
  CompileOptions options;
  options.shapes["x"] = {2, 0};
  for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
    options.target = target;
    const auto image = compile_module(sample(), options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    DvtDevice* device = dvt_cpu_device_create();
    const std::vector<NpyArray> inputs = {f32_array({2, 0}, {})};
    const auto outputs = davit::testing::run_image(image->bytes, inputs,
                                                   target == DVT_TARGET_CPU ? nullptr : device);
    dvt_cpu_device_destroy(device);
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dims == std::vector<int64_t>{2, 0});
  }
}

TEST_CASE("the same module gives the same bytes, other options give others") {
  CompileOptions options;
  options.shapes["x"] = {2, 2};
  const auto first = compile_module(sample(), options);
  const auto second = compile_module(sample(), options);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->bytes == second->bytes);
  options.shapes["x"] = {2, 3};
  const auto third = compile_module(sample(), options);
  REQUIRE(third.ok());
  CHECK(first->bytes != third->bytes);
}

TEST_CASE("a parameter may be an input, or frozen, with one result") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 1, 1, 2});
  const auto scales = tiny.input("scales", {4});
  const auto none = davit::ir::kNoValue;
  const auto y = tiny.node("Resize", {x, none, scales}, "y");
  const davit::ir::Module module = tiny.build({y});
  const auto as_array = [](const davit::ir::TensorData& data) {
    return davit::NpyArray{data.dtype, data.dims, *data.bytes};
  };
  const auto values = davit::testing::f32_tensor({1, 1, 1, 2}, {1, 2});
  const auto factors = davit::testing::f32_tensor({4}, {1, 1, 2, 2});
  CompileOptions options;
  const auto image = compile_module(module, options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  const auto outputs =
      davit::testing::run_image(image->bytes, std::vector{as_array(values), as_array(factors)});
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  CHECK(floats((*outputs)[0]) == std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2});
  options.frozen_inputs["scales"] = factors;
  const auto frozen = compile_module(module, options);
  REQUIRE_MESSAGE(frozen.ok(), frozen.status().to_string());
  const auto same = davit::testing::run_image(frozen->bytes, std::vector{as_array(values)});
  REQUIRE_MESSAGE(same.ok(), same.status().to_string());
  CHECK((*same)[0].bytes == (*outputs)[0].bytes);
}
