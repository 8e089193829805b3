/* NonMaxSuppression. */
#include <math.h>

#include "ops/kernels/keep.h"
#include "ops/kernels/order.h"
#include "ops/kernels/shape.h"

enum { BOXES = 0, SCORES = 1, MAX_BOXES = 2, IOU = 3, SCORE = 4, Y = 0, WORKSPACE = 1 };

static DvtCode check_operands(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_inputs(ctx, 2, 5, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code != DVT_OK) return code;
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (!dvt_has_input(ctx, i)) continue;
    const DvtTensor* tensor = dvt_input_tensor(ctx, i);
    code = dvt_check_dtype(tensor, i == MAX_BOXES ? DVT_I64 : DVT_F32, "inputs", reason, size);
    if (code != DVT_OK) return code;
    if (i >= MAX_BOXES && dvt_tensor_elements(tensor) != 1) {
      return dvt_refuse(reason, size, "input %u: expected one element, got %lld", i,
                        (long long)dvt_tensor_elements(tensor));
    }
  }
  const DvtTensor* boxes = dvt_input_tensor(ctx, BOXES);
  const DvtTensor* scores = dvt_input_tensor(ctx, SCORES);
  if (boxes->rank == 3 && scores->rank == 3 && boxes->dims[2] == 4 &&
      boxes->dims[0] == scores->dims[0] && boxes->dims[1] == scores->dims[2]) {
    return DVT_OK;
  }
  char boxes_text[DVT_SHAPE_TEXT];
  char scores_text[DVT_SHAPE_TEXT];
  return dvt_refuse(reason, size, "boxes %s and scores %s: expected [B,N,4] and [B,C,N]",
                    dvt_shape_text(boxes, boxes_text), dvt_shape_text(scores, scores_text));
}

/* Boxes of each class that may stay; -1 is no limit that is known. */
static int64_t limit_of(const DvtContext* ctx) {
  if (!dvt_has_input(ctx, MAX_BOXES)) return 0;
  if (!dvt_has_data(ctx, MAX_BOXES)) return -1;
  const int64_t limit = *(const int64_t*)dvt_input_data(ctx, MAX_BOXES);
  return limit < 0 ? 0 : limit;
}

/* The bound: every box of every class. max_output_boxes_per_class may make it much smaller, but
 * is read where the data is. */
DvtCode dvt_nms_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  DvtCode code = check_operands(ctx, reason, size);
  if (code != DVT_OK) return code;
  if (ctx->output_count != 2) {
    return dvt_refuse(reason, size, "expected 2 outputs, got %u", ctx->output_count);
  }
  const DvtTensor* scores = dvt_input_tensor(ctx, SCORES);
  const int64_t limit = limit_of(ctx);
  const int64_t per_class = limit >= 0 && limit < scores->dims[2] ? limit : scores->dims[2];
  int64_t dims[] = {0, 3};
  if (__builtin_mul_overflow(scores->dims[0], scores->dims[1], &dims[0]) ||
      __builtin_mul_overflow(dims[0], per_class, &dims[0])) {
    return dvt_refuse(reason, size, "there are too many boxes");
  }
  code = dvt_infer_shape(&outputs[Y], 2, dims, "output 0", reason, size);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)scores->dims[2], sizeof(int64_t), &bytes)) {
    return dvt_refuse(reason, size, "there are too many boxes");
  }
  return code == DVT_OK ? dvt_infer_scratch(&outputs[WORKSPACE], bytes, reason, size) : code;
}

DvtCode dvt_nms_check(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_counts(ctx, 2, 5, 2, 2, reason, size);
  if (code == DVT_OK) code = check_operands(ctx, reason, size);
  if (code == DVT_OK) {
    code = dvt_check_dtype(dvt_output_tensor(ctx, Y), DVT_I64, "output 0", reason, size);
  }
  if (code != DVT_OK || dvt_lacks_parameters(ctx, DVT_NMS_PARAMETERS)) return code;
  return dvt_check_inferred(ctx, dvt_nms_infer, 1, reason, size);
}

typedef struct Box {
  float y0, x0, y1, x1;
} Box;

