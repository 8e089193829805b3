#include "ir/passes/passes.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ir/text.hpp"
#include "ir/verify.hpp"

using namespace davit::ir;
using davit::Result;
using davit::Status;
namespace passes = davit::passes;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Module parse(const std::string& body) {
  const std::string text =
      "davit-ir 1\nsource \"\" \"\"\nopset \"\" 13\nopset \"com.x\" 1\ngraph \"g\" {\n" + body +
      "\n}\n";
  Result<Module> module = parse_text(text);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  return std::move(*module);
}

ValueId find(const Module& module, const std::string& name) {
  for (uint32_t v = 0; v < module.value_count(); ++v) {
    if (module.value_alive(ValueId{v}) && module.value_name(ValueId{v}) == name) return ValueId{v};
  }
  return kNoValue;
}

std::string type_of(const Module& module, const std::string& name) {
  const ValueId value = find(module, name);
  REQUIRE(value != kNoValue);
  return module.shape(value) == nullptr ? "?" : shape_text(module, *module.shape(value));
}

size_t nodes(const Module& module) {
  return module.graph_nodes(kMainGraph).size();
}

std::string simplify_error(Module& module, const std::vector<std::string>& disabled = {}) {
  const Result<passes::SimplifyReport> report = passes::simplify(module, {.disabled = disabled});
  return report.ok() ? "ok" : report.status().to_string();
}

// y = Reshape(x, [N / 1, C * H]) by the arithmetic that exporters write.
constexpr const char* kFlatten = R"(
  input %x: f32[N, 3, H]
  const %zero: i64[1] = {0}
  const %minus: i64[1] = {-1}
  const %axis: i64[] = {0}
  (%shape) = Shape "s" (%x)
  (%n) = Gather "g" (%shape, %zero) { axis = int 0 }
  (%target) = Concat "c" (%n, %minus) { axis = int 0 }
  (%y: f32[N, F]) = Reshape "r" (%x, %target)
  (%z) = Relu "relu" (%y)
  output (%z, %target)
)";

}  // namespace

TEST_CASE("shapes given by name bind symbols everywhere") {
  Module module = parse(kFlatten);
  REQUIRE(passes::bind_shapes(module, {.shapes = {{"x", {2, 3, 5}}}}).ok());
  CHECK(type_of(module, "x") == "[2, 3, 5]");
  CHECK(type_of(module, "y") == "[2, F]");
  Module other = parse(kFlatten);
  REQUIRE(passes::bind_shapes(other, {.symbols = {{"N", 4}, {"F", 9}}}).ok());
  CHECK(type_of(other, "x") == "[4, 3, H]");
  CHECK(type_of(other, "y") == "[4, 9]");
}

TEST_CASE("bindings that do not fit are refused") {
  const auto error = [](const passes::ShapeBindings& bindings) {
    Module module = parse(kFlatten);
    return passes::bind_shapes(module, bindings).to_string();
  };
  CHECK(
      has(error({.shapes = {{"w", {1}}}}), "no input of this name; tensor w; expected one of: x"));
  CHECK(has(error({.shapes = {{"x", {2, 4, 5}}}}), "tensor x; expected [N, 3, H]; got [2, 4, 5]"));
  CHECK(has(error({.shapes = {{"x", {2, 3}}}}), "expected [N, 3, H]; got [2, 3]"));
  CHECK(has(error({.shapes = {{"x", {-2, 3, 5}}}}), "negative"));
  CHECK(has(error({.symbols = {{"Q", 1}}}), "dimension named 'Q'"));
  CHECK(has(error({.symbols = {{"N", -1}}}), "negative"));
  CHECK(has(error({.shapes = {{"x", {2, 3, 5}}}, .symbols = {{"N", 3}}}),
            "'N' would have two extents; tensor x; expected 3; got 2"));
}

TEST_CASE("an attribute of the wrong type is an error, not the default") {
  Module module = parse(R"(
  input %x: f32[1, 1, 4, 4]
  (%y) = MaxPool "pool" (%x) {
    kernel_shape = ints [2, 2]
    strides = floats [2, 2]
  }
  output (%y))");
  const std::string text = simplify_error(module);
  CHECK(has(text, "pool"));
  CHECK(has(text, "attribute 'strides' has the wrong type"));
  CHECK(has(text, "expected INTS; got FLOATS"));
}

