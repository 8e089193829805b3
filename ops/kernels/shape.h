/* shape.h: shape functions (DvtKernel.infer): what the kernels' infer() share.
 *
 * A rule about shapes is written once, in infer(). check() runs it too and compares what it gives
 * with the outputs that are there: dvt_check_inferred().
 *
 * infer() sees inputs only; it must not look at the context's outputs. Whatever it gets through its
 * context is as untrusted as in check(): it begins with dvt_check_inputs(), and
 * dvt_check_attributes() when it reads the record.
 *
 * Parameters (axes, sizes ...) are in the record when they are constant, and inputs of the kernel
 * otherwise (DvtKernel.host_inputs): DvtIntegerList. When shapes are static but values are not,
 * check() runs while such an input has no data yet: it then leaves to run() what depends on
 * values, and run() checks again. See dvt_has_parameters() and dvt_lacks_parameters().
 *
 * Threads  Pure functions of their arguments. Called at run time: no allocation, no locks.
 * Trust    As common.h: ranks and dims of tensors are the verifier's or the executor's; counts,
 *          dtypes, absent operands, attributes and parameter values are anybody's.
 * Memory   Outputs are the caller's.
 */
#pragma once

#include "ops/kernels/common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the shape, with a reason when there is none: "output 0: ...". dtype is set already. */
DvtCode dvt_infer_shape(DvtTensor* output, uint32_t rank, const int64_t* dims, const char* what,
                        char* reason, size_t size);

/* A scratch output of u8[bytes]. */
DvtCode dvt_infer_scratch(DvtTensor* output, uint64_t bytes, char* reason, size_t size);

/* ---- Whole infer() functions, for the table ---------------------------------------------------
 */

/* Every output has the shape of input 0. */
DvtCode dvt_infer_same(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);

/* Output 0 has the shape that all inputs broadcast to, as numpy does. There is
 * one at least, and none is absent. */
DvtCode dvt_infer_broadcast(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);

/* ---- Parts of infer() -------------------------------------------------------------------------
 */

/* Broadcasts `more` into a shape of `rank` dims; false when they do not go together. Start with
 * rank 0, which broadcasts to anything. */
bool dvt_broadcast_dims(uint32_t* rank, int64_t dims[DVT_MAX_RANK], uint32_t more_rank,
                        const int64_t* more);

/* `axis` in [-rank, rank) as one in [0, rank). */
DvtCode dvt_normalise_axis(int64_t axis, uint32_t rank, uint32_t* normal, char* reason,
                           size_t size);

/* Bit i of *mask: axis i is among `axes`, which may be negative. Refuses one named twice. */
DvtCode dvt_axes_mask(const int64_t* axes, uint32_t count, uint32_t rank, uint32_t* mask,
                      char* reason, size_t size);

/* The input is there and its elements can be read, or it has none. */
bool dvt_has_data(const DvtContext* ctx, uint32_t index);

/* The elements of a parameter of rank 0 or 1, i32 or i64, at most `limit` of them. Refuses others,
 * and a parameter that is absent or whose data is not there. `what` names it: "axes". */
DvtCode dvt_read_integers(const DvtContext* ctx, uint32_t index, const char* what, int64_t* values,
                          uint32_t limit, uint32_t* count, char* reason, size_t size);

/* The same for a parameter of exactly one element. */
DvtCode dvt_read_integer(const DvtContext* ctx, uint32_t index, const char* what, int64_t* value,
                         char* reason, size_t size);

/* A list in an attribute record: as it is there, or as an input holds it. */
typedef struct DvtIntegerList {
  int64_t count; /* Of the values below, or one of these: */
  int64_t values[DVT_MAX_RANK];
} DvtIntegerList;
enum {
  DVT_LIST_INPUT = -1, /* An input of the kernel has the list. */
  DVT_LIST_NONE = -2,  /* There is none. */
};

/* Reads `list`, or input `index` if it says so. *count is -1 when there is none. */
DvtCode dvt_read_list(const DvtContext* ctx, const DvtIntegerList* list, uint32_t index,
                      const char* what, int64_t values[DVT_MAX_RANK], int32_t* count, char* reason,
                      size_t size);

/* True when an input in the mask is present: run() has to check() once more, because values may
 * not have been there before. */
static inline bool dvt_has_parameters(const DvtContext* ctx, uint32_t mask) {
  for (uint32_t i = 0; i < ctx->input_count && i < 32; ++i) {
    if ((mask >> i & 1u) != 0 && dvt_has_input(ctx, i)) return true;
  }
  return false;
}

/* True when the values of a present input in the mask are not there: check() can judge neither
 * them nor the shapes that depend on them. */
static inline bool dvt_lacks_parameters(const DvtContext* ctx, uint32_t mask) {
  for (uint32_t i = 0; i < ctx->input_count && i < 32; ++i) {
    if ((mask >> i & 1u) != 0 && dvt_has_input(ctx, i) && !dvt_has_data(ctx, i)) return true;
  }
  return false;
}

/* ---- For check() ------------------------------------------------------------------------------
 */

enum { DVT_INFERRED_MAX = 8 }; /* Outputs of a kernel that dvt_check_inferred() can judge. */

/* Runs `infer` and refuses outputs with other shapes. The last `scratch` outputs may also be larger
 * than it asks for. Absent outputs pass. */
DvtCode dvt_check_inferred(const DvtContext* ctx, DvtKernelInferFn infer, uint32_t scratch,
                           char* reason, size_t size);

#ifdef __cplusplus
} /* extern "C" */
#endif
