// Target cpu: one node per kernel, planned memory, ports bound without copies.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "exec/dependencies.hpp"
#include "lowering/lower.hpp"
#include "lowering/parallel_planner.hpp"
#include "lowering/prepare.hpp"
#include "lowering/schedule_steps.hpp"

namespace davit::lowering {
namespace {

using image::ValueKind;

class CpuLowering {
 public:
  CpuLowering(const ir::Module& module, const Prepared& prepared)
      : module_(module),
        prepared_(prepared),
        builder_(module, DVT_TARGET_CPU, "cpu"),
        places_(module.value_count()),
        reads_(module.value_count()),
        image_value_(module.value_count(), image::kNone) {}

  Result<Lowered> run(const ScheduleRequest& request) {
    claim_outputs();
    Lowered lowered;
    order_items(request, lowered);
    find_reads();
    Status status = add_inputs();
    for (uint32_t node = 0; status.ok() && node < items_.size(); ++node) {
      const bool is_step = items_[node] < prepared_.steps.size();
      status = is_step ? add_step(node) : add_copy(node);
    }
    if (status.ok()) status = add_ports();
    if (!status.ok()) return status;
    if (lowered.schedule) {
      graph_.schedule = {lowered.schedule->part_offsets, lowered.schedule->order,
                         lowered.schedule->wait_offsets, lowered.schedule->waits};
      lowered.accesses = std::move(accesses_);
    }
    builder_.model().graphs.push_back(std::move(graph_));
    lowered.model = std::move(builder_.model());
    lowered.intervals = std::move(intervals_);
    lowered.aliased_nodes = prepared_.aliased_nodes;
    return lowered;
  }

 private:
  // Where the bytes of a root are. offset: see image::Value and Lowered::intervals.
  struct Place {
    ValueKind kind;
    uint64_t offset;
  };

  std::optional<Place>& place_of(ir::ValueId root) { return places_[index_of(root)]; }
  [[nodiscard]] ir::ValueId root_of(ir::ValueId value) const { return prepared_.root_of(value); }

  // A result that is a graph output, or that a graph output is a view of, is written straight into
  // the port. Everything else that leaves through a port (inputs, constants, a second name of the
  // same bytes) is copied there at the end.
  void claim_outputs() {
    const auto outputs = module_.graph_outputs(ir::kMainGraph);
    for (uint32_t port = 0; port < outputs.size(); ++port) {
      const ir::ValueId root = root_of(outputs[port]);
      if (module_.producer(root) == ir::kNoNode || place_of(root)) {
        copied_outputs_.push_back(port);
      } else {
        place_of(root) = Place{ValueKind::kOutput, port};
      }
    }
  }

  // Items become nodes: in their own order, or in that of a schedule.
  void order_items(const ScheduleRequest& request, Lowered& lowered) {
    copy_values_.resize(copied_outputs_.size());
    items_.resize(prepared_.steps.size() + copied_outputs_.size());
    std::iota(items_.begin(), items_.end(), 0U);
    if (request.workers < 2) return;
    if (module_.value_count() > kParallelValuesMax) {
      lowered.why_no_schedule = "the graph has more than " + std::to_string(kParallelValuesMax) +
                                " values, too many to plan their memory for several workers";
      return;
    }
    if (!request.node_costs_ns.empty() && request.node_costs_ns.size() != items_.size()) {
      lowered.why_no_schedule = "the costs that were given are those of another graph";
      return;
    }
    schedule::Plan plan = schedule_steps(module_, prepared_, copied_outputs_, request);
    if (plan.part_offsets.size() == 2) {
      lowered.why_no_schedule = "none promises to be faster than one worker by as much as it must";
      return;
    }
    items_ = plan.sequence;
    lowered.schedule = renumbered(std::move(plan));
    order_.emplace(*lowered.schedule);
  }

  // Whether node `first` has certainly run when node `then` starts.
  [[nodiscard]] bool runs_before(uint32_t first, uint32_t then) const {
    return order_ ? order_->before(first, then) : first < then;
  }

  void find_reads() {
    const auto read = [&](ir::ValueId value, uint32_t node) {
      if (value != ir::kNoValue) reads_[index_of(root_of(value))].push_back(node);
    };
    const auto steps = static_cast<uint32_t>(prepared_.steps.size());
    const auto outputs = module_.graph_outputs(ir::kMainGraph);
    for (uint32_t node = 0; node < items_.size(); ++node) {
      if (items_[node] >= steps) {
        read(outputs[copied_outputs_[items_[node] - steps]], node);
        continue;
      }
      const Step& step = prepared_.steps[items_[node]];
      for (size_t k = 0; k < step.recipe.inputs.size(); ++k) read(step.input(module_, k), node);
    }
  }

  Status add_inputs() {
    const auto inputs = module_.graph_inputs(ir::kMainGraph);
    for (uint32_t port = 0; port < inputs.size(); ++port) {
      place_of(inputs[port]) = Place{ValueKind::kInput, port};
      auto value = operand(inputs[port]);
      if (!value.ok()) return std::move(value.status());
      input_values_.push_back(*value);
    }
    return {};
  }

