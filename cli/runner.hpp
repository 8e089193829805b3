// runner.hpp: one executor with its input and output buffers; what run and bench have in common.
//
// Threads  One thread per Runner; runners may share an image.
// Memory   Owns the executor and the output buffers. Borrows image, device and inputs.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cli/device.hpp"
#include "cli/model.hpp"
#include "cli/tensors.hpp"
#include "davit/davit.h"

namespace davit::cli {

struct ExecutorDestroy {
  void operator()(DvtExecutor* executor) const { dvt_executor_destroy(executor); }
};

struct PoolDestroy {
  void operator()(DvtPool* pool) const { dvt_pool_destroy(pool); }
};
using PoolPtr = std::unique_ptr<DvtPool, PoolDestroy>;

// 0: as many as this process may use. DVT_UNSUPPORTED in a build without threads.
Result<PoolPtr> make_pool(uint32_t workers);

// Who runs the nodes. `pool` may be null and is borrowed until the executor is made.
struct Workers {
  DvtPool* pool = nullptr;
  uint32_t schedule = DVT_SCHEDULE_AUTO;
};

struct ExecutorSettings {
  uint64_t bytes_max = 0;  // Of each pool of what is known at run time only; 0: no limit.
  uint32_t device_memory = DVT_DEVICE_MEMORY_CACHED;
  uint32_t huge_pages = DVT_HUGE_PAGES_AUTO;
  bool trust_output_shapes = false;
};

class Runner {
 public:
  // Load: creates the executor, allocates outputs. `device` may be NULL; timeout_us < 0: no limit.
  static Result<Runner> create(DvtImage* image, DvtDevice* device, int64_t timeout_us,
                               const Workers& workers, const ExecutorSettings& settings = {});

  // Each "INPUT=OUTPUT" makes these a variable (dvt_executor_bind_variable()) in memory of the
  // executor; its value is what bind_inputs() says.
  Status bind_variables(std::span<const PortType> inputs, std::span<const std::string> forms);
  // In the order of the image's inputs; they must stay until the next bind.
  Status bind_inputs(std::span<const HostTensor> inputs);
  // What the shape of an output of dynamic shape must turn out to be; "NAME:DIMS" each. After
  // bind_variables().
  Status expect_shapes(std::span<const std::string> forms);
  // Runs Main once and returns the nanoseconds it took.
  Result<double> run();
  Result<double> run_observed(DvtNodeObserver observer, void* user);
  // As run(), by the schedule, and watched; ends with DVT_TIMEOUT after `seconds` (negative:
  // never). The observer is called by all workers, and may be null.
  Result<double> run_limited(double seconds, DvtNodeObserver observer, void* user);
  // Unload, with its errors.
  Status unload();

  [[nodiscard]] const DvtExecutor* executor() const { return executor_.get(); }
  // How the last run was scheduled, and why.
  [[nodiscard]] DvtScheduleInfo schedule() const;
  // Who waits for whom in a watched run. Any thread.
  [[nodiscard]] std::string describe_waits() const;
  [[nodiscard]] double create_ns() const { return create_ns_; }
  [[nodiscard]] const std::vector<HostTensor>& outputs() const { return outputs_; }

 private:
  Runner() = default;

  std::unique_ptr<DvtExecutor, ExecutorDestroy> executor_;
  // Copies outputs that are in memory of the executor.
  Status fetch_outputs();

  std::vector<HostTensor> outputs_;
  std::vector<bool> fetched_;   // By output: in memory of the executor.
  std::vector<bool> variable_;  // By input; may be shorter.
  std::set<uint32_t> variable_outputs_;
  double create_ns_ = 0;
};

// What an input is made of.
struct InputSource {
  std::string text;                // "random, seed 3"
  bool open_dims_are_one = false;  // Nobody said what they are.
};

// Inputs of `ports` from the forms of --input; those not named are "random". Input i of a set is
// filled from seed + i. `sources`: one for each, on success.
Result<std::vector<HostTensor>> make_inputs(std::span<const PortType> ports,
                                            const std::vector<std::string>& forms, uint64_t seed,
                                            std::vector<InputSource>& sources);

// Model, sizes and load times, to stdout and JSON.
void report_model(Session& session, const std::string& path, const LoadedModel& model,
                  double create_ns);

// How Main was run, to the log and JSON.
void report_schedule(Session& session, const DvtScheduleInfo& info);

// The compile report, to stdout and JSON.
void report_compilation(Session& session, const compiler::CompileReport& report,
                        double total_seconds);

}  // namespace davit::cli
