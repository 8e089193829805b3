// Target ascend, host-scheduled: the host allocates, launches, frees and copies, node by node.
//
//   Init    CreateStream; per weight AllocMemHbm, LaunchH2DCopy; SyncStream
//   Main    per input AllocMemHbm, LaunchH2DCopy
//           per node  AllocMemHbm of its results and scratch, LaunchKernel, FreeMemHbm of what it
//                     read last
//           per output LaunchD2HCopy; SyncStream; FreeMemHbm of the rest
//   DeInit  SyncStream; FreeMemHbm of the weights; DestroyStream
//
// Why a Free may follow the launch, not the end, of the last task that reads the memory: all tasks
// and copies of an executor, those of later runs included, go through its one stream, which runs
// them in submission order. Whoever of them gets the freed bytes again was submitted later, so it
// touches them later. What keeps the submission before the bytes are used again is the
// Free-to-Launch row of the Free: the launches that use its memory. So the memory lane may run
// ahead of the launches (exec/deferred_frees.hpp). All these rows are proved to end
// (exec/liveness.hpp): what a launch needs of the memory lane comes before the launch in the order
// of the image, and so before the Free. Frees behind a SyncStream, which follows the launches
// anyway, keep their edges.
#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "exec/runtime.h"
#include "lowering/lower.hpp"
#include "lowering/prepare.hpp"

namespace davit::lowering {
namespace {

using image::ValueKind;

constexpr uint32_t kStream = 0;

class AscendLowering {
 public:
  AscendLowering(const ir::Module& module, const Prepared& prepared, const std::string& soc)
      : module_(module),
        prepared_(prepared),
        builder_(module, DVT_TARGET_ASCEND, "ascend:" + soc),
        device_(module.value_count(), image::kNone),
        usage_(module.value_count()) {
    init_.role = image::GraphRole::kInit;
    deinit_.role = image::GraphRole::kDeInit;
    for (size_t i = 0; i < dvt_device_kernels().count; ++i) {
      const DvtKernel& kernel = dvt_device_kernels().kernels[i];
      device_kernels_.emplace(kernel.name, &kernel);
    }
  }

  Result<Lowered> run() {
    begin_init();
    find_last_reads();
    Status status = add_inputs();
    for (uint32_t i = 0; status.ok() && i < prepared_.steps.size(); ++i) status = add_step(i);
    if (status.ok()) status = add_outputs();
    if (!status.ok()) return status;
    finish_init_and_deinit();

    Lowered lowered;
    image::ImageModel& model = builder_.model();
    model.stream_count = 1;
    model.stream_priority = {0};
    for (image::Graph* graph : {&init_, &main_, &deinit_}) {
      for (size_t i = 0; i < graph->nodes.size(); ++i) graph->nodes[i].priority = int32_t(i);
      model.graphs.push_back(std::move(*graph));
    }
    lowered.model = std::move(model);
    lowered.aliased_nodes = prepared_.aliased_nodes;
    lowered.launch_edges_removed = launch_edges_removed_;
    lowered.launch_edges_kept = launch_edges_kept_;
    if (launch_edges_kept_ > 0) lowered.why_edges_kept = "their Free follows a SyncStream";
    return lowered;
  }

 private:
  // What happens to the device memory of a root in Main.
  struct Usage {
    uint32_t last_step = 0;          // That reads it; the number of steps for graph outputs.
    uint32_t writer = image::kNone;  // Node that submits what fills it.
    std::vector<uint32_t> readers;   // Nodes that submit what reads it.
  };

  Usage& usage_of(ir::ValueId value) { return usage_[index_of(prepared_.root_of(value))]; }
  [[nodiscard]] bool is_weight(ir::ValueId value) const {
    return module_.constant(prepared_.root_of(value)) != nullptr;
  }

