// Patterns: what they match, what they refuse, and what they become.
#include "ir/passes/pattern.hpp"

#include <doctest/doctest.h>

#include "ir/verify.hpp"
#include "tests/ir/passes/support.hpp"

using namespace davit::ir;
using davit::passes::Match;
using davit::passes::Pattern;
using davit::passes::Refusals;
using davit::passes::Rewriter;
using davit::testing::find_node;
using davit::testing::find_value;
using davit::testing::graph_text;
using davit::testing::parse_graph;
namespace passes = davit::passes;

namespace {

// The nodes of `body` at which the pattern matches, by name; then the reasons of refusals.
std::string matches(const Pattern& pattern, const std::string& body) {
  Module module = parse_graph(body);
  const Rewriter rewriter(module);
  std::string found;
  Refusals refusals;
  for (const NodeId node : module.graph_nodes(kMainGraph)) {
    if (pattern.match(rewriter, node, "test", refusals)) found += module.local_name(node) + " ";
  }
  for (const passes::Refusal& refusal : refusals) {
    found += "[" + refusal.pass + " " + refusal.node + ": " + refusal.reason + "]";
  }
  return found;
}

std::string parse_error(const std::string& body) {
  const auto pattern = Pattern::parse(body);
  return pattern.ok() ? "ok" : pattern.status().to_string();
}

constexpr const char* kScaledSum = R"(
  input %x input %y
  const %two: f32[] = {2}
  (%m) = Mul "scale" (%x, %two)
  (%s) = Add "sum" (%m, %y)
  output (%s)
)";

}  // namespace

TEST_CASE("operands of commutative operators match in any order, those of others do not") {
  const Pattern sum = Pattern::of(kScaledSum);
  const std::string head = "input %a: f32[2] input %b: f32[2] const %k: f32[] = {2} ";
  CHECK(matches(sum, head + "(%m) = Mul (%a, %k) (%y) = Add \"y\" (%m, %b) output (%y)") == "y ");
  CHECK(matches(sum, head + "(%m) = Mul (%k, %a) (%y) = Add \"y\" (%b, %m) output (%y)") == "y ");
  CHECK(matches(sum, head + "(%m) = Mul (%k, %a) (%y) = Sub \"y\" (%b, %m) output (%y)") == "");
  const Pattern difference =
      Pattern::of("input %x input %y (%n) = Neg (%x) (%d) = Sub (%n, %y) output (%d)");
  CHECK(matches(difference, head + "(%n) = Neg (%a) (%y) = Sub \"y\" (%n, %b) output (%y)") ==
        "y ");
  CHECK(matches(difference, head + "(%n) = Neg (%a) (%y) = Sub \"y\" (%b, %n) output (%y)") == "");
}

