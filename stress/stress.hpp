// stress.hpp: runs the scheduler on random graphs, by every schedule and on any number of workers,
// while nodes fail, throw, cancel, outlast their deadline and run other graphs, and looks that
// nothing is wrong and that every run ends. Some nodes are branches and loops. Some rounds run a
// model, with branches and loops, on the host or on a device whose order and times are as bad as
// may be (model_program.hpp).
//
// Round r of seed s is round 0 of seed s + r: any round can be run again on its own. What the
// threads do in it is theirs to choose.
//
// Threads  run() blocks; on_progress is called by its thread, on_stall by one of its own.
// Trust    Options are a person's; limits are checked.
// Memory   Returns owned values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "exec/mt_topo/scheduler.hpp"

namespace davit::stress {

struct StressOptions {
  uint64_t seed = 1;
  uint64_t rounds = 0;  // 0: until the time is up.
  double seconds = 0;   // 0: until the rounds are done. Both may be given.
  uint32_t workers_min = 1;
  uint32_t workers_max = 4;
  std::optional<mt_topo::Mode> schedule;  // Empty: any.
  // Whether allocations suspend until what they wait for has been submitted, which only
  // Mode::kDynamic can. Empty: by chance.
  std::optional<bool> suspend;
  uint32_t nodes_max = 1000;
  double stall_seconds = 10;  // Without the end of any node.
  // Told every now and then. May be empty.
  std::function<void(uint64_t rounds)> on_progress;
  // Told once when nothing has ended for stall_seconds: who waits for whom. The run that stalls
  // does not return by itself.
  std::function<void(const Status& stall)> on_stall;
  // For tests of the checks themselves: the scheduler is not told of one edge of each graph.
  bool leave_out_edge = false;
  // Likewise: called by a node of each round, which may take its time.
  std::function<void()> in_a_node;
};

struct StressReport {
  uint64_t rounds = 0;
  uint64_t runs = 0;
  uint64_t nodes = 0;
  uint64_t suspensions = 0;
  std::map<std::string, uint64_t> scenarios;  // How often each came up.
};

// An error names the seed that shows it.
Result<StressReport> run(const StressOptions& options);

}  // namespace davit::stress
