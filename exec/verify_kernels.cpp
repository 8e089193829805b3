// Stage 8 of the verifier: asks every kernel whether it could survive its node.
#include <algorithm>
#include <string>

#include "exec/dynamic.h"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

// Builds one context after the other in the same memory. Contexts hold one cell per operand: a
// value that a node uses twice has two cells here, and one in an executor.
class ContextBuilder {
 public:
  explicit ContextBuilder(const ImageView& view) : view_(view) {
    size_t operands = 0;
    for (const GraphView& graph : view.graphs) {
      for (uint32_t i = 0; i < graph.node_count; ++i) {
        operands = std::max(operands, graph.inputs_of(i).size() + graph.outputs_of(i).size());
      }
    }
    // Device nodes ask for the counts of streams and events (exec/device_kernels.c).
    runtime_.stream_count = view.stream_count;
    runtime_.event_count = view.event_count;
    cells_.resize(operands);
    record_.resize((offsetof(DvtContext, cells) + operands * sizeof(DvtCell*) + 7) / 8 + 1);
  }

  // Valid until the next call. Operand counts fit in 16 bits: the kernel's limits are 16-bit
  // (verifier: check_signature).
  const DvtContext* build(const GraphView& graph, uint32_t node) {
    const auto inputs = graph.inputs_of(node);
    const auto outputs = graph.outputs_of(node);
    auto* context = reinterpret_cast<DvtContext*>(record_.data());
    context->runtime = &runtime_;
    context->attributes = graph.attributes_of(node).data();
    context->input_count = static_cast<uint16_t>(inputs.size());
    context->output_count = static_cast<uint16_t>(outputs.size());
    context->node = node;
    context->stream = graph.stream_of(node);
    context->device_kernel = graph.device_kernel_of(node);
    DvtCell** cell = context->cells;
    size_t next = 0;
    for (const uint32_t value : inputs) *cell++ = fill_cell(value, next++);
    for (const uint32_t value : outputs) *cell++ = fill_cell(value, next++);
    return context;
  }

 private:
  DvtCell* fill_cell(uint32_t value, size_t at) {
    if (value == kNone) return nullptr;
    DvtCell& cell = cells_[at];
    cell.tensor = view_.tensor_of(value);
    cell.data = nullptr;
    if (view_.values.kind[value] == ValueKind::kConstant) {
      // Verifier: constants are inputs only, so nobody writes through this pointer.
      cell.data = const_cast<std::byte*>(view_.constant_data(value));
    }
    return &cell;
  }

  const ImageView& view_;
  DvtRuntime runtime_{};
  std::vector<DvtCell> cells_;
  std::vector<uint64_t> record_;
};

Status refused(const ImageView& view, uint32_t graph, uint32_t node, const DvtKernel& kernel,
               DvtCode code, const char* reason) {
  const GraphView& g = view.graphs[graph];
  Status status = failed(code, "graphs[%u] node %u: kernel \"%s\" refuses its operands: %s", graph,
                         node, kernel.name, reason[0] == '\0' ? "no reason given" : reason);
  status.detail().node = view.strings[g.origin_of(node)];
  status.detail().op = view.strings[g.op_of(node)];
  if (status.detail().op.empty()) status.detail().op = kernel.name;
  return status;
}

// InferShape asks the kernel, when the shapes are known.
bool has_dynamic_operands(const ImageView& view, const GraphView& graph, uint32_t node) {
  const auto dynamic = [&](uint32_t value) { return value != kNone && view.is_dynamic(value); };
  const auto inputs = graph.inputs_of(node);
  const uint32_t device_kernel = graph.device_kernel_of(node);
  const uint32_t host_inputs =
      view.kernels[device_kernel == kNone ? graph.kernel[node] : device_kernel]->host_inputs;
  if (host_inputs == 0 && !view.has_dynamic_descs) return false;
  for (size_t i = 0; i < inputs.size() && i < 32; ++i) {
    if ((host_inputs >> i & 1) != 0 && inputs[i] != kNone &&
        view.values.kind[inputs[i]] != ValueKind::kConstant) {
      return true;
    }
  }
  const auto outputs = graph.outputs_of(node);
  return std::any_of(inputs.begin(), inputs.end(), dynamic) ||
         std::any_of(outputs.begin(), outputs.end(), dynamic);
}

Status check_one(const ImageView& view, uint32_t graph, uint32_t node, const DvtKernel& kernel,
                 const DvtContext* context) {
  if (kernel.check == nullptr) return {};
  char reason[256] = "";
  const DvtCode code = kernel.check(context, reason, sizeof reason);
  if (code == DVT_OK) return {};
  // Whatever the kernel calls it, it is the image that is wrong; "unsupported" stays.
  return refused(view, graph, node, kernel,
                 code == DVT_UNSUPPORTED ? DVT_UNSUPPORTED : DVT_INVALID_IMAGE, reason);
}

}  // namespace

Status check_kernels(const ImageView& view) {
  ContextBuilder builder(view);
  // Nodes of the engine's own ask for counts and indices, which do not depend on shapes.
  std::vector<uint8_t> own;
  for (const DvtKernel* kernel : view.kernels) {
    own.push_back(dvt_host_node(kernel) != DVT_HOST_OTHER ||
                  dvt_device_node(kernel) != DVT_NODE_OTHER);
  }
  for (uint32_t graph = 0; graph < view.graphs.size(); ++graph) {
    const GraphView& g = view.graphs[graph];
    for (uint32_t node = 0; node < g.node_count; ++node) {
      const uint32_t device_kernel = g.device_kernel_of(node);
      const DvtKernel& kernel = *view.kernels[g.kernel[node]];
      if (kernel.check == nullptr && device_kernel == kNone) continue;
      const bool dynamic = has_dynamic_operands(view, g, node);
      if (dynamic && own[g.kernel[node]] == 0) continue;
      const DvtContext* context = builder.build(g, node);
      if (Status s = check_one(view, graph, node, kernel, context); !s.ok()) return s;
      if (device_kernel == kNone || dynamic) continue;
      if (Status s = check_one(view, graph, node, *view.kernels[device_kernel], context); !s.ok()) {
        return s;
      }
    }
  }
  return {};
}

}  // namespace davit::exec::verify
