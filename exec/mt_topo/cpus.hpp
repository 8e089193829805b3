// cpus.hpp: how many CPUs this process may use: the lesser of affinity and cgroup quota.
//
// Threads  Any.
// Trust    Files of the kernel's; what cannot be read is no limit.
// Memory   Returns a value.
#pragma once

#include <cstdint>
#include <string>

namespace davit::mt_topo {

struct Cpus {
  uint32_t online = 1;
  uint32_t affinity = 1;
  double quota = 0;  // CPUs that the cgroups of the process are granted; 0: no limit.

  [[nodiscard]] bool quota_holds() const { return quota > 0 && quota < affinity; }
  // What is usable, as it is: a quota may be 1.5.
  [[nodiscard]] double usable() const { return quota_holds() ? quota : affinity; }
  // Threads that can make use of it, at least 1.
  [[nodiscard]] uint32_t threads() const;
  // Which limit that is: "cgroup quota: 1.5", "affinity: 2 of 16".
  [[nodiscard]] std::string why() const;
};

// Cgroups of version 2 and 1, at the tightest level. `root`, for tests: where /proc and /sys are.
Cpus usable_cpus(const std::string& root = "");

}  // namespace davit::mt_topo
