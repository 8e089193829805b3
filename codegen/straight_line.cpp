#include "codegen/straight_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "base/checked.hpp"
#include "codegen/straight_line_kernels.hpp"

namespace davit::codegen {
namespace {

using exec::GraphView;
using exec::kNone;
using exec::ValueKind;

// Beyond this many places that call, code outgrows the first-level instruction cache, and a list of
// steps is faster.
constexpr size_t kCallsMax = 1000;
constexpr uint32_t kRolled = 4;  // Equal calls in a row become a loop from here on.
constexpr uint64_t kWeightAlignment = 64;

std::string_view c_type(DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
      return "float";
    case DVT_F64:
      return "double";
    case DVT_I8:
      return "int8_t";
    case DVT_I16:
      return "int16_t";
    case DVT_I32:
      return "int32_t";
    case DVT_I64:
      return "int64_t";
    case DVT_U16:
    case DVT_F16:
    case DVT_BF16:
      return "uint16_t";
    case DVT_U32:
      return "uint32_t";
    case DVT_U64:
      return "uint64_t";
    case DVT_U8:
    case DVT_BOOL:
      return "uint8_t";
    default:
      return "";
  }
}

std::string_view note_of(DvtDType dtype) {
  if (dtype == DVT_F16) return " (bits of IEEE half precision)";
  if (dtype == DVT_BF16) return " (bits of bfloat16)";
  return dtype == DVT_BOOL ? " (0 or 1)" : "";
}

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// For comments: nothing that could end one.
std::string comment(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool keeps = is_plain(c) || std::strchr(" .:-+()[],=<>", c) != nullptr;
    result += keeps && c != '\0' ? c : c == '/' ? '|' : '?';
  }
  return result;
}

std::string literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (is_plain(c) || (c != '\0' && std::strchr(" .:/-+()[],=<>", c) != nullptr)) {
      result += c;
    } else {
      result += fmt::format("\\{:03o}", uint8_t(c));
    }
  }
  return result + "\"";
}

// One of the arrays of contexts, which differ by their number of operands.
std::string contexts_name(std::string_view graph, size_t operands) {
  return fmt::format("{}_contexts_{}", graph, operands);
}

// Calls of one kernel with neighbouring contexts.
struct Calls {
  uint32_t kernel = 0;
  size_t operands = 0, first = 0;  // Context.
  uint32_t count = 0;
};

class Emitter {
 public:
  Emitter(const exec::ImageView& image, const StraightLineOptions& options)
      : image_(image), options_(options) {}

  Result<StraightLine> emit();

 private:
  Status check_image();
  std::string head() const;
  std::string values_text();
  std::string attributes_text(const GraphView& graph, std::string_view name) const;
  std::string contexts_text(const GraphView& graph, std::string_view name);
  std::string nodes_text(const GraphView& graph, std::string_view name) const;
  std::string calls_text(const GraphView& graph, std::string_view name, const KernelText& kernels);
  std::string list_text(const GraphView& graph, std::string_view name, const KernelText& kernels);
  std::string run_text(const std::string& isa) const;
  std::string parameters() const;
  void name_ports();
  void collect_weights();
  std::string header() const;
  std::string meson(size_t plugin_sources) const;
  std::string assembler() const;

  const exec::ImageView& image_;
  const StraightLineOptions& options_;
  std::vector<std::pair<std::string, const GraphView*>> graphs_;  // "init" and "main", as they run.
  std::vector<std::string> port_names_;                           // Inputs, then outputs.
  std::map<uint64_t, uint64_t> weight_at_;  // Offset in the image: in the file.
  std::vector<std::byte> weights_;
};

const GraphView* graph_at(const exec::ImageView& image, uint32_t index) {
  return index == kNone || image.graphs[index].node_count == 0 ? nullptr : &image.graphs[index];
}

Status Emitter::check_image() {
  const auto refuse = [](std::string what, std::string hint) {
    Status status(DVT_UNSUPPORTED, DVT_STAGE_CHECK, std::move(what));
    status.detail().hint = std::move(hint);
    return status;
  };
  if (image_.target != DVT_TARGET_CPU) {
    return refuse(fmt::format("the image is for {}", image_.target_name), "--target cpu");
  }
  if (image_.has_dynamic_descs || image_.graphs.size() > 3) {
    return refuse(image_.has_dynamic_descs ? "the image has values whose shapes are set at run time"
                                           : "the image has branches or loops",
                  "compile with --shapes or --dim");
  }
  if (graph_at(image_, image_.deinit) != nullptr) {
    return refuse("the image has something to undo after its last run", "");
  }
  for (const auto* ports : {&image_.inputs, &image_.outputs}) {
    for (const exec::PortView& port : *ports) {
      if (!c_type(image_.descs[port.desc].dtype).empty()) continue;
      return refuse(fmt::format("'{}' is text", image_.strings[port.name]), "");
    }
  }
  if (const GraphView* init = graph_at(image_, image_.init)) graphs_.emplace_back("init", init);
  graphs_.emplace_back("main", &image_.graphs[image_.main]);
  return {};
}

