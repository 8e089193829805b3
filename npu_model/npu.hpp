// npu.hpp: one device: host clock, handles, memory, the event core, effects and records.
//
// Threads  None of its own; npu_api.cpp takes the lock of the NPU around every call.
// Trust    As davit/npu.h.
// Memory   Timings and strings are kept for the life of the NPU, each once.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.hpp"
#include "davit/npu.h"
#include "npu_model/cost.hpp"
#include "npu_model/custom_cost.hpp"
#include "npu_model/event_core.hpp"
#include "npu_model/functional.hpp"
#include "npu_model/handles.hpp"
#include "npu_model/hazards.hpp"
#include "npu_model/host.hpp"
#include "npu_model/memory.hpp"
#include "npu_model/parameters.hpp"
#include "npu_model/random.hpp"
#include "npu_model/rules.hpp"

namespace davit::npu {

struct Settings {
  std::string soc;
  Parameters parameters;
  DvtNpuMode mode = DVT_NPU_PROMPT;
  bool timing_only = false;
  bool keep_records = true;
  bool check_order = false;
  uint64_t seed = 0;
  std::string hang;
  const DvtNpu* beside = nullptr;
};
Result<Settings> settings_from(const DvtNpuOptions* options);

class Npu final : private EventCore::Listener {
 public:
  // Precondition: the caller holds the lock of `host`. Removing it from there is up to leave().
  Npu(Settings settings, uint32_t device_id, std::shared_ptr<Host> host);
  // Before the end: notifies of this device are gone for the others.
  void leave();
  [[nodiscard]] const std::shared_ptr<Host>& host() const { return host_; }

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Memory& memory() const { return memory_; }
  [[nodiscard]] int64_t host_now_ps() const { return host_->now_ps; }
  void host_advance(int64_t ps);

  Result<void*> allocate(uint64_t bytes, const char* owner);
  Status release(void* address);

  Result<DvtStream*> create_stream(const DvtNpuStreamOptions& options);
  Status destroy_stream(DvtStream* stream);
  Status abort_stream(DvtStream* stream);
  struct LaunchOptions {
    bool all_cores = false;
    bool invalidates = false;
  };
  Status launch(DvtStream* stream, const DvtLaunch& launch, LaunchOptions options);
  Status copy(DvtStream* stream, DvtCopyKind kind, void* to, const void* from, uint64_t bytes,
              const char* name);
  Status fill(DvtStream* stream, void* to, int value, uint64_t bytes);

  Result<DvtEvent*> create_event();
  Status destroy_event(DvtEvent* event);
  Status record_event(DvtStream* stream, DvtEvent* event);
  Status wait_event(DvtStream* stream, DvtEvent* event);
  Result<bool> query_event(DvtEvent* event);
  Result<int64_t> event_time(DvtEvent* event);

  Result<DvtNotify*> create_notify();
  Status destroy_notify(DvtNotify* notify);
  Status record_notify(DvtStream* stream, DvtNotify* notify);
  Status wait_notify(DvtStream* stream, DvtNotify* notify);
  Result<DvtNotify*> import_notify(Npu& owner, DvtNotify* notify);

  Result<int64_t> event_elapsed(DvtEvent* first, DvtEvent* last);
  Status callback(DvtStream* stream, void (*function)(void*), void* data);

  Result<DvtNpuModel*> create_model();
  Status destroy_model(DvtNpuModel* model);
  Status bind_stream(DvtNpuModel* model, DvtStream* stream, bool is_head);
  Status end_graph(DvtNpuModel* model, DvtStream* stream);
  Status build_end(DvtNpuModel* model);
  Status execute(DvtNpuModel* model, DvtStream* stream);
  Status abort_model(DvtNpuModel* model);
  Status activate(DvtStream* stream, DvtStream* target);
  Status switch_stream(DvtStream* stream, const void* left, DvtNpuCondition condition,
                       const void* right, DvtStream* target);
  Result<DvtNpuLabel*> create_label(DvtNpuModel* model);
  Status set_label(DvtStream* stream, DvtNpuLabel* label);
  Status go_to(DvtStream* stream, DvtNpuLabel* label);
  Status switch_label(DvtStream* stream, const void* index, DvtNpuLabel* const* labels,
                      uint32_t count);

