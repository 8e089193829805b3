#include "lowering/prepare.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/checked.hpp"
#include "base/dtype.hpp"

namespace davit::lowering {
namespace {

constexpr uint64_t kConstantAlignment = 64;

ir::ValueId operand_of(std::span<const ir::ValueId> values, uint32_t index) {
  return index < values.size() ? values[index] : ir::kNoValue;
}

Status check_recipe(const ir::Module& module, const Step& step) {
  const ops::Recipe& recipe = step.recipe;
  const DvtKernel& kernel = *recipe.kernel;
  if (recipe.inputs.size() > kernel.input_max) {
    ErrorDetail detail = module.error_at(step.node, DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                                         "the kernel does not take that many inputs");
    detail.expected = "at most " + std::to_string(kernel.input_max);
    detail.got = std::to_string(recipe.inputs.size());
    return Status(std::move(detail));
  }
  for (size_t i = 0; i < recipe.outputs.size(); ++i) {
    if (step.output(module, i) == ir::kNoValue) {
      return Status(module.error_at(
          step.node, DVT_UNSUPPORTED, DVT_STAGE_LOWER,
          "output " + std::to_string(i) + " is not used, but the kernel has to write it"));
    }
  }
  return {};
}

// Few kernels take strings.
Status check_strings(const ir::Module& module, const Step& step) {
  if (step.recipe.is_alias || (step.recipe.kernel->flags & DVT_KERNEL_STRINGS) != 0) return {};
  const auto check = [&](ir::ValueId value, const char* what) {
    if (value == ir::kNoValue || module.dtype(value) != DVT_STRING) return Status();
    ErrorDetail detail = module.error_at(step.node, DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                                         std::string("the node ") + what + " a tensor of strings");
    detail.tensor = module.value_name(value);
    detail.expected = "numbers";
    return Status(std::move(detail));
  };
  for (const ir::ValueId value : module.inputs(step.node)) {
    if (Status status = check(value, "reads"); !status.ok()) return status;
  }
  for (const ir::ValueId value : module.outputs(step.node)) {
    if (Status status = check(value, "makes"); !status.ok()) return status;
  }
  return {};
}

}  // namespace

ir::ValueId Step::input(const ir::Module& module, size_t operand) const {
  return operand_of(module.inputs(node), recipe.inputs[operand]);
}

ir::ValueId Step::output(const ir::Module& module, size_t operand) const {
  return operand_of(module.outputs(node), recipe.outputs[operand]);
}

Result<Step> prepare_step(const ir::Module& module, ir::NodeId node) {
  const ops::OperatorDefinition* definition = ops::find_operator(module, node);
  if (definition == nullptr) {
    return Status(
        module.error_at(node, DVT_UNSUPPORTED, DVT_STAGE_LOWER, "there is no such operator"));
  }
  const ops::NodeView view(module, node);
  auto recipe = definition->recipe(view);
  if (Status mistyped = view.attribute_status(); !mistyped.ok()) return mistyped;
  if (!recipe.ok()) return std::move(recipe.status());
  Step step{node, definition, std::move(*recipe)};
  if (step.recipe.is_alias) return step;
  if (Status status = check_recipe(module, step); !status.ok()) return status;
  if (Status status = check_strings(module, step); !status.ok()) return status;
  return step;
}

Result<Prepared> prepare(const ir::Module& module) {
  Prepared prepared;
  for (uint32_t i = 0; i < module.value_count(); ++i) prepared.root.emplace_back(ir::ValueId(i));
  for (const ir::NodeId node : module.graph_nodes(ir::kMainGraph)) {
    auto step = prepare_step(module, node);
    if (!step.ok()) return std::move(step.status());
    if (!step->recipe.is_alias) {
      prepared.steps.push_back(std::move(*step));
      continue;
    }
    const ir::ValueId source = module.inputs(node)[step->recipe.alias_input];
    for (const ir::ValueId output : module.outputs(node)) {
      if (output != ir::kNoValue) prepared.root[index_of(output)] = prepared.root_of(source);
    }
    ++prepared.aliased_nodes;
  }
  return prepared;
}

Result<DvtTensor> dynamic_tensor_of(const ir::Module& module, ir::ValueId value) {
  const auto refuse = [&](std::string message) {
    return Status(ErrorDetail{.code = DVT_UNSUPPORTED,
                              .stage = DVT_STAGE_LOWER,
                              .message = std::move(message),
                              .tensor = std::string(module.value_name(value))});
  };
  DvtTensor tensor{};
  tensor.dtype = module.dtype(value);
  tensor.flags = DVT_TENSOR_DYNAMIC;
  if (dvt_dtype_size(tensor.dtype) == 0) {
    return refuse("tensors of type " + std::string(dtype_name(tensor.dtype)) +
                  " cannot be computed with");
  }
  const ir::Shape* shape = module.shape(value);
  tensor.rank = DVT_RANK_UNKNOWN;
  if (shape == nullptr) return tensor;
  if (shape->size() > DVT_MAX_RANK) {
    return refuse("rank " + std::to_string(shape->size()) + " is above " +
                  std::to_string(DVT_MAX_RANK));
  }
  tensor.rank = uint8_t(shape->size());
  for (size_t d = 0; d < shape->size(); ++d) {
    tensor.dims[d] = (*shape)[d].is_known() ? (*shape)[d].extent() : -1;
  }
  return tensor;
}

Result<DvtTensor> tensor_of(const ir::Module& module, ir::ValueId value) {
  const auto refuse = [&](DvtCode code, std::string message) {
    return Status(ErrorDetail{.code = code,
                              .stage = DVT_STAGE_LOWER,
                              .message = std::move(message),
                              .tensor = std::string(module.value_name(value))});
  };
  const ir::Shape* shape = module.shape(value);
  const auto extents = shape ? ir::static_extents(*shape) : std::nullopt;
  if (!extents) return refuse(DVT_INTERNAL, "lowering met a shape that is not static");
  DvtTensor tensor{};
  tensor.dtype = module.dtype(value);
  const uint32_t element_bytes = dvt_dtype_size(tensor.dtype);
  if (element_bytes == 0) {
    return refuse(DVT_UNSUPPORTED, "tensors of type " + std::string(dtype_name(tensor.dtype)) +
                                       " cannot be computed with");
  }
  if (extents->size() > DVT_MAX_RANK) {
    return refuse(DVT_UNSUPPORTED, "rank " + std::to_string(extents->size()) + " is above " +
                                       std::to_string(DVT_MAX_RANK));
  }
  const auto count = checked_elements(*extents);
  const auto bytes = count ? checked_mul(*count, element_bytes) : std::nullopt;
  if (!bytes || *bytes > INT64_MAX) return refuse(DVT_UNSUPPORTED, "more than 2^63 bytes");
  tensor.rank = uint8_t(extents->size());
  tensor.bytes = *bytes;
  std::copy(extents->begin(), extents->end(), tensor.dims);
  return tensor;
}

ModelBuilder::ModelBuilder(const ir::Module& module, DvtTarget target, std::string target_name)
    : module_(module) {
  model_.target = target;
  model_.target_name = std::move(target_name);
  uint64_t bytes = 0;  // At most: constants of one content share a place.
  for (uint32_t i = 0; i < module.value_count(); ++i) {
    const ir::TensorData* data = module.constant(ir::ValueId(i));
    if (data != nullptr && data->bytes) bytes += data->bytes->size() + kConstantAlignment;
  }
  model_.constants.reserve(bytes);
}

Result<uint32_t> ModelBuilder::add(image::ValueKind kind, ir::ValueId like,
                                   const Result<DvtTensor>& tensor, uint64_t offset) {
  if (!tensor.ok()) return Status(tensor.status().detail());
  model_.values.push_back({.kind = kind,
                           .has_tensor = true,
                           .tensor = *tensor,
                           .offset = offset,
                           .name = std::string(module_.value_name(like))});
  return uint32_t(model_.values.size() - 1);
}

Result<uint32_t> ModelBuilder::add_value(image::ValueKind kind, ir::ValueId like, uint64_t offset) {
  return add(kind, like, tensor_of(module_, like), offset);
}

Result<uint32_t> ModelBuilder::add_dynamic_value(image::ValueKind kind, ir::ValueId like,
                                                 uint64_t offset) {
  return add(kind, like, dynamic_tensor_of(module_, like), offset);
}

uint32_t ModelBuilder::add_scratch(image::ValueKind kind, uint64_t bytes, uint64_t offset) {
  DvtTensor tensor{};
  tensor.dtype = DVT_U8;
  tensor.rank = 1;
  tensor.bytes = bytes;
  tensor.dims[0] = int64_t(bytes);
  model_.values.push_back(
      {.kind = kind, .has_tensor = true, .tensor = tensor, .offset = offset, .name = ""});
  return uint32_t(model_.values.size() - 1);
}

Result<uint64_t> ModelBuilder::place_constant(ir::ValueId value) {
  const auto tensor = tensor_of(module_, value);
  if (!tensor.ok()) return Status(tensor.status().detail());
  const ir::TensorData& data = *module_.constant(value);
  const uint64_t size = data.bytes ? data.bytes->size() : 0;
  if (size != tensor->bytes) {
    return Status(ErrorDetail{.code = DVT_INTERNAL,
                              .stage = DVT_STAGE_LOWER,
                              .message = "a constant's data and shape disagree",
                              .tensor = std::string(module_.value_name(value)),
                              .expected = std::to_string(tensor->bytes) + " bytes",
                              .got = std::to_string(size) + " bytes"});
  }
  if (size == 0) return 0;
  auto& segment = model_.constants;
  const XXH128_hash_t hash = XXH3_128bits(data.bytes->data(), size);
  const Digest digest{hash.high64, hash.low64};
  const auto [first, last] = constants_.equal_range(digest);
  for (auto it = first; it != last; ++it) {
    const auto& [offset, length] = it->second;
    if (length == size && std::memcmp(&segment[offset], data.bytes->data(), size) == 0) {
      return offset;
    }
  }
  const uint64_t offset = (segment.size() + kConstantAlignment - 1) & ~(kConstantAlignment - 1);
  segment.resize(offset);
  segment.insert(segment.end(), data.bytes->begin(), data.bytes->end());
  constants_.emplace(digest, std::pair(offset, size));
  return offset;
}

image::Node ModelBuilder::node_of(const Step& step) {
  const DvtKernel& kernel = *step.recipe.kernel;
  image::Node node;
  node.kernel = add_kernel(kernel);
  node.attributes = step.recipe.attributes;
  node.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
  node.origin = module_.node_path(step.node);
  node.op = module_.op_label(step.node);
  return node;
}

void ModelBuilder::set_ports(const std::vector<uint32_t>& inputs,
                             const std::vector<uint32_t>& outputs) {
  model_.inputs = ports_of(inputs, module_.graph_inputs(ir::kMainGraph), "input");
  model_.outputs = ports_of(outputs, module_.graph_outputs(ir::kMainGraph), "output");
}

std::vector<image::Port> ModelBuilder::ports_of(const std::vector<uint32_t>& values,
                                                std::span<const ir::ValueId> sources,
                                                std::string_view kind) const {
  std::vector<image::Port> ports;
  std::set<std::string> names;
  for (size_t i = 0; i < values.size(); ++i) {
    image::Port port;
    // Ports are found by name: a value that leaves twice has two, and one without a name gets one.
    std::string name(module_.value_name(sources[i]));
    if (name.empty()) name = std::string(kind) + "_" + std::to_string(i);
    port.name = name;
    for (size_t copy = 1; !names.insert(port.name).second; ++copy) {
      port.name = name + "#" + std::to_string(copy);
    }
    port.value = values[i];
    const DvtTensor& tensor = model_.values[values[i]].tensor;
    for (uint32_t d = 0; d < tensor.rank && tensor.rank != DVT_RANK_UNKNOWN; ++d) {
      if (tensor.dims[d] >= 0) {
        port.dims.push_back({tensor.dims[d], tensor.dims[d], ""});
        continue;
      }
      const ir::Dim dim = (*module_.shape(sources[i]))[d];
      const std::string_view symbol = dim.is_symbol() ? module_.symbol_name(dim.symbol_id()) : "";
      port.dims.push_back({0, INT64_MAX, std::string(symbol)});
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace davit::lowering
