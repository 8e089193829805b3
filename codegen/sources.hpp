// sources.hpp: the C files of a set of kernels.
//
// Threads  Pure functions.
// Memory   Text is returned by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/emit.hpp"
#include "davit/types.h"

namespace davit::codegen {

// types.h and kernel.h of davit; codegen/prelude.h, and the names that it defines, with spaces
// between.
extern const char* const kPublicHeaders;
extern const char* const kPrelude;
extern const char* const kPreludeNames;

// A kernel to be generated.
struct Kernel {
  Product product;
  Layout layout;
  std::vector<DvtTensor> operands;  // Inputs, then outputs.
  uint32_t inputs = 0, outputs = 0;
  std::string name;  // "generated.Conv.0f3a...": equal kernels have equal names.

  // A plug-in's kernel, in place of a product: DvtPluginSource and the attribute record.
  struct Source {
    std::string function, text;
    std::vector<std::byte> attributes;
  };
  std::optional<Source> source = {};
};

// "Conv", "MatMul", ...; "Source".
std::string_view kind_of(const Kernel& kernel);

// Of operators davit::Generated<kind>: "Conv", "MatMul", ...
std::string_view kind_of(const Product& product);
// Names the kernel after all that makes its code.
void name_kernel(Kernel& kernel, std::span<const Isa> isas);

// What its functions are called for one instruction set, and their text.
std::string symbol_of(const Kernel& kernel, const Isa& isa);
std::string kernel_text(const Kernel& kernel, const Isa& isa, const std::string& symbol);

struct SourceFile {
  std::string name;   // "avx512_3.c"
  std::string flags;  // For the compiler, besides those that all have.
  std::string text;
};

// A few kernels to a file, so that several compilers have work; the last file has the record that
// the loader asks for (exec/generated_code.h).
std::vector<SourceFile> make_sources(std::span<const Kernel> kernels, std::span<const Isa> isas);

}  // namespace davit::codegen
