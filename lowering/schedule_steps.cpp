#include "lowering/schedule_steps.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/definition.hpp"

namespace davit::lowering {
namespace {

// Davit's own kernels on one x86-64 core, about, from profiles of squeezenet1_1 and
// minilm_l6_static. A plan needs no more than the right order of magnitude: who has nothing to do
// takes over what others have not come to.
constexpr double kProductNs = 0.06;  // Of one multiplication of a product.
constexpr double kPassNs = 1;        // Of one element in one pass.
constexpr double kByteNs = 0.1;
constexpr double kNodeNs = 100;

using Edge = std::pair<uint32_t, uint32_t>;

// Who reads what whom writes; views count as what they are views of.
std::vector<Edge> data_edges(const ir::Module& module, const Prepared& prepared,
                             std::span<const uint32_t> copied_outputs) {
  std::vector<uint32_t> writer(module.value_count(), UINT32_MAX);
  std::vector<Edge> edges;
  const auto read = [&](ir::ValueId value, uint32_t node) {
    if (value == ir::kNoValue) return;
    prepared.for_each_written(prepared.root_of(value), [&](ir::ValueId written, uint64_t) {
      const uint32_t from = writer[index_of(written)];
      if (from != UINT32_MAX) edges.emplace_back(from, node);
    });
  };
  const auto steps = static_cast<uint32_t>(prepared.steps.size());
  for (uint32_t i = 0; i < steps; ++i) {
    const Step& step = prepared.steps[i];
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) read(step.input(module, k), i);
    for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
      writer[index_of(step.output(module, k))] = i;
    }
  }
  const auto outputs = module.graph_outputs(ir::kMainGraph);
  for (uint32_t k = 0; k < copied_outputs.size(); ++k) read(outputs[copied_outputs[k]], steps + k);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::vector<double> costs_of(const ir::Module& module, const Prepared& prepared,
                             std::span<const uint32_t> copied_outputs) {
  std::vector<double> costs;
  for (const Step& step : prepared.steps) {
    costs.push_back(cpu_cost_ns(step.definition->cost(ops::NodeView(module, step.node))));
  }
  const auto outputs = module.graph_outputs(ir::kMainGraph);
  for (const uint32_t port : copied_outputs) {
    const auto tensor = tensor_of(module, outputs[port]);
    const uint64_t bytes = tensor.ok() ? tensor->bytes : 0;  // Lowering reports what is wrong.
    costs.push_back(cpu_cost_ns({.read_bytes = bytes, .write_bytes = bytes}));
  }
  return costs;
}

}  // namespace

double cpu_cost_ns(const DvtTaskCost& cost) {
  const double products = static_cast<double>(cost.batch) * static_cast<double>(cost.m) *
                          static_cast<double>(cost.n) * static_cast<double>(cost.k);
  const double passes = static_cast<double>(cost.vector_elements) *
                        static_cast<double>(cost.vector_passes_x100) / 100;
  const double bytes = static_cast<double>(cost.read_bytes) + static_cast<double>(cost.write_bytes);
  return kNodeNs + products * kProductNs + passes * kPassNs + bytes * kByteNs;
}

schedule::Plan schedule_steps(const ir::Module& module, const Prepared& prepared,
                              std::span<const uint32_t> copied_outputs,
                              const ScheduleRequest& request) {
  const std::vector<Edge> edges = data_edges(module, prepared, copied_outputs);
  std::vector<double> costs(request.node_costs_ns.begin(), request.node_costs_ns.end());
  if (costs.empty()) costs = costs_of(module, prepared, copied_outputs);
  std::vector<uint32_t> offsets(costs.size() + 1, 0);
  std::vector<uint32_t> successors;
  for (const auto& [from, to] : edges) {
    ++offsets[from + 1];
    successors.push_back(to);
  }
  for (size_t i = 0; i < costs.size(); ++i) offsets[i + 1] += offsets[i];
  return schedule::make_plan({offsets, successors, {}, costs},
                             {.workers = request.workers, .gain = request.gain});
}

schedule::Plan renumbered(schedule::Plan plan) {
  std::vector<uint32_t> place(plan.sequence.size());
  for (uint32_t i = 0; i < place.size(); ++i) place[plan.sequence[i]] = i;
  for (uint32_t& node : plan.order) node = place[node];
  for (uint32_t i = 0; i < place.size(); ++i) plan.sequence[i] = i;
  return plan;
}

}  // namespace davit::lowering
