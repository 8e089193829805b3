// Main on several workers: whatever shares bytes is ordered, and results are the sequential loop's.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/parallel.hpp"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::exec::Dependencies;
using davit::exec::GraphView;
using davit::exec::ImageView;
using davit::exec::kNone;
using davit::exec::ValueKind;
using davit::testing::TinyModule;

namespace {

// Many short lives, so that memory is used again and again.
davit::ir::Module random_module(uint32_t seed, int64_t rows) {
  std::mt19937 random(seed);
  TinyModule tiny;
  std::vector<davit::ir::ValueId> values = {tiny.input("a", {rows, 8}), tiny.input("b", {rows, 8})};
  const uint32_t nodes = 5 + random() % 40;
  for (uint32_t i = 0; i < nodes; ++i) {
    const auto operand = [&] {
      return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 6)];
    };
    const std::string name = "v" + std::to_string(i);
    const char* const unary[] = {"Relu", "Sigmoid", "Neg", "Identity"};
    const char* const binary[] = {"Add", "Mul", "Sub"};
    values.push_back(random() % 2 == 0
                         ? tiny.node(unary[random() % 4], {operand()}, name)
                         : tiny.node(binary[random() % 3], {operand(), operand()}, name));
  }
  return tiny.build({values.back(), values[values.size() / 2], values[values.size() - 2]});
}

// Whether two values may share a byte; written on its own, from the image alone.
bool share_bytes(const ImageView& image, uint32_t a, uint32_t b) {
  const auto kind = image.values.kind[a];
  if (kind != image.values.kind[b]) return false;
  if (kind == ValueKind::kWord) return a == b;
  const uint64_t begin_a = image.values.offset[a];
  const uint64_t begin_b = image.values.offset[b];
  if (kind == ValueKind::kOutput) return begin_a == begin_b;
  if (kind != ValueKind::kPlanned) return false;
  return begin_a < begin_b + image.tensor_of(b)->bytes &&
         begin_b < begin_a + image.tensor_of(a)->bytes;
}

// Whether node b must come after node a because of what they touch.
bool conflict(const ImageView& image, const GraphView& graph, uint32_t a, uint32_t b) {
  const auto touches = [&](std::span<const uint32_t> left, std::span<const uint32_t> right) {
    return std::ranges::any_of(left, [&](uint32_t x) {
      return x != kNone && std::ranges::any_of(right, [&](uint32_t y) {
               return y != kNone && share_bytes(image, x, y);
             });
    });
  };
  return touches(graph.outputs_of(a), graph.inputs_of(b)) ||
         touches(graph.outputs_of(a), graph.outputs_of(b)) ||
         touches(graph.inputs_of(a), graph.outputs_of(b));
}

std::vector<std::vector<bool>> reachable(const Dependencies& order) {
  const size_t count = order.indegree.size();
  std::vector<std::vector<bool>> from(count, std::vector<bool>(count, false));
  for (size_t node = count; node-- > 0;) {
    for (uint32_t i = order.successor_offsets[node]; i < order.successor_offsets[node + 1]; ++i) {
      const uint32_t to = order.successors[i];
      from[node][to] = true;
      for (size_t k = 0; k < count; ++k) from[node][k] = from[node][k] || from[to][k];
    }
  }
  return from;
}

}  // namespace

TEST_CASE("nodes that share bytes are ordered as in the image") {
  uint64_t conflicts = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto compiled = davit::compiler::compile_module(random_module(seed, 4), {});
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().to_string());
    const davit::testing::AlignedBytes memory(compiled->bytes);
    auto opened = davit::exec::open_image_memory(
        {static_cast<const std::byte*>(memory.data()), memory.size()}, {});
    REQUIRE(opened.ok());
    const ImageView& image = (*opened)->view;
    const GraphView& graph = image.graphs[image.main];
    REQUIRE(davit::exec::reason_to_stay_sequential(image, graph).empty());
    const auto ordered = reachable(davit::exec::dependencies_of(image, graph));
    for (uint32_t b = 0; b < graph.node_count; ++b) {
      for (uint32_t a = 0; a < b; ++a) {
        if (!conflict(image, graph, a, b)) continue;
        ++conflicts;
        CHECK(ordered[a][b]);
      }
    }
  }
  CHECK(conflicts > 1000);
}

