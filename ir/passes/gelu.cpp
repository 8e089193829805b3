// fuse_gelu: the Gaussian error linear unit, written out.
#include <array>
#include <string>

#include "ir/passes/passes.hpp"
#include "ir/passes/pattern.hpp"
#include "ir/passes/rewrite.hpp"
#include "ops/defs/fused.hpp"

namespace davit::passes {
namespace {

using ir::NodeId;

struct Form {
  Pattern pattern;
  bool by_tanh;
};

// x / sqrt(2), and x * (1 + y) / 2 by association; the same y for both.
constexpr std::array kScaled = {
    "const %root: f32[] = {1.4142135} (%scaled) = Div (%x, %root) ",
    "const %root: f32[] = {0.70710677} (%scaled) = Mul (%x, %root) ",
};
constexpr std::array kCubes = {
    "const %three: f32[] = {3} (%cube) = Pow (%x, %three) ",
    "(%square) = Mul (%x, %x) (%cube) = Mul (%square, %x) ",
    "const %two: f32[] = {2} (%square) = Pow (%x, %two) (%cube) = Mul (%square, %x) ",
};
constexpr std::array kHalves = {
    "(%whole) = Mul (%x, %sum) (%result) = Mul (%whole, %half) ",
    "(%part) = Mul (%x, %half) (%result) = Mul (%part, %sum) ",
    "(%part) = Mul (%sum, %half) (%result) = Mul (%x, %part) ",
};

std::vector<Form> make_forms() {
  std::vector<Form> forms;
  const auto add = [&](const std::string& inner, bool by_tanh) {
    for (const char* halves : kHalves) {
      Pattern pattern =
          Pattern::of("input %x const %one: f32[] = {1} const %half: f32[] = {0.5} " + inner +
                      "(%sum) = Add (%bent, %one) " + halves + "output (%result)");
      pattern.where("x", is_float_value);
      forms.push_back({std::move(pattern), by_tanh});
    }
  };
  for (const char* scaled : kScaled) add(std::string(scaled) + "(%bent) = Erf (%scaled) ", false);
  for (const char* cube : kCubes) {
    add(std::string(cube) +
            "const %c: f32[] = {0.044715} const %k: f32[] = {0.7978846} "
            "(%small) = Mul (%cube, %c) (%inner) = Add (%x, %small) (%scaled) = Mul (%inner, %k) "
            "(%bent) = Tanh (%scaled) ",
        true);
  }
  return forms;
}

}  // namespace

Result<uint32_t> fuse_gelu(ir::Module& module, Refusals& refusals) {
  // Never destroyed, so that threads may outlive main().
  static const auto* const forms = new std::vector<Form>(make_forms());
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (!is_op(module, node, "Mul") || rewriter.is_struck(node)) continue;
    for (const Form& form : *forms) {
      const auto match = form.pattern.match(rewriter, node, "fuse_gelu", refusals);
      if (!match) continue;
      module.opset_imports[std::string(ops::kFusedDomain)] = ops::kFusedOpset;
      fuse(rewriter, *match,
           {.domain = std::string(ops::kFusedDomain),
            .op = "Gelu",
            .inputs = {match->value("x")},
            .attributes = {{"approximate", std::string(form.by_tanh ? "tanh" : "none")}}});
      ++changes;
      break;
    }
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
