#include "tests/ir/passes/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/dtype.hpp"
#include "ir/passes/rewrite.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "ops/definition.hpp"

namespace davit::testing {

using ir::kMainGraph;
using ir::kNoValue;
using ir::Module;
using ir::NodeId;
using ir::TensorData;
using ir::ValueId;

Module parse_graph(const std::string& body, int64_t opset) {
  const std::string text = "davit-ir 1\nsource \"\" \"\"\nopset \"\" " + std::to_string(opset) +
                           "\nopset \"com.x\" 1\nopset \"davit\" 21\ngraph \"g\" {\n" + body +
                           "\n}\n";
  Result<Module> module = ir::parse_text(text);
  REQUIRE_MESSAGE(module.ok(), module.status().to_string(), "\n", body);
  REQUIRE(module->sort().ok());
  const Result<uint32_t> inferred = passes::infer_shapes(*module);
  REQUIRE_MESSAGE(inferred.ok(), inferred.status().to_string(), "\n", body);
  return std::move(*module);
}

std::string graph_text(const Module& module) {
  const std::string text = ir::print_text(module);
  std::vector<std::string> lines, constants;
  size_t first_constant = 0;
  for (size_t begin = text.find("graph \""); begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.starts_with("  const ")) {
      if (constants.empty()) first_constant = lines.size();
      constants.push_back(std::move(line));
    } else {
      lines.push_back(std::move(line));
    }
    begin = end + 1;
  }
  std::sort(constants.begin(), constants.end());
  lines.insert(lines.begin() + std::ptrdiff_t(first_constant), constants.begin(), constants.end());
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

ValueId find_value(const Module& module, std::string_view name) {
  for (uint32_t v = 0; v < module.value_count(); ++v) {
    if (module.value_alive(ValueId{v}) && module.value_name(ValueId{v}) == name) return ValueId{v};
  }
  return kNoValue;
}

NodeId find_node(const Module& module, std::string_view name) {
  for (uint32_t n = 0; n < module.node_count(); ++n) {
    if (module.node_alive(NodeId{n}) && module.node_name(NodeId{n}) == name) return NodeId{n};
  }
  return ir::kNoNode;
}

// ---- Results -----------------------------------------------------------------------------------

namespace {

template <class T>
std::vector<std::byte> numbers(uint64_t count, std::mt19937& random, bool specials) {
  std::vector<T> values(count);
  const auto extremes = [] {
    using Limits = std::numeric_limits<T>;
    std::vector<T> out = {Limits::lowest(), Limits::max(), T(0), T(1)};
    if constexpr (std::is_floating_point_v<T>) {
      out.insert(out.end(), {T(-0.0), Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(),
                             Limits::denorm_min(), -Limits::min()});
    }
    return out;
  }();
  for (T& value : values) {
    if (specials && random() % 4 == 0) {
      value = extremes[random() % extremes.size()];
    } else if constexpr (std::is_floating_point_v<T>) {
      value = T(int(random() % 4001) - 2000) / T(500);
    } else {
      value = T(random() % 7) - T(std::is_signed_v<T> ? 3 : 0);
    }
  }
  std::vector<std::byte> bytes(count * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> numbers_of(DvtDType dtype, uint64_t count, std::mt19937& random,
                                  bool specials) {
  switch (dtype) {
    case DVT_F32:
      return numbers<float>(count, random, specials);
    case DVT_F64:
      return numbers<double>(count, random, specials);
    case DVT_I32:
      return numbers<int32_t>(count, random, specials);
    case DVT_I64:
      return numbers<int64_t>(count, random, specials);
    case DVT_I8:
      return numbers<int8_t>(count, random, specials);
    case DVT_U8:
      return numbers<uint8_t>(count, random, specials);
    case DVT_I16:
      return numbers<int16_t>(count, random, specials);
    case DVT_U16:
      return numbers<uint16_t>(count, random, specials);
    case DVT_U32:
      return numbers<uint32_t>(count, random, specials);
    case DVT_U64:
      return numbers<uint64_t>(count, random, specials);
    case DVT_BOOL: {
      std::vector<std::byte> bytes(count);
      for (std::byte& byte : bytes) byte = std::byte(random() % 2);
      return bytes;
    }
    default: {  // Halves.
      std::vector<double> values(count);
      const std::vector<std::byte> reals = numbers<double>(count, random, specials);
      if (count > 0) std::memcpy(values.data(), reals.data(), reals.size());
      return *passes::make_real_tensor(dtype, {int64_t(count)}, values).bytes;
    }
  }
}

}  // namespace

Tensors random_inputs(const Module& module, uint32_t seed, bool specials) {
  std::mt19937 random(seed);
  Tensors inputs;
  for (const ValueId input : module.graph_inputs(kMainGraph)) {
    const auto extents = passes::static_shape(module, input);
    REQUIRE(extents);
    TensorData shaped;
    shaped.dims = *extents;
    inputs[std::string(module.value_name(input))] =
        ir::make_tensor(module.dtype(input), *extents,
                        numbers_of(module.dtype(input), shaped.element_count(), random, specials));
  }
  return inputs;
}

Result<Tensors> evaluate_graph(const Module& module, const Tensors& inputs) {
  std::vector<TensorData> values(module.value_count());
  for (const ValueId input : module.graph_inputs(kMainGraph)) {
    values[index_of(input)] = inputs.at(std::string(module.value_name(input)));
  }
  const auto data_of = [&](ValueId value) -> const TensorData* {
    if (value == kNoValue) return nullptr;
    const TensorData* constant = module.constant(value);
    return constant != nullptr ? constant : &values[index_of(value)];
  };
  for (const NodeId node : module.graph_nodes(kMainGraph)) {
    std::vector<const TensorData*> operands;
    for (const ValueId value : module.inputs(node)) operands.push_back(data_of(value));
    auto results = ops::evaluate(ops::NodeView(module, node), operands);
    if (!results.ok()) return std::move(results.status());
    for (size_t i = 0; i < results->size(); ++i) {
      const ValueId value = module.outputs(node)[i];
      if (value != kNoValue) values[index_of(value)] = std::move((*results)[i]);
    }
  }
  Tensors outputs;
  for (const ValueId output : module.graph_outputs(kMainGraph)) {
    outputs[std::string(module.value_name(output))] = *data_of(output);
  }
  return outputs;
}

Status compare_outputs(const Tensors& expected, const Tensors& got, double relative) {
  const auto fail = [](const std::string& name, const std::string& message) {
    return Status({.code = DVT_INTERNAL, .message = message, .tensor = name});
  };
  if (expected.size() != got.size()) return fail("", "another number of outputs");
  for (const auto& [name, data] : expected) {
    const auto found = got.find(name);
    if (found == got.end()) return fail(name, "there is no such output");
    const TensorData& other = found->second;
    if (data.dtype != other.dtype || data.dims != other.dims) return fail(name, "another type");
    if (*data.bytes == *other.bytes) continue;
    const std::vector<double> a = passes::constant_reals(data);
    const std::vector<double> b = passes::constant_reals(other);
    double largest = 0;
    for (const double value : a) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    for (size_t i = 0; i < a.size(); ++i) {
      const bool same = a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]);
      if (same || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      if (std::abs(a[i] - b[i]) <= relative * largest) continue;
      return fail(name, "element " + std::to_string(i) + " is " + std::to_string(b[i]) +
                            " instead of " + std::to_string(a[i]));
    }
  }
  return {};
}

// ---- One pass ----------------------------------------------------------------------------------

namespace {

const passes::Pass& pass_named(const std::string& name) {
  const auto all = passes::all_passes();
  const auto pass = std::find_if(all.begin(), all.end(),
                                 [&](const passes::Pass& each) { return each.name == name; });
  REQUIRE_MESSAGE(pass != all.end(), "there is no pass ", name);
  return *pass;
}

uint32_t run_checked(const passes::Pass& pass, Module& module, passes::Refusals& refusals) {
  refusals.clear();
  const Result<uint32_t> changes = passes::run_pass(pass, module, refusals);
  REQUIRE_MESSAGE(changes.ok(), changes.status().to_string());
  return *changes;
}

}  // namespace

passes::Refusals check_pass(const PassCase& sample) {
  CAPTURE(sample.before);
  const passes::Pass& pass = pass_named(sample.pass);
  const Module original = parse_graph(sample.before, sample.opset);
  Module module = original;
  passes::Refusals refusals, unused;
  uint32_t changes = 1;
  for (int round = 0; changes != 0; ++round) {
    REQUIRE_MESSAGE(round < 16, "the pass does not come to an end: ", graph_text(module));
    changes = run_checked(pass, module, refusals);
    if (round == 0) CHECK(changes > 0);
    run_checked(pass_named("infer_shapes"), module, unused);
    run_checked(pass_named("fold_constants"), module, unused);
    run_checked(pass_named("remove_dead_nodes"), module, unused);
  }
  Module expected = parse_graph(sample.after, sample.opset);
  run_checked(pass_named("remove_dead_nodes"), expected, unused);
  CHECK(graph_text(module) == graph_text(expected));
  if (!sample.evaluates) return refusals;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const Tensors inputs = random_inputs(original, seed, sample.specials && seed % 2 == 1);
    const auto wanted = evaluate_graph(original, inputs);
    const auto got = evaluate_graph(module, inputs);
    REQUIRE_MESSAGE(wanted.ok(), wanted.status().to_string());
    REQUIRE_MESSAGE(got.ok(), got.status().to_string());
    const Status same = compare_outputs(*wanted, *got, sample.relative);
    CHECK_MESSAGE(same.ok(), same.to_string(), "\n", graph_text(module));
  }
  return refusals;
}

passes::Refusals check_untouched(const std::string& pass, const std::string& body, int64_t opset) {
  CAPTURE(body);
  Module module = parse_graph(body, opset);
  const std::string before = graph_text(module);
  passes::Refusals refusals;
  CHECK(run_checked(pass_named(pass), module, refusals) == 0);
  CHECK(graph_text(module) == before);
  return refusals;
}

}  // namespace davit::testing
