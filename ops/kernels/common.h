/* common.h: what the reference kernels share: checks of a context, f16 and bf16, strides.
 *
 * Threads  Pure functions of their arguments.
 * Trust    The dvt_check_* functions judge contexts from untrusted files. They may assume what the
 *          image verifier proved: ranks up to DVT_MAX_RANK, dims >= 0, bytes = product of the dims
 *          x element size without overflow, and an attribute record of the kernel's size. They
 *          assume nothing about counts, dtypes, absent operands or attribute values.
 * Memory   Nothing is allocated.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a printf-style reason, cut to `size`; `reason` may be NULL. Returns
 * DVT_INVALID_ARGUMENT, so that a check can end in `return dvt_refuse(...)`. */
DvtCode dvt_refuse(char* reason, size_t size, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/* Short name for messages: "f32", "i64", ...; "?" for anything unknown. */
const char* dvt_dtype_text(DvtDType dtype);

enum { DVT_SHAPE_TEXT = 200 };
/* Writes "[1,3,224,224]" into `text` and returns it. */
const char* dvt_shape_text(const DvtTensor* tensor, char text[DVT_SHAPE_TEXT]);

/* The same of `rank` (at most DVT_MAX_RANK) dims. */
const char* dvt_dims_text(uint32_t rank, const int64_t* dims, char text[DVT_SHAPE_TEXT]);

/* A count within [min, max], and the first input_min inputs present with tensors of numbers.
 * Every input that is present has such a tensor afterwards. For infer(), which must not look at
 * outputs. */
DvtCode dvt_check_inputs(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                         char* reason, size_t size);

/* Counts within [min, max], and the first input_min inputs and output_min outputs present with
 * tensors of numbers. Every operand that is present has such a tensor afterwards. */
DvtCode dvt_check_counts(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                         uint32_t output_min, uint32_t output_max, char* reason, size_t size);

/* The same for kernels that take strings (DVT_KERNEL_STRINGS), which the functions above refuse. */
DvtCode dvt_check_any_inputs(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                             char* reason, size_t size);
DvtCode dvt_check_any_counts(const DvtContext* ctx, uint32_t input_min, uint32_t input_max,
                             uint32_t output_min, uint32_t output_max, char* reason, size_t size);

/* The kernel has an attribute record. */
DvtCode dvt_check_attributes(const DvtContext* ctx, char* reason, size_t size);

/* `what` ("input 0") must have `dtype`. */
DvtCode dvt_check_dtype(const DvtTensor* tensor, DvtDType dtype, const char* what, char* reason,
                        size_t size);

/* The inputs and outputs in the bit masks must have `dtype`, as far as they are present. After
 * dvt_check_counts(). */
DvtCode dvt_check_dtypes(const DvtContext* ctx, uint32_t inputs, uint32_t outputs, DvtDType dtype,
                         char* reason, size_t size);

/* Same rank and dims. */
DvtCode dvt_check_same_shape(const DvtTensor* expected, const DvtTensor* got, const char* what,
                             char* reason, size_t size);

/* `what` must have exactly the dims given. */
DvtCode dvt_check_shape(const DvtTensor* tensor, uint32_t rank, const int64_t* dims,
                        const char* what, char* reason, size_t size);

/* Operand accessors; an operand is absent when its cell is NULL. */
static inline bool dvt_has_input(const DvtContext* ctx, uint32_t index) {
  return index < ctx->input_count && dvt_input(ctx, index);
}
static inline bool dvt_has_output(const DvtContext* ctx, uint32_t index) {
  return index < ctx->output_count && dvt_output(ctx, index);
}
static inline const DvtTensor* dvt_input_tensor(const DvtContext* ctx, uint32_t index) {
  return dvt_input(ctx, index)->tensor;
}
static inline const DvtTensor* dvt_output_tensor(const DvtContext* ctx, uint32_t index) {
  return dvt_output(ctx, index)->tensor;
}
static inline const void* dvt_input_data(const DvtContext* ctx, uint32_t index) {
  return dvt_input(ctx, index)->data;
}
static inline void* dvt_output_data(const DvtContext* ctx, uint32_t index) {
  return dvt_output(ctx, index)->data;
}

/* Number of elements. Cannot overflow for a verified tensor. */
static inline int64_t dvt_tensor_elements(const DvtTensor* tensor) {
  const uint32_t size = dvt_dtype_size(tensor->dtype);
  return size == 0 ? 0 : (int64_t)(tensor->bytes / size);
}

/* Row-major strides in elements. Zero when the tensor is empty, so that the products of the other
 * dims cannot overflow. */
void dvt_row_major_strides(const DvtTensor* tensor, int64_t strides[DVT_MAX_RANK]);

/* The element whose bytes are the low ones of `bits`. */
static inline void dvt_element_from_bits(int64_t bits, uint32_t size, char element[8]) {
  const uint8_t as_u8 = (uint8_t)bits;
  const uint16_t as_u16 = (uint16_t)bits;
  const uint32_t as_u32 = (uint32_t)bits;
  const void* source = size == 1   ? (const void*)&as_u8
                       : size == 2 ? (const void*)&as_u16
                       : size == 4 ? (const void*)&as_u32
                                   : (const void*)&bits;
  memcpy(element, source, size);
}

/* ---- f16 and bf16 ----------------------------------------------------------------------------
 * Stored as uint16_t. Widening is exact; narrowing rounds to nearest, ties to even, overflows to
 * infinity, and keeps NaN a (quiet) NaN. Branch-free, so that loops over them vectorise. */

static inline float dvt_f32_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline uint32_t dvt_f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float dvt_f32_from_bf16(uint16_t value) {
  return dvt_f32_from_bits((uint32_t)value << 16);
}
static inline uint16_t dvt_bf16_from_f32(float value) {
  const uint32_t bits = dvt_f32_bits(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const uint32_t quiet = bits | 0x400000u;
  return (uint16_t)((value != value ? quiet : rounded) >> 16);
}

static inline float dvt_f32_from_f16(uint16_t value) {
  const uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
  const uint32_t magnitude = (uint32_t)(value & 0x7fffu) << 13;
  /* Normal: move the exponent bias from 15 to 127; infinity and NaN need as much again. */
  uint32_t normal = magnitude + (112u << 23);
  normal += magnitude >= (31u << 23) ? (112u << 23) : 0u;
  /* Subnormal: let the subtraction of 2^-14 normalise it. */
  const uint32_t subnormal =
      dvt_f32_bits(dvt_f32_from_bits(magnitude + (113u << 23)) - dvt_f32_from_bits(113u << 23));
  return dvt_f32_from_bits((magnitude < (1u << 23) ? subnormal : normal) | sign);
}
static inline uint16_t dvt_f16_from_f32(float value) {
  const uint32_t bits = dvt_f32_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  /* Normal result: rebias, round the 13 dropped bits; a carry into the exponent is right. */
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  /* Subnormal result: adding 0.5 aligns the bits, and the FPU rounds them. */
  const uint32_t subnormal = dvt_f32_bits(dvt_f32_from_bits(magnitude) + 0.5f) - (126u << 23);
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half; /* 65520 and above, infinity. */
  half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half; /* NaN. */
  return (uint16_t)(half | sign);
}

#ifdef __cplusplus
} /* extern "C" */
#endif
