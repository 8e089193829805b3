// Memory of the caller's for what a device graph allocates, variables, and the account of what
// engines keep on the host.
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

// ---- Variables ---------------------------------------------------------------------------------

namespace {

// y = x + 1, z = 2 x + 1; nobody reads w.
constexpr const char* kCounter = R"(davit 1.0 target cpu
input x: f32[4]
input w: f32[2, 2]
output y: f32[4]
output z: f32[4]
graph main {
  y = t.Sum(x)
  z = t.Sum(x, x)
}
)";

struct Counter {
  Counter() : text(kCounter), executor(std::move(*Executor::create(text.image))) {
    REQUIRE(!executor.bind_input(1, std::span<const float>(w)));
    REQUIRE(!executor.bind_output(1, std::span<float>(z)));
  }
  Error run() { return executor.run(); }
  Floats value() {
    const auto data = executor.variable(0);
    INFO(data.error().text());
    REQUIRE(data);
    Floats value{};
    std::memcpy(value.data(), *data, sizeof value);
    return value;
  }

  TextImage text;
  Executor executor;
  Floats w{}, z{};
};

struct alignas(64) Halves {
  std::array<std::byte, 128> bytes{};
  Bytes span() { return bytes; }
};

}  // namespace

TEST_CASE("a variable keeps what a run leaves for the next one") {
  Counter counter;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  CHECK(counter.value() == Floats{});
  for (int run = 1; run <= 5; ++run) {
    const Error error = counter.run();
    INFO(error.text());
    REQUIRE(!error);
    const auto value = static_cast<float>(run);
    CHECK(counter.value() == Floats{value, value, value, value});
    CHECK(counter.z[0] == 2 * (value - 1) + 1);  // Of the value before.
    const auto output = counter.executor.output(0);
    REQUIRE(output);
    CHECK(output->as<float>()[3] == value);
    CHECK(output->data == *counter.executor.variable(0));
  }
  // It may be written between runs.
  *static_cast<float*>(*counter.executor.variable(0)) = 100;
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{101, 6, 6, 6});
}

TEST_CASE("a run that fails changes no variable") {
  Counter counter;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  REQUIRE(!counter.run());
  davit::test::sum_hook = [](uint32_t node) -> DvtCode {
    return node == 1 ? DVT_KERNEL_FAILED : DVT_OK;
  };
  for (int run = 0; run < 3; ++run) CHECK(counter.run().code() == DVT_KERNEL_FAILED);
  davit::test::sum_hook = nullptr;
  CHECK(counter.value() == Floats{1, 1, 1, 1});
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{2, 2, 2, 2});
}

TEST_CASE("a variable in memory of the caller's outlives its executor") {
  Halves halves;
  const Floats start = {5, 6, 7, 8};
  std::memcpy(halves.bytes.data(), start.data(), sizeof start);
  {
    Counter counter;
    REQUIRE(!counter.executor.bind_variable(0, 0, halves.span()));
    REQUIRE(!counter.run());
    REQUIRE(!counter.run());
    CHECK(*counter.executor.variable(0) == halves.bytes.data());
  }
  Counter next;
  REQUIRE(!next.executor.bind_variable(0, 0, halves.span()));
  CHECK(next.value() == Floats{7, 8, 9, 10});
}

TEST_CASE("variables that will not do are refused, and what was bound stays") {
  Counter counter;
  Halves halves, other;
  Executor& executor = counter.executor;
  REQUIRE(!executor.bind_variable(0, 0, halves.span()));
  check_refused(executor.bind_variable(0, 0, halves.span().first(127)),
                "is too small; expected 128 bytes; got 127 bytes");
  check_refused(executor.bind_variable(0, 0, other.span().subspan(4)), "is too small");
  std::vector<std::byte> large(512);
  const auto skew = 4 + (64 - reinterpret_cast<uintptr_t>(large.data()) % 64) % 64;
  check_refused(executor.bind_variable(0, 0, Bytes(large).subspan(skew, 128)), "is not aligned");
  check_refused(executor.bind_variable(1, 0), "of one static shape");
  check_refused(executor.bind_variable(2, 0), "there is no such input; expected an index below 2");
  check_refused(executor.bind_variable(0, 2), "there is no such output; expected an index below 2");
  CHECK(dvt_executor_bind_variable(executor.get(), 0, 0, nullptr, 128, nullptr) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_variable(nullptr, 0, 0, nullptr, 0, nullptr) == DVT_INVALID_ARGUMENT);
  CHECK(executor.variable(1).error().code() == DVT_INVALID_ARGUMENT);
  CHECK(executor.variable(9).error().code() == DVT_INVALID_ARGUMENT);
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{1, 1, 1, 1});

  // Somebody else's memory in a half is found by the next run.
  REQUIRE(!executor.bind_output(1, std::span(halves.bytes).last(64)));
  check_refused(counter.run(), "overlaps");
  REQUIRE(!executor.bind_output(1, std::span<float>(counter.z)));
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{2, 2, 2, 2});
  // Also in the half that is an output only after the next run.
  REQUIRE(executor.variable(0));
  const auto* current = static_cast<const float*>(*executor.variable(0));
  REQUIRE(!executor.bind_input(1, std::span(current, 4)));
  check_refused(counter.run(), "a bound buffer overlaps a variable; tensor w");
  REQUIRE(!executor.bind_input(1, std::span<const float>(counter.w)));
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{3, 3, 3, 3});
  CHECK(!executor.unload());
  check_refused(executor.bind_variable(0, 0), "unloaded", DVT_FAILED_STATE);
}

TEST_CASE("binding either port ends a variable") {
  for (const bool by_input : {true, false}) {
    Counter counter;
    Executor& executor = counter.executor;
    REQUIRE(!executor.bind_variable(0, 0));
    REQUIRE(!counter.run());
    Floats x = {1, 2, 3, 4}, y{};
    if (by_input) {
      REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    } else {
      REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    }
    check_refused(counter.run(), by_input ? "an output is not bound" : "an input is not bound",
                  DVT_FAILED_STATE);
    CHECK(!executor.variable(0));
    REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    REQUIRE(!counter.run());
    CHECK(y == Floats{2, 3, 4, 5});
    // An output that was part of another variable becomes part of this one.
    REQUIRE(!executor.bind_variable(0, 0));
    REQUIRE(!executor.bind_variable(0, 1));
    check_refused(counter.run(), "an output is not bound", DVT_FAILED_STATE);
  }
}

TEST_CASE("ports of dynamic shape are no variables") {
  const TextImage text(davit::test::kDynamicSample);
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  check_refused(executor->bind_variable(0, 0), "of one static shape");
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

TEST_CASE("a variable in memory of the executor's is on its account") {
  Counter counter;
  const uint64_t before = counter.executor.host_memory().mapped_bytes;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  CHECK(counter.executor.host_memory().mapped_bytes == before + 4096);
}
