// text_dump.cpp: an ImageModel as text. The grammar is in docs/image.md, the parser in
// text_assemble.cpp.
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "lowering/image/image_model.hpp"
#include "lowering/image/text_common.hpp"
#include "lowering/image/text_lexer.hpp"

namespace davit::image {
namespace {

constexpr uint64_t kListElementsMax = 64;  // Longer constants are hexadecimal blocks.
constexpr size_t kHexBytesPerLine = 48;

class Dumper {
 public:
  Dumper(const ImageModel& model, std::span<const DvtKernelTable> tables,
         const DumpOptions& options)
      : model_(model), kernels_(tables), options_(options) {
    name_values();
  }

  std::string run() {
    dump_heading();
    dump_plans();
    dump_kernels();
    for (uint32_t i = 0; i < model_.values.size(); ++i) dump_value(i);
    dump_constants_tail();
    for (uint32_t i = 0; i < model_.graphs.size(); ++i) dump_graph(i);
    return std::move(out_);
  }

 private:
  void name_values();
  void dump_heading();
  void dump_plans();
  void dump_kernels();
  void dump_value(uint32_t index);
  void dump_type(const Value& value, const Port* port);
  void dump_constant(const Value& value);
  void dump_initialiser(const Value& value);
  void dump_hex(std::span<const std::byte> bytes);
  void dump_constants_tail();
  void dump_graph(uint32_t index);
  void dump_node(const Node& node, uint32_t index);
  void dump_schedule(const Schedule& schedule);
  void dump_attributes(const Node& node);
  bool dump_named_attributes(const DvtKernel& kernel, std::span<const std::byte> record);
  void dump_attribute(const DvtAttribute& attribute, const std::byte* at);
  void dump_cost(const DvtTaskCost& cost);
  void dump_nodes_list(const char* key, const char* prefix, const std::vector<uint32_t>& ids);
  void dump_text_line(const char* keyword, const std::string& text) {
    if (!text.empty()) out_ += std::string(keyword) + " " + quote(text) + "\n";
  }
  void dump_operands(const std::vector<uint32_t>& values);

  [[nodiscard]] std::string handle(uint32_t value) const {
    if (value == kNone) return "_";
    return value < handles_.size() ? handles_[value] : "%" + std::to_string(value);
  }
  [[nodiscard]] std::string kernel_name(uint32_t kernel) const {
    if (kernel >= model_.kernels.size()) return "%" + std::to_string(kernel);
    const std::string& name = model_.kernels[kernel].name;
    return is_plain_name(name) ? name : quote(name);
  }

