// signature.cpp: davit/signature.h on libsodium. Nothing throws across it.
#include "davit/signature.h"

#include <sodium.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "base/checked.hpp"
#include "base/files.hpp"
#include "exec/api_error.hpp"
#include "exec/image.hpp"
#include "exec/weights.hpp"
#include "signature/key_files.hpp"

using davit::Result;
using davit::Status;
using davit::exec::Mapping;

static_assert(sizeof(DvtPublicKey) == crypto_sign_PUBLICKEYBYTES);
static_assert(sizeof(DvtSecretKey) == crypto_sign_SECRETKEYBYTES);
static_assert(sizeof(DvtSignature) == crypto_sign_BYTES);

namespace {

constexpr std::string_view kPublicKey = "davit-public-key";
constexpr std::string_view kSecretKey = "davit-secret-key";
constexpr std::string_view kSignature = "davit-signature";

DvtCode report(const Status& status, DvtError* error) {
  status.to_c(error);
  return status.code();
}

// Calls work(), which returns a Status.
template <class Work>
DvtCode guarded(DvtError* error, Work work) {
  try {
    if (sodium_init() < 0) {
      return report(Status(DVT_OUT_OF_RESOURCE, DVT_STAGE_LOAD, "libsodium finds no randomness"),
                    error);
    }
    return report(work(), error);
  } catch (const std::bad_alloc&) {
    return davit::exec::out_of_memory(error, DVT_STAGE_LOAD, "no memory for a signed image");
  }
}

Status null_argument() {
  return {DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, "an argument is NULL"};
}

// A copy of the file that nobody else can change.
Result<Mapping> private_copy(const std::string& path) {
  auto file = davit::open_regular_file(path, DVT_STAGE_LOAD);
  if (!file.ok()) return std::move(file.status());
  if (file->bytes == 0) return Mapping();
  void* base =
      ::mmap(nullptr, file->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, path + ": no memory for its content");
  }
  Mapping copy(base, file->bytes);
  for (uint64_t at = 0; at < file->bytes;) {
    const ssize_t read = ::pread(file->descriptor.get(), static_cast<std::byte*>(base) + at,
                                 file->bytes - at, off_t(at));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) {
      return Status(
          DVT_IO_ERROR, DVT_STAGE_LOAD,
          "cannot read " + path + ": " + (read < 0 ? std::strerror(errno) : "it became shorter"));
    }
    at += uint64_t(read);
  }
  (void)::mprotect(base, file->bytes, PROT_READ);
  return copy;
}

// The segment of external weights that an image of any content says it has.
bool external_weights(std::span<const std::byte> image, DvtSegment& segment) {
  DvtImageHeader header;
  if (image.size() < sizeof header) return false;
  std::memcpy(&header, image.data(), sizeof header);
  for (uint64_t i = 0; i < header.segment_count && i < DVT_IMAGE_SEGMENTS_MAX; ++i) {
    const uint64_t at = sizeof header + i * sizeof segment;
    if (!davit::in_range(at, sizeof segment, image.size())) return false;
    std::memcpy(&segment, image.data() + at, sizeof segment);
    if ((segment.flags & DVT_SEGMENT_EXTERNAL) != 0) return true;
  }
  return false;
}

// An image, and its weights where they are in a file of their own.
struct Files {
  Mapping image, weights;
  std::span<const std::byte> weight_bytes;  // In `weights`, or the caller's.
};

Result<Files> read_files(const std::string& path, std::span<const std::byte> weights) {
  auto image = private_copy(path);
  if (!image.ok()) return std::move(image.status());
  Files files;
  files.image = std::move(*image);
  DvtSegment segment;
  if (!external_weights(files.image.bytes(), segment)) return files;
  files.weight_bytes = weights;
  if (weights.data() != nullptr) return files;
  auto copy = private_copy(davit::exec::folder_of(path) + "/" +
                           davit::exec::weights_file_name(segment.digest));
  if (!copy.ok()) return std::move(copy.status());
  files.weights = std::move(*copy);
  files.weight_bytes = files.weights.bytes();
  return files;
}

