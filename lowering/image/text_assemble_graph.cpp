// text_assemble_graph.cpp: graphs and nodes of the text form.
#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "lowering/image/text_assembler.hpp"

namespace davit::image {

// After "graph": init|main|deinit|body label { nodes }
Status Assembler::parse_graph() {
  Graph graph;
  const auto index = static_cast<uint32_t>(model_.graphs.size());
  if (lexer_.take_if("init")) {
    graph.role = GraphRole::kInit;
  } else if (lexer_.take_if("main")) {
    graph.role = GraphRole::kMain;
  } else if (lexer_.take_if("deinit")) {
    graph.role = GraphRole::kDeInit;
  } else if (lexer_.take_if("body")) {
    graph.role = GraphRole::kBody;
    const Token label = lexer_.peek();
    std::string name;
    if (Status s = parse_word(name); !s.ok()) return s;
    if (!graphs_.emplace(std::move(name), index).second) {
      return lexer_.error(label, "body " + std::string(label.text) + " is declared twice");
    }
  } else {
    return lexer_.expected("'init', 'main', 'deinit' or 'body'");
  }
  if (lexer_.take_if("shape_nodes")) {
    if (Status s = expect("="); !s.ok()) return s;
    uint64_t count = 0;
    if (Status s = parse_unsigned(UINT32_MAX, count); !s.ok()) return s;
    graph.shape_nodes = static_cast<uint32_t>(count);
  }
  if (Status s = expect("{"); !s.ok()) return s;
  labels_.clear();
  after_.clear();
  frees_.clear();
  part_nodes_.clear();
  waits_.clear();
  lexer_.skip_newlines();
  while (!lexer_.at("}")) {
    if (lexer_.peek().kind == TokenKind::kEnd) return lexer_.expected("'}'");
    const bool part = lexer_.at("part") && lexer_.peek_next().text == "[";
    if (Status s = part ? parse_part(graph) : parse_node(graph); !s.ok()) return s;
    if (!lexer_.at("}")) {
      if (Status s = expect_line_end(); !s.ok()) return s;
    }
    lexer_.skip_newlines();
  }
  lexer_.take();
  if (Status s = resolve_labels(graph); !s.ok()) return s;
  if (Status s = resolve_schedule(graph); !s.ok()) return s;
  model_.graphs.push_back(std::move(graph));
  return expect_line_end();
}

// [label :] [outputs =] kernel[<device kernel>](inputs) [{attributes}] [key=value ...]
Status Assembler::parse_node(Graph& graph) {
  Node node;
  if (Status s = parse_label_and_outputs(graph, node); !s.ok()) return s;
  if (Status s = parse_kernel_name(node.kernel); !s.ok()) return s;
  if (lexer_.take_if("<")) {
    if (Status s = parse_kernel_name(node.device_kernel); !s.ok()) return s;
    if (Status s = expect(">"); !s.ok()) return s;
  }
  if (Status s = parse_operands(node); !s.ok()) return s;
  if (Status s = parse_attributes(node); !s.ok()) return s;
  node.lane = static_cast<uint8_t>(model_.kernels[node.kernel].flags & DVT_KERNEL_LANE_MASK);
  while (lexer_.peek().kind == TokenKind::kName) {
    if (Status s = parse_node_key(graph, node); !s.ok()) return s;
  }
  graph.nodes.push_back(std::move(node));
  return {};
}

Status Assembler::parse_label_and_outputs(Graph& graph, Node& node) {
  const auto index = static_cast<uint32_t>(graph.nodes.size());
  if (lexer_.peek_next().text == ":" && lexer_.peek().kind == TokenKind::kName) {
    const Token label = lexer_.take();
    if (!labels_.emplace(label.text, index).second) {
      return lexer_.error(label, "label " + std::string(label.text) + " is used twice");
    }
    lexer_.take();
  }
  // Outputs end with '='; a kernel is followed by '(' or '<'.
  if (lexer_.peek_next().text == "(" || lexer_.peek_next().text == "<") return {};
  for (;;) {
    uint32_t value = kNone;
    if (Status s = parse_value(value); !s.ok()) return s;
    node.outputs.push_back(value);
    if (!lexer_.take_if(",")) break;
  }
  return expect("=");
}

Status Assembler::parse_operands(Node& node) {
  if (Status s = expect("("); !s.ok()) return s;
  lexer_.skip_newlines();
  while (!lexer_.at(")")) {
    uint32_t value = kNone;
    if (Status s = parse_value(value); !s.ok()) return s;
    node.inputs.push_back(value);
    lexer_.skip_newlines();
    if (!lexer_.take_if(",")) break;
    lexer_.skip_newlines();
  }
  return expect(")");
}

// Kernels of `kernel` lines first, then those that the tables know, interned at their first use.
Status Assembler::parse_kernel_name(uint32_t& kernel) {
  const Token token = lexer_.peek();
  std::string name;
  if (Status s = parse_word(name); !s.ok()) return s;
  const auto [at, added] =
      kernel_index_.try_emplace(name, static_cast<uint32_t>(model_.kernels.size()));
  kernel = at->second;
  if (!added) return {};
  const DvtKernel* known = kernels_.find(name);
  if (known == nullptr) {
    return lexer_.error(token,
                        "unknown kernel " + quote(name) +
                            "; declare it with a kernel line, or give its plug-in with --plugin");
  }
  model_.kernels.push_back({name, known->abi_version, known->flags});
  return {};
}

// ---- Attributes --------------------------------------------------------------------------------

Status Assembler::parse_attribute_value(const DvtAttribute& attribute, std::byte* at) {
  const DvtDType dtype = attribute.kind == 'i' ? DVT_I64 : DVT_F64;
  const auto parse_element = [&](std::byte* to) -> Status {
    if (lexer_.peek().kind != TokenKind::kNumber ||
        !element_from_text(dtype, lexer_.peek().text, to)) {
      return lexer_.expected(attribute.kind == 'i' ? "an integer" : "a number");
    }
    lexer_.take();
    return {};
  };
  if (attribute.count == 1) return parse_element(at);
  if (Status s = expect("["); !s.ok()) return s;
  uint32_t count = 0;
  while (!lexer_.at("]")) {
    if (count == attribute.count) {
      return lexer_.error(lexer_.peek(), std::string("attribute ") + attribute.name + " has " +
                                             std::to_string(attribute.count) + " entries");
    }
    if (Status s = parse_element(at + 8 * count++); !s.ok()) return s;
    if (!lexer_.take_if(",")) break;
  }
  return expect("]");
}

Status Assembler::parse_attribute(const DvtKernel& kernel, std::vector<bool>& seen,
                                  std::vector<std::byte>& record) {
  const Token name = lexer_.peek();
  for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
    const DvtAttribute& attribute = kernel.attributes[i];
    if (name.text != attribute.name || seen[i]) continue;
    if (!in_range(attribute.offset, 8U * attribute.count, record.size())) break;
    seen[i] = true;
    lexer_.take();
    if (Status s = expect("="); !s.ok()) return s;
    return parse_attribute_value(attribute, record.data() + attribute.offset);
  }
  return lexer_.expected(std::string("an attribute of ") + kernel.name);
}

