// image.hpp: the run side's view of a verified image: plain pointers and counts, no flatbuffers.
//
// Threads  Immutable once open, but for the reference count, which is atomic.
// Trust    Everything reachable from an ImageView has passed exec/verify.cpp. Nobody checks it
//          again; "proved by" below names the rule (docs/image.md, "What the verifier proves").
// Memory   All pointers lead into the file's mapping (or the caller's memory) and live as long as
//          the DvtImage. The only memory an open image owns besides the mapping is its resolved
//          kernel table, and a copy of the metadata when the caller's memory was not aligned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alloc/host_memory.hpp"
#include "base/status.hpp"
#include "davit/davit.h"
#include "davit/kernel.h"
#include "exec/code_segment.hpp"
#include "schema/layout.h"

namespace davit::exec {

inline constexpr uint32_t kNone = UINT32_MAX;

// schema/image.fbs: ValueKind, GraphRole.
enum class ValueKind : uint8_t { kWord, kPlanned, kConstant, kInput, kOutput, kDevice, kHeap };
enum class GraphRole : uint8_t { kInit, kMain, kDeInit, kBody };

// The image's strings, read in place: a flatbuffer vector of offsets to length-prefixed text.
class StringTable {
 public:
  StringTable() = default;
  StringTable(const uint32_t* offsets, uint32_t count) : offsets_(offsets), count_(count) {}

  [[nodiscard]] uint32_t size() const { return count_; }
  // NUL-terminated; "" for kNone. Precondition: index < size() or kNone (verifier: string indices).
  const char* operator[](uint32_t index) const {
    if (index == kNone) return "";
    const uint32_t* at = offsets_ + index;
    return reinterpret_cast<const char*>(at) + *at + sizeof(uint32_t);
  }

 private:
  const uint32_t* offsets_ = nullptr;
  uint32_t count_ = 0;
};

// Columns of the value table; ids are indices in it.
struct ValuesView {
  uint32_t count = 0;
  const ValueKind* kind = nullptr;   // Verifier: a member of the enumeration.
  const uint32_t* desc = nullptr;    // In ImageView::descs; kNone only for kWord.
  const uint64_t* offset = nullptr;  // By kind: in the arena, in the constants, port index, 0.
  const uint32_t* name = nullptr;    // In ImageView::strings, or null: no value has a name.
};

// One graph as columns. [n] has node_count entries, *_off has node_count + 1. Optional columns that
// the image leaves out are null; use the accessors for those.
struct GraphView {
  GraphRole role = GraphRole::kMain;
  uint32_t node_count = 0;
  uint32_t edge_count = 0;     // Entries of succ.
  uint32_t operand_count = 0;  // Entries of inputs and outputs together.
  const uint32_t* kernel = nullptr;
  const uint32_t* inputs_off = nullptr;
  const uint32_t* inputs = nullptr;  // Value ids or kNone.
  const uint32_t* outputs_off = nullptr;
  const uint32_t* outputs = nullptr;  // Value ids.
  const uint32_t* succ_off = nullptr;
  const uint32_t* succ = nullptr;  // Each > the node itself, ascending.
  const uint32_t* indegree = nullptr;
  const uint8_t* lane = nullptr;  // Equals the kernel's lane flags.

  const int32_t* priority_column = nullptr;
  const uint32_t* stream_column = nullptr;
  const uint32_t* origin_column = nullptr;
  const uint32_t* op_column = nullptr;
  const uint32_t* attributes_off = nullptr;
  const std::byte* attributes = nullptr;  // 8-byte aligned.
  const uint32_t* device_kernel_column = nullptr;
  const uint32_t* cost_column = nullptr;
  const uint32_t* free_off = nullptr;
  const uint32_t* free_launch = nullptr;
  const uint32_t* branch_off = nullptr;
  const uint32_t* branch_graph = nullptr;
  uint32_t shape_nodes = 0;  // At most node_count; 0 but for Main.
  // A schedule, as exec/mt_topo/plan.hpp has it (verifier: check_schedules). part_count 0: none.
  uint32_t part_count = 0;
  const uint32_t* part_off = nullptr;
  const uint32_t* part_nodes = nullptr;
  const uint32_t* wait_off = nullptr;
  const uint32_t* waits = nullptr;

