#include "ir/onnx/import.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ir/onnx/digest.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/proto_builder.hpp"

using namespace davit::test;
using davit::Result;
using davit::ir::kMainGraph;
using davit::ir::kNoValue;
using davit::ir::Module;
using davit::ir::NodeId;
using davit::ir::ValueId;
using onnx::AttributeProto;
using onnx::TensorProto;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ValueId output_value(const Module& module) {
  return module.graph_outputs(kMainGraph)[0];
}

// A Loop-like node whose body holds one node, built by `fill`.
template <class Fill>
onnx::ModelProto model_with_body(Fill fill) {
  onnx::ModelProto model = model_proto();
  onnx::GraphProto* graph = model.mutable_graph();
  add_input(graph, "x");
  onnx::NodeProto* loop = add_node(graph, "Loop", {"x"}, {"y"}, "loop");
  onnx::GraphProto* body = add_attribute(loop, "body", AttributeProto::GRAPH)->mutable_g();
  body->set_name("anything");
  fill(body);
  add_output(graph, "y");
  return model;
}

}  // namespace

TEST_CASE("a model becomes a module") {
  onnx::ModelProto model = relu_model();
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("N");
  Result<Module> module = import_proto(model);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  const NodeId relu = module->graph_nodes(kMainGraph)[0];
  CHECK(module->op_label(relu) == "ai.onnx::Relu(13)");
  CHECK(module->node_path(relu) == "relu");
  const ValueId x = module->graph_inputs(kMainGraph)[0];
  CHECK(module->dtype(x) == DVT_F32);
  CHECK(module->symbol_name((*module->shape(x))[0].symbol_id()) == "N");
  CHECK(module->dtype(output_value(*module)) == DVT_DTYPE_NONE);
  CHECK(module->source_digest.size() == 32);
  // The digest is of the bytes: another name, another digest.
  model.mutable_graph()->set_name("h");
  CHECK(import_proto(model)->source_digest != module->source_digest);
}

