// Any bytes as an image, digests skipped: an error, or an image that runs, dumps to text and comes
// back the same. Bytes that begin like the text form go through the assembler instead. Never a
// crash, a hang or a large allocation.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "lowering/image/image_model.hpp"
#include "tests/image/support.hpp"

namespace {

using davit::image::ImageModel;

constexpr uint64_t kBytesMax = 1U << 20U;

void require(bool condition) {
  if (!condition) std::abort();
}

void round_trip(ImageModel model) {
  model.external_constants = false;  // There is no file.
  const auto tables = davit::test::tables();
  const auto bytes = davit::image::write_image(model, tables);
  if (!bytes.ok()) {
    require(!bytes.status().detail().message.empty());
    return;
  }
  const auto back = davit::image::read_image_model(*bytes);
  require(back.ok());
  const auto again = davit::image::assemble_text(davit::image::dump_text(*back, tables), tables);
  require(again.ok());
  const auto rewritten = davit::image::write_image(*again, tables);
  require(rewritten.ok() && *rewritten == *bytes);
  davit::test::open_and_run(*bytes);
}

void fuzz_text(std::string_view text) {
  const auto model = davit::image::assemble_text(text, davit::test::tables());
  if (!model.ok()) {
    require(model.status().detail().message.starts_with("line "));
  } else if (model->constants.size() < kBytesMax) {
    round_trip(std::move(*model));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("davit ")) {
    fuzz_text(text);
    return 0;
  }
  davit::test::open_and_run(bytes);
  return 0;
}
