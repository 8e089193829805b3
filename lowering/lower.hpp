// lower.hpp: a compute graph becomes an execute graph for one target.
//
// Threads  Pure functions.
// Trust    The module has passed ir/verify and inference: every node of its main graph has an
//          operator definition and every value a dtype; but for lower_cpu_dynamic(), a static
//          shape. What a target cannot express is an error that names the node.
// Memory   Results own their data, constants included.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "lowering/image/image_model.hpp"
#include "lowering/memory_plan/planner.hpp"
#include "lowering/parallel_planner.hpp"
#include "lowering/schedule/planner.hpp"
#include "lowering/share_memory.hpp"

namespace davit::lowering {

struct Lowered {
  image::ImageModel model;
  // What planned values need room for. Until place_values(), the offset of a value of kind kPlanned
  // is an index in here; values that share memory (views, in-place results) share the index.
  std::vector<Interval> intervals;
  // By value of the model: where in its interval it begins. Shorter than the values: 0.
  std::vector<uint64_t> distances;
  Constraints constraints;     // Of the intervals.
  uint32_t aliased_nodes = 0;  // Nodes that became views of their input.
  passes::Refusals refusals;   // Of passes::lowering_passes().
  uint32_t joined_nodes = 0;   // Nodes whose inputs are computed where the output has them.
  // Edges from launches to Frees of Main: those that became Free-to-Launch relations, and those
  // that could not, with the reason.
  uint32_t launch_edges_removed = 0, launch_edges_kept = 0;
  std::string why_edges_kept;
  // The schedule that Main has, and who touches each interval; or why it has none.
  std::optional<schedule::Plan> schedule;
  std::vector<Accesses> accesses;
  std::string why_no_schedule;
  // What passes::lowering_passes() of this target changed, by name.
  std::vector<std::pair<std::string, uint32_t>> changes;
  // Of several streams of Main; edges: those between tasks of different streams, and those that
  // need no event of their own.
  struct Streams {
    uint32_t count = 1, events = 0, crossing_edges = 0, implied_edges = 0;
    double promised_ns = 0, one_stream_ns = 0;  // Modelled.
  };
  Streams streams;
  std::string why_one_stream;  // When several were asked for.
};

// For how many workers to make a schedule, and the part of the modelled time on one worker that it
// has to promise.
struct ScheduleRequest {
  uint32_t workers = 1;
  double gain = 0.95;
  std::span<const double> node_costs_ns = {};  // As in CompileOptions.
};

// Main only. Inputs and outputs are bound without copies; no node allocates. Where a schedule is
// asked for and promises enough, nodes are in its order.
Result<Lowered> lower_cpu(const ir::Module& module, const ScheduleRequest& request = {},
                          const Sharing& sharing = {});

// As lower_cpu(), for graphs whose shapes are set at run time, and for control flow: values whose
// size is not known live on the heap of the executor; nodes that infer shapes, allocate and free go
// between those that compute (exec/dynamic.h). What follows from the shapes of the inputs alone
// comes first, and is not repeated while these stay the same.
Result<Lowered> lower_cpu_dynamic(const ir::Module& module);

// The same for ascend: kernels of the main graph run on the device, the rest on the host.
Result<Lowered> lower_ascend_dynamic(const ir::Module& module, const std::string& soc);

// True when lower_cpu() cannot take the module: some shape is not static, depends on data, or a
// node has subgraphs.
bool needs_dynamic_lowering(const ir::Module& module);

// What lower_ascend() does beyond what it must; passes::lowering_passes().
struct AscendPasses {
  bool move_to_init = false;    // Pure steps of constants alone run once.
  bool fuse_copies = false;     // Small inputs share a copy.
  bool order_launches = false;  // Of several streams: by distance to the end, if that is sooner.
  uint32_t streams = 1;         // At most; 1 to kStreamsMax (stream_plan.hpp).
  double stream_gain = 1;  // The part of the modelled time on one that several have to promise.
};

// Host-scheduled: Init sinks the weights into device memory, Main allocates, launches, frees and
// copies, DeInit undoes Init. `soc` as in "910B2".
Result<Lowered> lower_ascend(const ir::Module& module, const std::string& soc,
                             const AscendPasses& passes = {});

// Gives planned values their offsets and the model its arena. Returns what made the plan
// (Plan::method); empty when there is nothing to plan. The budget is that of CompileOptions.
Result<std::string_view> place_values(Lowered& lowered, uint64_t plan_budget_ms);

}  // namespace davit::lowering
