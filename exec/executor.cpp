#include "exec/executor.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "exec/execution_trace.hpp"
#include "exec/gears.hpp"
#include "exec/mt_topo/platform.hpp"
#include "exec/mt_topo/pool.hpp"

using davit::ErrorDetail;
using davit::Result;
using davit::Status;
using davit::exec::Block;
using davit::exec::kNone;
using davit::exec::Layout;
using davit::exec::Observer;
using davit::exec::RunRequest;
using davit::exec::RunWatch;
using davit::exec::StepList;

namespace davit::exec {

uint64_t executor_bytes(const ImageView& image) {
  const Result<Layout> layout = lay_out(image);
  return layout.ok() ? Block::rounded(layout->total) + sizeof(DvtExecutor) : UINT64_MAX;
}

namespace {

using mt_topo::RealThreads;

// The worker of the observed node that this thread runs or has run last; for bodies, whose caller
// that is.
thread_local uint32_t observed_worker = 0;

// What is called around each node of an observed run.
struct NodeObservation {
  const ImageView& view;
  const StepList& list;
  const Observer& observer;
  uint32_t first = 0;   // The step that the list begins with here.
  uint32_t caller = 0;  // Which worker of the whole run is worker 0 of this one.
  // By worker, each on a line of its own.
  struct alignas(64) Worker {
    int64_t begin_ns;
  };
  std::array<Worker, mt_topo::kWorkersMax> workers;

  static void begin(void* self, uint32_t worker, uint32_t node) {
    auto& seen = *static_cast<NodeObservation*>(self);
    if (seen.observer.watch != nullptr) seen.note_begin(*seen.observer.watch, node);
    observed_worker = worker == 0 ? seen.caller : worker;
    seen.workers[worker].begin_ns = RealThreads::now_ns();
  }

  [[nodiscard]] uint32_t graph_index() const {
    return static_cast<uint32_t>(list.graph - view.graphs.data());
  }
  // Watched are Main and the bodies.
  void note_begin(RunWatch& watch, uint32_t node) const {
    if (list.graph->role == GraphRole::kMain) watch.begun(node);
    if (list.graph->role == GraphRole::kBody) watch.begun_in_body(graph_index(), node);
  }
  void note_end(RunWatch& watch, uint32_t node, int32_t code) const {
    if (list.graph->role == GraphRole::kMain && code == DVT_OK) watch.ended(node);
    if (list.graph->role == GraphRole::kBody) watch.ended_in_body(graph_index());
  }

  static void end(void* self, uint32_t worker, uint32_t node, int32_t code) {
    const int64_t end_ns = RealThreads::now_ns();
    const auto& seen = *static_cast<NodeObservation*>(self);
    // Again: the node may have run another executor.
    observed_worker = worker == 0 ? seen.caller : worker;
    if (seen.observer.watch != nullptr) seen.note_end(*seen.observer.watch, node, code);
    if (seen.observer.call == nullptr) return;
    const GraphView& graph = *seen.list.graph;
    const DvtNodeEvent event = {
        .node = node,
        .lane = graph.lane[node],
        .code = code,
        .body = graph.role == GraphRole::kBody ? seen.graph_index() : DVT_NO_INDEX,
        .origin = seen.view.strings[graph.origin_of(node)],
        .op = seen.view.strings[graph.op_of(node)],
        .kernel = seen.view.kernel_refs[graph.kernel[node]].name,
        .begin_ns = seen.workers[worker].begin_ns,
        .end_ns = end_ns,
        .context = static_cast<const DvtContext*>(seen.list.steps[node].ctx),
        .worker = observed_worker,
        .reserved = 0,
    };
    seen.observer.call(seen.observer.user, &event);
  }

  // Where nodes are counted from `first` on.
  static void begin_behind(void* self, uint32_t worker, uint32_t node) {
    begin(self, worker, node + static_cast<NodeObservation*>(self)->first);
  }
  static void end_behind(void* self, uint32_t worker, uint32_t node, int32_t code) {
    end(self, worker, node + static_cast<NodeObservation*>(self)->first, code);
  }

