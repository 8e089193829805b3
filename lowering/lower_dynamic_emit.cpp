// The nodes of a graph with dynamic shapes. See lower_dynamic.hpp.
#include <algorithm>
#include <iterator>

#include "davit/davit.h"
#include "lowering/lower_dynamic.hpp"

namespace davit::lowering {
namespace {

using image::ValueKind;

const DvtKernel& kernel_of(DvtHostNode kind) {
  return dvt_dynamic_kernels().kernels[kind - 1];
}

uint32_t append(image::Graph& graph, image::Node node) {
  graph.nodes.push_back(std::move(node));
  return uint32_t(graph.nodes.size() - 1);
}

}  // namespace

image::Node DynamicLowering::host_node(DvtHostNode kind, const Item& item) const {
  const DvtKernel& kernel = kernel_of(kind);
  image::Node node;
  node.kernel = const_cast<ModelBuilder&>(builder_).add_kernel(kernel);
  node.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
  if (item.node != ir::kNoNode) node.origin = module_.node_path(item.node);
  node.op = std::string("davit::") + kernel.name;
  return node;
}

bool DynamicLowering::is_dynamic(uint32_t image_value) const {
  if (image_value == image::kNone) return false;
  const image::Value& value = const_cast<ModelBuilder&>(builder_).model().values[image_value];
  return value.has_tensor && (value.tensor.flags & DVT_TENSOR_DYNAMIC) != 0;
}

// ---- Operands ----------------------------------------------------------------------------------

Result<uint32_t> DynamicLowering::planned(ir::ValueId value) {
  const ir::ValueId root = root_of(value);
  auto& place = place_[index_of(root)];
  if (!place) {
    const auto tensor = tensor_of(module_, root);
    if (!tensor.ok()) return Status(tensor.status().detail());
    place = intervals_.size();
    intervals_.push_back({born_[index_of(root)], last_read_[index_of(root)] + 1,
                          std::max<uint64_t>(tensor->bytes, 1)});
  }
  return builder_.add_value(ValueKind::kPlanned, value, *place);
}

Result<uint32_t> DynamicLowering::operand(ir::ValueId value) {
  if (value == ir::kNoValue) return image::kNone;
  uint32_t& known = image_value_[index_of(value)];
  if (known != image::kNone) return known;
  const ir::ValueId root = root_of(value);
  const uint32_t port = port_[index_of(root)];
  Result<uint32_t> added = image::kNone;
  if (module_.constant(root) != nullptr && !reference_[index_of(value)]) {
    auto offset = builder_.place_constant(root);
    if (!offset.ok()) return std::move(offset.status());
    added = builder_.add_value(ValueKind::kConstant, value, *offset);
  } else if (is_heap(value)) {
    added = port != image::kNone && value == root
                ? builder_.add_dynamic_value(ValueKind::kOutput, value, port)
                : builder_.add_dynamic_value(ValueKind::kHeap, value, 0);
  } else if (!is_computed(root)) {
    const auto inputs = module_.graph_inputs(ir::kMainGraph);
    const auto at = uint64_t(std::find(inputs.begin(), inputs.end(), root) - inputs.begin());
    added = is_static(value) ? builder_.add_value(ValueKind::kInput, value, at)
                             : builder_.add_dynamic_value(ValueKind::kInput, value, at);
  } else if (port != image::kNone) {
    added = builder_.add_value(ValueKind::kOutput, value, port);
  } else {
    added = planned(value);
  }
  if (added.ok()) known = *added;
  return added;
}

Status DynamicLowering::give_operands(Item& item) {
  if (item.has_operands) return {};
  item.has_operands = true;
  const ops::Recipe& recipe = item.step.recipe;
  for (size_t i = 0; i < recipe.inputs.size(); ++i) {
    auto value = operand(item.step.input(module_, i));
    if (!value.ok()) return std::move(value.status());
    item.inputs.push_back(*value);
  }
  for (size_t k = 0; k < recipe.outputs.size(); ++k) {
    auto value = operand(item.step.output(module_, k));
    if (!value.ok()) return std::move(value.status());
    item.outputs.push_back(*value);
  }
  const bool on_heap = needs_inference(item) || item.position >= end_;
  for (const uint64_t bytes : recipe.workspace_bytes) {
    uint32_t value = image::kNone;
    if (on_heap) {
      value = add_typed(ValueKind::kHeap, DVT_U8, 0, true);
      item.scratch.push_back(value);
    } else {
      intervals_.push_back({item.position, item.position + 1, std::max<uint64_t>(bytes, 1)});
      value = builder_.add_scratch(ValueKind::kPlanned, bytes, intervals_.size() - 1);
    }
    item.outputs.push_back(value);
  }
  return {};
}

// A value of no node of the module: a scalar, or a heap value of which nothing is known.
uint32_t DynamicLowering::add_typed(ValueKind kind, DvtDType dtype, uint64_t offset, bool dynamic) {
  DvtTensor tensor{};
  tensor.dtype = dtype;
  if (dynamic) {
    tensor.flags = DVT_TENSOR_DYNAMIC;
    tensor.rank = DVT_RANK_UNKNOWN;
  } else {
    tensor.bytes = dvt_dtype_size(dtype);
  }
  builder_.model().values.push_back(
      {.kind = kind, .has_tensor = true, .tensor = tensor, .offset = offset, .name = ""});
  return uint32_t(builder_.model().values.size() - 1);
}

bool DynamicLowering::needs_inference(const Item& item) const {
  if (std::any_of(item.inputs.begin(), item.inputs.end(),
                  [&](uint32_t value) { return is_dynamic(value); }) ||
      std::any_of(item.outputs.begin(), item.outputs.end(),
                  [&](uint32_t value) { return is_dynamic(value); })) {
    return true;
  }
  const auto& values = const_cast<ModelBuilder&>(builder_).model().values;
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const uint32_t value = item.inputs[i];
    if (value == image::kNone || !reads_on_host(item, i)) continue;
    if (values[value].kind != ValueKind::kConstant) return true;
  }
  return false;
}

