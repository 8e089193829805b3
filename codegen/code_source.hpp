// code_source.hpp: the C text that an image's machine code was made of. It stands behind the shared
// object in the code segment, where loaders do not look:
//
//   0                     n                n + length      + 16
//   | shared object (ELF) | text           | length | magic |
//                                            u64      u64
//
//   text      the prelude that all kernels share, then kernels, each begun by a line of its own:
//             "@@ prelude NAME..."              names that the prelude defines
//             "@@ kernel NAME ISA SYMBOL LANES" a kernel for one instruction set
//
// Threads  Pure functions.
// Trust    parse_source() takes text from a file: what it says is checked, not what the C in it
// does. Memory   What is parsed leads into the code segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "codegen/sources.hpp"

namespace davit::codegen {

struct KernelSource {
  std::string_view name;    // "generated.Conv.0f3a..."
  std::string_view isa;     // "avx2"
  std::string_view symbol;  // `DvtCode <symbol>_run(void*)`, `<symbol>_check`, `<symbol>_infer`
  int64_t lanes = 0;
  std::string_view text;
};

struct CodeSource {
  std::string_view prelude;
  std::vector<std::string_view> prelude_names;
  std::vector<KernelSource> kernels;
};

// The text of all `kernels` for all `isas`, behind `code`.
void append_source(std::vector<std::byte>& code, std::span<const Kernel> kernels,
                   std::span<const Isa> isas);

// DVT_UNSUPPORTED: there is none (an image of an older Davit). DVT_INVALID_IMAGE: not as drawn
// above.
Result<CodeSource> parse_source(std::span<const std::byte> code);

}  // namespace davit::codegen
