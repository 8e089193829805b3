#include "exec/execution_trace.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>

#include "base/dtype.hpp"
#include "exec/mt_topo/pool.hpp"
#include "exec/tensor_text.hpp"

namespace davit::exec {
namespace {

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

const char* lane_name(uint8_t lane) {
  switch (lane) {
    case DVT_KERNEL_LANE_MEMORY:
      return "memory";
    case DVT_KERNEL_LANE_LAUNCH:
      return "launch";
    default:
      return "normal";
  }
}

std::string shapes_text(const ImageView& image, std::span<const uint32_t> values) {
  std::string text;
  for (const uint32_t value : values) {
    const DvtTensor* tensor = value == kNone ? nullptr : image.tensor_of(value);
    if (!text.empty()) text += ' ';
    text += tensor == nullptr ? "-" : tensor_text(*tensor);
  }
  return text;
}

// f.json to f.2.json, f.77.json: before the extension of the file name, if it has one.
std::string with_suffix(const std::string& path, const std::string& suffix) {
  const size_t dot = path.find_last_of('.');
  const size_t slash = path.find_last_of('/');
  const bool has_extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash);
  const size_t at = has_extension ? dot : path.size();
  return path.substr(0, at) + suffix + path.substr(at);
}

const char* schedule_name(uint32_t schedule) {
  switch (schedule) {
    case DVT_SCHEDULE_PLANNED:
      return "planned";
    case DVT_SCHEDULE_DYNAMIC:
      return "dynamic";
    default:
      return "sequential";
  }
}

}  // namespace

ExecutionTrace::ExecutionTrace(const DvtImage& image, uint32_t executor_id, Limits limits,
                               uint32_t workers, std::pmr::memory_resource& memory)
    : image_(share_image(image)),
      executor_id_(executor_id),
      limits_(limits),
      workers_(&memory),
      runs_(&memory),
      schedule_reason_(&memory) {
  workers_.reserve(std::max(workers, 1U));
  while (workers_.size() < std::max(workers, 1U)) {
    workers_.emplace_back(memory).events.reserve(limits.events);
  }
  runs_.reserve(limits.runs);
}

uint64_t ExecutionTrace::dropped_events() const {
  uint64_t dropped = 0;
  for (const Worker& worker : workers_) dropped += worker.dropped;
  return dropped;
}

void ExecutionTrace::begin_run() {
  const uint64_t id = next_run_++;
  recording_ = runs_.size() < limits_.runs;
  if (recording_) runs_.push_back({now_ns(), 0, id, DVT_OK, DVT_SCHEDULE_SEQUENTIAL});
}

void ExecutionTrace::end_run(DvtCode code, const DvtScheduleInfo& ran) {
  schedule_reason_ = ran.reason;
  if (!recording_) return;
  recording_ = false;
  runs_.back().end_ns = now_ns();
  runs_.back().code = code;
  runs_.back().schedule = ran.schedule;
}

void ExecutionTrace::observe(void* self, const DvtNodeEvent* event) {
  auto& trace = *static_cast<ExecutionTrace*>(self);
  Worker& worker = trace.workers_[std::min<size_t>(event->worker, trace.workers_.size() - 1)];
  if (!trace.recording_ || worker.events.size() >= trace.limits_.events) {
    ++worker.dropped;
    return;
  }
  const DvtValueMemory& memory = event->context->runtime->memory;
  worker.events.push_back({event->begin_ns, event->end_ns, event->body, event->node, event->code,
                           static_cast<uint32_t>(trace.runs_.size() - 1),
                           dvt_live_bytes(memory.heap), dvt_live_bytes(memory.device)});
}

const GraphView& ExecutionTrace::graph_of(const Event& event) const {
  const ImageView& image = image_->view;
  return image.graphs[event.body == kNone ? image.main : event.body];
}

