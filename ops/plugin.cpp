#include "ops/plugin.hpp"

#include <array>
#include <cstring>
#include <variant>

#include "base/dtype.hpp"
#include "ops/defs/common.hpp"
#include "ops/defs/scratch.hpp"

namespace davit::ops {
namespace {

const PluginOperators& operators_of(const NodeView& node) {
  return *node.module().plugin_operators;
}

const DvtPluginOperator& record_of(const NodeView& node) {
  const ir::Module& module = node.module();
  return *operators_of(node).record(module.domain(node.id()), module.op(node.id()),
                                    module.opset_version(node.id()));
}

// ---- Attributes ---------------------------------------------------------------------------------

struct Lists {
  std::vector<int64_t> integers;
  std::vector<double> reals;
};

// The value of an attribute as numbers; nullopt for strings, tensors and graphs.
std::optional<Lists> numbers_of(const ir::AttributeValue& value) {
  Lists lists;
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    lists.integers = {*integer};
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    lists.integers = *integers;
  } else if (const auto* real = std::get_if<float>(&value)) {
    lists.reals = {double(*real)};
  } else if (const auto* reals = std::get_if<std::vector<float>>(&value)) {
    lists.reals.assign(reals->begin(), reals->end());
  } else {
    return std::nullopt;
  }
  return lists;
}

const DvtAttribute* member_named(const DvtKernel& kernel, std::string_view name) {
  for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
    if (name == kernel.attributes[i].name) return &kernel.attributes[i];
  }
  return nullptr;
}

// Writes an attribute of the node into the record.
Status fill_member(const NodeView& node, const DvtKernel& kernel, const ir::Attribute& attribute,
                   std::vector<std::byte>& record) {
  const DvtAttribute* member = member_named(kernel, attribute.name);
  const auto lists = numbers_of(attribute.value);
  if (member == nullptr || !lists) {
    return node.error(DVT_UNSUPPORTED, "attribute " + attribute.name + " is nothing that kernel " +
                                           kernel.name + " has");
  }
  const bool is_integer = member->kind == 'i';
  const size_t count = is_integer ? lists->integers.size() : lists->reals.size();
  if (count > member->count || (is_integer ? !lists->reals.empty() : !lists->integers.empty())) {
    return mismatch(
        node, "attribute " + attribute.name + " does not fit kernel " + kernel.name,
        "at most " + std::to_string(member->count) + (is_integer ? " integers" : " real numbers"),
        std::to_string(lists->integers.size() + lists->reals.size()) +
            (lists->reals.empty() ? " integers" : " real numbers"));
  }
  std::byte* to = record.data() + member->offset;
  std::memset(to, 0, 8U * member->count);
  if (count > 0) {
    std::memcpy(to,
                is_integer ? static_cast<const void*>(lists->integers.data())
                           : static_cast<const void*>(lists->reals.data()),
                8 * count);
  }
  const DvtAttribute* length = member_named(kernel, attribute.name + "_count");
  if (length != nullptr && length->kind == 'i') {
    const auto number = int64_t(count);
    std::memcpy(record.data() + length->offset, &number, sizeof number);
  }
  return {};
}

// ---- The functions of a definition --------------------------------------------------------------

Result<Recipe> recipe_plugin(const NodeView& node) {
  const DvtPluginOperator& op = record_of(node);
  const DvtKernel* kernel = operators_of(node).find_kernel(op.kernel, node.input_dtype(0));
  if (kernel == nullptr) {
    return node.error(DVT_UNSUPPORTED, "there is no kernel " + std::string(op.kernel) + "." +
                                           std::string(dtype_name(node.input_dtype(0))));
  }
  std::vector<std::byte> record(kernel->attribute_bytes);
  if (op.default_attributes != nullptr && !record.empty()) {
    std::memcpy(record.data(), op.default_attributes, record.size());
  }
  for (const ir::Attribute& attribute : node.module().attributes(node.id())) {
    Status status = fill_member(node, *kernel, attribute, record);
    if (!status.ok()) return status;
  }
  Recipe recipe = plain_recipe(node, kernel, std::move(record));
  Status status = add_workspaces(node, recipe, op.workspace_count);
  if (!status.ok()) return status;
  return recipe;
}

