// Fills in the block of an executor. Runs once, at load; every index was proved by the verifier.
#include <cstring>
#include <vector>

#include "exec/executor.hpp"
#include "exec/gears.hpp"

using davit::exec::GraphView;
using davit::exec::kNone;
using davit::exec::StepList;
using davit::exec::ValueKind;

namespace {

// By stream: whether the graph submits something to it after its last SyncStream.
std::vector<bool> busy_streams(const davit::exec::ImageView& view, const GraphView& graph) {
  std::vector<bool> busy(view.stream_count, false);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    if (dvt_device_node(view.kernels[graph.kernel[node]]) == DVT_NODE_SYNC_STREAM) {
      DvtStreamAttributes attributes;
      std::memcpy(&attributes, graph.attributes_of(node).data(), sizeof attributes);
      busy[static_cast<size_t>(attributes.stream)] = false;
    } else if (graph.lane[node] == DVT_KERNEL_LANE_LAUNCH && graph.stream_of(node) != kNone) {
      busy[graph.stream_of(node)] = true;
    }
  }
  return busy;
}

}  // namespace

void DvtExecutor::build_cells() {
  arena_ = block_.at<std::byte>(layout_.values);
  auto* shape = block_.at<DvtTensor>(layout_.shapes);
  for (uint32_t value = 0; value < view_.values.count; ++value) {
    DvtCell& cell = cells_[value];
    cell.tensor = view_.tensor_of(value);
    if (view_.is_dynamic(value)) {
      *shape = *cell.tensor;
      // Until one is bound (exec/bindings.cpp).
      if (view_.values.kind[value] == ValueKind::kInput) shape->rank = DVT_RANK_UNKNOWN;
      cell.tensor = shape++;
    }
    if (view_.values.kind[value] == ValueKind::kPlanned) {
      cell.data = arena_ + view_.values.offset[value];
    } else if (view_.values.kind[value] == ValueKind::kConstant) {
      // Verifier: no node writes a constant.
      cell.data = const_cast<std::byte*>(view_.constant_data(value));
    }
  }
}

// CSR from ports to the values whose cells a binding fills in.
void DvtExecutor::build_ports() {
  const auto slot_of = [&](uint32_t value) -> uint32_t {
    const auto port = static_cast<uint32_t>(view_.values.offset[value]);
    if (view_.values.kind[value] == ValueKind::kInput) return port;
    if (view_.values.kind[value] == ValueKind::kOutput) {
      return static_cast<uint32_t>(view_.inputs.size()) + port;
    }
    return kNone;
  };
  auto* const offsets = block_.at<uint32_t>(layout_.port_offsets);
  auto* const port_values = block_.at<uint32_t>(layout_.port_values);
  const uint32_t ports = port_count();
  for (uint32_t value = 0; value < view_.values.count; ++value) {
    if (const uint32_t slot = slot_of(value); slot != kNone) ++offsets[slot];
  }
  // First offsets[slot] is the end of the row; filling the rows from behind leaves their starts.
  for (uint32_t slot = 1; slot <= ports; ++slot) offsets[slot] += offsets[slot - 1];
  for (uint32_t value = view_.values.count; value-- > 0;) {
    if (const uint32_t slot = slot_of(value); slot != kNone) port_values[--offsets[slot]] = value;
  }
  for (uint32_t slot = 0; slot < ports; ++slot) {
    bindings_[slot].bytes = view_.descs[port_at(slot).desc].bytes;
  }
}

void DvtExecutor::build_context(const GraphView& graph, uint32_t node, DvtContext* context) {
  const auto inputs = graph.inputs_of(node);
  const auto outputs = graph.outputs_of(node);
  const auto attributes = graph.attributes_of(node);
  context->runtime = runtime_;
  context->attributes = attributes.empty() ? nullptr : attributes.data();
  context->input_count = static_cast<uint16_t>(inputs.size());
  context->output_count = static_cast<uint16_t>(outputs.size());
  context->node = node;
  context->stream = graph.stream_of(node);
  context->device_kernel = graph.device_kernel_of(node);
  DvtCell** cell = context->cells;
  for (const uint32_t value : inputs) *cell++ = value == kNone ? nullptr : cells_ + value;
  for (const uint32_t value : outputs) *cell++ = value == kNone ? nullptr : cells_ + value;
}

void DvtExecutor::build_steps() {
  auto* step = block_.at<DvtStep>(layout_.steps);
  auto* context = block_.at<std::byte>(layout_.contexts);
  const auto build = [&](StepList& list, const GraphView& graph) {
    list = {.steps = step, .count = graph.node_count, .graph = &graph};
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      build_context(graph, node, reinterpret_cast<DvtContext*>(context));
      *step++ = {view_.kernels[graph.kernel[node]]->run, context};
      const size_t operands = graph.inputs_of(node).size() + graph.outputs_of(node).size();
      context += offsetof(DvtContext, cells) + operands * sizeof(DvtCell*);
    }
  };
  StepList* lists[] = {&init_, &main_, &deinit_};
  const auto ids = davit::exec::runnable_graphs(view_);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != kNone) build(*lists[i], view_.graphs[ids[i]]);
  }
  bodies_.resize(view_.graphs.size());
  for (size_t i = 0; i < view_.graphs.size(); ++i) {
    if (view_.graphs[i].role == davit::exec::GraphRole::kBody) build(bodies_[i], view_.graphs[i]);
  }
}

void DvtExecutor::build_device_tables() {
  runtime_->streams = block_.at<DvtStream*>(layout_.streams);
  runtime_->events = block_.at<DvtEvent*>(layout_.events);
  runtime_->stream_count = view_.stream_count;
  runtime_->event_count = view_.event_count;
  runtime_->kernels = view_.kernels.data();
  runtime_->kernel_count = static_cast<uint32_t>(view_.kernels.size());
  runtime_->launch_buffer = block_.at<std::byte>(layout_.launch);
  runtime_->launch_buffer_bytes = layout_.launch_bytes;
  runtime_->reason = block_.at<char>(layout_.reason);
  runtime_->reason_bytes = davit::exec::kReasonBytes;
  if (!layout_.uses_device) return;

  auto* names = block_.at<DvtNodeNames>(layout_.names);
  auto* costs = block_.at<const DvtTaskCost*>(layout_.costs);
  std::vector<StepList*> lists = {&init_, &main_, &deinit_};
  for (const uint32_t body : davit::exec::gears_of(view_).bodies()) lists.push_back(&bodies_[body]);
  for (StepList* list : lists) {
    list->names = names;
    list->costs = costs;
    for (uint32_t node = 0; node < list->count; ++node) {
      *names++ = {view_.strings[list->graph->origin_of(node)],
                  view_.strings[list->graph->op_of(node)]};
      const uint32_t cost = list->graph->cost_of(node);
      *costs++ = cost == kNone ? nullptr : view_.costs + cost;
    }
  }
  note_unjoined_streams();
}

// Streams that Main, or a gear in its place, may leave busy: something is submitted after the last
// SyncStream. A caller may reuse its buffers when a run returns, so the executor waits for these.
void DvtExecutor::note_unjoined_streams() {
  auto* const unjoined = block_.at<uint8_t>(layout_.unjoined);
  for (const uint32_t id : davit::exec::main_graphs(view_)) {
    const std::vector<bool> left = busy_streams(view_, view_.graphs[id]);
    for (uint32_t i = 0; i < left.size(); ++i) unjoined[i] |= left[i] ? 1 : 0;
  }
}
