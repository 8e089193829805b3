// cache.hpp: compiled objects by the digest of all that makes them.
//
//   FOLDER/KEY.o         digest of key and content (32 characters), then the content
//   FOLDER/KEY.XXXXXX    an entry that is being written; left behind when its process was killed
//
// Threads  Any number of processes share a folder: entries are renamed into place.
// Trust    As trusted as the compiler: who can write the folder can put code into images. Entries
//          that do not match their digest are none.
// Memory   An object at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace davit::codegen {

// 32 hexadecimal digits.
std::string digest_of(std::string_view bytes);

class Cache {
 public:
  // Makes the folder when it is missing; "" is no cache.
  explicit Cache(const std::string& folder);

  // Why entries cannot be made; empty when none was refused.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  // A cache that cannot be written is none.
  void put(const std::string& key, std::string_view content);

 private:
  std::filesystem::path folder_;
  std::string problem_;
};

struct CacheContents {
  size_t objects = 0, damaged = 0, unfinished = 0;
  uint64_t bytes = 0;  // Of all of these.
};

// What is in a folder; nothing when it is not there. Reads every entry.
Result<CacheContents> inspect_cache(const std::string& folder);

// Removes entries, damaged ones and unfinished ones, and nothing else; the folder stays. Returns
// what it has removed. Who is compiling meanwhile may write new ones.
Result<CacheContents> clear_cache(const std::string& folder);

}  // namespace davit::codegen
