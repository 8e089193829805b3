#include "lowering/gears.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "davit/davit.h"
#include "exec/dynamic.h"
#include "lowering/gear_phases.hpp"

namespace davit::lowering {
namespace {

using image::ImageModel;
using image::ValueKind;

constexpr uint64_t kConstantAlignment = 64;

class Merger {
 public:
  Merger(const ir::Module& source, std::vector<ImageModel> gears)
      : source_(source), gears_(std::move(gears)) {}

  Result<ImageModel> run() {
    ImageModel& first = gears_.front();
    model_.target = first.target;
    model_.target_name = first.target_name;
    model_.arena_alignment = first.arena_alignment;
    image::Node select;
    add_ports(first.inputs, ValueKind::kInput, &ImageModel::inputs, model_.inputs, select.inputs);
    add_ports(first.outputs, ValueKind::kOutput, &ImageModel::outputs, model_.outputs,
              select.outputs);
    std::vector<image::Graph> bodies;
    for (ImageModel& gear : gears_) {
      append(gear, select, bodies);
      if (gear.stream_count > model_.stream_count) {
        model_.stream_count = gear.stream_count;
        model_.stream_priority = gear.stream_priority;
      }
      model_.event_count = std::max(model_.event_count, gear.event_count);
      model_.arena_bytes = std::max(model_.arena_bytes, gear.arena_bytes);
      model_.lower_bound_bytes = std::max(model_.lower_bound_bytes, gear.lower_bound_bytes);
      gear = {};
    }
    if (select.inputs.size() > UINT16_MAX || select.outputs.size() > UINT16_MAX) {
      return Status(DVT_UNSUPPORTED, DVT_STAGE_LOWER,
                    "the model has too many inputs or outputs for so many gears");
    }
    const DvtKernel& kernel = dvt_dynamic_kernels().kernels[DVT_HOST_SELECT_GEAR - 1];
    select.kernel = image::intern_kernel(model_, kernel);
    select.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
    select.op = std::string("davit::") + kernel.name;
    for (size_t i = 0; i < bodies.size(); ++i) select.bodies.push_back(uint32_t(i + 1));
    image::Graph main{.role = image::GraphRole::kMain, .nodes = {}};
    main.nodes.push_back(std::move(select));
    model_.graphs.push_back(std::move(main));
    std::move(bodies.begin(), bodies.end(), std::back_inserter(model_.graphs));
    phases_.finish(model_.graphs);
    return std::move(model_);
  }

 private:
  // A value for each port, with what all gears have in common of its shape.
  void add_ports(const std::vector<image::Port>& first, ValueKind kind,
                 std::vector<image::Port> ImageModel::*ports_of, std::vector<image::Port>& ports,
                 std::vector<uint32_t>& operands) {
    for (size_t i = 0; i < first.size(); ++i) {
      image::Port port = first[i];
      image::Value value = gears_.front().values[port.value];
      for (const ImageModel& gear : gears_) {
        join(value.tensor, port, gear.values[(gear.*ports_of)[i].value].tensor);
      }
      value.kind = kind;
      value.offset = i;
      if (kind == ValueKind::kInput) name_dims(i, port);
      port.value = uint32_t(model_.values.size());
      operands.push_back(port.value);
      model_.values.push_back(std::move(value));
      ports.push_back(std::move(port));
    }
  }

  static void join(DvtTensor& known, image::Port& port, const DvtTensor& other) {
    bool same = known.rank == other.rank;
    for (uint32_t d = 0; same && d < other.rank; ++d) same = known.dims[d] == other.dims[d];
    if (!same) {
      known.flags = DVT_TENSOR_DYNAMIC;
      known.bytes = 0;
    }
    if (known.rank == DVT_RANK_UNKNOWN) return;
    if (known.rank != other.rank) {
      known.rank = DVT_RANK_UNKNOWN;
      std::fill(std::begin(known.dims), std::end(known.dims), 0);
      port.dims.clear();
      return;
    }
    for (uint32_t d = 0; d < other.rank; ++d) {
      if (known.dims[d] != other.dims[d]) known.dims[d] = -1;
      port.dims[d].min = std::min(port.dims[d].min, other.dims[d]);
      port.dims[d].max = std::max(port.dims[d].max, other.dims[d]);
    }
  }

