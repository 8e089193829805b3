// LSTM, GRU and RNN against the standard's equations in double, one number at a time.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "ops/kernels/recurrent.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

struct Function {
  std::string name;
  double alpha = 0, beta = 0;

  double operator()(double x) const {
    if (name == "Relu") return x > 0 ? x : 0;
    if (name == "Tanh") return std::tanh(x);
    if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
    if (name == "Affine") return alpha * x + beta;
    if (name == "LeakyRelu") return x >= 0 ? x : alpha * x;
    if (name == "ThresholdedRelu") return x >= alpha ? x : 0;
    if (name == "ScaledTanh") return alpha * std::tanh(beta * x);
    if (name == "HardSigmoid") return std::min(std::max(alpha * x + beta, 0.0), 1.0);
    if (name == "Elu") return x >= 0 ? x : alpha * (std::exp(x) - 1);
    if (name == "Softsign") return x / (1 + std::fabs(x));
    return std::log(1 + std::exp(x));
  }
};

struct Setup {
  std::string op;
  int64_t steps, batch, inputs, hidden;
  std::string direction;
  int64_t layout = 0, input_forget = 0, linear_before_reset = 0;
  double clip = 0;  // 0: none.
  bool with_bias, with_lengths, with_h0, with_c0, with_p;
  std::vector<Function> functions;  // Of all directions; empty: defaults.

  [[nodiscard]] int64_t gates() const { return op == "LSTM" ? 4 : op == "GRU" ? 3 : 1; }
  [[nodiscard]] size_t per_direction() const { return op == "LSTM" ? 3 : op == "GRU" ? 2 : 1; }
  [[nodiscard]] int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
  [[nodiscard]] Function function(int64_t d, size_t index) const {
    if (!functions.empty()) return functions[size_t(d) * per_direction() + index];
    return {index == 0 && op != "RNN" ? "Sigmoid" : "Tanh"};
  }
};

struct Data {
  ir::TensorData x, w, r, b, lengths, h0, c0, p;
};

Setup random_setup(Source& random, const std::string& op) {
  Setup s{.op = op,
          .steps = random.between(0, 6),
          .batch = random.between(1, 5),
          .inputs = random.between(1, 5),
          .hidden = random.between(1, 19),
          .direction = random.pick<std::string>({"forward", "reverse", "bidirectional"}),
          .layout = random.between(0, 1),
          .input_forget = random.between(0, 1),
          .linear_before_reset = random.between(0, 1),
          .clip = random.flip() ? 0.75 : 0.0,
          .with_bias = random.flip(),
          .with_lengths = random.flip(),
          .with_h0 = random.flip(),
          .with_c0 = random.flip(),
          .with_p = random.flip()};
  if (random.between(0, 9) == 0) {
    s.steps = random.between(60, 140);  // More than a chunk.
    return s;                           // With bounded functions, or states would run away.
  }
  if (random.flip()) return s;
  static const std::vector<Function> kAll = {{"Relu"},
                                             {"Tanh"},
                                             {"Sigmoid"},
                                             {"Affine", 0.5, 0.25},
                                             {"LeakyRelu", 0.125},
                                             {"ThresholdedRelu", 0.5},
                                             {"ScaledTanh", 0.5, 0.75},
                                             {"HardSigmoid", 0.25, 0.375},
                                             {"Elu", 0.75},
                                             {"Softsign"},
                                             {"Softplus"}};
  for (size_t i = 0; i < s.per_direction() * size_t(s.directions()); ++i) {
    s.functions.push_back(random.pick(kAll));
  }
  return s;
}

