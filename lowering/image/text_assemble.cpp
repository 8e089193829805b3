// text_assemble.cpp: declarations of the text form, and what all of its parser shares.
#include <algorithm>
#include <charconv>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "lowering/image/text_assembler.hpp"

namespace davit::image {
// ---- Tokens ------------------------------------------------------------------------------------

Status Assembler::expect(std::string_view symbol) {
  if (lexer_.take_if(symbol)) return {};
  return lexer_.expected("'" + std::string(symbol) + "'");
}

Status Assembler::expect_line_end() {
  if (lexer_.peek().kind == TokenKind::kEnd) return {};
  if (lexer_.peek().kind != TokenKind::kNewline) return lexer_.expected("the end of the line");
  lexer_.take();
  return {};
}

Status Assembler::parse_text(std::string& text) {
  if (lexer_.peek().kind != TokenKind::kString) return lexer_.expected("a string");
  const auto content = unquote(lexer_.peek().text);
  if (!content) return lexer_.error(lexer_.peek(), "bad string");
  text = *content;
  lexer_.take();
  return {};
}

Status Assembler::parse_word(std::string& text) {
  if (lexer_.peek().kind == TokenKind::kName) {
    text = lexer_.take().text;
    return {};
  }
  return parse_text(text);
}

template <class T>
Status Assembler::parse_integer(T& number) {
  const std::string_view text = lexer_.peek().text;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (lexer_.peek().kind != TokenKind::kNumber || result.ec != std::errc() ||
      result.ptr != text.data() + text.size()) {
    return lexer_.expected("an integer");
  }
  lexer_.take();
  return {};
}
template Status Assembler::parse_integer(int32_t&);
template Status Assembler::parse_integer(int64_t&);

Status Assembler::parse_unsigned(uint64_t max, uint64_t& number) {
  const Token token = lexer_.peek();
  if (Status s = parse_integer(number); !s.ok()) return s;
  if (number <= max) return {};
  return lexer_.error(token, "must not be above " + std::to_string(max));
}

std::optional<std::string> Assembler::value_key(const Token& token) const {
  if (token.kind == TokenKind::kName) return "n" + std::string(token.text);
  if (token.kind == TokenKind::kHandle) return std::string(token.text);
  if (token.kind != TokenKind::kString) return std::nullopt;
  auto content = unquote(token.text);
  if (content) content->insert(0, 1, 'n');
  return content;
}

Status Assembler::parse_value(uint32_t& value) {
  if (lexer_.take_if("_")) {
    value = kNone;
    return {};
  }
  const auto key = value_key(lexer_.peek());
  if (!key) return lexer_.expected("the name of a value");
  const auto found = values_.find(*key);
  if (found == values_.end()) {
    return lexer_.error(lexer_.peek(), "unknown value " + std::string(lexer_.peek().text));
  }
  value = found->second;
  lexer_.take();
  return {};
}

// ---- Statements --------------------------------------------------------------------------------

Status Assembler::parse_heading() {
  lexer_.skip_newlines();
  if (Status s = expect("davit"); !s.ok()) return s;
  const Token version = lexer_.peek();
  uint32_t major = 0;
  uint32_t minor = 0;
  const char* end = version.text.data() + version.text.size();
  const auto dot = std::from_chars(version.text.data(), end, major);
  const bool well_formed = version.kind == TokenKind::kNumber && dot.ec == std::errc() &&
                           dot.ptr != end && *dot.ptr == '.' &&
                           std::from_chars(dot.ptr + 1, end, minor).ptr == end;
  if (!well_formed) return lexer_.expected("the format version, such as 1.0");
  if (major != DVT_IMAGE_VERSION_MAJOR || minor > DVT_IMAGE_VERSION_MINOR) {
    Status status = lexer_.error(version, "format " + std::string(version.text) +
                                              " is not one this version of davit reads (" +
                                              std::to_string(DVT_IMAGE_VERSION_MAJOR) + ".0 to " +
                                              std::to_string(DVT_IMAGE_VERSION_MAJOR) + "." +
                                              std::to_string(DVT_IMAGE_VERSION_MINOR) + ")");
    status.detail().code = DVT_VERSION_MISMATCH;
    return status;
  }
  lexer_.take();
  if (Status s = expect("target"); !s.ok()) return s;
  if (Status s = parse_word(model_.target_name); !s.ok()) return s;
  model_.target = model_.target_name == "cpu" ? DVT_TARGET_CPU : DVT_TARGET_ASCEND;
  return expect_line_end();
}

Status Assembler::parse_arena() {
  arena_stated_ = true;
  if (Status s = parse_unsigned(UINT64_MAX, model_.arena_bytes); !s.ok()) return s;
  if (lexer_.take_if("align")) {
    uint64_t alignment = 0;
    const Token token = lexer_.peek();
    if (Status s = parse_unsigned(DVT_IMAGE_PAGE, alignment); !s.ok()) return s;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      return lexer_.error(token, "must be a power of two");
    }
    model_.arena_alignment = static_cast<uint32_t>(alignment);
  }
  if (lexer_.take_if("lower_bound")) return parse_unsigned(UINT64_MAX, model_.lower_bound_bytes);
  return {};
}

