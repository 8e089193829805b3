// recognise.hpp: what a text recogniser of the PP-OCR family needs around the network: a picture
// becomes a tensor, and the network's output becomes text.
//
// Threads  Values and pure functions.
// Memory   Owned vectors and strings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "picture.hpp"

namespace ocr {

// Scales the picture to `height` rows, keeping its proportions, cuts or pads it on the right to
// `width` columns, and normalises to [-1, 1]. Result: [3][height][width], blue first, as the
// network was trained; padding is 0.
std::vector<float> picture_to_tensor(const Picture& picture, int64_t height, int64_t width);

// One character a line; class 0 of the network is CTC's blank, and the last class is the space.
std::optional<std::vector<std::string>> load_dictionary(const std::string& path);

// Greedy CTC decoding of [steps][classes] probabilities: the best class of every step, repetitions
// merged, blanks dropped.
std::string decode(std::span<const float> probabilities, int64_t steps, int64_t classes,
                   const std::vector<std::string>& dictionary);

}  // namespace ocr
