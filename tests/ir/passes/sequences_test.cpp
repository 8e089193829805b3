// expand_sequences, bind_elements.
#include <doctest/doctest.h>

#include <algorithm>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/passes/support.hpp"

using namespace davit;
using testing::find_node;
using testing::find_value;
using testing::graph_text;
using testing::parse_graph;

namespace {

struct Expanded {
  ir::Module module;
  passes::Refusals refusals;
};

// Everything that simplify() does at -O1, with expand_sequences() first.
Expanded expand(ir::Module module) {
  Expanded result{.module = std::move(module), .refusals = {}};
  const auto changes = passes::expand_sequences(result.module, result.refusals);
  REQUIRE_MESSAGE(changes.ok(), changes.status().to_string());
  const Status status = ir::verify(result.module);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  const auto again = passes::expand_sequences(result.module, result.refusals);
  REQUIRE(again.ok());
  CHECK(*again == 0);
  return result;
}
Expanded expand(const std::string& body) {
  return expand(parse_graph(body, 17));
}

// Folded, without what nothing needs.
std::string simplified(const std::string& body) {
  ir::Module module = parse_graph(body, 17);
  const auto report = passes::simplify(module, {.level = passes::Level::kEliminate});
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  return graph_text(module);
}
// The same of what it should be.
void check_same(const std::string& body, const std::string& expected) {
  CHECK(simplified(body) == simplified(expected));
}

std::string why(const std::string& body) {
  ir::Module module = parse_graph(body, 17);
  const auto report = passes::simplify(module, {});
  REQUIRE_FALSE(report.ok());
  CHECK(report.status().code() == DVT_UNSUPPORTED);
  return report.status().to_string();
}
bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

const std::string kInputs = R"(input %a: f32[2] input %b: f32[2] input %c: f32[2]
    const %zero: i64[] = {0} const %one: i64[] = {1} const %last: i64[] = {-1}
    )";

}  // namespace

TEST_CASE("sequences are what was put into them") {
  const auto check = [](const std::string& makers, const std::string& element) {
    check_same(kInputs + makers + " (%y) = Neg \"y\" (%t) output (%y)",
               kInputs + "(%y) = Neg \"y\" (%" + element + ") output (%y)");
  };
  check("(%s) = SequenceConstruct \"s\" (%a, %b, %c) (%t) = SequenceAt \"t\" (%s, %one)", "b");
  check("(%s) = SequenceConstruct \"s\" (%a, %b, %c) (%t) = SequenceAt \"t\" (%s, %last)", "c");
  check(
      "(%e) = SequenceEmpty \"e\" () (%s) = SequenceInsert \"s\" (%e, %b) "
      "(%u) = SequenceInsert \"u\" (%s, %a, %zero) (%t) = SequenceAt \"t\" (%u, %one)",
      "b");
  check(
      "(%s) = SequenceConstruct \"s\" (%a, %b) (%u) = SequenceInsert \"u\" (%s, %c, %last) "
      "(%t) = SequenceAt \"t\" (%u, %one)",
      "c");
  check(
      "(%s) = SequenceConstruct \"s\" (%a, %b, %c) (%u) = SequenceErase \"u\" (%s) "
      "(%t) = SequenceAt \"t\" (%u, %last)",
      "b");
  check(
      "(%s) = SequenceConstruct \"s\" (%a, %b, %c) (%u) = SequenceErase \"u\" (%s, %zero) "
      "(%i) = Identity \"i\" (%u) (%t) = SequenceAt \"t\" (%i, %zero)",
      "b");
}

TEST_CASE("a sequence is one tensor: length, Concat, stack") {
  const std::string three = kInputs + "(%s) = SequenceConstruct \"s\" (%a, %b, %c) ";
  check_same(three +
                 "const %two: i64[1] = {2} const %axis: i64[1] = {0} "
                 "(%n) = SequenceLength \"n\" (%s) (%l) = Unsqueeze \"l\" (%n, %axis) "
                 "(%m) = Concat \"m\" (%l, %two) { axis = int 0 } (%y) = Expand \"y\" (%a, %m) "
                 "output (%y)",
             "input %a: f32[2] input %b: f32[2] input %c: f32[2] const %m: i64[2] = {3, 2} "
             "(%y) = Expand \"y\" (%a, %m) output (%y)");
  const std::string joined =
      simplified(three + "(%y) = ConcatFromSequence \"y\" (%s) { axis = int 0 } output (%y)");
  CHECK(has(joined, "Concat opset 13 \"y.Concat\" (%a, %b, %c)"));
  const std::string stacked = simplified(
      three +
      "(%y) = ConcatFromSequence \"y\" (%s) { axis = int -1 new_axis = int 1 } output (%y)");
  CHECK(has(stacked, "f32[2, 3]"));
}

