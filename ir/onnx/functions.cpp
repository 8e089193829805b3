#include "ir/onnx/functions.hpp"

#include <google/protobuf/unknown_field_set.h>

namespace davit::onnx_import {
namespace {

// Fields by their numbers, for the releases of libonnx that do not know them yet.
constexpr int kNodeOverload = 8, kFunctionOverload = 13, kFunctionAttributeDefaults = 11;

std::vector<std::string> unknown_texts(const google::protobuf::UnknownFieldSet& fields,
                                       int number) {
  std::vector<std::string> texts;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      texts.emplace_back(field.length_delimited());
    }
  }
  return texts;
}

template <class Proto>
std::string overload_of(const Proto& proto, int number) {
  if constexpr (requires { proto.overload(); }) {
    return proto.overload();
  } else {
    const std::vector<std::string> texts = unknown_texts(proto.unknown_fields(), number);
    return texts.empty() ? std::string() : texts.back();
  }
}

template <class Function>
std::vector<onnx::AttributeProto> defaults_of(const Function& function) {
  std::vector<onnx::AttributeProto> defaults;
  if constexpr (requires { function.attribute_proto(); }) {
    defaults.assign(function.attribute_proto().begin(), function.attribute_proto().end());
  } else {
    for (const std::string& text :
         unknown_texts(function.unknown_fields(), kFunctionAttributeDefaults)) {
      if (!defaults.emplace_back().ParseFromString(text)) defaults.pop_back();
    }
  }
  return defaults;
}

}  // namespace

std::string normal_domain(const std::string& domain) {
  return domain == "ai.onnx" ? std::string() : domain;
}

Status Functions::add(const onnx::FunctionProto& function) {
  const Key key{normal_domain(function.domain()), function.name(),
                overload_of(function, kFunctionOverload)};
  if (functions_.emplace(key, &function).second) return {};
  return {DVT_INVALID_IMAGE, DVT_STAGE_PARSE,
          "the model defines function " + function.domain() + "::" + function.name() + " twice"};
}

const onnx::FunctionProto* Functions::find(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(
      Key{normal_domain(node.domain()), node.op_type(), overload_of(node, kNodeOverload)});
  return found == functions_.end() ? nullptr : found->second;
}

std::vector<onnx::AttributeProto> attribute_defaults(const onnx::FunctionProto& function) {
  return defaults_of(function);
}

}  // namespace davit::onnx_import