TEST_CASE("the digest is what xxhsum -H128 prints") {
  davit::onnx_import::Digest digest;
  CHECK(digest.hex() == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("versions outside the range name both sides") {
  CHECK(has(import_error(model_proto(22)), "opset of ai.onnx"));
  CHECK(has(import_error(model_proto(22)), "expected 1 to 21; got 22"));
  CHECK(has(import_error(model_proto(0)), "expected 1 to 21; got 0"));
  onnx::ModelProto model = relu_model();
  model.set_ir_version(11);
  CHECK(
      has(import_error(model), "IR version is outside what Davit reads; expected 3 to 10; got 11"));
  model.mutable_opset_import(0)->set_version(23);
  CHECK(has(import_error(model), "so is its IR version 11"));
  CHECK(import_proto(model).status().code() == DVT_UNSUPPORTED);
  for (int64_t opset = davit::onnx_import::kOpsetMin; opset <= 21; ++opset) {
    model = relu_model();
    model.mutable_opset_import(0)->set_version(opset);
    CHECK(import_error(model) == "ok");
  }
}

TEST_CASE("opset imports must be consistent and present") {
  onnx::ModelProto model = relu_model();
  onnx::OperatorSetIdProto* again = model.add_opset_import();
  again->set_domain("ai.onnx");
  again->set_version(13);
  CHECK(import_error(model) == "ok");
  again->set_version(12);
  CHECK(has(import_error(model), "at two versions"));

  model = relu_model();
  add_node(model.mutable_graph(), "A", {"x"}, {"a"}, "first")->set_domain("com.example");
  add_node(model.mutable_graph(), "B", {"x"}, {"b"}, "second")->set_domain("com.example");
  CHECK(has(import_error(model),
            "does not import: first (com.example::A(0)), second (com.example::B(0))"));
}

TEST_CASE("what is no model is an error") {
  CHECK(has(import_error(onnx::ModelProto()), "not an ONNX model"));
  const std::string junk = "\x89PNG\r\n\x1a\nnothing to see";
  CHECK(davit::onnx_import::import_onnx_bytes(std::as_bytes(std::span(junk))).status().code() ==
        DVT_INVALID_IMAGE);
  CHECK(davit::onnx_import::import_onnx_file("/nonexistent/model.onnx").status().code() ==
        DVT_IO_ERROR);
  CHECK(has(davit::onnx_import::import_onnx_file("/").status().to_string(), "it is a folder"));
  onnx::ModelProto model = relu_model();
  model.mutable_graph()->clear_output();
  CHECK(has(import_error(model), "no outputs"));
}

TEST_CASE("no truncation crashes the importer") {
  const std::string bytes = relu_model().SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto part = std::as_bytes(std::span(bytes)).first(length);
    CHECK_FALSE(davit::onnx_import::import_onnx_bytes(part).ok());
  }
}

TEST_CASE("unsorted nodes and empty names are accepted") {
  onnx::ModelProto model = model_proto();
  onnx::GraphProto* graph = model.mutable_graph();
  add_input(graph, "x");
  add_node(graph, "Neg", {"b"}, {"c"});
  add_node(graph, "Abs", {"a"}, {"b"});
  add_node(graph, "Relu", {"x"}, {"a"});
  add_output(graph, "c");
  Result<Module> module = import_proto(model);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  const auto nodes = module->graph_nodes(kMainGraph);
  REQUIRE(nodes.size() == 3);
  CHECK(module->node_path(nodes[0]) == "Relu_2");
  CHECK(module->node_path(nodes[2]) == "Neg_0");
}

TEST_CASE("names are defined once") {
  const auto with = [](auto edit) {
    onnx::ModelProto model = relu_model();
    edit(model.mutable_graph());
    return import_error(model);
  };
  CHECK(has(with([](auto* graph) { add_node(graph, "Abs", {"x"}, {"y"}, "abs"); }),
            "parse: abs: the tensor is defined twice in one graph; the second time as node output; "
            "tensor y"));
  CHECK(has(with([](auto* graph) { add_node(graph, "Abs", {"x"}, {"x"}); }), "twice"));
  CHECK(has(with([](auto* graph) { add_input(graph, "x"); }), "two graph inputs"));
  CHECK(has(with([](auto* graph) {
              add_initializer(graph, "w", TensorProto::FLOAT, {0});
              add_initializer(graph, "w", TensorProto::FLOAT, {0});
            }),
            "tensor w"));
  CHECK(has(with([](auto* graph) { add_output(graph, "y"); }), "two model outputs"));
  CHECK(has(with([](auto* graph) { add_output(graph, "gone"); }), "nothing defines"));
  CHECK(has(with([](auto* graph) { add_input(graph, ""); }), "has no name"));
  CHECK(has(with([](auto* graph) { add_initializer(graph, "", TensorProto::FLOAT, {0}); }),
            "has no name"));
  CHECK(has(with([](auto* graph) { add_node(graph, "Abs", {"gone"}, {"z"}, "abs"); }),
            "parse: abs (ai.onnx::Abs(13)): the node reads a tensor that nothing defines; tensor "
            "gone"));
  CHECK(has(with([](auto* graph) { add_node(graph, "", {"x"}, {"z"}); }), "no operator"));
}

TEST_CASE("a real cycle is listed") {
  onnx::ModelProto model = relu_model();
  onnx::GraphProto* graph = model.mutable_graph();
  add_node(graph, "Add", {"x", "c"}, {"a"}, "n1");
  add_node(graph, "Abs", {"a"}, {"b"}, "n2");
  add_node(graph, "Abs", {"b"}, {"c"}, "n3");
  CHECK(has(import_error(model), "cycle of 3 nodes: n1 -> n2 -> n3 -> n1"));
}

TEST_CASE("element types are checked wherever they are declared") {
  const auto with_type = [](int32_t type) {
    onnx::ModelProto model = relu_model();
    model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
        type);
    return import_error(model);
  };
  CHECK(has(with_type(4711), "element type 4711 is not one ONNX defines; tensor x"));
  CHECK(has(with_type(-1), "element type -1"));
  CHECK(has(with_type(255), "element type 255"));
  CHECK(has(with_type(TensorProto::COMPLEX64), "complex64; tensor x"));
  CHECK(has(with_type(17), "float8e4m3fn"));
  CHECK(has(with_type(TensorProto::UNDEFINED), "no element type; tensor x"));

  onnx::ModelProto model = relu_model();
  add_initializer(model.mutable_graph(), "w", 99, {0});
  CHECK(has(import_error(model), "element type 99 is not one ONNX defines; tensor w"));
  model = relu_model();
  describe(model.mutable_graph()->add_value_info(), "y", 99, {2});
  CHECK(has(import_error(model), "tensor y"));
}

TEST_CASE("missing type information is an error of the input") {
  onnx::ModelProto model = relu_model();
  model.mutable_graph()->mutable_input(0)->clear_type();
  CHECK(has(import_error(model), "no element type; tensor x"));
  model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_map_type();
  CHECK(has(import_error(model), "a map, a sparse tensor, or another nesting"));
  CHECK(import_proto(model).status().code() == DVT_UNSUPPORTED);
  // A tensor without shape is of unknown rank.
  model = relu_model();
  model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  Result<Module> module = import_proto(model);
  REQUIRE(module.ok());
  CHECK(module->shape(module->graph_inputs(kMainGraph)[0]) == nullptr);
}

