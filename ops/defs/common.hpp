// common.hpp: what the families of definitions share: errors, kernel choice, sizes and costs.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp: shapes and attributes are the model's.
// Memory   Values are returned by value.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ops/definition.hpp"
#include "ops/kernels/shape.h"

namespace davit::ops {

// Neither strings nor unknown.
inline bool is_number(DvtDType dtype) {
  return dtype != DVT_STRING && dvt_dtype_size(dtype) != 0;
}

// "[1,3,H,?]" for messages.
std::string shape_text(const NodeView& node, const ir::Shape& shape);

// An error at the node with expected and got filled in.
Status mismatch(const NodeView& node, std::string message, std::string expected, std::string got,
                DvtStage stage = DVT_STAGE_INFER);

// Refuses a variadic operator with an absent input.
Status all_present(const NodeView& node);

// Refuses inputs `a` and `b` of different dtypes; unknown ones pass.
Status same_dtype(const NodeView& node, uint32_t a, uint32_t b);

// Attribute `axis` (or another) in [0, rank), counted from the end when negative.
Result<int64_t> require_axis(const NodeView& node, int64_t axis, size_t rank,
                             std::string_view name = "axis");

// Refuses a shape of more elements than a tensor can have. For outputs whose extents come from
// values rather than from tensors that exist.
Status check_elements(const NodeView& node, const ir::Shape& shape);

// The kernel "<base>.<dtype>", or DVT_UNSUPPORTED with the dtypes that have one.
Result<const DvtKernel*> require_kernel(const NodeView& node, std::string_view base,
                                        DvtDType dtype);

// The rank of an input, or DVT_UNSUPPORTED: it must be known to write the kernel's record.
Result<size_t> require_rank(const NodeView& node, uint32_t index);

// A parameter for a kernel's record, or DVT_UNSUPPORTED when it has more entries than a tensor has
// axes. Of an input: its values when it is constant, else DVT_LIST_INPUT.
Result<DvtIntegerList> integer_list(const NodeView& node, const std::vector<int64_t>& values,
                                    std::string_view name);
Result<DvtIntegerList> integer_list(const NodeView& node, uint32_t input, std::string_view name);

// Appends `input` to the kernel's operands when `list` says that it is there.
void take_list(Recipe& recipe, const DvtIntegerList& list, uint32_t input);

// A recipe that calls `kernel` with all inputs and outputs of the node in their order.
Recipe plain_recipe(const NodeView& node, const DvtKernel* kernel,
                    std::vector<std::byte> attributes = {});

// Element counts and bytes of static shapes; saturated, 0 when unknown.
uint64_t element_count(const std::optional<std::vector<int64_t>>& extents);
uint64_t input_bytes(const NodeView& node, uint32_t index);
uint64_t output_bytes(const NodeView& node, uint32_t index);

// The recipe of an output that is a view of input 0: with the same dims, or with those that
// `kernel` (DVT_KERNEL_ALIAS) gives it.
Result<Recipe> alias_recipe(const NodeView& node);
Recipe view_recipe(std::string_view kernel, std::vector<std::byte> attributes);

// Costs that follow from sizes: all inputs read once, all outputs written once.
DvtTaskCost move_cost(const NodeView& node);
// Nothing runs.
DvtTaskCost no_cost(const NodeView& node);
// Reads what it writes, from a larger input.
DvtTaskCost part_cost(const NodeView& node);
// `elements` elements pass the vector unit `passes_x100` / 100 times. 64-bit types run on an AICPU:
// the vector unit has none.
DvtTaskCost vector_cost(const NodeView& node, uint64_t elements, uint64_t passes_x100);

}  // namespace davit::ops
