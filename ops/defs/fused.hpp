// fused.hpp: the domain of operators that only passes make.
//
// "davit" has the attributes and rules of ai.onnx opset 21 for the part of a node that an operator
// of that name has there; FusedConv, say, begins as Conv does.
//
//   FusedConv, FusedConvTranspose   X, W, B or absent, operands
//   FusedGemm                       A, B, C or absent, operands
//   FusedMatMul                     A, B, operands
//     steps         strings: names as in ops/kernels/fused.h
//     step_operands ints: node input of step k, or -1 - j for the value before step j
//     step_numbers  tensor f64[steps, 2]: alpha and beta
//   Gelu, LayerNormalization        as in ai.onnx
//   Attention                       see ops/kernels/attention.h
//
// Threads  Constants.
// Trust    As definition.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace davit::ops {

inline constexpr std::string_view kFusedDomain = "davit";
inline constexpr int64_t kFusedOpset = 21;

// The kind of a step (DvtStepKind) by its name; nullopt when there is none.
std::optional<int64_t> step_kind(std::string_view name);

}  // namespace davit::ops
