/* Host nodes of device graphs: exec/runtime.h lists them with their operands. Each run() trusts
 * what its check() and exec/device_flow.cpp established at load: counts, indices, tensors, and that
 * device operands are live. */
#include <stdbool.h>
#include <string.h>

#include "exec/reason.h"
#include "exec/runtime.h"
#include "exec/sequential_c/sequential.h"

enum {
  NORMAL = DVT_KERNEL_LANE_NORMAL,
  MEMORY = DVT_KERNEL_LANE_MEMORY,
  LAUNCH = DVT_KERNEL_LANE_LAUNCH,
  ANY = UINT16_MAX
};

/* Lanes may fail at once, so each has a reason of its own. */
static char* reason_of(const DvtRuntime* runtime, uint32_t lane) {
  return runtime->reason + lane * runtime->reason_bytes;
}

/* The device's own words become the node's reason. */
static DvtCode report(const DvtRuntime* runtime, uint32_t lane, DvtCode code) {
  if (code == DVT_OK) return DVT_OK;
  const char* words = runtime->device->vtable->last_error(runtime->device);
  return dvt_fail_because(code, reason_of(runtime, lane), runtime->reason_bytes, "%s",
                          words != NULL ? words : "");
}

/* ---- Checks --------------------------------------------------------------------------------- */

static DvtCode check_counts(const DvtContext* ctx, uint32_t inputs, uint32_t outputs, char* reason,
                            size_t size) {
  if (ctx->input_count != inputs || ctx->output_count != outputs) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                            "takes %u inputs and %u outputs, not %u and %u", inputs, outputs,
                            ctx->input_count, ctx->output_count);
  }
  for (uint32_t i = 0; i < inputs + outputs; ++i) {
    if (ctx->cells[i] == NULL)
      return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "operand %u is absent", i);
  }
  return DVT_OK;
}

static DvtCode check_index(const char* what, int64_t index, uint32_t count, char* reason,
                           size_t size) {
  if (index >= 0 && (uint64_t)index < count) return DVT_OK;
  return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "%s %lld is not below the plan's %u",
                          what, (long long)index, count);
}

/* A launch-lane node names its stream in the context. */
static DvtCode check_own_stream(const DvtContext* ctx, char* reason, size_t size) {
  if (ctx->stream == DVT_NO_INDEX)
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "has no stream");
  return check_index("stream", ctx->stream, ctx->runtime->stream_count, reason, size);
}

static DvtCode check_create_stream(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_counts(ctx, 0, 0, reason, size);
  if (code != DVT_OK) return code;
  const DvtCreateStreamAttributes* attributes = ctx->attributes;
  if (attributes->priority < 0 || attributes->priority > 7) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "priority %lld is not in 0..7",
                            (long long)attributes->priority);
  }
  return check_index("stream", attributes->stream, ctx->runtime->stream_count, reason, size);
}

static DvtCode check_stream_attribute(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_counts(ctx, 0, 0, reason, size);
  if (code != DVT_OK) return code;
  const DvtStreamAttributes* attributes = ctx->attributes;
  return check_index("stream", attributes->stream, ctx->runtime->stream_count, reason, size);
}

static DvtCode check_event_attribute(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_counts(ctx, 0, 0, reason, size);
  if (code != DVT_OK) return code;
  const DvtEventAttributes* attributes = ctx->attributes;
  return check_index("event", attributes->event, ctx->runtime->event_count, reason, size);
}

static DvtCode check_event_on_stream(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_event_attribute(ctx, reason, size);
  return code != DVT_OK ? code : check_own_stream(ctx, reason, size);
}

static DvtCode check_alloc(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_counts(ctx, 0, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtAllocAttributes* attributes = ctx->attributes;
  const DvtTensor* tensor = dvt_output(ctx, 0)->tensor;
  const uint64_t needed = tensor != NULL ? tensor->bytes : 0;
  if (attributes->bytes < 0 || (uint64_t)attributes->bytes < needed) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                            "allocates %lld bytes for a tensor of %llu",
                            (long long)attributes->bytes, (unsigned long long)needed);
  }
  return DVT_OK;
}

static DvtCode check_free(const DvtContext* ctx, char* reason, size_t size) {
  return check_counts(ctx, 1, 0, reason, size);
}