// [{name=value, ...}] or [{hex ...}]. Every attribute must be there; arrays may be shorter.
Status Assembler::parse_attributes(Node& node) {
  const uint32_t computing = node.device_kernel != kNone ? node.device_kernel : node.kernel;
  const DvtKernel* kernel = kernels_.find(model_.kernels[computing].name);
  const Token brace = lexer_.peek();
  const bool braces = lexer_.take_if("{");
  if (braces && lexer_.at("hex") && lexer_.peek_next().text != "=") {
    lexer_.take();
    if (Status s = parse_hex(node.attributes); !s.ok()) return s;
    return expect("}");
  }
  if (kernel == nullptr || kernel->attribute_count == 0) {
    if (kernel != nullptr) node.attributes.resize(kernel->attribute_bytes);
    return braces ? expect("}") : Status();
  }
  node.attributes.resize(kernel->attribute_bytes);
  std::vector<bool> seen(kernel->attribute_count, false);
  if (braces) {
    lexer_.skip_newlines();
    while (!lexer_.at("}")) {
      if (Status s = parse_attribute(*kernel, seen, node.attributes); !s.ok()) return s;
      lexer_.skip_newlines();
      if (!lexer_.take_if(",")) break;
      lexer_.skip_newlines();
    }
    if (Status s = expect("}"); !s.ok()) return s;
  }
  for (uint32_t i = 0; i < kernel->attribute_count; ++i) {
    if (seen[i]) continue;
    return lexer_.error(brace, std::string("attribute ") + kernel->attributes[i].name + " of " +
                                   kernel->name + " is missing");
  }
  return {};
}

