// Stage 5 of the verifier: who writes and reads what, and that the edges say so.
//
//   A value's cell is written by one node of the image. Two exceptions: bodies write the outputs of
//   the node that runs them; launch-lane nodes list device values that they overwrite (the memory,
//   not the cell); the nodes that give a dynamic value its shape, memory and data all list it.
//   A planned or output value that is read but never written is a view: its memory is that of its
//   roots, the values that were written last, before the view's first read, where it lies. They
//   cover it without a gap.
//   What is read has been written: earlier in the same graph; or by Init, when Main or DeInit read;
//   or before the node that runs a body, which then lists it among its inputs. Gears read what
//   Init has written, as Main does.
//   Every data edge is in succ. Further entries are control edges.
//
// Graphs are scanned parents first (Init, Main, DeInit, then bodies), nodes in stored order, each
// operand once: linear in the size of the image.
#include <algorithm>
#include <cstring>
#include <string>

#include "exec/dynamic.h"
#include "exec/gears.hpp"
#include "exec/layout.hpp"
#include "exec/verify_index_set.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

constexpr uint32_t kDepthMax = 64;  // Of bodies in bodies; bounds the recursion of executors.
// Roots of views of several values, counted at each read: keeps the work linear, but for this.
constexpr uint64_t kJoinedReadsMax = uint64_t{1} << 22;

// The node that runs a body.
struct Runner {
  uint32_t graph = kNone;
  uint32_t node = kNone;
  uint32_t depth = 0;
};

class Dataflow {
 public:
  Dataflow(const ImageView& view, FlowFacts& facts, Scratch& scratch)
      : view_(view),
        facts_(facts),
        host_nodes_(host_nodes(view)),
        gears_(gears_of(view)),
        runner_(view.graphs.size()),
        written_(&scratch),
        current_(static_cast<uint32_t>(facts.by_address.size()), scratch),
        port_written_(view.outputs.size(), false),
        runs_for_input_(&scratch),
        runs_for_output_(&scratch),
        cursor_(&scratch) {}

  Status run() {
    if (Status s = order_graphs(); !s.ok()) return s;
    prepare_values();
    for (const uint32_t graph : facts_.graph_order) {
      if (Status s = scan(graph); !s.ok()) return s;
    }
    for (uint32_t i = 0; i < port_written_.size(); ++i) {
      if (!port_written_[i]) return broken("outputs[%u]: no node of Main writes it", i);
    }
    return {};
  }

 private:
  Status order_graphs();
  Status claim_bodies(uint32_t graph);
  Status claim_body(uint32_t graph, uint32_t node, uint32_t at, uint32_t body);
  void prepare_values();
  void begin_body(uint32_t graph);
  Status scan(uint32_t graph);
  Status check_phase(uint32_t value, const char* column, uint32_t at) const;
  Status read(uint32_t value, uint32_t node, const char* column, uint32_t at);
  Status read_from_outside(uint32_t value, uint32_t root, const char* column, uint32_t at);
  Status write(uint32_t value, uint32_t node, uint32_t at);
  Status write_cell(uint32_t value, uint32_t node, uint32_t at);
  Status overwrite(uint32_t value, uint32_t node, uint32_t at);
  Status write_dynamic(uint32_t value, uint32_t node, uint32_t at);
  Status settle(uint32_t value, const char* column, uint32_t at);
  Status join(uint32_t value, uint32_t first, const char* column, uint32_t at);
  Status read_root(uint32_t value, uint32_t root, uint32_t node, const char* column, uint32_t at);
  void replace_at(uint32_t value);
  // Readers come in ascending order, and so do successors: each is passed once.
  [[nodiscard]] bool has_edge(uint32_t from, uint32_t to) {
    uint32_t& next = cursor_[from];
    if (next >= graph_->succ_off[from + 1] || graph_->succ[next] != to) {
      return has_edge_further(from, to);
    }
    ++next;
    return true;
  }
  [[nodiscard]] bool has_edge_further(uint32_t from, uint32_t to);
  void pass_usual_reads(uint32_t node, uint32_t& at);

