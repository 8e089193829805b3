#include "npu_model/functional.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/checked.hpp"

namespace davit::npu {
namespace {

Status invalid(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, std::move(message));
}

// "input 1", "destination"
std::string label(const Operand& operand, const Effect& effect) {
  if (effect.kind != Effect::Kind::kKernel) return operand.role;
  return fmt::format("{} {}", operand.role, operand.index);
}

Status check_block(const Memory& memory, const Operand& operand, const Effect& effect,
                   uint64_t serial) {
  const Block* block = memory.find(operand.address, operand.bytes, serial);
  const auto what = [&] {
    return fmt::format("{} at {}", label(operand, effect), fmt::ptr(operand.address));
  };
  if (block == nullptr) {
    return invalid(what() + ": " + memory.explain(operand.address, operand.bytes));
  }
  if (!block->clobbered_by.empty()) {
    return invalid(
        fmt::format("{}: memory of {} is shared with {} after a free, and was overwritten by it",
                    what(), block->owner, block->clobbered_by));
  }
  return {};
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

namespace {

struct Sides {
  bool reads, writes;  // `from`, `to`, on the device.
};

Sides sides_of(const Effect& effect) {
  switch (effect.kind) {
    case Effect::Kind::kCopy:
      return {effect.copy != DVT_COPY_HOST_TO_DEVICE, effect.copy != DVT_COPY_DEVICE_TO_HOST};
    case Effect::Kind::kFill:
    case Effect::Kind::kDequeue:
      return {false, true};
    case Effect::Kind::kDecide:
    case Effect::Kind::kEnqueue:
      return {true, false};
    default:
      return {false, false};
  }
}

}  // namespace

void for_each_operand(const Effect& effect, const std::function<bool(const Operand&)>& visit) {
  if (effect.kind != Effect::Kind::kKernel) {
    if (effect.bytes == 0) return;
    const Sides sides = sides_of(effect);
    if (sides.reads && !visit({effect.from, effect.bytes, false, "source", 0})) return;
    const bool decides = effect.kind == Effect::Kind::kDecide;
    if (sides.writes || (decides && effect.to != nullptr)) {
      visit({effect.to, effect.bytes, sides.writes, decides ? "right side" : "destination", 0});
    }
    return;
  }
  const auto* context = static_cast<const DvtContext*>(effect.arguments.get());
  const uint32_t count = uint32_t{context->input_count} + context->output_count;
  for (uint32_t i = 0; i < count; ++i) {
    const DvtCell* cell = context->cells[i];
    // Absent, or a plain word.
    if (cell == nullptr || cell->tensor == nullptr || cell->tensor->bytes == 0) continue;
    const bool input = i < context->input_count;
    if (!visit({cell->data, cell->tensor->bytes, !input, input ? "input" : "output",
                input ? i : i - context->input_count})) {
      return;
    }
  }
}

Status check_operands(const Effect& effect, const Memory& memory, uint64_t serial) {
  Status status;
  for_each_operand(effect, [&](const Operand& operand) {
    status = check_block(memory, operand, effect, serial);
    return status.ok();
  });
  if (!status.ok() || effect.kind != Effect::Kind::kCopy) return status;
  if (effect.copy == DVT_COPY_DEVICE_TO_HOST) {
    return check_host_side(memory, effect.to, effect.bytes, "host destination");
  }
  if (effect.copy == DVT_COPY_HOST_TO_DEVICE) {
    return check_host_side(memory, effect.from, effect.bytes, "host source");
  }
  return status;
}

Status check_order(const Effect& effect, Memory& memory, uint64_t serial, const Access& task,
                   const Clock& clock, const LaterWriter& later_writer) {
  Status status;
  for_each_operand(effect, [&](const Operand& operand) {
    Block* block = memory.find(operand.address, operand.bytes, serial);
    const auto begin =
        static_cast<uint64_t>(static_cast<const std::byte*>(operand.address) - block->address);
    const uint64_t end = begin + operand.bytes;
    const auto conflict = operand.is_write ? block->history.write(begin, end, task, clock)
                                           : block->history.read(begin, end, task, clock);
    if (!conflict) return true;
    const std::string what = fmt::format(
        "{} {}: {} byte {} of {}", describe(task), label(operand, effect),
        operand.is_write ? "writes" : "reads", std::max(conflict->begin, begin), block->owner);
    if (conflict->kind == History::Kind::kUnwritten) {
      const auto later = later_writer(block->address + conflict->begin);
      status = invalid(what + (later ? fmt::format(", before {} has written it, and nothing orders "
                                                   "the two",
                                                   describe(*later))
                                     : ", which no task that was submitted has written"));
    } else {
      status = invalid(fmt::format("{}, which {} {}, and nothing orders the two", what,
                                   describe(conflict->other),
                                   conflict->kind == History::Kind::kRead ? "reads" : "writes"));
    }
    return false;
  });
  return status;
}

Status check_cache(const Effect& effect, Memory& memory, uint64_t serial, const Access& task,
                   const Order& order) {
  Status status;
  for_each_operand(effect, [&](const Operand& operand) {
    if (operand.is_write) return true;
    Block* block = memory.find(operand.address, operand.bytes, serial);
    const auto begin =
        static_cast<uint64_t>(static_cast<const std::byte*>(operand.address) - block->address);
    const auto stale =
        block->history.find_stale(begin, begin + operand.bytes, [&](const Access& writer) {
          return writer.type == DVT_NPU_COPY_H2D && is_before(writer, order.clock(task.stream)) &&
                 !order.is_visible(writer, task);
        });
    if (!stale) return true;
    status = invalid(fmt::format(
        "{} {}: reads byte {} of {}, which {} has written, and no task between the two invalidates "
        "the cache of the AICPU",
        describe(task), label(operand, effect), std::max(stale->begin, begin), block->owner,
        describe(stale->other)));
    return false;
  });
  return status;
}

Status apply(const Effect& effect, Memory& memory, const Access& task) {
  Status status;
  switch (effect.kind) {
    case Effect::Kind::kKernel: {
      const DvtCode code = effect.run(effect.arguments.get());
      if (code != DVT_OK) {
        status = Status(code, DVT_STAGE_RUN, fmt::format("kernel returned {}", code_name(code)));
      }
      break;
    }
    case Effect::Kind::kCopy:
      if (effect.bytes > 0) std::memmove(effect.to, effect.from, effect.bytes);
      break;
    case Effect::Kind::kFill:
      if (effect.bytes > 0) std::memset(effect.to, effect.value, effect.bytes);
      break;
    case Effect::Kind::kCallback:
      effect.function(effect.data);
      break;
    default:
      break;
  }
  for_each_operand(effect, [&](const Operand& operand) {
    if (operand.is_write) memory.note_write(operand.address, task);
    return true;
  });
  return status;
}

namespace {

// As msprof names them.
const char* dtype_column(DvtDType dtype) {
  switch (dtype) {
    case DVT_F32:
      return "FLOAT";
    case DVT_F16:
      return "FLOAT16";
    case DVT_BF16:
      return "DT_BF16";
    case DVT_F64:
      return "DOUBLE";
    case DVT_BOOL:
      return "BOOL";
    case DVT_I8:
      return "INT8";
    case DVT_U8:
      return "UINT8";
    case DVT_I16:
      return "INT16";
    case DVT_U16:
      return "UINT16";
    case DVT_I32:
      return "INT32";
    case DVT_U32:
      return "UINT32";
    case DVT_I64:
      return "INT64";
    case DVT_U64:
      return "UINT64";
    default:
      return "UNDEFINED";
  }
}

// "2,3;4" and "FLOAT;INT8" and "ND;ND" of some operands.
std::string columns_of(DvtCell* const* cells, uint32_t count) {
  std::string shapes, dtypes, formats;
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) {
      for (std::string* column : {&shapes, &dtypes, &formats}) *column += ';';
    }
    const DvtTensor* tensor = cells[i] == nullptr ? nullptr : cells[i]->tensor;
    if (tensor == nullptr) continue;
    for (uint32_t axis = 0; axis < tensor->rank; ++axis) {
      if (axis > 0) shapes += ',';
      shapes += std::to_string(tensor->dims[axis]);
    }
    dtypes += dtype_column(tensor->dtype);
    formats += "ND";
  }
  return ",\"" + shapes + "\"," + dtypes + "," + formats;
}

}  // namespace

