#include "stress/device_program.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "exec/api_error.hpp"
#include "ir/module.hpp"
#include "lowering/compile.hpp"

namespace davit::stress {
namespace {

constexpr const char* kUnary[] = {"Relu", "Sigmoid", "Neg", "Identity"};
constexpr const char* kBinary[] = {"Add", "Mul", "Sub"};
constexpr double kGiB = 1024.0 * 1024 * 1024;

uint32_t pick(Random& random, uint64_t below) {
  return static_cast<uint32_t>(random() % below);
}

Status status_of(const Error& error) {
  if (!error) return {};
  return error.detail() == nullptr ? Status(error.code(), DVT_STAGE_RUN, "no memory for the words")
                                   : exec::status_of(*error.detail());
}

// Nodes on matrices of one shape, so that no order of allocations cuts memory into pieces.
ir::Module random_module(Random& random, const std::vector<int64_t>& dims) {
  ir::Module module;
  module.opset_imports[""] = 13;
  module.source_name = "stress";
  module.source_digest = std::string(32, '0');
  std::vector<ir::ValueId> values;
  for (const char* name : {"a", "b"}) {
    const ir::ValueId value = module.add_value(ir::kMainGraph, name);
    module.set_dtype(value, DVT_F32);
    ir::Shape shape;
    for (const int64_t dim : dims) shape.push_back(dim < 0 ? ir::Dim() : ir::Dim(dim));
    module.set_shape(value, std::move(shape));
    module.add_graph_input(ir::kMainGraph, value);
    values.push_back(value);
  }
  const uint32_t count = 2 + pick(random, 40);
  for (uint32_t i = 0; i < count; ++i) {
    const auto operand = [&] {
      return values[values.size() - 1 - pick(random, std::min<size_t>(values.size(), 6))];
    };
    const std::string name = "v" + std::to_string(i);
    std::vector<ir::ValueId> inputs = {operand()};
    const bool unary = random() % 2 == 0;
    if (!unary) inputs.push_back(operand());
    values.push_back(module.add_value(ir::kMainGraph, name));
    module.add_node(ir::kMainGraph, {.domain = "",
                                     .op = unary ? kUnary[random() % 4] : kBinary[random() % 3],
                                     .name = name,
                                     .inputs = std::move(inputs),
                                     .outputs = {values.back()},
                                     .attributes = {}});
  }
  module.set_graph_outputs(ir::kMainGraph, {values.back()});
  return module;
}

}  // namespace

Result<DeviceProgram::NpuPtr> DeviceProgram::make_npu(DvtNpuMode mode, uint64_t seed,
                                                      uint64_t capacity_bytes) {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.mode = mode;
  options.seed = seed;
  char capacity[64];
  std::snprintf(capacity, sizeof capacity, "hbm.capacity=%.17g",
                static_cast<double>(capacity_bytes) / kGiB);
  const char* const overrides[] = {capacity};
  options.override = overrides;
  options.override_count = capacity_bytes == 0 ? 0 : 1;
  DvtNpu* npu = nullptr;
  DvtError error{};
  if (dvt_npu_create(&options, &npu, &error) != DVT_OK) return exec::status_of(error);
  return NpuPtr(npu);
}

Status DeviceProgram::compile(Random& random) {
  open_ = random() % 2 == 0;
  rows_ = {1 + pick(random, 8), 1 + pick(random, 8)};
  if (!open_) rows_.fill(rows_[0]);
  compiler::CompileOptions options;
  options.target = DVT_TARGET_ASCEND;
  auto compiled =
      compiler::compile_module(random_module(random, {open_ ? -1 : rows_[0], kColumns}), options);
  if (!compiled.ok()) return std::move(compiled.status());
  bytes_ = std::move(compiled->bytes);
  auto image = Image::borrow(bytes_);
  if (!image) return status_of(image.error());
  image_.emplace(std::move(*image));
  for (uint32_t shape = 0; shape < kShapes; ++shape) {
    for (Floats& input : inputs_[shape]) {
      input.resize(static_cast<size_t>(rows_[shape] * kColumns));
      for (float& value : input) value = static_cast<float>(pick(random, 17)) / 8 - 1;
    }
  }
  return {};
}

Result<Executor> DeviceProgram::load(DvtNpu& npu, bool apart) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.device = dvt_npu_device(&npu);
  options.device_memory =
      apart && !little_memory_ ? DVT_DEVICE_MEMORY_CACHED : DVT_DEVICE_MEMORY_DIRECT;
  if (apart) {
    options.pool = &pool_;
    options.schedule = DVT_SCHEDULE_DYNAMIC;
  }
  auto executor = Executor::create(*image_, &options);
  if (!executor) return status_of(executor.error());
  return std::move(*executor);
}

