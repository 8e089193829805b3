// executor.hpp: the model executor: load = Init, execute = Main, unload = DeInit.
//
//   create() ──Init ok──► Loaded ──unload()──► Unloaded      run(), bind() only in Loaded
//        └──Init fails──► nothing is left
//
// A run leaves Loaded in any case. What a failed Main has allocated on a device is returned at once
// (recover()); if the device does not even come to rest, the next run tries again and fails until
// it does.
//
// Threads  One thread at a time for each executor.
// Trust    The image is verified: kernels' checks have passed, ids are in range, operands of device
//          nodes are live in the order of the steps. What callers bind is checked here.
// Memory   One block (exec/layout.hpp), mapped at load, so that pages nobody touches cost nothing.
//          A run allocates nothing unless it fails.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "alloc/caching_allocator.h"
#include "alloc/host_memory.hpp"
#include "base/resource.hpp"
#include "base/status.hpp"
#include "davit/davit.h"
#include "exec/block.hpp"
#include "exec/dynamic.h"
#include "exec/image.hpp"
#include "exec/layout.hpp"
#include "exec/parallel.hpp"
#include "exec/run_watch.hpp"
#include "exec/runtime.h"
#include "exec/sequential_c/sequential.h"

namespace davit::exec {

class EnvironmentTrace;
struct GearsView;

// A reference of its own to an open image.
using SharedImage = std::unique_ptr<const DvtImage, ImageReleaser>;
inline SharedImage share_image(const DvtImage& image) {
  retain_image(image);
  return SharedImage(&image);
}

// One graph, ready to run.
struct StepList {
  const DvtStep* steps = nullptr;
  uint32_t count = 0;
  const GraphView* graph = nullptr;
  const DvtNodeNames* names = nullptr;        // Null unless the image uses a device.
  const DvtTaskCost* const* costs = nullptr;  // Likewise.
};

// What an observed run reports to: either may be null.
struct Observer {
  DvtNodeObserver call = nullptr;
  void* user = nullptr;
  RunWatch* watch = nullptr;
};

// An input and an output that are one thing: two halves that take turns. Where the output's shape
// is dynamic and the caller has provided no memory, the halves are two blocks of the heap, which
// grow with the value: its own, and the one that the output's slot keeps.
struct Variable {
  uint32_t input = 0;  // Slots of bindings.
  uint32_t output = 0;
  bool has_dynamic_output = false;
  bool has_value = false;
  std::byte* halves[2] = {};  // One behind the other; null: blocks of the heap.
  uint64_t half_bytes = 0;
  uint32_t current = 0;  // The half that has the value.
  Block own;             // What the halves are in, unless the caller has provided it.
  DvtBlock value{};      // Of the heap.
  uint64_t value_bytes = 0;
};

// What one run is given.
struct RunRequest {
  mt_topo::RunControl control;
  const Observer* observer = nullptr;  // Or null.
  bool in_order = false;               // By the caller alone, whatever the schedule.
};

// Runs the steps of a list from `first` on and reports each; the rest as
// dvt_sequential_run_checked(); `check` may be null.
size_t run_observed(const ImageView& view, const StepList& list, const Observer& observer,
                    uint32_t first, const DvtStepCheck* check, int32_t* code);
// The same of a body, inside an observed node: what is reported is of that node's worker ...
size_t run_observed_body(const ImageView& view, const StepList& body, const Observer& observer,
                         const DvtStepCheck* check, int32_t* code);
// ... or, where `run` shares it, of that and of its helpers.
mt_topo::Outcome run_observed_body(
    const ImageView& view, const StepList& body, const Observer& observer,
    const std::function<mt_topo::Outcome(const mt_topo::RunObserver&)>& run);

struct DeviceDeleter {
  void operator()(DvtDevice* device) const { dvt_cpu_device_destroy(device); }
};

}  // namespace davit::exec

// The opaque types of davit.h.
struct DvtCancel {
  std::atomic<uint32_t> requested{0};
};

struct DvtExecutor {
 public:
  static davit::Result<std::unique_ptr<DvtExecutor>> create(const DvtImage& image,
                                                            const DvtExecutorOptions& options);
  ~DvtExecutor();
  DvtExecutor(const DvtExecutor&) = delete;
  DvtExecutor& operator=(const DvtExecutor&) = delete;

  // Idempotent. Reports the first failure and cleans up in spite of it.
  davit::Status unload();

