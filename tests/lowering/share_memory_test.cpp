// Concat, Split and Slice without nodes: what lies in what, and what is left alone.
#include "lowering/share_memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

#include "ir/passes/passes.hpp"
#include "lowering/lower.hpp"
#include "tests/lowering/tiny_modules.hpp"

using davit::image::ImageModel;
using davit::image::ValueKind;
using davit::ir::ValueId;
using davit::lowering::Sharing;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

using Names = std::vector<std::string>;

// Infers, lowers and places; write_image() verifies.
ImageModel lower(davit::ir::Module module, const Sharing& sharing = {}) {
  REQUIRE(davit::passes::infer_shapes(module).ok());
  auto lowered = davit::lowering::lower_cpu(module, {}, sharing);
  REQUIRE_MESSAGE(lowered.ok(), lowered.status().to_string());
  const auto placed = davit::lowering::place_values(*lowered, 0);
  REQUIRE_MESSAGE(placed.ok(), placed.status().to_string());
  const auto written = davit::image::write_image(lowered->model);
  REQUIRE_MESSAGE(written.ok(), written.status().to_string());
  return std::move(lowered->model);
}

Names kernels_of(const ImageModel& model) {
  Names names;
  for (const auto& node : model.graphs[0].nodes) names.push_back(model.kernels[node.kernel].name);
  return names;
}

size_t count_of(const ImageModel& model, const std::string& kernel) {
  const Names names = kernels_of(model);
  return static_cast<size_t>(std::count(names.begin(), names.end(), kernel));
}

std::map<std::string, uint64_t> offsets_of(const ImageModel& model) {
  std::map<std::string, uint64_t> offsets;
  for (const auto& value : model.values) {
    if (value.kind == ValueKind::kPlanned) offsets[value.name] = value.offset;
  }
  return offsets;
}

ValueId concat(TinyModule& tiny, std::vector<ValueId> inputs, const std::string& name,
               int64_t axis = 1) {
  return tiny.node("Concat", std::move(inputs), name, {{"axis", axis}});
}

ValueId slice(TinyModule& tiny, ValueId from, int64_t axis, int64_t first, int64_t end,
              const std::string& name) {
  const auto list = [&](const std::string& suffix, int64_t value) {
    return tiny.constant(name + suffix, davit::ir::make_i64_tensor({1}, {value}));
  };
  return tiny.node("Slice", {from, list("s", first), list("e", end), list("a", axis)}, name);
}

}  // namespace

TEST_CASE("inputs of a Concat are computed where its output has them") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 4, 16});
  const auto a = tiny.node("Sigmoid", {x}, "a");
  const auto b = tiny.node("Tanh", {x}, "b");
  const auto c = tiny.node("Exp", {x}, "c");
  const auto joined = concat(tiny, {a, b, c}, "joined");
  const davit::ir::Module module =
      tiny.build({tiny.node("Sin", {joined}, "y"), tiny.node("Cos", {a}, "z")});
  const ImageModel model = lower(module);
  CHECK(kernels_of(model) == Names{"Sigmoid.f32", "Tanh.f32", "Exp.f32", "Sin.f32", "Cos.f32"});
  const auto offsets = offsets_of(model);
  CHECK(offsets.at("a") == offsets.at("joined"));
  CHECK(offsets.at("b") == offsets.at("joined") + 256);
  CHECK(offsets.at("c") == offsets.at("joined") + 512);
  CHECK(model.arena_bytes == 768);
  CHECK(count_of(lower(module, {.join_parts = false}), "Concat") == 1);
}

TEST_CASE("what was joined may be replaced in place, joined again, and be reshaped before") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 4, 16});
  const auto flat = tiny.node("Flatten", {tiny.node("Sigmoid", {x}, "a")}, "flat");  // [1, 64]
  const auto inner = concat(tiny, {flat, tiny.node("Tanh", {flat}, "b")}, "inner");
  const auto relu = tiny.node("Relu", {inner}, "relu");  // In place over a and b.
  const auto outer = concat(tiny, {relu, tiny.node("Exp", {flat}, "c"), relu}, "twice");
  const auto y = tiny.node("Sin", {outer}, "y");
  const auto d = tiny.node("Cos", {x}, "d");
  const auto e = tiny.node("Exp", {x}, "e");
  const auto first = concat(tiny, {d, e}, "de");
  const auto second = concat(tiny, {first, tiny.node("Tanh", {x}, "f")}, "def");
  const auto third = concat(tiny, {d, e, tiny.node("Sin", {x}, "g")}, "deg");  // f is there.
  const ImageModel model =
      lower(tiny.build({y, tiny.node("Sin", {first}, "y1"), tiny.node("Sin", {second}, "y2"),
                        tiny.node("Sin", {third}, "y3")}));
  const auto offsets = offsets_of(model);
  CHECK(count_of(model, "Concat") == 2);  // One value twice; two values in one place.
  CHECK(offsets.at("b") == offsets.at("a") + 256);
  CHECK(offsets.at("inner") == offsets.at("a"));
  CHECK(offsets.at("e") == offsets.at("d") + 256);
  CHECK(offsets.at("f") == offsets.at("e") + 256);
  CHECK(offsets.at("de") == offsets.at("d"));
  CHECK(offsets.at("def") == offsets.at("d"));
}

