// write_image.cpp: an ImageModel as bytes (schema/layout.h, schema/image.fbs).
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "exec/verify.hpp"
#include "exec/weights.hpp"
#include "image_generated.h"
#include "lowering/image/edges.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::image {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Vector;

// Distinct items in the order of their first use.
template <class Item>
class Interner {
 public:
  uint32_t intern(const Item& item) {
    const auto [at, added] = index_.try_emplace(key_of(item), static_cast<uint32_t>(items_.size()));
    if (added) items_.push_back(item);
    return at->second;
  }
  [[nodiscard]] const std::vector<Item>& items() const { return items_; }

 private:
  static std::string key_of(const std::string& item) { return item; }
  template <class Plain>
  static std::string key_of(const Plain& item) {
    static_assert(std::has_unique_object_representations_v<Plain>, "compared byte by byte");
    return {reinterpret_cast<const char*>(&item), sizeof item};
  }

  std::vector<Item> items_;
  std::unordered_map<std::string, uint32_t> index_;
};

// Successors and indegrees of one graph in the form of the file.
struct Successors {
  std::vector<uint32_t> offsets, nodes, indegree;
};

class Writer {
 public:
  explicit Writer(const ImageModel& model) : model_(model), data_edges_(find_data_edges(model)) {}

  // The metadata segment.
  Result<std::vector<std::byte>> metadata();

 private:
  uint32_t text(const std::string& string) {
    return string.empty() ? kNone : strings_.intern(string);
  }
  Status check_size() const;
  Result<Successors> successors(uint32_t graph) const;
  Offset<Vector<Offset<schema::Port>>> ports(const std::vector<Port>& ports);
  Offset<schema::Values> values();
  Result<Offset<schema::Graph>> graph(uint32_t index);
  Offset<Vector<Offset<schema::Kernel>>> kernels();
  Offset<schema::Provenance> provenance();
  Offset<Vector<uint8_t>> attributes(const std::vector<uint8_t>& bytes);

  // A column of the nodes; left out when all entries equal `usual`.
  template <class T, class Get>
  Offset<Vector<T>> optional_column(const std::vector<Node>& nodes, T usual, Get get) {
    std::vector<T> column;
    column.reserve(nodes.size());
    for (const Node& node : nodes) column.push_back(get(node));
    const bool all_usual =
        std::all_of(column.begin(), column.end(), [&](const T& entry) { return entry == usual; });
    return all_usual ? Offset<Vector<T>>() : builder_.CreateVector(column);
  }

  // CSR rows of the nodes; both left out when every row is empty.
  template <class T, class Get>
  void rows(const std::vector<Node>& nodes, std::vector<uint32_t>& offsets, std::vector<T>& data,
            Get get) {
    offsets.assign(1, 0);
    data.clear();
    for (const Node& node : nodes) {
      const auto& row = get(node);
      for (const auto& entry : row) data.push_back(static_cast<T>(entry));
      offsets.push_back(static_cast<uint32_t>(data.size()));
    }
  }
  Offset<Vector<uint32_t>> optional_vector(const std::vector<uint32_t>& entries, bool present) {
    return present ? builder_.CreateVector(entries) : Offset<Vector<uint32_t>>();
  }

  const ImageModel& model_;
  std::vector<Edges> data_edges_;
  FlatBufferBuilder builder_{1 << 16};
  Interner<std::string> strings_;
  Interner<DvtTensor> descs_;
  Interner<DvtTaskCost> costs_;
};

