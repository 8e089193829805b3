#include "cli/machine.hpp"

#include <fmt/format.h>
#include <gnu/libc-version.h>
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
