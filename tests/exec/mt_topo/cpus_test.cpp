// User reports B13 and B14: how many workers there are by default, under affinity and cgroup quota.
#include "exec/mt_topo/cpus.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "exec/mt_topo/pool.hpp"

using davit::mt_topo::Cpus;
using davit::mt_topo::usable_cpus;

namespace {

namespace fs = std::filesystem;

// /proc and /sys as a machine with cgroups has them.
class Root {
 public:
  Root() {
    name_ = fs::temp_directory_path() / "davit-cpus-XXXXXX";
    REQUIRE(::mkdtemp(name_.data()) != nullptr);
  }
  ~Root() { fs::remove_all(name_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(name_ + file).parent_path());
    std::ofstream(name_ + file) << text << "\n";
  }
  [[nodiscard]] double quota() const { return usable_cpus(name_).quota; }

 private:
  std::string name_;
};

}  // namespace

TEST_CASE("without a limit the affinity holds") {
  const Root root;
  CHECK(root.quota() == 0);
  root.write("/proc/self/cgroup", "0::/user/app");
  CHECK(root.quota() == 0);
  root.write("/sys/fs/cgroup/user/app/cpu.max", "max 100000");
  CHECK(root.quota() == 0);
}

TEST_CASE("the tightest quota of any level holds, of version 2") {
  const Root root;
  root.write("/proc/self/cgroup", "0::/user/app");
  root.write("/sys/fs/cgroup/user/app/cpu.max", "400000 100000");
  CHECK(root.quota() == 4);
  root.write("/sys/fs/cgroup/user/cpu.max", "150000 100000");
  CHECK(root.quota() == 1.5);
  root.write("/sys/fs/cgroup/user/cpu.max", "max 100000");
  CHECK(root.quota() == 4);
  // In a container the path may be that of the host, and the limit at the mount.
  root.write("/proc/self/cgroup", "0::/elsewhere");
  root.write("/sys/fs/cgroup/cpu.max", "200000 100000");
  CHECK(root.quota() == 2);
}

TEST_CASE("quotas of version 1") {
  const Root root;
  root.write("/proc/self/cgroup", "5:memory:/app\n4:cpu,cpuacct:/app\n3:cpuset:/");
  root.write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "250000");
  root.write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000");
  CHECK(root.quota() == 2.5);
  root.write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "-1");
  CHECK(root.quota() == 0);
  root.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
  root.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(root.quota() == 0.5);
}

TEST_CASE("files that make no sense are no limit") {
  const Root root;
  root.write("/proc/self/cgroup", "nonsense\n:\n0:");
  CHECK(root.quota() == 0);
  root.write("/proc/self/cgroup", "0::/a");
  for (const char* text : {"", "x y", "100000", "100000 0", "-5 100000", "0 0"}) {
    CAPTURE(text);
    root.write("/sys/fs/cgroup/a/cpu.max", text);
    CHECK(root.quota() == 0);
  }
}

TEST_CASE("threads are rounded up, and the reason is named") {
  CHECK(Cpus{.online = 48, .affinity = 48, .quota = 2}.threads() == 2);
  CHECK(Cpus{.online = 48, .affinity = 48, .quota = 1.2}.threads() == 2);
  CHECK(Cpus{.online = 48, .affinity = 48, .quota = 0.1}.threads() == 1);
  CHECK(Cpus{.online = 48, .affinity = 2, .quota = 16}.threads() == 2);
  CHECK(Cpus{.online = 48, .affinity = 48, .quota = 1.5}.why() == "cgroup quota: 1.5");
  CHECK(Cpus{.online = 48, .affinity = 2, .quota = 0}.why() == "affinity: 2 of 48");
}

TEST_CASE("a pool made under an affinity has as many workers, and works") {
  // The affinity is this thread's and that of those it makes, so it goes with it.
  std::thread([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
    int last = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) last = cpu;
    }
    CPU_ZERO(&set);
    CPU_SET(last, &set);
    REQUIRE(::sched_setaffinity(0, sizeof set, &set) == 0);
    CHECK(usable_cpus().affinity == 1);
    const auto pool = davit::mt_topo::Pool::create({});
    REQUIRE(pool.ok());
    CHECK((*pool)->workers() == 1);
    // More workers than CPUs, when they are asked for.
    const auto more = davit::mt_topo::Pool::create({.workers = 3});
    REQUIRE(more.ok());
    CHECK((*more)->workers() == 3);
  }).join();
}
