#include "cli/watchdog.hpp"

#include <fmt/format.h>

#include <chrono>

#include "cli/stage.hpp"

namespace davit::cli {

Watchdog::Watchdog(Session& session, double seconds) : session_(session) {
  if (seconds <= 0) return;
  // Signals go to the main thread, which may be holding them back.
  const SignalsHeld inherited;
  thread_ = std::thread([this, seconds] { wait(seconds); });
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

void Watchdog::wait(double seconds) {
  std::unique_lock lock(mutex_);
  const bool disarmed = disarmed_signal_.wait_for(lock, std::chrono::duration<double>(seconds),
                                                  [this] { return disarmed_; });
  if (!disarmed) fire(seconds);
}

void Watchdog::fire(double seconds) {
  const char* origin = last_origin_.load(std::memory_order_acquire);
  ErrorDetail detail{.code = DVT_TIMEOUT,
                     .message = fmt::format("not done after {} s (--timeout)", seconds)};
  if (origin != nullptr) {
    detail.hint = fmt::format("the node that completed last is {} ({})", origin,
                              last_op_.load(std::memory_order_relaxed));
  } else {
    detail.hint = "no node has completed, or the run was not observed";
  }
  session_.finish_now(Status(std::move(detail)));
}

}  // namespace davit::cli
