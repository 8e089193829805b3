#include "alloc/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/address_sanitizer.h"

#if DVT_MIMALLOC
#include <mimalloc.h>
#endif

namespace davit::alloc {
namespace {

// In front of metadata, which goes back without its size.
struct alignas(16) Header {
  size_t bytes;
};

#if DVT_MIMALLOC

void* make_heap() {
  return mi_heap_new();  // Null when there is no memory for it: then the main heap does.
}
void destroy_heap(void* heap) {
  if (heap != nullptr) mi_heap_destroy(static_cast<mi_heap_t*>(heap));
}
void* take_from(void* heap, size_t bytes, size_t alignment) {
  return heap != nullptr ? mi_heap_malloc_aligned(static_cast<mi_heap_t*>(heap), bytes, alignment)
                         : mi_malloc_aligned(bytes, alignment);
}
void release(void* address) {
  mi_free(address);
}

#else

void* make_heap() {
  return nullptr;
}
void destroy_heap(void* /*heap*/) {}
void* take_from(void* /*heap*/, size_t bytes, size_t alignment) {
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void release(void* address) {
  std::free(address);
}

#endif

}  // namespace

HostMemory::HostMemory(size_t engine_bytes)
    : live_bytes_(engine_bytes),
      live_peak_bytes_(engine_bytes),
      live_objects_(engine_bytes == 0 ? 0 : 1),
      allocations_(engine_bytes == 0 ? 0 : 1),
      unpooled_bytes_(engine_bytes),
      heap_(make_heap()),
      pools_({.user = nullptr,
              .allocate = [](void*, size_t bytes) -> void* { return std::malloc(bytes); },
              .release = [](void*, void* address) { std::free(address); }}) {}

HostMemory::~HostMemory() {
  destroy_heap(heap_);
}

const char* HostMemory::allocator_name() {
#if DVT_MIMALLOC
  return "mimalloc " DVT_MIMALLOC_VERSION;
#else
  return "malloc";
#endif
}

void HostMemory::statistics(DvtHostMemory& out) const {
  out.live_bytes = live_bytes_.load(std::memory_order_relaxed);
  out.live_peak_bytes = live_peak_bytes_.load(std::memory_order_relaxed);
  out.live_objects = live_objects_.load(std::memory_order_relaxed);
  out.allocations = allocations_.load(std::memory_order_relaxed);
  out.allocator = allocator_name();
  const std::lock_guard lock(pools_mutex_);
  out.reserved_bytes = unpooled_bytes_.load(std::memory_order_relaxed) + pools_.host_bytes();
}

bool HostMemory::is_pooled(size_t bytes, size_t alignment) {
  return DVT_MIMALLOC == 0 && DVT_ADDRESS_SANITIZER == 0 && bytes <= kPooledMax &&
         alignment <= ObjectPools::kGranule;
}

void* HostMemory::take_pooled(size_t bytes) noexcept {
  const std::lock_guard lock(pools_mutex_);
  return pools_.allocate(bytes);
}

DvtMetadataMemory HostMemory::metadata() {
  return {.user = this,
          .allocate = [](void* self, size_t bytes) -> void* {
            if (bytes > SIZE_MAX / 2) return nullptr;
            auto& memory = *static_cast<HostMemory*>(self);
            void* place = memory.take(sizeof(Header) + bytes, alignof(Header));
            return place == nullptr ? nullptr : new (place) Header{bytes} + 1;
          },
          .release =
              [](void* self, void* address) {
                if (address == nullptr) return;
                auto& memory = *static_cast<HostMemory*>(self);
                Header* header = static_cast<Header*>(address) - 1;
                memory.give_back(header, sizeof(Header) + header->bytes, alignof(Header));
              }};
}

void* HostMemory::take(size_t bytes, size_t alignment) noexcept {
  const bool pooled = is_pooled(bytes, alignment);
  void* address =
      pooled ? take_pooled(bytes) : take_from(heap_, std::max<size_t>(bytes, 1), alignment);
  if (address == nullptr) return nullptr;
  if (!pooled) unpooled_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  const uint64_t live = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = live_peak_bytes_.load(std::memory_order_relaxed);
  while (peak < live &&
         !live_peak_bytes_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return address;
}

void HostMemory::give_back(void* address, size_t bytes, size_t alignment) noexcept {
  live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  live_objects_.fetch_sub(1, std::memory_order_relaxed);
  if (is_pooled(bytes, alignment)) {
    const std::lock_guard lock(pools_mutex_);
    pools_.release(address, bytes);
    return;
  }
  unpooled_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  release(address);
}

void* HostMemory::do_allocate(size_t bytes, size_t alignment) {
  void* address = take(bytes, alignment);
  if (address == nullptr) throw std::bad_alloc();
  return address;
}

}  // namespace davit::alloc