// Parameters of the function: what is no letter or digit becomes '_', and equal ones a number.
void Emitter::name_ports() {
  std::set<std::string> taken = {"code",   "cells", "tensors", "arena", "int",    "float",
                                 "double", "for",   "if",      "do",    "return", "while"};
  for (const auto* ports : {&image_.inputs, &image_.outputs}) {
    for (const exec::PortView& port : *ports) {
      std::string base = ports == &image_.inputs ? "in_" : "out_";
      for (const char c : std::string_view(image_.strings[port.name]))
        base += is_plain(c) ? c : '_';
      std::string name = base;
      for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
      port_names_.push_back(name);
    }
  }
}

// The constants that some node reads, each once.
void Emitter::collect_weights() {
  std::map<uint64_t, uint64_t> sizes;
  for (const auto& [name, graph] : graphs_) {
    for (const uint32_t value : std::span(graph->inputs, graph->inputs_off[graph->node_count])) {
      if (value == kNone || image_.values.kind[value] != ValueKind::kConstant) continue;
      uint64_t& size = sizes[image_.values.offset[value]];
      size = std::max(size, image_.tensor_of(value)->bytes);
    }
  }
  for (const auto& [offset, size] : sizes) {
    weight_at_[offset] = weights_.size();
    weights_.insert(weights_.end(), image_.constants + offset, image_.constants + offset + size);
    weights_.resize((weights_.size() + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment);
  }
}

std::string Emitter::values_text() {
  std::string tensors = "static const DvtTensor tensors[] = {\n";
  std::map<uint32_t, size_t> index;  // Of descriptors that are used.
  std::string cells = "static DvtCell cells[] = {\n";
  for (uint32_t value = 0; value < image_.values.count; ++value) {
    const uint32_t desc = image_.values.desc[value];
    std::string tensor = "0";
    if (desc != kNone) {
      const auto [at, is_new] = index.try_emplace(desc, index.size());
      const DvtTensor& of = image_.descs[desc];
      if (is_new) {
        tensors += fmt::format("    {{{}, {}, 0, 0, {}u, {{{}}}}},\n", of.dtype, of.rank, of.bytes,
                               fmt::join(of.dims, of.dims + DVT_MAX_RANK, ", "));
      }
      tensor = fmt::format("&tensors[{}]", at->second);
    }
    const uint64_t offset = image_.values.offset[value];
    std::string data = "0";
    if (image_.values.kind[value] == ValueKind::kPlanned) {
      data = fmt::format("arena + {}", offset);
    } else if (const auto at = weight_at_.find(offset);
               image_.values.kind[value] == ValueKind::kConstant && at != weight_at_.end()) {
      data = fmt::format("(void*)({}_weights + {})", options_.name, at->second);
    }
    cells += fmt::format("    {{{{{}}}, {}}},\n", data, tensor);
  }
  std::string text = "\n/* ---- values ---- */\n";
  if (!weights_.empty()) {
    text += fmt::format("extern const unsigned char {}_weights[];\n", options_.name);
  }
  if (image_.arena_bytes != 0) {
    text += fmt::format("static _Alignas({}) unsigned char arena[{}];\n",
                        std::max(image_.arena_alignment, 64u), image_.arena_bytes);
  }
  if (!index.empty()) text += tensors + "};\n";
  return text + cells + (image_.values.count == 0 ? "    {{0}, 0},\n};\n" : "};\n");
}

std::string Emitter::attributes_text(const GraphView& graph, std::string_view name) const {
  if (graph.attributes_off == nullptr || graph.attributes_off[graph.node_count] == 0) return "";
  // Records of integers and doubles; nobody writes them, so that it does not matter as what they
  // lie there.
  std::string text = fmt::format("static const uint64_t {}_attributes[] = {{\n", name);
  for (size_t at = 0; at < graph.attributes_off[graph.node_count]; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, graph.attributes + at, sizeof word);
    text +=
        fmt::format("{}0x{:x}u,{}", at % 64 == 0 ? "    " : " ", word, at % 64 == 56 ? "\n" : "");
  }
  return text + "\n};\n";
}