Data make_operands(Source& random, const Setup& s, DvtDType dtype) {
  const auto tensor = [&](const Dims& dims, double factor) {
    Values values = to_values(random.tensor(DVT_F64, dims));
    for (double& value : values) value *= factor;
    return make_data(dtype, dims, values);
  };
  const int64_t d = s.directions();
  const int64_t width = s.gates() * s.hidden;
  const Dims state = s.layout != 0 ? Dims{s.batch, d, s.hidden} : Dims{d, s.batch, s.hidden};
  Values lengths;
  for (int64_t n = 0; n < s.batch; ++n) lengths.push_back(double(random.between(0, s.steps)));
  return {
      .x = tensor(
          s.layout != 0 ? Dims{s.batch, s.steps, s.inputs} : Dims{s.steps, s.batch, s.inputs}, 0.5),
      .w = tensor({d, width, s.inputs}, 0.25),
      .r = tensor({d, width, s.hidden}, 0.125),
      .b = tensor({d, 2 * width}, 0.25),
      .lengths = make_data(DVT_I32, {s.batch}, lengths),
      .h0 = tensor(state, 0.25),
      .c0 = tensor(state, 0.25),
      .p = tensor({d, 3 * s.hidden}, 0.25)};
}

struct Expected {
  Values y, y_h, y_c;
};

// One direction of one sequence.
class Cell {
 public:
  Cell(const Setup& s, const Data& data, int64_t d)
      : s_(s),
        d_(d),
        w_(to_values(data.w)),
        r_(to_values(data.r)),
        b_(to_values(data.b)),
        p_(to_values(data.p)) {}
  Values h, c;

  void step(const Values& x) {
    const auto n = size_t(s_.hidden);
    Values next_h(n), next_c(n);
    if (s_.op == "LSTM") lstm(x, next_h, next_c);
    if (s_.op == "GRU") gru(x, next_h);
    for (size_t j = 0; s_.op == "RNN" && j < n; ++j) {
      next_h[j] = act(0, from_x(0, j, x) + from_h(0, j, h) + wb(0, j) + rb(0, j));
    }
    h = next_h;
    c = next_c;
  }

 private:
  [[nodiscard]] size_t row(int64_t gate, size_t j) const {
    return size_t((d_ * s_.gates() + gate) * s_.hidden) + j;
  }
  [[nodiscard]] double from_x(int64_t gate, size_t j, const Values& x) const {
    double sum = 0;
    for (size_t k = 0; k < x.size(); ++k) sum += w_[row(gate, j) * x.size() + k] * x[k];
    return sum;
  }
  [[nodiscard]] double from_h(int64_t gate, size_t j, const Values& from) const {
    double sum = 0;
    for (size_t k = 0; k < from.size(); ++k) sum += r_[row(gate, j) * from.size() + k] * from[k];
    return sum;
  }
  [[nodiscard]] double wb(int64_t gate, size_t j) const {
    if (!s_.with_bias) return 0;
    return b_[size_t((d_ * 2 * s_.gates() + gate) * s_.hidden) + j];
  }
  [[nodiscard]] double rb(int64_t gate, size_t j) const { return wb(gate + s_.gates(), j); }
  [[nodiscard]] double peephole(int64_t which, size_t j) const {
    return s_.with_p ? p_[size_t((d_ * 3 + which) * s_.hidden) + j] : 0;
  }
  [[nodiscard]] double act(size_t index, double value) const {
    if (s_.clip > 0) value = std::clamp(value, -s_.clip, s_.clip);
    return s_.function(d_, index)(value);
  }
  [[nodiscard]] double gate(int64_t g, size_t j, const Values& x) const {
    return from_x(g, j, x) + from_h(g, j, h) + wb(g, j) + rb(g, j);
  }

