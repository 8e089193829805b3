// session.hpp: one run of the tool: its output rules, its result, its exit code.
//
// Threads  The main thread. finish_now() may be called by another one at any time; if finish() or
//          finish_now() is called again, that call never returns, because the first ends the
//          process.
// Trust    Text from models passes printable() before it reaches a terminal.
// Memory   Owns the JSON document and the settings.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "cli/options.hpp"
#include "cli/report.hpp"
#include "exec/api_error.hpp"

namespace davit::cli {

// Exit codes of the process; stable, documented in docs/cli.md.
enum class Exit : int {
  kOk = 0,
  kFailure = 1,  // Anything without a code of its own; also a mismatch with --expect.
  kUsage = 2,
  kInvalid = 3,      // Invalid model or image.
  kUnsupported = 4,  // Valid, but with operators or features Davit lacks.
  kOutOfMemory = 5,
  kTimeout = 6,
  kWorkerDied = 7,
};
Exit exit_for(const ErrorDetail& detail);

// The version of the JSON documents that --json writes; see docs/cli.md.
inline constexpr int kJsonSchemaVersion = 1;

class Session {
 public:
  // `arguments` are those after the program's name.
  explicit Session(std::vector<std::string> arguments);

  // ---- Options every sub-command has ------------------------------------------------------
  void add_report_options(OptionSet& options);
  [[nodiscard]] bool verbose() const { return verbose_; }
  // Refuses a command that would overwrite a file that it reads, or writes under another name; see
  // OptionSet::file_conflict(). If that file is the document's, no document is written.
  Status check_files(const OptionSet& options, std::span<const std::string> also_read = {});
  // Frame lines go to stderr, since stdout carries a document.
  void document_on_stdout();

  // ---- Output -----------------------------------------------------------------------------
  // First line: tool, version, git id, full command.
  void print_first_line(const std::string& command);
  // Effective options, grouped, defaults marked, to the log.
  void echo_settings(const OptionSet& options);
  // Settings for the JSON document, when some became known after the echo.
  void record_settings(const OptionSet& options);

  // Results: stdout.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    write(stdout, fmt::format(format, std::forward<Args>(args)...));
  }
  // Log: stderr; silent under --quiet.
  template <class... Args>
  void log(fmt::format_string<Args...> format, Args&&... args) {
    if (!quiet_) write(stderr, fmt::format(format, std::forward<Args>(args)...));
  }
  // Log under --verbose only.
  template <class... Args>
  void detail(fmt::format_string<Args...> format, Args&&... args) {
    if (verbose_) write(stderr, fmt::format(format, std::forward<Args>(args)...));
  }
  // Always on stderr.
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    write(stderr, "warning: " + fmt::format(format, std::forward<Args>(args)...) + "\n");
  }

  // The "result" member of the JSON document.
  [[nodiscard]] Json& result() { return result_; }

  // ---- The end ----------------------------------------------------------------------------
  // What to do when a node fails from here on and its error has no hint.
  void set_node_hint(std::string hint);
  // Outputs differ from what was expected: the run ends with exit code 1.
  void set_mismatch(std::string message) { mismatch_ = std::move(message); }
  // Writes --json, the error's details and the last line; returns the exit code.
  int finish(const Status& status);
  // The same from a thread other than the main one, then ends the process at once. The document has
  // an empty result, because the main thread may be writing to it.
  [[noreturn]] void finish_now(const Status& status);

 private:
  static void write(std::FILE* stream, const std::string& text);
  int finish_with(const Status& ended, const Json& result);
  [[nodiscard]] Status with_hint(const Status& status);  // node_hint_, where it applies.
  [[nodiscard]] Json document(const Status& status, const std::string& stage, Exit exit,
                              const Json& result);

  std::vector<std::string> arguments_;
  std::string command_;
  std::mutex settings_mutex_;  // For what finish_now() reads: the next two and json_path_.
  std::string node_hint_;
  std::vector<Setting> settings_;
  Json result_ = Json::object();
  std::optional<std::string> mismatch_;
  std::FILE* frame_ = stdout;
  bool quiet_ = false;
  bool verbose_ = false;
  std::string json_path_;
  std::atomic<bool> finishing_ = false;
};

// An error in how the tool is used: exit code 2.
Status usage_error(std::string message, std::string hint = "");

using exec::status_of;

// Bytes to `path`, complete or not at all, also when the tool is interrupted.
Status write_bytes(const std::string& path, std::span<const std::byte> bytes);
Status write_text(const std::string& path, std::string_view text);

}  // namespace davit::cli
