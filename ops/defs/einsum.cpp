// Einsum: the equation, and its shapes.
#include "ops/kernels/einsum.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

using Term = std::vector<int64_t>;  // As in DvtEinsumAttributes.

struct Equation {
  std::vector<Term> operands;
  Term output;
};

// A place in the record for a letter, or nullopt.
std::optional<int64_t> symbol_of(char letter) {
  if (letter >= 'a' && letter <= 'z') return letter - 'a';
  if (letter >= 'A' && letter <= 'Z') return letter - 'A' + 26;
  return std::nullopt;
}

Status bad_equation(const NodeView& node, const std::string& equation, std::string why) {
  return mismatch(node, "attribute equation: " + std::move(why), "terms such as \"ij,jk->ik\"",
                  equation);
}

Result<Term> parse_term(const NodeView& node, const std::string& equation, std::string_view text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "...") {
      if (std::ranges::find(term, DVT_EINSUM_ELLIPSIS) != term.end()) {
        return bad_equation(node, equation, "a term has two ellipses");
      }
      term.push_back(DVT_EINSUM_ELLIPSIS);
      i += 2;
    } else if (const auto symbol = symbol_of(text[i])) {
      term.push_back(*symbol);
    } else {
      return bad_equation(node, equation, std::string("'") + text[i] + "' is no letter");
    }
    if (term.size() > DVT_EINSUM_TERM) return bad_equation(node, equation, "a term is too long");
  }
  return term;
}

// Without "->": an ellipsis, then the letters that appear once, in the order of their characters.
Term implicit_output(const std::vector<Term>& operands) {
  std::map<char, int> counts;
  bool ellipsis = false;
  for (const Term& term : operands) {
    for (const int64_t symbol : term) {
      ellipsis = ellipsis || symbol == DVT_EINSUM_ELLIPSIS;
      if (symbol == DVT_EINSUM_ELLIPSIS) continue;
      ++counts[static_cast<char>(symbol < 26 ? 'a' + symbol : 'A' + symbol - 26)];
    }
  }
  Term output;
  if (ellipsis) output.push_back(DVT_EINSUM_ELLIPSIS);
  for (const auto& [letter, count] : counts) {
    if (count == 1) output.push_back(*symbol_of(letter));
  }
  return output;
}

Status check_output(const NodeView& node, const std::string& text, const Equation& equation) {
  Term rest = equation.output;
  std::ranges::sort(rest);
  if (std::ranges::adjacent_find(rest) != rest.end()) {
    return bad_equation(node, text, "the output repeats a letter");
  }
  for (const int64_t symbol : equation.output) {
    const bool known = std::ranges::any_of(equation.operands, [symbol](const Term& term) {
      return std::ranges::find(term, symbol) != term.end();
    });
    if (!known) return bad_equation(node, text, "the output has a letter that no operand has");
  }
  if (equation.output.size() > DVT_EINSUM_TERM) {
    return bad_equation(node, text, "the output has too many axes");
  }
  return {};
}

Result<Equation> parse_equation(const NodeView& node) {
  const std::string text = node.attribute_string("equation", "");
  Equation equation;
  const size_t arrow = text.find("->");
  const std::string_view all(text);
  std::string_view left = all.substr(0, arrow);
  for (size_t comma = left.find(',');; comma = left.find(',')) {
    auto term = parse_term(node, text, left.substr(0, comma));
    if (!term.ok()) return std::move(term.status());
    equation.operands.push_back(std::move(*term));
    if (comma == std::string_view::npos) break;
    left = left.substr(comma + 1);
  }
  if (equation.operands.size() != node.input_count()) {
    return bad_equation(node, text,
                        std::to_string(equation.operands.size()) + " terms for " +
                            std::to_string(node.input_count()) + " inputs");
  }
  if (equation.operands.size() > DVT_EINSUM_OPERANDS) {
    return node.error(DVT_UNSUPPORTED, "more than 16 operands");
  }
  if (arrow == std::string::npos) {
    equation.output = implicit_output(equation.operands);
  } else {
    auto output = parse_term(node, text, all.substr(arrow + 2));
    if (!output.ok()) return std::move(output.status());
    equation.output = std::move(*output);
  }
  Status status = check_output(node, text, equation);
  if (!status.ok()) return status;
  return equation;
}

// ---- Shapes -----------------------------------------------------------------------------------

// Extents by symbol; those of ellipses by their place from the last axis.
struct Extents {
  std::map<int64_t, ir::Dim> letters;
  std::vector<ir::Dim> ellipsis;
};

// What two axes of one symbol have together; nullopt when they do not fit.
std::optional<ir::Dim> joined(ir::Dim a, ir::Dim b) {
  const auto shape = broadcast({a}, {b});
  return shape ? std::optional((*shape)[0]) : std::nullopt;
}

