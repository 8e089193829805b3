#include "exec/flow_kernels.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "exec/dynamic.h"
#include "exec/reason.h"

static DvtTensor* shape_of(DvtCell* cell) {
  return (DvtTensor*)cell->tensor;
}

static DvtCode run_body(const DvtContext* ctx, uint32_t body) {
  const DvtFlowNode* node = ctx->attributes;
  return ctx->runtime->run_body(ctx->runtime, &node->bodies[body]);
}

/* The one element of a scalar operand, whose shape may be known at run time only. */
static DvtCode read_scalar(const DvtContext* ctx, uint32_t input, void* out, uint64_t bytes) {
  const DvtCell* cell = dvt_input(ctx, input);
  if (cell->tensor->bytes != bytes) {
    return dvt_fail_because(DVT_INVALID_ARGUMENT, ctx->runtime->reason, ctx->runtime->reason_bytes,
                            "input %u has %" PRIu64 " bytes, and not one element", input,
                            cell->tensor->bytes);
  }
  memcpy(out, cell->data, bytes);
  return DVT_OK;
}

DvtCode dvt_run_if(void* context) {
  const DvtContext* ctx = context;
  uint8_t condition = 0;
  const DvtCode code = read_scalar(ctx, 0, &condition, 1);
  if (code != DVT_OK) return code;
  return run_body(ctx, condition != 0 ? 0 : 1);
}

/* ---- Loop ------------------------------------------------------------------------------------ */

/* One run of a Loop. */
typedef struct Loop {
  const DvtContext* ctx;
  const DvtFlowNode* node;
  const DvtLoopAttributes* counts;
  int64_t iteration;
} Loop;

static DvtCell* initial_state(const Loop* loop, int64_t i) {
  return dvt_input(loop->ctx, (uint32_t)(DVT_LOOP_STATES + i));
}
static DvtCell* final_state(const Loop* loop, int64_t i) {
  return dvt_output(loop->ctx, (uint32_t)i);
}
static DvtCell* collected(const Loop* loop, int64_t j) {
  return dvt_output(loop->ctx, (uint32_t)(loop->counts->states + j));
}
static DvtCell* parameter(const Loop* loop, int64_t k) {
  return dvt_output(loop->ctx, (uint32_t)(dvt_loop_parameters(loop->counts) + k));
}
static DvtCell* state(const Loop* loop, int64_t i) {
  return parameter(loop, 2 + i);
}
static DvtCell* result(const Loop* loop, int64_t k) {
  return dvt_output(loop->ctx, (uint32_t)(dvt_loop_results(loop->counts) + k));
}
static DvtCell* next_state(const Loop* loop, int64_t i) {
  return result(loop, 1 + i);
}
static DvtCell* item(const Loop* loop, int64_t j) {
  return result(loop, 1 + loop->counts->states + j);
}

static DvtValueMemory* memory_of(const Loop* loop) {
  return &loop->ctx->runtime->memory;
}

/* `to` keeps its descriptor. */
static void copy_shape(DvtCell* to, const DvtCell* from) {
  *shape_of(to) = *from->tensor;
  shape_of(to)->flags = DVT_TENSOR_DYNAMIC;
}

/* Moves data and shape. */
static void move(const Loop* loop, DvtCell* to, DvtCell* from) {
  dvt_give_block(memory_of(loop), to, dvt_take_block(memory_of(loop), from));
  copy_shape(to, from);
}

/* The states of the first iteration are the initial ones, which the Loop does not own. */
static void begin(const Loop* loop) {
  for (int64_t i = 0; i < loop->counts->states; ++i) {
    state(loop, i)->data = initial_state(loop, i)->data;
    copy_shape(state(loop, i), initial_state(loop, i));
  }
  for (int64_t j = 0; j < loop->counts->collected; ++j) {
    collected(loop, j)->data = NULL;
    loop->node->capacity[j] = 0;
  }
}

/* More room for what was collected, of which `bytes` are used. */
static DvtCode enlarge(const Loop* loop, int64_t j, uint64_t wanted, uint64_t bytes) {
  DvtValueMemory* memory = memory_of(loop);
  DvtCell* all = collected(loop, j);
  const DvtBlock old = dvt_take_block(memory, all);
  const DvtCode code = dvt_heap_allocate(memory, all, wanted);
  if (code == DVT_OK) {
    loop->node->capacity[j] = wanted;
    if (bytes > 0) memcpy(all->data, old.address, bytes);
  }
  dvt_heap_release(memory, old);
  return code;
}

