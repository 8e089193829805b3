// watchdog.hpp: ends the process with exit code 6 when a deadline passes.
//
// A run that is given the same deadline ends by itself, with an error that names the next node. The
// watchdog is for what does not look at deadlines: it waits a little longer.
//
// Whoever ends a run because its time is up also says who waits for whom; so does SIGUSR1 while a
// WaitsOnSignal lives.
//
// Threads  One thread of its own while armed. note() may be called by any thread.
// Memory   Borrows the session. Must be gone before the main thread calls Session::finish().
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "cli/session.hpp"
#include "davit/davit.h"

namespace davit::cli {

class Watchdog {
 public:
  // Armed at once, and fires some time after `seconds`; <= 0: never, and has no thread.
  Watchdog(Session& session, double seconds);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // What says who waits for whom; has to be callable from any thread until it is replaced.
  void ask(std::function<std::string()> waits);
  // Says it on stderr, when there is something to ask.
  void say_waits();

  // What is left of them; not negative.
  [[nodiscard]] double seconds_left() const;
  // That they are up, and which node completed last.
  [[nodiscard]] Status failure();

  // The node that completed last, for the report. Strings must live as long as the watchdog. Who
  // comes while another thread is here is not noted.
  void note(const char* origin, const char* op) {
    if (noting_.test_and_set(std::memory_order_acquire)) return;
    last_op_ = op;
    last_origin_ = origin;
    noting_.clear(std::memory_order_release);
  }

  // A DvtNodeObserver; user is the Watchdog.
  static void observe(void* user, const DvtNodeEvent* event) {
    static_cast<Watchdog*>(user)->note(event->origin, event->op);
  }

 private:
  void wait();

  Session& session_;
  const double seconds_;
  const double end_ns_;
  std::atomic_flag noting_ = ATOMIC_FLAG_INIT;  // Guards the names.
  const char* last_origin_ = nullptr;
  const char* last_op_ = nullptr;
  std::mutex waits_mutex_;
  std::function<std::string()> waits_;
  std::mutex mutex_;
  std::condition_variable disarmed_signal_;
  bool disarmed_ = false;
  std::thread thread_;
};

// While one lives, SIGUSR1 makes the watchdog say who waits for whom. Threads that start later
// leave the signal to it: so make it before any other.
class WaitsOnSignal {
 public:
  explicit WaitsOnSignal(Watchdog& watchdog);
  WaitsOnSignal(const WaitsOnSignal&) = delete;
  WaitsOnSignal& operator=(const WaitsOnSignal&) = delete;
  ~WaitsOnSignal();

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace davit::cli
