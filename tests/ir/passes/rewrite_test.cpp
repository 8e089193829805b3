// Rewriter, and what passes ask about nodes.
#include "ir/passes/rewrite.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "ir/verify.hpp"
#include "tests/ir/passes/support.hpp"

using namespace davit::ir;
using davit::passes::Rewriter;
using davit::testing::find_node;
using davit::testing::find_value;
using davit::testing::parse_graph;
namespace passes = davit::passes;

TEST_CASE("nodes take over outputs, and what nobody needs any more goes with its reader") {
  Module module = parse_graph(R"(
    input %x: f32[2]
    (%a) = Relu "a" (%x) (%b) = Neg "b" (%a) (%c) = Abs "c" (%b) (%d) = Abs "d" (%x)
    (%e) = Add "e" (%c, %d) (%f) = Neg "f" (%d)
    output (%e, %f))");
  Rewriter rewriter(module);
  const NodeId sum = find_node(module, "e");
  rewriter.add_node(kMainGraph, {.op = "Sin",
                                 .name = "sin",
                                 .inputs = {find_value(module, "x")},
                                 .outputs = {find_value(module, "e")}});
  rewriter.strike_unneeded(sum);
  CHECK(rewriter.is_struck(sum));
  CHECK(rewriter.is_struck(find_node(module, "a")));
  CHECK_FALSE(rewriter.is_struck(find_node(module, "d")));
  REQUIRE(rewriter.finish().ok());
  REQUIRE(verify(module).ok());
  CHECK(module.graph_nodes(kMainGraph).size() == 3);
  CHECK(find_value(module, "c") == kNoValue);
  CHECK(module.op(module.producer(find_value(module, "e"))) == "Sin");
}

TEST_CASE("names of new values are new") {
  Module module = parse_graph("input %x: f32[2] (%x.1) = Relu (%x) output (%x.1)");
  Rewriter rewriter(module);
  const ValueId one = rewriter.add_value_like(find_value(module, "x"));
  const ValueId two = rewriter.add_constant(kMainGraph, "k", make_i64_tensor({1}, {4}));
  const ValueId three = rewriter.add_constant(kMainGraph, "k", make_i64_tensor({1}, {5}));
  CHECK(module.value_name(one) == "x.2");
  CHECK(module.dtype(one) == DVT_F32);
  CHECK(module.value_name(two) == "k");
  CHECK(module.value_name(three) == "k.1");
}

TEST_CASE("uniform constants are equal bit for bit") {
  const Module module = parse_graph(R"(
    const %ones: f32[2, 2] = {1, 1, 1, 1} const %mixed: f32[2] = {0, -0} const %none: f32[0] = {}
    const %half: f16[2] = hex "00380038" const %flag: bool[1] = {1} const %long: i64[] = {-5}
    output (%ones, %mixed, %none, %half, %flag, %long))");
  const auto value = [&](const char* name) {
    return passes::uniform_constant(module, find_value(module, name));
  };
  CHECK(value("ones") == 1.0);
  CHECK_FALSE(value("mixed"));
  CHECK_FALSE(value("none"));
  CHECK(value("half") == 0.5);
  CHECK(value("flag") == 1.0);
  CHECK(value("long") == -5.0);
  CHECK_FALSE(passes::uniform_constant(module, kNoValue));
}

TEST_CASE("a value has one reader, or not") {
  const Module module = parse_graph(R"(
    input %x: f32[2]
    (%a) = Relu "a" (%x) (%b) = Mul "b" (%a, %a) (%c) = Neg "c" (%b) (%d) = Neg "d" (%b)
    output (%c, %d))");
  const auto reader = [&](const char* name) {
    return passes::only_reader(module, find_value(module, name));
  };
  CHECK(reader("a") == find_node(module, "b"));
  CHECK(reader("b") == kNoNode);
  CHECK(reader("c") == kNoNode);
}

TEST_CASE("reals are rounded once") {
  const TensorData data = passes::make_real_tensor(DVT_F16, {2}, {1.0 / 3, 65536.0});
  CHECK(passes::constant_reals(data) ==
        std::vector<double>{0.333251953125, std::numeric_limits<double>::infinity()});
}
