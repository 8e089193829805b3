// grow_array.hpp: arrays of metadata that report a lack of host memory instead of throwing, and
// count what they hold.
//
// Threads  Those of the allocator they belong to.
// Memory   Grow by doubling, shrink never, so that a steady state takes nothing from the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "alloc/caching_allocator.h"

namespace davit::alloc {

// Counts what is taken from a DvtMetadataMemory.
class MetadataMemory {
 public:
  explicit MetadataMemory(const DvtMetadataMemory& host) : host_(host) {}

  [[nodiscard]] void* allocate(size_t bytes) {
    void* address = host_.allocate(host_.user, bytes);
    if (address != nullptr) bytes_ += bytes;
    return address;
  }
  void release(void* address, size_t bytes) {
    if (address == nullptr) return;
    bytes_ -= bytes;
    host_.release(host_.user, address);
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  DvtMetadataMemory host_;
  uint64_t bytes_ = 0;
};

template <class T>
class GrowArray {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16);

  static constexpr size_t kStride =
      sizeof(T);  // NOLINT(bugprone-sizeof-expression): a pointer, too.

 public:
  explicit GrowArray(MetadataMemory& memory) : memory_(&memory) {}
  ~GrowArray() { memory_->release(data_, capacity_ * kStride); }
  GrowArray(const GrowArray&) = delete;
  GrowArray& operator=(const GrowArray&) = delete;

  // False, and nothing changed, when the host has no memory.
  [[nodiscard]] bool reserve(size_t count) {
    if (count <= capacity_) return true;
    size_t capacity = capacity_ > 0 ? capacity_ : 16;
    while (capacity < count) capacity *= 2;
    if (capacity > SIZE_MAX / kStride) return false;
    void* grown = memory_->allocate(capacity * kStride);
    if (grown == nullptr) return false;
    if (size_ > 0) std::memcpy(grown, data_, size_ * kStride);
    memory_->release(data_, capacity_ * kStride);
    data_ = static_cast<T*>(grown);
    capacity_ = capacity;
    return true;
  }
  [[nodiscard]] bool push_back(const T& value) {
    if (!reserve(size_ + 1)) return false;
    data_[size_++] = value;
    return true;
  }
  // Precondition: reserve(size() + 1) has succeeded.
  void push_back_reserved(const T& value) { data_[size_++] = value; }
  T pop_back() { return data_[--size_]; }
  // Precondition: reserve(size() + 1) has succeeded.
  void insert(size_t index, const T& value) {
    std::memmove(data_ + index + 1, data_ + index, (size_ - index) * kStride);
    data_[index] = value;
    ++size_;
  }
  void erase(size_t index) {
    std::memmove(data_ + index, data_ + index + 1, (size_ - index - 1) * kStride);
    --size_;
  }
  void truncate(size_t count) { size_ = count; }
  // Makes it `count` zero bytes' worth of elements. False, and nothing changed, without memory.
  [[nodiscard]] bool assign_zeroed(size_t count) {
    if (!reserve(count)) return false;
    std::memset(static_cast<void*>(data_), 0, count * kStride);
    size_ = count;
    return true;
  }
  void swap(GrowArray& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t capacity() const { return capacity_; }
  [[nodiscard]] MetadataMemory& memory() const { return *memory_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  MetadataMemory* memory_;
  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace davit::alloc