TEST_CASE("when the first order leads nowhere the second is tried") {
  // Both operands are products; only one holds the constant.
  CHECK(matches(Pattern::of(kScaledSum), R"(
    input %a: f32[2] input %b: f32[2] const %k: f32[] = {2}
    (%p) = Mul (%a, %b) (%q) = Mul (%a, %k)
    (%y) = Add "y" (%p, %q)
    output (%y))") == "y ");
}

TEST_CASE("one name is one value") {
  const Pattern square = Pattern::of("input %x (%s) = Mul (%x, %x) output (%s)");
  CHECK(matches(square, "input %a: f32[2] (%y) = Mul \"y\" (%a, %a) output (%y)") == "y ");
  CHECK(matches(square, "input %a: f32[2] input %b: f32[2] (%y) = Mul (%a, %b) output (%y)") == "");
}

TEST_CASE("constants match by value, whatever their dtype and shape") {
  const Pattern third =
      Pattern::of("input %x const %k: f32[] = {0.33333334} (%m) = Mul (%x, %k) output (%m)");
  const auto with = [&](const std::string& type, const std::string& constant) {
    return matches(third, "input %a: " + type + "[2] const %k: " + constant +
                              " (%y) = Mul \"y\" (%a, %k) output (%y)");
  };
  CHECK(with("f32", "f32[] = {0.33333334}") == "y ");
  CHECK(with("f32", "f32[2] = {0.33333334, 0.33333334}") == "y ");
  CHECK(with("f32", "f32[2] = {0.33333334, 0.34}") == "");
  CHECK(with("f32", "f32[] = {0.3334}") == "");
  CHECK(with("f64", "f64[] = {0.3333333333333333}") == "y ");
  CHECK(with("f16", "f16[] = hex \"5535\"") == "y ");
  CHECK(with("f16", "f16[] = hex \"6535\"") == "");
}

TEST_CASE("types of inputs are conditions") {
  const Pattern row = Pattern::of("input %x: f32[1, ?] (%y) = Relu (%x) output (%y)");
  const auto with = [&](const std::string& type) {
    return matches(row, "input %a: " + type + " (%y) = Relu \"y\" (%a) output (%y)");
  };
  CHECK(with("f32[1, 7]") == "y ");
  CHECK(with("f32[1, N]") == "y ");
  CHECK(with("f32[2, 7]") == "");
  CHECK(with("f32[N, 7]") == "");
  CHECK(with("f32[1, 7, 1]") == "");
  CHECK(with("f64[1, 7]") == "");
}

TEST_CASE("attributes, domains and absent operands are conditions") {
  const Pattern leaky =
      Pattern::of("input %x (%y) = LeakyRelu (%x) { alpha = float 0.5 } output (%y)");
  CHECK(matches(leaky,
                "input %a: f32[2] (%y) = LeakyRelu \"y\" (%a) { alpha = float 0.5 } "
                "output (%y)") == "y ");
  CHECK(matches(leaky,
                "input %a: f32[2] (%y) = LeakyRelu (%a) { alpha = float 0.25 } "
                "output (%y)") == "");
  CHECK(matches(leaky, "input %a: f32[2] (%y) = LeakyRelu (%a) output (%y)") == "");
  const Pattern relu = Pattern::of("input %x (%y) = Relu (%x) output (%y)");
  CHECK(matches(relu, "input %a: f32[2] (%y) = com.x::Relu (%a) output (%y)") == "");
  const Pattern upper = Pattern::of("input %x input %m (%y) = Clip (%x, _, %m) output (%y)");
  const std::string clip = "input %a: f32[2] const %k: f32[] = {1} (%y) = Clip \"y\" ";
  CHECK(matches(upper, clip + "(%a, _, %k) output (%y)") == "y ");
  CHECK(matches(upper, clip + "(%a, %k, %k) output (%y)") == "");
  CHECK(matches(upper, clip + "(%a) output (%y)") == "");
}

TEST_CASE("a node may be one of several operators") {
  const Pattern either = Pattern::of(
      "input %x (%r) = Relu (%x) { pattern.or = strings [\"Sigmoid\", \"Tanh\"] } "
      "(%y) = Neg (%r) output (%y)");
  for (const char* op : {"Relu", "Sigmoid", "Tanh"}) {
    CHECK(matches(either, std::string("input %a: f32[2] (%b) = ") + op +
                              " (%a) (%y) = Neg \"y\" (%b) output (%y)") == "y ");
  }
  CHECK(matches(either, "input %a: f32[2] (%b) = Abs (%a) (%y) = Neg (%b) output (%y)") == "");
}

TEST_CASE("of several operators, the one that is there says whether operands may change places") {
  const Pattern either = Pattern::of(
      "input %x const %k: f32[] = {2} "
      "(%y) = Mul (%x, %k) { pattern.or = strings [\"Div\"] } output (%y)");
  const std::string head = "input %a: f32[2] const %k: f32[] = {2} (%y) = ";
  CHECK(matches(either, head + "Mul \"y\" (%k, %a) output (%y)") == "y ");
  CHECK(matches(either, head + "Div \"y\" (%a, %k) output (%y)") == "y ");
  CHECK(matches(either, head + "Div \"y\" (%k, %a) output (%y)") == "");
}

TEST_CASE("optional nodes may be missing") {
  const Pattern pattern = Pattern::of(R"(
    input %x input %bias
    (%p) = Relu "first" (%x)
    (%b) = Add "bias" (%p, %bias) { pattern.optional = int 1 }
    (%y) = Neg "last" (%b)
    output (%y))");
  for (const bool there : {true, false}) {
    Module module = parse_graph(
        std::string("input %a: f32[2] input %k: f32[2] (%r) = Relu \"r\" (%a) ") +
        (there ? "(%s) = Add \"s\" (%k, %r) (%y) = Neg \"n\" (%s)" : "(%y) = Neg \"n\" (%r)") +
        " output (%y)");
    const Rewriter rewriter(module);
    Refusals refusals;
    const auto match = pattern.match(rewriter, find_node(module, "n"), "test", refusals);
    REQUIRE(match);
    CHECK(match->node("bias") == (there ? find_node(module, "s") : kNoNode));
    CHECK(match->value("bias") == (there ? find_value(module, "k") : kNoValue));
    CHECK(match->value("x") == find_value(module, "a"));
    CHECK(match->nodes().size() == (there ? 3 : 2));
    CHECK(match->anchor() == find_node(module, "n"));
  }
}

TEST_CASE("interior values must not be read from elsewhere; the reason says which and by whom") {
  const Pattern sum = Pattern::of(kScaledSum);
  const std::string head =
      "input %a: f32[2] input %b: f32[2] const %k: f32[] = {2} "
      "(%m) = Mul \"m\" (%a, %k) (%y) = Add \"y\" (%m, %b) ";
  CHECK(matches(sum, head + "output (%m, %y)") == "[test y: interior value 'm' is a graph output]");
  CHECK(matches(sum, head + "(%z) = Neg \"z\" (%m) output (%y, %z)") ==
        "[test y: interior value 'm' is also read by 'z']");
  CHECK(matches(sum, head + R"((%z) = com.x::Choose "if" (%a) {
          yes = graph { (%c) = Neg "inner" (%m) output (%c) } } output (%y, %z))") ==
        "[test y: interior value 'm' is also read by 'if.yes/inner']");
  // Captured values and the result are read as one likes.
  CHECK(matches(sum, head + "(%z) = Neg (%a) (%w) = Neg (%y) output (%y, %z, %w)") == "y ");
}

