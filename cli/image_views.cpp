#include "cli/image_views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/dtype.hpp"
#include "base/files.hpp"
#include "cli/model.hpp"
#include "cli/model_ports.hpp"
#include "cli/profile.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "exec/tensor_text.hpp"
#include "exec/weights.hpp"
#include "lowering/memory_plan/plan_svg.hpp"

namespace davit::cli {
namespace {

const char* kind_name(image::ValueKind kind) {
  switch (kind) {
    case image::ValueKind::kWord:
      return "word";
    case image::ValueKind::kPlanned:
      return "planned";
    case image::ValueKind::kConstant:
      return "constant";
    case image::ValueKind::kInput:
      return "input";
    case image::ValueKind::kOutput:
      return "output";
    case image::ValueKind::kDevice:
      return "device";
    case image::ValueKind::kHeap:
      return "heap";
  }
  return "?";
}

const char* role_name(image::GraphRole role) {
  switch (role) {
    case image::GraphRole::kInit:
      return "init";
    case image::GraphRole::kMain:
      return "main";
    case image::GraphRole::kDeInit:
      return "deinit";
    case image::GraphRole::kBody:
      return "body";
  }
  return "?";
}

std::string type_text(const image::Value& value) {
  if (!value.has_tensor) return "word";
  const DvtTensor& tensor = value.tensor;
  if ((tensor.flags & DVT_TENSOR_DYNAMIC) != 0) return exec::tensor_text(tensor);
  const std::span<const int64_t> dims(tensor.dims, size_t{tensor.rank});
  if (dims.empty()) return std::string(dtype_name(tensor.dtype));
  return format_dims(dims) + "x" + std::string(dtype_name(tensor.dtype));
}

// A value's name, or "%7".
std::string value_text(const image::ImageModel& model, uint32_t value) {
  const std::string& name = model.values[value].name;
  return name.empty() ? fmt::format("%{}", value) : name;
}

Json ids_json(const std::vector<uint32_t>& ids) {
  Json json = Json::array();
  for (const uint32_t id : ids) json.push_back(id == image::kNone ? Json(nullptr) : Json(id));
  return json;
}

Json port_json(const image::Port& port) {
  Json dims = Json::array();
  for (const image::DimRange& dim : port.dims) {
    dims.push_back({{"min", dim.min}, {"max", dim.max}, {"symbol", dim.symbol}});
  }
  return {{"name", port.name}, {"value", port.value}, {"dims", std::move(dims)}};
}

Json cost_json(const DvtTaskCost& cost) {
  return {{"kind", cost.kind},
          {"dtype", dtype_name(cost.dtype)},
          {"block_dim", cost.block_dim},
          {"batch", cost.batch},
          {"m", cost.m},
          {"n", cost.n},
          {"k", cost.k},
          {"vector_elements", cost.vector_elements},
          {"vector_passes_x100", cost.vector_passes_x100},
          {"read_bytes", cost.read_bytes},
          {"write_bytes", cost.write_bytes}};
}

Json node_json(const image::ImageModel& model, const image::Node& node) {
  Json json = {{"kernel", model.kernels[node.kernel].name},
               {"op", node.op},
               {"origin", node.origin},
               {"inputs", ids_json(node.inputs)},
               {"outputs", ids_json(node.outputs)},
               {"control_inputs", ids_json(node.control_inputs)},
               {"free_launches", ids_json(node.free_launches)},
               {"bodies", ids_json(node.bodies)},
               {"lane", lane_name(node.lane)},
               {"priority", node.priority},
               {"attribute_bytes", node.attributes.size()}};
  json["stream"] = node.stream == image::kNone ? Json(nullptr) : Json(node.stream);
  json["device_kernel"] = node.device_kernel == image::kNone
                              ? Json(nullptr)
                              : Json(model.kernels[node.device_kernel].name);
  json["cost"] = node.has_cost ? cost_json(node.cost) : Json(nullptr);
  return json;
}

// Calls `visit(part, node, nodes that it waits for)` for each position of a schedule.
template <class Visit>
void visit_schedule(const image::Schedule& schedule, const Visit& visit) {
  for (uint32_t part = 0; part + 1 < schedule.part_offsets.size(); ++part) {
    for (uint32_t at = schedule.part_offsets[part]; at < schedule.part_offsets[part + 1]; ++at) {
      std::vector<uint32_t> awaited;
      for (uint32_t i = schedule.wait_offsets[at]; i < schedule.wait_offsets[at + 1]; ++i) {
        awaited.push_back(schedule.nodes[schedule.waits[i]]);
      }
      visit(part, schedule.nodes[at], awaited);
    }
  }
}

// One list for each worker; null without a schedule.
Json schedule_json(const image::Schedule& schedule) {
  if (schedule.part_offsets.empty()) return nullptr;
  Json parts = Json::array();
  for (size_t i = 0; i + 1 < schedule.part_offsets.size(); ++i) parts.push_back(Json::array());
  visit_schedule(schedule, [&](uint32_t part, uint32_t node, const std::vector<uint32_t>& awaited) {
    parts[part].push_back({{"node", node}, {"after", awaited}});
  });
  return parts;
}

std::string dot_quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

void append_dot_graph(std::string& out, const image::ImageModel& model, size_t graph_index) {
  const image::Graph& graph = model.graphs[graph_index];
  out += fmt::format("  subgraph cluster_{} {{\n    label={};\n", graph_index,
                     dot_quote(role_name(graph.role)));
  std::map<uint32_t, uint32_t> writer;  // Value to node.
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const image::Node& node = graph.nodes[i];
    out +=
        fmt::format("    g{}n{} [label={}];\n", graph_index, i,
                    dot_quote(fmt::format("{} {}", model.kernels[node.kernel].name, node.origin)));
    for (const uint32_t value : node.outputs) {
      if (value != image::kNone) writer[value] = i;
    }
  }
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    for (const uint32_t value : graph.nodes[i].inputs) {
      const auto from = writer.find(value);
      if (from == writer.end() || from->second == i) continue;
      out += fmt::format("    g{}n{} -> g{}n{} [label={}];\n", graph_index, from->second,
                         graph_index, i, dot_quote(type_text(model.values[value])));
    }
    for (const uint32_t before : graph.nodes[i].control_inputs) {
      out += fmt::format("    g{}n{} -> g{}n{} [style=dashed];\n", graph_index, before, graph_index,
                         i);
    }
  }
  out += "  }\n";
}

