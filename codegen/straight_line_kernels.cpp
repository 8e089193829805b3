#include "codegen/straight_line_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "codegen/kernel_pieces.hpp"
#include "exec/generated_code.h"

namespace davit::codegen {
namespace {

// What gcc and clang call the instruction sets.
std::string target_of(std::string_view isa) {
  if (isa == "avx512") return "avx512f,avx2,fma";
  if (isa == "avx2") return "avx2,fma";
  return "";
}

// Functions between these are compiled for `target` ("": the file's), with products and sums
// contracted or not.
std::string begin_target(std::string_view target, bool contracts) {
  std::string text = "#if defined(__clang__)\n";
  if (!target.empty()) {
    text += fmt::format(
        "#pragma clang attribute push(__attribute__((target(\"{}\"))), apply_to = function)\n",
        target);
  }
  if (contracts) text += "#pragma clang fp contract(fast)\n";
  text += "#else\n#pragma GCC push_options\n";
  if (!target.empty()) text += fmt::format("#pragma GCC target(\"{}\")\n", target);
  if (contracts) text += "#pragma GCC optimize(\"fp-contract=fast\")\n";
  return text + "#endif\n";
}

std::string end_target(std::string_view target, bool contracts) {
  return fmt::format("#if defined(__clang__)\n{}{}#else\n#pragma GCC pop_options\n#endif\n",
                     target.empty() ? "" : "#pragma clang attribute pop\n",
                     contracts ? "#pragma clang fp contract(off)\n" : "");
}

std::string identifier_of(std::string_view name) {
  std::string result = "kernel_";
  for (const char c : name) {
    const bool keeps = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    result += keeps ? c : '_';
  }
  return result;
}

std::string unknown_kernels(const std::vector<std::string>& names) {
  return fmt::format("no C is known for {} of the image's kernels: {}", names.size(),
                     fmt::join(names, ", "));
}

}  // namespace

void KernelText::use_piece(size_t piece) {
  if (!pieces_.insert(piece).second) return;
  for (const size_t used : kernel_pieces()[piece].uses) use_piece(used);
}

// The variant of which all generated kernels have their C.
Status KernelText::choose_isa(const exec::ImageView& image, const std::set<std::string_view>& names,
                              const std::string& wanted) {
  auto source = parse_source(image.code);
  if (!source.ok()) {
    source.status().detail().hint = "compile the model again, or without --isa";
    return std::move(source.status());
  }
  source_ = std::move(*source);
  std::vector<std::string> isas;  // As the image has them: the most demanding one first.
  for (const KernelSource& kernel : source_.kernels) {
    if (std::find(isas.begin(), isas.end(), kernel.isa) == isas.end())
      isas.emplace_back(kernel.isa);
  }
  const auto chosen = wanted.empty() ? isas.begin() : std::find(isas.begin(), isas.end(), wanted);
  if (chosen == isas.end()) {
    return {
        DVT_UNSUPPORTED, DVT_STAGE_CHECK,
        fmt::format("the image has no code for '{}', but for {}", wanted, fmt::join(isas, ", "))};
  }
  isa_ = *chosen;
  for (const KernelSource& kernel : source_.kernels) {
    if (kernel.isa != isa_ || !names.contains(kernel.name)) continue;
    const bool is_foreign = kernel.name.starts_with(DVT_GENERATED_PREFIX "Source.");
    (is_foreign ? foreign_ : generated_).push_back(&kernel);
  }
  return {};
}

// False when no C is known.
bool KernelText::add(uint32_t index, std::string_view name, const StraightLineOptions& options) {
  const auto wrap = [&](const std::string& declarations, const std::string& call) {
    const std::string function = fmt::format("{}_{}", identifier_of(name), index);
    wrappers_ +=
        fmt::format("{}static inline DvtCode {}(void* context) {{\n  return {}(context);\n}}\n",
                    declarations, function, call);
    functions_[index] = function;
    return true;
  };
  for (const auto& [kernel, function] : options.functions) {
    if (kernel != name) continue;
    wrappers_ += fmt::format("extern DvtCode {}(void* context);\n", function);
    functions_[index] = function;
    return true;
  }
  for (const KernelSource* kernel : generated_) {
    if (kernel->name != name) continue;
    functions_[index] = fmt::format("{}_run", kernel->symbol);
    return true;
  }
  for (const KernelSource* kernel : foreign_) {
    if (kernel->name != name) continue;
    functions_[index] = fmt::format("{}_{}_run", prefix_, kernel->symbol);
    wrappers_ += fmt::format("extern DvtCode {}(void* context);\n", functions_[index]);
    return true;
  }
  for (const KernelFamily& family : kernel_families()) {
    const DvtKernelTable table = family.table();
    for (size_t i = 0; i < table.count; ++i) {
      if (table.kernels[i].name != name) continue;
      use_piece(family.piece);
      return wrap("", fmt::format("dvt_kernels_{}().kernels[{}].run", family.name, i));
    }
  }
  return false;
}

Result<KernelText> KernelText::find(const exec::ImageView& image,
                                    const std::vector<const exec::GraphView*>& graphs,
                                    const StraightLineOptions& options) {
  std::map<uint32_t, std::string_view> called;
  std::set<std::string_view> names;
  for (const exec::GraphView* graph : graphs) {
    for (uint32_t node = 0; node < graph->node_count; ++node) {
      called[graph->kernel[node]] = image.kernel_refs[graph->kernel[node]].name;
      names.insert(called[graph->kernel[node]]);
    }
  }
  for (const auto& [kernel, function] : options.functions) {
    if (names.contains(kernel)) continue;
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_CHECK,
                  fmt::format("the image does not call '{}'", kernel));
  }
  KernelText result;
  result.prefix_ = options.name;
  const bool generated = std::any_of(names.begin(), names.end(), [](std::string_view name) {
    return name.starts_with(DVT_GENERATED_PREFIX);
  });
  if (generated) {
    if (Status status = result.choose_isa(image, names, options.isa); !status.ok()) return status;
  }
  for (size_t i = 0; i < kernel_pieces().size(); ++i) {
    if (kernel_pieces()[i].name == "davit/kernel.h") result.use_piece(i);
  }
  std::vector<std::string> unknown;
  for (const auto& [index, name] : called) {
    if (!result.add(index, name, options)) unknown.emplace_back(name);
  }
  if (!unknown.empty()) {
    Status status(DVT_UNSUPPORTED, DVT_STAGE_CHECK, unknown_kernels(unknown));
    status.detail().hint = "--function KERNEL=FUNCTION names a function that you link";
    return status;
  }
  return result;
}