  const ImageModel& model_;
  const KernelFinder kernels_;
  const DumpOptions options_;
  std::string out_;
  std::vector<std::string> handles_;  // Per value.
  uint32_t inputs_seen_ = 0;
  uint32_t outputs_seen_ = 0;
  uint64_t next_constant_ = 0;  // Where a constant without "@" goes.
};

// A value is called by its name when that is unique, else by %id.
void Dumper::name_values() {
  std::unordered_map<std::string_view, uint32_t> uses;
  for (const Value& value : model_.values) ++uses[value.name];
  for (uint32_t i = 0; i < model_.values.size(); ++i) {
    const std::string& name = model_.values[i].name;
    if (name.empty() || uses[name] > 1) {
      handles_.push_back("%" + std::to_string(i));
    } else {
      handles_.push_back(is_plain_name(name) ? name : quote(name));
    }
  }
}

void Dumper::dump_heading() {
  out_ += "davit " + std::to_string(DVT_IMAGE_VERSION_MAJOR) + "." +
          std::to_string(DVT_IMAGE_VERSION_MINOR) + " target ";
  out_ += is_plain_name(model_.target_name) ? model_.target_name : quote(model_.target_name);
  out_ += "\n";
  dump_text_line("producer", model_.provenance.producer);
  dump_text_line("source_name", model_.provenance.source_name);
  dump_text_line("source_digest", model_.provenance.source_digest);
  dump_text_line("options", model_.provenance.options);
  dump_text_line("opsets", model_.provenance.opsets);
}

void Dumper::dump_plans() {
  if (!model_.code.empty()) {
    out_ += "# The image has " + std::to_string(model_.code.size()) +
            " bytes of machine code, which have no text form.\n";
  }
  out_ += "arena " + std::to_string(model_.arena_bytes) + " align " +
          std::to_string(model_.arena_alignment);
  if (model_.lower_bound_bytes != 0) {
    out_ += " lower_bound " + std::to_string(model_.lower_bound_bytes);
  }
  out_ += "\n";
  if (model_.stream_count != 0) {
    out_ += "streams " + std::to_string(model_.stream_count);
    if (!model_.stream_priority.empty()) {
      out_ += " priority [";
      for (size_t i = 0; i < model_.stream_priority.size(); ++i) {
        out_ += (i == 0 ? "" : ", ") + std::to_string(model_.stream_priority[i]);
      }
      out_ += "]";
    }
    out_ += "\n";
  }
  if (model_.event_count != 0) out_ += "events " + std::to_string(model_.event_count) + "\n";
}

// Kernel lines are left out when the assembler would come to the same table without them.
void Dumper::dump_kernels() {
  const std::vector<uint32_t> order = kernels_in_order_of_use(model_);
  bool implied = order.size() == model_.kernels.size();
  for (uint32_t i = 0; implied && i < order.size(); ++i) {
    const KernelRef& ref = model_.kernels[i];
    const DvtKernel* kernel = kernels_.find(ref.name);
    implied = order[i] == i && kernel != nullptr && kernel->abi_version == ref.abi_version &&
              kernel->flags == ref.flags;
  }
  if (implied) return;
  for (uint32_t i = 0; i < model_.kernels.size(); ++i) {
    out_ += "kernel " + kernel_name(i) + " abi " + std::to_string(model_.kernels[i].abi_version) +
            " flags " + std::to_string(model_.kernels[i].flags) + "\n";
  }
}

// f32[1, N=1..8, 3]: the extents of the descriptor are the maxima.
void Dumper::dump_type(const Value& value, const Port* port) {
  const DvtTensor& tensor = value.tensor;
  out_ += ": " + std::string(dtype_name(tensor.dtype)) + "[";
  if (tensor.rank == DVT_RANK_UNKNOWN) out_ += "...";
  const uint32_t rank = tensor.rank == DVT_RANK_UNKNOWN ? 0 : tensor.rank;
  for (uint32_t d = 0; d < std::min<uint32_t>(rank, DVT_MAX_RANK); ++d) {
    if (d > 0) out_ += ", ";
    if (port != nullptr && d < port->dims.size()) {
      const DimRange& range = port->dims[d];
      if (!range.symbol.empty()) {
        out_ += (is_plain_name(range.symbol) ? range.symbol : quote(range.symbol)) + "=";
      }
      const bool open = tensor.dims[d] < 0;
      if (open) out_ += "?";
      if (open && range.min == 0 && range.max == INT64_MAX) continue;
      if (range.min != range.max || open) out_ += std::to_string(range.min) + "..";
      if (range.max != INT64_MAX) out_ += std::to_string(range.max);
    } else {
      out_ += tensor.dims[d] < 0 ? "?" : std::to_string(tensor.dims[d]);
    }
  }
  out_ += "]";
  if ((tensor.flags & DVT_TENSOR_DYNAMIC) != 0) out_ += " dynamic";
}

void Dumper::dump_value(uint32_t index) {
  const Value& value = model_.values[index];
  const bool input = value.kind == ValueKind::kInput;
  const std::vector<Port>& ports = input ? model_.inputs : model_.outputs;
  const Port* port = nullptr;
  const Port* viewed = nullptr;
  if (input || value.kind == ValueKind::kOutput) {
    if (value.offset < ports.size()) viewed = &ports[value.offset];
    if (viewed != nullptr && viewed->value == index) port = viewed;
  }
  switch (value.kind) {
    case ValueKind::kWord:
      out_ += "word ";
      break;
    case ValueKind::kPlanned:
      out_ += "planned ";
      break;
    case ValueKind::kConstant:
      out_ += "const ";
      break;
    case ValueKind::kDevice:
      out_ += "device ";
      break;
    case ValueKind::kHeap:
      out_ += "heap ";
      break;
    case ValueKind::kInput:
    case ValueKind::kOutput:
      out_ += port == nullptr ? "view " : input ? "input" : "output";
      break;
  }
  if (port != nullptr) {
    uint32_t& seen = input ? inputs_seen_ : outputs_seen_;
    if (seen != value.offset) out_ += "[" + std::to_string(value.offset) + "]";
    ++seen;
    out_ += " ";
  }
  out_ += handle(index);
  if (handles_[index][0] == '%' && !value.name.empty()) out_ += " " + quote(value.name);
  if (port != nullptr && port->name != value.name) out_ += " as " + quote(port->name);
  if (value.has_tensor) dump_type(value, port);
  if (value.kind == ValueKind::kPlanned) out_ += " @" + std::to_string(value.offset);
  if (value.kind == ValueKind::kConstant) dump_constant(value);
  if (viewed != nullptr && port == nullptr) {
    out_ += std::string(" of ") + (input ? "input " : "output ") + quote(viewed->name);
  }
  out_ += "\n";
}

void Dumper::dump_hex(std::span<const std::byte> bytes) {
  out_ += "hex {";
  for (size_t i = 0; i < bytes.size(); i += kHexBytesPerLine) {
    out_ += "\n  " + bytes_to_hex(bytes.subspan(i, std::min(kHexBytesPerLine, bytes.size() - i)));
  }
  out_ += bytes.empty() ? "}" : "\n}";
}

void Dumper::dump_initialiser(const Value& value) {
  const std::span<const std::byte> bytes =
      std::span(model_.constants).subspan(value.offset, value.tensor.bytes);
  if (bytes.size() > options_.constant_bytes_max) {
    out_ += "...";
    return;
  }
  const DvtDType dtype = value.tensor.dtype;
  const size_t size = dvt_dtype_size(dtype);
  const size_t count = size == 0 ? 0 : bytes.size() / size;
  const bool uniform = count > 1 && dtype != DVT_STRING &&
                       std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) == 0;
  if (uniform) {
    out_ += "fill " + element_to_text(dtype, bytes.data());
  } else if (count > kListElementsMax || dtype == DVT_STRING) {
    dump_hex(bytes);
  } else {
    out_ += "{";
    for (size_t i = 0; i < count; ++i) {
      out_ += (i == 0 ? "" : ", ") + element_to_text(dtype, bytes.data() + i * size);
    }
    out_ += "}";
  }
}

void Dumper::dump_constant(const Value& value) {
  if (value.offset != next_constant_) out_ += " @" + std::to_string(value.offset);
  const uint64_t bytes = value.tensor.bytes;
  const auto end = checked_add(value.offset, bytes);
  if (!end || *end > model_.constants.size()) return;  // Not valid; the verifier will say so.
  next_constant_ = std::max(next_constant_, checked_align(*end, kConstantAlignment).value_or(*end));
  out_ += " = ";
  dump_initialiser(value);
}

// The size of the segment where the constants do not give it, and bytes that no constant covers.
void Dumper::dump_constants_tail() {
  if (model_.external_constants) out_ += "constants external\n";
  if (constants_end(model_) != model_.constants.size()) {
    out_ += "constants " + std::to_string(model_.constants.size()) + "\n";
  }
  std::vector<std::pair<uint64_t, uint64_t>> covered;
  for (const Value& value : model_.values) {
    if (value.kind == ValueKind::kConstant) {
      covered.emplace_back(value.offset, value.offset + value.tensor.bytes);
    }
  }
  covered.emplace_back(model_.constants.size(), model_.constants.size());
  std::sort(covered.begin(), covered.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : covered) {
    const uint64_t gap_end = std::min<uint64_t>(begin, model_.constants.size());
    if (gap_end > at) {
      const auto gap = std::span(model_.constants).subspan(at, gap_end - at);
      const bool zero =
          std::all_of(gap.begin(), gap.end(), [](std::byte b) { return b == std::byte{0}; });
      if (!zero) {
        out_ += "data @" + std::to_string(at) + " = ";
        dump_hex(gap);
        out_ += "\n";
      }
    }
    at = std::max(at, end);
  }
}

void Dumper::dump_operands(const std::vector<uint32_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) out_ += (i == 0 ? "" : ", ") + handle(values[i]);
}