std::string Emitter::contexts_text(const GraphView& graph, std::string_view name) {
  std::map<size_t, std::string> arrays;
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const auto inputs = graph.inputs_of(node);
    const auto outputs = graph.outputs_of(node);
    const auto attributes = graph.attributes_of(node);
    std::string operands;
    for (const auto& values : {inputs, outputs}) {
      for (const uint32_t value : values) {
        operands += value == kNone ? "0, " : fmt::format("&cells[{}], ", value);
      }
    }
    const std::string record = attributes.empty()
                                   ? "0"
                                   : fmt::format("{}_attributes + {}", name,
                                                 graph.attributes_off[node] / sizeof(uint64_t));
    arrays[inputs.size() + outputs.size()] +=
        fmt::format("    {{0, {}, {}, {}, {}, DVT_NO_INDEX, DVT_NO_INDEX, {{{}}}}},\n", record,
                    inputs.size(), outputs.size(), node, operands.empty() ? "0" : operands);
  }
  std::string text;
  for (const auto& [operands, rows] : arrays) {
    text += fmt::format(
        "static const struct {{\n  struct DvtRuntime* runtime;\n  const void* attributes;\n"
        "  uint16_t input_count, output_count;\n  uint32_t node, stream, device_kernel;\n"
        "  DvtCell* cells[{}];\n}} {}[] = {{\n{}}};\n",
        std::max<size_t>(operands, 1), contexts_name(name, operands), rows);
  }
  return text;
}

std::string Emitter::nodes_text(const GraphView& graph, std::string_view name) const {
  std::string text = fmt::format("static const char* const {}_nodes[] = {{\n", name);
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    text += fmt::format("    {},\n",
                        literal(fmt::format("{} ({})", image_.strings[graph.origin_of(node)],
                                            image_.strings[graph.op_of(node)])));
  }
  return text + (graph.node_count == 0 ? "    \"\",\n};\n" : "};\n");
}

std::vector<Calls> calls_of(const GraphView& graph) {
  std::vector<Calls> result;
  std::map<size_t, size_t> next;  // Context, by the number of operands.
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const size_t operands = graph.inputs_of(node).size() + graph.outputs_of(node).size();
    const size_t context = next[operands]++;
    const uint32_t kernel = graph.kernel[node];
    if (!result.empty() && result.back().kernel == kernel && result.back().operands == operands) {
      ++result.back().count;
    } else {
      result.push_back({kernel, operands, context, 1});
    }
  }
  return result;
}

// A function of calls; loops where equal calls follow each other.
std::string Emitter::calls_text(const GraphView& graph, std::string_view name,
                                const KernelText& kernels) {
  const std::vector<Calls> calls = calls_of(graph);
  size_t places = 0;
  for (const Calls& of : calls) places += of.count < kRolled ? of.count : kRolled;
  if (places > kCallsMax) return list_text(graph, name, kernels);
  std::string text = fmt::format("static int32_t run_{}(void) {{\n  int32_t code = 0;\n", name);
  for (const Calls& of : calls) {
    const std::string contexts = contexts_name(name, of.operands);
    const auto call = [&](std::string_view indent, const std::string& context) {
      return fmt::format(
          "{0}if ((code = {1}((void*)&{2}[{3}])) != 0) return failed({4}_nodes[{2}[{3}].node], "
          "code);\n",
          indent, kernels.function(of.kernel), contexts, context, name);
    };
    uint32_t done = 0;
    if (of.count >= kRolled) {
      done = of.count / kRolled * kRolled;
      text += fmt::format("  for (uint32_t i = {}; i < {}; i += {}) {{\n", of.first,
                          of.first + done, kRolled);
      for (uint32_t i = 0; i < kRolled; ++i)
        text += call("    ", i == 0 ? "i" : fmt::format("i + {}", i));
      text += "  }\n";
    }
    for (; done < of.count; ++done) text += call("  ", fmt::format("{}", of.first + done));
  }
  return text + "  return code;\n}\n";
}

