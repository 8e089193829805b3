// Helpers for definitions, and evaluate(): one node on constant data.
#include "ops/definition.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/checked.hpp"
#include "base/dtype.hpp"

namespace davit::ops {
namespace {

// Constant folding must not be a way to make the compiler allocate without bound.
constexpr uint64_t kEvaluateByteLimit = uint64_t{1} << 31;

// Describes dense data; nullopt when dims and dtype do not make a valid tensor.
std::optional<DvtTensor> describe(DvtDType dtype, std::span<const int64_t> dims) {
  if (dims.size() > DVT_MAX_RANK) return std::nullopt;
  const auto elements = checked_elements(dims);
  if (!elements) return std::nullopt;
  const auto bytes = checked_mul(*elements, dvt_dtype_size(dtype));
  if (!bytes || dvt_dtype_size(dtype) == 0) return std::nullopt;
  DvtTensor tensor{};
  tensor.dtype = dtype;
  tensor.rank = static_cast<uint8_t>(dims.size());
  tensor.bytes = *bytes;
  std::copy(dims.begin(), dims.end(), tensor.dims);
  return tensor;
}

// The operands of one call. Vectors are sized before addresses are taken.
class Call {
 public:
  Call(const NodeView& node, const Recipe& recipe) : node_(node), recipe_(recipe) {
    const size_t count =
        recipe.inputs.size() + recipe.outputs.size() + recipe.workspace_bytes.size();
    tensors_.resize(count);
    cells_.resize(count);
    context_.resize(sizeof(DvtContext) / sizeof(uint64_t) + count);
    buffers_.resize(recipe.outputs.size() + recipe.workspace_bytes.size());
    attributes_.resize((recipe.attributes.size() + 7) / 8);
    if (!recipe.attributes.empty()) {
      std::memcpy(attributes_.data(), recipe.attributes.data(), recipe.attributes.size());
    }
    context().attributes = attributes_.empty() ? nullptr : attributes_.data();
    context().input_count = static_cast<uint16_t>(recipe.inputs.size());
    context().output_count = static_cast<uint16_t>(buffers_.size());
    context().stream = DVT_NO_INDEX;
    context().device_kernel = DVT_NO_INDEX;
  }

  Status bind(std::span<const ir::TensorData* const> inputs);
  Status run();
  std::vector<ir::TensorData> take_outputs();

 private:
  Status bind_input(uint32_t operand, const ir::TensorData* data);
  Status bind_buffer(uint32_t buffer, DvtDType dtype, std::span<const int64_t> dims);
  Status bind_static();
  Status bind_inferred();
  DvtContext& context() { return *reinterpret_cast<DvtContext*>(context_.data()); }
  DvtCell** cell_pointers() { return context().cells; }

