// Einsum against a walk over all letters, and Det against Leibniz' formula.
#include "ops/kernels/einsum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// Operands with terms of plain letters (an ellipsis is written as capital letters by the tests).
struct Operand2 {
  std::string term;
  Dims dims;
  Values values;
};

// Sums over every assignment of all letters, in double.
Values naive(const std::vector<Operand2>& operands, const std::string& output,
             const std::map<char, int64_t>& extents) {
  std::string letters;
  for (const auto& [letter, extent] : extents) letters += letter;
  Dims out_dims;
  for (const char letter : output) out_dims.push_back(extents.at(letter));
  Values y(product(out_dims), 0.0);
  std::map<char, int64_t> at;
  const auto offset = [&at](const std::string& term, const Dims& dims) {
    int64_t place = 0;
    for (size_t i = 0; i < term.size(); ++i) {
      place = place * dims[i] + (dims[i] == 1 ? 0 : at[term[i]]);
    }
    return size_t(place);
  };
  const auto visit = [&](auto&& self, size_t depth) -> void {
    if (depth < letters.size()) {
      for (int64_t i = 0; i < extents.at(letters[depth]); ++i) {
        at[letters[depth]] = i;
        self(self, depth + 1);
      }
      return;
    }
    double product = 1;
    for (const Operand2& operand : operands) {
      product *= operand.values[offset(operand.term, operand.dims)];
    }
    y[offset(output, out_dims)] += product;
  };
  visit(visit, 0);
  return y;
}

std::string random_term(Source& random, const std::string& letters) {
  std::string term;
  for (int64_t i = random.between(0, 4); i > 0; --i) {
    term += letters[size_t(random.between(0, int64_t(letters.size()) - 1))];
  }
  return term;
}

}  // namespace

TEST_CASE("Einsum equals the sum over all letters: diagonals, repeats, orders, every dtype") {
  Source random(131);
  for (int round = 0; round < 700; ++round) {
    const auto dtype =
        random.pick<DvtDType>({DVT_F32, DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I8, DVT_I16,
                               DVT_I32, DVT_I64, DVT_U8, DVT_U16, DVT_U32, DVT_U64});
    std::map<char, int64_t> all = {{'a', 2}, {'b', 3}, {'c', 1}, {'d', 4}, {'Q', 2}};
    std::vector<Operand2> operands;
    std::map<char, int64_t> extents;
    std::string used, equation;
    OneNode node("Einsum", 12);
    const int64_t count = random.between(1, 3);
    for (int64_t i = 0; i < count; ++i) {
      Operand2 operand{.term = random_term(random, "abcdQ")};
      for (const char letter : operand.term) {
        operand.dims.push_back(random.between(0, 7) == 0 ? 1 : all[letter]);
        extents[letter] = std::max(extents[letter], operand.dims.back());
        if (used.find(letter) == std::string::npos) used += letter;
      }
      auto data = random.tensor(dtype, operand.dims);
      operand.values = to_values(data);
      for (double& value : operand.values) value = std::trunc(value / 4);  // Exact everywhere.
      node.constant(make_data(dtype, operand.dims, operand.values));
      equation += (i > 0 ? "," : "") + operand.term;
      if (random.flip()) equation += ' ';
      operands.push_back(std::move(operand));
    }
    std::string output = used;
    std::shuffle(output.begin(), output.end(), std::mt19937(uint32_t(round)));
    output.resize(size_t(random.between(0, int64_t(output.size()))));
    if (random.between(0, 3) == 0) {  // Implicit: the letters that appear once, sorted.
      output.clear();
      std::string text;
      for (const Operand2& operand : operands) text += operand.term;
      for (const char letter : used) {
        if (std::ranges::count(text, letter) == 1) output += letter;
      }
      std::ranges::sort(output);
    } else {
      equation += "->" + output;
    }
    INFO(equation);
    node.attribute("equation", equation);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    Values expected = naive(operands, output, extents);
    const double modulus = std::ldexp(1.0, 8 * int(dvt_dtype_size(dtype)));
    const bool is_signed =
        dtype == DVT_I8 || dtype == DVT_I16 || dtype == DVT_I32 || dtype == DVT_I64;
    const bool is_float =
        dtype == DVT_F32 || dtype == DVT_F64 || dtype == DVT_F16 || dtype == DVT_BF16;
    for (double& value : expected) {
      if (is_float || dvt_dtype_size(dtype) == 8) break;  // Doubles hold these sums.
      value -= std::floor(value / modulus) * modulus;     // Wraps.
      if (is_signed && value >= modulus / 2) value -= modulus;
    }
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 1), 0.0) <= 0.0);
  }
}