TEST_CASE("a Concat stays when its inputs are elsewhere") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 4, 16});
  const auto k = tiny.constant("k", f32_tensor({1, 1, 16}, std::vector<float>(16, 1)));
  const auto odd = tiny.input("odd", {1, 4, 15});
  const auto a = tiny.node("Sigmoid", {x}, "a");
  const auto out = tiny.node("Tanh", {x}, "out");
  const auto b = tiny.node("Exp", {odd}, "b");
  const ValueId cases[] = {
      concat(tiny, {a, x}, "input"),                                 // The caller's memory.
      concat(tiny, {a, k}, "constant"),                              // The image's.
      concat(tiny, {a, out}, "port"),                                // An output's.
      concat(tiny, {a, tiny.node("Cos", {x}, "i")}, "inner", 2),     // Not side by side.
      concat(tiny, {b, tiny.node("Cos", {odd}, "j")}, "unaligned"),  // 240 bytes each.
      concat(tiny, {a, tiny.node("Cos", {x}, "l")}, "to_port"),
  };
  std::vector<ValueId> outputs = {out};
  for (size_t i = 0; i < 5; ++i) {
    outputs.push_back(tiny.node("Sin", {cases[i]}, "y" + std::to_string(i)));
  }
  outputs.push_back(cases[5]);
  CHECK(count_of(lower(tiny.build(std::move(outputs))), "Concat") == 6);
}

TEST_CASE("what is left alone has a reason") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 4, 16});
  const auto a = tiny.node("Sigmoid", {x}, "a");
  const auto b = tiny.node("Tanh", {x}, "b");
  const auto k = tiny.constant("k", f32_tensor({1, 1, 16}, std::vector<float>(16, 1)));
  std::vector<ValueId> outputs;
  for (const ValueId value :
       {concat(tiny, {a, x}, "c0"), concat(tiny, {a, k}, "c1"), concat(tiny, {a, b}, "c2"),
        concat(tiny, {b, a}, "c3"), slice(tiny, a, 1, 0, 1, "s0"), slice(tiny, x, 1, 0, 3, "s1")}) {
    outputs.push_back(tiny.node("Sin", {value}, "y" + std::to_string(outputs.size())));
  }
  outputs.push_back(concat(tiny, {a, b}, "out"));
  davit::ir::Module module = tiny.build(std::move(outputs));
  REQUIRE(davit::passes::infer_shapes(module).ok());
  const auto lowered = davit::lowering::lower_cpu(module);
  REQUIRE_MESSAGE(lowered.ok(), lowered.status().to_string());
  std::map<std::string, std::string> reasons;
  for (const auto& refusal : lowered->refusals) {
    reasons[refusal.node] = refusal.pass + ": " + refusal.reason;
  }
  CHECK(reasons == std::map<std::string, std::string>{
                       {"Concat_c0", "join_parts: 'x' is an input of the graph"},
                       {"Concat_c1", "join_parts: 'k' is a constant"},
                       {"Concat_c3", "join_parts: an input has other neighbours already"},
                       {"Concat_out", "join_parts: 'out' is an output of the graph"},
                       {"Slice_s0", "view_parts: the rest of the value would stay in memory"},
                       {"Slice_s1", "view_parts: 'x' is an input of the graph"}});
}

TEST_CASE("pieces that lie in one value are views of it") {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 8, 16});
  const auto a = tiny.node("Sigmoid", {x}, "a");
  const auto low = slice(tiny, a, 1, 0, 4, "low");
  const auto high = slice(tiny, a, 1, -4, 100, "high");
  const auto part = tiny.node("Flatten", {slice(tiny, high, 1, 1, 4, "part")}, "flat");
  const auto inner = slice(tiny, a, 2, 0, 8, "inner");  // Eight pieces.
  const auto small = slice(tiny, a, 1, 2, 3, "small");  // A waste of the rest.
  const davit::ir::Module module =
      tiny.build({tiny.node("Sin", {low}, "y0"), tiny.node("Sin", {part}, "y1"),
                  tiny.node("Sin", {inner}, "y2"), tiny.node("Sin", {small}, "y3"),
                  slice(tiny, a, 1, 0, 4, "y4")});
  const ImageModel model = lower(module);
  CHECK(count_of(model, "Slice") == 4);
  const auto offsets = offsets_of(model);
  CHECK(offsets.at("low") == offsets.at("a"));
  CHECK(offsets.count("high") == 1);
  CHECK(offsets.at("high") == offsets.at("a") + 256);
  CHECK(count_of(lower(module, {.view_parts = false}), "Slice") == 6);
}

TEST_CASE("in place can be switched off") {
  TinyModule tiny;
  const auto x = tiny.input("x", {16});
  const auto a = tiny.node("Sigmoid", {x}, "a");
  const auto y = tiny.node("Sin", {tiny.node("Relu", {a}, "b")}, "y");
  const davit::ir::Module module = tiny.build({y});
  CHECK(lower(module).arena_bytes == 64);
  CHECK(lower(module, {.work_in_place = false}).arena_bytes == 128);
}
