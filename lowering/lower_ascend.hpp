// lower_ascend.hpp: the state of the lowering of static graphs to ascend, for the files that
// implement it. What it makes is drawn at the top of lower_ascend.cpp.
//
// Threads  One per lowering.
// Trust    As lower.hpp.
// Memory   Borrows the module and what was prepared of it; owns the model that it builds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/runtime.h"
#include "lowering/lower.hpp"
#include "lowering/prepare.hpp"
#include "lowering/stream_plan.hpp"

namespace davit::lowering {

class AscendLowering {
 public:
  AscendLowering(const ir::Module& module, const Prepared& prepared, const std::string& soc,
                 const AscendPasses& passes);
  // Decides what goes where. Returns the modelled time of a run where several streams were asked
  // for, else 0.
  double prepare();
  // The steps in another order: by how far it is from each to the end. Nothing where that is
  // theirs. After prepare().
  [[nodiscard]] std::optional<std::vector<Step>> reordered() const;
  // Expects prepare().
  Result<Lowered> run();

 private:
  // What happens to the device memory of a root in Main.
  struct Usage {
    uint32_t last_step = 0;          // That reads it; the number of steps for graph outputs.
    uint32_t writer = image::kNone;  // Node that submits what fills it.
    std::vector<uint32_t> readers;   // Nodes that submit what reads it.
    std::vector<uint32_t> tasks;     // Of several streams: those that touch it.
    uint32_t block = image::kNone;   // Of several streams: the memory it is in.
  };
  // Of several streams: memory that later values use again.
  struct Block {
    uint32_t value;  // That was allocated.
    uint64_t bytes;
    bool is_free = false;
    std::vector<uint32_t> tasks;  // When free: the last that touched it.
    std::vector<uint32_t> users;  // Nodes that submit work with it.
  };
  // Inputs that one copy brings.
  struct Pack {
    std::vector<uint32_t> ports;
    uint32_t block = image::kNone;  // Image value of what was allocated for all.
    uint32_t left = 0;              // Inputs that are still to be read.
    std::vector<uint32_t> readers;
  };

  Usage& usage_of(ir::ValueId value) { return usage_[index_of(prepared_.root_of(value))]; }
  // In device memory that Init fills: a constant, or what Init computes of constants.
  [[nodiscard]] bool is_weight(ir::ValueId value) const {
    const ir::ValueId root = prepared_.root_of(value);
    return module_.constant(root) != nullptr || moved_[index_of(root)];
  }
  [[nodiscard]] bool has_streams() const { return plan_.has_value(); }

  // lower_ascend.cpp.
  image::Node make(std::string_view kernel_name, std::string origin);
  static uint32_t append(image::Graph& graph, image::Node node) {
    graph.nodes.push_back(std::move(node));
    return uint32_t(graph.nodes.size() - 1);
  }
  uint32_t append_alloc(image::Graph& graph, uint32_t value, std::string origin);
  uint32_t append_free(image::Graph& graph, uint32_t value, std::string origin,
                       std::vector<uint32_t> after);
  void append_early_free(uint32_t value, const std::string& origin, std::vector<uint32_t> launches);
  uint32_t append_sync(image::Graph& graph, uint32_t stream, std::vector<uint32_t> after);
  void begin_init();
  void finish_init_and_deinit();
  void find_last_reads();
  Result<uint32_t> weight(ir::ValueId value);
  Result<uint32_t> operand(ir::ValueId value);
  Result<uint32_t> allocate(ir::ValueId value, const std::string& origin, uint32_t task);
  uint32_t allocate_scratch(uint32_t value, const std::string& origin, uint32_t task,
                            uint32_t& block);
  Result<image::Node> launch_of(const Step& step);
  Status add_step(uint32_t index);
  void free_after(uint32_t index, uint32_t submitted, const std::string& origin);
  void release(ir::ValueId root, const std::string& origin);
  Status add_outputs();
  void free_outputs(const std::vector<ir::ValueId>& roots, uint32_t sync);

  // lower_ascend_inputs.cpp.
  [[nodiscard]] std::vector<bool> used_inputs() const;
  void choose_pack(const std::vector<bool>& used);
  Status add_inputs();
  Status add_pack();
  void find_moved();
  [[nodiscard]] bool can_move(const Step& step) const;
  Status move_step(const Step& step, image::Node launch);

  // lower_ascend_streams.cpp: more than one stream.
  [[nodiscard]] uint32_t task_of_input(uint32_t port) const;
  [[nodiscard]] uint32_t task_of_step(uint32_t step) const;
  [[nodiscard]] uint32_t task_of_output(uint32_t port) const;
  double plan(uint32_t streams_max);
  [[nodiscard]] std::vector<StreamTask> tasks() const;
  // Appends the node of a task, with the events around it.
  uint32_t submit(image::Node node, uint32_t task);
  // The node that gives the value memory; a new one where no free block suits.
  uint32_t take_block(uint32_t value, const std::string& origin, uint32_t task, uint32_t& block);
  void give_block(uint32_t block, std::vector<uint32_t> tasks);
  void free_blocks(const std::vector<uint32_t>& syncs);

  const ir::Module& module_;
  const Prepared& prepared_;
  const AscendPasses passes_;
  ModelBuilder builder_;
  std::map<std::string_view, const DvtKernel*> device_kernels_;
  image::Graph init_, main_, deinit_;
  std::vector<uint32_t> device_;  // By value: its image value in device memory, or kNone.
  std::vector<Usage> usage_;      // By root.
  std::vector<bool> moves_;       // By step: Init runs it.
  std::vector<bool> moved_;       // By root: Init computes it.
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> weights_;  // By (offset, bytes).
  std::vector<uint32_t> weight_allocations_;                   // Image values that own memory.
  std::vector<uint32_t> weight_copies_;                        // Nodes of Init.
  std::vector<uint32_t> input_values_;
  std::vector<Interval> intervals_;
  Pack pack_;
  std::vector<bool> packed_;  // By root.
  uint32_t create_stream_ = 0;
  uint32_t launch_edges_removed_ = 0, launch_edges_kept_ = 0;

  std::optional<StreamPlan> plan_;
  std::vector<StreamTask> tasks_;  // Where several streams were asked for.
  std::string why_one_stream_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> record_;  // By task: the node that records its event.
};

}  // namespace davit::lowering