  void name_dims(size_t input, image::Port& port) const {
    const ir::ValueId value = source_.graph_inputs(ir::kMainGraph)[input];
    const ir::Shape* shape = source_.shape(value);
    for (size_t d = 0; shape != nullptr && d < shape->size() && d < port.dims.size(); ++d) {
      const ir::Dim dim = (*shape)[d];
      if (dim.is_symbol()) port.dims[d].symbol = std::string(source_.symbol_name(dim.symbol_id()));
    }
  }

  void append(ImageModel& gear, image::Node& select, std::vector<image::Graph>& bodies) {
    const auto base = uint32_t(model_.values.size());
    place_constants(gear);
    model_.values.insert(model_.values.end(), std::make_move_iterator(gear.values.begin()),
                         std::make_move_iterator(gear.values.end()));
    std::vector<uint32_t> kernels;
    for (const image::KernelRef& kernel : gear.kernels) kernels.push_back(kernel_index(kernel));
    const auto move = [&](std::vector<uint32_t>& values) {
      for (uint32_t& value : values) value += value == image::kNone ? 0 : base;
    };
    for (image::Graph& graph : gear.graphs) {
      for (image::Node& node : graph.nodes) {
        node.kernel = kernels[node.kernel];
        if (node.device_kernel != image::kNone) node.device_kernel = kernels[node.device_kernel];
        move(node.inputs);
        move(node.outputs);
      }
      if (graph.role == image::GraphRole::kInit) {
        phases_.add_init(std::move(graph));
      } else if (graph.role == image::GraphRole::kDeInit) {
        phases_.add_deinit(std::move(graph));
      } else {
        graph.role = image::GraphRole::kBody;
        bodies.push_back(std::move(graph));
      }
    }
    for (const image::Port& port : gear.inputs) select.inputs.push_back(port.value + base);
    for (const image::Port& port : gear.outputs) select.outputs.push_back(port.value + base);
  }

  uint32_t kernel_index(const image::KernelRef& kernel) {
    for (size_t i = 0; i < model_.kernels.size(); ++i) {
      if (model_.kernels[i].name == kernel.name) return uint32_t(i);
    }
    model_.kernels.push_back(kernel);
    return uint32_t(model_.kernels.size() - 1);
  }

  // Moves the constants of a gear into the common segment. What overlaps there stays together.
  void place_constants(ImageModel& gear) {
    std::map<uint64_t, uint64_t> ends;  // By where a block begins.
    for (const image::Value& value : gear.values) {
      if (value.kind != ValueKind::kConstant || value.tensor.bytes == 0) continue;
      uint64_t& end = ends[value.offset];
      end = std::max(end, value.offset + value.tensor.bytes);
    }
    std::map<uint64_t, uint64_t> moved;  // The same, to where it goes.
    for (auto it = ends.begin(); it != ends.end();) {
      const uint64_t begin = it->first;
      uint64_t end = it->second;
      for (++it; it != ends.end() && it->first < end; ++it) end = std::max(end, it->second);
      moved[begin] = place({gear.constants.data() + begin, end - begin});
    }
    for (image::Value& value : gear.values) {
      if (value.kind != ValueKind::kConstant) continue;
      if (value.tensor.bytes == 0) {
        value.offset = 0;
        continue;
      }
      const auto block = std::prev(moved.upper_bound(value.offset));
      value.offset = block->second + (value.offset - block->first);
    }
  }

  uint64_t place(std::span<const std::byte> bytes) {
    auto& segment = model_.constants;
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    const std::pair digest(hash.high64, hash.low64);
    const auto [first, last] = places_.equal_range(digest);
    for (auto it = first; it != last; ++it) {
      const auto& [offset, size] = it->second;
      if (size == bytes.size() && std::memcmp(&segment[offset], bytes.data(), size) == 0) {
        return offset;
      }
    }
    const uint64_t offset = (segment.size() + kConstantAlignment - 1) & ~(kConstantAlignment - 1);
    segment.resize(offset);
    segment.insert(segment.end(), bytes.begin(), bytes.end());
    places_.emplace(digest, std::pair(offset, bytes.size()));
    return offset;
  }

  const ir::Module& source_;
  std::vector<ImageModel> gears_;
  ImageModel model_;
  GearPhases phases_{model_};
  std::multimap<std::pair<uint64_t, uint64_t>, std::pair<uint64_t, uint64_t>> places_;
};

}  // namespace

Result<image::ImageModel> merge_gears(const ir::Module& source,
                                      std::vector<image::ImageModel> gears) {
  return Merger(source, std::move(gears)).run();
}

}  // namespace davit::lowering
