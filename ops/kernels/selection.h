/* selection.h: attribute records of kernels that pick elements by what they are.
 *
 *   ArgMax, ArgMin   x -> y i64                  where the extreme of each line along an axis is
 *   TopK             x, k? -> values, indices i64, workspace
 *   OneHot           indices, depth?, values [off, on] -> y
 *
 * Any dtype but strings; OneHot's indices and depth may be of any dtype, too. Of equals the first
 * is taken (the last by select_last). NaN is above everything, and wins minima, too. A workspace is
 * one i64 per element of a line. Values or indices of TopK may be absent.
 *
 * OneHot  An index outside [-depth, depth) sets nothing. Floats are truncated.
 *
 * Threads  Types only.
 * Trust    As davit/kernel.h; k and depth that are inputs are judged by run() once more.
 * Memory   Records lie in the image.
 */
#pragma once

#include "davit/kernel.h"

typedef struct DvtArgAttributes {
  int64_t axis; /* In [-rank, rank). */
  int64_t keep_dims;
  int64_t select_last;
} DvtArgAttributes;

typedef struct DvtTopKAttributes {
  int64_t axis; /* In [-rank, rank). */
  int64_t k;
  int64_t k_is_input; /* 1: it is input 1, of one element. */
  int64_t largest;    /* 0: the smallest, in ascending order. */
} DvtTopKAttributes;

typedef struct DvtOneHotAttributes {
  int64_t axis; /* Of y, in [-rank, rank). */
  int64_t depth;
  int64_t depth_is_input; /* 1: it is input 1, of one element. */
} DvtOneHotAttributes;