// A list of steps, four to a line of the cache, which is fetched ahead:
// exec/sequential_c/sequential.c.
std::string Emitter::list_text(const GraphView& graph, std::string_view name,
                               const KernelText& kernels) {
  std::string text = fmt::format(
      "static _Alignas(64) const struct {{\n  DvtKernelFn run;\n  void* context;\n}} {}_steps[] = "
      "{{\n",
      name);
  std::map<size_t, size_t> next;
  for (uint32_t node = 0; node < graph.node_count; ++node) {
    const size_t operands = graph.inputs_of(node).size() + graph.outputs_of(node).size();
    text += fmt::format("    {{{}, (void*)&{}[{}]}},\n", kernels.function(graph.kernel[node]),
                        contexts_name(name, operands), next[operands]++);
  }
  const uint32_t whole = graph.node_count / 4 * 4;
  text += fmt::format(
      "}};\nstatic int32_t run_{0}(void) {{\n  int32_t code = 0;\n  uint32_t i = 0;\n"
      "  for (; i < {1}; ++i) {{\n"
      "    __builtin_prefetch((const void*)((uintptr_t)&{0}_steps[i] + 4096));\n",
      name, whole);
  const std::string call =
      fmt::format("    if ((code = {0}_steps[i].run({0}_steps[i].context)) != 0) break;\n", name);
  text += call + "    ++i;\n" + call + "    ++i;\n" + call + "    ++i;\n" + call;
  return text + fmt::format(
                    "  }}\n  for (; code == 0 && i < {1}; ++i) {{\n{2}  }}\n"
                    "  return code == 0 ? 0 : failed({0}_nodes[i], code);\n}}\n",
                    name, graph.node_count, call);
}

std::string Emitter::parameters() const {
  std::string text;
  for (size_t i = 0; i < port_names_.size(); ++i) {
    const bool is_input = i < image_.inputs.size();
    const exec::PortView& port =
        is_input ? image_.inputs[i] : image_.outputs[i - image_.inputs.size()];
    text += fmt::format("{}{}{}* {}", i == 0 ? "" : ", ", is_input ? "const " : "",
                        c_type(image_.descs[port.desc].dtype), port_names_[i]);
  }
  return text.empty() ? "void" : text;
}

std::string Emitter::run_text(const std::string& isa) const {
  std::string text = fmt::format(
      "\nconst char* {0}_failed_node(void) {{\n  return failed_node;\n}}\n\nint32_t {0}_run({1}) "
      "{{\n",
      options_.name, parameters());
  if (isa == "avx2" || isa == "avx512") {
    text += fmt::format(
        "  if (!__builtin_cpu_supports(\"avx2\") || !__builtin_cpu_supports(\"fma\"){}) "
        "return DVT_UNSUPPORTED;\n",
        isa == "avx2" ? "" : " || !__builtin_cpu_supports(\"avx512f\")");
  }
  for (uint32_t value = 0; value < image_.values.count; ++value) {
    const ValueKind kind = image_.values.kind[value];
    if (kind != ValueKind::kInput && kind != ValueKind::kOutput) continue;
    const size_t port =
        image_.values.offset[value] + (kind == ValueKind::kOutput ? image_.inputs.size() : 0);
    text += fmt::format("  cells[{}].data = (void*){};\n", value, port_names_[port]);
  }
  text += "  failed_node = 0;\n";
  if (graphs_.front().first == "init") {
    text +=
        "  static int ready;\n  if (!ready) {\n    const int32_t code = run_init();\n"
        "    if (code != 0) return code;\n    ready = 1;\n  }\n";
  }
  return text + "  return run_main();\n}\n";
}

std::string Emitter::head() const {
  return fmt::format("Made by davit emit-c from {} ({}). Do not edit.\n *\n",
                     comment(image_.provenance.source_name), comment(image_.provenance.producer));
}

std::string Emitter::header() const {
  std::string ports;
  for (size_t i = 0; i < port_names_.size(); ++i) {
    const exec::PortView& port =
        i < image_.inputs.size() ? image_.inputs[i] : image_.outputs[i - image_.inputs.size()];
    const DvtTensor& tensor = image_.descs[port.desc];
    ports += fmt::format(" *   {}: {}[{}]{}, \"{}\"\n", port_names_[i], c_type(tensor.dtype),
                         fmt::join(tensor.dims, tensor.dims + tensor.rank, "]["),
                         note_of(tensor.dtype), comment(image_.strings[port.name]));
  }
  return fmt::format(
      "/* {1} * Threads  One call at a time: the graph's {2} bytes of memory are static.\n"
      " * Memory   Nothing is allocated. Inputs and outputs are the caller's, dense, row-major, "
      "aligned to\n"
      " *          their elements; an output overlaps with no other and no input.\n */\n"
      "#pragma once\n\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n"
      "/* Runs the graph once.\n *\n{3} *\n * 0, or the code of the node that failed. */\n"
      "int32_t {0}_run({4});\n\n"
      "/* That node, or NULL when the last run went well. */\n"
      "const char* {0}_failed_node(void);\n\n#ifdef __cplusplus\n}}\n#endif\n",
      options_.name, head(), image_.arena_bytes, ports, parameters());
}

