// harness.hpp: a device, kernels on byte buffers, and the invariants of task records.
//
// Threads  As the NPU: any, one at a time.
// Trust    Test code only; failures are doctest checks.
// Memory   A Device owns its NPU; destroying it drops what is unfinished.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "davit/npu.h"

namespace davit::testing {

struct NpuDeleter {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};
using NpuPtr = std::unique_ptr<DvtNpu, NpuDeleter>;

struct DeviceSettings {
  DvtNpuMode mode = DVT_NPU_PROMPT;
  bool timing_only = false;
  const char* hang = nullptr;
  std::vector<const char*> overrides = {};
  uint64_t seed = 0;
  bool check_order = false;
};

inline NpuPtr make_npu(const DeviceSettings& settings = {}) {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.mode = settings.mode;
  options.timing_only = settings.timing_only ? 1 : 0;
  options.hang = settings.hang;
  options.seed = settings.seed;
  options.check_order = settings.check_order ? 1 : 0;
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
  for (size_t i = 0; i < out.size(); ++i) REQUIRE(dvt_npu_task(npu, i, &out[i]) == DVT_OK);
  return out;
}

inline DvtNpuTask task_named(DvtNpu* npu, const std::string& name) {
  for (const DvtNpuTask& task : tasks_of(npu)) {
    if (task.name == name) return task;
  }
  FAIL("no task named " << name);
  return {};
}

// What holds for every run: no negative part, parts that add up, pipes within the body, order
// within streams, and completion in order of time.
inline void check_invariants(DvtNpu* npu) {
  std::vector<DvtNpuTask> last;
  int64_t last_end = 0;
  for (const DvtNpuTask& task : tasks_of(npu)) {
    CHECK(task.submit_ps >= 0);
    CHECK(task.ready_ps >= task.submit_ps);
    CHECK(task.start_ps >= task.ready_ps);
    CHECK(task.head_ps >= 0);
    CHECK(task.body_ps >= 0);
    CHECK(task.stall_ps >= 0);
    CHECK(task.head_ps + task.body_ps + task.stall_ps == task.end_ps - task.start_ps);
    for (const uint64_t cycles : task.pipe_cycles) CHECK(cycles <= task.body_cycles);
    CHECK(task.end_ps >= last_end);
    last_end = task.end_ps;
    if (task.stream >= last.size()) last.resize(task.stream + 1);
    if (last[task.stream].name != nullptr) {
      CHECK(task.start_ps >= last[task.stream].end_ps);
      CHECK(task.id > last[task.stream].id);
    }
    last[task.stream] = task;
  }
  CHECK(last_end <= dvt_npu_host_now_ps(npu));
}

inline std::string last_message() {
  return dvt_npu_last_error()->message;
}

}  // namespace davit::testing