TEST_CASE("two and three workers give the bits of one") {
  for (const uint32_t workers : {2U, 3U}) {
    DvtPoolOptions options;
    dvt_pool_options_init(&options);
    options.workers = workers;
    DvtError error{};
    DvtPool* raw_pool = nullptr;
    REQUIRE(dvt_pool_create(&options, &raw_pool, &error) == DVT_OK);
    const std::unique_ptr<DvtPool, void (*)(DvtPool*)> pool(raw_pool, dvt_pool_destroy);
    CHECK(dvt_pool_workers(raw_pool) == workers);
    for (uint32_t seed = 0; seed < 40; ++seed) {
      CAPTURE(seed);
      const auto image = davit::compiler::compile_module(random_module(seed, 512), {});
      REQUIRE(image.ok());
      std::vector<NpyArray> inputs;
      for (int port = 0; port < 2; ++port) {
        NpyArray input{DVT_F32, {512, 8}, std::vector<std::byte>(512 * 8 * 4)};
        std::mt19937 random(seed + uint32_t(port));
        for (size_t i = 0; i < 512 * 8; ++i) {
          reinterpret_cast<float*>(input.bytes.data())[i] = float(random() % 100) / 16 - 3;
        }
        inputs.push_back(std::move(input));
      }
      const auto expected = davit::testing::run_image(image->bytes, inputs);
      REQUIRE_MESSAGE(expected.ok(), expected.status().to_string());
      const auto got = davit::testing::run_image(image->bytes, inputs, nullptr, 20, raw_pool);
      REQUIRE_MESSAGE(got.ok(), got.status().to_string());
      for (size_t i = 0; i < got->size(); ++i) CHECK((*got)[i].bytes == (*expected)[i].bytes);
    }
  }
}

TEST_CASE("how Main was run is told, and a schedule that does not exist is refused") {
  const auto compiled = davit::compiler::compile_module(random_module(1, 4), {});
  REQUIRE(compiled.ok());
  const davit::testing::AlignedBytes memory(compiled->bytes);
  DvtError error{};
  DvtImage* image = nullptr;
  REQUIRE(dvt_image_open_memory(memory.data(), memory.size(), nullptr, &image, &error) == DVT_OK);
  DvtPool* pool = nullptr;
  REQUIRE(dvt_pool_create(nullptr, &pool, &error) == DVT_OK);
  const auto told = [&](DvtPool* with, uint32_t schedule) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = with;
    options.schedule = schedule;
    DvtExecutor* executor = nullptr;
    if (dvt_executor_create(image, &options, &executor, &error) != DVT_OK) {
      return std::string(error.message);
    }
    DvtScheduleInfo info;
    dvt_executor_schedule(executor, &info);
    dvt_executor_destroy(executor);
    return std::string(info.reason);
  };
  CHECK(told(nullptr, DVT_SCHEDULE_AUTO) == "no pool of workers was given");
  CHECK(told(pool, DVT_SCHEDULE_SEQUENTIAL) == "asked for");
  CHECK(told(pool, DVT_SCHEDULE_DYNAMIC) == "asked for");
  CHECK(told(pool, 9) == "DvtExecutorOptions.schedule is unknown");
  dvt_pool_destroy(pool);
  dvt_image_close(image);

  DvtPoolOptions options;
  dvt_pool_options_init(&options);
  options.workers = 65;
  CHECK(dvt_pool_create(&options, &pool, &error) == DVT_INVALID_ARGUMENT);
  CHECK(pool == nullptr);
  options.struct_size = 3;
  CHECK(dvt_pool_create(&options, &pool, &error) == DVT_VERSION_MISMATCH);
}