Status Assembler::parse_streams() {
  uint64_t count = 0;
  if (Status s = parse_unsigned(UINT32_MAX, count); !s.ok()) return s;
  model_.stream_count = static_cast<uint32_t>(count);
  if (!lexer_.take_if("priority")) return {};
  if (Status s = expect("["); !s.ok()) return s;
  while (!lexer_.at("]")) {
    uint64_t priority = 0;
    if (Status s = parse_unsigned(UINT8_MAX, priority); !s.ok()) return s;
    model_.stream_priority.push_back(static_cast<uint8_t>(priority));
    if (!lexer_.take_if(",")) break;
  }
  return expect("]");
}

Status Assembler::parse_kernel() {
  KernelRef kernel;
  uint64_t abi = 0;
  uint64_t flags = 0;
  if (Status s = parse_word(kernel.name); !s.ok()) return s;
  if (Status s = expect("abi"); !s.ok()) return s;
  if (Status s = parse_unsigned(UINT32_MAX, abi); !s.ok()) return s;
  if (Status s = expect("flags"); !s.ok()) return s;
  if (Status s = parse_unsigned(UINT32_MAX, flags); !s.ok()) return s;
  kernel.abi_version = static_cast<uint32_t>(abi);
  kernel.flags = static_cast<uint32_t>(flags);
  kernel_index_.emplace(kernel.name, static_cast<uint32_t>(model_.kernels.size()));
  model_.kernels.push_back(std::move(kernel));
  return {};
}

// The statements that are one keyword and its arguments.
Status Assembler::parse_plan_statement(const Token& keyword) {
  if (keyword.text == "producer") return parse_text(model_.provenance.producer);
  if (keyword.text == "source_name") return parse_text(model_.provenance.source_name);
  if (keyword.text == "source_digest") return parse_text(model_.provenance.source_digest);
  if (keyword.text == "options") return parse_text(model_.provenance.options);
  if (keyword.text == "opsets") return parse_text(model_.provenance.opsets);
  if (keyword.text == "arena") return parse_arena();
  if (keyword.text == "streams") return parse_streams();
  if (keyword.text == "kernel") return parse_kernel();
  if (keyword.text == "data") return parse_data();
  if (keyword.text == "constants") {
    if (lexer_.take_if("external")) {
      model_.external_constants = true;
      return {};
    }
    uint64_t bytes = 0;
    if (Status s = parse_unsigned(UINT64_MAX, bytes); !s.ok()) return s;
    constants_stated_ = bytes;
    return reserve_constants(keyword, bytes);
  }
  if (keyword.text == "events") {
    uint64_t count = 0;
    if (Status s = parse_unsigned(UINT32_MAX, count); !s.ok()) return s;
    model_.event_count = static_cast<uint32_t>(count);
    return {};
  }
  return parse_declaration(keyword);
}

Status Assembler::parse_statement() {
  if (lexer_.peek().kind != TokenKind::kName) return lexer_.expected("a statement");
  const Token keyword = lexer_.take();
  if (keyword.text == "graph") return parse_graph();
  if (Status s = parse_plan_statement(keyword); !s.ok()) return s;
  return expect_line_end();
}

// ---- Values ------------------------------------------------------------------------------------

// x, "x", %3 or %3 "x".
Status Assembler::parse_handle(std::string& key, Value& value) {
  const Token token = lexer_.peek();
  const auto found = value_key(token);
  if (!found || token.text == "_") return lexer_.expected("the name of a value");
  key = *found;
  if (values_.contains(key)) {
    return lexer_.error(token, "value " + std::string(token.text) + " is declared twice");
  }
  lexer_.take();
  if (token.kind != TokenKind::kHandle) {
    value.name = key.substr(1);
  } else if (lexer_.peek().kind == TokenKind::kString) {
    return parse_text(value.name);
  }
  return {};
}

