// The cpu device: what it does, and that it says so when it is misused.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "davit/device.h"

namespace {

struct Deleter {
  void operator()(DvtDevice* device) const { dvt_cpu_device_destroy(device); }
};
using Device = std::unique_ptr<DvtDevice, Deleter>;

Device make() {
  return Device(dvt_cpu_device_create());
}

std::string last_error(const Device& device) {
  return device->vtable->last_error(device.get());
}

}  // namespace

TEST_CASE("memory is aligned, writable, and freed once") {
  const Device device = make();
  for (const uint64_t bytes : {0, 1, 64, 1'000'000}) {
    void* address = nullptr;
    REQUIRE(device->vtable->malloc(device.get(), bytes, "test", &address) == DVT_OK);
    CHECK(reinterpret_cast<uintptr_t>(address) % 64 == 0);
    std::memset(address, 1, bytes);
    CHECK(device->vtable->free(device.get(), address) == DVT_OK);
    CHECK(device->vtable->free(device.get(), address) == DVT_INVALID_ARGUMENT);
    CHECK(last_error(device).find("not allocated") != std::string::npos);
  }
}

TEST_CASE("a size beyond the address space is out of memory, with the owner's name") {
  const Device device = make();
  void* address = nullptr;
  CHECK(device->vtable->malloc(device.get(), UINT64_MAX - 63, "conv1.weight", &address) ==
        DVT_OUT_OF_MEMORY);
  CHECK(last_error(device).find("conv1.weight") != std::string::npos);
}

TEST_CASE("an address inside a block is not a block") {
  const Device device = make();
  void* address = nullptr;
  REQUIRE(device->vtable->malloc(device.get(), 128, "test", &address) == DVT_OK);
  CHECK(device->vtable->free(device.get(), static_cast<char*>(address) + 64) ==
        DVT_INVALID_ARGUMENT);
  CHECK(device->vtable->free(device.get(), address) == DVT_OK);
}

TEST_CASE("destroying a device returns what is left") {
  const Device device = make();
  for (int i = 0; i < 100; ++i) {
    void* address = nullptr;
    REQUIRE(device->vtable->malloc(device.get(), 100, "left", &address) == DVT_OK);
  }
}

TEST_CASE("several threads allocate at once") {
  const Device device = make();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      std::vector<void*> addresses(200);
      for (void*& address : addresses) {
        CHECK(device->vtable->malloc(device.get(), 32, "test", &address) == DVT_OK);
      }
      for (void* address : addresses) CHECK(device->vtable->free(device.get(), address) == DVT_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("a launch runs a copy of its arguments at once") {
  const Device device = make();
  DvtStream* stream = nullptr;
  REQUIRE(device->vtable->stream_create(device.get(), 0, &stream) == DVT_OK);
  // A record with one operand: | context | offset of the cell | cell |
  struct Record {
    alignas(16) unsigned char context[offsetof(DvtContext, cells)];
    uint64_t offset;
    uint64_t pad;
    DvtCell cell;
  };
  Record record{};
  int value = 41;
  record.offset = offsetof(Record, cell);
  record.cell.data = &value;
  reinterpret_cast<DvtContext*>(record.context)->input_count = 1;
  DvtLaunch launch{};
  launch.run = [](void* ctx) -> DvtCode {
    int* operand = static_cast<int*>(dvt_input(static_cast<DvtContext*>(ctx), 0)->data);
    ++*operand;
    return *operand == 42 ? DVT_OK : DVT_KERNEL_FAILED;
  };
  launch.arguments = &record;
  launch.argument_bytes = sizeof record;
  CHECK(device->vtable->launch(device.get(), stream, &launch) == DVT_OK);
  CHECK(value == 42);
  CHECK(record.offset == offsetof(Record, cell));  // The caller's record is untouched.
  CHECK(device->vtable->launch(device.get(), stream, &launch) == DVT_KERNEL_FAILED);
  CHECK(device->vtable->stream_synchronize(device.get(), stream, -1) == DVT_OK);
  CHECK(device->vtable->stream_destroy(device.get(), stream) == DVT_OK);
}

TEST_CASE("copies, memset and null addresses") {
  const Device device = make();
  DvtStream* stream = nullptr;
  REQUIRE(device->vtable->stream_create(device.get(), 0, &stream) == DVT_OK);
  char from[4] = "abc";
  char to[4] = "";
  const auto copy = [&](void* target, const void* source, uint64_t bytes) {
    return device->vtable->copy_async(device.get(), stream, DVT_COPY_HOST_TO_DEVICE, target, source,
                                      bytes, "copy_1");
  };
  CHECK(copy(to, from, 4) == DVT_OK);
  CHECK(std::strcmp(to, "abc") == 0);
  CHECK(copy(nullptr, nullptr, 0) == DVT_OK);
  CHECK(copy(nullptr, from, 4) == DVT_INVALID_ARGUMENT);
  CHECK(last_error(device).find("copy_1") != std::string::npos);
  CHECK(device->vtable->memset_async(device.get(), stream, to, 'z', 2) == DVT_OK);
  CHECK(std::strcmp(to, "zzc") == 0);
  CHECK(device->vtable->memset_async(device.get(), stream, nullptr, 0, 1) == DVT_INVALID_ARGUMENT);
  CHECK(device->vtable->stream_destroy(device.get(), stream) == DVT_OK);
}

TEST_CASE("waiting for an event that nothing recorded would not end, so it fails") {
  const Device device = make();
  DvtStream* stream = nullptr;
  DvtEvent* event = nullptr;
  REQUIRE(device->vtable->stream_create(device.get(), 0, &stream) == DVT_OK);
  REQUIRE(device->vtable->event_create(device.get(), &event) == DVT_OK);
  CHECK(device->vtable->event_wait(device.get(), stream, event) == DVT_FAILED_STATE);
  CHECK(device->vtable->event_record(device.get(), stream, event) == DVT_OK);
  CHECK(device->vtable->event_wait(device.get(), stream, event) == DVT_OK);
  CHECK(device->vtable->event_destroy(device.get(), event) == DVT_OK);
  CHECK(device->vtable->stream_destroy(device.get(), stream) == DVT_OK);
}

TEST_CASE("handles of another device are refused") {
  const Device one = make();
  const Device other = make();
  DvtStream* stream = nullptr;
  DvtEvent* event = nullptr;
  REQUIRE(one->vtable->stream_create(one.get(), 0, &stream) == DVT_OK);
  REQUIRE(one->vtable->event_create(one.get(), &event) == DVT_OK);
  CHECK(other->vtable->stream_synchronize(other.get(), stream, -1) == DVT_INVALID_ARGUMENT);
  CHECK(other->vtable->event_record(other.get(), stream, event) == DVT_INVALID_ARGUMENT);
  CHECK(other->vtable->event_destroy(other.get(), event) == DVT_INVALID_ARGUMENT);
  CHECK(other->vtable->stream_destroy(other.get(), stream) == DVT_INVALID_ARGUMENT);
  CHECK(one->vtable->event_destroy(one.get(), event) == DVT_OK);
  CHECK(one->vtable->stream_destroy(one.get(), stream) == DVT_OK);
}
