// exec/mt_topo/dynamic.hpp in virtual time: the same units, queues, mailboxes and strand, one
// action of one worker after the other, in the order of their clocks.
#include <algorithm>
#include <deque>
#include <numeric>
#include <queue>
#include <span>

#include "exec/mt_topo/mailbox.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "exec/mt_topo/topology.hpp"
#include "simulation/clocks.hpp"

namespace davit::simulation {
namespace {

using mt_topo::kMemory;
using mt_topo::kUnitMask;

constexpr uint32_t kMailboxItems = mt_topo::Mailbox<mt_topo::RealThreads>::kItems;
constexpr uint32_t kRootBatch = 256;

int32_t run_nothing(void* /*context*/) {
  return 0;
}

mt_topo::Topology topology_of(const schedule::Graph& graph) {
  const std::vector<DvtStep> steps(graph.count(), DvtStep{&run_nothing, nullptr});
  std::vector<uint32_t> indegree(graph.count(), 0);
  for (const uint32_t to : graph.successors) ++indegree[to];
  return mt_topo::Topology({.steps = steps,
                            .successor_offsets = graph.successor_offsets,
                            .successors = graph.successors,
                            .indegree = indegree,
                            .lane = graph.lane,
                            .priority = {}});
}

class DynamicRun {
 public:
  DynamicRun(const HostGraph& graph, const HostCosts& costs, uint32_t workers)
      : costs_(costs),
        topology_(topology_of(graph.nodes)),
        clocks_(graph, workers),
        workers_(workers),
        left_(topology_.unit_count()),
        roots_left_(topology_.roots()) {
    for (uint32_t unit = 0; unit < topology_.unit_count(); ++unit) {
      left_[unit] = topology_.indegree(unit);
    }
    const double total_ns =
        std::accumulate(graph.nodes.cost_ns.begin(), graph.nodes.cost_ns.end(), 0.0);
    const double each_ns = total_ns / std::max(topology_.unit_count(), 1U) + costs.dynamic_unit_ns;
    batch_min_ = workers == 1 ? UINT32_MAX : mt_topo::batch_minimum(each_ns);
  }

  Prediction run() && {
    for (uint32_t worker = 0; worker < workers_.size(); ++worker) due_.push({0, worker});
    while (!due_.empty()) {
      const Turn turn = due_.top();
      due_.pop();
      act(turn.worker, turn.at_ns);
    }
    return std::move(clocks_).finish();
  }

 private:
  struct Ready {
    uint32_t item;  // Arc word of a unit.
    Blame blame;
    double at_ns;
  };
  struct Worker {
    std::deque<Ready> queue;
    std::vector<Ready> mailbox;
    std::deque<Ready> incoming;  // Taken from another, and there at the next turn.
    uint32_t unit = kNoNode;     // Which it is running.
    bool memory = false;         // Of that unit.
    bool idle = false;
    Blame last;
  };
  struct Turn {
    double at_ns;
    uint32_t worker;
    bool operator<(const Turn& other) const {  // The first is the greatest.
      return at_ns != other.at_ns ? at_ns > other.at_ns : worker > other.worker;
    }
  };

  // What a worker does at one moment: it ends its unit, and begins the next.
  void act(uint32_t index, double now_ns) {
    Worker& worker = workers_[index];
    if (worker.unit != kNoNode && end_unit(index, now_ns)) return;
    worker.queue.insert(worker.queue.end(), worker.incoming.begin(), worker.incoming.end());
    worker.incoming.clear();
    while (!worker.queue.empty() || find_work(index, now_ns)) {
      const Ready next = worker.queue.front();
      worker.queue.pop_front();
      if (worker.queue.size() >= batch_min_) lay_out(index, now_ns);
      const bool memory = (next.item & kMemory) != 0;
      if (memory && strand_held_) {
        strand_.push_back(next);
        continue;
      }
      strand_held_ |= memory;
      return begin_unit(index, next, memory, now_ns);
    }
    worker.idle = worker.incoming.empty();
  }

