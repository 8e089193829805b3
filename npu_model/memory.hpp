// memory.hpp: the device memory of the model.
//
// Device offsets are given out first fit, lowest address first, in units of 512 bytes, so that
// fragmentation and exhaustion are those of the configured HBM. Behind each block is host memory of
// its own (or, without backing, a made-up address that nobody reads).
//
// A free gives the range back at once, while tasks that were submitted earlier may still use the
// block: that is legal on hardware, as long as none of the next owner's tasks writes first. Freed
// blocks therefore stay until those tasks are done:
//
//   Live --release()--> Freed --reap(): no earlier task is left--> poisoned, in quarantine, gone
//
// Blocks that share a range do not share host memory; instead, a write to one clobbers the others
// (fills them with kPoison and names the culprit), as it would on hardware.
//
// Serials order blocks, frees and tasks by submission.
//
// Threads  None of its own; the NPU's lock covers it.
// Trust    Any address may be asked about.
// Memory   Fresh blocks hold kPoison. Host memory of a block that is gone is poisoned and kept for
// a
//          while (kQuarantineBytes), so that a stale pointer reads poison instead of crashing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "npu_model/hazards.hpp"

namespace davit::npu {

inline constexpr uint8_t kPoison = 0xA5;

struct Block {
  uint64_t offset = 0;  // In HBM.
  uint64_t bytes = 0;   // Asked for.
  uint64_t reserved_bytes = 0;
  bool written = false;       // By a task.
  uint64_t freed_serial = 0;  // 0: live.
  std::string owner;
  // "OWNER (by TASK)" of a block whose task wrote over this one; empty: none.
  std::string clobbered_by;
  std::vector<Block*> aliases;  // Blocks with a common range, one of them freed.
  std::byte* address = nullptr;
  History history;  // Kept by those who check the order of accesses.
};

class Memory {
 public:
  static constexpr uint64_t kGranule = 512;
  static constexpr uint64_t kQuarantineBytes = uint64_t{64} << 20;

  Memory(uint64_t capacity_bytes, bool backed);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Result<std::byte*> allocate(uint64_t bytes, std::string owner);
  Status release(const void* address, uint64_t serial);
  // Lets go of blocks that were freed before `oldest_serial`: no task before it is left.
  void reap(uint64_t oldest_serial);
  [[nodiscard]] bool has_freed() const { return !freed_.empty(); }

  // The block that holds [address, address + bytes) and that a task of `serial` may use: live, or
  // freed later than the task was submitted. Else null.
  [[nodiscard]] const Block* find(const void* address, uint64_t bytes, uint64_t serial) const;
  [[nodiscard]] Block* find(const void* address, uint64_t bytes, uint64_t serial);
  // Why find() gave null: "freed memory (was of ...)", "... reach beyond the block of ...", "not
  // device memory".
  [[nodiscard]] std::string explain(const void* address, uint64_t bytes) const;
  // Whether [address, address + bytes) lies in a live block; says why not.
  [[nodiscard]] Status check_range(const void* address, uint64_t bytes) const;
  // A task wrote to the block that holds `address`.
  void note_write(const void* address, const Access& task);
  // True when any byte lies in a live block.
  [[nodiscard]] bool overlaps(const void* address, uint64_t bytes) const;

  [[nodiscard]] uint64_t capacity_bytes() const { return capacity_; }
  [[nodiscard]] uint64_t live_bytes() const { return live_; }
  [[nodiscard]] uint64_t peak_bytes() const { return peak_; }
  [[nodiscard]] uint64_t largest_hole_bytes() const;
  [[nodiscard]] size_t block_count() const { return blocks_.size() - freed_.size(); }

 private:
  struct Quarantined {
    std::byte* address;
    uint64_t bytes;
  };
  // Names of freed blocks that explain() remembers.
  static constexpr size_t kGravesMax = 4096;

  // The block, live or freed, whose bytes begin at or before `address` and reach it.
  [[nodiscard]] const Block* at(const void* address) const;
  Status out_of_memory(uint64_t bytes, const std::string& owner) const;
  void give_back(uint64_t offset, uint64_t bytes);
  void bury(const Block& block);
  void quarantine(std::byte* address, uint64_t bytes);

  uint64_t capacity_;
  bool backed_;
  // Made-up addresses: canonical, never mapped by Linux.
  uintptr_t next_fake_ = uintptr_t{1} << 56;
  uint64_t live_ = 0, peak_ = 0, quarantined_ = 0;
  std::map<uint64_t, uint64_t> holes_;       // Offset to size; neighbours are merged.
  std::map<uintptr_t, Block> blocks_;        // Live and freed, by first address.
  std::vector<Block*> freed_;                // In order of their frees.
  std::map<uintptr_t, std::string> graves_;  // Owner of what was freed there last.
  std::deque<uintptr_t> grave_order_;
  std::deque<Quarantined> quarantine_;
};

}  // namespace davit::npu
