// harness.hpp: a device, kernels on byte buffers, and the invariants of task records.
//
// Threads  As the NPU: any, one at a time.
// Trust    Test code only; failures are doctest checks.
// Memory   A Device owns its NPU; destroying it drops what is unfinished.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "davit/npu.h"

namespace davit::testing {

inline void check_invariants(DvtNpu* npu);

// False while a device is broken on purpose.
inline bool expects_invariants = true;

// Every run of every test ends with a look at its records.
struct NpuDeleter {
  void operator()(DvtNpu* npu) const {
    if (expects_invariants) check_invariants(npu);
    dvt_npu_destroy(npu);
  }
};
using NpuPtr = std::unique_ptr<DvtNpu, NpuDeleter>;

struct DeviceSettings {
  DvtNpuMode mode = DVT_NPU_PROMPT;
  bool timing_only = false;
  const char* hang = nullptr;
  std::vector<const char*> overrides = {};
  uint64_t seed = 0;
  bool check_order = false;
  const char* soc = nullptr;
  DvtNpu* beside = nullptr;
};

inline NpuPtr make_npu(const DeviceSettings& settings = {}) {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.mode = settings.mode;
  options.timing_only = settings.timing_only ? 1 : 0;
  options.hang = settings.hang;
  options.seed = settings.seed;
  if (settings.soc != nullptr) options.soc = settings.soc;
  options.check_order = settings.check_order ? 1 : 0;
  options.beside = settings.beside;
  options.override = settings.overrides.data();
  options.override_count = settings.overrides.size();
  DvtNpu* npu = nullptr;
  DvtError error{};
  const DvtCode code = dvt_npu_create(&options, &npu, &error);
  INFO(std::string(error.message));
  REQUIRE(code == DVT_OK);
  return NpuPtr(npu);
}

inline DvtStream* make_stream(DvtNpu* npu, uint32_t priority = 0) {
  DvtStream* stream = nullptr;
  REQUIRE(dvt_npu_stream_create(npu, priority, &stream) == DVT_OK);
  return stream;
}

inline DvtEvent* make_event(DvtNpu* npu) {
  DvtEvent* event = nullptr;
  REQUIRE(dvt_npu_event_create(npu, &event) == DVT_OK);
  return event;
}

inline DvtNotify* make_notify(DvtNpu* npu) {
  DvtNotify* notify = nullptr;
  REQUIRE(dvt_npu_notify_create(npu, &notify) == DVT_OK);
  return notify;
}

template <class T>
T* make_array(DvtNpu* npu, size_t count, const char* owner = "array") {
  void* address = nullptr;
  REQUIRE(dvt_npu_malloc(npu, count * sizeof(T), owner, &address) == DVT_OK);
  return static_cast<T*>(address);
}

// An argument record of `inputs` then `outputs`, all u8[bytes], laid out as lowering does. Must
// outlive the tasks that use it, as an image does: it holds their tensor.
class Arguments {
 public:
  Arguments(std::vector<void*> inputs, std::vector<void*> outputs, uint64_t bytes) {
    const size_t count = inputs.size() + outputs.size();
    const size_t cells = 32 + count * 8;
    const size_t tensor = cells + count * sizeof(DvtCell);
    tensor_ = std::make_unique<DvtTensor>();
    tensor_->dtype = DVT_U8;
    tensor_->rank = 1;
    tensor_->bytes = bytes;
    tensor_->dims[0] = static_cast<int64_t>(bytes);
    record_.resize(tensor);
    DvtContext header{};
    header.input_count = static_cast<uint16_t>(inputs.size());
    header.output_count = static_cast<uint16_t>(outputs.size());
    std::memcpy(record_.data(), &header, 32);
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    for (size_t i = 0; i < count; ++i) {
      const uint64_t offset = cells + i * sizeof(DvtCell);
      std::memcpy(record_.data() + 32 + i * 8, &offset, 8);
      DvtCell cell{};
      cell.data = inputs[i];
      cell.tensor = tensor_.get();
      std::memcpy(record_.data() + offset, &cell, sizeof cell);
    }
  }

  [[nodiscard]] std::vector<std::byte>& bytes() { return record_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return record_; }

