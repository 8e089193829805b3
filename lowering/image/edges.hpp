// edges.hpp: the data edges that follow from the values of a model.
//
// Threads  Pure functions.
// Trust    Takes any model: ids out of range are skipped, and left to the verifier.
// Memory   Linear in the number of operands.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lowering/image/image_model.hpp"

namespace davit::image {

// Data edges of one graph as (from, to), ascending, each once.
using Edges = std::vector<std::pair<uint32_t, uint32_t>>;

// Of all graphs, by the rules of exec/verify_dataflow.cpp (docs/image.md).
std::vector<Edges> find_data_edges(const ImageModel& model);

}  // namespace davit::image
