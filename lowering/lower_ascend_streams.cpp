// Several streams: which task goes where, events around tasks, memory that is used again where
// events order its users. See lower_ascend.hpp and stream_plan.hpp.
#include <algorithm>

#include "lowering/lower_ascend.hpp"

namespace davit::lowering {
namespace {

// Of a device of the 910B's size, about: plans need the order of magnitude.
constexpr double kLaunchNs = 3000;
constexpr double kProductsPerNs = 100'000;  // Multiplications of the cube cores.
constexpr double kBytesPerNs = 1000;        // To and from device memory.
constexpr double kElementsPerNs = 1500;     // In one pass of the vector cores.
constexpr double kCpuElementsPerNs = 0.5;
constexpr double kCopyBytesPerNs = 20;  // Between host and device.

StreamTask task_of(const DvtTaskCost& cost) {
  const double moved = double(cost.read_bytes + cost.write_bytes) / kBytesPerNs;
  const double elements = double(cost.vector_elements);
  switch (cost.kind) {
    case DVT_TASK_MATMUL:
    case DVT_TASK_CONV: {
      const double products = double(cost.batch) * double(cost.m) * double(cost.n) * double(cost.k);
      return {Engine::kCube, kLaunchNs + std::max(products / kProductsPerNs, moved), {}};
    }
    case DVT_TASK_AICPU:
      return {Engine::kCpu, kLaunchNs + elements / kCpuElementsPerNs, {}};
    default: {
      const double passes = double(cost.vector_passes_x100) / 100;
      return {Engine::kVector, kLaunchNs + std::max(elements * passes / kElementsPerNs, moved), {}};
    }
  }
}

}  // namespace

// Inputs, steps, outputs, in this order. Packed inputs are one task.
uint32_t AscendLowering::task_of_input(uint32_t port) const {
  const ir::ValueId input = module_.graph_inputs(ir::kMainGraph)[port];
  return packed_[index_of(input)] ? pack_.ports.front() : port;
}

uint32_t AscendLowering::task_of_step(uint32_t step) const {
  return uint32_t(module_.graph_inputs(ir::kMainGraph).size()) + step;
}

uint32_t AscendLowering::task_of_output(uint32_t port) const {
  return task_of_step(uint32_t(prepared_.steps.size())) + port;
}

std::vector<StreamTask> AscendLowering::tasks() const {
  std::vector<StreamTask> tasks;
  std::vector<uint32_t> writer(module_.value_count(), image::kNone);
  const auto bytes_of = [&](ir::ValueId value) {
    const auto tensor = tensor_of(module_, value);
    return tensor.ok() ? double(tensor->bytes) : 0;
  };
  const auto inputs = module_.graph_inputs(ir::kMainGraph);
  for (uint32_t port = 0; port < inputs.size(); ++port) {
    const double copy = kLaunchNs + bytes_of(inputs[port]) / kCopyBytesPerNs;
    const bool alone = task_of_input(port) == port;
    tasks.push_back({Engine::kCopyIn, alone ? copy : 0, {}});
    writer[index_of(inputs[port])] = task_of_input(port);
  }
  const auto need = [&](ir::ValueId value) {
    if (value == ir::kNoValue) return;
    const uint32_t from = writer[index_of(prepared_.root_of(value))];
    if (from != image::kNone) tasks.back().after.push_back(from);
  };
  for (size_t i = 0; i < prepared_.steps.size(); ++i) {
    const Step& step = prepared_.steps[i];
    if (moves_[i]) {
      tasks.push_back({});  // Of Init.
      continue;
    }
    tasks.push_back(task_of(step.definition->cost(ops::NodeView(module_, step.node))));
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) need(step.input(module_, k));
    for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
      writer[index_of(step.output(module_, k))] = uint32_t(tasks.size() - 1);
    }
  }
  for (const ir::ValueId output : module_.graph_outputs(ir::kMainGraph)) {
    tasks.push_back({Engine::kCopyOut, kLaunchNs + bytes_of(output) / kCopyBytesPerNs, {}});
    need(output);
  }
  return tasks;
}

void AscendLowering::plan(uint32_t streams_max) {
  const std::vector<StreamTask> all = tasks();
  StreamPlan made = plan_streams(all, streams_max);
  if (made.streams < 2) return;
  record_.assign(all.size(), image::kNone);
  plan_ = std::move(made);
}

uint32_t AscendLowering::submit(image::Node node, uint32_t task) {
  if (!has_streams()) return append(main_, std::move(node));
  const uint32_t stream = plan_->stream[task];
  const auto event_node = [&](const char* kernel, uint32_t event, uint32_t after) {
    image::Node made = make(kernel, node.origin);
    made.attributes = ops::attribute_bytes(DvtEventAttributes{.event = int64_t{event}});
    made.stream = stream;
    made.control_inputs = {after};
    return append(main_, std::move(made));
  };
  for (const uint32_t other : plan_->waits[task]) {
    const uint32_t wait = event_node("WaitEvent", plan_->event[other], record_[other]);
    node.control_inputs.push_back(wait);
  }
  node.stream = stream;
  const std::string origin = node.origin;
  const uint32_t submitted = append(main_, std::move(node));
  if (plan_->event[task] == StreamPlan::kNone) return submitted;
  node.origin = origin;
  record_[task] = event_node("RecordEvent", plan_->event[task], submitted);
  return submitted;
}

// Of the free blocks whose users have all ended when the task starts, the smallest that is large
// enough and not more than twice as large.
uint32_t AscendLowering::take_block(uint32_t value, const std::string& origin, uint32_t task,
                                    uint32_t& block) {
  const uint64_t bytes = builder_.model().values[value].tensor.bytes;
  block = image::kNone;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& candidate = blocks_[i];
    const bool suits = candidate.is_free && candidate.bytes >= bytes &&
                       candidate.bytes / 2 <= bytes &&
                       (block == image::kNone || candidate.bytes < blocks_[block].bytes) &&
                       std::all_of(candidate.tasks.begin(), candidate.tasks.end(),
                                   [&](uint32_t earlier) { return plan_->before(earlier, task); });
    if (suits) block = i;
  }
  if (block == image::kNone) {
    block = uint32_t(blocks_.size());
    blocks_.push_back({.value = value, .bytes = bytes, .tasks = {}, .users = {}});
    return append_alloc(main_, value, origin);
  }
  blocks_[block].is_free = false;
  image::Node node = make("BuildRefTensor", origin);
  node.inputs = {blocks_[block].value};
  node.outputs = {value};
  return append(main_, std::move(node));
}

void AscendLowering::give_block(uint32_t block, std::vector<uint32_t> tasks) {
  blocks_[block].is_free = true;
  blocks_[block].tasks = std::move(tasks);
}

void AscendLowering::free_blocks(const std::vector<uint32_t>& syncs) {
  for (Block& block : blocks_) {
    std::vector<uint32_t> after = std::move(block.users);
    launch_edges_kept_ += uint32_t(after.size());
    after.insert(after.end(), syncs.begin(), syncs.end());
    const std::string name = builder_.model().values[block.value].name;
    append_free(main_, block.value, name, std::move(after));
  }
}

}  // namespace davit::lowering
