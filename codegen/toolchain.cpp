#include "codegen/toolchain.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/files.hpp"
#include "codegen/cache.hpp"

extern char** environ;

namespace davit::codegen {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

// Fused multiply-adds are wanted, and the order of sums is the text's: -ffast-math would change it.
constexpr const char* kCompileFlags =
    "-std=gnu11 -O3 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math "
    "-ffp-contract=fast -fno-stack-protector -fno-asynchronous-unwind-tables -w -c";
constexpr const char* kLinkFlags = "-shared -s -Wl,--build-id=none -Wl,-z,noexecstack";

Words split(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status io_error(const std::string& message) {
  return {DVT_IO_ERROR, DVT_STAGE_LOWER, message};
}

bool write_bytes(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
  return file.good();
}

std::optional<std::string> read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) return std::nullopt;
  return std::move(content).str();
}

// A folder that goes with the object, unless keep() was called.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "davit-code-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) {
      path_ = pattern;
    } else {
      reason_ =
          fmt::format("cannot make the temporary folder {}: {}", pattern, std::strerror(errno));
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty() && !kept_) fs::remove_all(path_, error);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }  // Empty: see reason().
  [[nodiscard]] const std::string& reason() const { return reason_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  std::string reason_;
  bool kept_ = false;
};

// Holds the signals that end a program back, in this thread, and gives them their way at the end.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigemptyset(&held_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      // One that is ignored (nohup) would be pending for ever once it is held.
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&held_, number);
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  [[nodiscard]] const sigset_t& before() const { return before_; }
  // One that the thread would have got is waiting.
  [[nodiscard]] bool is_pending() const {
    sigset_t pending;
    sigpending(&pending);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      if (sigismember(&held_, number) == 1 && sigismember(&pending, number) == 1 &&
          sigismember(&before_, number) == 0) {
        return true;
      }
    }
    return false;
  }

 private:
  sigset_t held_{}, before_{};
};

// ---- Processes
// -----------------------------------------------------------------------------------

struct Process {
  pid_t id = -1;
  size_t file = 0;
  Clock::time_point began;
  std::string command;
  fs::path log;
};

std::string joined(const Words& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// Output goes to the log. The child is a group of its own, so that all it starts ends with it.
Result<Process> start(const Words& words, const fs::path& log, const sigset_t& signals) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &signals);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Process process{.began = Clock::now(), .command = joined(words), .log = log};
  const int error =
      ::posix_spawnp(&process.id, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return process;
  Status status(DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                "cannot start the C compiler '" + words[0] + "': " + std::strerror(error));
  status.detail().hint = "install one, name one with CC, or compile with --isa none";
  return status;
}

void stop(const Process& process) {
  ::kill(-process.id, SIGKILL);
  ::waitpid(process.id, nullptr, 0);
}

// What a process that ended badly left behind.
Status failure(const Process& process, const std::string& how) {
  const std::string program = process.command.substr(0, process.command.find(' '));
  Status status = io_error(fmt::format("the C compiler '{}' {}", program, how));
  std::string log = read_bytes(process.log).value_or("");
  constexpr size_t kTextMax = 400;
  status.detail().got = log.substr(0, log.find('\n')).substr(0, kTextMax);
  status.detail().hint =
      fmt::format("{}; its output is in {}", process.command, process.log.string());
  return status;
}

// Whether the process has ended; an error when it ended badly or runs for too long.
Result<bool> has_ended(const Process& process, double timeout_seconds) {
  int result = 0;
  const pid_t ended = ::waitpid(process.id, &result, WNOHANG);
  if (ended == process.id) {
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return true;
    if (WIFSIGNALED(result)) {
      return failure(process, fmt::format("was killed by signal {}", WTERMSIG(result)));
    }
    return failure(process, fmt::format("failed with {}", WEXITSTATUS(result)));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - process.began).count();
  if (seconds < timeout_seconds) return false;
  stop(process);
  return failure(process, fmt::format("took longer than {} s", timeout_seconds));
}

// ---- Building
// ------------------------------------------------------------------------------------

class Builder {
 public:
  Builder(std::span<const SourceFile> files, const ToolchainOptions& options)
      : files_(files), options_(options), cache_(options.cache_folder) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder() {
    for (const Process& process : running_) stop(process);
  }

  Result<BuiltCode> run() {
    if (folder_.path().empty()) return io_error(folder_.reason());
    Status status = identify();
    if (status.ok()) status = compile();
    code_.cache_problem = cache_.problem();
    auto code = status.ok() ? link() : Result<BuiltCode>(std::move(status));
    if (!code.ok() && code.status().code() == DVT_IO_ERROR) folder_.keep();
    return code;
  }

 private:
  // The compiler's own words on what it is.
  Status identify() {
    compiler_ = split(options_.compiler.empty() ? environment("CC") : options_.compiler);
    if (compiler_.empty()) compiler_ = {"cc"};
    Words words = compiler_;
    words.insert(words.end(), {"-v", "-E", "-x", "c", "/dev/null"});
    const fs::path log = folder_.path() / "compiler.txt";
    if (Status status = finish(words, log); !status.ok()) return status;
    identity_ = joined(compiler_) + read_bytes(log).value_or("");
    return {};
  }

