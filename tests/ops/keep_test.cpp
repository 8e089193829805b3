// Operators whose output shapes depend on data, against the same written out.
#include "ops/kernels/keep.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

constexpr DvtDType kTypes[] = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I8,  DVT_U8,
                               DVT_I16, DVT_I32, DVT_U32, DVT_I64,  DVT_U64, DVT_BOOL};

Dims random_dims(Source& random, int64_t rank_min) {
  Dims dims(size_t(random.between(rank_min, 4)));
  for (int64_t& dim : dims) dim = random.between(random.between(0, 11) == 0 ? 0 : 1, 4);
  return dims;
}

ir::TensorData small_tensor(Source& random, DvtDType dtype, const Dims& dims) {
  Values values(product(dims));
  for (double& value : values) value = double(random.between(0, dtype == DVT_BOOL ? 1 : 2));
  return make_data(dtype, dims, values);
}

// The rows of x along an axis: each as the list of its elements.
std::vector<Values> slices_of(const Values& x, const Dims& dims, size_t axis) {
  int64_t outer = 1;
  int64_t step = 1;
  for (size_t d = 0; d < axis; ++d) outer *= dims[d];
  for (size_t d = axis + 1; d < dims.size(); ++d) step *= dims[d];
  std::vector<Values> slices(static_cast<size_t>(dims[axis]));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < dims[axis]; ++i) {
      for (int64_t s = 0; s < step; ++s) {
        slices[size_t(i)].push_back(x[size_t((o * dims[axis] + i) * step + s)]);
      }
    }
  }
  return slices;
}

}  // namespace

TEST_CASE("NonZero: every type and rank, minus zero, NaN") {
  Source random(111);
  for (int round = 0; round < 200; ++round) {
    const DvtDType dtype = kTypes[random.between(0, 11)];
    const Dims dims = random_dims(random, 0);
    const auto x = small_tensor(random, dtype, dims);
    OneNode node("NonZero", 13);
    const auto y = node.constant(x).evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const Dims counted = dims.empty() ? Dims{1} : dims;
    std::vector<Values> rows(counted.size());
    const Values values = to_values(x);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0.0) continue;
      auto rest = int64_t(i);
      for (size_t d = counted.size(); d-- > 0;) {
        rows[d].push_back(double(rest % counted[d]));
        rest /= counted[d];
      }
    }
    Values expected;
    for (const Values& row : rows) expected.insert(expected.end(), row.begin(), row.end());
    CHECK((*y)[0].dims == Dims{int64_t(counted.size()), int64_t(rows[0].size())});
    CHECK(to_values((*y)[0]) == expected);
  }
  OneNode special("NonZero", 13);
  CHECK(to_values((*special.constant(make_data(DVT_F32, {3}, {-0.0, NAN, 1e-45})).evaluate())[0]) ==
        Values{1, 2});
  OneNode open("NonZero", 13);
  CHECK(open.input(DVT_F32, Dims{2, 3}).shape() == "[2,?]");
  CHECK(OneNode("NonZero", 13).unknown_input().shape() == "[?,?]");
}

TEST_CASE("Compress: along every axis and flat, short conditions") {
  Source random(112);
  for (int round = 0; round < 200; ++round) {
    const DvtDType dtype = kTypes[random.between(0, 11)];
    const Dims dims = random_dims(random, 1);
    const auto rank = int64_t(dims.size());
    const bool flat = random.flip();
    const int64_t axis = random.between(-rank, rank - 1);
    const auto along = size_t(axis < 0 ? axis + rank : axis);
    const auto x = small_tensor(random, dtype, dims);
    const Dims items = flat ? Dims{int64_t(product(dims))} : dims;
    const size_t item_axis = flat ? 0 : along;
    Values condition(size_t(random.between(0, items[item_axis])));
    for (double& keep : condition) keep = double(random.between(0, 1));
    OneNode node("Compress", 11);
    if (!flat) node.attribute("axis", axis);
    node.constant(x).constant(make_data(DVT_BOOL, {int64_t(condition.size())}, condition));
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const auto kept = int64_t(std::count(condition.begin(), condition.end(), 1.0));
    Dims out = items;
    out[item_axis] = kept;
    CHECK((*y)[0].dims == out);
    std::vector<Values> expected;
    const auto slices = slices_of(to_values(x), items, item_axis);
    for (size_t i = 0; i < condition.size(); ++i) {
      if (condition[i] != 0.0) expected.push_back(slices[i]);
    }
    CHECK(slices_of(to_values((*y)[0]), out, item_axis) == expected);
  }
  using V = std::vector<Operand>;
  const DvtKeepAttributes flat{.axis = 0, .flat = 1, .sorted = 0};
  const Operand x(DVT_F32, {2});
  CHECK(refusal("Compress", V{x, Operand(DVT_BOOL, {3})}, V{x}, &flat) ==
        "condition: expected at most 2 on one axis, got shape [3]");
  CHECK(refusal("Compress", V{x, Operand(DVT_U8, {2})}, V{x}, &flat) ==
        "condition: expected dtype bool, got u8");
}

