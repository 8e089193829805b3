#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "ir/text.hpp"
#include "ir/text_words.hpp"
#include "ir/verify.hpp"

namespace davit::ir {
namespace {

constexpr uint32_t kNestingMax = 32;

enum class TokenKind { kEnd, kWord, kString, kNumber, kValue, kLabel, kPunctuation, kBad };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view spelling;
  std::string text;  // A string's content; an identifier without its mark.
  size_t offset = 0;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Token next() {
    while (at_ < source_.size() && std::strchr(" \t\r\n", source_[at_]) != nullptr) ++at_;
    Token token;
    token.offset = at_;
    if (at_ == source_.size()) return token;
    const char c = source_[at_];
    if (c == '"') {
      string(token);
    } else if (c == '%') {
      marked(token, TokenKind::kValue, text::is_identifier_char);
    } else if (c == '#') {
      marked(token, TokenKind::kLabel, text::is_digit);
    } else if (text::is_digit(c) || c == '-') {
      token.kind = TokenKind::kNumber;
      at_ += 1;
      take([](char d) { return text::is_word_char(d) || d == '-' || d == '+'; });
    } else if (text::is_letter(c)) {
      token.kind = TokenKind::kWord;
      take(text::is_word_char);
    } else {
      token.kind = TokenKind::kPunctuation;
      at_ += source_.substr(at_).starts_with("::") ? 2 : 1;
    }
    token.spelling = source_.substr(token.offset, at_ - token.offset);
    if (token.kind == TokenKind::kWord) token.text = token.spelling;
    return token;
  }

  // "line 3, column 7".
  [[nodiscard]] std::string position(size_t offset) const {
    size_t line = 1;
    size_t column = 1;
    for (const char c : source_.substr(0, offset)) {
      column = c == '\n' ? 1 : column + 1;
      line += size_t(c == '\n');
    }
    return "line " + std::to_string(line) + ", column " + std::to_string(column);
  }

 private:
  template <class Accept>
  void take(Accept accept) {
    while (at_ < source_.size() && accept(source_[at_])) ++at_;
  }

  template <class Accept>
  void marked(Token& token, TokenKind kind, Accept accept) {
    const size_t begin = ++at_;
    take(accept);
    token.text = source_.substr(begin, at_ - begin);
    token.kind = token.text.empty() ? TokenKind::kBad : kind;
  }

  void string(Token& token) {
    token.kind = TokenKind::kBad;  // Until the closing quote.
    for (++at_; at_ < source_.size(); ++at_) {
      const char c = source_[at_];
      if (c == '"') {
        ++at_;
        token.kind = TokenKind::kString;
        return;
      }
      if (c != '\\') {
        token.text += c;
        continue;
      }
      if (++at_ == source_.size()) return;
      if (source_[at_] == 'x') {
        uint8_t byte = 0;
        const char* digits = source_.data() + at_ + 1;
        if (source_.size() - at_ < 3 ||
            std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
          return;
        }
        token.text += static_cast<char>(byte);
        at_ += 2;
      } else {
        token.text += source_[at_];
      }
    }
  }

  std::string_view source_;
  size_t at_ = 0;
};

// Recursive descent. Functions return false after having set error_.
class Parser {
 public:
  explicit Parser(std::string_view source) : lexer_(source), token_(lexer_.next()) {}

  Result<Module> run() {
    if (!module_text()) return std::move(error_);
    if (Status status = verify(module_); !status.ok()) return status;
    return std::move(module_);
  }

