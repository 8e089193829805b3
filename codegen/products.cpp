#include "codegen/products.hpp"

#include <array>
#include <cstring>

#include "ops/definition.hpp"
#include "ops/defs/fused.hpp"
#include "ops/kernels/convolution.h"
#include "ops/kernels/matrix.h"

namespace davit::codegen {
namespace {

using Extents = std::vector<int64_t>;

// Steps that are generated, by DvtStepKind.
constexpr std::array<bool, DVT_STEP_KINDS> kGenerated = [] {
  std::array<bool, DVT_STEP_KINDS> generated{};
  for (auto& each : generated) each = true;
  for (const int kind : {DVT_STEP_ELU, DVT_STEP_EXP, DVT_STEP_SOFTPLUS}) generated[kind] = false;
  return generated;
}();

// The record at the start of a kernel's attributes. Precondition: recipe() made them.
template <class Record>
Record record_of(const std::vector<std::byte>& attributes) {
  Record record;
  std::memcpy(&record, attributes.data(), sizeof record);
  return record;
}

class Recogniser {
 public:
  Recogniser(const ir::Module& module, ir::NodeId node) : module_(module), view_(module, node) {}

  Result<Recognised> run() {
    const std::string_view op = module_.op(view_.id());
    const std::string_view domain = module_.domain(view_.id());
    const bool fused = domain == ops::kFusedDomain && op.starts_with("Fused");
    const std::string_view name = fused ? op.substr(std::strlen("Fused")) : op;
    if (domain == ops::kFusedDomain && op == "Attention") {
      return recognise_attention(module_, view_);
    }
    if (!fused && !domain.empty()) return Recognised{};
    if (!fused) {
      auto planewise = recognise_planewise(module_, view_);
      if (!planewise.ok()) return std::move(planewise.status());
      if (*planewise) return Recognised{.product = std::move(*planewise)};
    }
    const bool is_conv = name == "Conv";
    if (!is_conv && name != "MatMul" && name != "Gemm") return Recognised{};
    if (const char* obstacle = common_obstacle()) return refuse(obstacle);
    const ops::OperatorDefinition* definition = ops::find_operator(module_, view_.id());
    if (definition == nullptr) return Recognised{};
    auto recipe = definition->recipe(view_);
    if (!recipe.ok()) return std::move(recipe.status());
    const std::vector<std::byte>& attributes = recipe->attributes;
    product_.input = module_.inputs(view_.id())[0];
    product_.weights = module_.inputs(view_.id())[1];
    if (is_conv) {
      if (!read_convolution(record_of<DvtConvAttributes>(attributes))) return refuse(reason_);
    } else if (!read_matrix(name == "Gemm" ? record_of<DvtGemmAttributes>(attributes)
                                           : DvtGemmAttributes{1, 1, 0, 0})) {
      return refuse(reason_);
    }
    if (fused) {
      const size_t offset = attributes.size() - sizeof(DvtSteps);
      DvtSteps steps;
      std::memcpy(&steps, attributes.data() + offset, sizeof steps);
      if (!read_steps(steps)) return refuse(reason_);
    }
    if (auto* conv = std::get_if<Convolution>(&product_.what)) {
      conv->steps = std::move(steps_);
    } else {
      std::get<Matrix>(product_.what).steps = std::move(steps_);
    }
    return Recognised{.product = std::move(product_)};
  }

 private:
  static Recognised refuse(std::string reason) { return {.reason = std::move(reason)}; }
  bool no(const char* reason) {
    reason_ = reason;
    return false;
  }

  [[nodiscard]] const char* common_obstacle() const {
    if (view_.input_dtype(0) != DVT_F32) return "its elements are not f32";
    if (view_.input_constant(1) == nullptr) return "its weights are not constant";
    for (uint32_t i = 0; i < view_.input_count(); ++i) {
      if (view_.has_input(i) && !view_.input_extents(i)) return "its shapes are not static";
    }
    const auto out = view_.output_extents(0);
    if (!out) return "its shapes are not static";
    for (const int64_t extent : *out) {
      if (extent == 0) return "it is empty";
    }
    return nullptr;
  }

  // The kernel's number of operand `input` of the node: 0 is the input, 1 the weights.
  int64_t take(uint32_t input) {
    product_.operands.push_back(module_.inputs(view_.id())[input]);
    return int64_t(product_.operands.size()) + 1;
  }

