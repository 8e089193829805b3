// watchdog.hpp: ends the process with exit code 6 when a deadline passes.
//
// Threads  One thread of its own while armed. note() may be called by any one thread.
// Memory   Borrows the session. Must be gone before the main thread calls Session::finish().
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cli/session.hpp"

namespace davit::cli {

class Watchdog {
 public:
  // Armed at once; seconds <= 0: never fires and has no thread.
  Watchdog(Session& session, double seconds);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // The node that completed last, for the report. Strings must live as long as the watchdog.
  void note(const char* origin, const char* op) {
    last_op_.store(op, std::memory_order_relaxed);
    last_origin_.store(origin, std::memory_order_release);  // Pairs with fire().
  }

 private:
  void wait(double seconds);
  [[noreturn]] void fire(double seconds);

  Session& session_;
  std::atomic<const char*> last_origin_{nullptr};
  std::atomic<const char*> last_op_{nullptr};
  std::mutex mutex_;
  std::condition_variable disarmed_signal_;
  bool disarmed_ = false;
  std::thread thread_;
};

}  // namespace davit::cli
