// If and Loop. They have no kernel of their own: lowering turns them into nodes that run bodies.
#include <array>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/families.hpp"

namespace davit::ops {
namespace {

std::string dtype_string(DvtDType dtype) {
  return std::string(dtype_name(dtype));
}

const ir::GraphId* body_of(const NodeView& node, std::string_view name) {
  const ir::AttributeValue* value = node.module().attribute(node.id(), name);
  return value == nullptr ? nullptr : std::get_if<ir::GraphId>(value);
}

Status missing_body(const NodeView& node, std::string_view name) {
  return node.error(DVT_INVALID_IMAGE, "attribute '" + std::string(name) + "' is no graph");
}

Status wrong_count(const NodeView& node, std::string_view what, size_t expected, size_t got) {
  return mismatch(node, std::string(what), std::to_string(expected), std::to_string(got));
}

// What both branches agree on.
std::optional<ir::Shape> common_shape(const ir::Shape* a, const ir::Shape* b) {
  if (a == nullptr || b == nullptr || a->size() != b->size()) return std::nullopt;
  ir::Shape shape(a->size());
  for (size_t i = 0; i < shape.size(); ++i) {
    if ((*a)[i] == (*b)[i]) shape[i] = (*a)[i];
  }
  return shape;
}

Status infer_if(const NodeView& node, std::span<InferredOutput> outputs) {
  const ir::Module& module = node.module();
  const ir::GraphId* branches[2] = {body_of(node, "then_branch"), body_of(node, "else_branch")};
  if (branches[0] == nullptr) return missing_body(node, "then_branch");
  if (branches[1] == nullptr) return missing_body(node, "else_branch");
  const DvtDType condition = node.input_dtype(0);
  if (condition != DVT_DTYPE_NONE && condition != DVT_BOOL) {
    return mismatch(node, "the condition is not bool", "bool", dtype_string(condition));
  }
  // A condition that is known leaves one branch.
  const ir::TensorData* known = node.input_constant(0);
  if (known != nullptr && known->bytes && !known->bytes->empty()) {
    const bool taken = known->bytes->front() != std::byte{0};
    branches[taken ? 1 : 0] = branches[taken ? 0 : 1];
  }
  const auto yes = module.graph_outputs(*branches[0]);
  const auto no = module.graph_outputs(*branches[1]);
  if (yes.size() != no.size()) {
    return wrong_count(node, "the branches have different numbers of outputs", yes.size(),
                       no.size());
  }
  if (outputs.size() > yes.size()) {
    return wrong_count(node, "the node has more outputs than its branches", yes.size(),
                       outputs.size());
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const DvtDType a = module.dtype(yes[k]);
    const DvtDType b = module.dtype(no[k]);
    if (a != DVT_DTYPE_NONE && b != DVT_DTYPE_NONE && a != b) {
      return mismatch(node, "the branches yield different element types", dtype_string(a),
                      dtype_string(b));
    }
    outputs[k].dtype = a != DVT_DTYPE_NONE ? a : b;
    outputs[k].shape = common_shape(module.shape(yes[k]), module.shape(no[k]));
  }
  return {};
}

Status infer_loop(const NodeView& node, std::span<InferredOutput> outputs) {
  const ir::Module& module = node.module();
  const ir::GraphId* body = body_of(node, "body");
  if (body == nullptr) return missing_body(node, "body");
  const auto parameters = module.graph_inputs(*body);
  const auto results = module.graph_outputs(*body);
  const size_t states = node.input_count() > 2 ? node.input_count() - 2 : 0;
  if (parameters.size() != states + 2) {
    return wrong_count(node, "the body takes another number of inputs", states + 2,
                       parameters.size());
  }
  if (results.size() < states + 1) {
    return wrong_count(node, "the body has too few outputs", states + 1, results.size());
  }
  if (outputs.size() > results.size() - 1) {
    return wrong_count(node, "the node has more outputs than its body yields", results.size() - 1,
                       outputs.size());
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const ir::ValueId result = results[1 + k];
    outputs[k].dtype = module.dtype(result);
    const ir::Shape* shape = module.shape(result);
    if (k < states) {
      const DvtDType initial = node.input_dtype(uint32_t(2 + k));
      if (outputs[k].dtype == DVT_DTYPE_NONE) outputs[k].dtype = initial;
      // A state may change its shape from iteration to iteration, or never run.
      outputs[k].shape = common_shape(node.input_shape(uint32_t(2 + k)), shape);
    } else if (shape != nullptr) {
      ir::Shape collected(1);
      collected.insert(collected.end(), shape->begin(), shape->end());
      outputs[k].shape = std::move(collected);
    }
  }
  return {};
}

Result<Recipe> recipe_none(const NodeView& node) {
  return node.error(DVT_UNSUPPORTED, "bodies are run by the executor, not by a kernel",
                    DVT_STAGE_LOWER);
}

DvtTaskCost cost_none(const NodeView& /*node*/) {
  return {};
}

constexpr OperatorDefinition branch(int64_t since, int64_t until) {
  return {"", "If", since, until, 1, 1, 1, UINT32_MAX, infer_if, recipe_none, cost_none};
}
// Trip count and condition are optional from the first version on.
constexpr OperatorDefinition loop(int64_t since, int64_t until) {
  return {"", "Loop",     since,      until,       0,        UINT32_MAX,
          1,  UINT32_MAX, infer_loop, recipe_none, cost_none};
}

constexpr std::array kOperators = {
    branch(1, 10),  branch(11, 12),        branch(13, 15), branch(16, 18),
    branch(19, 20), branch(21, INT64_MAX), loop(1, 10),    loop(11, 12),
    loop(13, 15),   loop(16, 18),          loop(19, 20),   loop(21, INT64_MAX),
};

}  // namespace

std::span<const OperatorDefinition> control_operators() {
  return kOperators;
}

}  // namespace davit::ops
