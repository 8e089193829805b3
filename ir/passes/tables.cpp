// lift_tables: lists of any length, which a kernel takes as inputs, leave the attributes.
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

// TfIdfVectorizer's, in the order of ops/kernels/tfidf.h.
struct Table {
  const char* attribute;
  DvtDType dtype;
};
constexpr Table kTables[] = {{"pool_int64s", DVT_I64},
                             {"ngram_counts", DVT_I64},
                             {"ngram_indexes", DVT_I64},
                             {"weights", DVT_F32}};

template <class T>
ir::TensorData tensor_of(DvtDType dtype, const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return ir::make_tensor(dtype, {static_cast<int64_t>(values.size())},
                         {begin, begin + values.size() * sizeof(T)});
}

// The inputs behind X. An absent list is an absent input; inference refuses lists of other types.
std::vector<ValueId> lift(Rewriter& rewriter, NodeId node) {
  std::vector<ValueId> inputs = {rewriter.module().inputs(node)[0]};
  const ir::GraphId graph = rewriter.module().node_graph(node);
  for (const Table& table : kTables) {
    const ir::AttributeValue* value = rewriter.module().attribute(node, table.attribute);
    const auto* integers = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
    const auto* floats = value == nullptr ? nullptr : std::get_if<std::vector<float>>(value);
    const std::string name = rewriter.module().local_name(node) + "." + table.attribute;
    if (table.dtype == DVT_I64 && integers != nullptr) {
      inputs.push_back(rewriter.add_constant(graph, name, tensor_of(DVT_I64, *integers)));
    } else if (table.dtype == DVT_F32 && floats != nullptr && !floats->empty()) {
      inputs.push_back(rewriter.add_constant(graph, name, tensor_of(DVT_F32, *floats)));
    } else {
      inputs.push_back(ir::kNoValue);
    }
  }
  while (inputs.back() == ir::kNoValue) inputs.pop_back();
  return inputs;
}

}  // namespace

Result<uint32_t> lift_tables(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    const bool has_pool = module.attribute(node, "pool_int64s") != nullptr;
    if (!is_op(module, node, "TfIdfVectorizer") || module.inputs(node).size() != 1 || !has_pool) {
      continue;
    }
    if (rewriter.has_control_edges(node)) {
      refusals.push_back({"lift_tables", module.node_path(node), "it has control edges"});
      continue;
    }
    const auto outputs = module.outputs(node);
    const auto attributes = module.attributes(node);
    ir::Module::NodeInit init = {.domain = std::string(module.domain(node)),
                                 .op = std::string(module.op(node)),
                                 .name = std::string(module.node_name(node)),
                                 .inputs = {},
                                 .outputs = {outputs.begin(), outputs.end()},
                                 .attributes = {attributes.begin(), attributes.end()},
                                 .opset = module.own_opset(node)};
    init.inputs = lift(rewriter, node);
    rewriter.add_node(module.node_graph(node), std::move(init));
    rewriter.strike(node);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