static DvtCode check_build_ref(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_counts(ctx, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* from = dvt_input(ctx, 0)->tensor;
  const DvtTensor* to = dvt_output(ctx, 0)->tensor;
  if (from == NULL || to == NULL) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "refers to a value without a tensor");
  }
  if (to->bytes > from->bytes) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                            "a reference of %llu bytes to a tensor of %llu",
                            (unsigned long long)to->bytes, (unsigned long long)from->bytes);
  }
  return DVT_OK;
}

static DvtCode check_build_part(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_build_ref(ctx, reason, size);
  if (code != DVT_OK) return code;
  const uint64_t room = dvt_input(ctx, 0)->tensor->bytes - dvt_output(ctx, 0)->tensor->bytes;
  const DvtPartAttributes* attributes = ctx->attributes;
  if (attributes->offset < 0 || attributes->offset % DVT_PACK_ALIGNMENT != 0 ||
      (uint64_t)attributes->offset > room) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                            "offset %lld is no multiple of %d that leaves room for the part",
                            (long long)attributes->offset, DVT_PACK_ALIGNMENT);
  }
  return DVT_OK;
}

static uint64_t packed_bytes(uint64_t bytes) {
  return (bytes + DVT_PACK_ALIGNMENT - 1) & ~(uint64_t)(DVT_PACK_ALIGNMENT - 1);
}

static DvtCode check_pack_host(const DvtContext* ctx, char* reason, size_t size) {
  if (ctx->input_count < 1 || ctx->output_count != 1) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                            "takes inputs and one output, not %u and %u", ctx->input_count,
                            ctx->output_count);
  }
  uint64_t total = 0;
  for (uint32_t i = 0; i <= ctx->input_count; ++i) {
    const DvtTensor* tensor = ctx->cells[i] == NULL ? NULL : ctx->cells[i]->tensor;
    if (tensor == NULL || (tensor->flags & DVT_TENSOR_DYNAMIC) != 0 ||
        tensor->dtype == DVT_STRING || tensor->bytes > INT32_MAX) {
      return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                              "operand %u is no tensor of static shape below 2 GiB", i);
    }
    if (i < ctx->input_count) total += packed_bytes(tensor->bytes);
  }
  const uint64_t room = dvt_output(ctx, 0)->tensor->bytes;
  if (total <= room) return DVT_OK;
  return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "packs %llu bytes into %llu",
                          (unsigned long long)total, (unsigned long long)room);
}

static DvtCode check_copy(const DvtContext* ctx, uint32_t inputs, uint32_t outputs, char* reason,
                          size_t size) {
  DvtCode code = check_counts(ctx, inputs, outputs, reason, size);
  if (code == DVT_OK) code = check_own_stream(ctx, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* from = ctx->cells[0]->tensor;
  const DvtTensor* to = ctx->cells[1]->tensor;
  if (from == NULL || to == NULL) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size, "copies a value without a tensor");
  }
  const bool known = ((from->flags | to->flags) & DVT_TENSOR_DYNAMIC) == 0;
  if (known && from->bytes != to->bytes) {
    return dvt_fail_because(DVT_INVALID_IMAGE, reason, size,
                            "copies %llu bytes to a tensor of %llu",
                            (unsigned long long)from->bytes, (unsigned long long)to->bytes);
  }
  return DVT_OK;
}

static DvtCode check_copy_h2d(const DvtContext* ctx, char* reason, size_t size) {
  return check_copy(ctx, 2, 0, reason, size);
}

static DvtCode check_copy_d2h(const DvtContext* ctx, char* reason, size_t size) {
  return check_copy(ctx, 1, 1, reason, size);
}

/* Operands and attributes are the device kernel's, and the verifier asks that kernel's own check.
 */
static DvtCode check_launch(const DvtContext* ctx, char* reason, size_t size) {
  return check_own_stream(ctx, reason, size);
}

/* ---- Nodes ---------------------------------------------------------------------------------- */

/* The live stream of an index, or NULL after writing the reason. */
static DvtStream* stream_at(const DvtRuntime* runtime, uint32_t lane, int64_t index) {
  DvtStream* stream = runtime->streams[index];
  if (stream == NULL) {
    (void)dvt_fail_because(DVT_FAILED_STATE, reason_of(runtime, lane), runtime->reason_bytes,
                           "stream %lld does not exist at this point", (long long)index);
  }
  return stream;
}

