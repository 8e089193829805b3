#include "exec/run_watch.hpp"

#include <vector>

#include "base/status.hpp"
#include "davit/kernel.h"
#include "exec/deferred_frees.hpp"

namespace davit::exec {
namespace {

constexpr uint32_t kLines = 16;
constexpr const char* kLanes[] = {"normal", "memory", "launch"};

}  // namespace

// The states of one moment, and for each node one that it waits for, if there is any.
struct RunWatch::Picture {
  std::vector<State> state;
  std::vector<uint32_t> awaited;
  uint32_t suspended = kNone;  // The allocation, and the launch that it waits for.
  uint32_t launch = kNone;

  [[nodiscard]] bool could_run(uint32_t node) const {
    return state[node] == State::kWaiting && awaited[node] == kNone;
  }
};

RunWatch::RunWatch(const ImageView& image, const GraphView& main, const DeferredFrees* deferred,
                   std::pmr::memory_resource& memory)
    : image_(image),
      graph_(main),
      deferred_(deferred),
      states_(main.node_count, memory),
      bodies_(image.graphs.size(), memory) {
  for (auto& last : last_) last.store(kNone, std::memory_order_relaxed);
  for (uint32_t node = 0; node < main.node_count; ++node) set(node, State::kWaiting);
}

void RunWatch::begin_run() noexcept {
  for (uint32_t node = 0; node < graph_.node_count; ++node) set(node, State::kWaiting);
  for (auto& last : last_) last.store(kNone, std::memory_order_relaxed);
  for (size_t graph = 0; graph < image_.graphs.size(); ++graph) {
    bodies_[graph].begun.store(0, std::memory_order_relaxed);
    bodies_[graph].ended.store(0, std::memory_order_relaxed);
  }
  code_.store(kInProgress, std::memory_order_relaxed);
  runs_.fetch_add(1, std::memory_order_relaxed);
}

std::string RunWatch::name(const GraphView& graph, uint32_t node) const {
  const std::string origin = image_.strings[graph.origin_of(node)];
  return "node " + std::to_string(node) + " (" + image_.kernel_refs[graph.kernel[node]].name +
         (origin.empty() ? "" : ", " + origin) + ")";
}

RunWatch::Picture RunWatch::look() const {
  Picture picture;
  picture.awaited.assign(graph_.node_count, kNone);
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    picture.state.push_back(states_[node].load(std::memory_order_relaxed));
  }
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    if (picture.state[node] == State::kDone) continue;
    for (const uint32_t to : graph_.succ_of(node)) {
      if (picture.awaited[to] == kNone) picture.awaited[to] = node;
    }
  }
  if (deferred_ != nullptr) picture.launch = deferred_->awaited_launch();
  for (uint32_t node = 0; picture.launch != kNone && node < graph_.node_count; ++node) {
    if (picture.state[node] == State::kDone || graph_.lane[node] != DVT_KERNEL_LANE_MEMORY) {
      continue;
    }
    picture.suspended = node;
    break;
  }
  return picture;
}

std::string RunWatch::describe_lane(const Picture& picture, uint32_t lane) const {
  uint32_t total = 0, done = 0, running = 0, ready = 0;
  uint32_t pending = kNone;
  for (uint32_t node = 0; node < graph_.node_count; ++node) {
    if (graph_.lane[node] != lane) continue;
    ++total;
    if (picture.state[node] == State::kDone) {
      ++done;
      continue;
    }
    if (pending == kNone) pending = node;
    running += picture.state[node] == State::kRunning ? 1 : 0;
    ready += picture.could_run(node) ? 1 : 0;
  }
  if (total == 0) return "";
  const uint32_t last = last_[lane].load(std::memory_order_relaxed);
  return std::string("\n  ") + kLanes[lane] + " lane: " + std::to_string(done) + " of " +
         std::to_string(total) + " have ended, " + std::to_string(running) + " begun, " +
         std::to_string(ready) +
         " could run; last ended: " + (last == kNone ? "none" : name(last)) +
         "; first pending: " + (pending == kNone ? "none" : name(pending));
}

// A node that runs bodies waits inside one.
std::string RunWatch::describe_bodies() const {
  std::string text;
  for (size_t graph = 0; graph < image_.graphs.size(); ++graph) {
    const uint64_t ended = bodies_[graph].ended.load(std::memory_order_relaxed);
    const uint64_t begun = bodies_[graph].begun.load(std::memory_order_relaxed);
    if (begun <= ended) continue;
    const uint32_t last = bodies_[graph].last.load(std::memory_order_relaxed);
    text += "\n  body " + std::to_string(graph) + ": " + std::to_string(ended) +
            " nodes have ended, " + std::to_string(begun - ended) +
            " begun; last begun: " + name(image_.graphs[graph], last);
  }
  return text;
}

std::string RunWatch::describe_node(const Picture& picture, uint32_t node) const {
  const std::string text = "\n  " + name(node);
  if (node == picture.suspended) {
    return text + " is suspended until " + name(picture.launch) + " is submitted";
  }
  if (picture.state[node] == State::kRunning) return text + " has begun";
  if (picture.could_run(node)) return text + " could run";
  return text + " waits for " + name(picture.awaited[node]);
}

std::string RunWatch::describe() const {
  const uint64_t runs = runs_.load(std::memory_order_relaxed);
  if (runs == 0) return "no run was watched";
  const int32_t code = code_.load(std::memory_order_relaxed);
  const Picture picture = look();
  std::string text =
      "watched run " + std::to_string(runs) +
      (code == kInProgress ? " is in progress"
                           : std::string(" has ended: ") + code_name(static_cast<DvtCode>(code)));
  for (uint32_t lane = 0; lane < 3; ++lane) text += describe_lane(picture, lane);
  text += describe_bodies();
  uint32_t lines = 0;
  for (const bool begun : {true, false}) {
    for (uint32_t node = 0; node < graph_.node_count && lines < kLines; ++node) {
      const State state = picture.state[node];
      if (state == State::kDone || (state == State::kRunning) != begun) continue;
      text += describe_node(picture, node);
      ++lines;
    }
  }
  return text;
}

}  // namespace davit::exec
