/* flow_kernels.h: the nodes that run bodies (exec/dynamic.h). */
#pragma once

#include "davit/kernel.h"
#include "exec/runtime.h"

DvtCode dvt_run_if(void* context);
DvtCode dvt_run_loop(void* context);
DvtCode dvt_run_select_gear(void* context);

/* exec/dynamic_kernels.c: gives a dynamic output, whose shape is set, the caller's buffer or memory
 * of the executor. */
DvtCode dvt_bind_output(DvtRuntime* runtime, DvtOutputSlot* slot, DvtCell* cell);
