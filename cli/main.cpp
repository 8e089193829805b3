// The davit command line tool: picks a sub-command, parses its options, runs it.

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <typeinfo>
#include <vector>

#include "cli/build_info.hpp"
#include "cli/command.hpp"
#include "cli/session.hpp"
#include "cli/stage.hpp"

namespace davit::cli {
namespace {

struct Entry {
  std::unique_ptr<Command> command;
  CLI::App* app;
  std::unique_ptr<OptionSet> options;
};

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

// CLI11 takes the next argument as the value of "--option="; people mean an empty one. No option
// here has a use for that.
Status check_empty_values(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument.size() > 3 && argument.starts_with("--") &&
        argument.find('=') == argument.size() - 1) {
      return usage_error(fmt::format("{} needs a value", argument.substr(0, argument.size() - 1)));
    }
  }
  return {};
}

// What was wrong with the arguments of `entry`.
Status parse_failure(const Entry& entry, const CLI::ParseError& error) {
  const std::string hint = fmt::format("davit {} --help", entry.command->name());
  for (const std::string& argument : entry.app->remaining()) {
    if (argument.starts_with("-")) {
      const std::string name = argument.substr(0, argument.find('='));
      return usage_error(
          fmt::format("unknown option {}{}", name, did_you_mean(name, entry.options->names())),
          hint);
    }
    return usage_error(fmt::format("unexpected argument '{}'", argument), hint);
  }
  return usage_error(error.what(), hint);
}

Status no_such_command(const CLI::App& app, const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.emplace_back(entry.command->name());
  const std::vector<std::string> extra = app.remaining();
  if (extra.empty()) {
    return usage_error("a sub-command is needed: " + fmt::format("{}", fmt::join(names, ", ")),
                       "davit --help");
  }
  return usage_error(
      fmt::format("unknown {} '{}'{}", extra.front().starts_with("-") ? "option" : "sub-command",
                  extra.front(), did_you_mean(extra.front(), names)),
      "davit --help");
}

Status run_command(Session& session, Entry& entry) {
  try {
    return entry.command->run(session, *entry.options);
  } catch (const std::bad_alloc&) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_NONE, "the host is out of memory");
  } catch (const std::exception& exception) {
    return Status(DVT_INTERNAL, DVT_STAGE_NONE,
                  fmt::format("unexpected exception: {}", exception.what()));
  }
}

std::vector<Entry> make_entries(CLI::App& app, Session& session) {
  std::vector<Entry> entries;
  for (const auto make :
       {make_compile_command, make_tune_command, make_run_command, make_bench_command,
        make_compare_command, make_dump_command, make_plan_command, make_verify_command,
        make_simulate_command, make_stress_command, make_cache_command, make_emit_c_command,
        make_sign_command, make_doctor_command, make_version_command}) {
    std::unique_ptr<Command> command = make();
    CLI::App* sub =
        app.add_subcommand(std::string(command->name()), std::string(command->summary()));
    auto options = std::make_unique<OptionSet>(*sub);
    command->add_options(*options);
    session.add_report_options(*options);
    entries.push_back({std::move(command), sub, std::move(options)});
  }
  return entries;
}

// --help and --version: what they print is the result, so it must arrive.
int exit_with_text(const CLI::App& app, const CLI::Success& success) {
  const int code = app.exit(success);
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0) return code;
  fmt::print(stderr, "error: cannot write to stdout\n");
  return static_cast<int>(Exit::kFailure);
}

bool main_has_begun = false;

// With write(2): stdio may have no memory for its buffers.
void say(int descriptor, const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(descriptor, text, std::strlen(text));
}

void say_out_of_memory() {
  say(STDERR_FILENO, "davit: the host is out of memory\n");
  say(STDOUT_FILENO, "FAILED: ");
  say(STDOUT_FILENO, current_stage());
  say(STDOUT_FILENO, ": the host is out of memory\n");
}

// An exception that nobody catches: at the start there may be no memory even for that, and then it
// has no type.
[[noreturn]] void end_without_memory() noexcept {
  const std::type_info* type = abi::__cxa_current_exception_type();
  const bool no_memory = type == nullptr ? !main_has_begun : *type == typeid(std::bad_alloc);
  if (!no_memory) std::abort();
  say_out_of_memory();
  ::_exit(static_cast<int>(Exit::kOutOfMemory));
}

int main_with(const std::vector<std::string>& arguments) {
  Session session(arguments);
  CLI::App app("Compiles models into execute-graph images, and runs, measures and inspects them.",
               "davit");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("davit ") + kVersion + " (git " + kGitId + ")");
  std::vector<Entry> entries = make_entries(app, session);
  const auto chosen = [&]() -> Entry* {
    const auto it = std::find_if(entries.begin(), entries.end(),
                                 [](const Entry& entry) { return entry.app->parsed(); });
    return it == entries.end() ? nullptr : &*it;
  };

  Status status = check_empty_values(arguments);
  if (status.ok()) {
    try {
      app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    } catch (const CLI::Success& success) {  // --help, --version
      return exit_with_text(app, success);
    } catch (const CLI::ParseError& error) {
      const Entry* entry = chosen();
      status = entry == nullptr ? no_such_command(app, entries) : parse_failure(*entry, error);
    }
  }
  Entry* entry = chosen();
  if (entry != nullptr && status.ok() && entry->command->writes_document()) {
    session.document_on_stdout();
  }
  if (entry != nullptr && status.ok()) status = session.check_files(*entry->options);
  session.print_first_line(entry == nullptr ? "" : std::string(entry->command->name()));
  if (status.ok()) {
    status = entry == nullptr ? no_such_command(app, entries) : run_command(session, *entry);
  }
  return session.finish(status);
}

}  // namespace
}  // namespace davit::cli

// The loader calls it before anything else of this process, libraries included: their initialisers,
// too, may find no memory, and then no handler of main()'s is there yet.
[[gnu::section(".preinit_array"), gnu::used]] static void (*const install_terminate_handler)() =
    [] { std::set_terminate(davit::cli::end_without_memory); };

int main(int argc, char** argv) {
  davit::cli::main_has_begun = true;
  davit::cli::install_signal_handlers(STDOUT_FILENO);
  try {
    return davit::cli::main_with(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc&) {
    davit::cli::say_out_of_memory();
    return static_cast<int>(davit::cli::Exit::kOutOfMemory);
  } catch (const std::exception& exception) {
    fmt::print(stderr, "davit: {}\n", exception.what());
    fmt::print("FAILED: {}: {}\n", davit::cli::current_stage(), exception.what());
    return static_cast<int>(davit::cli::Exit::kFailure);
  }
}
