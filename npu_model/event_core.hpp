// event_core.hpp: the device in virtual time. Streams feed tasks to cores and engines.
//
// State of a stream, by its head task (the oldest one that has not ended):
//
//   Idle --submit--> Pending --ready_ps--> Ready --dispatch--> Running --end--> Idle or Pending
//                                            |                   ^
//                                            +--> Waiting -------+   (event, notify: until it is
//                                            set)
//
// Invariants
//   I1  Tasks of a stream end in submission order, and one starts only after the one before ended.
//   I2  A started task keeps at least the cores it has: cores go to tasks in order of dispatch, and
//       a task starts only while a core is free, that is when all earlier ones have all they want.
//   I3  Ties in time break by task id (submission order); ready tasks by priority, then ready time,
//       then id. So the same submissions give the same times.
//   I4  Work is counted in Q16 fixed point of picoseconds: progress dt * speed is exact.
//
// Threads  None of its own; the NPU's lock covers it.
// Trust    Callers have checked stream indices and synchronisation objects.
// Memory   Ended tasks stay at the front of their stream until the listener's owner pops them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.hpp"
#include "npu_model/cost.hpp"
#include "npu_model/hazards.hpp"
#include "npu_model/parameters.hpp"

namespace davit::npu {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

struct Effect;  // functional.hpp: what a task does to memory.

struct TaskRef {
  uint32_t stream = kNone;
  uint64_t task = 0;
};

struct Task {
  Task();
  Task(Task&&) noexcept;
  Task& operator=(Task&&) noexcept;
  ~Task();

  uint64_t id = 0;
  DvtNpuTaskType type = DVT_NPU_AI_CORE;
  bool hangs = false;       // Never ends (fault injection).
  uint32_t object = kNone;  // Record or notify index of a synchronisation task.
  uint32_t delay_us = 0;    // Kept from being ready for that long.
  const TaskTiming* timing = nullptr;
  const char* name = "";
  const char* op = "";
  int64_t submit_ps = 0, ready_ps = 0, start_ps = 0, end_ps = 0;
  TaskRef released_by;  // Waits: the record that ended them.
  std::unique_ptr<Effect> effect;
};

enum class StreamState : uint8_t { kIdle, kPending, kReady, kWaiting, kRunning };

struct Stream {
  bool live = false;
  uint32_t priority = 0;
  StreamState state = StreamState::kIdle;
  std::deque<Task> tasks;  // The first `ended` have ended and only wait for their effect.
  size_t ended = 0;
  int64_t last_end_ps = std::numeric_limits<int64_t>::min() / 2;
  uint64_t last_ended_task = 0;
  std::optional<ErrorDetail> error;  // First failure since the last synchronisation.

  [[nodiscard]] size_t queued() const { return tasks.size() - ended; }
  [[nodiscard]] Task& head() { return tasks[ended]; }
  [[nodiscard]] const Task& head() const { return tasks[ended]; }
};

// What an event points at. Lives while an event or a queued task refers to it.
struct Record {
  bool reached = false;
  int64_t reached_ps = 0;
  uint32_t references = 0;
  TaskRef task;
  std::optional<ErrorDetail> error;    // Its stream had failed before it; set when it takes effect.
  std::shared_ptr<const Clock> clock;  // What its waits come after; set when it takes effect.
  std::vector<uint32_t> waiters;       // Streams.
};

struct Notify {
  bool live = false;
  bool set = false;
  TaskRef set_by;
  std::deque<uint32_t> waiters;
};

class EventCore {
 public:
  // Hears of every task that ends, in order of (end_ps, id), before the stream goes on.
  class Listener {
   public:
    virtual void ended(uint32_t stream, Task& task) = 0;

   protected:
    ~Listener() = default;
  };

  EventCore(const Parameters& parameters, Listener& listener);

  std::deque<Stream>& streams() { return streams_; }
  [[nodiscard]] const std::deque<Stream>& streams() const { return streams_; }
  std::vector<Record>& records() { return records_; }
  [[nodiscard]] const std::vector<Record>& records() const { return records_; }
  std::vector<Notify>& notifies() { return notifies_; }

