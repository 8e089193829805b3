// sequences.hpp: what expand_sequences and lower_scans share.
//
// Threads  One thread a module.
// Trust    Modules are verified and sorted; operands and attributes are still the model's.
// Memory   As rewrite.hpp.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {

inline constexpr std::string_view kExpandSequences = "expand_sequences";
// A refusal that another one explains.
inline constexpr std::string_view kUnknownElements = "the elements of its sequence are not known";
// What one node may become: elements of a sequence, copies of a body. What a module may grow to:
// nodes, those that are gone included.
inline constexpr int64_t kElementsMax = 4096;
inline constexpr uint64_t kNodesMax = uint64_t{1} << 18U;

// What is known of a sequence or an optional.
struct Contents {
  enum class Kind : uint8_t { kTensor, kSequence, kAbsent };
  Kind kind = Kind::kSequence;
  std::vector<ir::ValueId> elements;  // The tensor, or those of the sequence.

  [[nodiscard]] bool is_sequence() const { return kind == Kind::kSequence; }
};
using KnownContents = std::map<ir::ValueId, Contents>;

// The shape without the names of dims: what is one extent in a body, or of a sequence's tensors, is
// another in each copy and of each tensor.
std::optional<ir::Shape> nameless(std::optional<ir::Shape> shape);

// Copies the nodes of a body into `graph`, where `arguments` take the place of its inputs
// (kNoValue: an absent operand), and returns what its outputs are there. `prefix` goes before
// names.
std::vector<ir::ValueId> copy_body(Rewriter& rewriter, ir::GraphId body, ir::GraphId graph,
                                   const std::vector<ir::ValueId>& arguments,
                                   std::string_view prefix);

// The same of the whole graph, as a subgraph of `owner`, which is in `into`.
ir::GraphId copy_graph(Rewriter& rewriter, ir::GraphId graph, ir::GraphId into, ir::NodeId owner);

// The node, or one in whose body it is, was struck out.
bool is_gone(const Rewriter& rewriter, ir::NodeId node);

// A Loop that carries a sequence or an optional, and SequenceMap, become copies of their body. The
// result says why that cannot be done; empty when it was, or when there is nothing to do.
// *changes counts.
std::string unroll_loop(Rewriter& rewriter, ir::NodeId node, const KnownContents& known,
                        uint32_t& changes);
std::string unroll_map(Rewriter& rewriter, ir::NodeId node, const KnownContents& known,
                       uint32_t& changes);

// Whoever reads `from` reads `to`. As Rewriter::replace_or_copy(), but `to` keeps its name.
void read_instead(Rewriter& rewriter, ir::ValueId from, ir::ValueId to);

// One tensor of several: Concat along `axis`, of the tensors or, when `stacked`, of each with a new
// axis there.
struct Joining {
  int64_t axis = 0;
  bool stacked = false;
};
ir::ValueId join_tensors(Rewriter& rewriter, ir::NodeId origin,
                         const std::vector<ir::ValueId>& tensors, Joining how);

// A node named after `origin`, in its graph, with one output. All that this pass adds is opset 13.
ir::ValueId add_operator(Rewriter& rewriter, ir::NodeId origin, std::string_view op,
                         std::vector<ir::ValueId> inputs,
                         std::vector<ir::Attribute> attributes = {});
ir::ValueId add_integers(Rewriter& rewriter, ir::NodeId origin, std::vector<int64_t> dims,
                         const std::vector<int64_t>& values);

}  // namespace davit::passes
