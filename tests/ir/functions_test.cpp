// Calls of a model's own functions, and of those of the standard, become their bodies.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "ir/module.hpp"
#include "ir/onnx/standard_functions.hpp"
#include "ir/passes/passes.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/proto_builder.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// A model that imports domain "local", with x as input and y as output.
onnx::ModelProto calling_model() {
  onnx::ModelProto model = model_proto();
  onnx::OperatorSetIdProto* import = model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  add_input(model.mutable_graph(), "x");
  add_output(model.mutable_graph(), "y");
  return model;
}

onnx::FunctionProto* add_function(onnx::ModelProto& model, const std::string& name,
                                  std::initializer_list<const char*> inputs,
                                  std::initializer_list<const char*> outputs, int64_t opset = 13) {
  onnx::FunctionProto* function = model.add_functions();
  function->set_domain("local");
  function->set_name(name);
  for (const char* input : inputs) function->add_input(input);
  for (const char* output : outputs) function->add_output(output);
  function->add_opset_import()->set_version(opset);
  onnx::OperatorSetIdProto* import = function->add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  return function;
}

onnx::NodeProto* add_body_node(onnx::FunctionProto* function, const std::string& op,
                               std::initializer_list<const char*> inputs,
                               std::initializer_list<const char*> outputs,
                               const std::string& name = {}) {
  onnx::NodeProto* node = function->add_node();
  node->set_op_type(op);
  node->set_name(name);
  for (const char* input : inputs) node->add_input(input);
  for (const char* output : outputs) node->add_output(output);
  return node;
}

onnx::NodeProto* add_call(onnx::GraphProto* graph, const std::string& function,
                          std::initializer_list<const char*> inputs,
                          std::initializer_list<const char*> outputs,
                          const std::string& name = {}) {
  onnx::NodeProto* node = add_node(graph, function, inputs, outputs, name);
  node->set_domain("local");
  return node;
}

void refer(onnx::NodeProto* node, const std::string& name, const std::string& to,
           onnx::AttributeProto::AttributeType type) {
  add_attribute(node, name, type)->set_ref_attr_name(to);
}

// The graph as text, without its first lines.
std::string graph_text(const onnx::ModelProto& model) {
  const Result<ir::Module> module = import_proto(model);
  if (!module.ok()) return module.status().to_string();
  const std::string text = ir::print_text(*module);
  return text.substr(text.find("graph \"g\""));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Twice(a) = a + a.
onnx::FunctionProto* add_twice(onnx::ModelProto& model, int64_t opset = 13) {
  onnx::FunctionProto* function = add_function(model, "Twice", {"a"}, {"b"}, opset);
  add_body_node(function, "Identity", {"a"}, {"t"}, "copy");
  add_body_node(function, "Add", {"a", "t"}, {"b"});
  return function;
}

}  // namespace

TEST_CASE("a call becomes its body, with names and opsets kept") {
  onnx::ModelProto model = calling_model();
  add_twice(model, 14);
  add_call(model.mutable_graph(), "Twice", {"x"}, {"m"}, "first");
  add_call(model.mutable_graph(), "Twice", {"m"}, {"y"});
  CHECK(graph_text(model) ==
        "graph \"g\" {\n"
        "  input %x: f32[2]\n"
        "  (%first/t) = Identity opset 14 \"first/copy\" (%x)\n"
        "  (%m) = Add opset 14 \"first/Add_1\" (%x, %first/t)\n"
        "  (%Twice_1/t) = Identity opset 14 \"Twice_1/copy\" (%m)\n"
        "  (%y) = Add opset 14 \"Twice_1/Add_1\" (%m, %Twice_1/t)\n"
        "  output (%y)\n"
        "}\n");
}

TEST_CASE("functions may call each other, and their bodies may come in any order") {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* outer = add_function(model, "Outer", {"a"}, {"b"});
  add_body_node(outer, "Neg", {"t"}, {"b"}, "neg");
  add_body_node(outer, "Twice", {"a"}, {"t"}, "inner")->set_domain("local");
  add_twice(model);
  add_call(model.mutable_graph(), "Outer", {"x"}, {"y"}, "call");
  const std::string text = graph_text(model);
  CHECK(has(text, "(%call/inner/t) = Identity opset 13 \"call/inner/copy\" (%x)"));
  CHECK(has(text, "(%call/t) = Add opset 13 \"call/inner/Add_1\" (%x, %call/inner/t)"));
  CHECK(has(text, "(%y) = Neg opset 13 \"call/neg\" (%call/t)"));
}

