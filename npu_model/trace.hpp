// trace.hpp: the records of an NPU as rows of a trace.
//
//   stream N       every task, from start to end; args: op, waits, parts, tile, bytes
//   AIC k, AIV k   kernels on the core pools; k > 0 only while kernels overlap
//   AIC k MAC ...  how long each pipe of the busiest core was at work, from the start of the body
//   AICPU k, PCIe in, PCIe out, SDMA
//
// Times are the NPU's virtual clock, in nanoseconds; arrows join event and notify records to the
// waits they ended.
//
// Threads  Takes the NPU's lock record by record; call it when nothing is running.
// Trust    Names come from models; the writer escapes them.
// Memory   The writer holds the text; nothing else is kept.
#pragma once

#include <cstdint>

#include "davit/npu.h"
#include "exec/trace.hpp"

namespace davit::npu {

// Adds one process with all records that `npu` holds.
void add_trace(trace::TraceWriter& writer, const DvtNpu* npu, uint32_t pid);

}  // namespace davit::npu
