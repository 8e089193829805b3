// ring.hpp: a queue in one piece of memory, which doubles when it is full and is kept.
//
// Threads  A value.
// Trust    Callers keep to the preconditions.
// Memory   A power of two of elements, at most twice as many as there ever were at once.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace davit::npu {

template <class T>
class Ring {
 public:
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // Precondition: index < size(). 0 is the oldest.
  T& operator[](size_t index) { return slots_[place(index)]; }
  const T& operator[](size_t index) const { return slots_[place(index)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  void push_back(T&& value) {
    if (size_ == capacity_) grow();
    (*this)[size_++] = std::move(value);
  }
  // Where the next one will be, unless the ring grows; for prefetching only.
  [[nodiscard]] const void* next_place() const { return slots_.get() + place(size_); }
  // Precondition of both: there are as many.
  void pop_front() {
    front() = T();
    first_ = (first_ + 1) & (capacity_ - 1);
    --size_;
  }
  void truncate(size_t size) {
    while (size_ > size) (*this)[--size_] = T();
  }

 private:
  [[nodiscard]] size_t place(size_t index) const { return (first_ + index) & (capacity_ - 1); }
  void grow() {
    const size_t wider = capacity_ == 0 ? 4 : 2 * capacity_;
    auto slots = std::make_unique<T[]>(wider);
    for (size_t i = 0; i < size_; ++i) slots[i] = std::move((*this)[i]);
    slots_ = std::move(slots);
    capacity_ = wider;
    first_ = 0;
  }

  std::unique_ptr<T[]> slots_;
  size_t capacity_ = 0, first_ = 0, size_ = 0;
};

}  // namespace davit::npu
