// inline_branches.
#include <doctest/doctest.h>

#include "ir/verify.hpp"
#include "tests/ir/passes/support.hpp"

using davit::testing::check_pass;
using davit::testing::check_untouched;
using davit::testing::parse_graph;

namespace {

std::string choice(const std::string& condition) {
  return "input %x: f32[2] const %a: f32[2] = {7, 7} const %c: bool[] = {" + condition + R"(}
    (%b) = Abs "before" (%x)
    (%y, %z) = If "if" (%c) {
      then_branch = graph {
        const %k: f32[2] = {1, 2}
        (%1 "b") = Add "add" (%b, %k)
        (%e) = Relu (%1)
        output (%1, %x)
      }
      else_branch = graph { (%d) = Neg "neg" (%x) output (%d, %a) }
    }
    (%s) = Add "after" (%y, %z)
    output (%s, %z)
  )";
}

}  // namespace

TEST_CASE("the branch that is taken stands in the place of the If") {
  check_pass({.pass = "inline_branches",
              .before = choice("0"),
              .after = R"(
    input %x: f32[2] const %a: f32[2] = {7, 7}
    (%d) = Neg "if.else_branch/neg" (%x)
    (%z) = Identity "if" (%a)
    (%s) = Add "after" (%d, %z)
    output (%s, %z))",
              .evaluates = false});
}

TEST_CASE("paths of nodes stay; names that are taken get their path") {
  davit::ir::Module module = parse_graph(choice("1"));
  davit::passes::Refusals refusals;
  REQUIRE(*davit::passes::inline_branches(module, refusals) == 1);
  REQUIRE(davit::ir::verify(module).ok());
  const auto add = davit::testing::find_node(module, "if.then_branch/add");
  REQUIRE(add != davit::ir::kNoNode);
  CHECK(module.node_path(add) == "if.then_branch/add");
  CHECK(module.value_name(module.outputs(add)[0]) == "if.then_branch/b");
  CHECK(module.value_name(module.inputs(add)[0]) == "b");
  CHECK(davit::testing::find_value(module, "k") != davit::ir::kNoValue);
  CHECK(module.graph_count() == 3);
  CHECK_FALSE(module.graph_alive(davit::ir::GraphId{1}));
  CHECK_FALSE(module.graph_alive(davit::ir::GraphId{2}));
}

TEST_CASE("nested choices are made one inside the other") {
  check_pass({.pass = "inline_branches",
              .before = R"(
    input %x: f32[2] input %q: bool[] const %yes: bool[1] = {1} const %no: bool[] = {0}
    (%y) = If "outer" (%yes) {
      then_branch = graph {
        (%v) = If "inner" (%no) {
          then_branch = graph { (%a) = Relu "a" (%x) output (%a) }
          else_branch = graph {
            (%o) = If "open" (%q) {
              then_branch = graph { (%b) = Relu "b" (%x) output (%b) }
              else_branch = graph { (%c) = Neg "c" (%x) output (%c) }
            }
            output (%o)
          }
        }
        output (%v)
      }
      else_branch = graph { (%d) = Abs (%x) output (%d) }
    }
    output (%y))",
              .after = R"(
    input %x: f32[2] input %q: bool[]
    (%y) = If "outer.then_branch/inner.else_branch/open" (%q) {
      then_branch = graph { (%b) = Relu "b" (%x) output (%b) }
      else_branch = graph { (%c) = Neg "c" (%x) output (%c) }
    }
    output (%y))",
              .evaluates = false});
}

TEST_CASE("an open choice stays, and so does one with control edges") {
  check_untouched("inline_branches", R"(
    input %x: f32[2] input %c: bool[]
    (%y) = If (%c) {
      then_branch = graph { (%a) = Relu (%x) output (%a) }
      else_branch = graph { (%b) = Neg (%x) output (%b) }
    }
    output (%y))");
  const auto refusals = check_untouched("inline_branches", R"(
    input %x: f32[2] const %c: bool[] = {1}
    #1: (%r) = Relu (%x)
    (%y) = If "if" (%c) {
      then_branch = graph { (%a) = Relu (%x) output (%a) }
      else_branch = graph { (%b) = Neg (%x) output (%b) }
    } after (#1)
    output (%y, %r))");
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].node == "if");
  CHECK(refusals[0].reason == "it has control edges");
}

TEST_CASE("an unsupported operator in a branch that is never taken is no reason to refuse") {
  const std::string body = R"(
    input %x: f32[2] const %c: bool[] = {1}
    (%y) = If "if" (%c) {
      then_branch = graph { (%a) = Relu "r" (%x) output (%a) }
      else_branch = graph { (%b) = com.x::Unknown (%x) output (%b) }
    }
    output (%y))";
  davit::ir::Module module = parse_graph(body);
  const auto report = davit::passes::simplify(module);
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  CHECK(module.graph_nodes(davit::ir::kMainGraph).size() == 1);
  davit::ir::Module strict = parse_graph(body);
  const auto refused = davit::passes::simplify(strict, {.level = davit::passes::Level::kRequired});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().to_string().find("com.x::Unknown") != std::string::npos);
}
