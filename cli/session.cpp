#include "cli/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "cli/build_info.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::cli {
namespace {

const char* exit_name(Exit exit) {
  switch (exit) {
    case Exit::kOk:
      return "ok";
    case Exit::kFailure:
      return "failure";
    case Exit::kUsage:
      return "usage";
    case Exit::kInvalid:
      return "invalid model or image";
    case Exit::kUnsupported:
      return "unsupported";
    case Exit::kOutOfMemory:
      return "out of memory";
    case Exit::kTimeout:
      return "timeout";
    case Exit::kWorkerDied:
      return "worker died";
  }
  return "failure";
}

// The first line of a message that may have several.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// What happened, in one line: place, message, and the tensor unless the message names it. The full
// text is in the log, so a list of a thousand nodes is cut here.
std::string reason_of(const ErrorDetail& detail) {
  std::string reason;
  if (!detail.node.empty()) {
    reason =
        detail.op.empty() ? detail.node + ": " : fmt::format("{} ({}): ", detail.node, detail.op);
  }
  reason += first_line(detail.message);
  if (!detail.tensor.empty() && detail.message.find(detail.tensor) == std::string::npos) {
    reason += fmt::format(" (tensor {})", detail.tensor);
  }
  constexpr size_t kBytesMax = 400;
  if (reason.size() > kBytesMax) {
    size_t end = kBytesMax;
    while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xC0U) == 0x80U) --end;
    reason = reason.substr(0, end) + " ...";
  }
  return printable(reason);
}

// All that is known, one fact a line.
std::string details_of(const ErrorDetail& detail, const std::string& stage) {
  std::string text = fmt::format("error: {}: {}\n", stage, detail.message);
  const std::pair<const char*, const std::string*> facts[] = {
      {"node", &detail.node},         {"operator", &detail.op}, {"tensor", &detail.tensor},
      {"expected", &detail.expected}, {"got", &detail.got},     {"hint", &detail.hint},
  };
  for (const auto& [label, value] : facts) {
    if (!value->empty()) text += fmt::format("  {:<9} {}\n", label, printable(*value));
  }
  return text;
}

// True for an argument that was wrong because of an operator of the model, not of the user's.
bool is_about_model(const ErrorDetail& detail) {
  if (detail.op.empty()) return false;
  switch (detail.stage) {
    case DVT_STAGE_PARSE:
    case DVT_STAGE_CHECK:
    case DVT_STAGE_INFER:
    case DVT_STAGE_OPTIMISE:
    case DVT_STAGE_LOWER:
    case DVT_STAGE_RUN:
      return true;
    default:
      return false;
  }
}

}  // namespace

Exit exit_for(const ErrorDetail& detail) {
  switch (detail.code) {
    case DVT_OK:
      return Exit::kOk;
    case DVT_INVALID_ARGUMENT:
      return is_about_model(detail) ? Exit::kInvalid : Exit::kUsage;
    case DVT_INVALID_IMAGE:
    case DVT_VERSION_MISMATCH:
      return Exit::kInvalid;
    case DVT_UNSUPPORTED:
      return Exit::kUnsupported;
    case DVT_OUT_OF_MEMORY:
    case DVT_OUT_OF_RESOURCE:
      return Exit::kOutOfMemory;
    case DVT_TIMEOUT:
      return Exit::kTimeout;
    default:
      return Exit::kFailure;
  }
}

