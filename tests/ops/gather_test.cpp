// Gathering and scattering by index, against the definitions written out over index tuples.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "ops/kernels/index.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

using Index = std::vector<int64_t>;

Index unflatten(int64_t flat, const Dims& dims) {
  Index index(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    index[d] = flat % dims[d];
    flat /= dims[d];
  }
  return index;
}

size_t flatten(const Index& index, const Dims& dims) {
  int64_t flat = 0;
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * dims[d] + index[d];
  return size_t(flat);
}

// Indices in [-extent, extent) as i32 or i64.
ir::TensorData index_tensor(Source& random, const Dims& dims, const std::vector<int64_t>& values) {
  if (random.flip()) return ir::make_i64_tensor(dims, values);
  return make_data(DVT_I32, dims, Values(values.begin(), values.end()));
}

DvtDType pick_dtype(Source& random, bool arithmetic) {
  const DvtDType dtype = random.pick<DvtDType>(
      {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I8, DVT_U16, DVT_I32, DVT_U64, DVT_I64, DVT_BOOL});
  return arithmetic && dtype == DVT_BOOL ? DvtDType{DVT_F32} : dtype;
}

double reduced(const std::string& reduction, double old, double update) {
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (reduction == "max") return std::max(old, update);
  if (reduction == "min") return std::min(old, update);
  return update;
}

// Small whole numbers, so that sums and products are exact in every type.
ir::TensorData small_tensor(Source& random, DvtDType dtype, const Dims& dims) {
  Values values(product(dims));
  for (double& value : values) value = double(random.between(0, dtype == DVT_BOOL ? 1 : 2));
  return make_data(dtype, dims, values);
}

Dims random_dims(Source& random, size_t rank_min, size_t rank_max) {
  Dims dims(size_t(random.between(int64_t(rank_min), int64_t(rank_max))));
  for (int64_t& dim : dims) dim = random.between(1, 4);
  return dims;
}

}  // namespace

TEST_CASE("GatherElements and ScatterElements: every axis, shorter indices, all reductions") {
  Source random(81);
  for (int round = 0; round < 300; ++round) {
    const std::string reduction =
        random.pick<std::string>({"none", "none", "add", "mul", "max", "min"});
    const DvtDType dtype = pick_dtype(random, reduction != "none");
    const Dims dims = random_dims(random, 1, 4);
    const auto rank = int64_t(dims.size());
    const int64_t axis = random.between(-rank, rank - 1);
    const auto along = size_t(axis < 0 ? axis + rank : axis);
    Dims index_dims = dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      index_dims[d] = random.between(d == along || random.flip() ? 1 : 0, dims[d]);
    }
    if (random.flip()) index_dims[along] += 2;
    std::vector<int64_t> indices(product(index_dims));
    for (int64_t& index : indices) index = random.between(-dims[along], dims[along] - 1);
    const auto x = small_tensor(random, dtype, dims);
    const auto updates = small_tensor(random, dtype, index_dims);
    const auto index_data = index_tensor(random, index_dims, indices);

    OneNode gather("GatherElements", 13);
    gather.attribute("axis", axis).constant(x).constant(index_data);
    const auto got = gather.evaluate();
    REQUIRE_MESSAGE(got.ok(), got.status().to_string());
    OneNode scatter("ScatterElements", 18);
    scatter.attribute("axis", axis)
        .attribute("reduction", reduction)
        .constant(x)
        .constant(index_data)
        .constant(updates);
    const auto written = scatter.evaluate();
    REQUIRE_MESSAGE(written.ok(), written.status().to_string());

    const Values from = to_values(x);
    const Values changes = to_values(updates);
    Values gathered(indices.size());
    Values scattered = from;
    for (size_t i = 0; i < indices.size(); ++i) {
      Index at = unflatten(int64_t(i), index_dims);
      at[along] = indices[i] < 0 ? indices[i] + dims[along] : indices[i];
      gathered[i] = from[flatten(at, dims)];
      double& old = scattered[flatten(at, dims)];
      old = reduced(reduction, old, changes[i]);
    }
    CHECK((*got)[0].dims == index_dims);
    CHECK(to_values((*got)[0]) == gathered);
    // i8 wraps where products do not fit; that is tested elsewhere.
    if (dtype != DVT_I8) CHECK(to_values((*written)[0]) == scattered);
  }
}

