// The Reduce* operators against naive folds.
#include "ops/kernels/reduction.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

const std::vector<std::string> kOps = {
    "ReduceSum", "ReduceMean", "ReduceMax",    "ReduceMin",       "ReduceProd",
    "ReduceL1",  "ReduceL2",   "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};

double fold(const std::string& op, const Values& values) {
  double sum = 0;
  double largest = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();
  double product = 1;
  double squares = 0;
  double absolute = 0;
  double exponentials = 0;
  for (const double value : values) {
    sum += value;
    largest = std::fmax(largest, value);
    smallest = std::fmin(smallest, value);
    product *= value;
    squares += value * value;
    absolute += std::fabs(value);
    exponentials += std::exp(value);
  }
  const std::map<std::string, double> results = {{"ReduceSum", sum},
                                                 {"ReduceMean", sum / double(values.size())},
                                                 {"ReduceMax", largest},
                                                 {"ReduceMin", smallest},
                                                 {"ReduceProd", product},
                                                 {"ReduceL1", absolute},
                                                 {"ReduceL2", std::sqrt(squares)},
                                                 {"ReduceLogSum", std::log(sum)},
                                                 {"ReduceLogSumExp", std::log(exponentials)},
                                                 {"ReduceSumSquare", squares}};
  return results.at(op);
}

// Groups the elements of x by the dims that stay.
std::vector<Values> groups_of(const Dims& dims, const std::vector<bool>& reduced, const Values& x) {
  int64_t count = 1;
  for (size_t i = 0; i < dims.size(); ++i) count *= reduced[i] ? 1 : dims[i];
  std::vector<Values> groups(static_cast<size_t>(count));
  Dims index(dims.size(), 0);
  for (const double value : x) {
    int64_t group = 0;
    for (size_t i = 0; i < dims.size(); ++i)
      group = reduced[i] ? group : group * dims[i] + index[i];
    groups[size_t(group)].push_back(value);
    for (size_t i = dims.size(); i-- > 0;) {
      if (++index[i] < dims[i]) break;
      index[i] = 0;
    }
  }
  return groups;
}

// Adds the axes as the opset wants them.
void add_axes(OneNode& node, const std::string& op, int64_t opset, const Dims& axes) {
  if (opset >= (op == "ReduceSum" ? 13 : 18)) {
    node.constant(ir::make_i64_tensor({int64_t(axes.size())}, axes));
  } else {
    node.attribute("axes", axes);
  }
}

}  // namespace

TEST_CASE("reductions equal naive folds: axes, keepdims, versions, float types") {
  Source random(41);
  for (int round = 0; round < 500; ++round) {
    const std::string op = random.pick(kOps);
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16, DVT_BF16});
    const int64_t opset = random.pick<int64_t>({11, 13, 18});
    Dims dims(size_t(random.between(0, 5)));
    for (int64_t& dim : dims) dim = random.between(1, 4);
    std::vector<bool> reduced(dims.size());
    Dims axes;
    for (size_t i = 0; i < dims.size(); ++i) {
      reduced[i] = random.flip();
      if (reduced[i])
        axes.push_back(random.flip() ? int64_t(i) : int64_t(i) - int64_t(dims.size()));
    }
    if (axes.empty()) reduced.assign(dims.size(), true);
    const bool keep = random.flip();
    auto x = random.tensor(dtype, dims);
    if (op == "ReduceLogSum" || op == "ReduceProd") {  // Positive, and near one.
      Values values = to_values(x);
      for (double& value : values) value = 1.0 + std::fabs(value) / 64.0;
      x = make_data(dtype, dims, values);
    }
    OneNode node(op, opset);
    node.attribute("keepdims", int64_t{keep}).constant(x);
    if (!axes.empty()) add_axes(node, op, opset, axes);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    Dims y_dims;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!reduced[i]) y_dims.push_back(dims[i]);
      if (reduced[i] && keep) y_dims.push_back(1);
    }
    CHECK((*outputs)[0].dims == y_dims);
    Values expected;
    for (const Values& group : groups_of(dims, reduced, to_values(x))) {
      expected.push_back(fold(op, group));
    }
    const double relative = tolerance(dtype, product(dims));
    INFO(op);
    CHECK(excess_error(expected, to_values((*outputs)[0]), relative, relative * 64.0) <= 0.0);
  }
}