// The dtype is asked of the plug-in, shapes of the kernel once it knows what it needs.
Status infer_plugin(const NodeView& node, std::span<InferredOutput> outputs) {
  const DvtPluginOperator& op = record_of(node);
  std::vector<DvtDType> dtypes;
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    dtypes.push_back(node.input_dtype(i));
    if (node.has_input(i) && dtypes[i] == DVT_DTYPE_NONE) return {};
  }
  if (dtypes.empty()) dtypes.push_back(DVT_DTYPE_NONE);
  const auto inputs = uint32_t(node.input_count());
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    outputs[i].dtype =
        op.output_dtype == nullptr ? dtypes[0] : op.output_dtype(dtypes.data(), inputs, i);
    if (dvt_dtype_size(outputs[i].dtype) == 0) {
      return node.error(DVT_UNSUPPORTED, "the plug-in has no dtype for output " +
                                             std::to_string(i) + " of these inputs");
    }
  }
  auto recipe = recipe_plugin(node);
  if (!recipe.ok()) return std::move(recipe.status());
  return infer_by_kernel(node, *recipe, outputs);
}

DvtTaskCost cost_plugin(const NodeView& node) {
  const DvtTaskCost cost = cost_of_kernel(node);
  if (cost.kind != DVT_TASK_NONE) return cost;
  constexpr uint64_t kOnePass = 100;
  return vector_cost(node, element_count(node.output_extents(0)), kOnePass);
}

OperatorDefinition definition_of(const DvtPluginOperator& op) {
  const uint32_t input_max = op.input_max == DVT_PLUGIN_VARIADIC ? UINT32_MAX : op.input_max;
  return {op.domain,     op.name,       op.since_version, op.until_version, op.input_min, input_max,
          op.output_min, op.output_max, infer_plugin,     recipe_plugin,    cost_plugin};
}

}  // namespace

Result<std::shared_ptr<PluginOperators>> PluginOperators::create(
    std::span<const DvtPlugin* const> plugins) {
  auto result = std::make_shared<PluginOperators>();
  for (const DvtPlugin* plugin : plugins) {
    result->tables_.push_back(plugin->kernels);
    for (size_t i = 0; i < plugin->source_count; ++i) {
      result->sources_.push_back(&plugin->sources[i]);
    }
    for (size_t i = 0; i < plugin->operator_count; ++i) {
      const DvtPluginOperator& op = plugin->operators[i];
      for (const Entry& other : result->entries_) {
        const bool apart = other.record->until_version < op.since_version ||
                           op.until_version < other.record->since_version;
        if (apart || other.definition.domain != op.domain || other.definition.name != op.name) {
          continue;
        }
        return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD,
                      "plug-in '" + std::string(plugin->name) + "': operator " + op.domain +
                          "::" + op.name + " is there already for some of its versions");
      }
      result->entries_.push_back({definition_of(op), &op});
    }
  }
  return result;
}

const PluginOperators::Entry* PluginOperators::entry(std::string_view domain, std::string_view name,
                                                     int64_t version) const {
  for (const Entry& each : entries_) {
    if (each.definition.domain == domain && each.definition.name == name &&
        version >= each.definition.since_version && version <= each.definition.until_version) {
      return &each;
    }
  }
  return nullptr;
}

const OperatorDefinition* PluginOperators::find(std::string_view domain, std::string_view name,
                                                int64_t version) const {
  const Entry* found = entry(domain, name, version);
  return found == nullptr ? nullptr : &found->definition;
}

const DvtPluginOperator* PluginOperators::record(std::string_view domain, std::string_view name,
                                                 int64_t version) const {
  const Entry* found = entry(domain, name, version);
  return found == nullptr ? nullptr : found->record;
}

const DvtPluginSource* PluginOperators::find_source(std::string_view kernel) const {
  for (const DvtPluginSource* source : sources_) {
    if (kernel == source->kernel) return source;
  }
  return nullptr;
}

const DvtKernel* PluginOperators::find_kernel(std::string_view base, DvtDType dtype) const {
  const std::string typed = std::string(base) + "." + std::string(dtype_name(dtype));
  for (const std::string_view name : {std::string_view(typed), base}) {
    for (const DvtKernelTable& table : tables_) {
      for (size_t i = 0; i < table.count; ++i) {
        if (name == table.kernels[i].name) return &table.kernels[i];
      }
    }
  }
  return nullptr;
}

}  // namespace davit::ops
