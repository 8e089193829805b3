// block.hpp: one zeroed, page-aligned piece of memory of its own.
//
// From 2 MiB on, a block is aligned to huge pages, rounded up to them, and asks for them unless it
// is told otherwise: it is filled in at once by whoever asks for that much, and the faults of small
// pages are what costs. Filling 10 MiB: 0.9 ms with huge pages; without, 2 ms on a bare machine and
// 130 ms on a guest whose page tables the host shadows.
//
// Threads  A value that one thread owns.
// Memory   Pages that nobody touches cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.hpp"
#include "davit/davit.h"

namespace davit::exec {

class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Block& operator=(Block&& other) noexcept;
  ~Block();

  // DVT_OUT_OF_MEMORY when the system has none. `what` is for the message, `huge_pages` is one of
  // DVT_HUGE_PAGES_*.
  static Result<Block> map(uint64_t size, const char* what,
                           uint32_t huge_pages = DVT_HUGE_PAGES_AUTO);

  // What map(size) takes from the system.
  static uint64_t rounded(uint64_t size);

  // Taken from the system.
  [[nodiscard]] uint64_t bytes() const { return size_; }
  template <class T>
  [[nodiscard]] T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

 private:
  Block(std::byte* base, size_t size) : base_(base), size_(size) {}

  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace davit::exec