TEST_CASE("a position that is not known picks from tensors of one shape") {
  const Expanded result = expand(
      "input %i: i64[] input %a: f32[2] input %b: f32[2] (%s) = SequenceConstruct (%a, %b) "
      "(%y) = SequenceAt \"at\" (%s, %i) output (%y)");
  CHECK(result.refusals.empty());
  CHECK(has(ir::print_text(result.module), "Gather"));
  CHECK(has(why("input %i: i64[] input %a: f32[2] input %b: f32[3] "
                "(%s) = SequenceConstruct \"s\" (%a, %b) (%y) = SequenceAt \"at\" (%s, %i) "
                "output (%y)"),
            "at (ai.onnx::SequenceAt(17)): its position is not constant, and its tensors differ"));
}

TEST_CASE("SplitToSequence: even, by a size, by sizes, without the axis") {
  const auto check = [](const std::string& attributes, const std::string& split,
                        const std::string& position, const std::string& dims) {
    const std::string text = simplified(
        "input %x: f32[5,3] const %one: i64[] = {1} const %size: i64[] = {2} "
        "const %sizes: i64[2] = {1, 4} const %p: i64[] = {" +
        position +
        "} "
        "(%s) = SplitToSequence \"s\" (%x" +
        split + ") { " + attributes +
        " } "
        "(%t) = SequenceAt \"t\" (%s, %p) (%y) = Neg \"y\" (%t) output (%y)");
    CHECK(has(text, "(%y: f32[" + dims + "])"));
  };
  check("axis = int 1", "", "2", "5, 1");
  check("axis = int -1 keepdims = int 0", "", "0", "5");
  check("axis = int 0", ", %size", "0", "2, 3");
  check("axis = int 0", ", %size", "2", "1, 3");
  check("axis = int 0 keepdims = int 0", ", %sizes", "1", "4, 3");
  CHECK(
      has(why("input %x: f32[?] (%s) = SplitToSequence \"s\" (%x) (%n) = SequenceLength \"n\" (%s) "
              "output (%n)"),
          "s (ai.onnx::SplitToSequence(17)): the extent of the axis is not known"));
  CHECK(has(why("input %x: f32[4] const %z: i64[] = {0} (%s) = SplitToSequence \"s\" (%x, %z) "
                "(%n) = SequenceLength \"n\" (%s) output (%n)"),
            "its split is not positive"));
  CHECK(has(why("input %x: f32[100000] (%s) = SplitToSequence \"s\" (%x) "
                "(%n) = SequenceLength \"n\" (%s) output (%n)"),
            "it would make too many tensors"));
}

TEST_CASE("what cannot be resolved is refused with the reason") {
  const auto refused = [](const std::string& body, const std::string& reason) {
    CHECK(has(why(kInputs + "input %i: i64[] input %q: bool[] " + body), reason));
  };
  const std::string two = "(%s) = SequenceConstruct \"s\" (%a, %b) ";
  refused(two + "const %p: i64[] = {2} (%y) = SequenceAt \"at\" (%s, %p) output (%y)",
          "at (ai.onnx::SequenceAt(17)): position 2 is outside a sequence of 2");
  refused(two +
              "(%u) = SequenceInsert \"in\" (%s, %c, %i) (%y) = SequenceAt \"at\" (%u, %one) "
              "output (%y)",
          "in (ai.onnx::SequenceInsert(17)): its position is not constant");
  refused(
      "(%s) = SequenceEmpty \"s\" () (%u) = SequenceErase \"er\" (%s) "
      "(%n) = SequenceLength \"n\" (%u) output (%n)",
      "er (ai.onnx::SequenceErase(17)): its sequence is empty");
  refused(
      "(%s) = SequenceEmpty \"s\" () (%y) = ConcatFromSequence \"j\" (%s) { axis = int 0 } "
      "output (%y)",
      "j (ai.onnx::ConcatFromSequence(17)): its sequence is empty");
  refused(two +
              "(%u) = If \"if\" (%q) { then_branch = graph { (%v) = SequenceErase \"v\" (%s) "
              "output (%v) } else_branch = graph { output (%s) } } "
              "(%n) = SequenceLength \"n\" (%u) output (%n)",
          "if: its condition is not constant");
  refused("(%o) = Optional \"o\" () (%y) = OptionalGetElement \"get\" (%o) output (%y)",
          "get (ai.onnx::OptionalGetElement(17)): its optional is absent");
  refused(two + "(%y) = Neg \"neg\" (%s) output (%y)",
          "s (ai.onnx::SequenceConstruct(17)): something reads it as it is");
}

