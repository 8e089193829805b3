/* strings.h: attribute record of kernels that compute with strings, and what they share.
 *
 *   kernel             inputs                        outputs
 *   StringNormalizer   x string, stopwords string?   y string   what is left of x, at least one
 *   CastToString       x of numbers                  y string, like x
 *   CastFromString     x string                      y of numbers, like x
 *
 * Numbers  Text of a float is the shortest that reads back as the same float; "NaN", "INF", "-INF";
 *          bools are "True" and "False". Read are decimal numbers with sign and exponent, the words
 *          above in any case and with a plus. Whole numbers wrap in integers, others are cut and
 *          saturate, as in Cast.
 * Cases    Letters of ASCII, Latin-1, Greek and Cyrillic have two; all others stay as they are.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h; lengths and texts are judged by run(), which stops at one that is no
 *          number, or is longer than a string can be.
 * Memory   Nothing is allocated.
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_CASE_NONE = 0, DVT_CASE_LOWER = 1, DVT_CASE_UPPER = 2 };

typedef struct DvtNormalizerAttributes {
  int64_t case_change;    /* DVT_CASE_*: of what is left. */
  int64_t case_sensitive; /* Whether stopwords have to have the same case. */
} DvtNormalizerAttributes;

/* Sets the text and clears what is behind it. Precondition: length <= DVT_STRING_MAX. */
void dvt_string_set(DvtString* string, const char* text, size_t length);

/* Another case, DVT_CASE_*. Lengths stay. */
void dvt_string_set_case(DvtString* string, int64_t change);

/* The text of a float (f32 or narrower when `narrow`), NUL-terminated; returns its length. */
enum { DVT_NUMBER_TEXT = 32 };
size_t dvt_number_to_text(double value, bool narrow, char text[DVT_NUMBER_TEXT]);
/* False when the whole text is no number. */
bool dvt_number_from_text(const DvtString* string, double* value);

#ifdef __cplusplus
} /* extern "C" */
#endif
