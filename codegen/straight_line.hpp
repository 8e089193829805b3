// straight_line.hpp: an image as C that calls its kernels one after the other, with static memory:
// no image, no executor, no heap, no library but libm. For hosts that want no interpreter at all.
//
//   NAME.h            int32_t NAME_run(const float* x, float* y), and what else a caller sees
//   NAME.c            the kernels, the contexts of the nodes, the calls
//   NAME_weights.S    puts NAME_weights.bin into the program; neither is there without constants
//   meson.build       builds them: NAME_dep
//
// Results are those of the image on the same processor, bit for bit, when the same compiler builds
// both.
//
// Threads  Pure functions. What is made runs on one thread at a time: its memory is static.
// Trust    The image has been verified. Names of its nodes and ports get into the C as comments,
// escaped
//          strings, or identifiers of our own.
// Memory   Text is returned by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "exec/image.hpp"

namespace davit::codegen {

struct StraightLineOptions {
  std::string name;  // Begins all names that a linker sees: a C identifier.
  std::string isa;   // Of generated kernels; "": the most demanding one that the image has.
  // Kernels that the caller links: "acme.Scale", "acme_scale" for int32_t acme_scale(void*
  // context).
  std::vector<std::pair<std::string, std::string>> functions;
};

struct StraightLine {
  std::string source, header, assembler, meson;
  // Kernels that plug-ins brought as C: NAME_source_0.c, NAME_source_1.c, ...
  std::vector<std::string> plugin_sources;
  std::vector<std::byte> weights;  // Empty: there is no assembler.
  std::string isa;                 // Of generated kernels; "" when there are none.
  uint32_t nodes = 0;
  uint64_t arena_bytes = 0;
};

bool is_c_identifier(std::string_view name);

// The file that plugin_sources[index] is for.
std::string plugin_source_name(std::string_view name, size_t index);

// DVT_UNSUPPORTED: an image of a device or of dynamic shapes, text among its ports, kernels whose C
// is not known (all are named), an instruction set that the image has not. DVT_INVALID_ARGUMENT: a
// name that is no identifier; a function for a kernel that the image does not call.
Result<StraightLine> emit_straight_line(const exec::ImageView& image,
                                        const StraightLineOptions& options);

}  // namespace davit::codegen
