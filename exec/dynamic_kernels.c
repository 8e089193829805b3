/* Host nodes of graphs with dynamic shapes: exec/dynamic.h lists them with their operands. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "exec/dynamic.h"
#include "exec/flow_kernels.h"
#include "exec/reason.h"
#include "ops/kernels/common.h"

/* The descriptor of a dynamic value, in the executor's arena. */
static DvtTensor* shape_of(DvtCell* cell) {
  return (DvtTensor*)cell->tensor;
}

static bool is_dynamic(const DvtCell* cell) {
  return cell != NULL && cell->tensor != NULL && (cell->tensor->flags & DVT_TENSOR_DYNAMIC) != 0;
}

/* ---- InferShape ------------------------------------------------------------------------------ */

static bool same_shape(const DvtShape* known, const DvtTensor* tensor) {
  if (known->rank != tensor->rank) return false;
  for (uint32_t d = 0; d < tensor->rank; ++d) {
    if (known->dims[d] != tensor->dims[d]) return false;
  }
  return true;
}

static bool matches(const DvtContext* ctx, const DvtShape* keys) {
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (!is_dynamic(ctx->cells[i])) continue;
    if (!same_shape(keys++, ctx->cells[i]->tensor)) return false;
  }
  return true;
}

static bool recall(const DvtContext* ctx, DvtShapeNode* node) {
  for (uint32_t way = 0; way < node->used; ++way) {
    const DvtShape* keys = (const DvtShape*)(node->memo + (size_t)way * node->memo_bytes);
    if (!matches(ctx, keys)) continue;
    const DvtTensor* shapes = (const DvtTensor*)(keys + node->input_count);
    for (uint32_t k = 0; k < ctx->output_count; ++k) *shape_of(dvt_output(ctx, k)) = shapes[k];
    ++node->hits;
    return true;
  }
  ++node->misses;
  return false;
}

static void remember(const DvtContext* ctx, DvtShapeNode* node) {
  DvtShape* key = (DvtShape*)(node->memo + (size_t)node->next * node->memo_bytes);
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (!is_dynamic(ctx->cells[i])) continue;
    key->rank = ctx->cells[i]->tensor->rank;
    memcpy(key->dims, ctx->cells[i]->tensor->dims, sizeof key->dims);
    ++key;
  }
  DvtTensor* shapes = (DvtTensor*)key;
  for (uint32_t k = 0; k < ctx->output_count; ++k) shapes[k] = *dvt_output(ctx, k)->tensor;
  if (node->used < DVT_SHAPE_MEMO_WAYS) ++node->used;
  node->next = (node->next + 1) % DVT_SHAPE_MEMO_WAYS;
}

static DvtCode set_shapes(const DvtContext* ctx, const DvtShapeNode* node) {
  DvtRuntime* runtime = ctx->runtime;
  const DvtContext* target = node->target;
  for (uint32_t k = 0; k < target->output_count; ++k) {
    DvtCell* cell = dvt_output(target, k);
    const DvtTensor* found = &node->scratch[k];
    if (is_dynamic(cell)) {
      *shape_of(cell) = *found;
      continue;
    }
    if (found->rank != cell->tensor->rank ||
        memcmp(found->dims, cell->tensor->dims, sizeof found->dims) != 0) {
      return dvt_fail_because(DVT_INVALID_ARGUMENT, runtime->reason, runtime->reason_bytes,
                              "output %u has another shape than the model declares", k);
    }
  }
  return DVT_OK;
}

static DvtCode check_target(const DvtContext* ctx, const DvtShapeNode* node) {
  DvtRuntime* runtime = ctx->runtime;
  if (node->kernel->check == NULL) return DVT_OK;
  return node->kernel->check(node->target, runtime->reason, runtime->reason_bytes);
}

/* At run time it is the caller's shapes that do not fit, not the image. */
static DvtCode blame_caller(DvtCode code) {
  return code == DVT_INVALID_IMAGE ? DVT_INVALID_ARGUMENT : code;
}