void hash_part(crypto_sign_state& state, std::span<const std::byte> bytes) {
  uint8_t size[8];
  for (size_t i = 0; i < sizeof size; ++i) size[i] = uint8_t(uint64_t{bytes.size()} >> (8 * i));
  crypto_sign_update(&state, size, sizeof size);
  crypto_sign_update(&state, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

crypto_sign_state hashed(const Files& files) {
  constexpr std::string_view kBegin = "davit image 1";
  crypto_sign_state state;
  crypto_sign_init(&state);
  crypto_sign_update(&state, reinterpret_cast<const uint8_t*>(kBegin.data()), kBegin.size());
  hash_part(state, files.image.bytes());
  hash_part(state, files.weight_bytes);
  return state;
}

Status open_signed(const std::string& path, const DvtSignature& signature, const DvtPublicKey& key,
                   const DvtImageOptions* options, DvtImage** out) {
  DvtImageOptions complete;
  dvt_image_options_init(&complete);
  if (options != nullptr && options->struct_size <= sizeof complete) {
    std::memcpy(&complete, options, options->struct_size);
  }
  auto files = read_files(path, {static_cast<const std::byte*>(complete.weights),
                                 complete.weights == nullptr ? 0 : complete.weights_bytes});
  if (!files.ok()) return std::move(files.status());
  crypto_sign_state state = hashed(*files);
  DvtSignature mutable_signature = signature;  // libsodium's parameter is not const.
  if (crypto_sign_final_verify(&state, mutable_signature.bytes, key.bytes) != 0) {
    Status status(DVT_INVALID_IMAGE, DVT_STAGE_LOAD,
                  path + ": the signature is not that of this image by this key");
    status.detail().hint = "the image was changed, or another key signed it";
    return status;
  }
  if (complete.weights == nullptr && files->weight_bytes.data() != nullptr) {
    complete.weights = files->weight_bytes.data();
    complete.weights_bytes = files->weight_bytes.size();
  }
  DvtError error{};
  const std::span<const std::byte> bytes = files->image.bytes();
  // With the caller's struct_size, which is judged there.
  if (options != nullptr) complete.struct_size = options->struct_size;
  if (complete.weights != nullptr) complete.struct_size = sizeof complete;
  DvtImage* image = nullptr;
  if (dvt_image_open_memory(bytes.data(), bytes.size(), &complete, &image, &error) != DVT_OK) {
    return davit::exec::status_of(error);
  }
  image->mapping = std::move(files->image);
  image->weights = std::move(files->weights);
  *out = image;
  return {};
}

}  // namespace

DvtCode dvt_key_make(DvtPublicKey* public_key, DvtSecretKey* secret_key, DvtError* error) {
  return guarded(error, [&]() -> Status {
    if (public_key == nullptr || secret_key == nullptr) return null_argument();
    crypto_sign_keypair(public_key->bytes, secret_key->bytes);
    return {};
  });
}

DvtCode dvt_public_key_read(const char* path, DvtPublicKey* out, DvtError* error) {
  return guarded(error, [&] {
    if (path == nullptr || out == nullptr) return null_argument();
    return davit::signature::read_key(path, kPublicKey, out->bytes);
  });
}

DvtCode dvt_secret_key_read(const char* path, DvtSecretKey* out, DvtError* error) {
  return guarded(error, [&] {
    if (path == nullptr || out == nullptr) return null_argument();
    return davit::signature::read_key(path, kSecretKey, out->bytes);
  });
}

DvtCode dvt_public_key_write(const char* path, const DvtPublicKey* key, DvtError* error) {
  return guarded(error, [&] {
    if (path == nullptr || key == nullptr) return null_argument();
    return davit::signature::write_key(path, kPublicKey, key->bytes, false);
  });
}

DvtCode dvt_secret_key_write(const char* path, const DvtSecretKey* key, DvtError* error) {
  return guarded(error, [&] {
    if (path == nullptr || key == nullptr) return null_argument();
    return davit::signature::write_key(path, kSecretKey, key->bytes, true);
  });
}

DvtCode dvt_signature_read(const char* path, DvtSignature* out, DvtError* error) {
  return guarded(error, [&] {
    if (path == nullptr || out == nullptr) return null_argument();
    return davit::signature::read_key(path, kSignature, out->bytes);
  });
}

void dvt_signature_text(const DvtSignature* signature, char text[DVT_SIGNATURE_TEXT_BYTES]) {
  constexpr std::string_view kFirst = "davit-signature 1\n";
  static_assert(kFirst.size() + 2 * sizeof(DvtSignature) + 2 <= DVT_SIGNATURE_TEXT_BYTES);
  std::memcpy(text, kFirst.data(), kFirst.size());
  char* digits = text + kFirst.size();
  sodium_bin2hex(digits, 2 * sizeof(DvtSignature) + 1, signature->bytes, sizeof signature->bytes);
  std::memcpy(digits + 2 * sizeof(DvtSignature), "\n", 2);
}

DvtCode dvt_image_sign(const char* path, const DvtSecretKey* key, DvtSignature* out,
                       DvtError* error) {
  return guarded(error, [&]() -> Status {
    if (path == nullptr || key == nullptr || out == nullptr) return null_argument();
    auto files = read_files(path, {});
    if (!files.ok()) return std::move(files.status());
    crypto_sign_state state = hashed(*files);
    crypto_sign_final_create(&state, out->bytes, nullptr, key->bytes);
    return {};
  });
}

DvtCode dvt_image_open_signed(const char* path, const char* signature_path, const DvtPublicKey* key,
                              const DvtImageOptions* options, DvtImage** out, DvtError* error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (path == nullptr || key == nullptr || out == nullptr) return null_argument();
    DvtSignature signature;
    const std::string beside =
        signature_path == nullptr ? std::string(path) + ".sig" : signature_path;
    if (Status status = davit::signature::read_key(beside, kSignature, signature.bytes);
        !status.ok()) {
      status.detail().hint = "davit sign " + std::string(path) + " --key FILE makes one";
      return status;
    }
    return open_signed(path, signature, *key, options, out);
  });
}
