// pointwise.hpp: operators that compute each element of their result from the elements at the same
// place of their operands, and the permutations that can be moved past them.
//
// Threads  Pure functions, but for those that take a module to change.
// Trust    Modules are verified and have passed inference.
// Memory   Results own their data.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/module.hpp"

namespace davit::passes {

// A pointwise operator with one result, whose operands broadcast as numpy does.
bool is_pointwise(const ir::Module& module, ir::NodeId node);

// One with a single tensor operand (in one place or several): all others are absent or constants of
// one element.
bool is_pointwise_of_one(const ir::Module& module, ir::NodeId node);

// Its one-element constants have at most the rank of `shape`, so that they do not add axes to it.
bool has_unit_operands_up_to(const ir::Module& module, ir::NodeId node, const ir::Shape* shape);

// Every operand that is `from` becomes `to`.
void replace_operand(ir::Module& module, ir::NodeId node, ir::ValueId from, ir::ValueId to);

// ---- Permutations ------------------------------------------------------------------------------

// The permutation of a Transpose of `rank` axes: result axis i is operand axis p[i].
std::vector<int64_t> permutation_of(const ir::Module& module, ir::NodeId transpose, size_t rank);
std::vector<int64_t> inverse(const std::vector<int64_t>& permutation);
bool is_identity(const std::vector<int64_t>& permutation);

template <class T>
std::vector<T> permuted(const std::vector<T>& items, const std::vector<int64_t>& permutation) {
  std::vector<T> out;
  out.reserve(permutation.size());
  for (const int64_t axis : permutation) out.push_back(items[static_cast<size_t>(axis)]);
  return out;
}

// The data as a Transpose would move it. Dims are extended by leading ones to the permutation's
// rank. Precondition: dense data, of at most that rank.
ir::TensorData permuted_data(const ir::TensorData& data, const std::vector<int64_t>& permutation);

}  // namespace davit::passes
