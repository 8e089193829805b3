// code_segment.hpp: the machine code that an image brings (exec/generated_code.h).
//
// Threads  load() from any thread; a loaded segment is constant.
// Trust    The segment's digest has been checked. What it does when called is not: whoever opens an
//          image with code trusts it as a program (DvtImageOptions.refuse_code).
// Memory   The bytes are copied into memory of the loader's; no file is made. Unloaded with the
//          object: kernels must not be called any more.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/status.hpp"
#include "exec/generated_code.h"

namespace davit::exec {

// True when this processor can run code for `isa`; false for names that are not known.
bool processor_runs(std::string_view isa);

// The best of the instruction sets that code is generated for.
std::string_view best_isa();

// Refuses a shared object that ends before what its headers say does: mapping it would end in a
// signal. What is no ELF file of this machine's class passes: dlopen() knows better what is wrong.
Status check_complete(std::span<const std::byte> shared_object);

class CodeSegment {
 public:
  CodeSegment() = default;
  CodeSegment(CodeSegment&& other) noexcept;
  CodeSegment& operator=(CodeSegment&& other) noexcept;
  ~CodeSegment();

  // Errors: DVT_INVALID_IMAGE (no shared object, or not such a one), DVT_VERSION_MISMATCH,
  // DVT_UNSUPPORTED (no variant for this processor; the message lists those there are),
  // DVT_OUT_OF_RESOURCE.
  static Result<CodeSegment> load(std::span<const std::byte> bytes);

  [[nodiscard]] DvtKernelTable kernels() const { return kernels_; }
  [[nodiscard]] std::string_view isa() const { return isa_; }

 private:
  void* library_ = nullptr;
  DvtKernelTable kernels_{};
  std::string_view isa_;
};

}  // namespace davit::exec
