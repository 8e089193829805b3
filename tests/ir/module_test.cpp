#include "ir/module.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ir/verify.hpp"

using namespace davit::ir;
using davit::Status;

namespace {

// x -> first -> a -> second -> b, nodes added in the given order.
struct Chain {
  Module module;
  ValueId x, a, b;
  NodeId first, second;

  Chain() {
    x = module.add_value(kMainGraph, "x");
    module.add_graph_input(kMainGraph, x);
    a = module.add_value(kMainGraph, "a");
    b = module.add_value(kMainGraph, "b");
    second = module.add_node(kMainGraph,
                             {.op = "Relu", .name = "second", .inputs = {a}, .outputs = {b}});
    first = module.add_node(kMainGraph, {.op = "Abs", .inputs = {x}, .outputs = {a}});
    module.set_graph_outputs(kMainGraph, {b});
    module.opset_imports[""] = 13;
  }
};

std::vector<NodeId> order(const Module& module, GraphId graph = kMainGraph) {
  const auto nodes = module.graph_nodes(graph);
  return {nodes.begin(), nodes.end()};
}

}  // namespace

TEST_CASE("dims are extents, symbols or unknown") {
  Module module;
  const SymbolId n = module.intern_symbol("N");
  CHECK(module.intern_symbol("M") != n);
  CHECK(module.intern_symbol("N") == n);
  CHECK(module.symbol_name(n) == "N");
  CHECK(Dim(0).is_known());
  CHECK(Dim::symbol(n).is_symbol());
  CHECK(Dim::symbol(n).symbol_id() == n);
  CHECK(Dim::symbol(n) == Dim::symbol(n));
  CHECK_FALSE(Dim() == Dim());
  CHECK_FALSE(Dim(3) == Dim(4));
  CHECK(static_extents({Dim(2), Dim(0)}) == std::vector<int64_t>{2, 0});
  CHECK_FALSE(static_extents({Dim(2), Dim()}).has_value());
}

