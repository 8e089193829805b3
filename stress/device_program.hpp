// device_program.hpp: a random model on the Ascend model of a device, its lanes apart.
//
// The device decides by chance, and badly, what its ordering rules leave open; it names tasks that
// use memory of each other's without an order (docs/npu_model.md), so memory that is used again too
// early is found wherever it happens. With little memory it has what the order of the image needs,
// and no byte more, so that allocations have to wait for launches. Results are those of the same
// image in order; when all is over, the device has all its memory back.
//
// Threads  One run at a time; describe() and progress() from any thread.
// Trust    Made here.
// Memory   Owns everything that it runs on, but for the pool.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "davit/davit.hpp"
#include "davit/npu.h"
#include "exec/mt_topo/pool.hpp"
#include "stress/program.hpp"

namespace davit::stress {

class DeviceProgram {
 public:
  static Result<std::unique_ptr<DeviceProgram>> make(Random& random,
                                                     const std::shared_ptr<mt_topo::Pool>& pool,
                                                     bool little_memory);

  // A run of either shape, which may be cancelled on its way. What is wrong; empty when nothing is.
  std::string run(Random& random);
  // Then: unloads, and looks that the device has everything back.
  std::string finish();

  [[nodiscard]] bool shapes_are_open() const { return open_; }
  [[nodiscard]] bool has_little_memory() const { return little_memory_; }
  [[nodiscard]] std::string describe() const { return executor_->describe_waits(); }
  [[nodiscard]] uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kShapes = 2;
  static constexpr int64_t kColumns = 6;
  using Floats = std::vector<float>;
  struct NpuDestroyer {
    void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
  };
  using NpuPtr = std::unique_ptr<DvtNpu, NpuDestroyer>;

  DeviceProgram(const std::shared_ptr<mt_topo::Pool>& pool, bool little_memory)
      : pool_{pool}, little_memory_(little_memory) {}

  Status compile(Random& random);
  // The results of each shape in order, and how much of a device's memory that takes.
  Status run_oracle(uint64_t& peak_bytes);
  Result<Executor> load(DvtNpu& npu, bool apart);
  Error bind(Executor& executor, uint32_t shape);
  static Result<NpuPtr> make_npu(DvtNpuMode mode, uint64_t seed, uint64_t capacity_bytes);

  DvtPool pool_;
  bool little_memory_;
  bool open_ = false;
  std::vector<std::byte> bytes_;  // The image, which is used in place.
  std::optional<Image> image_;
  std::array<int64_t, kShapes> rows_{};
  std::array<std::array<Floats, 2>, kShapes> inputs_;
  std::array<Floats, kShapes> expected_;
  Floats output_;
  NpuPtr npu_;
  std::optional<Executor> executor_;  // Of npu_, which outlives it.
  std::optional<Cancel> cancel_;
  std::atomic<uint32_t> cancel_at_{UINT32_MAX};  // When this node has run, the run is cancelled.
  std::atomic<uint64_t> progress_{0};
};

}  // namespace davit::stress
