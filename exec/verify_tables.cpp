// Stage 2 of the verifier: the flatbuffer, and every table but the graphs (verify_columns.cpp).
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "exec/verify_columns.hpp"
#include "exec/verify_internal.hpp"
#include "image_generated.h"

namespace davit::exec::verify {
namespace {

static_assert(sizeof(schema::TensorDesc) == sizeof(DvtTensor) && alignof(schema::TensorDesc) == 8,
              "descriptors are used in place");
static_assert(sizeof(schema::TaskCost) == sizeof(DvtTaskCost) && alignof(schema::TaskCost) == 8,
              "costs are used in place");
static_assert(sizeof(schema::DimRange) == sizeof(DimRangeView), "ranges are used in place");
static_assert(static_cast<uint8_t>(schema::ValueKind::Device) ==
              static_cast<uint8_t>(ValueKind::kDevice));
static_assert(static_cast<uint8_t>(schema::GraphRole::Body) ==
              static_cast<uint8_t>(GraphRole::kBody));

// Bounds the work on tables whose rows may share one string in a crafted file.
constexpr uint32_t kPortsMax = 65536;
constexpr uint32_t kKernelsMax = 65536;
constexpr size_t kPortNameMax = 4096;
constexpr size_t kKernelNameMax = 255;

const char* text_or_empty(const flatbuffers::String* string) {
  return string == nullptr ? "" : string->c_str();
}

// What is known of a shape before a run; the run has its own descriptor.
Status check_dynamic_desc(const DvtTensor& desc, uint32_t index) {
  const bool unknown = desc.rank == DVT_RANK_UNKNOWN;
  if (desc.rank > DVT_MAX_RANK && !unknown) {
    return broken("descs[%u].rank: %u is more than %d", index, desc.rank, DVT_MAX_RANK);
  }
  if (desc.bytes != 0) return broken("descs[%u].bytes: must be 0 for a dynamic shape", index);
  for (uint32_t d = 0; d < DVT_MAX_RANK; ++d) {
    const bool beyond = unknown || d >= desc.rank;
    if (beyond ? desc.dims[d] != 0 : desc.dims[d] < -1) {
      return broken("descs[%u].dims[%u]: must be -1 or an extent, and zero beyond the rank", index,
                    d);
    }
  }
  return {};
}

// flatbuffers checks that the struct's bytes are there, not that they mean anything.
Status check_desc(const DvtTensor& desc, uint32_t index) {
  if (!dtype_is_valid(desc.dtype))
    return broken("descs[%u].dtype: %u is unknown", index, desc.dtype);
  if (dvt_dtype_size(desc.dtype) == 0) {
    return broken("descs[%u].dtype: tensors of %s have no fixed size", index,
                  std::string(dtype_name(desc.dtype)).c_str());
  }
  if ((desc.flags & ~DVT_TENSOR_DYNAMIC) != 0 || desc.reserved != 0) {
    return broken("descs[%u]: unknown flags, or reserved is not zero", index);
  }
  if ((desc.flags & DVT_TENSOR_DYNAMIC) != 0) return check_dynamic_desc(desc, index);
  if (desc.rank > DVT_MAX_RANK) {
    return broken("descs[%u].rank: %u is more than %d", index, desc.rank, DVT_MAX_RANK);
  }
  for (uint32_t d = desc.rank; d < DVT_MAX_RANK; ++d) {
    if (desc.dims[d] != 0) {
      return broken("descs[%u].dims[%u]: dimensions beyond the rank must be zero", index, d);
    }
  }
  const auto elements = checked_elements(std::span(desc.dims).first(desc.rank));
  if (!elements) {
    return broken("descs[%u].dims: negative, or more elements than 2^63 - 1", index);
  }
  const auto bytes = checked_mul(*elements, dvt_dtype_size(desc.dtype));
  if (!bytes || *bytes > INT64_MAX)
    return broken("descs[%u].dims: more bytes than 2^63 - 1", index);
  if (*bytes != desc.bytes) {
    return broken("descs[%u].bytes: %llu, but the dimensions make %llu", index,
                  static_cast<unsigned long long>(desc.bytes),
                  static_cast<unsigned long long>(*bytes));
  }
  return {};
}

Status read_descs(const schema::Image& root, ImageView& view) {
  Column<DvtTensor> descs;
  if (Status s = read_structs(root.descs(), "descs", descs); !s.ok()) return s;
  view.descs = descs.data;
  view.desc_count = descs.size;
  for (uint32_t i = 0; i < view.desc_count; ++i) {
    if (Status s = check_desc(view.descs[i], i); !s.ok()) return s;
    view.has_dynamic_descs |= (view.descs[i].flags & DVT_TENSOR_DYNAMIC) != 0;
  }
  return {};
}

Status read_costs(const schema::Image& root, ImageView& view) {
  Column<DvtTaskCost> costs;
  if (Status s = read_structs(root.costs(), "costs", costs); !s.ok()) return s;
  view.costs = costs.data;
  view.cost_count = costs.size;
  for (uint32_t i = 0; i < view.cost_count; ++i) {
    const DvtTaskCost& cost = view.costs[i];
    if (cost.kind > DVT_TASK_AICPU) return broken("costs[%u].kind: %u is unknown", i, cost.kind);
    if (cost.dtype != DVT_DTYPE_NONE && !dtype_is_valid(cost.dtype)) {
      return broken("costs[%u].dtype: %u is unknown", i, cost.dtype);
    }
    if (cost.reserved != 0) return broken("costs[%u].reserved: must be zero", i);
  }
  return {};
}

Status check_arena_offset(const ImageView& view, uint32_t value, uint64_t& arena_end) {
  const uint64_t offset = view.values.offset[value];
  if (offset % view.arena_alignment != 0) {
    return broken("values.offset[%u]: must be a multiple of memory.alignment (%u)", value,
                  view.arena_alignment);
  }
  const auto end = checked_add(offset, view.tensor_of(value)->bytes);
  if (!end || *end > view.arena_bytes) {
    return broken("values.offset[%u]: the value reaches beyond memory.arena_bytes (%llu)", value,
                  static_cast<unsigned long long>(view.arena_bytes));
  }
  arena_end = std::max(arena_end, *end);
  return {};
}

Status check_constant_offset(const ImageView& view, uint32_t value) {
  const uint64_t offset = view.values.offset[value];
  const DvtTensor& tensor = *view.tensor_of(value);
  if (!in_range(offset, tensor.bytes, view.constant_bytes)) {
    return broken("values.offset[%u]: the constant reaches beyond the constants segment", value);
  }
  const uint32_t alignment = dvt_dtype_alignment(tensor.dtype);
  if (offset % alignment != 0) {
    return broken("values.offset[%u]: must be a multiple of the element's %u bytes", value,
                  alignment);
  }
  // The segment is page aligned in the file; borrowed memory may not be.
  if (tensor.bytes != 0 &&
      reinterpret_cast<uintptr_t>(view.constant_data(value)) % alignment != 0) {
    return failed(DVT_INVALID_ARGUMENT,
                  "values.offset[%u]: the caller's memory leaves this constant misaligned; it must "
                  "be aligned to 8 bytes",
                  value);
  }
  return {};
}

Status check_value(const ImageView& view, uint32_t value, uint64_t& arena_end) {
  const ValuesView& values = view.values;
  const ValueKind kind = values.kind[value];
  const uint32_t desc = values.desc[value];
  if (kind > ValueKind::kHeap) {
    return broken("values.kind[%u]: %u is unknown", value, static_cast<unsigned>(kind));
  }
  if (values.name != nullptr && values.name[value] != kNone &&
      values.name[value] >= view.strings.size()) {
    return broken("values.name[%u]: %u is not in strings", value, values.name[value]);
  }
  const bool placed =
      kind != ValueKind::kWord && kind != ValueKind::kDevice && kind != ValueKind::kHeap;
  if (!placed && values.offset[value] != 0) {
    return broken("values.offset[%u]: must be 0 for words, device and heap values", value);
  }
  if (desc == kNone) {
    if (kind == ValueKind::kWord) return {};
    return broken("values.desc[%u]: only words may be without a descriptor", value);
  }
  // A word's cell holds a number: with a descriptor, kernels would take that for an address.
  if (kind == ValueKind::kWord) return broken("values.desc[%u]: words have no descriptor", value);
  if (desc >= view.desc_count) {
    return broken("values.desc[%u]: %u is not in descs", value, desc);
  }
  const bool may_be_dynamic = kind == ValueKind::kInput || kind == ValueKind::kOutput ||
                              kind == ValueKind::kHeap || kind == ValueKind::kDevice;
  if (view.is_dynamic(value) ? !may_be_dynamic : kind == ValueKind::kHeap) {
    return broken(
        "values.desc[%u]: heap values have dynamic shapes; words, constants, planned values have "
        "not",
        value);
  }
  if (kind == ValueKind::kPlanned) return check_arena_offset(view, value, arena_end);
  if (kind == ValueKind::kConstant) return check_constant_offset(view, value);
  return {};
}

Status read_values(const schema::Image& root, ImageView& view) {
  const schema::Values* table = root.values();
  ValuesView& values = view.values;
  if (table != nullptr) {
    Column<uint8_t> kind;
    Column<uint32_t> desc, name;
    Column<uint64_t> offset;
    if (Status s = read_column(table->kind(), "values.kind", kind); !s.ok()) return s;
    if (Status s = read_column(table->desc(), "values.desc", desc); !s.ok()) return s;
    if (Status s = read_column(table->offset(), "values.offset", offset); !s.ok()) return s;
    if (Status s = read_column(table->name(), "values.name", name); !s.ok()) return s;
    values.count = kind.size;
    if (Status s = require_size("values.desc", desc.size, kind.size); !s.ok()) return s;
    if (Status s = require_size("values.offset", offset.size, kind.size); !s.ok()) return s;
    if (name.size != 0) {
      if (Status s = require_size("values.name", name.size, kind.size); !s.ok()) return s;
      values.name = name.data;
    }
    values.kind = reinterpret_cast<const ValueKind*>(kind.data);
    values.desc = desc.data;
    values.offset = offset.data;
  }
  uint64_t arena_end = 0;
  for (uint32_t i = 0; i < values.count; ++i) {
    if (Status s = check_value(view, i, arena_end); !s.ok()) return s;
  }
  // So that no file can ask for more memory than its values need.
  const auto rounded = checked_align(arena_end, view.arena_alignment);
  if (!rounded || view.arena_bytes > *rounded) {
    return broken("memory.arena_bytes: %llu, but the planned values end at %llu",
                  static_cast<unsigned long long>(view.arena_bytes),
                  static_cast<unsigned long long>(arena_end));
  }
  return {};
}

Status check_port_dims(const ImageView& view, const PortView& port, const char* table,
                       uint32_t index) {
  const DvtTensor& tensor = view.descs[port.desc];
  for (uint32_t d = 0; d < tensor.rank; ++d) {
    const DimRangeView& range = port.dims[d];
    const bool fits = tensor.dims[d] == -1 || range.max == tensor.dims[d];
    if (range.min < 0 || range.min > range.max || !fits) {
      return broken(
          "%s[%u].dims[%u]: must be 0 <= min <= max = the descriptor's extent, if it has one",
          table, index, d);
    }
    if (range.symbol != kNone && range.symbol >= view.strings.size()) {
      return broken("%s[%u].dims[%u].symbol: %u is not in strings", table, index, d, range.symbol);
    }
    if (range.reserved != 0) {
      return broken("%s[%u].dims[%u].reserved: must be zero", table, index, d);
    }
  }
  return {};
}

Status read_port(const schema::Port& table, ValueKind kind, const char* label, uint32_t index,
                 const ImageView& view, PortView& port) {
  port.name = table.name();
  port.value = table.value();
  if (port.name >= view.strings.size()) {
    return broken("%s[%u].name: %u is not in strings", label, index, port.name);
  }
  if (port.value >= view.values.count) {
    return broken("%s[%u].value: %u is not in values", label, index, port.value);
  }
  if (view.values.kind[port.value] != kind || view.values.offset[port.value] != index) {
    return broken("%s[%u].value: value %s does not name this port", label, index,
                  describe_value(view, port.value).c_str());
  }
  port.desc = view.values.desc[port.value];
  const std::string path = std::string(label) + "[" + std::to_string(index) + "].dims";
  Column<DimRangeView> dims;
  if (Status s = read_structs(table.dims(), path.c_str(), dims); !s.ok()) return s;
  if (dims.size == 0) return {};
  const uint32_t rank = view.descs[port.desc].rank;
  if (rank == DVT_RANK_UNKNOWN) return broken("%s: the rank is unknown", path.c_str());
  if (Status s = require_size(path.c_str(), dims.size, rank); !s.ok()) return s;
  port.dims = dims.data;
  return check_port_dims(view, port, label, index);
}

Status read_ports(const flatbuffers::Vector<flatbuffers::Offset<schema::Port>>* table,
                  ValueKind kind, const char* label, const ImageView& view,
                  std::pmr::vector<PortView>& ports) {
  const uint32_t count = table == nullptr ? 0 : table->size();
  if (count > kPortsMax) return broken("%s: %u ports, more than %u", label, count, kPortsMax);
  ports.resize(count);
  std::unordered_set<std::string_view> names;
  for (uint32_t i = 0; i < count; ++i) {
    if (Status s = read_port(*table->Get(i), kind, label, i, view, ports[i]); !s.ok()) return s;
    const std::string_view name = view.strings[ports[i].name];
    if (name.empty() || name.size() > kPortNameMax) {
      return broken("%s[%u].name: must have 1 to %zu bytes", label, i, kPortNameMax);
    }
    if (!names.insert(name).second) {
      return broken("%s[%u].name: \"%.100s\" is taken", label, i, name.data());
    }
  }
  return {};
}

// Views of a port have other dimensions than the port's value, never other bytes; but for those of
// gears (check_gears).
Status check_port_values(const ImageView& view) {
  for (uint32_t i = 0; i < view.values.count; ++i) {
    const ValueKind kind = view.values.kind[i];
    if (kind != ValueKind::kInput && kind != ValueKind::kOutput) continue;
    const bool input = kind == ValueKind::kInput;
    const std::pmr::vector<PortView>& ports = input ? view.inputs : view.outputs;
    const uint64_t port = view.values.offset[i];
    if (port >= ports.size()) {
      return broken("values.offset[%u]: there is no %s %llu", i, input ? "input" : "output",
                    static_cast<unsigned long long>(port));
    }
    if (view.is_dynamic(i) && i != ports[port].value) {
      return broken("values.desc[%u]: a port whose shape is dynamic has one dynamic value", i);
    }
    if (!view.is_dynamic(i) && view.is_dynamic(ports[port].value)) continue;
    if (view.tensor_of(i)->bytes != view.descs[ports[port].desc].bytes) {
      return broken("values.desc[%u]: has other bytes than %s %llu, which it views", i,
                    input ? "input" : "output", static_cast<unsigned long long>(port));
    }
  }
  return {};
}

Status read_kernel_refs(const schema::Image& root, ImageView& view) {
  const auto* table = root.kernels();
  const uint32_t count = table == nullptr ? 0 : table->size();
  if (count > kKernelsMax) return broken("kernels: %u entries, more than %u", count, kKernelsMax);
  view.kernel_refs.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const schema::Kernel& kernel = *table->Get(i);
    if (kernel.name() == nullptr || kernel.name()->size() == 0 ||
        kernel.name()->size() > kKernelNameMax) {
      return broken("kernels[%u].name: must have 1 to %zu bytes", i, kKernelNameMax);
    }
    view.kernel_refs[i] = {kernel.name()->c_str(), kernel.abi_version(), kernel.flags()};
    if ((kernel.flags() & DVT_KERNEL_LANE_MASK) > DVT_KERNEL_LANE_LAUNCH) {
      return broken("kernels[%u].flags: 0x%x names no lane", i, kernel.flags());
    }
  }
  return {};
}

Status read_strings(const schema::Image& root, ImageView& view) {
  const auto* strings = root.strings();
  if (strings == nullptr) return {};
  // The flatbuffer verifier followed each offset and found a terminated string there.
  view.strings = StringTable(reinterpret_cast<const uint32_t*>(strings->Data()), strings->size());
  return {};
}

Status read_target(const schema::Image& root, ImageView& view) {
  view.target_name = text_or_empty(root.target());
  const std::string_view name = view.target_name;
  constexpr std::string_view kAscend = "ascend:";
  const bool agrees = view.target == DVT_TARGET_CPU
                          ? name == "cpu"
                          : name.starts_with(kAscend) && name.size() > kAscend.size();
  if (!agrees) {
    return broken("target: \"%.100s\" does not agree with the header's target %d", view.target_name,
                  static_cast<int>(view.target));
  }
  return {};
}

Status read_memory_plan(const schema::Image& root, ImageView& view) {
  const schema::MemoryPlan* plan = root.memory();
  if (plan == nullptr) return {};  // No arena; planned values then break their own rule.
  view.arena_bytes = plan->arena_bytes();
  view.arena_alignment = plan->alignment();
  view.lower_bound_bytes = plan->lower_bound_bytes();
  const uint32_t alignment = view.arena_alignment;
  if (alignment < 8 || alignment > DVT_IMAGE_PAGE || (alignment & (alignment - 1)) != 0) {
    return broken("memory.alignment: %u is not a power of two in 8 to %d", alignment,
                  DVT_IMAGE_PAGE);
  }
  if (view.lower_bound_bytes > view.arena_bytes) {
    return broken("memory.lower_bound_bytes: must not be above memory.arena_bytes");
  }
  return {};
}

Status read_stream_plan(const schema::Image& root, ImageView& view) {
  const schema::StreamPlan* plan = root.streams();
  if (plan == nullptr) return {};
  view.stream_count = plan->stream_count();
  view.event_count = plan->event_count();
  Column<uint8_t> priority;
  if (Status s = read_column(plan->stream_priority(), "streams.stream_priority", priority);
      !s.ok()) {
    return s;
  }
  if (priority.size == 0) return {};
  view.stream_priority = priority.data;
  return require_size("streams.stream_priority", priority.size, view.stream_count);
}

// Executors allocate per stream and event: nodes create each, so that there cannot be more of them.
Status check_stream_counts(const ImageView& view) {
  uint64_t nodes = 0;
  for (const GraphView& graph : view.graphs) nodes += graph.node_count;
  if (view.stream_count > nodes) {
    return broken("streams.stream_count: %u streams, but no more than %llu nodes",
                  view.stream_count, static_cast<unsigned long long>(nodes));
  }
  if (view.event_count > nodes) {
    return broken("streams.event_count: %u events, but no more than %llu nodes", view.event_count,
                  static_cast<unsigned long long>(nodes));
  }
  return {};
}

void read_provenance(const schema::Image& root, ImageView& view) {
  const schema::Provenance* table = root.provenance();
  if (table == nullptr) return;
  view.provenance = {.producer = text_or_empty(table->producer()),
                     .source_digest = text_or_empty(table->source_digest()),
                     .source_name = text_or_empty(table->source_name()),
                     .options = text_or_empty(table->options()),
                     .opsets = text_or_empty(table->opsets())};
}

}  // namespace