TEST_CASE("attributes are bound by the call, by defaults, or left out") {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* inner = add_function(model, "Inner", {"a"}, {"b"});
  inner->add_attribute("slope");
  inner->add_attribute("unused");
  onnx::NodeProto* elu = add_body_node(inner, "Elu", {"a"}, {"t"});
  refer(elu, "alpha", "slope", onnx::AttributeProto::FLOAT);
  onnx::NodeProto* constant = add_body_node(inner, "Constant", {}, {"c"});
  refer(constant, "value_float", "slope", onnx::AttributeProto::FLOAT);
  onnx::NodeProto* relu = add_body_node(inner, "LeakyRelu", {"t"}, {"l"});
  refer(relu, "alpha", "unused", onnx::AttributeProto::FLOAT);
  add_body_node(inner, "Add", {"l", "c"}, {"b"});
  onnx::FunctionProto* outer = add_function(model, "Outer", {"a"}, {"b"});
  outer->add_attribute("s");
  onnx::NodeProto* inner_call = add_body_node(outer, "Inner", {"a"}, {"b"}, "in");
  inner_call->set_domain("local");
  refer(inner_call, "slope", "s", onnx::AttributeProto::FLOAT);
  onnx::NodeProto* call = add_call(model.mutable_graph(), "Outer", {"x"}, {"y"}, "out");
  add_attribute(call, "s", onnx::AttributeProto::FLOAT)->set_f(0.25F);
  const std::string text = graph_text(model);
  CHECK(has(text, "const %out/in/c: f32[] = {0.25}"));
  CHECK(has(text, "Elu opset 13 \"out/in/Elu_0\" (%x) {\n    alpha = float 0.25"));
  CHECK(has(text, "LeakyRelu opset 13 \"out/in/LeakyRelu_2\" (%out/in/t)\n"));

  // Not given, and needed for a constant.
  call->clear_attribute();
  CHECK(has(graph_text(model), "out/in/Constant_1"));
  CHECK(
      has(graph_text(model), "attribute 'value_float': the call does not have what it refers to"));
  add_attribute(call, "typo", onnx::AttributeProto::FLOAT)->set_f(1);
  CHECK(has(graph_text(model), "out: function local::Outer has no attribute 'typo'"));
}

TEST_CASE("defaults and overloads, which older releases of the ONNX library do not know") {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* function = add_function(model, "Bend", {"a"}, {"b"});
  onnx::NodeProto* elu = add_body_node(function, "Elu", {"a"}, {"b"});
  refer(elu, "alpha", "slope", onnx::AttributeProto::FLOAT);
  onnx::AttributeProto slope;
  slope.set_name("slope");
  slope.set_type(onnx::AttributeProto::FLOAT);
  slope.set_f(3);
  std::string bytes = model.SerializeAsString();
  // FunctionProto.attribute_proto is field 11: appended to the function, which the parser merges.
  const auto with_field = [](const std::string& proto, int number, const std::string& payload) {
    return proto + char(uint8_t(number << 3 | 2)) + char(uint8_t(payload.size())) + payload;
  };
  REQUIRE(function->ParseFromString(
      with_field(function->SerializeAsString(), 11, slope.SerializeAsString())));
  onnx::NodeProto* call = add_call(model.mutable_graph(), "Bend", {"x"}, {"y"}, "call");
  CHECK(has(graph_text(model), "alpha = float 3"));
  add_attribute(call, "slope", onnx::AttributeProto::FLOAT)->set_f(5);
  CHECK(has(graph_text(model), "alpha = float 5"));

  // A second function that differs in its overload (field 13) only; the node asks for it (field 8).
  onnx::FunctionProto* other = add_function(model, "Bend", {"a"}, {"b"});
  add_body_node(other, "Abs", {"a"}, {"b"});
  CHECK(has(import_error(model), "defines function local::Bend twice"));
  REQUIRE(other->ParseFromString(with_field(other->SerializeAsString(), 13, "second")));
  CHECK(has(graph_text(model), "alpha = float 5"));
  call->clear_attribute();
  REQUIRE(call->ParseFromString(with_field(call->SerializeAsString(), 8, "second")));
  CHECK(has(graph_text(model), "(%y) = Abs"));
  REQUIRE(call->ParseFromString(with_field(call->SerializeAsString(), 8, "third")));
  CHECK(import_error(model) == "ok");  // An operator of domain "local" that we do not know.
}