static DvtEvent* event_at(const DvtRuntime* runtime, uint32_t lane, int64_t index) {
  DvtEvent* event = runtime->events[index];
  if (event == NULL) {
    (void)dvt_fail_because(DVT_FAILED_STATE, reason_of(runtime, lane), runtime->reason_bytes,
                           "event %lld does not exist at this point", (long long)index);
  }
  return event;
}

static DvtCode run_create_stream(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtCreateStreamAttributes* attributes = ctx->attributes;
  DvtStream** slot = &runtime->streams[attributes->stream];
  if (*slot != NULL) {
    return dvt_fail_because(DVT_FAILED_STATE, reason_of(runtime, MEMORY), runtime->reason_bytes,
                            "stream %lld exists already", (long long)attributes->stream);
  }
  return report(runtime, MEMORY,
                runtime->device->vtable->stream_create(runtime->device,
                                                       (uint32_t)attributes->priority, slot));
}

static DvtCode run_destroy_stream(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtStreamAttributes* attributes = ctx->attributes;
  DvtStream* stream = stream_at(runtime, MEMORY, attributes->stream);
  if (stream == NULL) return DVT_FAILED_STATE;
  const DvtCode code = runtime->device->vtable->stream_destroy(runtime->device, stream);
  if (code == DVT_OK) runtime->streams[attributes->stream] = NULL;
  return report(runtime, MEMORY, code);
}

static DvtCode run_create_event(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtEventAttributes* attributes = ctx->attributes;
  DvtEvent** slot = &runtime->events[attributes->event];
  if (*slot != NULL) {
    return dvt_fail_because(DVT_FAILED_STATE, reason_of(runtime, MEMORY), runtime->reason_bytes,
                            "event %lld exists already", (long long)attributes->event);
  }
  return report(runtime, MEMORY, runtime->device->vtable->event_create(runtime->device, slot));
}

static DvtCode run_destroy_event(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtEventAttributes* attributes = ctx->attributes;
  DvtEvent* event = event_at(runtime, MEMORY, attributes->event);
  if (event == NULL) return DVT_FAILED_STATE;
  const DvtCode code = runtime->device->vtable->event_destroy(runtime->device, event);
  if (code == DVT_OK) runtime->events[attributes->event] = NULL;
  return report(runtime, MEMORY, code);
}

DvtCode dvt_allocate_on_device(DvtRuntime* runtime, DvtCell* cell, uint64_t bytes,
                               const char* owner) {
  if (runtime->memory.active != NULL) return dvt_device_allocate(&runtime->memory, cell, bytes);
  return runtime->device->vtable->malloc(runtime->device, bytes > 0 ? bytes : 1, owner,
                                         &cell->data);
}

DvtCode dvt_free_on_device(DvtRuntime* runtime, DvtCell* cell) {
  if (dvt_owns_memory(&runtime->memory, cell)) {
    dvt_device_free(&runtime->memory, cell);
    return DVT_OK;
  }
  const DvtCode code = runtime->device->vtable->free(runtime->device, cell->data);
  /* The cell says who owns memory (exec/executor.cpp returns what is left after a failure). */
  if (code == DVT_OK) cell->data = NULL;
  return code;
}

static int32_t run_alloc(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtAllocAttributes* attributes = ctx->attributes;
  DvtCell* cell = dvt_output(ctx, 0);
  if (cell->data != NULL) {
    return dvt_fail_because(DVT_FAILED_STATE, reason_of(runtime, MEMORY), runtime->reason_bytes,
                            "the value holds device memory that nothing has freed");
  }
  /* Of a dynamic tensor the bytes are known by now; empty ones have an address, too. */
  uint64_t bytes = (uint64_t)attributes->bytes;
  if (cell->tensor != NULL && bytes < cell->tensor->bytes) bytes = cell->tensor->bytes;
  const char* owner = runtime->names[ctx->node].origin;
  int32_t code = DVT_OK;
  if (runtime->deferred != NULL) {
    code = dvt_deferred_allocate(runtime->deferred, ctx->runtime, cell, bytes, owner);
    if (code == DVT_STEP_SUSPENDED) return code;
  } else {
    code = dvt_allocate_on_device(ctx->runtime, cell, bytes, owner);
  }
  /* The cache tells more about itself than the device can. */
  if (code == DVT_OUT_OF_MEMORY && runtime->memory.failed != NULL) return code;
  return report(runtime, MEMORY, code);
}

