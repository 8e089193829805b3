// NodeView: typed read access to one node of a module.
#include <utility>

#include "ops/definition.hpp"

namespace davit::ops {
namespace {

uint32_t present_count(std::span<const ir::ValueId> values) {
  size_t count = values.size();
  while (count > 0 && values[count - 1] == ir::kNoValue) --count;
  return static_cast<uint32_t>(count);
}

ir::ValueId at(std::span<const ir::ValueId> values, uint32_t index) {
  return index < values.size() ? values[index] : ir::kNoValue;
}

// The attribute if it has the type asked for. The importer keeps the type the file states; one of
// another type counts as absent and infer() then works with the default.
template <class T>
const T* typed_attribute(const ir::Module& module, ir::NodeId node, std::string_view name) {
  const ir::AttributeValue* value = module.attribute(node, name);
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

}  // namespace

uint32_t NodeView::input_count() const {
  return present_count(module_.inputs(node_));
}
uint32_t NodeView::output_count() const {
  return present_count(module_.outputs(node_));
}

bool NodeView::has_input(uint32_t index) const {
  return at(module_.inputs(node_), index) != ir::kNoValue;
}
bool NodeView::has_output(uint32_t index) const {
  return at(module_.outputs(node_), index) != ir::kNoValue;
}

DvtDType NodeView::input_dtype(uint32_t index) const {
  const ir::ValueId value = at(module_.inputs(node_), index);
  return value == ir::kNoValue ? DvtDType{DVT_DTYPE_NONE} : module_.dtype(value);
}

const ir::Shape* NodeView::input_shape(uint32_t index) const {
  const ir::ValueId value = at(module_.inputs(node_), index);
  return value == ir::kNoValue ? nullptr : module_.shape(value);
}

std::optional<std::vector<int64_t>> NodeView::input_extents(uint32_t index) const {
  const ir::Shape* shape = input_shape(index);
  if (shape == nullptr) return std::nullopt;
  return ir::static_extents(*shape);
}

DvtDType NodeView::output_dtype(uint32_t index) const {
  const ir::ValueId value = at(module_.outputs(node_), index);
  return value == ir::kNoValue ? DvtDType{DVT_DTYPE_NONE} : module_.dtype(value);
}

std::optional<std::vector<int64_t>> NodeView::output_extents(uint32_t index) const {
  const ir::ValueId value = at(module_.outputs(node_), index);
  const ir::Shape* shape = value == ir::kNoValue ? nullptr : module_.shape(value);
  if (shape == nullptr) return std::nullopt;
  return ir::static_extents(*shape);
}

const ir::TensorData* NodeView::input_constant(uint32_t index) const {
  const ir::ValueId value = at(module_.inputs(node_), index);
  return value == ir::kNoValue ? nullptr : module_.constant(value);
}

std::optional<std::vector<int64_t>> NodeView::input_i64(uint32_t index) const {
  const ir::TensorData* data = input_constant(index);
  return data == nullptr ? std::nullopt : data->to_i64();
}

bool NodeView::has_attribute(std::string_view name) const {
  return module_.attribute(node_, name) != nullptr;
}

int64_t NodeView::attribute_int(std::string_view name, int64_t fallback) const {
  const auto* value = typed_attribute<int64_t>(module_, node_, name);
  return value == nullptr ? fallback : *value;
}

float NodeView::attribute_float(std::string_view name, float fallback) const {
  const auto* value = typed_attribute<float>(module_, node_, name);
  return value == nullptr ? fallback : *value;
}

std::string NodeView::attribute_string(std::string_view name, std::string_view fallback) const {
  const auto* value = typed_attribute<std::string>(module_, node_, name);
  return value == nullptr ? std::string(fallback) : *value;
}

std::vector<int64_t> NodeView::attribute_ints(std::string_view name,
                                              std::vector<int64_t> fallback) const {
  const auto* value = typed_attribute<std::vector<int64_t>>(module_, node_, name);
  if (value != nullptr) return *value;
  return fallback;
}

std::vector<float> NodeView::attribute_floats(std::string_view name) const {
  const auto* value = typed_attribute<std::vector<float>>(module_, node_, name);
  return value == nullptr ? std::vector<float>{} : *value;
}

const ir::TensorData* NodeView::attribute_tensor(std::string_view name) const {
  return typed_attribute<ir::TensorData>(module_, node_, name);
}

Status NodeView::error(DvtCode code, std::string message, DvtStage stage) const {
  return Status(module_.error_at(node_, code, stage, std::move(message)));
}

}  // namespace davit::ops