// Of every value.
std::vector<NodeRange> live_ranges(const image::ImageModel& model) {
  std::vector<NodeRange> ranges(model.values.size());
  // Values of gears are in their bodies.
  const bool in_bodies = !image_gears(model).empty();
  for (const image::Graph& graph : model.graphs) {
    const bool shown =
        in_bodies ? graph.role == image::GraphRole::kBody : graph.role == image::GraphRole::kMain;
    if (!shown) continue;
    for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
      for (const auto* operands : {&graph.nodes[i].inputs, &graph.nodes[i].outputs}) {
        for (const uint32_t value : *operands) {
          if (value == image::kNone) continue;
          if (ranges[value].first == image::kNone) ranges[value].first = i;
          ranges[value].last = i;
        }
      }
    }
  }
  return ranges;
}

}  // namespace

std::vector<PlannedValue> planned_values(const image::ImageModel& model) {
  const std::vector<NodeRange> ranges = live_ranges(model);
  std::vector<PlannedValue> planned;
  for (uint32_t i = 0; i < model.values.size(); ++i) {
    const image::Value& value = model.values[i];
    if (value.kind != image::ValueKind::kPlanned) continue;
    planned.push_back({.id = i,
                       .name = value_text(model, i),
                       .offset = value.offset,
                       .bytes = value.has_tensor ? value.tensor.bytes : 8,
                       .nodes = ranges[i]});
  }
  std::stable_sort(
      planned.begin(), planned.end(),
      [](const PlannedValue& a, const PlannedValue& b) { return a.offset < b.offset; });
  return planned;
}