// ---- Keys --------------------------------------------------------------------------------------

Status Assembler::parse_lane(Node& node) {
  const auto names = lane_names();
  const auto found = std::find(names.begin(), names.end(), lexer_.peek().text);
  if (found == names.end()) return lexer_.expected("'normal', 'memory' or 'launch'");
  node.lane = static_cast<uint8_t>(found - names.begin());
  lexer_.take();
  return {};
}

Status Assembler::parse_cost_field(DvtTaskCost& cost) {
  const Token name = lexer_.take();
  if (Status s = expect("="); !s.ok()) return s;
  if (name.text == "kind") {
    const auto kinds = task_kind_names();
    const auto found = std::find(kinds.begin(), kinds.end(), lexer_.peek().text);
    if (found == kinds.end()) return lexer_.expected("a kind of task");
    cost.kind = static_cast<uint8_t>(found - kinds.begin());
    lexer_.take();
    return {};
  }
  if (name.text == "dtype") {
    const auto dtype = dtype_from_name(lexer_.peek().text);
    if (!dtype) return lexer_.expected("an element type");
    cost.dtype = *dtype;
    lexer_.take();
    return {};
  }
  for (const CostField& field : cost_fields()) {
    if (field.name != name.text) continue;
    uint64_t number = 0;
    if (Status s = parse_unsigned(field.size == 4 ? UINT32_MAX : UINT64_MAX, number); !s.ok()) {
      return s;
    }
    std::memcpy(reinterpret_cast<std::byte*>(&cost) + field.offset, &number, field.size);
    return {};
  }
  return lexer_.error(name, "unknown field of a cost");
}

// {kind=conv, m=12, ...}
Status Assembler::parse_cost(Node& node) {
  if (Status s = expect("{"); !s.ok()) return s;
  node.has_cost = true;
  lexer_.skip_newlines();
  while (lexer_.peek().kind == TokenKind::kName) {
    if (Status s = parse_cost_field(node.cost); !s.ok()) return s;
    lexer_.skip_newlines();
    if (!lexer_.take_if(",")) break;
    lexer_.skip_newlines();
  }
  return expect("}");
}

// [n0, n1]
Status Assembler::parse_references(std::vector<Reference>& references, uint32_t node) {
  if (Status s = expect("["); !s.ok()) return s;
  while (!lexer_.at("]")) {
    const Token token = lexer_.peek();
    std::string name;
    if (Status s = parse_word(name); !s.ok()) return s;
    references.push_back({token, node});
    if (!lexer_.take_if(",")) break;
  }
  return expect("]");
}

