// Several streams: which task goes where, events around tasks, memory that is used again where
// events order its users. See lower_ascend.hpp and stream_plan.hpp.
#include <algorithm>
#include <cmath>

#include "lowering/lower_ascend.hpp"

namespace davit::lowering {
namespace {

// Of a device of the 910B's size, about: plans need the order of magnitude. What kernels of each
// kind take besides their work, and what the host takes to submit one, or an event.
constexpr double kProductNs = 7000;
constexpr double kConvolutionNs = 12'000;
constexpr double kVectorNs = 4000;
constexpr double kCpuNs = 7500;
constexpr double kCopyNs = 8000;
constexpr double kSubmitNs = 9000;
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
      const double head = cost.kind == DVT_TASK_CONV ? kConvolutionNs : kProductNs;
      return {Engine::kCube, head + std::max(products / kProductsPerNs, moved), {}};
    }
    case DVT_TASK_AICPU:
      return {Engine::kCpu, kCpuNs + elements / kCpuElementsPerNs, {}};
    default: {
      const double passes = double(cost.vector_passes_x100) / 100;
      return {Engine::kVector, kVectorNs + std::max(elements * passes / kElementsPerNs, moved), {}};
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
    const double copy = kCopyNs + bytes_of(inputs[port]) / kCopyBytesPerNs;
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
    tasks.push_back({Engine::kCopyOut, kCopyNs + bytes_of(output) / kCopyBytesPerNs, {}});
    need(output);
  }
  return tasks;
}

// Returns the time of the plan that is taken.
double AscendLowering::plan(uint32_t streams_max) {
  tasks_ = tasks();
  // Streams that are taken whatever they promise are laid out for the device alone.
  StreamPlan made = plan_streams(tasks_, streams_max, passes_.stream_gain > 1 ? 0 : kSubmitNs);
  if (made.streams < 2) {
    why_one_stream_ = "no two tasks would run at a time, as fast as a host submits them";
    return made.one_stream_ns;
  }
  if (made.makespan_ns > passes_.stream_gain * made.one_stream_ns) {
    const auto text = [](double ns) { return std::to_string(std::llround(ns / 1000)) + " us"; };
    why_one_stream_ = std::to_string(made.streams) + " promise " + text(made.makespan_ns) +
                      " with " + std::to_string(made.events) + " events, one " +
                      text(made.one_stream_ns);
    return made.one_stream_ns;
  }
  record_.assign(tasks_.size(), image::kNone);
  plan_ = std::move(made);
  return plan_->makespan_ns;
}

std::optional<std::vector<Step>> AscendLowering::reordered() const {
  const uint32_t first = task_of_step(0);
  std::vector<uint32_t> order = order_by_distance(tasks_, first, task_of_output(0));
  // What Init runs comes first: its readers do not know it as a task.
  std::vector<Step> steps;
  for (uint32_t i = 0; i < moves_.size(); ++i) {
    if (moves_[i]) steps.push_back(prepared_.steps[i]);
  }
  std::erase_if(order, [&](uint32_t task) { return moves_[task - first]; });
  if (std::is_sorted(order.begin(), order.end())) return std::nullopt;
  for (const uint32_t task : order) steps.push_back(prepared_.steps[task - first]);
  return steps;
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
