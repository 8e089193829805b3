// stream_plan.hpp: which stream each task of a device graph goes to, and which tasks of other
// streams it waits for.
//
//   stream 0   copy x ──► conv a ──► conv b ───────► add ──► copy y
//                            │ event 0                ▲
//   stream 1                 └────────► pool c ───────┘ event 1
//
// Tasks are submitted in their order, whatever their streams (strict launch order). A task goes to
// the stream where it can start first, by modelled times: after the host has submitted it, after
// what it needs, after the stream's last task, and when its engine is free; of several, to the one
// whose last task it needs. Streams are numbered in the order of their first tasks.
//
// A task waits for an event of each other stream that it needs, but for what its stream already
// knows: from its own waits, from those of the tasks that it waits for, and so on (vector clocks).
// A task records at most one event, whoever waits for it.
//
// Threads  Pure functions.
// Trust    Tasks only need earlier ones.
// Memory   A plan has a word per task and stream.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace davit::lowering {

enum class Engine : uint8_t { kCube, kVector, kCpu, kCopyIn, kCopyOut };
inline constexpr size_t kEngines = 5;
inline constexpr uint32_t kStreamsMax = 16;

struct StreamTask {
  Engine engine = Engine::kVector;
  double cost_ns = 0;
  std::vector<uint32_t> after;  // Tasks that it needs; in any order, more than once if need be.
};

struct StreamPlan {
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t streams = 0;
  uint32_t events = 0;
  std::vector<uint32_t> stream;              // By task.
  std::vector<uint32_t> event;               // By task: the event it records; kNone: none.
  std::vector<std::vector<uint32_t>> waits;  // By task: the tasks whose events it waits for.
  // Edges between streams, and those of them that other waits imply.
  uint32_t crossing_edges = 0, implied_edges = 0;
  // Modelled, with what the host takes to submit tasks and events; and without other streams.
  double makespan_ns = 0, one_stream_ns = 0;

  // Whether `task` has certainly ended when `then` starts. Precondition: task < then.
  [[nodiscard]] bool before(uint32_t task, uint32_t then) const {
    return stream[task] == stream[then] ||
           clocks_[size_t{then} * streams + stream[task]] > position_[task];
  }

  std::vector<uint32_t> position_;  // By task: its place in its stream.
  std::vector<uint32_t> clocks_;  // By task and stream: how many of the stream's tasks have ended.
};

// `streams_max` from 1 to kStreamsMax. `submit_ns`: what the host takes for each task, and for each
// event that is recorded or waited for.
StreamPlan plan_streams(std::span<const StreamTask> tasks, uint32_t streams_max,
                        double submit_ns = 0);

// An order of the tasks [first, last) among themselves, the others staying where they are: of those
// that nothing holds up any more, the one comes next from which it is furthest to the end.
std::vector<uint32_t> order_by_distance(std::span<const StreamTask> tasks, uint32_t first,
                                        uint32_t last);

}  // namespace davit::lowering