  void lstm(const Values& x, Values& next_h, Values& next_c) const {
    for (size_t j = 0; j < h.size(); ++j) {
      const double input = act(0, gate(0, j, x) + peephole(0, j) * c[j]);
      const double forget =
          s_.input_forget != 0 ? 1 - input : act(0, gate(2, j, x) + peephole(2, j) * c[j]);
      next_c[j] = forget * c[j] + input * act(1, gate(3, j, x));
      const double output = act(0, gate(1, j, x) + peephole(1, j) * next_c[j]);
      next_h[j] = output * s_.function(d_, 2)(next_c[j]);
    }
  }
  void gru(const Values& x, Values& next_h) const {
    Values update(h.size()), reset(h.size()), scaled(h.size());
    for (size_t j = 0; j < h.size(); ++j) {
      update[j] = act(0, gate(0, j, x));
      reset[j] = act(0, gate(1, j, x));
      scaled[j] = reset[j] * h[j];
    }
    for (size_t j = 0; j < h.size(); ++j) {
      const double recurrent = s_.linear_before_reset != 0 ? reset[j] * (from_h(2, j, h) + rb(2, j))
                                                           : from_h(2, j, scaled) + rb(2, j);
      const double candidate = act(1, from_x(2, j, x) + recurrent + wb(2, j));
      next_h[j] = (1 - update[j]) * candidate + update[j] * h[j];
    }
  }

  const Setup& s_;
  int64_t d_;
  Values w_, r_, b_, p_;
};

Expected naive(const Setup& s, const Data& data) {
  const int64_t d_count = s.directions();
  const Values x = to_values(data.x);
  const Values h0 = to_values(data.h0);
  const Values c0 = to_values(data.c0);
  const Values lengths = to_values(data.lengths);
  Expected e{Values(size_t(s.steps * d_count * s.batch * s.hidden)),
             Values(size_t(d_count * s.batch * s.hidden)),
             Values(size_t(d_count * s.batch * s.hidden))};
  for (int64_t d = 0; d < d_count; ++d) {
    for (int64_t n = 0; n < s.batch; ++n) {
      Cell cell(s, data, d);
      const int64_t state = (s.layout != 0 ? n * d_count + d : d * s.batch + n) * s.hidden;
      for (int64_t j = 0; j < s.hidden; ++j) {
        cell.h.push_back(s.with_h0 ? h0[size_t(state + j)] : 0);
        cell.c.push_back(s.with_c0 ? c0[size_t(state + j)] : 0);
      }
      const int64_t length = s.with_lengths ? int64_t(lengths[size_t(n)]) : s.steps;
      const bool reverse = d == 1 || s.direction == "reverse";
      for (int64_t step = 0; step < length; ++step) {
        const int64_t t = reverse ? length - 1 - step : step;
        const int64_t from = (s.layout != 0 ? n * s.steps + t : t * s.batch + n) * s.inputs;
        cell.step(Values(x.begin() + from, x.begin() + from + s.inputs));
        const int64_t at =
            s.layout != 0 ? (n * s.steps + t) * d_count + d : (t * d_count + d) * s.batch + n;
        std::copy(cell.h.begin(), cell.h.end(), e.y.begin() + at * s.hidden);
      }
      std::copy(cell.h.begin(), cell.h.end(), e.y_h.begin() + state);
      std::copy(cell.c.begin(), cell.c.end(), e.y_c.begin() + state);
    }
  }
  return e;
}

OneNode node_of(const Setup& s, const Data& data) {
  OneNode node(s.op, 14);
  node.attribute("hidden_size", s.hidden)
      .attribute("direction", s.direction)
      .attribute("layout", s.layout);
  if (s.op == "LSTM") node.attribute("input_forget", s.input_forget);
  if (s.op == "GRU") node.attribute("linear_before_reset", s.linear_before_reset);
  if (s.clip > 0) node.attribute("clip", float(s.clip));
  if (!s.functions.empty()) {
    std::vector<std::string> names;
    std::vector<float> alphas, betas;
    for (const Function& function : s.functions) {
      names.push_back(function.name);
      if (function.alpha != 0) alphas.push_back(float(function.alpha));
      if (function.beta != 0) betas.push_back(float(function.beta));
    }
    node.attribute("activations", names)
        .attribute("activation_alpha", alphas)
        .attribute("activation_beta", betas);
  }
  const auto optional = [&node](bool present, const ir::TensorData& tensor) {
    if (present) {
      node.constant(tensor);
    } else {
      node.absent_input();
    }
  };
  node.constant(data.x).constant(data.w).constant(data.r);
  optional(s.with_bias, data.b);
  optional(s.with_lengths, data.lengths);
  optional(s.with_h0, data.h0);
  if (s.op == "LSTM") {
    optional(s.with_c0, data.c0);
    optional(s.with_p, data.p);
  }
  node.outputs(s.op == "LSTM" ? 3 : 2);
  return node;
}

}  // namespace