Result<image::ImageModel> read_image(const std::string& path) {
  set_stage("load");
  auto kind = model_kind(path);
  if (!kind.ok()) return std::move(kind.status());
  if (*kind == ModelKind::kImageText) {
    auto text = read_regular_file(path, DVT_STAGE_LOAD);
    if (!text.ok()) return std::move(text.status());
    return image::assemble_text(
        std::string_view(reinterpret_cast<const char*>(text->data()), text->size()),
        all_kernel_tables());
  }
  if (*kind == ModelKind::kOnnx) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .message = fmt::format("{} is a model, not an image", path),
                              .hint = "compile it first: davit compile; dump --io takes models"});
  }
  auto mapping = exec::map_file(path, /*prefault=*/false);
  if (!mapping.ok()) return std::move(mapping.status());
  return image::read_image_model(mapping->bytes(), exec::folder_of(path));
}

Json image_json(const image::ImageModel& model) {
  Json json = {{"schema", "davit.image"},
               {"schema_version", 1},
               {"target", model.target_name},
               {"arena_bytes", model.arena_bytes},
               {"arena_alignment", model.arena_alignment},
               {"lower_bound_bytes", model.lower_bound_bytes},
               {"constant_bytes", model.constants.size()},
               {"external_weights",
                model.external_constants ? Json(image::weights_file_name(model)) : Json(nullptr)},
               {"stream_count", model.stream_count},
               {"event_count", model.event_count},
               {"stream_priority", model.stream_priority}};
  json["provenance"] = {{"producer", model.provenance.producer},
                        {"source_digest", model.provenance.source_digest},
                        {"source_name", model.provenance.source_name},
                        {"options", model.provenance.options},
                        {"opsets", model.provenance.opsets}};
  json["inputs"] = Json::array();
  for (const image::Port& port : model.inputs) json["inputs"].push_back(port_json(port));
  json["outputs"] = Json::array();
  for (const image::Port& port : model.outputs) json["outputs"].push_back(port_json(port));
  json["kernels"] = Json::array();
  for (const image::KernelRef& kernel : model.kernels) {
    json["kernels"].push_back(
        {{"name", kernel.name}, {"abi_version", kernel.abi_version}, {"flags", kernel.flags}});
  }
  json["values"] = Json::array();
  for (const image::Value& value : model.values) {
    json["values"].push_back({{"name", value.name},
                              {"kind", kind_name(value.kind)},
                              {"type", type_text(value)},
                              {"bytes", value.has_tensor ? value.tensor.bytes : 8},
                              {"offset", value.offset}});
  }
  json["graphs"] = Json::array();
  for (const image::Graph& graph : model.graphs) {
    Json nodes = Json::array();
    for (const image::Node& node : graph.nodes) nodes.push_back(node_json(model, node));
    json["graphs"].push_back({{"role", role_name(graph.role)},
                              {"nodes", std::move(nodes)},
                              {"schedule", schedule_json(graph.schedule)}});
  }
  return json;
}

std::string dot_text(const image::ImageModel& model) {
  std::string out = "digraph davit {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (size_t i = 0; i < model.graphs.size(); ++i) append_dot_graph(out, model, i);
  return out + "}\n";
}

std::string memory_plan_text(const image::ImageModel& model) {
  const std::vector<PlannedValue> values = planned_values(model);
  Table table({{"value"},
               {"name", Table::Align::kLeft},
               {"type", Table::Align::kLeft},
               {"offset"},
               {"bytes"},
               {"first node"},
               {"last node"}});
  const auto node_text = [](uint32_t node) {
    return node == image::kNone ? std::string("-") : fmt::format("{}", node);
  };
  for (const PlannedValue& value : values) {
    table.add_row({fmt::format("{}", value.id), value.name, type_text(model.values[value.id]),
                   fmt::format("{}", value.offset), fmt::format("{}", value.bytes),
                   node_text(value.nodes.first), node_text(value.nodes.last)});
  }
  return fmt::format("Memory plan: arena {} bytes, alignment {}, lower bound {} bytes, {}\n{}",
                     model.arena_bytes, model.arena_alignment, model.lower_bound_bytes,
                     format_count(values.size(), "value"), table.to_text());
}

