// families.hpp: the operator families that registry.cpp joins into all_operators().
//
// Each is defined in ops/defs/<family>.cpp, in any order of operators and versions.
//
// Threads  Constant tables.
// Trust    See ops/definition.hpp.
// Memory   The spans live for ever.
#pragma once

#include <span>

#include "ops/definition.hpp"

namespace davit::ops {

std::span<const OperatorDefinition> activation_operators();
std::span<const OperatorDefinition> bitwise_operators();
std::span<const OperatorDefinition> control_operators();
std::span<const OperatorDefinition> cumulative_operators();
std::span<const OperatorDefinition> deformable_operators();
std::span<const OperatorDefinition> determinant_operators();
std::span<const OperatorDefinition> einsum_operators();
std::span<const OperatorDefinition> elementwise_operators();
std::span<const OperatorDefinition> gather_operators();
std::span<const OperatorDefinition> fused_operators();
std::span<const OperatorDefinition> generated_operators();
std::span<const OperatorDefinition> generate_operators();
std::span<const OperatorDefinition> keep_operators();
std::span<const OperatorDefinition> lp_pooling_operators();
std::span<const OperatorDefinition> movement_operators();
std::span<const OperatorDefinition> random_operators();
std::span<const OperatorDefinition> regions_operators();
std::span<const OperatorDefinition> sampling_operators();
std::span<const OperatorDefinition> selection_operators();
std::span<const OperatorDefinition> shape_operators();
std::span<const OperatorDefinition> convolution_operators();
std::span<const OperatorDefinition> integer_convolution_operators();
std::span<const OperatorDefinition> integer_matrix_operators();
std::span<const OperatorDefinition> matrix_operators();
std::span<const OperatorDefinition> pooling_operators();
std::span<const OperatorDefinition> normalisation_operators();
std::span<const OperatorDefinition> quantisation_operators();
std::span<const OperatorDefinition> recurrent_operators();
std::span<const OperatorDefinition> range_operators();
std::span<const OperatorDefinition> rearrange_operators();
std::span<const OperatorDefinition> reduction_operators();
std::span<const OperatorDefinition> resize_operators();
std::span<const OperatorDefinition> group_normalisation_operators();
std::span<const OperatorDefinition> channel_normalisation_operators();
std::span<const OperatorDefinition> signal_operators();
std::span<const OperatorDefinition> strings_operators();
std::span<const OperatorDefinition> tfidf_operators();
std::span<const OperatorDefinition> training_operators();
std::span<const OperatorDefinition> unpooling_operators();

}  // namespace davit::ops
