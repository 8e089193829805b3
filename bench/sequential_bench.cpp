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

[[noreturn]] void give_up(const davit::Error& error) {
  std::fprintf(stderr, "sequential_bench: a run failed: %s\n", error.text().c_str());
  std::_Exit(1);
}

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

struct alignas(64) HandContext {
  uint64_t state;
};

// What a hand-written program would hold.
struct HandProgram {
  HandProgram(DvtKernelFn body, size_t count) : contexts(count) {
    nodes.reserve(count);
    for (HandContext& context : contexts) nodes.push_back({body, &context});
  }

  std::vector<HandContext> contexts;
  std::vector<HandNode> nodes;
};

davit::Executor load(const davit::Image& image) {
  auto executor = davit::Executor::create(image);
  if (!executor) give_up(executor.error());
  return std::move(*executor);
}

// Where memory lies decides how it meets the caches, by up to 30 % for the large graph: several
// placements of both are measured, and the median of those counts.
constexpr int kPlacements = 7;

void measure_graph(davit::bench::Report& report, const char* name, const LayeredGraph& graph) {
  const std::vector<std::byte> bytes = davit::bench::layered_image(graph);
  const DvtKernelTable tables[] = {davit::bench::empty_kernels()};
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = tables;
  options.kernel_table_count = 1;
  const auto image = davit::Image::borrow(bytes, &options);
  if (!image) give_up(image.error());
  const size_t count = image->info().node_count;

  std::vector<davit::Executor> executors;  // All stay, so that no two are in the same place.
  std::vector<HandProgram> programs;
  std::vector<double> ours;
  std::vector<double> peers;
  std::vector<double> ratios;
  for (int placement = 0; placement < kPlacements; ++placement) {
    davit::Executor& executor = executors.emplace_back(load(*image));
    const HandProgram& program = programs.emplace_back(tables[0].kernels[0].run, count);
    const davit::bench::Contest contest =
        davit::bench::measure({
                                  [&] {
                                    if (const davit::Error error = executor.run()) give_up(error);
                                  },
                                  [&] {
                                    if (hand_loop(program.nodes.data(), count) != count)
                                      give_up({});
                                  },
                              },
                              {.samples = 61, .sample_ns = 1e6});
    ours.push_back(contest.median_ns[0] / static_cast<double>(count));
    peers.push_back(contest.median_ns[1] / static_cast<double>(count));
    ratios.push_back(contest.ratio[0]);
  }
  report.add({.metric = std::string(name) + ", time per node",
              .value = davit::bench::median(ours),
              .unit = "ns",
              .peer = "hand-written {fn, ctx} loop",
              .peer_value = davit::bench::median(peers),
              .paired_ratio = davit::bench::median(ratios)},
             1.10);
}

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("sequential_bench", argc, argv, davit::bench::Parts::kWhole);
  measure_graph(report, "chain of 10,000 empty nodes", {.layers = 10'000, .width = 1});
  measure_graph(report, "100 layers of 1,000 empty nodes",
                {.layers = 100, .width = 1'000, .inputs = 3});
  return report.finish();
}
