/* _POSIX_C_SOURCE: uselocale(). A feature macro has a reserved name. */
#define _POSIX_C_SOURCE 200809L /* NOLINT(bugprone-reserved-identifier) */
#include "ops/kernels/strings.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/kernels/convert.h"
#include "ops/kernels/element.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/shape.h"

void dvt_string_set(DvtString* string, const char* text, size_t length) {
  string->length = (uint16_t)length;
  if (length > 0) memcpy(string->text, text, length);
  memset(string->text + length, 0, DVT_STRING_MAX - length);
}

static bool all_valid(const DvtCell* cell) {
  const DvtString* strings = cell->data;
  const int64_t count = dvt_tensor_elements(cell->tensor);
  for (int64_t i = 0; i < count; ++i) {
    if (strings[i].length > DVT_STRING_MAX) return false;
  }
  return true;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* A run of capitals, and how far their small letters are behind them. Both take two bytes of UTF-8,
 * but for ASCII's. */
typedef struct CaseRange {
  uint32_t first, last, distance;
} CaseRange;
static const CaseRange case_ranges[] = {
    {0x41, 0x5A, 32},   {0xC0, 0xD6, 32},   {0xD8, 0xDE, 32},   {0x391, 0x3A1, 32},
    {0x3A3, 0x3A9, 32}, {0x400, 0x40F, 80}, {0x410, 0x42F, 32},
};

static uint32_t other_case(uint32_t letter, int64_t change) {
  for (size_t i = 0; i < sizeof case_ranges / sizeof case_ranges[0]; ++i) {
    const CaseRange* range = &case_ranges[i];
    if (change == DVT_CASE_LOWER && letter >= range->first && letter <= range->last) {
      return letter + range->distance;
    }
    if (change == DVT_CASE_UPPER && letter >= range->first + range->distance &&
        letter <= range->last + range->distance) {
      return letter - range->distance;
    }
  }
  return letter;
}

void dvt_string_set_case(DvtString* string, int64_t change) {
  uint8_t* text = (uint8_t*)string->text;
  for (uint32_t i = 0; i < string->length; ++i) {
    if (text[i] < 0x80) {
      text[i] = (uint8_t)other_case(text[i], change);
    } else if ((text[i] & 0xE0u) == 0xC0 && i + 1 < string->length &&
               (text[i + 1] & 0xC0u) == 0x80) {
      const uint32_t letter = (text[i] & 0x1Fu) << 6 | (text[i + 1] & 0x3Fu);
      const uint32_t other = other_case(letter, change);
      text[i] = (uint8_t)(0xC0u | other >> 6);
      text[i + 1] = (uint8_t)(0x80u | (other & 0x3Fu));
      ++i;
    }
  }
}

/* ---- StringNormalizer ------------------------------------------------------------------------ */

enum { X = 0, STOPWORDS = 1 };

static DvtCode infer_normalizer(const DvtContext* ctx, DvtTensor* outputs, char* reason,
                                size_t size) {
  const DvtCode code = dvt_check_any_inputs(ctx, 1, 2, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  if (x->rank != 1 && (x->rank != 2 || x->dims[0] != 1)) {
    char text[DVT_SHAPE_TEXT];
    return dvt_refuse(reason, size, "input 0: expected shape [C] or [1,C], got %s",
                      dvt_shape_text(x, text));
  }
  int64_t dims[] = {1, 1};
  const int64_t count = x->dims[x->rank - 1u];
  if (count > 1) dims[x->rank - 1u] = count;
  return dvt_infer_shape(&outputs[0], x->rank, dims, "output 0", reason, size);
}

static DvtCode check_normalizer(const DvtContext* ctx, char* reason, size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 1, 2, 1, 1, reason, size);
  if (code == DVT_OK) code = dvt_check_attributes(ctx, reason, size);
  if (code == DVT_OK) code = dvt_check_dtypes(ctx, 3, 1, DVT_STRING, reason, size);
  return code == DVT_OK ? dvt_check_inferred(ctx, infer_normalizer, 0, reason, size) : code;
}

static bool is_stopword(const DvtString* word, const DvtCell* stopwords, bool case_sensitive) {
  DvtString folded = *word;
  if (!case_sensitive) dvt_string_set_case(&folded, DVT_CASE_LOWER);
  const DvtString* others = stopwords->data;
  const int64_t count = dvt_tensor_elements(stopwords->tensor);
  for (int64_t i = 0; i < count; ++i) {
    if (others[i].length != word->length) continue;
    DvtString other = others[i];
    if (!case_sensitive) dvt_string_set_case(&other, DVT_CASE_LOWER);
    if (memcmp(other.text, folded.text, word->length) == 0) return true;
  }
  return false;
}

static DvtCode run_normalizer(void* context) {
  const DvtContext* ctx = context;
  const DvtNormalizerAttributes* attributes = ctx->attributes;
  const DvtCell* x = dvt_input(ctx, X);
  const DvtCell* stopwords = dvt_has_input(ctx, STOPWORDS) ? dvt_input(ctx, STOPWORDS) : NULL;
  if (!all_valid(x) || (stopwords != NULL && !all_valid(stopwords))) return DVT_INVALID_ARGUMENT;
  const DvtString* words = x->data;
  DvtString* kept = dvt_output_data(ctx, 0);
  const int64_t count = dvt_tensor_elements(x->tensor);
  int64_t left = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (stopwords != NULL && is_stopword(&words[i], stopwords, attributes->case_sensitive != 0)) {
      continue;
    }
    dvt_string_set(&kept[left], words[i].text, words[i].length);
    dvt_string_set_case(&kept[left], attributes->case_change);
    ++left;
  }
  if (left == 0) dvt_string_set(&kept[left++], "", 0);
  int64_t dims[] = {1, 1};
  dims[x->tensor->rank - 1u] = left;
  return dvt_set_shape(dvt_output_shape(ctx, 0), x->tensor->rank, dims);
}