TEST_CASE("GatherND: tuples of any length, batches") {
  Source random(82);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = pick_dtype(random, false);
    const Dims dims = random_dims(random, 1, 5);
    const auto rank = int64_t(dims.size());
    const int64_t batch = random.between(0, std::min<int64_t>(rank - 1, 2));
    const int64_t length = random.between(1, rank - batch);
    Dims index_dims(dims.begin(), dims.begin() + batch);
    for (int64_t d = random.between(0, 2); d > 0; --d) index_dims.push_back(random.between(0, 3));
    const Dims tuple_dims = index_dims;
    index_dims.push_back(length);
    if (index_dims.size() <= size_t(batch)) continue;
    std::vector<int64_t> indices(product(index_dims));
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t extent = dims[size_t(batch) + i % size_t(length)];
      indices[i] = random.between(-extent, extent - 1);
    }
    const auto x = small_tensor(random, dtype, dims);
    OneNode node("GatherND", 13);
    node.attribute("batch_dims", batch)
        .constant(x)
        .constant(index_tensor(random, index_dims, indices));
    const auto got = node.evaluate();
    REQUIRE_MESSAGE(got.ok(), got.status().to_string());
    Dims slice_dims(dims.begin() + batch + length, dims.end());
    Dims out_dims = tuple_dims;
    out_dims.insert(out_dims.end(), slice_dims.begin(), slice_dims.end());
    const Values from = to_values(x);
    Values expected(product(out_dims));
    for (size_t i = 0; i < expected.size(); ++i) {
      const Index out = unflatten(int64_t(i), out_dims);
      const Index tuple(out.begin(), out.begin() + int64_t(tuple_dims.size()));
      Index at(out.begin(), out.begin() + batch);
      for (int64_t e = 0; e < length; ++e) {
        const int64_t index = indices[flatten(tuple, tuple_dims) * size_t(length) + size_t(e)];
        at.push_back(index < 0 ? index + dims[at.size()] : index);
      }
      at.insert(at.end(), out.begin() + int64_t(tuple_dims.size()), out.end());
      expected[i] = from[flatten(at, dims)];
    }
    CHECK((*got)[0].dims == out_dims);
    CHECK(to_values((*got)[0]) == expected);
  }
}

TEST_CASE("ScatterND: slices, equal tuples in their order, all reductions") {
  Source random(83);
  for (int round = 0; round < 300; ++round) {
    const std::string reduction = random.pick<std::string>({"none", "add", "mul", "max", "min"});
    const DvtDType dtype =
        random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I32, DVT_U64, DVT_I64});
    const Dims dims = random_dims(random, 1, 4);
    const auto rank = int64_t(dims.size());
    const int64_t length = random.between(1, rank);
    const Dims tuple_dims = {random.between(0, 4)};
    const Dims index_dims = {tuple_dims[0], length};
    std::vector<int64_t> indices(product(index_dims));
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t extent = dims[i % size_t(length)];
      indices[i] = random.between(-extent, extent - 1);
    }
    Dims update_dims = tuple_dims;
    update_dims.insert(update_dims.end(), dims.begin() + length, dims.end());
    const auto x = small_tensor(random, dtype, dims);
    const auto updates = small_tensor(random, dtype, update_dims);
    OneNode node("ScatterND", 18);
    node.attribute("reduction", reduction)
        .constant(x)
        .constant(ir::make_i64_tensor(index_dims, indices))
        .constant(updates);
    const auto got = node.evaluate();
    REQUIRE_MESSAGE(got.ok(), got.status().to_string());
    Values expected = to_values(x);
    const Values changes = to_values(updates);
    for (size_t i = 0; i < changes.size(); ++i) {
      const Index from = unflatten(int64_t(i), update_dims);
      Index at;
      for (int64_t e = 0; e < length; ++e) {
        const int64_t index = indices[size_t(from[0] * length + e)];
        at.push_back(index < 0 ? index + dims[at.size()] : index);
      }
      at.insert(at.end(), from.begin() + 1, from.end());
      double& old = expected[flatten(at, dims)];
      old = reduced(reduction, old, changes[i]);
    }
    CHECK(to_values((*got)[0]) == expected);
  }
}

