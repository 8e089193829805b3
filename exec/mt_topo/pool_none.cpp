// The pool of a build without oneTBB: there is none, and it says so.
#include "base/status.hpp"
#include "davit/davit.h"

void dvt_pool_options_init(DvtPoolOptions* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options, .workers = 0, .spin_us = 50};
}

DvtCode dvt_pool_create(const DvtPoolOptions* /*options*/, DvtPool** out, DvtError* error) {
  if (out != nullptr) *out = nullptr;
  const davit::Status status(DVT_UNSUPPORTED, DVT_STAGE_LOAD,
                             "this build has no worker threads: it was made without oneTBB");
  if (error != nullptr) status.to_c(error);
  return status.code();
}

void dvt_pool_destroy(DvtPool* /*pool*/) {}

uint32_t dvt_pool_workers(const DvtPool* /*pool*/) {
  return 1;
}
