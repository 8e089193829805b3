// Gears whose bodies drive a device. A body runs as Main does: by tables of its own, in order or
// with its lanes apart. Gears on the host are bodies like others (exec/executor_dynamic.cpp).
#include <algorithm>
#include <cstdio>
#include <utility>

#include "exec/dependencies.hpp"
#include "exec/executor.hpp"
#include "exec/gears.hpp"

using davit::Status;
using davit::exec::Parallel;
using davit::exec::StepList;

// Also where a gear runs in order: each says why. What drives no device does.
Status DvtExecutor::create_gear_schedules(std::span<const DvtStep* const> steps,
                                          const DvtExecutorOptions& options) {
  if (!layout_.uses_device) return {};
  for (const uint32_t body : davit::exec::gears_of(view_).bodies()) {
    DvtExecutorOptions of_gear = options;
    if (!davit::exec::drives_device(view_, view_.graphs[body])) of_gear.pool = nullptr;
    auto made = Parallel::create(view_, body, steps, of_gear, host_memory_);
    if (!made.ok()) return std::move(made.status());
    gear_parallels_.push_back(std::move(*made));
  }
  return {};
}

bool DvtExecutor::is_in_place_of_main(uint32_t graph) const {
  const auto gears = davit::exec::gears_of(view_).bodies();
  return layout_.uses_device && std::ranges::find(gears, graph) != gears.end();
}

void DvtExecutor::schedule(DvtScheduleInfo& out) const {
  (gear_parallels_.empty() ? parallel_ : gear_parallels_[gears_->gear]).describe(out);
}

bool DvtExecutor::is_device_gear(const DvtBody* body) const {
  return !gear_parallels_.empty() && body >= gears_->bodies &&
         body < gears_->bodies + gears_->body_count;
}

// `runtime`: of the node that runs the gear.
DvtCode DvtExecutor::run_device_gear(DvtRuntime& runtime, const DvtBody& body, uint32_t& failed) {
  const StepList& list = bodies_[body.graph];
  runtime_->names = list.names;
  runtime_->costs = list.costs;
  runtime_->node_count = list.count;
  Parallel& parallel = gear_parallels_[gears_->gear];
  if (!parallel.active() || request_->in_order) return run_body_in_order(list, failed);
  return run_gear_apart(runtime, list, parallel, failed);
}

// The memory lane may be ahead of the launch lane.
DvtCode DvtExecutor::run_gear_apart(DvtRuntime& runtime, const StepList& list, Parallel& parallel,
                                    uint32_t& failed) {
  davit::exec::DeferredFrees& deferred = *parallel.deferred();
  deferred.begin_run();
  DvtDeferredFrees handle{deferred};
  runtime_->deferred = &handle;
  const davit::mt_topo::Outcome outcome = run_scheduled(list, parallel, *request_);
  runtime_->deferred = nullptr;
  if (outcome.code != DVT_OK) {
    if (outcome.node == davit::mt_topo::kNoNode) {
      limit_reached_.store(true, std::memory_order_relaxed);
    } else {
      failed = outcome.node + parallel.first();
    }
    return outcome.code;
  }
  const DvtCode code = deferred.finish(*runtime_);
  if (code != DVT_OK) {
    const char* words = runtime_->device->vtable->last_error(runtime_->device);
    std::snprintf(runtime.reason, runtime.reason_bytes, "returning device memory: %s",
                  words != nullptr ? words : "");
  }
  return code;
}
