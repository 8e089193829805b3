/* runtime.h: what kernels that drive a device (exec/device_kernels.c) find behind
 * DvtContext.runtime. Pure compute kernels never look at it.
 *
 * Threads  One per executor, and one for each node that runs bodies, which its bodies share: it has
 *          a reason and a note of the last shortage of its own, so that bodies run beside other
 *          nodes. Fields are fixed at load, but for streams[] and events[], which Init fills and
 *          DeInit empties, `deferred`, which is there in runs on several workers, and `reason`,
 *          written by failing nodes: device nodes that of their lane, others the first.
 * Memory   Owned by the executor, in its arena.
 */
#pragma once

#include "davit/device.h"
#include "exec/value_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtNodeNames {
  const char* origin;
  const char* op;
} DvtNodeNames;

struct DvtBody; /* exec/dynamic.h */

/* A dynamic output port. */
typedef struct DvtOutputSlot {
  const char* name;
  void* bound; /* The caller's buffer, or NULL: the engine provides the memory. */
  uint64_t capacity;
  DvtBlock owned; /* The engine's memory, kept from run to run; id 0: none. */
  uint64_t owned_bytes;
  DvtTensor given;   /* The shape that the caller says it has; when has_shape. */
  uint8_t has_shape; /* Else nothing was said. */
  uint8_t
      is_bound_only; /* Memory is bound for the largest shape: the true one comes with the data. */
} DvtOutputSlot;

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
  DvtValueMemory memory;
  DvtOutputSlot* outputs; /* [outputs of the image] */
  /* Runs a body to its end, or to the first code that is not DVT_OK, which it returns; by several
   * workers where the run has several. */
  DvtCode (*run_body)(struct DvtRuntime* runtime, const struct DvtBody* body);
  void* executor; /* For run_body(). */
  /* Of a run on several workers whose Frees may be ahead of Launches, else NULL. */
  struct DvtDeferredFrees* deferred;
  char* reason; /* A failing kernel may say why: one text for each lane, reason_bytes long each. */
  size_t reason_bytes;
} DvtRuntime;

/* What AllocMemHbm and FreeMemHbm do in the end, by the executor's cache or by the device. Memory
 * lane.
 */
DvtCode dvt_allocate_on_device(DvtRuntime* runtime, DvtCell* cell, uint64_t bytes,
                               const char* owner);
DvtCode dvt_free_on_device(DvtRuntime* runtime, DvtCell* cell);

/* exec/deferred_frees.hpp; the first returns DVT_STEP_SUSPENDED, too. */
int32_t dvt_deferred_allocate(struct DvtDeferredFrees* deferred, DvtRuntime* runtime, DvtCell* cell,
                              uint64_t bytes, const char* owner);
DvtCode dvt_deferred_free(struct DvtDeferredFrees* deferred, DvtRuntime* runtime, uint32_t node,
                          DvtCell* cell);
void dvt_deferred_submitted(struct DvtDeferredFrees* deferred, uint32_t node);

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
 *   PackHost        memory  host tensors            planned  -          (one after the other, each
 * at a multiple of 64 bytes) BuildPartTensor memory  device                  device   offset
 * (address and offset)
 *
 * The stream of a launch-lane node is its DvtContext.stream. Device operands are values of kind
 * Device; host operands are Constant, Input, Output or Planned. LaunchKernel's outputs are device
 * operands that an AllocMemHbm has already filled: to the graph they are inputs that it overwrites,
 * so a LaunchKernel writes no cell and control edges order it after the AllocMemHbm of its outputs.
 */
DvtKernelTable dvt_device_kernels(void);

/* Their attribute records. */
typedef struct DvtCreateStreamAttributes {
  int64_t stream;   /* Index in streams[]; below stream_count. */
  int64_t priority; /* 0 (normal) to 7. */
} DvtCreateStreamAttributes;
typedef struct DvtStreamAttributes { /* DestroyStream, SyncStream. */
  int64_t stream;
} DvtStreamAttributes;
typedef struct DvtEventAttributes { /* CreateEvent, DestroyEvent, RecordEvent, WaitEvent. */
  int64_t event;                    /* Index in events[]; below event_count. */
} DvtEventAttributes;
typedef struct DvtAllocAttributes {
  int64_t bytes; /* At least the bytes of the output's tensor. */
} DvtAllocAttributes;

typedef struct DvtPartAttributes {
  int64_t offset; /* A multiple of 64; the output ends within the input. */
} DvtPartAttributes;
enum { DVT_PACK_ALIGNMENT = 64 };

/* Bytes of the argument record of a LaunchKernel context with `operands` cells. */
size_t dvt_launch_argument_bytes(size_t operands);

/* Which of dvt_device_kernels() a kernel is; DVT_NODE_OTHER for any other kernel. */
typedef enum DvtDeviceNode {
  DVT_NODE_OTHER = 0,
  DVT_NODE_CREATE_STREAM,
  DVT_NODE_DESTROY_STREAM,
  DVT_NODE_CREATE_EVENT,
  DVT_NODE_DESTROY_EVENT,
  DVT_NODE_ALLOC,
  DVT_NODE_FREE,
  DVT_NODE_BUILD_REF,
  DVT_NODE_COPY_H2D,
  DVT_NODE_COPY_D2H,
  DVT_NODE_LAUNCH,
  DVT_NODE_RECORD_EVENT,
  DVT_NODE_WAIT_EVENT,
  DVT_NODE_SYNC_STREAM,
  DVT_NODE_PACK_HOST,
  DVT_NODE_BUILD_PART,
} DvtDeviceNode;
DvtDeviceNode dvt_device_node(const DvtKernel* kernel);

#ifdef __cplusplus
}
#endif