static DvtCode run_free(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  DvtCell* cell = dvt_input(ctx, 0);
  const DvtCode code = runtime->deferred != NULL
                           ? dvt_deferred_free(runtime->deferred, ctx->runtime, ctx->node, cell)
                           : dvt_free_on_device(ctx->runtime, cell);
  return report(runtime, MEMORY, code);
}

static DvtCode run_build_ref(void* context) {
  const DvtContext* ctx = context;
  dvt_output(ctx, 0)->data = dvt_input(ctx, 0)->data;
  return DVT_OK;
}

static DvtCode run_build_part(void* context) {
  const DvtContext* ctx = context;
  const DvtPartAttributes* attributes = ctx->attributes;
  dvt_output(ctx, 0)->data = (char*)dvt_input(ctx, 0)->data + attributes->offset;
  return DVT_OK;
}

static DvtCode run_pack_host(void* context) {
  const DvtContext* ctx = context;
  char* to = dvt_output(ctx, 0)->data;
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    const DvtCell* from = dvt_input(ctx, i);
    const uint64_t bytes = from->tensor->bytes;
    if (bytes > 0) memcpy(to, from->data, bytes);
    to += packed_bytes(bytes);
  }
  return DVT_OK;
}

static DvtCode submitted(const DvtContext* ctx) {
  if (ctx->runtime->deferred != NULL) dvt_deferred_submitted(ctx->runtime->deferred, ctx->node);
  return DVT_OK;
}

/* cells[0] to cells[1], whichever of the two the graph calls an output. */
static DvtCode copy(const DvtContext* ctx, DvtCopyKind kind) {
  const DvtRuntime* runtime = ctx->runtime;
  DvtStream* stream = stream_at(runtime, LAUNCH, ctx->stream);
  if (stream == NULL) return DVT_FAILED_STATE;
  const DvtCell* from = ctx->cells[0];
  const DvtCell* to = ctx->cells[1];
  if (from->tensor->bytes != to->tensor->bytes) {
    return dvt_fail_because(DVT_FAILED_STATE, reason_of(runtime, LAUNCH), runtime->reason_bytes,
                            "copies %llu bytes to a tensor of %llu",
                            (unsigned long long)from->tensor->bytes,
                            (unsigned long long)to->tensor->bytes);
  }
  if (from->tensor->bytes == 0) return submitted(ctx);
  const DvtCode code = report(
      runtime, LAUNCH,
      runtime->device->vtable->copy_async(runtime->device, stream, kind, to->data, from->data,
                                          from->tensor->bytes, runtime->names[ctx->node].origin));
  return code == DVT_OK ? submitted(ctx) : code;
}

static DvtCode run_copy_h2d(void* context) {
  return copy(context, DVT_COPY_HOST_TO_DEVICE);
}
static DvtCode run_copy_d2h(void* context) {
  return copy(context, DVT_COPY_DEVICE_TO_HOST);
}

/*   0            32                32 + 8n, up to 16
 *   | DvtContext | n cell offsets | pad | n DvtCell |
 */
static size_t launch_cells_offset(size_t operands) {
  return (offsetof(DvtContext, cells) + operands * sizeof(DvtCell*) + 15) & ~(size_t)15;
}

size_t dvt_launch_argument_bytes(size_t operands) {
  return launch_cells_offset(operands) + operands * sizeof(DvtCell);
}

/* Work of a task whose shapes were not known when the image was made. */
static void estimate_cost(const DvtContext* ctx, const DvtKernel* kernel, DvtTaskCost* cost) {
  *cost = (DvtTaskCost){.kind = DVT_TASK_VECTOR, .vector_passes_x100 = 100};
  for (uint32_t i = 0; i < (uint32_t)ctx->input_count + ctx->output_count; ++i) {
    if (ctx->cells[i] == NULL || ctx->cells[i]->tensor == NULL) continue;
    const DvtTensor* tensor = ctx->cells[i]->tensor;
    const bool written = i >= ctx->input_count;
    if (i == ctx->input_count) {
      cost->dtype = tensor->dtype;
      cost->vector_elements = tensor->bytes / dvt_dtype_size(tensor->dtype);
    }
    /* Scratch is no traffic of the task's. */
    if (written && i == ctx->input_count) cost->write_bytes += tensor->bytes;
    if (!written) cost->read_bytes += tensor->bytes;
  }
  if (kernel->cost != NULL) kernel->cost(ctx, cost);
}

