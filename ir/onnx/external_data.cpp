#include "ir/onnx/external_data.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/files.hpp"

namespace davit::onnx_import {
namespace {

// A file may be handed out this many times over; shared weights need little more than once.
constexpr uint64_t kOverlapMax = 4;

Status refused(const std::string& location, const std::string& why) {
  return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
          "external data location '" + location + "' " + why + "; it was not opened"};
}

Status failed(const std::string& location, int error) {
  return {DVT_IO_ERROR, DVT_STAGE_PARSE,
          "external data '" + location + "': " + std::strerror(error)};
}

// The components of a location that stays below the folder.
Result<std::vector<std::string>> split(const std::string& location) {
  if (location.empty()) return refused(location, "is empty");
  if (location.front() == '/') return refused(location, "is absolute");
  if (location.front() == '*') return refused(location, "is an in-memory marker, not a file");
  if (location.find('\0') != std::string::npos) return refused(location, "holds a NUL byte");
  if (location.find('\\') != std::string::npos) return refused(location, "holds a backslash");
  std::vector<std::string> components;
  std::string_view rest = location;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (part == "..") return refused(location, "leaves the model's folder");
    if (!part.empty() && part != ".") components.emplace_back(part);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (components.empty() || location.back() == '/') return refused(location, "names no file");
  return components;
}

// Refuses what is not a plain file with one name. `info` is from fstat or lstat.
Status check_kind(const std::string& location, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return refused(location, std::string("is ") + file_kind_name(info.st_mode));
  }
  if (info.st_nlink != 1) return refused(location, "is a hard link to another file");
  return {};
}

// Opens component by component without following links.
Result<FileDescriptor> open_below(const std::string& folder, const std::string& location) {
  Result<std::vector<std::string>> components = split(location);
  if (!components.ok()) return std::move(components.status());
  FileDescriptor at(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!at.is_open()) return failed(folder, errno);
  for (size_t i = 0; i + 1 < components->size(); ++i) {
    const char* name = (*components)[i].c_str();
    FileDescriptor next(openat(at.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.is_open()) {
      const int error = errno;
      struct stat info {};
      const bool link =
          fstatat(at.get(), name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
      if (link) return refused(location, "goes through a symbolic link");
      return failed(location, error);
    }
    at = std::move(next);
  }
  const char* name = components->back().c_str();
  struct stat info {};
  if (fstatat(at.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) return failed(location, errno);
  if (Status status = check_kind(location, info); !status.ok()) return status;
  FileDescriptor file(openat(at.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return failed(location, errno);
  return file;
}

}  // namespace

Result<std::vector<std::byte>> ExternalData::read(const std::string& location, uint64_t offset,
                                                  uint64_t size) {
  if (!folder_) {
    return Status(
        DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
        "external data '" + location + "' is not available here: the model has no folder");
  }
  Result<FileDescriptor> file = open_below(*folder_, location);
  if (!file.ok()) return std::move(file.status());
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return failed(location, errno);
  // Again, on what was opened: the name may have changed hands in between.
  if (Status status = check_kind(location, info); !status.ok()) return status;

  const auto file_size = uint64_t(info.st_size);
  if (!in_range(offset, size, file_size)) {
    return Status({.code = DVT_INVALID_IMAGE,
                   .stage = DVT_STAGE_PARSE,
                   .message = "external data '" + location + "' is too short",
                   .expected = std::to_string(size) + " bytes at offset " + std::to_string(offset),
                   .got = std::to_string(file_size) + " bytes in the file"});
  }
  File& read_file = files_[{info.st_dev, info.st_ino}];
  if (read_file.path.empty()) read_file.path = *folder_ + "/" + location;
  const auto sum = checked_add(read_file.total_bytes, size);
  if (!sum || *sum > checked_mul(file_size, kOverlapMax).value_or(UINT64_MAX)) {
    return Status(DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
                  "tensors in external data '" + location + "' overlap too much");
  }
  read_file.total_bytes = *sum;

  std::vector<std::byte> bytes(size);
  for (uint64_t done = 0; done < size;) {
    const ssize_t count =
        pread(file->get(), bytes.data() + done, size - done, off_t(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(location, errno);
    if (count == 0) return failed(location, EIO);  // The file shrank while it was read.
    done += uint64_t(count);
  }
  digest_.update(bytes.data(), bytes.size());
  return bytes;
}

std::vector<std::string> ExternalData::files() const {
  std::vector<std::string> paths;
  for (const auto& [key, file] : files_) paths.push_back(file.path);
  return paths;
}

}  // namespace davit::onnx_import
