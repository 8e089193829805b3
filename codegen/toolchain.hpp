// toolchain.hpp: C files become one shared object, by the system's compiler and a cache.
//
// The key of a cached object is a digest of all that makes it: the text, every flag, and the
// compiler (path, version, target). An entry is written under a temporary name and renamed, and has
// a digest of its content, which is checked when it is read: processes that share a cache see whole
// entries only, also when one of them is killed.
//
// Threads  build() from any thread; it starts `jobs` compilers at a time. While it runs, its thread
//          holds SIGINT, SIGTERM and SIGHUP back: when one comes, the compilers are ended and their
//          folder goes, then the signal does what it would have done.
// Trust    The cache is as trusted as the compiler: who can write it can put code into images.
// Memory   Objects are held in memory; temporary files live in a folder of their own, which goes
//          with the call, but for failures: its log stays.
// Errors   DVT_CANCELLED: a signal, or is_cancelled(). DVT_UNSUPPORTED: no compiler. DVT_IO_ERROR:
// it failed, took longer than the timeout or
//          was killed; the message has the command and the path of the log.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "codegen/sources.hpp"

namespace davit::codegen {

struct ToolchainOptions {
  std::string compiler;      // "" is $CC, else cc.
  std::string cache_folder;  // "" is none. It is made when it is missing.
  unsigned jobs = 1;
  double timeout_seconds = 300;  // Of one compiler.
  // Told how many of how many files are done. May be empty.
  std::function<void(size_t done, size_t of)> on_progress;
  // Asked every few milliseconds; true ends the compilers. May be empty.
  std::function<bool()> is_cancelled;
};

struct BuiltCode {
  std::vector<std::byte> bytes;
  size_t files = 0, cached_files = 0;
  std::string
      cache_problem;  // Why what was compiled is not kept; empty where it is, or need not be.
};

Result<BuiltCode> build(std::span<const SourceFile> files, const ToolchainOptions& options);

// $DAVIT_CACHE_DIR, else $XDG_CACHE_HOME/davit, else ~/.cache/davit; "" when none of them is set.
std::string default_cache_folder();

}  // namespace davit::codegen
