#include "exec/parallel.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "exec/dependencies.hpp"
#include "exec/mt_topo/pool.hpp"

namespace davit::exec {
namespace {

mt_topo::Mode mode_of(uint32_t schedule) {
  switch (schedule) {
    case DVT_SCHEDULE_DYNAMIC:
      return mt_topo::Mode::kDynamic;
    case DVT_SCHEDULE_PLANNED:
      return mt_topo::Mode::kPlanned;
    default:
      return mt_topo::Mode::kAutomatic;
  }
}

Status check_options(const DvtExecutorOptions& options, const GraphView& graph) {
  if (options.schedule > DVT_SCHEDULE_PLANNED) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "DvtExecutorOptions.schedule is unknown",
                              .expected = "one of DVT_SCHEDULE_*",
                              .got = std::to_string(options.schedule)});
  }
  if (options.schedule == DVT_SCHEDULE_PLANNED && graph.part_count == 0) {
    return Status(
        ErrorDetail{.code = DVT_FAILED_STATE,
                    .stage = DVT_STAGE_LOAD,
                    .message = "planned scheduling was asked for, but the image has no schedule",
                    .hint = "compile with --workers N, or let it choose: DVT_SCHEDULE_AUTO"});
  }
  return {};
}

// Why the image's schedule is not among what is tried; empty when it is.
std::string schedule_remark(const GraphView& graph, uint32_t workers) {
  if (graph.part_count == 0) return "; the image has no schedule";
  if (graph.part_count <= workers) return "";
  return "; the image's schedule is for " + std::to_string(graph.part_count) + " workers";
}

// Why a graph that drives a device runs in order. Which of several workers submits what, and when,
// shows in the times of a device; so it has to be asked for.
std::string reason_to_keep_device(const ImageView& image, const GraphView& graph,
                                  uint32_t schedule) {
  if (schedule != DVT_SCHEDULE_DYNAMIC) {
    return "the image drives a device; DVT_SCHEDULE_DYNAMIC lets its lanes run apart";
  }
  return reason_to_keep_device_in_order(image, graph);
}

}  // namespace

Result<Parallel> Parallel::create(const ImageView& image, uint32_t id,
                                  std::span<const DvtStep* const> steps,
                                  const DvtExecutorOptions& options,
                                  std::pmr::memory_resource& memory) {
  const GraphView& graph = image.graphs[id];
  Parallel made(memory);
  if (Status status = check_options(options, graph); !status.ok()) return status;
  if (options.schedule == DVT_SCHEDULE_SEQUENTIAL) made.reason_ = "asked for";
  if (options.pool == nullptr || options.schedule == DVT_SCHEDULE_SEQUENTIAL) return made;
  const bool device = drives_device(image, graph);
  made.reason_ = device ? reason_to_keep_device(image, graph, options.schedule)
                        : reason_to_keep_in_order(image, graph);
  if (!made.reason_.empty()) return made;
  if (device) {
    auto deferred = DeferredFrees::create(image, graph, memory);
    if (!deferred.ok()) return std::move(deferred.status());
    made.deferred_ = std::move(*deferred);
  }
  // The run side of a limit: as little memory as in order.
  const bool heap_in_order = options.heap_bytes_max != 0;
  const Dependencies all = device ? device_dependencies_of(image, graph)
                                  : host_dependencies_of(image, graph, heap_in_order);
  made.first_ = graph.shape_nodes;
  const Dependencies dependencies = dependencies_behind(all, made.first_);
  const mt_topo::Tables tables = {
      .steps = {steps[id] + made.first_, graph.node_count - made.first_},
      .successor_offsets = dependencies.successor_offsets,
      .successors = dependencies.successors,
      .indegree = dependencies.indegree,
      .lane = {graph.lane + made.first_, graph.node_count - made.first_},
      .priority = {},
      .may_suspend = device,
  };
  uint32_t workers = options.pool->pool->workers();
  if (options.workers_max != 0) workers = std::min(workers, options.workers_max);
  // A schedule for more workers than there are would run, and mostly wait for itself.
  const bool planned = graph.part_count != 0 &&
                       (graph.part_count <= workers || options.schedule == DVT_SCHEDULE_PLANNED);
  const mt_topo::PlanTables plan = planned ? plan_tables(graph) : mt_topo::PlanTables{};
  auto scheduler = mt_topo::Scheduler::create(
      tables, planned ? &plan : nullptr, options.pool->pool,
      {.mode = mode_of(options.schedule), .workers = options.workers_max, .memory = &memory});
  if (!scheduler.ok()) return std::move(scheduler.status());
  made.scheduler_ = std::move(*scheduler);
  made.bodies_.resize(image.graphs.size());
  made.around_.assign(image.graphs.size(), kNone);
  if (Status status = made.create_bodies(image, id, steps, options); !status.ok()) {
    return status;
  }
  if (options.schedule == DVT_SCHEDULE_AUTO) made.remark_ = schedule_remark(graph, workers);
  return made;
}

