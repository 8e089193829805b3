#include "ir/onnx/attribute_names.hpp"

#include <doctest/doctest.h>
#include <onnx/defs/schema.h>

#include <string>

using davit::onnx_import::attribute_names;
using davit::onnx_import::has_attribute_name;

TEST_CASE("names are found, parts of names are not") {
  CHECK(has_attribute_name("axis keepdims", "axis"));
  CHECK(has_attribute_name("axis keepdims", "keepdims"));
  CHECK_FALSE(has_attribute_name("axis keepdims", "keep"));
  CHECK_FALSE(has_attribute_name("axis keepdims", "dims"));
  CHECK_FALSE(has_attribute_name("axis keepdims", "axis keepdims"));
  CHECK_FALSE(has_attribute_name("axis", ""));
  CHECK_FALSE(has_attribute_name("", "axis"));
  CHECK_FALSE(has_attribute_name("", ""));
}

TEST_CASE("operators are found from the opset on that brings them") {
  CHECK(attribute_names("Abs", 5) == "consumed_inputs");
  CHECK(attribute_names("Abs", 6) == "");
  CHECK(attribute_names("Zzz", 13) == std::nullopt);
  CHECK(attribute_names("", 13) == std::nullopt);
  CHECK(attribute_names("Gelu", 19) == std::nullopt);
  CHECK(attribute_names("Gelu", 20) == "approximate");
  CHECK(attribute_names("Split", 17) == "axis");
  CHECK(attribute_names("Split", 18) == "axis num_outputs");
  CHECK(attribute_names("QuantizeLinear", 21) == "axis block_size output_dtype saturate");
}

// The library knows fewer opsets than the table; as far as it goes, both say the same.
TEST_CASE("the table agrees with the schemas of the ONNX library") {
  int opset_max = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second;
  opset_max = std::min(opset_max, 21);
  size_t compared = 0;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    if (!schema.domain().empty() || schema.Deprecated()) continue;
    const int opset = schema.SinceVersion();
    if (opset > opset_max) continue;
    std::string expected;
    for (const auto& [name, attribute] : schema.attributes()) {
      expected += (expected.empty() ? "" : " ") + name;
    }
    const auto names = attribute_names(schema.Name(), opset);
    REQUIRE_MESSAGE(names.has_value(), schema.Name(), " of opset ", opset);
    CHECK_MESSAGE(*names == expected, schema.Name(), " of opset ", opset);
    ++compared;
  }
  CHECK(compared > 300);
}
