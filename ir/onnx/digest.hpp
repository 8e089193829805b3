// digest.hpp: XXH3-128 over what an import reads.
//
// Threads  Externally synchronised.
// Trust    Names a source; it is no proof against forgery.
// Memory   Owns its state.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace davit::onnx_import {

class Digest {
 public:
  Digest() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }

  void update(const void* data, size_t size) { XXH3_128bits_update(state_.get(), data, size); }

  // 32 hex digits, in the canonical (big-endian) order of xxhsum.
  [[nodiscard]] std::string hex() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : canonical.digest) {
      text += kDigits[byte >> 4U];
      text += kDigits[byte & 15U];
    }
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace davit::onnx_import
