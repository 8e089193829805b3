#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/files.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::image {
namespace {

Status io_error(const char* what, const std::string& path, int error) {
  return {DVT_IO_ERROR, DVT_STAGE_WRITE,
          "cannot " + std::string(what) + " " + path + ": " + std::strerror(error)};
}

// A file under a temporary name; gone unless keep() was called.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& final_path) {
    // The process and a counter make the name unique; O_EXCL makes sure.
    static std::atomic<uint32_t> counter{0};
    do {
      path_ = final_path + "." + std::to_string(::getpid()) + "." +
              std::to_string(counter.fetch_add(1, std::memory_order_relaxed)) + ".tmp";
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    error_ = descriptor_ < 0 ? errno : 0;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!kept_) ::unlink(path_.c_str());
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
  bool kept_ = false;
};

// 0 or an errno.
int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

// Makes the new name durable. File systems that cannot are not an error: the content is safe.
void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  static_cast<void>(::fsync(descriptor));
  ::close(descriptor);
}

}  // namespace

Status write_file_atomically(const std::string& stated_path, std::span<const std::byte> bytes) {
  if (Status status = check_replaceable(stated_path); !status.ok()) return status;
  const std::string path = resolve_link(stated_path);
  TemporaryFile file(path);
  if (file.error() != 0) return io_error("create", file.path(), file.error());
  if (const int error = write_all(file.descriptor(), bytes); error != 0) {
    return io_error("write", file.path(), error);
  }
  if (::fsync(file.descriptor()) != 0) return io_error("write", file.path(), errno);
  if (std::rename(file.path().c_str(), path.c_str()) != 0) return io_error("write", path, errno);
  file.keep();
  sync_folder(path);
  return {};
}

}  // namespace davit::image
