// Definitions of pointwise, movement and shape operators: versions, inference, recipes, costs.
#include <doctest/doctest.h>

#include <functional>

#include "ops/kernels/elementwise.h"
#include "ops/kernels/movement.h"
#include "tests/ops/harness.hpp"

using namespace davit;
using namespace davit::test;

namespace {

using I64s = std::vector<int64_t>;

ir::TensorData f32(const Dims& dims, const std::vector<float>& values) {
  return tensor<float>(DVT_F32, dims, values);
}

template <class T>
std::vector<T> values_of(Result<std::vector<ir::TensorData>>& outputs, size_t index = 0) {
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  const auto span = (*outputs)[index].as<T>();
  return {span.begin(), span.end()};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("versions: the definition follows the opset") {
  const auto since = [](const char* op, int64_t opset) {
    OneNode node(op, opset);
    node.unknown_input().unknown_input();
    (void)node.infer();
    return node.definition == nullptr ? 0 : node.definition->since_version;
  };
  CHECK(since("Add", 6) == 6);
  CHECK(since("Add", 7) == 7);
  CHECK(since("Add", 21) == 7);
  CHECK(since("Slice", 9) == 1);
  CHECK(since("Slice", 10) == 10);
  CHECK(since("Squeeze", 12) == 1);
  CHECK(since("Squeeze", 13) == 13);
  CHECK(since("Pad", 21) == 18);
  CHECK(since("Max", 7) == 6);
  CHECK(since("Max", 8) == 8);
  CHECK(since("Expand", 7) == 0);
  CHECK(since("NoSuchOperator", 13) == 0);
  OneNode long_name("Relu", 13);
  long_name.input(DVT_F32, Dims{2});
  CHECK(long_name.infer().ok());
}

TEST_CASE("broadcasting keeps symbols; opset 6 takes shapes from input 0") {
  OneNode add("Add", 13);
  const ir::Dim n = add.symbol("N");
  add.input(DVT_F32, {n, ir::Dim(1), ir::Dim(4)}).input(DVT_F32, {ir::Dim(3), ir::Dim(1)});
  CHECK(add.shape() == "[N,3,4]");
  CHECK(OneNode("Add", 13).input(DVT_F32, Dims{2}).unknown_input().shape() == "none");
  CHECK(contains(OneNode("Add", 13).input(DVT_F32, Dims{2}).input(DVT_F32, Dims{3}).shape(),
                 "expected [2]; got [3]"));
  CHECK(contains(OneNode("Add", 13).input(DVT_F32, Dims{2}).input(DVT_I32, Dims{2}).shape(),
                 "expected f32; got i32"));
  const auto six = [](Dims a, Dims b, int64_t broadcast, std::optional<int64_t> axis) {
    OneNode node("Add", 6);
    node.input(DVT_F32, a).input(DVT_F32, b).attribute("broadcast", broadcast);
    if (axis) node.attribute("axis", *axis);
    return node.shape();
  };
  CHECK(six({2, 3, 4}, {3}, 1, 1) == "[2,3,4]");
  CHECK(six({2, 3, 4}, {3, 4}, 1, std::nullopt) == "[2,3,4]");
  CHECK(six({2, 3, 4}, {2, 3, 4}, 0, std::nullopt) == "[2,3,4]");
  CHECK(contains(six({2, 3, 4}, {3}, 0, std::nullopt), "does not fit"));
  CHECK(contains(six({2, 3, 4}, {3}, 1, 2), "does not fit"));
  CHECK(contains(six({2, 3, 4}, {3}, 1, 9), "does not fit"));
  CHECK(contains(six({2, 3, 4}, {3}, 1, -9), "does not fit"));
  auto placed = OneNode("Mul", 6)
                    .constant(f32({2, 2, 1}, {1, 2, 3, 4}))
                    .constant(f32({2}, {10, 100}))
                    .attribute("broadcast", int64_t{1})
                    .attribute("axis", int64_t{0})
                    .evaluate();
  CHECK(values_of<float>(placed) == std::vector<float>{10, 20, 300, 400});
}

TEST_CASE("comparisons and predicates yield bool; Where checks its condition") {
  OneNode less("Less", 9);
  less.input(DVT_F32, Dims{2}).input(DVT_F32, Dims{1});
  CHECK(less.shape() == "[2]");
  CHECK(less.found[0].dtype == DVT_BOOL);
  CHECK(contains(OneNode("Where", 9)
                     .input(DVT_F32, Dims{})
                     .input(DVT_F32, Dims{})
                     .input(DVT_F32, Dims{})
                     .shape(),
                 "expected bool; got f32"));
  CHECK(contains(OneNode("Mod", 13).input(DVT_F32, Dims{}).input(DVT_F32, Dims{}).shape(), "fmod"));
}

TEST_CASE("activations: defaults of the standard, attributes, and Clip in both forms") {
  auto leaky = OneNode("LeakyRelu", 16).constant(f32({2}, {-1, 1})).evaluate();
  CHECK(values_of<float>(leaky) == std::vector<float>{-0.01F, 1});
  auto hard =
      OneNode("HardSigmoid", 6).constant(f32({2}, {1, 0})).attribute("alpha", 0.25F).evaluate();
  CHECK(values_of<float>(hard) == std::vector<float>{0.75F, 0.5F});
  auto six = OneNode("Clip", 6)
                 .constant(f32({3}, {-9, 0, 9}))
                 .attribute("min", -1.0F)
                 .attribute("max", 1.0F)
                 .evaluate();
  CHECK(values_of<float>(six) == std::vector<float>{-1, 0, 1});
  auto eleven = OneNode("Clip", 11)
                    .constant(f32({3}, {-9, 0, INFINITY}))
                    .absent_input()
                    .constant(f32({}, {-3}))
                    .evaluate();
  CHECK(values_of<float>(eleven) == std::vector<float>{-9, -3, -3});
  auto open = OneNode("Clip", 11).constant(f32({1}, {INFINITY})).evaluate();
  CHECK(values_of<float>(open) == std::vector<float>{std::numeric_limits<float>::max()});
  CHECK(contains(OneNode("Clip", 12).input(DVT_F32, Dims{1}).input(DVT_F32, Dims{2}).shape(),
                 "min must be a scalar"));
}

TEST_CASE("Cast: target type, views, and what cannot be cast") {
  const auto cast = [](ir::TensorData data, int64_t to) {
    return OneNode("Cast", 13).constant(std::move(data)).attribute("to", to).evaluate();
  };
  auto rounded = cast(f32({3}, {1.9F, -1.9F, 3e9F}), DVT_I32);
  CHECK(values_of<int32_t>(rounded) == std::vector<int32_t>{1, -1, INT32_MAX});
  auto same = cast(f32({1}, {1.5F}), DVT_F32);
  CHECK(values_of<float>(same) == std::vector<float>{1.5F});
  // A1: an element type outside the enumeration, or one without kernels.
  for (const int64_t to : {int64_t{0}, int64_t{15}, int64_t{14}, int64_t{255}, int64_t{256 + 1},
                           int64_t{-1}, INT64_MAX, INT64_MIN}) {
    auto bad = cast(f32({1}, {1}), to);
    REQUIRE(!bad.ok());
    CHECK(bad.status().code() == DVT_UNSUPPORTED);
  }
}

TEST_CASE("an element type without a kernel is refused with those that have one") {
  OneNode node("Sqrt", 13);
  node.input(DVT_I32, Dims{2});
  REQUIRE(node.infer().ok());
  const auto recipe = node.definition->recipe(node.view());
  REQUIRE(!recipe.ok());
  CHECK(recipe.status().code() == DVT_UNSUPPORTED);
  CHECK(contains(recipe.status().to_string(), "expected f32, f16, f64, bf16; got i32"));
}

TEST_CASE("Reshape: 0, -1, allowzero and symbols") {
  const auto reshape = [](Dims dims, I64s target, int64_t allow_zero = 0) {
    OneNode node("Reshape", 14);
    node.input(DVT_F32, dims).constant_i64(target);
    if (allow_zero != 0) node.attribute("allowzero", allow_zero);
    return node.shape();
  };
  CHECK(reshape({2, 3, 4}, {4, -1}) == "[4,6]");
  CHECK(reshape({2, 3, 4}, {0, 0, 2, 2}) == "[2,3,2,2]");
  CHECK(reshape({2, 3, 4}, {0, -1}) == "[2,12]");
  CHECK(reshape({0, 3}, {-1, 3}) == "[0,3]");
  CHECK(reshape({0, 3}, {3, 0}, 1) == "[3,0]");
  CHECK(reshape({1}, {}) == "[]");
  CHECK(contains(reshape({2, 3}, {4, -1}), "no solution"));
  CHECK(contains(reshape({2, 3}, {-1, -1}), "more than one -1"));
  CHECK(contains(reshape({2, 3}, {-2}), "negative"));
  CHECK(contains(reshape({2, 3}, {5}), "expected [2,3]; got [5]"));
  CHECK(contains(reshape({2, 3}, {6, 1, 0}), "no input axis"));
  CHECK(contains(reshape({0, 3}, {0, -1}, 1), "no solution"));
  CHECK(reshape({INT64_MAX, INT64_MAX}, {-1}) == "[?]");
  // A product above 2^63 is no unknown: a hint about free dimensions would mislead.
  constexpr int64_t kHuge = int64_t{1} << 62;
  CHECK(contains(reshape({2, 3}, {kHuge, 4, -1}),
                 "more elements than the input; expected [2,3]; got [4611686018427387904,4,?]"));
  CHECK(contains(reshape({2, 3}, {kHuge, 4}),
                 "another number of elements than the input; expected [2,3]; got [46116860"));
  CHECK(reshape({0, 3}, {kHuge, 4, -1}) == "[4611686018427387904,4,0]");
  const auto symbolic = [](const std::function<ir::Shape(OneNode&)>& shape, I64s target) {
    OneNode node("Reshape", 13);
    node.input(DVT_F32, shape(node)).constant_i64(target);
    return node.shape();
  };
  const auto nchw = [](OneNode& n) {
    return ir::Shape{n.symbol("N"), ir::Dim(3), n.symbol("H"), ir::Dim(4)};
  };
  CHECK(symbolic(nchw, {0, -1}) == "[N,?]");
  CHECK(symbolic(nchw, {0, 12, -1}) == "[N,12,H]");
  CHECK(symbolic(nchw, {0, 0, -1, 4}) == "[N,3,H,4]");
  CHECK(symbolic(nchw, {-1, 12}) == "[?,12]");
  CHECK(symbolic(
            [](OneNode& n) {
              return ir::Shape{n.symbol("N"), ir::Dim(6)};
            },
            {-1, 2, 3}) == "[N,2,3]");
  CHECK(symbolic([](OneNode&) { return ir::Shape{ir::Dim(), ir::Dim(6)}; }, {0, -1}) == "[?,6]");
  OneNode by_rank("Reshape", 13);
  by_rank.input(DVT_F32, Dims{2, 3}).input(DVT_I64, Dims{3});
  CHECK(by_rank.shape() == "[?,?,?]");
  OneNode huge("Reshape", 13);
  huge.input(DVT_F32, Dims{2, 3}).input(DVT_I64, Dims{int64_t{1} << 40});
  CHECK(huge.shape() == "none");
}

TEST_CASE("Flatten, Squeeze and Unsqueeze") {
  const auto flatten = [](int64_t opset, int64_t axis) {
    OneNode node("Flatten", opset);
    node.input(DVT_F32, {node.symbol("N"), ir::Dim(2), ir::Dim(3)}).attribute("axis", axis);
    return node.shape();
  };
  CHECK(flatten(9, 1) == "[N,6]");
  CHECK(flatten(9, 0) == "[1,?]");
  CHECK(flatten(9, 3) == "[?,1]");
  CHECK(flatten(11, -1) == "[?,3]");
  CHECK(contains(flatten(9, -1), "out of range"));
  CHECK(contains(flatten(11, 4), "out of range"));
  CHECK(OneNode("Squeeze", 11).input(DVT_F32, Dims{1, 2, 1}).attribute("axes", I64s{-1}).shape() ==
        "[1,2]");
  CHECK(OneNode("Squeeze", 13).input(DVT_F32, Dims{1, 2, 1}).constant_i64({0, 2}).shape() == "[2]");
  CHECK(OneNode("Squeeze", 13).input(DVT_F32, Dims{1, 2, 1}).shape() == "[2]");
  CHECK(OneNode("Squeeze", 13).input(DVT_F32, Dims{1, 2}).input(DVT_I64, Dims{1}).shape() ==
        "none");
  CHECK(contains(OneNode("Squeeze", 13).input(DVT_F32, Dims{1, 2}).constant_i64({1}).shape(),
                 "cannot be squeezed"));
  OneNode free("Squeeze", 13);
  free.input(DVT_F32, {free.symbol("N"), ir::Dim(1)});
  CHECK(free.shape() == "none");  // N may be 1.
  CHECK(OneNode("Unsqueeze", 11).input(DVT_F32, Dims{2}).attribute("axes", I64s{0, -1}).shape() ==
        "[1,2,1]");
  CHECK(OneNode("Unsqueeze", 13).input(DVT_F32, Dims{2}).constant_i64({2, 0}).shape() == "[1,2,1]");
  CHECK(contains(OneNode("Unsqueeze", 13).input(DVT_F32, Dims{2}).constant_i64({0, -3}).shape(),
                 "twice"));
  CHECK(contains(OneNode("Unsqueeze", 13).input(DVT_F32, Dims{2}).constant_i64({3}).shape(),
                 "out of range"));
  CHECK(contains(OneNode("Unsqueeze", 11).input(DVT_F32, Dims{2}).shape(), "missing"));
}

TEST_CASE("Shape, Size and Constant are constants when shapes are known") {
  OneNode shape("Shape", 15);
  shape.input(DVT_F32, {shape.symbol("N"), ir::Dim(3), ir::Dim(4)})
      .attribute("start", int64_t{-2})
      .attribute("end", int64_t{99});
  CHECK(shape.shape() == "[2]");
  REQUIRE(shape.found[0].constant);
  CHECK(*shape.found[0].constant->to_i64() == I64s{3, 4});
  OneNode open("Shape", 13);
  open.input(DVT_F32, {open.symbol("N"), ir::Dim(3)});
  CHECK(open.shape() == "[2]");
  CHECK(!open.found[0].constant);
  OneNode size("Size", 13);
  size.input(DVT_F32, Dims{3, 5});
  REQUIRE(size.infer().ok());
  CHECK(*size.found[0].constant->to_i64() == I64s{15});
  OneNode overflow("Size", 13);
  overflow.input(DVT_F32, Dims{INT64_MAX, 3});
  CHECK(!overflow.infer().ok());
  OneNode floats("Constant", 13);
  floats.attribute("value_floats", std::vector<float>{1, 2});
  CHECK(floats.shape() == "[2]");
  CHECK(floats.found[0].dtype == DVT_F32);
  CHECK(!OneNode("Constant", 13).infer().ok());
  // Kernels give the same, where a Shape node stays.
  auto evaluated = OneNode("Shape", 15)
                       .constant(f32({2, 3}, std::vector<float>(6)))
                       .attribute("start", int64_t{1})
                       .evaluate();
  CHECK(values_of<int64_t>(evaluated) == I64s{3});
}

TEST_CASE("Concat joins what it knows") {
  OneNode node("Concat", 11);
  node.input(DVT_F32, {node.symbol("N"), ir::Dim(2), ir::Dim()})
      .input(DVT_F32, {ir::Dim(), ir::Dim(3), ir::Dim(7)})
      .attribute("axis", int64_t{-2});
  CHECK(node.shape() == "[N,5,7]");
  const auto concat = [](Dims a, Dims b, int64_t axis) {
    return OneNode("Concat", 13)
        .input(DVT_F32, a)
        .input(DVT_F32, b)
        .attribute("axis", axis)
        .shape();
  };
  CHECK(concat({2, 3}, {0, 3}, 0) == "[2,3]");
  CHECK(contains(concat({2, 3}, {2, 4}, 0), "does not fit"));
  CHECK(contains(concat({2, 3}, {2}, 0), "does not fit"));
  CHECK(contains(concat({2, 3}, {2, 3}, 2), "out of range"));
  CHECK(concat({INT64_MAX}, {INT64_MAX}, 0) == "[?]");
  CHECK(contains(OneNode("Concat", 13)
                     .input(DVT_F32, Dims{1})
                     .absent_input()
                     .input(DVT_F32, Dims{1})
                     .attribute("axis", int64_t{0})
                     .shape(),
                 "input 1 is missing"));
  CHECK(contains(OneNode("Concat", 13).input(DVT_F32, Dims{1}).shape(), "axis is missing"));
  auto evaluated = OneNode("Concat", 4)
                       .constant(f32({1, 2}, {1, 2}))
                       .constant(f32({1, 1}, {3}))
                       .attribute("axis", int64_t{1})
                       .evaluate();
  CHECK(values_of<float>(evaluated) == std::vector<float>{1, 2, 3});
}

TEST_CASE("Split: sizes by attribute, input, number and default") {
  const auto sizes = [](OneNode& node, uint32_t count) {
    node.outputs(count);
    Status status = node.infer();
    if (!status.ok()) return status.to_string();
    std::string text;
    for (const auto& output : node.found) text += std::to_string((*output.shape)[0].extent()) + " ";
    return text;
  };
  OneNode equal("Split", 11);
  CHECK(sizes(equal.input(DVT_F32, Dims{6}), 3) == "2 2 2 ");
  OneNode attribute("Split", 2);
  CHECK(sizes(attribute.input(DVT_F32, Dims{6}).attribute("split", I64s{1, 5}), 2) == "1 5 ");
  OneNode input("Split", 13);
  CHECK(sizes(input.input(DVT_F32, Dims{6}).constant_i64({6, 0}), 2) == "6 0 ");
  OneNode uneven("Split", 18);
  CHECK(sizes(uneven.input(DVT_F32, Dims{7}).attribute("num_outputs", int64_t{3}), 3) == "3 3 1 ");
  OneNode indivisible("Split", 13);
  CHECK(contains(sizes(indivisible.input(DVT_F32, Dims{7}), 3), "equal parts"));
  OneNode wrong_sum("Split", 13);
  CHECK(contains(sizes(wrong_sum.input(DVT_F32, Dims{6}).constant_i64({1, 2}), 2), "add up"));
  OneNode overflow("Split", 13);
  CHECK(contains(sizes(overflow.input(DVT_F32, Dims{0}).constant_i64({INT64_MAX, INT64_MAX, 2}), 3),
                 "add up"));
  OneNode wrong_count("Split", 13);
  CHECK(contains(sizes(wrong_count.input(DVT_F32, Dims{6}).constant_i64({6}), 2), "add up"));
  OneNode negative("Split", 13);
  CHECK(contains(sizes(negative.input(DVT_F32, Dims{6}).constant_i64({7, -1}), 2), "negative"));
  auto evaluated = OneNode("Split", 13).constant(f32({4}, {1, 2, 3, 4})).outputs(2).evaluate();
  CHECK(values_of<float>(evaluated, 1) == std::vector<float>{3, 4});
}

TEST_CASE("Transpose: permutations, and views where no element moves") {
  CHECK(OneNode("Transpose", 13).input(DVT_F32, Dims{2, 3, 4}).shape() == "[4,3,2]");
  const auto transpose = [](Dims dims, I64s perm) {
    OneNode node("Transpose", 13);
    node.input(DVT_F32, dims).attribute("perm", perm);
    REQUIRE(node.infer().ok());
    return node.definition->recipe(node.view())->is_alias;
  };
  CHECK(transpose({1, 5, 1, 1}, {0, 2, 3, 1}));
  CHECK(!transpose({1, 5, 2, 1}, {0, 2, 3, 1}));
  for (const I64s& perm : {I64s{0}, I64s{0, 0}, I64s{0, 2}, I64s{-1, 0}, I64s{0, INT64_MIN}}) {
    CHECK(contains(
        OneNode("Transpose", 13).input(DVT_F32, Dims{2, 3}).attribute("perm", perm).shape(),
        "not a permutation"));
  }
}

TEST_CASE("Slice: clamping, negative steps, extremes, and axes left unknown") {
  const auto slice = [](const I64s& starts, const I64s& ends, const I64s& axes, const I64s& steps) {
    std::vector<float> values(10);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    OneNode node("Slice", 13);
    node.constant(f32({10}, values)).constant_i64(starts).constant_i64(ends);
    node.constant_i64(axes).constant_i64(steps);
    auto outputs = node.evaluate();
    if (!outputs.ok()) return outputs.status().to_string();
    std::string text;
    for (const float value : values_of<float>(outputs)) text += std::to_string(int(value)) + " ";
    return text;
  };
  CHECK(slice({2}, {5}, {0}, {1}) == "2 3 4 ");
  CHECK(slice({-3}, {INT64_MAX}, {-1}, {1}) == "7 8 9 ");
  CHECK(slice({8}, {INT64_MIN}, {0}, {-3}) == "8 5 2 ");
  CHECK(slice({INT64_MAX}, {INT64_MIN}, {0}, {-4}) == "9 5 1 ");
  CHECK(slice({INT64_MIN}, {INT64_MAX}, {0}, {INT64_MAX}) == "0 ");
  CHECK(slice({-1}, {INT64_MIN}, {0}, {INT64_MIN}) == "9 ");
  CHECK(slice({5}, {5}, {0}, {1}).empty());
  CHECK(slice({20}, {30}, {0}, {1}).empty());
  CHECK(slice({0}, {9}, {0}, {-1}).empty());
  CHECK(contains(slice({0}, {9}, {0}, {0}), "step is zero"));
  CHECK(contains(slice({0, 0}, {9, 9}, {0, -1}, {1, 1}), "twice"));
  CHECK(contains(slice({0}, {9}, {1}, {1}), "out of range"));
  CHECK(contains(slice({0}, {9, 9}, {0}, {1}), "ends must have one entry"));
  auto nine = OneNode("Slice", 9)
                  .constant(f32({4}, {1, 2, 3, 4}))
                  .attribute("starts", I64s{1})
                  .attribute("ends", I64s{-1})
                  .evaluate();
  CHECK(values_of<float>(nine) == std::vector<float>{2, 3});
  OneNode symbolic("Slice", 13);
  symbolic.input(DVT_F32, {symbolic.symbol("N"), symbolic.symbol("M"), ir::Dim(8)})
      .constant_i64({0, 1, 2})
      .constant_i64({INT64_MAX, 3, 4});
  CHECK(symbolic.shape() == "[N,?,2]");
  OneNode open("Slice", 13);
  open.input(DVT_F32, Dims{4, 5}).input(DVT_I64, Dims{1}).input(DVT_I64, Dims{1});
  CHECK(open.shape() == "[?,5]");
  const auto recipe = open.definition->recipe(open.view());
  REQUIRE(recipe.ok());
  CHECK(recipe->inputs == std::vector<uint32_t>{0, 1, 2});
  CHECK(contains(OneNode("Slice", 13)
                     .input(DVT_F32, Dims{4})
                     .input(DVT_I64, Dims{int64_t{1} << 40})
                     .input(DVT_I64, Dims{1})
                     .shape(),
                 "more entries"));
}

TEST_CASE("Pad: forms of the opsets, modes and limits") {
  auto two = OneNode("Pad", 2)
                 .constant(f32({2}, {1, 2}))
                 .attribute("pads", I64s{1, -1})
                 .attribute("value", 9.0F)
                 .evaluate();
  CHECK(values_of<float>(two) == std::vector<float>{9, 1});
  auto eleven = OneNode("Pad", 11)
                    .constant(f32({2}, {1, 2}))
                    .constant_i64({1, 1})
                    .constant(f32({}, {7}))
                    .evaluate();
  CHECK(values_of<float>(eleven) == std::vector<float>{7, 1, 2, 7});
  auto eighteen = OneNode("Pad", 18)
                      .constant(f32({2, 1}, {1, 2}))
                      .constant_i64({1, 0})
                      .absent_input()
                      .constant_i64({-2})
                      .attribute("mode", std::string("edge"))
                      .evaluate();
  CHECK(values_of<float>(eighteen) == std::vector<float>{1, 1, 2});
  const auto pad = [](Dims dims, I64s pads, std::string mode, int64_t opset = 13) {
    return OneNode("Pad", opset)
        .input(DVT_F32, dims)
        .constant_i64(pads)
        .attribute("mode", std::move(mode))
        .shape();
  };
  CHECK(pad({2, 3}, {0, 1, 0, 2}, "reflect") == "[2,6]");
  CHECK(pad({2}, {1, 1}, "wrap", 19) == "[4]");
  CHECK(contains(pad({2}, {1, 1}, "wrap", 18), "mode"));
  CHECK(contains(pad({2}, {1, 1}, "mirror"), "mode"));
  CHECK(contains(pad({2}, {1}, "constant"), "two entries"));
  CHECK(contains(pad({2}, {-3, 5}, "constant"), "do not fit"));
  CHECK(contains(pad({2}, {INT64_MAX, 1}, "constant"), "do not fit"));
  CHECK(contains(pad({2}, {INT64_MIN, INT64_MAX}, "constant"), "do not fit"));
  CHECK(contains(pad({0}, {1, 1}, "edge"), "do not fit"));
  CHECK(contains(pad({2, 2}, {INT64_MAX / 2, INT64_MAX / 2, 0, 0}, "constant"), "too many"));
  OneNode symbolic("Pad", 13);
  symbolic.input(DVT_F32, {symbolic.symbol("N"), symbolic.symbol("H")}).constant_i64({0, 1, 0, 1});
  CHECK(symbolic.shape() == "[N,?]");
}

TEST_CASE("Gather, Expand, Tile and ConstantOfShape") {
  OneNode gather("Gather", 13);
  gather.input(DVT_F32, {gather.symbol("V"), ir::Dim(8)})
      .input(DVT_I64, {gather.symbol("B"), gather.symbol("S")});
  CHECK(gather.shape() == "[B,S,8]");
  CHECK(contains(OneNode("Gather", 13).input(DVT_F32, Dims{2}).input(DVT_F32, Dims{1}).shape(),
                 "i32 or i64"));
  OneNode expand("Expand", 13);
  expand.input(DVT_F32, {expand.symbol("N"), ir::Dim(1)}).constant_i64({2, 1, 5});
  CHECK(expand.shape() == "[2,N,5]");
  CHECK(contains(OneNode("Expand", 13).input(DVT_F32, Dims{3}).constant_i64({4}).shape(),
                 "does not broadcast"));
  CHECK(contains(
      OneNode("Expand", 13).input(DVT_F32, Dims{1}).constant_i64({INT64_MAX, INT64_MAX}).shape(),
      "too many"));
  CHECK(OneNode("Tile", 13).input(DVT_F32, Dims{2, 3}).constant_i64({2, 0}).shape() == "[4,0]");
  CHECK(contains(OneNode("Tile", 13).input(DVT_F32, Dims{2}).constant_i64({INT64_MAX}).shape(),
                 "out of range"));
  CHECK(contains(OneNode("Tile", 13).input(DVT_F32, Dims{2}).constant_i64({1, 1}).shape(),
                 "one entry per axis"));
  auto filled = OneNode("ConstantOfShape", 9)
                    .constant_i64({2, 2})
                    .attribute("value", tensor<int32_t>(DVT_I32, {1}, {-7}))
                    .evaluate();
  CHECK(values_of<int32_t>(filled) == std::vector<int32_t>{-7, -7, -7, -7});
  auto zeros = OneNode("ConstantOfShape", 9).constant_i64({2}).evaluate();
  CHECK(values_of<float>(zeros) == std::vector<float>{0, 0});
  CHECK(contains(OneNode("ConstantOfShape", 9).constant_i64({-1}).shape(), "negative"));
  CHECK(contains(OneNode("ConstantOfShape", 9).constant_i64({1 << 30, 1 << 30, 8}).shape(),
                 "too many"));
  // Folding has a limit of its own, far below what a tensor may hold.
  auto large = OneNode("ConstantOfShape", 9).constant_i64({int64_t{1} << 40}).evaluate();
  REQUIRE(!large.ok());
  CHECK(large.status().code() == DVT_OUT_OF_MEMORY);
}

TEST_CASE("costs count elements, passes and bytes") {
  OneNode add("Add", 13);
  add.input(DVT_F32, Dims{4, 8}).input(DVT_F32, Dims{8});
  REQUIRE(add.infer().ok());
  const DvtTaskCost cost = add.definition->cost(add.view());
  CHECK(cost.kind == DVT_TASK_VECTOR);
  CHECK(cost.dtype == DVT_F32);
  CHECK(cost.vector_elements == 32);
  CHECK(cost.vector_passes_x100 == 200);
  CHECK(cost.read_bytes == 32 * 4 + 8 * 4);
  CHECK(cost.write_bytes == 32 * 4);
  OneNode wide("Add", 13);
  wide.input(DVT_I64, Dims{2}).input(DVT_I64, Dims{2});
  REQUIRE(wide.infer().ok());
  CHECK(wide.definition->cost(wide.view()).kind == DVT_TASK_AICPU);
  // Every pointwise definition has an entry in the table of passes.
  for (const auto& definition : ops::all_operators()) {
    if (definition.cost != add.definition->cost) continue;
    INFO(std::string(definition.name));
    OneNode node(std::string(definition.name), definition.since_version);
    for (uint32_t i = 0; i < definition.input_min; ++i) node.input(DVT_F32, Dims{2});
    node.attribute("to", int64_t{DVT_I32}).attribute("fmod", int64_t{1});
    (void)node.infer();
    CHECK(definition.cost(node.view()).vector_passes_x100 > 0);
  }
}