  // For dvt_sequential_run_traced().
  static void begin_step(void* self, size_t step) {
    begin(self, 0, static_cast<uint32_t>(step) + static_cast<NodeObservation*>(self)->first);
  }
  static void end_step(void* self, size_t step, int32_t code) {
    end(self, 0, static_cast<uint32_t>(step) + static_cast<NodeObservation*>(self)->first, code);
  }
};

}  // namespace

size_t run_observed(const ImageView& view, const StepList& list, const Observer& observer,
                    uint32_t first, const DvtStepCheck* check, int32_t* code) {
  NodeObservation seen{view, list, observer, first, 0, {}};
  const DvtStepTrace trace = {NodeObservation::begin_step, NodeObservation::end_step, &seen};
  return dvt_sequential_run_traced(list.steps + first, list.count - first, &trace, check, code);
}

size_t run_observed_body(const ImageView& view, const StepList& body, const Observer& observer,
                         const DvtStepCheck* check, int32_t* code) {
  NodeObservation seen{view, body, observer, 0, observed_worker, {}};
  const DvtStepTrace trace = {NodeObservation::begin_step, NodeObservation::end_step, &seen};
  return dvt_sequential_run_traced(body.steps, body.count, &trace, check, code);
}

mt_topo::Outcome run_observed_body(
    const ImageView& view, const StepList& body, const Observer& observer,
    const std::function<mt_topo::Outcome(const mt_topo::RunObserver&)>& run) {
  NodeObservation seen{view, body, observer, 0, observed_worker, {}};
  return run({NodeObservation::begin, NodeObservation::end, &seen});
}

}  // namespace davit::exec

DvtExecutor::DvtExecutor(const DvtImage& image, const Layout& layout, Block block)
    : image_(davit::exec::share_image(image)),
      view_(image.view),
      layout_(layout),
      block_(std::move(block)) {
  runtime_ = block_.at<DvtRuntime>(layout_.runtime);
  cells_ = block_.at<DvtCell>(layout_.cells);
  bindings_ = block_.at<davit::exec::Binding>(layout_.bindings);
  owner_pid_ = ::getpid();
}

DvtExecutor::~DvtExecutor() {
  // dvt_executor_unload() is there for those who want to see its errors.
  const Status dropped = unload();
  (void)dropped;
  pthread_mutex_destroy(&heap_lock_);
}

Result<std::unique_ptr<DvtExecutor>> DvtExecutor::create(const DvtImage& image,
                                                         const DvtExecutorOptions& options) {
  if (image.view.kernels.size() != image.view.kernel_refs.size()) {
    return Status(DVT_FAILED_STATE, DVT_STAGE_LOAD,
                  "the image was opened without kernels, for reading only");
  }
  if (options.huge_pages > DVT_HUGE_PAGES_RESERVED) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "DvtExecutorOptions.huge_pages is unknown",
                              .expected = "one of DVT_HUGE_PAGES_*",
                              .got = std::to_string(options.huge_pages)});
  }
  Result<Layout> layout = davit::exec::lay_out(image.view);
  if (!layout.ok()) return std::move(layout.status());
  Result<Block> block = Block::map(layout->total, "an executor", options.huge_pages);
  if (!block.ok()) return std::move(block.status());

  std::unique_ptr<DvtExecutor> executor(new DvtExecutor(image, *layout, std::move(block).value()));
  executor->build_cells();
  executor->build_ports();
  executor->build_steps();
  executor->build_dynamic(options.trust_output_shapes != 0);
  executor->build_device_tables();
  if (Status status = executor->create_heap(options); !status.ok()) return status;
  if (Status status = executor->choose_device(options); !status.ok()) return status;
  if (Status status = executor->create_device_pools(options); !status.ok()) return status;
  if (Status status = executor->create_parallel(options); !status.ok()) return status;
  if (Status status = executor->load(); !status.ok()) return status;
  DvtScheduleInfo info;
  executor->schedule(info);
  executor->trace_ =
      davit::exec::EnvironmentTrace::from_environment(image, info.workers, executor->host_memory_);
  return executor;
}

Status DvtExecutor::create_parallel(const DvtExecutorOptions& options) {
  std::vector<const DvtStep*> steps;
  for (const StepList& body : bodies_) steps.push_back(body.steps);
  steps[view_.main] = main_.steps;
  auto parallel = davit::exec::Parallel::create(view_, view_.main, steps, options, host_memory_);
  if (!parallel.ok()) return std::move(parallel.status());
  parallel_ = std::move(*parallel);
  if (Status status = create_gear_schedules(steps, options); !status.ok()) return status;
  // The memory lanes of bodies and of Main are several.
  const bool shares =
      parallel_.active() || std::ranges::any_of(gear_parallels_, &davit::exec::Parallel::active);
  if (shares && flow_node_count_ > 0) runtime_->memory.lock = &heap_lock_;
  build_flow_runtimes();
  return {};
}