TEST_CASE("optional operands, outputs that are inputs or constants, nested graphs") {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* function =
      add_function(model, "F", {"a", "low"}, {"same", "clipped", "five", "spare"});
  add_body_node(function, "Clip", {"a", "low"}, {"clipped"});
  onnx::NodeProto* five = add_body_node(function, "Constant", {}, {"five"});
  add_attribute(five, "value_int", onnx::AttributeProto::INT)->set_i(5);
  add_body_node(function, "Neg", {"a"}, {"spare"});
  function->set_output(0, "a");
  add_call(model.mutable_graph(), "F", {"x"}, {"y", "c", "k"}, "call");
  add_output(model.mutable_graph(), "c");
  add_output(model.mutable_graph(), "k");
  const std::string text = graph_text(model);
  CHECK(has(text, "(%y) = Identity opset 13 \"call/a\" (%x)"));
  CHECK(has(text, "(%c) = Clip opset 13 \"call/Clip_0\" (%x, _)"));
  CHECK(has(text, "const %k: i64[] = {5}"));
  CHECK(has(text, "(%call/spare) = Neg"));
  CHECK(has(text, "output (%y, %c, %k)"));

  // A body with a branch that captures what the body has, not what the caller has.
  onnx::ModelProto branching = calling_model();
  onnx::FunctionProto* choose = add_function(branching, "Choose", {"p"}, {"q"});
  add_body_node(choose, "Not", {"p"}, {"condition"});
  onnx::NodeProto* branch = add_body_node(choose, "If", {"condition"}, {"q"}, "if");
  for (const char* side : {"then_branch", "else_branch"}) {
    onnx::GraphProto* graph = add_attribute(branch, side, onnx::AttributeProto::GRAPH)->mutable_g();
    graph->set_name(side);
    add_node(graph, "Identity", {"p"}, {"r"}, "id");
    add_output(graph, "r");
  }
  add_call(branching.mutable_graph(), "Choose", {"x"}, {"y"}, "call");
  const std::string branch_text = graph_text(branching);
  CHECK(has(branch_text, "Identity opset 13 \"id\" (%x)"));
  branch->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(0, "x");
  CHECK(has(graph_text(branching), "call/if.then_branch/id"));
  CHECK(has(graph_text(branching), "reads a tensor that nothing defines; tensor x"));
}

TEST_CASE("functions: what is refused") {
  onnx::ModelProto model = calling_model();
  onnx::FunctionProto* function = add_twice(model);
  onnx::NodeProto* call = add_call(model.mutable_graph(), "Twice", {"x"}, {"y"}, "call");
  REQUIRE(import_error(model) == "ok");
  const auto changed = [&](auto&& change) {
    onnx::ModelProto other = model;
    change(other);
    return import_error(other);
  };
  const auto first = [](onnx::ModelProto& m) { return m.mutable_functions(0); };
  const auto node = [](onnx::ModelProto& m) { return m.mutable_graph()->mutable_node(0); };
  CHECK(
      has(changed([&](auto& m) { node(m)->add_input("x"); }),
          "call: the call has more inputs than function local::Twice; expected at most 1; got 2"));
  CHECK(has(changed([&](auto& m) { node(m)->add_output("z"); }), "more outputs than"));
  CHECK(has(changed([&](auto& m) { node(m)->set_input(0, "nothing"); }), "nothing defines"));
  CHECK(has(changed([&](auto& m) { first(m)->set_output(0, "nothing"); }),
            "does not define its output; tensor nothing"));
  CHECK(has(changed([&](auto& m) { first(m)->add_input("a"); }), "two inputs of one name"));
  CHECK(has(changed([&](auto& m) { first(m)->mutable_node(0)->set_input(0, "x"); }),
            "call/copy (ai.onnx::Identity(13)): the node reads"));  // The caller's names are not
                                                                    // the body's.
  CHECK(has(changed([&](auto& m) { first(m)->mutable_node(0)->set_output(0, "b"); }),
            "defined twice"));
  CHECK(has(changed([&](auto& m) { first(m)->mutable_opset_import(0)->set_version(99); }),
            "imports opset 99"));
  CHECK(has(changed([&](auto& m) {
              first(m)->mutable_node(1)->set_op_type("Twice");
              first(m)->mutable_node(1)->set_domain("local");
            }),
            "calls itself"));
  CHECK(has(changed([&](auto& m) {
              add_attribute(node(m), "g", onnx::AttributeProto::GRAPH)->mutable_g()->set_name("g");
              first(m)->add_attribute("g");
            }),
            "is a graph"));
  CHECK(has(changed([&](auto& m) {
              add_body_node(first(m), "Foo", {"a"}, {"f"}, "foo")->set_domain("elsewhere");
            }),
            "does not import: call/foo (elsewhere::Foo(0))"));
  CHECK(function->node_size() == 2);
  CHECK(call->input_size() == 1);
}

