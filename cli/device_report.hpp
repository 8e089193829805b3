// device_report.hpp: a predicted run as one HTML page that opens without a server or a script: what
// bounds it, its timeline, operators, a roofline, and memory over time.
//
// Threads  Pure function.
// Trust    Names come from models: they are escaped.
// Memory   Returns the document, at most about 2 MB.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "davit/npu.h"
#include "exec/image.hpp"

namespace davit::cli {

struct DeviceReport {
  std::string title;  // Model and target.
  const DvtNpu* npu = nullptr;
  const exec::ImageView* image = nullptr;  // Whose costs the roofline takes.
  std::span<const uint64_t> live_bytes;    // When each node had ended.
  size_t top = 20;                         // Rows of operators.
};

// Of the last run. Precondition: there is one.
std::string device_report_html(const DeviceReport& report);

}  // namespace davit::cli