TEST_CASE("Unique: sorted and by appearance, flat and slices, all outputs") {
  Source random(113);
  for (int round = 0; round < 250; ++round) {
    const DvtDType dtype = kTypes[random.between(0, 11)];
    const Dims dims = random_dims(random, 1);
    const auto rank = int64_t(dims.size());
    const bool flat = random.flip();
    const bool sorted = random.flip();
    const int64_t axis = random.between(-rank, rank - 1);
    const auto along = size_t(axis < 0 ? axis + rank : axis);
    const auto x = small_tensor(random, dtype, dims);
    const Dims items = flat ? Dims{int64_t(product(dims))} : dims;
    const size_t item_axis = flat ? 0 : along;
    const auto slices = slices_of(to_values(x), items, item_axis);
    std::vector<Values> distinct;
    for (const Values& slice : slices) {
      if (std::find(distinct.begin(), distinct.end(), slice) == distinct.end()) {
        distinct.push_back(slice);
      }
    }
    if (sorted) std::sort(distinct.begin(), distinct.end());
    Values first, inverse, counts(distinct.size(), 0.0);
    for (const Values& slice : distinct) {
      first.push_back(double(std::find(slices.begin(), slices.end(), slice) - slices.begin()));
    }
    for (const Values& slice : slices) {
      const auto at = std::find(distinct.begin(), distinct.end(), slice) - distinct.begin();
      inverse.push_back(double(at));
      counts[size_t(at)] += 1.0;
    }
    OneNode node("Unique", 11);
    if (!flat) node.attribute("axis", axis);
    node.attribute("sorted", int64_t{sorted}).constant(x);
    const uint32_t outputs = uint32_t(random.between(1, 4));
    const auto y = node.outputs(outputs).evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    Dims out = items;
    out[item_axis] = int64_t(distinct.size());
    CHECK((*y)[0].dims == out);
    CHECK(slices_of(to_values((*y)[0]), out, item_axis) == distinct);
    if (outputs > 1) CHECK(to_values((*y)[1]) == first);
    if (outputs > 2) CHECK(to_values((*y)[2]) == inverse);
    if (outputs > 3) CHECK(to_values((*y)[3]) == counts);
  }
  OneNode nan("Unique", 11);
  nan.constant(make_data(DVT_F32, {5}, {NAN, -0.0, NAN, 0.0, 1})).outputs(4);
  const auto y = nan.evaluate();
  CHECK(to_values((*y)[1]) == Values{1, 4, 0});
  CHECK(to_values((*y)[3]) == Values{2, 1, 2});
}

