// memory.hpp: the device memory of the model.
//
// Device offsets are given out first fit, lowest address first, in units of 512 bytes, so that
// fragmentation and exhaustion are those of the configured HBM. Behind each block is host memory of
// the same size (or, without backing, a made-up address that nobody reads).
//
// Threads  None of its own; the NPU's lock covers it.
// Trust    Any address may be asked about.
// Memory   Fresh blocks hold kPoison. Freed blocks are poisoned and kept for a while
//          (kQuarantineBytes) before the host memory is returned, so that a stale pointer reads
//          poison instead of crashing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/status.hpp"

namespace davit::npu {

inline constexpr uint8_t kPoison = 0xA5;

struct Block {
  uint64_t offset = 0;  // In HBM.
  uint64_t bytes = 0;   // Asked for.
  uint64_t reserved_bytes = 0;
  uint64_t serial = 0;  // `serial` of allocate().
  std::string owner;
};

class Memory {
 public:
  static constexpr uint64_t kGranule = 512;
  static constexpr uint64_t kQuarantineBytes = uint64_t{64} << 20;

  Memory(uint64_t capacity_bytes, bool backed);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // `serial` orders the block among tasks and other blocks.
  Result<std::byte*> allocate(uint64_t bytes, uint64_t serial, std::string owner);
  Status release(const void* address);

  // The live block that holds [address, address + bytes) entirely, or null.
  [[nodiscard]] const Block* find(const void* address, uint64_t bytes) const;
  // Why find() gave null: "freed (was of ...)", "ends 3 bytes behind block ...", "not device
  // memory".
  [[nodiscard]] std::string explain(const void* address, uint64_t bytes) const;
  // True when any byte lies in a live block.
  [[nodiscard]] bool overlaps(const void* address, uint64_t bytes) const;

  [[nodiscard]] uint64_t capacity_bytes() const { return capacity_; }
  [[nodiscard]] uint64_t live_bytes() const { return live_; }
  [[nodiscard]] uint64_t peak_bytes() const { return peak_; }
  [[nodiscard]] uint64_t largest_hole_bytes() const;
  [[nodiscard]] size_t block_count() const { return blocks_.size(); }

 private:
  struct Quarantined {
    std::byte* address;
    uint64_t bytes;
  };
  // Names of freed blocks that explain() remembers.
  static constexpr size_t kGravesMax = 4096;

  Status out_of_memory(uint64_t bytes, const std::string& owner) const;
  void quarantine(std::byte* address, uint64_t bytes);

  uint64_t capacity_;
  bool backed_;
  uint64_t live_ = 0, peak_ = 0, quarantined_ = 0;
  std::map<uint64_t, uint64_t> holes_;       // Offset to size; neighbours are merged.
  std::map<uintptr_t, Block> blocks_;        // By first address.
  std::map<uintptr_t, std::string> graves_;  // Owner of what was freed there last.
  std::deque<uintptr_t> grave_order_;
  std::deque<Quarantined> quarantine_;
};

}  // namespace davit::npu
