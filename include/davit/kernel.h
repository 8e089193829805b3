/* kernel.h: the kernel ABI. What a node of an execute graph calls.
 *
 * Threads  A kernel may be called from any thread, never twice at once on the
 *          same context. Kernels keep no state outside their context.
 * Trust    check() runs once when an image is opened, before any run(). It sees
 *          the final tensors, attributes and counts of a context that comes
 *          from an untrusted file and must refuse whatever run() could not
 *          survive. run() re-checks nothing that check() established.
 * Memory   The executor owns contexts, cells and tensors. A kernel owns
 *          nothing, and run() does not allocate: scratch memory is an ordinary
 *          output value that lowering has planned.
 *
 * An execute-graph node is {fn, ctx} (DvtStep). The context is one contiguous
 * record in the executor's arena:
 *
 *   0         8            16            20      24       28            32
 *   | runtime | attributes | ins | outs  | node  | stream | device_kern | cells...
 *                            u16   u16     u32     u32      u32
 *
 * cells[0..input_count) are the inputs, then output_count outputs. An absent
 * optional operand is a NULL cell pointer. Values that alias share one cell.
 */
#pragma once

#include <stdbool.h>

#include "davit/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_KERNEL_ABI_VERSION = 1 };

/* A value: 16 bytes. Host scalars (sizes, handles) use `word`. */
typedef struct DvtCell {
  union {
    void* data;    /* First element; host or device address by placement. */
    uint64_t word; /* For values without a tensor. */
  };
  const DvtTensor* tensor; /* NULL for a plain word. */
} DvtCell;
static_assert(sizeof(DvtCell) == 16, "cells are packed four to a cache line");

struct DvtTaskCost; /* below */
struct DvtRuntime;  /* exec/runtime.h: what host nodes of a device graph need. */

typedef struct DvtContext {
  struct DvtRuntime* runtime;
  const void* attributes; /* In the image, 8-byte aligned; see DvtAttribute. */
  uint16_t input_count;
  uint16_t output_count;
  uint32_t node;          /* Index in its graph; names it in errors, traces. */
  uint32_t stream;        /* Logical stream, or DVT_NO_INDEX. */
  uint32_t device_kernel; /* For Launch nodes: index in the kernel table of the
                             kernel that the task runs, else DVT_NO_INDEX. */
#ifdef __cplusplus
  DvtCell* cells[1]; /* input_count + output_count entries. */
#else
  DvtCell* cells[];
#endif
} DvtContext;
static_assert(offsetof(DvtContext, cells) == 32, "see the drawing above");

#define DVT_NO_INDEX UINT32_MAX

static inline DvtCell* dvt_input(const DvtContext* ctx, uint32_t index) {
  return ctx->cells[index];
}
static inline DvtCell* dvt_output(const DvtContext* ctx, uint32_t index) {
  return ctx->cells[ctx->input_count + index];
}

/* The descriptor of an output of a DVT_KERNEL_SHAPES_OUTPUTS kernel, for run() to write. Such
 * values have one of their own, in the executor's arena. */
static inline DvtTensor* dvt_output_shape(const DvtContext* ctx, uint32_t index) {
  return (DvtTensor*)dvt_output(ctx, index)->tensor;
}

/* Sets rank, dims (zero beyond the rank) and bytes of a tensor whose dtype is set.
 * DVT_INVALID_ARGUMENT for a rank above DVT_MAX_RANK, a negative dim, or 2^63 bytes and more; the
 * tensor is then unchanged. `dims` may be tensor->dims. */
static inline DvtCode dvt_set_shape(DvtTensor* tensor, uint32_t rank, const int64_t* dims) {
  if (rank > DVT_MAX_RANK) return DVT_INVALID_ARGUMENT;
  bool empty = false; /* An empty tensor has no bytes, however large its other dims. */
  for (uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return DVT_INVALID_ARGUMENT;
    empty = empty || dims[i] == 0;
  }
  int64_t bytes = empty ? 0 : dvt_dtype_size(tensor->dtype);
  for (uint32_t i = 0; i < rank && !empty; ++i) {
    if (__builtin_mul_overflow(bytes, dims[i], &bytes)) return DVT_INVALID_ARGUMENT;
  }
  for (uint32_t i = 0; i < DVT_MAX_RANK; ++i) tensor->dims[i] = i < rank ? dims[i] : 0;
  tensor->rank = (uint8_t)rank;
  tensor->bytes = (uint64_t)bytes;
  return DVT_OK;
}

/* Runs one node. Returns DVT_OK or the code that stops the run. */
typedef DvtCode (*DvtKernelFn)(void* ctx);

/* Refuses a context that run() could not survive. On refusal writes a reason
 * into `reason` (NUL-terminated, `reason_size` bytes; may be NULL). When an image
 * is opened, constant operands already point at their data; planned and bound
 * ones have tensor set and data NULL. With dynamic shapes it runs again when the
 * shapes are known: then only the inputs in DvtKernel.host_inputs have data, and
 * the data pointers of others mean nothing. */
typedef DvtCode (*DvtKernelCheckFn)(const DvtContext* ctx, char* reason, size_t reason_size);

