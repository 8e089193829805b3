// What the device runs of a graph with dynamic shapes, and the copies to and from it. See
// lower_dynamic.hpp.
#include <algorithm>

#include "davit/davit.h"
#include "lowering/lower_dynamic.hpp"

namespace davit::lowering {
namespace {

using image::ValueKind;

constexpr uint32_t kStream = 0;

const DvtKernel& kernel_of(DvtDeviceNode kind) {
  return dvt_device_kernels().kernels[kind - 1];
}

bool is_floating(DvtDType dtype) {
  return dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
}

uint32_t append(image::Graph& graph, image::Node node) {
  graph.nodes.push_back(std::move(node));
  return uint32_t(graph.nodes.size() - 1);
}

}  // namespace

// A kernel goes to the device unless it cannot run there: its shape depends on data, or it reads
// parameters on the host. Arithmetic on integers stays on the host while its operands are there,
// since shapes are made of it.
void DynamicLowering::place_items(Scope& scope) {
  for (Item& item : scope.items) {
    if (item.kind != Item::Kind::kKernel) continue;
    const ops::Recipe& recipe = item.step.recipe;
    const uint32_t flags = recipe.kernel->flags;
    bool fits = (flags & DVT_KERNEL_DEVICE) != 0 && (flags & DVT_KERNEL_SHAPES_OUTPUTS) == 0 &&
                (flags & DVT_KERNEL_SHAPE_ONLY) == 0;
    bool on_host = true;
    for (size_t i = 0; i < recipe.inputs.size(); ++i) {
      const ir::ValueId value = item.step.input(module_, i);
      if (value == ir::kNoValue) continue;
      fits = fits && !reads_on_host(item, i);
      on_host = on_host && !on_device(value);
    }
    bool integers = true;
    for (size_t k = 0; k < recipe.outputs.size(); ++k) {
      integers = integers && !is_floating(module_.dtype(item.step.output(module_, k)));
    }
    item.on_device = fits && !(integers && on_host);
    if (!item.on_device) continue;
    for (size_t k = 0; k < recipe.outputs.size(); ++k) {
      device_[index_of(item.step.output(module_, k))] = true;
    }
  }
  init_.role = image::GraphRole::kInit;
  deinit_.role = image::GraphRole::kDeInit;
  image::Node create = device_node(DVT_NODE_CREATE_STREAM, {});
  create.attributes =
      ops::attribute_bytes(DvtCreateStreamAttributes{.stream = kStream, .priority = 0});
  append(init_, std::move(create));
}

image::Node DynamicLowering::device_node(DvtDeviceNode kind, const Item& item) {
  const DvtKernel& kernel = kernel_of(kind);
  image::Node node;
  node.kernel = builder_.add_kernel(kernel);
  node.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
  if (node.lane == DVT_KERNEL_LANE_LAUNCH) node.stream = kStream;
  if (item.node != ir::kNoNode) node.origin = module_.node_path(item.node);
  node.op = std::string("davit::") + kernel.name;
  return node;
}

void DynamicLowering::append_copy_shape(Scope& scope, const Item& item, uint32_t from,
                                        uint32_t to) {
  image::Node node = host_node(DVT_HOST_COPY_SHAPE, item);
  node.inputs = {from};
  node.outputs = {to};
  append(scope.graph, std::move(node));
}

void DynamicLowering::append_alloc(Scope& scope, const Item& item, uint32_t value) {
  image::Node node = device_node(DVT_NODE_ALLOC, item);
  const uint64_t bytes = builder_.model().values[value].tensor.bytes;
  node.attributes =
      ops::attribute_bytes(DvtAllocAttributes{.bytes = int64_t(std::max<uint64_t>(bytes, 1))});
  node.outputs = {value};
  append(scope.graph, std::move(node));
}

void DynamicLowering::append_sync(image::Graph& graph, const Item& item) {
  image::Node node = device_node(DVT_NODE_SYNC_STREAM, item);
  node.attributes = ops::attribute_bytes(DvtStreamAttributes{.stream = kStream});
  // After everything that was submitted.
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].lane == DVT_KERNEL_LANE_LAUNCH) node.control_inputs.push_back(i);
  }
  append(graph, std::move(node));
}