// ---- One item ----------------------------------------------------------------------------------

// InferShape, and the buffers of outputs whose shape it gives. Its target is filled in later.
void DynamicLowering::emit_shape(Scope& scope, Item& item) {
  if (item.infer_node != image::kNone || !needs_inference(item)) return;
  image::Node node = host_node(DVT_HOST_INFER_SHAPE, item);
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const uint32_t value = item.inputs[i];
    const bool needed = is_dynamic(value) || (value != image::kNone && reads_on_host(item, i));
    node.inputs.push_back(needed ? value : image::kNone);
  }
  for (const uint32_t value : item.outputs) {
    if (is_dynamic(value)) node.outputs.push_back(value);
  }
  item.infer_node = append(scope.graph, std::move(node));
  for (const uint32_t value : item.outputs) {
    const image::Value& output = builder_.model().values[value];
    if (output.kind != ValueKind::kOutput || !is_dynamic(value)) continue;
    image::Node bind = host_node(DVT_HOST_BIND_OUTPUT, item);
    bind.attributes =
        ops::attribute_bytes(DvtBindOutputAttributes{.output = int64_t(output.offset)});
    bind.outputs = {value};
    append(scope.graph, std::move(bind));
  }
}

void DynamicLowering::emit_memory(Scope& scope, Item& item) {
  if (item.kind == Item::Kind::kReference) return;
  image::Node node = host_node(DVT_HOST_ALLOC, item);
  for (const uint32_t value : item.outputs) {
    if (builder_.model().values[value].kind == ValueKind::kHeap) node.outputs.push_back(value);
  }
  if (!node.outputs.empty()) append(scope.graph, std::move(node));
}

void DynamicLowering::note_reads(Scope& scope, const Item& item, uint32_t node) {
  for (const ir::ValueId value : item.reads) {
    auto& readers = scope.readers[root_of(value)];
    if (readers.empty() || readers.back() != node) readers.push_back(node);
  }
}

