// late_device.hpp: a device that does its work as late, and in as wild an order, as the rules
// allow. Tasks of one stream run in order; a wait holds its stream until the record it refers to
// has run. Which stream goes on is chosen at random, and nothing runs before somebody waits for it,
// or the test says so. Freed memory is poisoned.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "davit/device.h"

struct DvtStream {
  struct Task {
    std::function<void()> run;
    DvtEvent* event = nullptr;  // With run empty: waits for `record` of it.
    size_t record = 0;
  };
  std::deque<Task> tasks;
};

struct DvtEvent {
  std::vector<bool> reached = {true};  // By record; the first stands for none.
};

namespace davit::test {

class LateDevice {
 public:
  explicit LateDevice(uint32_t seed, uint64_t capacity) : random_(seed), capacity_(capacity) {
    device_.base.vtable = &table();
    device_.self = this;
  }
  ~LateDevice() {
    for (const auto& [address, bytes] : blocks_) std::free(address);
  }
  LateDevice(const LateDevice&) = delete;
  LateDevice& operator=(const LateDevice&) = delete;

  DvtDevice* get() { return &device_.base; }
  DvtStream* add_stream() { return streams_.emplace_back(std::make_unique<DvtStream>()).get(); }
  DvtEvent* add_event() { return events_.emplace_back(std::make_unique<DvtEvent>()).get(); }
  static void submit(DvtStream* stream, std::function<void()> run) {
    stream->tasks.push_back({.run = std::move(run)});
  }
  // Runs one task of a random stream that can go on. False when there is none.
  bool step() {
    std::vector<DvtStream*> ready;
    for (const auto& stream : streams_) {
      if (can_go_on(*stream)) ready.push_back(stream.get());
    }
    if (ready.empty()) return false;
    DvtStream& stream = *ready[random_() % ready.size()];
    const DvtStream::Task task = std::move(stream.tasks.front());
    stream.tasks.pop_front();
    if (task.run) task.run();
    return true;
  }
  [[nodiscard]] size_t block_count() const { return blocks_.size(); }
  uint64_t live_bytes() const { return live_; }
  bool fail_synchronize = false;

 private:
  struct Base {
    DvtDevice base;
    LateDevice* self;
  };
  static LateDevice& of(DvtDevice* device) { return *reinterpret_cast<Base*>(device)->self; }

  static bool can_go_on(const DvtStream& stream) {
    if (stream.tasks.empty()) return false;
    const DvtStream::Task& task = stream.tasks.front();
    return task.run || task.event->reached[task.record];
  }

  static const DvtDeviceVtable& table() {
    static const DvtDeviceVtable vtable = {.name = "late",
                                           .malloc = malloc,
                                           .free = free,
                                           .event_record = record,
                                           .event_wait = wait,
                                           .stream_synchronize = synchronize};
    return vtable;
  }
  static DvtCode malloc(DvtDevice* device, uint64_t bytes, const char*, void** out) {
    LateDevice& self = of(device);
    if (self.live_ + bytes > self.capacity_) return DVT_OUT_OF_MEMORY;
    if (posix_memalign(out, 64, bytes) != 0) return DVT_OUT_OF_MEMORY;
    std::memset(*out, 0xA5, bytes);
    self.blocks_[*out] = bytes;
    self.live_ += bytes;
    return DVT_OK;
  }
  static DvtCode free(DvtDevice* device, void* address) {
    LateDevice& self = of(device);
    const auto block = self.blocks_.find(address);
    if (block == self.blocks_.end()) return DVT_INVALID_ARGUMENT;
    std::memset(address, 0xA5, block->second);
    self.live_ -= block->second;
    self.graves_.emplace_back(static_cast<char*>(address), std::free);
    self.blocks_.erase(block);
    return DVT_OK;
  }
  static DvtCode record(DvtDevice*, DvtStream* stream, DvtEvent* event) {
    const size_t number = event->reached.size();
    event->reached.push_back(false);
    submit(stream, [event, number] { event->reached[number] = true; });
    return DVT_OK;
  }
  static DvtCode wait(DvtDevice*, DvtStream* stream, DvtEvent* event) {
    stream->tasks.push_back({.run = {}, .event = event, .record = event->reached.size() - 1});
    return DVT_OK;
  }
  static DvtCode synchronize(DvtDevice* device, DvtStream* stream, int64_t) {
    LateDevice& self = of(device);
    if (self.fail_synchronize) return DVT_TIMEOUT;
    while (!stream->tasks.empty()) {
      if (!self.step()) return DVT_TIMEOUT;
    }
    return DVT_OK;
  }

  std::mt19937 random_;
  uint64_t capacity_;
  uint64_t live_ = 0;
  Base device_{};
  std::vector<std::unique_ptr<DvtStream>> streams_;
  std::vector<std::unique_ptr<DvtEvent>> events_;
  std::map<void*, uint64_t> blocks_;
  // Given back to the host only at the end, so that a late task reads poison and does not crash.
  std::vector<std::unique_ptr<char, decltype(&std::free)>> graves_;
};

}  // namespace davit::test
