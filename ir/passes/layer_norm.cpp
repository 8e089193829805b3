// fuse_layer_norm: LayerNormalization, written out.
#include <algorithm>
#include <string>
#include <vector>

#include "ir/passes/passes.hpp"
#include "ir/passes/pattern.hpp"
#include "ir/passes/rewrite.hpp"
#include "ops/defs/fused.hpp"

namespace davit::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

// The first of the trailing axes that a ReduceMean reduces and keeps; nullopt for other ones.
std::optional<int64_t> first_axis(const ir::Module& module, NodeId mean, size_t rank) {
  const ops::NodeView view(module, mean);
  if (view.attribute_int("keepdims", 1) == 0) return std::nullopt;
  const auto axes =
      view.opset() >= 18 ? view.input_i64(1) : std::optional(view.attribute_ints("axes"));
  if (!axes || axes->empty()) return std::nullopt;
  std::vector<int64_t> normal;
  for (const int64_t axis : *axes) {
    const auto at = ops::normalise_axis(axis, int64_t(rank));
    if (!at) return std::nullopt;
    normal.push_back(*at);
  }
  std::sort(normal.begin(), normal.end());
  for (size_t i = 0; i < normal.size(); ++i) {
    if (normal[i] != int64_t(rank - normal.size() + i)) return std::nullopt;
  }
  return normal.front();
}

// Empty when axes and parameters are those of a LayerNormalization.
std::string misfit(const ir::Module& module, const Match& match) {
  const ir::Shape* x = module.shape(match.value("x"));
  if (x == nullptr) return "the rank is not known";
  const auto axis = first_axis(module, match.node("mean"), x->size());
  if (!axis || first_axis(module, match.node("variance"), x->size()) != axis) {
    return "means are not over the same last axes, kept";
  }
  if (!uniform_constant(module, match.value("epsilon"))) return "epsilon is not one constant";
  const bool has_scale = match.value("scale") != ir::kNoValue;
  for (size_t i = size_t(*axis); !has_scale && i < x->size(); ++i) {
    if (!(*x)[i].is_known()) return "there is no scale, and the last axes are not known";
  }
  for (const char* name : {"scale", "bias"}) {
    const ValueId value = match.value(name);
    if (value == ir::kNoValue) continue;
    const ir::Shape* shape = module.shape(value);
    const ir::Shape wanted(x->begin() + *axis, x->end());
    if (module.dtype(value) != module.dtype(match.value("x")) || shape == nullptr ||
        *shape != wanted) {
      return std::string(name) + " '" + std::string(module.value_name(value)) +
             "' has not the extents of the last axes";
    }
  }
  return {};
}

// What may be left of it: where scales are all 1, or biases 0, other passes have removed them.
struct Form {
  bool has_scale, has_bias;
  std::string_view last;  // The operator whose result it is.
};
constexpr Form kForms[] = {
    {true, true, "Add"}, {false, true, "Add"}, {true, false, "Mul"}, {false, false, "Div"}};

// The ways it is written. A match begins at the last operator.
std::vector<Pattern> make_patterns(const Form& form) {
  std::vector<Pattern> patterns;
  for (const bool has_axes_input : {false, true}) {
    for (const char* square : {"Pow (%d, %two)", "Mul (%d, %d)"}) {
      const std::string inputs = has_axes_input ? "input %axes input %more " : "";
      const std::string axes = has_axes_input ? ", %axes" : "";
      const std::string more = has_axes_input ? ", %more" : "";
      const std::string normal = form.has_scale ? "%y" : "%n";
      const std::string end = (form.has_scale ? "(%y) = Mul (%n, %scale) " : std::string()) +
                              (form.has_bias ? "(%z) = Add (" + normal + ", %bias) output (%z)"
                                             : "output (" + normal + ")");
      Pattern pattern = Pattern::of(
          "input %x input %epsilon input %scale input %bias " + inputs +
          "const %two: f32[] = {2} (%m) = ReduceMean \"mean\" (%x" + axes +
          ") (%d) = Sub (%x, %m) (%s) = " + square + " (%v) = ReduceMean \"variance\" (%s" + more +
          ") (%e) = Add (%v, %epsilon) (%r) = Sqrt (%e) (%n) = Div (%d, %r) " + end);
      pattern.where("x", is_float_value).where(misfit);
      patterns.push_back(std::move(pattern));
    }
  }
  return patterns;
}

bool fuse_at(Rewriter& rewriter, NodeId node, const std::vector<Pattern>& patterns,
             Refusals& refusals) {
  ir::Module& module = rewriter.module();
  for (const Pattern& pattern : patterns) {
    const auto match = pattern.match(rewriter, node, "fuse_layer_norm", refusals);
    if (!match) continue;
    const ir::Shape shape = *module.shape(match->value("x"));
    const size_t rank = shape.size();
    const int64_t axis = *first_axis(module, match->node("mean"), rank);
    std::vector<ValueId> inputs = {match->value("x"), match->value("scale")};
    if (inputs[1] == ir::kNoValue) {
      const auto dims = *ir::static_extents(ir::Shape(shape.begin() + axis, shape.end()));
      size_t count = 1;
      for (const int64_t dim : dims) count *= size_t(dim);
      inputs[1] = rewriter.add_constant(
          module.node_graph(node), std::string(module.value_name(inputs[0])) + ".scale",
          make_real_tensor(module.dtype(inputs[0]), dims, std::vector<double>(count, 1.0)));
    }
    if (match->value("bias") != ir::kNoValue) inputs.push_back(match->value("bias"));
    module.opset_imports[std::string(ops::kFusedDomain)] = ops::kFusedOpset;
    fuse(rewriter, *match,
         {.domain = std::string(ops::kFusedDomain),
          .op = "LayerNormalization",
          .inputs = std::move(inputs),
          .attributes = {{"axis", axis - int64_t(rank)},
                         {"epsilon", float(*uniform_constant(module, match->value("epsilon")))}}});
    return true;
  }
  return false;
}

}  // namespace

Result<uint32_t> fuse_layer_norm(ir::Module& module, Refusals& refusals) {
  // Never destroyed, so that threads may outlive main().
  static const auto* const patterns = [] {
    auto* made = new std::vector<std::vector<Pattern>>();
    for (const Form& form : kForms) made->push_back(make_patterns(form));
    return made;
  }();
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (size_t i = 0; i < patterns->size(); ++i) {
    for (const NodeId node : live_nodes(module)) {
      if (rewriter.is_struck(node) || !is_op(module, node, kForms[i].last)) continue;
      changes += uint32_t(fuse_at(rewriter, node, (*patterns)[i], refusals));
    }
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