std::string Emitter::assembler() const {
  return fmt::format(
      "/* {1} * The constants of the graph. */\n"
      "  .section .rodata\n  .balign {2}\n  .globl {0}_weights\n  .hidden {0}_weights\n"
      "  .type {0}_weights, %object\n{0}_weights:\n  .incbin \"{0}_weights.bin\"\n"
      "  .size {0}_weights, . - {0}_weights\n  .section .note.GNU-stack,\"\",%progbits\n",
      options_.name, head(), kWeightAlignment);
}

std::string Emitter::meson(size_t plugin_sources) const {
  std::string more;
  for (size_t i = 0; i < plugin_sources; ++i) {
    more += fmt::format(" '{}',", plugin_source_name(options_.name, i));
  }
  if (!weights_.empty()) more += fmt::format(" '{}_weights.S',", options_.name);
  return fmt::format(
      "# Straight-line C of {0}: subdir() this folder, then depend on {0}_dep.\n"
      "{0}_lib = static_library('{0}',\n  '{0}.c',{1}\n"
      "  c_args: ['-ffp-contract=off', '-fno-trapping-math', '-fno-math-errno', '-w',\n"
      "           '-Wa,-I' + meson.current_source_dir()],\n"
      "  override_options: ['c_std=gnu11', 'optimization=3'],\n)\n"
      "{0}_dep = declare_dependency(\n  link_with: {0}_lib,\n"
      "  include_directories: include_directories('.'),\n"
      "  dependencies: meson.get_compiler('c').find_library('m', required: false),\n)\n",
      options_.name, more);
}

Result<StraightLine> Emitter::emit() {
  if (Status status = check_image(); !status.ok()) return status;
  std::vector<const GraphView*> graphs;
  for (const auto& [name, graph] : graphs_) graphs.push_back(graph);
  auto kernels = KernelText::find(image_, graphs, options_);
  if (!kernels.ok()) return std::move(kernels.status());
  name_ports();
  collect_weights();
  StraightLine result;
  result.source = fmt::format(
      "/* {1} * cc -std=gnu11 -O3 -ffp-contract=off -fno-trapping-math -fno-math-errno -c "
      "{0}.c{2}\n "
      "*/\n"
      "#include \"{0}.h\"\n\n",
      options_.name, head(), weights_.empty() ? "" : " " + options_.name + "_weights.S");
  result.source += kernels->text() + values_text();
  result.source +=
      "\nstatic const char* failed_node;\n"
      "static __attribute__((cold, noinline)) int32_t failed(const char* node, int32_t code) {\n"
      "  failed_node = node;\n  return code;\n}\n";
  for (const auto& [name, graph] : graphs_) {
    result.source += fmt::format("\n/* ---- graph: {} ---- */\n", name);
    result.source += attributes_text(*graph, name) + contexts_text(*graph, name);
    result.source += nodes_text(*graph, name) + calls_text(*graph, name, *kernels);
    result.nodes += graph->node_count;
  }
  result.source += run_text(kernels->isa());
  result.header = header();
  result.plugin_sources = kernels->files();
  for (std::string& file : result.plugin_sources) {
    file = fmt::format("/* {} * A kernel that a plug-in brought as C. */\n", head()) + file;
  }
  result.meson = meson(result.plugin_sources.size());
  if (!weights_.empty()) result.assembler = assembler();
  result.weights = std::move(weights_);
  result.isa = kernels->isa();
  result.arena_bytes = image_.arena_bytes;
  return result;
}

}  // namespace

std::string plugin_source_name(std::string_view name, size_t index) {
  return fmt::format("{}_source_{}.c", name, index);
}

bool is_c_identifier(std::string_view name) {
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
         std::all_of(name.begin(), name.end(), is_plain);
}

Result<StraightLine> emit_straight_line(const exec::ImageView& image,
                                        const StraightLineOptions& options) {
  const auto is_bad = [](const auto& function) { return !is_c_identifier(function.second); };
  const auto bad = std::find_if(options.functions.begin(), options.functions.end(), is_bad);
  if (!is_c_identifier(options.name) || bad != options.functions.end()) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_CHECK,
                  fmt::format("'{}' is no identifier of C",
                              is_c_identifier(options.name) ? bad->second : options.name));
  }
  return Emitter(image, options).emit();
}

}  // namespace davit::codegen
