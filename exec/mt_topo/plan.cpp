#include "exec/mt_topo/plan.hpp"

#include <algorithm>
#include <string>

#include "davit/kernel.h"

namespace davit::mt_topo {
namespace {

Status bad(const std::string& what) {
  return {DVT_INVALID_IMAGE, DVT_STAGE_LOAD, what};
}
std::string entry(const char* table, size_t index) {
  return std::string(table) + "[" + std::to_string(index) + "]";
}

Status check_offsets(const char* table, std::span<const uint32_t> offsets, size_t entries,
                     size_t end) {
  if (offsets.size() != entries + 1 || offsets.front() != 0 || offsets.back() != end) {
    return bad(std::string(table) + ": must be " + std::to_string(entries + 1) +
               " numbers from 0 to " + std::to_string(end));
  }
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return bad(entry(table, i) + ": offsets must not decrease");
  }
  return {};
}

// Walks the parts side by side, as far as waits allow, with a vector clock per position that is
// waited for: how much of each part has run for certain when the position has.
class PlanCheck {
 public:
  PlanCheck(const PlanTables& plan, const Tables& tables)
      : plan_(plan), tables_(tables), parts_(plan.parts()), count_(tables.count()) {}

  Status run() {
    if (Status status = index(); !status.ok()) return status;
    if (Status status = check_waits(); !status.ok()) return status;
    clock_.assign(size_t{parts_} * parts_, 0);
    next_wait_.assign(plan_.wait_offsets.begin(), plan_.wait_offsets.end() - 1);
    cursor_.assign(plan_.part_offsets.begin(), plan_.part_offsets.end() - 1);
    for (uint32_t done = 0; done < count_;) {
      const uint32_t before = done;
      for (uint32_t part = 0; part < parts_; ++part) {
        while (cursor_[part] < plan_.part_offsets[part + 1] && ready(cursor_[part])) {
          if (Status status = pass(part, cursor_[part]); !status.ok()) return status;
          ++cursor_[part];
          ++done;
        }
      }
      if (done == before) return bad("waits: they form a cycle");
    }
    return {};
  }

 private:
  // Where each node is, its predecessors, and its part's rules.
  Status index() {
    position_.assign(count_, kNoNode);
    part_of_.resize(count_);
    uint32_t part = 0;
    for (uint32_t position = 0; position < count_; ++position) {
      while (position >= plan_.part_offsets[part + 1]) ++part;
      const uint32_t node = plan_.order[position];
      if (node >= count_) return bad(entry("part_nodes", position) + ": there is no such node");
      if (position_[node] != kNoNode) {
        return bad(entry("part_nodes", position) + ": the node occurs twice");
      }
      position_[node] = position;
      part_of_[position] = part;
    }
    predecessor_offsets_.assign(count_ + 1, 0);
    uint32_t last_launch = kNoNode;
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t node = 0; node < count_; ++node) {
      for (const uint32_t to : tables_.successors_of(node)) edges.emplace_back(to, node);
      if (lane(node) == DVT_KERNEL_LANE_LAUNCH) {
        if (last_launch != kNoNode) edges.emplace_back(node, last_launch);
        last_launch = node;
      }
      if (lane(node) == DVT_KERNEL_LANE_MEMORY) {
        if (memory_part_ == kNoNode) memory_part_ = part_of_[position_[node]];
        if (memory_part_ != part_of_[position_[node]]) {
          return bad("part_off: memory nodes are in two parts");
        }
      }
    }
    for (const auto& [to, from] : edges) ++predecessor_offsets_[to + 1];
    for (uint32_t i = 0; i < count_; ++i) predecessor_offsets_[i + 1] += predecessor_offsets_[i];
    predecessors_.resize(edges.size());
    std::vector<uint32_t> fill(predecessor_offsets_.begin(), predecessor_offsets_.end() - 1);
    for (const auto& [to, from] : edges) predecessors_[fill[to]++] = from;
    return {};
  }

  Status check_waits() {
    slot_.assign(count_, kNoNode);
    uint32_t slots = 0;
    for (uint32_t position = 0; position < count_; ++position) {
      for (uint32_t i = plan_.wait_offsets[position]; i < plan_.wait_offsets[position + 1]; ++i) {
        const uint32_t awaited = plan_.waits[i];
        if (awaited >= count_) return bad(entry("waits", i) + ": there is no such position");
        if (part_of_[awaited] == part_of_[position]) {
          return bad(entry("waits", i) + ": it is of the part that waits");
        }
        if (slot_[awaited] == kNoNode) slot_[awaited] = slots++;
      }
    }
    snapshots_.assign(size_t{slots} * parts_, 0);
    return {};
  }