TEST_CASE("sequences and optionals are declared, of inputs and outputs") {
  onnx::ModelProto model = relu_model();
  const auto tensor = [](onnx::TypeProto* type) {
    type->mutable_tensor_type()->set_elem_type(TensorProto::DOUBLE);
    type->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_param("N");
  };
  const auto type_of = [&] { return model.mutable_graph()->mutable_input(0)->mutable_type(); };
  tensor(type_of()->mutable_sequence_type()->mutable_elem_type());
  auto* output = model.mutable_graph()->mutable_output(0);
  tensor(output->mutable_type()->mutable_optional_type()->mutable_elem_type());
  Result<Module> module = import_proto(model);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  const auto* input = module->container(module->graph_inputs(kMainGraph)[0]);
  REQUIRE(input != nullptr);
  CHECK((input->is_sequence && !input->is_optional));
  CHECK(input->dtype == DVT_F64);
  REQUIRE(input->shape);
  CHECK((*input->shape)[0].is_symbol());
  CHECK(module->dtype(module->graph_inputs(kMainGraph)[0]) == DVT_DTYPE_NONE);
  const auto* result = module->container(output_value(*module));
  REQUIRE(result != nullptr);
  CHECK((!result->is_sequence && result->is_optional));
  // An optional sequence; sequences of sequences and element types that are missing are refused.
  type_of()->mutable_optional_type()->mutable_elem_type()->mutable_sequence_type();
  CHECK(has(import_error(model), "another nesting"));
  tensor(type_of()
             ->mutable_optional_type()
             ->mutable_elem_type()
             ->mutable_sequence_type()
             ->mutable_elem_type());
  CHECK(import_proto(model).ok());
  type_of()->mutable_sequence_type()->mutable_elem_type()->mutable_sequence_type();
  CHECK(has(import_error(model), "another nesting"));
  type_of()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type();
  CHECK(has(import_error(model), "tensor x"));
}

TEST_CASE("dims: -1 is unknown, other negatives are errors") {
  onnx::ModelProto model = relu_model();
  model.mutable_graph()->mutable_input(0)->clear_type();
  describe(model.mutable_graph()->mutable_input(0), "x", 1, {-1, 0, INT64_MAX});
  Result<Module> module = import_proto(model);
  REQUIRE(module.ok());
  const davit::ir::Shape& shape = *module->shape(module->graph_inputs(kMainGraph)[0]);
  CHECK_FALSE(shape[0].is_known());
  CHECK(shape[2].extent() == INT64_MAX);
  describe(model.mutable_graph()->mutable_input(0), "x", 1, {-2});
  CHECK(has(import_error(model), "dimension -2 is negative; tensor x"));
}

TEST_CASE("an input with an initializer is a constant") {
  onnx::ModelProto model = relu_model();
  onnx::GraphProto* graph = model.mutable_graph();
  add_input(graph, "w", TensorProto::INT64, {2});
  TensorProto* w = add_initializer(graph, "w", TensorProto::INT64, {2});
  w->add_int64_data(5);
  w->add_int64_data(-6);
  add_output(graph, "w");
  Result<Module> module = import_proto(model);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  CHECK(module->graph_inputs(kMainGraph).size() == 1);
  CHECK(module->constant(module->graph_outputs(kMainGraph)[1])->to_i64() ==
        std::vector<int64_t>{5, -6});
  describe(graph->mutable_input(1), "w", TensorProto::INT64, {3});
  CHECK(has(import_error(model), "two declarations of a tensor disagree; tensor w"));
  graph->mutable_input(1)->clear_type();
  describe(graph->mutable_input(1), "w", TensorProto::FLOAT, {2});
  CHECK(has(import_error(model), "expected i64; got f32"));
}

