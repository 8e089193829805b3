#include "tests/support/run_dynamic.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/dtype.hpp"
#include "ops/definition.hpp"

namespace davit::testing {
namespace {

using ir::TensorData;

Status broken(std::string message) {
  return {DVT_INTERNAL, DVT_STAGE_RUN, std::move(message)};
}

DvtTensor tensor_of(const TensorData& data) {
  DvtTensor tensor{};
  tensor.dtype = data.dtype;
  (void)dvt_set_shape(&tensor, static_cast<uint32_t>(data.dims.size()), data.dims.data());
  return tensor;
}

std::string shape_of(const DvtTensor& tensor) {
  std::string text = "[";
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    text += (i > 0 ? "," : "") + std::to_string(tensor.dims[i]);
  }
  return text + "]";
}

// A module with the node alone. Extents of `inputs` are known or not.
struct Single {
  ir::Module module;
  ir::NodeId node = ir::kNoNode;
  std::vector<ops::InferredOutput> inferred;
};

bool is_parameter(std::string_view op, size_t input, const TensorData& data) {
  // Region and scales are of floating point; input 0 is the data.
  if (op == "Resize" || op == "Upsample") return input > 0;
  return (data.dtype == DVT_I64 || data.dtype == DVT_I32) && data.dims.size() <= 1;
}

Single single_node(const ir::Module& module, ir::NodeId node,
                   std::span<const TensorData* const> inputs, const Known* known) {
  Single single;
  single.module.opset_imports = module.opset_imports;
  ir::Module::NodeInit init{
      .domain = std::string(module.domain(node)),
      .op = std::string(module.op(node)),
      .name = "node",
      .inputs = {},
      .outputs = {},
      .attributes = {module.attributes(node).begin(), module.attributes(node).end()}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    if (inputs[i] == nullptr) {
      init.inputs.push_back(ir::kNoValue);
      continue;
    }
    const bool was_constant = module.constant(module.inputs(node)[i]) != nullptr;
    const bool constant = known == nullptr || (known->parameters && was_constant &&
                                               is_parameter(module.op(node), i, *inputs[i]));
    if (constant) {
      init.inputs.push_back(single.module.add_constant(ir::kMainGraph, name, *inputs[i]));
      continue;
    }
    const ir::ValueId value = single.module.add_value(ir::kMainGraph, name);
    single.module.set_dtype(value, inputs[i]->dtype);
    if (known->ranks) single.module.set_shape(value, ir::Shape(inputs[i]->dims.size()));
    init.inputs.push_back(value);
  }
  for (size_t i = 0; i < module.outputs(node).size(); ++i) {
    init.outputs.push_back(
        module.outputs(node)[i] == ir::kNoValue
            ? ir::kNoValue
            : single.module.add_value(ir::kMainGraph, "out" + std::to_string(i)));
  }
  single.node = single.module.add_node(ir::kMainGraph, std::move(init));
  return single;
}

Status infer(const ops::OperatorDefinition& definition, Single& single) {
  single.inferred.assign(single.module.outputs(single.node).size(), {});
  Status status = definition.infer({single.module, single.node}, single.inferred);
  for (size_t i = 0; status.ok() && i < single.inferred.size(); ++i) {
    const ir::ValueId value = single.module.outputs(single.node)[i];
    if (value == ir::kNoValue) continue;
    single.module.set_dtype(value, single.inferred[i].dtype);
    if (single.inferred[i].shape) single.module.set_shape(value, *single.inferred[i].shape);
  }
  return status;
}

// The tensor is one that the definition foresaw.
Status agree(const ops::InferredOutput& inferred, const DvtTensor& tensor, const char* what) {
  bool agrees = inferred.dtype == DVT_DTYPE_NONE || inferred.dtype == tensor.dtype;
  if (inferred.shape) agrees = agrees && inferred.shape->size() == tensor.rank;
  for (size_t i = 0; agrees && inferred.shape && i < tensor.rank; ++i) {
    const ir::Dim dim = (*inferred.shape)[i];
    agrees = !dim.is_known() || dim.extent() == tensor.dims[i];
  }
  if (agrees) return {};
  return broken(std::string(what) + " differs from the definition's: " + shape_of(tensor));
}

// One kernel call.
class Call {
 public:
  Call(const ops::Recipe& recipe, std::span<const TensorData* const> inputs)
      : recipe_(recipe), kernel_(*recipe.kernel) {
    const size_t outputs = recipe.outputs.size() + recipe.workspace_bytes.size();
    tensors_.resize(recipe.inputs.size() + outputs);
    cells_.resize(tensors_.size());
    context_.resize(sizeof(DvtContext) / sizeof(uint64_t) + tensors_.size());
    attributes_.resize((recipe.attributes.size() + 7) / 8);
    if (!recipe.attributes.empty()) {
      std::memcpy(attributes_.data(), recipe.attributes.data(), recipe.attributes.size());
    }
    buffers_.resize(outputs);
    DvtContext& ctx = context();
    ctx.attributes = attributes_.empty() ? nullptr : attributes_.data();
    ctx.input_count = static_cast<uint16_t>(recipe.inputs.size());
    ctx.output_count = static_cast<uint16_t>(outputs);
    ctx.stream = ctx.device_kernel = DVT_NO_INDEX;
    for (size_t i = 0; i < recipe.inputs.size(); ++i) {
      const TensorData* data =
          recipe.inputs[i] < inputs.size() ? inputs[recipe.inputs[i]] : nullptr;
      if (data == nullptr) continue;
      tensors_[i] = tensor_of(*data);
      cells_[i].tensor = &tensors_[i];
      cells_[i].data = const_cast<std::byte*>(data->bytes->data());
      ctx.cells[i] = &cells_[i];
    }
  }

