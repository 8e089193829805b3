// program.hpp: a random graph whose nodes check, while they run, that they may.
//
// A node hashes the results of its predecessors, which are plain memory: one that runs too early
// gives another result than the sequential loop, and ThreadSanitizer sees it. Memory nodes look
// that they are alone, launches that they come in order. Frees and Launches keep the books of
// relations (exec/relations.hpp), and allocations look that what is settled has been submitted. In
// a program that suspends, an allocation waits for what is owed, but for launches that need a
// memory node that has not run. Some normal nodes are branches and loops: they run programs of
// their own (flow.hpp).
//
// Threads  One run at a time; nodes as the scheduler calls them; describe() from any thread.
// Trust    Made here.
// Memory   Owns everything that its nodes touch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "exec/relations.hpp"
#include "lowering/schedule/planner.hpp"

namespace davit::stress {

using Random = std::mt19937_64;

inline uint64_t mix(uint64_t a, uint64_t b) {
  return (a ^ (b + 0x9E3779B97F4A7C15 + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9;
}

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

// What a run of a program, and of those inside it, is given.
struct Given {
  Event event = Event::kNothing;
  std::function<bool()> nested;  // What kNestedRun calls.
  mt_topo::RunControl control;
  std::atomic<uint32_t>* cancel = nullptr;  // The flag that kCancel raises.
  bool in_order = false;                    // By the sequential loop.
};

class Flow;

struct Shape {
  const char* name = "";
  std::vector<std::vector<uint32_t>> from;  // By node: predecessors, all before it.
};
Shape random_shape(Random& random, uint32_t nodes_max);

class Program {
 public:
  struct Options {
    uint32_t nodes_max = 1000;
    bool suspends = false;  // For Mode::kDynamic only.
    // The scheduler is not told of one edge, so that the checks have something to find.
    bool leave_out_edge = false;
    uint32_t flows = 0;  // Nodes that set_flow() gives bodies to; fewer, where there are few nodes.
  };
  Program(Random& random, const Options& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Before the first run, for each of flow_nodes().
  [[nodiscard]] std::span<const uint32_t> flow_nodes() const { return flow_nodes_; }
  void set_flow(uint32_t node, std::unique_ptr<Flow> flow);

  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(nodes_.size()); }
  [[nodiscard]] const char* shape() const { return shape_.name; }
  [[nodiscard]] bool has_lanes() const { return has_lanes_; }
  // Allocations that were suspended, in all runs.
  [[nodiscard]] uint64_t suspensions() const;
  // How many branches, loops and bodies inside bodies there are.
  void count_flows(std::map<std::string, uint64_t>& scenarios, bool inside) const;
  [[nodiscard]] mt_topo::Tables tables() const;
  [[nodiscard]] schedule::Plan plan(uint32_t workers) const;

  // Runs in order and keeps the results for check().
  Status run_oracle();

  // Where an event may happen: a node, and, if that runs bodies, a place in one of them.
  [[nodiscard]] uint64_t random_place(Random& random) const;
  [[nodiscard]] bool is_in_a_body(uint64_t place) const;

  // Forgets the last run. `event` happens at `place`; `nested` is what kNestedRun calls. What the
  // run is to be given, control() has; a run with kDeadline may take kDeadlineNs from now on.
  void arm(Event event, uint64_t place, std::function<bool()> nested = {});
  [[nodiscard]] const mt_topo::RunControl& control() const { return own_given_.control; }
  static constexpr int64_t kDeadlineNs = 200'000;

  // Of a body, which is armed with the program around it, for all its runs ...
  void prepare(const Given& given, std::optional<uint64_t> place);
  // ... then, for each: `input` goes to all nodes. The result is that of a run that has succeeded.
  void begin_run(uint64_t input);
  [[nodiscard]] uint64_t result() const;
  [[nodiscard]] mt_topo::Outcome run_in_order();
  // Whether the event has happened here or in a body.
  [[nodiscard]] bool happened() const;

  // What is wrong with the run that has ended; empty when nothing is.
  [[nodiscard]] std::string check(const mt_topo::Outcome& outcome) const;

  // Who waits for whom: nodes that run, that could run, and that wait.
  [[nodiscard]] std::string describe() const;
  // Nodes that have ended, in all runs, those in bodies included.
  [[nodiscard]] uint64_t progress() const;

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
    std::unique_ptr<Flow> flow;  // Null: it has no bodies.
  };
  static constexpr uint32_t kNowhere = UINT32_MAX;

  static int32_t run_node(void* context);
  int32_t run(Node& node);
  int32_t do_work(Node& node, uint64_t& hash);
  int32_t happen(const Node& node);
  void enter_lane(Node& node);
  void keep_books(const Node& node);
  [[nodiscard]] bool has_to_wait(Node& node);
  void choose_flow_nodes(Random& random, uint32_t flows);
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
  std::vector<uint64_t> expected_;    // Empty in bodies, whose input varies.
  std::vector<uint32_t> flow_nodes_;  // In order.

  std::vector<uint32_t> kernel_, free_offsets_, free_launches_;
  ResourcePtr<Books> relations_;
  bool suspends_;
  std::vector<std::vector<uint32_t>> needs_;  // By launch, in programs that suspend: memory nodes.
  std::vector<uint8_t> freed_;                // Of the memory lane.
  std::vector<uint8_t> launched_;             // Of the launch lane; read where it is settled.
  uint32_t in_memory_lane_ = 0;
  uint32_t last_launch_ = 0;

  Given own_given_;  // Of a program that is no body.
  const Given* given_ = &own_given_;
  uint32_t event_node_ = kNowhere;
  bool happened_ = false;  // Written by the node.
  uint64_t input_ = 0;
  std::atomic<uint32_t> cancel_{0};
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> complained_{false};
  std::string complaint_;
};

}  // namespace davit::stress
