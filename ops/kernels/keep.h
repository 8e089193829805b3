/* keep.h: kernels whose output shapes depend on data (DVT_KERNEL_SHAPES_OUTPUTS).
 *
 *   NonZero    x -> y i64 [rank, n]           where x is not zero; a scalar counts as one axis
 *   Compress   x, condition bool -> y         what condition keeps, along an axis or of all
 *   Unique     x -> y, first i64, inverse i64, counts i64, workspace
 *   NonMaxSuppression   boxes [B,N,4], scores [B,C,N] f32, max i64?, iou f32?, score f32?
 *                       -> y i64 [n,3] of (batch, class, box), workspace
 *
 * Any dtype but strings. A condition may be shorter than the axis: the rest goes. Outputs of Unique
 * behind y may be absent; NaN equals NaN and is above everything. Its workspace is three i64 per
 * item (element, or slice along an axis); that of NonMaxSuppression one i64 per box.
 *
 * NonMaxSuppression  Boxes of a class by descending score, the first of equals first; a box goes
 *                    when its intersection over union with one that stays is above iou. Boxes
 *                    without an area suppress nothing. Without max nothing stays.
 *
 * Threads  Types only.
 * Trust    As davit/kernel.h.
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

/* Compress, Unique. */
typedef struct DvtKeepAttributes {
  int64_t axis;   /* In [-rank, rank). */
  int64_t flat;   /* 1: x counts as one axis, and `axis` means nothing. */
  int64_t sorted; /* Unique: 1 in ascending order, 0 as they first appear. */
} DvtKeepAttributes;

typedef struct DvtNmsAttributes {
  int64_t center_point_box; /* 1: boxes are x and y of the centre, width, height; 0: two corners. */
} DvtNmsAttributes;

enum { DVT_NMS_PARAMETERS = 1u << 2 }; /* max, which bounds y. */

/* What table rows of keep.c point at. */
DvtCode dvt_unique_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);
DvtCode dvt_unique_check(const DvtContext* ctx, char* reason, size_t size);
DvtCode dvt_unique_run(void* ctx);
DvtCode dvt_nms_infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size);
DvtCode dvt_nms_check(const DvtContext* ctx, char* reason, size_t size);
DvtCode dvt_nms_run(void* ctx);