TEST_CASE("functions: chains and floods of calls end in an error") {
  // Each level calls the next one twice: 2^40 bodies.
  onnx::ModelProto flood = calling_model();
  onnx::ModelProto chain = calling_model();
  for (int level = 0; level < 40; ++level) {
    const std::string name = "F" + std::to_string(level);
    const std::string next = "F" + std::to_string(level + 1);
    for (onnx::ModelProto* model : {&flood, &chain}) {
      onnx::FunctionProto* function = add_function(*model, name, {"a"}, {"b"});
      const bool twice = model == &flood && level < 30;
      const bool last = level == 39;
      onnx::NodeProto* first = add_body_node(function, last ? "Neg" : next, {"a"}, {"b"});
      onnx::NodeProto* second =
          add_body_node(function, last || !twice ? "Neg" : next, {"a"}, {"c"});
      if (!last) first->set_domain("local");
      if (!last && twice) second->set_domain("local");
    }
  }
  add_call(flood.mutable_graph(), "F10", {"x"}, {"y"}, "call");
  add_call(chain.mutable_graph(), "F0", {"x"}, {"y"}, "call");
  CHECK(has(import_error(chain), "nested more than 32 deep"));
  CHECK(has(import_error(flood), "the bodies of all calls of functions together"));
  onnx::ModelProto fine = calling_model();
  fine = chain;
  fine.mutable_graph()->mutable_node(0)->set_op_type("F20");
  CHECK(import_error(fine) == "ok");
}

namespace {

// The module after inference and one expansion of all operators named.
std::string expanded(const std::string& body, std::initializer_list<const char*> operators,
                     uint32_t replaced, int opset = 13) {
  auto module = ir::parse_text("davit-ir 1\nsource \"\" \"\"\nopset \"\" " + std::to_string(opset) +
                               "\ngraph \"g\" {\n" + body + "\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  REQUIRE(passes::infer_shapes(*module).ok());
  const auto count =
      onnx_import::expand_standard_functions(*module, [&](const ir::Module& m, ir::NodeId node) {
        return std::find(operators.begin(), operators.end(), m.op(node)) != operators.end();
      });
  if (!count.ok()) return count.status().to_string();
  CHECK(*count == replaced);
  const Status verified = ir::verify(*module);
  CHECK_MESSAGE(verified.ok(), verified.to_string());
  return ir::print_text(*module);
}

}  // namespace

TEST_CASE("operators that the standard defines by a body become that body") {
  const std::string loss =
      "input %x: f32[N, 5]\ninput %t: i64[N]\n"
      "(%e) = Exp (%x)\n"  // Its type is known by inference only.
      "(%y: f32[]) = NegativeLogLikelihoodLoss \"loss\" (%e, %t) {reduction = string \"sum\"}\n"
      "output (%y)";
  // The body keeps its own opset, and the output its name, type and place.
  const std::string text = expanded(loss, {"NegativeLogLikelihoodLoss"}, 1, 18);
  CHECK(has(text, "GatherElements opset 13 \"loss/"));
  CHECK(has(text, "const %loss/axes: i64[1] = {1}"));
  CHECK(has(text, "(%y: f32[]) = ReduceSum opset 13 \"loss/"));
  CHECK(has(text, "output (%y)"));
  CHECK(!has(text, "NegativeLogLikelihoodLoss"));
  // A body of functions: the second level is expanded by the next call.
  const std::string entropy = expanded(
      "input %x: f32[N, 5]\ninput %t: i64[N]\n"
      "(%y, %p) = SoftmaxCrossEntropyLoss \"loss\" (%x, %t) {ignore_index = int 3}\n"
      "output (%y, %p)",
      {"SoftmaxCrossEntropyLoss"}, 1);
  CHECK(has(entropy, "(%y) = NegativeLogLikelihoodLoss opset 13 \"loss/"));
  CHECK(has(entropy, "ignore_index = int 3"));
  CHECK(has(entropy, "reduction = string \"mean\""));  // The schema's default.
  CHECK(has(entropy, "(%p) = Identity opset 13 \"loss/"));
}

TEST_CASE("operators without a usable body stay") {
  const std::string unknown =
      "input %x\ninput %t: i64[4]\n"
      "(%y) = NegativeLogLikelihoodLoss \"loss\" (%x, %t)\n(%z) = Foo \"\" (%x)\n"
      "(%r) = Relu \"\" (%x)\noutput (%y, %z, %r)";
  const std::string text = expanded(unknown, {"NegativeLogLikelihoodLoss", "Foo", "Relu"}, 0);
  CHECK(has(text, "NegativeLogLikelihoodLoss \"loss\""));
  CHECK(has(text, "Foo"));
  CHECK(has(text, "Relu"));
  // More operands than the operator has.
  CHECK(has(expanded("input %x: f32[2, 3]\ninput %t: i64[2]\n"
                     "(%y) = NegativeLogLikelihoodLoss \"n\" (%x, %t, %x, %x)\noutput (%y)",
                     {"NegativeLogLikelihoodLoss"}, 1),
            "n: the call has more inputs than function"));
}
