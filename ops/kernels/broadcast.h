/* broadcast.h: runs one loop over operands that broadcast to the output's shape.
 *
 * Every pointwise kernel is a loop over contiguous arrays plus this driver. The driver collapses
 * axes, walks the outer ones, and hands rows to the loop:
 *
 *   - operands as they are, when they are contiguous along the row and need no conversion;
 *   - in blocks of DVT_BLOCK elements otherwise. A repeated element is copied to fill a block, and
 *     operands with a `convert` (f16 to f32, say) are converted block by block, so that one loop
 *     serves every kind of operand and still vectorises.
 *
 * Threads  Pure functions of their arguments.
 * Trust    The output has the shape that dvt_infer_placed() gives.
 * Memory   About 16 KiB of stack for blocks.
 */
#pragma once

#include "davit/kernel.h"
#include "ops/kernels/convert.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_BLOCK = 512, DVT_MAP_INPUTS = 3 };

/* Computes count elements of `output` from count elements of each input. Output may be the same
 * memory as inputs[0]; otherwise nothing overlaps. */
typedef void (*DvtLoop)(const void* const* inputs, void* output, int64_t count,
                        const void* parameters);

typedef struct DvtOperand {
  void* data;
  const DvtTensor* tensor;
  uint32_t size;          /* Bytes per element in memory. */
  uint32_t loop_size;     /* Bytes per element that the loop sees. */
  DvtConvertLoop convert; /* From memory to loop (inputs), loop to memory (output), or NULL. */
} DvtOperand;

typedef struct DvtMap {
  DvtLoop loop;
  const void* parameters; /* Passed through to the loop. */
  uint32_t input_count;   /* 1 to DVT_MAP_INPUTS. */
  DvtOperand inputs[DVT_MAP_INPUTS];
  DvtOperand output;
} DvtMap;

/* Operands of the context. 16-bit floats are converted, so that loops see f32. */
DvtOperand dvt_map_input(const DvtContext* ctx, uint32_t index);
DvtOperand dvt_map_output(const DvtContext* ctx);

/* `axis` places input 1's first axis on that axis of the output, as in opsets before 7; -1 aligns
 * last axes, as numpy does, which every other input always does. Returns DVT_OK. */
DvtCode dvt_map_run(const DvtMap* map, int64_t axis);

/* The shape of such an output: what all inputs broadcast to, or with an axis, input 0's. Refuses
 * operands that do not broadcast, and any other axis. */
DvtCode dvt_infer_placed(const DvtContext* ctx, int64_t axis, DvtTensor* output, char* reason,
                         size_t size);

#ifdef __cplusplus
} /* extern "C" */
#endif