 private:
  // ---- Tokens ----
  bool fail(const std::string& message) {
    error_ = Status(DVT_INVALID_ARGUMENT, DVT_STAGE_PARSE,
                    lexer_.position(token_.offset) + ": " + message);
    return false;
  }
  bool expected(const std::string& what) {
    const std::string got = token_.kind == TokenKind::kEnd
                                ? "the end"
                                : "'" + std::string(token_.spelling.substr(0, 40)) + "'";
    return fail("expected " + what + ", got " + got);
  }
  void advance() { token_ = lexer_.next(); }
  [[nodiscard]] bool at(std::string_view spelling) const {
    return (token_.kind == TokenKind::kPunctuation || token_.kind == TokenKind::kWord) &&
           token_.spelling == spelling;
  }
  bool accept(std::string_view spelling) {
    if (!at(spelling)) return false;
    advance();
    return true;
  }
  bool expect(std::string_view spelling) {
    return accept(spelling) || expected("'" + std::string(spelling) + "'");
  }
  bool text_of(TokenKind kind, const char* what, std::string& out) {
    if (token_.kind != kind) return expected(what);
    out = std::move(token_.text);
    advance();
    return true;
  }
  bool quoted(std::string& out) { return text_of(TokenKind::kString, "a quoted string", out); }
  bool word(std::string& out) {
    if (token_.kind == TokenKind::kString) return quoted(out);
    return text_of(TokenKind::kWord, "a word", out);
  }
  template <class T>
  bool number(T& out) {
    const bool spelled = token_.kind == TokenKind::kNumber ||
                         (std::is_floating_point_v<T> && (at("inf") || at("nan")));
    const char* end = token_.spelling.data() + token_.spelling.size();
    if (!spelled) return expected("a number");
    const auto result = std::from_chars(token_.spelling.data(), end, out);
    if (result.ec != std::errc() || result.ptr != end) return expected("a number of this type");
    advance();
    return true;
  }
  // open item, item, ... close
  template <class Item>
  bool list(std::string_view open, std::string_view close, Item item) {
    if (!expect(open)) return false;
    if (accept(close)) return true;
    do {
      if (!item()) return false;
    } while (accept(","));
    return expect(close);
  }

  // ---- Module, graphs ----
  bool module_text() {
    // "davit-ir" is two tokens: a word and a number that begins with "-".
    if (!expect("davit") || token_.spelling != "-ir") return expected("'davit-ir 1'");
    advance();
    int64_t version = 0;
    if (!number(version)) return false;
    if (version != 1) return fail("version " + std::to_string(version) + " of the text form");
    if (!expect("source") || !quoted(module_.source_name) || !quoted(module_.source_digest)) {
      return false;
    }
    while (accept("opset")) {
      std::string domain;
      if (!quoted(domain) || !number(module_.opset_imports[domain])) return false;
    }
    std::string name;
    if (!expect("graph") || !quoted(name)) return false;
    module_.set_graph_name(kMainGraph, name);
    return graph_body(kMainGraph, 0) && (token_.kind == TokenKind::kEnd || expected("the end"));
  }

  bool graph_body(GraphId graph, uint32_t depth) {
    if (depth > kNestingMax) return fail("graphs are nested too deeply");
    if (!expect("{")) return false;
    while (!at("output")) {
      bool ok = false;
      if (accept("input")) {
        ok = graph_input(graph);
      } else if (accept("const")) {
        ok = graph_constant(graph);
      } else if (at("(") || token_.kind == TokenKind::kLabel) {
        ok = node_text(graph, depth);
      } else {
        ok = expected("'input', 'const', a node or 'output'");
      }
      if (!ok) return false;
    }
    advance();
    std::vector<ValueId> outputs;
    const bool listed = list("(", ")", [&] {
      outputs.push_back(kNoValue);
      if (at("_")) return expected("a value");
      return use(graph, outputs.back());
    });
    if (!listed) return false;
    module_.set_graph_outputs(graph, std::move(outputs));
    return expect("}");
  }

  bool graph_input(GraphId graph) {
    ValueId value = kNoValue;
    if (!typed_definition(graph, value)) return false;
    module_.add_graph_input(graph, value);
    return true;
  }

  bool graph_constant(GraphId graph) {
    ValueId value = kNoValue;
    TensorData data;
    if (!definition(graph, value) || !expect(":") || !tensor(data)) return false;
    module_.set_constant(value, std::move(data));
    return true;
  }

  // ---- Values ----
  bool definition(GraphId graph, ValueId& value) {
    std::string identifier;
    if (!text_of(TokenKind::kValue, "a value such as %x", identifier)) return false;
    std::string name = identifier;
    if (token_.kind == TokenKind::kString && !quoted(name)) return false;
    value = module_.add_value(graph, name);
    return values_.emplace(identifier, value).second ||
           fail("%" + identifier + " is defined a second time");
  }