TEST_CASE("nodes with control edges are refused, and nodes of other graphs do not match") {
  const Pattern sum = Pattern::of(kScaledSum);
  CHECK(matches(sum,
                "input %a: f32[2] input %b: f32[2] const %k: f32[] = {2} "
                "#1: (%m) = Mul \"m\" (%a, %k) (%y) = Add \"y\" (%m, %b) "
                "(%z) = Neg (%b) after (#1) output (%y, %z)") ==
        "[test y: node 'm' has control edges]");
  Module module = parse_graph(R"(
    input %a: f32[2] const %k: f32[] = {2}
    (%m) = Mul "m" (%a, %k)
    (%z) = com.x::Choose "if" (%a) { yes = graph { (%y) = Add "y" (%m, %a) output (%y) } }
    output (%z))");
  const Rewriter rewriter(module);
  Refusals refusals;
  CHECK_FALSE(sum.match(rewriter, find_node(module, "y"), "test", refusals));
  CHECK(refusals.empty());
}

TEST_CASE("conditions have reasons") {
  Pattern sum = Pattern::of(kScaledSum);
  sum.where("y", passes::is_constant).where([](const Module& module, const Match& match) {
    return module.value_name(match.value("x")) == "b" ? std::string("b is not to be scaled") : "";
  });
  const std::string head = "input %a: f32[2] input %b: f32[2] const %k: f32[] = {2} ";
  CHECK(matches(sum, head + "(%m) = Mul (%a, %k) (%y) = Add \"y\" (%m, %b) output (%y)") ==
        "[test y: 'b' is not a constant]");
  CHECK(matches(sum, head + "(%m) = Mul (%b, %k) (%y) = Add \"y\" (%m, %k) output (%y)") ==
        "[test y: b is not to be scaled]");
  CHECK(matches(sum, head + "(%m) = Mul (%a, %k) (%y) = Add \"y\" (%m, %k) output (%y)") == "y ");
}

TEST_CASE("with several outputs, what comes back in is a cycle") {
  const Pattern pair = Pattern::of(R"(
    input %x input %y
    (%r) = Relu "r" (%x)
    (%s) = Sub "s" (%r, %y)
    output (%s, %r))");
  CHECK(matches(pair,
                "input %a: f32[2] (%r) = Relu (%a) (%s) = Sub \"s\" (%r, %a) "
                "(%z) = Neg (%r) output (%s, %z, %r)") == "s ");
  CHECK(matches(pair,
                "input %a: f32[2] (%r) = Relu (%a) (%n) = Neg \"n\" (%r) "
                "(%m) = Abs \"m\" (%n) (%s) = Sub \"s\" (%r, %m) output (%s)") ==
        "[test s: the graph would have a cycle through 'm']");
}

TEST_CASE("a match becomes one node with the names of what it was") {
  Module module = parse_graph(
      "input %a: f32[2] input %b: f32[2] const %k: f32[] = {2} (%m) = Mul \"m\" (%a, %k) "
      "(%y) = Add \"add\" (%m, %b) (%z) = Neg (%y) output (%y, %z)");
  const Pattern sum = Pattern::of(kScaledSum);
  Rewriter rewriter(module);
  Refusals refusals;
  const auto match = sum.match(rewriter, find_node(module, "add"), "test", refusals);
  REQUIRE(match);
  passes::fuse(rewriter, *match,
               {.domain = "com.x", .op = "Axpy", .inputs = {match->value("x"), match->value("y")}});
  REQUIRE(rewriter.finish().ok());
  REQUIRE(verify(module).ok());
  REQUIRE(passes::remove_dead_nodes(module).ok());
  CHECK(graph_text(module) ==
        graph_text(parse_graph("input %a: f32[2] input %b: f32[2] "
                               "(%y: f32[2]) = com.x::Axpy \"m+add\" (%a, %b) (%z) = Neg (%y) "
                               "output (%y, %z)")));
}