  [[nodiscard]] std::span<const uint32_t> inputs_of(uint32_t node) const {
    return {inputs + inputs_off[node], inputs_off[node + 1] - inputs_off[node]};
  }
  [[nodiscard]] std::span<const uint32_t> outputs_of(uint32_t node) const {
    return {outputs + outputs_off[node], outputs_off[node + 1] - outputs_off[node]};
  }
  [[nodiscard]] std::span<const uint32_t> succ_of(uint32_t node) const {
    return {succ + succ_off[node], succ_off[node + 1] - succ_off[node]};
  }
  [[nodiscard]] std::span<const uint32_t> free_launches_of(uint32_t node) const {
    if (free_off == nullptr) return {};
    return {free_launch + free_off[node], free_off[node + 1] - free_off[node]};
  }
  [[nodiscard]] std::span<const uint32_t> bodies_of(uint32_t node) const {
    if (branch_off == nullptr) return {};
    return {branch_graph + branch_off[node], branch_off[node + 1] - branch_off[node]};
  }
  // The node's attribute record; empty when its kernel has none.
  [[nodiscard]] std::span<const std::byte> attributes_of(uint32_t node) const {
    if (attributes_off == nullptr) return {};
    return {attributes + attributes_off[node], attributes_off[node + 1] - attributes_off[node]};
  }
  [[nodiscard]] int32_t priority_of(uint32_t node) const {
    return priority_column == nullptr ? 0 : priority_column[node];
  }
  [[nodiscard]] uint32_t stream_of(uint32_t node) const {
    return stream_column == nullptr ? kNone : stream_column[node];
  }
  [[nodiscard]] uint32_t origin_of(uint32_t node) const {
    return origin_column == nullptr ? kNone : origin_column[node];
  }
  [[nodiscard]] uint32_t op_of(uint32_t node) const {
    return op_column == nullptr ? kNone : op_column[node];
  }
  // In ImageView::kernels, or kNone.
  [[nodiscard]] uint32_t device_kernel_of(uint32_t node) const {
    return device_kernel_column == nullptr ? kNone : device_kernel_column[node];
  }
  // In ImageView::costs, or kNone.
  [[nodiscard]] uint32_t cost_of(uint32_t node) const {
    return cost_column == nullptr ? kNone : cost_column[node];
  }
};

// schema/image.fbs: DimRange.
struct DimRangeView {
  int64_t min;
  int64_t max;
  uint32_t symbol;  // In ImageView::strings, or kNone.
  uint32_t reserved;
};
static_assert(sizeof(DimRangeView) == 24, "read in place");

struct PortView {
  uint32_t name = kNone;               // In ImageView::strings; unique, not empty.
  uint32_t value = kNone;              // The value that the port's description comes from.
  uint32_t desc = kNone;               // That value's descriptor.
  const DimRangeView* dims = nullptr;  // [rank], or null: all dimensions are static.
};

// What the image says of one of its kernels.
struct KernelRefView {
  const char* name = "";
  uint32_t abi_version = 0;
  uint32_t flags = 0;
};

struct ProvenanceView {
  const char* producer = "";
  const char* source_digest = "";
  const char* source_name = "";
  const char* options = "";
  const char* opsets = "";
};

struct ImageView {
  explicit ImageView(std::pmr::memory_resource& memory)
      : inputs(&memory),
        outputs(&memory),
        kernel_refs(&memory),
        kernels(&memory),
        graphs(&memory) {}

  uint16_t version_major = 0;
  uint16_t version_minor = 0;
  DvtTarget target = DVT_TARGET_CPU;
  const char* target_name = "";
  uint64_t file_bytes = 0;

  ValuesView values;
  const DvtTensor* descs = nullptr;
  uint32_t desc_count = 0;
  bool has_dynamic_descs = false;  // Else no value's shape is set at run time.
  const DvtTaskCost* costs = nullptr;
  uint32_t cost_count = 0;
  StringTable strings;

  // Small tables, owned.
  std::pmr::vector<PortView> inputs, outputs;
  std::pmr::vector<KernelRefView> kernel_refs;
  // Resolved kernel_refs; see OpenOptions::resolve_kernels.
  std::pmr::vector<const DvtKernel*> kernels;
  std::pmr::vector<GraphView> graphs;
  uint32_t init = kNone;    // In graphs, or kNone.
  uint32_t main = kNone;    // In graphs; always there.
  uint32_t deinit = kNone;  // In graphs, or kNone.

