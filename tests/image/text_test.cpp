// The text form: assembling, dumping, and that they are inverse.
#include <doctest/doctest.h>

#include <string>

#include "tests/image/support.hpp"

using davit::image::assemble_text;
using davit::image::dump_text;
using davit::image::ImageModel;
using davit::image::read_image_model;
using davit::image::write_image;
using namespace davit::test;  // NOLINT(google-build-using-namespace)

namespace {

std::string round_trip(const std::vector<std::byte>& bytes) {
  auto model = read_image_model(bytes);
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  return dump_text(*model, tables());
}

std::string message(std::string_view text) {
  const auto model = assemble_text(text, tables());
  return model.ok() ? "" : model.status().detail().message;
}

}  // namespace

TEST_CASE("samples survive image to text to image, byte for byte") {
  for (const std::string_view sample : {kCpuSample, kDeviceSample, kBodySample}) {
    const std::vector<std::byte> bytes = assemble(sample);
    const std::string text = round_trip(bytes);
    INFO(text);
    CHECK(assemble(text) == bytes);
    CHECK(round_trip(assemble(text)) == text);
  }
}

TEST_CASE("errors of the text form give line and column") {
  CHECK(message("") == "line 1, column 1: expected 'davit', got the end of the text");
}