// The builder cannot report that a buffer grows beyond 2 GB, so estimate from above before.
Status Writer::check_size() const {
  uint64_t bytes = 4096;
  const auto add_text = [&](const std::string& string) { bytes += string.size() + 16; };
  for (const Value& value : model_.values) {
    bytes += 24 + sizeof(DvtTensor);
    add_text(value.name);
  }
  for (const Graph& graph : model_.graphs) {
    for (const Node& node : graph.nodes) {
      bytes += 80 + sizeof(DvtTaskCost) + node.attributes.size();
      bytes += 4 * (2 * node.inputs.size() + 2 * node.outputs.size() + node.control_inputs.size() +
                    node.free_launches.size() + node.bodies.size());
      add_text(node.origin);
      add_text(node.op);
    }
    const Schedule& schedule = graph.schedule;
    bytes += 4 * (schedule.part_offsets.size() + schedule.nodes.size() +
                  schedule.wait_offsets.size() + schedule.waits.size());
  }
  if (bytes < FLATBUFFERS_MAX_BUFFER_SIZE) return {};
  return {DVT_UNSUPPORTED, DVT_STAGE_WRITE, "the image's metadata would exceed 2 GB"};
}

Result<Successors> Writer::successors(uint32_t graph) const {
  const std::vector<Node>& nodes = model_.graphs[graph].nodes;
  const auto count = static_cast<uint32_t>(nodes.size());
  Edges edges = data_edges_[graph];
  for (uint32_t i = 0; i < count; ++i) {
    for (const uint32_t before : nodes[i].control_inputs) {
      if (before >= i) {
        return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_WRITE,
                      "graphs[" + std::to_string(graph) + "] node " + std::to_string(i) +
                          ": control input " + std::to_string(before) + " is not an earlier node");
      }
      edges.emplace_back(before, i);
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  Successors out{.offsets = std::vector<uint32_t>(count + 1, 0),
                 .indegree = std::vector<uint32_t>(count, 0)};
  out.nodes.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    ++out.offsets[from + 1];
    ++out.indegree[to];
    out.nodes.push_back(to);
  }
  for (uint32_t i = 0; i < count; ++i) out.offsets[i + 1] += out.offsets[i];
  return out;
}

Offset<Vector<Offset<schema::Port>>> Writer::ports(const std::vector<Port>& ports) {
  std::vector<Offset<schema::Port>> tables;
  tables.reserve(ports.size());
  for (const Port& port : ports) {
    std::vector<schema::DimRange> dims;
    dims.reserve(DVT_MAX_RANK);
    for (const DimRange& dim : port.dims) dims.emplace_back(dim.min, dim.max, text(dim.symbol), 0);
    if (dims.empty() && port.value < model_.values.size()) {
      const DvtTensor& tensor = model_.values[port.value].tensor;
      const uint32_t rank = tensor.rank == DVT_RANK_UNKNOWN ? 0 : tensor.rank;
      for (uint32_t d = 0; d < std::min<uint32_t>(rank, DVT_MAX_RANK); ++d) {
        const bool open = tensor.dims[d] < 0;
        dims.emplace_back(open ? 0 : tensor.dims[d], open ? INT64_MAX : tensor.dims[d], kNone, 0);
      }
    }
    // An empty name is for the verifier to refuse, so it is written like any other.
    const uint32_t name = strings_.intern(port.name);
    const auto dims_vector = builder_.CreateVectorOfStructs(dims);
    tables.push_back(schema::CreatePort(builder_, name, port.value, dims_vector));
  }
  return builder_.CreateVector(tables);
}

Offset<schema::Values> Writer::values() {
  std::vector<uint8_t> kind;
  std::vector<uint32_t> desc, name;
  std::vector<uint64_t> offset;
  const size_t count = model_.values.size();
  kind.reserve(count);
  desc.reserve(count);
  name.reserve(count);
  offset.reserve(count);
  bool named = false;
  for (const Value& value : model_.values) {
    kind.push_back(static_cast<uint8_t>(value.kind));
    desc.push_back(value.has_tensor ? descs_.intern(value.tensor) : kNone);
    offset.push_back(value.offset);
    name.push_back(text(value.name));
    named = named || !value.name.empty();
  }
  const auto kind_vector = builder_.CreateVector(kind);
  const auto desc_vector = builder_.CreateVector(desc);
  const auto offset_vector = builder_.CreateVector(offset);
  const auto name_vector = optional_vector(name, named);
  return schema::CreateValues(builder_, kind_vector, desc_vector, offset_vector, name_vector);
}