  // Shapes of the outputs, whose dtypes are `dtypes`. Data that infer() may not read is not there.
  Status infer(std::span<const ops::InferredOutput> node_outputs) {
    DvtContext& ctx = context();
    DvtTensor* outputs = tensors_.data() + ctx.input_count;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const bool scratch = i >= recipe_.outputs.size();
      if (is_absent(i)) continue;
      outputs[i].dtype = scratch ? DvtDType{DVT_U8} : node_outputs[recipe_.outputs[i]].dtype;
    }
    std::vector<void*> hidden;
    for (uint32_t i = 0; i < ctx.input_count; ++i) {
      hidden.push_back(cells_[i].data);
      if (i >= 32 || (kernel_.host_inputs >> i & 1U) == 0) cells_[i].data = nullptr;
    }
    std::array<char, 256> reason{};
    const DvtCode code = kernel_.infer(&ctx, outputs, reason.data(), reason.size());
    for (uint32_t i = 0; i < ctx.input_count; ++i) cells_[i].data = hidden[i];
    if (code != DVT_OK) return broken(std::string(kernel_.name) + " infers: " + reason.data());
    return {};
  }

  Status run() {
    DvtContext& ctx = context();
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const size_t operand = ctx.input_count + i;
      if (is_absent(i)) continue;
      buffers_[i].assign(tensors_[operand].bytes, std::byte{0xAB});
      const bool alias = i == 0 && (kernel_.flags & DVT_KERNEL_ALIAS) != 0;
      cells_[operand].data = alias ? cells_[0].data : buffers_[i].data();
      cells_[operand].tensor = &tensors_[operand];
      ctx.cells[operand] = &cells_[operand];
    }
    std::array<char, 256> reason{};
    if (kernel_.check(&ctx, reason.data(), reason.size()) != DVT_OK) {
      return broken(std::string(kernel_.name) + " refuses: " + reason.data());
    }
    if (kernel_.run(&ctx) != DVT_OK) return broken(std::string(kernel_.name) + " failed");
    return {};
  }

  // An output that nobody asked for.
  [[nodiscard]] bool is_absent(size_t index) const {
    return index < recipe_.outputs.size() && recipe_.outputs[index] == ir::kNone;
  }
  [[nodiscard]] DvtTaskCost cost() {
    DvtTaskCost cost{};
    kernel_.cost(&context(), &cost);
    return cost;
  }
  [[nodiscard]] const DvtTensor& output(size_t index) const {
    return tensors_[recipe_.inputs.size() + index];
  }
  TensorData take(size_t index) {
    const DvtTensor& tensor = output(index);
    const auto* data = static_cast<const std::byte*>(cells_[recipe_.inputs.size() + index].data);
    return ir::make_tensor(
        tensor.dtype, {tensor.dims, tensor.dims + tensor.rank},
        tensor.bytes > 0 ? std::vector(data, data + tensor.bytes) : std::vector<std::byte>());
  }

 private:
  DvtContext& context() { return *reinterpret_cast<DvtContext*>(context_.data()); }

  const ops::Recipe& recipe_;
  const DvtKernel& kernel_;
  std::vector<DvtTensor> tensors_;
  std::vector<DvtCell> cells_;
  std::vector<uint64_t> context_;
  std::vector<uint64_t> attributes_;
  std::vector<std::vector<std::byte>> buffers_;
};

}  // namespace

