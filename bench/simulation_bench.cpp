// simulation_bench: what simulation/ predicts for one and two workers, against real runs of the
// same graphs, and how long a prediction takes. Nodes work for about a microsecond each. Needs two
// idle cores: what other processes take is not predicted.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/scheduler_graphs.hpp"
#include "simulation/host.hpp"

namespace {

using namespace davit::bench;  // NOLINT(google-build-using-namespace)
using davit::mt_topo::Mode;

davit::simulation::HostGraph host_graph(const Graph& graph, const std::vector<double>& cost_ns) {
  return {{graph.successor_offsets, graph.successors, graph.lane, cost_ns}};
}

void add(Report& report, const std::string& metric, double predicted_ns, double measured_ns,
         double limit_percent) {
  report.add({.metric = metric + ": error of the prediction",
              .value = 100 * std::abs(predicted_ns / measured_ns - 1),
              .unit = "%"},
             limit_percent);
}

// One worker. Node costs are those of the bodies alone, when nothing but a loop calls them.
void measure_one_worker(Report& report, const std::string& name, const Edges& edges) {
  const Graph graph(name, edges, run_microsecond, false);
  const davit::schedule::Plan plan = graph.plan(1000, 1);
  const auto sequential = make(graph, plan, make_pool(1), Mode::kSequential);
  const auto dynamic = make(graph, plan, make_pool(1), Mode::kDynamic);
  const auto call_all = [&] {
    for (const DvtStep& step : graph.steps) (void)step.fn(step.ctx);
  };
  const Contest contest = measure({call_all, runs(sequential), runs(dynamic)}, kTiming);
  const std::vector<double> cost_ns(graph.count(),
                                    contest.median_ns[0] / static_cast<double>(graph.count()));
  const davit::simulation::HostGraph host = host_graph(graph, cost_ns);
  add(report, name + ", sequential, 1 worker",
      davit::simulation::simulate_sequential(host, {}).makespan_ns, contest.median_ns[1], 10);
  add(report, name + ", dynamic, 1 worker",
      davit::simulation::simulate_dynamic(host, {}, 1).makespan_ns, contest.median_ns[2], 10);
}

// Node costs are those of a run on one worker, as `davit simulate` takes them.
void measure_graph(Report& report, const std::string& name, const Edges& edges) {
  const Graph graph(name, edges, run_microsecond, false);
  const auto pool = make_pool(2);
  const davit::schedule::Plan plan = graph.plan(1000, 2);
  const auto sequential = make(graph, plan, pool, Mode::kSequential);
  const auto planned = make(graph, plan, pool, Mode::kPlanned);
  const auto dynamic = make(graph, plan, pool, Mode::kDynamic);
  const double transfer_ns = round_trip_ns() / 2;
  const Contest contest = measure({runs(sequential), runs(planned), runs(dynamic)}, kTiming);

  const davit::simulation::HostCosts costs = {.transfer_ns = transfer_ns,
                                              .hand_over_ns = 2 * transfer_ns};
  const std::vector<double> cost_ns(
      graph.count(),
      contest.median_ns[0] / static_cast<double>(graph.count()) - costs.loop_node_ns);
  const davit::simulation::HostGraph host = host_graph(graph, cost_ns);
  const davit::mt_topo::PlanTables tables = {plan.part_offsets, plan.order, plan.wait_offsets,
                                             plan.waits};
  add(report, name + ", planned, 2 workers",
      davit::simulation::simulate_planned(host, costs, tables).makespan_ns, contest.median_ns[1],
      10);
  add(report, name + ", dynamic, 2 workers",
      davit::simulation::simulate_dynamic(host, costs, 2).makespan_ns, contest.median_ns[2], 10);
}

void measure_speed(Report& report) {
  const Graph graph("layered", layered(100, 1000), run_microsecond, false);
  const std::vector<double> cost_ns(graph.count(), 1000);
  const davit::simulation::HostGraph host = host_graph(graph, cost_ns);
  const Contest contest =
      measure({[&] { (void)davit::simulation::simulate_dynamic(host, {}, 64); }}, {.samples = 5});
  report.add({.metric = "100,000 nodes on 64 workers, dynamic: time to predict",
              .value = contest.median_ns[0] / 1e6,
              .unit = "ms"},
             200);
}

}  // namespace

int main(int argc, char** argv) {
  Report report("simulation_bench", argc, argv);
  calibrate();
  measure_one_worker(report, "wavefront 100x100, 1 us", wavefront(100));
  measure_one_worker(report, "layered 100x100, 1 us", layered(100, 100));
  measure_graph(report, "wide, 1 us", wide(10'000));
  measure_graph(report, "wavefront 100x100, 1 us", wavefront(100));
  measure_graph(report, "layered 100x100, 1 us", layered(100, 100));
  measure_graph(report, "CNN-like, 1 us", cnn_like());
  measure_speed(report);
  return report.finish();
}
