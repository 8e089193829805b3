// Images with machine code: who may load them, and what a damaged one gets.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "davit/davit.h"
#include "exec/image.hpp"
#include "lowering/compile.hpp"
#include "lowering/image/image_model.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::testing::AlignedBytes;
using davit::testing::TinyModule;

namespace {

std::vector<std::byte> image_with_code(const std::string& isa) {
  TinyModule tiny;
  const auto x = tiny.input("x", {2, 3});
  const auto w = tiny.constant("w", davit::testing::f32_tensor({3, 2}, {1, 2, 3, 4, 5, 6}));
  CompileOptions options;
  options.codegen.isas = {isa};
  auto image = compile_module(tiny.build({tiny.node("MatMul", {x, w}, "y")}), options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  REQUIRE(image->report.generated_nodes == 1);
  return std::move(image->bytes);
}

std::string open_message(const std::vector<std::byte>& bytes, DvtImageOptions options) {
  const AlignedBytes aligned(bytes);
  DvtImage* image = nullptr;
  DvtError error{};
  if (dvt_image_open_memory(aligned.data(), aligned.size(), &options, &image, &error) == DVT_OK) {
    dvt_image_close(image);
    return "";
  }
  CHECK(image == nullptr);
  return error.message;
}

DvtImageOptions defaults() {
  DvtImageOptions options;
  dvt_image_options_init(&options);
  return options;
}

}  // namespace

TEST_CASE("an image with code runs, and may be refused") {
  const auto bytes = image_with_code("baseline");
  davit::NpyArray x{.dtype = DVT_F32, .dims = {2, 3}, .bytes = std::vector<std::byte>(24)};
  const float values[] = {1, 0, 0, 0, 1, 1};
  std::memcpy(x.bytes.data(), values, sizeof values);
  const auto y = davit::testing::run_image(bytes, std::vector{x});
  REQUIRE_MESSAGE(y.ok(), y.status().to_string());
  float got[4];
  std::memcpy(got, (*y)[0].bytes.data(), sizeof got);
  CHECK(got[0] == 1);
  CHECK(got[1] == 2);
  CHECK(got[2] == 8);
  CHECK(got[3] == 10);
  DvtImageOptions refusing = defaults();
  refusing.refuse_code = 1;
  CHECK(open_message(bytes, refusing).find("machine code") != std::string::npos);
}

TEST_CASE("images with code that are open at the same time have kernels of their own") {
  std::vector<DvtImage*> images;
  for (int64_t rows = 2; rows < 12; ++rows) {
    TinyModule tiny;
    const auto x = tiny.input("x", {rows, 3});
    const auto w = tiny.constant("w", davit::testing::f32_tensor({3, 2}, {1, 2, 3, 4, 5, 6}));
    CompileOptions options;
    options.codegen.isas = {"baseline"};
    const auto made = compile_module(tiny.build({tiny.node("MatMul", {x, w}, "y")}), options);
    REQUIRE_MESSAGE(made.ok(), made.status().to_string());
    static std::vector<AlignedBytes> kept;
    kept.emplace_back(made->bytes);
    DvtError error{};
    DvtImage* image = nullptr;
    REQUIRE_MESSAGE(dvt_image_open_memory(kept.back().data(), kept.back().size(), nullptr, &image,
                                          &error) == DVT_OK,
                    error.message);
    images.push_back(image);
  }
  for (DvtImage* image : images) dvt_image_close(image);
}

TEST_CASE("damaged code is never loaded, digests or not") {
  const auto good = image_with_code("baseline");
  const auto image = davit::exec::open_image_memory(
      good, {.code = davit::exec::CodeUse::kIgnore, .resolve_kernels = false});
  REQUIRE(image.ok());
  const auto begin = size_t((*image)->view.code.data() - good.data());
  const size_t size = (*image)->view.code.size();
  REQUIRE(size > 0);
  for (const uint32_t skip : {0U, 1U}) {
    DvtImageOptions options = defaults();
    options.skip_digests = skip;
    CHECK(open_message(good, options) == "");
    for (size_t at = begin; at < begin + size; at += size / 50) {
      auto bad = good;
      bad[at] ^= std::byte{0x10};
      CHECK(open_message(bad, options).find("digest") != std::string::npos);
    }
  }
}

TEST_CASE("code that is no shared object of ours is refused by name") {
  auto model = davit::image::read_image_model(image_with_code("baseline"));
  REQUIRE(model.ok());
  const std::vector<std::byte> good = model->code;
  const auto message = [&](std::vector<std::byte> code) {
    model->code = std::move(code);
    const auto bytes = davit::image::write_image(*model);
    return bytes.ok() ? std::string() : bytes.status().to_string();
  };
  CHECK(message(good) == "");
  CHECK(message({}).find("there is no kernel") != std::string::npos);
  CHECK(message(std::vector<std::byte>(5000)).find("cannot be loaded") != std::string::npos);
  uint64_t source_bytes = 0;  // codegen/code_source.hpp: what follows the shared object.
  std::memcpy(&source_bytes, good.data() + good.size() - 16, sizeof source_bytes);
  const size_t object = good.size() - 16 - source_bytes;
  for (const size_t size : {size_t(100), object / 4, object / 2}) {
    CHECK(message({good.begin(), good.begin() + ptrdiff_t(size)}).find("code segment") !=
          std::string::npos);
  }
}

TEST_CASE("a generated kernel refuses operands of other shapes") {
  auto model = davit::image::read_image_model(image_with_code("baseline"));
  REQUIRE(model.ok());
  for (davit::image::Value& value : model->values) {
    if (value.kind != davit::image::ValueKind::kConstant) continue;
    std::swap(value.tensor.dims[1], value.tensor.dims[2]);
  }
  const auto bytes = davit::image::write_image(*model);
  REQUIRE(!bytes.ok());
  CHECK_MESSAGE(bytes.status().to_string().find("another shape") != std::string::npos,
                bytes.status().to_string());
}
