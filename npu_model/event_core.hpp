// event_core.hpp: the device in virtual time. Streams feed tasks to cores and engines.
//
// State of a stream, by its head task (the oldest one that has not ended):
//
//   Idle --submit--> Pending --ready_ps--> Ready --dispatch--> Running --end--> Idle or Pending
//                                            |                   ^
//                                            +--> Waiting -------+
//
// Waiting: for an event, a notify, the end of a model's execution; or, back to Ready, for an item
// or room in a queue.
//
// A stream that is bound to a model has a program: its tasks, which stay. While it runs, the next
// one is copied to the queue whenever the one before has ended.
//
// Invariants
//   I1  Tasks of a stream end in submission order, and one starts only after the one before ended.
//   I2  A started task keeps at least the cores it has: cores go to tasks in order of dispatch, and
//       a task starts only while a core is free, that is when all earlier ones have all they want.
//   I3  Ties in time break by task id (submission order); ready tasks by priority, then ready time,
//       then id. So the same submissions give the same times.
//   I4  Of the tasks that want cores of one kind, all have what they want but the last one to
//   start.
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
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "npu_model/cost.hpp"
#include "npu_model/hazards.hpp"
#include "npu_model/parameters.hpp"
#include "npu_model/ring.hpp"
#include "npu_model/rules.hpp"
#include "npu_model/shared_rates.hpp"

namespace davit::npu {

struct Effect;  // functional.hpp: what a task does to memory.

struct TaskRef {
  TaskRef() = default;
  TaskRef(uint32_t stream_index, uint64_t task_id) : stream(stream_index), task(task_id) {}

  uint32_t stream = kNone;  // kNone: no task.
  uint32_t device = kNone;  // kNone: of this device.
  uint64_t task = 0;
};

struct Task {
  uint64_t id = 0;
  uint64_t serial = 0;  // Blocks that were freed later may still be used.
  const TaskTiming* timing = nullptr;
  const char* name = "";
  const char* op = "";
  int64_t submit_ps = 0;
  std::shared_ptr<const Effect> effect;  // Shared by all executions of a resident task.
  uint32_t object = kNone;               // Record, notify, model, queue, label or stream.
  uint32_t delay_us = 0;                 // Kept from being ready for that long.
  DvtNpuTaskType type = DVT_NPU_AI_CORE;
  bool hangs = false;        // Never ends (fault injection).
  bool resident = false;     // Copied from a program.
  bool all_cores = false;    // Starts when all cores that it wants are free, not when one is.
  bool invalidates = false;  // The caches of AICPUs, before it begins.
};
// Twice that when a queue has just grown.
static_assert(sizeof(Task) <= 80, "docs/npu_model.md promises at most 200 bytes a queued task");

// What a task's effect comes after, and what it is about.
struct Causes {
  // Tasks of other streams whose effect comes first: the record that a wait was for, and what
  // started the program whose first task this is.
  TaskRef released_by, activated_by;
  uint64_t ticket = 0;  // Queue tasks: the number of the item.
};

// The head of a stream, on its way.
struct Progress {
  int64_t ready_ps = 0, start_ps = 0, end_ps = 0;
  Causes causes;
};

enum class StreamState : uint8_t { kIdle, kPending, kReady, kWaiting, kRunning };

// The tasks of a stream that is bound to a model.
struct Program {
  uint32_t model = kNone;
  bool is_head = false;
  bool running = false;
  size_t next = 0;  // The task after the one that is queued.
  std::vector<Task> tasks;
  std::vector<uint32_t> chained;  // Streams that hold what one queue on the device cannot.
};

struct Stream {
  bool live = false;
  bool continues_on_failure = false;
  uint32_t priority = 0;
  size_t depth = 0;  // Tasks that may be queued.
  StreamState state = StreamState::kIdle;
  Ring<Task> tasks;  // The first `ended` have ended and only wait for their effect.
  size_t ended = 0;
  Progress now;         // Of the first that has not ended.
  Ring<Causes> causes;  // Of those that have ended.
  int64_t last_end_ps = std::numeric_limits<int64_t>::min() / 2;
  uint64_t last_ended_task = 0;
  std::optional<ErrorDetail> error;  // First failure since the last synchronisation.
  std::unique_ptr<Program> program;  // When bound.

