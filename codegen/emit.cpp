#include "codegen/emit.hpp"

#include <fmt/format.h>

#include <cmath>

namespace davit::codegen {
namespace {

std::string operand_text(const Step& step) {
  if (step.operand <= DVT_STEP_BEFORE) {
    return fmt::format("before{}", DVT_STEP_BEFORE - step.operand);
  }
  switch (step.spread) {
    case Spread::kAll:
      return fmt::format("o{}[at + i]", step.operand);
    case Spread::kPerColumn:
      return fmt::format("o{}[column + i]", step.operand);
    case Spread::kPerRow:
    case Spread::kOne:
      break;
  }
  return fmt::format("one{}", step.operand);
}

std::string step_text(const Step& step) {
  const auto binary = [&](const char* form) {
    return fmt::format(fmt::runtime(form), operand_text(step));
  };
  switch (step.kind) {
    case DVT_STEP_ADD:
      return binary("r + {}");
    case DVT_STEP_SUB:
      return binary("r - {}");
    case DVT_STEP_SUB_FROM:
      return binary("{} - r");
    case DVT_STEP_MUL:
      return binary("r * {}");
    case DVT_STEP_DIV:
      return binary("r / {}");
    case DVT_STEP_MIN:
      return binary("step_min(r, {})");
    case DVT_STEP_MAX:
      return binary("step_max(r, {})");
    case DVT_STEP_RELU:
      return "r < 0.0f ? 0.0f : r";
    case DVT_STEP_CLIP:
      return fmt::format("step_clip(r, {}, {})", float_literal(step.alpha),
                         float_literal(step.beta));
    case DVT_STEP_HARD_SIGMOID:
      return fmt::format("step_hard_sigmoid(r, {}, {})", float_literal(step.alpha),
                         float_literal(step.beta));
    case DVT_STEP_LEAKY_RELU:
      return fmt::format("r < 0.0f ? r * {} : r", float_literal(step.alpha));
    case DVT_STEP_HARD_SWISH:
      return "step_hard_swish(r)";
    case DVT_STEP_SIGMOID:
      return "step_sigmoid(r)";
    case DVT_STEP_TANH:
      return "step_tanh(r)";
    case DVT_STEP_ERF:
      return "step_erf(r)";
    case DVT_STEP_NEG:
      return "-r";
    case DVT_STEP_ABS:
      return "__builtin_fabsf(r)";
    case DVT_STEP_SQRT:
      return "__builtin_sqrtf(r)";
    default:  // Recognised: DVT_STEP_GELU.
      return step.alpha != 0 ? "step_gelu_tanh(r)" : "step_gelu(r)";
  }
}

}  // namespace

std::string float_literal(double value) {
  const auto single = static_cast<float>(value);
  if (std::isnan(single)) return "__builtin_nanf(\"\")";
  if (std::isinf(single)) return single < 0 ? "-__builtin_inff()" : "__builtin_inff()";
  return fmt::format("{:a}f", single);
}

std::string emit_steps(std::span<const Step> steps, const std::string& symbol) {
  std::string text = fmt::format(
      "static inline __attribute__((always_inline)) void {}_finish(\n"
      "    const DvtContext* ctx, const float* sums, float* y, int64_t count, int64_t at,\n"
      "    int64_t row, int64_t column) {{\n"
      "  (void)ctx; (void)row; (void)column;\n  y += at;\n",
      symbol);
  for (size_t k = 0; k < steps.size(); ++k) {
    const Step& step = steps[k];
    if (step.kind >= DVT_STEP_UNARY || step.operand <= DVT_STEP_BEFORE) continue;
    text += fmt::format("  const float* o{0} = input_at(ctx, {0});\n", step.operand);
    if (step.spread == Spread::kPerRow || step.spread == Spread::kOne) {
      text += fmt::format("  const float one{0} = o{0}[{1}];\n", step.operand,
                          step.spread == Spread::kOne ? "0" : "row");
    }
  }
  text += "#pragma GCC ivdep\n  for (int64_t i = 0; i < count; ++i) {\n    float r = sums[i];\n";
  for (size_t k = 0; k < steps.size(); ++k) {
    bool is_kept = false;
    for (const Step& later : steps) {
      is_kept =
          is_kept || (later.kind < DVT_STEP_UNARY && later.operand == DVT_STEP_BEFORE - int64_t(k));
    }
    if (is_kept) text += fmt::format("    const float before{} = r;\n", k);
    text += fmt::format("    r = {};\n", step_text(steps[k]));
  }
  return text + "    y[i] = r;\n  }\n}\n";
}

std::string emit_accumulators(const Tile& tile) {
  std::string text;
  for (int64_t r = 0; r < tile.rows; ++r) {
    text += "  Vector ";
    for (int64_t v = 0; v < tile.vectors; ++v) {
      text += fmt::format("{}a{}_{} = {{0}}", v == 0 ? "" : ", ", r, v);
    }
    text += ";\n";
  }
  return text;
}

std::string emit_store_tile(const Tile& tile) {
  std::string text;
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t v = 0; v < tile.vectors; ++v) {
      text += fmt::format("  store(tile + {} * LANES, a{}_{});\n", r * tile.vectors + v, r, v);
    }
  }
  return text;
}