  const NodeView& node_;
  const Recipe& recipe_;
  std::vector<DvtTensor> tensors_;
  std::vector<DvtCell> cells_;
  std::vector<uint64_t> context_;  // A DvtContext.
  std::vector<uint64_t> attributes_;
  std::vector<std::vector<std::byte>> buffers_;  // Outputs, then workspaces.
  uint64_t allocated_ = 0;
};

Status Call::bind_input(uint32_t operand, const ir::TensorData* data) {
  if (data == nullptr) {
    return node_.error(DVT_INVALID_ARGUMENT, "evaluate: input data is missing", DVT_STAGE_OPTIMISE);
  }
  const auto tensor = describe(data->dtype, data->dims);
  if (!tensor) {
    return node_.error(DVT_UNSUPPORTED,
                       "cannot evaluate on data of type " + std::string(dtype_name(data->dtype)),
                       DVT_STAGE_OPTIMISE);
  }
  if (data->bytes == nullptr || data->bytes->size() != tensor->bytes) {
    return node_.error(DVT_INVALID_ARGUMENT, "evaluate: input data has the wrong size",
                       DVT_STAGE_OPTIMISE);
  }
  tensors_[operand] = *tensor;
  // Kernels only read their inputs; the cell type does not say so.
  cells_[operand].data = const_cast<std::byte*>(data->bytes->data());
  cells_[operand].tensor = &tensors_[operand];
  cell_pointers()[operand] = &cells_[operand];
  return {};
}

Status Call::bind_buffer(uint32_t buffer, DvtDType dtype, std::span<const int64_t> dims) {
  const auto tensor = describe(dtype, dims);
  if (!tensor) {
    return node_.error(DVT_UNSUPPORTED, "cannot evaluate: an output has no usable type or shape",
                       DVT_STAGE_OPTIMISE);
  }
  const auto total = checked_add(allocated_, tensor->bytes);
  if (!total || *total > kEvaluateByteLimit) {
    return node_.error(
        DVT_OUT_OF_MEMORY,
        "folding would need more than " + std::to_string(kEvaluateByteLimit) + " bytes",
        DVT_STAGE_OPTIMISE);
  }
  allocated_ = *total;
  const size_t operand = recipe_.inputs.size() + buffer;
  buffers_[buffer].resize(tensor->bytes);
  tensors_[operand] = *tensor;
  cells_[operand].data = buffers_[buffer].data();
  cells_[operand].tensor = &tensors_[operand];
  cell_pointers()[operand] = &cells_[operand];
  return {};
}

Status Call::bind(std::span<const ir::TensorData* const> inputs) {
  for (uint32_t i = 0; i < recipe_.inputs.size(); ++i) {
    const uint32_t index = recipe_.inputs[i];
    if (index == ir::kNone) continue;
    Status status = bind_input(i, index < inputs.size() ? inputs[index] : nullptr);
    if (!status.ok()) return status;
  }
  for (const uint32_t index : recipe_.outputs) {
    if (index != ir::kNone && !node_.output_extents(index)) return bind_inferred();
  }
  return bind_static();
}

// Outputs whose shapes the definition knows.
Status Call::bind_static() {
  uint32_t buffer = 0;
  for (const uint32_t index : recipe_.outputs) {
    if (index != ir::kNone) {
      const auto extents = node_.output_extents(index);
      Status status = bind_buffer(buffer, node_.output_dtype(index), *extents);
      if (!status.ok()) return status;
    }
    ++buffer;
  }
  for (const uint64_t bytes : recipe_.workspace_bytes) {
    const std::array dims = {static_cast<int64_t>(bytes)};
    Status status = bind_buffer(buffer++, DVT_U8, dims);
    if (!status.ok()) return status;
  }
  return {};
}

// Outputs whose shapes depend on data: the kernel's shape function knows them, or a bound.
Status Call::bind_inferred() {
  if (recipe_.kernel->infer == nullptr) {
    return node_.error(DVT_UNSUPPORTED, "cannot evaluate: an output's shape is not known",
                       DVT_STAGE_OPTIMISE);
  }
  std::vector<DvtTensor> outputs(buffers_.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_scratch = i >= recipe_.outputs.size();
    if (is_scratch || recipe_.outputs[i] != ir::kNone) {
      outputs[i].dtype = is_scratch ? DvtDType{DVT_U8} : node_.output_dtype(recipe_.outputs[i]);
    }
  }
  std::array<char, 256> reason{};
  const DvtCode code =
      recipe_.kernel->infer(&context(), outputs.data(), reason.data(), reason.size());
  if (code != DVT_OK) {
    return node_.error(code, std::string(recipe_.kernel->name) + " refuses: " + reason.data(),
                       DVT_STAGE_OPTIMISE);
  }
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    if (i < recipe_.outputs.size() && recipe_.outputs[i] == ir::kNone) continue;
    Status status = bind_buffer(i, outputs[i].dtype, {outputs[i].dims, outputs[i].rank});
    if (!status.ok()) return status;
  }
  return {};
}

Status Call::run() {
  std::array<char, 256> reason{};
  const DvtKernel& kernel = *recipe_.kernel;
  DvtCode code =
      kernel.check == nullptr ? DVT_OK : kernel.check(&context(), reason.data(), reason.size());
  if (code != DVT_OK) {
    return node_.error(code, std::string(kernel.name) + " refuses: " + reason.data(),
                       DVT_STAGE_OPTIMISE);
  }
  code = kernel.run(&context());
  if (code != DVT_OK) {
    return node_.error(code, std::string(kernel.name) + " failed", DVT_STAGE_OPTIMISE);
  }
  return {};
}

std::vector<ir::TensorData> Call::take_outputs() {
  std::vector<ir::TensorData> outputs(node_.module().outputs(node_.id()).size());
  for (size_t i = 0; i < recipe_.outputs.size(); ++i) {
    const uint32_t index = recipe_.outputs[i];
    if (index == ir::kNone) continue;
    const DvtTensor& tensor = tensors_[recipe_.inputs.size() + i];
    buffers_[i].resize(tensor.bytes);  // run() may have made it smaller.
    outputs[index] = ir::make_tensor(tensor.dtype, {tensor.dims, tensor.dims + tensor.rank},
                                     std::move(buffers_[i]));
  }
  return outputs;
}

// A view: the input's bytes under the output's dims.
Result<std::vector<ir::TensorData>> evaluate_alias(const NodeView& node,
                                                   const ir::TensorData* data) {
  const auto extents = node.output_extents(0);
  if (data == nullptr || !extents) {
    return node.error(DVT_UNSUPPORTED, "cannot evaluate: shape or input is not known",
                      DVT_STAGE_OPTIMISE);
  }
  std::vector<ir::TensorData> outputs(node.module().outputs(node.id()).size());
  outputs[0] = *data;
  outputs[0].dims = *extents;
  if (outputs[0].element_count() != data->element_count()) {
    return node.error(DVT_INVALID_ARGUMENT, "evaluate: the view and its source differ in size",
                      DVT_STAGE_OPTIMISE);
  }
  return outputs;
}

}  // namespace

