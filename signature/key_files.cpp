#include "signature/key_files.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.hpp"

namespace davit::signature {
namespace {

constexpr size_t kFileBytesMax = 1024;

Status io_error(const std::string& path, const char* what) {
  return {DVT_IO_ERROR, DVT_STAGE_LOAD,
          std::string("cannot ") + what + " " + path + ": " + std::strerror(errno)};
}

}  // namespace

std::string key_text(std::string_view kind, std::span<const uint8_t> bytes) {
  std::string digits(bytes.size() * 2 + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), bytes.data(), bytes.size());
  digits.back() = '\n';
  std::string text = std::string(kind) + " 1\n" + digits;
  sodium_memzero(digits.data(), digits.size());
  return text;
}

Status read_key(const std::string& path, std::string_view kind, std::span<uint8_t> bytes) {
  auto file = open_regular_file(path, DVT_STAGE_LOAD);
  if (!file.ok()) return std::move(file.status());
  char text[kFileBytesMax];
  const ssize_t read = ::pread(file->descriptor.get(), text, sizeof text, 0);
  if (read < 0) return io_error(path, "read");
  std::string_view rest(text, size_t(read));
  const std::string first = std::string(kind) + " 1\n";
  Status refused(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, path + " is no such file");
  refused.detail().expected = std::string(kind) + " 1, and " + std::to_string(bytes.size() * 2) +
                              " hexadecimal digits in the next line";
  const bool begins = rest.starts_with(first);
  if (begins) rest.remove_prefix(first.size());
  while (rest.ends_with('\n') || rest.ends_with('\r')) rest.remove_suffix(1);
  size_t length = 0;
  const bool is_key = begins && rest.size() == bytes.size() * 2 &&
                      sodium_hex2bin(bytes.data(), bytes.size(), rest.data(), rest.size(), nullptr,
                                     &length, nullptr) == 0 &&
                      length == bytes.size();
  sodium_memzero(text, sizeof text);
  if (!is_key) return refused;
  return {};
}

Status write_key(const std::string& path, std::string_view kind, std::span<const uint8_t> bytes,
                 bool secret) {
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, secret ? 0600 : 0644);
  if (descriptor < 0) return io_error(path, "make");
  const FileDescriptor file(descriptor);
  std::string text = key_text(kind, bytes);
  const bool written = ::write(descriptor, text.data(), text.size()) == ssize_t(text.size()) &&
                       ::fsync(descriptor) == 0;
  sodium_memzero(text.data(), text.size());
  if (written) return {};
  Status status = io_error(path, "write");
  ::unlink(path.c_str());
  return status;
}

}  // namespace davit::signature
