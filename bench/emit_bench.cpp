// emit_bench: what a node costs in straight-line C, against our own loop over the same image.
//
// Nodes are empty. The straight-line graph is built by the system's compiler and calls an empty
// function of another file, which it cannot see into; the loop calls an empty kernel through its
// pointer.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/graphs.hpp"
#include "bench/report.hpp"
#include "codegen/straight_line.hpp"
#include "davit/davit.hpp"
#include "exec/image.hpp"
#include "tests/support/compiled_graph.hpp"

namespace {

using davit::bench::LayeredGraph;
using davit::testing::CompiledGraph;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "emit_bench: %s\n", what.c_str());
  std::_Exit(1);
}

CompiledGraph straight_line(const std::vector<std::byte>& bytes, const DvtKernelTable& table) {
  davit::exec::OpenOptions open;
  open.kernel_tables = {&table, 1};
  const auto image = davit::exec::open_image_memory(bytes, open);
  if (!image.ok()) give_up(image.status().to_string());
  auto graph = davit::codegen::emit_straight_line(
      (*image)->view, {.name = "graph", .isa = "", .functions = {{"bench.Empty", "bench_empty"}}});
  if (!graph.ok()) give_up(graph.status().to_string());
  // As linked into a program: calls go to the function itself.
  auto built = CompiledGraph::build(*graph, "graph", 0, "-Wl,-Bsymbolic",
                                    "int32_t bench_empty(void* c) { (void)c; return 0; }\n");
  if (!built.ok()) give_up(built.status().to_string());
  return std::move(*built);
}

void measure_graph(davit::bench::Report& report, const std::string& name, const LayeredGraph& shape,
                   double limit_ns, double limit_ratio) {
  const std::vector<std::byte> bytes = davit::bench::layered_image(shape);
  const DvtKernelTable table = davit::bench::empty_kernels();
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = &table;
  options.kernel_table_count = 1;
  const auto image = davit::Image::borrow(bytes, &options);
  if (!image) give_up(image.error().text());
  auto executor = davit::Executor::create(*image);
  if (!executor) give_up(executor.error().text());
  CompiledGraph graph = straight_line(bytes, table);
  const auto count = double(image->info().node_count);
  const davit::bench::Contest contest = davit::bench::measure({
      [&] {
        if (graph.run({}) != DVT_OK) give_up("a straight-line run failed");
      },
      [&] {
        if (const davit::Error error = executor->run()) give_up(error.text());
      },
  });
  report.add({.metric = name + ", straight-line, time per node",
              .value = contest.median_ns[0] / count,
              .unit = "ns",
              .peer = "",
              .peer_value = {},
              .paired_ratio = {}},
             limit_ns);
  report.add({.metric = name + ", straight-line to our loop",
              .value = contest.median_ns[0] / count,
              .unit = "ns",
              .peer = "dvt_executor_run()",
              .peer_value = contest.median_ns[1] / count,
              .paired_ratio = contest.ratio[0]},
             limit_ratio);
}

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("emit_bench", argc, argv, davit::bench::Parts::kWhole);
  // Numbers of operands differ, as in a real graph: most calls are written out.
  measure_graph(report, "150 nodes as of a CNN", {.layers = 150, .width = 1, .extra_every = 3}, 1.2,
                1.0);
  measure_graph(report, "chain of 10,000 nodes", {.layers = 10'000, .width = 1}, 1.6, 1.0);
  measure_graph(report, "chain of 10,000 mixed nodes",
                {.layers = 10'000, .width = 1, .extra_every = 3}, 1.6, 1.0);
  return report.finish();
}