TEST_CASE("frozen inputs become constants") {
  Module module = parse(
      "input %x: f32[N] input %k: i64[N]\n"
      "(%y: f32[N]) = Relu (%x) output (%y)");
  CHECK(has(passes::freeze_inputs(module, {{"q", make_i64_tensor({1}, {1})}}).to_string(),
            "expected one of: x, k"));
  CHECK(has(passes::freeze_inputs(module, {{"x", make_i64_tensor({1}, {1})}}).to_string(),
            "expected f32; got i64"));
  CHECK(has(passes::freeze_inputs(module, {{"k", make_i64_tensor({}, {1})}}).to_string(),
            "expected [N]; got []"));
  REQUIRE(passes::freeze_inputs(module, {{"k", make_i64_tensor({2}, {1, 2})}}).ok());
  CHECK(module.graph_inputs(kMainGraph).size() == 1);
  CHECK(module.constant(find(module, "k"))->to_i64() == std::vector<int64_t>{1, 2});
  CHECK(type_of(module, "y") == "[2]");
  CHECK(verify(module).ok());
}

TEST_CASE("shape arithmetic is worked out while shapes are inferred") {
  Module module = parse(kFlatten);
  REQUIRE(passes::bind_shapes(module, {.shapes = {{"x", {2, 3, 5}}}}).ok());
  Result<uint32_t> learned = passes::infer_shapes(module);
  REQUIRE_MESSAGE(learned.ok(), learned.status().to_string());
  CHECK(*learned > 0);
  CHECK(type_of(module, "y") == "[2, 15]");
  CHECK(type_of(module, "z") == "[2, 15]");
  CHECK(module.dtype(find(module, "z")) == DVT_F32);
  // The requested output keeps its name, as a constant.
  const ValueId target = module.graph_outputs(kMainGraph)[1];
  CHECK(module.value_name(target) == "target");
  CHECK(module.constant(target)->to_i64() == std::vector<int64_t>{2, -1});
  CHECK(nodes(module) == 2);
  CHECK(*passes::infer_shapes(module) == 0);
  CHECK(verify(module).ok());
}

TEST_CASE("with free dimensions inference stops where it must") {
  Module module = parse(kFlatten);
  REQUIRE(passes::infer_shapes(module).ok());
  CHECK(type_of(module, "shape") == "[3]");
  CHECK(module.constant(find(module, "shape")) == nullptr);
  CHECK(type_of(module, "z") == "[N, F]");
  CHECK(nodes(module) == 5);
}

TEST_CASE("a declaration that contradicts the operator is an error with both") {
  Module shape = parse("input %x: f32[2, 3] (%y: f32[2, 4]) = Relu \"r\" (%x) output (%y)");
  CHECK(has(simplify_error(shape),
            "infer: r (ai.onnx::Relu(13)): the model declares another shape than the operator "
            "yields; tensor y; expected [2, 4]; got [2, 3]"));
  Module rank = parse("input %x: f32[2, 3] (%y: f32[2]) = Relu \"r\" (%x) output (%y)");
  CHECK(has(simplify_error(rank), "expected [2]; got [2, 3]"));
  Module dtype = parse("input %x: f32[2] (%y: i64[2]) = Relu \"r\" (%x) output (%y)");
  CHECK(has(simplify_error(dtype),
            "another element type than the operator yields; tensor y; "
            "expected i64; got f32"));
}

TEST_CASE("operators get as many operands as they take") {
  Module few = parse("input %x: f32[2] (%y) = Add \"a\" (%x) output (%y)");
  CHECK(has(simplify_error(few),
            "a (ai.onnx::Add(13)): wrong number of inputs; expected 2 to 2; "
            "got 1"));
  Module absent = parse("input %x: f32[2] (%y) = Add \"a\" (_, %x) output (%y)");
  CHECK(has(simplify_error(absent), "input 0 is missing"));
  Module many = parse("input %x: f32[2] (%y, %z) = Relu \"r\" (%x) output (%y)");
  CHECK(has(simplify_error(many), "wrong number of outputs"));
}

TEST_CASE("constants are folded within bounds") {
  Module module = parse(R"(
    const %a: f32[2] = {1, 2}
    const %b: f32[2] = {10, 20}
    const %small: i64[1] = {2048}
    const %large: i64[2] = {1000000, 2}
    input %x: f32[2]
    (%sum) = Add "add" (%a, %b)
    (%y) = Mul "mul" (%sum, %x)
    (%filled) = ConstantOfShape "small" (%small)
    (%huge) = ConstantOfShape "huge" (%large)
    output (%y, %filled, %huge)
  )");
  Result<uint32_t> folded = passes::fold_constants(module);
  REQUIRE_MESSAGE(folded.ok(), folded.status().to_string());
  CHECK(*folded == 2);
  const auto sum = module.constant(find(module, "sum"))->as<float>();
  CHECK(std::vector<float>(sum.begin(), sum.end()) == std::vector<float>{11, 22});
  CHECK(module.constant(find(module, "filled"))->bytes->size() == 8192);
  CHECK(module.constant(find(module, "huge")) == nullptr);  // 8 MB from 16 bytes.
  CHECK(nodes(module) == 2);
  CHECK(verify(module).ok());
  CHECK(*passes::fold_constants(module) == 0);
}

