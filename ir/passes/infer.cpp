// Inference and folding are one sweep over the nodes in topological order: what is folded at a node
// is known to the inference of the next.
#include <algorithm>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "ir/passes/passes.hpp"
#include "ir/text.hpp"
#include "ops/definition.hpp"

namespace davit::passes {
namespace {

using ir::Dim;
using ir::NodeId;
using ir::ValueId;

constexpr uint64_t kShapeDataBytesMax = 4096;
constexpr uint64_t kFoldBytesMax = uint64_t{64} << 20U;
constexpr uint64_t kFoldGrowthMax = 4;
constexpr uint64_t kFoldSlackBytes = uint64_t{1} << 20U;
constexpr uint64_t kFoldProductsMax = uint64_t{1} << 30U;

uint64_t data_bytes(const ir::TensorData& data) {
  return data.bytes ? data.bytes->size() : 0;
}

class Sweep {
 public:
  // `strict`: nodes of branches must be right, too, unless the branch is never taken.
  Sweep(ir::Module& module, bool fold_all, bool strict = false)
      : module_(module), fold_all_(fold_all), strict_(strict) {}

  Status run() {
    if (Status status = run_graph(ir::kMainGraph); !status.ok()) return status;
    module_.erase_nodes(folded_);
    return {};
  }

  [[nodiscard]] uint32_t learned_values() const { return learned_values_; }
  [[nodiscard]] uint32_t folded_nodes() const { return uint32_t(folded_.size()); }

 private:
  Status run_graph(ir::GraphId graph) {
    const std::span<const NodeId> listed = module_.graph_nodes(graph);
    for (const NodeId node : std::vector<NodeId>(listed.begin(), listed.end())) {
      // A body reads what is known before its node; its node may use what the body yields.
      give_loop_inputs(node);
      for (const ir::GraphId nested : module_.nested_graphs(node)) {
        if (never_taken(node, nested)) continue;
        Status status = run_graph(nested);
        // Models guard what does not fit their shapes by a condition. While that is not known, the
        // branch may be one that is never taken; check_inference() has the last word.
        if (!status.ok() && (strict_ || module_.op(node) != "If")) return status;
      }
      if (Status status = visit(node); !status.ok()) return status;
    }
    return {};
  }

  // A branch whose condition is constant and says otherwise.
  [[nodiscard]] bool never_taken(NodeId node, ir::GraphId branch) const {
    if (!module_.domain(node).empty() || module_.op(node) != "If") return false;
    const std::span<const ValueId> inputs = module_.inputs(node);
    if (inputs.empty() || inputs[0] == ir::kNoValue) return false;
    const ir::TensorData* condition = module_.constant(inputs[0]);
    if (condition == nullptr || !condition->bytes || condition->bytes->empty()) return false;
    const bool taken = condition->bytes->front() != std::byte{0};
    const ir::AttributeValue* graph =
        module_.attribute(node, taken ? "else_branch" : "then_branch");
    const auto* other = graph == nullptr ? nullptr : std::get_if<ir::GraphId>(graph);
    return other != nullptr && *other == branch;
  }

  // The element types of a loop body's inputs, where the model leaves them out. Shapes may change
  // from one iteration to the next, so they are only what the model declares.
  void give_loop_inputs(NodeId node) {
    if (!module_.domain(node).empty() || module_.op(node) != "Loop") return;
    const std::vector<ir::GraphId> bodies = module_.nested_graphs(node);
    if (bodies.size() != 1) return;
    const std::span<const ValueId> parameters = module_.graph_inputs(bodies[0]);
    const std::span<const ValueId> inputs = module_.inputs(node);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (module_.dtype(parameters[i]) != DVT_DTYPE_NONE) continue;
      DvtDType dtype = i == 0 ? DVT_I64 : DVT_BOOL;
      if (i >= 2)
        dtype = i < inputs.size() && inputs[i] != ir::kNoValue ? module_.dtype(inputs[i])
                                                               : DvtDType{DVT_DTYPE_NONE};
      if (dtype == DVT_DTYPE_NONE) continue;
      module_.set_dtype(parameters[i], dtype);
      ++learned_values_;
    }
  }