void Dumper::dump_graph(uint32_t index) {
  const Graph& graph = model_.graphs[index];
  constexpr const char* kRoles[] = {"init", "main", "deinit", "body"};
  out_ += std::string("\ngraph ") + kRoles[static_cast<uint8_t>(graph.role)];
  if (graph.role == GraphRole::kBody) out_ += " b" + std::to_string(index);
  if (graph.shape_nodes != 0) out_ += " shape_nodes=" + std::to_string(graph.shape_nodes);
  out_ += " {\n";
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) dump_node(graph.nodes[i], i);
  dump_schedule(graph.schedule);
  out_ += "}\n";
}

// A line for each part: part [n0, n2 after [n1, n5]].
void Dumper::dump_schedule(const Schedule& schedule) {
  const size_t positions = schedule.nodes.size();
  const bool sound =
      !schedule.part_offsets.empty() && schedule.part_offsets.back() <= positions &&
      schedule.wait_offsets.size() == positions + 1 &&
      schedule.wait_offsets.back() <= schedule.waits.size() &&
      std::ranges::all_of(schedule.waits, [&](uint32_t at) { return at < positions; });
  if (!sound) return;  // None, or one that the verifier refuses.
  for (size_t part = 0; part + 1 < schedule.part_offsets.size(); ++part) {
    out_ += "  part [";
    for (uint32_t at = schedule.part_offsets[part]; at < schedule.part_offsets[part + 1]; ++at) {
      if (at != schedule.part_offsets[part]) out_ += ", ";
      out_ += "n" + std::to_string(schedule.nodes[at]);
      std::vector<uint32_t> awaited;
      for (uint32_t i = schedule.wait_offsets[at]; i < schedule.wait_offsets[at + 1]; ++i) {
        awaited.push_back(schedule.nodes[schedule.waits[i]]);
      }
      if (awaited.empty()) continue;
      out_ += " after ";
      for (size_t i = 0; i < awaited.size(); ++i) {
        out_ += (i == 0 ? "[n" : ", n") + std::to_string(awaited[i]);
      }
      out_ += "]";
    }
    out_ += "]\n";
  }
}

