#include "exec/mt_topo/topology.hpp"

#include <algorithm>
#include <string>

#include "davit/kernel.h"

namespace davit::mt_topo {
namespace {

// Nodes of one unit at most. Between units a worker looks at what is shared; 64 empty nodes pay for
// that look, and a stop reaches the middle of a unit in checked runs only.
constexpr uint32_t kUnitNodes = 64;

Status bad(const std::string& what) {
  return {DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, "scheduler tables: " + what};
}

std::string entry(const char* table, size_t index) {
  return std::string(table) + "[" + std::to_string(index) + "]";
}

Status check_offsets(const Tables& tables) {
  const auto& offsets = tables.successor_offsets;
  if (offsets.size() != tables.steps.size() + 1 || offsets.front() != 0 ||
      offsets.back() != tables.successors.size()) {
    return bad("successor_offsets must be count + 1 numbers from 0 to the number of successors");
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      return bad(entry("successor_offsets", i) + " is less than the one before");
    }
  }
  return {};
}

bool is_memory(const Tables& tables, uint32_t node) {
  return !tables.lane.empty() && tables.lane[node] == DVT_KERNEL_LANE_MEMORY;
}
bool is_launch(const Tables& tables, uint32_t node) {
  return !tables.lane.empty() && tables.lane[node] == DVT_KERNEL_LANE_LAUNCH;
}

}  // namespace

Status check_tables(const Tables& tables) {
  if (tables.steps.size() > kUnitMask) return bad("too many nodes");
  if (Status status = check_offsets(tables); !status.ok()) return status;
  const uint32_t count = tables.count();
  if (tables.indegree.size() != count) return bad("indegree needs one entry per node");
  if (!tables.lane.empty() && tables.lane.size() != count)
    return bad("lane needs one entry per node");
  if (!tables.priority.empty() && tables.priority.size() != count) {
    return bad("priority needs one entry per node");
  }
  std::vector<uint32_t> arrivals(count, 0);
  for (uint32_t node = 0; node < count; ++node) {
    if (tables.steps[node].fn == nullptr) return bad(entry("steps", node) + " has no function");
    if (!tables.lane.empty() && tables.lane[node] > DVT_KERNEL_LANE_LAUNCH) {
      return bad(entry("lane", node) + " is unknown");
    }
    for (const uint32_t to : tables.successors_of(node)) {
      if (to <= node || to >= count)
        return bad("a successor of " + entry("node", node) + " is not after it");
      ++arrivals[to];
    }
  }
  for (uint32_t node = 0; node < count; ++node) {
    if (arrivals[node] != tables.indegree[node]) {
      return bad(entry("indegree", node) + " disagrees with the successors");
    }
  }
  return {};
}

// Which node follows which inside a unit, and the arcs that launch order adds.
struct Topology::Chains {
  std::vector<uint32_t> next;         // Of the same unit, or kNoNode.
  std::vector<uint32_t> next_launch;  // An arc that launch order adds, or kNoNode.
  std::vector<uint32_t> indegree;     // Of nodes, with those arcs.
  std::vector<bool> joined;           // Not the first of its unit.
  std::vector<uint32_t> unit;         // Of each first node; filled in by lay_out_units().

  explicit Chains(const Tables& tables)
      : next(tables.count(), kNoNode),
        next_launch(tables.count(), kNoNode),
        indegree(tables.indegree.begin(), tables.indegree.end()),
        joined(tables.count(), false),
        unit(tables.count(), kNoNode) {
    order_launches(tables);
    link(tables);
  }

 private:
  void order_launches(const Tables& tables) {
    uint32_t last = kNoNode;
    for (uint32_t node = 0; node < tables.count(); ++node) {
      if (!is_launch(tables, node)) continue;
      if (last != kNoNode) {
        const auto successors = tables.successors_of(last);
        if (std::find(successors.begin(), successors.end(), node) == successors.end()) {
          next_launch[last] = node;
          ++indegree[node];
        }
      }
      last = node;
    }
  }