Status DynamicLowering::emit_kernel(Scope& scope, Item& item) {
  if (item.kind == Item::Kind::kReference) {
    const ir::ValueId output = item.step.recipe.outputs.empty() ? module_.outputs(item.node)[0]
                                                                : item.step.output(module_, 0);
    if (!reference_[index_of(output)]) {
      ++aliased_nodes_;
      return {};
    }
    if (item.step.recipe.kernel == nullptr) {
      return Status(module_.error_at(item.node, DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                                     "a view with a dynamic shape needs an alias kernel"));
    }
  }
  if (Status status = give_operands(item); !status.ok()) return status;
  emit_shape(scope, item);
  emit_memory(scope, item);
  image::Node node;
  if (item.node != ir::kNoNode) {
    node = builder_.node_of(item.step);
  } else {
    const DvtKernel& copy = *item.step.recipe.kernel;
    node.kernel = builder_.add_kernel(copy);
    node.lane = uint8_t(copy.flags & DVT_KERNEL_LANE_MASK);
    node.attributes = item.step.recipe.attributes;
    node.op = "davit::Copy";
  }
  if (item.kind == Item::Kind::kReference) {
    const DvtKernel& refer = kernel_of(DVT_HOST_REFER_TO);
    node.device_kernel = node.kernel;
    node.kernel = builder_.add_kernel(refer);
    node.lane = uint8_t(refer.flags & DVT_KERNEL_LANE_MASK);
  }
  node.inputs = item.inputs;
  node.outputs = item.outputs;
  const uint32_t index = append(scope.graph, std::move(node));
  if (item.infer_node != image::kNone) {
    scope.graph.nodes[item.infer_node].attributes =
        ops::attribute_bytes(DvtInferShapeAttributes{.target = index});
  }
  note_reads(scope, item, index);
  if (!item.scratch.empty()) {
    image::Node free = host_node(DVT_HOST_FREE, item);
    free.inputs = item.scratch;
    append(scope.graph, std::move(free));
  }
  return {};
}

// Heap values whose last reader is this item.
void DynamicLowering::emit_frees(Scope& scope, size_t index) {
  image::Node node = host_node(DVT_HOST_FREE, scope.items[index]);
  std::set<uint32_t> after;
  for (const auto& [value, last] : scope.last_item) {
    if (last != index || device_[index_of(value)]) continue;
    const uint32_t image_value = image_value_[index_of(value)];
    if (image_value == image::kNone ||
        builder_.model().values[image_value].kind != ValueKind::kHeap) {
      continue;
    }
    node.inputs.push_back(image_value);
    const auto& readers = scope.readers[value];
    after.insert(readers.begin(), readers.end());
  }
  if (node.inputs.empty()) return;
  node.control_inputs.assign(after.begin(), after.end());
  append(scope.graph, std::move(node));
}

Status DynamicLowering::emit(Scope& scope, size_t index) {
  Item& item = scope.items[index];
  Status status;
  if (scope.source == ir::kMainGraph) {
    position_ = item.position;
    const bool view = item.kind == Item::Kind::kReference &&
                      on_device(module_.inputs(item.node)[item.step.recipe.alias_input]);
    if (view || item.on_device) {
      status = view ? emit_device_reference(scope, item) : emit_on_device(scope, item);
      if (status.ok()) emit_device_frees(scope, index);
      if (status.ok()) emit_frees(scope, index);
      return status;
    }
    if (for_device_) status = download_for(scope, item);
    if (!status.ok()) return status;
  }
  switch (item.kind) {
    case Item::Kind::kKernel:
    case Item::Kind::kReference:
    case Item::Kind::kCopy:
      status = emit_kernel(scope, item);
      break;
    case Item::Kind::kIf:
      status = emit_if(scope, item);
      break;
    case Item::Kind::kLoop:
      status = emit_loop(scope, item);
      break;
  }
  if (status.ok()) emit_frees(scope, index);
  if (status.ok() && for_device_ && scope.source == ir::kMainGraph) emit_device_frees(scope, index);
  return status;
}