  [[nodiscard]] size_t queued() const { return tasks.size() - ended; }
  [[nodiscard]] Task& head() { return tasks[ended]; }
  [[nodiscard]] const Task& head() const { return tasks[ended]; }
};

// What an event points at. Lives while an event or a queued task refers to it.
struct Record {
  bool reached = false;
  int64_t reached_ps = 0;
  uint32_t references = 0;
  uint32_t model = kNone;  // Of which it is a part.
  uint32_t event = kNone;
  TaskRef task;
  std::optional<ErrorDetail> error;    // Its stream had failed before it; set when it takes effect.
  std::shared_ptr<const Clock> clock;  // What its waits come after; set when it takes effect.
  std::vector<uint32_t> waiters;       // Streams.
};

struct Notify {
  bool live = false;
  bool set = false;
  bool elsewhere = false;  // Stands for one of another device: recorded here, waited for there.
  bool imported = false;   // By another device.
  TaskRef set_by;
  std::deque<uint32_t> waiters;
};

struct Model {
  bool live = false;
  bool built = false;
  bool ended = true;  // The present execution has passed its end-graph task.
  uint32_t end_graph_stream = kNone;
  uint32_t running_streams = 0;
  uint64_t jumps = 0;          // Of this execution.
  TaskRef execution;           // The MODEL_EXECUTE that is running.
  std::deque<uint32_t> queue;  // Streams that wait to execute it.
  std::vector<uint32_t> streams, labels;
};

struct Label {
  bool live = false;
  uint32_t model = kNone;
  uint32_t stream = kNone;  // kNone: not set.
  size_t position = 0;
};

struct Queue {
  bool live = false;
  uint32_t depth = 0;
  uint64_t enqueued = 0, dequeued = 0;    // Tickets given out.
  std::deque<TaskRef> producers;          // Of the items in it; kNone: the host.
  std::deque<uint32_t> readers, writers;  // Streams that pend.

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(enqueued - dequeued); }
};

class EventCore {
 public:
  // A jump that is taken more often in one execution is taken for an endless loop.
  static constexpr uint64_t kJumpsMax = 1'000'000;

  // Hears of every task that ends, in order of (end_ps, id), before the stream goes on.
  class Listener {
   public:
    virtual void ended(uint32_t stream, Task& task) = 0;
    // Gives a copy of a resident task what is its own: id, serial, delay.
    virtual void instantiate(uint32_t stream, Task& task) = 0;
    // What a control task that is about to end finds in device memory: STREAM_SWITCH: whether the
    // condition holds; LABEL_SWITCH: the index. Zero after a failure.
    virtual uint64_t decide(uint32_t stream, const Task& task) = 0;
    virtual void failed(uint32_t stream, const Task& task, std::string reason) = 0;
    // A task that will not end.
    virtual void dropped(const Task& task) = 0;
    // A record of a notify that is elsewhere has ended.
    virtual void record_elsewhere(uint32_t notify, TaskRef by) = 0;

   protected:
    ~Listener() = default;
  };

  EventCore(const Parameters& parameters, Listener& listener);

  std::deque<Stream>& streams() { return streams_; }
  [[nodiscard]] const std::deque<Stream>& streams() const { return streams_; }
  std::vector<Record>& records() { return records_; }
  [[nodiscard]] const std::vector<Record>& records() const { return records_; }
  std::vector<Notify>& notifies() { return notifies_; }
  std::vector<Model>& models() { return models_; }
  std::vector<Label>& labels() { return labels_; }
  std::vector<Queue>& queues() { return queues_; }

  uint32_t new_record();
  void add_reference(uint32_t record) { ++records_[record].references; }
  void drop_reference(uint32_t record);

  // Appends a task; it arrives at task.submit_ps, which must not lie before anything processed.
  void submit(uint32_t stream, Task&& task);
  // Its place in the queue has often left the cache: what follows hides how long it takes.
  void prepare_to_submit(uint32_t stream) const {
    __builtin_prefetch(streams_[stream].tasks.next_place(), 1);
  }
  // Drops unfinished tasks of a stream. Records among them count as reached, with an error.
  void abandon(uint32_t stream, const ErrorDetail& reason);

  // Ends the present execution of a model where it is. Precondition: there is one.
  void abort_model(uint32_t model);
  // Starts what can start now, after a change from outside.
  void settle();
  // Another device sets a notify; not before anything processed.
  void set_notify(uint32_t notify, int64_t at_ps, TaskRef by);
  // A stream that waits looks again at what it waits for, as after a spurious wake-up.
  void wake_for_nothing(uint32_t stream);
  // The host puts an item into a queue, or takes one out: its ticket.
  uint64_t put_item(uint32_t queue, TaskRef producer);
  uint64_t take_item(uint32_t queue);

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
  // Ready tasks wait in one line for each thing that they need, since all of a line wait for the
  // same: only the first of a line has to be looked at.
  enum Line : uint8_t {
    kAtOnce,  // Nothing.
    kSlot,    // A stream slot only, as all that follow.
    kAic,
    kAiv,
    kMix,
    kAicpu,
    kPcieIn,
    kPcieOut,
    kSdma,
    kAllCores,  // The cores that this one wants: every one has to be looked at.
    kLineCount,
  };
  struct ReadyKey {
    uint32_t priority;
    uint32_t stream;
    int64_t ready_ps;
    uint64_t task;
    bool operator>(const ReadyKey& other) const {
      return std::tie(priority, ready_ps, task) >
             std::tie(other.priority, other.ready_ps, other.task);
    }
  };
  using ReadyLine = std::vector<ReadyKey>;  // A heap, first on top.
  // A notify that another device has set.
  struct Arrival {
    int64_t at_ps;
    uint64_t order;
    uint32_t notify;
    TaskRef by;
    bool operator>(const Arrival& other) const {
      return std::tie(at_ps, order) > std::tie(other.at_ps, other.order);
    }
  };

