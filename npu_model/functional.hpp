// functional.hpp: what a task does to memory when it takes effect.
//
// Threads  Under the NPU's lock.
// Trust    Operands were checked at submission and are checked again at run time: a block may have
//          been freed, given to somebody else and overwritten in between.
// Memory   An effect owns its copy of the argument record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "davit/device.h"
#include "npu_model/memory.hpp"

namespace davit::npu {

struct FreeDeleter {
  void operator()(void* memory) const;
};

struct Effect {
  enum class Kind : uint8_t { kKernel, kCopy, kFill };

  Kind kind = Kind::kKernel;
  uint64_t serial = 0;  // The task's; blocks freed later may still be used.
  // Kernel: the argument record, bound.
  DvtKernelFn run = nullptr;
  std::unique_ptr<void, FreeDeleter> arguments;
  // Copy and fill.
  DvtCopyKind copy = DVT_COPY_DEVICE_TO_DEVICE;
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
  int value = 0;
};

// Copies and binds an argument record after checking its layout: a record that points outside
// itself is refused.
Result<std::unique_ptr<void, FreeDeleter>> copy_arguments(const DvtLaunch& launch);

// All device operands lie in blocks that the task may use (Memory::find) and that nobody else has
// written over. The error names the operand and what became of its memory.
Status check_operands(const Effect& effect, const Memory& memory);

// check_operands(), then the work itself, then Memory::note_write() for what it wrote. Kernels that
// return a code other than DVT_OK give DVT_KERNEL_FAILED or their own code.
Status apply(const Effect& effect, Memory& memory);

}  // namespace davit::npu
