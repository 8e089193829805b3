// text_common.hpp: what dump_text() and assemble_text() agree on, so that they are inverse.
//
// Threads  Pure functions and constant tables.
// Trust    Bytes and sizes are the caller's; nothing is read beyond them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "davit/kernel.h"
#include "lowering/image/image_model.hpp"

namespace davit::image {

// Constants without an explicit offset follow each other at multiples of this.
inline constexpr uint64_t kConstantAlignment = 64;

// A field of DvtTaskCost.
struct CostField {
  std::string_view name;
  size_t offset;
  size_t size;
};
std::span<const CostField> cost_fields();  // All but kind and dtype.
// Names of DvtTaskKind, by value.
std::span<const std::string_view> task_kind_names();
// Names of lanes, by value.
std::span<const std::string_view> lane_names();

// One element as text, exact: decimal, or its bits in hexadecimal where decimal would not do.
// `bytes` holds dvt_dtype_size(dtype) bytes.
std::string element_to_text(DvtDType dtype, const std::byte* bytes);
// The inverse. False when the text is no value of this type.
bool element_from_text(DvtDType dtype, std::string_view text, std::byte* bytes);

std::string bytes_to_hex(std::span<const std::byte> bytes);

// Kernels by name: the tables in order, then Davit's own.
class KernelFinder {
 public:
  explicit KernelFinder(std::span<const DvtKernelTable> tables);
  // Null when nobody has it.
  [[nodiscard]] const DvtKernel* find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, const DvtKernel*> kernels_;
};

// Order in which the assembler meets kernels that no `kernel` line declares.
std::vector<uint32_t> kernels_in_order_of_use(const ImageModel& model);

// The end of the last constant, where the constants segment ends unless a line says otherwise.
uint64_t constants_end(const ImageModel& model);

}  // namespace davit::image
