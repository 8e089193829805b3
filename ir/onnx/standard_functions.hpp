// standard_functions.hpp: operators that the ONNX standard defines by a body of other operators.
//
// The bodies come from the schemas of the ONNX library, which knows opsets up to its own release.
//
// Threads  Externally synchronised.
// Trust    The module comes from an untrusted model. Whatever the library throws becomes a status.
// Memory   Works in place. After an error the module is to be thrown away.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::onnx_import {

// Replaces every node for which `wanted` says so by the body that the standard gives its operator:
// nodes named "node/inner", under the opset that the body asks for. Nodes without a body stay; so
// do those whose body depends on the element type of an input that is not known. Returns how many
// were replaced; sorts the module when there were any.
Result<uint32_t> expand_standard_functions(
    ir::Module& module, const std::function<bool(const ir::Module&, ir::NodeId)>& wanted);

}  // namespace davit::onnx_import
