// attribute_names.hpp: which attributes the operators of the ONNX standard have.
//
// Threads  Pure functions.
// Trust    Any text may be asked for.
// Memory   Views of constants.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace davit::onnx_import {

// The attributes of an operator of ai.onnx under an opset that the importer reads, a blank between
// two names; "" when it has none. nullopt when the standard has no such operator.
std::optional<std::string_view> attribute_names(std::string_view op, int64_t opset);

// Whether `names`, as returned above, has `name`.
bool has_attribute_name(std::string_view names, std::string_view name);

}  // namespace davit::onnx_import