void Dumper::dump_node(const Node& node, uint32_t index) {
  out_ += "  n" + std::to_string(index) + ": ";
  dump_operands(node.outputs);
  if (!node.outputs.empty()) out_ += " = ";
  out_ += kernel_name(node.kernel);
  if (node.device_kernel != kNone) out_ += "<" + kernel_name(node.device_kernel) + ">";
  out_ += "(";
  dump_operands(node.inputs);
  out_ += ")";
  dump_attributes(node);
  const uint32_t flags =
      node.kernel < model_.kernels.size() ? model_.kernels[node.kernel].flags : 0;
  if (node.lane != (flags & DVT_KERNEL_LANE_MASK)) {
    out_ += " lane=" + (node.lane < lane_names().size() ? std::string(lane_names()[node.lane])
                                                        : std::to_string(node.lane));
  }
  if (node.priority != 0) out_ += " priority=" + std::to_string(node.priority);
  if (node.stream != kNone) out_ += " stream=" + std::to_string(node.stream);
  dump_nodes_list("after", "n", node.control_inputs);
  dump_nodes_list("frees", "n", node.free_launches);
  dump_nodes_list("bodies", "b", node.bodies);
  if (node.has_cost) dump_cost(node.cost);
  if (!node.origin.empty()) out_ += " origin=" + quote(node.origin);
  if (!node.op.empty()) out_ += " op=" + quote(node.op);
  out_ += "\n";
}

