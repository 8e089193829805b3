#include "exec/caller_memory.hpp"

#include <cinttypes>
#include <cstdio>
#include <utility>

#include "base/checked.hpp"

namespace davit::exec {

Status invalid_argument(DvtStage stage, std::string message, std::string expected,
                        std::string got) {
  return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                            .stage = stage,
                            .message = std::move(message),
                            .expected = std::move(expected),
                            .got = std::move(got)});
}

std::string address_text(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(address));
  return text;
}

Status check_piece(const void* base, size_t bytes, uint64_t needed, const char* what,
                   DvtStage stage) {
  const std::string name = what;
  if (base == nullptr) {
    return invalid_argument(stage, name + " has a size and no address", "an address, or 0 bytes",
                            std::to_string(bytes) + " bytes at NULL");
  }
  if (bytes < needed) {
    return invalid_argument(stage, name + " is too small", std::to_string(needed) + " bytes",
                            std::to_string(bytes) + " bytes");
  }
  const auto address = reinterpret_cast<uintptr_t>(base);
  if (address % kCallerAlignment != 0) {
    return invalid_argument(stage, name + " is not aligned",
                            "an address that is a multiple of " + std::to_string(kCallerAlignment),
                            address_text(base));
  }
  if (!checked_add(address, bytes)) {
    return invalid_argument(stage, name + " reaches beyond the address space",
                            "an end that is an address",
                            std::to_string(bytes) + " bytes at " + address_text(base));
  }
  return {};
}

}  // namespace davit::exec