TEST_CASE("every form of Constant becomes a constant") {
  const auto constant = [](auto fill) {
    onnx::ModelProto model = relu_model();
    onnx::NodeProto* node = add_node(model.mutable_graph(), "Constant", {}, {"c"}, "const");
    fill(node);
    model.mutable_graph()->clear_output();
    add_output(model.mutable_graph(), "c");
    return model;
  };
  const auto printed = [&](auto fill) {
    Result<Module> module = import_proto(constant(fill));
    if (!module.ok()) return module.status().to_string();
    CHECK(module->graph_nodes(kMainGraph).size() == 1);
    const std::string text = davit::ir::print_text(*module);
    const size_t begin = text.find("const %c: ") + 10;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(printed([](auto* node) {
          add_attribute(node, "value_int", AttributeProto::INT)->set_i(-7);
        }) == "i64[] = {-7}");
  CHECK(printed([](auto* node) {
          add_attribute(node, "value_float", AttributeProto::FLOAT)->set_f(0.5F);
        }) == "f32[] = {0.5}");
  CHECK(printed([](auto* node) {
          add_attribute(node, "value_string", AttributeProto::STRING)->set_s("hi");
        }) == "string[] = {\"hi\"}");
  CHECK(printed([](auto* node) {
          add_attribute(node, "value_ints", AttributeProto::INTS)->add_ints(3);
        }) == "i64[1] = {3}");
  CHECK(printed([](auto* node) { add_attribute(node, "value_floats", AttributeProto::FLOATS); }) ==
        "f32[0] = {}");
  CHECK(printed([](auto* node) {
          add_attribute(node, "value_strings", AttributeProto::STRINGS)->add_strings("s");
        }) == "string[1] = {\"s\"}");
  CHECK(printed([](auto* node) {
          TensorProto* t = add_attribute(node, "value", AttributeProto::TENSOR)->mutable_t();
          t->set_data_type(TensorProto::BOOL);
          t->add_dims(2);
          t->set_raw_data(std::string("\x00\x05", 2));
        }) == "bool[2] = {0, 1}");
  CHECK(has(printed([](auto* node) {
              add_attribute(node, "sparse_value", AttributeProto::SPARSE_TENSOR);
            }),
            "parse: const (ai.onnx::Constant): attribute 'sparse_value': sparse tensors are not"));
  CHECK(has(printed([](auto* node) { add_attribute(node, "other", AttributeProto::INT); }),
            "no form of a Constant"));
  CHECK(has(printed([](auto* node) {
              add_attribute(node, "value_int", AttributeProto::INT)->set_ref_attr_name("r");
            }),
            "attribute 'value_int': it refers to attribute 'r' of a function, but is in none"));
  CHECK(has(printed([](auto* node) { add_attribute(node, "value", AttributeProto::GRAPH); }),
            "no form of a Constant"));
  CHECK(has(printed([](auto*) {}), "one output and one attribute"));
}

TEST_CASE("attributes keep their types") {
  onnx::ModelProto model = relu_model();
  model.add_opset_import()->set_domain("com.x");
  model.mutable_opset_import(1)->set_version(1);
  onnx::NodeProto* node = model.mutable_graph()->mutable_node(0);
  node->set_domain("com.x");
  add_attribute(node, "f", AttributeProto::FLOAT)->set_f(1.5F);
  add_attribute(node, "is", AttributeProto::INTS)->add_ints(4);
  onnx::AttributeProto* untyped = node->add_attribute();
  untyped->set_name("untyped");
  untyped->set_s("old writer");
  Result<Module> module = import_proto(model);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  const NodeId relu = module->graph_nodes(kMainGraph)[0];
  CHECK(std::get<float>(*module->attribute(relu, "f")) == 1.5F);
  CHECK(std::get<std::vector<int64_t>>(*module->attribute(relu, "is")) == std::vector<int64_t>{4});
  CHECK(std::get<std::string>(*module->attribute(relu, "untyped")) == "old writer");
  CHECK(module->attribute(relu, "none") == nullptr);

  add_attribute(node, "f", AttributeProto::FLOAT);
  CHECK(has(import_error(model), "relu (com.x::Relu(1)): attribute 'f': the name is empty or"));
  node->mutable_attribute(3)->set_name("empty");
  node->mutable_attribute(3)->clear_type();
  CHECK(has(import_error(model), "attribute 'empty': it has neither type nor value"));
  node->mutable_attribute(3)->set_type(AttributeProto::TENSORS);
  CHECK(has(import_error(model), "lists of tensors are not supported"));
  // With a type and a value too: only the body of a function may have it.
  node->mutable_attribute(3)->set_type(AttributeProto::INT);
  CHECK(import_error(model) == "ok");
  node->mutable_attribute(3)->set_ref_attr_name("r");
  CHECK(has(import_error(model),
            "attribute 'empty': it refers to attribute 'r' of a function, but is in none"));
}

TEST_CASE("an attribute that a standard operator lacks is refused with those it has") {
  onnx::ModelProto model = relu_model();
  onnx::NodeProto* node = model.mutable_graph()->mutable_node(0);
  node->set_op_type("LeakyRelu");
  add_attribute(node, "alhpa", AttributeProto::FLOAT)->set_f(0.5F);
  CHECK(import_error(model) ==
        "parse: relu (ai.onnx::LeakyRelu(13)): attribute 'alhpa': the operator has no such "
        "attribute; expected one of: alpha");
  node->set_op_type("Relu");
  CHECK(has(import_error(model), "no such attribute; expected no attributes"));
  node->set_domain("ai.onnx");
  CHECK(has(import_error(model), "no such attribute; expected no attributes"));
  node->set_domain("");
  node->mutable_attribute(0)->set_name("__alhpa");  // Free for tools, as in ONNX's checker.
  CHECK(import_error(model) == "ok");
  // Names come and go with versions; operators that the standard lacks are not judged here.
  node->set_op_type("Softmax");
  node->mutable_attribute(0)->set_name("axis");
  node->mutable_attribute(0)->set_type(AttributeProto::INT);
  CHECK(import_error(model) == "ok");
  node->set_op_type("AveragePool");
  node->mutable_attribute(0)->set_name("dilations");
  node->mutable_attribute(0)->set_type(AttributeProto::INTS);
  CHECK(has(import_error(model),
            "expected one of: auto_pad ceil_mode count_include_pad kernel_shape pads strides"));
  model.mutable_opset_import(0)->set_version(19);
  CHECK(import_error(model) == "ok");
  node->set_op_type("NoSuchOperator");
  CHECK(import_error(model) == "ok");
  // Inside a body too.
  const std::string error = import_error(model_with_body([](onnx::GraphProto* body) {
    onnx::NodeProto* inner = add_node(body, "Relu", {"x"}, {"z"}, "inner");
    add_attribute(inner, "slope", AttributeProto::FLOAT);
    add_output(body, "z");
  }));
  CHECK_MESSAGE(has(error, "loop.body/inner (ai.onnx::Relu(13)): attribute 'slope'"), error);
}

TEST_CASE("subgraphs see the names around them and shadow them") {
  Result<Module> module = import_proto(model_with_body([](onnx::GraphProto* body) {
    add_node(body, "Add", {"late", "x"}, {"y"}, "inside");
    add_output(body, "y");
  }));
  CHECK(has(module.status().to_string(), "loop.body/inside"));
  CHECK(has(module.status().to_string(), "tensor late"));

  onnx::ModelProto model = model_with_body([](onnx::GraphProto* body) {
    add_node(body, "Add", {"late", "x"}, {"y"}, "inside");
    add_output(body, "y");
  });
  add_node(model.mutable_graph(), "Abs", {"x"}, {"late"}, "provider");
  module = import_proto(model);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  const auto nodes = module->graph_nodes(kMainGraph);
  CHECK(module->node_path(nodes[0]) == "provider");  // What the body reads comes first.
  REQUIRE(module->graph_count() == 2);
  const auto body = davit::ir::GraphId{1};
  CHECK(module->value_graph(module->graph_outputs(body)[0]) == body);
  CHECK(module->graph_path(body) == "loop.body");
}

TEST_CASE("faults inside a body name the path") {
  CHECK(has(import_error(model_with_body([](onnx::GraphProto* body) {
              add_node(body, "Abs", {"x"}, {"t"});
              add_node(body, "Abs", {"x"}, {"t"});
            })),
            "parse: loop.body/Abs_1: the tensor is defined twice"));
  CHECK(has(import_error(model_with_body([](onnx::GraphProto* body) {
              add_node(body, "Abs", {"b"}, {"a"}, "p");
              add_node(body, "Abs", {"a"}, {"b"}, "q");
            })),
            "loop.body/p -> loop.body/q -> loop.body/p"));
  CHECK(has(import_error(model_with_body([](onnx::GraphProto* body) {
              add_initializer(body, "w", TensorProto::FLOAT, {3});
            })),
            "parse: loop.body: the tensor's data does not have the size"));
  // A body's inputs may leave their type to the operator.
  CHECK(import_error(model_with_body(
            [](onnx::GraphProto* body) { body->add_input()->set_name("i"); })) == "ok");
}

TEST_CASE("a deep nesting is an error of the parser") {
  onnx::ModelProto model = model_with_body([](onnx::GraphProto* body) {
    for (int depth = 0; depth < 40; ++depth) {
      onnx::NodeProto* node = add_node(body, "If", {}, {});
      body = add_attribute(node, "then_branch", AttributeProto::GRAPH)->mutable_g();
    }
  });
  CHECK(has(import_error(model), "nested more than 100 messages deep"));
}

TEST_CASE("sparse initializers are refused by name") {
  onnx::ModelProto model = relu_model();
  model.mutable_graph()->add_sparse_initializer()->mutable_values()->set_name("sparse_w");
  CHECK(has(import_error(model), "sparse initializers are not supported; tensor sparse_w"));
}
