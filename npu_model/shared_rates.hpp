// shared_rates.hpp: how fast phases of running tasks go on, and which one ends next.
//
// A phase is work in picoseconds at full speed. Its cores allow it a speed; HBM and L2 are shared
// max-min fair: everybody gets what he wants up to a common level, and whoever wants more is
// *bound* and gets the level:
//
//   wanted     5  20  30  80  90        135 in all
//   gets       5  20  30 |40  40        level 40; two are bound
//
// All phases that are bound by one resource get the same rate. So they share a clock that counts
// the work which each of them is given, and one ends when that clock shows what it showed when it
// was bound plus its work. A new level changes the pace of the clock and touches no phase. A phase
// that is not bound has a time at which it ends.
//
// HBM comes first: what it leaves of a phase is what L2 has to give. When both are short, the
// phases that L2 binds are looked for among all; what they leave of HBM is not shared out again.
//
// Invariants
//   S1  Work is counted in Q16 picoseconds, and on clocks in Q16 picoseconds times MB/s: exactly.
//       Only who stops being bound is rounded, up, so that nobody is faster than alone.
//   S2  Phases that end in the same picosecond do so in order of dispatch.
//
// Threads  None of its own; the NPU's lock covers it.
// Trust    Callers keep to the order of calls below; work is at most kBodyMaxPs.
// Memory   About 150 bytes for each phase that ever ran at once. No allocation when as many have
//          run before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace davit::npu {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
inline constexpr uint32_t kFullSpeed = 65536;  // Q16.

// A heap of slots, each in it once at most; least key first, then least order.
template <class Key>
class SlotHeap {
 public:
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const Key& least() const { return entries_.front().key; }
  [[nodiscard]] uint32_t first() const { return entries_.front().slot; }
  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] uint32_t slot_at(size_t index) const { return entries_[index].slot; }

  void push(uint32_t slot, Key key, uint64_t order) {
    if (slot >= places_.size()) places_.resize(slot + 1);
    entries_.push_back({key, order, slot});
    rise(entries_.size() - 1);
  }
  void erase(uint32_t slot) {
    const size_t at = places_[slot];
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at == entries_.size()) return;
    put(at, last);
    rise(at);
    sink(at);
  }

 private:
  struct Entry {
    Key key;
    uint64_t order;
    uint32_t slot;
    bool operator<(const Entry& other) const {
      return key != other.key ? key < other.key : order < other.order;
    }
  };

  void put(size_t at, const Entry& entry) {
    entries_[at] = entry;
    places_[entry.slot] = static_cast<uint32_t>(at);
  }
  void rise(size_t at) {
    const Entry entry = entries_[at];
    for (; at > 0 && entry < entries_[(at - 1) / 2]; at = (at - 1) / 2) {
      put(at, entries_[(at - 1) / 2]);
    }
    put(at, entry);
  }
  void sink(size_t at) {
    const Entry entry = entries_[at];
    for (size_t child = 2 * at + 1; child < entries_.size(); child = 2 * at + 1) {
      if (child + 1 < entries_.size() && entries_[child + 1] < entries_[child]) ++child;
      if (!(entries_[child] < entry)) break;
      put(at, entries_[child]);
      at = child;
    }
    put(at, entry);
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> places_;  // By slot.
};

// Of a phase at full speed, in MB/s.
struct Needs {
  uint32_t hbm = 0, l2 = 0;
};

class SharedRates {
 public:
  SharedRates(uint64_t hbm_mbps, uint64_t l2_mbps) : resources_{{{hbm_mbps}, {l2_mbps}}} {}

  // A place for one task; `order` is later than that of all tasks before it.
  uint32_t open(uint64_t order);
  // Precondition: it runs no phase.
  void close(uint32_t slot);

  // Starts a phase; the slot runs none. Times never go back from call to call.
  void run(uint32_t slot, int64_t now_ps, int64_t work_ps);
  void run(uint32_t slot, int64_t now_ps, int64_t work_ps, uint32_t core_q16, Needs needs);
  // Of a slot that runs a phase.
  void set_core_speed(uint32_t slot, int64_t now_ps, uint32_t core_q16);
  // Ends the phase of a slot, if it runs one.
  void stop(uint32_t slot, int64_t now_ps);

  // Ends a phase that is due, and gives its slot; kNone when there is none.
  uint32_t next_due(int64_t now_ps);
  // Shares out what there is, after changes.
  void settle(int64_t now_ps);
  // When the next phase ends, or kNever. Good after settle().
  [[nodiscard]] int64_t due_ps() const { return due_ps_; }

 private:
  __extension__ using Work = unsigned __int128;
  static constexpr uint32_t kHbm = 0, kL2 = 1;
  enum class State : uint8_t {
    kIdle,
    kFresh,  // Has begun since settle().
    kTimed,  // Ends at a known time.
    kDue,    // Has ended, and next_due() has not said so yet.
    kBoundByHbm,
    kBoundByL2,
  };

  struct Phase {
    uint64_t order;
    int64_t remaining_q16;  // Timed: at `updated_ps`.
    int64_t updated_ps;
    Work finish;                                     // Bound: on the clock of its resource.
    std::array<uint32_t, 2> need_mbps, demand_mbps;  // Demand: with its cores.
    uint64_t ratio_q16;                              // Of its needs: L2 for HBM. Bound by HBM.
    uint32_t core_q16;
    State state;
  };

  struct Resource {
    uint64_t capacity_mbps;
    // Demand << 32 | slot of every phase that has one, least first. The first `fitting` get what
    // they want, together `fitting_mbps`; the others are bound.
    std::vector<uint64_t> demands = {};
    size_t fitting = 0;
    uint64_t fitting_mbps = 0, total_mbps = 0;
    uint64_t level_mbps = 0;
    Work clock = 0;
    SlotHeap<Work> bound = {};
  };

  static State bound_by(uint32_t resource) {
    return resource == kHbm ? State::kBoundByHbm : State::kBoundByL2;
  }
  [[nodiscard]] bool is_bound(uint32_t slot) const {
    return phases_[slot].state >= State::kBoundByHbm;
  }

  void advance(int64_t now_ps);
  void enter(uint32_t slot);
  void leave(uint32_t slot);
  // To bound, and back to a time.
  void bind(uint32_t slot, uint32_t resource);
  void release(uint32_t slot);
  // Takes a phase from its heap; what is left of it is up to date.
  void detach(uint32_t slot);
  void unbind(uint32_t slot, uint32_t resource);
  void give_time(uint32_t slot);
  void rebalance(uint32_t resource);
  void release_all(uint32_t resource);
  void bind_by_l2_too();
  [[nodiscard]] int64_t clock_due_ps(const Resource& resource) const;

  int64_t now_ps_ = 0;
  int64_t due_ps_ = kNever;
  std::array<Resource, 2> resources_;
  std::vector<Phase> phases_;  // By slot.
  std::vector<uint32_t> free_slots_, fresh_;
  std::vector<uint32_t> due_;  // Were bound and have ended, last dispatched first.
  SlotHeap<int64_t> timed_;
  // Of the phases that HBM binds: their demands of L2, and of L2 for each of HBM, in Q16.
  uint64_t bound_l2_mbps_ = 0, bound_ratio_q16_ = 0;
  bool both_are_short_ = false;
  std::vector<uint64_t> wanted_;  // Scratch.
};

}  // namespace davit::npu
