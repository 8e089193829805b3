// resource.hpp: single objects and arrays out of a std::pmr::memory_resource, for parts that are to
// keep what they own on somebody's account and know no accounts themselves.
//
// Threads  Those of the resource.
// Memory   An object remembers its resource, which outlives it. std::bad_alloc, or what a
//          constructor throws, comes through with nothing left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

namespace davit {

template <class T>
struct ResourceDelete {
  std::pmr::memory_resource* memory = nullptr;
  void operator()(T* object) const noexcept {
    object->~T();
    memory->deallocate(object, sizeof(T), alignof(T));
  }
};

template <class T>
using ResourcePtr = std::unique_ptr<T, ResourceDelete<T>>;

// `make_at` gets the address and returns the object that it has made there: for constructors that
// only the caller may call.
template <class T, class MakeAt>
ResourcePtr<T> make_at_in(std::pmr::memory_resource& memory, MakeAt make_at) {
  void* place = memory.allocate(sizeof(T), alignof(T));
  try {
    return ResourcePtr<T>(make_at(place), {&memory});
  } catch (...) {
    memory.deallocate(place, sizeof(T), alignof(T));
    throw;
  }
}

template <class T, class... Arguments>
ResourcePtr<T> make_in(std::pmr::memory_resource& memory, Arguments&&... arguments) {
  return make_at_in<T>(
      memory, [&](void* place) { return new (place) T(std::forward<Arguments>(arguments)...); });
}

// Of a size that is fixed when it is made. Elements need not be movable.
template <class T>
class ResourceArray {
 public:
  ResourceArray() = default;
  // Elements as `new T[count]` has them: plain words are not written.
  ResourceArray(size_t count, std::pmr::memory_resource& memory) : ResourceArray(&memory, count) {
    construct([&] { std::uninitialized_default_construct_n(data_, count); });
  }
  // As `new T[count]()`: plain words are 0.
  static ResourceArray zeroed(size_t count, std::pmr::memory_resource& memory) {
    ResourceArray array(&memory, count);
    array.construct([&] { std::uninitialized_value_construct_n(array.data_, count); });
    return array;
  }
  ~ResourceArray() {
    if (memory_ == nullptr) return;
    std::destroy_n(data_, count_);
    memory_->deallocate(data_, count_ * sizeof(T), alignof(T));
  }
  ResourceArray(ResourceArray&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        count_(std::exchange(other.count_, 0)) {}
  ResourceArray& operator=(ResourceArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] size_t size() const { return count_; }
  T& operator[](size_t index) const { return data_[index]; }

 private:
  ResourceArray(std::pmr::memory_resource* memory, size_t count)
      : memory_(memory),
        data_(static_cast<T*>(memory->allocate(checked_bytes(count), alignof(T)))),
        count_(count) {}
  // The destructor comes after an exception, too, and finds nothing then.
  template <class Make>
  void construct(Make make) {
    try {
      make();
    } catch (...) {
      std::exchange(memory_, nullptr)->deallocate(data_, count_ * sizeof(T), alignof(T));
      throw;
    }
  }
  static size_t checked_bytes(size_t count) {
    if (count > PTRDIFF_MAX / sizeof(T)) throw std::bad_array_new_length();
    return count * sizeof(T);
  }

  std::pmr::memory_resource* memory_ = nullptr;
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace davit