  bool typed_definition(GraphId graph, ValueId& value) {
    if (!definition(graph, value)) return false;
    if (!accept(":")) return true;
    DvtDType dtype = DVT_DTYPE_NONE;
    if (!accept("?") && !dtype_word(dtype)) return false;
    module_.set_dtype(value, dtype);
    if (!at("[")) return true;
    Shape shape;
    if (!list("[", "]", [&] { return dim(shape); })) return false;
    module_.set_shape(value, std::move(shape));
    return true;
  }

  bool dtype_word(DvtDType& dtype) {
    const std::optional<DvtDType> found = dtype_from_name(token_.spelling);
    if (!found) return expected("an element type");
    dtype = *found;
    advance();
    return true;
  }

  bool dim(Shape& shape) {
    if (accept("?")) {
      shape.emplace_back();
      return true;
    }
    if (token_.kind == TokenKind::kNumber) {
      int64_t extent = 0;
      if (!number(extent)) return false;
      if (extent < 0) return fail("a dimension before this is negative");
      shape.emplace_back(extent);
      return true;
    }
    std::string symbol;
    if (!word(symbol)) return false;
    shape.push_back(Dim::symbol(module_.intern_symbol(symbol)));
    return true;
  }

  bool use(GraphId graph, ValueId& value) {
    value = kNoValue;
    if (accept("_")) return true;
    if (token_.kind != TokenKind::kValue) return expected("a value or '_'");
    const auto found = values_.find(token_.text);
    if (found == values_.end()) return fail("%" + token_.text + " is not defined before its use");
    if (!module_.encloses(module_.value_graph(found->second), graph)) {
      return fail("%" + token_.text + " belongs to a graph that is not around this one");
    }
    value = found->second;
    advance();
    return true;
  }

  // ---- Nodes ----
  bool node_text(GraphId graph, uint32_t depth) {
    std::string label;
    if (token_.kind == TokenKind::kLabel) {
      label = std::move(token_.text);
      advance();
      if (!expect(":")) return false;
    }
    Module::NodeInit init;
    const bool outputs = list("(", ")", [&] {
      init.outputs.push_back(kNoValue);
      return accept("_") || typed_definition(graph, init.outputs.back());
    });
    if (!outputs || !expect("=") || !word(init.op)) return false;
    if (accept("::")) {
      init.domain = std::move(init.op);
      if (!word(init.op)) return false;
    }
    if (accept("opset") && !number(init.opset)) return false;
    if (init.opset < 0) return fail("the opset before this is negative");
    if (token_.kind == TokenKind::kString && !quoted(init.name)) return false;
    const bool inputs = list("(", ")", [&] {
      init.inputs.push_back(kNoValue);
      return use(graph, init.inputs.back());
    });
    if (!inputs) return false;
    const NodeId node = module_.add_node(graph, std::move(init));
    if (!label.empty() && !labels_.emplace(label, node).second) {
      return fail("label #" + label + " is used a second time");
    }
    if (at("{") && !attribute_list(graph, node, depth)) return false;
    return !accept("after") || list("(", ")", [&] { return control_input(node); });
  }

  bool control_input(NodeId node) {
    const auto found = labels_.find(token_.text);
    if (token_.kind != TokenKind::kLabel || found == labels_.end()) {
      return expected("the label of a node before this");
    }
    advance();
    module_.add_control_edge(found->second, node);
    return true;
  }

  bool attribute_list(GraphId graph, NodeId node, uint32_t depth) {
    advance();
    std::vector<Attribute> attributes;
    while (!accept("}")) {
      Attribute& attribute = attributes.emplace_back();
      if (!word(attribute.name) || !expect("=") ||
          !attribute_value(graph, node, depth, attribute)) {
        return false;
      }
    }
    module_.set_attributes(node, std::move(attributes));
    return true;
  }

  template <class T>
  bool numbers(AttributeValue& out) {
    std::vector<T> values;
    const bool ok = list("[", "]", [&] { return number(values.emplace_back()); });
    out = std::move(values);
    return ok;
  }

