// command.hpp: what a sub-command is.
//
// Threads  One thread; see Session for the exception.
// Memory   A command owns the variables that its options fill.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "cli/options.hpp"
#include "cli/session.hpp"

namespace davit::cli {

class Command {
 public:
  virtual ~Command() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string_view summary() const = 0;
  // Declares every option but those of Session::add_report_options().
  virtual void add_options(OptionSet& options) = 0;
  // True when stdout is to carry nothing but the result itself. Called after parsing.
  [[nodiscard]] virtual bool writes_document() const { return false; }
  // Does the work. Echoes the settings itself, as soon as all of them are known.
  virtual Status run(Session& session, OptionSet& options) = 0;
};

std::unique_ptr<Command> make_compile_command();
std::unique_ptr<Command> make_compare_command();
std::unique_ptr<Command> make_tune_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_dump_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_verify_command();
std::unique_ptr<Command> make_simulate_command();
std::unique_ptr<Command> make_stress_command();
std::unique_ptr<Command> make_cache_command();
std::unique_ptr<Command> make_emit_c_command();
std::unique_ptr<Command> make_sign_command();
std::unique_ptr<Command> make_doctor_command();
std::unique_ptr<Command> make_version_command();

}  // namespace davit::cli
