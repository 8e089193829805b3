// profile.hpp: where the time of a run goes: per node and per operator type.
//
// Threads  One thread: the one that runs the executor.
// Trust    Names come from a verified image.
// Memory   A Profiler keeps one record per node. Strings are borrowed from the image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/report.hpp"
#include "cli/session.hpp"
#include "cli/watchdog.hpp"
#include "davit/davit.h"

namespace davit::cli {

struct NodeProfile {
  const char* origin = "";
  const char* op = "";
  const char* kernel = "";
  uint32_t lane = 0;
  uint64_t calls = 0;
  int64_t total_ns = 0;
  uint64_t bytes = 0;  // Of all operands, once.
};

class Profiler {
 public:
  // `simulated`: the device is a model, which shows in the times. The watchdog may be null; it is
  // told of every node.
  Profiler(bool simulated, Watchdog* watchdog) : simulated_(simulated), watchdog_(watchdog) {}

  // A DvtNodeObserver; user is the Profiler.
  static void observe(void* user, const DvtNodeEvent* event);
  // After each observed run.
  void end_run() { ++runs_; }

  // Tables of the slowest nodes and of operator types, at most `top` rows each, and their JSON.
  void report(Session& session, size_t top) const;
  // One line per node, all nodes.
  [[nodiscard]] Status write_csv(const std::string& path) const;

 private:
  // Indices of nodes_ that were called, slowest first.
  [[nodiscard]] std::vector<uint32_t> slowest_first() const;
  Json report_nodes(Session& session, const std::vector<uint32_t>& order, size_t top) const;
  Json report_types(Session& session, const std::vector<uint32_t>& order) const;
  [[nodiscard]] double per_run(int64_t nanoseconds) const;

  bool simulated_;
  Watchdog* watchdog_;
  std::vector<NodeProfile> nodes_;  // By node index of Main.
  uint64_t runs_ = 0;
  int64_t total_ns_ = 0;
};

// "normal", "memory", "launch".
const char* lane_name(uint32_t lane);

}  // namespace davit::cli