Json memory_plan_json(const image::ImageModel& model) {
  Json json = {{"schema", "davit.memory_plan"},
               {"schema_version", 1},
               {"arena_bytes", model.arena_bytes},
               {"arena_alignment", model.arena_alignment},
               {"lower_bound_bytes", model.lower_bound_bytes},
               {"values", Json::array()}};
  const auto node_json = [](uint32_t node) {
    return node == image::kNone ? Json(nullptr) : Json(node);
  };
  for (const PlannedValue& value : planned_values(model)) {
    json["values"].push_back({{"value", value.id},
                              {"name", model.values[value.id].name},
                              {"type", type_text(model.values[value.id])},
                              {"offset", value.offset},
                              {"bytes", value.bytes},
                              {"first_node", node_json(value.nodes.first)},
                              {"last_node", node_json(value.nodes.last)}});
  }
  return json;
}

std::string memory_plan_svg(const image::ImageModel& model) {
  const std::vector<PlannedValue> values = planned_values(model);
  const std::string title =
      fmt::format("{}: arena {}, {}", model.provenance.source_name, format_bytes(model.arena_bytes),
                  format_count(values.size(), "planned value"));
  lowering::PlanPicture picture{.title = title,
                                .arena_bytes = model.arena_bytes,
                                .lower_bound_bytes = model.lower_bound_bytes};
  for (const PlannedValue& value : values) {
    if (value.nodes.first == image::kNone) continue;  // Bodies alone touch it.
    picture.boxes.push_back({.name = value.name,
                             .lower = value.nodes.first,
                             .upper = uint64_t{value.nodes.last} + 1,
                             .offset = value.offset,
                             .size = value.bytes});
  }
  return lowering::plan_svg(picture);
}

std::string schedule_text(const image::ImageModel& model) {
  std::string out;
  for (const image::Graph& graph : model.graphs) {
    Table table({{"node"},
                 {"lane", Table::Align::kLeft},
                 {"priority"},
                 {"stream"},
                 {"kernel", Table::Align::kLeft},
                 {"operator", Table::Align::kLeft},
                 {"origin", Table::Align::kLeft},
                 {"after", Table::Align::kLeft},
                 {"worker"},
                 {"waits for", Table::Align::kLeft}});
    std::vector<std::pair<std::string, std::string>> places(graph.nodes.size(), {"-", ""});
    visit_schedule(
        graph.schedule, [&](uint32_t part, uint32_t node, const std::vector<uint32_t>& awaited) {
          places[node] = {fmt::format("{}", part), fmt::format("{}", fmt::join(awaited, " "))};
        });
    for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
      const image::Node& node = graph.nodes[i];
      const std::string kernel = node.device_kernel == image::kNone
                                     ? model.kernels[node.kernel].name
                                     : fmt::format("{} {}", model.kernels[node.kernel].name,
                                                   model.kernels[node.device_kernel].name);
      table.add_row({fmt::format("{}", i), lane_name(node.lane), fmt::format("{}", node.priority),
                     node.stream == image::kNone ? "-" : fmt::format("{}", node.stream), kernel,
                     node.op, node.origin, fmt::format("{}", fmt::join(node.control_inputs, " ")),
                     places[i].first, places[i].second});
    }
    out += fmt::format("Schedule of {}: {} in stored order (after: control inputs)\n{}",
                       role_name(graph.role), format_count(graph.nodes.size(), "node"),
                       table.to_text());
  }
  return out;
}

}  // namespace davit::cli