TEST_CASE("integers") {
  const auto x = make_data(DVT_I32, {2, 3}, {1, -2, 4, 7, 0, -9});
  const std::map<std::string, Values> expected = {
      {"ReduceSum", {3, -2}},        {"ReduceMean", {1, 0}},  {"ReduceMax", {4, 7}},
      {"ReduceMin", {-2, -9}},       {"ReduceProd", {-8, 0}}, {"ReduceL1", {7, 16}},
      {"ReduceSumSquare", {21, 130}}};
  for (const auto& [name, values] : expected) {
    const std::string op = name;  // clang 14 captures no structured bindings.
    INFO(op);
    OneNode node(op, 13);
    node.constant(x);
    add_axes(node, op, 13, {1});
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK(to_values((*outputs)[0]) == values);
  }
  OneNode unsupported("ReduceL2", 13);
  unsupported.constant(x);
  CHECK(unsupported.evaluate().status().code() == DVT_UNSUPPORTED);
  OneNode bytes("ReduceMax", 13);
  bytes.constant(make_data(DVT_U8, {2}, {3, 200}));
  CHECK(to_values((*bytes.evaluate())[0]) == Values{200});
}

TEST_CASE("a million floats are summed without losing digits") {
  OneNode node("ReduceMean", 13);
  node.constant(make_data(DVT_F32, {1000000}, Values(1000000, 0.1F)));
  const auto outputs = node.evaluate();
  REQUIRE(outputs.ok());
  CHECK((*outputs)[0].as<float>()[0] == 0.1F);
}

TEST_CASE("NaN, infinities and reductions of nothing") {
  const double inf = std::numeric_limits<double>::infinity();
  const auto all = [](const char* op, DvtDType dtype, Dims dims, const Values& values) {
    OneNode node(op, 13);
    node.attribute("keepdims", int64_t{0}).constant(make_data(dtype, std::move(dims), values));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    return to_values((*outputs)[0])[0];
  };
  CHECK(std::isnan(all("ReduceMax", DVT_F32, {3}, {1, NAN, 2})));
  CHECK(std::isnan(all("ReduceMin", DVT_F32, {3}, {1, NAN, 2})));
  CHECK(all("ReduceLogSumExp", DVT_F32, {2}, {-inf, -inf}) == -inf);
  CHECK(all("ReduceLogSumExp", DVT_F32, {2}, {1000, 1000}) == doctest::Approx(1000.693147));
  CHECK(all("ReduceSum", DVT_F32, {0, 3}, {}) == 0.0);
  CHECK(all("ReduceProd", DVT_F32, {0}, {}) == 1.0);
  CHECK(all("ReduceMax", DVT_F32, {0}, {}) == -inf);
  CHECK(all("ReduceMax", DVT_I32, {0}, {}) == -2147483648.0);
  CHECK(all("ReduceMin", DVT_I8, {0}, {}) == 127.0);
  CHECK(std::isnan(all("ReduceMean", DVT_F32, {0}, {})));
}

TEST_CASE("axes: empty, missing, not constant, wrong") {
  Source random(42);
  const auto x = random.tensor(DVT_F32, {2, 3});
  OneNode noop("ReduceSum", 13);
  noop.attribute("noop_with_empty_axes", int64_t{1}).constant(x);
  const auto same = noop.evaluate();
  REQUIRE(same.ok());
  CHECK(*(*same)[0].bytes == *x.bytes);
  OneNode variable("ReduceMean", 18);
  variable.constant(x).input(DVT_I64, {ir::Dim(1)});
  REQUIRE(variable.infer().ok());
  CHECK(variable.found[0].shape->size() == 2);
  const auto recipe = recipe_of(variable);
  REQUIRE_MESSAGE(recipe.ok(), recipe.status().to_string());
  CHECK(recipe->inputs == std::vector<uint32_t>{0, 1});
  // Axes that do not fit what there is stop the run.
  for (const int64_t axis : {int64_t{1}, int64_t{-1}, int64_t{0}, int64_t{2}, INT64_MIN}) {
    const DvtReduceAttributes record = {.op = DVT_REDUCE_SUM, .axes = -1};
    std::vector<Operand> inputs = {Operand(DVT_F32, {2, 3}),
                                   Operand(DVT_I64, {1}, std::vector<int64_t>{axis})};
    std::vector<Operand> outputs = {Operand(DVT_F32, {2})};
    Call call(*ops::find_kernel("Reduce.f32"), inputs, outputs, &record);
    CHECK(call.run() == (axis == 1 || axis == -1 ? DVT_OK : DVT_INVALID_ARGUMENT));
  }
  for (const Dims& axes : std::vector<Dims>{{2}, {-3}, {0, 0}, {0, -2}}) {
    OneNode bad("ReduceMean", 13);
    bad.attribute("axes", axes).constant(x);
    CHECK_FALSE(bad.infer().ok());
  }
}