// A body whose dependencies would cost too much to find stays in order.
Status Parallel::create_body(const ImageView& image, uint32_t id, const DvtStep* steps,
                             const DvtExecutorOptions& options) {
  const GraphView& body = image.graphs[id];
  // As for Main.
  const bool heap_in_order = options.heap_bytes_max != 0 || deferred_ != nullptr;
  const bool shared = reason_to_keep_in_order(image, body).empty();
  const Dependencies dependencies =
      shared ? host_dependencies_of(image, body, heap_in_order) : successors_of(body);
  const mt_topo::Tables tables = {.steps = {steps, body.node_count},
                                  .successor_offsets = dependencies.successor_offsets,
                                  .successors = dependencies.successors,
                                  .indegree = dependencies.indegree,
                                  .lane = {body.lane, body.node_count},
                                  .priority = {},
                                  .may_suspend = false};
  mt_topo::Mode mode = options.schedule == DVT_SCHEDULE_DYNAMIC ? mt_topo::Mode::kDynamic
                                                                : mt_topo::Mode::kAutomatic;
  if (!shared) mode = mt_topo::Mode::kSequential;
  auto scheduler = mt_topo::Scheduler::create(
      tables, nullptr, options.pool->pool,
      {.mode = mode, .workers = options.workers_max, .memory = bodies_.get_allocator().resource()});
  if (!scheduler.ok()) return std::move(scheduler.status());
  bodies_[id] = std::move(*scheduler);
  return {};
}

// Of a graph, and of those inside.
Status Parallel::create_bodies(const ImageView& image, uint32_t graph,
                               std::span<const DvtStep* const> steps,
                               const DvtExecutorOptions& options) {
  const GraphView& around = image.graphs[graph];
  for (uint32_t node = 0; node < around.node_count; ++node) {
    for (const uint32_t body : around.bodies_of(node)) {
      around_[body] = graph;
      if (Status status = create_body(image, body, steps[body], options); !status.ok()) {
        return status;
      }
      if (Status status = create_bodies(image, body, steps, options); !status.ok()) return status;
    }
  }
  return {};
}

bool Parallel::has_failed_around(uint32_t graph) const noexcept {
  for (uint32_t around = around_[graph]; around_[around] != kNone; around = around_[around]) {
    if (bodies_[around]->has_failed()) return true;
  }
  return scheduler_->has_failed();
}

void Parallel::shapes_changed() noexcept {
  scheduler_->forget();
  for (const auto& body : bodies_) {
    if (body != nullptr) body->forget();
  }
}

void Parallel::describe(DvtScheduleInfo& out) const {
  out = {};
  out.schedule = DVT_SCHEDULE_SEQUENTIAL;
  out.workers = 1;
  const char* reason = reason_.c_str();
  if (active()) {
    const mt_topo::Choice choice = scheduler_->choice();
    if (choice.mode == mt_topo::Mode::kDynamic) out.schedule = DVT_SCHEDULE_DYNAMIC;
    if (choice.mode == mt_topo::Mode::kPlanned) out.schedule = DVT_SCHEDULE_PLANNED;
    out.workers = scheduler_->workers();
    reason = choice.reason;
  }
  std::snprintf(out.reason, sizeof out.reason, "%s%s%s", reason, remark_.c_str(),
                describe_bodies().c_str());
}

// How bodies ran last, if they have run.
std::string Parallel::describe_bodies() const {
  std::map<std::string, uint32_t> modes;
  for (const auto& body : bodies_) {
    if (body != nullptr) ++modes[mt_topo::mode_name(body->choice().mode)];
  }
  std::string text;
  for (const auto& [mode, count] : modes) {
    text += (text.empty() ? "; bodies: " : ", ") + std::to_string(count) + " " + mode;
  }
  return text;
}

}  // namespace davit::exec
