// functional.hpp: what a task does to memory when it takes effect.
//
// Threads  Under the NPU's lock.
// Trust    Operands were checked at submission and are checked again at run time: a block may have
//          been freed, given to somebody else and overwritten in between.
// Memory   An effect owns its copy of the argument record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "davit/device.h"
#include "npu_model/hazards.hpp"
#include "npu_model/memory.hpp"

namespace davit::npu {

struct FreeDeleter {
  void operator()(void* memory) const;
};

struct Effect {
  // kDecide reads `from`, and `to` unless it is NULL. kEnqueue reads `from`, kDequeue writes `to`.
  enum class Kind : uint8_t { kKernel, kCopy, kFill, kCallback, kDecide, kEnqueue, kDequeue };

  Kind kind = Kind::kKernel;
  // Kernel: the argument record, bound.
  DvtKernelFn run = nullptr;
  std::unique_ptr<void, FreeDeleter> arguments;
  // Copy and fill.
  DvtCopyKind copy = DVT_COPY_DEVICE_TO_DEVICE;
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
  int value = 0;
  void (*function)(void* data) = nullptr;  // kCallback.
  void* data = nullptr;
  DvtNpuCondition condition = DVT_NPU_EQUAL;  // kDecide between two int64.
  std::vector<uint32_t> labels;               // kDecide among labels, by a uint32.
};

// Copies and binds an argument record after checking its layout: a record that points outside
// itself is refused.
Result<std::unique_ptr<void, FreeDeleter>> copy_arguments(const DvtLaunch& launch);

// Device memory that an effect reads or writes.
struct Operand {
  const void* address;
  uint64_t bytes;  // > 0.
  bool is_write;
  const char* role;  // "input", "destination", ...
  uint32_t index;    // Among inputs or outputs of a kernel.
};
// Calls `visit` for each, reads first, until it returns false.
void for_each_operand(const Effect& effect, const std::function<bool(const Operand&)>& visit);

// All device operands lie in blocks that the task may use (Memory::find) and that nobody else has
// written over. The error names the operand and what became of its memory. `serial` is the task's:
// blocks that were freed later may still be used.
Status check_operands(const Effect& effect, const Memory& memory, uint64_t serial);

// Every byte that the effect reads was written by a task that is over at `clock`, and nothing that
// it writes is still in use: by a task that `clock` does not know. Notes the accesses. The error
// names operand, block and both tasks; `later_writer` gives the queued task that will write to an
// address, or nothing. Precondition: check_operands().
using LaterWriter = std::function<std::optional<Access>(const void* address)>;
Status check_order(const Effect& effect, Memory& memory, uint64_t serial, const Access& task,
                   const Clock& clock, const LaterWriter& later_writer);

// Nothing that the effect of an AICPU task reads is, in the cache of the AICPU, what was there
// before a copy from the host that the task comes after. Before check_order(), which notes what it
// writes.
Status check_cache(const Effect& effect, Memory& memory, uint64_t serial, const Access& task,
                   const Order& order);

// The work itself, then Memory::note_write() for what it wrote. Kernels that return a code other
// than DVT_OK give DVT_KERNEL_FAILED or their own code. Precondition: check_operands().
// Precondition of apply() also: neither kDecide nor a queue's.
Status apply(const Effect& effect, Memory& memory, const Access& task);

// Shapes, dtypes and formats of a kernel's inputs and outputs: six columns of op_summary, the first
// with a comma. Empty for other effects.
std::string operand_columns(const Effect& effect);

// What a kDecide effect finds: the index of a label, or whether the condition holds.
uint64_t read_decision(const Effect& effect);

}  // namespace davit::npu