  davit::Status bind_input(uint32_t index, const void* data, size_t bytes);
  davit::Status bind_output(uint32_t index, void* data, size_t bytes);
  davit::Status bind_arena(void* base, size_t bytes);
  davit::Status bind_device_memory(void* base, size_t bytes);
  davit::Status bind_variable(uint32_t input, uint32_t output, void* base, size_t bytes);
  davit::Status set_variable(uint32_t input, const DvtTensor* tensor, const void* data);
  davit::Status variable(uint32_t input, DvtTensor* tensor, void*& data) const;
  // The shape comes with the data.
  davit::Status bind_input_tensor(uint32_t index, const DvtTensor& tensor, const void* data);
  davit::Status bind_output_tensor(uint32_t index, const DvtTensor& tensor, void* data,
                                   size_t bytes);
  davit::Status output_tensor(uint32_t index, DvtTensor& tensor, const void*& data) const;
  void statistics(DvtExecutorStatistics& out) const;
  void memory(DvtMemoryPool pool, DvtMemoryStatistics& out) const;
  [[nodiscard]] uint64_t live_bytes(DvtMemoryPool pool) const;
  void visit_memory(DvtMemoryPool pool, DvtMemoryVisitor visit, void* user) const;
  void host_memory(DvtHostMemory& out) const;
  uint64_t trim(uint64_t keep_bytes);
  void schedule(DvtScheduleInfo& out) const;
  // Of the last run that could begin; DVT_NO_INDEX without gears.
  [[nodiscard]] uint32_t gear() const { return gears_ == nullptr ? DVT_NO_INDEX : gears_->gear; }
  // Of the runs to come, when they are to be watched. Made once, on demand.
  davit::exec::RunWatch& watch();
  // By any thread.
  [[nodiscard]] std::string describe_waits() const;

  // Without an observer of its own, a run reports to the trace that the environment asks for.
  davit::Status run(const davit::exec::RunRequest& request = {});

 private:
  DvtExecutor(const DvtImage& image, const davit::exec::Layout& layout, davit::exec::Block block);

  // exec/executor_build.cpp: fills in the block. Each relies on those before it.
  void build_cells();
  void build_ports();
  void build_steps();
  void build_context(const davit::exec::GraphView& graph, uint32_t node, DvtContext* context);
  void build_device_tables();
  void note_unjoined_streams();
  // exec/executor_dynamic.cpp: the same for dynamic shapes and bodies; after build_steps().
  void build_dynamic(bool trust_output_shapes);
  void mark_bounded_outputs();
  void build_shape_nodes(const davit::exec::StepList& list, bool trust_output_shapes);
  [[nodiscard]] const DvtOutputSlot* trusted_slot(const davit::exec::GraphView& graph,
                                                  uint32_t node) const;
  void build_flow_nodes(const davit::exec::StepList& list);
  void build_flow_runtimes();
  static DvtCode run_body(DvtRuntime* runtime, const DvtBody* body);
  // exec/executor_gears.cpp: gears whose bodies drive a device.
  davit::Status create_gear_schedules(std::span<const DvtStep* const> steps,
                                      const DvtExecutorOptions& options);
  [[nodiscard]] bool is_in_place_of_main(uint32_t graph) const;
  [[nodiscard]] bool is_device_gear(const DvtBody* body) const;
  DvtCode run_device_gear(DvtRuntime& runtime, const DvtBody& body, uint32_t& failed);
  DvtCode run_gear_apart(DvtRuntime& runtime, const davit::exec::StepList& list,
                         davit::exec::Parallel& parallel, uint32_t& failed);
  // `failed`: the node of a code that is not DVT_OK.
  DvtCode run_body_in_order(const davit::exec::StepList& body, uint32_t& failed);
  DvtCode run_body_shared(uint32_t graph, uint32_t& failed);

