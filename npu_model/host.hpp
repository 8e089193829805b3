// host.hpp: the host that drives one device, or several: its clock and its lock.
//
// Devices of one host run in one order of events: none is ahead of another that could still set a
// notify of it.
//
// Threads  `lock` covers the host and all of its devices.
// Memory   Shared by its devices; the last one frees it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace davit::npu {

class Npu;

struct Host {
  std::mutex lock;
  int64_t now_ps = 0;
  std::vector<Npu*> devices;  // In order of creation; NULL when destroyed.
};

}  // namespace davit::npu
