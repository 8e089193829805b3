#include "lowering/lower_dynamic.hpp"

#include <algorithm>

#include "davit/davit.h"

namespace davit::lowering {
namespace {

// What shapes are computed with: small, or it would not be worth keeping from run to run.
constexpr uint64_t kEarlyBytesMax = 4096;

bool is_flow(const ir::Module& module, ir::NodeId node, std::string_view op) {
  return module.domain(node).empty() && module.op(node) == op;
}

}  // namespace

DynamicLowering::DynamicLowering(const ir::Module& module, const std::string& soc)
    : module_(module),
      builder_(module, soc.empty() ? DVT_TARGET_CPU : DVT_TARGET_ASCEND,
               soc.empty() ? "cpu" : "ascend:" + soc),
      heap_(module.value_count(), false),
      reference_(module.value_count(), false),
      early_shape_(module.value_count(), false),
      early_data_(module.value_count(), false),
      loop_scalar_(module.value_count(), false),
      port_(module.value_count(), image::kNone),
      image_value_(module.value_count(), image::kNone),
      place_(module.value_count()),
      born_(module.value_count(), 0),
      last_read_(module.value_count(), 0),
      for_device_(!soc.empty()),
      device_(module.value_count(), false),
      device_value_(module.value_count(), image::kNone) {
  for (uint32_t i = 0; i < module.value_count(); ++i) root_.emplace_back(ir::ValueId(i));
}

// ---- Items -------------------------------------------------------------------------------------

// Values of enclosing graphs that the bodies of a node use, constants aside.
void DynamicLowering::collect_captures(ir::NodeId node, std::vector<ir::ValueId>& reads) const {
  for (const ir::GraphId graph : module_.nested_graphs(node)) {
    const auto capture = [&](ir::ValueId value) {
      if (value == ir::kNoValue || module_.constant(value) != nullptr) return;
      if (!module_.encloses(graph, module_.value_graph(value))) reads.push_back(value);
    };
    for (const ir::NodeId inner : module_.graph_nodes(graph)) {
      for (const ir::ValueId value : module_.inputs(inner)) capture(value);
      std::vector<ir::ValueId> deeper;
      collect_captures(inner, deeper);
      for (const ir::ValueId value : deeper) capture(value);
    }
    for (const ir::ValueId value : module_.graph_outputs(graph)) capture(value);
  }
}

Result<DynamicLowering::Item> DynamicLowering::item_of(ir::NodeId node) {
  Item item;
  item.node = node;
  for (const ir::ValueId value : module_.inputs(node)) {
    if (value != ir::kNoValue) item.reads.push_back(value);
  }
  if (is_flow(module_, node, "If") || is_flow(module_, node, "Loop")) {
    item.kind = is_flow(module_, node, "If") ? Item::Kind::kIf : Item::Kind::kLoop;
    collect_captures(node, item.reads);
    return item;
  }
  auto step = prepare_step(module_, node);
  if (!step.ok()) return std::move(step.status());
  item.step = std::move(*step);
  if (item.step.recipe.is_alias) item.kind = Item::Kind::kReference;
  return item;
}

Status DynamicLowering::collect(ir::GraphId graph, std::vector<Item>& items) {
  for (const ir::NodeId node : module_.graph_nodes(graph)) {
    auto item = item_of(node);
    if (!item.ok()) return std::move(item.status());
    items.push_back(std::move(*item));
    for (const ir::GraphId nested : module_.nested_graphs(node)) {
      if (Status status = collect(nested, items_[nested]); !status.ok()) return status;
    }
  }
  return {};
}

// ---- Values ------------------------------------------------------------------------------------

bool DynamicLowering::is_static(ir::ValueId value) const {
  const ir::Shape* shape = module_.shape(value);
  return shape != nullptr && ir::static_extents(*shape).has_value();
}

// Some node writes it while the graph runs.
bool DynamicLowering::is_computed(ir::ValueId value) const {
  if (module_.constant(value) != nullptr) return false;
  return module_.producer(value) != ir::kNoNode || module_.value_graph(value) != ir::kMainGraph;
}

// Which values are on the heap, and which views need a node to make them. A view that needs one
// puts the value that it views on the heap, which may make further views need one.
void DynamicLowering::classify_values() {
  for (uint32_t i = 0; i < module_.value_count(); ++i) {
    const ir::ValueId value{i};
    if (!module_.value_alive(value) || !is_computed(value) || loop_scalar_[i]) continue;
    const ir::NodeId producer = module_.producer(value);
    const bool from_flow = producer != ir::kNoNode && !module_.nested_graphs(producer).empty();
    heap_[i] = !is_static(value) || from_flow || module_.value_graph(value) != ir::kMainGraph;
  }
  for (const auto& [graph, items] : items_) {
    for (const Item& item : items) {
      if (item.kind != Item::Kind::kKernel) continue;
      if ((item.step.recipe.kernel->flags & DVT_KERNEL_SHAPES_OUTPUTS) == 0) continue;
      for (const ir::ValueId output : module_.outputs(item.node)) {
        if (output != ir::kNoValue) heap_[index_of(output)] = true;
      }
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [graph, items] : items_) {
      for (const Item& item : items) {
        if (item.kind != Item::Kind::kReference) continue;
        const ir::ValueId source = module_.inputs(item.node)[item.step.recipe.alias_input];
        const ir::ValueId root = root_of(source);
        for (const ir::ValueId output : module_.outputs(item.node)) {
          if (output == ir::kNoValue) continue;
          const uint32_t i = index_of(output);
          const bool needs_node = !is_static(output) || !is_static(root) || heap_[index_of(root)] ||
                                  heap_[index_of(source)] || graph != ir::kMainGraph;
          changed = changed || root_[i] != root || reference_[i] != needs_node;
          root_[i] = root;
          reference_[i] = needs_node;
          heap_[i] = needs_node;
          if (needs_node && is_computed(root) && !heap_[index_of(root)]) {
            heap_[index_of(root)] = changed = true;
          }
        }
      }
    }
  }
}

// What a kernel of the main graph computes may go straight to an output port. See lower_cpu.cpp.
void DynamicLowering::claim_outputs() {
  const auto outputs = module_.graph_outputs(ir::kMainGraph);
  for (uint32_t port = 0; port < outputs.size(); ++port) {
    const ir::ValueId value = outputs[port];
    const ir::ValueId root = root_of(value);
    const ir::NodeId producer = module_.producer(root);
    const bool by_kernel = producer != ir::kNoNode && !device_[index_of(root)] &&
                           module_.node_graph(producer) == ir::kMainGraph &&
                           module_.nested_graphs(producer).empty() && !reference_[index_of(value)];
    // A port with a dynamic shape has one value; one with a static shape must not be on the heap.
    const bool fits = is_heap(root) ? value == root && !is_static(root) : is_static(value);
    if (by_kernel && fits && port_[index_of(root)] == image::kNone) {
      port_[index_of(root)] = port;
    } else {
      copied_ports_.push_back(port);
    }
  }
}

bool DynamicLowering::shape_known_early(ir::ValueId value) const {
  return !is_computed(value) || early_shape_[index_of(value)] ||
         (is_static(value) && !heap_[index_of(value)]);
}

bool DynamicLowering::data_known_early(ir::ValueId value) const {
  return module_.constant(value) != nullptr || module_.constant(root_of(value)) != nullptr ||
         (early_data_[index_of(root_of(value))] && !reference_[index_of(value)]);
}

bool DynamicLowering::reads_on_host(const Item& item, size_t input) const {
  return item.kind != Item::Kind::kIf && item.kind != Item::Kind::kLoop &&
         item.step.recipe.kernel != nullptr && input < 32 &&
         (item.step.recipe.kernel->host_inputs >> input & 1) != 0;
}

// Decides which nodes depend on input shapes alone, and lays down the order of all.
void DynamicLowering::order_main(Scope& scope) {
  for (Item& item : scope.items) {
    if (item.kind != Item::Kind::kKernel && item.kind != Item::Kind::kReference) continue;
    const ops::Recipe& recipe = item.step.recipe;
    if (recipe.kernel == nullptr) continue;  // A view of memory that is planned or static.
    const uint32_t flags = recipe.kernel->flags;
    const bool shape_only = (flags & DVT_KERNEL_SHAPE_ONLY) != 0;
    const bool device_view = item.kind == Item::Kind::kReference &&
                             on_device(module_.inputs(item.node)[recipe.alias_input]);
    if (item.on_device || device_view) continue;
    bool infers = (flags & DVT_KERNEL_SHAPES_OUTPUTS) == 0;
    bool runs = (flags & DVT_KERNEL_PURE) != 0 && item.kind == Item::Kind::kKernel &&
                recipe.workspace_bytes.empty();
    for (size_t i = 0; i < recipe.inputs.size(); ++i) {
      const ir::ValueId value = item.step.input(module_, i);
      if (value == ir::kNoValue) continue;
      const bool host = reads_on_host(item, i);
      infers = infers && shape_known_early(value) && (!host || data_known_early(value));
      runs = runs && (shape_only ? shape_known_early(value) : data_known_early(value));
    }
    uint64_t bytes = 0;
    for (size_t k = 0; k < recipe.outputs.size(); ++k) {
      const ir::ValueId value = item.step.output(module_, k);
      runs = runs && !is_heap(value) && port_[index_of(value)] == image::kNone;
      if (!runs) continue;
      const auto tensor = tensor_of(module_, value);
      bytes += tensor.ok() ? tensor->bytes : kEarlyBytesMax + 1;
    }
    runs = runs && infers && bytes <= kEarlyBytesMax;
    item.infers_early = infers;
    item.runs_early = runs;
    for (size_t k = 0; k < recipe.outputs.size(); ++k) {
      const uint32_t i = index_of(item.step.output(module_, k));
      early_shape_[i] = infers;
      early_data_[i] = runs;
    }
  }
  uint64_t position = 0;
  for (const bool early : {true, false}) {
    for (Item& item : scope.items) {
      if (item.runs_early == early) item.position = position++;
    }
  }
  end_ = position;
  for (const Item& item : scope.items) {
    const auto outputs =
        item.node == ir::kNoNode ? std::span<const ir::ValueId>() : module_.outputs(item.node);
    for (const ir::ValueId output : outputs) {
      if (output == ir::kNoValue || root_of(output) != output) continue;
      born_[index_of(output)] = item.runs_early ? 0 : item.position;
      // Shape nodes do not run again, so what they wrote must last.
      last_read_[index_of(output)] = item.runs_early ? end_ : item.position;
    }
  }
  for (const Item& item : scope.items) {
    for (const ir::ValueId value : item.reads) {
      uint64_t& last = last_read_[index_of(root_of(value))];
      last = std::max(last, item.position);
    }
  }
}

bool needs_dynamic_lowering(const ir::Module& module) {
  const auto is_static = [&](ir::ValueId value) {
    if (value == ir::kNoValue) return true;
    const ir::Shape* shape = module.shape(value);
    return shape != nullptr && ir::static_extents(*shape).has_value();
  };
  for (const ir::ValueId input : module.graph_inputs(ir::kMainGraph)) {
    if (!is_static(input)) return true;
  }
  for (const ir::NodeId node : module.graph_nodes(ir::kMainGraph)) {
    if (!module.nested_graphs(node).empty()) return true;
    const auto outputs = module.outputs(node);
    if (!std::all_of(outputs.begin(), outputs.end(), is_static)) return true;
    const auto step = prepare_step(module, node);
    if (!step.ok() || step->recipe.kernel == nullptr || step->recipe.is_alias) continue;
    if ((step->recipe.kernel->flags & DVT_KERNEL_SHAPES_OUTPUTS) != 0) return true;
    for (size_t i = 0; i < step->recipe.inputs.size() && i < 32; ++i) {
      const ir::ValueId value = step->input(module, i);
      const bool host = (step->recipe.kernel->host_inputs >> i & 1) != 0;
      if (host && value != ir::kNoValue && module.constant(value) == nullptr) return true;
    }
  }
  return false;
}

Result<Lowered> lower_cpu_dynamic(const ir::Module& module) {
  return DynamicLowering(module, "").run();
}

Result<Lowered> lower_ascend_dynamic(const ir::Module& module, const std::string& soc) {
  return DynamicLowering(module, soc).run();
}

}  // namespace davit::lowering