TEST_CASE("products of matrices in any order of axes give the bits of the plain sum") {
  Source random(132);
  const std::vector<std::pair<std::string, std::vector<Dims>>> cases = {
      {"ij,jk->ik", {{37, 300}, {300, 19}}},
      {"ij,kj->ki", {{21, 40}, {33, 40}}},
      {"bij,bjk->bik", {{3, 7, 20}, {3, 20, 18}}},
      {"bqhd,bkhd->bhqk", {{2, 5, 3, 16}, {2, 9, 3, 16}}},
      {"bhqk,bkhd->bqhd", {{2, 3, 5, 9}, {2, 9, 3, 16}}},
      {"abc,bcd->ad", {{4, 5, 6}, {5, 6, 7}}},
      {"abc,cbd->ad", {{4, 5, 6}, {6, 5, 7}}},
      {"ab,cd->abcd", {{2, 3}, {4, 5}}},
      {"ab,cd->cadb", {{2, 3}, {4, 5}}},
      {"ij,j->i", {{20, 33}, {33}}},
      {"i,i->", {{100}, {100}}},
      {"ibj,jbk->kbi", {{6, 2, 8}, {8, 2, 4}}},
      {"ij,jk->i", {{6, 8}, {8, 4}}},
      {"bij,bjk->ikb", {{3, 7, 20}, {3, 20, 18}}},
  };
  for (const auto& [written, shapes] : cases) {
    const std::string equation = written;  // clang 14 captures no structured bindings.
    INFO(equation);
    const auto a = random.rough_tensor(shapes[0]);
    const auto b = random.rough_tensor(shapes[1]);
    OneNode node("Einsum", 12);
    node.attribute("equation", equation).constant(a).constant(b);
    auto recipe = recipe_of(node);
    REQUIRE_MESSAGE(recipe.ok(), recipe.status().to_string());
    const Dims dims = *node.view().output_extents(0);
    std::vector<int64_t> record(recipe->attributes.size() / 8);
    std::memcpy(record.data(), recipe->attributes.data(), recipe->attributes.size());
    const auto blocked = call_kernel("Einsum.f32", record.data(), {a, b}, DVT_F32, dims,
                                     dvt_einsum_workspace_bytes());
    const auto plain = call_kernel("Einsum.f32", record.data(), {a, b}, DVT_F32, dims);
    CHECK(*blocked.bytes == *plain.bytes);
  }
}

TEST_CASE("ellipses broadcast at their last axis") {
  Source random(133);
  const auto check = [&random](const std::string& equation, const std::vector<Dims>& shapes,
                               const std::vector<std::string>& terms, const std::string& output,
                               const std::map<char, int64_t>& extents) {
    INFO(equation);
    OneNode node("Einsum", 12);
    std::vector<Operand2> operands;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto data = random.tensor(DVT_F64, shapes[i]);
      operands.push_back({terms[i], shapes[i], to_values(data)});
      node.constant(data);
    }
    node.attribute("equation", equation);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    CHECK(excess_error(naive(operands, output, extents), to_values((*outputs)[0]), 1e-12, 1e-12) <=
          0.0);
  };
  check("...ij,...jk->...ik", {{2, 3, 4, 5}, {3, 5, 6}}, {"XYij", "Yjk"}, "XYik",
        {{'X', 2}, {'Y', 3}, {'i', 4}, {'j', 5}, {'k', 6}});
  check("...ii->...i", {{2, 3, 3}}, {"Xii"}, "Xi", {{'X', 2}, {'i', 3}});
  check("i...,...", {{4, 2, 1}, {2, 3}}, {"iXY", "XY"}, "XYi", {{'X', 2}, {'Y', 3}, {'i', 4}});
  check("...a->a", {{2, 3, 4}}, {"XYa"}, "a", {{'X', 2}, {'Y', 3}, {'a', 4}});
  check("a...b->b...a", {{4, 2, 3}}, {"aXb"}, "bXa", {{'X', 2}, {'a', 4}, {'b', 3}});
}

