// text_assembler.hpp: the parser behind assemble_text(), in two files: declarations
// (text_assemble.cpp) and graphs (text_assemble_graph.cpp).
//
// Threads  One thread per Assembler.
// Trust    The text is untrusted: every token is checked, every number is bounded.
// Memory   See assemble_text().
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/image/image_model.hpp"
#include "lowering/image/text_common.hpp"
#include "lowering/image/text_lexer.hpp"

namespace davit::image {

class Assembler {
 public:
  Assembler(std::string_view text, std::span<const DvtKernelTable> tables)
      : lexer_(text), kernels_(tables) {}

  Result<ImageModel> run();

 private:
  // A name that is resolved when everything it may refer to has been read.
  struct Reference {
    Token token;
    uint32_t node;
  };

  // ---- Declarations
  Status parse_heading();
  Status parse_statement();
  Status parse_plan_statement(const Token& keyword);
  Status parse_streams();
  Status parse_arena();
  Status parse_kernel();
  Status parse_declaration(const Token& keyword);
  Status parse_port(ValueKind kind, Value& value);
  Status parse_view(Value& value);
  Status parse_constant(Value& value);
  Status parse_planned(Value& value);
  Status parse_data();
  Status parse_handle(std::string& key, Value& value);
  Status parse_type(DvtTensor& tensor, std::vector<DimRange>* ranges);
  Status parse_dim(DvtTensor& tensor, std::vector<DimRange>* ranges);
  Status parse_initialiser(const Value& value);
  Status parse_list(const Value& value, std::span<std::byte> out);
  Status parse_hex(std::vector<std::byte>& bytes);
  Status reserve_constants(const Token& at, uint64_t end);
  Status resolve_views();
  Status finish();

  // ---- Graphs
  Status parse_graph();
  Status parse_node(Graph& graph);
  Status parse_part(Graph& graph);
  Status resolve_schedule(Graph& graph);
  Status parse_label_and_outputs(Graph& graph, Node& node);
  Status parse_operands(Node& node);
  Status parse_kernel_name(uint32_t& kernel);
  Status parse_attributes(Node& node);
  Status parse_attribute(const DvtKernel& kernel, std::vector<bool>& seen,
                         std::vector<std::byte>& record);
  Status parse_attribute_value(const DvtAttribute& attribute, std::byte* at);
  Status parse_node_key(Graph& graph, Node& node);
  Status parse_lane(Node& node);
  Status parse_cost(Node& node);
  Status parse_cost_field(DvtTaskCost& cost);
  Status parse_references(std::vector<Reference>& references, uint32_t node);
  Status resolve_labels(Graph& graph);
  Status resolve_bodies();

  // ---- Tokens
  Status expect(std::string_view symbol);
  Status expect_line_end();
  Status parse_text(std::string& text);  // A string.
  Status parse_word(std::string& text);  // A plain name or a string.
  Status parse_unsigned(uint64_t max, uint64_t& number);
  template <class T>
  Status parse_integer(T& number);
  // The key of a value's name: 'x' and '"x"' are the same, '%3' is another.
  std::optional<std::string> value_key(const Token& token) const;
  Status parse_value(uint32_t& value);

  Lexer lexer_;
  const KernelFinder kernels_;
  ImageModel model_;
  std::unordered_map<std::string, uint32_t> values_;
  std::unordered_map<std::string, uint32_t> kernel_index_;  // In model_.kernels.
  std::unordered_map<std::string, uint32_t> graphs_;        // Bodies by label.
  std::vector<std::pair<Token, uint32_t>> views_;  // Names of ports, and the values that view.
  bool arena_stated_ = false;
  uint64_t arena_end_ = 0;
  uint64_t next_constant_ = 0;
  std::optional<uint64_t> constants_stated_;
  // Of the graph that is being read.
  std::unordered_map<std::string, uint32_t> labels_;
  std::vector<Reference> after_, frees_;
  std::vector<Token> part_nodes_;  // By position; see parse_part().
  std::vector<Reference> waits_;   // Of positions.
  // Of all graphs.
  struct BodyReference {
    Reference at;
    uint32_t graph;
  };
  std::vector<BodyReference> bodies_;
};

}  // namespace davit::image