// Which heap values this graph frees, and after which item: those that its own nodes allocate.
void DynamicLowering::find_last_items(Scope& scope) {
  for (size_t i = 0; i < scope.items.size(); ++i) {
    const Item& item = scope.items[i];
    if (item.defines != ir::kNoValue) scope.last_item[item.defines] = i;
    if (item.node == ir::kNoNode || item.kind == Item::Kind::kReference) continue;
    for (const ir::ValueId output : module_.outputs(item.node)) {
      if (output != ir::kNoValue && (is_heap(output) || device_[index_of(output)])) {
        scope.last_item[output] = i;
      }
    }
  }
  for (size_t i = 0; i < scope.items.size(); ++i) {
    for (const ir::ValueId value : scope.items[i].reads) {
      const auto found = scope.last_item.find(root_of(value));
      if (found != scope.last_item.end()) found->second = std::max(found->second, i);
    }
  }
}

DynamicLowering::Item DynamicLowering::copy_item(uint32_t from, uint32_t to) {
  Item item;
  item.kind = Item::Kind::kCopy;
  item.step.recipe.kernel = ops::find_kernel("Copy");
  item.inputs = {from};
  item.outputs = {to};
  item.has_operands = true;
  return item;
}

Result<DynamicLowering::Item> DynamicLowering::copy_item(ir::ValueId from, uint32_t to) {
  auto value = operand(from);
  if (!value.ok()) return std::move(value.status());
  Item item = copy_item(*value, to);
  item.reads = {from};
  return item;
}

// ---- Graphs ------------------------------------------------------------------------------------

Status DynamicLowering::lower_main() {
  Scope scope;
  scope.graph.role = image::GraphRole::kMain;
  scope.items = std::move(items_[ir::kMainGraph]);
  if (for_device_) place_items(scope);
  claim_outputs();
  const auto outputs = module_.graph_outputs(ir::kMainGraph);
  for (const uint32_t port : copied_ports_) {
    Item item;
    item.kind = Item::Kind::kCopy;
    item.reads = {outputs[port]};
    scope.items.push_back(std::move(item));
  }
  order_main(scope);
  find_last_items(scope);
  for (const ir::ValueId input : module_.graph_inputs(ir::kMainGraph)) {
    auto value = operand(input);
    if (!value.ok()) return std::move(value.status());
    input_values_.push_back(*value);
  }
  const size_t main = builder_.model().graphs.size();
  builder_.model().graphs.emplace_back();
  for (size_t i = 0; i < scope.items.size(); ++i) {
    Item& item = scope.items[i];
    if (!item.infers_early) continue;
    const bool view =
        item.kind == Item::Kind::kReference && !reference_[index_of(module_.outputs(item.node)[0])];
    if (view) continue;
    if (Status status = give_operands(item); !status.ok()) return status;
    emit_shape(scope, item);
    if (!item.runs_early) continue;
    if (Status status = emit_kernel(scope, item); !status.ok()) return status;
  }
  scope.graph.shape_nodes = uint32_t(scope.graph.nodes.size());
  const size_t computing = scope.items.size() - copied_ports_.size();
  for (size_t i = 0; i < scope.items.size(); ++i) {
    Item& item = scope.items[i];
    if (i >= computing) {
      const ir::ValueId value = outputs[copied_ports_[i - computing]];
      const uint64_t position = item.position;
      if (on_device(value)) {
        if (Status status = emit_device_output(scope, item, copied_ports_[i - computing]);
            !status.ok()) {
          return status;
        }
        emit_device_frees(scope, i);
        continue;
      }
      auto to =
          is_static(value) && !is_heap(value)
              ? builder_.add_value(ValueKind::kOutput, value, copied_ports_[i - computing])
              : builder_.add_dynamic_value(ValueKind::kOutput, value, copied_ports_[i - computing]);
      if (!to.ok()) return std::move(to.status());
      auto copy = copy_item(value, *to);
      if (!copy.ok()) return std::move(copy.status());
      item = std::move(*copy);
      item.position = position;
      output_values_.push_back(*to);
    }
    if (item.runs_early) continue;
    if (Status status = emit(scope, i); !status.ok()) return status;
  }
  if (for_device_) finish_device(scope);
  std::vector<uint32_t> ports(outputs.size());
  for (uint32_t port = 0, copy = 0; port < outputs.size(); ++port) {
    const bool copied = copy < copied_ports_.size() && copied_ports_[copy] == port;
    ports[port] = copied ? output_values_[copy++] : *operand(outputs[port]);
  }
  builder_.set_ports(input_values_, ports);
  builder_.model().graphs[main] = std::move(scope.graph);
  return {};
}