/* Appends the item of this iteration to what was collected. */
static DvtCode append(const Loop* loop, int64_t j, int64_t trip) {
  DvtCell* all = collected(loop, j);
  DvtCell* one = item(loop, j);
  DvtRuntime* runtime = loop->ctx->runtime;
  const uint64_t bytes = one->tensor->bytes;
  DvtTensor grown = *one->tensor;
  int64_t dims[DVT_MAX_RANK];
  dims[0] = loop->iteration + 1;
  const uint32_t rank = one->tensor->rank + 1U;
  if (rank <= DVT_MAX_RANK) memcpy(dims + 1, one->tensor->dims, (rank - 1) * sizeof dims[0]);
  DvtCode code = dvt_set_shape(&grown, rank, dims);
  if (code != DVT_OK) {
    return dvt_fail_because(code, runtime->reason, runtime->reason_bytes,
                            "collected output %" PRId64 " is too large", j);
  }
  if (loop->iteration > 0 &&
      (all->tensor->rank != rank ||
       memcmp(all->tensor->dims + 1, dims + 1, (rank - 1) * sizeof dims[0]) != 0)) {
    return dvt_fail_because(DVT_INVALID_ARGUMENT, runtime->reason, runtime->reason_bytes,
                            "collected output %" PRId64 " has another shape in iteration %" PRId64
                            " than before",
                            j, loop->iteration);
  }
  if (grown.bytes > loop->node->capacity[j] || all->data == NULL) {
    /* All of it at once when the trip count tells, else by doubling. */
    uint64_t wanted = 2 * grown.bytes;
    uint64_t known = 0;
    if (trip < 4096 && !__builtin_mul_overflow((uint64_t)trip, bytes, &known)) wanted = known;
    if (wanted < grown.bytes) wanted = grown.bytes;
    code = enlarge(loop, j, wanted, grown.bytes - bytes);
    if (code != DVT_OK) return code;
  }
  if (bytes > 0) memcpy((unsigned char*)all->data + grown.bytes - bytes, one->data, bytes);
  grown.flags = DVT_TENSOR_DYNAMIC;
  *shape_of(all) = grown;
  dvt_heap_free(memory_of(loop), one);
  return DVT_OK;
}

/* The body's next states become the states. */
static void advance(const Loop* loop) {
  for (int64_t i = 0; i < loop->counts->states; ++i) {
    dvt_heap_free(memory_of(loop), state(loop, i));
    move(loop, state(loop, i), next_state(loop, i));
  }
}

/* Nothing was collected: the shape is what the image knows of it, with no items. */
static DvtCode collect_nothing(const Loop* loop, int64_t j) {
  DvtCell* all = collected(loop, j);
  int64_t dims[DVT_MAX_RANK] = {0};
  const DvtTensor* known = &loop->node->declared[j];
  const bool ranked = known->rank != DVT_RANK_UNKNOWN && known->rank > 0;
  const uint32_t rank = ranked ? known->rank : 1;
  for (uint32_t d = 1; d < rank; ++d) dims[d] = known->dims[d] > 0 ? known->dims[d] : 0;
  const DvtCode code = dvt_set_shape(shape_of(all), rank, dims);
  if (code != DVT_OK) return code;
  return dvt_heap_allocate(memory_of(loop), all, 0);
}

static DvtCode finish(const Loop* loop) {
  for (int64_t i = 0; i < loop->counts->states; ++i) {
    DvtCell* last = state(loop, i);
    if (loop->iteration > 0) {
      move(loop, final_state(loop, i), last);
      continue;
    }
    const uint64_t bytes = last->tensor->bytes;
    const DvtCode code = dvt_heap_allocate(memory_of(loop), final_state(loop, i), bytes);
    if (code != DVT_OK) return code;
    if (bytes > 0) memcpy(final_state(loop, i)->data, last->data, bytes);
    copy_shape(final_state(loop, i), last);
    last->data = NULL;
  }
  for (int64_t j = 0; j < loop->counts->collected && loop->iteration == 0; ++j) {
    const DvtCode code = collect_nothing(loop, j);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

DvtCode dvt_run_loop(void* context) {
  const DvtContext* ctx = context;
  const DvtFlowNode* node = ctx->attributes;
  Loop loop = {.ctx = ctx, .node = node, .counts = node->attributes, .iteration = 0};
  int64_t trip = INT64_MAX;
  uint8_t go_on = 1;
  DvtCode code = DVT_OK;
  if (dvt_input(ctx, DVT_LOOP_TRIP) != NULL) {
    code = read_scalar(ctx, DVT_LOOP_TRIP, &trip, sizeof trip);
  }
  if (code == DVT_OK && dvt_input(ctx, DVT_LOOP_CONDITION) != NULL) {
    code = read_scalar(ctx, DVT_LOOP_CONDITION, &go_on, 1);
  }
  if (code != DVT_OK) return code;
  begin(&loop);
  for (; go_on != 0 && loop.iteration < trip; ++loop.iteration) {
    *(int64_t*)parameter(&loop, 0)->data = loop.iteration;
    *(uint8_t*)parameter(&loop, 1)->data = go_on != 0 ? 1 : 0;
    code = run_body(ctx, 0);
    for (int64_t j = 0; j < loop.counts->collected && code == DVT_OK; ++j) {
      code = append(&loop, j, trip);
    }
    if (code != DVT_OK) return code;
    advance(&loop);
    go_on = *(const uint8_t*)result(&loop, 0)->data;
  }
  return finish(&loop);
}

/* ---- Gears ----------------------------------------------------------------------------------- */

DvtCode dvt_run_select_gear(void* context) {
  const DvtContext* ctx = context;
  const DvtFlowNode* node = ctx->attributes;
  DvtRuntime* runtime = ctx->runtime;
  const uint32_t outputs = ctx->output_count / (node->body_count + 1);
  for (uint32_t k = 0; k < outputs; ++k) {
    DvtCell* port = dvt_output(ctx, k);
    if ((port->tensor->flags & DVT_TENSOR_DYNAMIC) == 0) continue;
    DvtCell* value = dvt_output(ctx, outputs * (node->gear + 1) + k);
    copy_shape(port, value);
    const DvtCode code = dvt_bind_output(runtime, &runtime->outputs[k], port);
    if (code != DVT_OK) return code;
    value->data = port->data;
  }
  return run_body(ctx, node->gear);
}
