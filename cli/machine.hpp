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

// CPUs that this process may really use.
struct Cpus {
  double usable = 1;  // min(affinity, quota)
  uint32_t online = 1;
  uint32_t affinity = 1;
  double quota = 0;  // CPUs the cgroup grants; 0: no limit.
  std::string why;   // "affinity: 2 of 8", "cgroup quota: 1.5"
};
Cpus available_cpus();

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