  [[nodiscard]] uint32_t only_successor(const Tables& tables, uint32_t node) const {
    const auto successors = tables.successors_of(node);
    const size_t count = successors.size() + (next_launch[node] != kNoNode ? 1 : 0);
    if (count != 1) return kNoNode;
    return successors.empty() ? next_launch[node] : successors[0];
  }

  void link(const Tables& tables) {
    std::vector<uint32_t> length(tables.count(), 1);
    for (uint32_t node = 0; node < tables.count(); ++node) {
      const uint32_t to = only_successor(tables, node);
      if (to == kNoNode || indegree[to] != 1 || length[node] == kUnitNodes ||
          is_memory(tables, node) != is_memory(tables, to)) {
        continue;
      }
      next[node] = to;
      joined[to] = true;
      length[to] = length[node] + 1;
    }
  }
};

Topology::Topology(const Tables& tables, std::pmr::memory_resource& memory)
    : steps_(&memory),
      node_(&memory),
      begin_(&memory),
      arc_begin_(&memory),
      arcs_(&memory),
      indegree_(&memory),
      roots_(&memory),
      memory_(&memory),
      may_suspend_(tables.may_suspend) {
  Chains chains(tables);
  const uint32_t count = tables.count();
  steps_.reserve(count);
  node_.reserve(count);
  for (uint32_t node = 0, unit = 0; node < count; ++node) {
    if (!chains.joined[node]) chains.unit[node] = unit++;
  }
  lay_out_units(tables, chains);
  lay_out_arcs(tables, chains);
  measure_depth();
}

void Topology::lay_out_units(const Tables& tables, const Chains& chains) {
  for (uint32_t node = 0; node < tables.count(); ++node) {
    if (chains.joined[node]) continue;
    begin_.push_back(static_cast<uint32_t>(steps_.size()));
    indegree_.push_back(chains.indegree[node]);
    memory_.push_back(is_memory(tables, node));
    for (uint32_t at = node; at != kNoNode; at = chains.next[at]) {
      steps_.push_back(tables.steps[at]);
      node_.push_back(at);
    }
  }
  begin_.push_back(static_cast<uint32_t>(steps_.size()));
}

void Topology::lay_out_arcs(const Tables& tables, const Chains& chains) {
  const auto word = [&](uint32_t unit) {
    return unit | (indegree_[unit] == 1 ? kSole : 0) | (memory_[unit] ? kMemory : 0) |
           (indegree_[unit] >= kWideFanIn ? kWide : 0);
  };
  std::vector<uint32_t> targets;
  for (uint32_t unit = 0; unit < unit_count(); ++unit) {
    arc_begin_.push_back(static_cast<uint32_t>(arcs_.size()));
    const uint32_t last = node_[begin_[unit + 1] - 1];
    const auto successors = tables.successors_of(last);
    targets.assign(successors.begin(), successors.end());
    if (chains.next_launch[last] != kNoNode) targets.push_back(chains.next_launch[last]);
    if (!tables.priority.empty()) {
      std::stable_sort(targets.begin(), targets.end(), [&](uint32_t a, uint32_t b) {
        return tables.priority[a] < tables.priority[b];
      });
    }
    for (const uint32_t to : targets) arcs_.push_back(word(chains.unit[to]));
    if (indegree_[unit] == 0) roots_.push_back(word(unit));
  }
  arc_begin_.push_back(static_cast<uint32_t>(arcs_.size()));
}

void Topology::measure_depth() {
  std::vector<uint32_t> level(unit_count(), 1);
  for (uint32_t unit = 0; unit < unit_count(); ++unit) {
    depth_ = std::max(depth_, level[unit]);
    for (uint32_t i = arc_begin_[unit]; i < arc_begin_[unit + 1]; ++i) {
      const uint32_t to = arcs_[i] & kUnitMask;
      level[to] = std::max(level[to], level[unit] + 1);
    }
  }
}

}  // namespace davit::mt_topo
