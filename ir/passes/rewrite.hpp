// rewrite.hpp: what passes change a module with.
//
// A Rewriter keeps what every pass has to keep: names, dtypes and order of the main graph's inputs
// and outputs, unique names of values, control edges, and a topological order at the end. Nodes are
// struck out at once (they read and define nothing any more) and erased together in finish().
//
// Threads  One thread a module.
// Trust    Modules are verified and sorted (ir/verify.hpp).
// Memory   Borrows the module. Names are indexed on first use: O(values).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ops/definition.hpp"

namespace davit::passes {

class Rewriter {
 public:
  explicit Rewriter(ir::Module& module);

  [[nodiscard]] ir::Module& module() { return module_; }
  [[nodiscard]] const ir::Module& module() const { return module_; }

  // True when another node must run before or after this one for reasons that are no data.
  [[nodiscard]] bool has_control_edges(ir::NodeId node) const;

  // Whoever reads `from` reads `to` from now on; true when that could be done. A graph output keeps
  // its name: there `to` is renamed to `from` when the same graph computes it and it is no output
  // itself, and otherwise nothing happens. Precondition: `from` is a node's output, and `to` is
  // visible where `from` is and does not depend on it.
  bool replace(ir::ValueId from, ir::ValueId to);
  [[nodiscard]] bool can_replace(ir::ValueId from, ir::ValueId to) const;
  // As replace(); where that cannot be done, `from` becomes an Identity of `to`.
  void replace_or_copy(ir::ValueId from, ir::ValueId to);

  // Adds a node. Outputs may be values that other nodes define: it takes them over.
  ir::NodeId add_node(ir::GraphId graph, ir::Module::NodeInit init);
  // A new value of that dtype and shape, named after `base`.
  ir::ValueId add_value(ir::GraphId graph, std::string_view base, DvtDType dtype,
                        std::optional<ir::Shape> shape);
  // A value of the dtype and shape of `like`, named after it.
  ir::ValueId add_value_like(ir::ValueId like);
  ir::ValueId add_constant(ir::GraphId graph, std::string_view base, ir::TensorData data);
  // `base`, or `base` and a number, as no value of the graph is called.
  std::string fresh_name(ir::GraphId graph, std::string_view base);

  // The node goes. Precondition: its outputs are not used and no graph outputs.
  void strike(ir::NodeId node);
  // strike(), and whatever only it needed.
  void strike_unneeded(ir::NodeId node);
  [[nodiscard]] bool is_struck(ir::NodeId node) const;

  // Erases what was struck out and sorts. A cycle is DVT_INTERNAL.
  Status finish();

 private:
  ir::Module& module_;
  std::vector<uint8_t> controlled_;  // By node; empty when there are no control edges.
  std::vector<uint8_t> is_struck_;   // By node, as far as it was needed.
  std::vector<ir::NodeId> struck_;
  std::vector<std::unordered_set<std::string_view>> names_;  // By graph, once indexed.
  uint32_t indexed_values_ = 0;
};

// ---- Looking at nodes --------------------------------------------------------------------------

// All live graphs, outer ones first.
std::vector<ir::GraphId> live_graphs(const ir::Module& module);

// The nodes of all live graphs, in topological order within each. Ask is_struck() for those that a
// rewrite before may have taken.
std::vector<ir::NodeId> live_nodes(const ir::Module& module);

// A node of the default domain and this operator.
bool is_op(const ir::Module& module, ir::NodeId node, std::string_view op);

// The node's operand, or kNoValue when it has none there.
ir::ValueId operand(const ir::Module& module, ir::NodeId node, uint32_t index);

// The one node that reads the value, once or more; kNoNode when there are several or none, or when
// the value is a graph output.
ir::NodeId only_reader(const ir::Module& module, ir::ValueId value);

// The branch that an If always takes; nullptr for other nodes and when that is not known.
const ir::GraphId* taken_branch(const ir::Module& module, ir::NodeId node);

// Same dtype and provably the same extents.
bool same_type(const ir::Module& module, ir::ValueId a, ir::ValueId b);

// The extents of a value when all are known.
std::optional<std::vector<int64_t>> static_shape(const ir::Module& module, ir::ValueId value);

// The element that all elements of a constant are equal to, bit for bit; nullopt for other values
// and for empty ones. 64-bit integers beyond 2^53 are not exact.
std::optional<double> uniform_constant(const ir::Module& module, ir::ValueId value);

// Elements of a constant of numbers as doubles; empty for other dtypes.
std::vector<double> constant_reals(const ir::TensorData& data);
// The reverse: rounded once to nearest even. Precondition: f32, f64, f16 or bf16.
ir::TensorData make_real_tensor(DvtDType dtype, std::vector<int64_t> dims,
                                const std::vector<double>& values);
bool is_float(DvtDType dtype);

}  // namespace davit::passes
