// sequential_bench: what a node costs in the sequential loop, against a loop written by hand.
//
// The peer is what somebody would write who needs no engine: an array of {fn, ctx}, each ctx an
// object of its own, called in order until one fails. Bodies are empty and called through a pointer
// in both. Ours is dvt_executor_run() of an image, with everything that it does around the loop.
#include <cstdint>
#include <string>
#include <vector>

#include "bench/graphs.hpp"
#include "bench/report.hpp"
#include "davit/davit.hpp"

namespace {

using davit::bench::LayeredGraph;

struct HandNode {
  DvtKernelFn fn;
  void* ctx;
};

// Never inlined, so that neither the body nor the array is known where it is called.
[[gnu::noinline]] size_t hand_loop(const HandNode* nodes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (nodes[i].fn(nodes[i].ctx) != DVT_OK) return i;
  }
  return count;
}

bool measure_graph(davit::bench::Report& report, const char* name, const LayeredGraph& graph) {
  const std::vector<std::byte> bytes = davit::bench::layered_image(graph);
  const DvtKernelTable tables[] = {davit::bench::empty_kernels()};
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = tables;
  options.kernel_table_count = 1;
  const auto image = davit::Image::borrow(bytes, &options);
  if (!image) {
    std::fprintf(stderr, "%s\n", image.error().text().c_str());
    return false;
  }
  auto executor = davit::Executor::create(*image);
  if (!executor) {
    std::fprintf(stderr, "%s\n", executor.error().text().c_str());
    return false;
  }

  const size_t count = image->info().node_count;
  struct alignas(64) HandContext {
    uint64_t state;
  };
  std::vector<HandContext> contexts(count);
  std::vector<HandNode> nodes;
  for (HandContext& context : contexts) nodes.push_back({tables[0].kernels[0].run, &context});

  bool right = true;
  const davit::bench::Contest contest = davit::bench::measure({
      [&] { right = !executor->run() && right; },
      [&] { right = hand_loop(nodes.data(), nodes.size()) == count && right; },
  });
  const auto nodes_ns = [&](double ns) { return ns / static_cast<double>(count); };
  report.add({.metric = std::string(name) + ", time per node",
              .value = nodes_ns(contest.median_ns[0]),
              .unit = "ns",
              .peer = "hand-written {fn, ctx} loop",
              .peer_value = nodes_ns(contest.median_ns[1]),
              .paired_ratio = contest.ratio[0]},
             1.10);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("sequential_bench", argc, argv);
  const bool right =
      measure_graph(report, "chain of 10,000 empty nodes", {.layers = 10'000, .width = 1}) &&
      measure_graph(report, "100 layers of 1,000 empty nodes",
                    {.layers = 100, .width = 1'000, .inputs = 3});
  if (!right) {
    std::fprintf(stderr, "sequential_bench: a run failed\n");
    return 1;
  }
  return report.finish();
}
