/* kernels.h: the kernels of the pipeline. They know nothing of Davit but its kernel ABI. */
#pragma once

#include <davit/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* acme.MovingAverage  f32[n] -> f32[n]   mean of the last `window` samples
 * acme.Above          f32[n] -> bool[n]  sample > level
 * acme.Rising         bool[n] -> i64[1]  changes from false to true */
DvtKernelTable acme_kernels(void);

#ifdef __cplusplus
}
#endif
