// What an executor keeps for dynamic shapes and for nodes that run bodies (exec/dynamic.h).
#include <cstring>

#include "exec/executor.hpp"

using davit::exec::GraphView;
using davit::exec::kNone;
using davit::exec::runs_bodies;
using davit::exec::ShapeNodeFacts;
using davit::exec::StepList;
using davit::exec::ValueKind;

namespace {

// The record that the executor, who builds contexts, puts in place of the image's.
template <class Record>
void set_record(const StepList& list, uint32_t node, Record* record) {
  static_cast<DvtContext*>(list.steps[node].ctx)->attributes = record;
}

}  // namespace

// The slot of the one dynamic output of an InferShape node, when that is an output of the image.
const DvtOutputSlot* DvtExecutor::trusted_slot(const GraphView& graph, uint32_t node) const {
  const auto outputs = graph.outputs_of(node);
  if (outputs.size() != 1 || view_.values.kind[outputs[0]] != ValueKind::kOutput) return nullptr;
  const DvtOutputSlot* slot = runtime_->outputs + view_.values.offset[outputs[0]];
  return slot->is_bound_only != 0 ? nullptr : slot;
}

// Shape nodes of one graph take turns with what they scratch on.
void DvtExecutor::build_shape_nodes(const StepList& list, bool trust_output_shapes) {
  const GraphView& graph = *list.graph;
  auto* nodes = block_.at<DvtShapeNode>(layout_.shape_nodes);
  auto* const memos = block_.at<unsigned char>(layout_.memos);
  auto* const scratch = block_.at<DvtTensor>(layout_.scratch) +
                        runner_[&graph - view_.graphs.data()] * layout_.scratch_tensors;
  for (uint32_t node = 0; node < list.count; ++node) {
    if (dvt_host_node(view_.kernels[graph.kernel[node]]) != DVT_HOST_INFER_SHAPE) continue;
    const ShapeNodeFacts facts = davit::exec::shape_node_facts(view_, graph, node);
    DvtShapeNode& record = nodes[shape_node_count_++];
    record = {.target = static_cast<const DvtContext*>(list.steps[facts.target].ctx),
              .kernel = view_.kernels[facts.kernel],
              .scratch = scratch,
              .memo = facts.remembers ? memos + memo_bytes_ : nullptr,
              .memo_bytes = facts.memo_bytes,
              .used = 0,
              .next = 0,
              .input_count = facts.dynamic_inputs,
              .output_count = static_cast<uint32_t>(graph.outputs_of(node).size()),
              .hits = 0,
              .misses = 0,
              .trusted = trust_output_shapes ? trusted_slot(graph, node) : nullptr};
    if (facts.remembers) memo_bytes_ += uint64_t{DVT_SHAPE_MEMO_WAYS} * facts.memo_bytes;
    set_record(list, node, &record);
  }
}

void DvtExecutor::build_flow_nodes(const StepList& list) {
  const GraphView& graph = *list.graph;
  for (uint32_t node = 0; node < list.count; ++node) {
    const auto bodies = graph.bodies_of(node);
    const DvtHostNode kind = dvt_host_node(view_.kernels[graph.kernel[node]]);
    if (!runs_bodies(kind)) continue;
    static_cast<DvtContext*>(list.steps[node].ctx)->runtime =
        block_.at<DvtRuntime>(layout_.flow_runtimes) + flow_node_count_;
    auto* const record = block_.at<DvtFlowNode>(layout_.flow_nodes) + flow_node_count_++;
    auto* body = block_.at<DvtBody>(layout_.bodies) + body_count_;
    body_count_ += bodies.size();
    auto* capacity = block_.at<uint64_t>(layout_.capacities) + collected_count_;
    auto* declared = block_.at<DvtTensor>(layout_.declared) + collected_count_;
    *record = {.attributes = static_cast<DvtContext*>(list.steps[node].ctx)->attributes,
               .body_count = static_cast<uint32_t>(bodies.size()),
               .gear = 0,
               .bodies = body,
               .capacity = capacity,
               .declared = declared};
    for (const uint32_t id : bodies) {
      *body++ = {.steps = bodies_[id].steps, .count = bodies_[id].count, .graph = id};
      runner_[id] = static_cast<uint32_t>(flow_node_count_);
    }
    const uint32_t collected = davit::exec::collected_outputs(kind, graph, node);
    const uint32_t states = static_cast<uint32_t>(
        collected == 0 ? 0 : static_cast<const DvtLoopAttributes*>(record->attributes)->states);
    for (uint32_t j = 0; j < collected; ++j) {
      declared[j] = *view_.tensor_of(graph.outputs_of(node)[states + j]);
    }
    collected_count_ += collected;
    if (kind == DVT_HOST_SELECT_GEAR) gears_ = record;
    set_record(list, node, record);
  }
}

// Outputs whose shape depends on data: their memory is bound before the shape is known.
void DvtExecutor::mark_bounded_outputs() {
  const GraphView& main = *main_.graph;
  for (uint32_t node = 0; node < main.node_count; ++node) {
    if ((view_.kernel_refs[main.kernel[node]].flags & DVT_KERNEL_SHAPES_OUTPUTS) == 0) continue;
    for (const uint32_t value : main.outputs_of(node)) {
      if (view_.values.kind[value] != ValueKind::kOutput) continue;
      runtime_->outputs[view_.values.offset[value]].is_bound_only = 1;
    }
  }
}

