// machine.hpp: facts about this machine that explain a measurement.
//
// Threads  Pure reads of /proc and /sys.
// Trust    Missing or odd files give "unknown", never an error.
// Memory   Returns owned values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace davit::cli {

struct Machine {
  std::string cpu_model;
  std::vector<std::string> isa;  // Of those that matter here, as /proc/cpuinfo names them.
  std::string kernel;            // "Linux 6.1.0"
  std::string libc;
  uint64_t memory_bytes = 0;
  uint64_t memory_limit_bytes = 0;  // Of the cgroup; 0: no limit.
  uint64_t page_bytes = 0;
  std::string governor;  // Of CPU 0; "" when unknown.
};
Machine this_machine();

}  // namespace davit::cli
