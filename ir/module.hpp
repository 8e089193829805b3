// module.hpp: the compute graph, as columns.
//
// A Module owns every node, value, constant and string of a model, its nested subgraphs included.
// Handles are u32 indices; a subgraph's node may read a value of any enclosing graph directly, so
// captured values need no wiring. Every live value has one definition: it is an input of its graph,
// an output of a node, or a constant. Erased nodes, values and graphs stay as holes: their handles
// are never reused.
//
// Threads  Externally synchronised: many readers or one writer.
// Trust    Importers fill modules from untrusted files and call verify() (ir/verify.hpp); passes
//          keep what it establishes.
// Memory   A Module owns everything. Spans returned here are invalidated by the next mutation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.hpp"
#include "davit/types.h"

namespace davit::ir {

enum class NodeId : uint32_t {};
enum class ValueId : uint32_t {};
enum class GraphId : uint32_t {};
enum class SymbolId : uint32_t {};

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr NodeId kNoNode{kNone};
inline constexpr ValueId kNoValue{kNone};
inline constexpr GraphId kNoGraph{kNone};
inline constexpr GraphId kMainGraph{0};

template <class Id>
constexpr uint32_t index_of(Id id) {
  return static_cast<uint32_t>(id);
}

// An extent: a number >= 0, a named symbol, or unknown.
class Dim {
 public:
  constexpr Dim() = default;                                // Unknown.
  constexpr explicit Dim(int64_t extent) : raw_(extent) {}  // Precondition: extent >= 0.
  static constexpr Dim symbol(SymbolId id) {
    Dim dim;
    dim.raw_ = -2 - static_cast<int64_t>(index_of(id));
    return dim;
  }
  [[nodiscard]] constexpr bool is_known() const { return raw_ >= 0; }
  [[nodiscard]] constexpr bool is_symbol() const { return raw_ <= -2; }
  [[nodiscard]] constexpr int64_t extent() const { return raw_; }  // Precondition: is_known().
  [[nodiscard]] constexpr SymbolId symbol_id() const { return SymbolId(uint32_t(-2 - raw_)); }
  // Unknown dims are never equal: two unnamed dimensions may differ at run time.
  friend constexpr bool operator==(Dim a, Dim b) { return a.raw_ == b.raw_ && a.raw_ != -1; }

 private:
  int64_t raw_ = -1;
};

using Shape = std::vector<Dim>;

// The extents when all are known.
std::optional<std::vector<int64_t>> static_extents(const Shape& shape);

// Dense constant data, row-major. Copies share the bytes.
struct TensorData {
  DvtDType dtype = DVT_DTYPE_NONE;
  std::vector<int64_t> dims;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // Aligned for any element type.

  [[nodiscard]] uint64_t element_count() const;
  template <class T>
  [[nodiscard]] std::span<const T> as() const {  // Precondition: T matches dtype.
    return {reinterpret_cast<const T*>(bytes->data()), bytes->size() / sizeof(T)};
  }
  // Integer elements of any integer dtype as i64 (shapes, axes, pads). nullopt for other dtypes and
  // for a u64 above INT64_MAX.
  [[nodiscard]] std::optional<std::vector<int64_t>> to_i64() const;
};

// Precondition: bytes.size() is the product of dims times the element size.
TensorData make_tensor(DvtDType dtype, std::vector<int64_t> dims, std::vector<std::byte> bytes);
// nullopt when a string is longer than DVT_STRING_MAX. Precondition: as many as dims say.
std::optional<TensorData> make_string_tensor(std::vector<int64_t> dims,
                                             std::span<const std::string> strings);
// The elements of a DVT_STRING tensor.
std::vector<std::string> strings_of(const TensorData& data);
TensorData make_i64_tensor(std::vector<int64_t> dims, const std::vector<int64_t>& values);

// What is declared of a value that is no tensor: a sequence of tensors, or an optional tensor or
// sequence. Such a value has no dtype and no shape; these are its tensors'.
struct ContainerType {
  bool is_sequence = false;
  bool is_optional = false;  // This, is_sequence or both.
  DvtDType dtype = DVT_DTYPE_NONE;
  std::optional<Shape> shape;  // nullopt: rank unknown, or not the same for all.
};

using AttributeValue =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                 std::vector<std::string>, TensorData, GraphId, std::vector<GraphId>>;
struct Attribute {
  std::string name;
  AttributeValue value;
};

class Module {
 public:
  // ---- Model-wide --------------------------------------------------------------------------
  std::string source_name;                       // File name without folders.
  std::string source_digest;                     // XXH3-128 of what was imported, in hex.
  std::map<std::string, int64_t> opset_imports;  // Domain ("" is ai.onnx) to version.

  SymbolId intern_symbol(std::string_view name);
  [[nodiscard]] std::string_view symbol_name(SymbolId id) const;