TEST_CASE("without fold_constants only small data is worked out") {
  Module module = parse(R"(
    const %small: i64[1] = {4}
    const %medium: i64[1] = {2048}
    (%s) = ConstantOfShape (%small)
    (%m) = ConstantOfShape (%medium)
    output (%s, %m)
  )");
  Result<passes::SimplifyReport> report =
      passes::simplify(module, {.disabled = {"fold_constants"}});
  REQUIRE(report.ok());
  CHECK(report->folded_nodes == 1);
  CHECK(module.constant(find(module, "s")) != nullptr);
  CHECK(module.constant(find(module, "m")) == nullptr);
}

TEST_CASE("too much work is left to run time") {
  Module module;
  module.opset_imports[""] = 13;
  constexpr int64_t kSize = 1040;  // 1040^3 is just above 2^30.
  const davit::ir::TensorData square = make_tensor(
      DVT_F32, {kSize, kSize}, std::vector<std::byte>(size_t(kSize) * kSize * sizeof(float)));
  const ValueId a = module.add_constant(kMainGraph, "a", square);
  const ValueId y = module.add_value(kMainGraph, "y");
  module.add_node(kMainGraph, {.op = "MatMul", .inputs = {a, a}, .outputs = {y}});
  module.set_graph_outputs(kMainGraph, {y});
  CHECK(*passes::fold_constants(module) == 0);
  CHECK(type_of(module, "y") == "[1040, 1040]");
}

TEST_CASE("dead nodes and constants go, what outputs need stays") {
  Module module = parse(R"(
    input %x: f32[2]
    input %unused: f32[2]
    const %dead_c: f32[2] = {1, 2}
    const %c: f32[2] = {1, 2}
    (%d1) = Add "d1" (%x, %dead_c)
    (%d2) = Relu "d2" (%d1)
    #1: (%side) = Relu "ordered" (%x)
    (%captured) = Abs "captured" (%x)
    (%y) = com.x::Body "body" (%x) {
      g = graph {
        (%t) = Add "in" (%captured, %c)
        (%u) = Neg "in_dead" (%captured)
        output (%t)
      }
    } after (#1)
    output (%y)
  )");
  Result<uint32_t> dead = passes::remove_dead_nodes(module);
  REQUIRE(dead.ok());
  CHECK(*dead == 3);
  CHECK(nodes(module) == 3);
  CHECK(module.graph_nodes(GraphId{1}).size() == 1);
  CHECK(find(module, "dead_c") == kNoValue);
  CHECK(find(module, "c") != kNoValue);
  CHECK(module.graph_inputs(kMainGraph).size() == 2);
  CHECK(verify(module).ok());
  CHECK(*passes::remove_dead_nodes(module) == 0);
}

TEST_CASE("unsupported operators are listed at once, bodies included") {
  const std::string text = R"(
    input %x: f32[2]
    (%a) = Foo "one" (%x)
    (%b) = Relu "fine" (%a)
    (%c) = com.x::Bar (%b) {
      g = graph {
        (%t) = Foo "two" (%x)
        output (%t)
      }
    }
    (%dead) = Unneeded "three" (%x)
    output (%c)
  )";
  Module module = parse(text);
  CHECK(passes::check_supported(module).to_string() ==
        "check: 3 operators are not supported: ai.onnx::Foo(13): one, Bar_2.g/two; "
        "ai.onnx::Unneeded(13): three; com.x::Bar(1): Bar_2; hint: operators of other domains "
        "come from plug-ins: --plugin FILE");
  CHECK(passes::check_supported(module).code() == DVT_UNSUPPORTED);
  const std::string error = simplify_error(module);
  CHECK(has(error, "2 operators are not supported"));
  CHECK_FALSE(has(error, "three"));
  Module single = parse("input %x: f32[2] (%y) = Foo (%x) output (%y)");
  CHECK(has(simplify_error(single), "1 operator is not supported: ai.onnx::Foo(13)"));
}