  Status visit(NodeId node) {
    const ops::OperatorDefinition* definition = ops::find_operator(module_, node);
    if (definition == nullptr) return {};
    const ops::NodeView view(module_, node);
    if (Status status = check_arity(view, *definition); !status.ok()) return status;
    std::vector<ops::InferredOutput> inferred(module_.outputs(node).size());
    Status status = definition->infer(view, inferred);
    // A wrong type explains whatever infer() then found wrong, so it comes first.
    if (Status mistyped = view.attribute_status(); !mistyped.ok()) return mistyped;
    if (!status.ok()) return status;
    for (uint32_t i = 0; i < inferred.size(); ++i) {
      // By index: turning an output into a constant detaches it.
      const ValueId value = module_.outputs(node)[i];
      if (value == ir::kNoValue) continue;
      if (Status status = merge(node, value, inferred[i]); !status.ok()) return status;
      if (inferred[i].constant) set_constant(value, std::move(*inferred[i].constant));
    }
    if (Status status = fold(view, *definition); !status.ok()) return status;
    const std::span<const ValueId> outputs = module_.outputs(node);
    if (std::all_of(outputs.begin(), outputs.end(),
                    [](ValueId value) { return value == ir::kNoValue; })) {
      folded_.push_back(node);
    }
    return {};
  }

  static Status check_arity(const ops::NodeView& view, const ops::OperatorDefinition& definition) {
    const auto range = [](uint32_t min, uint32_t max) {
      if (max == UINT32_MAX) return "at least " + std::to_string(min);
      return std::to_string(min) + " to " + std::to_string(max);
    };
    const auto fail = [&](const char* what, std::string expected, uint32_t got) {
      Status status = view.error(DVT_INVALID_IMAGE, std::string("wrong number of ") + what);
      status.detail().expected = std::move(expected);
      status.detail().got = std::to_string(got);
      return status;
    };
    if (view.input_count() < definition.input_min || view.input_count() > definition.input_max) {
      return fail("inputs", range(definition.input_min, definition.input_max), view.input_count());
    }
    for (uint32_t i = 0; i < definition.input_min; ++i) {
      if (!view.has_input(i)) {
        return view.error(DVT_INVALID_IMAGE, "input " + std::to_string(i) + " is missing");
      }
    }
    if (view.output_count() > definition.output_max) {
      return fail("outputs", range(definition.output_min, definition.output_max),
                  view.output_count());
    }
    return {};
  }

  Status merge(NodeId node, ValueId value, const ops::InferredOutput& inferred) {
    const auto contradiction = [&](const char* what, std::string declared, std::string got) {
      ErrorDetail detail = module_.error_at(
          node, DVT_INVALID_IMAGE, DVT_STAGE_INFER,
          std::string("the model declares another ") + what + " than the operator yields");
      detail.tensor = module_.value_name(value);
      detail.expected = std::move(declared);
      detail.got = std::move(got);
      return Status(std::move(detail));
    };
    bool learned = false;
    if (inferred.dtype != DVT_DTYPE_NONE) {
      const DvtDType declared = module_.dtype(value);
      if (declared != DVT_DTYPE_NONE && declared != inferred.dtype) {
        return contradiction("element type", std::string(dtype_name(declared)),
                             std::string(dtype_name(inferred.dtype)));
      }
      learned = declared != inferred.dtype;
      module_.set_dtype(value, inferred.dtype);
    }
    if (inferred.shape) {
      const ir::Shape* declared = module_.shape(value);
      const std::optional<ir::Shape> merged =
          declared == nullptr ? inferred.shape : merge_shapes(*declared, *inferred.shape);
      if (!merged) {
        return contradiction("shape", ir::shape_text(module_, *declared),
                             ir::shape_text(module_, *inferred.shape));
      }
      if (declared == nullptr || !same(*declared, *merged)) {
        learned = true;
        module_.set_shape(value, *merged);
      }
    }
    learned_values_ += uint32_t(learned);
    return {};
  }

