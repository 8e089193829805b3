#include <algorithm>

#include "exec/image.hpp"
#include "lowering/image/edges.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::image {
namespace {

std::vector<uint32_t> to_vector(std::span<const uint32_t> row) {
  return {row.begin(), row.end()};
}

std::vector<Port> read_ports(const exec::ImageView& view, std::span<const exec::PortView> ports) {
  std::vector<Port> out;
  out.reserve(ports.size());
  for (const exec::PortView& port : ports) {
    Port& p = out.emplace_back(Port{.name = view.strings[port.name], .value = port.value});
    const DvtTensor& tensor = view.descs[port.desc];
    // A rank that is known at run time only has no dims here.
    const uint32_t rank = tensor.rank == DVT_RANK_UNKNOWN ? 0 : tensor.rank;
    for (uint32_t d = 0; d < rank; ++d) {
      if (port.dims == nullptr) {
        p.dims.push_back({tensor.dims[d], tensor.dims[d], ""});
      } else {
        p.dims.push_back({port.dims[d].min, port.dims[d].max, view.strings[port.dims[d].symbol]});
      }
    }
  }
  return out;
}

Value read_value(const exec::ImageView& view, uint32_t index) {
  Value value{.kind = static_cast<ValueKind>(view.values.kind[index]),
              .offset = view.values.offset[index],
              .name = view.value_name(index)};
  if (const DvtTensor* tensor = view.tensor_of(index); tensor != nullptr) {
    value.has_tensor = true;
    value.tensor = *tensor;
  }
  return value;
}

Node read_node(const exec::ImageView& view, const exec::GraphView& graph, uint32_t index) {
  const auto attributes = graph.attributes_of(index);
  Node node{.kernel = graph.kernel[index],
            .inputs = to_vector(graph.inputs_of(index)),
            .outputs = to_vector(graph.outputs_of(index)),
            .attributes = {attributes.begin(), attributes.end()},
            .free_launches = to_vector(graph.free_launches_of(index)),
            .bodies = to_vector(graph.bodies_of(index)),
            .lane = graph.lane[index],
            .priority = graph.priority_of(index),
            .stream = graph.stream_of(index),
            .device_kernel = graph.device_kernel_of(index),
            .origin = view.strings[graph.origin_of(index)],
            .op = view.strings[graph.op_of(index)]};
  if (const uint32_t cost = graph.cost_of(index); cost != kNone) {
    node.has_cost = true;
    node.cost = view.costs[cost];
  }
  return node;
}

Schedule read_schedule(const exec::GraphView& graph) {
  if (graph.part_count == 0) return {};
  return {.part_offsets = {graph.part_off, graph.part_off + graph.part_count + 1},
          .nodes = {graph.part_nodes, graph.part_nodes + graph.node_count},
          .wait_offsets = {graph.wait_off, graph.wait_off + graph.node_count + 1},
          .waits = {graph.waits, graph.waits + graph.wait_off[graph.node_count]}};
}

// What succ has beyond the data edges came from control_inputs.
void read_control_inputs(const exec::ImageView& view, ImageModel& model) {
  const std::vector<Edges> data_edges = find_data_edges(model);
  for (uint32_t g = 0; g < view.graphs.size(); ++g) {
    const Edges& data = data_edges[g];
    for (uint32_t from = 0; from < view.graphs[g].node_count; ++from) {
      for (const uint32_t to : view.graphs[g].succ_of(from)) {
        if (std::binary_search(data.begin(), data.end(), std::pair(from, to))) continue;
        model.graphs[g].nodes[to].control_inputs.push_back(from);
      }
    }
  }
}

}  // namespace

Result<ImageModel> read_image_model(std::span<const std::byte> bytes,
                                    const std::string& weights_folder) {
  auto image = exec::open_image_memory(
      bytes, {.resolve_kernels = false, .kernel_tables = {}, .weights_folder = weights_folder});
  if (!image.ok()) return std::move(image.status());
  const exec::ImageView& view = (*image)->view;
  ImageModel model{.target = view.target,
                   .target_name = view.target_name,
                   .inputs = read_ports(view, view.inputs),
                   .outputs = read_ports(view, view.outputs),
                   .arena_bytes = view.arena_bytes,
                   .arena_alignment = view.arena_alignment,
                   .lower_bound_bytes = view.lower_bound_bytes,
                   .stream_count = view.stream_count,
                   .event_count = view.event_count,
                   .code = {view.code.begin(), view.code.end()},
                   .constants = {view.constants, view.constants + view.constant_bytes},
                   .external_constants = !(*image)->weights.bytes().empty(),
                   .provenance = {.producer = view.provenance.producer,
                                  .source_digest = view.provenance.source_digest,
                                  .source_name = view.provenance.source_name,
                                  .options = view.provenance.options,
                                  .opsets = view.provenance.opsets}};
  if (view.stream_priority != nullptr) {
    model.stream_priority.assign(view.stream_priority, view.stream_priority + view.stream_count);
  }
  model.kernels.reserve(view.kernel_refs.size());
  for (const exec::KernelRefView& kernel : view.kernel_refs) {
    model.kernels.push_back({kernel.name, kernel.abi_version, kernel.flags});
  }
  model.values.reserve(view.values.count);
  for (uint32_t i = 0; i < view.values.count; ++i) model.values.push_back(read_value(view, i));
  for (const exec::GraphView& graph : view.graphs) {
    Graph& g = model.graphs.emplace_back(
        Graph{.role = static_cast<GraphRole>(graph.role), .shape_nodes = graph.shape_nodes});
    for (uint32_t i = 0; i < graph.node_count; ++i) g.nodes.push_back(read_node(view, graph, i));
    g.schedule = read_schedule(graph);
  }
  read_control_inputs(view, model);
  return model;
}

}  // namespace davit::image
