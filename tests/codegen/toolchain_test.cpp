// The compiler as a process: what it says, what it leaves behind, the cache.
#include "codegen/toolchain.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using davit::codegen::build;
using davit::codegen::SourceFile;
using davit::codegen::ToolchainOptions;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "davit-toolchain-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }

  [[nodiscard]] fs::path path() const { return path_; }
  // A program of the shell.
  [[nodiscard]] std::string script(const std::string& text) const {
    const fs::path path = path_ / "compiler";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    ::chmod(path.c_str(), 0755);
    return path.string();
  }

 private:
  fs::path path_;
};

const std::vector<SourceFile> kFiles = {{.name = "a.c", .text = "int a(void) { return 1; }\n"},
                                        {.name = "b.c", .text = "int b(void) { return 2; }\n"}};

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  return paths;
}

}  // namespace

TEST_CASE("files become a shared object, and nothing else stays") {
  const Folder folder;  // Of this test alone: others run beside it.
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  const auto built = build(kFiles, {.jobs = 2});
  REQUIRE_MESSAGE(built.ok(), built.status().to_string());
  CHECK(built->files == 2);
  CHECK(built->cached_files == 0);
  REQUIRE(built->bytes.size() > 4);
  CHECK(std::string(reinterpret_cast<const char*>(built->bytes.data()) + 1, 3) == "ELF");
  CHECK(entries(folder.path()).empty());
  ::unsetenv("TMPDIR");
}

TEST_CASE("the cache gives the same code; a damaged entry is none") {
  const Folder folder;
  const ToolchainOptions options{.cache_folder = (folder.path() / "new" / "cache").string()};
  const auto first = build(kFiles, options);
  REQUIRE_MESSAGE(first.ok(), first.status().to_string());
  CHECK(first->cached_files == 0);
  const auto second = build(kFiles, options);
  REQUIRE(second.ok());
  CHECK(second->cached_files == 2);
  CHECK(first->bytes == second->bytes);
  const auto objects = entries(options.cache_folder);
  REQUIRE(objects.size() == 2);
  SUBCASE("changed") {
    std::fstream file(objects[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('\x55');
  }
  SUBCASE("cut short") {
    fs::resize_file(objects[0], fs::file_size(objects[0]) / 2);
  }
  SUBCASE("empty") {
    fs::resize_file(objects[0], 0);
  }
  SUBCASE("another's") {
    fs::copy_file(objects[1], objects[0], fs::copy_options::overwrite_existing);
  }
  SUBCASE("a pipe") {
    fs::remove(objects[0]);
    REQUIRE(::mkfifo(objects[0].c_str(), 0600) == 0);
  }
  const auto third = build(kFiles, options);
  REQUIRE(third.ok());
  CHECK(third->cached_files == 1);
  CHECK(first->bytes == third->bytes);
}

TEST_CASE("other flags or text are other entries") {
  const Folder folder;
  const ToolchainOptions options{.cache_folder = folder.path().string()};
  REQUIRE(build(kFiles, options).ok());
  auto files = kFiles;
  files[0].flags = "-O1";
  const auto built = build(files, options);
  REQUIRE(built.ok());
  CHECK(built->cached_files == 1);
}

TEST_CASE("a cache that cannot be written is none, and why is told") {
  const auto built = build(kFiles, {.cache_folder = "/proc/no/such/cache"});
  REQUIRE_MESSAGE(built.ok(), built.status().to_string());
  CHECK(built->cached_files == 0);
  CHECK(built->cache_problem.find("/proc/no/such/cache") != std::string::npos);
  const auto without = build(kFiles, {});
  REQUIRE(without.ok());
  CHECK(without->cache_problem.empty());
}

TEST_CASE("an interrupted build ends its compilers and leaves no folder") {
  const Folder folder;
  const fs::path temporary = folder.path() / "tmp-E";  // As an option may be called.
  fs::create_directory(temporary);
  ::setenv("TMPDIR", temporary.c_str(), 1);
  // Says who it is, then compiles for ever.
  const std::string compiler =
      folder.script("case \"$*\" in *\" -E \"*) exit 0;; esac\necho $$ > " +
                    (folder.path() / "id").string() + "\nsleep 600");
  const auto has_started = [&] { return fs::exists(folder.path() / "id"); };
  SUBCASE("by the caller") {
    const auto built = build(kFiles, {.compiler = compiler, .is_cancelled = has_started});
    REQUIRE(!built.ok());
    CHECK(built.status().code() == DVT_CANCELLED);
  }
  SUBCASE("by a signal") {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGTERM, SIG_DFL);  // The test's own handler would report it.
      (void)build(kFiles, {.compiler = compiler});
      ::_exit(0);
    }
    while (!has_started()) ::usleep(1000);
    ::kill(child, SIGTERM);
    int result = 0;
    ::waitpid(child, &result, 0);
    CHECK(WIFSIGNALED(result));
    CHECK(WTERMSIG(result) == SIGTERM);
  }
  ::unsetenv("TMPDIR");
  CHECK(fs::is_empty(temporary));
  pid_t id = 0;
  std::ifstream(folder.path() / "id") >> id;
  if (id > 0) CHECK(::kill(id, 0) != 0);
}

TEST_CASE("compilers that fail") {
  const Folder folder;
  SUBCASE("there is none") {
    const auto built = build(kFiles, {.compiler = "/no/such/compiler"});
    REQUIRE(!built.ok());
    CHECK(built.status().code() == DVT_UNSUPPORTED);
    CHECK(built.status().to_string().find("/no/such/compiler") != std::string::npos);
  }
  SUBCASE("bad text") {
    const auto built = build(std::vector<SourceFile>{{.name = "bad.c", .text = "int a = ;\n"}}, {});
    REQUIRE(!built.ok());
    CHECK(built.status().code() == DVT_IO_ERROR);
    const std::string hint = built.status().detail().hint;
    CHECK(hint.find("bad.c") != std::string::npos);
    const std::string log = hint.substr(hint.rfind(' ') + 1);
    REQUIRE(fs::exists(log));
    fs::remove_all(fs::path(log).parent_path());
  }
  SUBCASE("killed") {
    const auto built = build(kFiles, {.compiler = folder.script("kill -9 $$")});
    REQUIRE(!built.ok());
    CHECK(built.status().to_string().find("signal 9") != std::string::npos);
    const std::string hint = built.status().detail().hint;
    fs::remove_all(fs::path(hint.substr(hint.rfind(' ') + 1)).parent_path());
  }
  SUBCASE("never ends") {
    const auto built =
        build(kFiles, {.compiler = folder.script("sleep 1000"), .timeout_seconds = 0.2});
    REQUIRE(!built.ok());
    CHECK(built.status().to_string().find("took longer than") != std::string::npos);
    const std::string hint = built.status().detail().hint;
    fs::remove_all(fs::path(hint.substr(hint.rfind(' ') + 1)).parent_path());
  }
}
