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
  CpuLowering(const ir::Module& module, const Prepared& prepared, const Sharing& sharing)
      : module_(module),
        prepared_(prepared),
        sharing_(sharing),
        builder_(module, DVT_TARGET_CPU, "cpu"),
        places_(module.value_count()),
        reads_(module.value_count()),
        rooms_(module.value_count()),
        body_interval_(prepared.bodies.size(), image::kNone),
        image_value_(module.value_count(), image::kNone) {}

  Result<Lowered> run(const ScheduleRequest& request) {
    claim_outputs();
    Lowered lowered;
    order_items(request, lowered);
    find_reads();
    Status status = add_inputs();
    if (status.ok()) status = place_constants();
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
    tie_bodies(lowered.constraints);
    lowered.intervals = std::move(intervals_);
    lowered.distances = std::move(distances_);
    lowered.aliased_nodes = prepared_.aliased_nodes;
    lowered.joined_nodes = prepared_.joined_nodes;
    return lowered;
  }

 private:
  // Where the bytes of a root are. offset: see image::Value and Lowered::intervals; distance: from
  // the beginning of the interval.
  struct Place {
    ValueKind kind;
    uint64_t offset;
    uint64_t distance = 0;
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
      if (value == ir::kNoValue) return;
      prepared_.for_each_written(root_of(value), [&](ir::ValueId written, uint64_t) {
        auto& reads = reads_[index_of(written)];
        if (reads.empty() || reads.back() != node) reads.push_back(node);
      });
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

  // In the order of the graph, whatever the schedule: images for any number of workers have the
  // same weights, and can share a file of them.
  Status place_constants() {
    for (const Step& step : prepared_.steps) {
      for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
        const ir::ValueId value = step.input(module_, k);
        if (value == ir::kNoValue || module_.constant(root_of(value)) == nullptr) continue;
        if (place_of(root_of(value))) continue;
        auto offset = builder_.place_constant(root_of(value));
        if (!offset.ok()) return std::move(offset.status());
        place_of(root_of(value)) = Place{ValueKind::kConstant, *offset};
      }
    }
    return {};
  }

  // The image value of a value: at its root's place, with its own dims and name.
  Result<uint32_t> operand(ir::ValueId value) {
    if (value == ir::kNoValue) return image::kNone;
    uint32_t& known = image_value_[index_of(value)];
    if (known != image::kNone) return known;
    const ir::ValueId root = root_of(value);
    if (!place_of(root)) place_joined(root);
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
    const Place& place = *place_of(root);
    auto added = builder_.add_value(place.kind, value, place.offset);
    if (!added.ok()) return added;
    known = *added;
    const uint64_t distance = place.distance + prepared_.distance_of(value);
    if (place.kind == ValueKind::kPlanned && distance != 0) {
      distances_.resize(known + size_t{1}, 0);
      distances_[known] = distance;
    }
    return known;
  }

  // A root that lies where its parts do.
  void place_joined(ir::ValueId root) {
    if (prepared_.joined.empty() || prepared_.joined[index_of(root)].empty()) return;
    const auto& parts = prepared_.joined[index_of(root)];
    for (const Prepared::Part& part : parts) {
      if (!place_of(part.value)) return;
      auto& rooms = rooms_[index_of(root)];
      for (const uint32_t interval : rooms_[index_of(part.value)]) {
        if (rooms.empty() || rooms.back() != interval) rooms.push_back(interval);
      }
    }
    place_of(root) = place_of(parts.front().value);
  }

  // Room in the arena for what `node` writes and `reads` read. Empty values get a byte, so that no
  // two values that live together share an offset.
  uint32_t add_interval(uint32_t node, std::span<const uint32_t> reads, uint64_t bytes) {
    intervals_.push_back({node, uint64_t{node} + 1, std::max<uint64_t>(bytes, 1)});
    accesses_.push_back({node});
    const auto interval = static_cast<uint32_t>(intervals_.size() - 1);
    extend(interval, node, reads);
    return interval;
  }

  void extend(uint32_t interval, uint32_t node, std::span<const uint32_t> reads) {
    const uint32_t last = reads.empty() ? node : reads.back();
    intervals_[interval].upper = std::max(intervals_[interval].upper, uint64_t{last} + 1);
    accesses_[interval].push_back(node);
    accesses_[interval].insert(accesses_[interval].end(), reads.begin(), reads.end());
  }

  [[nodiscard]] uint32_t body_of(ir::ValueId root) const {
    return prepared_.body.empty() ? image::kNone : prepared_.body[index_of(root)];
  }

  // Whether everything that reads the bytes of `root`, but for `node`, has run when `node` starts.
  [[nodiscard]] bool is_last_read(ir::ValueId root, uint32_t node) const {
    bool last = true;
    prepared_.for_each_written(root, [&](ir::ValueId written, uint64_t) {
      for (const uint32_t reader : reads_[index_of(written)]) {
        last = last && (reader == node || runs_before(reader, node));
      }
    });
    return last;
  }

  [[nodiscard]] bool share_bytes(ir::ValueId root, ir::ValueId other) const {
    bool shared = false;
    prepared_.for_each_written(root, [&](ir::ValueId a, uint64_t) {
      prepared_.for_each_written(other,
                                 [&](ir::ValueId b, uint64_t) { shared = shared || a == b; });
    });
    return shared;
  }

  // The root of input 0 when output 0 may take over its memory: the kernel allows it, all other
  // reads of those bytes have run by then, this is the only one in this node, and the sizes agree.
  std::optional<ir::ValueId> in_place_root(uint32_t node, ir::ValueId output, uint64_t bytes) {
    const Step& step = prepared_.steps[items_[node]];
    if (!sharing_.work_in_place || bytes == 0 || step.recipe.inputs.empty() ||
        (step.recipe.kernel->flags & DVT_KERNEL_IN_PLACE) == 0) {
      return std::nullopt;
    }
    const ir::ValueId input = step.input(module_, 0);
    if (input == ir::kNoValue) return std::nullopt;
    const ir::ValueId root = root_of(input);
    if (!place_of(root) || place_of(root)->kind != ValueKind::kPlanned) return std::nullopt;
    const auto size = tensor_of(module_, root);
    if (!size.ok() || size->bytes != bytes || !is_last_read(root, node)) return std::nullopt;
    for (size_t k = 1; k < step.recipe.inputs.size(); ++k) {
      const ir::ValueId other = step.input(module_, k);
      if (other != ir::kNoValue && share_bytes(root, root_of(other))) return std::nullopt;
    }
    // What has a place of its own in a body takes the other along, if that is free to go.
    const auto& rooms = rooms_[index_of(root)];
    if (body_of(output) != image::kNone && (order_ || rooms.size() != 1 || is_tied(rooms[0]))) {
      return std::nullopt;
    }
    return root;
  }

  [[nodiscard]] bool is_tied(uint32_t interval) const {
    return interval < tied_.size() && tied_[interval];
  }

  // One that a body moves.
  void tie(uint32_t interval) {
    tied_.resize(intervals_.size(), false);
    tied_[interval] = true;
  }

  // Where several workers run at once, a body is one interval; else its members have their own.
  void place_in_body(uint32_t node, ir::ValueId value, uint64_t bytes) {
    const std::vector<uint32_t>& reads = reads_[index_of(value)];
    const uint32_t body = body_of(value);
    if (!order_) {
      const uint32_t interval = add_interval(node, reads, bytes);
      tie(interval);
      place_of(value) = Place{ValueKind::kPlanned, interval};
      rooms_[index_of(value)] = {interval};
      return;
    }
    const auto& parts = prepared_.bodies[body];
    uint32_t& interval = body_interval_[body];
    if (interval == image::kNone) {
      const auto last = tensor_of(module_, parts.back().value);
      interval = add_interval(node, reads, parts.back().distance + (last.ok() ? last->bytes : 0));
    } else {
      extend(interval, node, reads);
    }
    const auto self = std::find_if(parts.begin(), parts.end(),
                                   [&](const auto& part) { return part.value == value; });
    place_of(value) = Place{ValueKind::kPlanned, interval, self->distance};
    rooms_[index_of(value)] = {interval};
  }

  Status place_output(uint32_t node, size_t operand, ir::ValueId value) {
    if (place_of(value)) return {};  // A port.
    const auto tensor = tensor_of(module_, value);
    if (!tensor.ok()) return Status(tensor.status().detail());
    const std::vector<uint32_t>& reads = reads_[index_of(value)];
    const auto reused =
        operand == 0 ? in_place_root(node, value, tensor->bytes) : std::optional<ir::ValueId>();
    if (reused) {
      rooms_[index_of(value)] = rooms_[index_of(*reused)];
      for (const uint32_t interval : rooms_[index_of(value)]) {
        extend(interval, node, reads);
        if (body_of(value) != image::kNone) tie(interval);
      }
      place_of(value) = place_of(*reused);
    } else if (body_of(value) != image::kNone) {
      place_in_body(node, value, tensor->bytes);
    } else {
      const uint32_t interval = add_interval(node, reads, tensor->bytes);
      place_of(value) = Place{ValueKind::kPlanned, interval};
      rooms_[index_of(value)] = {interval};
    }
    return {};
  }

  void tie_bodies(Constraints& constraints) {
    if (order_) return;
    for (const auto& parts : prepared_.bodies) {
      const auto first = static_cast<uint32_t>(place_of(parts.front().value)->offset);
      for (size_t i = 1; i < parts.size(); ++i) {
        const auto interval = static_cast<uint32_t>(place_of(parts[i].value)->offset);
        constraints.ties.push_back({interval, first, parts[i].distance});
      }
    }
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
  const Sharing& sharing_;
  ModelBuilder builder_;
  image::Graph graph_{.role = image::GraphRole::kMain, .nodes = {}};
  // By node: a step, or behind all steps a copy into an output.
  std::vector<uint32_t> items_;
  std::optional<schedule::RunOrder> order_;  // When there is a schedule.
  std::vector<Interval> intervals_;
  std::vector<Accesses> accesses_;            // One per interval.
  std::vector<uint64_t> distances_;           // As Lowered::distances.
  std::vector<std::optional<Place>> places_;  // By root.
  std::vector<std::vector<uint32_t>> reads_;  // By root: nodes that read its bytes, ascending.
  std::vector<std::vector<uint32_t>> rooms_;  // By root: its intervals, when it is planned.
  std::vector<uint32_t> body_interval_;       // By body, where there is a schedule.
  std::vector<bool> tied_;                    // By interval: it moves with a body.
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

Result<Lowered> lower_cpu(const ir::Module& module, const ScheduleRequest& request,
                          const Sharing& sharing) {
  auto prepared = prepare(module);
  if (!prepared.ok()) return std::move(prepared.status());
  passes::Refusals refusals;
  share_memory(module, *prepared, sharing, image::ImageModel().arena_alignment, refusals);
  auto lowered = CpuLowering(module, *prepared, sharing).run(request);
  if (lowered.ok()) lowered->refusals = std::move(refusals);
  return lowered;
}

Result<std::string_view> place_values(Lowered& lowered, uint64_t plan_budget_ms) {
  if (lowered.intervals.empty()) return std::string_view();
  const PlanOptions options{.alignment = lowered.model.arena_alignment,
                            .search_steps = plan_budget_ms * kSearchStepsPerMs};
  auto plan = lowered.schedule
                  ? plan_parallel_memory(lowered.intervals, lowered.accesses,
                                         schedule::RunOrder(*lowered.schedule), options)
                  : plan_memory(lowered.intervals, lowered.constraints, options);
  if (!plan.ok()) return std::move(plan.status());
  uint64_t end = 0;  // The plan's arena may be larger by the room of empty values.
  for (size_t i = 0; i < lowered.model.values.size(); ++i) {
    image::Value& value = lowered.model.values[i];
    if (value.kind != ValueKind::kPlanned) continue;
    value.offset = plan->offsets[value.offset];
    if (i < lowered.distances.size()) value.offset += lowered.distances[i];
    if (value.tensor.bytes > 0) end = std::max(end, value.offset + value.tensor.bytes);
  }
  drop_costly_schedule(lowered);
  const uint64_t alignment = lowered.model.arena_alignment;
  lowered.model.arena_bytes = (end + alignment - 1) & ~(alignment - 1);
  lowered.model.lower_bound_bytes = std::min(plan->lower_bound_bytes, lowered.model.arena_bytes);
  return plan->method;
}

}  // namespace davit::lowering