// What images may say and executors cannot do.
Status DvtExecutor::check_bodies() const {
  const auto mains = davit::exec::main_graphs(view_);
  for (uint32_t id = 0; id < view_.graphs.size(); ++id) {
    const davit::exec::GraphView& graph = view_.graphs[id];
    const bool body = graph.role == davit::exec::GraphRole::kBody &&
                      std::find(mains.begin(), mains.end(), id) == mains.end();
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      const DvtKernel* kernel = view_.kernels[graph.kernel[node]];
      const DvtHostNode kind = dvt_host_node(kernel);
      // Names and costs of tasks, and buffers for launches, are there for the nodes of Main and of
      // gears.
      const bool drives = body && dvt_device_node(kernel) != DVT_NODE_OTHER;
      if (!drives && (graph.bodies_of(node).empty() || davit::exec::runs_bodies(kind))) continue;
      return Status(ErrorDetail{.code = DVT_UNSUPPORTED,
                                .stage = DVT_STAGE_LOAD,
                                .message = drives ? "nodes in bodies cannot drive a device"
                                                  : "this kernel does not run bodies",
                                .node = view_.strings[graph.origin_of(node)],
                                .op = view_.strings[graph.op_of(node)]});
    }
  }
  return {};
}

Status DvtExecutor::load() {
  if (Status status = check_bodies(); !status.ok()) return status;
  // Also when there is no memory for the words of an error, which is an exception.
  const struct Aftermath {
    DvtExecutor& executor;
    ~Aftermath() { executor.end_load(); }
  } aftermath{*this};
  Status status = run_steps(init_, DVT_STAGE_LOAD, {});
  loaded_ = status.ok();
  if (status.code() == DVT_OUT_OF_RESOURCE) {
    status.detail().hint = "the image needs " + std::to_string(view_.stream_count) +
                           " streams and " + std::to_string(view_.event_count) + " events";
  }
  return status;
}

void DvtExecutor::end_load() noexcept {
  if (loaded_ || runtime_->device == nullptr) return;
  try {
    // The failure of Init is the one to report.
    const Status dropped = reclaim_all();
    (void)dropped;
  } catch (const std::bad_alloc&) {
    // The device refuses to take things back, and there is no memory to say so.
  }
}

Status DvtExecutor::unload() {
  if (!loaded_) return {};
  loaded_ = false;
  ready_ = false;
  Status status;
  if (trace_ != nullptr) status = trace_->write();
  if (lost_device_in_fork()) return status;
  const auto keep_first = [&](Status next) {
    if (status.ok()) status = std::move(next);
  };
  if (runtime_->device != nullptr) keep_first(synchronise_all(DVT_STAGE_UNLOAD));
  keep_first(run_steps(deinit_, DVT_STAGE_UNLOAD, {}));
  if (runtime_->device != nullptr) keep_first(reclaim_all());
  heap_.reset();
  device_cache_.reset();
  fixed_memory_.reset();
  keep_first(device_status(return_code_, DVT_STAGE_UNLOAD, "returning device memory"));
  return status;
}

Status DvtExecutor::run(const RunRequest& request) {
  if (!ready_) {
    if (Status status = check_bindings(); !status.ok()) return status;
  }
  RunWatch* watch = request.observer == nullptr ? nullptr : request.observer->watch;
  if (watch != nullptr) watch->begin_run();
  Status status = run_traced(request);
  if (watch != nullptr) watch->end_run(status.code());
  if (!variables_.empty() && status.ok()) status = turn_variables();
  return status;
}

// Traces go to the environment's file unless the run has an observer of its own.
Status DvtExecutor::run_traced(const RunRequest& request) {
  const bool observed = request.observer != nullptr && request.observer->call != nullptr;
  if (trace_ == nullptr || observed) return run_main(request);
  Observer observer = trace_->observer();
  if (request.observer != nullptr) observer.watch = request.observer->watch;
  RunRequest traced = request;
  traced.observer = &observer;
  trace_->begin_run();
  Status status = run_main(traced);
  DvtScheduleInfo ran;
  schedule(ran);
  trace_->end_run(status.code(), ran);
  return status;
}

