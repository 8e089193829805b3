/* runtime.h: what kernels that drive a device (exec/device_kernels.c) find behind
 * DvtContext.runtime. Pure compute kernels never look at it.
 *
 * Threads  One per executor. Fields are fixed at load, but for streams[] and events[], which Init
 *          fills and DeInit empties, and `reason`, written by the failing node only.
 * Memory   Owned by the executor, in its arena.
 */
#pragma once

#include "davit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtNodeNames {
  const char* origin;
  const char* op;
} DvtNodeNames;

typedef struct DvtRuntime {
  DvtDevice* device;
  DvtStream** streams; /* [stream_count] */
  DvtEvent** events;   /* [event_count] */
  uint32_t stream_count;
  uint32_t event_count;
  const DvtKernel* const* kernels; /* [kernel_count]; the image's kernel table, resolved. */
  uint32_t kernel_count;
  uint32_t node_count;
  const DvtNodeNames* names;       /* [node_count] of the graph that is running. */
  const DvtTaskCost* const* costs; /* [node_count] entries may be NULL. */
  int64_t synchronize_timeout_us;
  void* launch_buffer; /* Scratch for argument records; launch_buffer_bytes long. */
  size_t launch_buffer_bytes;
  char* reason; /* A failing kernel may say why; reason_bytes long. */
  size_t reason_bytes;
} DvtRuntime;

/* Init/Main/DeInit nodes of device graphs. In, out: operands; "attr": the attribute record.
 *
 *   name            lane    in                      out      attr
 *   CreateStream    memory  -                       -        stream, priority
 *   DestroyStream   memory  -                       -        stream
 *   CreateEvent     memory  -                       -        event
 *   DestroyEvent    memory  -                       -        event
 *   AllocMemHbm     memory  -                       device   bytes
 *   FreeMemHbm      memory  device                  -        -          (DVT_KERNEL_FREE)
 *   BuildRefTensor  memory  device                  device   -          (same address, other dims)
 *   LaunchH2DCopy   launch  host, device            -        -
 *   LaunchD2HCopy   launch  device                  host     -
 *   LaunchKernel    launch  device kernel's inputs  outputs  those of the device kernel
 *   RecordEvent     launch  -                       -        event
 *   WaitEvent       launch  -                       -        event
 *   SyncStream      normal  -                       -        stream
 *
 * The stream of a launch-lane node is its DvtContext.stream. Device operands are values of kind
 * Device; host operands are Constant, Input, Output or Planned. LaunchKernel's outputs are device
 * operands that an AllocMemHbm has already filled: to the graph they are inputs that it overwrites,
 * so a LaunchKernel writes no cell and control edges order it after the AllocMemHbm of its outputs.
 */
DvtKernelTable dvt_device_kernels(void);

#ifdef __cplusplus
}
#endif
