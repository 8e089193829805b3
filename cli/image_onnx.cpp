#include "cli/image_onnx.hpp"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "cli/model.hpp"
#include "cli/profile.hpp"
#include "cli/table.hpp"

namespace davit::cli {
namespace {

constexpr const char* kDomain = "davit";
constexpr uint64_t kConstantBytesMax = 1'000'000'000;

void add_text(onnx::NodeProto& node, const char* name, const std::string& text) {
  onnx::AttributeProto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(text);
}

void add_int(onnx::NodeProto& node, const char* name, int64_t value) {
  onnx::AttributeProto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

class View {
 public:
  explicit View(const image::ImageModel& model) : model_(model) {
    for (const DvtKernelTable& table : all_kernel_tables()) {
      for (size_t i = 0; i < table.count; ++i) kernels_[table.kernels[i].name] = &table.kernels[i];
    }
    name_values();
  }

  onnx::ModelProto make() {
    onnx::ModelProto proto;
    proto.set_ir_version(8);
    proto.set_producer_name("davit");
    proto.set_doc_string("An execute-graph image for " + printable(model_.target_name) +
                         ", for viewing. " + printable(model_.provenance.source_name));
    onnx::OperatorSetIdProto* opset = proto.add_opset_import();
    opset->set_domain(kDomain);
    opset->set_version(1);
    onnx::GraphProto& main = *proto.mutable_graph();
    main.set_name("main");
    for (const image::Port& port : model_.inputs) describe(port.value, *main.add_input());
    for (const image::Port& port : model_.outputs) describe(port.value, *main.add_output());
    add_constants(main);
    add_whole(main, image::GraphRole::kInit, "Init");
    for (const image::Graph& graph : model_.graphs) {
      if (graph.role == image::GraphRole::kMain) fill(graph, main);
    }
    add_whole(main, image::GraphRole::kDeInit, "DeInit");
    return proto;
  }

 private:
  // Names are unique in a model of ONNX, and may be anything in an image.
  void name_values() {
    std::unordered_set<std::string> taken;
    for (size_t i = 0; i < model_.values.size(); ++i) {
      std::string name = printable(model_.values[i].name);
      if (name.empty() || taken.contains(name)) name = fmt::format("{}#{}", name, i);
      taken.insert(name);
      names_.push_back(std::move(name));
    }
  }

  [[nodiscard]] std::string name_of(uint32_t value) const {
    return value == image::kNone ? std::string() : names_[value];
  }

  // DvtDType has the numbers of onnx::TensorProto::DataType.
  void describe(uint32_t id, onnx::ValueInfoProto& info) const {
    info.set_name(name_of(id));
    const image::Value& value = model_.values[id];
    if (!value.has_tensor) return;
    onnx::TypeProto_Tensor& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(value.tensor.dtype);
    if (value.tensor.rank == DVT_RANK_UNKNOWN) return;
    onnx::TensorShapeProto& shape = *type.mutable_shape();
    for (uint32_t d = 0; d < value.tensor.rank; ++d) {
      onnx::TensorShapeProto::Dimension& dim = *shape.add_dim();
      if (value.tensor.dims[d] >= 0) dim.set_dim_value(value.tensor.dims[d]);
    }
  }

  void add_constants(onnx::GraphProto& main) const {
    const bool with_data = model_.constants.size() <= kConstantBytesMax;
    for (uint32_t i = 0; i < model_.values.size(); ++i) {
      const image::Value& value = model_.values[i];
      if (value.kind != image::ValueKind::kConstant || !value.has_tensor) continue;
      if (!with_data || value.tensor.bytes > model_.constants.size() ||
          value.offset > model_.constants.size() - value.tensor.bytes) {
        describe(i, *main.add_value_info());
        continue;
      }
      onnx::TensorProto& tensor = *main.add_initializer();
      tensor.set_name(names_[i]);
      tensor.set_data_type(value.tensor.dtype);
      for (uint32_t d = 0; d < value.tensor.rank; ++d) tensor.add_dims(value.tensor.dims[d]);
      const std::byte* data = model_.constants.data() + value.offset;
      if (value.tensor.dtype == DVT_STRING) {
        add_strings(data, value.tensor.bytes / sizeof(DvtString), tensor);
      } else {
        tensor.set_raw_data(data, value.tensor.bytes);
      }
    }
  }

  // ONNX has no raw form of strings.
  static void add_strings(const std::byte* data, uint64_t count, onnx::TensorProto& tensor) {
    for (uint64_t i = 0; i < count; ++i) {
      DvtString string;
      std::memcpy(&string, data + i * sizeof string, sizeof string);
      tensor.add_string_data(string.text, std::min<size_t>(string.length, DVT_STRING_MAX));
    }
  }

  // A graph without inputs and outputs, on a node that stands for it.
  void add_whole(onnx::GraphProto& main, image::GraphRole role, const char* name) {
    for (const image::Graph& graph : model_.graphs) {
      if (graph.role != role || graph.nodes.empty()) continue;
      onnx::NodeProto& node = *main.add_node();
      node.set_op_type(name);
      node.set_domain(kDomain);
      node.set_name(name);
      add_body(node, "graph", graph);
    }
  }

  void add_body(onnx::NodeProto& node, const std::string& name, const image::Graph& graph) {
    onnx::AttributeProto* attribute = node.add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::GRAPH);
    attribute->mutable_g()->set_name(name);
    fill(graph, *attribute->mutable_g());
  }

  void fill(const image::Graph& graph, onnx::GraphProto& proto) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      add_node(graph, i, *proto.add_node());
      for (const uint32_t value : graph.nodes[i].outputs) {
        if (value == image::kNone || !described_.insert(value).second) continue;
        if (model_.values[value].has_tensor) describe(value, *proto.add_value_info());
      }
    }
  }