Offset<Vector<uint8_t>> Writer::attributes(const std::vector<uint8_t>& bytes) {
  if (bytes.empty()) return {};
  builder_.ForceVectorAlignment(bytes.size(), 1, 8);
  return builder_.CreateVector(bytes);
}

Result<Offset<schema::Graph>> Writer::graph(uint32_t index) {
  const std::vector<Node>& nodes = model_.graphs[index].nodes;
  Result<Successors> succ = successors(index);
  if (!succ.ok()) return std::move(succ.status());

  std::vector<uint32_t> kernel, offsets, data;
  std::vector<uint8_t> lane, record_bytes;
  kernel.reserve(nodes.size());
  lane.reserve(nodes.size());
  for (const Node& node : nodes) {
    kernel.push_back(node.kernel);
    lane.push_back(node.lane);
  }
  // Vectors before the table: a flatbuffer is built inside out.
  const auto origin =
      optional_column<uint32_t>(nodes, kNone, [&](const Node& n) { return text(n.origin); });
  const auto op =
      optional_column<uint32_t>(nodes, kNone, [&](const Node& n) { return text(n.op); });
  const auto priority =
      optional_column<int32_t>(nodes, 0, [](const Node& n) { return n.priority; });
  const auto stream =
      optional_column<uint32_t>(nodes, kNone, [](const Node& n) { return n.stream; });
  const auto device_kernel =
      optional_column<uint32_t>(nodes, kNone, [](const Node& n) { return n.device_kernel; });
  const auto cost = optional_column<uint32_t>(
      nodes, kNone, [&](const Node& n) { return n.has_cost ? costs_.intern(n.cost) : kNone; });
  const auto kernel_vector = builder_.CreateVector(kernel);
  rows(
      nodes, offsets, data, [](const Node& n) -> auto& { return n.inputs; });
  const auto inputs_off = builder_.CreateVector(offsets);
  const auto inputs = builder_.CreateVector(data);
  rows(
      nodes, offsets, data, [](const Node& n) -> auto& { return n.outputs; });
  const auto outputs_off = builder_.CreateVector(offsets);
  const auto outputs = builder_.CreateVector(data);
  rows(
      nodes, offsets, record_bytes, [](const Node& n) -> auto& { return n.attributes; });
  const auto attributes_off = optional_vector(offsets, !record_bytes.empty());
  const auto records = attributes(record_bytes);
  rows(
      nodes, offsets, data, [](const Node& n) -> auto& { return n.free_launches; });
  const auto free_off = optional_vector(offsets, !data.empty());
  const auto free_launch = optional_vector(data, !data.empty());
  rows(
      nodes, offsets, data, [](const Node& n) -> auto& { return n.bodies; });
  const auto branch_off = optional_vector(offsets, !data.empty());
  const auto branch_graph = optional_vector(data, !data.empty());
  const auto succ_off = builder_.CreateVector(succ->offsets);
  const auto succ_vector = builder_.CreateVector(succ->nodes);
  const auto indegree = builder_.CreateVector(succ->indegree);
  const auto lane_vector = builder_.CreateVector(lane);
  const Schedule& schedule = model_.graphs[index].schedule;
  const bool scheduled = !schedule.part_offsets.empty();
  const auto part_off = optional_vector(schedule.part_offsets, scheduled);
  const auto part_nodes = optional_vector(schedule.nodes, scheduled);
  const auto wait_off = optional_vector(schedule.wait_offsets, scheduled);
  const auto waits = optional_vector(schedule.waits, scheduled);
  return schema::CreateGraph(
      builder_, static_cast<uint8_t>(model_.graphs[index].role), kernel_vector, inputs_off, inputs,
      outputs_off, outputs, succ_off, succ_vector, indegree, lane_vector, priority, stream, origin,
      op, attributes_off, records, device_kernel, cost, free_off, free_launch, branch_off,
      branch_graph, model_.graphs[index].shape_nodes, part_off, part_nodes, wait_off, waits);
}

