#include "npu_model/functional.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "base/checked.hpp"

namespace davit::npu {
namespace {

Status invalid(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, std::move(message));
}

Status check_block(const Memory& memory, const void* address, uint64_t bytes, uint64_t serial,
                   const std::string& what) {
  if (bytes == 0) return {};
  const Block* block = memory.find(address, bytes, serial);
  if (block == nullptr) {
    return invalid(
        fmt::format("{} at {}: {}", what, fmt::ptr(address), memory.explain(address, bytes)));
  }
  if (!block->clobbered_by.empty()) {
    return invalid(fmt::format(
        "{} at {}: memory of {} is shared with {} after a free, and was overwritten by it", what,
        fmt::ptr(address), block->owner, block->clobbered_by));
  }
  return {};
}

Status check_kernel(const Effect& effect, const Memory& memory) {
  const auto* context = static_cast<const DvtContext*>(effect.arguments.get());
  const uint32_t count = uint32_t{context->input_count} + context->output_count;
  for (uint32_t i = 0; i < count; ++i) {
    const DvtCell* cell = context->cells[i];
    if (cell == nullptr || cell->tensor == nullptr) continue;  // Absent, or a plain word.
    const bool input = i < context->input_count;
    auto status = check_block(
        memory, cell->data, cell->tensor->bytes, effect.serial,
        fmt::format("{} {}", input ? "input" : "output", input ? i : i - context->input_count));
    if (!status.ok()) return status;
  }
  return {};
}

void note_outputs(const Effect& effect, Memory& memory) {
  const auto* context = static_cast<const DvtContext*>(effect.arguments.get());
  for (uint32_t i = 0; i < context->output_count; ++i) {
    const DvtCell* cell = dvt_output(context, i);
    if (cell != nullptr && cell->tensor != nullptr) memory.note_write(cell->data);
  }
}

Status check_host_side(const Memory& memory, const void* address, uint64_t bytes,
                       const char* what) {
  if (bytes == 0) return {};
  if (address == nullptr) return invalid(fmt::format("{} is NULL", what));
  if (memory.overlaps(address, bytes)) {
    return invalid(fmt::format("{} at {} is device memory", what, fmt::ptr(address)));
  }
  return {};
}

}  // namespace

void FreeDeleter::operator()(void* memory) const {
  std::free(memory);
}

Result<std::unique_ptr<void, FreeDeleter>> copy_arguments(const DvtLaunch& launch) {
  if (launch.run == nullptr || launch.arguments == nullptr) {
    return invalid("launch without a kernel or without arguments");
  }
  const size_t bytes = launch.argument_bytes;
  constexpr size_t kHeader = offsetof(DvtContext, cells);
  if (bytes < kHeader) return invalid("argument record is shorter than its header");
  DvtContext header;
  std::memcpy(&header, launch.arguments, kHeader);
  const size_t count = size_t{header.input_count} + header.output_count;
  if (kHeader + count * sizeof(DvtCell*) > bytes) {
    return invalid("argument record is shorter than its cell table");
  }
  const size_t padded = (bytes + 15) / 16 * 16;
  std::unique_ptr<void, FreeDeleter> copy(std::aligned_alloc(16, padded));
  if (copy == nullptr) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_RUN, "host memory exhausted: argument record");
  }
  std::memcpy(copy.get(), launch.arguments, bytes);
  auto* context = static_cast<DvtContext*>(copy.get());
  for (size_t i = 0; i < count; ++i) {
    const auto offset = reinterpret_cast<uintptr_t>(context->cells[i]);
    if (offset == 0) continue;
    if (offset % alignof(DvtCell) != 0 || offset < kHeader + count * sizeof(DvtCell*) ||
        !in_range(offset, sizeof(DvtCell), bytes)) {
      return invalid(fmt::format("operand {} of the argument record lies outside it", i));
    }
  }
  dvt_launch_bind(copy.get());
  return copy;
}

Status check_operands(const Effect& effect, const Memory& memory) {
  if (effect.kind == Effect::Kind::kKernel) return check_kernel(effect, memory);
  if (effect.kind == Effect::Kind::kFill) {
    return check_block(memory, effect.to, effect.bytes, effect.serial, "destination");
  }
  auto status = effect.copy == DVT_COPY_DEVICE_TO_HOST
                    ? check_host_side(memory, effect.to, effect.bytes, "host destination")
                    : check_block(memory, effect.to, effect.bytes, effect.serial, "destination");
  if (!status.ok()) return status;
  return effect.copy == DVT_COPY_HOST_TO_DEVICE
             ? check_host_side(memory, effect.from, effect.bytes, "host source")
             : check_block(memory, effect.from, effect.bytes, effect.serial, "source");
}

Status apply(const Effect& effect, Memory& memory) {
  auto status = check_operands(effect, memory);
  if (!status.ok()) return status;
  switch (effect.kind) {
    case Effect::Kind::kKernel: {
      const DvtCode code = effect.run(effect.arguments.get());
      note_outputs(effect, memory);
      if (code == DVT_OK) return {};
      return Status(code, DVT_STAGE_RUN, fmt::format("kernel returned {}", code_name(code)));
    }
    case Effect::Kind::kCopy:
      if (effect.bytes > 0) std::memmove(effect.to, effect.from, effect.bytes);
      if (effect.copy != DVT_COPY_DEVICE_TO_HOST) memory.note_write(effect.to);
      return {};
    case Effect::Kind::kFill:
      if (effect.bytes > 0) std::memset(effect.to, effect.value, effect.bytes);
      memory.note_write(effect.to);
      return {};
  }
  return {};
}

}  // namespace davit::npu
