#include "cli/machine.hpp"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "cli/numbers.hpp"

namespace davit::cli {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Folder of this process' cgroup (version 2), or "".
std::string cgroup_folder() {
  std::ifstream stream("/proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "";
}

// CPUs granted by "max 100000" or "150000 100000"; 0: no limit.
double quota_of(const std::string& folder) {
  std::istringstream words(first_line_of(folder + "/cpu.max"));
  std::string quota, period;
  words >> quota >> period;
  const auto granted = parse_real(quota);
  const auto whole = parse_real(period);
  return granted && whole && *whole > 0 ? *granted / *whole : 0;
}

// A limit may sit at any level above; the tightest holds.
double cgroup_quota() {
  double tightest = 0;
  std::string folder = cgroup_folder();
  while (folder.size() >= std::string("/sys/fs/cgroup").size()) {
    const double quota = quota_of(folder);
    if (quota > 0) tightest = tightest > 0 ? std::min(tightest, quota) : quota;
    folder = folder.substr(0, folder.rfind('/'));
  }
  if (tightest > 0) return tightest;
  // Version 1.
  const auto quota = parse_real(first_line_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  const auto period = parse_real(first_line_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  return quota && period && *quota > 0 && *period > 0 ? *quota / *period : 0;
}

uint64_t cgroup_memory_limit() {
  const auto limit = parse_integer(first_line_of(cgroup_folder() + "/memory.max"));
  return limit && *limit > 0 ? static_cast<uint64_t>(*limit) : 0;
}

// Value of the first "key : value" line of /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

}  // namespace

Cpus available_cpus() {
  Cpus cpus;
  cpus.online = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  CPU_ZERO(&set);
  cpus.affinity = sched_getaffinity(0, sizeof set, &set) == 0
                      ? static_cast<uint32_t>(CPU_COUNT(&set))
                      : cpus.online;
  cpus.quota = cgroup_quota();
  if (cpus.quota > 0 && cpus.quota < cpus.affinity) {
    cpus.usable = cpus.quota;
    cpus.why = fmt::format("cgroup quota: {:g}", cpus.quota);
  } else {
    cpus.usable = cpus.affinity;
    cpus.why = fmt::format("affinity: {} of {}", cpus.affinity, cpus.online);
  }
  return cpus;
}

Machine this_machine() {
  Machine machine;
  machine.cpu_model = cpuinfo("model name");
  std::istringstream flags(cpuinfo("flags"));
  const std::vector<std::string> wanted = {
      "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile"};
  for (std::string flag; flags >> flag;) {
    if (std::find(wanted.begin(), wanted.end(), flag) != wanted.end()) machine.isa.push_back(flag);
  }
  utsname name{};
  if (uname(&name) == 0) {
    machine.kernel = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  machine.libc = std::string("glibc ") + gnu_get_libc_version();
  machine.page_bytes = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  machine.memory_bytes =
      static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) * machine.page_bytes;
  machine.memory_limit_bytes = cgroup_memory_limit();
  machine.governor = first_line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  return machine;
}

}  // namespace davit::cli