void DvtExecutor::build_dynamic(bool trust_output_shapes) {
  runtime_->outputs = block_.at<DvtOutputSlot>(layout_.outputs);
  for (size_t i = 0; i < view_.outputs.size(); ++i) {
    runtime_->outputs[i].name = view_.strings[view_.outputs[i].name];
  }
  mark_bounded_outputs();
  runtime_->run_body = &DvtExecutor::run_body;
  runtime_->executor = this;
  runner_.assign(view_.graphs.size(), 0);
  failed_at_.assign(view_.graphs.size(), kNone);
  const auto for_each_graph = [&](const auto& build) {
    for (const StepList& list : {init_, main_, deinit_}) {
      if (list.graph != nullptr) build(list);
    }
    for (const StepList& list : bodies_) {
      if (list.graph != nullptr) build(list);
    }
  };
  for_each_graph([&](const StepList& list) { build_flow_nodes(list); });
  for_each_graph([&](const StepList& list) { build_shape_nodes(list, trust_output_shapes); });
}

// What a node that runs bodies, and those in its bodies, find behind their contexts. When all else
// is there.
void DvtExecutor::build_flow_runtimes() {
  auto* const runtimes = block_.at<DvtRuntime>(layout_.flow_runtimes);
  for (size_t i = 0; i < flow_node_count_; ++i) {
    runtimes[i] = *runtime_;
    runtimes[i].reason =
        runtime_->reason + (i + 1) * davit::exec::kReasons * davit::exec::kReasonBytes;
  }
  for (uint32_t id = 0; id < bodies_.size(); ++id) {
    const StepList& list = bodies_[id];
    if (is_in_place_of_main(id)) continue;  // Its nodes have what Main's would have.
    for (uint32_t node = 0; node < list.count; ++node) {
      if (runs_bodies(dvt_host_node(view_.kernels[list.graph->kernel[node]]))) continue;
      static_cast<DvtContext*>(list.steps[node].ctx)->runtime = runtimes + runner_[id] - 1;
    }
  }
}

DvtCode DvtExecutor::run_body(DvtRuntime* runtime, const DvtBody* body) {
  auto& executor = *static_cast<DvtExecutor*>(runtime->executor);
  uint32_t failed = kNone;
  const DvtCode code = executor.is_device_gear(body)
                           ? executor.run_device_gear(*runtime, *body, failed)
                       : executor.sharing_ != nullptr
                           ? executor.run_body_shared(body->graph, failed)
                           : executor.run_body_in_order(executor.bodies_[body->graph], failed);
  if (code != DVT_OK) executor.failed_at_[body->graph] = failed;
  return code;
}

DvtCode DvtExecutor::run_body_in_order(const StepList& body, uint32_t& failed) {
  const davit::exec::RunRequest& request = *request_;
  const DvtStepCheck asked = {may_go_on, this};
  const DvtStepCheck* const check = request.control.limited() ? &asked : nullptr;
  // A loop whose body is empty ends, too.
  if (body.count == 0) return check == nullptr ? DVT_OK : may_go_on(this);
  int32_t code = DVT_OK;
  size_t done = 0;
  if (request.observer != nullptr) {
    done = davit::exec::run_observed_body(view_, body, *request.observer, check, &code);
  } else if (check != nullptr) {
    done = dvt_sequential_run_checked(body.steps, body.count, check, &code);
  } else {
    done = dvt_sequential_run(body.steps, body.count, &code);
  }
  failed = static_cast<uint32_t>(done);
  return code;
}

// Of a run on several workers, by one of them.
DvtCode DvtExecutor::run_body_shared(uint32_t graph, uint32_t& failed) {
  // The run has ended; whatever this says, the first failure is kept.
  if (sharing_->has_failed_around(graph)) return DVT_CANCELLED;
  if (bodies_[graph].count == 0) return run_body_in_order(bodies_[graph], failed);
  const davit::exec::RunRequest& request = *request_;
  const davit::mt_topo::Outcome outcome =
      request.observer == nullptr
          ? sharing_->run_body(graph, request.control, nullptr)
          : davit::exec::run_observed_body(view_, bodies_[graph], *request.observer,
                                           [&](const davit::mt_topo::RunObserver& observer) {
                                             return sharing_->run_body(graph, request.control,
                                                                       &observer);
                                           });
  failed = outcome.node;
  if (outcome.code != DVT_OK && outcome.node == davit::mt_topo::kNoNode) {
    limit_reached_.store(true, std::memory_order_relaxed);
  }
  return outcome.code;
}

void DvtExecutor::statistics(DvtExecutorStatistics& out) const {
  const auto* nodes = block_.at<DvtShapeNode>(layout_.shape_nodes);
  for (uint32_t i = 0; i < shape_node_count_; ++i) {
    out.shape_hits += nodes[i].hits;
    out.shape_misses += nodes[i].misses;
  }
  DvtMemoryStatistics heap;
  memory(DVT_MEMORY_HEAP, heap);
  out.heap_live_bytes = heap.live_bytes;
  out.heap_cached_bytes = heap.cached_bytes;
  out.heap_peak_bytes = heap.reserved_peak_bytes;
  out.heap_allocations = heap.allocations;
  out.heap_system_allocations = heap.system_allocations;
}
