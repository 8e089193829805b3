#include "exec/image.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/files.hpp"
#include "exec/verify.hpp"
#include "exec/weights.hpp"

namespace davit::exec {
namespace {

void touch_pages(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += DVT_IMAGE_PAGE) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[i]));
  }
}

}  // namespace

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

Result<Mapping> map_file(const std::string& path, bool prefault) {
  auto file = open_regular_file(path, DVT_STAGE_LOAD);
  if (!file.ok()) return std::move(file.status());
  if (file->bytes == 0) return Status(DVT_INVALID_IMAGE, DVT_STAGE_LOAD, path + " is empty");
  const size_t size = file->bytes;
  const int flags = MAP_PRIVATE | (prefault ? MAP_POPULATE : 0);
  void* base = ::mmap(nullptr, size, PROT_READ, flags, file->descriptor.get(), 0);
  if (base == MAP_FAILED) {
    return Status(DVT_IO_ERROR, DVT_STAGE_LOAD, "cannot map " + path + ": " + std::strerror(errno));
  }
  return Mapping(base, size);
}

void retain_image(const DvtImage& image) {
  // Relaxed: whoever copies a reference holds one, so the count cannot reach zero meanwhile.
  image.references.fetch_add(1, std::memory_order_relaxed);
}

void release_image(const DvtImage* image) {
  // Release publishes this owner's last use; acquire shows the last owner everybody's.
  if (image != nullptr && image->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete image;
  }
}

Result<ImageHandle> open_image_file(const std::string& path, const OpenOptions& options) {
  // The digests read every page: mapping all at once is cheaper than a fault for each.
  Result<Mapping> mapping = map_file(path, options.prefault || !options.skip_digests);
  if (!mapping.ok()) return std::move(mapping.status());
  ImageHandle image(new DvtImage);
  image->mapping = std::move(*mapping);
  OpenOptions beside = options;
  if (beside.weights_folder.empty()) beside.weights_folder = folder_of(path);
  if (Status s = verify_image(image->mapping.bytes(), beside, *image); !s.ok()) return s;
  return image;
}

Result<ImageHandle> open_image_memory(std::span<const std::byte> bytes,
                                      const OpenOptions& options) {
  if (options.prefault) touch_pages(bytes);
  ImageHandle image(new DvtImage);
  if (Status s = verify_image(bytes, options, *image); !s.ok()) return s;
  return image;
}

}  // namespace davit::exec
