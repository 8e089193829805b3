#include "ir/text.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace davit::ir;
using davit::Result;

namespace {

constexpr const char* kEverything = R"(davit-ir 1
source "odd \"file\"\x0a.onnx" "00ff"
opset "" 13
opset "com.example" 2
graph "main" {
  input %x: f32[N, 3, ?]
  input %0 "7 up": ?[2]
  input %rank: i64
  input %nothing
  const %f: f32[3] = {0.5, -0, 1e-45}
  const %h: f16[1] = hex "003c"
  const %b: bool[2] = {0, 1}
  const %u: u64[1] = {18446744073709551615}
  const %s: string[2] = {"a", "\"\\"}
  const %e: f64[0] = {}
  const %/conv/w-1: i8[2, 2] = {-128, 127, 0, 1}
  #1: (%y: f32[N, 2], _) = Conv "conv_1" (%x, _, %f) {
    kernel_shape = ints [3, -3]
    alpha = float 0.1
    axis = int -9223372036854775808
    mode = string "constant"
    names = strings ["p", "q r"]
    scales = floats [1, inf, -inf]
    "odd name" = ints []
    value = tensor i32[] = {7}
  }
  (%z: f32["..b"]) = com.example::If "" (%y) {
    then_branch = graph {
      const %c: i64[] = {1}
      (%1 "y") = Add opset 7 "" (%y, %c)
      output (%1)
    }
    bodies = graphs [{
      output (%y)
    }, {
      output ()
    }]
  } after (#1)
  output (%z, %x)
}
)";

std::string error_of(const std::string& text) {
  const Result<Module> module = parse_text(text);
  return module.ok() ? "ok" : module.status().to_string();
}

std::string in_graph(const std::string& body) {
  return "davit-ir 1\nsource \"\" \"\"\ngraph \"g\" {\n" + body + "\n}\n";
}

}  // namespace

TEST_CASE("the text form round-trips") {
  const std::string text = kEverything;
  Result<Module> module = parse_text(text);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  CHECK(print_text(*module) == text);
  CHECK(module->opset_imports.at("com.example") == 2);
  CHECK(module->source_name == "odd \"file\"\n.onnx");
  CHECK(module->value_name(module->graph_inputs(kMainGraph)[1]) == "7 up");
  CHECK(module->graph_count() == 4);
  const NodeId conv = module->graph_nodes(kMainGraph)[0];
  CHECK(module->outputs(conv).size() == 2);
  CHECK(module->inputs(conv)[1] == kNoValue);
  CHECK(std::get<float>(*module->attribute(conv, "alpha")) == 0.1F);
}

TEST_CASE("a module built by hand survives printing and parsing") {
  Module module;
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(), 1.0F};
  const auto* bytes = reinterpret_cast<const std::byte*>(odd);
  const ValueId nan = module.add_constant(kMainGraph, "nan",
                                          make_tensor(DVT_F32, {2}, {bytes, bytes + sizeof odd}));
  const ValueId big =
      module.add_constant(kMainGraph, "big", make_i64_tensor({40}, std::vector<int64_t>(40, -2)));
  module.set_graph_outputs(kMainGraph, {nan, big, nan});
  const std::string text = print_text(module);
  CHECK(text.find("hex \"0000c07f0000803f\"") != std::string::npos);
  Result<Module> back = parse_text(text);
  REQUIRE_MESSAGE(back.ok(), back.status().to_string());
  CHECK(print_text(*back) == text);
  CHECK(std::isnan(back->constant(back->graph_outputs(kMainGraph)[0])->as<float>()[0]));
  CHECK(back->constant(back->graph_outputs(kMainGraph)[1])->to_i64()->size() == 40);
}

TEST_CASE("errors name line and column") {
  CHECK(error_of("") == "parse: line 1, column 1: expected 'davit-ir 1', got the end");
  CHECK(error_of("davit-ir 2") == "parse: line 1, column 11: version 2 of the text form");
  CHECK(error_of(in_graph("  output (%x)")) ==
        "parse: line 4, column 11: %x is not defined before its use");
  CHECK(error_of(in_graph("input %x: q32\noutput ()")).find("line 4, column 11: expected an el") !=
        std::string::npos);
  CHECK(error_of(in_graph("input %x input %x output ()")).find("second time") != std::string::npos);
  CHECK(error_of(in_graph("input %x: f32[-1] output ()")).find("negative") != std::string::npos);
  CHECK(error_of(in_graph("input %x \"open")).find("line 4, column 10") != std::string::npos);
  CHECK(error_of(in_graph("() = Abs () after (#1) output ()")).find("label of a node") !=
        std::string::npos);
  CHECK(error_of(in_graph("(%y) = If () {a = graph {const %c: i64[] = {1} output (%c)}}\n"
                          "output (%c)"))
            .find("line 5, column 9: %c belongs to a graph that is not around") !=
        std::string::npos);
}

TEST_CASE("data must fit its type") {
  const auto constant = [](const std::string& text) {
    return error_of(in_graph("const %c: " + text + " output (%c)"));
  };
  CHECK(constant("i8[1] = {127}") == "ok");
  CHECK(constant("i8[1] = {128}").find("number of this type") != std::string::npos);
  CHECK(constant("i8[2] = {1}").find("size that its dims say") != std::string::npos);
  CHECK(constant("i8[-1] = {}").find("impossible") != std::string::npos);
  CHECK(constant("i8[4611686018427387904, 4611686018427387904] = {}").find("impossible") !=
        std::string::npos);
  CHECK(constant("f32[1] = hex \"0000\"").find("size that its dims say") != std::string::npos);
  CHECK(constant("f32[1] = hex \"000\"").find("odd length") != std::string::npos);
  CHECK(constant("u8[1] = hex \"0g\"").find("another character") != std::string::npos);
  CHECK(constant("f16[1] = {1}").find("hex data") != std::string::npos);
  CHECK(constant("string[2] = {\"a\"}").find("do not fill") != std::string::npos);
}

TEST_CASE("a deep nesting ends in an error") {
  std::string text = "davit-ir 1 source \"\" \"\" graph \"\" ";
  for (int i = 0; i < 100000; ++i) text += "{() = If () {b = graph ";
  CHECK(error_of(text).find("nested too deeply") != std::string::npos);
}

TEST_CASE("no prefix of a text crashes the parser") {
  const std::string text = kEverything;
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    CHECK_FALSE(parse_text(text.substr(0, length)).ok());
  }
}
