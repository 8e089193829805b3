#include "exec/weights.hpp"

#include <xxhash.h>

#include <cstring>
#include <utility>

namespace davit::exec {
namespace {

XXH128_canonical_t digest_of(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return canonical;
}

Status another_file(const std::string& path, std::string message, std::string expected,
                    std::string got) {
  return Status(ErrorDetail{.code = DVT_INVALID_IMAGE,
                            .stage = DVT_STAGE_LOAD,
                            .message = path + ": " + std::move(message),
                            .expected = std::move(expected),
                            .got = std::move(got),
                            .hint = "compile the model again, or copy the file again"});
}

}  // namespace

std::string weights_file_name(const uint8_t (&digest)[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name;
  for (const uint8_t byte : digest) {
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name + ".weights";
}

std::string weights_file_name(std::span<const std::byte> weights) {
  uint8_t digest[16];
  const XXH128_canonical_t canonical = digest_of(weights);
  std::memcpy(digest, canonical.digest, sizeof digest);
  return weights_file_name(digest);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::span<const std::byte>> open_weights(const DvtSegment& segment,
                                                const OpenOptions& options, DvtImage& image) {
  if (!options.weights.empty()) return options.weights;
  const std::string name = weights_file_name(segment.digest);
  if (options.weights_folder.empty()) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "the weights of the image are in a file beside it, " +
                                         name + ", and an image in memory has no folder",
                              .hint = "open the image by its path"});
  }
  const std::string path = options.weights_folder + "/" + name;
  auto mapping = map_file(path, options.prefault || !options.skip_digests);
  if (!mapping.ok()) {
    mapping.status().detail().hint =
        "the weights of an image lie beside it, under the name that the compiler gave them";
    return std::move(mapping.status());
  }
  const auto bytes = mapping->bytes();
  if (bytes.size() != segment.size) {
    return another_file(path, "the weights have another size than the image says",
                        std::to_string(segment.size) + " bytes",
                        std::to_string(bytes.size()) + " bytes");
  }
  if (!options.skip_digests) {
    const XXH128_canonical_t digest = digest_of(bytes);
    if (std::memcmp(digest.digest, segment.digest, sizeof segment.digest) != 0) {
      return another_file(path, "the weights are damaged or were changed", name,
                          weights_file_name(bytes));
    }
  }
  image.weights = std::move(*mapping);
  return image.weights.bytes();
}

}  // namespace davit::exec
