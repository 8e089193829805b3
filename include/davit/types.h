/* types.h: the plain types that every part of Davit shares.
 *
 * Threads  Types only; no state.
 * Trust    Enumerators that arrive in a file are checked by the image verifier
 *          (exec/verify.h) before anything switches on them.
 * Memory   DvtError is a fixed-size record that the caller owns. Filling it
 *          never allocates.
 */
#pragma once

#include <assert.h> /* static_assert in C11 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong. The values are stable: they are exit statuses of kernels
 * and part of the ABI. */
typedef int32_t DvtCode;
enum {
  DVT_OK = 0,
  DVT_INVALID_ARGUMENT = 1, /* The caller passed something unusable. */
  DVT_INVALID_IMAGE = 2,    /* An image or model file breaks a rule. */
  DVT_UNSUPPORTED = 3,      /* Valid, but not something Davit can do. */
  DVT_OUT_OF_MEMORY = 4,    /* Host or device memory, or a stated limit. */
  DVT_OUT_OF_RESOURCE = 5,  /* Streams, events, queue slots, ... */
  DVT_TIMEOUT = 6,          /* A deadline passed. */
  DVT_CANCELLED = 7,        /* The run was cancelled. */
  DVT_IO_ERROR = 8,         /* The operating system refused a file. */
  DVT_VERSION_MISMATCH = 9, /* Image, ABI and runtime versions disagree. */
  DVT_FAILED_STATE = 10,    /* Call not allowed in this state. */
  DVT_KERNEL_FAILED = 11,   /* A kernel reported an error of its own. */
  DVT_END_OF_SEQUENCE = 12, /* No more data; not an error. */
  DVT_INTERNAL = 13,        /* A bug in Davit. */
};

/* Where it went wrong. */
typedef enum DvtStage {
  DVT_STAGE_NONE = 0,
  DVT_STAGE_PARSE = 1,    /* Reading a model or text file. */
  DVT_STAGE_CHECK = 2,    /* Verifying a graph or an image. */
  DVT_STAGE_INFER = 3,    /* Shape and type inference. */
  DVT_STAGE_OPTIMISE = 4, /* Graph passes. */
  DVT_STAGE_LOWER = 5,    /* Compute graph to execute graph. */
  DVT_STAGE_PLAN = 6,     /* Memory planning. */
  DVT_STAGE_WRITE = 7,    /* Writing an image. */
  DVT_STAGE_LOAD = 8,     /* Opening an image, creating an executor. */
  DVT_STAGE_BIND = 9,     /* Binding inputs and outputs. */
  DVT_STAGE_RUN = 10,     /* Running Init, Main or DeInit. */
  DVT_STAGE_UNLOAD = 11,
} DvtStage;

/* One error, complete. Every string is NUL-terminated, cut if too long, and
 * empty when it does not apply. */
typedef struct DvtError {
  DvtCode code;
  DvtStage stage;
  char message[512]; /* One sentence: what happened. */
  char node[256];    /* Path of the original node, "outer/If_3.then/Conv_7". */
  char op[64];       /* "ai.onnx::Conv(11)" or a kernel's name. */
  char tensor[128];  /* Original tensor name. */
  char expected[128];
  char got[128];
  char hint[256]; /* What to do about it. */
} DvtError;

/* Element types. Values equal onnx.TensorProto.DataType, so that people
 * recognise them; gaps are types Davit does not know. */
typedef uint8_t DvtDType;
enum {
  DVT_DTYPE_NONE = 0,
  DVT_F32 = 1,
  DVT_U8 = 2,
  DVT_I8 = 3,
  DVT_U16 = 4,
  DVT_I16 = 5,
  DVT_I32 = 6,
  DVT_I64 = 7,
  DVT_STRING = 8, /* Elements are DvtString. */
  DVT_BOOL = 9,   /* One byte, 0 or 1. */
  DVT_F16 = 10,
  DVT_F64 = 11,
  DVT_U32 = 12,
  DVT_U64 = 13,
  DVT_BF16 = 16,
};

enum {
  DVT_MAX_RANK = 8,
  DVT_RANK_UNKNOWN = 255, /* Of a dynamic tensor whose shape is not set; see DvtTensor. */
};

/* Flags of a DvtTensor. */
enum {
  DVT_TENSOR_DYNAMIC = 1, /* The shape is set at run time. */
};

/* Describes a dense, row-major tensor. Lives in the image for static values
 * (shared by all executors, read-only), in the executor arena for dynamic ones.
 *
 *   0       1      2       4          8       16                      80
 *   | dtype | rank | flags | reserved | bytes | dims[0] ... dims[7]   |
 *
 * bytes = product(dims[0..rank)) * element size; dims[rank..8) are zero.
 *
 * In an image, the descriptor of a dynamic value says what is known before a run: rank may be
 * DVT_RANK_UNKNOWN, a dim may be -1, bytes are 0. At run time, dims and bytes are those of the run.
 */
typedef struct DvtTensor {
  DvtDType dtype;
  uint8_t rank;      /* 0 (scalar) to DVT_MAX_RANK. */
  uint16_t flags;    /* DVT_TENSOR_*. */
  uint32_t reserved; /* 0. */
  uint64_t bytes;
  int64_t dims[DVT_MAX_RANK];
} DvtTensor;
static_assert(sizeof(DvtTensor) == 80, "see the drawing above");
static_assert(offsetof(DvtTensor, bytes) == 8, "see the drawing above");
static_assert(offsetof(DvtTensor, dims) == 16, "see the drawing above");

/* An element of a DVT_STRING tensor: text in place, so that a tensor of strings has a size and a
 * place like any other. `length` bytes of UTF-8; the bytes behind them are 0, so that equal texts
 * are equal bytes. Whoever reads one from elsewhere checks the length. */
enum { DVT_STRING_MAX = 254 };
typedef struct DvtString {
  uint16_t length; /* 0 to DVT_STRING_MAX. */
  char text[DVT_STRING_MAX];
} DvtString;
static_assert(sizeof(DvtString) == 256, "four cache lines");

/* Bytes per element, or 0 for anything unknown. */
static inline uint32_t dvt_dtype_size(DvtDType dtype) {
  switch (dtype) {
    case DVT_U8:
    case DVT_I8:
    case DVT_BOOL:
      return 1;
    case DVT_U16:
    case DVT_I16:
    case DVT_F16:
    case DVT_BF16:
      return 2;
    case DVT_F32:
    case DVT_I32:
    case DVT_U32:
      return 4;
    case DVT_F64:
    case DVT_I64:
    case DVT_U64:
      return 8;
    case DVT_STRING:
      return sizeof(DvtString);
    default:
      return 0;
  }
}

/* What the address of an element is a multiple of; 1 for anything unknown. */
static inline uint32_t dvt_dtype_alignment(DvtDType dtype) {
  const uint32_t size = dtype == DVT_STRING ? sizeof(uint16_t) : dvt_dtype_size(dtype);
  return size == 0 ? 1 : size;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