void Dumper::dump_nodes_list(const char* key, const char* prefix,
                             const std::vector<uint32_t>& ids) {
  if (ids.empty()) return;
  out_ += std::string(" ") + key + "=[";
  for (size_t i = 0; i < ids.size(); ++i) {
    out_ += (i == 0 ? "" : ", ") + std::string(prefix) + std::to_string(ids[i]);
  }
  out_ += "]";
}

void Dumper::dump_cost(const DvtTaskCost& cost) {
  out_ += " cost={kind=";
  out_ += cost.kind < task_kind_names().size() ? std::string(task_kind_names()[cost.kind])
                                               : std::to_string(cost.kind);
  if (cost.dtype != DVT_DTYPE_NONE) out_ += ", dtype=" + std::string(dtype_name(cost.dtype));
  for (const CostField& field : cost_fields()) {
    uint64_t number = 0;
    std::memcpy(&number, reinterpret_cast<const std::byte*>(&cost) + field.offset, field.size);
    if (number != 0) out_ += ", " + std::string(field.name) + "=" + std::to_string(number);
  }
  out_ += "}";
}

void Dumper::dump_attribute(const DvtAttribute& attribute, const std::byte* at) {
  const DvtDType dtype = attribute.kind == 'i' ? DVT_I64 : DVT_F64;
  if (attribute.count == 1) {
    out_ += element_to_text(dtype, at);
    return;
  }
  // Zeros at the end of an array go without saying.
  uint32_t count = attribute.count;
  constexpr std::byte kZero[8] = {};
  while (count > 0 && std::memcmp(at + 8 * (count - 1), kZero, 8) == 0) --count;
  out_ += "[";
  for (uint32_t i = 0; i < count; ++i) {
    out_ += (i == 0 ? "" : ", ") + element_to_text(dtype, at + 8 * i);
  }
  out_ += "]";
}

// False, with nothing written, when the attributes do not describe the whole record.
bool Dumper::dump_named_attributes(const DvtKernel& kernel, std::span<const std::byte> record) {
  if (record.size() != kernel.attribute_bytes) return false;
  std::vector<std::byte> rest(record.begin(), record.end());
  for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
    const DvtAttribute& attribute = kernel.attributes[i];
    if (!in_range(attribute.offset, 8U * attribute.count, record.size())) return false;
    std::memset(rest.data() + attribute.offset, 0, 8U * attribute.count);
  }
  if (std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return false;
  }
  out_ += " {";
  for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
    const DvtAttribute& attribute = kernel.attributes[i];
    out_ += (i == 0 ? "" : ", ") + std::string(attribute.name) + "=";
    dump_attribute(attribute, record.data() + attribute.offset);
  }
  out_ += "}";
  return true;
}

void Dumper::dump_attributes(const Node& node) {
  const uint32_t computing = node.device_kernel != kNone ? node.device_kernel : node.kernel;
  const DvtKernel* kernel =
      computing < model_.kernels.size() ? kernels_.find(model_.kernels[computing].name) : nullptr;
  if (node.attributes.empty() && (kernel == nullptr || kernel->attribute_bytes == 0)) return;
  if (kernel != nullptr && dump_named_attributes(*kernel, node.attributes)) return;
  out_ += " {hex " + bytes_to_hex(node.attributes) + "}";
}

}  // namespace

std::string dump_text(const ImageModel& model, std::span<const DvtKernelTable> tables,
                      const DumpOptions& options) {
  return Dumper(model, tables, options).run();
}

}  // namespace davit::image
