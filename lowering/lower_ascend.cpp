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
//
// With several streams (stream_plan.hpp) a task's stream says nothing of what runs on the others.
// Then memory is used again only where events order the tasks that touched it before those that
// will: what would have been freed becomes a block, and later values are references to blocks. All
// blocks are freed at the end, behind a SyncStream of each stream, and the edges from launches to
// these Frees stay.
#include "lowering/lower_ascend.hpp"

#include <algorithm>
#include <tuple>

namespace davit::lowering {

using image::ValueKind;

namespace {

constexpr uint32_t kStream = 0;  // Of Init, and of Main where it has one.

}  // namespace

AscendLowering::AscendLowering(const ir::Module& module, const Prepared& prepared,
                               const std::string& soc, const AscendPasses& passes)
    : module_(module),
      prepared_(prepared),
      passes_(passes),
      builder_(module, DVT_TARGET_ASCEND, "ascend:" + soc),
      device_(module.value_count(), image::kNone),
      usage_(module.value_count()),
      moved_(module.value_count(), false),
      packed_(module.value_count(), false) {
  init_.role = image::GraphRole::kInit;
  deinit_.role = image::GraphRole::kDeInit;
  for (size_t i = 0; i < dvt_device_kernels().count; ++i) {
    const DvtKernel& kernel = dvt_device_kernels().kernels[i];
    device_kernels_.emplace(kernel.name, &kernel);
  }
}

double AscendLowering::prepare() {
  find_last_reads();
  find_moved();
  choose_pack(used_inputs());
  return passes_.streams > 1 ? plan(passes_.streams) : 0;
}

Result<Lowered> AscendLowering::run() {
  begin_init();
  Status status = add_inputs();
  for (uint32_t i = 0; status.ok() && i < prepared_.steps.size(); ++i) status = add_step(i);
  if (status.ok()) status = add_outputs();
  if (!status.ok()) return status;
  finish_init_and_deinit();

  Lowered lowered;
  image::ImageModel& model = builder_.model();
  model.stream_count = has_streams() ? plan_->streams : 1;
  model.stream_priority.assign(model.stream_count, 0);
  model.event_count = has_streams() ? plan_->events : 0;
  for (image::Graph* graph : {&init_, &main_, &deinit_}) {
    for (size_t i = 0; i < graph->nodes.size(); ++i) graph->nodes[i].priority = int32_t(i);
    model.graphs.push_back(std::move(*graph));
  }
  lowered.model = std::move(model);
  lowered.intervals = std::move(intervals_);
  lowered.aliased_nodes = prepared_.aliased_nodes;
  lowered.launch_edges_removed = launch_edges_removed_;
  lowered.launch_edges_kept = launch_edges_kept_;
  if (launch_edges_kept_ > 0) {
    lowered.why_edges_kept =
        has_streams() ? "there are several streams" : "their Free follows a SyncStream";
  }
  const auto moved = uint32_t(std::count(moves_.begin(), moves_.end(), true));
  if (moved > 0) lowered.changes.emplace_back("move_to_init", moved);
  if (!pack_.ports.empty()) lowered.changes.emplace_back("fuse_copies", pack_.ports.size());
  if (has_streams()) {
    lowered.streams = {.count = plan_->streams,
                       .events = plan_->events,
                       .crossing_edges = plan_->crossing_edges,
                       .implied_edges = plan_->implied_edges,
                       .promised_ns = plan_->makespan_ns,
                       .one_stream_ns = plan_->one_stream_ns};
  }
  lowered.why_one_stream = std::move(why_one_stream_);
  return lowered;
}

// A node that runs a kernel of exec/device_kernels.c. `origin`: whose work it is.
image::Node AscendLowering::make(std::string_view kernel_name, std::string origin) {
  const DvtKernel& kernel = *device_kernels_.find(kernel_name)->second;
  image::Node node;
  node.kernel = builder_.add_kernel(kernel);
  node.lane = uint8_t(kernel.flags & DVT_KERNEL_LANE_MASK);
  if (node.lane == DVT_KERNEL_LANE_LAUNCH) node.stream = kStream;
  node.origin = std::move(origin);
  node.op = "davit::" + std::string(kernel_name);
  return node;
}

uint32_t AscendLowering::append_alloc(image::Graph& graph, uint32_t value, std::string origin) {
  image::Node node = make("AllocMemHbm", std::move(origin));
  const uint64_t bytes = builder_.model().values[value].tensor.bytes;
  // Empty tensors have an address of their own, too.
  node.attributes =
      ops::attribute_bytes(DvtAllocAttributes{.bytes = int64_t(std::max<uint64_t>(bytes, 1))});
  node.outputs = {value};
  return append(graph, std::move(node));
}

uint32_t AscendLowering::append_free(image::Graph& graph, uint32_t value, std::string origin,
                                     std::vector<uint32_t> after) {
  image::Node node = make("FreeMemHbm", std::move(origin));
  node.inputs = {value};
  node.control_inputs = std::move(after);
  return append(graph, std::move(node));
}

// A Free that may run before `launches`, which are all that use its memory.
void AscendLowering::append_early_free(uint32_t value, const std::string& origin,
                                       std::vector<uint32_t> launches) {
  image::Node node = make("FreeMemHbm", origin);
  node.inputs = {value};
  launch_edges_removed_ += uint32_t(launches.size());
  node.free_launches = std::move(launches);
  append(main_, std::move(node));
}

uint32_t AscendLowering::append_sync(image::Graph& graph, uint32_t stream,
                                     std::vector<uint32_t> after) {
  image::Node node = make("SyncStream", "");
  node.attributes = ops::attribute_bytes(DvtStreamAttributes{.stream = int64_t{stream}});
  node.control_inputs = std::move(after);
  return append(graph, std::move(node));
}

void AscendLowering::begin_init() {
  const uint32_t streams = has_streams() ? plan_->streams : 1;
  for (uint32_t stream = 0; stream < streams; ++stream) {
    image::Node node = make("CreateStream", "");
    node.attributes =
        ops::attribute_bytes(DvtCreateStreamAttributes{.stream = int64_t{stream}, .priority = 0});
    const uint32_t created = append(init_, std::move(node));
    if (stream == kStream) create_stream_ = created;
  }
  for (uint32_t event = 0; has_streams() && event < plan_->events; ++event) {
    image::Node node = make("CreateEvent", "");
    node.attributes = ops::attribute_bytes(DvtEventAttributes{.event = int64_t{event}});
    append(init_, std::move(node));
  }
}

void AscendLowering::finish_init_and_deinit() {
  weight_copies_.push_back(create_stream_);
  append_sync(init_, kStream, std::move(weight_copies_));
  const uint32_t streams = has_streams() ? plan_->streams : 1;
  std::vector<uint32_t> syncs;
  for (uint32_t stream = 0; stream < streams; ++stream) {
    syncs.push_back(append_sync(deinit_, stream, {}));
  }
  std::vector<uint32_t> frees = syncs;
  for (const uint32_t value : weight_allocations_) {
    frees.push_back(append_free(deinit_, value, builder_.model().values[value].name, syncs));
  }
  for (uint32_t event = 0; has_streams() && event < plan_->events; ++event) {
    image::Node node = make("DestroyEvent", "");
    node.attributes = ops::attribute_bytes(DvtEventAttributes{.event = int64_t{event}});
    node.control_inputs = syncs;
    append(deinit_, std::move(node));
  }
  for (uint32_t stream = 0; stream < streams; ++stream) {
    image::Node node = make("DestroyStream", "");
    node.attributes = ops::attribute_bytes(DvtStreamAttributes{.stream = int64_t{stream}});
    node.control_inputs = frees;
    append(deinit_, std::move(node));
  }
}

void AscendLowering::find_last_reads() {
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
Result<uint32_t> AscendLowering::weight(ir::ValueId value) {
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
Result<uint32_t> AscendLowering::operand(ir::ValueId value) {
  if (value == ir::kNoValue) return image::kNone;
  uint32_t& known = device_[index_of(value)];
  if (known != image::kNone) return known;
  if (module_.constant(prepared_.root_of(value)) != nullptr) {
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
  append(moved_[index_of(root)] ? init_ : main_, std::move(node));
  known = *added;
  return added;
}

// A new device value for `value` and the node that gives it memory.
Result<uint32_t> AscendLowering::allocate(ir::ValueId value, const std::string& origin,
                                          uint32_t task) {
  auto added = builder_.add_value(ValueKind::kDevice, value, 0);
  if (!added.ok()) return added;
  device_[index_of(value)] = *added;
  if (has_streams()) return take_block(*added, origin, task, usage_of(value).block);
  return append_alloc(main_, *added, origin);
}

// The same for scratch: the node, and the block of several streams.
uint32_t AscendLowering::allocate_scratch(uint32_t value, const std::string& origin, uint32_t task,
                                          uint32_t& block) {
  if (has_streams()) return take_block(value, origin, task, block);
  return append_alloc(main_, value, origin);
}

// The launch of a step, without operands.
Result<image::Node> AscendLowering::launch_of(const Step& step) {
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
  return launch;
}

Status AscendLowering::add_step(uint32_t index) {
  const Step& step = prepared_.steps[index];
  auto launch = launch_of(step);
  if (!launch.ok()) return std::move(launch.status());
  if (moves_[index]) return move_step(step, std::move(*launch));
  const uint32_t task = task_of_step(index);
  for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
    const ir::ValueId input = step.input(module_, k);
    auto value = operand(input);
    if (!value.ok()) return std::move(value.status());
    launch->inputs.push_back(*value);
    if (input == ir::kNoValue || is_weight(input)) continue;
    launch->control_inputs.push_back(usage_of(input).writer);
  }
  for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
    auto alloc = allocate(step.output(module_, k), launch->origin, task);
    if (!alloc.ok()) return std::move(alloc.status());
    launch->outputs.push_back(device_[index_of(step.output(module_, k))]);
    launch->control_inputs.push_back(*alloc);
  }
  std::vector<uint32_t> scratch, scratch_blocks;
  for (const uint64_t bytes : step.recipe.workspace_bytes) {
    scratch.push_back(builder_.add_scratch(ValueKind::kDevice, bytes, 0));
    scratch_blocks.push_back(image::kNone);
    launch->outputs.push_back(scratch.back());
    launch->control_inputs.push_back(
        allocate_scratch(scratch.back(), launch->origin, task, scratch_blocks.back()));
  }
  const std::string origin = launch->origin;
  const uint32_t submitted = submit(std::move(*launch), task);
  for (size_t i = 0; i < scratch.size(); ++i) {
    if (has_streams()) {
      blocks_[scratch_blocks[i]].users.push_back(submitted);
      give_block(scratch_blocks[i], {task});
    } else {
      append_early_free(scratch[i], origin, {submitted});
    }
  }
  free_after(index, submitted, origin);
  return {};
}

// Frees what step `index`, submitted by node `submitted`, was the last to touch.
void AscendLowering::free_after(uint32_t index, uint32_t submitted, const std::string& origin) {
  const Step& step = prepared_.steps[index];
  const uint32_t task = task_of_step(index);
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
    usage.tasks.push_back(task);
    if (usage.block != image::kNone) blocks_[usage.block].users.push_back(submitted);
    if (usage.last_step != index) continue;
    if (usage.readers.empty()) usage.readers.push_back(submitted);
    release(root, origin);
  }
}

// After the launch that is the last to use it.
void AscendLowering::release(ir::ValueId root, const std::string& origin) {
  Usage& usage = usage_of(root);
  if (packed_[index_of(root)]) {
    pack_.readers.insert(pack_.readers.end(), usage.readers.begin(), usage.readers.end());
    if (--pack_.left > 0 || has_streams()) return;
    std::sort(pack_.readers.begin(), pack_.readers.end());
    pack_.readers.erase(std::unique(pack_.readers.begin(), pack_.readers.end()),
                        pack_.readers.end());
    append_early_free(pack_.block, origin, std::move(pack_.readers));
  } else if (has_streams()) {
    give_block(usage.block, usage.tasks);
  } else {
    append_early_free(device_[index_of(root)], origin, std::move(usage.readers));
  }
}

Status AscendLowering::add_outputs() {
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
    copies.push_back(submit(std::move(copy), task_of_output(port)));
    const uint32_t block = usage_of(root).block;
    if (block != image::kNone) blocks_[block].users.push_back(copies.back());
  }
  std::vector<uint32_t> syncs;
  for (uint32_t stream = 0; stream < (has_streams() ? plan_->streams : 1); ++stream) {
    syncs.push_back(append_sync(main_, stream, copies));
  }
  if (has_streams()) {
    free_blocks(syncs);
  } else {
    free_outputs(roots, syncs.front());
  }
  builder_.set_ports(input_values_, output_values);
  return {};
}

