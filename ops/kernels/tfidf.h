/* tfidf.h: the attribute record of TfIdfVectorizer for numbers.
 *
 *   kernel            inputs                                              output
 *   TfIdfVectorizer   X [C] or [N,C], i32 or i64; pool i64 [P];           Y f32 [width] or
 * [N,width] starts i64 [K]; places i64 [M]; weights f32 [M]?
 *
 * starts[n - 1] is where the pool's n-grams begin, one behind the other; places[i] where the count
 * of the pool's i-th n-gram goes in Y. An n-gram of X is n numbers at equal distances of 1 to
 * max_skip + 1; single numbers have one distance. Y is the sum of counts (TF), of weights of what
 * occurs (IDF), or of counts times weights (TFIDF), in f32, by ascending n-gram.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h. run() refuses tables that do not belong together.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum DvtTfIdfMode { DVT_TFIDF_TF = 0, DVT_TFIDF_IDF = 1, DVT_TFIDF_TFIDF = 2 };

typedef struct DvtTfIdfAttributes {
  int64_t mode; /* DvtTfIdfMode. */
  int64_t min_length, max_length;
  int64_t max_skip;
  int64_t width;
} DvtTfIdfAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