  [[nodiscard]] bool in_memory(uint32_t value) const { return facts_.rank[value] != kNone; }
  [[nodiscard]] uint64_t bytes(uint32_t value) const { return view_.tensor_of(value)->bytes; }
  [[nodiscard]] bool visible(uint32_t owner, uint32_t value) const;
  // A body that runs in the place of Main.
  [[nodiscard]] bool is_gear(uint32_t graph) const {
    return gears_.count > 0 && runner_[graph].graph == view_.main;
  }
  [[nodiscard]] bool writes_on_behalf(uint32_t value) const {
    return !runs_for_output_.empty() && runs_for_output_[value] == graph_index_;
  }

  const ImageView& view_;
  FlowFacts& facts_;
  const std::vector<DvtHostNode> host_nodes_;  // Per kernel of the image.
  const GearsView gears_;
  std::vector<Runner> runner_;         // Per graph; of bodies only.
  std::pmr::vector<uint8_t> written_;  // Per value: some node lists it as an output.
  IndexSet current_;  // Ranks of the values that were written last where they lie: disjoint.
  uint64_t joined_reads_ = 0;
  std::vector<bool> port_written_;
  // Per value, only when there are bodies: the last body whose runner has it as input, output.
  std::pmr::vector<uint32_t> runs_for_input_, runs_for_output_;
  // Of the graph that is being scanned.
  uint32_t graph_index_ = 0;
  const GraphView* graph_ = nullptr;
  std::pmr::vector<uint32_t> cursor_;  // Per node: the successor behind the last that was matched.
};

// ---- Bodies ------------------------------------------------------------------------------------

Status Dataflow::claim_body(uint32_t graph, uint32_t node, uint32_t at, uint32_t body) {
  if (body >= view_.graphs.size() || view_.graphs[body].role != GraphRole::kBody) {
    return broken("graphs[%u].branch_graph[%u]: %u is not a body graph", graph, at, body);
  }
  if (runner_[body].graph != kNone) {
    return broken("graphs[%u].branch_graph[%u]: body %u is already run by graphs[%u] node %u",
                  graph, at, body, runner_[body].graph, runner_[body].node);
  }
  const uint32_t depth = runner_[graph].depth + 1;
  if (depth > kDepthMax) {
    return broken("graphs[%u].branch_graph[%u]: bodies are nested more than %u deep (depth limit)",
                  graph, at, kDepthMax);
  }
  runner_[body] = {graph, node, depth};
  facts_.graph_order.push_back(body);
  return {};
}

Status Dataflow::claim_bodies(uint32_t graph) {
  const GraphView& g = view_.graphs[graph];
  if (g.branch_off == nullptr) return {};
  for (uint32_t node = 0; node < g.node_count; ++node) {
    for (uint32_t at = g.branch_off[node]; at < g.branch_off[node + 1]; ++at) {
      if (Status s = claim_body(graph, node, at, g.branch_graph[at]); !s.ok()) return s;
    }
  }
  return {};
}

// Bodies form a tree: each is run by one node, and reached from Init, Main or DeInit.
Status Dataflow::order_graphs() {
  for (const uint32_t root : {view_.init, view_.main, view_.deinit}) {
    if (root != kNone) facts_.graph_order.push_back(root);
  }
  const size_t roots = facts_.graph_order.size();
  for (size_t i = 0; i < facts_.graph_order.size(); ++i) {
    if (Status s = claim_bodies(facts_.graph_order[i]); !s.ok()) return s;
  }
  for (uint32_t i = 0; i < view_.graphs.size(); ++i) {
    if (view_.graphs[i].role == GraphRole::kBody && runner_[i].graph == kNone) {
      return broken("graphs[%u]: a body that no node of Init, Main or DeInit leads to", i);
    }
  }
  if (facts_.graph_order.size() > roots) {
    runs_for_input_.assign(view_.values.count, kNone);
    runs_for_output_.assign(view_.values.count, kNone);
  }
  return {};
}

