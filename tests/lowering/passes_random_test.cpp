// Random graphs at every level, with each pass alone, and with each left out: results are those of
// -O0. Exact passes keep the bits.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "ir/passes/passes.hpp"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::CompileOptions;
using davit::ir::ValueId;
using davit::passes::Level;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

using Dims = std::vector<int64_t>;

int64_t count_of(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// Grows a graph of values of up to four axes. Numbers stay near 1, so that one tolerance does.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {
    for (const char* name : {"x", "y"}) {
      const Dims dims = {1, 4, 4, 4};
      values_.push_back({tiny_.input(name, dims), dims});
    }
    const size_t nodes = 4 + pick(24);
    for (size_t i = 0; i < nodes; ++i) grow();
  }

  davit::ir::Module build() {
    std::set<ValueId> outputs = {values_.back().id};
    for (size_t i = pick(3); i > 0; --i) outputs.insert(values_[pick(values_.size())].id);
    return tiny_.build({outputs.begin(), outputs.end()});
  }
  [[nodiscard]] const std::map<std::string, uint32_t>& made() const { return made_; }

 private:
  struct Value {
    ValueId id;
    Dims dims;
  };

  size_t pick(size_t count) { return size_t(random_() % count); }
  int64_t pick_between(int64_t low, int64_t high) {
    return low + int64_t(pick(size_t(high - low + 1)));
  }
  // Mostly recent values, so that chains grow.
  Value operand() {
    return values_[values_.size() - 1 - pick(std::min<size_t>(values_.size(), 6))];
  }
  std::string name() { return "v" + std::to_string(next_++); }

  ValueId constant(const Dims& dims, float scale) {
    std::vector<float> data(size_t(count_of(dims)));
    for (float& value : data) value = scale * float(int(pick(17)) - 8) / 8;
    return tiny_.constant(name(), f32_tensor(dims, data));
  }
  ValueId list(const Dims& values) {
    return tiny_.constant(name(), davit::ir::make_i64_tensor({int64_t(values.size())}, values));
  }
  void add(const std::string& op, std::vector<ValueId> inputs, Dims dims,
           std::vector<davit::ir::Attribute> attributes = {}) {
    ++made_[op];
    values_.push_back(
        {tiny_.node(op, std::move(inputs), name(), std::move(attributes)), std::move(dims)});
  }

  void grow() {
    using Growth = void (RandomGraph::*)();
    constexpr Growth kGrowths[] = {
        &RandomGraph::unary,       &RandomGraph::binary,    &RandomGraph::scale,
        &RandomGraph::concat,      &RandomGraph::slice,     &RandomGraph::split_and_join,
        &RandomGraph::reshape,     &RandomGraph::transpose, &RandomGraph::matrix,
        &RandomGraph::convolution, &RandomGraph::reduce,    &RandomGraph::pad,
        &RandomGraph::gelu,        &RandomGraph::normalise, &RandomGraph::redundant};
    (this->*kGrowths[pick(std::size(kGrowths))])();
  }

  void unary() {
    constexpr const char* kOps[] = {"Relu",    "Sigmoid",   "Tanh", "Abs",
                                    "Softmax", "HardSwish", "Neg"};
    const Value x = operand();
    const char* const op = kOps[pick(std::size(kOps))];
    if (std::strcmp(op, "HardSwish") == 0) return add("Sigmoid", {x.id}, x.dims);
    add(op, {x.id}, x.dims);
  }
  void binary() {
    constexpr const char* kOps[] = {"Add", "Sub", "Mul", "Max"};
    const Value a = operand();
    Value b = operand();
    if (a.dims != b.dims) b = a;
    add(kOps[pick(std::size(kOps))], {a.id, b.id}, a.dims);
    bound();
  }
  // A constant factor and addend for each channel.
  void scale() {
    const Value x = operand();
    Dims dims(x.dims.size(), 1);
    if (dims.size() > 1) dims[1] = x.dims[1];
    add("Mul", {x.id, constant(dims, 1)}, x.dims);
    add("Add", {values_.back().id, constant(dims, 1)}, x.dims);
    bound();
  }
  // Keeps numbers small after sums and products.
  void bound() {
    if (pick(2) == 0) add("Tanh", {values_.back().id}, values_.back().dims);
  }
  void concat() {
    const Value a = operand();
    const auto axis = int64_t(pick(a.dims.size()));
    std::vector<ValueId> inputs = {a.id};
    Dims dims = a.dims;
    for (size_t i = 1 + pick(2); i > 0; --i) {
      const Value b = operand();
      bool fits = b.dims.size() == a.dims.size();
      for (size_t d = 0; fits && d < dims.size(); ++d) {
        fits = int64_t(d) == axis || b.dims[d] == a.dims[d];
      }
      inputs.push_back(fits ? b.id : a.id);
      dims[size_t(axis)] += fits ? b.dims[size_t(axis)] : a.dims[size_t(axis)];
    }
    if (count_of(dims) > 4096) return;
    add("Concat", std::move(inputs), dims, {{"axis", axis}});
  }
  void slice() {
    const Value x = operand();
    const auto axis = pick(x.dims.size());
    const int64_t first = pick_between(0, x.dims[axis] - 1);
    const int64_t end = pick_between(first + 1, x.dims[axis]);
    Dims dims = x.dims;
    dims[axis] = end - first;
    add("Slice", {x.id, list({first}), list({end}), list({int64_t(axis)})}, dims);
  }
  // Halves that go different ways and meet again.
  void split_and_join() {
    const Value x = operand();
    const auto axis = pick(x.dims.size());
    if (x.dims[axis] % 2 != 0) return unary();
    Dims half = x.dims;
    half[axis] /= 2;
    std::vector<ValueId> parts;
    for (const int64_t first : {int64_t{0}, half[axis]}) {
      add("Slice", {x.id, list({first}), list({first + half[axis]}), list({int64_t(axis)})}, half);
      if (pick(4) != 0) add("Tanh", {values_.back().id}, half);
      parts.push_back(values_.back().id);
    }
    if (pick(2) == 0) std::swap(parts[0], parts[1]);
    add("Concat", parts, x.dims, {{"axis", int64_t(axis)}});
  }
  void reshape() {
    const Value x = operand();
    Dims dims = {count_of(x.dims)};
    for (int64_t factor : {4, 4, 2}) {
      if (pick(2) == 0 && dims[0] % factor == 0) {
        dims[0] /= factor;
        dims.push_back(factor);
      }
    }
    add("Reshape", {x.id, list(dims)}, dims);
  }
  void transpose() {
    const Value x = operand();
    std::vector<int64_t> perm(x.dims.size());
    for (size_t i = 0; i < perm.size(); ++i) perm[i] = int64_t(i);
    for (size_t i = perm.size(); i > 1; --i) std::swap(perm[i - 1], perm[pick(i)]);
    Dims dims;
    for (const int64_t axis : perm) dims.push_back(x.dims[size_t(axis)]);
    add("Transpose", {x.id}, dims, {{"perm", perm}});
  }
  void matrix() {
    const Value x = operand();
    if (x.dims.size() < 2) return unary();
    Dims dims = x.dims;
    const int64_t depth = dims.back();
    dims.back() = pick_between(1, 6);
    add("MatMul", {x.id, constant({depth, dims.back()}, 0.5F)}, dims);
    if (pick(2) == 0) add("Add", {values_.back().id, constant({dims.back()}, 1)}, dims);
    if (pick(2) == 0) add("Relu", {values_.back().id}, dims);
    bound();
  }
  void convolution() {
    const Value x = operand();
    if (x.dims.size() != 4) return matrix();
    Dims dims = x.dims;
    dims[1] = pick_between(1, 5);
    add("Conv", {x.id, constant({dims[1], x.dims[1], 3, 3}, 0.25F)}, dims,
        {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    if (pick(2) == 0) {
      const Dims channels = {dims[1]};
      std::vector<float> ones(size_t(dims[1]), 1.0F);
      add("BatchNormalization",
          {values_.back().id, constant(channels, 1), constant(channels, 1), constant(channels, 1),
           tiny_.constant(name(), f32_tensor(channels, ones))},
          dims);
    }
    if (pick(2) == 0) add("Relu", {values_.back().id}, dims);
    bound();
  }
  void reduce() {
    const Value x = operand();
    const auto axis = pick(x.dims.size());
    Dims dims = x.dims;
    dims[axis] = 1;
    add("ReduceMean", {x.id}, dims, {{"axes", std::vector<int64_t>{int64_t(axis)}}});
  }
  void pad() {
    const Value x = operand();
    const size_t rank = x.dims.size();
    std::vector<int64_t> pads(2 * rank, 0);
    Dims dims = x.dims;
    for (size_t d = rank > 2 ? 2 : 0; d < rank; ++d) {
      for (const size_t at : {d, d + rank}) {
        pads[at] = pick_between(0, 1);
        dims[d] += pads[at];
      }
    }
    if (count_of(dims) > 4096) return;
    add("Pad", {x.id, list(pads)}, dims);
  }
  void gelu() {
    const Value x = operand();
    const auto number = [&](float value) {
      return tiny_.constant(name(), f32_tensor({}, {value}));
    };
    add("Div", {x.id, number(1.41421354F)}, x.dims);
    add("Erf", {values_.back().id}, x.dims);
    add("Add", {values_.back().id, number(1)}, x.dims);
    add("Mul", {x.id, values_.back().id}, x.dims);
    add("Mul", {values_.back().id, number(0.5F)}, x.dims);
  }
  // LayerNormalization of the last axis, written out.
  void normalise() {
    const Value x = operand();
    Dims mean = x.dims;
    mean.back() = 1;
    const std::vector<int64_t> axes = {-1};
    add("ReduceMean", {x.id}, mean, {{"axes", axes}});
    add("Sub", {x.id, values_.back().id}, x.dims);
    const ValueId centred = values_.back().id;
    add("Pow", {centred, tiny_.constant(name(), f32_tensor({}, {2}))}, x.dims);
    add("ReduceMean", {values_.back().id}, mean, {{"axes", axes}});
    add("Add", {values_.back().id, tiny_.constant(name(), f32_tensor({}, {1e-2F}))}, mean);
    add("Sqrt", {values_.back().id}, mean);
    add("Div", {centred, values_.back().id}, x.dims);
    const Dims last = {x.dims.back()};
    add("Mul", {values_.back().id, constant(last, 1)}, x.dims);
    add("Add", {values_.back().id, constant(last, 1)}, x.dims);
  }
  // What passes take away.
  void redundant() {
    const Value x = operand();
    switch (pick(4)) {
      case 0:
        return add("Identity", {x.id}, x.dims);
      case 1:
        return add("Mul", {x.id, tiny_.constant(name(), f32_tensor({}, {1}))}, x.dims);
      case 2:
        add("Relu", {x.id}, x.dims);
        return add("Relu", {x.id}, x.dims);  // The same again.
      default: {
        const ValueId folded = tiny_.node("Neg", {constant(x.dims, 1)}, name());
        return add("Add", {x.id, folded}, x.dims);
      }
    }
  }

  std::mt19937 random_;
  TinyModule tiny_;
  std::vector<Value> values_;
  std::map<std::string, uint32_t> made_;
  uint32_t next_ = 0;
};

std::vector<NpyArray> inputs_of(uint32_t seed) {
  std::mt19937 random(seed + 1000);
  std::vector<NpyArray> inputs;
  for (int port = 0; port < 2; ++port) {
    std::vector<float> data(64);
    for (float& value : data) value = float(int(random() % 33) - 16) / 16;
    NpyArray array;
    array.dtype = DVT_F32;
    array.dims = {1, 4, 4, 4};
    array.bytes.resize(data.size() * sizeof(float));
    std::memcpy(array.bytes.data(), data.data(), array.bytes.size());
    inputs.push_back(std::move(array));
  }
  return inputs;
}

struct Run {
  std::vector<NpyArray> outputs;
  davit::compiler::CompileReport report;
};

Run run(const davit::ir::Module& module, const CompileOptions& options, uint32_t seed) {
  const auto image = davit::compiler::compile_module(module, options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  auto outputs = davit::testing::run_image(image->bytes, inputs_of(seed));
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return {std::move(*outputs), image->report};
}

void check(const Run& expected, const Run& got, double tolerance) {
  REQUIRE(expected.outputs.size() == got.outputs.size());
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    const davit::Status same = davit::testing::compare(
        expected.outputs[i], got.outputs[i], {.relative_to_max = tolerance, .absolute = tolerance});
    CHECK_MESSAGE(same.ok(), same.to_string());
  }
}

// Rounds elsewhere than the graph says.
bool is_exact(std::string_view pass) {
  return pass != "fold_batch_norms" && pass != "fold_scales" && pass != "fuse_gemm" &&
         pass != "fuse_gelu" && pass != "fuse_layer_norm";
}

constexpr double kTolerance = 2e-5;

}  // namespace

