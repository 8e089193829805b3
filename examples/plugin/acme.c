/* A plug-in: two operators of the domain acme with kernels of their own, one of them also as source
 * for generated code; a rewrite that puts it in the place of what exporters write out; a pass over
 * the whole graph; and how long that operator takes on an NPU. Built out of tree, against the
 * installed headers alone:
 *
 *   cc -std=c11 -O2 -shared -fPIC $(pkg-config --cflags davit) acme.c -o acme.so -lm
 *   davit run swish.onnx --plugin ./acme.so --profile
 *   davit run swish.onnx --plugin ./acme.so --target ascend
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "davit/plugin.h"

static bool same_tensors(const DvtTensor* a, const DvtTensor* b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; ++i) {
    if (a->dims[i] != b->dims[i]) return false;
  }
  return true;
}

/* Refuses what run() could not survive: images are untrusted. */
static DvtCode check_same(const DvtContext* ctx, char* reason, size_t size) {
  if (ctx->input_count == 1 && ctx->output_count == 1 && dvt_input(ctx, 0) != NULL &&
      dvt_output(ctx, 0) != NULL) {
    const DvtTensor* x = dvt_input(ctx, 0)->tensor;
    const DvtTensor* y = dvt_output(ctx, 0)->tensor;
    if (x != NULL && y != NULL && x->dtype == DVT_F32 && same_tensors(x, y)) return DVT_OK;
  }
  if (reason != NULL) snprintf(reason, size, "one f32 tensor in and one of its shape out expected");
  return DVT_INVALID_ARGUMENT;
}

static DvtCode infer_same(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  if (ctx->input_count == 1 && ctx->output_count == 1 && dvt_input(ctx, 0) != NULL) {
    const DvtTensor* x = dvt_input(ctx, 0)->tensor;
    return dvt_set_shape(&outputs[0], x->rank, x->dims);
  }
  if (reason != NULL) snprintf(reason, size, "one input and one output expected");
  return DVT_INVALID_ARGUMENT;
}

/* ---- MovingAverage: the mean of each element and those before it along the last axis ----------
 */

typedef struct MovingAverageAttributes {
  int64_t window; /* Elements, itself included. */
} MovingAverageAttributes;

static DvtCode check_average(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCode code = check_same(ctx, reason, size);
  const MovingAverageAttributes* attributes = ctx->attributes;
  if (code != DVT_OK || (attributes->window > 0 && dvt_input(ctx, 0)->tensor->rank > 0))
    return code;
  if (reason != NULL) snprintf(reason, size, "window and rank: expected at least 1");
  return DVT_INVALID_ARGUMENT;
}

static DvtCode run_average(void* context) {
  const DvtContext* ctx = context;
  const MovingAverageAttributes* attributes = ctx->attributes;
  const DvtTensor* tensor = dvt_input(ctx, 0)->tensor;
  const int64_t row = tensor->dims[tensor->rank - 1];
  const int64_t count = (int64_t)(tensor->bytes / sizeof(float));
  const float* x = dvt_input(ctx, 0)->data;
  float* y = dvt_output(ctx, 0)->data;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t before = i % row + 1;
    const int64_t window = before < attributes->window ? before : attributes->window;
    double sum = 0;
    for (int64_t k = 0; k < window; ++k) sum += (double)x[i - k];
    y[i] = (float)(sum / (double)window);
  }
  return DVT_OK;
}

/* ---- Swish: x * sigmoid(x) ---------------------------------------------------------------------
 */

static DvtCode run_swish(void* context) {
  const DvtContext* ctx = context;
  const int64_t count = (int64_t)(dvt_input(ctx, 0)->tensor->bytes / sizeof(float));
  const float* x = dvt_input(ctx, 0)->data;
  float* y = dvt_output(ctx, 0)->data;
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / (1.0F + expf(-x[i]));
  return DVT_OK;
}

/* The same as source: `davit compile --isa native` compiles it into the image, which then runs
 * without the plug-in. */
static const char swish_source[] =
    "DvtCode swish(void* context) {\n"
    "  const DvtContext* ctx = context;\n"
    "  const int64_t count = (int64_t)(dvt_input(ctx, 0)->tensor->bytes / sizeof(float));\n"
    "  const float* x = dvt_input(ctx, 0)->data;\n"
    "  float* y = dvt_output(ctx, 0)->data;\n"
    "  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / (1.0F + expf(-x[i]));\n"
    "  return DVT_OK;\n"
    "}\n";

/* ---- A pass over the whole graph: averages of one element are their input ----------------------
 */

