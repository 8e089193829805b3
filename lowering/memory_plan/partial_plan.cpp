#include "lowering/memory_plan/partial_plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace davit::lowering {

bool PartialPlan::can_hold(const Problem& problem, uint64_t capacity_max) {
  if (problem.blocks.size() > kBlocksMax) return false;
  const uint64_t unit = granularity(problem);
  // Twice the capacity: what is rejected may end above it.
  return unit > 0 && capacity_max / unit < kNever / 4;
}

PartialPlan::PartialPlan(const Problem& problem) : blocks_(problem.blocks.size()) {
  find_unit(problem);
  find_sections(problem);
  find_kinds();
  fill_tables();
}

void PartialPlan::find_unit(const Problem& problem) {
  unit_ = granularity(problem);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = problem.blocks[i];
    blocks_[i].size = Height(block.size / unit_);
    blocks_[i].alignment = Height(std::max<uint64_t>(1, block.alignment / unit_));
    blocks_[i].fixed = block.fixed == Block::kFree ? kNever : Height(block.fixed / unit_);
  }
}

// A section ends where a block dies after others were born: all that live just before.
void PartialPlan::find_sections(const Problem& problem) {
  std::vector<std::tuple<uint32_t, bool, uint32_t>> events;  // Time, is birth, block.
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    events.emplace_back(problem.blocks[i].lower, true, i);
    events.emplace_back(problem.blocks[i].upper, false, i);
  }
  std::sort(events.begin(), events.end());  // Deaths first.
  uint32_t section = 0;
  bool has_birth = false;
  for (const auto& [time, is_birth, block] : events) {
    if (is_birth) {
      blocks_[block].first = section;
    } else {
      section += has_birth ? 1 : 0;
      blocks_[block].end = section;
    }
    has_birth = is_birth;
  }
  section_blocks_.resize(section);
  starting_.resize(section);
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    starting_[blocks_[i].first].push_back(uint16_t(i));
    for (uint32_t s = blocks_[i].first; s < blocks_[i].end; ++s) {
      section_blocks_[s].push_back(uint16_t(i));
    }
  }
}

void PartialPlan::find_kinds() {
  std::map<std::tuple<uint32_t, uint32_t, Height, Height, Height>, uint32_t> kinds;
  for (Entry& block : blocks_) {
    const auto key = std::tuple(block.first, block.end, block.size, block.alignment, block.fixed);
    block.kind = kinds.emplace(key, uint32_t(kinds.size())).first->second;
  }
}

void PartialPlan::fill_tables() {
  const size_t n = blocks_.size();
  const size_t sections = section_blocks_.size();
  overlaps_.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < n; ++j) {
      const bool together = blocks_[i].first < blocks_[j].end && blocks_[j].first < blocks_[i].end;
      if (i != j && together) overlaps_[i].push_back(uint16_t(j));
    }
  }
  place_in_section_.resize(n * sections);
  conflicts_.assign(sections, 0);
  reach_.resize(sections);
}

bool PartialPlan::start(Height capacity) {
  const size_t sections = section_blocks_.size();
  capacity_ = capacity;
  undo_.clear();
  floor_.assign(sections, 0);
  waiting_size_.assign(sections, 0);
  waiting_count_.assign(sections, 0);
  crossing_.assign(sections + 1, 0);
  offset_.assign(blocks_.size(), kNever);
  lowest_.assign(blocks_.size(), 0);
  for (uint32_t s = 0; s < sections; ++s) {
    auto& blocks = section_blocks_[s];
    std::sort(blocks.begin(), blocks.end());  // Earlier searches have stirred them.
    waiting_count_[s] = uint32_t(blocks.size());
    steps_ += 8 * blocks.size();
    for (uint32_t k = 0; k < blocks.size(); ++k) {
      place_in_section_[s * blocks_.size() + blocks[k]] = uint16_t(k);
      waiting_size_[s] += blocks_[blocks[k]].size;
      crossing_[s] += blocks_[blocks[k]].first < s ? 1 : 0;
    }
  }
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    const Entry& block = blocks_[i];
    if (block.fixed != kNever) lowest_[i] = block.fixed;
    if (lowest_[i] + block.size > capacity_) return false;
  }
  return infer(0, uint32_t(sections));
}

void PartialPlan::set_floor(uint32_t section, Height height) {
  undo_.push_back({Undo::What::kFloor, section, floor_[section]});
  floor_[section] = height;
}

// Raises the lowest offset of a waiting block to `height` or the next one that its alignment
// allows.
bool PartialPlan::set_lowest(uint32_t index, Height height) {
  const Entry& block = blocks_[index];
  height = (height + block.alignment - 1) & ~(block.alignment - 1);
  undo_.push_back({Undo::What::kLowest, index, lowest_[index]});
  lowest_[index] = height;
  if (block.fixed == kNever && height + block.size <= capacity_) return true;
  return dead_end(block.first);  // Fixed ones start as high as they may get.
}

