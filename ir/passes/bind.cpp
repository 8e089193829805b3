// What the user fixes: extents of free dimensions, and inputs that become constants.
#include <optional>

#include "base/dtype.hpp"
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"
#include "ir/passes/sequences.hpp"
#include "ir/text.hpp"

namespace davit::passes {
namespace {

using ir::Dim;
using ir::ValueId;

std::string extents_text(std::span<const int64_t> extents) {
  std::string text = "[";
  for (const int64_t extent : extents) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

Status bind_error(std::string message, std::string tensor, std::string expected = {},
                  std::string got = {}) {
  return Status({.code = DVT_INVALID_ARGUMENT,
                 .stage = DVT_STAGE_CHECK,
                 .message = std::move(message),
                 .tensor = std::move(tensor),
                 .expected = std::move(expected),
                 .got = std::move(got)});
}

// Collects extents of symbols and puts them everywhere at the end.
class Binder {
 public:
  explicit Binder(ir::Module& module) : module_(module) {}

  // The input of the main graph called `name`.
  Result<ValueId> find_input(const std::string& name) const {
    std::string known;
    for (const ValueId input : module_.graph_inputs(ir::kMainGraph)) {
      if (module_.value_name(input) == name) return input;
      if (!known.empty()) known += ", ";
      known += module_.value_name(input);
    }
    return bind_error("the model has no input of this name", name, "one of: " + known);
  }

  Status bind_symbol(ir::SymbolId symbol, int64_t extent) {
    const auto [entry, added] = extents_.emplace(ir::index_of(symbol), extent);
    if (added || entry->second == extent) return {};
    return bind_error(
        "dimension '" + std::string(module_.symbol_name(symbol)) + "' would have two extents", {},
        std::to_string(entry->second), std::to_string(extent));
  }

  Status bind_named(const std::string& name, int64_t extent) {
    if (extent < 0) return bind_error("the extent of '" + name + "' is negative", {});
    const std::optional<ir::SymbolId> symbol = used_symbol(name);
    if (!symbol)
      return bind_error("no tensor of the model has a dimension named '" + name + "'", {});
    return bind_symbol(*symbol, extent);
  }

  Status bind_value(ValueId value, std::span<const int64_t> extents) {
    const std::string name(module_.value_name(value));
    ir::Shape bound;
    for (const int64_t extent : extents) {
      if (extent < 0) return bind_error("an extent is negative", name, {}, extents_text(extents));
      bound.emplace_back(extent);
    }
    const ir::Shape* declared = module_.shape(value);
    bool fits = declared == nullptr || declared->size() == bound.size();
    for (size_t i = 0; fits && declared != nullptr && i < bound.size(); ++i) {
      const Dim dim = (*declared)[i];
      fits = !dim.is_known() || dim.extent() == extents[i];
      if (!dim.is_symbol()) continue;
      if (Status status = bind_symbol(dim.symbol_id(), extents[i]); !status.ok()) {
        status.detail().tensor = name;
        return status;
      }
    }
    if (!fits) {
      return bind_error("the shape given does not fit the model's", name,
                        ir::shape_text(module_, *declared), extents_text(extents));
    }
    module_.set_shape(value, std::move(bound));
    return {};
  }

  void substitute() {
    for (uint32_t v = 0; v < module_.value_count(); ++v) {
      const ir::Shape* shape =
          module_.value_alive(ValueId{v}) ? module_.shape(ValueId{v}) : nullptr;
      if (shape == nullptr) continue;
      ir::Shape bound = *shape;
      bool changed = false;
      for (Dim& dim : bound) {
        if (!dim.is_symbol()) continue;
        const auto found = extents_.find(ir::index_of(dim.symbol_id()));
        if (found == extents_.end()) continue;
        dim = Dim(found->second);
        changed = true;
      }
      if (changed) module_.set_shape(ValueId{v}, std::move(bound));
    }
  }

 private:
  [[nodiscard]] std::optional<ir::SymbolId> used_symbol(const std::string& name) const {
    for (uint32_t v = 0; v < module_.value_count(); ++v) {
      const ir::Shape* shape =
          module_.value_alive(ValueId{v}) ? module_.shape(ValueId{v}) : nullptr;
      if (shape == nullptr) continue;
      for (const Dim dim : *shape) {
        if (dim.is_symbol() && module_.symbol_name(dim.symbol_id()) == name) return dim.symbol_id();
      }
    }
    return std::nullopt;
  }

  ir::Module& module_;
  std::map<uint32_t, int64_t> extents_;
};

// What an input that is no tensor becomes.
class ElementBinder {
 public:
  explicit ElementBinder(ir::Module& module) : rewriter_(module), module_(module) {}

  // `count` as in bind_elements().
  Status bind(ValueId value, const ir::ContainerType& type, int64_t count) {
    const bool fits = type.is_sequence ? count >= 0 && count <= kElementsMax : count == 1;
    if (!fits && !(type.is_optional && count == kAbsent)) {
      return bind_error("the input cannot hold that many tensors",
                        std::string(module_.value_name(value)), expected(type),
                        std::to_string(count));
    }
    if (type.is_sequence && count != kAbsent) {
      make(value, count == 0 ? "SequenceEmpty" : "SequenceConstruct",
           add_inputs(value, type, count));
    } else if (count == kAbsent) {
      make(value, "Optional", {});
    } else {
      module_.add_graph_input(ir::kMainGraph, value);
      module_.set_dtype(value, type.dtype);
      if (type.shape) module_.set_shape(value, *type.shape);
    }
    return {};
  }

  static std::string expected(const ir::ContainerType& type) {
    const std::string present = type.is_sequence ? "0 to " + std::to_string(kElementsMax) : "1";
    return type.is_optional ? present + ", or none" : present;
  }

 private:
  std::vector<ValueId> add_inputs(ValueId value, const ir::ContainerType& type, int64_t count) {
    const std::string name(module_.value_name(value));
    std::vector<ValueId> inputs;
    for (int64_t i = 0; i < count; ++i) {
      inputs.push_back(rewriter_.add_value(ir::kMainGraph, name + "[" + std::to_string(i) + "]",
                                           type.dtype, nameless(type.shape)));
      module_.add_graph_input(ir::kMainGraph, inputs.back());
    }
    return inputs;
  }

  void make(ValueId value, const char* op, std::vector<ValueId> inputs) {
    module_.set_container(value, std::nullopt);
    rewriter_.add_node(ir::kMainGraph, {.op = op,
                                        .name = std::string(module_.value_name(value)),
                                        .inputs = std::move(inputs),
                                        .outputs = {value},
                                        .attributes = {},
                                        .opset = 16});
  }

  Rewriter rewriter_;
  ir::Module& module_;
};

}  // namespace

Status bind_elements(ir::Module& module, const std::map<std::string, int64_t>& elements) {
  const Binder binder(module);
  for (const auto& [name, count] : elements) {
    const Result<ValueId> input = binder.find_input(name);
    if (!input.ok()) return Status(input.status().detail());
    if (module.container(*input) != nullptr) continue;
    return bind_error("the input is a tensor, neither sequence nor optional", name);
  }
  const auto span = module.graph_inputs(ir::kMainGraph);
  const std::vector<ValueId> inputs(span.begin(), span.end());
  ElementBinder element_binder(module);
  for (const ValueId value : inputs) {
    // Again at the end, so that the order stays.
    module.remove_graph_input(ir::kMainGraph, value);
    if (module.container(value) == nullptr) {
      module.add_graph_input(ir::kMainGraph, value);
      continue;
    }
    const ir::ContainerType type = *module.container(value);
    const std::string name(module.value_name(value));
    const auto entry = elements.find(name);
    if (entry == elements.end()) {
      Status status = bind_error(
          type.is_sequence ? "how many tensors the input holds must be known when it is compiled"
                           : "whether the input is there must be known when it is compiled",
          name, ElementBinder::expected(type));
      status.detail().code = DVT_UNSUPPORTED;
      status.detail().hint = "--elements " + name + (type.is_sequence ? "=2" : "=1");
      return status;
    }
    if (Status status = element_binder.bind(value, type, entry->second); !status.ok()) {
      return status;
    }
  }
  return module.sort();
}

Status bind_shapes(ir::Module& module, const ShapeBindings& bindings) {
  Binder binder(module);
  for (const auto& [name, extent] : bindings.symbols) {
    if (Status status = binder.bind_named(name, extent); !status.ok()) return status;
  }
  for (const auto& [name, extents] : bindings.shapes) {
    Result<ValueId> input = binder.find_input(name);
    if (!input.ok()) return std::move(input.status());
    if (Status status = binder.bind_value(*input, extents); !status.ok()) return status;
  }
  binder.substitute();
  return {};
}

Status freeze_inputs(ir::Module& module, const std::map<std::string, ir::TensorData>& data) {
  Binder binder(module);
  for (const auto& [name, tensor] : data) {
    Result<ValueId> input = binder.find_input(name);
    if (!input.ok()) return std::move(input.status());
    const DvtDType declared = module.dtype(*input);
    if (declared != tensor.dtype) {
      return bind_error("the data to freeze has another element type than the input", name,
                        std::string(dtype_name(declared)), std::string(dtype_name(tensor.dtype)));
    }
    if (Status status = binder.bind_value(*input, tensor.dims); !status.ok()) return status;
    module.set_constant(*input, tensor);
  }
  binder.substitute();
  return {};
}

}  // namespace davit::passes