  void begin_unit(uint32_t index, const Ready& ready, bool memory, double now_ns) {
    Worker& worker = workers_[index];
    worker.unit = ready.item & kUnitMask;
    worker.memory = memory;
    // Who did not start at once was held up by what ran before on this worker.
    Blame blame = now_ns > ready.at_ns + costs_.hand_over_ns && worker.last.node != kNoNode
                      ? worker.last
                      : ready.blame;
    double extra_ns = costs_.dynamic_unit_ns;
    const uint32_t end = topology_.begin()[worker.unit + 1];
    for (uint32_t at = topology_.begin()[worker.unit]; at < end; ++at) {
      const uint32_t node = topology_.node(at);
      now_ns = clocks_.run(node, index, now_ns, extra_ns, blame);
      blame = {node, Cause::kOperand};
      extra_ns = costs_.loop_node_ns;
    }
    worker.last = {blame.node, Cause::kWorker};
    due_.push({now_ns, index});
  }

  // True: the worker goes on with a unit that waited for the strand.
  bool end_unit(uint32_t index, double now_ns) {
    Worker& worker = workers_[index];
    const uint32_t unit = std::exchange(worker.unit, kNoNode);
    const Blame blame = {worker.last.node, Cause::kOperand};
    for (uint32_t i = topology_.arc_begin()[unit]; i < topology_.arc_begin()[unit + 1]; ++i) {
      const uint32_t arc = topology_.arcs()[i];
      if (--left_[arc & kUnitMask] == 0) worker.queue.push_back({arc, blame, now_ns});
    }
    if (!worker.memory) return false;
    strand_held_ = !strand_.empty();
    if (!strand_held_) return false;
    const Ready next = strand_.front();
    strand_.pop_front();
    begin_unit(index, next, true, now_ns);
    return true;
  }

  // False: there is none, or it arrives later.
  bool find_work(uint32_t index, double now_ns) {
    Worker& worker = workers_[index];
    const auto count = index == 0 ? std::min<size_t>(roots_left_.size(), kRootBatch) : 0;
    for (size_t i = 0; i < count; ++i) worker.queue.push_back({roots_left_[i], {}, 0});
    roots_left_ = roots_left_.subspan(count);
    if (count > 0) return true;
    if (!worker.mailbox.empty()) {
      worker.queue = take(worker.mailbox);
      return true;
    }
    const auto workers = static_cast<uint32_t>(workers_.size());
    for (uint32_t i = 1; i < workers && worker.incoming.empty(); ++i) {
      fetch(index, workers_[(index + i) % workers], now_ns);
    }
    return false;
  }

  // All, or the later half where units take long.
  [[nodiscard]] std::deque<Ready> take(std::vector<Ready>& mailbox) const {
    const size_t left = batch_min_ == 0 ? mailbox.size() / 2 : 0;
    const auto first = mailbox.begin() + static_cast<std::ptrdiff_t>(left);
    std::deque<Ready> taken(first, mailbox.end());
    mailbox.erase(first, mailbox.end());
    return taken;
  }

  void fetch(uint32_t index, Worker& from, double now_ns) {
    if (from.mailbox.empty()) return;
    workers_[index].incoming = take(from.mailbox);
    due_.push({now_ns + costs_.hand_over_ns, index});
    if (!from.mailbox.empty()) call_one(from, now_ns);
  }

  void call_one(Worker& from, double now_ns) {
    for (uint32_t other = 0; other < workers_.size(); ++other) {
      if (!workers_[other].idle) continue;
      workers_[other].idle = false;
      return fetch(other, from, now_ns);
    }
  }

  // The half of the queue that the worker would come to last; where units take long, all.
  void lay_out(uint32_t index, double now_ns) {
    Worker& worker = workers_[index];
    if (!worker.mailbox.empty() || worker.queue.empty()) return;
    const size_t queued = worker.queue.size();
    const size_t count =
        std::min<size_t>(batch_min_ == 0 ? queued : (queued + 1) / 2, kMailboxItems);
    const auto first = worker.queue.end() - static_cast<std::ptrdiff_t>(count);
    worker.mailbox.assign(first, worker.queue.end());
    worker.queue.erase(first, worker.queue.end());
    call_one(worker, now_ns);
  }

  const HostCosts& costs_;
  const mt_topo::Topology topology_;
  Clocks clocks_;
  std::vector<Worker> workers_;
  std::vector<uint32_t> left_;  // Per unit: arrivals that are missing.
  std::span<const uint32_t> roots_left_;
  std::priority_queue<Turn> due_;
  std::deque<Ready> strand_;  // Units that wait for whoever holds the strand.
  bool strand_held_ = false;
  uint32_t batch_min_ = 1;
};

}  // namespace

Prediction simulate_dynamic(const HostGraph& graph, const HostCosts& costs, uint32_t workers) {
  return DynamicRun(graph, costs, workers).run();
}

}  // namespace davit::simulation