  // The image value of a value: at its root's place, with its own dims and name.
  Result<uint32_t> operand(ir::ValueId value) {
    if (value == ir::kNoValue) return image::kNone;
    uint32_t& known = image_value_[index_of(value)];
    if (known != image::kNone) return known;
    const ir::ValueId root = root_of(value);
    if (!place_of(root)) {
      if (module_.constant(root) == nullptr) {
        return Status(ErrorDetail{.code = DVT_INTERNAL,
                                  .stage = DVT_STAGE_LOWER,
                                  .message = "a value is read before it is computed",
                                  .tensor = std::string(module_.value_name(value))});
      }
      auto offset = builder_.place_constant(root);
      if (!offset.ok()) return std::move(offset.status());
      place_of(root) = Place{ValueKind::kConstant, *offset};
    }
    auto added = builder_.add_value(place_of(root)->kind, value, place_of(root)->offset);
    if (added.ok()) known = *added;
    return added;
  }

  // Room in the arena for what `node` writes and `reads` read. Empty values get a byte, so that no
  // two values that live together share an offset.
  uint32_t add_interval(uint32_t node, std::span<const uint32_t> reads, uint64_t bytes) {
    const uint32_t last = reads.empty() ? node : reads.back();
    intervals_.push_back({node, uint64_t(last) + 1, std::max<uint64_t>(bytes, 1)});
    accesses_.push_back({node});
    accesses_.back().insert(accesses_.back().end(), reads.begin(), reads.end());
    return uint32_t(intervals_.size() - 1);
  }

  // The interval of input 0 when output 0 may take over its memory: the kernel allows it, all other
  // reads of those bytes have run by then, this is the only one in this node, and the sizes agree.
  std::optional<uint64_t> in_place_interval(uint32_t node, uint64_t bytes) {
    const Step& step = prepared_.steps[items_[node]];
    if ((step.recipe.kernel->flags & DVT_KERNEL_IN_PLACE) == 0 || step.recipe.inputs.empty()) {
      return std::nullopt;
    }
    const ir::ValueId input = step.input(module_, 0);
    if (input == ir::kNoValue) return std::nullopt;
    const ir::ValueId root = root_of(input);
    if (!place_of(root) || place_of(root)->kind != ValueKind::kPlanned) return std::nullopt;
    for (const uint32_t reader : reads_[index_of(root)]) {
      if (reader != node && !runs_before(reader, node)) return std::nullopt;
    }
    for (size_t k = 1; k < step.recipe.inputs.size(); ++k) {
      const ir::ValueId other = step.input(module_, k);
      if (other != ir::kNoValue && root_of(other) == root) return std::nullopt;
    }
    const uint64_t interval = place_of(root)->offset;
    if (bytes == 0 || intervals_[interval].size != bytes) return std::nullopt;
    return interval;
  }

  Status place_output(uint32_t node, size_t operand, ir::ValueId value) {
    if (place_of(value)) return {};  // A port.
    const auto tensor = tensor_of(module_, value);
    if (!tensor.ok()) return Status(tensor.status().detail());
    const std::vector<uint32_t>& reads = reads_[index_of(value)];
    const auto reused =
        operand == 0 ? in_place_interval(node, tensor->bytes) : std::optional<uint64_t>();
    if (reused) {
      intervals_[*reused].upper = uint64_t(reads.empty() ? node : reads.back()) + 1;
      accesses_[*reused].insert(accesses_[*reused].end(), reads.begin(), reads.end());
      place_of(value) = Place{ValueKind::kPlanned, *reused};
    } else {
      place_of(value) = Place{ValueKind::kPlanned, add_interval(node, reads, tensor->bytes)};
    }
    return {};
  }