Result<std::vector<TensorData>> run_dynamic(const ir::Module& module, ir::NodeId node,
                                            std::span<const TensorData* const> inputs,
                                            Known known) {
  const ops::OperatorDefinition* definition = ops::find_operator(module, node);
  if (definition == nullptr) {
    return Status(DVT_UNSUPPORTED, DVT_STAGE_RUN, "there is no such operator");
  }
  Single fixed = single_node(module, node, inputs, nullptr);
  Single open = single_node(module, node, inputs, &known);
  Status status = infer(*definition, fixed);
  if (status.ok()) status = infer(*definition, open);
  if (!status.ok()) return status;
  auto recipe = definition->recipe({open.module, open.node});
  if (!recipe.ok()) return std::move(recipe.status());
  if (recipe->kernel == nullptr) return broken("the recipe has no kernel");
  if (recipe->kernel->infer == nullptr) return broken("the kernel has no infer()");
  if (recipe->is_alias != ((recipe->kernel->flags & DVT_KERNEL_ALIAS) != 0)) {
    return broken("recipe and kernel disagree about being an alias");
  }
  Call call(*recipe, inputs);
  status = call.infer(open.inferred);
  const bool bound = (recipe->kernel->flags & DVT_KERNEL_SHAPES_OUTPUTS) != 0;
  for (size_t i = 0; status.ok() && !bound && i < recipe->outputs.size(); ++i) {
    if (call.is_absent(i)) continue;
    status = agree(fixed.inferred[recipe->outputs[i]], call.output(i), "the shape");
    if (status.ok())
      status = agree(open.inferred[recipe->outputs[i]], call.output(i), "the open shape");
  }
  std::vector<DvtTensor> bounds;
  for (size_t i = 0; i < recipe->outputs.size(); ++i) bounds.push_back(call.output(i));
  if (status.ok()) status = call.run();
  if (!status.ok()) return status;
  if (recipe->kernel->cost != nullptr) {
    const DvtTaskCost expected = definition->cost({fixed.module, fixed.node});
    const DvtTaskCost got = call.cost();
    if (std::memcmp(&expected, &got, sizeof got) != 0) return broken("the costs differ");
  }
  std::vector<TensorData> outputs(module.outputs(node).size());
  for (size_t i = 0; i < recipe->outputs.size(); ++i) {
    if (call.is_absent(i)) continue;
    const DvtTensor& tensor = call.output(i);
    status = agree(open.inferred[recipe->outputs[i]], tensor, "the final shape");
    bool below = tensor.rank == bounds[i].rank && tensor.bytes <= bounds[i].bytes;
    for (uint32_t d = 0; below && d < tensor.rank; ++d) {
      below = tensor.dims[d] <= bounds[i].dims[d];
    }
    if (status.ok() && !below) status = broken("run() exceeds the bound of infer()");
    if (!status.ok()) return status;
    outputs[recipe->outputs[i]] = call.take(i);
  }
  return outputs;
}

}  // namespace davit::testing