  // The more precise of each dim; nullopt when extents or ranks differ. Between two symbols the
  // declared one stays, so that a fixed point exists.
  static std::optional<ir::Shape> merge_shapes(const ir::Shape& declared,
                                               const ir::Shape& inferred) {
    if (declared.size() != inferred.size()) return std::nullopt;
    ir::Shape merged = declared;
    for (size_t i = 0; i < merged.size(); ++i) {
      if (merged[i].is_known()) {
        if (inferred[i].is_known() && !(inferred[i] == merged[i])) return std::nullopt;
      } else if (inferred[i].is_known() || !merged[i].is_symbol()) {
        merged[i] = inferred[i];
      }
    }
    return merged;
  }

  // As ==, but unknown equals unknown.
  static bool same(const ir::Shape& a, const ir::Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](Dim x, Dim y) {
      return x == y || (!x.is_known() && !x.is_symbol() && !y.is_known() && !y.is_symbol());
    });
  }

  Status fold(const ops::NodeView& view, const ops::OperatorDefinition& definition) {
    std::vector<const ir::TensorData*> inputs;
    uint64_t input_bytes = 0;
    for (const ValueId value : module_.inputs(view.id())) {
      inputs.push_back(value == ir::kNoValue ? nullptr : module_.constant(value));
      if (value == ir::kNoValue) continue;
      if (inputs.back() == nullptr) return {};
      input_bytes += data_bytes(*inputs.back());
    }
    // Definitions are functions of their inputs; a source without any is left to run time.
    if (view.input_count() == 0 || !module_.nested_graphs(view.id()).empty()) return {};
    if (!within_limits(view, input_bytes)) return {};
    Result<ops::Recipe> recipe = definition.recipe(view);
    if (Status mistyped = view.attribute_status(); !mistyped.ok()) return mistyped;
    if (!recipe.ok() || !(recipe->is_alias || affordable(definition.cost(view)))) return {};
    Result<std::vector<ir::TensorData>> results = ops::evaluate(view, inputs);
    // The node keeps its place, and its kernel reports the error if it is ever run.
    if (!results.ok()) return {};
    for (uint32_t i = 0; i < results->size(); ++i) {
      const ValueId value = module_.outputs(view.id())[i];
      ir::TensorData& data = (*results)[i];  // Without a dtype: not computed by this recipe.
      if (value != ir::kNoValue && data.dtype != DVT_DTYPE_NONE)
        set_constant(value, std::move(data));
    }
    return {};
  }

  [[nodiscard]] bool within_limits(const ops::NodeView& view, uint64_t input_bytes) const {
    uint64_t limit = kShapeDataBytesMax;
    if (fold_all_) limit = std::min(kFoldBytesMax, input_bytes * kFoldGrowthMax + kFoldSlackBytes);
    const std::span<const ValueId> outputs = module_.outputs(view.id());
    bool any = false;
    for (uint32_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == ir::kNoValue) continue;
      any = true;
      const auto extents = view.output_extents(i);
      if (!extents) return false;
      const auto elements = checked_elements(*extents);
      const auto bytes = checked_mul(elements.value_or(UINT64_MAX),
                                     std::max(1U, dvt_dtype_size(view.output_dtype(i))));
      if (!elements || !bytes || *bytes > limit) return false;
    }
    return any;
  }

  static bool affordable(const DvtTaskCost& cost) {
    uint64_t products = 1;
    for (const uint64_t factor : {cost.batch, cost.m, cost.n, cost.k}) {
      const auto next = checked_mul(products, std::max<uint64_t>(factor, 1));
      if (!next) return false;
      products = *next;
    }
    return products <= kFoldProductsMax;
  }

  void set_constant(ValueId value, ir::TensorData data) {
    module_.set_constant(value, std::move(data));
    ++learned_values_;
  }

  ir::Module& module_;
  const bool fold_all_;
  const bool strict_;
  uint32_t learned_values_ = 0;
  std::vector<NodeId> folded_;
};

}  // namespace

Result<uint32_t> infer_shapes(ir::Module& module) {
  Sweep sweep(module, false);
  if (Status status = sweep.run(); !status.ok()) return status;
  return sweep.learned_values();
}

Status check_inference(ir::Module& module) {
  return Sweep(module, false, true).run();
}

Result<uint32_t> fold_constants(ir::Module& module) {
  Sweep sweep(module, true);
  if (Status status = sweep.run(); !status.ok()) return status;
  return sweep.folded_nodes();
}

}  // namespace davit::passes
