// TfIdfVectorizer against a count of all n-grams, as a node whose tables are inputs.
#include "ops/kernels/tfidf.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/ops/harness.hpp"
#include "tests/ops/mutation.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

struct Setup {
  std::string mode;
  int64_t min = 1, max = 1, skips = 0;
  std::vector<int64_t> pool, starts, places;
  std::vector<float> weights;  // Empty: none.
};

OneNode node_of(const Setup& s, const ir::TensorData& x) {
  OneNode node("TfIdfVectorizer", 9);
  node.attribute("mode", s.mode).attribute("min_gram_length", s.min);
  node.attribute("max_gram_length", s.max).attribute("max_skip_count", s.skips);
  node.attribute("pool_int64s", s.pool).attribute("ngram_counts", s.starts);
  node.attribute("ngram_indexes", s.places);
  if (!s.weights.empty()) node.attribute("weights", s.weights);
  node.constant(x).constant_i64(s.pool).constant_i64(s.starts).constant_i64(s.places);
  if (!s.weights.empty()) {
    node.constant(tensor(DVT_F32, {int64_t(s.weights.size())}, s.weights));
  }
  return node;
}

Setup random_setup(Source& random) {
  Setup s = {.mode = random.pick<std::string>({"TF", "IDF", "TFIDF"}),
             .min = random.between(1, 3),
             .skips = random.between(0, 3)};
  s.max = s.min + random.between(0, 2);
  for (int64_t n = 1; n <= 3; ++n) {
    s.starts.push_back(int64_t(s.pool.size()));
    for (int64_t i = random.between(0, 4); i > 0; --i) {
      for (int64_t k = 0; k < n; ++k) s.pool.push_back(random.between(0, 3));
      s.places.push_back(random.between(0, 9));
    }
  }
  s.places.push_back(9);  // At least one, so that the width is known.
  for (int k = 0; k < 3; ++k) s.pool.push_back(7);
  if (random.flip()) {
    for (size_t i = 0; i < s.places.size(); ++i)
      s.weights.push_back(float(random.between(1, 8)) / 4);
  }
  return s;
}

// All n-grams of a row with their counts.
std::map<std::vector<double>, int> grams_of(const Setup& s, const Values& row) {
  std::map<std::vector<double>, int> counts;
  for (int64_t n = s.min; n <= s.max; ++n) {
    for (int64_t skip = 0; skip <= (n == 1 ? 0 : s.skips); ++skip) {
      for (size_t i = 0; i + size_t((n - 1) * (skip + 1)) < row.size(); ++i) {
        std::vector<double> gram;
        for (int64_t k = 0; k < n; ++k) gram.push_back(row[i + size_t(k * (skip + 1))]);
        ++counts[gram];
      }
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("n-grams are counted and weighed by their definition") {
  Source random(171);
  for (int round = 0; round < 300; ++round) {
    const Setup s = random_setup(random);
    const int64_t rows = random.between(0, 3), columns = random.between(0, 9);
    const Dims dims = rows == 0 ? Dims{columns} : Dims{rows, columns};
    Values values(product(dims));
    for (double& value : values) value = double(random.between(0, 3));
    OneNode node = node_of(s, make_data(random.pick<DvtDType>({DVT_I32, DVT_I64}), dims, values));
    const auto outputs = node.evaluate();
    REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
    Values expected;
    for (int64_t r = 0; r < std::max<int64_t>(rows, 1); ++r) {
      const auto begin = values.begin() + r * columns;
      const auto counts = grams_of(s, Values(begin, begin + columns));
      Values y(10, 0.0);
      size_t gram = 0;
      for (size_t n = 1; n <= 3; ++n) {
        const size_t end = n < 3 ? size_t(s.starts[n]) : s.pool.size();
        for (auto at = size_t(s.starts[n - 1]); at < end; at += n, ++gram) {
          const std::vector<double> key(s.pool.begin() + int64_t(at),
                                        s.pool.begin() + int64_t(at + n));
          const auto found = counts.find(key);
          if (found == counts.end()) continue;
          const double weight = s.weights.empty() ? 1 : double(s.weights[gram]);
          y[size_t(s.places[gram])] += s.mode == "TF"    ? found->second
                                       : s.mode == "IDF" ? weight
                                                         : found->second * weight;
        }
      }
      expected.insert(expected.end(), y.begin(), y.end());
    }
    CHECK(to_values((*outputs)[0]) == expected);
  }
}

TEST_CASE("tables that do not belong together stop the run; attributes are judged before") {
  Source random(172);
  const auto x = make_data(DVT_I64, {4}, {1, 2, 3, 1});
  const Setup good = {
      .mode = "TF", .max = 2, .pool = {1, 2, 2, 3}, .starts = {0, 2}, .places = {0, 1, 2}};
  CHECK(node_of(good, x).evaluate().ok());
  for (const std::vector<int64_t>& starts :
       std::vector<std::vector<int64_t>>{{0, 1}, {1, 2}, {0, 5}, {0, -1}, {2, 0}, {}}) {
    Setup bad = good;
    bad.starts = starts;
    CHECK_FALSE(node_of(bad, x).evaluate().ok());
  }
  Setup places = good;
  places.places = {0, 1};
  CHECK_FALSE(node_of(places, x).evaluate().ok());
  places.places = {0, 1, -1};
  CHECK_FALSE(node_of(places, x).infer().ok());
  Setup mode = good;
  mode.mode = "DF";
  CHECK_FALSE(node_of(mode, x).infer().ok());
  Setup lengths = good;
  lengths.min = 3;
  CHECK_FALSE(node_of(lengths, x).infer().ok());
  lengths.min = 0;
  CHECK_FALSE(node_of(lengths, x).infer().ok());
  Setup weights = good;
  weights.weights = {1, 2};
  CHECK_FALSE(node_of(weights, x).infer().ok());
}

TEST_CASE("contexts of a crafted image") {
  Source random(173);
  for (int round = 0; round < 20; ++round) {
    OneNode node =
        node_of(random_setup(random), make_data(DVT_I64, {2, 4}, {0, 1, 2, 3, 3, 2, 1, 0}));
    mutate(node, random, 300);
  }
}
