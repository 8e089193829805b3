#include "ops/defs/scratch.hpp"

#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "ir/module.hpp"

namespace davit::ops {
namespace {

// The tensor of a node input; false while its shape is not known.
bool describe_input(const NodeView& node, uint32_t index, DvtTensor& tensor) {
  const auto extents = node.input_extents(index);
  if (!extents || extents->size() > DVT_MAX_RANK) return false;
  tensor.dtype = node.input_dtype(index);
  return dvt_set_shape(&tensor, static_cast<uint32_t>(extents->size()), extents->data()) == DVT_OK;
}

// A context for the kernel's infer() and cost(): tensors of static shapes, data of constants.
class StaticCall {
 public:
  // False when a shape is not known, or a parameter that shapes depend on.
  bool describe(const NodeView& node, const Recipe& recipe) {
    const size_t inputs = recipe.inputs.size();
    outputs_ = recipe.outputs.size() + recipe.workspace_bytes.size();
    tensors_.assign(inputs + outputs_, DvtTensor{});
    cells_.assign(inputs + outputs_, DvtCell{});
    memory_.assign(sizeof(DvtContext) / sizeof(uint64_t) + cells_.size(), 0);
    attributes_.resize((recipe.attributes.size() + 7) / 8);
    std::ranges::copy(recipe.attributes, reinterpret_cast<std::byte*>(attributes_.data()));
    DvtContext* context = get();
    context->attributes = attributes_.empty() ? nullptr : attributes_.data();
    context->input_count = static_cast<uint16_t>(inputs);
    context->output_count = static_cast<uint16_t>(outputs_);
    for (size_t i = 0; i < inputs; ++i) {
      const uint32_t index = recipe.inputs[i];
      if (index == ir::kNone) continue;
      if (!describe_input(node, index, tensors_[i])) return false;
      const ir::TensorData* constant = node.input_constant(index);
      // They only read; the cell type does not say so.
      if (constant != nullptr && constant->bytes != nullptr) {
        cells_[i].data = const_cast<std::byte*>(constant->bytes->data());
      } else if (i < 32 && (recipe.kernel->host_inputs >> i & 1U) != 0) {
        return false;
      }
      bind(i);
    }
    for (size_t i = 0; i < outputs_; ++i) {
      const bool is_scratch = i >= recipe.outputs.size();
      if (!is_scratch && recipe.outputs[i] == ir::kNone) continue;
      results()[i].dtype = is_scratch ? DvtDType{DVT_U8} : node.output_dtype(recipe.outputs[i]);
      bind(inputs + i);
    }
    return true;
  }
  DvtContext* get() { return reinterpret_cast<DvtContext*>(memory_.data()); }
  DvtTensor* results() { return tensors_.data() + (tensors_.size() - outputs_); }

 private:
  void bind(size_t operand) {
    cells_[operand].tensor = &tensors_[operand];
    get()->cells[operand] = &cells_[operand];
  }

  size_t outputs_ = 0;
  std::vector<DvtTensor> tensors_;
  std::vector<DvtCell> cells_;
  std::vector<uint64_t> memory_, attributes_;
};

}  // namespace

Status add_workspaces(const NodeView& node, Recipe& recipe, size_t count) {
  recipe.workspace_bytes.assign(count, 0);
  StaticCall call;
  if (!call.describe(node, recipe)) return {};
  std::array<char, 256> reason{};
  const DvtCode code =
      recipe.kernel->infer(call.get(), call.results(), reason.data(), reason.size());
  if (code != DVT_OK) {
    return node.error(code, std::string(recipe.kernel->name) + " refuses: " + reason.data(),
                      DVT_STAGE_LOWER);
  }
  for (size_t i = 0; i < count; ++i) {
    recipe.workspace_bytes[i] = call.results()[recipe.outputs.size() + i].bytes;
  }
  return {};
}

DvtTaskCost cost_of_kernel(const NodeView& node) {
  DvtTaskCost cost{};
  const OperatorDefinition* definition = find_operator(node.module(), node.id());
  if (definition == nullptr) return cost;
  const auto recipe = definition->recipe(node);
  StaticCall call;
  if (!recipe.ok() || recipe->kernel->cost == nullptr || !call.describe(node, *recipe)) return cost;
  std::array<char, 256> reason{};
  const DvtCode code =
      recipe->kernel->infer(call.get(), call.results(), reason.data(), reason.size());
  if (code == DVT_OK) recipe->kernel->cost(call.get(), &cost);
  return cost;
}

Status infer_by_kernel(const NodeView& node, const Recipe& recipe,
                       std::span<InferredOutput> outputs) {
  StaticCall call;
  if (!call.describe(node, recipe)) return {};
  for (size_t i = 0; i < recipe.outputs.size(); ++i) {
    if (recipe.outputs[i] != ir::kNone) call.results()[i].dtype = outputs[recipe.outputs[i]].dtype;
  }
  std::array<char, 256> reason{};
  const DvtCode code =
      recipe.kernel->infer(call.get(), call.results(), reason.data(), reason.size());
  if (code != DVT_OK) {
    return node.error(code, std::string(recipe.kernel->name) + " refuses: " + reason.data());
  }
  const bool is_bound = (recipe.kernel->flags & DVT_KERNEL_SHAPES_OUTPUTS) != 0;
  for (size_t i = 0; i < recipe.outputs.size(); ++i) {
    if (recipe.outputs[i] == ir::kNone) continue;
    const DvtTensor& tensor = call.results()[i];
    ir::Shape shape(tensor.rank);
    for (uint32_t d = 0; d < tensor.rank && !is_bound; ++d) shape[d] = ir::Dim(tensor.dims[d]);
    outputs[recipe.outputs[i]].shape = std::move(shape);
  }
  return {};
}

int64_t present_outputs(const NodeView& node) {
  int64_t mask = 0;
  for (uint32_t i = 0; i < node.output_count(); ++i) {
    if (node.has_output(i)) mask |= int64_t{1} << i;
  }
  return mask;
}

}  // namespace davit::ops