// Adds what an operand says. Precondition: its rank is known.
Status add_operand(const NodeView& node, uint32_t input, const Term& term, Extents& extents) {
  const ir::Shape& shape = *node.input_shape(input);
  const bool has_ellipsis = std::ranges::find(term, DVT_EINSUM_ELLIPSIS) != term.end();
  const size_t letters = term.size() - (has_ellipsis ? 1 : 0);
  if (has_ellipsis ? shape.size() < letters : shape.size() != letters) {
    return mismatch(node, "the term of input " + std::to_string(input) + " does not match its rank",
                    std::to_string(letters) + (has_ellipsis ? " axes or more" : " axes"),
                    shape_text(node, shape));
  }
  size_t axis = 0;
  for (const int64_t symbol : term) {
    if (symbol == DVT_EINSUM_ELLIPSIS) {
      const size_t length = shape.size() - letters;
      if (extents.ellipsis.size() < length) extents.ellipsis.resize(length, ir::Dim(1));
      for (size_t i = length; i > 0; --i, ++axis) {
        const auto dim = joined(extents.ellipsis[i - 1], shape[axis]);
        if (!dim)
          return mismatch(node, "the ellipses do not broadcast", "the same extents",
                          shape_text(node, shape));
        extents.ellipsis[i - 1] = *dim;
      }
      continue;
    }
    const auto [at, is_new] = extents.letters.emplace(symbol, shape[axis]);
    const auto dim = joined(at->second, shape[axis]);
    if (!dim) {
      return mismatch(node, "two axes of one letter differ", std::to_string(at->second.extent()),
                      std::to_string(shape[axis].extent()));
    }
    at->second = is_new ? shape[axis] : *dim;
    ++axis;
  }
  return {};
}

Status infer_einsum(const NodeView& node, std::span<InferredOutput> outputs) {
  Status status = all_present(node);
  for (uint32_t i = 1; status.ok() && i < node.input_count(); ++i) status = same_dtype(node, 0, i);
  if (!status.ok()) return status;
  outputs[0].dtype = node.input_dtype(0);
  auto equation = parse_equation(node);
  if (!equation.ok()) return std::move(equation.status());
  Extents extents;
  bool ranks_known = true;
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    if (node.input_shape(i) == nullptr) {
      ranks_known = false;
      continue;
    }
    status = add_operand(node, i, equation->operands[i], extents);
    if (!status.ok()) return status;
  }
  const bool has_ellipsis =
      std::ranges::find(equation->output, DVT_EINSUM_ELLIPSIS) != equation->output.end();
  if (!ranks_known && has_ellipsis) return {};
  ir::Shape shape;
  for (const int64_t symbol : equation->output) {
    if (symbol == DVT_EINSUM_ELLIPSIS) {
      shape.insert(shape.end(), extents.ellipsis.rbegin(), extents.ellipsis.rend());
    } else {
      const auto at = extents.letters.find(symbol);
      shape.push_back(at == extents.letters.end() || !ranks_known ? ir::Dim() : at->second);
    }
  }
  if (shape.size() > DVT_MAX_RANK) {
    return node.error(DVT_UNSUPPORTED, "an output of more than 8 axes");
  }
  outputs[0].shape = std::move(shape);
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_einsum(const NodeView& node) {
  auto kernel = require_kernel(node, "Einsum", node.input_dtype(0));
  if (!kernel.ok()) return std::move(kernel.status());
  auto equation = parse_equation(node);
  if (!equation.ok()) return std::move(equation.status());
  DvtEinsumAttributes attributes = {.operands = static_cast<int64_t>(equation->operands.size()),
                                    .output_length = static_cast<int64_t>(equation->output.size())};
  for (size_t i = 0; i < equation->operands.size(); ++i) {
    const Term& term = equation->operands[i];
    attributes.lengths[i] = static_cast<int64_t>(term.size());
    std::ranges::copy(term, attributes.terms + i * DVT_EINSUM_TERM);
  }
  std::ranges::copy(equation->output, attributes.output);
  Recipe recipe = plain_recipe(node, *kernel, attribute_bytes(attributes));
  if (node.input_dtype(0) == DVT_F32) recipe.workspace_bytes = {dvt_einsum_workspace_bytes()};
  return recipe;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "Einsum", 12, INT64_MAX, 1, UINT32_MAX, 1, 1, infer_einsum,
                       recipe_einsum, cost_of_kernel},
};

}  // namespace

std::span<const OperatorDefinition> einsum_operators() {
  return kOperators;
}

}  // namespace davit::ops