  // Goes on where the last look at the position ended, so that each wait is seen once.
  [[nodiscard]] bool ready(uint32_t position) {
    uint32_t& next = next_wait_[position];
    while (next < plan_.wait_offsets[position + 1]) {
      const uint32_t awaited = plan_.waits[next];
      if (awaited >= cursor_[part_of_[awaited]]) return false;
      ++next;
    }
    return true;
  }

  // Runs a position in the mind: what is known to have run must cover its predecessors.
  Status pass(uint32_t part, uint32_t position) {
    uint32_t* known = &clock_[size_t{part} * parts_];
    for (const uint32_t awaited : waits_of(position)) {
      const uint32_t* snapshot = &snapshots_[size_t{slot_[awaited]} * parts_];
      for (uint32_t other = 0; other < parts_; ++other) {
        known[other] = std::max(known[other], snapshot[other]);
      }
    }
    const uint32_t node = plan_.order[position];
    for (uint32_t i = predecessor_offsets_[node]; i < predecessor_offsets_[node + 1]; ++i) {
      const uint32_t before = position_[predecessors_[i]];
      if (before >= known[part_of_[before]]) {
        return bad("waits: node " + std::to_string(node) + " may run before node " +
                   std::to_string(predecessors_[i]) + ", which it has to come after");
      }
    }
    known[part] = position + 1;
    if (slot_[position] != kNoNode) {
      std::copy_n(known, parts_, &snapshots_[size_t{slot_[position]} * parts_]);
    }
    return {};
  }

  [[nodiscard]] std::span<const uint32_t> waits_of(uint32_t position) const {
    return plan_.waits.subspan(plan_.wait_offsets[position],
                               plan_.wait_offsets[position + 1] - plan_.wait_offsets[position]);
  }
  [[nodiscard]] uint8_t lane(uint32_t node) const {
    return tables_.lane.empty() ? uint8_t{DVT_KERNEL_LANE_NORMAL} : tables_.lane[node];
  }

  const PlanTables& plan_;
  const Tables& tables_;
  uint32_t parts_, count_;
  uint32_t memory_part_ = kNoNode;
  std::vector<uint32_t> position_, part_of_;
  std::vector<uint32_t> predecessor_offsets_, predecessors_;
  std::vector<uint32_t> slot_, snapshots_;  // Of positions that are waited for.
  std::vector<uint32_t> clock_, cursor_;
  std::vector<uint32_t> next_wait_;  // Of each position: the first that is not known to be met.
};

}  // namespace

Status check_plan(const PlanTables& plan, const Tables& tables) {
  const uint32_t count = tables.count();
  if (plan.part_offsets.size() < 2 || plan.parts() > kPartsMax) {
    return bad("part_off: there must be 1 to " + std::to_string(kPartsMax) + " parts");
  }
  if (plan.order.size() != count) return bad("part_nodes: one entry per node is needed");
  Status status = check_offsets("part_off", plan.part_offsets, plan.parts(), count);
  if (!status.ok()) return status;
  status = check_offsets("wait_off", plan.wait_offsets, count, plan.waits.size());
  if (!status.ok()) return status;
  return PlanCheck(plan, tables).run();
}

Segments::Segments(const PlanTables& plan, const Tables& tables, std::pmr::memory_resource& memory)
    : steps_(&memory),
      node_(plan.order.begin(), plan.order.end(), &memory),
      part_begin_(&memory),
      segments_(&memory),
      raised_(plan.waits.size(), &memory) {
  const uint32_t count = tables.count();
  steps_.reserve(count);
  for (const uint32_t node : node_) steps_.push_back(tables.steps[node]);
  std::vector<uint32_t> raise_begin(count + 1, 0);
  for (const uint32_t awaited : plan.waits) ++raise_begin[awaited + 1];
  for (uint32_t i = 0; i < count; ++i) raise_begin[i + 1] += raise_begin[i];
  std::vector<uint32_t> fill(raise_begin.begin(), raise_begin.end() - 1);
  for (uint32_t flag = 0; flag < plan.waits.size(); ++flag) {
    raised_[fill[plan.waits[flag]]++] = flag;
  }
  for (uint32_t part = 0; part < plan.parts(); ++part) {
    part_begin_.push_back(static_cast<uint32_t>(segments_.size()));
    bool cut = true;
    for (uint32_t at = plan.part_offsets[part]; at < plan.part_offsets[part + 1]; ++at) {
      const uint32_t wait_begin = plan.wait_offsets[at];
      const uint32_t wait_end = plan.wait_offsets[at + 1];
      if (cut || wait_begin != wait_end) {
        segments_.push_back({at, at, wait_begin, wait_end, raise_begin[at], raise_begin[at]});
      }
      segments_.back().end = at + 1;
      segments_.back().raise_begin = raise_begin[at];
      segments_.back().raise_end = raise_begin[at + 1];
      cut = raise_begin[at] != raise_begin[at + 1];
    }
  }
  part_begin_.push_back(static_cast<uint32_t>(segments_.size()));
}

}  // namespace davit::mt_topo
