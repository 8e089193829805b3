// stage.hpp: what the tool is doing right now, for the last words of a crashed process.
//
// Threads  set_stage() from one thread at a time; current_stage() from any thread and from signal
//          handlers: it reads one atomic pointer to a buffer that is never freed.
// Trust    Stage names may hold text of a model; unprintable bytes become '?'.
// Memory   Two static buffers; nothing is allocated.
#pragma once

#include <csignal>
#include <string_view>

namespace davit::cli {

// Names the stage that starts: "compile", "load", "run". Cut at 120 bytes.
void set_stage(std::string_view name);

// The stage last set; "start" before the first.
[[nodiscard]] const char* current_stage();

// On SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT: writes the signal and the stage to stderr and the
// FAILED line to `verdict_fd`, then lets the previous handler (core dump, sanitizer) have the
// signal. Runs on its own stack, so that a stack overflow is reported too. On SIGINT, SIGTERM and
// SIGHUP: the FAILED line, then the default action. SIGXFSZ is ignored: a write beyond the limit of
// file sizes fails instead, and the file that was begun is removed.
void install_signal_handlers(int verdict_fd);

// Where the handlers write the FAILED line from now on: STDOUT_FILENO or STDERR_FILENO.
void set_verdict_fd(int fd);

// While one lives, this thread and those it starts leave SIGINT, SIGTERM and SIGHUP pending: for
// the moments between creating a temporary file and renaming or removing it.
class SignalsHeld {
 public:
  SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld();

 private:
  sigset_t previous_;
};

}  // namespace davit::cli