std::string operand_columns(const Effect& effect) {
  if (effect.kind != Effect::Kind::kKernel || effect.arguments == nullptr) return {};
  const auto* context = static_cast<const DvtContext*>(effect.arguments.get());
  return columns_of(context->cells, context->input_count) +
         columns_of(context->cells + context->input_count, context->output_count);
}

uint64_t read_decision(const Effect& effect) {
  if (!effect.labels.empty()) {
    uint32_t index = 0;
    std::memcpy(&index, effect.from, sizeof index);
    return index;
  }
  int64_t left = 0;
  int64_t right = 0;
  std::memcpy(&left, effect.from, sizeof left);
  std::memcpy(&right, effect.to, sizeof right);
  switch (effect.condition) {
    case DVT_NPU_EQUAL:
      return left == right ? 1 : 0;
    case DVT_NPU_NOT_EQUAL:
      return left != right ? 1 : 0;
    case DVT_NPU_GREATER:
      return left > right ? 1 : 0;
    case DVT_NPU_GREATER_OR_EQUAL:
      return left >= right ? 1 : 0;
    case DVT_NPU_LESS:
      return left < right ? 1 : 0;
    case DVT_NPU_LESS_OR_EQUAL:
      return left <= right ? 1 : 0;
  }
  return 0;
}

}  // namespace davit::npu
