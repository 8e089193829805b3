// fuse_gemm: MatMul and what is added to its result.
#include "ir/passes/passes.hpp"
#include "ir/passes/pattern.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

// Empty when `addend` may be the C of a Gemm with this result.
std::string no_addend(const ir::Module& module, const Match& match) {
  const ValueId result = match.outputs()[0];
  const ir::Shape* c = module.shape(match.value("c"));
  const ir::Shape* y = module.shape(match.value("product"));
  const std::string name = "'" + std::string(module.value_name(match.value("c"))) + "'";
  if (match.value("c") == match.value("product")) return "the product is added to itself";
  if (module.opset_version(match.anchor()) < 7) return "Gemm does not broadcast before opset 7";
  if (c == nullptr || y == nullptr) return "the shape of " + name + " is not known";
  if (!same_type(module, match.value("product"), result)) {
    return name + " broadcasts the product";
  }
  if (c->size() > 2) return name + " has more than two axes";
  for (size_t i = 0; i < c->size(); ++i) {
    const ir::Dim extent = (*c)[i];
    if (extent != ir::Dim(1) && extent != (*y)[y->size() - c->size() + i]) {
      return "it is not known that " + name + " fits";
    }
  }
  return {};
}

const Pattern& product_and_sum() {
  // Never destroyed, so that threads may outlive main().
  static const auto* const pattern = new Pattern([] {
    Pattern made = Pattern::of(R"(
      input %a: ?[?, ?]
      input %b: ?[?, ?]
      input %c
      (%product) = MatMul "product" (%a, %b)
      (%sum) = Add "sum" (%product, %c)
      output (%sum)
    )");
    made.where("product", is_float_value).where(no_addend);
    return made;
  }());
  return *pattern;
}

}  // namespace

Result<uint32_t> fuse_gemm(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node)) continue;
    const auto match = product_and_sum().match(rewriter, node, "fuse_gemm", refusals);
    if (!match) continue;
    fuse(rewriter, *match,
         {.op = "Gemm", .inputs = {match->value("a"), match->value("b"), match->value("c")}});
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
