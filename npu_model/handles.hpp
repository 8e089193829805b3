// handles.hpp: opaque handles that tell stale and foreign ones from live ones.
//
//   63        43     40           20       0
//   | device  | kind | generation | index  |       never NULL: kinds begin at 1
//
// Threads  None of its own; the NPU's lock covers it.
// Trust    Any bit pattern may come in; nothing is dereferenced.
// Memory   An index is reused, last freed first, under the next generation (20 bits, then it
// wraps).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace davit::npu {

enum class HandleKind : uint8_t {
  kStream = 1,
  kEvent = 2,
  kNotify = 3,
  kModel = 4,
  kLabel = 5,
  kQueue = 6,
};

class HandleTable {
 public:
  // `what` is "stream", "event", ...; limit <= 2^20.
  HandleTable(HandleKind kind, const char* what, uint32_t device, uint32_t limit)
      : kind_(kind), what_(what), device_(device & 0xFFFFFU), limit_(limit) {}

  // The new index; DVT_OUT_OF_RESOURCE when `limit` are live.
  Result<uint32_t> create();
  [[nodiscard]] bool has_room() const { return !free_.empty() || slots_.size() < limit_; }
  // From now on the handle is stale.
  void destroy(uint32_t index) {
    retire(index);
    recycle(index);
  }
  // The two halves of destroy(): a retired index is not given out before it is recycled.
  void retire(uint32_t index);
  void recycle(uint32_t index) { free_.push_back(index); }
  // The index behind a handle, or why there is none. `operation` begins the message.
  Result<uint32_t> resolve(const void* handle, const char* operation) const;

  template <class T>
  [[nodiscard]] T* handle(uint32_t index) const {
    return reinterpret_cast<T*>(encode(index));  // NOLINT(performance-no-int-to-ptr): opaque.
  }

 private:
  static constexpr uint64_t kMask20 = 0xFFFFF;
  struct Slot {
    uint32_t generation = 0;
    bool live = false;
  };

  [[nodiscard]] uintptr_t encode(uint32_t index) const {
    return (uint64_t{device_} << 43) | (uint64_t{static_cast<uint8_t>(kind_)} << 40) |
           (uint64_t{slots_[index].generation} << 20) | index;
  }

  HandleKind kind_;
  const char* what_;
  uint32_t device_;
  uint32_t limit_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};
static_assert(sizeof(uintptr_t) == 8, "handles use 63 bits");

}  // namespace davit::npu