  // ---- Graphs ------------------------------------------------------------------------------
  // Graph 0 is the main graph and exists from the start.
  Module();
  // A subgraph is named after the attribute of `owner` that holds it ("then_branch"; "name[2]" in a
  // list); the caller sets that attribute.
  GraphId add_graph(std::string_view name, GraphId parent, NodeId owner);
  [[nodiscard]] uint32_t graph_count() const { return uint32_t(graphs_.size()); }
  [[nodiscard]] bool graph_alive(GraphId graph) const;  // False once its owner is erased.
  [[nodiscard]] std::string_view graph_name(GraphId graph) const;
  void set_graph_name(GraphId graph, std::string_view name);
  // "If_3.then_branch"; empty for the main graph.
  [[nodiscard]] std::string graph_path(GraphId graph) const;
  // True when `outer` is `graph` or encloses it: its values can be read in `graph`.
  [[nodiscard]] bool encloses(GraphId outer, GraphId graph) const;
  [[nodiscard]] GraphId graph_parent(GraphId graph) const;  // kNoGraph for main.
  [[nodiscard]] NodeId graph_owner(GraphId graph) const;    // Node whose attribute it is.
  // Live nodes, in a topological order once sort() has run; insertion order before.
  [[nodiscard]] std::span<const NodeId> graph_nodes(GraphId graph) const;
  [[nodiscard]] std::span<const ValueId> graph_inputs(GraphId graph) const;
  [[nodiscard]] std::span<const ValueId> graph_outputs(GraphId graph) const;
  void add_graph_input(GraphId graph, ValueId value);
  // The value lives on without a definition: make it a constant, or see that nothing uses it.
  void remove_graph_input(GraphId graph, ValueId value);
  void set_graph_outputs(GraphId graph, std::vector<ValueId> values);
  // Moves what is in a subgraph without inputs into its parent, in front of the owner where it
  // makes nodes; paths of nodes stay, values whose name is taken get their path. The attribute that
  // names the graph goes; its outputs, which are returned, are whoever's reads them now.
  std::vector<ValueId> inline_graph(GraphId graph);
  // Stable topological sort of every graph, control edges and captured values included: of the
  // nodes that could come next, the first in the old order does. An error lists the nodes of a
  // cycle; nothing has changed then.
  Status sort();
  Status check_acyclic() const;

  // ---- Values ------------------------------------------------------------------------------
  ValueId add_value(GraphId graph, std::string_view name);
  ValueId add_constant(GraphId graph, std::string_view name,
                       TensorData data);  // dtype, shape known.
  [[nodiscard]] uint32_t value_count() const { return uint32_t(value_dtype_.size()); }
  [[nodiscard]] bool value_alive(ValueId value) const;
  [[nodiscard]] std::string_view value_name(ValueId value) const;
  [[nodiscard]] GraphId value_graph(ValueId value) const;
  [[nodiscard]] DvtDType dtype(ValueId value) const;      // DVT_DTYPE_NONE when unknown.
  [[nodiscard]] const Shape* shape(ValueId value) const;  // nullptr: rank unknown.
  void set_dtype(ValueId value, DvtDType dtype);
  void set_shape(ValueId value, Shape shape);
  // nullptr: nothing says that it is no tensor. Importers declare inputs and outputs of the main
  // graph; passes::bind_elements() and expand_sequences() make tensors of them. A value that is
  // given a dtype is a tensor.
  [[nodiscard]] const ContainerType* container(ValueId value) const;
  void set_container(ValueId value, std::optional<ContainerType> type);
  [[nodiscard]] const TensorData* constant(ValueId value) const;  // nullptr: not constant.
  // Makes any value a constant and sets its dtype and shape. A node's output is detached: the node
  // lives on with an absent output there. A graph input leaves its graph's inputs.
  void set_constant(ValueId value, TensorData data);
  void erase_constant(ValueId value);   // Precondition: a constant, unused and no graph output.
  void erase_undefined(ValueId value);  // Precondition: no definition, unused and no graph output.
  [[nodiscard]] NodeId producer(ValueId value) const;  // kNoNode for inputs and constants.
  // Every use: (node, operand index). Graph outputs are not uses; see is_graph_output().
  struct Use {
    NodeId node;
    uint32_t operand;
  };
  [[nodiscard]] std::vector<Use> uses(ValueId value) const;
  [[nodiscard]] bool has_uses(ValueId value) const { return !value_uses_[index_of(value)].empty(); }
  [[nodiscard]] bool is_graph_output(ValueId value) const;
  [[nodiscard]] bool is_graph_input(ValueId value) const;
  // Redirects every use, graph outputs included.
  void replace_all_uses(ValueId from, ValueId to);