  // A node that runs a kernel of exec/device_kernels.c. `origin`: whose work it is.
  image::Node make(std::string_view kernel_name, std::string origin) {
    const DvtKernel& kernel = *device_kernels_.find(kernel_name)->second;
    image::Node node;
    node.kernel = builder_.add_kernel(kernel);
    node.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
    if (node.lane == DVT_KERNEL_LANE_LAUNCH) node.stream = kStream;
    node.origin = std::move(origin);
    node.op = "davit::" + std::string(kernel_name);
    return node;
  }
  static uint32_t append(image::Graph& graph, image::Node node) {
    graph.nodes.push_back(std::move(node));
    return uint32_t(graph.nodes.size() - 1);
  }
  uint32_t append_alloc(image::Graph& graph, uint32_t value, std::string origin) {
    image::Node node = make("AllocMemHbm", std::move(origin));
    const uint64_t bytes = builder_.model().values[value].tensor.bytes;
    // Empty tensors have an address of their own, too.
    node.attributes =
        ops::attribute_bytes(DvtAllocAttributes{.bytes = int64_t(std::max<uint64_t>(bytes, 1))});
    node.outputs = {value};
    return append(graph, std::move(node));
  }
  uint32_t append_free(image::Graph& graph, uint32_t value, std::string origin,
                       std::vector<uint32_t> after) {
    image::Node node = make("FreeMemHbm", std::move(origin));
    node.inputs = {value};
    node.control_inputs = std::move(after);
    return append(graph, std::move(node));
  }
  // A Free that may run before `launches`, which are all that use its memory.
  void append_early_free(uint32_t value, const std::string& origin,
                         std::vector<uint32_t> launches) {
    image::Node node = make("FreeMemHbm", origin);
    node.inputs = {value};
    launch_edges_removed_ += uint32_t(launches.size());
    node.free_launches = std::move(launches);
    append(main_, std::move(node));
  }
  uint32_t append_sync(image::Graph& graph, std::vector<uint32_t> after) {
    image::Node node = make("SyncStream", "");
    node.attributes = ops::attribute_bytes(DvtStreamAttributes{.stream = kStream});
    node.control_inputs = std::move(after);
    return append(graph, std::move(node));
  }

  void begin_init() {
    image::Node node = make("CreateStream", "");
    node.attributes =
        ops::attribute_bytes(DvtCreateStreamAttributes{.stream = kStream, .priority = 0});
    create_stream_ = append(init_, std::move(node));
  }

  void finish_init_and_deinit() {
    weight_copies_.push_back(create_stream_);
    append_sync(init_, std::move(weight_copies_));
    const uint32_t sync = append_sync(deinit_, {});
    std::vector<uint32_t> frees = {sync};
    for (const uint32_t value : weight_allocations_) {
      frees.push_back(append_free(deinit_, value, builder_.model().values[value].name, {sync}));
    }
    image::Node node = make("DestroyStream", "");
    node.attributes = ops::attribute_bytes(DvtStreamAttributes{.stream = kStream});
    node.control_inputs = std::move(frees);
    append(deinit_, std::move(node));
  }

  void find_last_reads() {
    for (uint32_t i = 0; i < prepared_.steps.size(); ++i) {
      const Step& step = prepared_.steps[i];
      for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
        if (const ir::ValueId value = step.input(module_, k); value != ir::kNoValue) {
          usage_of(value).last_step = i;
        }
      }
    }
    for (const ir::ValueId output : module_.graph_outputs(ir::kMainGraph)) {
      usage_of(output).last_step = uint32_t(prepared_.steps.size());
    }
  }

  // The weight in device memory, uploaded by Init on first sight. Equal bytes are uploaded once.
  Result<uint32_t> weight(ir::ValueId value) {
    const ir::ValueId root = prepared_.root_of(value);
    auto offset = builder_.place_constant(root);
    if (!offset.ok()) return std::move(offset.status());
    auto added = builder_.add_value(ValueKind::kDevice, value, 0);
    if (!added.ok()) return added;
    const std::string name(module_.value_name(root));
    const auto key = std::pair(*offset, builder_.model().values[*added].tensor.bytes);
    const auto known = weights_.find(key);
    if (known != weights_.end()) {
      image::Node node = make("BuildRefTensor", name);
      node.inputs = {known->second};
      node.outputs = {*added};
      append(init_, std::move(node));
      return added;
    }
    auto host = builder_.add_value(ValueKind::kConstant, value, *offset);
    if (!host.ok()) return host;
    append_alloc(init_, *added, name);
    image::Node copy = make("LaunchH2DCopy", name);
    copy.inputs = {*host, *added};
    copy.control_inputs = {create_stream_};
    weight_copies_.push_back(append(init_, std::move(copy)));
    weight_allocations_.push_back(*added);
    weights_.emplace(key, *added);
    return added;
  }