  void add_node(const image::Graph& graph, size_t index, onnx::NodeProto& proto) {
    const image::Node& node = graph.nodes[index];
    const std::string& kernel = model_.kernels[node.kernel].name;
    proto.set_op_type(printable(kernel));
    proto.set_domain(kDomain);
    proto.set_name(printable(node.origin));
    for (const uint32_t value : node.inputs) proto.add_input(name_of(value));
    for (const uint32_t value : node.outputs) proto.add_output(name_of(value));
    add_text(proto, "davit.op", printable(node.op));
    add_text(proto, "davit.lane", lane_name(node.lane));
    add_int(proto, "davit.position", int64_t(index));
    if (node.priority != 0) add_int(proto, "davit.priority", node.priority);
    if (node.stream != image::kNone) add_int(proto, "davit.stream", node.stream);
    if (node.device_kernel != image::kNone) {
      add_text(proto, "davit.device_kernel", printable(model_.kernels[node.device_kernel].name));
    }
    add_links(graph, node, proto);
    add_kernel_attributes(node, proto);
    for (size_t b = 0; b < node.bodies.size(); ++b) {
      add_body(proto, fmt::format("body_{}", b), model_.graphs[node.bodies[b]]);
    }
  }

  // Edges that no value carries, by the position of their other end.
  static void add_links(const image::Graph& graph, const image::Node& node,
                        onnx::NodeProto& proto) {
    const auto add = [&](const char* name, const std::vector<uint32_t>& links) {
      if (links.empty()) return;
      onnx::AttributeProto* attribute = proto.add_attribute();
      attribute->set_name(name);
      attribute->set_type(onnx::AttributeProto::STRINGS);
      for (const uint32_t link : links) {
        attribute->add_strings(fmt::format("{} {}", link, printable(graph.nodes[link].origin)));
      }
    };
    add("davit.control_inputs", node.control_inputs);
    add("davit.free_to_launch", node.free_launches);
  }

  // The record of the kernel, when the kernel is known.
  void add_kernel_attributes(const image::Node& node, onnx::NodeProto& proto) const {
    const uint32_t described =
        node.device_kernel == image::kNone ? node.kernel : node.device_kernel;
    const auto at = kernels_.find(model_.kernels[described].name);
    if (at == kernels_.end()) return;
    for (uint32_t a = 0; a < at->second->attribute_count; ++a) {
      const DvtAttribute& field = at->second->attributes[a];
      if (field.offset + 8ULL * field.count > node.attributes.size()) return;
      onnx::AttributeProto* attribute = proto.add_attribute();
      attribute->set_name(field.name);
      const bool is_int = field.kind == 'i';
      attribute->set_type(is_int ? onnx::AttributeProto::INTS : onnx::AttributeProto::FLOATS);
      for (uint32_t i = 0; i < field.count; ++i) {
        const std::byte* from = node.attributes.data() + field.offset + 8ULL * i;
        int64_t integer = 0;
        double real = 0;
        std::memcpy(&integer, from, sizeof integer);
        std::memcpy(&real, from, sizeof real);
        is_int ? attribute->add_ints(integer) : attribute->add_floats(float(real));
      }
    }
  }

  const image::ImageModel& model_;
  std::vector<std::string> names_;  // By value.
  std::unordered_map<std::string, const DvtKernel*> kernels_;
  std::unordered_set<uint32_t> described_;
};

}  // namespace

Result<std::vector<std::byte>> onnx_view(const image::ImageModel& model) {
  const onnx::ModelProto proto = View(model).make();
  std::string text;
  if (!proto.SerializeToString(&text)) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_WRITE,
                  "the image is too large for an ONNX model, which is limited to 2 GB");
  }
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return std::vector<std::byte>(begin, begin + text.size());
}

}  // namespace davit::cli
