// image_model.hpp: an execute-graph image as plain C++ data. Lowering and the text assembler build
// one, write_image() serialises it, read_image_model() gets it back for dumps.
//
// Threads  A value; share it like any other value.
// Trust    write_image() checks everything that exec/verify.cpp would, by verifying its own result.
// Memory   Owns everything, constants included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "davit/kernel.h"
#include "schema/layout.h"

namespace davit::image {

inline constexpr uint32_t kNone = UINT32_MAX;

enum class ValueKind : uint8_t { kWord, kPlanned, kConstant, kInput, kOutput, kDevice, kHeap };
enum class GraphRole : uint8_t { kInit, kMain, kDeInit, kBody };

struct KernelRef {
  std::string name;
  uint32_t abi_version = DVT_KERNEL_ABI_VERSION;
  uint32_t flags = 0;
};

struct Value {
  ValueKind kind = ValueKind::kWord;
  bool has_tensor = false;
  DvtTensor tensor{};   // When has_tensor. The writer deduplicates descriptors.
  uint64_t offset = 0;  // See ValueKind in schema/image.fbs.
  std::string name;     // Original tensor name; may be empty.
};

struct DimRange {
  int64_t min = 0, max = 0;
  std::string symbol;  // Empty for none.
};

struct Port {
  std::string name;
  uint32_t value = kNone;
  std::vector<DimRange> dims;
};

struct Node {
  uint32_t kernel = kNone;       // Index in ImageModel::kernels.
  std::vector<uint32_t> inputs;  // Value ids; kNone = absent optional operand.
  std::vector<uint32_t> outputs;
  std::vector<std::byte> attributes;     // Record of the kernel; size a multiple of 8.
  std::vector<uint32_t> control_inputs;  // Nodes that must run before, beyond data edges.
  std::vector<uint32_t> free_launches;   // Free-to-Launch row.
  std::vector<uint32_t> bodies;          // Branch and loop bodies: indices in ImageModel::graphs.
  uint8_t lane = DVT_KERNEL_LANE_NORMAL;
  int32_t priority = 0;
  uint32_t stream = kNone;
  uint32_t device_kernel = kNone;
  DvtTaskCost cost{};
  bool has_cost = false;
  std::string origin;  // Original node path.
  std::string op;      // "ai.onnx::Conv(11)".
};

// A schedule for several workers, as exec/mt_topo/plan.hpp has it; part_offsets empty: none.
struct Schedule {
  std::vector<uint32_t> part_offsets;
  std::vector<uint32_t> nodes;  // Of each position.
  std::vector<uint32_t> wait_offsets;
  std::vector<uint32_t> waits;  // Positions.
};

// Nodes in a valid topological order. Data edges follow from values: every node that writes a value
// precedes those that read it. write_image() derives succ and indegree.
struct Graph {
  GraphRole role = GraphRole::kMain;
  std::vector<Node> nodes;
  uint32_t shape_nodes = 0;  // See schema/image.fbs.
  Schedule schedule;
};

struct Provenance {
  std::string producer, source_digest, source_name, options, opsets;
};

struct ImageModel {
  DvtTarget target = DVT_TARGET_CPU;
  std::string target_name = "cpu";
  std::vector<Port> inputs, outputs;
  std::vector<KernelRef> kernels;
  std::vector<Value> values;
  std::vector<Graph> graphs;
  uint64_t arena_bytes = 0;
  uint32_t arena_alignment = 64;
  uint64_t lower_bound_bytes = 0;
  uint32_t stream_count = 0, event_count = 0;
  std::vector<uint8_t> stream_priority;
  std::vector<std::byte> code;       // The code segment (exec/generated_code.h), or nothing.
  std::vector<std::byte> constants;  // The constants segment; Value::offset points into it.
  // Constants are no part of the image, but a file beside it: weights_file_name().
  bool external_constants = false;
  Provenance provenance;
};

// Index of the kernel, added if it is not there.
uint32_t intern_kernel(ImageModel& model, const DvtKernel& kernel);

// Serialises and verifies. Deterministic: equal models give equal bytes. Kernels are looked for in
// `tables`, then among Davit's own; a model that breaks a rule gives the verifier's error.
Result<std::vector<std::byte>> write_image(const ImageModel& model,
                                           std::span<const DvtKernelTable> tables = {});

// The name of the file for the constants of a model with external_constants: their digest, so that
// images with the same weights share it.
std::string weights_file_name(const ImageModel& model);

// Writes to `path` through a temporary file in the same folder and a rename, so that no partial
// file is ever seen under that name, and a failure leaves nothing behind.
Status write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

// Verifies an image, all but its kernels, and reads it back: write_image(read_image_model(bytes))
// gives the same bytes when write_image() made them. `bytes` as for dvt_image_open_memory. External
// weights are looked for in `weights_folder`.
Result<ImageModel> read_image_model(std::span<const std::byte> bytes,
                                    const std::string& weights_folder = {});

struct DumpOptions {
  // Constants with more bytes are left out, for people; such a text cannot be assembled.
  uint64_t constant_bytes_max = UINT64_MAX;
};

// The text form (docs/image.md). Round-trips: assemble_text(dump_text(m)) writes the same bytes.
// Attribute names come from the kernels of `tables` and Davit's own; attributes of kernels not
// found there dump as hexadecimal.
std::string dump_text(const ImageModel& model, std::span<const DvtKernelTable> tables = {},
                      const DumpOptions& options = {});

// The inverse. `text` is untrusted. Errors give line and column. Memory use is linear in the length
// of the text, plus at most 256 MiB of constants that it fills without stating every byte. The
// result has not been verified: write_image() does that.
Result<ImageModel> assemble_text(std::string_view text,
                                 std::span<const DvtKernelTable> tables = {});

}  // namespace davit::image