  // The device value of an operand. Views become references to their root's memory.
  Result<uint32_t> operand(ir::ValueId value) {
    if (value == ir::kNoValue) return image::kNone;
    uint32_t& known = device_[index_of(value)];
    if (known != image::kNone) return known;
    if (is_weight(value)) {
      auto added = weight(value);
      if (added.ok()) known = *added;
      return added;
    }
    const ir::ValueId root = prepared_.root_of(value);
    const uint32_t memory = device_[index_of(root)];
    if (memory == image::kNone) {
      return Status(ErrorDetail{.code = DVT_INTERNAL,
                                .stage = DVT_STAGE_LOWER,
                                .message = "a value is read before it is computed",
                                .tensor = std::string(module_.value_name(value))});
    }
    auto added = builder_.add_value(ValueKind::kDevice, value, 0);
    if (!added.ok()) return added;
    image::Node node = make("BuildRefTensor", std::string(module_.value_name(value)));
    node.inputs = {memory};
    node.outputs = {*added};
    append(main_, std::move(node));
    known = *added;
    return added;
  }

  // A new device value for `value` and the node that allocates it.
  Result<uint32_t> allocate(ir::ValueId value, const std::string& origin) {
    auto added = builder_.add_value(ValueKind::kDevice, value, 0);
    if (!added.ok()) return added;
    device_[index_of(value)] = *added;
    return append_alloc(main_, *added, origin);
  }

  Status add_inputs() {
    const auto inputs = module_.graph_inputs(ir::kMainGraph);
    std::vector<bool> used(module_.value_count(), false);
    const auto use = [&](ir::ValueId value) {
      if (value != ir::kNoValue) used[index_of(prepared_.root_of(value))] = true;
    };
    for (const Step& step : prepared_.steps) {
      for (size_t k = 0; k < step.recipe.inputs.size(); ++k) use(step.input(module_, k));
    }
    for (const ir::ValueId output : module_.graph_outputs(ir::kMainGraph)) use(output);
    for (uint32_t port = 0; port < inputs.size(); ++port) {
      const ir::ValueId input = inputs[port];
      auto host = builder_.add_value(ValueKind::kInput, input, port);
      if (!host.ok()) return std::move(host.status());
      input_values_.push_back(*host);
      if (!used[index_of(input)]) continue;
      const std::string name(module_.value_name(input));
      auto alloc = allocate(input, name);
      if (!alloc.ok()) return std::move(alloc.status());
      image::Node copy = make("LaunchH2DCopy", name);
      copy.inputs = {*host, device_[index_of(input)]};
      usage_of(input).writer = append(main_, std::move(copy));
    }
    return {};
  }

