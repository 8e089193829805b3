#include "codegen/sources.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "exec/generated_code.h"

namespace davit::codegen {
namespace {

constexpr size_t kKernelsPerFile = 6;

std::string digest_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string operand_table(const Kernel& kernel, const std::string& symbol) {
  std::string text = fmt::format("static const Operand {}_operands[] = {{\n", symbol);
  for (const DvtTensor& operand : kernel.operands) {
    text += fmt::format("    {{{}, {}, {{{}}}}},\n", int(operand.dtype), operand.rank,
                        fmt::join(operand.dims, operand.dims + DVT_MAX_RANK, ", "));
  }
  return text + "};\n";
}

// The text may come for several shapes: its function and its record get names of their own, and it
// has a file of its own.
std::string source_text(const Kernel::Source& source, const std::string& symbol) {
  std::string words;
  for (size_t at = 0; at < source.attributes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, source.attributes.data() + at,
                std::min(sizeof word, source.attributes.size() - at));
    words += fmt::format("{}u, ", word);
  }
  return fmt::format(
      "static const uint64_t {0}_attributes[] = {{{1}0u}};\n"
      "#define DVT_SOURCE_ATTRIBUTES ((const void*){0}_attributes)\n"
      "#define {2} {0}_run\n"
      "DvtCode {2}(void* context);\n{3}\n"
      "#undef {2}\n#undef DVT_SOURCE_ATTRIBUTES\n",
      symbol, words, source.function, source.text);
}

// The tables of all instruction sets, and the record.
std::string record_text(std::span<const Kernel> kernels, std::span<const Isa> isas) {
  std::string text = std::string("#define LANES 1\n") + kPublicHeaders + kPrelude;
  for (const Isa& isa : isas) {
    std::string entries;
    for (const Kernel& kernel : kernels) {
      const std::string symbol = symbol_of(kernel, isa);
      text += fmt::format(
          "DvtCode {0}_run(void*);\nDvtCode {0}_check(const DvtContext*, char*, size_t);\n"
          "DvtCode {0}_infer(const DvtContext*, DvtTensor*, char*, size_t);\n",
          symbol);
      entries += fmt::format(
          "  {{.name = \"{0}\", .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE,\n"
          "   .input_min = {1}, .input_max = {1}, .output_min = {2}, .output_max = {2},\n"
          "   .run = {3}_run, .check = {3}_check, .infer = {3}_infer}},\n",
          kernel.name, kernel.inputs, kernel.outputs, symbol);
    }
    text += fmt::format("static const DvtKernel kernels_{}[] = {{\n{}}};\n", isa.name, entries);
  }
  std::string variants;
  for (const Isa& isa : isas) {
    variants += fmt::format("  {{\"{0}\", {{kernels_{0}, {1}}}}},\n", isa.name, kernels.size());
  }
  // The records of exec/generated_code.h, which knows nothing of this file.
  return text +
         fmt::format(
             "typedef struct {{ const char* isa; DvtKernelTable kernels; }} Variant;\n"
             "typedef struct {{ uint32_t struct_size, version; const Variant* variants;\n"
             "                 size_t variant_count; }} Record;\n"
             "_Static_assert(sizeof(Record) == {0}, \"as the loader has it\");\n"
             "static const Variant variants[] = {{\n{1}}};\n"
             "static const Record record = {{{0}, {2}, variants, {3}}};\n"
             "__attribute__((visibility(\"default\"))) const Record* dvt_generated_code(void) {{\n"
             "  return &record;\n}}\n",
             sizeof(DvtGeneratedCode), variants, int(DVT_GENERATED_CODE_VERSION), isas.size());
}

}  // namespace

std::string symbol_of(const Kernel& kernel, const Isa& isa) {
  return fmt::format("k{}_{}", kernel.name.substr(kernel.name.rfind('.') + 1), isa.name);
}

std::string kernel_text(const Kernel& kernel, const Isa& isa, const std::string& symbol) {
  return operand_table(kernel, symbol) +
         (kernel.source ? source_text(*kernel.source, symbol)
                        : emit_product(kernel.product, kernel.layout, isa, symbol)) +
         fmt::format(
             "DvtCode {0}_check(const DvtContext* ctx, char* reason, size_t size) {{\n"
             "  return check_operands(ctx, {0}_operands, {1}, {2}, reason, size);\n}}\n"
             "DvtCode {0}_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason,\n"
             "                  size_t size) {{\n"
             "  return infer_operands(ctx, {0}_operands, {1}, {2}, outputs, reason, size);\n}}\n",
             symbol, kernel.inputs, kernel.outputs);
}

std::string_view kind_of(const Product& product) {
  constexpr std::array<std::string_view, std::variant_size_v<decltype(product.what)>> kKinds = {
      "Conv", "MatMul", "Pool", "Reduce", "Softmax", "Resize", "Attention"};
  return kKinds[product.what.index()];
}

std::string_view kind_of(const Kernel& kernel) {
  return kernel.source ? "Source" : kind_of(kernel.product);
}

void name_kernel(Kernel& kernel, std::span<const Isa> isas) {
  std::string text = std::string(kPublicHeaders) + kPrelude;
  for (const Isa& isa : isas) text += kernel_text(kernel, isa, "k");
  kernel.name = fmt::format(DVT_GENERATED_PREFIX "{}.{}", kind_of(kernel), digest_of(text));
}

std::vector<SourceFile> make_sources(std::span<const Kernel> kernels, std::span<const Isa> isas) {
  std::vector<SourceFile> files;
  for (const Isa& isa : isas) {
    size_t room = 0;
    size_t count = 0;
    for (const Kernel& kernel : kernels) {
      if (room == 0 || kernel.source) {
        files.push_back(
            {.name = fmt::format("{}_{}.c", isa.name, count++),
             .flags = std::string(isa.flags),
             .text = fmt::format("#define LANES {}\n", isa.lanes) + kPublicHeaders + kPrelude});
        room = kernel.source ? 1 : kKernelsPerFile;
      }
      files.back().text += kernel_text(kernel, isa, symbol_of(kernel, isa));
      --room;
    }
  }
  files.push_back({.name = "record.c", .flags = {}, .text = record_text(kernels, isas)});
  return files;
}

}  // namespace davit::codegen
