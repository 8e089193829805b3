// functions.hpp: the functions that a model brings along, and what a call of one binds.
//
// Threads  Externally synchronised.
// Trust    Protos are untrusted.
// Memory   Functions are borrowed from the model; what a call binds is copied.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.hpp"

namespace davit::onnx_import {

// "" for ai.onnx.
std::string normal_domain(const std::string& domain);

// By domain, name and overload.
class Functions {
 public:
  // Refuses a second one of the same name. The proto must outlive this.
  Status add(const onnx::FunctionProto& function);
  // The function that a node calls, or nullptr.
  [[nodiscard]] const onnx::FunctionProto* find(const onnx::NodeProto& node) const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, const onnx::FunctionProto*> functions_;
};

// Attributes that a function has a value for. libonnx before 1.13 does not know the field.
std::vector<onnx::AttributeProto> attribute_defaults(const onnx::FunctionProto& function);

// A call whose body is being read.
struct FunctionCall {
  const FunctionCall* outer = nullptr;  // The call in whose body this one is.
  const onnx::FunctionProto* function = nullptr;
  std::map<std::string, onnx::AttributeProto> attributes;  // What references in the body mean.
  std::map<std::string, int64_t> opsets;                   // By domain; what the body imports.

  [[nodiscard]] uint32_t depth() const { return outer == nullptr ? 1 : outer->depth() + 1; }
  [[nodiscard]] bool is_inside(const onnx::FunctionProto* other) const {
    return function == other || (outer != nullptr && outer->is_inside(other));
  }
};

}  // namespace davit::onnx_import
