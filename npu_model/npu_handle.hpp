// npu_handle.hpp: what a DvtNpu* points at. For npu_api.cpp and report.cpp only.
//
// Threads  `lock` covers `npu`.
// Trust    Callers pass live NPUs.
// Memory   Owned by whoever called dvt_npu_create().
#pragma once

#include <mutex>
#include <string>

#include "davit/device.h"
#include "npu_model/npu.hpp"

// The adapter of davit/device.h comes first, so that both pointers convert without arithmetic.
struct DvtNpu : DvtDevice {
  explicit DvtNpu(davit::npu::Settings settings);

  std::string name;  // "ascend:910B2"
  DvtDeviceVtable functions;
  mutable std::mutex lock;
  davit::npu::Npu npu;
};