static DvtCode run_infer_shape(void* context) {
  const DvtContext* ctx = context;
  DvtShapeNode* node = (DvtShapeNode*)ctx->attributes;
  if (node->trusted != NULL && node->trusted->has_shape != 0) {
    *shape_of(dvt_output(ctx, 0)) = node->trusted->given;
    return blame_caller(check_target(ctx, node));
  }
  if (node->memo != NULL && recall(ctx, node)) return DVT_OK;
  DvtRuntime* runtime = ctx->runtime;
  const DvtContext* target = node->target;
  for (uint32_t k = 0; k < target->output_count; ++k) {
    node->scratch[k] = *dvt_output(target, k)->tensor;
  }
  DvtCode code = node->kernel->infer(target, node->scratch, runtime->reason, runtime->reason_bytes);
  if (code == DVT_OK) code = set_shapes(ctx, node);
  if (code == DVT_OK) code = check_target(ctx, node);
  if (code == DVT_OK && node->memo != NULL) remember(ctx, node);
  return blame_caller(code);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static DvtCode run_alloc_host(void* context) {
  const DvtContext* ctx = context;
  for (uint32_t k = 0; k < ctx->output_count; ++k) {
    DvtCell* cell = dvt_output(ctx, k);
    const DvtCode code = dvt_heap_allocate(&ctx->runtime->memory, cell, cell->tensor->bytes);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

static DvtCode run_free_host(void* context) {
  const DvtContext* ctx = context;
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    dvt_heap_free(&ctx->runtime->memory, dvt_input(ctx, i));
  }
  return DVT_OK;
}

static DvtCode run_refer_to(void* context) {
  const DvtContext* ctx = context;
  dvt_output(ctx, 0)->data = dvt_input(ctx, 0)->data;
  return DVT_OK;
}

/* Memory of a dynamic output that nobody has bound belongs to its slot: it outlives the run. */
static DvtCode provide_output(DvtRuntime* runtime, DvtOutputSlot* slot, DvtCell* cell) {
  DvtValueMemory* memory = &runtime->memory;
  const uint64_t bytes = cell->tensor->bytes;
  if (slot->owned.id == 0 || slot->owned_bytes < bytes) {
    dvt_heap_release(memory, slot->owned);
    slot->owned = (DvtBlock){NULL, 0};
    const DvtCode code = dvt_heap_allocate(memory, cell, bytes);
    if (code != DVT_OK) return code;
    slot->owned = dvt_take_block(memory, cell);
    slot->owned_bytes = bytes;
  }
  cell->data = slot->owned.address;
  return DVT_OK;
}

/* What the caller said of its shape. Of a shape that depends on data the executor sees to it, when
 * the run has ended. */
static DvtCode check_given(DvtRuntime* runtime, const DvtOutputSlot* slot, const DvtCell* cell) {
  if (slot->has_shape == 0 || slot->is_bound_only != 0 ||
      (slot->given.rank == cell->tensor->rank &&
       memcmp(slot->given.dims, cell->tensor->dims, sizeof slot->given.dims) == 0)) {
    return DVT_OK;
  }
  char expected[DVT_SHAPE_TEXT];
  char got[DVT_SHAPE_TEXT];
  return dvt_fail_because(DVT_INVALID_ARGUMENT, runtime->reason, runtime->reason_bytes,
                          "output '%s' has another shape than was given: expected %s, got %s",
                          slot->name, dvt_shape_text(cell->tensor, expected),
                          dvt_shape_text(&slot->given, got));
}

DvtCode dvt_bind_output(DvtRuntime* runtime, DvtOutputSlot* slot, DvtCell* cell) {
  const DvtCode given = check_given(runtime, slot, cell);
  if (given != DVT_OK) return given;
  const uint64_t bytes = cell->tensor->bytes;
  if (slot->bound != NULL || slot->capacity != 0) {
    if (bytes > slot->capacity) {
      char* reason = runtime->reason + DVT_KERNEL_LANE_MEMORY * runtime->reason_bytes;
      return dvt_fail_because(DVT_INVALID_ARGUMENT, reason, runtime->reason_bytes,
                              "the buffer of output '%s' is too small: expected %" PRIu64
                              " bytes, got %" PRIu64,
                              slot->name, bytes, slot->capacity);
    }
    cell->data = slot->bound;
    return DVT_OK;
  }
  return provide_output(runtime, slot, cell);
}

static DvtCode run_bind_output(void* context) {
  const DvtContext* ctx = context;
  const DvtBindOutputAttributes* attributes = ctx->attributes;
  DvtOutputSlot* slot = &ctx->runtime->outputs[attributes->output];
  return dvt_bind_output(ctx->runtime, slot, dvt_output(ctx, 0));
}

static DvtCode run_copy_shape(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* from = dvt_input(ctx, 0)->tensor;
  return dvt_set_shape(shape_of(dvt_output(ctx, 0)), from->rank, from->dims);
}

/* ---- Checks: the rest is the business of exec/verify_dynamic.cpp ------------------------------
 */

static DvtCode check_nothing(const DvtContext* ctx, char* reason, size_t size) {
  (void)ctx;
  (void)reason;
  (void)size;
  return DVT_OK;
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute infer_shape_attributes[] = {
    {"target", offsetof(DvtInferShapeAttributes, target), 1, 'i'}};
static const DvtAttribute bind_output_attributes[] = {
    {"output", offsetof(DvtBindOutputAttributes, output), 1, 'i'}};
static const DvtAttribute loop_attributes[] = {
    {"states", offsetof(DvtLoopAttributes, states), 1, 'i'},
    {"collected", offsetof(DvtLoopAttributes, collected), 1, 'i'}};

enum { ANY = UINT16_MAX };

/* In the order of DvtHostNode, from 1. */
static const DvtKernel kernels[] = {
    {.name = "InferShape",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_NORMAL,
     .input_max = ANY,
     .output_max = ANY,
     .attribute_bytes = sizeof(DvtInferShapeAttributes),
     .attribute_count = 1,
     .attributes = infer_shape_attributes,
     .run = run_infer_shape,
     .check = check_nothing},
    {.name = "AllocHost",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_MEMORY,
     .output_min = 1,
     .output_max = ANY,
     .run = run_alloc_host,
     .check = check_nothing},
    {.name = "FreeHost",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_MEMORY,
     .input_min = 1,
     .input_max = ANY,
     .run = run_free_host,
     .check = check_nothing},
    {.name = "ReferTo",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_NORMAL,
     .input_min = 1,
     .input_max = ANY,
     .output_min = 1,
     .output_max = 1,
     .run = run_refer_to,
     .check = check_nothing},
    {.name = "BindOutput",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_MEMORY,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(DvtBindOutputAttributes),
     .attribute_count = 1,
     .attributes = bind_output_attributes,
     .run = run_bind_output,
     .check = check_nothing},
    {.name = "If",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_NORMAL,
     .input_min = 1,
     .input_max = ANY,
     .output_max = ANY,
     .run = dvt_run_if,
     .check = check_nothing},
    {.name = "Loop",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_NORMAL,
     .input_min = 2,
     .input_max = ANY,
     .output_min = 3,
     .output_max = ANY,
     .attribute_bytes = sizeof(DvtLoopAttributes),
     .attribute_count = 2,
     .attributes = loop_attributes,
     .run = dvt_run_loop,
     .check = check_nothing},
    {.name = "CopyShape",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_NORMAL,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_copy_shape,
     .check = check_nothing},
    {.name = "SelectGear",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_LANE_MEMORY,
     .input_min = 2,
     .input_max = ANY,
     .output_min = 2,
     .output_max = ANY,
     .run = dvt_run_select_gear,
     .check = check_nothing},
};
static_assert(sizeof kernels / sizeof kernels[0] == DVT_HOST_SELECT_GEAR,
              "one kernel per DvtHostNode");

DvtKernelTable dvt_dynamic_kernels(void) {
  return (DvtKernelTable){kernels, sizeof kernels / sizeof kernels[0]};
}

DvtHostNode dvt_host_node(const DvtKernel* kernel) {
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; ++i) {
    if (kernel == &kernels[i]) return (DvtHostNode)(i + 1);
  }
  return DVT_HOST_OTHER;
}

DvtHostNode dvt_host_node_named(const char* name) {
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; ++i) {
    if (strcmp(name, kernels[i].name) == 0) return (DvtHostNode)(i + 1);
  }
  return DVT_HOST_OTHER;
}
