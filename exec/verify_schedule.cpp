// Stage 8 of the verifier: a schedule runs every node once, without a circle of waits, and no two
// nodes that have to be in order are left without one.
//
// Nodes have to be in order when one has the other among its successors, and when they touch the
// same bytes and at least one writes them (dependencies.hpp). So under any interleaving that the
// schedule allows every byte is written and read in the order of the image, and by stage 7 no two
// values that are alive at once share memory.
#include "exec/dependencies.hpp"
#include "exec/mt_topo/plan.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {

Status check_schedule(const ImageView& view) {
  const GraphView& graph = view.graphs[view.main];
  if (graph.part_count == 0) return {};
  const std::string reason = reason_to_stay_sequential(view, graph);
  if (!reason.empty()) {
    return broken("graphs[%u].part_off: a schedule, but %s", view.main, reason.c_str());
  }
  const Dependencies dependencies = dependencies_of(view, graph);
  const mt_topo::Tables tables = {
      .steps = {},
      .successor_offsets = dependencies.successor_offsets,
      .successors = dependencies.successors,
      .indegree = dependencies.indegree,
      .lane = {graph.lane, graph.node_count},
      .priority = {},
  };
  const Status status = mt_topo::check_plan(plan_tables(graph), tables);
  if (status.ok()) return {};
  return broken("graphs[%u].%s", view.main, status.detail().message.c_str());
}

}  // namespace davit::exec::verify