TEST_CASE("tensor data widens integers and refuses others") {
  CHECK(make_i64_tensor({2}, {-1, 5}).to_i64() == std::vector<int64_t>{-1, 5});
  const auto bytes_of = [](auto value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  CHECK(make_tensor(DVT_I8, {1}, bytes_of(int8_t{-3})).to_i64() == std::vector<int64_t>{-3});
  CHECK(make_tensor(DVT_U16, {}, bytes_of(uint16_t{65535})).to_i64() ==
        std::vector<int64_t>{65535});
  CHECK_FALSE(make_tensor(DVT_U64, {1}, bytes_of(UINT64_MAX)).to_i64().has_value());
  CHECK_FALSE(make_tensor(DVT_F32, {1}, bytes_of(1.0F)).to_i64().has_value());
}

TEST_CASE("uses follow edits") {
  Chain chain;
  Module& module = chain.module;
  REQUIRE(module.uses(chain.a).size() == 1);
  CHECK(module.uses(chain.a)[0].node == chain.second);
  CHECK(module.producer(chain.a) == chain.first);
  CHECK(module.is_graph_input(chain.x));
  CHECK(module.is_graph_output(chain.b));

  module.set_input(chain.second, 0, chain.x);
  CHECK_FALSE(module.has_uses(chain.a));
  CHECK(module.uses(chain.x).size() == 2);
  CHECK(davit::ir::verify(module).ok());

  module.replace_all_uses(chain.b, chain.a);
  CHECK(module.graph_outputs(kMainGraph)[0] == chain.a);
  CHECK_FALSE(module.is_graph_output(chain.b));
  module.replace_all_uses(chain.x, chain.a);
  CHECK(module.inputs(chain.second)[0] == chain.a);
}

TEST_CASE("sort puts producers first and keeps a sorted order") {
  Chain chain;
  REQUIRE(chain.module.sort().ok());
  CHECK(order(chain.module) == std::vector{chain.first, chain.second});
  // Two nodes that are free of each other keep their order.
  const ValueId c = chain.module.add_value(kMainGraph, "c");
  const NodeId third =
      chain.module.add_node(kMainGraph, {.op = "Neg", .inputs = {chain.x}, .outputs = {c}});
  REQUIRE(chain.module.sort().ok());
  CHECK(order(chain.module) == std::vector{chain.first, chain.second, third});
  chain.module.add_control_edge(third, chain.first);
  REQUIRE(chain.module.sort().ok());
  CHECK(order(chain.module) == std::vector{third, chain.first, chain.second});
}

TEST_CASE("sort counts what a subgraph captures as read by its owner") {
  Module module;
  const ValueId x = module.add_value(kMainGraph, "x");
  module.add_graph_input(kMainGraph, x);
  const ValueId y = module.add_value(kMainGraph, "y");
  const ValueId a = module.add_value(kMainGraph, "a");
  const NodeId loop = module.add_node(kMainGraph, {.op = "Loop", .inputs = {x}, .outputs = {y}});
  const NodeId late = module.add_node(kMainGraph, {.op = "Abs", .inputs = {x}, .outputs = {a}});
  const GraphId outer = module.add_graph("body", kMainGraph, loop);
  module.set_attribute(loop, "body", outer);
  const ValueId t = module.add_value(outer, "t");
  const NodeId inner_if = module.add_node(outer, {.op = "If", .name = "pick", .outputs = {t}});
  module.set_graph_outputs(outer, {t});
  const GraphId inner = module.add_graph("then_branch", outer, inner_if);
  module.set_attribute(inner_if, "then_branch", inner);
  const ValueId z = module.add_value(inner, "z");
  const NodeId deep = module.add_node(inner, {.op = "Neg", .inputs = {a}, .outputs = {z}});
  module.set_graph_outputs(inner, {z});
  module.set_graph_outputs(kMainGraph, {y});

  REQUIRE(davit::ir::verify(module).ok());
  REQUIRE(module.sort().ok());
  CHECK(order(module) == std::vector{late, loop});
  CHECK(module.node_path(deep) == "Loop_0.body/pick.then_branch/Neg_3");
  CHECK(module.graph_path(inner) == "Loop_0.body/pick.then_branch");
  CHECK(module.encloses(kMainGraph, inner));
  CHECK_FALSE(module.encloses(inner, outer));

  SUBCASE("erasing the owner erases everything inside") {
    module.set_graph_outputs(kMainGraph, {a});
    module.erase_node(loop);
    CHECK_FALSE(module.node_alive(deep));
    CHECK_FALSE(module.value_alive(z));
    CHECK_FALSE(module.graph_alive(outer));
    CHECK_FALSE(module.graph_alive(inner));
    CHECK_FALSE(module.has_uses(a));
    CHECK(davit::ir::verify(module).ok());
  }
  SUBCASE("a cycle through a capture is found") {
    module.set_input(late, 0, y);
    const Status status = module.sort();
    REQUIRE_FALSE(status.ok());
    CHECK(status.detail().message.find("cycle of 2") != std::string::npos);
    CHECK(order(module) == std::vector{late, loop});
  }
}

TEST_CASE("the error of a cycle lists its nodes in order") {
  Module module;
  std::vector<ValueId> values;
  for (const char* name : {"a", "b", "c", "tail"}) {
    values.push_back(module.add_value(kMainGraph, name));
  }
  module.add_node(kMainGraph,
                  {.op = "Abs", .name = "tail", .inputs = {values[2]}, .outputs = {values[3]}});
  module.add_node(kMainGraph,
                  {.op = "Abs", .name = "n1", .inputs = {values[2]}, .outputs = {values[0]}});
  module.add_node(kMainGraph,
                  {.op = "Abs", .name = "n2", .inputs = {values[0]}, .outputs = {values[1]}});
  module.add_node(kMainGraph,
                  {.op = "Abs", .name = "n3", .inputs = {values[1]}, .outputs = {values[2]}});
  const Status status = module.sort();
  REQUIRE_FALSE(status.ok());
  CHECK(status.code() == DVT_INVALID_IMAGE);
  CHECK(status.detail().message == "the graph has a cycle of 3 nodes: n3 -> n1 -> n2 -> n3");
}

TEST_CASE("a constant is detached from what defined it") {
  Chain chain;
  Module& module = chain.module;
  module.set_constant(chain.a, make_i64_tensor({2}, {1, 2}));
  CHECK(module.producer(chain.a) == kNoNode);
  CHECK(module.outputs(chain.first)[0] == kNoValue);
  CHECK(module.dtype(chain.a) == DVT_I64);
  CHECK(module.shape(chain.a)->size() == 1);
  CHECK(davit::ir::verify(module).ok());
  module.erase_node(chain.first);
  CHECK(module.value_alive(chain.a));

  module.set_constant(chain.x, make_i64_tensor({}, {7}));
  CHECK(module.graph_inputs(kMainGraph).empty());
  CHECK_FALSE(module.is_graph_input(chain.x));
  module.erase_constant(chain.x);
  CHECK_FALSE(module.value_alive(chain.x));
  CHECK(davit::ir::verify(module).ok());
}

TEST_CASE("a batch of nodes that use each other can be erased") {
  Chain chain;
  chain.module.set_graph_outputs(kMainGraph, {chain.x});
  chain.module.add_control_edge(chain.first, chain.second);
  const std::vector<NodeId> both = {chain.first, chain.second};
  chain.module.erase_nodes(both);
  CHECK(chain.module.graph_nodes(kMainGraph).empty());
  CHECK_FALSE(chain.module.value_alive(chain.a));
  CHECK(davit::ir::verify(chain.module).ok());
}

TEST_CASE("names for people") {
  Chain chain;
  CHECK(chain.module.node_path(chain.second) == "second");
  CHECK(chain.module.node_path(chain.first) == "Abs_1");
  CHECK(chain.module.op_label(chain.first) == "ai.onnx::Abs(13)");
  const davit::ErrorDetail detail =
      chain.module.error_at(chain.first, DVT_UNSUPPORTED, DVT_STAGE_LOWER, "no");
  CHECK(detail.node == "Abs_1");
  CHECK(detail.op == "ai.onnx::Abs(13)");
  CHECK(detail.stage == DVT_STAGE_LOWER);
}

TEST_CASE("verify finds each broken rule") {
  Chain chain;
  Module& module = chain.module;
  REQUIRE(davit::ir::verify(module).ok());
  const auto message = [&] {
    const Status status = davit::ir::verify(module);
    return status.ok() ? std::string("ok") : status.to_string();
  };
  SUBCASE("V2: two producers") {
    module.add_node(kMainGraph, {.op = "Abs", .inputs = {chain.x}, .outputs = {chain.a}});
    CHECK(message().find("names the node its producer") != std::string::npos);
  }
  SUBCASE("V2: no definition") {
    module.add_value(kMainGraph, "orphan");
    CHECK(message().find("0 definitions") != std::string::npos);
  }
  SUBCASE("V2: input and output of a node") {
    module.add_graph_input(kMainGraph, chain.a);
    CHECK(message().find("2 definitions") != std::string::npos);
  }
  SUBCASE("V4: an operand from inside a subgraph") {
    const GraphId body = module.add_graph("body", kMainGraph, chain.first);
    module.set_attribute(chain.first, "body", body);
    const ValueId inner = module.add_constant(body, "inner", make_i64_tensor({}, {1}));
    CHECK(message() == "ok");
    module.set_input(chain.second, 0, inner);
    CHECK(message().find("'inner' is not visible") != std::string::npos);
  }
  SUBCASE("V4: an output from inside a subgraph") {
    const GraphId body = module.add_graph("body", kMainGraph, chain.first);
    module.set_attribute(chain.first, "body", body);
    const ValueId inner = module.add_constant(body, "inner", make_i64_tensor({}, {1}));
    module.set_graph_outputs(kMainGraph, {inner});
    CHECK(message().find("graph output is not defined") != std::string::npos);
  }
  SUBCASE("V5: one name twice") {
    module.add_constant(kMainGraph, "x", make_i64_tensor({}, {1}));
    CHECK(message().find("two values of one graph") != std::string::npos);
  }
  SUBCASE("V5: no name") {
    module.add_constant(kMainGraph, "", make_i64_tensor({}, {1}));
    CHECK(message().find("no name") != std::string::npos);
  }
  SUBCASE("V5: subgraphs have names of their own") {
    const GraphId body = module.add_graph("body", kMainGraph, chain.first);
    module.set_attribute(chain.first, "body", body);
    module.add_constant(body, "x", make_i64_tensor({}, {1}));
    CHECK(message() == "ok");
  }
  SUBCASE("V6: a subgraph without attribute") {
    module.add_graph("body", kMainGraph, chain.first);
    CHECK(message().find("exactly one attribute") != std::string::npos);
  }
  SUBCASE("V6: a subgraph of another node") {
    module.set_attribute(chain.second, "body", module.add_graph("body", kMainGraph, chain.first));
    CHECK(message().find("graph of another node") != std::string::npos);
  }
  SUBCASE("V7: bytes against dims") {
    TensorData data = make_i64_tensor({2}, {1, 2});
    data.dims = {3};
    module.add_constant(kMainGraph, "c", data);
    CHECK(message().find("bytes and dims disagree") != std::string::npos);
  }
  SUBCASE("V7: shape against constant") {
    const ValueId c = module.add_constant(kMainGraph, "c", make_i64_tensor({2}, {1, 2}));
    module.set_shape(c, {Dim(3)});
    CHECK(message().find("differ from the constant's") != std::string::npos);
  }
  SUBCASE("V8: cycle") {
    module.set_input(chain.first, 0, chain.b);
    CHECK(message().find("cycle of 2") != std::string::npos);
  }
  SUBCASE("V8: control edge into a subgraph") {
    const GraphId body = module.add_graph("body", kMainGraph, chain.first);
    module.set_attribute(chain.first, "body", body);
    const NodeId inner = module.add_node(body, {.op = "Abs"});
    module.add_control_edge(chain.second, inner);
    CHECK(message().find("control edge") != std::string::npos);
  }
}

TEST_CASE("a node's output changes hands") {
  Chain chain;
  Module& module = chain.module;
  module.set_output(chain.first, 0, kNoValue);
  CHECK(module.producer(chain.a) == kNoNode);
  CHECK_FALSE(verify(module).ok());
  const NodeId third =
      module.add_node(kMainGraph, {.op = "Neg", .inputs = {chain.x}, .outputs = {kNoValue}});
  module.set_output(third, 0, chain.a);
  CHECK(module.producer(chain.a) == third);
  module.erase_node(chain.first);
  CHECK(verify(module).ok());
  CHECK(module.node_path(third) == "Neg_2");

  module.replace_all_uses(chain.a, chain.x);
  module.set_output(third, 0, kNoValue);
  module.erase_undefined(chain.a);
  CHECK_FALSE(module.value_alive(chain.a));
  CHECK(verify(module).ok());
}

TEST_CASE("a body moves into its parent: paths stay, taken names get their path") {
  Chain chain;
  Module& module = chain.module;
  const ValueId y = module.add_value(kMainGraph, "y");
  const NodeId owner =
      module.add_node(kMainGraph, {.op = "If", .name = "if", .inputs = {chain.b}, .outputs = {y}});
  const GraphId body = module.add_graph("then_branch", kMainGraph, owner);
  module.set_attribute(owner, "then_branch", body);
  const ValueId a = module.add_value(body, "a");
  const ValueId own = module.add_value(body, "own");
  const ValueId inner = module.add_value(body, "inner");
  const NodeId first =
      module.add_node(body, {.op = "Neg", .name = "n", .inputs = {chain.a}, .outputs = {a}});
  const NodeId nest = module.add_node(body, {.op = "Loop", .inputs = {a}, .outputs = {own, inner}});
  const GraphId nested = module.add_graph("body", body, nest);
  module.set_attribute(nest, "body", nested);
  module.set_graph_outputs(nested, {a});
  module.set_graph_outputs(body, {own});
  module.set_graph_outputs(kMainGraph, {y});
  REQUIRE(module.sort().ok());
  REQUIRE_MESSAGE(verify(module).ok(), verify(module).to_string());
  const std::string path = module.node_path(first);
  const std::string nested_path = module.graph_path(nested);

  CHECK(module.inline_graph(body) == std::vector<ValueId>{own});
  CHECK_FALSE(module.graph_alive(body));
  CHECK(module.attribute(owner, "then_branch") == nullptr);
  CHECK(order(module) == std::vector<NodeId>{chain.first, chain.second, first, nest, owner});
  CHECK(module.node_path(first) == path);
  CHECK(module.graph_path(nested) == nested_path);
  CHECK(module.graph_parent(nested) == kMainGraph);
  CHECK(module.value_name(a) == "if.then_branch/a");
  CHECK(module.value_name(own) == "own");
  CHECK(verify(module).ok());
}
