#include "base/files.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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

TEST_CASE("a regular file is read, whole") {
  const Folder folder;
  const std::string file = folder.path / "file", link = folder.path / "link";
  REQUIRE(::symlink("file", link.c_str()) == 0);
  for (const size_t size : {size_t{0}, size_t{1}, (size_t{3} << 20) + 5}) {
    std::ofstream(file, std::ios::binary) << std::string(size, 'x');
    for (const std::string& path : {file, link}) {
      const auto bytes = davit::read_regular_file(path, DVT_STAGE_LOAD);
      REQUIRE(bytes.ok());
      CHECK(*bytes == std::vector<std::byte>(size, std::byte{'x'}));
      const auto opened = davit::open_regular_file(path, DVT_STAGE_LOAD);
      REQUIRE(opened.ok());
      CHECK(opened->bytes == size);
    }
  }
  // A terabyte of nothing: no memory is asked for.
  if (::truncate(file.c_str(), (off_t{1} << 40) + 1) == 0) {
    const auto sparse = davit::read_regular_file(file, DVT_STAGE_LOAD);
    CHECK(sparse.status().to_string().find("larger than 1 TiB") != std::string::npos);
  }
}

TEST_CASE("what is no regular file is not opened for reading") {
  const Folder folder;
  const std::string pipe = folder.path / "pipe", pipe_link = folder.path / "pipe_link";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(::symlink("pipe", pipe_link.c_str()) == 0);
  const struct {
    std::string path;
    std::string words;
  } refused[] = {
      {pipe, "it is a pipe; expected a regular file"},
      {pipe_link, "it is a pipe; expected a regular file"},
      {folder.path, "it is a folder; expected a regular file"},
      {"/dev/null", "it is a device; expected a regular file"},
      {"/dev/zero", "it is a device; expected a regular file"},
      {folder.path / "absent", "No such file or directory"},
      {"", "No such file or directory"},
  };
  for (const auto& [path, words] : refused) {
    const auto opened = davit::open_regular_file(path, DVT_STAGE_PARSE);
    REQUIRE(!opened.ok());
    CHECK(opened.status().code() == DVT_IO_ERROR);
    CHECK(opened.status().to_string() == "parse: cannot read " + path + ": " + words);
    CHECK(davit::read_regular_file(path, DVT_STAGE_PARSE).status().to_string() ==
          opened.status().to_string());
  }
}

TEST_CASE("a link is resolved, a free name stays") {
  const Folder folder;
  const std::string file = folder.path / "file", link = folder.path / "link";
  std::ofstream(file) << "x";
  REQUIRE(::symlink("file", link.c_str()) == 0);
  CHECK(davit::resolve_link(link) == std::filesystem::canonical(file));
  CHECK(davit::resolve_link(folder.path / "absent") == folder.path / "absent");
}
