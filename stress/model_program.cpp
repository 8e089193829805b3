#include "stress/model_program.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "exec/api_error.hpp"
#include "lowering/compile.hpp"

namespace davit::stress {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// Below it the heap takes memory in small steps (DvtExecutorOptions.heap_bytes_max).
constexpr uint64_t kSmallHeapBytes = uint64_t{32} << 20;

uint32_t pick(Random& random, uint64_t below) {
  return static_cast<uint32_t>(random() % below);
}

Status status_of(const Error& error) {
  if (!error) return {};
  return error.detail() == nullptr ? Status(error.code(), DVT_STAGE_RUN, "no memory for the words")
                                   : exec::status_of(*error.detail());
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

}  // namespace

Result<ModelProgram::NpuPtr> ModelProgram::make_npu(DvtNpuMode mode, uint64_t seed,
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

Status ModelProgram::compile(Random& random) {
  const bool open = random() % 2 == 0;
  // On a device, matrices of one shape, so that no order of allocations cuts memory into pieces.
  make_variants(random, making_.on_device ? 8 : 400);
  if (!open) {
    for (Variant& variant : variants_) variant.rows = variants_[0].rows;
  }
  model_.rows = open ? -1 : variants_[0].rows;
  const uint32_t one_in = making_.on_device ? 4 : 2;
  if (pick(random, one_in) == 0) model_.flows = 1 + pick(random, 4);
  model_.takes_by_index = !making_.on_device && random() % 2 == 0;
  compiler::CompileOptions options;
  options.target = making_.on_device ? DVT_TARGET_ASCEND : DVT_TARGET_CPU;
  options.workers = making_.on_device ? 1 : making_.pool->workers();
  options.schedule_gain = 1e9;  // Whatever it promises.
  auto compiled = compiler::compile_module(random_module(random, model_), options);
  if (!compiled.ok()) return std::move(compiled.status());
  planned_ = compiled->report.schedule_workers > 0;
  bytes_ = std::move(compiled->bytes);
  auto image = Image::borrow(bytes_);
  if (!image) return status_of(image.error());
  image_.emplace(std::move(*image));
  const std::string where = making_.on_device ? "device: " : "host: ";
  ++scenarios_[where + (open ? "open shapes" : "fixed shapes")];
  if (model_.flows > 0) ++scenarios_[where + "branches and loops"];
  for (Variant& variant : variants_) {
    for (Floats& matrix : variant.matrices) {
      matrix.resize(static_cast<size_t>(variant.rows * model_.columns));
      for (float& value : matrix) value = static_cast<float>(pick(random, 17)) / 8 - 1;
    }
  }
  return {};
}

void ModelProgram::make_variants(Random& random, int64_t rows_max) {
  for (Variant& variant : variants_) {
    variant.rows = 1 + pick(random, static_cast<uint64_t>(rows_max));
    variant.go = random() % 2 == 0;
    variant.trip = pick(random, 6);
  }
}

Result<Executor> ModelProgram::load(DvtNpu* npu, bool oracle) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  if (npu != nullptr) {
    options.device = dvt_npu_device(npu);
    const bool cached = !oracle && making_.memory == ModelMemory::kEnough;
    options.device_memory = cached ? DVT_DEVICE_MEMORY_CACHED : DVT_DEVICE_MEMORY_DIRECT;
  } else {
    options.heap_bytes_max = oracle ? kSmallHeapBytes : heap_bytes_max_;
  }
  if (!oracle) {
    options.pool = &pool_;
    options.schedule = DVT_SCHEDULE_DYNAMIC;
    if (npu == nullptr && making_.mode == mt_topo::Mode::kPlanned) {
      options.schedule = planned_ ? DVT_SCHEDULE_PLANNED : DVT_SCHEDULE_AUTO;
    } else if (npu == nullptr && making_.mode == mt_topo::Mode::kAutomatic) {
      options.schedule = DVT_SCHEDULE_AUTO;
    } else if (npu == nullptr && making_.mode == mt_topo::Mode::kSequential) {
      options.schedule = DVT_SCHEDULE_SEQUENTIAL;
    }
  }
  auto executor = Executor::create(*image_, &options);
  if (!executor) return status_of(executor.error());
  return std::move(*executor);
}

Error ModelProgram::bind(Executor& executor, const Variant& variant) {
  const auto at = [](ModelInput input) { return static_cast<uint32_t>(input); };
  const int64_t dims[] = {variant.rows, model_.columns};
  for (uint32_t i = 0; i < 2; ++i) {
    Error error =
        executor.bind_input(at(ModelInput::kA) + i, std::span<const float>(variant.matrices[i]),
                            DVT_F32, std::span<const int64_t>(dims));
    if (error) return error;
  }
  Error error = executor.bind_input(at(ModelInput::kGo), std::span<const bool>(&variant.go, 1));
  if (!error) {
    error = executor.bind_input(at(ModelInput::kTrip), std::span<const int64_t>(&variant.trip, 1));
  }
  if (!error) {
    error = executor.bind_input(at(ModelInput::kIndex), std::span<const int64_t>(&index_, 1));
  }
  if (error) return error;
  output_.assign(variant.matrices[0].size(), 0);
  return executor.bind_output(0, std::span<float>(output_));
}

Status ModelProgram::run_oracle(uint64_t& peak_bytes) {
  NpuPtr npu;
  if (making_.on_device) {
    auto made = make_npu(DVT_NPU_PROMPT, 0, 0);
    if (!made.ok()) return std::move(made.status());
    npu = std::move(*made);
  }
  auto executor = load(npu.get(), /*oracle=*/true);
  if (!executor.ok()) return std::move(executor.status());
  for (Variant& variant : variants_) {
    executor->trim();
    Error error = bind(*executor, variant);
    if (!error) error = executor->run();
    if (error) return status_of(error);
    variant.expected = output_;
  }
  peak_bytes = executor->memory(DVT_MEMORY_HEAP).reserved_peak_bytes;
  if (npu == nullptr) return {};
  DvtNpuMemory memory;
  dvt_npu_memory(npu.get(), &memory);
  peak_bytes = memory.peak_bytes;
  return {};
}

Status ModelProgram::make_device(Random& random, uint64_t peak_bytes) {
  // A device has at least so much.
  const uint64_t little = std::max<uint64_t>(peak_bytes, 2048);
  auto npu = make_npu(DVT_NPU_ADVERSARIAL, random(),
                      making_.memory == ModelMemory::kAsInOrder ? little : 0);
  if (!npu.ok()) return std::move(npu.status());
  npu_ = std::move(*npu);
  return {};
}

Result<std::unique_ptr<ModelProgram>> ModelProgram::make(Random& random,
                                                         const ModelMaking& making) {
  std::unique_ptr<ModelProgram> made(new ModelProgram(making));
  uint64_t peak_bytes = 0;
  Status status = made->compile(random);
  if (status.ok()) status = made->run_oracle(peak_bytes);
  if (status.ok() && making.on_device) status = made->make_device(random, peak_bytes);
  if (!status.ok()) return status;
  if (making.memory != ModelMemory::kEnough) {
    const uint64_t bytes = making.memory == ModelMemory::kTooLittle ? peak_bytes / 2 : peak_bytes;
    made->heap_bytes_max_ = std::max<uint64_t>(bytes, 1);
  }
  constexpr const char* kMemory[] = {"enough memory", "as little memory as in order",
                                     "too little memory"};
  ++made->scenarios_[std::string(making.on_device ? "device: " : "host: ") +
                     kMemory[static_cast<size_t>(making.memory)]];
  auto executor = made->load(made->npu_.get(), /*oracle=*/false);
  if (!executor.ok()) return std::move(executor.status());
  made->executor_.emplace(std::move(*executor));
  auto cancel = Cancel::create();
  if (!cancel) return status_of(cancel.error());
  made->cancel_.emplace(std::move(*cancel));
  return made;
}

Error ModelProgram::run_watched(uint32_t cancel_at) {
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.flags = DVT_RUN_WATCHED;
  options.observer = [](void* self, const DvtNodeEvent* /*event*/) {
    auto& mine = *static_cast<ModelProgram*>(self);
    mine.progress_.fetch_add(1, std::memory_order_relaxed);
    const uint32_t ran = mine.ran_.fetch_add(1, std::memory_order_relaxed);
    if (ran == mine.cancel_at_.load(std::memory_order_relaxed)) mine.cancel_->request();
  };
  options.observer_user = this;
  options.cancel = cancel_->get();
  cancel_->reset();
  ran_.store(0, std::memory_order_relaxed);
  cancel_at_.store(cancel_at, std::memory_order_relaxed);
  return executor_->run(options);
}

std::string ModelProgram::run(Random& random) {
  const Variant& variant = variants_[pick(random, variants_.size())];
  const bool cancels = random() % 4 == 0;
  // Out of range; nodes of branches that are not taken do not ask.
  index_ = model_.takes_by_index && random() % 4 == 0 ? variant.rows : 0;
  if (cancels) ++scenarios_["model: cancelled"];
  if (index_ != 0) ++scenarios_["model: a row that is not there"];
  // What runs before have left in the heap may cut it into pieces.
  if (!making_.on_device) executor_->trim();
  if (const Error error = bind(*executor_, variant)) return "binding: " + error.text();
  const Error error = run_watched(cancels ? pick(random, 100) : UINT32_MAX);
  if (error) {
    if (std::string wrong = check_failure(error, cancels); !wrong.empty()) return wrong;
  } else if (!same_bits(output_, variant.expected)) {
    return "a run of a model has another result than in order";
  }
  // An output that is bound is the caller's: nothing is left.
  if (const uint64_t left = executor_->memory(DVT_MEMORY_HEAP).live_bytes; left != 0) {
    return "the heap has not got " + std::to_string(left) + " bytes back";
  }
  return "";
}

std::string ModelProgram::check_failure(const Error& error, bool cancels) {
  if (cancels && error.code() == DVT_CANCELLED) return "";
  if (index_ != 0 && error.code() == DVT_INVALID_ARGUMENT) return "";
  if (making_.memory == ModelMemory::kTooLittle && error.code() == DVT_OUT_OF_MEMORY) {
    // Else who comes first decides, and scenarios repeat.
    if (!cancels && index_ == 0) ++scenarios_["model: out of memory"];
    return "";
  }
  return "a run of a model fails: " + error.text();
}

std::string ModelProgram::finish() {
  if (const Error error = executor_->unload()) return "unloading: " + error.text();
  if (npu_ == nullptr) return "";
  DvtNpuMemory memory;
  dvt_npu_memory(npu_.get(), &memory);
  if (memory.live_bytes == 0) return "";
  return "the device has not got " + std::to_string(memory.live_bytes) + " bytes back";
}

}  // namespace davit::stress