static DvtCode run_launch(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  DvtStream* stream = stream_at(runtime, LAUNCH, ctx->stream);
  if (stream == NULL) return DVT_FAILED_STATE;

  const size_t operands = (size_t)ctx->input_count + ctx->output_count;
  const size_t cells_offset = launch_cells_offset(operands);
  DvtContext* record = runtime->launch_buffer;
  memcpy(record, ctx, offsetof(DvtContext, cells));
  record->runtime = NULL; /* The task runs later, when this executor's state may have moved on. */
  DvtCell* cells = (DvtCell*)((char*)record + cells_offset);
  for (size_t i = 0; i < operands; ++i) {
    if (ctx->cells[i] == NULL) {
      record->cells[i] = NULL;
      continue;
    }
    cells[i] = *ctx->cells[i];
    /* dvt_launch_bind() turns the offset into a pointer in the device's copy. */
    record->cells[i] = (DvtCell*)(uintptr_t)(cells_offset + i * sizeof(DvtCell));
  }

  const DvtKernel* kernel = runtime->kernels[ctx->device_kernel];
  const DvtTaskCost* known = runtime->costs[ctx->node];
  DvtTaskCost estimate;
  if (known == NULL && kernel->infer != NULL) estimate_cost(ctx, kernel, &estimate);
  const DvtLaunch launch = {
      .run = kernel->run,
      .arguments = record,
      .argument_bytes = dvt_launch_argument_bytes(operands),
      .cost = known == NULL && kernel->infer != NULL ? &estimate : known,
      .name = runtime->names[ctx->node].origin,
      .op = runtime->names[ctx->node].op,
  };
  const DvtCode code =
      report(runtime, LAUNCH, runtime->device->vtable->launch(runtime->device, stream, &launch));
  return code == DVT_OK ? submitted(ctx) : code;
}

static DvtCode run_record_event(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtEventAttributes* attributes = ctx->attributes;
  DvtStream* stream = stream_at(runtime, LAUNCH, ctx->stream);
  DvtEvent* event = event_at(runtime, LAUNCH, attributes->event);
  if (stream == NULL || event == NULL) return DVT_FAILED_STATE;
  const DvtCode code = report(
      runtime, LAUNCH, runtime->device->vtable->event_record(runtime->device, stream, event));
  return code == DVT_OK ? submitted(ctx) : code;
}

static DvtCode run_wait_event(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtEventAttributes* attributes = ctx->attributes;
  DvtStream* stream = stream_at(runtime, LAUNCH, ctx->stream);
  DvtEvent* event = event_at(runtime, LAUNCH, attributes->event);
  if (stream == NULL || event == NULL) return DVT_FAILED_STATE;
  const DvtCode code =
      report(runtime, LAUNCH, runtime->device->vtable->event_wait(runtime->device, stream, event));
  return code == DVT_OK ? submitted(ctx) : code;
}

static DvtCode run_sync_stream(void* context) {
  const DvtContext* ctx = context;
  const DvtRuntime* runtime = ctx->runtime;
  const DvtStreamAttributes* attributes = ctx->attributes;
  DvtStream* stream = stream_at(runtime, NORMAL, attributes->stream);
  if (stream == NULL) return DVT_FAILED_STATE;
  return report(runtime, NORMAL,
                runtime->device->vtable->stream_synchronize(runtime->device, stream,
                                                            runtime->synchronize_timeout_us));
}

/* ---- Table ---------------------------------------------------------------------------------- */

static const DvtAttribute create_stream_attributes[] = {
    {"stream", offsetof(DvtCreateStreamAttributes, stream), 1, 'i'},
    {"priority", offsetof(DvtCreateStreamAttributes, priority), 1, 'i'},
};
static const DvtAttribute stream_attributes[] = {
    {"stream", offsetof(DvtStreamAttributes, stream), 1, 'i'}};
static const DvtAttribute event_attributes[] = {
    {"event", offsetof(DvtEventAttributes, event), 1, 'i'}};
static const DvtAttribute alloc_attributes[] = {
    {"bytes", offsetof(DvtAllocAttributes, bytes), 1, 'i'}};
static const DvtAttribute part_attributes[] = {
    {"offset", offsetof(DvtPartAttributes, offset), 1, 'i'}};