TEST_CASE("a match becomes another small graph") {
  Module module = parse_graph(
      "input %a: f32[2] input %b: f32[2] const %k: f32[] = {2} (%m) = Mul \"m\" (%a, %k) "
      "(%s) = Add \"add\" (%m, %b) output (%s)");
  const Pattern sum = Pattern::of(kScaledSum);
  const Pattern two_sums =
      Pattern::of("input %x input %y (%m) = Add (%x, %y) (%s) = Add (%m, %x) output (%s)");
  Rewriter rewriter(module);
  Refusals refusals;
  const auto match = sum.match(rewriter, find_node(module, "add"), "test", refusals);
  REQUIRE(match);
  passes::replace(rewriter, *match, two_sums);
  REQUIRE(rewriter.finish().ok());
  REQUIRE(passes::remove_dead_nodes(module).ok());
  REQUIRE(passes::infer_shapes(module).ok());
  REQUIRE_MESSAGE(verify(module).ok(), verify(module).to_string());
  CHECK(graph_text(module) ==
        graph_text(parse_graph("input %a: f32[2] input %b: f32[2] "
                               "(%m.1) = Add \"m+add\" (%a, %b) (%s) = Add \"m+add\" (%m.1, %a) "
                               "output (%s)")));
}

TEST_CASE("names of many nodes are shortened") {
  const Module module = parse_graph(
      "input %x: f32[1] (%a) = Relu \"a\" (%x) (%b) = Relu \"b\" (%a) (%c) = Neg (%b) "
      "(%d) = Relu \"d\" (%c) (%e) = Relu \"e\" (%d) output (%e)");
  const auto span = module.graph_nodes(kMainGraph);
  std::vector<NodeId> nodes(span.begin(), span.end());
  CHECK(passes::joined_name(module, nodes) == "a+...+e");
  nodes.pop_back();
  CHECK(passes::joined_name(module, nodes) == "a+b+Neg_2+d");
}

TEST_CASE("patterns are built by hand as well") {
  Pattern pattern;
  const ValueId x = pattern.add_input("x");
  const ValueId scaled = pattern.add_node("Mul", {x, pattern.add_number("half", 0.5)}, "scale");
  const ValueId sum =
      pattern.add_node("Add", {scaled, x}, "", {{"pattern.or", std::vector<std::string>{"Sub"}}});
  REQUIRE(pattern.set_outputs({sum}).ok());
  CHECK(matches(pattern,
                "input %a: f32[2] const %k: f32[] = {0.5} (%m) = Mul (%k, %a) "
                "(%y) = Add \"y\" (%a, %m) output (%y)") == "y ");
  Pattern open;
  open.add_node("Relu", {open.add_input("x")});
  CHECK_FALSE(open.set_outputs({open.add_input("z")}).ok());
}

TEST_CASE("malformed patterns are errors that say where or which rule") {
  CHECK(parse_error("input %x (%y) = Relu (%x)").find("line 3") != std::string::npos);
  CHECK(parse_error("input %x output (%x)").find("result of the last node") != std::string::npos);
  CHECK(parse_error("input %x (%y) = Relu (%x) (%z) = Neg (%x) output (%y)")
            .find("result of the last node") != std::string::npos);
  CHECK(parse_error("input %x const %k: f32[2] = {1, 2} (%y) = Mul (%x, %k) output (%y)")
            .find("'k' must be one number") != std::string::npos);
  CHECK(parse_error("input %x (%y) = Relu (%x) { pattern.or = int 1 } output (%y)")
            .find("must list operators") != std::string::npos);
  CHECK(parse_error("input %x (%a) = Relu \"n\" (%x) (%y) = Neg \"n\" (%a) output (%y)")
            .find("two nodes are called 'n'") != std::string::npos);
  CHECK(parse_error("(%y) = Relu (_) { pattern.optional = int 1 } output (%y)")
            .find("needs an operand") != std::string::npos);
  CHECK(parse_error("input %x (%y) = Relu (%x) { body = graph { output (%x) } } output (%y)")
            .find("nested graphs") != std::string::npos);
  CHECK(parse_error("input %x #1: (%a) = Relu (%x) (%y) = Neg (%a) after (#1) output (%y)")
            .find("control edges") != std::string::npos);
  CHECK(parse_error("input %x (%y) = Relu (%x) { k = tensor f32[] = {1} } output (%y)")
            .find("is a tensor") != std::string::npos);
}

TEST_CASE("a pattern with very many ways to match gives up") {
  // Every Add doubles the ways; no leaf fits.
  std::string pattern = "input %x (%v0) = Neg (%x) ";
  std::string graph = "input %a: f32[1] (%v0) = Abs (%a) ";
  for (int i = 1; i <= 30; ++i) {
    const std::string last = "%v" + std::to_string(i - 1);
    const std::string sum = "(%v" + std::to_string(i) + ") = Add (" + last + ", " + last + ") ";
    pattern += sum;
    graph += sum;
  }
  CHECK(matches(Pattern::of(pattern + "output (%v30)"), graph + "output (%v30)") == "");
}
