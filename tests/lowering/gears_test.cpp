// Gears: one image, a static plan for each set of shapes.
#include "lowering/gears.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "davit/davit.hpp"
#include "exec/image.hpp"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::lowering::GearRequest;
using davit::lowering::resolve_gears;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

NpyArray ones(std::vector<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  const auto tensor = f32_tensor(std::move(dims), std::vector<float>(size_t(count), 1.0F));
  return {tensor.dtype, tensor.dims, *tensor.bytes};
}

std::vector<float> floats(const NpyArray& array) {
  std::vector<float> values(array.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

// y = relu(x w), z = the sum of all of y; w is 256 x 4.
davit::ir::Module product(int64_t batch = -1) {
  TinyModule tiny;
  const auto x = tiny.input("x", {batch, 256});
  const auto w = tiny.constant("w", f32_tensor({256, 4}, std::vector<float>(1024, 0.5F)));
  const auto y = tiny.node("Relu", {tiny.node("MatMul", {x, w}, "p")}, "y");
  const auto z = tiny.node("ReduceSum", {y}, "z", {{"keepdims", int64_t(0)}});
  return tiny.build({y, z});
}

davit::ir::Module with_inputs(std::initializer_list<std::vector<int64_t>> shapes) {
  TinyModule tiny;
  std::vector<davit::ir::ValueId> outputs;
  for (const auto& shape : shapes) {
    const std::string name(1, char('a' + outputs.size()));
    outputs.push_back(tiny.node("Relu", {tiny.input(name, shape)}, name + "_out"));
  }
  return tiny.build(std::move(outputs));
}

std::string mistake(const davit::ir::Module& module, const GearRequest& request) {
  const auto gears = resolve_gears(module, request);
  return gears.ok() ? "" : gears.status().to_string();
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("one image runs every gear, in any order, with the weights once") {
  CompileOptions options;
  options.gears.batches = {1, 2, 4};
  const auto image = compile_module(product(), options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  const auto alone = compile_module(product(4), {});
  REQUIRE(alone.ok());
  CHECK(image->report.gears == std::vector<std::string>{"x:1x256", "x:2x256", "x:4x256"});
  CHECK(!image->report.is_dynamic);
  CHECK(image->report.constant_bytes == alone->report.constant_bytes);
  CHECK(image->report.arena_bytes == alone->report.arena_bytes);
  for (const int64_t batch : {4, 1, 2, 1, 4}) {
    const std::vector<NpyArray> inputs = {ones({batch, 256})};
    const auto outputs = davit::testing::run_image(image->bytes, inputs);
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK((*outputs)[0].dims == std::vector<int64_t>{batch, 4});
    CHECK(floats((*outputs)[0]) == std::vector<float>(size_t(batch * 4), 128.0F));
    CHECK(floats((*outputs)[1]) == std::vector<float>{float(batch) * 512});
  }
}

TEST_CASE("an executor changes gears; a shape that is no gear names the input and both shapes") {
  CompileOptions options;
  options.gears.batches = {1, 3};
  const auto compiled = compile_module(product(), options);
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().to_string());
  const davit::testing::AlignedBytes bytes(compiled->bytes);
  auto image = davit::Image::borrow({static_cast<const std::byte*>(bytes.data()), bytes.size()});
  REQUIRE(image);
  CHECK(dvt_image_gear_count(image->get()) == 2);
  DvtTensor shape;
  CHECK(dvt_image_gear_input(image->get(), 1, 0, &shape, nullptr) == DVT_OK);
  CHECK(shape.dims[0] == 3);
  CHECK(dvt_image_gear_input(image->get(), 2, 0, &shape, nullptr) == DVT_INVALID_ARGUMENT);
  auto executor = davit::Executor::create(*image);
  REQUIRE(executor);
  const std::vector<float> x(3 * 256, 1.0F);
  std::vector<float> z(1);
  {
    const davit::Error bound = executor->bind_output(1, std::span(z));
    REQUIRE(!bound);
  }
  const auto run = [&](int64_t batch) {
    const int64_t dims[] = {batch, 256};
    davit::Error error =
        executor->bind_input(0, std::span<const float>(x), DVT_F32, std::span<const int64_t>(dims));
    if (!error) error = executor->run();
    return error;
  };
  for (const int64_t batch : {3, 1, 1, 3}) {
    const davit::Error error = run(batch);
    INFO(error.text());
    CHECK(!error);
    CHECK(z[0] == float(batch) * 512);
    CHECK(dvt_executor_gear(executor->get()) == (batch == 1 ? 0U : 1U));
    const auto y = executor->output(0);
    REQUIRE(y);
    CHECK(y->tensor.dims[0] == batch);
  }
  const davit::Error none = run(2);
  CHECK(none.code() == DVT_INVALID_ARGUMENT);
  CHECK(says(none.text(), "the shape is that of no gear"));
  CHECK(says(none.text(), "tensor x"));
  CHECK(says(none.text(), "f32[1,256] or f32[3,256]"));
  CHECK(says(none.text(), "f32[2,256]"));
  // Out of the range of all gears: refused when it is bound.
  CHECK(run(4).code() == DVT_INVALID_ARGUMENT);
  CHECK(!run(3));
  // A buffer that is too small for one of the gears.
  std::vector<float> y(4);
  const davit::Error too_small = executor->bind_output(0, std::span(y));
  REQUIRE(!too_small);
  CHECK(!run(1));
  CHECK(y[0] == 128.0F);
  CHECK(says(run(3).text(), "the buffer of output 'y' is too small"));
  CHECK(!run(1));
}

TEST_CASE("gears follow the free dimensions") {
  const auto batch = resolve_gears(with_inputs({{-1, 3}, {5}, {-1}}), {.batches = {2, 7}});
  REQUIRE(batch.ok());
  CHECK(davit::lowering::gear_text((*batch)[1]) == "a:7x3,c:7");
  const auto sizes = resolve_gears(with_inputs({{1, 3, -1, -1}}), {.image_sizes = {{{4, 5}}}});
  REQUIRE(sizes.ok());
  CHECK(davit::lowering::gear_text((*sizes)[0]) == "a:1x3x4x5");
  const auto last = resolve_gears(with_inputs({{1, -1, -1, 3}}),
                                  {.image_sizes = {{{4, 5}}}, .channels_last = true});
  REQUIRE(last.ok());
  CHECK(davit::lowering::gear_text((*last)[0]) == "a:1x4x5x3");
  const auto dims = resolve_gears(with_inputs({{-1, 3, -1}, {-1}}), {.dims = {{1, 2, 3}}});
  REQUIRE(dims.ok());
  CHECK(davit::lowering::gear_text((*dims)[0]) == "a:1x3x2,b:3");
}

TEST_CASE("a name counts once where a gear has as many extents as there are names") {
  TinyModule tiny;
  auto module =
      tiny.build({tiny.node("Add", {tiny.input("a", {-1, -1}), tiny.input("b", {-1, -1})}, "c")});
  const davit::ir::Shape shape = {davit::ir::Dim::symbol(module.intern_symbol("N")),
                                  davit::ir::Dim::symbol(module.intern_symbol("S"))};
  for (const auto input : module.graph_inputs(davit::ir::kMainGraph))
    module.set_shape(input, shape);
  for (const std::vector<int64_t>& row : {std::vector<int64_t>{2, 8}, {2, 8, 2, 8}}) {
    const auto gears = resolve_gears(module, {.dims = {row}});
    REQUIRE(gears.ok());
    CHECK(davit::lowering::gear_text((*gears)[0]) == "a:2x8,b:2x8");
  }
  CHECK(says(mistake(module, {.dims = {{1, 2, 3}}}), "4, or 2 where a name counts once"));
}

TEST_CASE("gears that the model cannot have are refused, and say why") {
  CHECK(says(mistake(with_inputs({{2, 3}}), {.batches = {1}}), "no input has one"));
  CHECK(says(mistake(with_inputs({{-1, -1}}), {.batches = {1}}),
             "dimension 1 of the input is free, too"));
  CHECK(says(mistake(with_inputs({{-1, 3, -1, -1}}), {.image_sizes = {{{4, 5}}}}),
             "is no height or width"));
  CHECK(says(mistake(with_inputs({{-1}}), {.batches = {3, 3}}), "two gears have the same shapes"));
  CHECK(says(mistake(with_inputs({{-1}}), {.dims = {{1, 2}}}), "another number of extents"));
  std::vector<int64_t> many(101);
  for (size_t i = 0; i < many.size(); ++i) many[i] = int64_t(i + 1);
  CHECK(says(mistake(with_inputs({{-1}}), {.batches = many}), "at most 100"));
}

TEST_CASE("what is still set at run time in a gear is an error that names the gear") {
  TinyModule tiny;
  const auto x = tiny.input("x", {-1});
  const auto compiled =
      compile_module(tiny.build({tiny.node("NonZero", {x}, "y")}), {.gears = {.batches = {5}}});
  REQUIRE(!compiled.ok());
  CHECK(compiled.status().code() == DVT_UNSUPPORTED);
  CHECK(says(compiled.status().to_string(), "in x:5 there are shapes that are set at run time"));
}