void ExecutionTrace::append_node(trace::TraceWriter& writer, trace::Row row, const Run& run,
                                 const Event& event) const {
  const ImageView& image = image_->view;
  const GraphView& graph = graph_of(event);
  const char* origin = image.strings[graph.origin_of(event.node)];
  const char* kernel = image.kernel_refs[graph.kernel[event.node]].name;
  const auto outputs = graph.outputs_of(event.node);
  const DvtTensor* result =
      outputs.empty() || outputs[0] == kNone ? nullptr : image.tensor_of(outputs[0]);

  trace::Args args;
  args.text("node", origin)
      .text("op", image.strings[graph.op_of(event.node)])
      .text("kernel", kernel)
      .text("inputs", shapes_text(image, graph.inputs_of(event.node)))
      .text("shapes", shapes_text(image, outputs))
      .text("dtype", result == nullptr ? "" : dtype_name(result->dtype))
      .integer("bytes", result == nullptr ? 0 : static_cast<int64_t>(result->bytes))
      .text("lane", lane_name(graph.lane[event.node]))
      .integer("node_id", event.node)
      .integer("exec_id", executor_id_)
      .integer("run_id", static_cast<int64_t>(run.id));
  if (const uint32_t device_kernel = graph.device_kernel_of(event.node); device_kernel != kNone) {
    args.text("device_kernel", image.kernel_refs[device_kernel].name);
  }
  if (const uint32_t stream = graph.stream_of(event.node); stream != kNone) {
    args.integer("stream", stream);
  }
  if (event.body != kNone) args.integer("body", event.body);
  if (event.code != DVT_OK) args.text("error", code_name(event.code));
  writer.slice(row, *origin != '\0' ? origin : kernel, lane_name(graph.lane[event.node]),
               event.begin_ns, event.end_ns - event.begin_ns, args);
}

// One arrow for each operand that another node of this run produced.
void ExecutionTrace::append_flows(trace::TraceWriter& writer, uint32_t pid,
                                  const std::vector<Seen>& seen) const {
  const ImageView& image = image_->view;
  // In the order in which nodes end, so the last writer seen is the producer.
  std::vector<const Seen*> producer(image.values.count, nullptr);
  for (const Seen& to : seen) {
    const Event& event = *to.event;
    const GraphView& graph = graph_of(event);
    for (const uint32_t value : graph.inputs_of(event.node)) {
      if (value == kNone || producer[value] == nullptr) continue;
      const Event& from = *producer[value]->event;
      if (from.end_ns > event.begin_ns) continue;  // Of a body that the node itself ran.
      // An arrow starts at its slice's end; the end itself belongs to the next slice.
      const int64_t from_ns = from.end_ns > from.begin_ns ? from.end_ns - 1 : from.begin_ns;
      writer.flow(row_of(pid, producer[value]->worker), from_ns, row_of(pid, to.worker),
                  event.begin_ns);
    }
    for (const uint32_t value : graph.outputs_of(event.node)) {
      if (value != kNone) producer[value] = &to;
    }
  }
}

// A counter for each pool that holds anything, wherever it changes.
void ExecutionTrace::append_memory(trace::TraceWriter& writer, uint32_t pid,
                                   const std::vector<Seen>& seen) const {
  const auto append = [&](const char* pool, uint64_t Event::*bytes) {
    const std::string name = std::string(pool) + " memory " + std::to_string(executor_id_);
    uint64_t last = 0;
    for (const Seen& at : seen) {
      if (at.event->*bytes == last) continue;
      last = at.event->*bytes;
      writer.counter(pid, name, at.event->end_ns, "live bytes", static_cast<int64_t>(last));
    }
  };
  append("heap", &Event::heap_bytes);
  append("device", &Event::device_bytes);
}

// Worker 0 is the caller, whose row has the number of the executor.
trace::Row ExecutionTrace::row_of(uint32_t pid, uint32_t worker) const {
  return {pid, worker << 16 | executor_id_};
}

void ExecutionTrace::append_rows(trace::TraceWriter& writer, uint32_t pid) const {
  const std::string id = std::to_string(executor_id_);
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    std::string name = "sequential-" + id + " (all lanes)";
    if (workers_.size() > 1) {
      name = "executor-" + id + " worker-" + std::to_string(worker) +
             (worker == 0 ? " (caller, all lanes)" : " (helper, all lanes)");
    }
    writer.row(row_of(pid, worker), name,
               static_cast<int32_t>(executor_id_ * mt_topo::kWorkersMax + worker));
  }
}