  uint32_t new_record();
  void add_reference(uint32_t record) { ++records_[record].references; }
  void drop_reference(uint32_t record);

  // Appends a task; it arrives at task.submit_ps, which must not lie before anything processed.
  void submit(uint32_t stream, Task task);
  // Drops unfinished tasks of a stream. Records among them count as reached, with an error.
  void abandon(uint32_t stream, const ErrorDetail& reason);

  // Time of the next happening, or kNever.
  [[nodiscard]] int64_t next_ps() const;
  // Processes everything up to and including `limit_ps`.
  void run_until(int64_t limit_ps);

  [[nodiscard]] int64_t now_ps() const { return now_; }
  // Who waits for whom, when nothing can move: one sentence per stuck stream.
  [[nodiscard]] std::string explain_stuck(size_t sentences_max) const;
  // What the head of a stream with unfinished work is doing.
  [[nodiscard]] std::string explain_stream(uint32_t stream) const;

 private:
  // A stream timer: its head becomes ready, or its fixed-time head ends.
  struct Timer {
    int64_t at_ps;
    uint64_t task;
    uint32_t stream;
    bool operator>(const Timer& other) const {
      return std::tie(at_ps, task) > std::tie(other.at_ps, other.task);
    }
  };
  struct ReadyKey {
    uint32_t priority;
    int64_t ready_ps;
    uint64_t task;
    uint32_t stream;
    bool operator<(const ReadyKey& other) const {
      return std::tie(priority, ready_ps, task) <
             std::tie(other.priority, other.ready_ps, other.task);
    }
  };
  // A running kernel or copy: first its head at speed 1, then its body at a shared speed.
  struct Active {
    uint32_t stream;
    bool in_head;
    uint32_t aic, aiv;  // Granted now.
    uint32_t speed_q16;
    int64_t remaining_q16;  // Picoseconds of this phase alone on the device, in Q16.
    int64_t due_ps;         // When this phase ends at the present speed.
  };
  enum Engine : uint8_t { kPcieIn, kPcieOut, kSdma, kEngineCount };

  void arm_head(uint32_t stream);
  void fire_timer(const Timer& timer);
  void dispatch_ready();
  bool try_dispatch(uint32_t stream);
  bool try_start(uint32_t stream);
  void start_synchronisation(uint32_t stream);
  void release_waiter(uint32_t stream, TaskRef by);
  void reach_record(uint32_t record);
  void end_synchronisation(uint32_t stream);
  void end_head(uint32_t stream);
  void advance_to(int64_t at_ps);
  bool finish_due();
  void begin_body(Active& active);
  void release_resources(const Active& active);
  void share();
  void grant_cores();
  void share_bandwidth(uint32_t TaskTiming::*need, uint64_t capacity_mbps);
  [[nodiscard]] static std::optional<Engine> engine_of(DvtNpuTaskType type);
  [[nodiscard]] std::string describe(uint32_t stream, const Task& task) const;
  [[nodiscard]] std::vector<TaskRef> awaited(uint32_t stream) const;
  [[nodiscard]] std::vector<uint32_t> find_cycle() const;

  const Parameters& parameters_;
  Listener& listener_;
  int64_t gap_ps_, record_ps_, wait_ps_, notify_ps_;
  uint32_t aic_total_, aiv_total_, aicpu_total_, slots_total_;
  uint64_t hbm_mbps_, l2_mbps_;

  int64_t now_ = 0;
  std::deque<Stream> streams_;
  std::vector<Record> records_;
  std::vector<uint32_t> free_records_;
  std::vector<Notify> notifies_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::set<ReadyKey> ready_;
  std::vector<Active> active_;   // In order of dispatch (I2).
  std::vector<uint32_t> order_;  // Scratch of share_bandwidth().
  uint32_t aic_free_, aiv_free_, aicpu_free_;
  std::array<bool, kEngineCount> engine_busy_{};
  bool changed_ = false;  // active_ changed since share().
};

}  // namespace davit::npu
