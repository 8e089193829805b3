// What works on planes or rows without weights: pools, means, softmax, resizing.
#include <algorithm>
#include <array>
#include <cstring>

#include "codegen/products.hpp"
#include "ops/kernels/normalisation.h"
#include "ops/kernels/pooling.h"
#include "ops/kernels/reduction.h"
#include "ops/kernels/resize.h"

namespace davit::codegen {
namespace {

using Extents = std::vector<int64_t>;
using What = decltype(Product::what);

constexpr int64_t kWidthMax = 4096;  // Of lines: these lie on the stack.

int64_t product_of(const Extents& extents, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= extents[i];
  return product;
}

std::optional<What> read_pool(const Extents& x, const DvtPoolAttributes& attributes, bool is_max) {
  if (x.size() > 4) return std::nullopt;
  Pool pool{.planes = x[0] * x[1], .is_max = is_max};
  pool.counts_pads = attributes.count_include_pad != 0;
  if (dvt_window_init(&pool.window, uint32_t(x.size() - 2), &attributes.window, x.data() + 2,
                      attributes.kernel, attributes.ceil_mode != 0, nullptr, 0) != DVT_OK) {
    return std::nullopt;
  }
  if (std::max(pool.window.in[2] + pool.window.pad[2], pool.window.out[2]) > kWidthMax) {
    return std::nullopt;
  }
  return pool;
}

// Sums and means over the last dims.
std::optional<What> read_reduction(const Extents& x, const DvtReduceAttributes& attributes) {
  if (attributes.op != DVT_REDUCE_MEAN && attributes.op != DVT_REDUCE_SUM) return std::nullopt;
  size_t first = x.size();
  bool in_order = true;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t from_end = x.size() - 1 - i;
    const bool reduced =
        ((attributes.axes >> i) & 1) != 0 || ((attributes.axes_from_end >> from_end) & 1) != 0;
    if (reduced) first = std::min(first, i);
    in_order = in_order && (reduced || first == x.size());
  }
  if (!in_order || first == x.size()) return std::nullopt;
  return Reduction{.rows = product_of(x, 0, first),
                   .count = product_of(x, first, x.size()),
                   .is_mean = attributes.op == DVT_REDUCE_MEAN};
}

std::optional<What> read_softmax(const Extents& x, const DvtSoftmaxAttributes& attributes) {
  const int64_t rank = int64_t(x.size());
  const auto axis = size_t(attributes.axis < 0 ? attributes.axis + rank : attributes.axis);
  if (attributes.log != 0 || axis >= x.size()) return std::nullopt;
  if (attributes.flatten == 0 && axis + 1 != x.size()) return std::nullopt;
  return Softmax{.rows = product_of(x, 0, axis), .count = product_of(x, axis, x.size())};
}

std::optional<Resize::Axis> read_axis(const DvtResizeAttributes& attributes, uint32_t dim,
                                      int64_t in, int64_t out) {
  Resize::Axis axis{.in = in, .out = out};
  const int64_t count = dvt_resize_taps(&attributes, dim, in, out);
  constexpr int64_t kTapsMax = 8;
  if (count < 1 || count > kTapsMax || std::max(in, out) > kWidthMax) return std::nullopt;
  std::vector<DvtTap> taps(size_t(out * count));
  dvt_resize_fill(&attributes, dim, in, out, taps.data());
  axis.taps = count;
  for (const DvtTap& tap : taps) {
    if (tap.index < 0) return std::nullopt;
    axis.index.push_back(tap.index);
    axis.weight.push_back(float(tap.weight));
  }
  return axis;
}

// Of the last two dims.
std::optional<What> read_resize(const Extents& x, const Extents& y,
                                const DvtResizeAttributes& attributes) {
  if (x.size() < 3 || x.size() != y.size()) return std::nullopt;
  const size_t high = x.size() - 2;
  if (!std::equal(x.begin(), x.begin() + ptrdiff_t(high), y.begin())) return std::nullopt;
  for (size_t i = 0; i < x.size(); ++i) {
    if (attributes.denominator[i] <= 0) return std::nullopt;  // Resolved at run time.
    const bool is_same = attributes.numerator[i] == attributes.denominator[i];
    if (i < high && !is_same) return std::nullopt;
  }
  auto lines = read_axis(attributes, uint32_t(high), x[high], y[high]);
  auto columns = read_axis(attributes, uint32_t(high + 1), x[high + 1], y[high + 1]);
  if (!lines || !columns) return std::nullopt;
  return Resize{product_of(x, 0, high), std::move(*lines), std::move(*columns)};
}

// Precondition: recipe() made the record for this kernel.
template <class Record>
Record record_of(const ops::Recipe& recipe) {
  Record record;
  std::memcpy(&record, recipe.attributes.data(), sizeof record);
  return record;
}

std::optional<What> read(const ops::NodeView& node, const ops::Recipe& recipe) {
  const std::string_view kernel = recipe.kernel->name;
  const Extents x = *node.input_extents(0);
  if (kernel == "MaxPool.f32" || kernel == "AveragePool.f32") {
    return read_pool(x, record_of<DvtPoolAttributes>(recipe), kernel == "MaxPool.f32");
  }
  if (kernel == "Reduce.f32") return read_reduction(x, record_of<DvtReduceAttributes>(recipe));
  if (kernel == "Softmax.f32") return read_softmax(x, record_of<DvtSoftmaxAttributes>(recipe));
  if (kernel == "Resize.f32") {
    return read_resize(x, *node.output_extents(0), record_of<DvtResizeAttributes>(recipe));
  }
  return std::nullopt;
}

bool has_elements(const std::optional<Extents>& extents) {
  return extents && std::find(extents->begin(), extents->end(), 0) == extents->end();
}

}  // namespace

Result<std::optional<Product>> recognise_planewise(const ir::Module& module,
                                                   const ops::NodeView& node) {
  constexpr std::array<std::string_view, 8> kOperators = {
      "MaxPool", "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum",
      "Softmax", "Resize",      "Upsample"};
  const std::string_view op = module.op(node.id());
  std::optional<Product> none;
  if (std::find(kOperators.begin(), kOperators.end(), op) == kOperators.end()) return none;
  if (node.input_dtype(0) != DVT_F32 || module.outputs(node.id()).size() != 1) return none;
  if (!has_elements(node.input_extents(0)) || !has_elements(node.output_extents(0))) return none;
  const ops::OperatorDefinition* definition = ops::find_operator(module, node.id());
  if (definition == nullptr) return none;
  auto recipe = definition->recipe(node);
  if (!recipe.ok()) return std::move(recipe.status());
  // Other operands that its kernel needs are not constant.
  const auto is_needed = [](uint32_t input) { return input != ir::kNone; };
  const bool plain = !recipe->is_alias && recipe->kernel != nullptr &&
                     std::count_if(recipe->inputs.begin(), recipe->inputs.end(), is_needed) == 1;
  if (!plain) return none;
  auto what = read(node, *recipe);
  if (!what) return none;
  return std::optional(Product{.what = std::move(*what), .input = module.inputs(node.id())[0]});
}

}  // namespace davit::codegen