Error DeviceProgram::bind(Executor& executor, uint32_t shape) {
  const int64_t dims[] = {rows_[shape], kColumns};
  for (uint32_t input = 0; input < 2; ++input) {
    Error error = executor.bind_input(input, std::span<const float>(inputs_[shape][input]), DVT_F32,
                                      std::span<const int64_t>(dims));
    if (error) return error;
  }
  output_.assign(inputs_[shape][0].size(), 0);
  return executor.bind_output(0, std::span<float>(output_));
}

Status DeviceProgram::run_oracle(uint64_t& peak_bytes) {
  auto npu = make_npu(DVT_NPU_PROMPT, 0, 0);
  if (!npu.ok()) return std::move(npu.status());
  auto executor = load(**npu, /*apart=*/false);
  if (!executor.ok()) return std::move(executor.status());
  for (uint32_t shape = 0; shape < kShapes; ++shape) {
    Error error = bind(*executor, shape);
    if (!error) error = executor->run();
    if (error) return status_of(error);
    expected_[shape] = output_;
  }
  DvtNpuMemory memory;
  dvt_npu_memory(npu->get(), &memory);
  peak_bytes = memory.peak_bytes;
  return {};
}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::make(
    Random& random, const std::shared_ptr<mt_topo::Pool>& pool, bool little_memory) {
  std::unique_ptr<DeviceProgram> made(new DeviceProgram(pool, little_memory));
  uint64_t peak_bytes = 0;
  Status status = made->compile(random);
  if (status.ok()) status = made->run_oracle(peak_bytes);
  if (!status.ok()) return status;
  // A device has at least so much.
  const uint64_t little = std::max<uint64_t>(peak_bytes, 2048);
  auto npu = make_npu(DVT_NPU_ADVERSARIAL, random(), little_memory ? little : 0);
  if (!npu.ok()) return std::move(npu.status());
  made->npu_ = std::move(*npu);
  auto executor = made->load(*made->npu_, /*apart=*/true);
  if (!executor.ok()) return std::move(executor.status());
  made->executor_.emplace(std::move(*executor));
  auto cancel = Cancel::create();
  if (!cancel) return status_of(cancel.error());
  made->cancel_.emplace(std::move(*cancel));
  return made;
}

std::string DeviceProgram::run(Random& random) {
  const uint32_t shape = pick(random, kShapes);
  if (const Error error = bind(*executor_, shape)) return "binding: " + error.text();
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.flags = DVT_RUN_WATCHED;
  options.observer = [](void* self, const DvtNodeEvent* event) {
    auto& mine = *static_cast<DeviceProgram*>(self);
    mine.progress_.fetch_add(1, std::memory_order_relaxed);
    if (event->node == mine.cancel_at_.load(std::memory_order_relaxed)) mine.cancel_->request();
  };
  options.observer_user = this;
  options.cancel = cancel_->get();
  const bool ends_early = random() % 4 == 0;
  cancel_->reset();
  cancel_at_.store(ends_early ? pick(random, 100) : UINT32_MAX, std::memory_order_relaxed);
  const Error error = executor_->run(options);
  if (error) {
    if (ends_early && error.code() == DVT_CANCELLED) return "";
    return "a run on the device fails: " + error.text();
  }
  if (const uint64_t left = executor_->memory(DVT_MEMORY_HEAP).live_bytes; left != 0) {
    return "the heap has not got " + std::to_string(left) + " bytes back";
  }
  return output_ == expected_[shape] ? "" : "a run on the device has another result than in order";
}

std::string DeviceProgram::finish() {
  if (const Error error = executor_->unload()) return "unloading: " + error.text();
  DvtNpuMemory memory;
  dvt_npu_memory(npu_.get(), &memory);
  if (memory.live_bytes == 0) return "";
  return "the device has not got " + std::to_string(memory.live_bytes) + " bytes back";
}

}  // namespace davit::stress