TEST_CASE("recurrent layers equal their equations: every option, dtype and operator") {
  Source random(71);
  for (int round = 0; round < 700; ++round) {
    const auto op = random.pick<std::string>({"LSTM", "GRU", "RNN"});
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16});
    const Setup s = random_setup(random, op);
    const Data data = make_operands(random, s, dtype);
    OneNode node = node_of(s, data);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Expected expected = naive(s, data);
    // Errors of steps add up, relative to the largest state.
    const double relative = dtype == DVT_F64 ? 1e-11 : dtype == DVT_F32 ? 2e-5 : 1e-2;
    double largest = 1;
    for (const Values* values : {&expected.y, &expected.y_h, &expected.y_c}) {
      for (const double value : *values) largest = std::max(largest, std::fabs(value));
    }
    const double absolute = relative * largest;
    INFO(op, " ", s.direction, " steps ", s.steps, " batch ", s.batch, " hidden ", s.hidden);
    CHECK(excess_error(expected.y, to_values((*outputs)[0]), relative, absolute) <= 0.0);
    CHECK(excess_error(expected.y_h, to_values((*outputs)[1]), relative, absolute) <= 0.0);
    if (op != "LSTM") continue;
    CHECK(excess_error(expected.y_c, to_values((*outputs)[2]), relative, absolute) <= 0.0);
  }
}

TEST_CASE("the ways to multiply give the same bits") {
  // A batch of one, of three and of many, and few or many steps, take different ways.
  Source random(72);
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    Setup s{.op = op,
            .steps = 40,
            .batch = 9,
            .inputs = 7,
            .hidden = 21,
            .direction = "forward",
            .layout = 1,
            .with_bias = true,
            .with_lengths = false,
            .with_h0 = false,
            .with_c0 = false,
            .with_p = false};
    Data data = make_operands(random, s, DVT_F32);
    const int64_t gates = s.gates() * s.hidden;
    data.x = random.rough_tensor({s.batch, s.steps, s.inputs});
    data.w = random.rough_tensor({1, gates, s.inputs});
    data.r = random.rough_tensor({1, gates, s.hidden});
    const auto whole = node_of(s, data).evaluate();
    REQUIRE(whole.ok());
    const auto y = (*whole)[0].as<float>();
    const auto x = data.x.as<float>();
    const auto run = [&](int64_t batch, int64_t steps) {
      Setup part = s;
      part.batch = batch;
      part.steps = steps;
      Data some = data;
      Values values;
      for (int64_t n = 0; n < batch; ++n) {
        const auto from = x.begin() + n * s.steps * s.inputs;
        values.insert(values.end(), from, from + steps * s.inputs);
      }
      some.x = make_data(DVT_F32, {batch, steps, s.inputs}, values);
      const auto outputs = node_of(part, some).evaluate();
      REQUIRE(outputs.ok());
      const auto got = (*outputs)[0].as<float>();
      for (int64_t n = 0; n < batch; ++n) {
        const auto part_of = y.begin() + n * s.steps * s.hidden;
        const auto mine = got.begin() + n * steps * s.hidden;
        CHECK(std::equal(mine, mine + steps * s.hidden, part_of));
      }
    };
    run(1, 3);
    run(1, 40);
    run(3, 2);
    run(3, 30);
    run(5, 2);
  }
}