Status Assembler::parse_node_key(Graph& graph, Node& node) {
  const auto index = static_cast<uint32_t>(graph.nodes.size());
  const Token key = lexer_.take();
  if (Status s = expect("="); !s.ok()) return s;
  if (key.text == "lane") return parse_lane(node);
  if (key.text == "priority") return parse_integer(node.priority);
  if (key.text == "origin") return parse_text(node.origin);
  if (key.text == "op") return parse_text(node.op);
  if (key.text == "cost") return parse_cost(node);
  if (key.text == "after") return parse_references(after_, index);
  if (key.text == "frees") return parse_references(frees_, index);
  if (key.text == "stream") {
    uint64_t stream = 0;
    if (Status s = parse_unsigned(kNone - 1, stream); !s.ok()) return s;
    node.stream = static_cast<uint32_t>(stream);
    return {};
  }
  if (key.text == "bodies") {
    std::vector<Reference> references;
    if (Status s = parse_references(references, index); !s.ok()) return s;
    const auto graph_index = static_cast<uint32_t>(model_.graphs.size());
    for (const Reference& reference : references) bodies_.push_back({reference, graph_index});
    return {};
  }
  return lexer_.error(key, "unknown key '" + std::string(key.text) + "'");
}

Status Assembler::resolve_labels(Graph& graph) {
  for (const bool frees : {false, true}) {
    for (const Reference& reference : frees ? frees_ : after_) {
      const auto found = labels_.find(std::string(reference.token.text));
      if (found == labels_.end()) {
        return lexer_.error(reference.token, "no node has this label");
      }
      Node& node = graph.nodes[reference.node];
      (frees ? node.free_launches : node.control_inputs).push_back(found->second);
    }
  }
  return {};
}

// part [label [after [label, ...]], ...]: what one worker of a schedule runs, and waits for.
Status Assembler::parse_part(Graph& graph) {
  Schedule& schedule = graph.schedule;
  if (schedule.part_offsets.empty()) schedule.part_offsets.push_back(0);
  lexer_.take();
  if (Status s = expect("["); !s.ok()) return s;
  lexer_.skip_newlines();
  while (!lexer_.at("]")) {
    const Token token = lexer_.peek();
    std::string name;
    if (Status s = parse_word(name); !s.ok()) return s;
    const auto position = static_cast<uint32_t>(part_nodes_.size());
    part_nodes_.push_back(token);
    if (lexer_.take_if("after")) {
      if (Status s = parse_references(waits_, position); !s.ok()) return s;
    }
    lexer_.skip_newlines();
    if (!lexer_.take_if(",")) break;
    lexer_.skip_newlines();
  }
  schedule.part_offsets.push_back(static_cast<uint32_t>(part_nodes_.size()));
  return expect("]");
}

// Labels of parts to nodes, and of waits to positions.
Status Assembler::resolve_schedule(Graph& graph) {
  Schedule& schedule = graph.schedule;
  if (schedule.part_offsets.empty()) return {};
  std::unordered_map<std::string_view, uint32_t> position_of;
  for (const Token& token : part_nodes_) {
    const auto found = labels_.find(std::string(token.text));
    if (found == labels_.end()) return lexer_.error(token, "no node has this label");
    position_of[token.text] = static_cast<uint32_t>(schedule.nodes.size());
    schedule.nodes.push_back(found->second);
  }
  schedule.wait_offsets.assign(schedule.nodes.size() + 1, 0);
  for (const Reference& wait : waits_) {  // In the order of positions.
    const auto found = position_of.find(wait.token.text);
    if (found == position_of.end()) return lexer_.error(wait.token, "no part has this node");
    schedule.waits.push_back(found->second);
    ++schedule.wait_offsets[wait.node + 1];
  }
  for (size_t i = 0; i < schedule.nodes.size(); ++i) {
    schedule.wait_offsets[i + 1] += schedule.wait_offsets[i];
  }
  return {};
}

Status Assembler::resolve_bodies() {
  for (const BodyReference& reference : bodies_) {
    const Token& token = reference.at.token;
    const std::string name = token.kind == TokenKind::kString ? unquote(token.text).value_or("")
                                                              : std::string(token.text);
    const auto found = graphs_.find(name);
    if (found == graphs_.end()) return lexer_.error(token, "no body has this label");
    model_.graphs[reference.graph].nodes[reference.at.node].bodies.push_back(found->second);
  }
  return {};
}

}  // namespace davit::image