  // ---- Nodes -------------------------------------------------------------------------------
  struct NodeInit {
    std::string domain;  // "" is ai.onnx.
    std::string op;
    std::string name;
    std::vector<ValueId> inputs;   // kNoValue = absent optional operand.
    std::vector<ValueId> outputs;  // kNoValue = absent optional output.
    std::vector<Attribute> attributes;
    int64_t opset = 0;  // Of its domain, where the body of a function has its own; 0: the module's.
  };
  NodeId add_node(GraphId graph, NodeInit init);
  // Outputs and subgraphs die with their node. Outputs must have no uses but by nodes erased in the
  // same call, and not be graph outputs. Control edges of erased nodes are dropped.
  // Cost: the size of the graphs concerned per call, so erase in batches.
  void erase_nodes(std::span<const NodeId> nodes);
  void erase_node(NodeId node) { erase_nodes({&node, 1}); }
  [[nodiscard]] uint32_t node_count() const { return uint32_t(node_alive_.size()); }
  [[nodiscard]] bool node_alive(NodeId node) const;
  [[nodiscard]] std::string_view domain(NodeId node) const;
  [[nodiscard]] std::string_view op(NodeId node) const;
  [[nodiscard]] std::string_view node_name(NodeId node) const;
  [[nodiscard]] GraphId node_graph(NodeId node) const;
  // "Conv_7": its name; unnamed nodes get "<Op>_<index>".
  [[nodiscard]] std::string local_name(NodeId node) const;
  // "outer/If_3.then_branch/Conv_7": what people see.
  [[nodiscard]] std::string node_path(NodeId node) const;
  // "ai.onnx::Conv(13)".
  [[nodiscard]] std::string op_label(NodeId node) const;
  // Its own, else what the module imports of its domain; 0 if nothing.
  [[nodiscard]] int64_t opset_version(NodeId node) const;
  [[nodiscard]] int64_t own_opset(NodeId node) const;  // NodeInit::opset.
  [[nodiscard]] std::span<const ValueId> inputs(NodeId node) const;
  [[nodiscard]] std::span<const ValueId> outputs(NodeId node) const;
  void set_input(NodeId node, uint32_t operand, ValueId value);
  // Output `index` is `value` from now on (kNoValue: absent). The value that was there lives on
  // without a definition. Precondition: `value` has none.
  void set_output(NodeId node, uint32_t index, ValueId value);
  [[nodiscard]] std::span<const Attribute> attributes(NodeId node) const;
  [[nodiscard]] const AttributeValue* attribute(NodeId node, std::string_view name) const;
  void set_attribute(NodeId node, std::string_view name, AttributeValue value);
  void set_attributes(NodeId node, std::vector<Attribute> attributes);
  // The subgraphs among its attributes, in their order.
  [[nodiscard]] std::vector<GraphId> nested_graphs(NodeId node) const;
  // Control edges: `before` runs before `after`, both in one graph.
  void add_control_edge(NodeId before, NodeId after);
  [[nodiscard]] std::span<const NodeId> control_inputs(NodeId node) const;

  // An ErrorDetail with node, op and stage filled in.
  [[nodiscard]] ErrorDetail error_at(NodeId node, DvtCode code, DvtStage stage,
                                     std::string message) const;

 private:
  struct GraphRecord {
    bool alive;
    uint32_t name;
    GraphId parent;
    NodeId owner;
    std::vector<NodeId> nodes;
    std::vector<ValueId> inputs, outputs;
  };
  struct Range {
    uint32_t begin, count;
  };
  uint32_t intern(std::string_view text);
  using Successors = std::vector<std::vector<NodeId>>;  // By node; edges stay in one graph.
  [[nodiscard]] Successors successors() const;
  [[nodiscard]] Result<std::vector<std::vector<NodeId>>> topological_orders() const;
  [[nodiscard]] Status cycle_error(NodeId unplaced, const Successors& successors,
                                   std::span<const uint32_t> pending) const;
  void drop_use(ValueId value, Use use);
  void drop_value(ValueId value);
  void collect_nested(NodeId node, std::vector<NodeId>& nodes, std::vector<GraphId>& graphs) const;

  std::deque<std::string> strings_;  // Views into it outlive additions.
  std::map<std::string, uint32_t, std::less<>> string_index_;
  std::vector<uint32_t> symbols_;                // Name of each, in strings_.
  std::map<uint32_t, SymbolId> symbol_of_name_;  // And back.
  std::vector<GraphRecord> graphs_;

  std::vector<uint8_t> value_alive_;
  std::vector<uint32_t> value_name_;
  std::vector<GraphId> value_graph_;
  std::vector<DvtDType> value_dtype_;
  std::vector<std::optional<Shape>> value_shape_;
  std::vector<NodeId> value_producer_;
  std::vector<uint32_t> value_constant_;  // Index in constants_, or kNone.
  std::vector<std::vector<Use>> value_uses_;
  std::vector<uint8_t> value_is_input_;
  std::vector<uint32_t> value_output_count_;  // Graph output positions that name it.
  std::vector<TensorData> constants_;
  std::map<ValueId, ContainerType> containers_;

  std::vector<uint8_t> node_alive_;
  std::vector<uint32_t> node_domain_, node_op_, node_name_;
  std::vector<GraphId> node_graph_;
  std::vector<int64_t> node_opset_;
  std::vector<Range> node_inputs_, node_outputs_;
  std::vector<ValueId> operands_;  // Backing of inputs and outputs.
  std::vector<std::vector<Attribute>> node_attributes_;
  std::vector<std::vector<NodeId>> node_control_;
  bool has_control_edges_ = false;
};

}  // namespace davit::ir
