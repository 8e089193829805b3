// Stage 2 of the verifier, second half: the columns of the graphs have the right lengths.
#include "exec/verify_columns.hpp"

#include <string>

namespace davit::exec::verify {
namespace {

constexpr uint32_t kEmptyRows[1] = {0};  // The offsets of a graph without nodes.
// Bounds what a crafted file that repeats one empty graph can make us allocate.
constexpr uint32_t kGraphsMax = 65536;

// Reads the columns of one graph and adds up their bytes.
class GraphReader {
 public:
  GraphReader(uint32_t index, GraphView& graph)
      : prefix_("graphs[" + std::to_string(index) + "]."), graph_(graph) {}

  Status read(const schema::Graph& table);
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  std::string path(const char* column) const { return prefix_ + column; }

  template <class T>
  Status read_any(const flatbuffers::Vector<T>* vector, const char* name, Column<T>& out) {
    Status status = read_column(vector, path(name).c_str(), out);
    bytes_ += uint64_t{out.size} * sizeof(T);
    return status;
  }
  // [n] entries.
  template <class T>
  Status read_required(const flatbuffers::Vector<T>* vector, const char* name, const T*& out) {
    Column<T> column;
    if (Status s = read_any(vector, name, column); !s.ok()) return s;
    out = column.data;
    return require_size(path(name).c_str(), column.size, graph_.node_count);
  }
  // [n] entries, or none.
  template <class T>
  Status read_optional(const flatbuffers::Vector<T>* vector, const char* name, const T*& out) {
    if (vector == nullptr || vector->size() == 0) return {};
    return read_required(vector, name, out);
  }
  Status read_rows(const flatbuffers::Vector<uint32_t>* offsets, const char* offsets_name,
                   uint32_t data_size, const uint32_t*& out);
  template <class T>
  Status read_optional_rows(const flatbuffers::Vector<uint32_t>* offsets, const char* offsets_name,
                            const flatbuffers::Vector<T>* data, const char* data_name,
                            const uint32_t*& offsets_out, const T*& data_out);
  Status read_operands(const schema::Graph& table);
  Status read_optional_columns(const schema::Graph& table);
  Status read_schedule(const schema::Graph& table);