TEST_CASE("empty axes, symbols, and equations that are none") {
  Source random(134);
  OneNode empty("Einsum", 12);
  empty.attribute("equation", std::string("ij,jk->ik"));
  empty.constant(random.tensor(DVT_F32, {2, 0})).constant(random.tensor(DVT_F32, {0, 3}));
  CHECK(to_values((*empty.evaluate())[0]) == Values(6, 0.0));
  OneNode symbols("Einsum", 12);
  const ir::Dim n = symbols.symbol("N");
  symbols.attribute("equation", std::string("bij,bjk->bik"));
  symbols.input(DVT_F32, ir::Shape{n, ir::Dim(2), ir::Dim(3)});
  symbols.input(DVT_F32, ir::Shape{n, ir::Dim(3), ir::Dim()});
  CHECK(symbols.shape() == "[N,2,?]");
  const auto infers = [&random](const std::string& equation, const Dims& a, const Dims& b) {
    OneNode node("Einsum", 12);
    node.attribute("equation", equation).constant(random.tensor(DVT_F32, a));
    node.constant(random.tensor(DVT_F32, b));
    return node.infer().ok();
  };
  CHECK(infers("ij,jk->ik", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("ij,jk->ik", {2, 3}, {4, 4}));
  CHECK_FALSE(infers("ij,jk->ii", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("ij,jk->il", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("ij->i", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("ij,j->i", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("i1,jk->ik", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("i..,jk->ik", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("......,jk->ik", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("ij,jk->ik->k", {2, 3}, {3, 4}));
  CHECK_FALSE(infers("", {2, 3}, {3, 4}));
}

TEST_CASE("Det equals the sum over permutations") {
  Source random(135);
  for (int round = 0; round < 120; ++round) {
    const auto dtype = random.pick<DvtDType>({DVT_F32, DVT_F64, DVT_F16});
    const int64_t n = random.between(0, 4);
    const Dims batch(size_t(random.between(0, 2)), 2);
    Dims dims = batch;
    dims.insert(dims.end(), {n, n});
    const auto x = random.tensor(dtype, dims);
    OneNode node("Det", 11);
    node.constant(x);
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    const Values values = to_values(x);
    Values expected;
    for (int64_t m = 0; m < int64_t(product(batch)); ++m) {
      std::vector<int64_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      double sum = 0;
      do {
        double term = 1;
        for (size_t i = 0; i < order.size(); ++i) {
          term *= values[size_t((m * n + int64_t(i)) * n + order[i])];
          for (size_t k = i + 1; k < order.size(); ++k) term *= order[i] > order[k] ? -1 : 1;
        }
        sum += term;
      } while (std::next_permutation(order.begin(), order.end()));
      expected.push_back(sum);
    }
    CHECK(excess_error(expected, to_values((*outputs)[0]), tolerance(dtype, 1), 1e-10) <= 0.0);
  }
  OneNode bad("Det", 11);
  bad.constant(random.tensor(DVT_F32, {2, 3}));
  CHECK_FALSE(bad.infer().ok());
}

TEST_CASE("contexts of a crafted image") {
  Source random(136);
  for (int round = 0; round < 15; ++round) {
    const auto dtype = random.pick<DvtDType>({DVT_F32, DVT_F16, DVT_I32});
    OneNode node("Einsum", 12);
    node.attribute("equation", random.pick<std::string>({"...ij,...jk->...ik", "aij,ajk->ika"}));
    node.constant(random.tensor(dtype, {2, 3, 4})).constant(random.tensor(dtype, {2, 4, 2}));
    mutate(node, random, 300);
    OneNode det("Det", 11);
    det.constant(random.tensor(DVT_F32, {2, 3, 3}));
    mutate(det, random, 300);
  }
}