// Events of each run, by the time they end.
std::vector<std::vector<ExecutionTrace::Seen>> ExecutionTrace::events_by_run() const {
  std::vector<std::vector<Seen>> by_run(runs_.size());
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    for (const Event& event : workers_[worker].events) {
      by_run[event.run].push_back({&event, worker});
    }
  }
  if (workers_.size() == 1) return by_run;
  for (std::vector<Seen>& seen : by_run) {
    std::stable_sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
      return a.event->end_ns < b.event->end_ns;
    });
  }
  return by_run;
}

void ExecutionTrace::describe(trace::TraceWriter& writer) const {
  writer.metadata("davit", dvt_version());
  writer.metadata("clock", "CLOCK_MONOTONIC of the host");
  writer.metadata("image", image_->view.provenance.source_name);
  writer.metadata("target", image_->view.target_name);
}

void ExecutionTrace::append_to(trace::TraceWriter& writer, uint32_t pid) const {
  append_rows(writer, pid);
  const std::vector<std::vector<Seen>> events = events_by_run();
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const uint64_t async_id = (uint64_t{executor_id_} << 32) | (run.id & UINT32_MAX);
    trace::Args args;
    args.integer("exec_id", executor_id_)
        .integer("run_id", static_cast<int64_t>(run.id))
        .text("result", code_name(run.code))
        .text("schedule", schedule_name(run.schedule));
    writer.async_begin(pid, async_id, "run", "run", run.begin_ns, args);
    for (const Seen& seen : events[i]) {
      append_node(writer, row_of(pid, seen.worker), run, *seen.event);
    }
    append_flows(writer, pid, events[i]);
    append_memory(writer, pid, events[i]);
    writer.async_end(pid, async_id, "run", "run", run.end_ns);
  }
  const std::string id = std::to_string(executor_id_);
  if (workers_.size() > 1) writer.metadata("schedule_exec_" + id, std::string(schedule_reason_));
  if (const uint64_t dropped = dropped_events(); dropped > 0) {
    writer.metadata("dropped_events_exec_" + id, std::to_string(dropped));
  }
}

ResourcePtr<EnvironmentTrace> EnvironmentTrace::from_environment(
    const DvtImage& image, uint32_t workers, std::pmr::memory_resource& memory) {
  const char* path = std::getenv("DAVIT_TRACE");  // NOLINT(concurrency-mt-unsafe)
  if (path == nullptr || *path == '\0') return nullptr;
  static std::atomic<uint32_t> traced_executors{0};
  const uint32_t id = traced_executors.fetch_add(1, std::memory_order_relaxed) + 1;
  return make_at_in<EnvironmentTrace>(memory, [&](void* place) {
    return new (place) EnvironmentTrace(image, id, workers, path, memory);
  });
}

EnvironmentTrace::EnvironmentTrace(const DvtImage& image, uint32_t executor_id, uint32_t workers,
                                   const char* path, std::pmr::memory_resource& memory)
    : trace_(image, executor_id, ExecutionTrace::Limits(), workers, memory),
      executor_id_(executor_id),
      path_(path, &memory),
      owner_pid_(::getpid()) {}

Status EnvironmentTrace::write() const {
  const pid_t pid = ::getpid();
  std::string path(path_);
  if (pid != owner_pid_) path = with_suffix(path, "." + std::to_string(pid));
  if (executor_id_ > 1) path = with_suffix(path, "." + std::to_string(executor_id_));
  trace::TraceWriter writer;
  trace_.describe(writer);
  const std::string name = std::string("davit ") + trace_.image().target_name;
  writer.process(static_cast<uint32_t>(pid), name, 0);
  trace_.append_to(writer, static_cast<uint32_t>(pid));
  return writer.write_file(path);
}

}  // namespace davit::exec
