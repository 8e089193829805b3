#include "exec/executor.hpp"

#include <unistd.h>

#include <cstring>
#include <ctime>

#include "exec/execution_trace.hpp"

using davit::ErrorDetail;
using davit::Result;
using davit::Status;
using davit::exec::Block;
using davit::exec::kNone;
using davit::exec::Layout;
using davit::exec::Observer;
using davit::exec::StepList;

namespace davit::exec {

uint64_t executor_bytes(const ImageView& image) {
  const Result<Layout> layout = lay_out(image);
  return layout.ok() ? Block::rounded(layout->total) + sizeof(DvtExecutor) : UINT64_MAX;
}

namespace {

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// What dvt_sequential_run_traced() calls around each step.
struct StepObservation {
  const ImageView& view;
  const StepList& list;
  const Observer& observer;
  int64_t begin_ns = 0;

  static void begin(void* self, size_t /*step*/) {
    static_cast<StepObservation*>(self)->begin_ns = now_ns();
  }

  static void end(void* self, size_t step, int32_t code) {
    const int64_t end_ns = now_ns();
    const auto& seen = *static_cast<StepObservation*>(self);
    const auto node = static_cast<uint32_t>(step);
    const GraphView& graph = *seen.list.graph;
    const DvtNodeEvent event = {
        .node = node,
        .lane = graph.lane[node],
        .code = code,
        .reserved = 0,
        .origin = seen.view.strings[graph.origin_of(node)],
        .op = seen.view.strings[graph.op_of(node)],
        .kernel = seen.view.kernel_refs[graph.kernel[node]].name,
        .begin_ns = seen.begin_ns,
        .end_ns = end_ns,
        .context = static_cast<const DvtContext*>(seen.list.steps[step].ctx),
    };
    seen.observer.call(seen.observer.user, &event);
  }
};

}  // namespace
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
}

Result<std::unique_ptr<DvtExecutor>> DvtExecutor::create(const DvtImage& image,
                                                         const DvtExecutorOptions& options) {
  if (image.view.kernels.size() != image.view.kernel_refs.size()) {
    return Status(DVT_FAILED_STATE, DVT_STAGE_LOAD,
                  "the image was opened without kernels, for reading only");
  }
  Result<Layout> layout = davit::exec::lay_out(image.view);
  if (!layout.ok()) return std::move(layout.status());
  Result<Block> block = Block::map(layout->total, "an executor");
  if (!block.ok()) return std::move(block.status());

  std::unique_ptr<DvtExecutor> executor(new DvtExecutor(image, *layout, std::move(block).value()));
  executor->build_cells();
  executor->build_ports();
  executor->build_steps();
  executor->build_device_tables();
  if (Status status = executor->choose_device(options); !status.ok()) return status;
  if (Status status = executor->load(); !status.ok()) return status;
  executor->trace_ = davit::exec::EnvironmentTrace::from_environment(image);
  return executor;
}

Status DvtExecutor::load() {
  for (const StepList& list : {main_, init_, deinit_}) {
    for (uint32_t node = 0; node < list.count && list.graph->branch_off != nullptr; ++node) {
      if (list.graph->bodies_of(node).empty()) continue;
      return Status(ErrorDetail{.code = DVT_UNSUPPORTED,
                                .stage = DVT_STAGE_LOAD,
                                .message = "this runtime does not run branches and loops",
                                .node = view_.strings[list.graph->origin_of(node)],
                                .op = view_.strings[list.graph->op_of(node)]});
    }
  }
  Status status = run_steps(init_, DVT_STAGE_LOAD, nullptr);
  loaded_ = status.ok();
  if (!loaded_ && runtime_->device != nullptr) {
    // The failure of Init is the one to report.
    const Status dropped = reclaim_all();
    (void)dropped;
  }
  return status;
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
  keep_first(run_steps(deinit_, DVT_STAGE_UNLOAD, nullptr));
  if (runtime_->device != nullptr) keep_first(reclaim_all());
  return status;
}

Status DvtExecutor::run() {
  if (!ready_) {
    if (Status status = check_bindings(); !status.ok()) return status;
  }
  if (trace_ != nullptr) {
    trace_->begin_run();
    const Observer observer = trace_->observer();
    Status status = run_main(&observer);
    trace_->end_run(status.code());
    return status;
  }
  return run_main(nullptr);
}

Status DvtExecutor::run_observed(Observer observer) {
  if (!ready_) {
    if (Status status = check_bindings(); !status.ok()) return status;
  }
  return run_main(&observer);
}

Status DvtExecutor::run_main(const Observer* observer) {
  if (runtime_->device != nullptr) return run_main_on_device(observer);
  return run_steps(main_, DVT_STAGE_RUN, observer);
}

Status DvtExecutor::run_steps(const StepList& list, DvtStage stage, const Observer* observer) {
  runtime_->names = list.names;
  runtime_->costs = list.costs;
  runtime_->node_count = list.count;
  int32_t code = DVT_OK;
  size_t done = 0;
  if (observer == nullptr) {
    done = dvt_sequential_run(list.steps, list.count, &code);
  } else {
    davit::exec::StepObservation seen{view_, list, *observer};
    const DvtStepTrace trace = {davit::exec::StepObservation::begin,
                                davit::exec::StepObservation::end, &seen};
    done = dvt_sequential_run_traced(list.steps, list.count, &trace, &code);
  }
  return code == DVT_OK ? Status() : node_error(list, done, code, stage);
}

Status DvtExecutor::node_error(const StepList& list, size_t node, DvtCode code, DvtStage stage) {
  const davit::exec::GraphView& graph = *list.graph;
  const auto id = static_cast<uint32_t>(node);
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
  if (code < DVT_OK || code > DVT_INTERNAL) {
    // Codes cross the API; one that is not a DvtCode stays readable in the text only.
    detail.code = DVT_KERNEL_FAILED;
    detail.got = "code " + std::to_string(code);
  }
  if (runtime_->reason[0] != '\0') {
    detail.message.append(": ").append(runtime_->reason);
    runtime_->reason[0] = '\0';  // Said once; the next failure has its own.
  } else {
    detail.message.append(": ").append(davit::code_name(detail.code));
  }
  return Status(std::move(detail));
}
