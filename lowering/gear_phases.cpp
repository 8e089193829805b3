#include "lowering/gear_phases.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "exec/runtime.h"

namespace davit::lowering {
namespace {

using image::Node;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The value whose device memory a node of Init fills, or kNone.
uint32_t filled_by(const Node& node, std::string_view kernel) {
  if (kernel == "LaunchH2DCopy") return node.inputs[1];
  return kernel == "LaunchKernel" ? node.outputs.front() : image::kNone;
}

}  // namespace

// With its shape: kernels compute by shapes, and references may have others than what they name.
std::string GearPhases::operand_text(uint32_t value) const {
  if (value == image::kNone) return "-,";
  const DvtTensor& tensor = model_.values[value].tensor;
  std::string text = std::to_string(tensor.dtype);
  for (uint32_t d = 0; d < tensor.rank; ++d) text += "x" + std::to_string(tensor.dims[d]);
  const auto known = content_.find(value);
  return text + (known == content_.end() ? "?," : ":" + std::to_string(known->second) + ",");
}

std::string GearPhases::work_text(const Node& node) const {
  std::string text = model_.kernels[node.device_kernel].name + "(";
  for (const uint32_t input : node.inputs) text += operand_text(input);
  return text + ")" + text_of(node.attributes);
}

void GearPhases::note_content(uint32_t value, std::string text) {
  const auto next = static_cast<uint32_t>(numbers_.size());
  content_[value] = numbers_.emplace(std::move(text), next).first->second;
}

void GearPhases::find_contents(const image::Graph& graph) {
  for (const Node& node : graph.nodes) {
    const std::string& kernel = kernel_of(node);
    if (kernel == "LaunchH2DCopy") {
      const image::Value& from = model_.values[node.inputs[0]];
      note_content(node.inputs[1], "weight " + std::to_string(from.offset) + " " +
                                       std::to_string(from.tensor.bytes));
    } else if (kernel == "LaunchKernel") {
      const std::string work = work_text(node);
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        note_content(node.outputs[k], "output " + std::to_string(k) + " of " + work);
      }
    } else if (kernel == "BuildRefTensor") {
      note_content(node.outputs[0], "view of " + std::to_string(content_.at(node.inputs[0])));
    }
  }
}

// The node of Init that has done already what this one is for, or kNone.
uint32_t GearPhases::known_node(const Node& node) const {
  const std::string& kernel = kernel_of(node);
  if (kernel == "CreateStream" || kernel == "CreateEvent") {
    const auto made = created_.find(kernel + text_of(node.attributes));
    return made == created_.end() ? image::kNone : made->second;
  }
  const uint32_t value = filled_by(node, kernel);
  if (value == image::kNone) return image::kNone;
  const auto made = maker_.find(content_.at(value));
  return made == maker_.end() ? image::kNone : made->second;
}

// An allocation for what is there already becomes a reference to it.
void GearPhases::refer_to_known(Node& allocation) {
  const uint32_t value = allocation.outputs.front();
  const auto [holder, is_first] = holder_.emplace(content_.at(value), value);
  if (is_first) return;
  const DvtKernel& kernel = dvt_device_kernels().kernels[DVT_NODE_BUILD_REF - 1];
  Node reference;
  reference.kernel = image::intern_kernel(model_, kernel);
  reference.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
  reference.origin = allocation.origin;
  reference.op = std::string("davit::") + kernel.name;
  reference.inputs = {holder->second};
  reference.outputs = {value};
  allocation = std::move(reference);
}

uint32_t GearPhases::append_init(Node node) {
  const auto index = static_cast<uint32_t>(init_.nodes.size());
  const std::string kernel = kernel_of(node);
  if (kernel == "CreateStream" || kernel == "CreateEvent") {
    created_.emplace(kernel + text_of(node.attributes), index);
  }
  if (const uint32_t value = filled_by(node, kernel); value != image::kNone) {
    maker_.emplace(content_.at(value), index);
  }
  init_.nodes.push_back(std::move(node));
  return index;
}

void GearPhases::add_init(image::Graph graph) {
  find_contents(graph);
  std::vector<uint32_t> moved;  // By node of the gear's Init: its place, or that of its like.
  for (Node& node : graph.nodes) {
    for (uint32_t& before : node.control_inputs) before = moved[before];
    if (kernel_of(node) == "SyncStream") {
      before_sync_.insert(before_sync_.end(), node.control_inputs.begin(),
                          node.control_inputs.end());
      if (init_syncs_.empty()) init_syncs_.push_back(std::move(node));
      moved.push_back(image::kNone);  // The last one: nothing comes after it.
      continue;
    }
    if (kernel_of(node) == "AllocMemHbm") refer_to_known(node);
    const uint32_t known = known_node(node);
    moved.push_back(known == image::kNone ? append_init(std::move(node)) : known);
  }
}

void GearPhases::add_deinit(image::Graph graph) {
  for (Node& node : graph.nodes) {
    const std::string& kernel = kernel_of(node);
    node.control_inputs.clear();
    std::string key = text_of(node.attributes);
    if (kernel == "SyncStream") {
      syncs_.emplace(std::move(key), std::move(node));
    } else if (kernel == "DestroyEvent") {
      events_.emplace(std::move(key), std::move(node));
    } else if (kernel == "DestroyStream") {
      streams_.emplace(std::move(key), std::move(node));
    } else if (holder_.at(content_.at(node.inputs.front())) == node.inputs.front()) {
      frees_.push_back(std::move(node));
    }
  }
}

void GearPhases::finish(std::vector<image::Graph>& graphs) {
  if (init_.nodes.empty()) return;
  std::sort(before_sync_.begin(), before_sync_.end());
  before_sync_.erase(std::unique(before_sync_.begin(), before_sync_.end()), before_sync_.end());
  for (Node& sync : init_syncs_) {
    sync.control_inputs = before_sync_;
    init_.nodes.push_back(std::move(sync));
  }
  std::vector<uint32_t> syncs, frees;
  for (auto& [key, node] : syncs_) {
    syncs.push_back(static_cast<uint32_t>(deinit_.nodes.size()));
    deinit_.nodes.push_back(std::move(node));
  }
  frees = syncs;
  for (Node& node : frees_) {
    node.control_inputs = syncs;
    frees.push_back(static_cast<uint32_t>(deinit_.nodes.size()));
    deinit_.nodes.push_back(std::move(node));
  }
  for (auto& [key, node] : events_) {
    node.control_inputs = syncs;
    deinit_.nodes.push_back(std::move(node));
  }
  for (auto& [key, node] : streams_) {
    node.control_inputs = frees;
    deinit_.nodes.push_back(std::move(node));
  }
  for (image::Graph* graph : {&init_, &deinit_}) {
    for (size_t i = 0; i < graph->nodes.size(); ++i) graph->nodes[i].priority = int32_t(i);
    graphs.push_back(std::move(*graph));
  }
}

}  // namespace davit::lowering
