#include "cli/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/table.hpp"

namespace davit::cli {
namespace {

uint64_t operand_bytes(const DvtContext* context) {
  uint64_t bytes = 0;
  const uint32_t count = uint32_t{context->input_count} + context->output_count;
  for (uint32_t i = 0; i < count; ++i) {
    const DvtCell* cell = context->cells[i];
    if (cell != nullptr && cell->tensor != nullptr) bytes += cell->tensor->bytes;
  }
  return bytes;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

const char* lane_name(uint32_t lane) {
  switch (lane) {
    case DVT_KERNEL_LANE_NORMAL:
      return "normal";
    case DVT_KERNEL_LANE_MEMORY:
      return "memory";
    case DVT_KERNEL_LANE_LAUNCH:
      return "launch";
    default:
      return "?";
  }
}

void Profiler::observe(void* user, const DvtNodeEvent* event) {
  auto& self = *static_cast<Profiler*>(user);
  if (self.watchdog_ != nullptr) self.watchdog_->note(event->origin, event->op);
  // The time of a body is that of the node that runs it.
  if (event->body != DVT_NO_INDEX) return;
  if (event->node >= self.nodes_.size()) self.nodes_.resize(size_t{event->node} + 1);
  NodeProfile& node = self.nodes_[event->node];
  if (node.calls == 0) {
    node.origin = event->origin;
    node.op = event->op;
    node.kernel = event->kernel;
    node.lane = event->lane;
    node.bytes = operand_bytes(event->context);
  }
  const int64_t duration_ns = event->end_ns - event->begin_ns;
  ++node.calls;
  node.total_ns += duration_ns;
  self.total_ns_ += duration_ns;
}

std::vector<uint32_t> Profiler::slowest_first() const {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].calls > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    return nodes_[a].total_ns > nodes_[b].total_ns;
  });
  return order;
}

void Profiler::report(Session& session, size_t top) const {
  const std::vector<uint32_t> order = slowest_first();
  Json json = {{"runs", runs_}, {"total_ns", total_ns_}};
  json["by_node"] = report_nodes(session, order, top);
  json["by_type"] = report_types(session, order);
  session.print("  all nodes: {} per run\n", format_time(per_run(total_ns_)));
  if (simulated_) {
    session.print(
        "  (wall time of the host and of the model that computes in the device's place; "
        "predicted times follow)\n");
  }
  session.result()["profile"] = std::move(json);
}

double Profiler::per_run(int64_t nanoseconds) const {
  return static_cast<double>(nanoseconds) / static_cast<double>(std::max<uint64_t>(runs_, 1));
}

Json Profiler::report_nodes(Session& session, const std::vector<uint32_t>& order,
                            size_t top) const {
  using Align = Table::Align;
  Table table({{"node", Align::kLeft},
               {"operator", Align::kLeft},
               {"lane", Align::kLeft},
               {"calls"},
               {"average"},
               {"%"},
               {"cumulative %"},
               {"bytes"}});
  Json json = Json::array();
  int64_t cumulative_ns = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const NodeProfile& node = nodes_[order[i]];
    const double average_ns = static_cast<double>(node.total_ns) / static_cast<double>(node.calls);
    cumulative_ns += node.total_ns;
    json.push_back({{"node", order[i]},
                    {"origin", node.origin},
                    {"op", node.op},
                    {"kernel", node.kernel},
                    {"lane", lane_name(node.lane)},
                    {"calls", node.calls},
                    {"average_ns", average_ns},
                    {"share", share(node.total_ns, total_ns_)},
                    {"bytes", node.bytes}});
    if (i >= top) continue;
    table.add_row({node.origin, node.op, lane_name(node.lane), fmt::format("{}", node.calls),
                   format_time(average_ns), format_percent(share(node.total_ns, total_ns_)),
                   format_percent(share(cumulative_ns, total_ns_)), format_bytes(node.bytes)});
  }
  session.print("Slowest nodes ({} of {}), host time over {} observed run{}\n{}",
                std::min(top, order.size()), order.size(), runs_, runs_ == 1 ? "" : "s",
                table.to_text());
  return json;
}

Json Profiler::report_types(Session& session, const std::vector<uint32_t>& order) const {
  struct Type {
    std::string op;
    uint64_t nodes = 0, calls = 0;
    int64_t total_ns = 0;
  };
  std::map<std::string, Type> by_op;
  for (const uint32_t index : order) {
    Type& type = by_op[nodes_[index].op];
    type.op = nodes_[index].op;
    ++type.nodes;
    type.calls += nodes_[index].calls;
    type.total_ns += nodes_[index].total_ns;
  }
  std::vector<Type> types;
  types.reserve(by_op.size());
  for (auto& [op, type] : by_op) types.push_back(std::move(type));
  std::stable_sort(types.begin(), types.end(),
                   [](const Type& a, const Type& b) { return a.total_ns > b.total_ns; });
  Table table({{"operator", Table::Align::kLeft}, {"nodes"}, {"per run"}, {"%"}, {"cumulative %"}});
  Json json = Json::array();
  int64_t cumulative_ns = 0;
  for (const Type& type : types) {
    cumulative_ns += type.total_ns;
    json.push_back({{"op", type.op},
                    {"nodes", type.nodes},
                    {"calls", type.calls},
                    {"per_run_ns", per_run(type.total_ns)},
                    {"share", share(type.total_ns, total_ns_)}});
    table.add_row({type.op, fmt::format("{}", type.nodes), format_time(per_run(type.total_ns)),
                   format_percent(share(type.total_ns, total_ns_)),
                   format_percent(share(cumulative_ns, total_ns_))});
  }
  session.print("Host time by operator type\n{}", table.to_text());
  return json;
}

Status Profiler::write_csv(const std::string& path) const {
  std::string text = csv_line({"node", "origin", "op", "kernel", "lane", "calls", "total_ns",
                               "average_ns", "share", "bytes"});
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const NodeProfile& node = nodes_[i];
    if (node.calls == 0) continue;
    text += csv_line({fmt::format("{}", i), node.origin, node.op, node.kernel, lane_name(node.lane),
                      fmt::format("{}", node.calls), fmt::format("{}", node.total_ns),
                      fmt::format("{}", node.total_ns / static_cast<int64_t>(node.calls)),
                      fmt::format("{:.6f}", share(node.total_ns, total_ns_)),
                      fmt::format("{}", node.bytes)});
  }
  return write_text(path, text);
}

}  // namespace davit::cli
