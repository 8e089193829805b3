// caller_memory.hpp: one piece of memory of the caller's as what an allocator manages.
//
// Threads  Those of the allocator.
// Trust    The piece is the caller's word; executor_segments.cpp checks what can be checked.
// Memory   Borrowed. An allocator takes all of it at once.
#pragma once

#include <cstdint>

#include "alloc/caching_allocator.h"

namespace davit::exec {

inline constexpr uint32_t kCallerAlignment = 64;  // Of the piece, and of every block in it.

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