  std::string prefix_;
  GraphView& graph_;
  uint64_t bytes_ = 0;
};

// A CSR offset column: n + 1 entries, first 0, monotone, last = data_size.
Status GraphReader::read_rows(const flatbuffers::Vector<uint32_t>* offsets,
                              const char* offsets_name, uint32_t data_size, const uint32_t*& out) {
  const uint32_t n = graph_.node_count;
  Column<uint32_t> column;
  if (Status s = read_any(offsets, offsets_name, column); !s.ok()) return s;
  if (n == 0 && column.size == 0) column = {kEmptyRows, 1};
  const std::string name = path(offsets_name);
  if (Status s = require_size(name.c_str(), column.size, n + 1); !s.ok()) return s;
  if (column.data[0] != 0) return broken("%s[0]: the first offset must be 0", name.c_str());
  for (uint32_t i = 0; i < n; ++i) {
    if (column.data[i + 1] < column.data[i]) {
      return broken("%s[%u]: offsets must not decrease", name.c_str(), i + 1);
    }
  }
  if (column.data[n] != data_size) {
    return broken("%s[%u]: the last offset must be %u, the length of the data", name.c_str(), n,
                  data_size);
  }
  out = column.data;
  return {};
}

template <class T>
Status GraphReader::read_optional_rows(const flatbuffers::Vector<uint32_t>* offsets,
                                       const char* offsets_name, const flatbuffers::Vector<T>* data,
                                       const char* data_name, const uint32_t*& offsets_out,
                                       const T*& data_out) {
  Column<T> column;
  if (Status s = read_any(data, data_name, column); !s.ok()) return s;
  const bool no_offsets = offsets == nullptr || offsets->size() == 0;
  if (no_offsets && column.size == 0) return {};
  data_out = column.data;
  return read_rows(offsets, offsets_name, column.size, offsets_out);
}

Status GraphReader::read_operands(const schema::Graph& table) {
  Column<uint32_t> inputs, outputs, succ;
  if (Status s = read_any(table.inputs(), "inputs", inputs); !s.ok()) return s;
  if (Status s = read_any(table.outputs(), "outputs", outputs); !s.ok()) return s;
  if (Status s = read_any(table.succ(), "succ", succ); !s.ok()) return s;
  if (Status s = read_rows(table.inputs_off(), "inputs_off", inputs.size, graph_.inputs_off);
      !s.ok()) {
    return s;
  }
  if (Status s = read_rows(table.outputs_off(), "outputs_off", outputs.size, graph_.outputs_off);
      !s.ok()) {
    return s;
  }
  if (Status s = read_rows(table.succ_off(), "succ_off", succ.size, graph_.succ_off); !s.ok()) {
    return s;
  }
  graph_.inputs = inputs.data;
  graph_.outputs = outputs.data;
  graph_.succ = succ.data;
  graph_.edge_count = succ.size;
  graph_.operand_count = inputs.size + outputs.size;  // Each is below 2^29: a flatbuffer is < 2 GB.
  if (Status s = read_required(table.indegree(), "indegree", graph_.indegree); !s.ok()) return s;
  return read_required(table.lane(), "lane", graph_.lane);
}

Status GraphReader::read_optional_columns(const schema::Graph& table) {
  GraphView& g = graph_;
  if (Status s = read_optional(table.priority(), "priority", g.priority_column); !s.ok()) return s;
  if (Status s = read_optional(table.stream(), "stream", g.stream_column); !s.ok()) return s;
  if (Status s = read_optional(table.origin(), "origin", g.origin_column); !s.ok()) return s;
  if (Status s = read_optional(table.op(), "op", g.op_column); !s.ok()) return s;
  if (Status s = read_optional(table.device_kernel(), "device_kernel", g.device_kernel_column);
      !s.ok()) {
    return s;
  }
  if (Status s = read_optional(table.cost(), "cost", g.cost_column); !s.ok()) return s;
  const uint8_t* attributes = nullptr;
  if (Status s = read_optional_rows(table.attributes_off(), "attributes_off", table.attributes(),
                                    "attributes", g.attributes_off, attributes);
      !s.ok()) {
    return s;
  }
  // Records hold int64 and double; force_align in the schema binds writers only.
  if (reinterpret_cast<uintptr_t>(attributes) % 8 != 0) {
    return broken("%s: must be aligned to 8 bytes", path("attributes").c_str());
  }
  g.attributes = reinterpret_cast<const std::byte*>(attributes);
  if (Status s = read_optional_rows(table.free_off(), "free_off", table.free_launch(),
                                    "free_launch", g.free_off, g.free_launch);
      !s.ok()) {
    return s;
  }
  return read_optional_rows(table.branch_off(), "branch_off", table.branch_graph(), "branch_graph",
                            g.branch_off, g.branch_graph);
}

// Lengths and the offsets of waits; all else is check_schedules().
Status GraphReader::read_schedule(const schema::Graph& table) {
  Column<uint32_t> parts, nodes, waits;
  if (Status s = read_any(table.part_off(), "part_off", parts); !s.ok()) return s;
  if (Status s = read_any(table.part_nodes(), "part_nodes", nodes); !s.ok()) return s;
  if (Status s = read_any(table.waits(), "waits", waits); !s.ok()) return s;
  if (parts.size == 0) {
    const bool offsets = table.wait_off() != nullptr && table.wait_off()->size() != 0;
    if (nodes.size == 0 && waits.size == 0 && !offsets) return {};
    return broken("%s: a schedule without parts", path("part_off").c_str());
  }
  if (graph_.role != GraphRole::kMain) {
    return broken("%s: only Main has a schedule", path("part_off").c_str());
  }
  if (Status s = require_size(path("part_nodes").c_str(), nodes.size, graph_.node_count); !s.ok()) {
    return s;
  }
  if (Status s = read_rows(table.wait_off(), "wait_off", waits.size, graph_.wait_off); !s.ok()) {
    return s;
  }
  graph_.part_count = parts.size - 1;
  graph_.part_off = parts.data;
  graph_.part_nodes = nodes.data;
  graph_.waits = waits.data;
  if (graph_.part_count != 0) return {};
  return broken("%s: a schedule without parts", path("part_off").c_str());
}

Status GraphReader::read(const schema::Graph& table) {
  if (table.role() > static_cast<uint8_t>(GraphRole::kBody)) {
    return broken("%s: %u is unknown", path("role").c_str(), table.role());
  }
  graph_.role = static_cast<GraphRole>(table.role());
  Column<uint32_t> kernel;
  if (Status s = read_any(table.kernel(), "kernel", kernel); !s.ok()) return s;
  graph_.kernel = kernel.data;
  graph_.node_count = kernel.size;
  if (Status s = read_operands(table); !s.ok()) return s;
  graph_.shape_nodes = table.shape_nodes();
  if (graph_.shape_nodes > graph_.node_count ||
      (graph_.shape_nodes != 0 && graph_.role != GraphRole::kMain)) {
    return broken("%s: %u, but there are %u nodes, and only Main has any",
                  path("shape_nodes").c_str(), graph_.shape_nodes, graph_.node_count);
  }
  if (Status s = read_schedule(table); !s.ok()) return s;
  return read_optional_columns(table);
}

Status assign_role(uint32_t index, ImageView& view) {
  uint32_t* slot = nullptr;
  const char* name = "";
  switch (view.graphs[index].role) {
    case GraphRole::kInit:
      slot = &view.init;
      name = "Init";
      break;
    case GraphRole::kMain:
      slot = &view.main;
      name = "Main";
      break;
    case GraphRole::kDeInit:
      slot = &view.deinit;
      name = "DeInit";
      break;
    case GraphRole::kBody:
      return {};
  }
  if (*slot != kNone) {
    return broken("graphs[%u].role: a second %s graph; graphs[%u] is the first", index, name,
                  *slot);
  }
  *slot = index;
  return {};
}

}  // namespace

Status read_graphs(const schema::Image& root, size_t metadata_bytes, ImageView& view) {
  const auto* table = root.graphs();
  const uint32_t count = table == nullptr ? 0 : table->size();
  if (count > kGraphsMax) return broken("graphs: %u entries, more than %u", count, kGraphsMax);
  view.graphs.resize(count);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    GraphReader reader(i, view.graphs[i]);
    if (Status s = reader.read(*table->Get(i)); !s.ok()) return s;
    // Else a small file could repeat one large graph, and checking it would take for ever.
    bytes += reader.bytes();
    if (bytes > metadata_bytes) {
      return broken("graphs[%u]: shares columns: the graphs claim more bytes than the metadata", i);
    }
    if (Status s = assign_role(i, view); !s.ok()) return s;
  }
  if (view.main == kNone) return broken("graphs: there is no Main graph");
  return {};
}

}  // namespace davit::exec::verify