/* In the order of DvtDeviceNode, from 1. */
static const DvtKernel kernels[] = {
    {"CreateStream", DVT_KERNEL_ABI_VERSION, MEMORY, 0, 0, 0, 0, sizeof(DvtCreateStreamAttributes),
     2, create_stream_attributes, run_create_stream, check_create_stream, NULL, NULL, 0},
    {"DestroyStream", DVT_KERNEL_ABI_VERSION, MEMORY, 0, 0, 0, 0, sizeof(DvtStreamAttributes), 1,
     stream_attributes, run_destroy_stream, check_stream_attribute, NULL, NULL, 0},
    {"CreateEvent", DVT_KERNEL_ABI_VERSION, MEMORY, 0, 0, 0, 0, sizeof(DvtEventAttributes), 1,
     event_attributes, run_create_event, check_event_attribute, NULL, NULL, 0},
    {"DestroyEvent", DVT_KERNEL_ABI_VERSION, MEMORY, 0, 0, 0, 0, sizeof(DvtEventAttributes), 1,
     event_attributes, run_destroy_event, check_event_attribute, NULL, NULL, 0},
    {"AllocMemHbm", DVT_KERNEL_ABI_VERSION, MEMORY, 0, 0, 1, 1, sizeof(DvtAllocAttributes), 1,
     alloc_attributes, run_alloc, check_alloc, NULL, NULL, 0},
    {"FreeMemHbm", DVT_KERNEL_ABI_VERSION, MEMORY | DVT_KERNEL_FREE, 1, 1, 0, 0, 0, 0, NULL,
     run_free, check_free, NULL, NULL, 0},
    {"BuildRefTensor", DVT_KERNEL_ABI_VERSION, MEMORY, 1, 1, 1, 1, 0, 0, NULL, run_build_ref,
     check_build_ref, NULL, NULL, 0},
    {"LaunchH2DCopy", DVT_KERNEL_ABI_VERSION, LAUNCH, 2, 2, 0, 0, 0, 0, NULL, run_copy_h2d,
     check_copy_h2d, NULL, NULL, 0},
    {"LaunchD2HCopy", DVT_KERNEL_ABI_VERSION, LAUNCH, 1, 1, 1, 1, 0, 0, NULL, run_copy_d2h,
     check_copy_d2h, NULL, NULL, 0},
    {"LaunchKernel", DVT_KERNEL_ABI_VERSION, LAUNCH, 0, ANY, 0, ANY, 0, 0, NULL, run_launch,
     check_launch, NULL, NULL, 0},
    {"RecordEvent", DVT_KERNEL_ABI_VERSION, LAUNCH, 0, 0, 0, 0, sizeof(DvtEventAttributes), 1,
     event_attributes, run_record_event, check_event_on_stream, NULL, NULL, 0},
    {"WaitEvent", DVT_KERNEL_ABI_VERSION, LAUNCH, 0, 0, 0, 0, sizeof(DvtEventAttributes), 1,
     event_attributes, run_wait_event, check_event_on_stream, NULL, NULL, 0},
    {"SyncStream", DVT_KERNEL_ABI_VERSION, DVT_KERNEL_LANE_NORMAL, 0, 0, 0, 0,
     sizeof(DvtStreamAttributes), 1, stream_attributes, run_sync_stream, check_stream_attribute,
     NULL, NULL, 0},
    {"PackHost", DVT_KERNEL_ABI_VERSION, MEMORY, 1, ANY, 1, 1, 0, 0, NULL, run_pack_host,
     check_pack_host, NULL, NULL, 0},
    {"BuildPartTensor", DVT_KERNEL_ABI_VERSION, MEMORY, 1, 1, 1, 1, sizeof(DvtPartAttributes), 1,
     part_attributes, run_build_part, check_build_part, NULL, NULL, 0},
};
static_assert(sizeof kernels / sizeof kernels[0] == DVT_NODE_BUILD_PART,
              "one kernel for each DvtDeviceNode");

DvtKernelTable dvt_device_kernels(void) {
  return (DvtKernelTable){kernels, sizeof kernels / sizeof kernels[0]};
}

DvtDeviceNode dvt_device_node(const DvtKernel* kernel) {
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; ++i) {
    if (kernel == &kernels[i]) return (DvtDeviceNode)(i + 1);
  }
  return DVT_NODE_OTHER;
}