TEST_CASE("every level gives the results of -O0") {
  std::map<std::string, uint32_t> changes;
  std::map<std::string, uint32_t> operators;
  uint32_t folded = 0;
  uint32_t joined = 0;
  uint32_t aliased = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed);
    const davit::ir::Module module = graph.build();
    for (const auto& [op, count] : graph.made()) operators[op] += count;
    const Run plain = run(module, {.level = Level::kRequired}, seed);
    check(plain, run(module, {.level = Level::kFold}, seed), 0);
    check(plain, run(module, {.level = Level::kEliminate}, seed), kTolerance);
    const Run fused = run(module, {.level = Level::kFuse}, seed);
    check(plain, fused, kTolerance);
    for (const auto& [pass, count] : fused.report.pass_changes) changes[pass] += count;
    folded += fused.report.folded_nodes;
    joined += fused.report.joined_nodes;
    aliased += fused.report.aliased_nodes;
  }
  // The graphs are such that the passes have something to do.
  for (const std::string pass :
       {"merge_equal_nodes", "remove_identities", "merge_views", "merge_transposes",
        "simplify_arithmetic", "fold_batch_norms", "fold_scales", "fold_pads", "fuse_gemm",
        "fuse_gelu", "fuse_layer_norm", "fuse_epilogues"}) {
    CAPTURE(pass);
    CHECK(changes[pass] > 0);
  }
  CHECK(operators.size() > 20);
  CHECK(folded > 20);
  CHECK(joined > 20);
  CHECK(aliased > 100);
}