Offset<Vector<Offset<schema::Kernel>>> Writer::kernels() {
  std::vector<Offset<schema::Kernel>> tables;
  tables.reserve(model_.kernels.size());
  for (const KernelRef& kernel : model_.kernels) {
    const auto name = builder_.CreateString(kernel.name);
    tables.push_back(schema::CreateKernel(builder_, name, kernel.abi_version, kernel.flags));
  }
  return builder_.CreateVector(tables);
}

Offset<schema::Provenance> Writer::provenance() {
  const Provenance& p = model_.provenance;
  const auto string = [&](const std::string& s) {
    return s.empty() ? Offset<flatbuffers::String>() : builder_.CreateString(s);
  };
  const auto producer = string(p.producer);
  const auto source_digest = string(p.source_digest);
  const auto source_name = string(p.source_name);
  const auto options = string(p.options);
  const auto opsets = string(p.opsets);
  return schema::CreateProvenance(builder_, producer, source_digest, source_name, options, opsets);
}

// The same bytes as structs of the schema (the verifier asserts that the layouts are equal).
template <class Struct, class Plain>
std::vector<Struct> as_structs(const std::vector<Plain>& items) {
  static_assert(sizeof(Struct) == sizeof(Plain));
  std::vector<Struct> structs(items.size());
  if (!items.empty())
    std::memcpy(static_cast<void*>(structs.data()), items.data(), items.size() * sizeof(Plain));
  return structs;
}

Result<std::vector<std::byte>> Writer::metadata() {
  if (Status s = check_size(); !s.ok()) return s;
  const auto target = builder_.CreateString(model_.target_name);
  const auto inputs = ports(model_.inputs);
  const auto outputs = ports(model_.outputs);
  const auto kernel_tables = kernels();
  const auto value_table = values();
  std::vector<Offset<schema::Graph>> graph_tables;
  graph_tables.reserve(model_.graphs.size());
  for (uint32_t i = 0; i < model_.graphs.size(); ++i) {
    auto table = graph(i);
    if (!table.ok()) return std::move(table.status());
    graph_tables.push_back(*table);
  }
  const auto graphs = builder_.CreateVector(graph_tables);
  const auto descs = builder_.CreateVectorOfStructs(as_structs<schema::TensorDesc>(descs_.items()));
  const auto costs = builder_.CreateVectorOfStructs(as_structs<schema::TaskCost>(costs_.items()));
  const auto memory = schema::CreateMemoryPlan(builder_, model_.arena_bytes, model_.arena_alignment,
                                               model_.lower_bound_bytes);
  const auto stream_priority = builder_.CreateVector(model_.stream_priority);
  const auto streams =
      schema::CreateStreamPlan(builder_, model_.stream_count, model_.event_count, stream_priority);
  const auto strings = builder_.CreateVectorOfStrings(strings_.items());
  const auto origin = provenance();
  schema::FinishImageBuffer(
      builder_, schema::CreateImage(builder_, target, inputs, outputs, kernel_tables, descs,
                                    value_table, graphs, costs, memory, streams, strings, origin));
  const auto* data = reinterpret_cast<const std::byte*>(builder_.GetBufferPointer());
  return std::vector<std::byte>(data, data + builder_.GetSize());
}

