/* flow_kernels.h: the nodes that run bodies (exec/dynamic.h). */
#pragma once

#include "davit/kernel.h"

DvtCode dvt_run_if(void* context);
DvtCode dvt_run_loop(void* context);