  bool attribute_value(GraphId graph, NodeId node, uint32_t depth, Attribute& attribute) {
    AttributeValue& out = attribute.value;
    if (accept("int")) return number(out.emplace<int64_t>());
    if (accept("float")) return number(out.emplace<float>());
    if (accept("string")) return quoted(out.emplace<std::string>());
    if (accept("ints")) return numbers<int64_t>(out);
    if (accept("floats")) return numbers<float>(out);
    if (accept("strings")) {
      auto& values = out.emplace<std::vector<std::string>>();
      return list("[", "]", [&] { return quoted(values.emplace_back()); });
    }
    if (accept("tensor")) return tensor(out.emplace<TensorData>());
    if (accept("graph")) {
      const GraphId nested = module_.add_graph(attribute.name, graph, node);
      out = nested;
      return graph_body(nested, depth + 1);
    }
    if (accept("graphs")) {
      std::vector<GraphId> nested;
      const bool ok = list("[", "]", [&] {
        const std::string name = attribute.name + "[" + std::to_string(nested.size()) + "]";
        nested.push_back(module_.add_graph(name, graph, node));
        return graph_body(nested.back(), depth + 1);
      });
      out = std::move(nested);
      return ok;
    }
    return expected("the type of an attribute");
  }

  // ---- Tensors: "f32[2] = {1, 2}", "f32[2] = hex \"...\"" ----
  bool tensor(TensorData& data) {
    const auto extent = [&] { return number(data.dims.emplace_back()); };
    if (!dtype_word(data.dtype) || !list("[", "]", extent) || !expect("=")) return false;
    const std::optional<uint64_t> elements = checked_elements(data.dims);
    if (!elements) return fail("the dims before this are impossible");
    if (data.dtype == DVT_STRING) {
      std::vector<std::string> strings;
      if (!list("{", "}", [&] { return quoted(strings.emplace_back()); })) return false;
      if (strings.size() != *elements) return fail("the strings before this do not fill dims");
      auto made = make_string_tensor(data.dims, strings);
      if (!made) return fail("a string before this is too long");
      data = std::move(*made);
      return true;
    }
    std::vector<std::byte> bytes;
    if (accept("hex") ? !hex(bytes) : !element_list(data.dtype, bytes)) return false;
    if (checked_mul(*elements, dvt_dtype_size(data.dtype)) != bytes.size()) {
      return fail("the data before this does not have the size that its dims say");
    }
    data.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    return true;
  }

  bool hex(std::vector<std::byte>& bytes) {
    std::string digits;
    if (!quoted(digits)) return false;
    if (digits.size() % 2 != 0) return fail("the hex string before this has an odd length");
    bytes.reserve(digits.size() / 2);
    for (size_t i = 0; i < digits.size(); i += 2) {
      uint8_t byte = 0;
      const char* begin = digits.data() + i;
      if (std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2) {
        return fail("the hex string before this has another character");
      }
      bytes.push_back(std::byte(byte));
    }
    return true;
  }

  template <class T>
  bool elements(std::vector<std::byte>& bytes) {
    return list("{", "}", [&] {
      T value{};
      if (!number(value)) return false;
      const auto* begin = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), begin, begin + sizeof value);
      return true;
    });
  }

  bool element_list(DvtDType dtype, std::vector<std::byte>& bytes) {
    switch (dtype) {
      case DVT_F32:
        return elements<float>(bytes);
      case DVT_F64:
        return elements<double>(bytes);
      case DVT_U8:
      case DVT_BOOL:
        return elements<uint8_t>(bytes);
      case DVT_I8:
        return elements<int8_t>(bytes);
      case DVT_U16:
        return elements<uint16_t>(bytes);
      case DVT_I16:
        return elements<int16_t>(bytes);
      case DVT_U32:
        return elements<uint32_t>(bytes);
      case DVT_I32:
        return elements<int32_t>(bytes);
      case DVT_U64:
        return elements<uint64_t>(bytes);
      case DVT_I64:
        return elements<int64_t>(bytes);
      default:
        return expected("hex data for this element type");
    }
  }

  Lexer lexer_;
  Token token_;
  Module module_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<std::string, NodeId> labels_;
  Status error_;
};

}  // namespace

Result<Module> parse_text(std::string_view text) {
  return Parser(text).run();
}

}  // namespace davit::ir