 private:
  std::vector<std::byte> record_;
  std::unique_ptr<DvtTensor> tensor_;
};

// out[i] = in[i] + 1
inline DvtCode increment(void* raw) {
  const auto* context = static_cast<const DvtContext*>(raw);
  const DvtCell* in = dvt_input(context, 0);
  const DvtCell* out = dvt_output(context, 0);
  for (uint64_t i = 0; i < in->tensor->bytes; ++i) {
    static_cast<uint8_t*>(out->data)[i] =
        static_cast<uint8_t>(static_cast<const uint8_t*>(in->data)[i] + 1);
  }
  return DVT_OK;
}

inline DvtCode refuse(void*) {
  return DVT_KERNEL_FAILED;
}

inline DvtTaskCost vector_cost(uint64_t elements, uint64_t passes_x100 = 100) {
  DvtTaskCost cost{};
  cost.kind = DVT_TASK_VECTOR;
  cost.dtype = DVT_F32;
  cost.vector_elements = elements;
  cost.vector_passes_x100 = passes_x100;
  cost.read_bytes = elements * 4;
  cost.write_bytes = elements * 4;
  return cost;
}

inline DvtTaskCost matmul_cost(uint64_t m, uint64_t k, uint64_t n, DvtDType dtype = DVT_F16) {
  DvtTaskCost cost{};
  cost.kind = DVT_TASK_MATMUL;
  cost.dtype = dtype;
  cost.batch = 1;
  cost.m = m;
  cost.k = k;
  cost.n = n;
  return cost;
}

inline DvtCode launch(DvtNpu* npu, DvtStream* stream, const Arguments& arguments,
                      const DvtTaskCost& cost, const char* name = "kernel",
                      DvtKernelFn run = increment) {
  const DvtLaunch launch{run,  arguments.bytes().data(), arguments.bytes().size(), &cost,
                         name, "test::Increment(1)"};
  return dvt_npu_launch(npu, stream, &launch);
}

// For timing_only devices: no arguments.
inline DvtCode launch_timing(DvtNpu* npu, DvtStream* stream, const DvtTaskCost& cost,
                             const char* name = "kernel", const char* op = "Test") {
  const DvtLaunch launch{increment, nullptr, 0, &cost, name, op};
  return dvt_npu_launch(npu, stream, &launch);
}

inline std::vector<DvtNpuTask> tasks_of(DvtNpu* npu) {
  std::vector<DvtNpuTask> out(dvt_npu_task_count(npu));
  bool good = true;
  for (size_t i = 0; i < out.size(); ++i) good = dvt_npu_task(npu, i, &out[i]) == DVT_OK && good;
  REQUIRE(good);
  return out;
}

inline DvtNpuTask task_named(DvtNpu* npu, const std::string& name) {
  for (const DvtNpuTask& task : tasks_of(npu)) {
    if (task.name == name) return task;
  }
  FAIL("no task named " << name);
  return {};
}

inline double parameter_of(const DvtNpu* npu, const std::string& key) {
  for (uint32_t i = 0; i < dvt_npu_parameter_count(npu); ++i) {
    DvtNpuParameter parameter{};
    if (dvt_npu_parameter(npu, i, &parameter) == DVT_OK && key == parameter.key) {
      return parameter.value;
    }
  }
  FAIL("no parameter " << key);
  return 0;
}

// A check that costs nothing when it holds: there may be a million tasks.
inline void expect(bool holds, const char* what) {
  if (!holds) FAIL_CHECK(std::string(what));
}

// Nothing is busy for longer than there is time: cores of both kinds (their bodies at full speed),
// AICPUs and engines (their tasks from start to end), from the first start to the last end.
inline void check_utilisation(DvtNpu* npu) {
  double aic = 0;
  double aiv = 0;
  double aicpu = 0;
  std::array<int64_t, 3> engine_free{};  // In, out, on the device: one task at a time.
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  for (const DvtNpuTask& task : tasks_of(npu)) {
    const double busy = static_cast<double>(task.body_ps) * task.block_dim;
    if (task.type == DVT_NPU_AI_CORE || task.type == DVT_NPU_MIX_AIC) aic += busy;
    if (task.type == DVT_NPU_AI_VECTOR_CORE) aiv += busy;
    if (task.type == DVT_NPU_AI_CPU) aicpu += static_cast<double>(task.end_ps - task.start_ps);
    if (task.type >= DVT_NPU_COPY_H2D && task.type <= DVT_NPU_MEMSET) {
      int64_t& free = engine_free[std::min(task.type - DVT_NPU_COPY_H2D, 2)];
      expect(task.start_ps >= free, "task.start_ps >= free");
      free = task.end_ps;
    }
    begin = std::min(begin, task.start_ps);
    end = std::max(end, task.end_ps);
  }
  const double span = static_cast<double>(end - std::min(begin, end));
  expect(aic <= parameter_of(npu, "core.aic") * span,
         "aic <= parameter_of(npu, 'core.aic') * span");
  expect(aiv <= parameter_of(npu, "core.aiv") * span,
         "aiv <= parameter_of(npu, 'core.aiv') * span");
  expect(aicpu <= parameter_of(npu, "core.aicpu") * span,
         "aicpu <= parameter_of(npu, 'core.aicpu') * span");
}

// What holds for every run: no negative part, parts that add up, pipes within the body, order
// within streams, and completion in order of time.
inline void check_invariants(DvtNpu* npu) {
  check_utilisation(npu);
  std::vector<DvtNpuTask> last;
  int64_t last_end = 0;
  for (const DvtNpuTask& task : tasks_of(npu)) {
    expect(task.submit_ps >= 0, "task.submit_ps >= 0");
    expect(task.ready_ps >= task.submit_ps, "task.ready_ps >= task.submit_ps");
    expect(task.start_ps >= task.ready_ps, "task.start_ps >= task.ready_ps");
    expect(task.head_ps >= 0, "task.head_ps >= 0");
    expect(task.body_ps >= 0, "task.body_ps >= 0");
    expect(task.stall_ps >= 0, "task.stall_ps >= 0");
    expect(task.head_ps + task.body_ps + task.stall_ps == task.end_ps - task.start_ps,
           "task.head_ps + task.body_ps + task.stall_ps == task.end_ps - task.start_ps");
    for (const uint64_t cycles : task.pipe_cycles) {
      expect(cycles <= task.body_cycles, "cycles <= task.body_cycles");
    }
    expect(task.end_ps >= last_end, "task.end_ps >= last_end");
    last_end = task.end_ps;
    if (task.stream >= last.size()) last.resize(task.stream + 1);
    if (last[task.stream].name != nullptr) {
      expect(task.start_ps >= last[task.stream].end_ps,
             "task.start_ps >= last[task.stream].end_ps");
      expect(task.id > last[task.stream].id, "task.id > last[task.stream].id");
    }
    last[task.stream] = task;
  }
  expect(last_end <= dvt_npu_host_now_ps(npu), "last_end <= dvt_npu_host_now_ps(npu)");
}

inline std::string last_message() {
  return dvt_npu_last_error()->message;
}

}  // namespace davit::testing