  // Starts one process and waits for it.
  Status finish(const Words& words, const fs::path& log) {
    auto process = start(words, log, signals_.before());
    if (!process.ok()) return std::move(process.status());
    for (;;) {
      auto ended = has_ended(*process, options_.timeout_seconds);
      if (!ended.ok()) return std::move(ended.status());
      if (*ended) return {};
      if (is_cancelled()) {
        stop(*process);
        return cancelled();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  [[nodiscard]] bool is_cancelled() const {
    return signals_.is_pending() || (options_.is_cancelled && options_.is_cancelled());
  }
  static Status cancelled() {
    return {DVT_CANCELLED, DVT_STAGE_LOWER, "the C compiler was stopped: interrupted"};
  }

  [[nodiscard]] fs::path object_of(size_t file) const {
    return folder_.path() / (files_[file].name + ".o");
  }

  Status start_file(size_t file) {
    const fs::path source = folder_.path() / files_[file].name;
    if (!write_bytes(source, files_[file].text)) return io_error("cannot write " + source.string());
    Words words = compiler_;
    for (const std::string& flags : {std::string(kCompileFlags), files_[file].flags}) {
      const Words more = split(flags);
      words.insert(words.end(), more.begin(), more.end());
    }
    // Relative, so that no name of a folder gets into the object.
    words.insert(words.end(), {source.string(), "-o", object_of(file).string()});
    auto process = start(words, source.string() + ".log", signals_.before());
    if (!process.ok()) return std::move(process.status());
    process->file = file;
    running_.push_back(std::move(*process));
    return {};
  }

  [[nodiscard]] std::string key_of(const SourceFile& file) const {
    return digest_of(
        fmt::format("{}\n{}\n{}\n{}", identity_, kCompileFlags, file.flags, file.text));
  }

  Status compile() {
    std::vector<size_t> missing;
    keys_.resize(files_.size());
    for (size_t i = 0; i < files_.size(); ++i) {
      keys_[i] = key_of(files_[i]);
      const auto object = cache_.find(keys_[i]);
      if (!object) {
        missing.push_back(i);
      } else if (!write_bytes(object_of(i), *object)) {
        return io_error("cannot write " + object_of(i).string());
      }
    }
    code_.files = files_.size();
    code_.cached_files = files_.size() - missing.size();
    size_t next = 0;
    size_t done = code_.cached_files;
    while (done < files_.size()) {
      while (next < missing.size() && running_.size() < std::max(options_.jobs, 1U)) {
        if (Status status = start_file(missing[next++]); !status.ok()) return status;
      }
      if (Status status = collect(done); !status.ok()) return status;
      if (is_cancelled()) return cancelled();  // What runs is stopped with the builder.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return {};
  }

  // Takes in what has been compiled since the last call.
  Status collect(size_t& done) {
    for (size_t i = 0; i < running_.size();) {
      auto ended = has_ended(running_[i], options_.timeout_seconds);
      if (!ended.ok() || *ended) {
        const size_t file = running_[i].file;
        running_.erase(running_.begin() + ptrdiff_t(i));
        if (!ended.ok()) return std::move(ended.status());
        const auto object = read_bytes(object_of(file));
        if (!object) return io_error("the C compiler wrote no " + object_of(file).string());
        cache_.put(keys_[file], *object);
        if (options_.on_progress)
          options_.on_progress(++done, files_.size());
        else
          ++done;
        continue;
      }
      ++i;
    }
    return {};
  }

  Result<BuiltCode> link() {
    const fs::path output = folder_.path() / "code.so";
    Words words = compiler_;
    const Words flags = split(kLinkFlags);
    words.insert(words.end(), flags.begin(), flags.end());
    for (size_t i = 0; i < files_.size(); ++i) words.push_back(object_of(i).string());
    words.insert(words.end(), {"-lm", "-o", output.string()});
    Status status = finish(words, folder_.path() / "link.log");
    if (!status.ok()) return status;
    const auto bytes = read_bytes(output);
    if (!bytes) return io_error("the C compiler wrote no " + output.string());
    const auto* begin = reinterpret_cast<const std::byte*>(bytes->data());
    code_.bytes.assign(begin, begin + bytes->size());
    return std::move(code_);
  }

  const SignalsHeld signals_;  // Goes last: nothing is left when a signal has its way.
  const std::span<const SourceFile> files_;
  const ToolchainOptions& options_;
  Cache cache_;
  TemporaryFolder folder_;
  Words compiler_;
  std::string identity_;
  std::vector<std::string> keys_;
  std::vector<Process> running_;
  BuiltCode code_;
};

}  // namespace

Result<BuiltCode> build(std::span<const SourceFile> files, const ToolchainOptions& options) {
  return Builder(files, options).run();
}

std::string default_cache_folder() {
  if (const std::string folder = environment("DAVIT_CACHE_DIR"); !folder.empty()) return folder;
  if (const std::string folder = environment("XDG_CACHE_HOME"); !folder.empty()) {
    return folder + "/davit";
  }
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/davit";
}

}  // namespace davit::codegen
