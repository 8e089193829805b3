// files.hpp: what all readers and writers of files share.
//
// Threads  Pure but for the file system.
// Trust    Paths are the user's.
// Memory   Values; descriptors and bytes are owned.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"

namespace davit {

// A file descriptor, closed when its owner goes; -1 is none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

// "a folder", "a pipe", ...; `mode` is of stat.
const char* file_kind_name(mode_t mode);

struct ReadableFile {
  FileDescriptor descriptor;
  uint64_t bytes = 0;  // When it was opened.
};

// Opens a regular file. Anything else is refused at once: a pipe would block until somebody writes,
// and opening a device may do things. Error: DVT_IO_ERROR of `stage` with path and cause.
Result<ReadableFile> open_regular_file(const std::string& path, DvtStage stage);

// All of a regular file of at most 1 TiB. Errors: as above, and DVT_OUT_OF_MEMORY.
Result<std::vector<std::byte>> read_regular_file(const std::string& path, DvtStage stage);

// Refuses a path at which there is something that is no regular file: a rename would put a file in
// the place of the device, pipe or folder, or of what a symbolic link leads to. An absent file is
// fine. Error: DVT_IO_ERROR that names the path and what is there.
Status check_replaceable(const std::string& path);

// `path`, or where the symbolic link at `path` leads to, so that the link survives a rename.
std::string resolve_link(const std::string& path);

}  // namespace davit