  Status add_step(uint32_t index) {
    const Step& step = prepared_.steps[index];
    if ((step.recipe.kernel->flags & DVT_KERNEL_DEVICE) == 0) {
      return Status(module_.error_at(
          step.node, DVT_UNSUPPORTED, DVT_STAGE_LOWER,
          std::string("kernel ") + step.recipe.kernel->name + " cannot run on this target"));
    }
    image::Node launch = builder_.node_of(step);
    launch.device_kernel = launch.kernel;
    image::Node shell = make("LaunchKernel", "");
    launch.kernel = shell.kernel;
    launch.lane = shell.lane;
    launch.stream = shell.stream;
    launch.cost = step.definition->cost(ops::NodeView(module_, step.node));
    launch.has_cost = true;
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
      const ir::ValueId input = step.input(module_, k);
      auto value = operand(input);
      if (!value.ok()) return std::move(value.status());
      launch.inputs.push_back(*value);
      if (input == ir::kNoValue || is_weight(input)) continue;
      launch.control_inputs.push_back(usage_of(input).writer);
    }
    for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
      auto alloc = allocate(step.output(module_, k), launch.origin);
      if (!alloc.ok()) return std::move(alloc.status());
      launch.outputs.push_back(device_[index_of(step.output(module_, k))]);
      launch.control_inputs.push_back(*alloc);
    }
    std::vector<uint32_t> scratch;
    for (const uint64_t bytes : step.recipe.workspace_bytes) {
      scratch.push_back(builder_.add_scratch(ValueKind::kDevice, bytes, 0));
      launch.outputs.push_back(scratch.back());
      launch.control_inputs.push_back(append_alloc(main_, scratch.back(), launch.origin));
    }
    const std::string origin = launch.origin;
    const uint32_t submitted = append(main_, std::move(launch));
    for (const uint32_t value : scratch) append_early_free(value, origin, {submitted});
    free_after(index, submitted, origin);
    return {};
  }

  // Frees what step `index`, submitted by node `submitted`, was the last to touch.
  void free_after(uint32_t index, uint32_t submitted, const std::string& origin) {
    const Step& step = prepared_.steps[index];
    std::vector<ir::ValueId> roots;
    for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
      const ir::ValueId output = step.output(module_, k);
      usage_of(output).writer = submitted;
      usage_of(output).last_step = std::max(usage_of(output).last_step, index);
      roots.push_back(output);
    }
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
      const ir::ValueId input = step.input(module_, k);
      if (input == ir::kNoValue || is_weight(input)) continue;
      const ir::ValueId root = prepared_.root_of(input);
      if (std::find(roots.begin(), roots.end(), root) != roots.end()) continue;
      usage_of(root).readers.push_back(submitted);
      roots.push_back(root);
    }
    for (const ir::ValueId root : roots) {
      Usage& usage = usage_of(root);
      if (usage.last_step != index) continue;
      if (usage.readers.empty()) usage.readers.push_back(submitted);
      append_early_free(device_[index_of(root)], origin, std::move(usage.readers));
    }
  }

  Status add_outputs() {
    const auto outputs = module_.graph_outputs(ir::kMainGraph);
    std::vector<uint32_t> copies, output_values;
    std::vector<ir::ValueId> roots;
    for (uint32_t port = 0; port < outputs.size(); ++port) {
      const ir::ValueId output = outputs[port];
      const ir::ValueId root = prepared_.root_of(output);
      auto host = builder_.add_value(ValueKind::kOutput, output, port);
      if (!host.ok()) return std::move(host.status());
      output_values.push_back(*host);
      // A copy moves bytes: it needs no reference for a view.
      auto memory = operand(root);
      if (!memory.ok()) return std::move(memory.status());
      image::Node copy = make("LaunchD2HCopy", std::string(module_.value_name(output)));
      copy.inputs = {*memory};
      copy.outputs = {*host};
      if (!is_weight(root)) {
        copy.control_inputs = {usage_of(root).writer};
        if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
      }
      copies.push_back(append(main_, std::move(copy)));
    }
    const uint32_t sync = append_sync(main_, std::move(copies));
    for (const ir::ValueId root : roots) {
      std::vector<uint32_t> after = std::move(usage_of(root).readers);
      launch_edges_kept_ += uint32_t(after.size());
      after.push_back(sync);
      append_free(main_, device_[index_of(root)], std::string(module_.value_name(root)),
                  std::move(after));
    }
    builder_.set_ports(input_values_, output_values);
    return {};
  }

  const ir::Module& module_;
  const Prepared& prepared_;
  ModelBuilder builder_;
  std::map<std::string_view, const DvtKernel*> device_kernels_;
  image::Graph init_, main_, deinit_;
  std::vector<uint32_t> device_;  // By value: its image value in device memory, or kNone.
  std::vector<Usage> usage_;      // By root.
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> weights_;  // By (offset, bytes).
  std::vector<uint32_t> weight_allocations_;                   // Image values that own memory.
  std::vector<uint32_t> weight_copies_;                        // Nodes of Init.
  std::vector<uint32_t> input_values_;
  uint32_t create_stream_ = 0;
  uint32_t launch_edges_removed_ = 0, launch_edges_kept_ = 0;
};

}  // namespace

Result<Lowered> lower_ascend(const ir::Module& module, const std::string& soc) {
  auto prepared = prepare(module);
  if (!prepared.ok()) return std::move(prepared.status());
  return AscendLowering(module, *prepared, soc).run();
}

}  // namespace davit::lowering