  const std::byte* constants = nullptr;  // Value::offset of constants is relative to this.
  uint64_t constant_bytes = 0;
  std::span<const std::byte> code;  // The code segment; empty when there is none.
  uint64_t arena_bytes = 0;
  uint32_t arena_alignment = 64;  // A power of two, 8 to 4096.
  uint64_t lower_bound_bytes = 0;

  uint32_t stream_count = 0;
  uint32_t event_count = 0;
  const uint8_t* stream_priority = nullptr;  // [stream_count], or null: all 0.
  ProvenanceView provenance;

  // The value's descriptor; null for a plain word.
  [[nodiscard]] const DvtTensor* tensor_of(uint32_t value) const {
    const uint32_t desc = values.desc[value];
    return desc == kNone ? nullptr : descs + desc;
  }
  // True when the value's shape is set at run time.
  [[nodiscard]] bool is_dynamic(uint32_t value) const {
    if (!has_dynamic_descs) return false;
    const DvtTensor* tensor = tensor_of(value);
    return tensor != nullptr && (tensor->flags & DVT_TENSOR_DYNAMIC) != 0;
  }
  [[nodiscard]] const char* value_name(uint32_t value) const {
    return values.name == nullptr ? "" : strings[values.name[value]];
  }
  // First byte of a constant.
  [[nodiscard]] const std::byte* constant_data(uint32_t value) const {
    return constants + values.offset[value];
  }
};

// What becomes of an image's machine code.
enum class CodeUse {
  kLoad,
  kRefuse,
  kIgnore,  // Its kernels come from OpenOptions::kernel_tables.
};

struct OpenOptions {
  bool skip_digests = false;  // But for that of code.
  CodeUse code = CodeUse::kLoad;
  bool prefault = false;
  // False: kernels stay unresolved (ImageView::kernels is empty) and no kernel's check runs. For
  // tools that only read; such an image cannot be executed.
  bool resolve_kernels = true;
  std::span<const DvtKernelTable> kernel_tables;  // Before dvt_cpu_kernels(), dvt_device_kernels().
  uint64_t arena_bytes_max = 0;                   // 0: no limit.
  // Of an image with external weights (exec/weights.hpp): the folder that has their file, and what
  // to take in place of the file. open_image_file() looks beside the image.
  std::string weights_folder = {};
  std::span<const std::byte> weights = {};
};

// A private read-only mapping of a file, or nothing.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* base, size_t size) : base_(base), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(base_), size_};
  }

 private:
  void* base_ = nullptr;
  size_t size_ = 0;
};

// Maps a regular file. Errors: DVT_IO_ERROR with path and cause.
Result<Mapping> map_file(const std::string& path, bool prefault);

}  // namespace davit::exec

// The opaque type of davit.h. One reference belongs to whoever opened it, one to each executor.
struct DvtImage {
  davit::alloc::HostMemory memory{sizeof(DvtImage)};  // Of all that follows, but for mappings.
  davit::exec::ImageView view{memory};
  davit::exec::CodeSegment code;  // Loaded; empty when there is none.
  davit::exec::Mapping mapping;   // Of an image opened from a file.
  davit::exec::Mapping weights;   // Of a file of external weights.
  // Of an image whose memory was not aligned.
  std::pmr::vector<std::byte> metadata_storage{&memory};
  mutable std::atomic<uint32_t> references{1};
};

namespace davit::exec {

void retain_image(const DvtImage& image);
void release_image(const DvtImage* image);  // Null is fine.

struct ImageReleaser {
  void operator()(const DvtImage* image) const { release_image(image); }
};
using ImageHandle = std::unique_ptr<DvtImage, ImageReleaser>;

// What dvt_image_open_file() and dvt_image_open_memory() do.
Result<ImageHandle> open_image_file(const std::string& path, const OpenOptions& options);
Result<ImageHandle> open_image_memory(std::span<const std::byte> bytes, const OpenOptions& options);

// Bytes that an executor of this image allocates, its arena included (exec/executor.cpp).
uint64_t executor_bytes(const ImageView& image);

}  // namespace davit::exec