// ---- Values ------------------------------------------------------------------------------------

Result<uint32_t> DynamicLowering::new_device_value(ir::ValueId value, bool dynamic) {
  auto added = dynamic ? builder_.add_dynamic_value(ValueKind::kDevice, value, 0)
                       : builder_.add_value(ValueKind::kDevice, value, 0);
  if (added.ok()) device_value_[index_of(value)] = *added;
  return added;
}

// A constant, which Init uploads.
Result<uint32_t> DynamicLowering::weight(ir::ValueId value) {
  const ir::ValueId root = root_of(value);
  auto offset = builder_.place_constant(root);
  if (!offset.ok()) return std::move(offset.status());
  auto host = builder_.add_value(ValueKind::kConstant, value, *offset);
  if (!host.ok()) return host;
  auto added = new_device_value(value, false);
  if (!added.ok()) return added;
  Item item;
  const uint64_t bytes = builder_.model().values[*added].tensor.bytes;
  image::Node alloc = device_node(DVT_NODE_ALLOC, item);
  alloc.attributes =
      ops::attribute_bytes(DvtAllocAttributes{.bytes = int64_t(std::max<uint64_t>(bytes, 1))});
  alloc.outputs = {*added};
  alloc.origin = std::string(module_.value_name(root));
  append(init_, std::move(alloc));
  image::Node copy = device_node(DVT_NODE_COPY_H2D, item);
  copy.inputs = {*host, *added};
  copy.control_inputs = {0};
  copy.origin = std::string(module_.value_name(root));
  append(init_, std::move(copy));
  weights_.push_back(*added);
  return added;
}

Result<uint32_t> DynamicLowering::upload(Scope& scope, const Item& item, ir::ValueId value) {
  auto host = operand(value);
  if (!host.ok()) return host;
  auto added = new_device_value(value, is_dynamic(*host));
  if (!added.ok()) return added;
  if (is_dynamic(*host)) append_copy_shape(scope, item, *host, *added);
  append_alloc(scope, item, *added);
  image::Node copy = device_node(DVT_NODE_COPY_H2D, item);
  copy.inputs = {*host, *added};
  append(scope.graph, std::move(copy));
  uploads_.push_back(*added);
  // Memory of the plan and of the heap is used again; a caller's stays until the run has ended.
  if (builder_.model().values[*host].kind != ValueKind::kInput) append_sync(scope.graph, item);
  return added;
}

Result<uint32_t> DynamicLowering::device_operand(Scope& scope, const Item& item,
                                                 ir::ValueId value) {
  if (value == ir::kNoValue) return image::kNone;
  const uint32_t known = device_value_[index_of(value)];
  if (known != image::kNone) return known;
  if (module_.constant(root_of(value)) != nullptr && !reference_[index_of(value)]) {
    return weight(value);
  }
  return upload(scope, item, value);
}

// Brings a value of the device to the host, for the rest of the run.
Status DynamicLowering::download(Scope& scope, const Item& item, ir::ValueId value) {
  if (image_value_[index_of(value)] != image::kNone) return {};
  const uint32_t from = device_value_[index_of(value)];
  auto host = builder_.add_dynamic_value(ValueKind::kHeap, value, 0);
  if (!host.ok()) return std::move(host.status());
  image_value_[index_of(value)] = *host;
  append_copy_shape(scope, item, from, *host);
  image::Node alloc = host_node(DVT_HOST_ALLOC, item);
  alloc.outputs = {*host};
  append(scope.graph, std::move(alloc));
  image::Node copy = device_node(DVT_NODE_COPY_D2H, item);
  copy.inputs = {from};
  copy.outputs = {*host};
  append(scope.graph, std::move(copy));
  append_sync(scope.graph, item);
  downloads_.push_back(*host);
  return {};
}

// What an item of the host reads of the device. A kernel that asks for shapes alone need not wait.
Status DynamicLowering::download_for(Scope& scope, const Item& item) {
  const bool shape_only = item.step.recipe.kernel != nullptr &&
                          (item.step.recipe.kernel->flags & DVT_KERNEL_SHAPE_ONLY) != 0;
  for (const ir::ValueId value : item.reads) {
    if (!on_device(value)) continue;
    if (shape_only) {
      image_value_[index_of(value)] = device_value_[index_of(value)];
      continue;
    }
    const uint32_t known = image_value_[index_of(value)];
    const bool lent = known != image::kNone && known == device_value_[index_of(value)];
    if (lent) image_value_[index_of(value)] = image::kNone;
    if (Status status = download(scope, item, value); !status.ok()) return status;
  }
  return {};
}

