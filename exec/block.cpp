#include "exec/block.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.hpp"

namespace davit::exec {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Of that size, whatever the system's own is: its logarithm goes into the flags.
constexpr int kReservedPages = MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;

std::byte* map_pages(uint64_t size, int flags = 0) {
  void* base =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

// Maps more than is needed and gives back what is before the first huge page and behind the last.
std::byte* map_huge_pages(uint64_t size) {
  std::byte* const base = map_pages(size + kHugePage - kPage);
  if (base == nullptr) return nullptr;
  const uint64_t head = (0 - reinterpret_cast<uintptr_t>(base)) % kHugePage;
  const uint64_t tail = kHugePage - kPage - head;
  if (head > 0) ::munmap(base, head);
  if (tail > 0) ::munmap(base + head + size, tail);
  // Advice: where the system has no huge pages, small ones do.
  ::madvise(base + head, size, MADV_HUGEPAGE);
  return base + head;
}

std::byte* map_as_asked(uint64_t size, uint32_t huge_pages) {
  if (huge_pages == DVT_HUGE_PAGES_RESERVED) return map_pages(size, kReservedPages);
  if (huge_pages == DVT_HUGE_PAGES_AUTO && size >= kHugePage) return map_huge_pages(size);
  std::byte* const base = map_pages(size);
  // Also where the system's default is to use them everywhere.
  if (base != nullptr && huge_pages == DVT_HUGE_PAGES_NONE) {
    ::madvise(base, size, MADV_NOHUGEPAGE);
  }
  return base;
}

}  // namespace

Block& Block::operator=(Block&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

Block::~Block() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

uint64_t Block::rounded(uint64_t size) {
  return checked_align(size, size < kHugePage ? kPage : kHugePage).value_or(UINT64_MAX);
}

Result<Block> Block::map(uint64_t size, const char* what, uint32_t huge_pages) {
  const bool is_reserved = huge_pages == DVT_HUGE_PAGES_RESERVED;
  const uint64_t rounded_size = rounded(is_reserved ? std::max(size, kHugePage) : size);
  std::byte* base = nullptr;
  if (rounded_size <= PTRDIFF_MAX - kHugePage) base = map_as_asked(rounded_size, huge_pages);
  if (base == nullptr) {
    ErrorDetail detail{.code = DVT_OUT_OF_MEMORY,
                       .stage = DVT_STAGE_LOAD,
                       .message = std::string("no memory for ") + what,
                       .expected = std::to_string(rounded_size) + " bytes"};
    if (is_reserved) {
      detail.message += " in huge pages that were set aside";
      detail.hint = "set more aside (sysctl vm.nr_hugepages), or leave it to the system";
    }
    return Status(std::move(detail));
  }
  return Block(base, rounded_size);
}

}  // namespace davit::exec
