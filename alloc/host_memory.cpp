#include "alloc/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

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

HostMemory::HostMemory() : heap_(make_heap()) {}

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
  void* address = take_from(heap_, std::max<size_t>(bytes, 1), alignment);
  if (address == nullptr) return nullptr;
  const uint64_t live = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = live_peak_bytes_.load(std::memory_order_relaxed);
  while (peak < live &&
         !live_peak_bytes_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  live_objects_.fetch_add(1, std::memory_order_relaxed);
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return address;
}

void HostMemory::give_back(void* address, size_t bytes, size_t /*alignment*/) noexcept {
  live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  live_objects_.fetch_sub(1, std::memory_order_relaxed);
  release(address);
}

void* HostMemory::do_allocate(size_t bytes, size_t alignment) {
  void* address = take(bytes, alignment);
  if (address == nullptr) throw std::bad_alloc();
  return address;
}

}  // namespace davit::alloc