/* Shapes of the outputs from the inputs, for graphs with dynamic shapes: sets rank, dims and bytes
 * (dvt_set_shape()) of outputs[0 .. output_count), scratch outputs included; their dtypes are set.
 * Inputs have their final tensors; data may be read only of the inputs in DvtKernel.host_inputs.
 * Refuses what has no shape, and writes why into `reason`. check() runs on the result, before
 * run(). Called at run time: no allocation, no locks. */
typedef DvtCode (*DvtKernelInferFn)(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                    size_t reason_size);

/* Work of a task with the context's final tensors, for devices' clocks; see DvtTaskCost. */
typedef void (*DvtKernelCostFn)(const DvtContext* ctx, struct DvtTaskCost* cost);

/* One attribute of a kernel. The attribute record is a C struct whose members
 * are int64_t, double, or arrays of them, so that text dumps can name and
 * round-trip each one on any host. */
typedef struct DvtAttribute {
  const char* name;
  uint16_t offset; /* Bytes from the record's start; a multiple of 8. */
  uint8_t count;   /* Array length; 1 for a scalar. */
  char kind;       /* 'i' for int64_t, 'f' for double. */
} DvtAttribute;

enum {
  DVT_KERNEL_LANE_NORMAL = 0,
  DVT_KERNEL_LANE_MEMORY = 1, /* Changes allocator or shared-tensor state. */
  DVT_KERNEL_LANE_LAUNCH = 2, /* Submits to a device, in order. */
  DVT_KERNEL_LANE_MASK = 3,
  DVT_KERNEL_PURE = 4,     /* Outputs depend on inputs and attributes only. */
  DVT_KERNEL_IN_PLACE = 8, /* Output 0 may be the same memory as input 0. */
  DVT_KERNEL_DEVICE = 16,  /* May be the device_kernel of a Launch node. */
  DVT_KERNEL_FREE = 32,    /* Releases device memory (Free-to-Launch source). */
  DVT_KERNEL_ALIAS = 64, /* Output 0 is the bytes of input 0 with other dims: run() does nothing. */
  /* Output shapes depend on data: infer() gives an upper bound of each dim, and run() ends with
   * dvt_set_shape() on its outputs (dvt_output_shape()), never above it. */
  DVT_KERNEL_SHAPES_OUTPUTS = 128,
  /* Neither check() nor run() reads data of its inputs, only their tensors: Shape, Size. */
  DVT_KERNEL_SHAPE_ONLY = 256,
  /* Operands may be of DVT_STRING. */
  DVT_KERNEL_STRINGS = 512,
};

typedef struct DvtKernel {
  const char* name;     /* "Conv.f32"; unique in a table. Kernels of users carry a
                           prefix: "acme.MovingAverage". */
  uint32_t abi_version; /* DVT_KERNEL_ABI_VERSION it was built with. */
  uint32_t flags;       /* DVT_KERNEL_*. */
  uint16_t input_min, input_max;
  uint16_t output_min, output_max;
  uint32_t attribute_bytes; /* Size of its attribute record; 0 for none. */
  uint32_t attribute_count;
  const DvtAttribute* attributes;
  DvtKernelFn run;
  DvtKernelCheckFn check; /* Never NULL for kernels that touch tensors. */
  DvtKernelInferFn infer; /* NULL: only static shapes. */
  DvtKernelCostFn cost;   /* NULL: one vector pass over what it reads and writes. */
  uint32_t
      host_inputs; /* Bit i: infer(), check() or run() depends on the data of input i (axes). */
} DvtKernel;

/* A table of kernels, resolved by name at load. Tables are passed explicitly,
 * never registered by constructors, so that a static link loses nothing. */
typedef struct DvtKernelTable {
  const DvtKernel* kernels;
  size_t count;
} DvtKernelTable;

/* Work of one device task, for the device model's clock. Computed at lowering
 * (ops: cost), stored in the image, used by npu_model. All zero means free. */
typedef struct DvtTaskCost {
  uint8_t kind;   /* DvtTaskKind. */
  DvtDType dtype; /* Of the main operand. */
  uint16_t reserved;
  uint32_t block_dim;               /* Cores asked for; 0 lets the model choose. */
  uint64_t batch, m, n, k;          /* Cube tasks: batch products m x k by k x n. */
  uint64_t vector_elements;         /* Elements that pass the vector unit ... */
  uint64_t vector_passes_x100;      /* ... this many times, in hundredths. */
  uint64_t read_bytes, write_bytes; /* Unique global-memory traffic. */
} DvtTaskCost;
static_assert(sizeof(DvtTaskCost) == 72, "stored in images as is");

enum DvtTaskKind {
  DVT_TASK_NONE = 0,
  DVT_TASK_MATMUL = 1, /* MatMul, Gemm. */
  DVT_TASK_CONV = 2,   /* Convolution as implicit product; m = output pixels. */
  DVT_TASK_VECTOR = 3, /* Pointwise, reductions, normalisation, pooling. */
  DVT_TASK_MOVE = 4,   /* Pure data movement. */
  DVT_TASK_AICPU = 5,  /* Runs on an AICPU. */
};

#ifdef __cplusplus
} /* extern "C" */
#endif