void Dataflow::begin_body(uint32_t graph) {
  const Runner& runner = runner_[graph];
  const GraphView& parent = view_.graphs[runner.graph];
  for (const uint32_t value : parent.inputs_of(runner.node)) {
    if (value != kNone) runs_for_input_[value] = graph;
  }
  const auto outputs = parent.outputs_of(runner.node);
  size_t parameters = 0;
  size_t results = 0;
  size_t end = outputs.size();
  if (host_nodes_[parent.kernel[runner.node]] == DVT_HOST_SELECT_GEAR) {
    // Each gear writes its own row (check_gears).
    const auto bodies = parent.bodies_of(runner.node);
    const auto gear = size_t(std::find(bodies.begin(), bodies.end(), graph) - bodies.begin());
    parameters = results = view_.outputs.size() * (gear + 1);
    end = results + view_.outputs.size();
  }
  const auto record = parent.attributes_of(runner.node);
  DvtLoopAttributes counts;
  if (host_nodes_[parent.kernel[runner.node]] == DVT_HOST_LOOP && record.size() == sizeof counts) {
    std::memcpy(&counts, record.data(), sizeof counts);
    // Nonsense counts are refused later (check_dynamic_values).
    const auto clamp = [&](int64_t k) {
      return size_t(std::clamp<int64_t>(k, 0, int64_t(outputs.size())));
    };
    if (counts.states >= 0 && counts.states <= UINT16_MAX && counts.collected >= 0 &&
        counts.collected <= UINT16_MAX) {
      parameters = clamp(dvt_loop_parameters(&counts));
      results = clamp(dvt_loop_results(&counts));
    }
  }
  for (size_t k = parameters; k < results; ++k) runs_for_input_[outputs[k]] = graph;
  for (size_t k = results; k < end; ++k) runs_for_output_[outputs[k]] = graph;
}

// ---- Values ------------------------------------------------------------------------------------

void Dataflow::prepare_values() {
  written_.assign(view_.values.count, 0);
  for (const GraphView& graph : view_.graphs) {
    for (uint32_t i = 0; i < graph.outputs_off[graph.node_count]; ++i)
      written_[graph.outputs[i]] = 1;
  }
  facts_.values.assign(view_.values.count, {});
}

// True when `value`, written in graph `owner` and not in this one, may be used here.
bool Dataflow::visible(uint32_t owner, uint32_t value) const {
  switch (graph_->role) {
    case GraphRole::kInit:
      return false;
    case GraphRole::kMain:
    case GraphRole::kDeInit:
      return owner != kNone && owner == view_.init;
    case GraphRole::kBody:
      return runs_for_input_[value] == graph_index_ ||
             (owner != kNone && owner == view_.init && is_gear(graph_index_));
  }
  return false;
}

// Inputs and outputs are bound while Main runs.
Status Dataflow::check_phase(uint32_t value, const char* column, uint32_t at) const {
  uint32_t root = graph_index_;
  while (view_.graphs[root].role == GraphRole::kBody) root = runner_[root].graph;
  if (view_.graphs[root].role == GraphRole::kMain) return {};
  return broken("graphs[%u].%s[%u]: value %s is a model input or output; only Main may use it",
                graph_index_, column, at, describe_value(view_, value).c_str());
}

// Finds the memory behind a value that is read for the first time before it is written, if ever.
Status Dataflow::settle(uint32_t value, const char* column, uint32_t at) {
  uint32_t& root = facts_.values[value].root;
  if (!in_memory(value) || written_[value] != 0 || bytes(value) == 0) {
    root = value;
    return {};
  }
  const uint32_t rank = facts_.rank[value];
  uint32_t first = current_.before(rank);
  if (first == kNone || facts_.end[first] <= facts_.begin[rank]) first = current_.after(rank);
  if (first == kNone || facts_.begin[first] > facts_.begin[rank]) {
    return broken("graphs[%u].%s[%u]: value %s is read, but nothing was written at its address",
                  graph_index_, column, at, describe_value(view_, value).c_str());
  }
  root = facts_.by_address[first];
  return facts_.end[first] >= facts_.end[rank] ? Status() : join(value, first, column, at);
}