// 8, 1..8, N=1..8; ?, ?1..8, N=?1.. when it is set at run time. Only ports may have more than the
// extent.
Status Assembler::parse_dim(DvtTensor& tensor, std::vector<DimRange>* ranges) {
  const Token token = lexer_.peek();
  if (tensor.rank == DVT_MAX_RANK) return lexer_.error(token, "more than 8 dimensions");
  DimRange range;
  if (token.kind != TokenKind::kNumber && token.text != "?") {
    if (Status s = parse_word(range.symbol); !s.ok()) return s;
    if (Status s = expect("="); !s.ok()) return s;
  }
  const bool open = lexer_.take_if("?");
  if (open && lexer_.peek().kind != TokenKind::kNumber) {
    range.max = INT64_MAX;
  } else {
    if (Status s = parse_integer(range.min); !s.ok()) return s;
    range.max = range.min;
    if (lexer_.take_if("..")) {
      range.max = INT64_MAX;
      const bool closed = !open || lexer_.peek().kind == TokenKind::kNumber;
      if (closed) {
        if (Status s = parse_integer(range.max); !s.ok()) return s;
      }
    }
  }
  if (range.min < 0 || range.min > range.max) return lexer_.error(token, "must be 0 <= min <= max");
  if (ranges == nullptr && open && range.symbol.empty() && range.min == 0 &&
      range.max == INT64_MAX) {
    tensor.dims[tensor.rank++] = -1;
    return {};
  }
  if (ranges == nullptr && (range.min != range.max || !range.symbol.empty())) {
    return lexer_.error(token, "only inputs and outputs have ranges and symbols");
  }
  tensor.dims[tensor.rank++] = open ? -1 : range.max;
  if (ranges != nullptr) ranges->push_back(std::move(range));
  return {};
}

Status Assembler::parse_type(DvtTensor& tensor, std::vector<DimRange>* ranges) {
  if (Status s = expect(":"); !s.ok()) return s;
  const Token token = lexer_.peek();
  const auto dtype = dtype_from_name(token.text);
  if (!dtype) return lexer_.expected("an element type");
  lexer_.take();
  tensor.dtype = *dtype;
  if (Status s = expect("["); !s.ok()) return s;
  const bool open_rank = lexer_.take_if("...");
  while (!lexer_.at("]") && !open_rank) {
    if (Status s = parse_dim(tensor, ranges); !s.ok()) return s;
    if (!lexer_.take_if(",")) break;
  }
  if (Status s = expect("]"); !s.ok()) return s;
  if (lexer_.take_if("dynamic")) {
    tensor.flags = DVT_TENSOR_DYNAMIC;
    if (open_rank) tensor.rank = DVT_RANK_UNKNOWN;
    return {};
  }
  if (open_rank ||
      std::any_of(tensor.dims, tensor.dims + tensor.rank, [](int64_t dim) { return dim < 0; })) {
    return lexer_.error(token, "only a dynamic shape may be open");
  }
  const auto elements = checked_elements(std::span(tensor.dims).first(tensor.rank));
  const auto bytes = elements ? checked_mul(*elements, dvt_dtype_size(*dtype)) : std::nullopt;
  if (!bytes || *bytes > INT64_MAX) return lexer_.error(token, "the tensor is too large");
  tensor.bytes = *bytes;
  return {};
}

// After "input" or "output": [index] handle [as "port"]: type
Status Assembler::parse_port(ValueKind kind, Value& value) {
  std::vector<Port>& ports = kind == ValueKind::kInput ? model_.inputs : model_.outputs;
  const Token at = lexer_.peek();
  uint64_t index = 0;
  while (index < ports.size() && ports[index].value != kNone) ++index;
  if (lexer_.take_if("[")) {
    if (Status s = parse_unsigned(lexer_.text_bytes(), index); !s.ok()) return s;
    if (Status s = expect("]"); !s.ok()) return s;
  }
  if (index < ports.size() && ports[index].value != kNone) {
    return lexer_.error(at, "port " + std::to_string(index) + " is declared twice");
  }
  std::string key;
  if (Status s = parse_handle(key, value); !s.ok()) return s;
  Port port{.name = value.name, .value = static_cast<uint32_t>(model_.values.size())};
  if (lexer_.take_if("as")) {
    if (Status s = parse_text(port.name); !s.ok()) return s;
  }
  if (Status s = parse_type(value.tensor, &port.dims); !s.ok()) return s;
  value.offset = index;
  if (index >= ports.size()) ports.resize(index + 1);
  ports[index] = std::move(port);
  values_.emplace(std::move(key), static_cast<uint32_t>(model_.values.size()));
  return {};
}