// Nothing in a section can lie below the lowest offset of its waiting blocks. That is a settled
// gap, and what waits must fit above it.
bool PartialPlan::infer(uint32_t first, uint32_t end) {
  for (uint32_t s = first; s < end; ++s) {
    const auto blocks = waiting(s);
    if (blocks.empty()) continue;
    steps_ += blocks.size();
    Height lowest = kNever;
    for (const uint16_t block : blocks) lowest = std::min(lowest, lowest_[block]);
    if (lowest > floor_[s]) set_floor(s, lowest);
    if (floor_[s] + waiting_size_[s] > capacity_) return dead_end(s);
  }
  return true;
}

bool PartialPlan::place(uint32_t index) {
  const Entry& block = blocks_[index];
  const Height top = lowest_[index] + block.size;
  offset_[index] = lowest_[index];
  undo_.push_back({Undo::What::kPlaced, index, 0});
  for (uint32_t s = block.first; s < block.end; ++s) {
    waiting_size_[s] -= block.size;
    if (s > block.first) --crossing_[s];
    // Swapped with the last that waits: undone in reverse order, only the count must change back.
    uint16_t* const in_section = section_blocks_[s].data();
    uint16_t* const places = place_in_section_.data() + size_t(s) * blocks_.size();
    const uint16_t last = uint16_t(--waiting_count_[s]);
    const uint16_t here = places[index];
    const uint16_t other = in_section[last];
    in_section[last] = uint16_t(index);
    in_section[here] = other;
    places[index] = last;
    places[other] = here;
    set_floor(s, top);
  }
  uint32_t first = block.first;
  uint32_t end = block.end;
  steps_ += overlaps_[index].size() + (block.end - block.first);
  for (const uint16_t other : overlaps_[index]) {
    if (!is_waiting(other) || lowest_[other] >= top) continue;
    if (!set_lowest(other, top)) return false;
    first = std::min(first, blocks_[other].first);
    end = std::max(end, blocks_[other].end);
  }
  return infer(first, end);
}

bool PartialPlan::raise(uint32_t section, Height height) {
  set_floor(section, height);
  uint32_t first = section;
  uint32_t end = section + 1;
  for (const uint16_t block : waiting(section)) {
    if (lowest_[block] >= height) continue;
    if (!set_lowest(block, height)) return false;
    first = std::min(first, blocks_[block].first);
    end = std::max(end, blocks_[block].end);
  }
  return infer(first, end);
}

void PartialPlan::undo_to(size_t mark) {
  while (undo_.size() > mark) {
    const Undo& undo = undo_.back();
    switch (undo.what) {
      case Undo::What::kFloor:
        floor_[undo.index] = undo.before;
        break;
      case Undo::What::kLowest:
        lowest_[undo.index] = undo.before;
        break;
      case Undo::What::kPlaced: {
        const Entry& block = blocks_[undo.index];
        offset_[undo.index] = kNever;
        for (uint32_t s = block.first; s < block.end; ++s) {
          waiting_size_[s] += block.size;
          ++waiting_count_[s];
          if (s > block.first) ++crossing_[s];
        }
        break;
      }
    }
    undo_.pop_back();
  }
}

// A block that could lie at the floor and does not lies on something else that waits now, and that
// is not in this section: or it would be the first here. (A block with nothing below it can drop,
// so plans with such blocks need no look.) reach_[t] is the lowest top of those that end or start
// between this section and t.
PartialPlan::Height PartialPlan::next_floor(uint32_t section) {
  const Height here = floor_[section];
  Height next = kNever;
  uint32_t first = section;
  uint32_t end = section + 1;
  for (const uint16_t block : waiting(section)) {
    if (lowest_[block] > here) {
      next = std::min(next, lowest_[block]);
    } else {
      first = std::min(first, blocks_[block].first);
      end = std::max(end, blocks_[block].end);
    }
  }
  const auto top = [&](uint16_t block) { return lowest_[block] + blocks_[block].size; };
  Height lowest = kNever;
  for (uint32_t s = section; s-- > first;) {
    steps_ += waiting_count_[s];
    for (const uint16_t block : waiting(s)) {
      if (blocks_[block].end == s + 1) lowest = std::min(lowest, top(block));
    }
    reach_[s] = lowest;
  }
  lowest = kNever;
  for (uint32_t s = section + 1; s < end; ++s) {
    steps_ += starting_[s].size();
    for (const uint16_t block : starting_[s]) {
      if (is_waiting(block)) lowest = std::min(lowest, top(block));
    }
    reach_[s] = lowest;
  }
  for (const uint16_t index : waiting(section)) {
    const Entry& block = blocks_[index];
    if (lowest_[index] > here) continue;
    if (block.first < section) next = std::min(next, reach_[block.first]);
    if (block.end > section + 1) next = std::min(next, reach_[block.end - 1]);
  }
  return next;
}

void PartialPlan::halve_conflicts() {
  for (uint32_t& count : conflicts_) count /= 2;
}

}  // namespace davit::lowering