// The view begins in the value of rank `first`, and ends behind it.
Status Dataflow::join(uint32_t value, uint32_t first, const char* column, uint32_t at) {
  if (facts_.join.empty()) {
    facts_.join.assign(view_.values.count, kNone);
    facts_.join_off.push_back(0);
  }
  const uint64_t end = facts_.end[facts_.rank[value]];
  facts_.join_parts.push_back(facts_.by_address[first]);
  for (uint32_t part = first; facts_.end[part] < end;) {
    const uint32_t next = current_.after(part);
    if (next == kNone || facts_.begin[next] != facts_.end[part]) {
      return broken("graphs[%u].%s[%u]: value %s is a view of %s, and larger", graph_index_, column,
                    at, describe_value(view_, value).c_str(),
                    describe_value(view_, facts_.by_address[part]).c_str());
    }
    if (++joined_reads_ > kJoinedReadsMax) {
      return broken("graphs[%u].%s[%u]: the views of several values are too large, all together",
                    graph_index_, column, at);
    }
    facts_.join_parts.push_back(facts_.by_address[next]);
    part = next;
  }
  facts_.join[value] = static_cast<uint32_t>(facts_.join_off.size() - 1);
  facts_.join_off.push_back(static_cast<uint32_t>(facts_.join_parts.size()));
  return {};
}

// The value is written: what lay there is gone.
void Dataflow::replace_at(uint32_t value) {
  const uint32_t rank = facts_.rank[value];
  const uint32_t below = current_.before(rank);
  if (below != kNone && facts_.end[below] > facts_.begin[rank]) current_.erase(below);
  for (uint32_t above = current_.after(rank);
       above != kNone && facts_.begin[above] < facts_.end[rank]; above = current_.after(rank)) {
    current_.erase(above);
  }
  current_.insert(rank);
}

// The cursor stands behind `to`, or before a control edge.
bool Dataflow::has_edge_further(uint32_t from, uint32_t to) {
  uint32_t& next = cursor_[from];
  const uint32_t begin = graph_->succ_off[from];
  const uint32_t end = graph_->succ_off[from + 1];
  if (next > begin && graph_->succ[next - 1] == to) return true;  // Reads two values of `from`.
  while (next < end && graph_->succ[next] < to) ++next;
  if (next == end || graph_->succ[next] != to) return false;
  ++next;
  return true;
}

// A value whose memory no node of this graph has written so far.
Status Dataflow::read_from_outside(uint32_t value, uint32_t root, const char* column, uint32_t at) {
  const ValueKind kind = view_.values.kind[value];
  if (kind == ValueKind::kConstant) return {};
  if (kind == ValueKind::kInput || kind == ValueKind::kOutput) {
    if (Status s = check_phase(value, column, at); !s.ok()) return s;
  }
  if (kind == ValueKind::kInput) return {};
  const bool empty_view = in_memory(value) && written_[value] == 0 && bytes(value) == 0;
  if (empty_view || visible(facts_.values[root].home, value)) return {};
  return broken("graphs[%u].%s[%u]: value %s is read before it is written", graph_index_, column,
                at, describe_value(view_, value).c_str());
}

Status Dataflow::read_root(uint32_t value, uint32_t root, uint32_t node, const char* column,
                           uint32_t at) {
  const ValueFacts& source = facts_.values[root];
  if (source.writer_graph != graph_index_) return read_from_outside(value, root, column, at);
  if (has_edge(source.writer_node, node)) return {};
  return broken("graphs[%u].succ: node %u must be a successor of node %u, whose value %s it uses",
                graph_index_, node, source.writer_node, describe_value(view_, value).c_str());
}

Status Dataflow::read(uint32_t value, uint32_t node, const char* column, uint32_t at) {
  if (facts_.values[value].root == kNone) {
    if (Status s = settle(value, column, at); !s.ok()) return s;
  }
  const auto roots = facts_.roots_of(value);
  if (roots.size() > 1 && (joined_reads_ += roots.size()) > kJoinedReadsMax) {
    return broken("graphs[%u].%s[%u]: views of several values are read too often", graph_index_,
                  column, at);
  }
  for (const uint32_t root : roots) {
    if (Status s = read_root(value, root, node, column, at); !s.ok()) return s;
  }
  return {};
}

Status Dataflow::write_cell(uint32_t value, uint32_t node, uint32_t at) {
  ValueFacts& facts = facts_.values[value];
  if (facts.writer_graph == graph_index_) {
    return broken("graphs[%u].outputs[%u]: value %s is also written by node %u", graph_index_, at,
                  describe_value(view_, value).c_str(), facts.writer_node);
  }
  if (!writes_on_behalf(value)) {
    if (facts.home != kNone) {
      return broken("graphs[%u].outputs[%u]: value %s is also written in graphs[%u]", graph_index_,
                    at, describe_value(view_, value).c_str(), facts.home);
    }
    facts.home = graph_index_;
  }
  facts.root = value;
  facts.writer_graph = graph_index_;
  facts.writer_node = node;
  if (in_memory(value) && bytes(value) != 0) replace_at(value);
  return {};
}

