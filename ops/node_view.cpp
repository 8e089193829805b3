// NodeView: typed read access to one node of a module.
#include <array>
#include <utility>
#include <variant>

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

// By the order of ir::AttributeValue's alternatives.
constexpr std::array kTypeNames = {"INT",     "FLOAT",  "STRING", "INTS",  "FLOATS",
                                   "STRINGS", "TENSOR", "GRAPH",  "GRAPHS"};
static_assert(kTypeNames.size() == std::variant_size_v<ir::AttributeValue>);

}  // namespace

// The importer keeps the type that the file states.
template <class T>
const T* NodeView::typed_attribute(std::string_view name) const {
  const ir::AttributeValue* value = module_.attribute(node_, name);
  if (value == nullptr) return nullptr;
  const T* typed = std::get_if<T>(value);
  if (typed == nullptr && mistyped_.empty()) {
    mistyped_ = name;
    mistyped_expected_ = kTypeNames[ir::AttributeValue(T{}).index()];
    mistyped_got_ = kTypeNames[value->index()];
  }
  return typed;
}

Status NodeView::attribute_status() const {
  if (mistyped_.empty()) return {};
  ErrorDetail detail = module_.error_at(node_, DVT_INVALID_ARGUMENT, DVT_STAGE_INFER,
                                        "attribute '" + mistyped_ + "' has the wrong type");
  detail.expected = mistyped_expected_;
  detail.got = mistyped_got_;
  return Status(std::move(detail));
}

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
  const auto* value = typed_attribute<int64_t>(name);
  return value == nullptr ? fallback : *value;
}

float NodeView::attribute_float(std::string_view name, float fallback) const {
  const auto* value = typed_attribute<float>(name);
  return value == nullptr ? fallback : *value;
}

std::string NodeView::attribute_string(std::string_view name, std::string_view fallback) const {
  const auto* value = typed_attribute<std::string>(name);
  return value == nullptr ? std::string(fallback) : *value;
}

std::vector<int64_t> NodeView::attribute_ints(std::string_view name,
                                              std::vector<int64_t> fallback) const {
  const auto* value = typed_attribute<std::vector<int64_t>>(name);
  if (value != nullptr) return *value;
  return fallback;
}

std::vector<float> NodeView::attribute_floats(std::string_view name) const {
  const auto* value = typed_attribute<std::vector<float>>(name);
  return value == nullptr ? std::vector<float>{} : *value;
}

std::vector<std::string> NodeView::attribute_strings(std::string_view name) const {
  const auto* value = typed_attribute<std::vector<std::string>>(name);
  return value == nullptr ? std::vector<std::string>{} : *value;
}

const ir::TensorData* NodeView::attribute_tensor(std::string_view name) const {
  return typed_attribute<ir::TensorData>(name);
}

Status NodeView::error(DvtCode code, std::string message, DvtStage stage) const {
  return Status(module_.error_at(node_, code, stage, std::move(message)));
}

}  // namespace davit::ops