TEST_CASE("passes can be disabled by name") {
  Module module = parse("input %x: f32[2] (%d) = Relu (%x) (%y) = Abs (%x) output (%y)");
  CHECK(has(
      simplify_error(module, {"remove_dead_node"}),
      "'remove_dead_node' is not a pass that can be disabled; expected one of: fold_constants, "));
  CHECK(has(simplify_error(module, {"infer_shapes"}), "'infer_shapes' is not a pass that can be"));
  CHECK(simplify_error(module, {"remove_dead_nodes"}) == "ok");
  CHECK(nodes(module) == 2);
  Result<passes::SimplifyReport> report = passes::simplify(module);
  REQUIRE(report.ok());
  CHECK(report->dead_nodes == 1);
  CHECK(nodes(module) == 1);
}

TEST_CASE("levels choose passes, and names add to them or stand in their place") {
  const std::string body =
      "input %x: f32[2] (%d) = Relu (%x) (%i) = Identity (%x) (%y) = Abs (%i) output (%y)";
  const auto left = [&](const passes::SimplifyOptions& options) {
    Module module = parse(body);
    const Result<passes::SimplifyReport> report = passes::simplify(module, options);
    REQUIRE_MESSAGE(report.ok(), report.status().to_string());
    return nodes(module);
  };
  using passes::Level;
  CHECK(left({.level = Level::kRequired}) == 3);
  CHECK(left({.level = Level::kFold}) == 2);
  CHECK(left({}) == 1);
  CHECK(left({.level = Level::kRequired, .enabled = {"remove_identities"}}) == 2);
  CHECK(left({.level = Level::kFuse, .only = {"remove_identities"}}) == 2);
  CHECK(left({.level = Level::kFuse, .disabled = {"remove_identities"}}) == 2);
  Module module = parse(body);
  CHECK(passes::simplify(module, {.enabled = {"all"}})
            .status()
            .to_string()
            .find("'all' is not a pass that can be enabled") != std::string::npos);
  CHECK(passes::simplify(module, {.only = {"infer_shapes"}})
            .status()
            .to_string()
            .find("'infer_shapes' is not a pass that can be run alone") != std::string::npos);
}

TEST_CASE("the graph is shown after every pass, and who looks may end the work") {
  const std::string body = "input %x: f32[2] (%d) = Relu (%x) (%y) = Abs (%x) output (%y)";
  Module module = parse(body);
  std::vector<std::string> names;
  std::vector<size_t> node_counts;
  passes::SimplifyOptions options;
  options.level = passes::Level::kFuse;
  options.after_pass = [&](std::string_view pass, const Module& shown) {
    names.emplace_back(pass);
    node_counts.push_back(shown.graph_nodes(kMainGraph).size());
    return Status();
  };
  const Result<passes::SimplifyReport> report = passes::simplify(module, options);
  REQUIRE(report.ok());
  // No pass runs again before another has changed something.
  const auto all = passes::all_passes();
  REQUIRE(names.size() >= 1 + all.size());
  CHECK(names[0] == "remove_dead_nodes");
  CHECK(node_counts[0] == 1);
  CHECK(names[1] == all[0].name);
  CHECK(names.size() < 1 + report->rounds * all.size());

  Module again = parse(body);
  options.after_pass = [](std::string_view, const Module&) {
    return Status(DVT_IO_ERROR, DVT_STAGE_WRITE, "the disk is full");
  };
  CHECK(passes::simplify(again, options).status().to_string() == "write: the disk is full");
}

TEST_CASE("a pass that breaks the graph is named") {
  const passes::Pass vandal{"vandal",
                            [](Module& module, passes::Refusals&) {
                              module.add_value(kMainGraph, "orphan");
                              return Result<uint32_t>(1U);
                            },
                            passes::Level::kFold};
  Module module = parse("input %x: f32[2] output (%x)");
  passes::Refusals refusals;
  const Result<uint32_t> result = passes::run_pass(vandal, module, refusals);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == DVT_INTERNAL);
  CHECK(has(result.status().to_string(), "pass vandal broke the graph"));
}

TEST_CASE("a node whose kernel fails on constants keeps its place") {
  Module module = parse(R"(
    const %data: f32[2] = {1, 2}
    const %index: i64[1] = {7}
    (%y) = Gather "g" (%data, %index)
    output (%y)
  )");
  const Result<passes::SimplifyReport> report = passes::simplify(module);
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  CHECK(nodes(module) == 1);
  CHECK(module.constant(find(module, "y")) == nullptr);
}
