// program.hpp: a random graph whose nodes check, while they run, that they may.
//
// A node hashes the results of its predecessors, which are plain memory: one that runs too early
// gives another result than the sequential loop, and ThreadSanitizer sees it. Memory nodes look
// that they are alone, launches that they come in order. Frees and Launches keep the books of
// relations (exec/relations.hpp), and allocations look that what is settled has been submitted. In
// a program that suspends, an allocation waits for what is owed, but for launches that need a
// memory node that has not run.
//
// Threads  One run at a time; nodes as the scheduler calls them; describe() from any thread.
// Trust    Made here.
// Memory   Owns everything that its nodes touch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "exec/relations.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::stress {

using Random = std::mt19937_64;

// What happens to a run, at one of its nodes.
enum class Event : uint8_t {
  kNothing,
  kFailure,
  kEndOfSequence,
  kException,
  kCancel,    // By the node.
  kDeadline,  // Which the node outlasts.
  kNestedRun  // The node runs another graph on the same pool.
};
inline constexpr uint32_t kEvents = 7;
const char* event_name(Event event);

struct Shape {
  const char* name = "";
  std::vector<std::vector<uint32_t>> from;  // By node: predecessors, all before it.
};
Shape random_shape(Random& random, uint32_t nodes_max);

class Program {
 public:
  // `suspends`: for Mode::kDynamic only. `leave_out_edge`: the scheduler is not told of one edge,
  // so that the checks have something to find.
  Program(Random& random, uint32_t nodes_max, bool suspends, bool leave_out_edge);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(nodes_.size()); }
  [[nodiscard]] const char* shape() const { return shape_.name; }
  [[nodiscard]] bool has_lanes() const { return has_lanes_; }
  // Allocations that were suspended, in all runs.
  [[nodiscard]] uint64_t suspensions() const { return relations_->statistics().suspended; }
  [[nodiscard]] mt_topo::Tables tables() const;
  [[nodiscard]] schedule::Plan plan(uint32_t workers) const;

  // Runs in order and keeps the results for check().
  Status run_oracle();

  // Forgets the last run. `event` happens at `node`; `nested` is what kNestedRun calls.
  void arm(Event event, uint32_t node, std::function<bool()> nested = {});
  // The flag of a run with kCancel, and how long a run with kDeadline may take.
  [[nodiscard]] const std::atomic<uint32_t>& cancel() const { return cancel_; }
  static constexpr int64_t kDeadlineNs = 200'000;

  // What is wrong with the run that has ended; empty when nothing is.
  [[nodiscard]] std::string check(const mt_topo::Outcome& outcome) const;

  // Who waits for whom: nodes that run, that could run, and that wait.
  [[nodiscard]] std::string describe() const;
  // Nodes that have ended, in all runs.
  [[nodiscard]] uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  enum class Kind : uint8_t { kPlain, kMemory, kFree, kAlloc, kLaunch };
  enum class State : uint8_t { kWaiting, kRunning, kDone };
  using Books = exec::Relations<mt_topo::RealThreads>;
  struct Node {
    Program* program = nullptr;
    uint32_t index = 0;
    Kind kind = Kind::kPlain;
    uint32_t spin = 0;
    uint64_t result = 0;
    uint32_t runs = 0;
    std::atomic<State> state{State::kWaiting};
    Books::Wait wait;  // Of an allocation.
    bool waits = false, has_waited = false;
  };

  static int32_t run_node(void* context);
  int32_t run(Node& node);
  int32_t happen(const Node& node);
  void enter_lane(Node& node);
  void keep_books(const Node& node);
  [[nodiscard]] bool has_to_wait(Node& node);
  void make_relations(Random& random);
  void find_needs();
  // The first thing that went wrong is kept.
  void complain(const std::string& what);

  Shape shape_;
  bool has_lanes_ = false;
  std::vector<Node> nodes_;
  std::vector<DvtStep> steps_;
  std::vector<uint32_t> successor_offsets_, successors_, indegree_;
  std::vector<uint8_t> lane_;
  std::vector<uint64_t> expected_;

  std::vector<uint32_t> kernel_, free_offsets_, free_launches_;
  std::unique_ptr<Books> relations_;
  bool suspends_;
  std::vector<std::vector<uint32_t>> needs_;  // By launch, in programs that suspend: memory nodes.
  std::vector<uint8_t> freed_;                // Of the memory lane.
  std::vector<uint8_t> launched_;             // Of the launch lane; read where it is settled.
  uint32_t in_memory_lane_ = 0;
  uint32_t last_launch_ = 0;

  Event event_ = Event::kNothing;
  uint32_t event_node_ = 0;
  std::function<bool()> nested_;
  std::atomic<uint32_t> cancel_{0};
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> complained_{false};
  std::string complaint_;
};

}  // namespace davit::stress
