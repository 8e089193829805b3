#include "tests/ops/mutation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.hpp"

namespace davit::test {
namespace {

struct Case {
  const DvtKernel* kernel = nullptr;
  std::vector<int64_t> record;
  std::vector<Operand> inputs, outputs;
};

Operand operand_of(DvtDType dtype, const Dims& dims) {
  Operand operand(dtype, dims);
  std::fill(operand.bytes.begin(), operand.bytes.end(), std::byte{0xAB});
  return operand;
}

Case case_of(OneNode& node, const ops::Recipe& recipe) {
  const ops::NodeView view = node.view();
  Case result{.kernel = recipe.kernel};
  result.record.resize((recipe.attributes.size() + 7) / 8);
  if (!recipe.attributes.empty()) {
    std::memcpy(result.record.data(), recipe.attributes.data(), recipe.attributes.size());
  }
  for (const uint32_t index : recipe.inputs) {
    if (index == ir::kNone) {
      result.inputs.push_back(Operand::absent());
      continue;
    }
    const ir::TensorData* data = view.input_constant(index);
    REQUIRE(data != nullptr);
    result.inputs.emplace_back(data->dtype, data->dims, *data->bytes);
  }
  for (const uint32_t index : recipe.outputs) {
    const auto extents = view.output_extents(index);
    REQUIRE(extents.has_value());
    result.outputs.push_back(operand_of(view.output_dtype(index), *extents));
  }
  for (const uint64_t bytes : recipe.workspace_bytes) {
    result.outputs.push_back(operand_of(DVT_U8, {int64_t(bytes)}));
  }
  return result;
}

const void* record_of(const Case& context) {
  return context.record.empty() ? nullptr : context.record.data();
}

void check_unchanged(Case context) {
  Call call(*context.kernel, context.inputs, context.outputs, record_of(context));
  std::string reason;
  REQUIRE_MESSAGE(call.check(&reason) == DVT_OK, reason);
  REQUIRE((context.kernel->infer != nullptr));
  std::vector<DvtTensor> inferred;
  REQUIRE_MESSAGE(call.infer(inferred, &reason) == DVT_OK, reason);
  for (size_t i = 0; i < inferred.size(); ++i) {
    const DvtTensor& expected = context.outputs[i].tensor;
    INFO("output ", i);
    CHECK(inferred[i].rank == expected.rank);
    CHECK(std::equal(std::begin(expected.dims), std::end(expected.dims), inferred[i].dims));
    CHECK(inferred[i].bytes == expected.bytes);
  }
  CHECK(call.run() == DVT_OK);
}

void check_without_extents(const OneNode& node, const ops::Recipe& recipe, uint32_t keep) {
  OneNode dynamic = node.without_extents(keep);
  const auto other = recipe_of(dynamic);
  REQUIRE_MESSAGE(other.ok(), other.status().to_string());
  CHECK((other->kernel == recipe.kernel));
  CHECK(other->attributes == recipe.attributes);
  CHECK(other->inputs == recipe.inputs);
  CHECK(other->outputs == recipe.outputs);
  CHECK(other->workspace_bytes.size() == recipe.workspace_bytes.size());
}

int64_t hostile_integer(Source& source) {
  static const std::vector<int64_t> extremes = {INT64_MIN,
                                                INT64_MIN + 1,
                                                INT64_MAX,
                                                INT64_MAX - 1,
                                                int64_t{1} << 40,
                                                INT32_MIN,
                                                INT32_MAX,
                                                int64_t{1} << 32,
                                                -1,
                                                -2};
  return source.between(0, 2) == 0 ? source.pick(extremes) : source.between(-3, 9);
}

double hostile_real(Source& source) {
  static const std::vector<double> extremes = {NAN,   INFINITY, -INFINITY, -1.0,    0.0,
                                               1e300, 1e-300,   0x1p63,    -0x1p63, 0x1p53};
  return source.between(0, 2) == 0 ? source.pick(extremes) : double(source.between(-8, 8)) / 4.0;
}

// Other dims; huge ones only beside a 0, as the verifier allows.
Dims hostile_dims(Source& source, Dims dims) {
  if (source.between(0, 5) == 0) dims.resize(size_t(source.between(0, DVT_MAX_RANK)), 1);
  if (dims.empty()) return dims;
  int64_t& dim = dims[size_t(source.between(0, int64_t(dims.size()) - 1))];
  dim = source.between(0, 3) == 0 ? 0 : source.between(1, 9);
  if (dim == 0 && source.flip()) {
    dims[size_t(source.between(0, int64_t(dims.size()) - 1))] =
        source.pick<int64_t>({INT64_MAX, int64_t{1} << 40, 1 << 20});
    dim = 0;
  }
  const auto elements = checked_elements(dims);
  return elements && *elements < (1U << 20) ? dims : Dims{0};
}

void fill_randomly(Source& source, Operand& operand) {
  const DvtDType dtype = operand.tensor.dtype;
  const size_t size = dvt_dtype_size(dtype);
  const bool integers = dtype == DVT_I64 || dtype == DVT_I32;
  const size_t end = std::min<size_t>(operand.bytes.size(), 1024);
  for (size_t at = 0; at + size <= end; at += size) {
    const int64_t value = integers ? hostile_integer(source) : source.between(INT32_MIN, INT32_MAX);
    std::memcpy(&operand.bytes[at], &value, std::min(size, sizeof value));
  }
}

void change_operand(Source& source, std::vector<Operand>& operands) {
  if (operands.empty()) return;
  Operand& operand = operands[size_t(source.between(0, int64_t(operands.size()) - 1))];
  const Dims dims(operand.tensor.dims, operand.tensor.dims + operand.tensor.rank);
  switch (source.between(0, 6)) {
    case 0:
      operand.present = !operand.present;
      return;
    case 1: {
      auto dtype = source.pick<DvtDType>(
          {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I32, DVT_I64, DVT_U8, DVT_BOOL, DVT_STRING});
      if (dtype == DVT_STRING && *checked_elements(dims) > 4096) dtype = DVT_U8;  // Of memory.
      operand.tensor.dtype = dtype;
      operand.tensor.bytes = *checked_elements(dims) * dvt_dtype_size(dtype);
      operand.bytes.assign(operand.tensor.bytes, std::byte{1});
      return;
    }
    case 2:
      fill_randomly(source, operand);
      return;
    default: {
      const bool present = operand.present;
      operand = operand_of(operand.tensor.dtype, hostile_dims(source, dims));
      operand.present = present;
      if (source.flip()) fill_randomly(source, operand);
      return;
    }
  }
}

void change_record(Source& source, Case& context) {
  if (context.kernel->attribute_count == 0) return;
  const DvtAttribute& attribute =
      context.kernel->attributes[source.between(0, int64_t(context.kernel->attribute_count) - 1)];
  int64_t& slot =
      context.record[attribute.offset / 8 + size_t(source.between(0, attribute.count - 1))];
  if (attribute.kind == 'i') {
    slot = hostile_integer(source);
  } else {
    const double value = hostile_real(source);
    std::memcpy(&slot, &value, sizeof slot);
  }
}

void change(Source& source, Case& context) {
  switch (source.between(0, 7)) {
    case 0:
      context.inputs.resize(size_t(source.between(0, int64_t(context.inputs.size()) + 1)),
                            operand_of(DVT_F32, {2}));
      return;
    case 1:
      context.outputs.resize(size_t(source.between(0, int64_t(context.outputs.size()) + 1)),
                             operand_of(DVT_F32, {2}));
      return;
    case 2:
    case 3:
      change_record(source, context);
      return;
    case 4:
      change_operand(source, context.outputs);
      return;
    default:
      change_operand(source, context.inputs);
      return;
  }
}

}  // namespace

void mutate(OneNode& node, Source& source, int rounds, uint32_t keep) {
  const auto recipe = recipe_of(node);
  REQUIRE_MESSAGE(recipe.ok(), recipe.status().to_string());
  const Case original = case_of(node, *recipe);
  INFO(std::string(original.kernel->name));
  check_unchanged(original);
  check_without_extents(node, *recipe, keep);
  for (int round = 0; round < rounds; ++round) {
    Case context = original;
    for (int64_t i = source.between(1, 3); i > 0; --i) change(source, context);
    Call call(*context.kernel, context.inputs, context.outputs, record_of(context));
    std::string reason;
    // The image verifier has counted the outputs before anyone infers their shapes.
    if (context.outputs.size() >= context.kernel->output_min &&
        context.outputs.size() <= context.kernel->output_max) {
      std::vector<DvtTensor> inferred;
      const DvtCode shaped = call.infer(inferred, &reason);
      CHECK((shaped == DVT_OK) == reason.empty());
    }
    const DvtCode code = call.check(&reason);
    CHECK((code == DVT_OK) == reason.empty());
    if (code == DVT_OK) static_cast<void>(call.run());
  }
}

}  // namespace davit::test
