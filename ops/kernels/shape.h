/* shape.h: shape functions (DvtKernel.infer): what the kernels' infer() share.
 *
 * A rule about shapes is written once, in infer(). check() runs it too and compares what it gives
 * with the outputs that are there: dvt_check_inferred().
 *
 * infer() sees inputs only; it must not look at the context's outputs. Whatever it gets through its
 * context is as untrusted as in check(): it begins with dvt_check_inputs(), and
 * dvt_check_attributes() when it reads the record.
 *
 * Parameters that are inputs (axes, sizes ...; DvtKernel.host_inputs) are read with
 * dvt_read_integers(). When shapes are static but values are not, check() runs while such an
 * input has no data yet: it then leaves to run() what depends on them, and run() refuses values
 * that do not fit the tensors. See dvt_has_data().
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

/* Output 0 has the shape that all inputs broadcast to, as numpy does; none may be absent. */
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