Status Dataflow::write(uint32_t value, uint32_t node, uint32_t at) {
  switch (view_.values.kind[value]) {
    case ValueKind::kConstant:
    case ValueKind::kInput:
      return broken("graphs[%u].outputs[%u]: value %s is a constant or an input", graph_index_, at,
                    describe_value(view_, value).c_str());
    case ValueKind::kOutput:
      if (Status s = check_phase(value, "outputs", at); !s.ok()) return s;
      // A body may not run at all.
      if (graph_->role == GraphRole::kMain) port_written_[view_.values.offset[value]] = true;
      if (view_.is_dynamic(value)) return write_dynamic(value, node, at);
      break;
    case ValueKind::kHeap:
      return write_dynamic(value, node, at);
    case ValueKind::kDevice:
      if (view_.is_dynamic(value)) return write_dynamic(value, node, at);
      if (graph_->lane[node] != DVT_KERNEL_LANE_LAUNCH) break;
      // A launch writes device memory whose address is in the cell already.
      return overwrite(value, node, at);
    case ValueKind::kWord:
    case ValueKind::kPlanned:
      break;
  }
  return write_cell(value, node, at);
}

// What the node writes has been written before: it comes after that.
Status Dataflow::overwrite(uint32_t value, uint32_t node, uint32_t at) {
  if (Status s = read(value, node, "outputs", at); !s.ok()) return s;
  facts_.values[value].writer_graph = graph_index_;
  facts_.values[value].writer_node = node;
  return {};
}

// Shape, memory and data come from different nodes, one after the other (check_dynamic_values).
Status Dataflow::write_dynamic(uint32_t value, uint32_t node, uint32_t at) {
  return facts_.values[value].writer_graph == graph_index_ ? overwrite(value, node, at)
                                                           : write_cell(value, node, at);
}

// The usual case of read(), decided without a Status: inputs from `at` on whose value was written
// in this graph, with an edge to this node. Stops at the first that is not so.
inline void Dataflow::pass_usual_reads(uint32_t node, uint32_t& at) {
  if (!facts_.join.empty()) return;
  const GraphView& graph = *graph_;
  const ValueFacts* const values = facts_.values.data();
  uint32_t* const cursor = cursor_.data();
  const uint32_t graph_index = graph_index_;
  for (const uint32_t end = graph.inputs_off[node + 1]; at < end; ++at) {
    const uint32_t value = graph.inputs[at];
    if (value == kNone) return;
    const uint32_t root = values[value].root;
    if (root == kNone || values[root].writer_graph != graph_index) return;
    const uint32_t from = values[root].writer_node;
    const uint32_t next = cursor[from];
    if (next >= graph.succ_off[from + 1] || graph.succ[next] != node) return;
    cursor[from] = next + 1;
  }
}

Status Dataflow::scan(uint32_t graph) {
  graph_index_ = graph;
  graph_ = &view_.graphs[graph];
  cursor_.assign(graph_->succ_off, graph_->succ_off + graph_->node_count);
  if (graph_->role == GraphRole::kBody) begin_body(graph);
  for (uint32_t node = 0; node < graph_->node_count; ++node) {
    // Readers come in an order of their own: by then, the row should be in the cache.
    __builtin_prefetch(&graph_->succ[graph_->succ_off[node]]);
    uint32_t at = graph_->inputs_off[node];
    for (;; ++at) {
      pass_usual_reads(node, at);
      if (at == graph_->inputs_off[node + 1]) break;
      if (graph_->inputs[at] == kNone) continue;
      if (Status s = read(graph_->inputs[at], node, "inputs", at); !s.ok()) return s;
    }
    for (at = graph_->outputs_off[node]; at < graph_->outputs_off[node + 1]; ++at) {
      if (Status s = write(graph_->outputs[at], node, at); !s.ok()) return s;
    }
  }
  return {};
}

}  // namespace

Status check_dataflow(const ImageView& view, FlowFacts& facts, Scratch& scratch) {
  return Dataflow(view, facts, scratch).run();
}

}  // namespace davit::exec::verify
