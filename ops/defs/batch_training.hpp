// batch_training.hpp: BatchNormalization in training mode, for its definition.
//
// Threads  Pure functions of their arguments.
// Trust    As ops/definition.hpp.
// Memory   Values are returned by value.
#pragma once

#include "ops/definition.hpp"

namespace davit::ops {

// `parameters` is the shape of scale, bias, mean and variance; nullopt while X is unknown.
void infer_batch_training(const NodeView& node, const std::optional<ir::Shape>& parameters,
                          std::span<InferredOutput> outputs);
Result<Recipe> recipe_batch_training(const NodeView& node, bool spatial);

}  // namespace davit::ops