std::string emit_multiply_adds(std::span<const std::string> rows,
                               std::span<const std::string> columns) {
  std::string text;
  for (size_t v = 0; v < columns.size(); ++v) {
    text += fmt::format("    const Vector b{} = load({});\n", v, columns[v]);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    text += fmt::format("    {{ const float one = {};", rows[r]);
    for (size_t v = 0; v < columns.size(); ++v)
      text += fmt::format(" a{0}_{1} += one * b{1};", r, v);
    text += " }\n";
  }
  return text;
}

// Blocks of 1, 2, 4, ... change places.
std::string emit_transpose(const Isa& isa, const std::string& symbol) {
  std::string text = fmt::format(
      "static inline void {}_transpose(const float* from, int64_t from_step, float* to,\n"
      "                               int64_t to_step) {{\n",
      symbol);
  for (int64_t i = 0; i < isa.lanes; ++i) {
    text += fmt::format("  Vector r0_{0} = load(from + {0} * from_step);\n", i);
  }
  int64_t stage = 0;
  for (int64_t size = 1; size < isa.lanes; size *= 2, ++stage) {
    std::vector<int64_t> low;
    std::vector<int64_t> high;
    for (int64_t j = 0; j < isa.lanes; ++j) {
      low.push_back((j & size) != 0 ? isa.lanes + j - size : j);
      high.push_back((j & size) != 0 ? isa.lanes + j : j + size);
    }
    for (int64_t i = 0; i < isa.lanes; ++i) {
      const int64_t first = i & ~size;
      text += fmt::format("  Vector r{}_{} = __builtin_shufflevector(r{}_{}, r{}_{}, {});\n",
                          stage + 1, i, stage, first, stage, first + size,
                          fmt::join((i & size) != 0 ? high : low, ", "));
    }
  }
  for (int64_t i = 0; i < isa.lanes; ++i) {
    text += fmt::format("  store(to + {0} * to_step, r{1}_{0});\n", i, stage);
  }
  return text + "}\n";
}

Layout layout_of(const Product& product, std::span<const Isa> isas) {
  if (const auto* conv = std::get_if<Convolution>(&product.what)) {
    if (conv->is_depthwise()) return layout_of_depthwise(*conv, isas);
    if (prefers_winograd(*conv)) {
      Layout layout = layout_of_winograd(*conv, isas);
      layout.weights_operand = 2 + int64_t(product.operands.size());
      return layout;
    }
    return prefers_channels(*conv, isas) ? layout_of_channels(*conv, isas)
                                         : layout_of_positions(*conv, isas);
  }
  if (const auto* attention = std::get_if<Attention>(&product.what)) {
    return layout_of_attention(*attention, isas);
  }
  const auto* matrix = std::get_if<Matrix>(&product.what);
  if (matrix == nullptr) return {};
  const int64_t panels = (matrix->columns + kPanelColumns - 1) / kPanelColumns;
  return {.weight_dims = {panels, matrix->inner, kPanelColumns}};
}

std::vector<float> pack_weights(const Product& product, const Layout& layout,
                                std::span<const float> weights) {
  const auto* conv = std::get_if<Convolution>(&product.what);
  if (conv == nullptr) return pack_matrix(product, std::get<Matrix>(product.what), weights);
  switch (layout.way) {
    case Way::kWinograd:
      return pack_winograd(*conv, weights);
    case Way::kChannels:
      return pack_channels(*conv, weights);
    case Way::kPositions:
      return pack_positions(*conv, layout, weights);
    case Way::kPlain:
      break;
  }
  return {weights.begin(), weights.end()};
}

std::string emit_product(const Product& product, const Layout& layout, const Isa& isa,
                         const std::string& symbol) {
  if (const auto* matrix = std::get_if<Matrix>(&product.what)) {
    return emit_matrix(*matrix, isa, symbol);
  }
  if (const auto* attention = std::get_if<Attention>(&product.what)) {
    return emit_attention(*attention, isa, symbol);
  }
  const auto* conv = std::get_if<Convolution>(&product.what);
  if (conv == nullptr) return emit_planewise(product, isa, symbol);
  switch (layout.way) {
    case Way::kWinograd:
      return emit_winograd(*conv, layout, isa, symbol);
    case Way::kChannels:
      return emit_channels(*conv, isa, symbol);
    case Way::kPositions:
      return emit_positions(*conv, layout, isa, symbol);
    case Way::kPlain:
      break;
  }
  return emit_depthwise(*conv, isa, symbol);
}

}  // namespace davit::codegen
