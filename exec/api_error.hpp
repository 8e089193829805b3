// api_error.hpp: error records of the C API, filled in without memory, and read.
//
// Threads  Pure functions.
// Memory   What fills in allocates nothing: the one error that it is for is that there is none.
#pragma once

#include <cstdio>

#include "base/status.hpp"
#include "davit/types.h"

namespace davit::exec {

// An empty record, without the 1.6 KB of memset that would weigh on every run. NULL is fine.
inline void clear_error(DvtError* error) noexcept {
  if (error == nullptr) return;
  error->code = DVT_OK;
  error->stage = DVT_STAGE_NONE;
  for (char* text : {error->message, error->node, error->op, error->tensor, error->expected,
                     error->got, error->hint}) {
    text[0] = '\0';
  }
}

// What a handler of std::bad_alloc returns.
inline DvtCode out_of_memory(DvtError* error, DvtStage stage, const char* message) noexcept {
  if (error == nullptr) return DVT_OUT_OF_MEMORY;
  clear_error(error);
  error->code = DVT_OUT_OF_MEMORY;
  error->stage = stage;
  std::snprintf(error->message, sizeof error->message, "%s", message);
  return DVT_OUT_OF_MEMORY;
}

// The record as a Status.
inline Status status_of(const DvtError& error) {
  return Status(ErrorDetail{.code = error.code,
                            .stage = error.stage,
                            .message = error.message,
                            .node = error.node,
                            .op = error.op,
                            .tensor = error.tensor,
                            .expected = error.expected,
                            .got = error.got,
                            .hint = error.hint});
}

}  // namespace davit::exec
