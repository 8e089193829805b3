// merge_constants and merge_equal_nodes: what is there twice.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <unordered_map>

#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

// ---- Constants ---------------------------------------------------------------------------------

bool same_data(const ir::TensorData& a, const ir::TensorData& b) {
  if (a.dtype != b.dtype || a.dims != b.dims) return false;
  if (a.bytes == b.bytes) return true;
  return a.bytes && b.bytes && *a.bytes == *b.bytes;
}

uint64_t digest(const ir::TensorData& data) {
  if (data.bytes == nullptr || data.bytes->empty()) return 0;
  return XXH3_64bits(data.bytes->data(), data.bytes->size());
}

// ---- Nodes -------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 6> kRandomOperators = {"Bernoulli",     "Multinomial",
                                                              "RandomNormal",  "RandomNormalLike",
                                                              "RandomUniform", "RandomUniformLike"};

// Operators whose operands may change places. Before opset 7 the second one is placed by `axis`.
// Max and Min are not here: of 0 and -0 they return the second.
constexpr std::array<std::string_view, 6> kCommutative = {"Add", "And", "Equal",
                                                          "Mul", "Or",  "Xor"};

template <class List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Writes values so that different sequences of them give different text.
class Key {
 public:
  void bytes(const void* data, size_t size) {
    text_.append(reinterpret_cast<const char*>(&size), sizeof size);
    if (size > 0) text_.append(static_cast<const char*>(data), size);
  }
  void add(std::string_view value) { bytes(value.data(), value.size()); }
  void add(int64_t value) { bytes(&value, sizeof value); }
  void add(float value) { bytes(&value, sizeof value); }
  template <class T>
  void add(const std::vector<T>& values) {
    add(int64_t(values.size()));
    for (const T& value : values) add(value);
  }
  void add(const ir::TensorData& data) {
    add(int64_t(data.dtype));
    add(data.dims);
    bytes(data.bytes ? data.bytes->data() : nullptr, data.bytes ? data.bytes->size() : 0);
  }
  void add(ir::GraphId graph) { add(int64_t(index_of(graph))); }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Everything a node's results follow from; empty for nodes that are not merged.
std::string key_of(const ir::Module& module, NodeId node) {
  if (ops::find_operator(module, node) == nullptr || contains(kRandomOperators, module.op(node)) ||
      !module.nested_graphs(node).empty()) {
    return {};
  }
  Key key;
  key.add(module.domain(node));
  key.add(module.op(node));
  key.add(module.opset_version(node));  // The body of a function may have its own.
  std::vector<int64_t> inputs;
  for (const ValueId value : module.inputs(node)) inputs.push_back(index_of(value));
  while (!inputs.empty() && inputs.back() == int64_t(index_of(kNoValue))) inputs.pop_back();
  if (contains(kCommutative, module.op(node)) && module.opset_version(node) >= 7) {
    std::sort(inputs.begin(), inputs.end());
  }
  key.add(inputs);
  std::map<std::string_view, const ir::AttributeValue*> attributes;
  for (const ir::Attribute& attribute : module.attributes(node)) {
    attributes[attribute.name] = &attribute.value;
  }
  for (const auto& [name, value] : attributes) {
    key.add(name);
    key.add(int64_t(value->index()));
    std::visit([&](const auto& held) { key.add(held); }, *value);
  }
  // An even Split of other parts is another Split.
  key.add(int64_t(module.op(node) == "Split" ? module.outputs(node).size() : 0));
  return key.take();
}

// Whether `kept` has every output of `node`, and readers can move to it.
bool replaceable(Rewriter& rewriter, NodeId kept, NodeId node) {
  const auto had = rewriter.module().outputs(kept);
  const auto wanted = rewriter.module().outputs(node);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == kNoValue) continue;
    if (i >= had.size() || had[i] == kNoValue || !rewriter.can_replace(wanted[i], had[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<uint32_t> merge_constants(ir::Module& module, Refusals& /*refusals*/) {
  using Kind = std::pair<DvtDType, std::vector<int64_t>>;
  std::map<Kind, std::vector<ValueId>> kinds;
  for (uint32_t v = 0; v < module.value_count(); ++v) {
    const ValueId value{v};
    const ir::TensorData* data = module.value_alive(value) ? module.constant(value) : nullptr;
    if (data != nullptr) kinds[{data->dtype, data->dims}].push_back(value);
  }
  uint32_t changes = 0;
  for (auto& [kind, values] : kinds) {
    if (values.size() < 2) continue;
    // Outer graphs first; a graph's number is above its parent's.
    std::stable_sort(values.begin(), values.end(), [&](ValueId a, ValueId b) {
      return index_of(module.value_graph(a)) < index_of(module.value_graph(b));
    });
    std::unordered_multimap<uint64_t, ValueId> kept;
    for (const ValueId value : values) {
      const ir::TensorData& data = *module.constant(value);
      const uint64_t hash = digest(data);
      const auto [first, last] = kept.equal_range(hash);
      const auto twin = std::find_if(first, last, [&](const auto& entry) {
        return module.encloses(module.value_graph(entry.second), module.value_graph(value)) &&
               same_data(*module.constant(entry.second), data);
      });
      if (twin == last) {
        kept.emplace(hash, value);
      } else if (!module.is_graph_output(value)) {
        module.replace_all_uses(value, twin->second);
        module.erase_constant(value);
        ++changes;
      }
    }
  }
  return changes;
}

Result<uint32_t> merge_equal_nodes(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  std::unordered_map<std::string, std::vector<NodeId>> seen;
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node)) continue;
    std::string key = key_of(module, node);
    if (key.empty()) continue;
    std::vector<NodeId>& twins = seen[std::move(key)];
    const auto twin = std::find_if(twins.begin(), twins.end(), [&](NodeId kept) {
      return module.encloses(module.node_graph(kept), module.node_graph(node));
    });
    if (twin == twins.end()) {
      twins.push_back(node);
      continue;
    }
    // Two outputs of the model that are equal stay two nodes.
    if (!replaceable(rewriter, *twin, node)) continue;
    const auto span = module.outputs(node);
    const std::vector<ValueId> outputs(span.begin(), span.end());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNoValue) rewriter.replace(outputs[i], module.outputs(*twin)[i]);
    }
    rewriter.strike(node);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