/* ---- Text of numbers ------------------------------------------------------------------------- */

static const struct {
  const char* text;
  double value;
} number_words[] = {{"nan", (double)NAN},
                    {"+nan", (double)NAN},
                    {"-nan", (double)NAN},
                    {"inf", (double)INFINITY},
                    {"+inf", (double)INFINITY},
                    {"-inf", -(double)INFINITY},
                    {"true", 1.0},
                    {"false", 0.0}};

size_t dvt_number_to_text(double value, bool narrow, char text[DVT_NUMBER_TEXT]) {
  if (value != value || value - value != 0.0) {
    const char* word = value != value ? "NaN" : value > 0.0 ? "INF" : "-INF";
    return (size_t)snprintf(text, DVT_NUMBER_TEXT, "%s", word);
  }
  int length = 0;
  for (int digits = 1; digits <= 17; ++digits) {
    length = snprintf(text, DVT_NUMBER_TEXT, "%.*g", digits, value);
    const double back = narrow ? (double)strtof(text, NULL) : strtod(text, NULL);
    if (back == value) break;
  }
  return (size_t)length;
}

static bool is_decimal(const char* text) {
  for (; *text != '\0'; ++text) {
    if (strchr("+-.0123456789eE", *text) == NULL) return false;
  }
  return true;
}

bool dvt_number_from_text(const DvtString* string, double* value) {
  char text[DVT_STRING_MAX + 1];
  char lower[DVT_STRING_MAX + 1];
  if (string->length == 0 || string->length > DVT_STRING_MAX) return false;
  memcpy(text, string->text, string->length);
  text[string->length] = '\0';
  for (uint32_t i = 0; i <= string->length; ++i) {
    lower[i] = (char)other_case((uint8_t)text[i], DVT_CASE_LOWER);
  }
  for (size_t i = 0; i < sizeof number_words / sizeof number_words[0]; ++i) {
    if (strcmp(lower, number_words[i].text) != 0 || strlen(lower) != string->length) continue;
    *value = number_words[i].value;
    return true;
  }
  if (strlen(text) != string->length || !is_decimal(text)) return false;
  char* end = NULL;
  *value = strtod(text, &end);
  return *end == '\0';
}

/* A whole number of 64 bits, exactly; false when the text is none, or too large. */
static bool integer_from_text(const DvtString* string, bool is_signed, int64_t* value) {
  char text[DVT_STRING_MAX + 1];
  memcpy(text, string->text, string->length);
  text[string->length] = '\0';
  const char* digits = text + (text[0] == '-' || text[0] == '+' ? 1 : 0);
  if (*digits == '\0' || strspn(digits, "0123456789") != string->length - (size_t)(digits - text)) {
    return false;
  }
  uint64_t magnitude = 0;
  for (; *digits != '\0'; ++digits) {
    if (__builtin_mul_overflow(magnitude, 10u, &magnitude) ||
        __builtin_add_overflow(magnitude, (uint64_t)(*digits - '0'), &magnitude)) {
      return false;
    }
  }
  const bool negative = text[0] == '-';
  const uint64_t limit = !is_signed ? (negative ? 0 : UINT64_MAX) : (uint64_t)INT64_MAX + negative;
  if (magnitude > limit) return false;
  *value = (int64_t)(negative ? 0 - magnitude : magnitude);
  return true;
}

/* ---- Casts ----------------------------------------------------------------------------------- */

/* The decimal point of text is '.', whatever the thread's locale says. This one is static in the C
 * library: nothing is allocated. */
static locale_t use_plain_locale(locale_t* plain) {
  *plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return *plain == (locale_t)0 ? (locale_t)0 : uselocale(*plain);
}
static void restore_locale(locale_t plain, locale_t before) {
  if (plain == (locale_t)0) return;
  uselocale(before);
  freelocale(plain);
}