// After the type: of input "x"
Status Assembler::parse_view(Value& value) {
  if (Status s = expect("of"); !s.ok()) return s;
  if (lexer_.take_if("input")) {
    value.kind = ValueKind::kInput;
  } else if (lexer_.take_if("output")) {
    value.kind = ValueKind::kOutput;
  } else {
    return lexer_.expected("'input' or 'output'");
  }
  views_.emplace_back(lexer_.peek(), static_cast<uint32_t>(model_.values.size()));
  std::string name;
  return parse_word(name);
}

// After the type: [@ offset]. Without, the value gets memory of its own.
Status Assembler::parse_planned(Value& value) {
  const Token at = lexer_.peek();
  const auto next = checked_align(arena_end_, model_.arena_alignment);
  if (!next) return lexer_.error(at, "the arena is too large");
  value.offset = *next;
  if (lexer_.take_if("@")) {
    if (Status s = parse_unsigned(UINT64_MAX, value.offset); !s.ok()) return s;
  }
  const auto end = checked_add(value.offset, value.tensor.bytes);
  if (!end) return lexer_.error(at, "the value reaches beyond 2^64");
  arena_end_ = std::max(arena_end_, *end);
  return {};
}

Status Assembler::parse_declaration(const Token& keyword) {
  Value value;
  if (keyword.text == "input" || keyword.text == "output") {
    value.kind = keyword.text == "input" ? ValueKind::kInput : ValueKind::kOutput;
    value.has_tensor = true;
    if (Status s = parse_port(value.kind, value); !s.ok()) return s;
    model_.values.push_back(std::move(value));
    return {};
  }
  const bool word = keyword.text == "word";
  const bool view = keyword.text == "view";
  if (keyword.text == "planned") {
    value.kind = ValueKind::kPlanned;
  } else if (keyword.text == "const") {
    value.kind = ValueKind::kConstant;
  } else if (keyword.text == "device") {
    value.kind = ValueKind::kDevice;
  } else if (keyword.text == "heap") {
    value.kind = ValueKind::kHeap;
  } else if (!word && !view) {
    return lexer_.error(keyword, "unknown statement '" + std::string(keyword.text) + "'");
  }
  std::string key;
  if (Status s = parse_handle(key, value); !s.ok()) return s;
  if (!word) {
    value.has_tensor = true;
    if (Status s = parse_type(value.tensor, nullptr); !s.ok()) return s;
  }
  Status status;
  if (view) status = parse_view(value);
  if (value.kind == ValueKind::kPlanned) status = parse_planned(value);
  if (value.kind == ValueKind::kConstant) status = parse_constant(value);
  if (!status.ok()) return status;
  values_.emplace(std::move(key), static_cast<uint32_t>(model_.values.size()));
  model_.values.push_back(std::move(value));
  return {};
}

// ---- The end -----------------------------------------------------------------------------------

Status Assembler::resolve_views() {
  std::unordered_map<std::string_view, uint32_t> inputs, outputs;
  for (uint32_t i = 0; i < model_.inputs.size(); ++i) inputs.emplace(model_.inputs[i].name, i);
  for (uint32_t i = 0; i < model_.outputs.size(); ++i) outputs.emplace(model_.outputs[i].name, i);
  for (const auto& [token, value] : views_) {
    const std::string name = token.kind == TokenKind::kString ? unquote(token.text).value_or("")
                                                              : std::string(token.text);
    const auto& ports = model_.values[value].kind == ValueKind::kInput ? inputs : outputs;
    const auto found = ports.find(name);
    if (found == ports.end()) return lexer_.error(token, "there is no such port");
    model_.values[value].offset = found->second;
  }
  return {};
}

Status Assembler::finish() {
  if (Status s = resolve_views(); !s.ok()) return s;
  if (Status s = resolve_bodies(); !s.ok()) return s;
  if (!arena_stated_) model_.arena_bytes = arena_end_;
  if (constants_stated_) model_.constants.resize(*constants_stated_);
  return {};
}

Result<ImageModel> Assembler::run() {
  if (Status s = parse_heading(); !s.ok()) return s;
  for (;;) {
    lexer_.skip_newlines();
    if (lexer_.peek().kind == TokenKind::kEnd) break;
    if (Status s = parse_statement(); !s.ok()) return s;
  }
  if (Status s = finish(); !s.ok()) return s;
  return std::move(model_);
}

Result<ImageModel> assemble_text(std::string_view text, std::span<const DvtKernelTable> tables) {
  return Assembler(text, tables).run();
}

}  // namespace davit::image