TEST_CASE("outputs that nobody asked for are not computed into; old opsets") {
  Source random(73);
  const Setup s{.op = "LSTM",
                .steps = 3,
                .batch = 2,
                .inputs = 2,
                .hidden = 3,
                .direction = "forward",
                .with_bias = true,
                .with_lengths = false,
                .with_h0 = false,
                .with_c0 = false,
                .with_p = false};
  const Data data = make_operands(random, s, DVT_F32);
  OneNode all = node_of(s, data);
  const auto expected = all.evaluate();
  REQUIRE(expected.ok());
  OneNode last("LSTM", 7);
  last.attribute("hidden_size", s.hidden).constant(data.x).constant(data.w).constant(data.r);
  last.constant(data.b).absent_output(0).absent_output(1).outputs(3);
  const auto got = last.evaluate();
  REQUIRE_MESSAGE(got.ok(), got.status().to_string());
  CHECK(to_values((*got)[2]) == to_values((*expected)[2]));
}

TEST_CASE("sequence lengths that do not fit stop the run") {
  Source random(74);
  for (const double length : {-1.0, 4.0}) {
    const Setup s{.op = "GRU",
                  .steps = 3,
                  .batch = 1,
                  .inputs = 2,
                  .hidden = 3,
                  .direction = "forward",
                  .with_bias = true,
                  .with_lengths = true,
                  .with_h0 = false,
                  .with_c0 = false,
                  .with_p = false};
    Data data = make_operands(random, s, DVT_F32);
    data.lengths = make_data(DVT_I32, {1}, {length});
    CHECK_FALSE(node_of(s, data).evaluate().ok());
  }
}

TEST_CASE("shapes keep symbols, and follow hidden_size") {
  OneNode node("LSTM", 14);
  const ir::Dim t = node.symbol("T");
  const ir::Dim n = node.symbol("N");
  node.attribute("hidden_size", int64_t{5}).attribute("direction", std::string("bidirectional"));
  node.input(DVT_F32, ir::Shape{t, n, ir::Dim(3)}).unknown_input().unknown_input().outputs(3);
  REQUIRE(node.infer().ok());
  CHECK(*node.found[0].shape == ir::Shape{t, ir::Dim(2), n, ir::Dim(5)});
  CHECK(*node.found[2].shape == ir::Shape{ir::Dim(2), n, ir::Dim(5)});
}

TEST_CASE("nodes that break the rules are refused") {
  Source random(75);
  const Setup s{.op = "GRU",
                .steps = 3,
                .batch = 2,
                .inputs = 2,
                .hidden = 3,
                .direction = "forward",
                .with_bias = true,
                .with_lengths = true,
                .with_h0 = true,
                .with_c0 = false,
                .with_p = false};
  const Data data = make_operands(random, s, DVT_F32);
  CHECK(node_of(s, data).infer().ok());
  const auto refused = [&](const char* name, ir::AttributeValue value) {
    OneNode node("GRU", 14);
    node.attribute(name, std::move(value)).constant(data.x).constant(data.w).constant(data.r);
    return !node.infer().ok();
  };
  CHECK(refused("direction", std::string("backward")));
  CHECK(refused("clip", 0.0F));
  CHECK(refused("clip", -1.0F));
  CHECK(refused("clip", NAN));
  CHECK(refused("activations", std::vector<std::string>{"Tanh"}));
  CHECK(refused("activations", std::vector<std::string>{"Tanh", "Cosh"}));
  CHECK(refused("hidden_size", int64_t{4}));
  for (ir::TensorData Data::*member : {&Data::w, &Data::r, &Data::b, &Data::lengths, &Data::h0}) {
    Data bad = data;
    (bad.*member).dims.back() += 1;
    (bad.*member) = random.tensor((bad.*member).dtype, (bad.*member).dims);
    CHECK_FALSE(node_of(s, bad).infer().ok());
  }
}

TEST_CASE("contexts of a crafted image") {
  Source random(76);
  for (int round = 0; round < 60; ++round) {
    const auto op = random.pick<std::string>({"LSTM", "GRU", "RNN"});
    const Setup s = random_setup(random, op);
    if (s.steps > 10) continue;
    OneNode node = node_of(s, make_operands(random, s, random.pick<DvtDType>({DVT_F32, DVT_F16})));
    mutate(node, random, 200);
  }
}