void AscendLowering::free_outputs(const std::vector<ir::ValueId>& roots, uint32_t sync) {
  for (const ir::ValueId root : roots) {
    std::vector<uint32_t> after = std::move(usage_of(root).readers);
    launch_edges_kept_ += uint32_t(after.size());
    after.push_back(sync);
    append_free(main_, device_[index_of(root)], std::string(module_.value_name(root)),
                std::move(after));
  }
}

Result<Lowered> lower_ascend(const ir::Module& module, const std::string& soc,
                             const AscendPasses& passes) {
  auto prepared = prepare(module);
  if (!prepared.ok()) return std::move(prepared.status());
  AscendLowering lowering(module, *prepared, soc, passes);
  const double promised_ns = lowering.prepare();
  if (passes.streams < 2 || !passes.order_launches) return lowering.run();
  auto steps = lowering.reordered();
  if (!steps) return lowering.run();
  Prepared other = *prepared;
  other.steps = std::move(*steps);
  AscendLowering reordered(module, other, soc, passes);
  if (reordered.prepare() >= promised_ns) return lowering.run();
  auto lowered = reordered.run();
  if (lowered.ok()) lowered->changes.emplace_back("order_launches", uint32_t(other.steps.size()));
  return lowered;
}

}  // namespace davit::lowering
