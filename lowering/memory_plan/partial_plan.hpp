// partial_plan.hpp: the state of the search for a memory plan: some blocks placed, and what follows
// for the others.
//
// Time is cut into sections, the largest sets of blocks that live together; a block lives in a run
// of sections. Plans are built upwards: what lies below a section's floor is settled, whether used
// or given up.
//
//    capacity ─────────────────────────
//              floor      ┌────┐            slack of a section = capacity - floor - what is
//             ┌────┐      │    │            not placed yet; gaps cost slack, and negative slack
//    ─────────┤    ├──────┤    ├────        is a dead end
//    sections   0    1      2    3
//
// Threads  One.
// Memory   Allocates when made; undo records grow to the depth of the search.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lowering/memory_plan/packing.hpp"

namespace davit::lowering {

class PartialPlan {
 public:
  using Height = uint32_t;  // In units, see unit().
  static constexpr Height kNever = std::numeric_limits<Height>::max();
  static constexpr uint32_t kBlocksMax = 4096;  // Tables are quadratic.

  // True when heights of the problem fit Height, and its tables memory.
  static bool can_hold(const Problem& problem, uint64_t capacity_max);

  // Precondition: can_hold().
  explicit PartialPlan(const Problem& problem);

  // Bytes: every size and offset of the problem is a multiple.
  [[nodiscard]] uint64_t unit() const { return unit_; }
  [[nodiscard]] uint32_t block_count() const { return uint32_t(blocks_.size()); }
  [[nodiscard]] uint32_t section_count() const { return uint32_t(section_blocks_.size()); }

  // Forgets all placements. False when the capacity is too small for sure.
  bool start(Height capacity);

  // Places a block at lowest(block), or declares that nothing will lie below `height` in a section,
  // and infers. False for a dead end: undo_to() is then due.
  bool place(uint32_t block);
  bool raise(uint32_t section, Height height);

  [[nodiscard]] size_t mark() const { return undo_.size(); }
  void undo_to(size_t mark);

  [[nodiscard]] std::span<const uint16_t> waiting(uint32_t section) const {
    return {section_blocks_[section].data(), waiting_count_[section]};
  }
  [[nodiscard]] bool is_waiting(uint32_t block) const { return offset_[block] == kNever; }
  // Waiting blocks that start in this section are among these.
  [[nodiscard]] std::span<const uint16_t> starting(uint32_t section) const {
    return starting_[section];
  }
  // No waiting block lives both in `section` and the one before.
  [[nodiscard]] bool is_cut(uint32_t section) const { return crossing_[section] == 0; }
  [[nodiscard]] Height floor(uint32_t section) const { return floor_[section]; }
  [[nodiscard]] Height slack(uint32_t section) const {
    return capacity_ - floor_[section] - waiting_size_[section];
  }
  // The lowest offset that placed blocks leave for a waiting one.
  [[nodiscard]] Height lowest(uint32_t block) const { return lowest_[block]; }
  // If no block will lie at the floor of `section`: the lowest place anything there can have then.
  // kNever when some block would lie there in any plan that is worth a look.
  [[nodiscard]] Height next_floor(uint32_t section);

  // The placed block's offset.
  [[nodiscard]] Height offset(uint32_t block) const { return offset_[block]; }
  [[nodiscard]] uint32_t first_section(uint32_t block) const { return blocks_[block].first; }
  [[nodiscard]] uint32_t end_section(uint32_t block) const { return blocks_[block].end; }
  [[nodiscard]] Height size(uint32_t block) const { return blocks_[block].size; }
  // Blocks of one kind are the same but for their names.
  [[nodiscard]] uint32_t kind(uint32_t block) const { return blocks_[block].kind; }

  // How often a section was what made a dead end.
  [[nodiscard]] uint32_t conflicts(uint32_t section) const { return conflicts_[section]; }
  void halve_conflicts();

  // Entries of tables visited since the plan was made: the measure of work.
  [[nodiscard]] uint64_t steps() const { return steps_; }
  void add_steps(uint64_t steps) { steps_ += steps; }

 private:
  struct Entry {
    uint32_t first, end;  // Sections.
    Height size;
    Height alignment;  // In units.
    Height fixed;      // Its only offset, or kNever for a free one.
    uint32_t kind;
  };
  struct Undo {
    enum class What : uint8_t { kFloor, kLowest, kPlaced } what;
    uint32_t index;
    Height before;
  };

  void find_sections(const Problem& problem);
  void find_unit(const Problem& problem);
  void find_kinds();
  void fill_tables();
  void set_floor(uint32_t section, Height height);
  bool set_lowest(uint32_t block, Height height);
  bool infer(uint32_t first, uint32_t end);
  bool dead_end(uint32_t section) {
    ++conflicts_[section];
    return false;
  }

  uint64_t unit_ = 1;
  Height capacity_ = 0;
  uint64_t steps_ = 0;
  std::vector<Entry> blocks_;
  std::vector<std::vector<uint16_t>> section_blocks_;  // Waiting ones first.
  std::vector<uint32_t> waiting_count_;                // By section.
  std::vector<uint16_t> place_in_section_;             // [section][block].
  std::vector<std::vector<uint16_t>> starting_;        // By section.
  std::vector<std::vector<uint16_t>> overlaps_;        // By block.
  std::vector<Height> floor_, waiting_size_;           // By section.
  std::vector<Height> lowest_, offset_;                // By block.
  std::vector<uint32_t> crossing_;                     // By section; waiting blocks.
  std::vector<uint32_t> conflicts_;                    // By section.
  std::vector<Height> reach_;                          // Scratch of next_floor().
  std::vector<Undo> undo_;
};

}  // namespace davit::lowering
