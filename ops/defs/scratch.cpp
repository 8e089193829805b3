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

}  // namespace

Status add_workspaces(const NodeView& node, Recipe& recipe, size_t count) {
  const size_t inputs = recipe.inputs.size();
  const size_t outputs = recipe.outputs.size() + count;
  recipe.workspace_bytes.assign(count, 0);
  std::vector<DvtTensor> tensors(inputs + outputs, DvtTensor{});
  std::vector<DvtCell> cells(inputs);
  std::vector<uint64_t> memory(sizeof(DvtContext) / sizeof(uint64_t) + inputs + outputs, 0);
  auto* context = reinterpret_cast<DvtContext*>(memory.data());
  for (size_t i = 0; i < inputs; ++i) {
    const uint32_t index = recipe.inputs[i];
    if (index == ir::kNone) continue;
    if (!describe_input(node, index, tensors[i])) return {};
    const ir::TensorData* constant = node.input_constant(index);
    // infer() only reads; the cell type does not say so.
    if (constant != nullptr && constant->bytes != nullptr) {
      cells[i].data = const_cast<std::byte*>(constant->bytes->data());
    }
    cells[i].tensor = &tensors[i];
    context->cells[i] = &cells[i];
  }
  std::vector<uint64_t> attributes((recipe.attributes.size() + 7) / 8);
  std::copy(recipe.attributes.begin(), recipe.attributes.end(),
            reinterpret_cast<std::byte*>(attributes.data()));
  context->attributes = attributes.empty() ? nullptr : attributes.data();
  context->input_count = static_cast<uint16_t>(inputs);
  context->output_count = static_cast<uint16_t>(outputs);
  DvtTensor* results = tensors.data() + inputs;
  for (size_t i = 0; i < outputs; ++i) {
    results[i].dtype =
        i < recipe.outputs.size() ? node.output_dtype(recipe.outputs[i]) : DvtDType{DVT_U8};
  }
  std::array<char, 256> reason{};
  const DvtCode code = recipe.kernel->infer(context, results, reason.data(), reason.size());
  if (code != DVT_OK) {
    return node.error(code, std::string(recipe.kernel->name) + " refuses: " + reason.data(),
                      DVT_STAGE_LOWER);
  }
  for (size_t i = 0; i < count; ++i) {
    recipe.workspace_bytes[i] = results[recipe.outputs.size() + i].bytes;
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