  // exec/executor_memory.cpp.
  struct AllocatorDeleter {
    void operator()(DvtAllocator* allocator) const { dvt_allocator_destroy(allocator); }
  };
  using Allocator = std::unique_ptr<DvtAllocator, AllocatorDeleter>;
  DvtAllocatorHooks memory_hooks();
  davit::Status create_allocator(const DvtAllocatorOptions& options, const char* what,
                                 Allocator& out);
  davit::Status create_heap(const DvtExecutorOptions& options);
  static davit::Status check_device_memory(const DvtExecutorOptions& options);
  void give_back(void* address);
  void consolidate_device_cache();
  davit::Status create_device_pools(const DvtExecutorOptions& options);
  davit::Status create_device_cache();
  [[nodiscard]] const DvtAllocator* allocator_of(DvtMemoryPool pool) const;
  // For texts: whose work a value's memory is for.
  [[nodiscard]] const char* owner_of(uint32_t value) const;
  static void explain_shortage(DvtValueMemory& memory, davit::ErrorDetail& detail);
  void return_heap_values();

  // exec/executor_segments.cpp: memory of the caller's on the device.
  davit::Status check_device_piece(const void* base, size_t bytes, uint64_t needed,
                                   const char* what, DvtStage stage) const;
  davit::Status create_fixed_memory(const DvtExecutorOptions& options);
  davit::Status create_feature_memory(void* base, size_t bytes, Allocator& out);

  // exec/executor_variables.cpp.
  davit::Status check_variable_ports(uint32_t input, uint32_t output) const;
  davit::Status provide_halves(davit::exec::Variable& variable, void* base, size_t bytes) const;
  void begin_variable(davit::exec::Variable variable);
  [[nodiscard]] const davit::exec::Variable* variable_of(uint32_t slot) const;
  [[nodiscard]] const std::byte* address_of(const davit::exec::Variable& variable) const;
  [[nodiscard]] const davit::exec::PortView& output_of(const davit::exec::Variable& variable) const;
  DvtOutputSlot& slot_of(const davit::exec::Variable& variable) const;
  davit::Status write_variable(davit::exec::Variable& variable, const DvtTensor& shape,
                               const void* data);
  [[nodiscard]] davit::Status check_variables_apart() const;
  [[nodiscard]] davit::Status check_apart(const davit::exec::Variable& variable, const void* begin,
                                          uint64_t bytes) const;
  void end_variable(uint32_t slot);
  davit::Status turn_variables();
  void turn_dynamic(davit::exec::Variable& variable);

  davit::Status create_parallel(const DvtExecutorOptions& options);
  davit::Status choose_device(const DvtExecutorOptions& options);
  [[nodiscard]] davit::Status check_bodies() const;
  davit::Status load();
  void end_load() noexcept;

  // exec/bindings.cpp.
  davit::Status check_shape(const davit::exec::PortView& port, DvtTensor& given) const;
  davit::Status check_buffer(const davit::exec::PortView& port, const DvtTensor& tensor,
                             const void* data, size_t bytes) const;
  void attach(uint32_t slot, const void* data);
  void point(uint32_t slot, const void* data);
  bool take_shape(uint32_t index, const DvtTensor& shape);
  davit::Status bind_dynamic_output(uint32_t index, void* data, size_t bytes);
  davit::Status check_given_shapes() const;
  davit::Status bind(const davit::exec::PortView& port, uint32_t slot, const void* data,
                     size_t bytes);
  davit::Status check_bindings();
  davit::Status choose_gear();
  [[nodiscard]] davit::Status no_such_gear(const davit::exec::GearsView& gears) const;
  davit::Status check_overlaps();
  [[nodiscard]] davit::Status check_arena_apart() const;
  [[nodiscard]] const davit::exec::PortView& port_at(uint32_t slot) const;
  [[nodiscard]] uint32_t port_count() const;

  // Steps of one graph.
  davit::Status run_steps(const davit::exec::StepList& list, DvtStage stage,
                          const davit::exec::RunRequest& request, uint32_t first = 0);
  static int32_t may_go_on(void* self);
  [[nodiscard]] davit::Status limit_error(DvtCode code) const;
  davit::Status node_error(const davit::exec::StepList& list, size_t node, DvtCode code,
                           DvtStage stage);
  // The innermost one, when a node of a body is why `node` of `list` failed.
  void find_failed_node(const davit::exec::StepList*& list, uint32_t& node) const;
  void forget_failure();
  davit::Status run_traced(const davit::exec::RunRequest& request);
  davit::Status run_main(const davit::exec::RunRequest& request);
  void end_run();
  [[nodiscard]] bool runs_parallel(const davit::exec::RunRequest& request) const {
    return parallel_.active() && !request.in_order;
  }
  davit::mt_topo::Outcome run_scheduled(const davit::exec::StepList& list,
                                        davit::exec::Parallel& parallel,
                                        const davit::exec::RunRequest& request);
  davit::Status run_main_parallel(const davit::exec::RunRequest& request);
  davit::Status run_shape_nodes(const davit::exec::RunRequest& request);
  davit::Status run_lanes_apart(const davit::exec::RunRequest& request);
  davit::Status run_main_on_device(const davit::exec::RunRequest& request, uint32_t first);