  bool read_convolution(const DvtConvAttributes& attributes) {
    const Extents x = *view_.input_extents(0);
    const Extents w = *view_.input_extents(1);
    const auto spatial = uint32_t(x.size() - 2);
    Convolution conv;
    conv.batch = x[0];
    conv.groups = attributes.group;
    conv.in_channels = w[1];
    conv.out_channels = w[0] / attributes.group;
    if (conv.in_channels == 0) return no("it sums nothing");
    if (dvt_window_init(&conv.window, spatial, &attributes.window, x.data() + 2, w.data() + 2,
                        /*ceil_mode=*/false, nullptr, 0) != DVT_OK) {
      return no("its window does not fit");
    }
    if (view_.has_input(2)) {
      steps_.push_back({.kind = DVT_STEP_ADD, .operand = take(2), .spread = Spread::kPerRow});
    }
    product_.what = conv;
    return true;
  }

  bool read_matrix(const DvtGemmAttributes& attributes) {
    const Extents a = *view_.input_extents(0);
    const Extents b = *view_.input_extents(1);
    if (attributes.transpose_a != 0) return no("its first operand is transposed");
    if (a.size() < 2 || b.size() != 2) return no("an operand is no matrix");
    Matrix matrix{.rows = 1, .inner = a.back()};
    for (size_t i = 0; i + 1 < a.size(); ++i) matrix.rows *= a[i];
    product_.transpose_weights = attributes.transpose_b != 0;
    matrix.columns = product_.transpose_weights ? b[0] : b[1];
    if (matrix.inner == 0) return no("it sums nothing");
    product_.scale = attributes.alpha;
    product_.what = matrix;
    const bool has_c = module_.op(view_.id()).ends_with("Gemm") && view_.has_input(2);
    if (!has_c) return true;
    if (attributes.beta != 1) return no("its beta is not 1");
    const auto spread = spread_of(*view_.input_extents(2), *view_.output_extents(0));
    if (!spread) return no("its C broadcasts along columns");
    steps_.push_back({.kind = DVT_STEP_ADD, .operand = take(2), .spread = *spread});
    return true;
  }

  // nullopt: another one than generated kernels know.
  [[nodiscard]] std::optional<Spread> spread_of(const Extents& operand, const Extents& y) const {
    Extents whole(y.size() - operand.size(), 1);
    whole.insert(whole.end(), operand.begin(), operand.end());
    const bool is_conv = std::holds_alternative<Convolution>(product_.what);
    const size_t row = is_conv ? 1 : y.size();  // The axis of rows that a kPerRow operand has.
    bool all = true;
    bool one = true;
    bool per_row = is_conv;
    bool per_column = !is_conv;
    for (size_t axis = 0; axis < y.size(); ++axis) {
      all = all && whole[axis] == y[axis];
      one = one && whole[axis] == 1;
      per_row = per_row && whole[axis] == (axis == row ? y[axis] : 1);
      per_column = per_column && whole[axis] == (axis + 1 == y.size() ? y[axis] : 1);
    }
    if (one) return Spread::kOne;
    if (all) return Spread::kAll;
    if (per_row) return Spread::kPerRow;
    if (per_column) return Spread::kPerColumn;
    return std::nullopt;
  }

  // Steps count inputs of the node from 0, products of three have an optional one.
  bool read_steps(const DvtSteps& record) {
    const auto shift = int64_t(steps_.size());  // The bias came first.
    for (int64_t k = 0; k < record.count; ++k) {
      Step step{.kind = record.kind[k], .alpha = record.alpha[k], .beta = record.beta[k]};
      if (!kGenerated[size_t(step.kind)]) return no("a step is none that is generated");
      if (step.kind < DVT_STEP_UNARY && record.operand[k] >= 0) {
        const auto input = uint32_t(record.operand[k]);
        const auto spread = spread_of(*view_.input_extents(input), *view_.output_extents(0));
        if (!spread) return no("an operand of a step broadcasts along some axes only");
        step.spread = *spread;
        step.operand = take(input);
      } else if (step.kind < DVT_STEP_UNARY) {
        step.operand = record.operand[k] - shift;
      }
      steps_.push_back(step);
    }
    return true;
  }

  const ir::Module& module_;
  const ops::NodeView view_;
  Product product_;
  std::vector<Step> steps_;
  std::string reason_;
};

}  // namespace

Result<Recognised> recognise(const ir::Module& module, ir::NodeId node) {
  return Recogniser(module, node).run();
}

}  // namespace davit::codegen
