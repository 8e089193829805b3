// flow.hpp: a node of a random program that runs programs: a branch or a loop.
//
// What comes in decides which of its two bodies a branch runs, and how often a loop runs its one,
// none now and then. A body is a program with a scheduler of its own on the same pool, of the same
// mode, whose nodes take what comes in; its result goes to the next iteration, and out. Its nodes
// may be branches and loops, too.
//
// Threads  run() by the node's worker; progress() and describe() by any thread.
// Trust    Made here.
// Memory   Owns its bodies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "exec/mt_topo/pool.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "stress/program.hpp"

namespace davit::stress {

// How programs are made and run.
struct Making {
  std::shared_ptr<mt_topo::Pool> pool;
  mt_topo::Mode mode = mt_topo::Mode::kAutomatic;
  bool suspends = false;
  uint32_t nodes_max = 1000;
  uint32_t parts_max = 4;  // Of plans.
  bool leave_out_edge = false;
  uint32_t depth = 0;  // Of bodies around.
};

// A program with its scheduler.
struct Scheduled {
  std::unique_ptr<Program> program;
  ResourcePtr<mt_topo::Scheduler> scheduler;
  mt_topo::Mode mode = mt_topo::Mode::kAutomatic;
};
// With bodies, as chance will have it.
Result<Scheduled> make_scheduled(Random& random, const Making& making);

class Flow {
 public:
  static Result<std::unique_ptr<Flow>> make(Random& random, const Making& making);

  [[nodiscard]] bool loops() const { return bodies_.size() == 1; }
  [[nodiscard]] uint64_t random_place(Random& random) const;
  void prepare(const Given& given, std::optional<uint64_t> place);
  // The first code of a body that is not DVT_OK, or that; then `value` is the result.
  int32_t run(uint64_t& value);

  [[nodiscard]] bool happened() const;
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] uint64_t progress() const;
  [[nodiscard]] uint64_t suspensions() const;
  [[nodiscard]] std::string describe() const;
  void count_flows(std::map<std::string, uint64_t>& scenarios) const;

 private:
  Flow() = default;
  int32_t run_body(const Scheduled& body, uint64_t input);

  std::vector<Scheduled> bodies_;  // Two of a branch, one of a loop.
  const Given* given_ = nullptr;
  std::string wrong_;
  std::atomic<uint32_t> running_{0};  // Which body, while run() lasts.
};

}  // namespace davit::stress