namespace {

struct Scene {
  int64_t batches, classes, boxes;
  Values corners, scores;
};

double overlap(const double* a, const double* b) {
  const auto low = [](const double* box, int d) { return std::min(box[d], box[d + 2]); };
  const auto high = [](const double* box, int d) { return std::max(box[d], box[d + 2]); };
  double intersection = 1.0, area_a = 1.0, area_b = 1.0;
  for (int d = 0; d < 2; ++d) {
    intersection *=
        std::max(0.0, std::min(high(a, d), high(b, d)) - std::max(low(a, d), low(b, d)));
    area_a *= high(a, d) - low(a, d);
    area_b *= high(b, d) - low(b, d);
  }
  return intersection > 0.0 ? intersection / (area_a + area_b - intersection) : 0.0;
}

Values suppressed(const Scene& scene, int64_t limit, double iou, const double* threshold) {
  Values kept;
  for (int64_t b = 0; b < scene.batches; ++b) {
    for (int64_t c = 0; c < scene.classes; ++c) {
      const double* scores = scene.scores.data() + (b * scene.classes + c) * scene.boxes;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < scene.boxes; ++i) {
        if (threshold == nullptr || scores[i] > *threshold) order.push_back(i);
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t i, int64_t j) { return scores[i] > scores[j]; });
      std::vector<int64_t> stay;
      for (const int64_t i : order) {
        const auto box = [&](int64_t at) {
          return &scene.corners[size_t((b * scene.boxes + at) * 4)];
        };
        const bool free = std::none_of(stay.begin(), stay.end(), [&](int64_t other) {
          return overlap(box(i), box(other)) > iou;
        });
        if (int64_t(stay.size()) < limit && free) stay.push_back(i);
      }
      for (const int64_t i : stay) kept.insert(kept.end(), {double(b), double(c), double(i)});
    }
  }
  return kept;
}

}  // namespace

TEST_CASE("NonMaxSuppression: batches, classes, thresholds, limits, both forms of boxes") {
  Source random(114);
  for (int round = 0; round < 200; ++round) {
    Scene scene{.batches = random.between(1, 2),
                .classes = random.between(1, 3),
                .boxes = random.between(0, 6),
                .corners = {},
                .scores = {}};
    const bool centred = random.flip();
    Values stated;
    for (int64_t i = 0; i < scene.batches * scene.boxes; ++i) {
      // Quarters, so that the float arithmetic is exact.
      const double y0 = double(random.between(0, 8)) / 4;
      const double x0 = double(random.between(0, 8)) / 4;
      const double h = double(random.between(1, 8)) / 4;
      const double w = double(random.between(1, 8)) / 4;
      scene.corners.insert(scene.corners.end(), {y0, x0, y0 + h, x0 + w});
      if (centred) {
        stated.insert(stated.end(), {x0 + w / 2, y0 + h / 2, w, h});
      } else if (random.flip()) {
        stated.insert(stated.end(), {y0 + h, x0, y0, x0 + w});  // Any two opposite corners.
      } else {
        stated.insert(stated.end(), {y0, x0, y0 + h, x0 + w});
      }
    }
    for (int64_t i = 0; i < scene.batches * scene.classes * scene.boxes; ++i) {
      scene.scores.push_back(double(random.between(0, 8)) / 8);
    }
    const int64_t limit = random.between(0, 4);
    const double iou = random.pick<double>({0.0, 0.25, 0.375, 0.5});
    const double threshold = random.pick<double>({0.0, 0.25, 0.5});
    const int64_t given = random.between(2, 5);
    OneNode node("NonMaxSuppression", 11);
    node.attribute("center_point_box", int64_t{centred})
        .constant(make_data(DVT_F32, {scene.batches, scene.boxes, 4}, stated))
        .constant(make_data(DVT_F32, {scene.batches, scene.classes, scene.boxes}, scene.scores));
    if (given > 2) node.constant_i64({limit});
    if (given > 3) node.constant(make_data(DVT_F32, {1}, {iou}));
    if (given > 4) node.constant(make_data(DVT_F32, {}, {threshold}));
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const Values expected = suppressed(scene, given > 2 ? limit : 0, given > 3 ? iou : 0.0,
                                       given > 4 ? &threshold : nullptr);
    CHECK((*y)[0].dims == Dims{int64_t(expected.size()) / 3, 3});
    CHECK(to_values((*y)[0]) == expected);
  }
  CHECK(OneNode("NonMaxSuppression", 11)
            .input(DVT_F32, Dims{1, 5, 4})
            .input(DVT_F32, Dims{1, 2, 6})
            .shape()
            .find("do not belong together") != std::string::npos);
}

TEST_CASE("boxes that are not numbers end the search, not the program") {
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    OneNode node("NonMaxSuppression", 11);
    node.constant(make_data(DVT_F32, {1, 3, 4}, {0, 0, 1, bad, 0, bad, 1, 1, bad, bad, bad, bad}))
        .constant(make_data(DVT_F32, {1, 1, 3}, {bad, 1, NAN}))
        .constant_i64({INT64_MAX})
        .constant(make_data(DVT_F32, {}, {0.5}));
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    CHECK((*y)[0].dims[0] <= 3);
  }
}