  Result<DvtNpuQueue*> create_queue(uint32_t depth);
  Status destroy_queue(DvtNpuQueue* queue);
  Status put(DvtNpuQueue* queue, const void* from, uint64_t bytes);
  Status take(DvtNpuQueue* queue, void* to, uint64_t bytes, int64_t timeout_us);
  Status put_async(DvtStream* stream, DvtNpuQueue* queue, const void* from, uint64_t bytes);
  Status take_async(DvtStream* stream, DvtNpuQueue* queue, void* to, uint64_t bytes);
  Result<uint32_t> queue_size(DvtNpuQueue* queue);

  Status synchronise_stream(DvtStream* stream, int64_t timeout_us);
  Status synchronise(int64_t timeout_us);

  void run_begin();
  void run_end();
  [[nodiscard]] const std::vector<DvtNpuRun>& runs() const { return runs_; }

  [[nodiscard]] uint64_t record_count() const { return records_.size(); }
  [[nodiscard]] DvtNpuTask record(uint64_t index) const;
  // operand_columns() of its kernel.
  [[nodiscard]] const char* operands_of(uint64_t index) const { return records_[index].operands; }
  void clear_records() { records_.clear(); }
  // As record(), of a kernel that is not run.
  [[nodiscard]] Result<DvtNpuTask> estimate(const DvtTaskCost* cost, std::string_view op) const;
  Status describe_kernel(const DvtKernelTime& kernel);