TEST_CASE("what a known condition rules out is not looked at") {
  const std::string guarded =
      "const %no: bool [] = {0} "
      "(%s) = SequenceEmpty \"s\" () (%y) = If \"if\" (%no) { then_branch = graph { "
      "(%j) = ConcatFromSequence \"j\" (%s) { axis = int 0 } output (%j) } else_branch = graph { "
      "(%v) = Neg \"v\" (%a) output (%v) } } output (%y)";
  ir::Module module = parse_graph(kInputs + guarded, 17);
  const auto report = passes::simplify(module, {.level = passes::Level::kRequired});
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  const std::string text = graph_text(module);
  CHECK(text.find("If") == std::string::npos);
  CHECK(has(text, "Neg"));
}

TEST_CASE("optionals are what they hold") {
  check_same(kInputs +
                 "(%o) = Optional \"o\" (%a) (%t) = OptionalGetElement \"t\" (%o) "
                 "(%y) = Neg \"y\" (%t) output (%y)",
             kInputs + "(%y) = Neg \"y\" (%a) output (%y)");
  check_same(kInputs + "(%t) = OptionalGetElement \"t\" (%a) (%y) = Neg \"y\" (%t) output (%y)",
             kInputs + "(%y) = Neg \"y\" (%a) output (%y)");
  // The branch follows from what is there.
  const auto choose = [](const std::string& optional) {
    return kInputs + optional +
           " (%h) = OptionalHasElement \"h\" (%o) (%y) = If \"if\" (%h) { "
           "then_branch = graph { (%t) = OptionalGetElement (%o) (%v) = Neg \"n\" (%t) output (%v) "
           "} "
           "else_branch = graph { (%w) = Abs \"a\" (%b) output (%w) } } output (%y)";
  };
  CHECK(has(simplified(choose("(%o) = Optional \"o\" (%a)")), "Neg"));
  CHECK(has(simplified(choose("(%o) = Optional \"o\" ()")), "Abs"));
}

TEST_CASE("a sequence leaves as its elements, an absent optional not at all") {
  Expanded result = expand(kInputs +
                           "(%s) = SequenceConstruct \"s\" (%a, %b) (%o) = Optional \"o\" () "
                           "(%p) = Optional \"p\" (%c) output (%s, %o, %p, %a)");
  CHECK(result.refusals.empty());
  std::vector<std::string> names;
  for (const ir::ValueId value : result.module.graph_outputs(ir::kMainGraph)) {
    names.emplace_back(result.module.value_name(value));
  }
  CHECK(names == std::vector<std::string>{"s[0]", "s[1]", "p", "a"});
  CHECK(result.module.dtype(find_value(result.module, "p")) == DVT_F32);
}

TEST_CASE("a loop that carries a sequence becomes copies of its body") {
  const auto loop = [](const std::string& trips, const std::string& next) {
    return "input %x: f32[3] const %m: i64[] = {" + trips +
           "} const %yes: bool[] = {1} "
           "(%e) = SequenceEmpty \"e\" () (%s, %rows) = Loop \"loop\" (%m, %yes, %e) { "
           "body = graph { input %i: i64[] input %c: bool[] input %q "
           "(%d) = Identity (%c) (%f) = Cast (%i) { to = int 1 } (%v) = Add \"add\" (%x, %f) "
           "(%r) = SequenceInsert (%q, %v) output (" +
           next +
           ", %r, %v) } } "
           "(%y) = ConcatFromSequence \"y\" (%s) { axis = int 0 } output (%y, %rows)";
  };
  const std::string text = simplified(loop("3", "%d"));
  CHECK(has(text, "f32[9]"));
  CHECK(has(text, "f32[3, 3]"));
  CHECK(has(text, "loop.body[2]/add"));
  CHECK_FALSE(text.find("Loop") != std::string::npos);
  CHECK(has(why(loop("100000", "%d")), "100000 copies of its body are more than Davit makes"));
  CHECK(has(why(loop("0", "%d")), "it never runs"));
  const std::string open =
      "input %n: i64[] const %yes: bool[] = {1} (%e) = SequenceEmpty \"e\" () "
      "(%s) = Loop \"loop\" (%n, %yes, %e) { body = graph { input %i: i64[] input %c: bool[] "
      "input %q (%r) = SequenceInsert (%q, %i) output (%c, %r) } } "
      "(%y) = SequenceLength \"y\" (%s) output (%y)";
  CHECK(has(why(open), "loop: its trip count is not constant"));
}

