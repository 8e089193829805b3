// fuse_attention: softmax(Q K * scale + mask) V.
#include <algorithm>
#include <array>
#include <string>

#include "ir/passes/passes.hpp"
#include "ir/passes/pattern.hpp"
#include "ir/passes/rewrite.hpp"
#include "ops/defs/fused.hpp"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

std::string quoted(const ir::Module& module, ValueId value) {
  return "'" + std::string(module.value_name(value)) + "'";
}

// Softmax over the last axis alone.
bool is_over_last(const ir::Module& module, NodeId softmax, size_t rank) {
  const ops::NodeView view(module, softmax);
  const int64_t axis = view.attribute_int("axis", view.opset() < 13 ? 1 : -1);
  return ops::normalise_axis(axis, int64_t(rank)) == int64_t(rank) - 1;
}

// Empty when shapes are what the kernel takes.
std::string misfit(const ir::Module& module, const Match& match) {
  const ir::Shape* q = module.shape(match.value("q"));
  const ir::Shape* k = module.shape(match.value("k"));
  const ir::Shape* v = module.shape(match.value("v"));
  const ir::Shape* scores = module.shape(match.value("scores"));
  if (q == nullptr || k == nullptr || v == nullptr || scores == nullptr || q->size() < 2 ||
      k->size() != q->size() || v->size() != q->size()) {
    return "Q, K and V are not known to have the same rank";
  }
  if (!is_over_last(module, match.node("softmax"), scores->size())) {
    return "the softmax is not over the last axis alone";
  }
  if (match.node("scale") != kNoNode) {
    const auto scale = uniform_constant(module, match.value("factor"));
    if (!scale || double(float(*scale)) != *scale) {
      return "scale " + quoted(module, match.value("factor")) + " is not one constant";
    }
    const ir::Shape* factor = module.shape(match.value("factor"));
    if (factor == nullptr || factor->size() > scores->size() ||
        !std::all_of(factor->begin(), factor->end(), [](ir::Dim d) { return d == ir::Dim(1); })) {
      return "the scale broadcasts";
    }
  }
  if (match.node("mask") == kNoNode) return {};
  const ir::Shape* mask = module.shape(match.value("bias"));
  // The kernel broadcasts all that the operators would, but for a mask of a higher rank.
  if (mask == nullptr || mask->size() > scores->size()) {
    return "mask " + quoted(module, match.value("bias")) +
           " may have a higher rank than the scores";
  }
  return {};
}

Pattern make_pattern() {
  Pattern pattern = Pattern::of(R"(
    input %q input %k input %v input %factor input %bias
    (%scores) = MatMul (%q, %k)
    (%scaled) = Mul "scale" (%scores, %factor) {
      pattern.or = strings ["Div"]
      pattern.optional = int 1
    }
    (%masked) = Add "mask" (%scaled, %bias) { pattern.optional = int 1 }
    (%weights) = Softmax "softmax" (%masked)
    (%result) = MatMul (%weights, %v)
    output (%result)
  )");
  pattern.where("q", is_float_value).where(misfit);
  return pattern;
}

void fuse_attention_at(Rewriter& rewriter, const Match& match) {
  ir::Module& module = rewriter.module();
  std::vector<ir::Attribute> attributes;
  if (match.node("scale") != kNoNode) {
    attributes.push_back(
        {"scaling",
         std::string(is_op(module, match.node("scale"), "Div") ? "divide" : "multiply")});
    attributes.push_back({"scale", float(*uniform_constant(module, match.value("factor")))});
  }
  std::vector<ValueId> inputs = {match.value("q"), match.value("k"), match.value("v")};
  if (match.node("mask") != kNoNode) inputs.push_back(match.value("bias"));
  module.opset_imports[std::string(ops::kFusedDomain)] = ops::kFusedOpset;
  fuse(rewriter, match,
       {.domain = std::string(ops::kFusedDomain),
        .op = "Attention",
        .inputs = std::move(inputs),
        .attributes = std::move(attributes)});
}

}  // namespace

Result<uint32_t> fuse_attention(ir::Module& module, Refusals& refusals) {
  // Never destroyed, so that threads may outlive main().
  static const auto* const pattern = new Pattern(make_pattern());
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node)) continue;
    const auto match = pattern->match(rewriter, node, "fuse_attention", refusals);
    if (!match) continue;
    fuse_attention_at(rewriter, *match);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