void set_digest(std::span<const std::byte> bytes, uint8_t (&digest)[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::memcpy(digest, canonical.digest, sizeof digest);
}

constexpr size_t round_up(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

struct Content {
  DvtSegmentKind kind;
  std::span<const std::byte> bytes;
  bool external = false;  // In a file of its own.
};

// Empty segments but the first are left out.
std::vector<std::byte> join_segments(DvtTarget target, std::span<const Content> contents) {
  std::vector<DvtSegment> segments;
  std::vector<std::span<const std::byte>> bytes_of;
  for (const Content& content : contents) {
    if (content.bytes.empty() && !segments.empty()) continue;
    segments.push_back({.kind = uint32_t(content.kind),
                        .flags = content.external ? uint32_t{DVT_SEGMENT_EXTERNAL} : 0,
                        .size = content.bytes.size()});
    set_digest(content.bytes, segments.back().digest);
    bytes_of.push_back(content.external ? std::span<const std::byte>() : content.bytes);
  }
  DvtImageHeader header{.magic = DVT_IMAGE_MAGIC,
                        .version_major = DVT_IMAGE_VERSION_MAJOR,
                        .version_minor = DVT_IMAGE_VERSION_MINOR,
                        .target = target,
                        .runtime_version_min = 0 << 16 | 1,  // 0.1 reads format 1.3.
                        .segment_count = uint32_t(segments.size())};
  const size_t table_bytes = segments.size() * sizeof(DvtSegment);
  uint64_t end = sizeof header + table_bytes;
  for (DvtSegment& segment : segments) {
    if (segment.flags == DVT_SEGMENT_EXTERNAL) continue;
    segment.offset = round_up(end, segment.kind == DVT_SEGMENT_METADATA ? 64 : DVT_IMAGE_PAGE);
    end = segment.offset + segment.size;
  }
  header.file_size = end;
  std::vector<std::byte> bytes(header.file_size);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, segments.data(), table_bytes);
  set_digest(std::span(bytes).first(sizeof header + table_bytes), header.digest);
  std::memcpy(bytes.data(), &header, sizeof header);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (bytes_of[i].empty()) continue;
    std::memcpy(bytes.data() + segments[i].offset, bytes_of[i].data(), bytes_of[i].size());
  }
  return bytes;
}

// The compiler knows its kernels without loading them, which this processor might refuse.
bool has_generated(std::span<const DvtKernelTable> tables) {
  return std::any_of(tables.begin(), tables.end(), [](const DvtKernelTable& table) {
    return table.count > 0 &&
           std::string_view(table.kernels[0].name).starts_with(DVT_GENERATED_PREFIX);
  });
}

}  // namespace

Result<std::vector<std::byte>> write_image(const ImageModel& model,
                                           std::span<const DvtKernelTable> tables) {
  Result<std::vector<std::byte>> metadata = Writer(model).metadata();
  if (!metadata.ok()) return metadata;
  const Content contents[] = {{DVT_SEGMENT_METADATA, *metadata},
                              {DVT_SEGMENT_CODE, model.code},
                              {DVT_SEGMENT_CONSTANTS, model.constants, model.external_constants}};
  std::vector<std::byte> bytes = join_segments(model.target, contents);
  // The digests are our own work of a moment ago.
  const exec::OpenOptions options{
      .skip_digests = true,
      .code = has_generated(tables) ? exec::CodeUse::kIgnore : exec::CodeUse::kLoad,
      .kernel_tables = tables,
      .weights = model.constants};
  if (auto image = exec::open_image_memory(bytes, options); !image.ok()) {
    return std::move(image.status());
  }
  return bytes;
}

std::string weights_file_name(const ImageModel& model) {
  return exec::weights_file_name(std::span<const std::byte>(model.constants));
}

uint32_t intern_kernel(ImageModel& model, const DvtKernel& kernel) {
  for (uint32_t i = 0; i < model.kernels.size(); ++i) {
    if (model.kernels[i].name == kernel.name) return i;
  }
  model.kernels.push_back({kernel.name, kernel.abi_version, kernel.flags});
  return static_cast<uint32_t>(model.kernels.size() - 1);
}

}  // namespace davit::image