// `results`: image values that the graph's outputs are written to, in their order.
Result<uint32_t> DynamicLowering::lower_body(ir::GraphId graph,
                                             const std::vector<uint32_t>& results,
                                             const Copies& copied_parameters) {
  Scope scope;
  scope.source = graph;
  scope.graph.role = image::GraphRole::kBody;
  for (const auto& [parameter, from] : copied_parameters) {
    auto to = operand(parameter);
    if (!to.ok()) return std::move(to.status());
    scope.items.push_back(copy_item(from, *to));
    scope.items.back().defines = parameter;
  }
  auto& nodes = items_[graph];
  scope.items.insert(scope.items.end(), std::make_move_iterator(nodes.begin()),
                     std::make_move_iterator(nodes.end()));
  for (Item& item : scope.items) item.position = UINT64_MAX;
  const auto outputs = module_.graph_outputs(graph);
  std::vector<std::pair<ir::ValueId, uint32_t>> copies;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const ir::ValueId value = outputs[k];
    const ir::NodeId producer = module_.producer(value);
    const bool direct = producer != ir::kNoNode && module_.node_graph(producer) == graph &&
                        module_.nested_graphs(producer).empty() && root_of(value) == value &&
                        is_dynamic(results[k]) && image_value_[index_of(value)] == image::kNone;
    if (direct) {
      image_value_[index_of(value)] = results[k];
    } else {
      copies.emplace_back(value, results[k]);
      Item item;
      item.kind = Item::Kind::kCopy;
      item.reads = {value};
      scope.items.push_back(std::move(item));
    }
  }
  find_last_items(scope);
  for (const ir::ValueId value : outputs) {
    const uint32_t to = image_value_[index_of(value)];
    if (std::find(results.begin(), results.end(), to) != results.end()) {
      scope.last_item.erase(value);  // The parent frees it.
    }
  }
  const auto index = uint32_t(builder_.model().graphs.size());
  builder_.model().graphs.emplace_back();
  const size_t computing = scope.items.size() - copies.size();
  for (size_t i = 0; i < scope.items.size(); ++i) {
    if (i >= computing) {
      auto copy = copy_item(copies[i - computing].first, copies[i - computing].second);
      if (!copy.ok()) return std::move(copy.status());
      scope.items[i] = std::move(*copy);
      scope.items[i].position = UINT64_MAX;
    }
    if (Status status = emit(scope, i); !status.ok()) return status;
  }
  builder_.model().graphs[index] = std::move(scope.graph);
  return index;
}

Result<Lowered> DynamicLowering::run() {
  if (Status status = collect(ir::kMainGraph, items_[ir::kMainGraph]); !status.ok()) return status;
  for (uint32_t i = 0; i < module_.node_count(); ++i) {
    const ir::NodeId node{i};
    if (!module_.node_alive(node) || !module_.domain(node).empty() || module_.op(node) != "Loop") {
      continue;
    }
    const auto inputs = module_.graph_inputs(module_.nested_graphs(node)[0]);
    for (size_t k = 0; k < inputs.size() && k < 2; ++k) loop_scalar_[index_of(inputs[k])] = true;
  }
  classify_values();
  if (Status status = lower_main(); !status.ok()) return status;
  Lowered lowered;
  if (for_device_) {
    builder_.model().stream_count = 1;
    builder_.model().stream_priority = {0};
    builder_.model().graphs.push_back(std::move(init_));
    builder_.model().graphs.push_back(std::move(deinit_));
  }
  lowered.model = std::move(builder_.model());
  lowered.intervals = std::move(intervals_);
  lowered.aliased_nodes = aliased_nodes_;
  lowered.launch_edges_removed = launch_edges_removed_;
  return lowered;
}

}  // namespace davit::lowering