RunWatch& DvtExecutor::watch() {
  if (watch_ == nullptr) {
    watch_ = davit::make_in<RunWatch>(host_memory_, view_, *main_.graph, parallel_.deferred(),
                                      host_memory_);
    watched_.store(watch_.get(), std::memory_order_release);
  }
  return *watch_;
}

std::string DvtExecutor::describe_waits() const {
  const RunWatch* watch = watched_.load(std::memory_order_acquire);
  return watch == nullptr ? "no run was watched" : watch->describe();
}

// The steps of a list behind its leading shape nodes, and the bodies they run.
davit::mt_topo::Outcome DvtExecutor::run_scheduled(const StepList& list,
                                                   davit::exec::Parallel& parallel,
                                                   const RunRequest& request) {
  sharing_ = &parallel;
  davit::mt_topo::Outcome outcome;
  if (request.observer == nullptr) {
    outcome = parallel.run(request.control, nullptr);
  } else {
    using davit::exec::NodeObservation;
    NodeObservation seen{view_, list, *request.observer, parallel.first(), 0, {}};
    const davit::mt_topo::RunObserver observer = {NodeObservation::begin_behind,
                                                  NodeObservation::end_behind, &seen};
    outcome = parallel.run(request.control, &observer);
  }
  sharing_ = nullptr;
  return outcome;
}

// Main without its leading shape nodes, by the schedule.
Status DvtExecutor::run_main_parallel(const RunRequest& request) {
  runtime_->names = main_.names;
  runtime_->costs = main_.costs;
  runtime_->node_count = main_.count;
  request_ = &request;
  const davit::mt_topo::Outcome outcome = run_scheduled(main_, parallel_, request);
  has_run_ = outcome.code == DVT_OK;
  if (has_run_) return {};
  const bool is_limit = outcome.code == DVT_CANCELLED || outcome.code == DVT_TIMEOUT;
  const bool in_body = limit_reached_.exchange(false, std::memory_order_relaxed);
  if (outcome.node == davit::mt_topo::kNoNode || (is_limit && in_body)) {
    forget_failure();
    return limit_error(outcome.code);
  }
  return node_error(main_, outcome.node + parallel_.first(), outcome.code, DVT_STAGE_RUN);
}

// Before a parallel run whose shapes are not those of the run before. Shape nodes run in order,
// before anybody computes.
Status DvtExecutor::run_shape_nodes(const RunRequest& request) {
  // After a failure they are computed again, but are what they were.
  if (heap_ != nullptr && !std::exchange(shapes_measured_, true)) parallel_.shapes_changed();
  StepList leading = main_;
  leading.count = parallel_.first();
  return leading.count == 0 ? Status() : run_steps(leading, DVT_STAGE_RUN, request);
}

Status DvtExecutor::run_main(const RunRequest& request) {
  const bool on_host = runtime_->device == nullptr;
  const bool parallel = runs_parallel(request);
  const bool is_static = heap_ == nullptr && main_.graph->shape_nodes == 0;
  if (parallel && on_host && is_static) return run_main_parallel(request);
  const bool same_shapes = shapes_valid_;
  const uint32_t first = same_shapes ? main_.graph->shape_nodes : 0;
  // Also when there is no memory for the words of an error, which is an exception.
  const struct Aftermath {
    DvtExecutor& executor;
    ~Aftermath() { executor.end_run(); }
  } aftermath{*this};
  shapes_valid_ = has_run_ = false;
  Status status;
  if (parallel && !same_shapes) status = run_shape_nodes(request);
  if (status.ok()) {
    status = !on_host   ? run_main_on_device(request, first)
             : parallel ? run_main_parallel(request)
                        : run_steps(main_, DVT_STAGE_RUN, request, first);
  }
  if (status.ok()) status = check_given_shapes();
  shapes_valid_ = has_run_ = status.ok();
  return status;
}

void DvtExecutor::end_run() {
  runtime_->memory.active = nullptr;
  if (has_run_) return;
  forget_failure();
  if (heap_ != nullptr) return_heap_values();
}

// Asked before every step of a run with limits.
int32_t DvtExecutor::may_go_on(void* self) {
  auto& executor = *static_cast<DvtExecutor*>(self);
  const davit::mt_topo::RunControl& control = executor.request_->control;
  int32_t code = DVT_OK;
  if (control.cancel != nullptr && control.cancel->load(std::memory_order_relaxed) != 0) {
    code = DVT_CANCELLED;
  } else if (control.deadline_ns != INT64_MAX &&
             davit::mt_topo::RealThreads::now_ns() >= control.deadline_ns) {
    code = DVT_TIMEOUT;
  }
  // Of several workers in bodies, each looks.
  if (code != DVT_OK) executor.limit_reached_.store(true, std::memory_order_relaxed);
  return code;
}

