// lift_tables: lists of any length, which a kernel takes as inputs, leave the attributes.
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::NodeId;
using ir::ValueId;

struct Table {
  const char* attribute;
  DvtDType dtype;
};
// What an operator lifts, once it has the first; in the order of its kernel's inputs.
struct Tables {
  std::string_view op;
  std::span<const Table> tables;
};
constexpr Table kTfIdf[] = {{"pool_int64s", DVT_I64},
                            {"ngram_counts", DVT_I64},
                            {"ngram_indexes", DVT_I64},
                            {"weights", DVT_F32}};
constexpr Table kNormalizer[] = {{"stopwords", DVT_STRING}};
constexpr Tables kOperators[] = {{"TfIdfVectorizer", kTfIdf}, {"StringNormalizer", kNormalizer}};

const Tables* tables_of(const ir::Module& module, NodeId node) {
  for (const Tables& tables : kOperators) {
    if (is_op(module, node, tables.op) && module.inputs(node).size() == 1 &&
        module.attribute(node, tables.tables[0].attribute) != nullptr) {
      return &tables;
    }
  }
  return nullptr;
}

template <class T>
ir::TensorData tensor_of(DvtDType dtype, const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return ir::make_tensor(dtype, {static_cast<int64_t>(values.size())},
                         {begin, begin + values.size() * sizeof(T)});
}

// The list as a tensor. An absent one is an absent input, as is one that no kernel can take:
// inference refuses lists of other types, and the recipe those that were not lifted.
std::optional<ir::TensorData> read_table(const ir::Module& module, NodeId node,
                                         const Table& table) {
  const ir::AttributeValue* value = module.attribute(node, table.attribute);
  if (value == nullptr) return std::nullopt;
  const auto* integers = std::get_if<std::vector<int64_t>>(value);
  const auto* floats = std::get_if<std::vector<float>>(value);
  const auto* strings = std::get_if<std::vector<std::string>>(value);
  if (table.dtype == DVT_I64 && integers != nullptr) return tensor_of(DVT_I64, *integers);
  if (table.dtype == DVT_F32 && floats != nullptr && !floats->empty()) {
    return tensor_of(DVT_F32, *floats);
  }
  if (table.dtype == DVT_STRING && strings != nullptr && !strings->empty()) {
    return ir::make_string_tensor({int64_t(strings->size())}, *strings);
  }
  return std::nullopt;
}

// The inputs behind X.
std::vector<ValueId> lift(Rewriter& rewriter, NodeId node, std::span<const Table> tables) {
  std::vector<ValueId> inputs = {rewriter.module().inputs(node)[0]};
  const ir::GraphId graph = rewriter.module().node_graph(node);
  for (const Table& table : tables) {
    const std::string name = rewriter.module().local_name(node) + "." + table.attribute;
    auto data = read_table(rewriter.module(), node, table);
    inputs.push_back(data ? rewriter.add_constant(graph, name, std::move(*data)) : ir::kNoValue);
  }
  while (inputs.back() == ir::kNoValue) inputs.pop_back();
  return inputs;
}

}  // namespace

Result<uint32_t> lift_tables(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    const Tables* tables = tables_of(module, node);
    if (tables == nullptr) continue;
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
    init.inputs = lift(rewriter, node, tables->tables);
    if (init.inputs.size() == 1) continue;
    rewriter.add_node(module.node_graph(node), std::move(init));
    rewriter.strike(node);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