// ---- Nodes -------------------------------------------------------------------------------------

Status DynamicLowering::emit_on_device(Scope& scope, Item& item) {
  const ops::Recipe& recipe = item.step.recipe;
  for (size_t i = 0; i < recipe.inputs.size(); ++i) {
    auto value = device_operand(scope, item, item.step.input(module_, i));
    if (!value.ok()) return std::move(value.status());
    item.inputs.push_back(*value);
  }
  for (size_t k = 0; k < recipe.outputs.size(); ++k) {
    const ir::ValueId output = item.step.output(module_, k);
    auto value = new_device_value(output, !is_static(output));
    if (!value.ok()) return std::move(value.status());
    item.outputs.push_back(*value);
  }
  const bool dynamic = needs_inference(item);
  for (const uint64_t bytes : recipe.workspace_bytes) {
    const uint32_t value = dynamic ? add_typed(ValueKind::kDevice, DVT_U8, 0, true)
                                   : builder_.add_scratch(ValueKind::kDevice, bytes, 0);
    item.scratch.push_back(value);
    item.outputs.push_back(value);
  }
  emit_shape(scope, item);
  for (const uint32_t value : item.outputs) append_alloc(scope, item, value);
  image::Node node = builder_.node_of(item.step);
  node.device_kernel = node.kernel;
  node.kernel = builder_.add_kernel(kernel_of(DVT_NODE_LAUNCH));
  node.lane = DVT_KERNEL_LANE_LAUNCH;
  node.stream = kStream;
  node.inputs = item.inputs;
  node.outputs = item.outputs;
  if (!dynamic) {
    node.cost = item.step.definition->cost(ops::NodeView(module_, item.node));
    node.has_cost = true;
  }
  const uint32_t index = append(scope.graph, std::move(node));
  if (item.infer_node != image::kNone) {
    scope.graph.nodes[item.infer_node].attributes =
        ops::attribute_bytes(DvtInferShapeAttributes{.target = index});
  }
  note_reads(scope, item, index);
  for (const uint32_t value : item.scratch) append_free(scope, item, value, {index});
  return {};
}

// A view of memory on the device.
Status DynamicLowering::emit_device_reference(Scope& scope, Item& item) {
  const ops::Recipe& recipe = item.step.recipe;
  const ir::ValueId source = module_.inputs(item.node)[recipe.alias_input];
  const ir::ValueId output = module_.outputs(item.node)[0];
  auto from = device_operand(scope, item, source);
  if (!from.ok()) return std::move(from.status());
  if (!is_dynamic(*from) && is_static(output)) {
    auto to = new_device_value(output, false);
    if (!to.ok()) return std::move(to.status());
    image::Node node = device_node(DVT_NODE_BUILD_REF, item);
    node.inputs = {*from};
    node.outputs = {*to};
    note_reads(scope, item, append(scope.graph, std::move(node)));
    return {};
  }
  if (recipe.kernel == nullptr) {
    return Status(module_.error_at(item.node, DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                                   "a view with a dynamic shape needs an alias kernel"));
  }
  item.inputs = {*from};
  for (size_t i = 1; i < recipe.inputs.size(); ++i) {
    const ir::ValueId parameter = item.step.input(module_, i);
    if (parameter != ir::kNoValue && on_device(parameter)) {
      if (Status status = download(scope, item, parameter); !status.ok()) return status;
    }
    auto value = operand(parameter);
    if (!value.ok()) return std::move(value.status());
    item.inputs.push_back(*value);
  }
  auto to = new_device_value(output, true);
  if (!to.ok()) return std::move(to.status());
  item.outputs = {*to};
  emit_shape(scope, item);
  image::Node node = builder_.node_of(item.step);
  const DvtKernel& refer = dvt_dynamic_kernels().kernels[DVT_HOST_REFER_TO - 1];
  node.device_kernel = node.kernel;
  node.kernel = builder_.add_kernel(refer);
  node.lane = uint8_t(refer.flags & DVT_KERNEL_LANE_MASK);
  node.inputs = item.inputs;
  node.outputs = item.outputs;
  const uint32_t index = append(scope.graph, std::move(node));
  scope.graph.nodes[item.infer_node].attributes =
      ops::attribute_bytes(DvtInferShapeAttributes{.target = index});
  note_reads(scope, item, index);
  return {};
}

