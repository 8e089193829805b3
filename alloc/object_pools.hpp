// object_pools.hpp: memory for the engine's own small objects, whose size is known when they go.
//
// Four size classes for every doubling from 16 B to 32 KiB, each with a stack of free objects,
// which lies outside of them: taking one needs no word of the object that was taken before.
//
// Threads  One owner at a time; several pools share nothing. An object goes back to the pool that
//          it came from.
// Trust    The caller passes the size it asked for. Debug builds fill what is free with 0xDD.
// Memory   Slabs from the host, the first of 4 KiB, each twice as large as the one before it up to
//          kSlabBytes; kept until the pools are destroyed, objects included. And 8 to 16 bytes of
//          stack for each object.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "alloc/caching_allocator.h"

namespace davit::alloc {

class ObjectPools {
 public:
  static constexpr size_t kGranule = 16;  // And the alignment of every object.
  static constexpr size_t kLargest = size_t{32} << 10;
  static constexpr size_t kSlabBytes = size_t{64} << 10;

  explicit ObjectPools(const DvtMetadataMemory& host) : host_(host) {}
  ~ObjectPools();
  ObjectPools(const ObjectPools&) = delete;
  ObjectPools& operator=(const ObjectPools&) = delete;

  // Null when the host has no memory, or for more than kLargest bytes. 0 bytes count as 1.
  [[nodiscard]] void* allocate(size_t bytes) {
    const size_t kind = class_of(bytes);
    if (kind >= kClasses) return nullptr;
    Class& of = classes_[kind];
    if (of.top == of.bottom) return carve(kind);
    return *--of.top;
  }
  // `bytes` are those of allocate().
  void release(void* address, size_t bytes) {
    const size_t kind = class_of(bytes);
#ifndef NDEBUG
    poison(address, class_bytes(kind));
#endif
    *classes_[kind].top++ = address;
  }

  // Null when the host has no memory.
  template <class T, class... Arguments>
  [[nodiscard]] T* make(Arguments&&... arguments) {
    static_assert(sizeof(T) <= kLargest);
    static_assert(alignof(T) <= kGranule);
    static_assert(std::is_nothrow_constructible_v<T, Arguments...>);
    void* place = allocate(sizeof(T));
    return place == nullptr ? nullptr : new (place) T(std::forward<Arguments>(arguments)...);
  }
  template <class T>
  void destroy(T* object) {
    if (object == nullptr) return;
    object->~T();
    release(object, sizeof(T));
  }

  // Taken from the host.
  [[nodiscard]] uint64_t host_bytes() const {
    return host_bytes_;
  }

  // Sizes of one class share a list.
  [[nodiscard]] static constexpr size_t class_of(size_t bytes) {
    const size_t last = bytes == 0 ? 0 : (bytes - 1) / kGranule;
    if (last < 4) return last;
    const auto shift = static_cast<size_t>(std::bit_width(last)) - 3;
    return 4 * shift + 4 + (last >> shift & 3);
  }
  [[nodiscard]] static constexpr size_t class_bytes(size_t kind) {
    return kind < 4 ? (kind + 1) * kGranule : (kind % 4 + 5) * kGranule << (kind / 4 - 1);
  }

 private:
  // The free objects of a class: [bottom, top). There is room for all that were ever carved.
  struct Class {
    void** top = nullptr;
    void** bottom = nullptr;
    size_t objects = 0;
    size_t room = 0;
  };
  struct alignas(kGranule) Slab {
    Slab* next;
  };
  static constexpr size_t kClasses = 40;

  static constexpr size_t kFirstRoom = 32;
  static constexpr size_t kFirstSlabBytes = size_t{4} << 10;

  void* carve(size_t kind);
  [[nodiscard]] bool make_room(Class& of);
  static void poison(void* address, size_t bytes);

  DvtMetadataMemory host_;
  std::array<Class, kClasses> classes_;
  Slab* slabs_ = nullptr;
  std::byte* rest_ = nullptr;  // Of the first slab.
  size_t rest_bytes_ = 0;
  size_t next_slab_bytes_ = kFirstSlabBytes;
  uint64_t host_bytes_ = 0;
};
static_assert(ObjectPools::class_of(64) == 3 && ObjectPools::class_of(65) == 4);
static_assert(ObjectPools::class_bytes(ObjectPools::class_of(ObjectPools::kLargest)) ==
              ObjectPools::kLargest);

}  // namespace davit::alloc