Status read_metadata(std::span<const std::byte> metadata, ImageView& view) {
  if (metadata.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return broken("metadata: %zu bytes, more than a flatbuffer may have", metadata.size());
  }
  const auto* data = reinterpret_cast<const uint8_t*>(metadata.data());
  flatbuffers::Verifier verifier(data, metadata.size());
  if (!schema::VerifyImageBuffer(verifier)) return broken("metadata: not a valid flatbuffer");
  const schema::Image& root = *schema::GetImage(data);

  if (Status s = read_target(root, view); !s.ok()) return s;
  if (Status s = read_strings(root, view); !s.ok()) return s;
  if (Status s = read_memory_plan(root, view); !s.ok()) return s;
  if (Status s = read_descs(root, view); !s.ok()) return s;
  if (Status s = read_costs(root, view); !s.ok()) return s;
  if (Status s = read_kernel_refs(root, view); !s.ok()) return s;
  if (Status s = read_values(root, view); !s.ok()) return s;
  if (Status s = read_ports(root.inputs(), ValueKind::kInput, "inputs", view, view.inputs);
      !s.ok()) {
    return s;
  }
  if (Status s = read_ports(root.outputs(), ValueKind::kOutput, "outputs", view, view.outputs);
      !s.ok()) {
    return s;
  }
  if (Status s = check_port_values(view); !s.ok()) return s;
  if (Status s = read_stream_plan(root, view); !s.ok()) return s;
  read_provenance(root, view);
  if (Status s = read_graphs(root, metadata.size(), view); !s.ok()) return s;
  return check_stream_counts(view);
}

}  // namespace davit::exec::verify
