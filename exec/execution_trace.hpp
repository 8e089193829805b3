// execution_trace.hpp: remembers the nodes that an executor ran, for a trace.
//
// Threads  One thread at a time, the executor's; observe() also by all workers of the run at once,
//          each of whom writes storage of its own.
// Trust    Node ids and workers come from the executor.
// Memory   Storage is reserved at construction, out of the resource that it is given; what does not
//          fit is counted and dropped. Holds a reference to the image, so that a trace may be
//          written after the executor is gone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/resource.hpp"
#include "base/status.hpp"
#include "davit/davit.h"
#include "exec/executor.hpp"
#include "exec/image.hpp"
#include "exec/trace.hpp"

namespace davit::exec {

// Usage: begin_run(); dvt_executor_run_with() the observer &ExecutionTrace::observe; end_run();
// then append_to() a writer.
class ExecutionTrace {
 public:
  struct Limits {
    size_t events = size_t{1} << 20;  // Of each worker; 48 bytes each, touched only when used.
    size_t runs = size_t{1} << 16;
  };

  // `executor_id` tells executors of one process apart: exec_id in the trace. `workers`: of
  // dvt_executor_schedule().
  ExecutionTrace(const DvtImage& image, uint32_t executor_id, Limits limits, uint32_t workers = 1,
                 std::pmr::memory_resource& memory = *std::pmr::get_default_resource());
  ExecutionTrace(const DvtImage& image, uint32_t executor_id, uint32_t workers = 1)
      : ExecutionTrace(image, executor_id, Limits(), workers) {}

  void begin_run();
  void end_run(DvtCode code, const DvtScheduleInfo& ran = {DVT_SCHEDULE_SEQUENTIAL, 1, ""});

  // A DvtNodeObserver; `self` is an ExecutionTrace.
  static void observe(void* self, const DvtNodeEvent* event);

  // What docs/trace.md lists of every trace: runtime, clock, image, target.
  void describe(trace::TraceWriter& writer) const;
  // Adds a row for each worker of this executor to process `pid`, which the caller names.
  void append_to(trace::TraceWriter& writer, uint32_t pid) const;

  [[nodiscard]] uint64_t dropped_events() const;
  [[nodiscard]] const ImageView& image() const { return image_->view; }

 private:
  struct Event {
    int64_t begin_ns;
    int64_t end_ns;
    uint32_t body;  // kNone: Main.
    uint32_t node;
    DvtCode code;
    uint32_t run;  // In runs_.
    // When the node had ended.
    uint64_t heap_bytes;
    uint64_t device_bytes;
  };
  struct alignas(64) Worker {
    explicit Worker(std::pmr::memory_resource& memory) : events(&memory) {}
    std::pmr::vector<Event> events;
    uint64_t dropped = 0;
  };
  // An event and who ran it.
  struct Seen {
    const Event* event;
    uint32_t worker;
  };
  struct Run {
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t id;
    DvtCode code;
    uint32_t schedule;
  };

  [[nodiscard]] const GraphView& graph_of(const Event& event) const;
  [[nodiscard]] trace::Row row_of(uint32_t pid, uint32_t worker) const;
  [[nodiscard]] std::vector<std::vector<Seen>> events_by_run() const;
  void append_rows(trace::TraceWriter& writer, uint32_t pid) const;
  void append_node(trace::TraceWriter& writer, trace::Row row, const Run& run,
                   const Event& event) const;
  void append_memory(trace::TraceWriter& writer, uint32_t pid, const std::vector<Seen>& seen) const;
  void append_flows(trace::TraceWriter& writer, uint32_t pid, const std::vector<Seen>& seen) const;

  SharedImage image_;
  uint32_t executor_id_;
  Limits limits_;
  std::pmr::vector<Worker> workers_;
  std::pmr::vector<Run> runs_;
  std::pmr::string schedule_reason_;  // Of the last run.
  uint64_t next_run_ = 0;
  bool recording_ = false;  // Between begin_run() and end_run() of a run that has a place in runs_.
};

// The trace that DAVIT_TRACE=f.json asks of every executor of an unmodified host. Each executor
// writes its file when it is unloaded: f.json, f.2.json, ...; children of a fork() f.PID.json.
class EnvironmentTrace {
 public:
  // Null when the variable is not set or empty.
  static ResourcePtr<EnvironmentTrace> from_environment(const DvtImage& image, uint32_t workers,
                                                        std::pmr::memory_resource& memory);

  void begin_run() { trace_.begin_run(); }
  void end_run(DvtCode code, const DvtScheduleInfo& ran) { trace_.end_run(code, ran); }
  Observer observer() { return {&ExecutionTrace::observe, &trace_}; }

  [[nodiscard]] Status write() const;

 private:
  EnvironmentTrace(const DvtImage& image, uint32_t executor_id, uint32_t workers, const char* path,
                   std::pmr::memory_resource& memory);

  ExecutionTrace trace_;
  uint32_t executor_id_;
  std::pmr::string path_;
  pid_t owner_pid_;
};

}  // namespace davit::exec