TEST_CASE("copies of a body keep to themselves: constants, nested graphs, captured values") {
  const std::string text = simplified(
      "input %x: f32[2] input %q: bool[] const %m: i64[] = {2} const %yes: bool[] = {1} "
      "(%e) = SequenceEmpty \"e\" () (%s) = Loop \"loop\" (%m, %yes, %e) { "
      "body = graph { input %i: i64[] input %c: bool[] input %p const %k: f32[2] = {1, 2} "
      "(%f) = Cast (%i) { to = int 1 } "
      "(%v) = If \"if\" (%q) { then_branch = graph { (%t) = Add \"t\" (%x, %k) output (%t) } "
      "else_branch = graph { (%u) = Mul \"u\" (%x, %f) output (%u) } } "
      "(%r) = SequenceInsert (%p, %v) output (%c, %r) } } "
      "(%y) = ConcatFromSequence \"y\" (%s) { axis = int 0 } output (%y)");
  CHECK(has(text, "If \"loop.body[0]/if\""));
  CHECK(has(text, "If \"loop.body[1]/if\""));
  CHECK(has(text, "f32[4]"));
}

TEST_CASE("SequenceMap: sequences side by side with tensors, several outputs") {
  const std::string body =
      "(%s) = SequenceConstruct \"s\" (%a, %b) (%t) = SequenceConstruct \"t\" (%b, %c) "
      "(%u, %v) = SequenceMap \"map\" (%s, %t, %c) { body = graph { input %p input %q input %r "
      "(%m) = Add \"m\" (%p, %q) (%n) = Mul \"n\" (%m, %r) output (%n, %m) } } ";
  check_same(
      kInputs + body +
          "(%w) = SequenceAt \"w\" (%u, %one) (%z) = SequenceAt (%v, %zero) "
          "(%y) = Sub \"y\" (%w, %z) output (%y)",
      kInputs +
          "(%0 \"map.body[0]/m\") = Add \"map.body[0]/m\" (%a, %b) "
          "(%1 \"map.body[1]/m\") = Add \"map.body[1]/m\" (%b, %c) "
          "(%2 \"map.body[1]/n\") = Mul \"map.body[1]/n\" (%1, %c) (%y) = Sub \"y\" (%2, %0) "
          "output (%y)");
  CHECK(has(why(kInputs + "(%s) = SequenceConstruct \"s\" (%a, %b) (%t) = SequenceConstruct \"t\" "
                          "(%b) (%u) = SequenceMap \"map\" (%s, %t) { body = graph { input %p "
                          "input %q output (%p) } } (%n) = SequenceLength (%u) output (%n)"),
            "map (ai.onnx::SequenceMap(17)): its sequences differ in length"));
}

TEST_CASE("inputs: elements in the place of the sequence, optionals there or not") {
  const auto bound = [](const std::map<std::string, int64_t>& elements) {
    ir::Module module = parse_graph(
        "input %x: f32[2] input %s: f32[2] input %o: f32[2] input %z: f32[2] "
        "(%y) = Identity \"y\" (%x) output (%y)",
        17);
    const auto declare = [&](const char* name, ir::ContainerType type) {
      module.set_dtype(find_value(module, name), DVT_DTYPE_NONE);
      module.set_container(find_value(module, name), std::move(type));
    };
    const ir::SymbolId n = module.intern_symbol("N");
    declare("s", {.is_sequence = true, .dtype = DVT_F16, .shape = ir::Shape{ir::Dim::symbol(n)}});
    declare("o", {.is_optional = true, .dtype = DVT_I64, .shape = ir::Shape{}});
    Status status = passes::bind_elements(module, elements);
    if (!status.ok()) return status.to_string();
    REQUIRE(ir::verify(module).ok());
    std::string names;
    for (const ir::ValueId input : module.graph_inputs(ir::kMainGraph)) {
      names += std::string(module.value_name(input)) + ":" + std::to_string(module.dtype(input)) +
               ir::shape_text(module, *module.shape(input)) + " ";
    }
    return names;
  };
  CHECK(bound({{"s", 2}, {"o", 1}}) == "x:1[2] s[0]:10[?] s[1]:10[?] o:7[] z:1[2] ");
  CHECK(bound({{"s", 0}, {"o", passes::kAbsent}}) == "x:1[2] z:1[2] ");
  CHECK(has(bound({{"o", 1}}), "how many tensors the input holds"));
  CHECK(has(bound({{"s", 1}}), "whether the input is there"));
  CHECK(has(bound({{"s", -1}, {"o", 1}}), "cannot hold that many tensors"));
  CHECK(has(bound({{"s", 1}, {"o", 2}}), "cannot hold that many tensors"));
  CHECK(has(bound({{"s", 5000}, {"o", 1}}), "cannot hold that many tensors"));
  CHECK(has(bound({{"s", 1}, {"o", 1}, {"x", 1}}), "neither sequence nor optional"));
  CHECK(has(bound({{"s", 1}, {"o", 1}, {"nope", 1}}), "no input of this name"));
}
