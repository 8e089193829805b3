// Main on several workers: whatever shares bytes is ordered, and results are the sequential loop's.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/dependencies.hpp"
#include "exec/dynamic.h"
#include "exec/runtime.h"
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

// Cuts two values in halves, and puts a half of each back together.
davit::ir::ValueId cut_and_join(TinyModule& tiny, davit::ir::ValueId a, davit::ir::ValueId b,
                                int64_t rows, const std::string& name) {
  const auto half = [&](davit::ir::ValueId from, int64_t first, const std::string& suffix) {
    const auto starts =
        tiny.constant(name + suffix + "s", davit::ir::make_i64_tensor({1}, {first}));
    const auto ends =
        tiny.constant(name + suffix + "e", davit::ir::make_i64_tensor({1}, {first + rows / 2}));
    const auto cut = tiny.node("Slice", {from, starts, ends}, name + suffix);
    return tiny.node("Sigmoid", {cut}, name + suffix + "r");
  };
  const auto left = half(a, 0, "l");
  return tiny.node("Concat", {left, half(b, rows / 2, "h")}, name, {{"axis", int64_t(0)}});
}

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
    if (random() % 6 == 0) {
      const auto a = operand();
      values.push_back(cut_and_join(tiny, a, operand(), rows, name));
      continue;
    }
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

davit::compiler::CompileOptions for_workers(uint32_t workers) {
  davit::compiler::CompileOptions options;
  options.workers = workers;
  options.schedule_gain = 1;  // Whatever it promises.
  return options;
}

// Which nodes come after which by the parts and waits of the image's schedule; from the tables
// alone.
std::vector<std::vector<bool>> planned_order(const GraphView& graph) {
  const uint32_t count = graph.node_count;
  std::vector<std::vector<uint32_t>> next(count);
  for (uint32_t part = 0; part < graph.part_count; ++part) {
    for (uint32_t at = graph.part_off[part]; at < graph.part_off[part + 1]; ++at) {
      if (at > graph.part_off[part]) {
        next[graph.part_nodes[at - 1]].push_back(graph.part_nodes[at]);
      }
      for (uint32_t i = graph.wait_off[at]; i < graph.wait_off[at + 1]; ++i) {
        next[graph.part_nodes[graph.waits[i]]].push_back(graph.part_nodes[at]);
      }
    }
  }
  std::vector<std::vector<bool>> after(count, std::vector<bool>(count, false));
  for (uint32_t from = 0; from < count; ++from) {
    std::vector<uint32_t> stack = next[from];
    while (!stack.empty()) {
      const uint32_t node = stack.back();
      stack.pop_back();
      if (after[from][node]) continue;
      after[from][node] = true;
      stack.insert(stack.end(), next[node].begin(), next[node].end());
    }
  }
  return after;
}

// Nodes of a graph whose shapes are set at run time, on the host or a device; a rule of its own for
// who must come after whom.
class RunTimeRules {
 public:
  RunTimeRules(const ImageView& image, const GraphView& graph)
      : image_(image), graph_(graph), memory_(image.values.count) {
    for (uint32_t value = 0; value < memory_.size(); ++value) memory_[value] = value;
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      const bool refers = host(node) == DVT_HOST_REFER_TO || device(node) == DVT_NODE_BUILD_REF;
      if (refers) memory_[graph.outputs_of(node)[0]] = memory_[graph.inputs_of(node)[0]];
    }
  }

  // Precondition: a < b.
  [[nodiscard]] bool conflict(uint32_t a, uint32_t b) const {
    const bool compute = host(a) == DVT_HOST_OTHER && host(b) == DVT_HOST_OTHER;
    if (compute && ::conflict(image_, graph_, a, b)) return true;
    for (const uint32_t value : graph_.outputs_of(a)) {
      if (value == kNone || !at_run_time(value)) continue;
      if (prepares(a) && lists(b, value)) return true;
      if (!prepares(a) && needs_data(b, value)) return true;
    }
    const bool frees = host(b) == DVT_HOST_FREE || device(b) == DVT_NODE_FREE;
    if (!frees) return false;
    for (const uint32_t value : graph_.inputs_of(b)) {
      const bool early = std::ranges::count(graph_.free_launches_of(b), a) != 0;
      if (!early && needs_data(a, value)) return true;
    }
    return false;
  }

 private:
  [[nodiscard]] DvtHostNode host(uint32_t node) const {
    return dvt_host_node(image_.kernels[graph_.kernel[node]]);
  }
  [[nodiscard]] DvtDeviceNode device(uint32_t node) const {
    return dvt_device_node(image_.kernels[graph_.kernel[node]]);
  }
  [[nodiscard]] bool at_run_time(uint32_t value) const {
    return image_.is_dynamic(value) || image_.values.kind[value] == ValueKind::kDevice;
  }
  // Sets shape or memory of its outputs, before the node that fills them.
  [[nodiscard]] bool prepares(uint32_t node) const {
    return host(node) != DVT_HOST_OTHER || device(node) == DVT_NODE_ALLOC ||
           device(node) == DVT_NODE_BUILD_REF;
  }
  [[nodiscard]] bool lists(uint32_t node, uint32_t value) const {
    const auto has = [&](std::span<const uint32_t> values) {
      return std::ranges::count(values, value) != 0;
    };
    return has(graph_.inputs_of(node)) || has(graph_.outputs_of(node));
  }
  // Reads, writes or frees what is in the memory of a value.
  [[nodiscard]] bool needs_data(uint32_t node, uint32_t value) const {
    const bool computes = host(node) == DVT_HOST_OTHER || host(node) == DVT_HOST_FREE;
    if (!computes || device(node) == DVT_NODE_ALLOC || device(node) == DVT_NODE_BUILD_REF) {
      return false;
    }
    const bool shape_only =
        (image_.kernels[graph_.kernel[node]]->flags & DVT_KERNEL_SHAPE_ONLY) != 0;
    const auto uses = [&](std::span<const uint32_t> values) {
      return std::ranges::any_of(
          values, [&](uint32_t used) { return used != kNone && memory_[used] == memory_[value]; });
    };
    return (!shape_only && uses(graph_.inputs_of(node))) || uses(graph_.outputs_of(node));
  }

  const ImageView& image_;
  const GraphView& graph_;
  std::vector<uint32_t> memory_;  // Per value: the one whose memory it has.
};