  // A running kernel or copy: first its head, at full speed, then its body.
  struct Active {
    uint32_t stream = kNone;  // kNone: the slot is free.
    uint16_t aic_wanted = 0, aiv_wanted = 0;
    uint16_t aic = 0, aiv = 0;   // Granted now.
    uint32_t core_need_q16 = 0;  // Of TaskTiming.
    Line line = kSlot;
    bool in_head = false;
  };
  // Cores of one kind.
  struct Pool {
    uint32_t total;
    uint32_t free;
    uint32_t partial = kNone;  // The slot whose task has less than it wants (I4).
  };

  // Takes a stream's unfinished tasks away from whatever they run on or wait for.
  void detach(uint32_t stream);
  void forget_wait(uint32_t stream);
  void arm_head(uint32_t stream);
  void fire_timer(const Timer& timer);
  void dispatch_ready();
  [[nodiscard]] Line line_of(const Task& task) const;
  [[nodiscard]] bool is_open(Line line) const;
  void make_ready(uint32_t stream);
  // Takes the first task that can start out of the lines: its stream, or kNone.
  uint32_t next_startable();
  [[nodiscard]] size_t first_that_fits() const;
  static void take(ReadyLine& line, size_t index);
  void start(uint32_t stream);
  void start_synchronisation(uint32_t stream);
  void release_waiter(uint32_t stream, TaskRef by);
  void reach_record(uint32_t record);
  void set_notify_now(uint32_t notify, TaskRef by);
  void end_synchronisation(uint32_t stream);
  void end_head(uint32_t stream);

  // Models and queues (sequence.cpp).
  void start_execution(uint32_t stream);
  void begin_heads(uint32_t stream);
  void end_graph(uint32_t stream);
  void next_execution(uint32_t model);
  bool activate(uint32_t stream, size_t position, TaskRef by);
  void feed(uint32_t stream, TaskRef by);
  void stop(uint32_t stream);
  void jump(uint32_t stream, uint32_t label);
  void end_control(uint32_t stream);
  // False: the task pends.
  bool pass_queue(uint32_t stream);
  void wake(std::deque<uint32_t>& pending);

  bool finish_due();
  void begin_body(uint32_t slot);
  // Gives back all that a task holds, and its slot.
  void end_active(uint32_t slot);
  void give_back(Pool& pool, uint16_t Active::*granted, uint16_t Active::*wanted, uint32_t slot);
  void grant(Pool& pool, uint16_t Active::*granted, uint16_t Active::*wanted, uint32_t slot);
  void preempt_for(uint32_t slot);
  void share();
  static uint32_t core_speed(const Active& active);
  [[nodiscard]] std::vector<TaskRef> first_of(DvtNpuTaskType type, uint32_t object) const;
  [[nodiscard]] std::string missing(const Task& task) const;
  [[nodiscard]] std::vector<TaskRef> awaited(uint32_t stream) const;
  [[nodiscard]] std::vector<uint32_t> find_cycle() const;

  [[nodiscard]] bool breaks(Rule rule) const { return broken_ == rule; }

  const Rule broken_ = broken_rule();
  const Parameters& parameters_;
  Listener& listener_;
  int64_t gap_ps_, record_ps_, wait_ps_, notify_ps_, execute_ps_, control_ps_, callback_ps_;
  uint32_t mix_vector_cores_;
  size_t chain_depth_;
  uint32_t slots_total_;

  int64_t now_ = 0;
  std::deque<Stream> streams_;
  std::vector<Record> records_;
  std::vector<uint32_t> free_records_;
  std::vector<Notify> notifies_;
  std::vector<Model> models_;
  std::vector<Label> labels_;
  std::vector<Queue> queues_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  uint64_t arrived_ = 0;
  std::array<ReadyLine, kLineCount> ready_;
  uint32_t waiting_lines_ = 0;  // Bit l: line l may have somebody.
  bool ready_changed_ = false;  // Since dispatch_ready().
  Pool aic_, aiv_;
  uint32_t aicpu_free_;
  std::array<bool, kLineCount> engine_busy_{};
  SharedRates rates_;
  std::vector<Active> active_;  // By slot of rates_.
  uint32_t active_count_ = 0;
  uint64_t started_ = 0;  // Tasks so far.
  bool changed_ = false;  // What runs, since share().
};

}  // namespace davit::npu
