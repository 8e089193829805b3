// caller_memory.hpp: memory of the caller's: what can be checked of a piece of it, and such a piece
// as what an allocator manages.
//
// Threads  Those of the allocator.
// Trust    The piece is the caller's word; check_piece() checks what can be checked.
// Memory   Borrowed. An allocator takes all of it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "alloc/caching_allocator.h"
#include "base/status.hpp"

namespace davit::exec {

inline constexpr uint32_t kCallerAlignment = 64;  // Of the piece, and of every block in it.

// DVT_INVALID_ARGUMENT.
Status invalid_argument(DvtStage stage, std::string message, std::string expected, std::string got);
std::string address_text(const void* address);

// Null, fewer than `needed` bytes, not aligned to kCallerAlignment, or beyond the address space;
// `what` begins the sentence.
Status check_piece(const void* base, size_t bytes, uint64_t needed, const char* what,
                   DvtStage stage);

inline DvtMemorySource caller_source(void* base) {
  return {.name = "memory of the caller's",
          .user = base,
          .reserve = [](void* user, uint64_t, uint64_t, void** out) -> DvtCode {
            *out = user;
            return DVT_OK;
          },
          .release = [](void*, void*, uint64_t) {},
          .page_bytes = 0,
          .commit = nullptr,
          .decommit = nullptr};
}

// For `bytes` bytes of `source`, at least kCallerAlignment; `source` must live as long as the call
// that takes the options.
inline void caller_options(const DvtMemorySource& source, uint64_t bytes,
                           DvtAllocatorOptions& options) {
  dvt_allocator_options_init(&options);
  options.source = &source;
  options.alignment = kCallerAlignment;
  // What is asked of a source is all that will be live, but never beyond the limit.
  options.limit_bytes = bytes / kCallerAlignment * kCallerAlignment;
  options.expected_bytes = options.limit_bytes;
}

}  // namespace davit::exec