Result<std::vector<ir::TensorData>> evaluate(const NodeView& node,
                                             std::span<const ir::TensorData* const> inputs) {
  const OperatorDefinition* definition = find_operator(node.module(), node.id());
  if (definition == nullptr) {
    return node.error(DVT_UNSUPPORTED, "operator is not supported", DVT_STAGE_OPTIMISE);
  }
  Result<Recipe> recipe = definition->recipe(node);
  if (!recipe.ok()) return std::move(recipe.status());
  if (recipe->is_alias) {
    const uint32_t index = recipe->alias_input;
    return evaluate_alias(node, index < inputs.size() ? inputs[index] : nullptr);
  }
  if (recipe->inputs.size() > recipe->kernel->input_max) {
    return node.error(DVT_UNSUPPORTED,
                      std::string(recipe->kernel->name) + " takes at most " +
                          std::to_string(recipe->kernel->input_max) + " inputs",
                      DVT_STAGE_OPTIMISE);
  }
  try {
    Call call(node, *recipe);
    Status status = call.bind(inputs);
    if (status.ok()) status = call.run();
    if (!status.ok()) return status;
    return call.take_outputs();
  } catch (const std::bad_alloc&) {
    return node.error(DVT_OUT_OF_MEMORY, "not enough memory to fold this node", DVT_STAGE_OPTIMISE);
  }
}

std::optional<ir::Shape> broadcast(const ir::Shape& a, const ir::Shape& b) {
  const ir::Shape& longer = a.size() >= b.size() ? a : b;
  const ir::Shape& shorter = a.size() >= b.size() ? b : a;
  ir::Shape out = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const ir::Dim x = longer[offset + i];
    const ir::Dim y = shorter[i];
    ir::Dim& dim = out[offset + i];
    if (x == y) continue;
    if (x.is_known() && y.is_known()) {
      if (x.extent() != 1 && y.extent() != 1) return std::nullopt;
      dim = x.extent() == 1 ? y : x;
    } else if (x.is_known()) {
      // An extent other than 1 decides; 1 leaves the other, whatever it will be.
      dim = x.extent() == 1 ? y : x;
    } else if (y.is_known()) {
      dim = y.extent() == 1 ? x : y;
    } else {
      dim = ir::Dim();
    }
  }
  return out;
}

std::optional<int64_t> normalise_axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) return std::nullopt;
  return axis < 0 ? axis + rank : axis;
}

}  // namespace davit::ops
