// numbers.hpp: single tensor elements of any dtype, and numbers in text.
//
// Threads  Pure functions.
// Trust    Text is the user's; every parse reports failure instead of guessing.
// Memory   Element pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "davit/types.h"

namespace davit::cli {

[[nodiscard]] bool is_floating(DvtDType dtype);

// Any numeric dtype as double; 64-bit integers are rounded. 0 for strings.
[[nodiscard]] double load_element(DvtDType dtype, const std::byte* from);
// Rounded to the dtype. Precondition: integers hold `value` exactly.
void store_element(double value, DvtDType dtype, std::byte* to);
// Exact |a - b| of two integer or boolean elements, rounded to double at the end.
[[nodiscard]] double integer_difference(DvtDType dtype, const std::byte* a, const std::byte* b);

// "12", "-0.5", "1e-3", "nan", "inf", "true", "false", or any text for a string, into one element;
// false when the text is not a value that the dtype holds.
[[nodiscard]] bool parse_element(std::string_view text, DvtDType dtype, std::byte* to);

[[nodiscard]] std::optional<int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<uint64_t> parse_unsigned(std::string_view text);
[[nodiscard]] std::optional<double> parse_real(std::string_view text);
[[nodiscard]] std::optional<std::vector<int64_t>> parse_integers(std::string_view text);  // "1,-2"
// "1x3x224x224": extents >= 0, at most DVT_MAX_RANK.
[[nodiscard]] std::optional<std::vector<int64_t>> parse_dims(std::string_view text);
// "50,90,99.9"
[[nodiscard]] std::optional<std::vector<double>> parse_reals(std::string_view text);

}  // namespace davit::cli