TEST_CASE("each pass alone gives the results of -O0") {
  std::vector<std::string> passes;
  for (const auto& pass : davit::passes::all_passes()) {
    if (pass.level != Level::kRequired) passes.emplace_back(pass.name);
  }
  for (const auto& pass : davit::passes::lowering_passes()) passes.emplace_back(pass.name);
  for (uint32_t seed = 1000; seed < 1100; ++seed) {
    CAPTURE(seed);
    const davit::ir::Module module = RandomGraph(seed).build();
    const Run plain = run(module, {.level = Level::kRequired}, seed);
    for (const std::string& pass : passes) {
      CAPTURE(pass);
      check(plain, run(module, {.only_passes = {pass}}, seed), is_exact(pass) ? 0 : kTolerance);
    }
  }
}

TEST_CASE("without one pass the others give the results of -O0") {
  for (uint32_t seed = 2000; seed < 2040; ++seed) {
    CAPTURE(seed);
    const davit::ir::Module module = RandomGraph(seed).build();
    const Run plain = run(module, {.level = Level::kRequired}, seed);
    for (const auto& pass : davit::passes::all_passes()) {
      if (pass.level == Level::kRequired) continue;
      const std::string name(pass.name);
      CAPTURE(name);
      check(plain, run(module, {.level = Level::kFuse, .disabled_passes = {name}}, seed),
            kTolerance);
    }
  }
}
