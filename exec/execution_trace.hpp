// execution_trace.hpp: remembers the nodes that an executor ran, for a trace.
//
// Threads  One thread at a time, the executor's.
// Trust    Node ids come from the executor.
// Memory   Storage is reserved at construction; what does not fit is counted and dropped. Holds a
//          reference to the image, so that a trace may be written after the executor is gone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "davit/davit.h"
#include "exec/executor.hpp"
#include "exec/image.hpp"
#include "exec/trace.hpp"

namespace davit::exec {

// Usage: begin_run(); dvt_executor_run_observed(executor, &ExecutionTrace::observe, &trace, ...);
// end_run(code); then append_to() a writer.
class ExecutionTrace {
 public:
  struct Limits {
    size_t events = size_t{1} << 20;  // 40 bytes each, touched only when used.
    size_t runs = size_t{1} << 16;
  };

  // `executor_id` tells executors of one process apart: exec_id in the trace.
  ExecutionTrace(const DvtImage& image, uint32_t executor_id, Limits limits);
  ExecutionTrace(const DvtImage& image, uint32_t executor_id)
      : ExecutionTrace(image, executor_id, Limits()) {}

  void begin_run();
  void end_run(DvtCode code);

  // A DvtNodeObserver; `self` is an ExecutionTrace.
  static void observe(void* self, const DvtNodeEvent* event);

  // Adds a row for this executor to process `pid`, which the caller names.
  void append_to(trace::TraceWriter& writer, uint32_t pid) const;

  [[nodiscard]] uint64_t dropped_events() const { return dropped_; }
  [[nodiscard]] const ImageView& image() const { return image_->view; }

 private:
  struct Event {
    int64_t begin_ns;
    int64_t end_ns;
    uint32_t body;  // kNone: Main.
    uint32_t node;
    DvtCode code;
  };
  struct Run {
    int64_t begin_ns;
    int64_t end_ns;
    size_t first_event;
    uint64_t id;
    DvtCode code;
  };

  [[nodiscard]] const GraphView& graph_of(const Event& event) const;
  void append_node(trace::TraceWriter& writer, trace::Row row, const Run& run,
                   const Event& event) const;
  void append_flows(trace::TraceWriter& writer, trace::Row row, size_t first, size_t last) const;

  SharedImage image_;
  uint32_t executor_id_;
  Limits limits_;
  std::vector<Event> events_;
  std::vector<Run> runs_;
  uint64_t next_run_ = 0;
  uint64_t dropped_ = 0;
  bool recording_ = false;  // Between begin_run() and end_run() of a run that has a place in runs_.
};

// The trace that DAVIT_TRACE=f.json asks of every executor of an unmodified host. Each executor
// writes its file when it is unloaded: f.json, f.2.json, ...; children of a fork() f.PID.json.
class EnvironmentTrace {
 public:
  // Null when the variable is not set or empty.
  static std::unique_ptr<EnvironmentTrace> from_environment(const DvtImage& image);

  void begin_run() { trace_.begin_run(); }
  void end_run(DvtCode code) { trace_.end_run(code); }
  Observer observer() { return {&ExecutionTrace::observe, &trace_}; }

  [[nodiscard]] Status write() const;

 private:
  EnvironmentTrace(const DvtImage& image, uint32_t executor_id, std::string path);

  ExecutionTrace trace_;
  uint32_t executor_id_;
  std::string path_;
  pid_t owner_pid_;
};

}  // namespace davit::exec
