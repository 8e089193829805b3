#include "cli/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "cli/model.hpp"
#include "cli/stage.hpp"

namespace davit::cli {

namespace {

// What a run that looks at the deadline may take to see it and say so.
constexpr double kGraceSeconds = 0.5;

sigset_t only_usr1() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

Watchdog::Watchdog(Session& session, double seconds)
    : session_(session), seconds_(seconds), end_ns_(now_ns() + seconds * 1e9) {
  if (seconds <= 0) return;
  // Signals go to the main thread, which may be holding them back.
  const SignalsHeld inherited;
  const sigset_t usr1 = only_usr1();
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);  // `inherited` gives back what was.
  thread_ = std::thread([this] { wait(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    disarmed_ = true;
  }
  disarmed_signal_.notify_one();
  thread_.join();
}

double Watchdog::seconds_left() const {
  return std::max(end_ns_ - now_ns(), 0.0) / 1e9;
}

void Watchdog::wait() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> patience(seconds_ + kGraceSeconds);
  const bool disarmed = disarmed_signal_.wait_for(lock, patience, [this] { return disarmed_; });
  if (disarmed) return;
  say_waits();
  session_.finish_now(failure());
}

void Watchdog::ask(std::function<std::string()> waits) {
  const std::lock_guard lock(waits_mutex_);
  waits_ = std::move(waits);
}

void Watchdog::say_waits() {
  const std::lock_guard lock(waits_mutex_);
  if (waits_) session_.log("{}\n", waits_());
}

Status Watchdog::failure() {
  while (noting_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  ErrorDetail detail{.code = DVT_TIMEOUT,
                     .message = fmt::format("not done after {} s (--timeout)", seconds_)};
  if (last_origin_ != nullptr) {
    detail.hint = fmt::format("the node that completed last is {} ({})", last_origin_, last_op_);
  } else {
    detail.hint = "no node has completed, or the run was not observed";
  }
  noting_.clear(std::memory_order_release);
  return Status(std::move(detail));
}

WaitsOnSignal::WaitsOnSignal(Watchdog& watchdog) {
  const sigset_t set = only_usr1();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, &watchdog, set] {
    for (int number = 0; sigwait(&set, &number) == 0 && !over_.load();) watchdog.say_waits();
  });
}

// The signal stays blocked: one that comes too late ends nothing.
WaitsOnSignal::~WaitsOnSignal() {
  over_.store(true);
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

}  // namespace davit::cli
