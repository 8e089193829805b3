// device.hpp: the device that an image runs on, and what the Ascend model has to say after a run.
//
// Threads  One thread.
// Memory   A DeviceHandle owns the model; it must outlive the executors made with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/session.hpp"
#include "davit/npu.h"
#include "exec/trace.hpp"

namespace davit::cli {

struct NpuDestroy {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};

// The device for one image: nothing for cpu, a model for ascend.
struct DeviceHandle {
  std::unique_ptr<DvtNpu, NpuDestroy> npu;
  [[nodiscard]] DvtDevice* device() const { return npu ? dvt_npu_device(npu.get()) : nullptr; }
};

// How the Ascend model behaves.
struct DeviceSettings {
  std::string mode = "prompt";         // --device-mode: prompt, lazy or adversarial[:SEED].
  std::vector<std::string> overrides;  // --soc-override: KEY=VALUE.
};

// `requested` is --device: "", "cpu", "npu-sim" or "npu-sim:SOC"; it must agree with the image's
// `target`; settings for the cpu are an error unless they are the defaults. On success `resolved`
// is what it came to mean.
Result<DeviceHandle> open_device(const std::string& requested, const std::string& target,
                                 const DeviceSettings& settings, std::string& resolved);

// Predicted times, to stdout and JSON: the last run's device and host time, operators by share,
// utilisation of cores and copy engines. Rows of operators: at most `top`.
void report_npu(Session& session, const DvtNpu* npu, size_t top);

// msprof's op_summary.
Status write_op_summary(const DvtNpu* npu, const std::string& path);

}  // namespace davit::cli