static DvtCode drop_averages(DvtGraph* graph, const DvtGraphFunctions* f, uint32_t* changes,
                             char* reason, size_t size) {
  (void)reason;
  (void)size;
  for (uint32_t i = 0; i < f->node_count(graph); ++i) {
    const uint32_t node = f->node_at(graph, i);
    if (node == DVT_NO_INDEX || strcmp(f->node_domain(graph, node), "acme") != 0 ||
        strcmp(f->node_op(graph, node), "MovingAverage") != 0) {
      continue;
    }
    DvtGraphAttribute window;
    const uint32_t* inputs;
    const uint32_t* outputs;
    if (!f->node_attribute(graph, node, "window", &window) || window.kind != 'i' ||
        *(const int64_t*)window.values != 1 || f->node_inputs(graph, node, &inputs) != 1 ||
        f->node_outputs(graph, node, &outputs) != 1) {
      continue;
    }
    if (f->replace_value(graph, outputs[0], inputs[0])) ++*changes;
  }
  return DVT_OK;
}

/* ---- What Davit gets to see --------------------------------------------------------------------
 */

static const DvtAttribute average_attributes[] = {
    {"window", offsetof(MovingAverageAttributes, window), 1, 'i'},
};
static const MovingAverageAttributes average_defaults = {.window = 3};

static const DvtKernel kernels[] = {
    {.name = "acme.MovingAverage.f32",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(MovingAverageAttributes),
     .attribute_count = 1,
     .attributes = average_attributes,
     .run = run_average,
     .check = check_average,
     .infer = infer_same},
    {.name = "acme.Swish.f32",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_swish,
     .check = check_same,
     .infer = infer_same},
};

static const DvtPluginOperator operators[] = {
    {.domain = "acme",
     .name = "MovingAverage",
     .since_version = 1,
     .until_version = INT64_MAX,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .kernel = "acme.MovingAverage",
     .default_attributes = &average_defaults},
    {.domain = "acme",
     .name = "Swish",
     .since_version = 1,
     .until_version = INT64_MAX,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .kernel = "acme.Swish"},
};

static const DvtPluginPass passes[] = {
    {.name = "acme_fuse_swish",
     .stage = DVT_PLUGIN_BEFORE,
     .pattern = "input %x: f32 (%s) = Sigmoid (%x) (%y) = Mul (%x, %s) output (%y)",
     .replacement = "input %x (%y) = acme::Swish (%x) output (%y)",
     .domain = "acme",
     .version = 1},
    {.name = "acme_drop_averages", .stage = DVT_PLUGIN_BEFORE, .run = drop_averages},
};

static const DvtPluginSource sources[] = {
    {.kernel = "acme.Swish.f32", .function = "swish", .text = swish_source},
};

/* ---- Device time: how Swish goes through a row of tiles ----------------------------------------
 *
 *   for block in 48                        one for each vector core
 *     for tile in tiles
 *       load, exp and divide (13 cycles a repeat), store
 */

enum { TILE_BYTES = 32768, CORES = 48 };

static DvtCode nest_swish(void* data, const DvtTaskCost* cost, DvtLoopNest* nest) {
  (void)data;
  const uint64_t tiles = (cost->read_bytes + TILE_BYTES - 1) / TILE_BYTES;
  nest->cores = DVT_CORES_VECTOR;
  nest->blocks = tiles < CORES ? (tiles == 0 ? 1 : tiles) : CORES;
  nest->loop_count = 1;
  nest->extents[0] = (tiles + nest->blocks - 1) / nest->blocks;
  nest->step_count = 3;
  nest->unique_bytes = cost->read_bytes + cost->write_bytes;
  nest->steps[0] = (DvtNestStep){.kind = DVT_NEST_LOAD, .depth = 1, .amount = TILE_BYTES};
  nest->steps[1] = (DvtNestStep){.kind = DVT_NEST_VECTOR,
                                 .dtype = DVT_F32,
                                 .depth = 1,
                                 .amount = TILE_BYTES / sizeof(float),
                                 .passes_x100 = 1300};
  nest->steps[2] = (DvtNestStep){.kind = DVT_NEST_STORE, .depth = 1, .amount = TILE_BYTES};
  return DVT_OK;
}

static const DvtKernelTime times[] = {{.op = "Swish", .nest = nest_swish}};

static const DvtPlugin plugin = {
    .struct_size = sizeof(DvtPlugin),
    .abi_version = DVT_PLUGIN_ABI_VERSION,
    .name = "acme",
    .version = "1.0",
    .kernels = {.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]},
    .operators = operators,
    .operator_count = sizeof operators / sizeof operators[0],
    .passes = passes,
    .pass_count = sizeof passes / sizeof passes[0],
    .times = times,
    .time_count = sizeof times / sizeof times[0],
    .sources = sources,
    .source_count = sizeof sources / sizeof sources[0],
};

const DvtPlugin* dvt_plugin(void) {
  return &plugin;
}