  // After a call of the device: its error, or OK.
  davit::Status device_status(DvtCode code, DvtStage stage, const char* what) const;
  davit::Status join_streams();
  davit::Status recover();
  davit::Status synchronise_all(DvtStage stage);
  davit::Status free_allocations(const davit::exec::StepList& list, DvtStage stage);
  davit::Status free_main_allocations(DvtStage stage);
  davit::Status reclaim_all();
  [[nodiscard]] bool lost_device_in_fork() const;

  davit::alloc::HostMemory host_memory_{sizeof(DvtExecutor)};  // Of all that follows.
  davit::exec::SharedImage image_;
  const davit::exec::ImageView& view_;
  davit::exec::Layout layout_;
  davit::exec::Block block_;
  DvtRuntime* runtime_;
  DvtCell* cells_;
  davit::exec::Binding* bindings_;
  std::byte* arena_ = nullptr;  // Of planned values: in block_, or the caller's.
  davit::exec::StepList init_, main_, deinit_;
  // By graph; empty for graphs that are no body.
  std::pmr::vector<davit::exec::StepList> bodies_{&host_memory_};
  // By graph: of the node that runs a body, its place among all such nodes and 1; 0: no body.
  std::pmr::vector<uint32_t> runner_{&host_memory_};
  pthread_mutex_t heap_lock_ = PTHREAD_MUTEX_INITIALIZER;
  std::pmr::vector<davit::exec::Variable> variables_{&host_memory_};

  Allocator heap_;
  // Main's leading shape nodes have run for the shapes that are bound.
  bool shapes_valid_ = false;
  bool shapes_measured_ = false;   // What schedulers have measured is of the inputs' shapes.
  uint32_t shape_node_count_ = 0;  // InferShape nodes of all graphs.
  // Places of layout_ that are taken, while they are being filled in.
  uint64_t memo_bytes_ = 0;
  size_t flow_node_count_ = 0, body_count_ = 0;
  uint32_t collected_count_ = 0;
  DvtFlowNode* gears_ = nullptr;  // The record of the SelectGear; null without gears.
  // Of the run in progress: what it was given, whether a limit has ended it or a body, and, by
  // graph, the node of a body that failed.
  const davit::exec::RunRequest* request_ = nullptr;
  // On several workers: who runs Main, or the gear, and its bodies; null: in order.
  davit::exec::Parallel* sharing_ = nullptr;
  std::atomic<bool> limit_reached_{false};
  std::pmr::vector<uint32_t> failed_at_{&host_memory_};

  std::unique_ptr<DvtDevice, davit::exec::DeviceDeleter> own_device_;
  DvtCode return_code_ = DVT_OK;  // The first failure of the device to take back what was cached.
  uint64_t consolidated_bytes_ = 0;  // Of the last consolidation: the most that had been live.
  uint64_t device_bytes_max_ = 0;    // DvtExecutorOptions.device_bytes_max.
  void* feature_base_ = nullptr;     // What device_cache_ is over, if it is the caller's.
  Allocator device_cache_;           // Gives its ranges back to the device, so it goes first.
  Allocator fixed_memory_;           // Over what the caller has provided for Init.
  pid_t owner_pid_ = 0;  // The process that made this; a device does not survive fork().
  bool loaded_ = false;
  bool has_run_ = false;           // The last run's outputs can be read.
  bool ready_ = false;             // Bindings are complete and checked.
  bool recovery_pending_ = false;  // recover() has not succeeded since the last failure.

  davit::exec::Parallel parallel_{host_memory_};
  // By gear, where these drive a device.
  std::pmr::vector<davit::exec::Parallel> gear_parallels_{&host_memory_};
  davit::ResourcePtr<davit::exec::RunWatch> watch_;
  std::atomic<const davit::exec::RunWatch*> watched_{nullptr};  // For describe_waits().

  davit::ResourcePtr<davit::exec::EnvironmentTrace> trace_;  // When DAVIT_TRACE is set.
};