 private:
  // What record() needs; the rest is in the shared timing.
  struct TaskRecord {
    uint64_t id;
    const TaskTiming* timing;
    const char* name;
    const char* op;
    const char* operands;  // Of op_summary; empty when they are not known.
    int64_t submit_ps, ready_ps, start_ps, end_ps;
    uint64_t released_by;
    uint32_t stream;
    DvtNpuTaskType type;
  };
  using TimingKey = std::array<char, sizeof(DvtTaskCost) + sizeof(const char*)>;
  struct TimingHash {
    size_t operator()(const TimingKey& key) const {
      uint64_t hash = 0;
      for (size_t at = 0; at < key.size(); at += sizeof hash) {
        uint64_t word = 0;
        std::memcpy(&word, key.data() + at, sizeof word);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };
  static_assert(sizeof(TimingKey) % sizeof(uint64_t) == 0);
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  struct Item {
    std::vector<std::byte> bytes;
    std::shared_ptr<const Clock> clock;  // What whoever takes it comes after.
  };

  void ended(uint32_t stream, Task& task) override;
  void instantiate(uint32_t stream, Task& task) override;
  uint64_t decide(uint32_t stream, const Task& task) override;
  void failed(uint32_t stream, const Task& task, std::string reason) override;
  void dropped(const Task& task) override;
  void record_elsewhere(uint32_t notify, TaskRef by) override;
  void reap();

  // All devices of the host, in one order of events.
  void run_until(int64_t limit_ps);
  [[nodiscard]] int64_t next_ps() const;
  [[nodiscard]] uint32_t number() const;
  // NULL when it is destroyed.
  [[nodiscard]] Npu* device_of(TaskRef task);
  // What other devices of the host do, when nothing can move any more.
  [[nodiscard]] std::string explain_others() const;

  // A copy that stays, one for each text.
  const char* intern(const char* text);
  Result<const TaskTiming*> timing_of(const DvtTaskCost* cost, const char* op);
  // How a kernel of its own takes its time, or as the model says.
  [[nodiscard]] Result<TaskTiming> timing_from(const DvtTaskCost* cost, std::string_view op) const;
  const TaskTiming* timing_of_copy(DvtNpuTaskType type, uint64_t bytes);

  // Charges one submission to the host and waits for a free queue entry.
  Status enter_queue(uint32_t stream);
  void enqueue(uint32_t stream, Task&& task);
  Status submit_transfer(uint32_t stream, Task task, std::shared_ptr<Effect> effect);
  Status submit_synchronisation(uint32_t stream, DvtNpuTaskType type, uint32_t object);
  Status wait_for_event_id();
  void end_use_of_event(uint32_t record);

  // Models: submissions to bound streams go into a program.
  Status enter_program(uint32_t stream);
  // A stream that is bound to `model` and may still get tasks.
  Result<uint32_t> open_stream(DvtStream* stream, const char* operation, uint32_t* model);
  Result<uint32_t> target_of(DvtStream* target, const char* operation, uint32_t model);
  Result<uint32_t> label_of(DvtNpuLabel* label, const char* operation, uint32_t model);
  Status refuse_bound(uint32_t stream, const char* operation) const;
  Status submit_control(uint32_t stream, DvtNpuTaskType type, uint32_t object,
                        std::shared_ptr<Effect> effect);
  void collect_failures(Stream& caller, const Model& model);
  // Queues.
  Status submit_queue_task(DvtStream* stream, DvtNpuQueue* queue, DvtNpuTaskType type,
                           std::shared_ptr<Effect> effect);
  Status move_item(uint32_t stream, const Task& task, const Access& access);
  // A queued or resident task of one of these types that uses an object.
  [[nodiscard]] std::string user_of(DvtNpuTaskType first, DvtNpuTaskType last,
                                    uint32_t object) const;

  void begin_order(uint32_t stream, const Task& task, const Causes& causes);
  Status do_work(uint32_t stream, const Task& task);
  // The oldest task of a stream, which has ended, takes effect and leaves.
  void take_effect(uint32_t stream);
  void run_effect(uint32_t stream, const Task& task);
  void fail(Stream& stream, const Task& task, Status status);
  // What must take effect before the oldest task of a stream can: the record that released it.
  [[nodiscard]] TaskRef pending_cause(uint32_t stream);
  [[nodiscard]] bool is_pending(TaskRef task) const;
  // Everything that must have happened when `upto` has.
  void demand(TaskRef upto);
  void demand_ended(uint32_t stream);
  // The host has seen what `stream` has done.
  void host_saw(uint32_t stream);
  void move_waits(uint32_t from, uint32_t to);
  // The host has seen that a record is reached.
  void see_record(uint32_t record);
  [[nodiscard]] std::optional<Access> later_writer(const void* address) const;

  // Adversarial mode (adversary.cpp).
  void apply_some_effects();
  [[nodiscard]] uint32_t delay_us();
  [[nodiscard]] bool looks_unfinished(TaskRef task);

  Status wait_drained(uint32_t stream, int64_t deadline_ps);
  Status timeout_error(uint32_t stream, int64_t begin_ps, bool stuck) const;
  [[nodiscard]] int64_t deadline_of(int64_t timeout_us) const;
  [[nodiscard]] static DvtNpuTask expand(const TaskRecord& record);

  [[nodiscard]] bool breaks(Rule rule) const { return broken_ == rule; }

  const Rule broken_ = broken_rule();
  Settings settings_;
  std::shared_ptr<Host> host_;
  Memory memory_;
  EventCore core_;
  HandleTable stream_handles_, event_handles_, notify_handles_, model_handles_, label_handles_,
      queue_handles_;
  struct Event {
    uint32_t record = kNone;  // The latest one.
    uint32_t uses = 0;        // Of its id, by tasks that have not ended.
    bool destroyed = false;
  };
  std::vector<Event> events_;
  uint32_t held_event_ids_ = 0;  // Of destroyed events.
  struct Elsewhere {
    Npu* owner;  // NULL when it is gone.
    DvtNotify* notify;
  };
  std::unordered_map<uint32_t, Elsewhere> imported_;  // By index of the notify that stands for it.
  int64_t enqueue_ps_, synchronise_ps_, allocate_ps_, cross_device_ps_;
  size_t queue_entries_;
  uint64_t next_serial_ = 1;  // Orders blocks and tasks.
  uint64_t next_task_ = 0;
  std::unordered_set<std::string, StringHash, std::equal_to<>> strings_;
  // What a pointer meant when it came last: callers have few strings, and pass them often.
  struct Interned {
    const char* given = nullptr;
    const char* kept = nullptr;
  };
  std::array<Interned, 64> last_strings_{};
  std::unordered_map<TimingKey, TaskTiming, TimingHash> kernel_timings_;
  std::map<std::string, DvtKernelTime, std::less<>> described_;    // By operator type.
  std::pair<const TimingKey, TaskTiming>* last_timing_ = nullptr;  // Kernels often come in rows.
  std::map<std::pair<DvtNpuTaskType, uint64_t>, TaskTiming> copy_timings_;
  std::vector<TaskRecord> records_;
  std::vector<DvtNpuRun> runs_;
  bool in_run_ = false;
  Order order_;  // With settings_.check_order only.
  // Clocks of tasks that have taken effect and released another one that has not; by task id.
  std::unordered_map<uint64_t, Clock> released_clocks_;
  std::map<std::pair<uint32_t, uint64_t>, Item> items_;  // By queue and ticket.
  Random random_;
};

}  // namespace davit::npu
