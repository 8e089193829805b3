// Memory of the caller's for what a device graph allocates, and the account of what engines keep on
// the host.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "davit/device.h"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Error;
using davit::Executor;
using davit::test::TextImage;

namespace {

using Floats = std::array<float, 4>;
using Bytes = std::span<std::byte>;

constexpr Floats kX = {1, 2, 3, 4};
constexpr Floats kWanted = {12, 23, 34, 45};

// A cpu device, and memory on it that goes with it.
class Device {
 public:
  Device() : device_(dvt_cpu_device_create()) {}
  ~Device() { dvt_cpu_device_destroy(device_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DvtDevice* get() { return device_; }
  Bytes allocate(size_t bytes) {
    void* address = nullptr;
    REQUIRE(device_->vtable->malloc(device_, bytes, "the test", &address) == DVT_OK);
    std::memset(address, 0x5A, bytes);
    return {static_cast<std::byte*>(address), bytes};
  }
  void free(Bytes memory) { CHECK(device_->vtable->free(device_, memory.data()) == DVT_OK); }

 private:
  DvtDevice* device_;
};

bool is_untouched(Bytes memory) {
  return std::all_of(memory.begin(), memory.end(),
                     [](std::byte b) { return b == std::byte{0x5A}; });
}

davit::Expected<Executor> load(const TextImage& text, Device& device, Bytes fixed = {},
                               uint32_t device_memory = DVT_DEVICE_MEMORY_CACHED) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.device = device.get();
  options.device_memory = device_memory;
  options.device_fixed = fixed.data();
  options.device_fixed_bytes = fixed.size();
  return Executor::create(text.image, &options);
}

void check_run(Executor& executor) {
  Floats y{};
  REQUIRE(!executor.bind_input(0, std::span<const float>(kX)));
  REQUIRE(!executor.bind_output(0, std::span<float>(y)));
  const Error error = executor.run();
  INFO(error.text());
  REQUIRE(!error);
  CHECK(y == kWanted);
}

void check_refused(const Error& error, const std::string& part,
                   DvtCode code = DVT_INVALID_ARGUMENT) {
  const std::string text = error.text();
  INFO(text);
  CHECK(error.code() == code);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("an image tells what it allocates on a device") {
  const TextImage text(davit::test::kDeviceText);
  const auto needs = text.image.device_memory();
  REQUIRE(needs);
  CHECK(needs->fixed_bytes == 64);
  CHECK(needs->feature_bytes == 3 * 64);
  const auto none = TextImage(davit::test::chain_text(3)).image.device_memory();
  REQUIRE(none);
  CHECK(none->fixed_bytes == 0);
  CHECK(none->feature_bytes == 0);
  CHECK(dvt_image_device_memory(nullptr, nullptr, nullptr) == DVT_INVALID_ARGUMENT);
}

TEST_CASE("what Init allocates on a device lies where the caller says") {
  const TextImage text(davit::test::kDeviceText);
  for (const uint32_t mode : {DVT_DEVICE_MEMORY_CACHED, DVT_DEVICE_MEMORY_DIRECT}) {
    Device device;
    const Bytes memory = device.allocate(128);
    {
      auto executor = load(text, device, memory.first(64), mode);
      INFO(executor.error().text());
      REQUIRE(executor);
      Floats weight{};
      std::memcpy(weight.data(), memory.data(), sizeof weight);
      CHECK(weight == Floats{10, 20, 30, 40});
      for (int run = 0; run < 3; ++run) check_run(*executor);
      CHECK(!executor->unload());
    }
    CHECK(is_untouched(memory.subspan(64)));
    device.free(memory);  // The executor has not taken it along.
  }
}

TEST_CASE("what Main allocates on a device lies where the caller says, and moves between runs") {
  const TextImage text(davit::test::kDeviceText);
  Device device;
  auto executor = load(text, device);
  REQUIRE(executor);
  check_run(*executor);
  const Bytes first = device.allocate(3 * 64), second = device.allocate(3 * 64 + 40);
  REQUIRE(!executor->bind_device_memory(first));
  CHECK(is_untouched(first));
  for (int run = 0; run < 5; ++run) check_run(*executor);
  CHECK(!is_untouched(first));
  const DvtMemoryStatistics memory = executor->memory(DVT_MEMORY_DEVICE);
  CHECK(memory.limit_bytes == 3 * 64);
  CHECK(memory.reserved_bytes == 3 * 64);
  CHECK(memory.live_bytes == 0);
  CHECK(executor->trim() == 0);  // It is the caller's.
  REQUIRE(!executor->bind_device_memory(second));
  std::memset(first.data(), 0x5A, first.size());
  for (int run = 0; run < 3; ++run) check_run(*executor);
  CHECK(is_untouched(first));
  CHECK(!is_untouched(second));
  CHECK(is_untouched(second.subspan(3 * 64)));
  REQUIRE(!executor->bind_device_memory({}));
  std::memset(second.data(), 0x5A, second.size());
  check_run(*executor);
  CHECK(is_untouched(second));
  device.free(first);
  device.free(second);
  CHECK(!executor->unload());
}

TEST_CASE("executors that take turns share device memory") {
  const TextImage text(davit::test::kDeviceText);
  Device device;
  auto a = load(text, device), b = load(text, device);
  REQUIRE(a);
  REQUIRE(b);
  const Bytes memory = device.allocate(3 * 64);
  REQUIRE(!a->bind_device_memory(memory));
  REQUIRE(!b->bind_device_memory(memory));
  for (int turn = 0; turn < 3; ++turn) {
    check_run(*a);
    check_run(*b);
  }
}

TEST_CASE("device memory that will not do is refused, and what was bound stays") {
  const TextImage text(davit::test::kDeviceText);
  Device device, other;
  const Bytes good = device.allocate(4 * 64);
  std::vector<std::byte> host(4096);
  const auto skew = (64 - reinterpret_cast<uintptr_t>(host.data()) % 64) % 64;
  const Bytes not_the_devices = Bytes(host).subspan(skew, 1024);
  auto executor = load(text, device, device.allocate(64));
  REQUIRE(executor);
  const auto bind = [&](void* base, size_t bytes) {
    DvtError error{};
    const DvtCode code = dvt_executor_bind_device_memory(executor->get(), base, bytes, &error);
    return code == DVT_OK ? Error() : Error(code, error);
  };
  REQUIRE(!bind(good.data(), good.size()));
  check_refused(bind(good.data(), 3 * 64 - 1), "is too small; expected 192 bytes; got 191 bytes");
  check_refused(bind(good.data() + 4, 3 * 64), "is not aligned; expected an address that is a");
  check_refused(bind(nullptr, 64), "has a size and no address");
  check_refused(bind(good.data() + 64, 4 * 64), "reach beyond");
  check_refused(bind(good.data(), SIZE_MAX), "beyond the address space");
  check_refused(bind(not_the_devices.data(), not_the_devices.size()), "is not allocated on this");
  check_refused(bind(other.allocate(256).data(), 256), "is not allocated on this device");
  const Bytes freed = device.allocate(4 * 64);
  device.free(freed);
  check_refused(bind(freed.data(), freed.size()), "is not allocated on this device");
  check_run(*executor);
  CHECK(executor->memory(DVT_MEMORY_DEVICE).limit_bytes == good.size());
  CHECK(!executor->unload());
  check_refused(bind(good.data(), good.size()), "unloaded", DVT_FAILED_STATE);
  CHECK(dvt_executor_bind_device_memory(nullptr, nullptr, 0, nullptr) == DVT_INVALID_ARGUMENT);

  const Bytes both = device.allocate(4 * 64);
  auto overlapping = load(text, device, both.subspan(128, 64));
  REQUIRE(overlapping);
  check_refused(overlapping->bind_device_memory(both), "overlaps that of Init");
  auto direct = load(text, device, {}, DVT_DEVICE_MEMORY_DIRECT);
  REQUIRE(direct);
  check_refused(direct->bind_device_memory(both), "DVT_DEVICE_MEMORY_DIRECT", DVT_FAILED_STATE);
}

TEST_CASE("memory for Init that will not do is refused, and nothing is left") {
  const TextImage text(davit::test::kDeviceText);
  Device device;
  const Bytes good = device.allocate(128);
  std::vector<std::byte> host(4096);
  const auto skew = (64 - reinterpret_cast<uintptr_t>(host.data()) % 64) % 64;
  check_refused(load(text, device, good.first(63)).error(), "device_fixed is too small");
  check_refused(load(text, device, good.subspan(32, 64)).error(), "device_fixed is not aligned");
  check_refused(load(text, device, Bytes(host).subspan(skew, 64)).error(), "is not allocated on");
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.device_fixed = good.data();
  options.device_fixed_bytes = good.size();
  const TextImage chain(davit::test::chain_text(3));
  check_refused(Executor::create(chain.image, &options).error(), "drives no device");
  CHECK(is_untouched(good));
}

// Sizes and lives at random: what the image asks for is what the first run, and every later one,
// can do with.
TEST_CASE("Main fits into as much device memory as the image says, run after run") {
  std::mt19937 random(5);
  for (int sample = 0; sample < 30; ++sample) {
    std::string values, nodes;
    std::vector<int> live;
    const auto free_one = [&](size_t at) {
      nodes += "  FreeMemHbm(d" + std::to_string(live[at]) + ") after=[n" +
               std::to_string(live[at]) + "]\n";
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    };
    for (int value = 0; value < 60; ++value) {
      const std::string name = "d" + std::to_string(value);
      const uint64_t floats = 1 + random() % (random() % 4 == 0 ? 100'000 : 2'000);
      values += "device " + name + ": f32[" + std::to_string(floats) + "]\n";
      nodes += "  n" + std::to_string(value) + ": " + name +
               " = AllocMemHbm() {bytes=" + std::to_string(4 * floats) + "}\n";
      live.push_back(value);
      while (live.size() > 1 + random() % 12) free_one(random() % live.size());
    }
    while (!live.empty()) free_one(random() % live.size());
    const TextImage text("davit 1.0 target cpu\ninput x: f32[4]\noutput y: f32[4]\n" + values +
                         "graph main {\n" + nodes + "  y = t.Inc(x)\n}\n");
    const auto needs = text.image.device_memory();
    REQUIRE(needs);
    Device device;
    auto executor = load(text, device);
    INFO(executor.error().text());
    REQUIRE(executor);
    REQUIRE(!executor->bind_device_memory(device.allocate(needs->feature_bytes)));
    Floats y{};
    REQUIRE(!executor->bind_input(0, std::span<const float>(kX)));
    REQUIRE(!executor->bind_output(0, std::span<float>(y)));
    for (int run = 0; run < 5; ++run) {
      const Error error = executor->run();
      INFO(error.text());
      REQUIRE(!error);
    }
    const uint64_t peak = executor->memory(DVT_MEMORY_DEVICE).live_peak_bytes;
    CHECK(needs->feature_bytes >= peak);
    CHECK(needs->feature_bytes <= peak + peak / 2);
  }
}

// ---- Memory of the host ------------------------------------------------------------------------

TEST_CASE("images and executors have accounts of what they keep on the host") {
  const TextImage text(davit::test::kDynamicSample);
  const DvtHostMemory image = text.image.host_memory();
  CHECK(image.live_bytes > 0);
  CHECK(image.live_objects > 0);
  CHECK(image.live_peak_bytes >= image.live_bytes);
  CHECK(image.mapped_bytes == 0);  // Borrowed.
  CHECK(std::string(image.allocator).find("malloc") != std::string::npos);
  auto a = Executor::create(text.image);
  REQUIRE(a);
  const DvtHostMemory one = a->host_memory();
  CHECK(one.live_bytes > 0);
  CHECK(one.mapped_bytes >= 4096);
  {
    auto b = Executor::create(text.image);
    REQUIRE(b);
    CHECK(b->host_memory().live_bytes == one.live_bytes);
    // What one keeps is not the other's, nor the image's.
    CHECK(a->host_memory().live_bytes == one.live_bytes);
  }
  CHECK(text.image.host_memory().live_bytes == image.live_bytes);
  DvtHostMemory none = one;
  dvt_executor_host_memory(nullptr, &none);
  CHECK(none.live_bytes == 0);
  dvt_executor_host_memory(a->get(), nullptr);
  dvt_image_host_memory(nullptr, &none);
  CHECK(none.live_bytes == 0);
}
