// text.hpp: modules as text, for tests, for --save-passes, and for people.
//
//   davit-ir 1
//   source "lenet.onnx" "<digest>"
//   opset "" 13
//   graph "main" {
//     input %x: f32[N, 3, ?]
//     const %w: f32[2] = {0.5, -1}
//     const %big: f32[1000] = hex "0000803f..."
//     #1: (%y: f32[N, 2], _) = Conv "conv_1" (%x, %w, _) {
//       kernel_shape = ints [3, 3]
//       mode = string "constant"
//       then_branch = graph { output (%x) }
//     }
//     (%5 "odd name": ?) = com.example::Foo opset 2 (%y) after (#1)
//     output (%5)
//   }
//
// A value is defined before it is used, as %identifier. Its name is the identifier, or the quoted
// string after it where the name is no identifier or taken. A type is a dtype or "?", with dims in
// brackets when the rank is known; a dim is an extent, a symbol or "?". "_" is an absent operand.
// "opset k" behind the operator is the node's own, where that is not the module's.
// "#k:" labels a node for the control edges ("after") of later ones. Line breaks mean nothing.
//
// Threads  Pure.
// Trust    The parser takes any text: an error has line and column; memory is bounded by the text's
//          size, recursion by a depth limit. What it returns is verified.
// Memory   Results own everything.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::ir {

// Precondition: the module is verified and sorted. parse_text() of the result is an equal module,
// with handles in the order of the text.
std::string print_text(const Module& module);

Result<Module> parse_text(std::string_view text);

// "[N, 3, ?]".
std::string shape_text(const Module& module, const Shape& shape);

}  // namespace davit::ir
