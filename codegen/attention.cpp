// Attention of f32 with static shapes: whatever of its batch axes broadcasts is written down.
#include "ops/kernels/attention.h"

#include <cstring>

#include "codegen/products.hpp"

namespace davit::codegen {
namespace {

using Extents = std::vector<int64_t>;

constexpr int64_t kBatchesMax = 4096;  // Of tables in the code.

// The extent of an axis that an operand of a lower rank may lack.
int64_t extent_at(const Extents& extents, size_t axis, size_t rank) {
  const size_t absent = rank - extents.size();
  return axis < absent ? 1 : extents[axis - absent];
}

// For each of the batch's matrices, which one of the operand's it meets.
std::vector<int64_t> matrices_of(const Extents& operand, const Extents& batch) {
  const size_t rank = batch.size() + 2;
  int64_t batches = 1;
  for (const int64_t extent : batch) batches *= extent;
  std::vector<int64_t> at(size_t(batches), 0);
  for (int64_t b = 0; b < batches; ++b) {
    int64_t rest = b;
    int64_t stride = 1;
    for (size_t axis = batch.size(); axis-- > 0;) {
      const int64_t own = extent_at(operand, axis, rank);
      if (own != 1) at[size_t(b)] += rest % batch[axis] * stride;
      rest /= batch[axis];
      stride *= own;
    }
  }
  return at;
}

}  // namespace

Result<Recognised> recognise_attention(const ir::Module& module, const ops::NodeView& node) {
  const auto refuse = [](const char* reason) { return Recognised{.reason = reason}; };
  if (node.input_dtype(0) != DVT_F32) return refuse("its elements are not f32");
  const auto y = node.output_extents(0);
  std::vector<Extents> operands;
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    const auto extents = node.input_extents(i);
    if (!extents || !y) return refuse("its shapes are not static");
    operands.push_back(*extents);
  }
  const Extents& q = operands[0];
  const Extents& k = operands[1];
  const Extents& v = operands[2];
  const size_t rank = q.size();
  const Extents batch(y->begin(), y->end() - 2);
  int64_t batches = 1;
  for (const int64_t extent : batch) batches *= extent;
  Attention attention{
      .rows = q[rank - 2], .columns = k[rank - 1], .inner = q[rank - 1], .width = v[rank - 1]};
  if (batches * attention.rows * attention.width == 0) return refuse("it is empty");
  if (attention.inner == 0 || attention.columns == 0) return refuse("it sums nothing");
  if (batches > kBatchesMax) return refuse("it has more than 4096 matrices");
  if ((*y)[rank - 2] != attention.rows || v[rank - 2] != attention.columns) {
    return refuse("its mask has more rows or columns than the scores");
  }
  attention.q_at = matrices_of(q, batch);
  attention.k_at = matrices_of(k, batch);
  attention.v_at = matrices_of(v, batch);
  if (operands.size() > 3) {
    attention.mask_at = matrices_of(operands[3], batch);
    attention.mask_rows = extent_at(operands[3], rank - 2, rank);
    attention.mask_columns = extent_at(operands[3], rank - 1, rank);
  }
  const ops::OperatorDefinition* definition = ops::find_operator(module, node.id());
  auto recipe = definition->recipe(node);
  if (!recipe.ok()) return std::move(recipe.status());
  DvtAttentionAttributes attributes;
  std::memcpy(&attributes, recipe->attributes.data(), sizeof attributes);
  attention.scaling = attributes.scaling;
  attention.scale = attributes.scale;
  const auto inputs = module.inputs(node.id());
  Product product{.what = std::move(attention), .operands = {}, .input = inputs[0]};
  product.operands.assign(inputs.begin() + 1, inputs.begin() + ptrdiff_t(operands.size()));
  return Recognised{.product = std::move(product)};
}

}  // namespace davit::codegen
