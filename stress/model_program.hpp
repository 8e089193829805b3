// model_program.hpp: a random model, compiled and run by an executor: on the host, or on the Ascend
// model of a device, its lanes apart.
//
// On the host, half of the models have branches and loops; bodies run on the pool as Main does. A
// heap may be limited to what the order of the image needs, or to half of that, so that runs fail
// somewhere; nodes may ask for a row that is not there.
//
// A device decides by chance, and badly, what its ordering rules leave open; it names tasks that
// use memory of each other's without an order (docs/npu_model.md), so memory that is used again too
// early is found wherever it happens. With little memory it has what the order of the image needs,
// and no byte more, so that allocations have to wait for launches.
//
// Results are those of the same image in order, bit for bit; after every run the heap has all its
// memory back, and when all is over, the device.
//
// Threads  One run at a time; describe() and progress() from any thread.
// Trust    Made here.
// Memory   Owns everything that it runs on, but for the pool.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "davit/davit.hpp"
#include "davit/npu.h"
#include "exec/mt_topo/pool.hpp"
#include "stress/program.hpp"
#include "stress/random_module.hpp"

namespace davit::stress {

enum class ModelMemory : uint8_t { kEnough, kAsInOrder, kTooLittle };

struct ModelMaking {
  std::shared_ptr<mt_topo::Pool> pool;
  bool on_device = false;
  ModelMemory memory = ModelMemory::kEnough;  // kTooLittle: on the host only.
  // On the host. kPlanned: the schedule of the image where it has one, else what pays.
  mt_topo::Mode mode = mt_topo::Mode::kDynamic;
};

class ModelProgram {
 public:
  static Result<std::unique_ptr<ModelProgram>> make(Random& random, const ModelMaking& making);

  // A run of any variant, which may be cancelled or fail on its way. What is wrong; empty when
  // nothing is.
  std::string run(Random& random);
  // Then: unloads, and looks that the device has everything back.
  std::string finish();

  // What has come up.
  [[nodiscard]] const std::map<std::string, uint64_t>& scenarios() const { return scenarios_; }
  [[nodiscard]] std::string describe() const { return executor_->describe_waits(); }
  [[nodiscard]] uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  using Floats = std::vector<float>;
  struct NpuDestroyer {
    void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
  };
  using NpuPtr = std::unique_ptr<DvtNpu, NpuDestroyer>;

  // Inputs, and what comes out.
  struct Variant {
    int64_t rows = 0, trip = 0;
    bool go = false;
    std::array<Floats, 2> matrices;
    Floats expected;
  };

  explicit ModelProgram(const ModelMaking& making) : making_(making), pool_{making.pool} {}

  Status compile(Random& random);
  void make_variants(Random& random, int64_t rows_max);
  // The results of each variant in order, and how much memory that takes.
  Status run_oracle(uint64_t& peak_bytes);
  Status make_device(Random& random, uint64_t peak_bytes);
  Result<Executor> load(DvtNpu* npu, bool oracle);
  Error bind(Executor& executor, const Variant& variant);
  Error run_watched(uint32_t cancel_at);
  std::string check_failure(const Error& error, bool cancels);
  static Result<NpuPtr> make_npu(DvtNpuMode mode, uint64_t seed, uint64_t capacity_bytes);

  const ModelMaking making_;
  DvtPool pool_;
  ModelOptions model_;
  bool planned_ = false;          // The image has a schedule.
  std::vector<std::byte> bytes_;  // The image, which is used in place.
  std::optional<Image> image_;
  std::array<Variant, 4> variants_;
  int64_t index_ = 0;
  Floats output_;
  NpuPtr npu_;                        // Null on the host.
  uint64_t heap_bytes_max_ = 0;       // On the host; 0: no limit.
  std::optional<Executor> executor_;  // Of npu_, which outlives it.
  std::optional<Cancel> cancel_;
  std::atomic<uint32_t> cancel_at_{UINT32_MAX};  // When so many nodes have run, ends the run.
  std::atomic<uint32_t> ran_{0};                 // Nodes, in this run.
  std::atomic<uint64_t> progress_{0};
  std::map<std::string, uint64_t> scenarios_;
};

}  // namespace davit::stress
