#include "base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace davit {
namespace {

Status cannot_read(const std::string& path, DvtStage stage, const std::string& why) {
  return {DVT_IO_ERROR, stage, "cannot read " + path + ": " + why};
}

// By `look`: stat or fstat. Returns the size.
template <class Look>
Result<uint64_t> regular_size(const std::string& path, DvtStage stage, Look look) {
  struct stat info {};
  if (look(&info) != 0) return cannot_read(path, stage, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) {
    Status status = cannot_read(path, stage, std::string("it is ") + file_kind_name(info.st_mode));
    status.detail().expected = "a regular file";
    return status;
  }
  return static_cast<uint64_t>(info.st_size);
}

struct Freer {
  void operator()(char* text) const { std::free(text); }
};

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (is_open()) ::close(descriptor_);
}

const char* file_kind_name(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Result<ReadableFile> open_regular_file(const std::string& path, DvtStage stage) {
  auto named =
      regular_size(path, stage, [&](struct stat* info) { return ::stat(path.c_str(), info); });
  if (!named.ok()) return std::move(named.status());
  // The name may have changed hands since: no waiting for a pipe, and a look at what was opened.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return cannot_read(path, stage, std::strerror(errno));
  auto opened =
      regular_size(path, stage, [&](struct stat* info) { return ::fstat(file.get(), info); });
  if (!opened.ok()) return std::move(opened.status());
  return ReadableFile{.descriptor = std::move(file), .bytes = *opened};
}

Result<std::vector<std::byte>> read_regular_file(const std::string& path, DvtStage stage) try {
  auto file = open_regular_file(path, stage);
  if (!file.ok()) return std::move(file.status());
  constexpr uint64_t kBytesMax = uint64_t{1} << 40;
  constexpr size_t kChunkBytes = size_t{1} << 20;
  if (file->bytes > kBytesMax) return cannot_read(path, stage, "it is larger than 1 TiB");
  std::vector<std::byte> bytes;
  bytes.reserve(file->bytes + 1);
  // In chunks until nothing is left, because the file may grow or shrink meanwhile.
  for (size_t done = 0;;) {
    bytes.resize(done + std::min(kChunkBytes, std::max<size_t>(bytes.capacity() - done, 1)));
    const ssize_t count = ::read(file->descriptor.get(), &bytes[done], bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_read(path, stage, std::strerror(errno));
    done += static_cast<size_t>(count);
    if (count > 0) continue;
    bytes.resize(done);
    return bytes;
  }
} catch (const std::bad_alloc&) {
  return Status(DVT_OUT_OF_MEMORY, stage, "not enough memory to read " + path);
}

Status check_replaceable(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return {};
  return Status(
      ErrorDetail{.code = DVT_IO_ERROR,
                  .stage = DVT_STAGE_WRITE,
                  .message = "cannot write " + path + ": it is " + file_kind_name(there.st_mode),
                  .expected = "a regular file, or none yet"});
}

std::string resolve_link(const std::string& path) {
  const std::unique_ptr<char, Freer> resolved(::realpath(path.c_str(), nullptr));
  return resolved == nullptr ? path : std::string(resolved.get());
}

}  // namespace davit