Status DvtExecutor::limit_error(DvtCode code) const {
  return {code, DVT_STAGE_RUN,
          code == DVT_CANCELLED ? "the run was cancelled" : "the time of the run is up"};
}

Status DvtExecutor::run_steps(const StepList& list, DvtStage stage, const RunRequest& request,
                              uint32_t first) {
  runtime_->names = list.names;
  runtime_->costs = list.costs;
  runtime_->node_count = list.count;
  request_ = &request;
  limit_reached_.store(false, std::memory_order_relaxed);
  const DvtStepCheck asked = {may_go_on, this};
  const DvtStepCheck* const check = request.control.limited() ? &asked : nullptr;
  int32_t code = DVT_OK;
  size_t done = first;
  if (request.observer != nullptr) {
    done += davit::exec::run_observed(view_, list, *request.observer, first, check, &code);
  } else if (check != nullptr) {
    done += dvt_sequential_run_checked(list.steps + first, list.count - first, check, &code);
  } else {
    done += dvt_sequential_run(list.steps + first, list.count - first, &code);
  }
  return code == DVT_OK ? Status() : node_error(list, done, code, stage);
}

void DvtExecutor::find_failed_node(const StepList*& list, uint32_t& node) const {
  for (;;) {
    const auto bodies = list->graph->bodies_of(node);
    const auto failed = std::find_if(bodies.begin(), bodies.end(),
                                     [&](uint32_t body) { return failed_at_[body] != kNone; });
    if (failed == bodies.end()) return;
    list = &bodies_[*failed];
    node = failed_at_[*failed];
  }
}

// What nodes and bodies that failed have left; also those that were not the first to.
void DvtExecutor::forget_failure() {
  std::ranges::fill(failed_at_, kNone);
  limit_reached_.store(false, std::memory_order_relaxed);
  auto* const runtimes = block_.at<DvtRuntime>(layout_.flow_runtimes);
  runtime_->memory.failed = nullptr;
  for (size_t i = 0; i < flow_node_count_; ++i) runtimes[i].memory.failed = nullptr;
  std::memset(runtime_->reason, 0,
              (flow_node_count_ + 1) * davit::exec::kReasons * davit::exec::kReasonBytes);
}

Status DvtExecutor::node_error(const StepList& list, size_t node, DvtCode code, DvtStage stage) {
  const StepList* inner = &list;
  auto id = static_cast<uint32_t>(node);
  find_failed_node(inner, id);
  const davit::exec::GraphView& graph = *inner->graph;
  std::string kernel = view_.kernel_refs[graph.kernel[id]].name;
  if (const uint32_t device_kernel = graph.device_kernel_of(id); device_kernel != kNone) {
    kernel.append("(").append(view_.kernel_refs[device_kernel].name).append(")");
  }
  ErrorDetail detail{.code = code,
                     .stage = stage,
                     .message = "kernel " + kernel + " failed",
                     .node = view_.strings[graph.origin_of(id)],
                     .op = view_.strings[graph.op_of(id)]};
  if (detail.op.empty()) detail.op = kernel;
  DvtRuntime& runtime = *static_cast<const DvtContext*>(inner->steps[id].ctx)->runtime;
  if (limit_reached_.load(std::memory_order_relaxed)) {
    detail.message = limit_error(code).detail().message + "; this node would have been next";
    forget_failure();
    return Status(std::move(detail));
  }
  if (code < DVT_OK || code > DVT_INTERNAL) {
    // Codes cross the API; one that is not a DvtCode stays readable in the text only.
    detail.code = DVT_KERNEL_FAILED;
    detail.got = "code " + std::to_string(code);
  }
  if (code == DVT_OUT_OF_MEMORY && runtime.memory.failed != nullptr) {
    explain_shortage(runtime.memory, detail);
  } else {
    const char* reason = runtime.reason + graph.lane[id] * runtime.reason_bytes;
    if (*reason == '\0') reason = runtime.reason;
    detail.message.append(": ").append(*reason != '\0' ? reason : davit::code_name(detail.code));
  }
  forget_failure();  // Said once; the next failure has its own.
  return Status(std::move(detail));
}