  Status add_step(uint32_t index) {
    const Step& step = prepared_.steps[items_[index]];
    image::Node node = builder_.node_of(step);
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
      auto value = operand(step.input(module_, k));
      if (!value.ok()) return std::move(value.status());
      node.inputs.push_back(*value);
    }
    for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
      const ir::ValueId output = step.output(module_, k);
      if (Status status = place_output(index, k, output); !status.ok()) return status;
      auto value = operand(output);
      if (!value.ok()) return std::move(value.status());
      node.outputs.push_back(*value);
    }
    for (const uint64_t bytes : step.recipe.workspace_bytes) {
      node.outputs.push_back(
          builder_.add_scratch(ValueKind::kPlanned, bytes, add_interval(index, {}, bytes)));
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  Status add_copy(uint32_t index) {
    const size_t copy = items_[index] - prepared_.steps.size();
    const uint32_t port = copied_outputs_[copy];
    const ir::ValueId output = module_.graph_outputs(ir::kMainGraph)[port];
    auto from = operand(output);
    if (!from.ok()) return std::move(from.status());
    auto to = builder_.add_value(ValueKind::kOutput, output, port);
    if (!to.ok()) return std::move(to.status());
    const DvtKernel* kernel = ops::find_kernel("Copy");
    graph_.nodes.push_back({.kernel = builder_.add_kernel(*kernel),
                            .inputs = {*from},
                            .outputs = {*to},
                            .lane = uint8_t(kernel->flags & DVT_KERNEL_LANE_MASK),
                            .origin = std::string(module_.value_name(output)),
                            .op = "davit::Copy"});
    copy_values_[copy] = *to;
    return {};
  }

  Status add_ports() {
    const auto outputs = module_.graph_outputs(ir::kMainGraph);
    std::vector<uint32_t> output_values;
    for (uint32_t port = 0, copy = 0; port < outputs.size(); ++port) {
      if (copy < copied_outputs_.size() && copied_outputs_[copy] == port) {
        output_values.push_back(copy_values_[copy++]);
        continue;
      }
      auto value = operand(outputs[port]);
      if (!value.ok()) return std::move(value.status());
      output_values.push_back(*value);
    }
    builder_.set_ports(input_values_, output_values);
    return {};
  }

  const ir::Module& module_;
  const Prepared& prepared_;
  ModelBuilder builder_;
  image::Graph graph_{.role = image::GraphRole::kMain, .nodes = {}};
  // By node: a step, or behind all steps a copy into an output.
  std::vector<uint32_t> items_;
  std::optional<schedule::RunOrder> order_;  // When there is a schedule.
  std::vector<Interval> intervals_;
  std::vector<Accesses> accesses_;            // One per interval.
  std::vector<std::optional<Place>> places_;  // By root.
  std::vector<std::vector<uint32_t>> reads_;  // By root: nodes that read its bytes, ascending.
  std::vector<uint32_t> image_value_;         // By value, or kNone.
  std::vector<uint32_t> input_values_;
  std::vector<uint32_t> copied_outputs_;  // Ports, ascending.
  std::vector<uint32_t> copy_values_;     // One per copied output.
};

// A schedule that the loader would take too long to prove is left out. The order of the nodes and
// their memory suit it, and do no harm without.
void drop_costly_schedule(Lowered& lowered) {
  if (!lowered.schedule) return;
  const auto& values = lowered.model.values;
  std::vector<uint64_t> cuts;
  for (const image::Value& value : values) {
    if (value.kind != ValueKind::kPlanned) continue;
    cuts.push_back(value.offset);
    cuts.push_back(value.offset + value.tensor.bytes);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  uint64_t pieces = 0;
  const auto add = [&](uint32_t value) {
    if (value == image::kNone || values[value].kind != ValueKind::kPlanned) return;
    const uint64_t begin = values[value].offset;
    const auto first = std::lower_bound(cuts.begin(), cuts.end(), begin);
    const auto last = std::lower_bound(first, cuts.end(), begin + values[value].tensor.bytes);
    pieces += static_cast<uint64_t>(last - first);
  };
  image::Graph& main = lowered.model.graphs.back();
  for (const image::Node& node : main.nodes) {
    for (const uint32_t value : node.inputs) add(value);
    for (const uint32_t value : node.outputs) add(value);
  }
  if (pieces <= exec::kSweepStepsMax / 2) return;
  main.schedule = {};
  lowered.schedule.reset();
  lowered.why_no_schedule = "too many values share memory to prove it";
}

}  // namespace

Result<Lowered> lower_cpu(const ir::Module& module, const ScheduleRequest& request) {
  auto prepared = prepare(module);
  if (!prepared.ok()) return std::move(prepared.status());
  return CpuLowering(module, *prepared).run(request);
}

Result<std::string_view> place_values(Lowered& lowered, uint64_t plan_budget_ms) {
  if (lowered.intervals.empty()) return std::string_view();
  const PlanOptions options{.alignment = lowered.model.arena_alignment,
                            .search_steps = plan_budget_ms * kSearchStepsPerMs};
  auto plan = lowered.schedule
                  ? plan_parallel_memory(lowered.intervals, lowered.accesses,
                                         schedule::RunOrder(*lowered.schedule), options)
                  : plan_memory(lowered.intervals, options);
  if (!plan.ok()) return std::move(plan.status());
  uint64_t end = 0;  // The plan's arena may be larger by the room of empty values.
  for (image::Value& value : lowered.model.values) {
    if (value.kind != ValueKind::kPlanned) continue;
    value.offset = plan->offsets[value.offset];
    if (value.tensor.bytes > 0) end = std::max(end, value.offset + value.tensor.bytes);
  }
  drop_costly_schedule(lowered);
  const uint64_t alignment = lowered.model.arena_alignment;
  lowered.model.arena_bytes = (end + alignment - 1) & ~(alignment - 1);
  lowered.model.lower_bound_bytes = std::min(plan->lower_bound_bytes, lowered.model.arena_bytes);
  return plan->method;
}

}  // namespace davit::lowering
