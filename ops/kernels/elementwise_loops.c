/* elementwise_loops.c: the templates of the pointwise loops, once per element type. */
#include "ops/kernels/elementwise_loops.h"

#include <math.h>

#include "ops/kernels/common.h"
#include "ops/kernels/elementwise.h"

#define DVT_PASTE(a, b) a##_##b
#define DVT_PASTE_EXPANDED(a, b) DVT_PASTE(a, b)
#define DVT_FN(name) DVT_PASTE_EXPANDED(DVT_SUFFIX, name)

#define DVT_SUFFIX f32
#define T float
#define U float
#define DVT_FLOAT 1
#define DVT_SIGNED 1
#define DVT_FROM_F64(x) (float)(x)
#define DVT_FMOD(x, y) fmodf(x, y)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX f64
#define T double
#define U double
#define DVT_FLOAT 1
#define DVT_SIGNED 1
#define DVT_FROM_F64(x) (x)
#define DVT_FMOD(x, y) fmod(x, y)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX i8
#define T int8_t
#define U uint32_t
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#define DVT_FROM_F64(x) (int8_t) dvt_clamp_f64(x, INT8_MIN, INT8_MAX)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX u8
#define T uint8_t
#define U uint32_t
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#define DVT_FROM_F64(x) (uint8_t) dvt_clamp_f64(x, 0, UINT8_MAX)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX i16
#define T int16_t
#define U uint32_t
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#define DVT_FROM_F64(x) (int16_t) dvt_clamp_f64(x, INT16_MIN, INT16_MAX)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX u16
#define T uint16_t
#define U uint32_t
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#define DVT_FROM_F64(x) (uint16_t) dvt_clamp_f64(x, 0, UINT16_MAX)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX i32
#define T int32_t
#define U uint32_t
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#define DVT_FROM_F64(x) (int32_t) dvt_clamp_f64(x, INT32_MIN, INT32_MAX)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX u32
#define T uint32_t
#define U uint32_t
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#define DVT_FROM_F64(x) (uint32_t) dvt_clamp_f64(x, 0, UINT32_MAX)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX i64
#define T int64_t
#define U uint64_t
#define DVT_FLOAT 0
#define DVT_SIGNED 1
#define DVT_FROM_F64(x) dvt_i64_from_f64(x)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX u64
#define T uint64_t
#define U uint64_t
#define DVT_FLOAT 0
#define DVT_SIGNED 0
#define DVT_FROM_F64(x) dvt_u64_from_f64(x)
#include "ops/kernels/elementwise_numeric.inc"

#define DVT_SUFFIX f32
#define T float
#define DVT_MATH(name) name##f
#include "ops/kernels/elementwise_float.inc"

#define DVT_SUFFIX f64
#define T double
#define DVT_MATH(name) name
#include "ops/kernels/elementwise_float.inc"

const DvtNumericLoops* dvt_numeric_loops(DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
    case DVT_F16:
    case DVT_BF16:
      return &f32_numeric;
    case DVT_F64:
      return &f64_numeric;
    case DVT_I8:
      return &i8_numeric;
    case DVT_I16:
      return &i16_numeric;
    case DVT_I32:
      return &i32_numeric;
    case DVT_I64:
      return &i64_numeric;
    case DVT_U8:
      return &u8_numeric;
    case DVT_U16:
      return &u16_numeric;
    case DVT_U32:
      return &u32_numeric;
    case DVT_U64:
      return &u64_numeric;
    default:
      return NULL;
  }
}

const DvtFloatLoops* dvt_float_loops(DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
    case DVT_F16:
    case DVT_BF16:
      return &f32_float;
    case DVT_F64:
      return &f64_float;
    default:
      return NULL;
  }
}

/* Booleans. */
#define DVT_NAME bool_and
#define DVT_FIRST uint8_t
#define DVT_SECOND uint8_t
#define DVT_RESULT uint8_t
#define DVT_EXPRESSION(x, y) ((x) != 0 && (y) != 0)
#include "ops/kernels/elementwise_loop.inc"

#define DVT_NAME bool_or
#define DVT_FIRST uint8_t
#define DVT_SECOND uint8_t
#define DVT_RESULT uint8_t
#define DVT_EXPRESSION(x, y) ((x) != 0 || (y) != 0)
#include "ops/kernels/elementwise_loop.inc"

#define DVT_NAME bool_xor
#define DVT_FIRST uint8_t
#define DVT_SECOND uint8_t
#define DVT_RESULT uint8_t
#define DVT_EXPRESSION(x, y) (((x) != 0) != ((y) != 0))
#include "ops/kernels/elementwise_loop.inc"

#define DVT_NAME bool_equal
#define DVT_FIRST uint8_t
#define DVT_SECOND uint8_t
#define DVT_RESULT uint8_t
#define DVT_EXPRESSION(x, y) (((x) != 0) == ((y) != 0))
#include "ops/kernels/elementwise_loop.inc"

#define DVT_NAME bool_not
#define DVT_FIRST uint8_t
#define DVT_RESULT uint8_t
#define DVT_EXPRESSION(x) ((x) == 0)
#include "ops/kernels/elementwise_loop.inc"

const DvtLoop dvt_loop_and = bool_and;
const DvtLoop dvt_loop_or = bool_or;
const DvtLoop dvt_loop_xor = bool_xor;
const DvtLoop dvt_loop_not = bool_not;
const DvtLoop dvt_loop_equal_bool = bool_equal;

static void where_1(const void* const* inputs, void* output, int64_t count,
                    const void* parameters) {
  (void)parameters;
  const uint8_t* condition = inputs[0];
  const uint8_t* yes = inputs[1];
  const uint8_t* no = inputs[2];
  uint8_t* out = output;
  for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? yes[i] : no[i];
}

static void where_2(const void* const* inputs, void* output, int64_t count,
                    const void* parameters) {
  (void)parameters;
  const uint8_t* condition = inputs[0];
  const uint16_t* yes = inputs[1];
  const uint16_t* no = inputs[2];
  uint16_t* out = output;
  for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? yes[i] : no[i];
}

static void where_4(const void* const* inputs, void* output, int64_t count,
                    const void* parameters) {
  (void)parameters;
  const uint8_t* condition = inputs[0];
  const uint32_t* yes = inputs[1];
  const uint32_t* no = inputs[2];
  uint32_t* out = output;
  for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? yes[i] : no[i];
}

static void where_8(const void* const* inputs, void* output, int64_t count,
                    const void* parameters) {
  (void)parameters;
  const uint8_t* condition = inputs[0];
  const uint64_t* yes = inputs[1];
  const uint64_t* no = inputs[2];
  uint64_t* out = output;
  for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? yes[i] : no[i];
}

DvtLoop dvt_where_loop(uint32_t size) {
  return size == 1 ? where_1 : size == 2 ? where_2 : size == 4 ? where_4 : where_8;
}