Session::Session(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

void Session::add_report_options(OptionSet& options) {
  options.group("Report");
  options.add("--json", json_path_, "Write the result as JSON to this file", "no file",
              FileUse::kWritten);
  options.add("--quiet", quiet_, "No log on stderr; results and errors only", "log shown");
  options.add("--verbose", verbose_, "More log", "short log");
}

Status Session::check_files(const OptionSet& options, std::span<const std::string> also_read) {
  const auto conflict = options.file_conflict(also_read);
  if (!conflict) return {};
  if (conflict->written == "--json" || conflict->other == "--json") {
    const std::lock_guard lock(settings_mutex_);
    json_path_.clear();
  }
  const std::string written = fmt::format("{} {}", conflict->written, conflict->written_path);
  const std::string other = fmt::format("{} {}", conflict->other, conflict->other_path);
  if (conflict->is_in_folder) {
    return usage_error(
        fmt::format("{} is in {}, where files of such names are written", other, written),
        fmt::format("give {} a folder of its own", conflict->written));
  }
  return usage_error(fmt::format("{} and {} are one file", written, other),
                     fmt::format("give {} a path of its own", conflict->written));
}

void Session::document_on_stdout() {
  frame_ = stderr;
  set_verdict_fd(STDERR_FILENO);
}

void Session::write(std::FILE* stream, const std::string& text) {
  // Both streams often end in one terminal or file: keep their order.
  if (stream == stderr) (void)std::fflush(stdout);
  (void)std::fwrite(text.data(), 1, text.size(), stream);
  if (stream == stdout) return;
  (void)std::fflush(stream);
}

void Session::print_first_line(const std::string& command) {
  command_ = command;
  std::string line = fmt::format("davit {} (git {}): davit", kVersion, kGitId);
  for (const std::string& argument : arguments_) line += " " + shell_quote(argument);
  write(frame_, printable(line) + "\n");
  (void)std::fflush(frame_);
}

void Session::record_settings(const OptionSet& options) {
  const std::lock_guard lock(settings_mutex_);
  settings_ = options.effective();
}

void Session::echo_settings(const OptionSet& options) {
  record_settings(options);
  std::string group;
  for (const Setting& setting : options.effective()) {
    if (setting.group != group) {
      group = setting.group;
      log("=== {} options ===\n", group);
    }
    std::string note;
    if (setting.is_default) {
      note = setting.why.empty() ? "  (default)" : fmt::format("  (default: {})", setting.why);
    }
    log("  {:<16} {}{}\n", setting.name, printable(setting.value), note);
  }
}

Json Session::document(const Status& status, const std::string& stage, Exit exit,
                       const Json& result) {
  Json settings = Json::array();
  const std::lock_guard lock(settings_mutex_);
  for (const Setting& setting : settings_) {
    settings.push_back({{"group", setting.group},
                        {"name", setting.name},
                        {"value", setting.value},
                        {"default", setting.is_default},
                        {"why", setting.why}});
  }
  Json document = {{"schema", "davit.cli"},
                   {"schema_version", kJsonSchemaVersion},
                   {"tool", {{"name", "davit"}, {"version", kVersion}, {"git", kGitId}}},
                   {"command", command_},
                   {"arguments", arguments_},
                   {"settings", std::move(settings)},
                   {"status", exit == Exit::kOk ? "PASSED" : "FAILED"},
                   {"exit_code", static_cast<int>(exit)},
                   {"failure", nullptr},
                   {"result", result}};
  if (exit == Exit::kOk) return document;
  Json failure = {{"kind", exit_name(exit)}, {"stage", stage}};
  if (status.ok()) {
    failure["message"] = mismatch_.value_or("");
  } else {
    const ErrorDetail& detail = status.detail();
    failure["code"] = code_name(detail.code);
    failure["message"] = detail.message;
    failure["node"] = detail.node;
    failure["op"] = detail.op;
    failure["tensor"] = detail.tensor;
    failure["expected"] = detail.expected;
    failure["got"] = detail.got;
    failure["hint"] = detail.hint;
  }
  document["failure"] = std::move(failure);
  return document;
}

int Session::finish(const Status& status) {
  return finish_with(status, result_);
}

void Session::finish_now(const Status& status) {
  const int code = finish_with(status, Json::object());
  _exit(code);
}

void Session::set_node_hint(std::string hint) {
  const std::lock_guard lock(settings_mutex_);
  node_hint_ = std::move(hint);
}

Status Session::with_hint(const Status& status) {
  if (status.ok()) return {};
  ErrorDetail detail = status.detail();
  const bool is_of_node = !detail.node.empty() &&
                          (detail.code == DVT_INVALID_ARGUMENT || detail.code == DVT_KERNEL_FAILED);
  const std::lock_guard lock(settings_mutex_);
  if (is_of_node && detail.hint.empty()) detail.hint = node_hint_;
  return Status(std::move(detail));
}

int Session::finish_with(const Status& ended, const Json& result) {
  // Whoever comes second waits until the process ends.
  while (finishing_.exchange(true)) pause();
  const Status status = with_hint(ended);
  Exit exit = Exit::kOk;
  std::string stage = current_stage();
  std::string reason;
  if (!status.ok()) {
    const ErrorDetail& detail = status.detail();
    exit = exit_for(detail);
    if (detail.stage != DVT_STAGE_NONE) stage = stage_name(detail.stage);
    if (exit == Exit::kUsage && detail.stage == DVT_STAGE_NONE) stage = "usage";
    reason = reason_of(detail);
    write(stderr, details_of(detail, stage));
  } else if (mismatch_) {
    exit = Exit::kFailure;
    reason = printable(*mismatch_);
  }
  (void)std::fflush(stdout);
  if (exit == Exit::kOk && std::ferror(stdout) != 0) {
    exit = Exit::kFailure;
    stage = "report";
    reason = "cannot write to stdout";
  }
  const std::string json_path = [&] {
    const std::lock_guard lock(settings_mutex_);
    return json_path_;
  }();
  if (!json_path.empty()) {
    // Names from a model need not be UTF-8; a document with a replacement is better than none.
    const std::string text =
        document(status, stage, exit, result).dump(2, ' ', false, Json::error_handler_t::replace);
    const Status written = write_text(json_path, text + "\n");
    if (!written.ok()) {
      write(stderr, details_of(written.detail(), "report"));
      if (exit == Exit::kOk) {
        exit = Exit::kFailure;
        stage = "report";
        reason = reason_of(written.detail());
      }
    }
  }
  write(frame_, exit == Exit::kOk ? "PASSED\n" : fmt::format("FAILED: {}: {}\n", stage, reason));
  (void)std::fflush(frame_);
  return static_cast<int>(exit);
}

Status usage_error(std::string message, std::string hint) {
  return Status(ErrorDetail{
      .code = DVT_INVALID_ARGUMENT, .message = std::move(message), .hint = std::move(hint)});
}

Status write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  const SignalsHeld held;
  return image::write_file_atomically(path, bytes);
}

Status write_text(const std::string& path, std::string_view text) {
  return write_bytes(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace davit::cli
