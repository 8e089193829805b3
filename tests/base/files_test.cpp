#include "base/files.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "davit-files-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("only regular files, and names that are free, may be replaced") {
  const Folder folder;
  const std::string file = folder.path / "file", pipe = folder.path / "pipe";
  const std::string link = folder.path / "link", pipe_link = folder.path / "pipe_link";
  std::ofstream(file) << "x";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(::symlink("file", link.c_str()) == 0);
  REQUIRE(::symlink("pipe", pipe_link.c_str()) == 0);

  CHECK(davit::check_replaceable(file).ok());
  CHECK(davit::check_replaceable(folder.path / "absent").ok());
  CHECK(davit::check_replaceable(link).ok());
  const davit::Status refused = davit::check_replaceable(pipe);
  CHECK(refused.code() == DVT_IO_ERROR);
  CHECK(refused.to_string().find("it is a pipe") != std::string::npos);
  CHECK(!davit::check_replaceable(pipe_link).ok());
  CHECK(!davit::check_replaceable(folder.path).ok());
  CHECK(!davit::check_replaceable("/dev/null").ok());  // Asks only; nothing is written.
}

TEST_CASE("a link is resolved, a free name stays") {
  const Folder folder;
  const std::string file = folder.path / "file", link = folder.path / "link";
  std::ofstream(file) << "x";
  REQUIRE(::symlink("file", link.c_str()) == 0);
  CHECK(davit::resolve_link(link) == std::filesystem::canonical(file));
  CHECK(davit::resolve_link(folder.path / "absent") == folder.path / "absent");
}