// What the C in a file begins with, up to the pieces.
std::string KernelText::head(const std::set<size_t>& pieces) const {
  const auto& all = kernel_pieces();
  std::set<std::string_view> system = {"<math.h>", "<string.h>"};
  for (const size_t i : pieces) {
    system.insert(all[i].system_headers.begin(), all[i].system_headers.end());
  }
  std::string text =
      "#if defined(__FAST_MATH__)\n#error \"results depend on -fno-fast-math\"\n#endif\n"
      "#if defined(__x86_64__)\n#define DVT_HAVE_AVX_BLOCKS\n#endif\n"
      "#if defined(__clang__)\n#pragma clang fp contract(off)\n#endif\n"
      // Not all of a piece is used.
      "#pragma GCC diagnostic ignored \"-Wunused-function\"\n"
      "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n"
      "#pragma GCC diagnostic ignored \"-Wunused-const-variable\"\n"
      // gcc sees the graph as a whole, and warns of what the image's verifier has excluded.
      "#if defined(__clang__)\n#pragma clang diagnostic ignored \"-Wunknown-pragmas\"\n#else\n"
      "#pragma GCC diagnostic ignored \"-Wmaybe-uninitialized\"\n"
      "#pragma GCC diagnostic ignored \"-Waggressive-loop-optimizations\"\n#endif\n";
  for (const std::string_view header : system) text += fmt::format("#include {}\n", header);
  return text;
}

// The instruction set of generated kernels, and what they share.
std::string KernelText::begin_generated() const {
  std::string text = begin_target(target_of(isa_), true);
  const auto lanes = generated_.empty() ? foreign_.front()->lanes : generated_.front()->lanes;
  return text + fmt::format("#define LANES {}\n{}", lanes, source_.prelude);
}

namespace {

// Of a kernel: what runs it, and what nobody calls here.
std::string declarations_of(const KernelSource& kernel, std::string_view run) {
  return fmt::format(
      "{1} DvtCode {0}_run(void*);\n"
      "static DvtCode {0}_check(const DvtContext*, char*, size_t);\n"
      "static DvtCode {0}_infer(const DvtContext*, DvtTensor*, char*, size_t);\n",
      kernel.symbol, run);
}

}  // namespace

std::vector<std::string> KernelText::files() const {
  const auto& all = kernel_pieces();
  std::set<size_t> headers;
  for (const size_t i : pieces_) {
    if (all[i].name.starts_with("davit/")) headers.insert(i);
  }
  std::vector<std::string> files;
  for (const KernelSource* kernel : foreign_) {
    std::string text = head(headers);
    for (const size_t i : headers) text += std::string(all[i].text);
    text += begin_generated();
    text += fmt::format("#define {0}_run {1}_{0}_run\n", kernel->symbol, prefix_);
    text += declarations_of(*kernel, "__attribute__((visibility(\"hidden\")))");
    files.push_back(text + std::string(kernel->text) + end_target(target_of(isa_), true));
  }
  return files;
}

std::string KernelText::text() const {
  const auto& all = kernel_pieces();
  std::string text = head(pieces_);
  for (const size_t i : pieces_) {
    text += fmt::format("\n/* ---- {} ---- */\n", all[i].name);
    if (all[i].target.empty()) {
      text += all[i].text;
      continue;
    }
    text += "#if defined(DVT_HAVE_AVX_BLOCKS)\n" + begin_target(all[i].target, false);
    text += std::string(all[i].text) + end_target(all[i].target, false) + "#endif\n";
  }
  if (!generated_.empty()) {
    text += "\n/* ---- generated kernels ---- */\n";
    for (const auto name : source_.prelude_names) {
      text += fmt::format("#define {0} generated_{0}\n", name);
    }
    text += begin_generated();
    for (const KernelSource* kernel : generated_) {
      text += declarations_of(*kernel, "static __attribute__((noinline))");
      text += kernel->text;
    }
    text += "#undef LANES\n";
    for (const auto name : source_.prelude_names) text += fmt::format("#undef {}\n", name);
    text += end_target(target_of(isa_), true);
  }
  return text + "\n/* ---- kernels of the graph ---- */\n" + wrappers_;
}

}  // namespace davit::codegen
