// verify_dynamic.hpp: the state of stage 6b of the verifier, for the files that implement it; its
// rules are at the top of verify_dynamic.cpp.
//
// Threads  One thread.
// Trust    Relies on the stages before it (verify_internal.hpp).
// Memory   Holds references to the view and the facts; a few words per value and node.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/dynamic.h"
#include "exec/layout.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {

enum class State : uint8_t { kNone, kBounded, kShaped, kReserved, kAllocated, kFilled, kFreed };

class DynamicValues {
 public:
  DynamicValues(const ImageView& view, const FlowFacts& facts)
      : view_(view),
        facts_(facts),
        kinds_(host_nodes(view)),
        device_kinds_(device_nodes(view)),
        copies_(view.values.count),
        joined_at_(view.stream_count, 0),
        state_(view.values.count, State::kNone),
        graph_of_(view.values.count, kNone),
        root_(view.values.count, kNone) {}

  Status run() {
    for (const uint32_t graph : facts_.graph_order) {
      if (Status s = scan(graph); !s.ok()) return s;
    }
    return {};
  }

 private:
  // The last copy from or to a value's memory on the host, which runs some time after its node.
  struct Copy {
    uint32_t stream = kNone;
    uint32_t time = 0;
    bool writes = false;
  };

  [[nodiscard]] DvtHostNode kind(uint32_t node) const { return kinds_[graph_->kernel[node]]; }
  [[nodiscard]] bool dynamic(uint32_t value) const {
    return value != kNone && view_.is_dynamic(value);
  }
  [[nodiscard]] ValueKind place(uint32_t value) const { return view_.values.kind[value]; }
  // Written by a node of this graph; else it comes from outside, filled.
  [[nodiscard]] bool own(uint32_t value) const { return graph_of_[value] == index_; }
  [[nodiscard]] State state(uint32_t value) const {
    if (own(value)) return state_[value];
    // What this graph is still to write. Else it is an input, or handed to a body. Init hands
    // nothing on: all it allocates it frees.
    const bool fresh = result_of_body(value) || facts_.values[value].home == index_;
    const bool given = place(value) == ValueKind::kInput || graph_->role == GraphRole::kBody;
    return given && !fresh ? State::kFilled : State::kNone;
  }
  [[nodiscard]] uint32_t root(uint32_t value) const { return own(value) ? root_[value] : value; }
  [[nodiscard]] bool result_of_body(uint32_t value) const {
    return value < result_mark_.size() && result_mark_[value] == index_;
  }
  void set(uint32_t value, State state, uint32_t root) {
    state_[value] = state;
    graph_of_[value] = index_;
    root_[value] = root;
  }
  // The kernel whose infer() and check() hold for a node.
  [[nodiscard]] uint32_t computing_kernel(uint32_t node) const {
    const uint32_t device_kernel = graph_->device_kernel_of(node);
    return device_kernel == kNone ? graph_->kernel[node] : device_kernel;
  }
  [[nodiscard]] uint32_t flags(uint32_t kernel) const { return view_.kernel_refs[kernel].flags; }
  [[nodiscard]] bool shape_only(uint32_t kernel, size_t input) const {
    return (flags(kernel) & DVT_KERNEL_SHAPE_ONLY) != 0 && !reads_on_host(kernel, input);
  }
  [[nodiscard]] bool reads_on_host(uint32_t kernel, size_t input) const {
    return !view_.kernels.empty() && input < 32 &&
           (view_.kernels[kernel]->host_inputs >> input & 1) != 0;
  }

  [[gnu::format(printf, 3, 4)]] Status at(uint32_t node, const char* format, ...) const;
  Status read_shape(uint32_t node, uint32_t value) const;
  Status read_data(uint32_t node, uint32_t value) const;
  Status scan(uint32_t graph);
  Status visit(uint32_t node);
  Status check_node(uint32_t node, DvtHostNode what, bool computes);
  Status infer_shape(uint32_t node);
  Status match_operands(uint32_t node, uint32_t target) const;
  Status allocate(uint32_t node);
  Status bind_output(uint32_t node);
  Status refer(uint32_t node);
  Status release(uint32_t node);
  Status compute(uint32_t node);
  Status copy_shape(uint32_t node);
  Status device_node(uint32_t node);
  Status give_memory(uint32_t node, uint32_t value);
  Status fill(uint32_t node, uint32_t value);
  Status note_copy(uint32_t node, uint32_t host_value, bool writes);
  void join_stream(uint32_t node);
  Status check_joined(uint32_t node) const;
  // A copy that may not have run yet.
  [[nodiscard]] bool pending(const Copy& copy) const {
    return copy.stream != kNone && joined_at_[copy.stream] <= copy.time;
  }
  // Whose memory a value on the host has.
  [[nodiscard]] uint32_t memory_of(uint32_t value) const {
    if (dynamic(value)) return root(value);
    const uint32_t memory = facts_.values[value].root;
    return memory == kNone ? value : memory;
  }
  Status branch(uint32_t node);
  Status select_gear(uint32_t node);
  Status write_result(uint32_t node, uint32_t value, State to);
  Status loop(uint32_t node);
  Status loop_value(uint32_t node, uint32_t value, DvtDType dtype, bool heap) const;
  Status check_planned(uint32_t node) const;
  Status check_prefix(uint32_t node) const;
  Status begin_body(uint32_t graph);
  Status finish() const;

  const ImageView& view_;
  const FlowFacts& facts_;
  const std::vector<DvtHostNode> kinds_;           // Per kernel of the image.
  const std::vector<DvtDeviceNode> device_kinds_;  // The same.
  std::vector<Copy> copies_;                       // Per value.
  std::vector<uint32_t> joined_at_;                // Per stream: the time of its last SyncStream.
  uint32_t time_ = 0;                              // Counts the nodes that were visited.
  std::vector<State> state_;                       // Per value, in the graph that wrote it last.
  std::vector<uint32_t> graph_of_;                 // Per value: that graph.
  std::vector<uint32_t> root_;                     // Per value: whose memory it uses.
  std::vector<uint32_t> result_mark_;  // Per value, only with bodies: the body it is a result of.
  // Per body: the node that runs it.
  std::vector<uint32_t> runner_graph_, runner_node_;
  // Of the graph that is scanned.
  uint32_t index_ = 0;
  const GraphView* graph_ = nullptr;
  std::vector<uint32_t> shaper_;  // Per node: the InferShape whose target it is.
};

}  // namespace davit::exec::verify
