#include "base/files.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <memory>

namespace davit {
namespace {

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

struct Freer {
  void operator()(char* text) const { std::free(text); }
};

}  // namespace

Status check_replaceable(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) return {};
  return Status(
      ErrorDetail{.code = DVT_IO_ERROR,
                  .stage = DVT_STAGE_WRITE,
                  .message = "cannot write " + path + ": it is " + kind_name(there.st_mode),
                  .expected = "a regular file, or none yet"});
}

std::string resolve_link(const std::string& path) {
  const std::unique_ptr<char, Freer> resolved(::realpath(path.c_str(), nullptr));
  return resolved == nullptr ? path : std::string(resolved.get());
}

}  // namespace davit
