#include "exec/image.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "exec/verify.hpp"

namespace davit::exec {
namespace {

// Closes a file descriptor on all paths.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Status io_error(const std::string& path, const char* what, int error) {
  Status status(DVT_IO_ERROR, DVT_STAGE_LOAD, "cannot " + std::string(what) + " " + path);
  if (error != 0) status.detail().message += std::string(": ") + std::strerror(error);
  return status;
}

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
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return io_error(path, "open", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return io_error(path, "examine", errno);
  if (!S_ISREG(info.st_mode)) return io_error(path, "map: not a regular file:", 0);
  if (info.st_size == 0) {
    return Status(DVT_INVALID_IMAGE, DVT_STAGE_LOAD, path + " is empty");
  }
  const auto size = static_cast<size_t>(info.st_size);
  const int flags = MAP_PRIVATE | (prefault ? MAP_POPULATE : 0);
  void* base = ::mmap(nullptr, size, PROT_READ, flags, file.get(), 0);
  if (base == MAP_FAILED) return io_error(path, "map", errno);
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
  if (Status s = verify_image(image->mapping.bytes(), options, *image); !s.ok()) return s;
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
