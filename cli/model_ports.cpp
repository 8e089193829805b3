#include "cli/model_ports.hpp"

#include <fmt/format.h>

#include "base/dtype.hpp"
#include "cli/numbers.hpp"
#include "cli/table.hpp"
#include "exec/dynamic.h"
#include "ir/onnx/import.hpp"

namespace davit::cli {
namespace {

std::string type_name(DvtDType dtype) {
  return dtype == DVT_DTYPE_NONE ? "any type" : std::string(dtype_name(dtype));
}

ModelPort port_of(const ir::Module& module, ir::ValueId value, bool is_output) {
  ModelPort port{.is_output = is_output,
                 .name = std::string(module.value_name(value)),
                 .type = type_name(module.dtype(value)),
                 .is_rank_known = true,
                 .dims = {}};
  const ir::Shape* shape = module.shape(value);
  if (const ir::ContainerType* container = module.container(value)) {
    port.type = type_name(container->dtype);
    if (container->is_sequence) port.type = "sequence of " + port.type;
    if (container->is_optional) port.type = "optional " + port.type;
    shape = container->shape ? &*container->shape : nullptr;
  }
  port.is_rank_known = shape != nullptr;
  if (shape == nullptr) return port;
  for (const ir::Dim dim : *shape) {
    port.dims.push_back(dim.is_known()    ? std::to_string(dim.extent())
                        : dim.is_symbol() ? std::string(module.symbol_name(dim.symbol_id()))
                                          : "?");
  }
  return port;
}

ModelPort port_of(const image::ImageModel& model, const image::Port& port, bool is_output) {
  const DvtTensor& tensor = model.values[port.value].tensor;
  ModelPort out{.is_output = is_output,
                .name = port.name,
                .type = type_name(tensor.dtype),
                .is_rank_known = tensor.rank != DVT_RANK_UNKNOWN,
                .dims = {}};
  for (uint32_t i = 0; out.is_rank_known && i < tensor.rank; ++i) {
    const bool has_symbol = i < port.dims.size() && !port.dims[i].symbol.empty();
    const bool is_known =
        i < port.dims.size() ? port.dims[i].min == port.dims[i].max : tensor.dims[i] >= 0;
    const int64_t extent = i < port.dims.size() ? port.dims[i].max : tensor.dims[i];
    out.dims.push_back(is_known ? std::to_string(extent) : has_symbol ? port.dims[i].symbol : "?");
  }
  return out;
}

}  // namespace

std::string ModelPort::shape_text() const {
  if (!is_rank_known) return "any shape";
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Result<std::vector<ModelPort>> read_model_ports(const std::string& path) {
  auto module = onnx_import::import_onnx_file(path);
  if (!module.ok()) return std::move(module.status());
  std::vector<ModelPort> ports;
  for (const ir::ValueId value : module->graph_inputs(ir::kMainGraph)) {
    ports.push_back(port_of(*module, value, /*is_output=*/false));
  }
  for (const ir::ValueId value : module->graph_outputs(ir::kMainGraph)) {
    ports.push_back(port_of(*module, value, /*is_output=*/true));
  }
  return ports;
}

std::vector<ModelPort> image_ports(const image::ImageModel& model) {
  std::vector<ModelPort> ports;
  for (const image::Port& port : model.inputs) {
    ports.push_back(port_of(model, port, /*is_output=*/false));
  }
  for (const image::Port& port : model.outputs) {
    ports.push_back(port_of(model, port, /*is_output=*/true));
  }
  return ports;
}

std::vector<std::string> image_gears(const image::ImageModel& model) {
  std::vector<std::string> gears;
  for (const image::Graph& graph : model.graphs) {
    if (graph.role != image::GraphRole::kMain || graph.nodes.size() != 1) continue;
    const image::Node& node = graph.nodes.front();
    if (dvt_host_node_named(model.kernels[node.kernel].name.c_str()) != DVT_HOST_SELECT_GEAR) {
      continue;
    }
    for (size_t at = model.inputs.size(); at < node.inputs.size(); at += model.inputs.size()) {
      std::string text;
      for (size_t i = 0; i < model.inputs.size(); ++i) {
        const DvtTensor& tensor = model.values[node.inputs[at + i]].tensor;
        text += fmt::format("{}{}:{}", i == 0 ? "" : ",", model.inputs[i].name,
                            fmt::join(tensor.dims, tensor.dims + tensor.rank, "x"));
      }
      gears.push_back(std::move(text));
    }
  }
  return gears;
}

std::string ports_text(const std::vector<ModelPort>& ports) {
  using Align = Table::Align;
  Table table({{"port", Align::kLeft},
               {"name", Align::kLeft},
               {"type", Align::kLeft},
               {"shape", Align::kLeft}});
  for (const ModelPort& port : ports) {
    table.add_row({port.is_output ? "output" : "input", port.name, port.type, port.shape_text()});
  }
  return table.to_text();
}

void add_ports(const std::vector<ModelPort>& ports, Json& json) {
  json["inputs"] = Json::array();
  json["outputs"] = Json::array();
  for (const ModelPort& port : ports) {
    Json dims = port.is_rank_known ? Json::array() : Json(nullptr);
    for (const std::string& dim : port.dims) {
      const auto extent = parse_integer(dim);
      dims.push_back(extent ? Json(*extent) : Json(dim));
    }
    json[port.is_output ? "outputs" : "inputs"].push_back(
        {{"name", port.name}, {"type", port.type}, {"dims", std::move(dims)}});
  }
}

}  // namespace davit::cli
