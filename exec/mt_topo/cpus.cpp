#include "exec/mt_topo/cpus.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace davit::mt_topo {
namespace {

// CPUs granted by the files of one cgroup folder; 0: no limit.
double quota_of(const std::string& folder) {
  std::ifstream both(folder + "/cpu.max");  // Version 2: "max 100000" or "150000 100000".
  double quota = 0;
  double period = 0;
  if (both >> quota >> period) return quota > 0 && period > 0 ? quota / period : 0;
  quota = period = 0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;  // Version 1.
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// A limit may sit at any level of `path` below `mount`; the tightest holds.
void tighten(double& tightest, const std::string& mount, const std::string& path) {
  std::string folder = mount + path;
  while (folder.size() >= mount.size()) {
    const double quota = quota_of(folder);
    if (quota > 0) tightest = tightest > 0 ? std::min(tightest, quota) : quota;
    folder.resize(folder.rfind('/'));
  }
}

// Lines of /proc/self/cgroup are "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
double cgroup_quota(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  double tightest = 0;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) tighten(tightest, mount, path);
    if (("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    tighten(tightest, mount + "/" + controllers, path);
    tighten(tightest, mount + "/cpu", path);
  }
  return tightest;
}

}  // namespace

uint32_t Cpus::threads() const {
  return std::max(1U, static_cast<uint32_t>(std::ceil(usable())));
}

std::string Cpus::why() const {
  char text[64];
  if (quota_holds()) {
    std::snprintf(text, sizeof text, "cgroup quota: %g", quota);
  } else {
    std::snprintf(text, sizeof text, "affinity: %u of %u", affinity, online);
  }
  return text;
}

Cpus usable_cpus(const std::string& root) {
  Cpus cpus;
  cpus.online = static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  cpus.affinity = known ? static_cast<uint32_t>(std::max(1, CPU_COUNT(&set))) : cpus.online;
  cpus.quota = cgroup_quota(root);
  return cpus;
}

}  // namespace davit::mt_topo
