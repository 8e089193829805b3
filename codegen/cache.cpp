#include "codegen/cache.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <system_error>

#include "base/files.hpp"

namespace davit::codegen {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigestBytes = 32;

// What an entry holds; none when it is damaged, or another key's.
std::optional<std::string> content_of(const fs::path& path, const std::string& key) {
  // A pipe or device in the place of an entry is no entry.
  const auto bytes = read_regular_file(path.string(), DVT_STAGE_LOWER);
  if (!bytes.ok() || bytes->size() <= kDigestBytes) return std::nullopt;
  const std::string_view entry(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  std::string content(entry.substr(kDigestBytes));
  if (digest_of(key + content) != entry.substr(0, kDigestBytes)) return std::nullopt;
  return content;
}

bool is_key(std::string_view text) {
  return text.size() == kDigestBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Calls `visit` with each file that put() has made, and whether it is an unfinished one.
Result<CacheContents> visit_entries(
    const std::string& folder,
    const std::function<bool(const fs::path&, bool unfinished, CacheContents&)>& visit) {
  CacheContents contents;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  if (error == std::errc::no_such_file_or_directory) return contents;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (!is_key(name.substr(0, kDigestBytes)) || !at->is_regular_file(ignored)) continue;
    const std::string rest = name.substr(kDigestBytes);
    const bool unfinished = rest.size() == 7 && rest[0] == '.';
    if (rest != ".o" && !unfinished) continue;
    const uint64_t bytes = at->file_size(ignored);
    if (!visit(at->path(), unfinished, contents)) continue;
    contents.bytes += ignored ? 0 : bytes;
  }
  if (!error) return contents;
  return Status(DVT_IO_ERROR, DVT_STAGE_NONE,
                fmt::format("cannot read the cache {}: {}", folder, error.message()));
}

}  // namespace

std::string digest_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Cache::Cache(const std::string& folder) {
  std::error_code error;
  if (folder.empty()) return;
  if (fs::create_directories(folder, error) || !error) {
    folder_ = folder;
  } else {
    problem_ = fmt::format("cannot make {}: {}", folder, error.message());
  }
}

std::optional<std::string> Cache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  return content_of(folder_ / (key + ".o"), key);
}

void Cache::put(const std::string& key, std::string_view content) {
  if (folder_.empty() || !problem_.empty()) return;
  std::string pattern = (folder_ / (key + ".XXXXXX")).string();
  const FileDescriptor file(::mkstemp(pattern.data()));
  if (!file.is_open()) {
    problem_ = fmt::format("cannot write to {}: {}", folder_.string(), std::strerror(errno));
    return;
  }
  const std::string entry = digest_of(key + std::string(content)) + std::string(content);
  const bool written = ::write(file.get(), entry.data(), entry.size()) == ssize_t(entry.size());
  std::error_code error;
  if (written) fs::rename(pattern, folder_ / (key + ".o"), error);
  if (written && !error) return;
  problem_ = fmt::format("cannot write to {}", folder_.string());
  fs::remove(pattern, error);
}

Result<CacheContents> inspect_cache(const std::string& folder) {
  return visit_entries(folder, [](const fs::path& path, bool unfinished, CacheContents& contents) {
    if (unfinished) {
      ++contents.unfinished;
    } else if (content_of(path, path.stem().string())) {
      ++contents.objects;
    } else {
      ++contents.damaged;
    }
    return true;
  });
}

Result<CacheContents> clear_cache(const std::string& folder) {
  std::error_code problem;
  auto removed =
      visit_entries(folder, [&](const fs::path& path, bool unfinished, CacheContents& contents) {
        std::error_code error;
        const bool gone = fs::remove(path, error);  // False: another process was sooner.
        if (error) problem = error;
        if (!gone) return false;
        ++(unfinished ? contents.unfinished : contents.objects);
        return true;
      });
  if (!removed.ok() || !problem) return removed;
  return Status(DVT_IO_ERROR, DVT_STAGE_NONE,
                fmt::format("cannot clear the cache {}: {}", folder, problem.message()));
}

}  // namespace davit::codegen
