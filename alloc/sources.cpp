// The built-in sources: the host through mmap, and a device's own malloc.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "alloc/caching_allocator.h"

namespace {

// Larger than any page and any alignment that is asked for in practice, so that trimming is rare.
constexpr uint64_t kHostPage = uint64_t{64} << 10;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

char* align_up(char* address, uint64_t alignment) {
  const uint64_t beyond = reinterpret_cast<uintptr_t>(address) % alignment;
  return beyond == 0 ? address : address + (alignment - beyond);
}

// Address space without access: what is not committed cannot be touched by mistake, and counts
// nowhere.
DvtCode host_reserve(void* user, uint64_t bytes, uint64_t alignment, void** out) {
  const bool huge = user != nullptr;
  if (huge && alignment < kHugePage) alignment = kHugePage;
  uint64_t padded = 0;
  if (__builtin_add_overflow(bytes, alignment, &padded)) return DVT_OUT_OF_MEMORY;
  void* mapped =
      mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return DVT_OUT_OF_MEMORY;
  auto* first = static_cast<char*>(mapped);
  char* begin = align_up(first, alignment);
  char* end = begin + bytes;
  if (begin > first) munmap(first, static_cast<size_t>(begin - first));
  if (end < first + padded) munmap(end, static_cast<size_t>(first + padded - end));
  if (huge) madvise(begin, bytes, MADV_HUGEPAGE);  // A wish; without it things are only slower.
  *out = begin;
  return DVT_OK;
}

void host_release(void*, void* address, uint64_t bytes) {
  munmap(address, bytes);
}

DvtCode host_commit(void*, void* address, uint64_t bytes) {
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0 ? DVT_OK : DVT_OUT_OF_MEMORY;
}

DvtCode host_decommit(void*, void* address, uint64_t bytes) {
  if (madvise(address, bytes, MADV_DONTNEED) != 0) return DVT_INTERNAL;
  // Fails only for lack of map entries; the pages are gone all the same.
  mprotect(address, bytes, PROT_NONE);
  return DVT_OK;
}

DvtCode device_reserve(void* user, uint64_t bytes, uint64_t alignment, void** out) {
  auto* device = static_cast<DvtDevice*>(user);
  void* address = nullptr;
  const DvtCode code = device->vtable->malloc(device, bytes, "the caching allocator", &address);
  if (code != DVT_OK) return code;
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
    device->vtable->free(device, address);
    return DVT_UNSUPPORTED;
  }
  *out = address;
  return DVT_OK;
}

void device_release(void* user, void* address, uint64_t) {
  auto* device = static_cast<DvtDevice*>(user);
  device->vtable->free(device, address);
}

// What the huge-page source has for `user`: its presence is the option.
char huge_pages_mark;

}  // namespace

DvtMemorySource dvt_host_source(const DvtHostSourceOptions* options) {
  const bool huge = options != nullptr && options->huge_pages != 0;
  return {.name = "the host",
          .user = huge ? &huge_pages_mark : nullptr,
          .reserve = host_reserve,
          .release = host_release,
          .page_bytes = huge ? kHugePage : kHostPage,
          .commit = host_commit,
          .decommit = host_decommit};
}

DvtMemorySource dvt_device_source(DvtDevice* device) {
  return {.name = device->vtable->name,
          .user = device,
          .reserve = device_reserve,
          .release = device_release,
          .page_bytes = 0,
          .commit = nullptr,
          .decommit = nullptr};
}