TEST_CASE("NaN stays in extremes, integers wrap") {
  const auto scatter = [](const char* reduction, const ir::TensorData& x,
                          const ir::TensorData& updates) {
    OneNode node("ScatterElements", 18);
    node.attribute("reduction", std::string(reduction))
        .constant(x)
        .constant(ir::make_i64_tensor({2}, {0, 1}))
        .constant(updates);
    return to_values((*node.evaluate())[0]);
  };
  for (const char* reduction : {"max", "min"}) {
    const Values got =
        scatter(reduction, make_data(DVT_F32, {2}, {NAN, 1}), make_data(DVT_F32, {2}, {1, NAN}));
    CHECK((std::isnan(got[0]) && std::isnan(got[1])));
  }
  CHECK(scatter("add", make_data(DVT_I8, {2}, {127, -128}), make_data(DVT_I8, {2}, {1, -1})) ==
        Values{-128, 127});
  CHECK(scatter("mul", make_data(DVT_U8, {2}, {16, 255}), make_data(DVT_U8, {2}, {16, 255})) ==
        Values{0, 1});
  CHECK(scatter("max", make_data(DVT_U8, {2}, {200, 1}), make_data(DVT_U8, {2}, {100, 255})) ==
        Values{200, 255});
}

TEST_CASE("an index outside stops the run") {
  for (const int64_t bad : {int64_t{3}, int64_t{-4}, INT64_MAX, INT64_MIN}) {
    for (const char* name : {"GatherElements", "GatherND", "ScatterElements", "ScatterND"}) {
      INFO(name);
      const bool tuples = std::string(name).find("ND") != std::string::npos;
      const int64_t record[2] = {0, 0};
      std::vector<Operand> inputs = {
          Operand(DVT_F32, {3}),
          Operand(DVT_I64, tuples ? Dims{2, 1} : Dims{2}, std::vector<int64_t>{0, bad})};
      const bool scatters = std::string(name).rfind("Scatter", 0) == 0;
      if (scatters) inputs.emplace_back(DVT_F32, Dims{2});
      std::vector<Operand> outputs = {Operand(DVT_F32, {scatters ? 3 : 2})};
      Call call(*ops::find_kernel(name), inputs, outputs, record);
      std::string reason;
      REQUIRE_MESSAGE(call.check(&reason) == DVT_OK, reason);
      CHECK(call.run() == DVT_INVALID_ARGUMENT);
    }
  }
}

TEST_CASE("refusals name what does not fit") {
  const auto shape = [](const char* op, const Dims& x, const Dims& indices, const Dims& updates,
                        const char* reduction = "none") {
    OneNode node(op, 18);
    node.input(DVT_F32, x).input(DVT_I64, indices);
    if (std::string(op).rfind("Scatter", 0) == 0) {
      node.input(DVT_F32, updates).attribute("reduction", std::string(reduction));
    }
    return node.shape();
  };
  CHECK(shape("GatherElements", {2, 3}, {5, 4}, {}).find("do not fit") != std::string::npos);
  CHECK(shape("GatherElements", {2, 3}, {5}, {}).find("do not fit") != std::string::npos);
  CHECK(shape("GatherND", {2, 3}, {5, 3}, {}).find("do not fit") != std::string::npos);
  CHECK(shape("GatherND", {2, 3}, {5, 0}, {}).find("do not fit") != std::string::npos);
  CHECK(shape("GatherND", {2, 3}, {}, {}).find("too few axes") != std::string::npos);
  CHECK(shape("ScatterND", {2, 3}, {5, 1}, {5, 2}).find("updates") != std::string::npos);
  CHECK(shape("ScatterElements", {2, 3}, {1, 3}, {2, 3}).find("updates") != std::string::npos);
  CHECK(shape("ScatterND", {2, 3}, {5, 1}, {5, 3}, "mean").find("reduction") != std::string::npos);
  OneNode old("ScatterND", 16);
  old.input(DVT_F32, Dims{2}).input(DVT_I64, Dims{1, 1}).input(DVT_F32, Dims{1});
  old.attribute("reduction", std::string("max"));
  CHECK(old.shape().find("none, add or mul") != std::string::npos);
  OneNode open("GatherND", 13);
  open.input(DVT_F32, {open.symbol("N"), ir::Dim(4)})
      .input(DVT_I64, {open.symbol("M"), ir::Dim(1)});
  CHECK(open.shape() == "[M,4]");
  using V = std::vector<Operand>;
  const DvtGatherNdAttributes batch{.batch_dims = 1};
  const Operand nine(DVT_F32, {1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(
      !refusal("GatherND", V{nine, Operand(DVT_I64, {1, 1, 1, 1, 1, 1})}, V{nine}, &batch).empty());
  const DvtScatterAttributes unknown{.axis = 0, .reduction = 5};
  const Operand x(DVT_F32, {2});
  CHECK(refusal("ScatterElements", V{x, Operand(DVT_I64, {2}), x}, V{x}, &unknown) ==
        "reduction 5 is unknown for f32");
  CHECK(refusal("ScatterElements", V{x, x, x}, V{x}, &unknown) ==
        "input 1: expected dtype i32 or i64, got f32");
}
