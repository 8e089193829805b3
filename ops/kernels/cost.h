/* cost.h: what cost functions of kernels (DvtKernel.cost) share.
 *
 * Threads  Pure functions of their arguments.
 * Trust    The context has passed check().
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dtype of input 0, all inputs read once and the first `outputs` outputs written once. */
void dvt_cost_traffic(const DvtContext* ctx, uint32_t outputs, DvtTaskCost* cost);

/* Product of the dims [begin, end): saturated. */
uint64_t dvt_cost_volume(const DvtTensor* tensor, uint32_t begin, uint32_t end);

#ifdef __cplusplus
} /* extern "C" */
#endif
