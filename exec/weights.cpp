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

// Whether these are the weights that the segment is about. `whose` begins the message.
Status check_content(std::span<const std::byte> bytes, const DvtSegment& segment, bool skip_digest,
                     const std::string& whose, DvtCode code) {
  ErrorDetail detail{.code = code, .stage = DVT_STAGE_LOAD};
  if (bytes.size() != segment.size) {
    detail.message = whose + ": the weights have another size than the image says";
    detail.expected = std::to_string(segment.size) + " bytes";
    detail.got = std::to_string(bytes.size()) + " bytes";
    return Status(std::move(detail));
  }
  if (skip_digest) return {};
  const XXH128_canonical_t digest = digest_of(bytes);
  if (std::memcmp(digest.digest, segment.digest, sizeof segment.digest) == 0) return {};
  detail.message = whose + ": the weights are damaged or were changed";
  detail.expected = weights_file_name(segment.digest);
  detail.got = weights_file_name(bytes);
  return Status(std::move(detail));
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
  if (options.weights.data() != nullptr) {
    Status status = check_content(options.weights, segment, options.skip_digests,
                                  "memory of the caller's", DVT_INVALID_ARGUMENT);
    if (!status.ok()) return status;
    return options.weights;
  }
  const std::string name = weights_file_name(segment.digest);
  if (options.weights_folder.empty()) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "the weights of the image are in a file beside it, " +
                                         name + ", and an image in memory has no folder",
                              .hint = "open the image by its path, or give its weights in memory"});
  }
  const std::string path = options.weights_folder + "/" + name;
  auto mapping = map_file(path, options.prefault || !options.skip_digests);
  if (!mapping.ok()) {
    mapping.status().detail().hint =
        "the weights of an image lie beside it, under the name that the compiler gave them";
    return std::move(mapping.status());
  }
  Status status =
      check_content(mapping->bytes(), segment, options.skip_digests, path, DVT_INVALID_IMAGE);
  if (!status.ok()) {
    status.detail().hint = "compile the model again, or copy the file again";
    return status;
  }
  image.weights = std::move(*mapping);
  return image.weights.bytes();
}

}  // namespace davit::exec
