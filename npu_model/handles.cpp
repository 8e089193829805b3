#include "npu_model/handles.hpp"

#include <fmt/format.h>

namespace davit::npu {

Result<uint32_t> HandleTable::create() {
  if (!free_.empty()) {
    const uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].live = true;
    return index;
  }
  if (slots_.size() >= limit_) {
    return Status(ErrorDetail{.code = DVT_OUT_OF_RESOURCE,
                              .stage = DVT_STAGE_RUN,
                              .message = fmt::format("no {} left", what_),
                              .expected = fmt::format("at most {} {}s at a time", limit_, what_),
                              .got = fmt::format("{} in use", slots_.size())});
  }
  slots_.push_back({0, true});
  return static_cast<uint32_t>(slots_.size() - 1);
}

void HandleTable::retire(uint32_t index) {
  slots_[index].live = false;
  slots_[index].generation = (slots_[index].generation + 1) & kMask20;
}

Result<uint32_t> HandleTable::resolve(const void* handle, const char* operation) const {
  const auto bits = reinterpret_cast<uintptr_t>(handle);
  const auto index = static_cast<uint32_t>(bits & kMask20);
  const auto invalid = [&](const char* reason) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
                  fmt::format("{}: {} {}", operation, what_, reason));
  };
  if (handle == nullptr) return invalid("is NULL");
  if (((bits >> 40) & 7) != static_cast<uint8_t>(kind_)) return invalid("handle is not valid");
  if (bits >> 43 != device_) return invalid("belongs to another device");
  if (index >= slots_.size()) return invalid("handle is not valid");
  if (!slots_[index].live || ((bits >> 20) & kMask20) != slots_[index].generation) {
    return invalid(fmt::format("{} is destroyed", index).c_str());
  }
  return index;
}

}  // namespace davit::npu