// The inputs' extents are not known before a run.
davit::ir::Module opened(davit::ir::Module module) {
  for (const davit::ir::ValueId input : module.graph_inputs(davit::ir::kMainGraph)) {
    module.set_shape(input, {davit::ir::Dim(), davit::ir::Dim()});
  }
  return module;
}

}  // namespace

TEST_CASE("shapes, addresses and data that come at run time come before who uses them") {
  uint64_t conflicts = 0;
  uint64_t unordered = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    for (const bool on_device : {false, true}) {
      CAPTURE(seed);
      CAPTURE(on_device);
      davit::compiler::CompileOptions options;
      if (on_device) options.target = DVT_TARGET_ASCEND;
      const auto compiled =
          davit::compiler::compile_module(opened(random_module(seed, 4)), options);
      REQUIRE_MESSAGE(compiled.ok(), compiled.status().to_string());
      const davit::testing::AlignedBytes memory(compiled->bytes);
      auto image = davit::exec::open_image_memory(
          {static_cast<const std::byte*>(memory.data()), memory.size()}, {});
      REQUIRE_MESSAGE(image.ok(), image.status().to_string());
      const ImageView& view = (*image)->view;
      const GraphView& graph = view.graphs[view.main];
      CHECK(davit::exec::drives_device(view, graph) == on_device);
      const std::string reason = on_device
                                     ? davit::exec::reason_to_keep_device_in_order(view, graph)
                                     : davit::exec::reason_to_keep_in_order(view, graph);
      REQUIRE(reason.empty());
      const auto ordered =
          reachable(on_device ? davit::exec::device_dependencies_of(view, graph)
                              : davit::exec::host_dependencies_of(view, graph, seed % 2 == 0));
      const RunTimeRules rules(view, graph);
      for (uint32_t b = 0; b < graph.node_count; ++b) {
        for (uint32_t a = 0; a < b; ++a) {
          if (!ordered[a][b]) ++unordered;
          if (!rules.conflict(a, b)) continue;
          ++conflicts;
          CAPTURE(a);
          CAPTURE(b);
          INFO(std::string(view.kernel_refs[graph.kernel[a]].name), " before ",
               std::string(view.kernel_refs[graph.kernel[b]].name));
          CHECK(ordered[a][b]);
        }
      }
    }
  }
  CHECK(conflicts > 1000);
  CHECK(unordered > 1000);
}