Status DynamicLowering::emit_device_output(Scope& scope, Item& item, uint32_t port) {
  const ir::ValueId value = module_.graph_outputs(ir::kMainGraph)[port];
  auto from = device_operand(scope, item, value);
  if (!from.ok()) return std::move(from.status());
  const bool dynamic = is_dynamic(*from);
  auto to = dynamic ? builder_.add_dynamic_value(ValueKind::kOutput, value, port)
                    : builder_.add_value(ValueKind::kOutput, value, port);
  if (!to.ok()) return std::move(to.status());
  if (dynamic) {
    append_copy_shape(scope, item, *from, *to);
    image::Node bind = host_node(DVT_HOST_BIND_OUTPUT, item);
    bind.attributes = ops::attribute_bytes(DvtBindOutputAttributes{.output = int64_t(port)});
    bind.outputs = {*to};
    append(scope.graph, std::move(bind));
  }
  image::Node copy = device_node(DVT_NODE_COPY_D2H, item);
  copy.inputs = {*from};
  copy.outputs = {*to};
  copy.origin = std::string(module_.value_name(value));
  note_reads(scope, item, append(scope.graph, std::move(copy)));
  output_values_.push_back(*to);
  return {};
}

// Memory on the device whose last reader is this item. Its tasks may still run: the stream runs
// what gets the memory next after them.
void DynamicLowering::emit_device_frees(Scope& scope, size_t index) {
  for (const auto& [value, last] : scope.last_item) {
    if (last != index || !device_[index_of(value)]) continue;
    append_free(scope, scope.items[index], device_value_[index_of(value)], scope.readers[value]);
  }
}

// `users` are all nodes that use the memory. The launches among them become a Free-to-Launch row:
// all are before the Free, so it is proved to end (exec/dependencies.hpp).
void DynamicLowering::append_free(Scope& scope, const Item& item, uint32_t value,
                                  const std::vector<uint32_t>& users) {
  image::Node node = device_node(DVT_NODE_FREE, item);
  node.inputs = {value};
  for (const uint32_t user : users) {
    const bool launch = scope.graph.nodes[user].lane == DVT_KERNEL_LANE_LAUNCH;
    (launch ? node.free_launches : node.control_inputs).push_back(user);
  }
  launch_edges_removed_ += uint32_t(node.free_launches.size());
  append(scope.graph, std::move(node));
}

// The end of Main, of Init, and DeInit.
void DynamicLowering::finish_device(Scope& scope) {
  const Item none;
  append_sync(scope.graph, none);
  const auto sync = uint32_t(scope.graph.nodes.size() - 1);
  for (const uint32_t value : uploads_) {
    image::Node node = device_node(DVT_NODE_FREE, none);
    node.inputs = {value};
    node.control_inputs = {sync};
    append(scope.graph, std::move(node));
  }
  if (!downloads_.empty()) {
    image::Node node = host_node(DVT_HOST_FREE, none);
    node.inputs = downloads_;
    node.control_inputs = {sync};
    append(scope.graph, std::move(node));
  }
  append_sync(init_, none);
  append_sync(deinit_, none);
  for (const uint32_t value : weights_) {
    image::Node node = device_node(DVT_NODE_FREE, none);
    node.inputs = {value};
    node.control_inputs = {0};
    append(deinit_, std::move(node));
  }
  image::Node destroy = device_node(DVT_NODE_DESTROY_STREAM, none);
  destroy.attributes = ops::attribute_bytes(DvtStreamAttributes{.stream = kStream});
  for (uint32_t i = 0; i < deinit_.nodes.size(); ++i) destroy.control_inputs.push_back(i);
  append(deinit_, std::move(destroy));
}

}  // namespace davit::lowering
