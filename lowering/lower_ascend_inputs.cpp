// What comes before the steps of Main: inputs, of which small ones share a copy (fuse_copies), and
// steps that only depend on constants, which Init runs (move_to_init). See lower_ascend.hpp.
#include <algorithm>

#include "lowering/lower_ascend.hpp"

namespace davit::lowering {

using image::ValueKind;

namespace {

// Beyond this a copy of its own costs less than moving the bytes on the host once more.
constexpr uint64_t kPackedBytesMax = 64 << 10;

uint64_t packed_bytes(uint64_t bytes) {
  return (bytes + DVT_PACK_ALIGNMENT - 1) / DVT_PACK_ALIGNMENT * DVT_PACK_ALIGNMENT;
}

}  // namespace

std::vector<bool> AscendLowering::used_inputs() const {
  std::vector<bool> used(module_.value_count(), false);
  const auto use = [&](ir::ValueId value) {
    if (value != ir::kNoValue) used[index_of(prepared_.root_of(value))] = true;
  };
  for (const Step& step : prepared_.steps) {
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) use(step.input(module_, k));
  }
  for (const ir::ValueId output : module_.graph_outputs(ir::kMainGraph)) use(output);
  return used;
}

// Not those that leave as they came: they have a Free of their own.
void AscendLowering::choose_pack(const std::vector<bool>& used) {
  if (!passes_.fuse_copies) return;
  const auto inputs = module_.graph_inputs(ir::kMainGraph);
  for (uint32_t port = 0; port < inputs.size(); ++port) {
    const ir::ValueId input = inputs[port];
    const auto tensor = tensor_of(module_, input);
    const bool leaves = usage_[index_of(input)].last_step == prepared_.steps.size();
    if (!used[index_of(input)] || leaves || !tensor.ok() || tensor->bytes == 0 ||
        tensor->bytes > kPackedBytesMax || tensor->dtype == DVT_STRING) {
      continue;
    }
    pack_.ports.push_back(port);
  }
  if (pack_.ports.size() < 2) pack_.ports.clear();
  for (const uint32_t port : pack_.ports) packed_[index_of(inputs[port])] = true;
  pack_.left = uint32_t(pack_.ports.size());
}

Status AscendLowering::add_inputs() {
  const std::vector<bool> used = used_inputs();
  const auto inputs = module_.graph_inputs(ir::kMainGraph);
  for (uint32_t port = 0; port < inputs.size(); ++port) {
    const ir::ValueId input = inputs[port];
    auto host = builder_.add_value(ValueKind::kInput, input, port);
    if (!host.ok()) return std::move(host.status());
    input_values_.push_back(*host);
    if (!used[index_of(input)] || packed_[index_of(input)]) continue;
    const std::string name(module_.value_name(input));
    const uint32_t task = task_of_input(port);
    auto alloc = allocate(input, name, task);
    if (!alloc.ok()) return std::move(alloc.status());
    image::Node copy = make("LaunchH2DCopy", name);
    copy.inputs = {*host, device_[index_of(input)]};
    Usage& usage = usage_of(input);
    usage.writer = submit(std::move(copy), task);
    usage.tasks.push_back(task);
    if (usage.block != image::kNone) blocks_[usage.block].users.push_back(usage.writer);
  }
  return pack_.ports.empty() ? Status() : add_pack();
}

// One copy of all packed inputs, of which each is a part.
Status AscendLowering::add_pack() {
  const auto inputs = module_.graph_inputs(ir::kMainGraph);
  image::Node pack = make("PackHost", "");
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  std::string names;
  for (const uint32_t port : pack_.ports) {
    const uint32_t host = input_values_[port];
    pack.inputs.push_back(host);
    offsets.push_back(bytes);
    bytes += packed_bytes(builder_.model().values[host].tensor.bytes);
    names += (names.empty() ? "" : "+") + std::string(module_.value_name(inputs[port]));
  }
  pack.origin = names;
  intervals_.push_back({0, 1, bytes});
  const uint32_t staging = builder_.add_scratch(ValueKind::kPlanned, bytes, intervals_.size() - 1);
  pack.outputs = {staging};
  append(main_, std::move(pack));
  pack_.block = builder_.add_scratch(ValueKind::kDevice, bytes, 0);
  const uint32_t task = task_of_input(pack_.ports.front());
  uint32_t block = image::kNone;
  allocate_scratch(pack_.block, names, task, block);
  image::Node copy = make("LaunchH2DCopy", names);
  copy.inputs = {staging, pack_.block};
  const uint32_t submitted = submit(std::move(copy), task);
  if (block != image::kNone) blocks_[block].users.push_back(submitted);
  for (size_t i = 0; i < pack_.ports.size(); ++i) {
    const ir::ValueId input = inputs[pack_.ports[i]];
    auto part = builder_.add_value(ValueKind::kDevice, input, 0);
    if (!part.ok()) return std::move(part.status());
    image::Node node = make("BuildPartTensor", std::string(module_.value_name(input)));
    node.attributes = ops::attribute_bytes(DvtPartAttributes{.offset = int64_t(offsets[i])});
    node.inputs = {pack_.block};
    node.outputs = {*part};
    append(main_, std::move(node));
    device_[index_of(input)] = *part;
    usage_of(input).writer = submitted;
    usage_of(input).block = block;
  }
  return {};
}

// In the order of the steps, so that what follows from moved ones moves, too.
void AscendLowering::find_moved() {
  for (const Step& step : prepared_.steps) {
    moves_.push_back(can_move(step));
    for (size_t k = 0; moves_.back() && k < step.recipe.outputs.size(); ++k) {
      moved_[index_of(step.output(module_, k))] = true;
    }
  }
}

// Pure, and of constants alone: it need not run again.
bool AscendLowering::can_move(const Step& step) const {
  if (!passes_.move_to_init || (step.recipe.kernel->flags & DVT_KERNEL_PURE) == 0) return false;
  for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
    const ir::ValueId input = step.input(module_, k);
    if (input != ir::kNoValue && !is_weight(input)) return false;
  }
  return true;
}

Status AscendLowering::move_step(const Step& step, image::Node launch) {
  for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
    auto value = operand(step.input(module_, k));
    if (!value.ok()) return std::move(value.status());
    launch.inputs.push_back(*value);
  }
  launch.control_inputs = weight_copies_;
  launch.control_inputs.push_back(create_stream_);
  const auto allocate_in_init = [&](uint32_t value) {
    launch.control_inputs.push_back(append_alloc(init_, value, launch.origin));
    launch.outputs.push_back(value);
    weight_allocations_.push_back(value);
  };
  for (size_t k = 0; k < step.recipe.outputs.size(); ++k) {
    const ir::ValueId output = step.output(module_, k);
    auto value = builder_.add_value(ValueKind::kDevice, output, 0);
    if (!value.ok()) return std::move(value.status());
    device_[index_of(output)] = *value;
    allocate_in_init(*value);
  }
  for (const uint64_t bytes : step.recipe.workspace_bytes) {
    allocate_in_init(builder_.add_scratch(ValueKind::kDevice, bytes, 0));
  }
  weight_copies_.push_back(append(init_, std::move(launch)));
  return {};
}

}  // namespace davit::lowering