static size_t element_to_text(const DvtCell* x, int64_t at, char text[DVT_NUMBER_TEXT]) {
  const DvtDType dtype = x->tensor->dtype;
  if (dvt_dtype_is_float(dtype)) {
    return dvt_number_to_text(dvt_load_real(x->data, dtype, at), dtype != DVT_F64, text);
  }
  const int64_t value = dvt_load_integer(x->data, dtype, at);
  if (dtype == DVT_BOOL) return (size_t)snprintf(text, DVT_NUMBER_TEXT, value ? "True" : "False");
  if (dtype == DVT_U64) return (size_t)snprintf(text, DVT_NUMBER_TEXT, "%" PRIu64, (uint64_t)value);
  return (size_t)snprintf(text, DVT_NUMBER_TEXT, "%" PRId64, value);
}

static DvtCode run_to_string(void* context) {
  const DvtContext* ctx = context;
  const DvtCell* x = dvt_input(ctx, X);
  DvtString* y = dvt_output_data(ctx, 0);
  const int64_t count = dvt_tensor_elements(x->tensor);
  locale_t plain;
  const locale_t before = use_plain_locale(&plain);
  for (int64_t i = 0; i < count; ++i) {
    char text[DVT_NUMBER_TEXT];
    const size_t length = element_to_text(x, i, text);
    dvt_string_set(&y[i], text, length);
  }
  restore_locale(plain, before);
  return DVT_OK;
}

static DvtCode run_from_string(void* context) {
  const DvtContext* ctx = context;
  const DvtCell* x = dvt_input(ctx, X);
  const DvtDType dtype = dvt_output_tensor(ctx, 0)->dtype;
  if (!all_valid(x)) return DVT_INVALID_ARGUMENT;
  const DvtString* strings = x->data;
  char* y = dvt_output_data(ctx, 0);
  const uint32_t size = dvt_dtype_size(dtype);
  const bool is_float = dvt_dtype_is_float(dtype);
  const int64_t count = dvt_tensor_elements(x->tensor);
  locale_t plain;
  const locale_t before = use_plain_locale(&plain);
  bool good = true;
  for (int64_t i = 0; i < count && good; ++i) {
    char* to = y + (size_t)i * size;
    int64_t whole = 0;
    double real = 0.0;
    if (!is_float && integer_from_text(&strings[i], dtype != DVT_U64, &whole)) {
      dvt_narrow_loop(dtype == DVT_U64 ? DVT_U64 : DVT_I64, dtype)(&whole, to, 1);
      continue;
    }
    good = dvt_number_from_text(&strings[i], &real);
    dvt_narrow_loop(DVT_F64, dtype)(&real, to, 1);
  }
  restore_locale(plain, before);
  return good ? DVT_OK : DVT_INVALID_ARGUMENT;
}

static DvtCode check_cast(const DvtContext* ctx, bool to_string, char* reason, size_t size) {
  DvtCode code = dvt_check_any_counts(ctx, 1, 1, 1, 1, reason, size);
  if (code != DVT_OK) return code;
  const DvtTensor* x = dvt_input_tensor(ctx, X);
  const DvtTensor* y = dvt_output_tensor(ctx, 0);
  code = dvt_check_dtype(to_string ? y : x, DVT_STRING, to_string ? "output 0" : "input 0", reason,
                         size);
  if (code == DVT_OK && (to_string ? x : y)->dtype == DVT_STRING) {
    return dvt_refuse(reason, size, "expected a cast between strings and numbers");
  }
  return code == DVT_OK ? dvt_check_inferred(ctx, dvt_infer_same, 0, reason, size) : code;
}
static DvtCode check_to_string(const DvtContext* ctx, char* reason, size_t size) {
  return check_cast(ctx, true, reason, size);
}
static DvtCode check_from_string(const DvtContext* ctx, char* reason, size_t size) {
  return check_cast(ctx, false, reason, size);
}

/* ---- Table ----------------------------------------------------------------------------------- */

static const DvtAttribute normalizer_attributes[] = {
    {"case_change", offsetof(DvtNormalizerAttributes, case_change), 1, 'i'},
    {"case_sensitive", offsetof(DvtNormalizerAttributes, case_sensitive), 1, 'i'}};

static const DvtKernel kernels[] = {
    {.name = "StringNormalizer",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_SHAPES_OUTPUTS | DVT_KERNEL_STRINGS,
     .input_min = 1,
     .input_max = 2,
     .output_min = 1,
     .output_max = 1,
     .attribute_bytes = sizeof(DvtNormalizerAttributes),
     .attribute_count = 2,
     .attributes = normalizer_attributes,
     .run = run_normalizer,
     .check = check_normalizer,
     .infer = infer_normalizer},
    {.name = "CastToString",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_STRINGS,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_to_string,
     .check = check_to_string,
     .infer = dvt_infer_same},
    {.name = "CastFromString",
     .abi_version = DVT_KERNEL_ABI_VERSION,
     .flags = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_STRINGS,
     .input_min = 1,
     .input_max = 1,
     .output_min = 1,
     .output_max = 1,
     .run = run_from_string,
     .check = check_from_string,
     .infer = dvt_infer_same},
};

DvtKernelTable dvt_kernels_strings(void) {
  return (DvtKernelTable){.kernels = kernels, .count = sizeof kernels / sizeof kernels[0]};
}