static Box box_at(const float* boxes, int64_t at, bool centred) {
  const float* box = boxes + at * 4;
  if (centred) {
    const float half_width = box[2] / 2.0f;
    const float half_height = box[3] / 2.0f;
    return (Box){.y0 = box[1] - half_height,
                 .x0 = box[0] - half_width,
                 .y1 = box[1] + half_height,
                 .x1 = box[0] + half_width};
  }
  return (Box){.y0 = fminf(box[0], box[2]),
               .x0 = fminf(box[1], box[3]),
               .y1 = fmaxf(box[0], box[2]),
               .x1 = fmaxf(box[1], box[3])};
}

static bool overlaps(const Box* a, const Box* b, float iou) {
  const float height = fminf(a->y1, b->y1) - fmaxf(a->y0, b->y0);
  const float width = fminf(a->x1, b->x1) - fmaxf(a->x0, b->x0);
  if (!(height > 0.0f) || !(width > 0.0f)) return false;
  const float area_a = (a->y1 - a->y0) * (a->x1 - a->x0);
  const float area_b = (b->y1 - b->y0) * (b->x1 - b->x0);
  if (!(area_a > 0.0f) || !(area_b > 0.0f)) return false;
  const float intersection = height * width;
  const float all = area_a + area_b - intersection;
  return all > 0.0f && intersection / all > iou;
}

static bool before(const void* context, int64_t a, int64_t b) {
  const float* scores = context;
  return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/* The boxes that stay of one class go to y[0 ...), three numbers each. */
static int64_t keep_boxes(const DvtContext* ctx, int64_t batch, int64_t class, int64_t limit,
                          int64_t* y) {
  const DvtTensor* shape = dvt_input_tensor(ctx, SCORES);
  const int64_t count = shape->dims[2];
  const float* scores =
      (const float*)dvt_input_data(ctx, SCORES) + (batch * shape->dims[1] + class) * count;
  const float* boxes = (const float*)dvt_input_data(ctx, BOXES) + batch * count * 4;
  const bool centred = ((const DvtNmsAttributes*)ctx->attributes)->center_point_box != 0;
  const float iou = dvt_has_input(ctx, IOU) ? *(const float*)dvt_input_data(ctx, IOU) : 0.0f;
  const float* threshold = dvt_has_input(ctx, SCORE) ? dvt_input_data(ctx, SCORE) : NULL;
  DvtHeap heap = {
      .indices = dvt_output_data(ctx, WORKSPACE), .count = 0, .before = before, .context = scores};
  for (int64_t i = 0; i < count; ++i) {
    /* A score that is not a number has no place in the order. */
    const bool enters = threshold != NULL ? scores[i] > *threshold : scores[i] == scores[i];
    if (enters) heap.indices[heap.count++] = i;
  }
  dvt_heap_build(&heap);
  int64_t kept = 0;
  while (heap.count > 0 && kept < limit) {
    const int64_t next = dvt_heap_pop(&heap);
    const Box box = box_at(boxes, next, centred);
    bool stays = true;
    for (int64_t k = 0; stays && k < kept; ++k) {
      const Box other = box_at(boxes, y[k * 3 + 2], centred);
      stays = !overlaps(&box, &other, iou);
    }
    if (!stays) continue;
    y[kept * 3] = batch;
    y[kept * 3 + 1] = class;
    y[kept * 3 + 2] = next;
    ++kept;
  }
  return kept;
}

DvtCode dvt_nms_run(void* context) {
  const DvtContext* ctx = context;
  const DvtTensor* scores = dvt_input_tensor(ctx, SCORES);
  const int64_t limit = limit_of(ctx);
  int64_t* y = dvt_output_data(ctx, Y);
  int64_t kept = 0;
  for (int64_t b = 0; limit > 0 && scores->bytes > 0 && b < scores->dims[0]; ++b) {
    for (int64_t c = 0; c < scores->dims[1]; ++c) {
      kept += keep_boxes(ctx, b, c, limit, y + kept * 3);
    }
  }
  const int64_t dims[] = {kept, 3};
  return dvt_set_shape(dvt_output_shape(ctx, Y), 2, dims);
}
