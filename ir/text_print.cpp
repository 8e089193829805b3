#include <charconv>
#include <cmath>
#include <unordered_set>

#include "base/dtype.hpp"
#include "ir/text.hpp"
#include "ir/text_words.hpp"

namespace davit::ir {
namespace {

// Tensors with more elements are printed as hex.
constexpr uint64_t kInlineElementsMax = 32;

std::string quoted(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string word(std::string_view text) {
  return text::is_word(text) ? std::string(text) : quoted(text);
}

template <class T>
std::string number(T value) {
  char buffer[64];
  const auto result = std::to_chars(std::begin(buffer), std::end(buffer), value);
  return {buffer, result.ptr};
}

template <class Range, class Print>
std::string list(const Range& items, Print print) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += ", ";
    out += print(item);
  }
  return out;
}

template <class T>
std::string elements(const TensorData& data) {
  return "{" + list(data.as<T>(), [](T value) { return number(value); }) + "}";
}

template <class T>
bool all_finite(const TensorData& data) {
  for (const T value : data.as<T>()) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

std::string hex(const TensorData& data) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "hex \"";
  out.reserve(out.size() + data.bytes->size() * 2 + 1);
  for (const std::byte byte : *data.bytes) {
    out += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    out += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return out + '"';
}

std::string data_text(const TensorData& data) {
  if (data.dtype == DVT_STRING) return "{" + list(strings_of(data), quoted) + "}";
  if (data.element_count() > kInlineElementsMax) return hex(data);
  switch (data.dtype) {
    case DVT_F32:
      return all_finite<float>(data) ? elements<float>(data) : hex(data);
    case DVT_F64:
      return all_finite<double>(data) ? elements<double>(data) : hex(data);
    case DVT_U8:
    case DVT_BOOL:
      return elements<uint8_t>(data);
    case DVT_I8:
      return elements<int8_t>(data);
    case DVT_U16:
      return elements<uint16_t>(data);
    case DVT_I16:
      return elements<int16_t>(data);
    case DVT_U32:
      return elements<uint32_t>(data);
    case DVT_I32:
      return elements<int32_t>(data);
    case DVT_U64:
      return elements<uint64_t>(data);
    case DVT_I64:
      return elements<int64_t>(data);
    default:
      return hex(data);
  }
}

std::string constant_type(const TensorData& data) {
  return std::string(dtype_name(data.dtype)) + "[" + list(data.dims, number<int64_t>) + "]";
}

class Printer {
 public:
  explicit Printer(const Module& module)
      : module_(module),
        identifiers_(module.value_count()),
        constants_(module.graph_count()),
        labels_(module.node_count(), 0) {
    for (uint32_t v = 0; v < module.value_count(); ++v) {
      const ValueId value{v};
      if (module.value_alive(value) && module.constant(value) != nullptr) {
        constants_[index_of(module.value_graph(value))].push_back(value);
      }
    }
    identify_graph(kMainGraph);
    uint32_t label = 0;
    for (uint32_t n = 0; n < module.node_count(); ++n) {
      for (const NodeId before : module.control_inputs(NodeId{n})) {
        uint32_t& slot = labels_[index_of(before)];
        if (slot == 0) slot = ++label;
      }
    }
  }

  std::string run() {
    out_ = "davit-ir 1\n";
    out_ += "source " + quoted(module_.source_name) + " " + quoted(module_.source_digest) + "\n";
    for (const auto& [domain, version] : module_.opset_imports) {
      out_ += "opset " + quoted(domain) + " " + std::to_string(version) + "\n";
    }
    out_ += "graph " + quoted(module_.graph_name(kMainGraph)) + " ";
    print_graph(kMainGraph);
    out_ += '\n';
    return std::move(out_);
  }

 private:
  // In the order of the text, so that it depends on the module's content only.
  void identify_graph(GraphId graph) {
    for (const ValueId value : module_.graph_inputs(graph)) identify(value);
    for (const ValueId value : constants_[index_of(graph)]) identify(value);
    for (const NodeId node : module_.graph_nodes(graph)) {
      for (const ValueId value : module_.outputs(node)) {
        if (value != kNoValue) identify(value);
      }
      for (const GraphId nested : module_.nested_graphs(node)) identify_graph(nested);
    }
  }

  void identify(ValueId value) {
    const std::string_view name = module_.value_name(value);
    const bool plain = text::is_identifier(name) && taken_.insert(name).second;
    identifiers_[index_of(value)] = "%" + (plain ? std::string(name) : std::to_string(numbered_++));
  }

  void line() { out_.append("\n").append(size_t{2} * depth_, ' '); }

  // "%x", "%5 \"odd name\"".
  [[nodiscard]] std::string definition(ValueId value) const {
    const std::string& identifier = identifiers_[index_of(value)];
    const std::string_view name = module_.value_name(value);
    if (std::string_view(identifier).substr(1) == name) return identifier;
    return identifier + " " + quoted(name);
  }

  [[nodiscard]] std::string typed_definition(ValueId value) const {
    std::string out = definition(value);
    const Shape* shape = module_.shape(value);
    const DvtDType dtype = module_.dtype(value);
    if (shape == nullptr && dtype == DVT_DTYPE_NONE) return out;
    out += ": ";
    out += dtype_name(dtype);
    if (shape != nullptr) out += shape_text(module_, *shape);
    return out;
  }

  [[nodiscard]] std::string use(ValueId value) const {
    return value == kNoValue ? "_" : identifiers_[index_of(value)];
  }

  void print_graph(GraphId graph) {
    out_ += "{";
    ++depth_;
    for (const ValueId value : module_.graph_inputs(graph)) {
      line();
      out_ += "input " + typed_definition(value);
    }
    for (const ValueId value : constants_[index_of(graph)]) {
      const TensorData& data = *module_.constant(value);
      line();
      out_ += "const " + definition(value) + ": " + constant_type(data) + " = " + data_text(data);
    }
    for (const NodeId node : module_.graph_nodes(graph)) print_node(node);
    line();
    out_ +=
        "output (" + list(module_.graph_outputs(graph), [&](ValueId v) { return use(v); }) + ")";
    --depth_;
    line();
    out_ += "}";
  }

  void print_node(NodeId node) {
    line();
    if (const uint32_t label = labels_[index_of(node)]) out_ += "#" + std::to_string(label) + ": ";
    out_ += "(" +
            list(module_.outputs(node),
                 [&](ValueId value) {
                   return value == kNoValue ? std::string("_") : typed_definition(value);
                 }) +
            ") = ";
    if (!module_.domain(node).empty()) out_ += word(module_.domain(node)) + "::";
    out_ += word(module_.op(node)) + " ";
    if (const int64_t opset = module_.own_opset(node)) out_ += "opset " + number(opset) + " ";
    out_ += quoted(module_.node_name(node)) + " (";
    out_ += list(module_.inputs(node), [&](ValueId value) { return use(value); }) + ")";
    print_attributes(node);
    if (module_.control_inputs(node).empty()) return;
    out_ += " after (" +
            list(module_.control_inputs(node),
                 [&](NodeId before) { return "#" + std::to_string(labels_[index_of(before)]); }) +
            ")";
  }

  void print_attributes(NodeId node) {
    if (module_.attributes(node).empty()) return;
    out_ += " {";
    ++depth_;
    for (const Attribute& attribute : module_.attributes(node)) {
      line();
      out_ += word(attribute.name) + " = ";
      std::visit([&](const auto& value) { print_value(value); }, attribute.value);
    }
    --depth_;
    line();
    out_ += "}";
  }

  void print_value(int64_t value) { out_ += "int " + number(value); }
  void print_value(float value) { out_ += "float " + number(value); }
  void print_value(const std::string& value) { out_ += "string " + quoted(value); }
  void print_value(const std::vector<int64_t>& values) {
    out_ += "ints [" + list(values, number<int64_t>) + "]";
  }
  void print_value(const std::vector<float>& values) {
    out_ += "floats [" + list(values, number<float>) + "]";
  }
  void print_value(const std::vector<std::string>& values) {
    out_ += "strings [" + list(values, quoted) + "]";
  }
  void print_value(const TensorData& data) {
    out_ += "tensor " + constant_type(data) + " = " + data_text(data);
  }
  void print_value(GraphId graph) {
    out_ += "graph ";
    print_graph(graph);
  }
  void print_value(const std::vector<GraphId>& graphs) {
    out_ += "graphs [";
    for (size_t i = 0; i < graphs.size(); ++i) {
      if (i != 0) out_ += ", ";
      print_graph(graphs[i]);
    }
    out_ += "]";
  }

  const Module& module_;
  std::vector<std::string> identifiers_;         // By value, "%" included.
  std::vector<std::vector<ValueId>> constants_;  // By graph.
  std::vector<uint32_t> labels_;                 // By node; 0: none.
  std::unordered_set<std::string_view> taken_;
  uint32_t numbered_ = 0;
  std::string out_;
  uint32_t depth_ = 0;
};

}  // namespace

std::string print_text(const Module& module) {
  return Printer(module).run();
}

std::string shape_text(const Module& module, const Shape& shape) {
  return "[" +
         list(shape,
              [&](Dim dim) {
                if (dim.is_known()) return number(dim.extent());
                return dim.is_symbol() ? word(module.symbol_name(dim.symbol_id()))
                                       : std::string("?");
              }) +
         "]";
}

}  // namespace davit::ir
