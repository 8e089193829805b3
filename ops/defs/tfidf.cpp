// TfIdfVectorizer of numbers. Its tables are attributes; the pass lift_tables makes them inputs 1
// to 4 (pool, starts, places, weights), because a kernel's record holds no lists of any length.
#include "ops/kernels/tfidf.h"

#include <algorithm>
#include <array>

#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

struct Mode {
  std::string_view name;
  DvtTfIdfMode id;
};
constexpr std::array kModes = {Mode{"TF", DVT_TFIDF_TF}, Mode{"IDF", DVT_TFIDF_IDF},
                               Mode{"TFIDF", DVT_TFIDF_TFIDF}};

Result<DvtTfIdfAttributes> read_attributes(const NodeView& node) {
  const std::string mode = node.attribute_string("mode", "");
  const auto* at = std::ranges::find(kModes, mode, &Mode::name);
  if (at == kModes.end()) {
    return mismatch(node, "attribute mode is missing or unknown", "TF, IDF or TFIDF", mode);
  }
  DvtTfIdfAttributes attributes = {.mode = at->id,
                                   .min_length = node.attribute_int("min_gram_length", 0),
                                   .max_length = node.attribute_int("max_gram_length", 0),
                                   .max_skip = node.attribute_int("max_skip_count", 0)};
  if (attributes.min_length < 1 || attributes.max_length < attributes.min_length ||
      attributes.max_skip < 0) {
    return mismatch(node, "the lengths or skips of n-grams are missing or out of range",
                    "1 <= min <= max, and 0 or more skips",
                    std::to_string(attributes.min_length) + ", " +
                        std::to_string(attributes.max_length) + ", " +
                        std::to_string(attributes.max_skip));
  }
  const std::vector<int64_t> places = node.attribute_ints("ngram_indexes");
  for (const int64_t place : places) {
    if (place < 0 || place >= INT32_MAX) {
      return mismatch(node, "attribute ngram_indexes has an index out of range", "0 to 2^31",
                      std::to_string(place));
    }
    attributes.width = std::max(attributes.width, place + 1);
  }
  return attributes;
}

Status infer_tfidf(const NodeView& node, std::span<InferredOutput> outputs) {
  if (node.has_attribute("pool_strings")) {
    return node.error(DVT_UNSUPPORTED, "n-grams of strings are not supported");
  }
  outputs[0].dtype = DVT_F32;
  const DvtDType dtype = node.input_dtype(0);
  if (dtype != DVT_DTYPE_NONE && dtype != DVT_I32 && dtype != DVT_I64) {
    return node.error(DVT_INVALID_ARGUMENT, "the input must be of type i32 or i64");
  }
  auto attributes = read_attributes(node);
  if (!attributes.ok()) return std::move(attributes.status());
  const size_t grams = node.attribute_ints("ngram_indexes").size();
  const size_t weights = node.attribute_floats("weights").size();
  if (weights != 0 && weights != grams) {
    return mismatch(node, "attribute weights has the wrong length", std::to_string(grams),
                    std::to_string(weights));
  }
  const ir::Shape* x = node.input_shape(0);
  if (x == nullptr) return {};
  if (x->size() != 1 && x->size() != 2) {
    return mismatch(node, "the input must have rank 1 or 2", "[C] or [N,C]", shape_text(node, *x));
  }
  ir::Shape shape = {ir::Dim(attributes->width)};
  if (x->size() == 2) shape.insert(shape.begin(), (*x)[0]);
  outputs[0].shape = std::move(shape);
  return check_elements(node, *outputs[0].shape);
}

Result<Recipe> recipe_tfidf(const NodeView& node) {
  if (node.input_count() < 4) {
    return node.error(DVT_INTERNAL, "lift_tables has not seen this node", DVT_STAGE_LOWER);
  }
  auto attributes = read_attributes(node);
  if (!attributes.ok()) return std::move(attributes.status());
  return plain_recipe(node, find_kernel("TfIdfVectorizer"), attribute_bytes(*attributes));
}

// Each n-gram is compared with each place of the input.
DvtTaskCost cost_tfidf(const NodeView& node) {
  DvtTaskCost cost = vector_cost(node, element_count(node.input_extents(0)),
                                 100 * element_count(node.input_extents(3)));
  cost.kind = DVT_TASK_AICPU;
  return cost;
}

constexpr std::array kOperators = {
    OperatorDefinition{"", "TfIdfVectorizer", 9, INT64_MAX, 1, 5, 1, 1, infer_tfidf, recipe_tfidf,
                       cost_tfidf},
};

}  // namespace

std::span<const OperatorDefinition> tfidf_operators() {
  return kOperators;
}

}  // namespace davit::ops
