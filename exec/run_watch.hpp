// run_watch.hpp: what every node of Main is doing, and how far bodies are, so that a run that does
// not end can be asked.
//
// Threads  begin_run() before any node. begun() and ended() by the worker that runs the node.
//          describe() by any thread at any time: each word is one moment's truth, the whole may mix
//          moments.
// Trust    The image is verified.
// Memory   A byte per node, three words per graph, out of the resource that it is given. Only
//          describe() allocates.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory_resource>
#include <string>

#include "base/resource.hpp"
#include "exec/image.hpp"

namespace davit::exec {

class DeferredFrees;

class RunWatch {
 public:
  // `deferred` may be null.
  RunWatch(const ImageView& image, const GraphView& main, const DeferredFrees* deferred,
           std::pmr::memory_resource& memory);

  void begin_run() noexcept;
  void end_run(int32_t code) noexcept { code_.store(code, std::memory_order_relaxed); }
  void begun(uint32_t node) noexcept { set(node, State::kRunning); }
  void ended(uint32_t node) noexcept {
    set(node, State::kDone);
    last_[graph_.lane[node]].store(node, std::memory_order_relaxed);
  }

  // Of the body with this index among the graphs.
  void begun_in_body(uint32_t graph, uint32_t node) noexcept {
    bodies_[graph].last.store(node, std::memory_order_relaxed);
    bodies_[graph].begun.fetch_add(1, std::memory_order_relaxed);
  }
  void ended_in_body(uint32_t graph) noexcept {
    bodies_[graph].ended.fetch_add(1, std::memory_order_relaxed);
  }

  // By lane: how many nodes have ended, run and could run, the last that ended and the first that
  // has not; then bodies with nodes that run, and the last that has begun; then unfinished nodes,
  // and what each waits for.
  [[nodiscard]] std::string describe() const;

 private:
  enum class State : uint8_t { kWaiting, kRunning, kDone };
  static constexpr int32_t kInProgress = INT32_MIN;
  struct Picture;

  void set(uint32_t node, State state) noexcept {
    states_[node].store(state, std::memory_order_relaxed);
  }
  // Nodes, in all runs of the body.
  struct Body {
    std::atomic<uint64_t> begun{0}, ended{0};
    std::atomic<uint32_t> last{0};
  };

  [[nodiscard]] std::string name(const GraphView& graph, uint32_t node) const;
  [[nodiscard]] std::string name(uint32_t node) const { return name(graph_, node); }
  [[nodiscard]] std::string describe_bodies() const;
  [[nodiscard]] Picture look() const;
  [[nodiscard]] std::string describe_lane(const Picture& picture, uint32_t lane) const;
  [[nodiscard]] std::string describe_node(const Picture& picture, uint32_t node) const;

  const ImageView& image_;
  const GraphView& graph_;
  const DeferredFrees* deferred_;
  ResourceArray<std::atomic<State>> states_;
  ResourceArray<Body> bodies_;  // By graph.
  std::atomic<uint32_t> last_[3];
  std::atomic<uint64_t> runs_{0};
  std::atomic<int32_t> code_{kInProgress};
};

}  // namespace davit::exec
