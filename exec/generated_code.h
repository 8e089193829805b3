/* generated_code.h: what the code segment of an image exports, to those who make it and who load
 * it.
 *
 * The segment is a shared object. Its one symbol, dvt_generated_code(), returns a constant record:
 *
 *   DvtGeneratedCode -> variants, the most demanding processor first
 *                         isa "avx512" -> kernels  generated.0f3a..., generated.77c0..., ...
 *                         isa "avx2"   -> kernels  the same names in the same order
 *
 * The loader takes the first variant that the processor can run.
 *
 * Threads  Constant data.
 * Trust    Code is as trusted as the program that loads it: nothing confines it.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_GENERATED_CODE_VERSION = 1 };

/* Names of all kernels in a code segment begin with this; no other kernel's does. */
#define DVT_GENERATED_PREFIX "generated."

typedef struct DvtCodeVariant {
  const char* isa; /* "baseline", "avx2" (with FMA) or "avx512" (F). */
  DvtKernelTable kernels;
} DvtCodeVariant;

typedef struct DvtGeneratedCode {
  uint32_t struct_size; /* sizeof(DvtGeneratedCode) */
  uint32_t version;     /* DVT_GENERATED_CODE_VERSION */
  const DvtCodeVariant* variants;
  size_t variant_count;
} DvtGeneratedCode;

#ifdef __cplusplus
} /* extern "C" */
#endif