TEST_CASE("no interleaving of a schedule has two values alive that share a byte") {
  uint32_t schedules = 0;
  uint64_t conflicts = 0;
  uint64_t unordered = 0;
  uint32_t joined = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const auto compiled =
        davit::compiler::compile_module(random_module(seed, 512), for_workers(2 + seed % 3));
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().to_string());
    if (compiled->report.schedule_workers == 0) continue;
    ++schedules;
    joined += compiled->report.joined_nodes;
    CHECK(compiled->report.schedule_ns < compiled->report.sequential_ns);
    const davit::testing::AlignedBytes memory(compiled->bytes);
    auto opened = davit::exec::open_image_memory(
        {static_cast<const std::byte*>(memory.data()), memory.size()}, {});
    REQUIRE_MESSAGE(opened.ok(), opened.status().to_string());
    const ImageView& image = (*opened)->view;
    const GraphView& graph = image.graphs[image.main];
    REQUIRE(graph.part_count == compiled->report.schedule_workers);
    const auto after = planned_order(graph);
    for (uint32_t b = 0; b < graph.node_count; ++b) {
      for (uint32_t a = 0; a < b; ++a) {
        CHECK_FALSE(after[b][a]);  // The image is in an order that the schedule allows.
        if (!after[a][b]) ++unordered;
        if (!conflict(image, graph, a, b)) continue;
        ++conflicts;
        CHECK(after[a][b]);
      }
    }
  }
  CHECK(schedules > 100);
  CHECK(conflicts > 1000);
  CHECK(unordered > 1000);
  CHECK(joined > 100);
}

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
  uint32_t planned = 0;
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
      const auto image =
          davit::compiler::compile_module(random_module(seed, 512), for_workers(workers));
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
      for (const uint32_t schedule : {DVT_SCHEDULE_DYNAMIC, DVT_SCHEDULE_PLANNED}) {
        if (schedule == DVT_SCHEDULE_PLANNED && image->report.schedule_workers == 0) continue;
        planned += schedule == DVT_SCHEDULE_PLANNED ? 1 : 0;
        const auto got = davit::testing::run_image(
            image->bytes, inputs, {.runs = 20, .pool = raw_pool, .schedule = schedule});
        REQUIRE_MESSAGE(got.ok(), got.status().to_string());
        for (size_t i = 0; i < got->size(); ++i) CHECK((*got)[i].bytes == (*expected)[i].bytes);
      }
    }
  }
  CHECK(planned > 20);
}

TEST_CASE("an image's schedule is tried where there are as many workers as it is for") {
  // Which modules are random depends on the compiler's order of evaluation.
  auto compiled = davit::compiler::compile_module(random_module(0, 512), for_workers(3));
  for (uint32_t seed = 1; compiled.ok() && compiled->report.schedule_workers != 3; ++seed) {
    REQUIRE(seed < 100);
    compiled = davit::compiler::compile_module(random_module(seed, 512), for_workers(3));
  }
  REQUIRE(compiled.ok());
  const davit::testing::AlignedBytes memory(compiled->bytes);
  DvtError error{};
  DvtImage* image = nullptr;
  REQUIRE(dvt_image_open_memory(memory.data(), memory.size(), nullptr, &image, &error) == DVT_OK);
  DvtPoolOptions pool_options;
  dvt_pool_options_init(&pool_options);
  pool_options.workers = 3;
  DvtPool* pool = nullptr;
  REQUIRE(dvt_pool_create(&pool_options, &pool, &error) == DVT_OK);
  std::vector<float> buffer(512 * 8 * 8);
  const auto told = [&](uint32_t workers, uint32_t schedule) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = pool;
    options.schedule = schedule;
    options.workers_max = workers;
    DvtExecutor* executor = nullptr;
    REQUIRE(dvt_executor_create(image, &options, &executor, &error) == DVT_OK);
    constexpr size_t kBytes = 512 * 8 * sizeof(float);
    for (uint32_t i = 0; i < 2; ++i) {
      CHECK(dvt_executor_bind_input(executor, i, &buffer[i * 4096], kBytes, &error) == DVT_OK);
    }
    for (uint32_t i = 0; i < 3; ++i) {
      CHECK(dvt_executor_bind_output(executor, i, &buffer[(2 + i) * 4096], kBytes, &error) ==
            DVT_OK);
    }
    for (int run = 0; run < 12; ++run) CHECK(dvt_executor_run(executor, &error) == DVT_OK);
    DvtScheduleInfo info;
    dvt_executor_schedule(executor, &info);
    dvt_executor_destroy(executor);
    return std::string(info.reason);
  };
  CHECK(told(3, DVT_SCHEDULE_AUTO).find(", planned ") != std::string::npos);
  const std::string few = told(2, DVT_SCHEDULE_AUTO);
  CHECK(few.find("planned") == std::string::npos);
  CHECK(few.ends_with("; the image's schedule is for 3 workers"));
  // Who asks for it gets it: a part that nobody has claimed is adopted.
  CHECK(told(2, DVT_SCHEDULE_PLANNED) == "asked for");
  CHECK(told(1, DVT_SCHEDULE_PLANNED) == "asked for");
  dvt_pool_destroy(pool);
  dvt_image_close(image);
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
  CHECK(told(pool, DVT_SCHEDULE_PLANNED) ==
        "planned scheduling was asked for, but the image has no schedule");
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
