#include "bench/graphs.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "lowering/image/image_model.hpp"

namespace davit::bench {
namespace {

DvtCode run_empty(void* /*ctx*/) {
  return DVT_OK;
}
DvtCode check_empty(const DvtContext* /*ctx*/, char* /*reason*/, size_t /*size*/) {
  return DVT_OK;
}

constexpr DvtKernel kEmpty = {
    .name = "bench.Empty",
    .abi_version = DVT_KERNEL_ABI_VERSION,
    .flags = DVT_KERNEL_LANE_NORMAL | DVT_KERNEL_PURE,
    .input_min = 0,
    .input_max = 16,
    .output_min = 1,
    .output_max = 1,
    .attribute_bytes = 0,
    .attribute_count = 0,
    .attributes = nullptr,
    .run = run_empty,
    .check = check_empty,
};

image::Value node_value(const LayeredGraph& graph, uint32_t node) {
  image::Value value;
  if (graph.value_bytes == 0) return value;
  value.kind = image::ValueKind::kPlanned;
  value.has_tensor = true;
  value.tensor.dtype = DVT_U8;
  value.tensor.rank = 1;
  value.tensor.bytes = graph.value_bytes;
  value.tensor.dims[0] = static_cast<int64_t>(graph.value_bytes);
  value.offset = node * graph.value_bytes;
  return value;
}

uint32_t add_constant(image::ImageModel& model, uint64_t bytes) {
  image::Value value;
  value.kind = image::ValueKind::kConstant;
  value.has_tensor = true;
  value.tensor.dtype = DVT_U8;
  value.tensor.rank = 1;
  value.tensor.bytes = bytes;
  value.tensor.dims[0] = static_cast<int64_t>(bytes);
  value.name = "weights";
  model.constants.assign(bytes, std::byte{0x5A});
  model.values.push_back(value);
  return static_cast<uint32_t>(model.values.size() - 1);
}

}  // namespace

DvtKernelTable empty_kernels() {
  return {&kEmpty, 1};
}

std::vector<std::byte> layered_image(const LayeredGraph& graph) {
  image::ImageModel model;
  const uint32_t kernel = image::intern_kernel(model, kEmpty);
  const uint32_t count = graph.layers * graph.width;
  std::mt19937 random(12345);  // NOLINT(cert-msc51-cpp): the same graph every time.
  image::Graph main;
  main.role = image::GraphRole::kMain;
  main.nodes.resize(count);
  for (uint32_t node = 0; node < count; ++node) {
    model.values.push_back(node_value(graph, node));
    image::Node& made = main.nodes[node];
    made.kernel = kernel;
    made.outputs = {node};
    made.origin = "node_" + std::to_string(node);
    made.op = "bench::Empty(1)";
    const uint32_t layer = node / graph.width;
    const bool extra = graph.extra_every > 0 && node % graph.extra_every == 0;
    const uint32_t wanted = std::min(graph.inputs + (extra ? 1 : 0), graph.width);
    while (layer > 0 && made.inputs.size() < wanted) {
      const uint32_t from = (layer - 1) * graph.width + random() % graph.width;
      if (std::find(made.inputs.begin(), made.inputs.end(), from) == made.inputs.end()) {
        made.inputs.push_back(from);
      }
    }
  }
  if (graph.constant_bytes > 0) {
    main.nodes[0].inputs.push_back(add_constant(model, graph.constant_bytes));
  }
  model.graphs.push_back(std::move(main));
  model.arena_bytes = count * graph.value_bytes;
  model.lower_bound_bytes = model.arena_bytes;
  model.provenance.producer = "bench";

  const DvtKernelTable tables[] = {empty_kernels()};
  Result<std::vector<std::byte>> bytes = image::write_image(model, tables);
  if (!bytes.ok()) {
    std::fprintf(stderr, "cannot write the image: %s\n", bytes.status().to_string().c_str());
    std::exit(1);  // NOLINT(concurrency-mt-unsafe)
  }
  return std::move(bytes).value();
}

}  // namespace davit::bench
