// lift_tables.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/ir/passes/support.hpp"

using namespace davit;

namespace {

uint32_t run_pass_once(ir::Module& module) {
  passes::Refusals refusals;
  const auto all = passes::all_passes();
  const auto pass = std::ranges::find(all, "lift_tables", &passes::Pass::name);
  REQUIRE(pass != all.end());
  CHECK(pass->level == passes::Level::kRequired);
  auto changes = passes::run_pass(*pass, module, refusals);
  REQUIRE_MESSAGE(changes.ok(), changes.status().to_string());
  CHECK(refusals.empty());
  return *changes;
}

std::string body(const std::string& weights) {
  return "input %x: i64[4] (%y: f32[3]) = TfIdfVectorizer \"t\" (%x) { mode = string \"TF\" "
         "min_gram_length = int 1 max_gram_length = int 2 max_skip_count = int 0 "
         "pool_int64s = ints [1, 2, 2, 3] ngram_counts = ints [0, 2] "
         "ngram_indexes = ints [0, 1, 2]" +
         weights + " } output (%y)";
}

}  // namespace

TEST_CASE("the tables of TfIdfVectorizer become inputs, once") {
  ir::Module module = testing::parse_graph(body(" weights = floats [0.5, 1, 2]"));
  CHECK(run_pass_once(module) == 1);
  const ir::NodeId node = testing::find_node(module, "t");
  const auto inputs = module.inputs(node);
  REQUIRE(inputs.size() == 5);
  CHECK(module.constant(inputs[1])->to_i64() == std::vector<int64_t>{1, 2, 2, 3});
  CHECK(module.constant(inputs[2])->to_i64() == std::vector<int64_t>{0, 2});
  CHECK(module.constant(inputs[3])->to_i64() == std::vector<int64_t>{0, 1, 2});
  CHECK(module.constant(inputs[4])->dtype == DVT_F32);
  CHECK(module.value_name(module.outputs(node)[0]) == "y");
  CHECK(run_pass_once(module) == 0);
}

TEST_CASE("a list that is not there is no input") {
  ir::Module module = testing::parse_graph(body(""));
  CHECK(run_pass_once(module) == 1);
  CHECK(module.inputs(testing::find_node(module, "t")).size() == 4);
}

TEST_CASE("another operator of that name stays as it is") {
  ir::Module module = testing::parse_graph(
      "input %x: f32[4] (%y) = com.x::TfIdfVectorizer \"t\" (%x) { pool_int64s = ints [1] } "
      "output (%y)");
  CHECK(run_pass_once(module) == 0);
}
