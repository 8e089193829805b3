#include "exec/block.hpp"

#include <sys/mman.h>

#include <string>

#include "base/checked.hpp"

namespace davit::exec {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

std::byte* map_pages(uint64_t size) {
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

Result<Block> Block::map(uint64_t size, const char* what) {
  const uint64_t rounded_size = rounded(size);
  std::byte* base = nullptr;
  if (rounded_size <= PTRDIFF_MAX - kHugePage) {
    base = rounded_size < kHugePage ? map_pages(rounded_size) : map_huge_pages(rounded_size);
  }
  if (base == nullptr) {
    return Status(ErrorDetail{.code = DVT_OUT_OF_MEMORY,
                              .stage = DVT_STAGE_LOAD,
                              .message = std::string("no memory for ") + what,
                              .expected = std::to_string(rounded_size) + " bytes"});
  }
  return Block(base, rounded_size);
}

}  // namespace davit::exec
