#include "npu_model/npu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.hpp"

namespace davit::npu {

namespace {

thread_local Rule rule_to_break = Rule::kNone;

int64_t to_ps(double us) {
  return static_cast<int64_t>(std::llround(us * 1e6));
}

uint64_t gib(double value) {
  return static_cast<uint64_t>(value * 1073741824.0);
}

Status misuse(std::string message) {
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN, std::move(message));
}

// The struct as it first was: up to `hang`.
constexpr uint32_t kFirstOptionsSize = offsetof(DvtNpuOptions, seed);

bool is_event_task(DvtNpuTaskType type) {
  return type == DVT_NPU_EVENT_RECORD || type == DVT_NPU_EVENT_WAIT;
}

DvtNpuTaskType type_of(DvtCopyKind kind) {
  switch (kind) {
    case DVT_COPY_HOST_TO_DEVICE:
      return DVT_NPU_COPY_H2D;
    case DVT_COPY_DEVICE_TO_HOST:
      return DVT_NPU_COPY_D2H;
    default:
      return DVT_NPU_COPY_D2D;
  }
}

}  // namespace

void break_rule(Rule rule) {
  rule_to_break = rule;
}

Rule broken_rule() {
  return rule_to_break;
}

Result<Settings> settings_from(const DvtNpuOptions* options) {
  DvtNpuOptions defaults;
  dvt_npu_options_init(&defaults);
  if (options == nullptr) options = &defaults;
  if (options->struct_size < kFirstOptionsSize || options->struct_size > sizeof(DvtNpuOptions)) {
    return misuse("DvtNpuOptions.struct_size is not set; call dvt_npu_options_init()");
  }
  // Callers that were built against an earlier header have a shorter struct.
  std::memcpy(static_cast<void*>(&defaults), options, options->struct_size);
  options = &defaults;
  if (options->mode > DVT_NPU_ADVERSARIAL) return misuse("DvtNpuOptions.mode is unknown");
  Settings out;
  out.soc = options->soc == nullptr ? "910B2" : options->soc;
  std::string_view text;
  if (options->parameters != nullptr) {
    text = options->parameters;
  } else {
    std::string names;
    for (const BuiltinSoc& soc : builtin_socs()) {
      if (soc.name == out.soc) text = soc.text;
      names += (names.empty() ? "" : ", ") + std::string(soc.name);
    }
    if (text.empty()) {
      return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                                .stage = DVT_STAGE_LOAD,
                                .message = "unknown SoC " + out.soc,
                                .expected = names,
                                .got = out.soc});
    }
  }
  auto parameters = parse_parameters(text, options->parameters == nullptr ? out.soc : "parameters");
  if (!parameters.ok()) return std::move(parameters.status());
  out.parameters = std::move(*parameters);
  for (size_t i = 0; i < options->override_count; ++i) {
    auto status = override_parameter(out.parameters, options->override[i]);
    if (!status.ok()) return status;
  }
  auto status = check_parameters(out.parameters);
  if (!status.ok()) return status;
  out.mode = options->mode;
  out.timing_only = options->timing_only != 0;
  out.keep_records = options->no_records == 0;
  out.seed = options->seed;
  out.check_order =
      !out.timing_only && (options->check_order != 0 || out.mode == DVT_NPU_ADVERSARIAL);
  out.hang = options->hang == nullptr ? "" : options->hang;
  out.beside = options->beside;
  return out;
}

Npu::Npu(Settings settings, uint32_t device_id, std::shared_ptr<Host> host)
    : settings_(std::move(settings)),
      host_(std::move(host)),
      memory_(gib(settings_.parameters.hbm_capacity_gib), !settings_.timing_only),
      core_(settings_.parameters, *this),
      stream_handles_(HandleKind::kStream, "stream", device_id,
                      static_cast<uint32_t>(settings_.parameters.streams_max)),
      event_handles_(HandleKind::kEvent, "event", device_id,
                     static_cast<uint32_t>(settings_.parameters.events_max)),
      notify_handles_(HandleKind::kNotify, "notify", device_id,
                      static_cast<uint32_t>(settings_.parameters.notifies_max)),
      model_handles_(HandleKind::kModel, "model", device_id,
                     static_cast<uint32_t>(settings_.parameters.models_max)),
      label_handles_(HandleKind::kLabel, "label", device_id,
                     static_cast<uint32_t>(settings_.parameters.labels_max)),
      queue_handles_(HandleKind::kQueue, "queue", device_id,
                     static_cast<uint32_t>(settings_.parameters.queues_max)),
      enqueue_ps_(to_ps(settings_.parameters.enqueue_us)),
      synchronise_ps_(to_ps(settings_.parameters.synchronize_us)),
      allocate_ps_(to_ps(settings_.parameters.allocate_us)),
      cross_device_ps_(to_ps(settings_.parameters.notify_cross_us)),
      queue_entries_(
          static_cast<size_t>(settings_.parameters.sq_depth - settings_.parameters.sq_reserved)),
      random_(settings_.seed) {
  host_->devices.push_back(this);
  core_.run_until(host_->now_ps);
}

void Npu::host_advance(int64_t ps) {
  if (ps <= 0) return;
  host_->now_ps = std::min(host_->now_ps, kNever / 2 - ps) + ps;
  run_until(host_->now_ps);
}

// ---- Memory ------------------------------------------------------------------------------------

Result<void*> Npu::allocate(uint64_t bytes, const char* owner) {
  host_advance(allocate_ps_);
  reap();
  auto address = memory_.allocate(bytes, owner == nullptr ? "unnamed" : owner);
  if (!address.ok()) return std::move(address.status());
  return static_cast<void*>(*address);
}

Status Npu::release(void* address) {
  host_advance(allocate_ps_);
  auto status = memory_.release(address, next_serial_++);
  reap();
  return status;
}

void Npu::reap() {
  if (!memory_.has_freed()) return;
  uint64_t oldest = next_serial_;
  for (const Stream& stream : core_.streams()) {
    size_t user = 0;
    while (user < stream.tasks.size() && stream.tasks[user].effect == nullptr) ++user;
    if (user < stream.tasks.size()) oldest = std::min(oldest, stream.tasks[user].serial);
  }
  memory_.reap(oldest);
}

// ---- Submission --------------------------------------------------------------------------------

const char* Npu::intern(const char* text) {
  if (text == nullptr) return "";
  Interned& last = last_strings_[reinterpret_cast<uintptr_t>(text) / 8 % last_strings_.size()];
  if (last.given == text && std::strcmp(last.kept, text) == 0) return last.kept;
  const auto known = strings_.find(std::string_view(text));
  last = {text, known != strings_.end() ? known->c_str() : strings_.emplace(text).first->c_str()};
  return last.kept;
}

Result<TaskTiming> Npu::timing_from(const DvtTaskCost* cost, std::string_view op) const {
  const auto described = described_.find(operator_type(op));
  if (described == described_.end()) return kernel_timing(settings_.parameters, cost, op);
  return described_timing(settings_.parameters, described->second, cost);
}

Result<const TaskTiming*> Npu::timing_of(const DvtTaskCost* cost, const char* op) {
  static constexpr DvtTaskCost kFree{};
  TimingKey key{};
  std::memcpy(key.data(), cost == nullptr ? &kFree : cost, sizeof(DvtTaskCost));
  std::memcpy(key.data() + sizeof(DvtTaskCost), static_cast<void*>(&op), sizeof op);
  if (last_timing_ != nullptr && key == last_timing_->first) return &last_timing_->second;
  auto entry = kernel_timings_.find(key);
  if (entry == kernel_timings_.end()) {
    auto timing = timing_from(cost, op);
    if (!timing.ok()) return std::move(timing.status());
    entry = kernel_timings_.emplace(key, *timing).first;
  }
  last_timing_ = &*entry;
  return &entry->second;
}

Status Npu::describe_kernel(const DvtKernelTime& kernel) {
  if (kernel.op == nullptr || *kernel.op == '\0')
    return misuse("describe: the operator has no name");
  if ((kernel.nest == nullptr) == (kernel.pipes == nullptr)) {
    return misuse(fmt::format("describe: {} needs one of nest() and pipes()", kernel.op));
  }
  const std::string type(operator_type(kernel.op));
  for (const auto& [key, timing] : kernel_timings_) {
    const char* launched = nullptr;
    std::memcpy(static_cast<void*>(&launched), key.data() + sizeof(DvtTaskCost), sizeof launched);
    if (operator_type(launched) != type) continue;
    return Status(DVT_FAILED_STATE, DVT_STAGE_RUN,
                  fmt::format("describe: {} has been launched already", type));
  }
  DvtKernelTime kept = kernel;
  kept.op = intern(type.c_str());
  described_[type] = kept;
  return {};
}

const TaskTiming* Npu::timing_of_copy(DvtNpuTaskType type, uint64_t bytes) {
  const auto [entry, fresh] = copy_timings_.try_emplace({type, bytes});
  if (fresh) entry->second = copy_timing(settings_.parameters, type, bytes);
  return &entry->second;
}

Status Npu::enter_queue(uint32_t stream) {
  host_advance(enqueue_ps_);
  const Stream& s = core_.streams()[stream];
  if (s.program != nullptr) return enter_program(stream);
  while (s.queued() >= s.depth && !breaks(Rule::kFullQueueHoldsHost)) {
    const int64_t next = next_ps();
    if (next == kNever) {
      return Status(ErrorDetail{
          .code = DVT_OUT_OF_RESOURCE,
          .stage = DVT_STAGE_RUN,
          .message = fmt::format("submission queue of stream {} is full and cannot drain: {}",
                                 stream, core_.explain_stuck(2)),
          .expected = fmt::format("at most {} queued tasks", s.depth)});
    }
    run_until(next);
    host_->now_ps = std::max(host_->now_ps, next);
  }
  return {};
}

void Npu::enqueue(uint32_t stream, Task&& task) {
  Stream& s = core_.streams()[stream];
  if (s.program != nullptr && !breaks(Rule::kBoundTasksStay)) {
    s.program->tasks.push_back(std::move(task));
    return;
  }
  task.id = next_task_++;
  task.submit_ps = host_->now_ps;
  task.delay_us = delay_us();
  if (settings_.check_order) order_.submit(stream, task.id);
  core_.submit(stream, std::move(task));
  run_until(host_->now_ps);
}

Status Npu::launch(DvtStream* stream, const DvtLaunch& launch, LaunchOptions options) {
  auto index = stream_handles_.resolve(stream, "launch");
  if (!index.ok()) return std::move(index.status());
  core_.prepare_to_submit(*index);
  const auto name_it = [&](Status status) {
    if (launch.name != nullptr) status.detail().node = launch.name;
    if (launch.op != nullptr) status.detail().op = launch.op;
    return status;
  };
  Task task;
  task.name = intern(launch.name);
  task.op = intern(launch.op);
  auto timing = timing_of(launch.cost, task.op);
  if (!timing.ok()) return name_it(std::move(timing.status()));
  task.timing = *timing;
  task.type = task.timing->type;
  task.all_cores = options.all_cores;
  task.invalidates = options.invalidates;
  task.hangs = !settings_.hang.empty() && settings_.hang == task.name;
  if (!settings_.timing_only) {
    auto arguments = copy_arguments(launch);
    if (!arguments.ok()) return name_it(std::move(arguments.status()));
    auto effect = std::make_shared<Effect>();
    effect->run = launch.run;
    effect->arguments = std::move(*arguments);
    task.serial = next_serial_++;
    auto status = check_operands(*effect, memory_, task.serial);
    if (!status.ok()) return name_it(std::move(status));
    task.effect = std::move(effect);
  }
  auto status = enter_queue(*index);
  if (!status.ok()) return name_it(std::move(status));
  enqueue(*index, std::move(task));
  return {};
}

Status Npu::submit_transfer(uint32_t stream, Task task, std::shared_ptr<Effect> effect) {
  task.serial = next_serial_++;
  task.timing = timing_of_copy(task.type, effect->bytes);
  task.op = intern(dvt_npu_task_type_name(task.type));
  task.hangs = !settings_.hang.empty() && settings_.hang == task.name;
  // Without backing, device addresses are checked all the same.
  auto status = check_operands(*effect, memory_, task.serial);
  if (status.ok()) status = enter_queue(stream);
  if (!status.ok()) {
    status.detail().node = task.name;
    status.detail().op = task.op;
    return status;
  }
  if (!settings_.timing_only) task.effect = std::move(effect);
  enqueue(stream, std::move(task));
  return {};
}

Status Npu::copy(DvtStream* stream, DvtCopyKind kind, void* to, const void* from, uint64_t bytes,
                 const char* name) {
  auto index = stream_handles_.resolve(stream, "copy");
  if (!index.ok()) return std::move(index.status());
  if (kind < DVT_COPY_HOST_TO_DEVICE || kind > DVT_COPY_DEVICE_TO_DEVICE) {
    return misuse(fmt::format("copy: unknown kind {}", static_cast<int>(kind)));
  }
  Task task;
  task.type = type_of(kind);
  task.name = intern(name);
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kCopy;
  effect->copy = kind;
  effect->to = to;
  effect->from = from;
  effect->bytes = bytes;
  return submit_transfer(*index, std::move(task), std::move(effect));
}

Status Npu::fill(DvtStream* stream, void* to, int value, uint64_t bytes) {
  auto index = stream_handles_.resolve(stream, "memset");
  if (!index.ok()) return std::move(index.status());
  Task task;
  task.type = DVT_NPU_MEMSET;
  auto effect = std::make_shared<Effect>();
  effect->kind = Effect::Kind::kFill;
  effect->to = to;
  effect->value = value;
  effect->bytes = bytes;
  return submit_transfer(*index, std::move(task), std::move(effect));
}

// ---- Effects -----------------------------------------------------------------------------------

void Npu::ended(uint32_t stream, Task& task) {
  const Progress& now = core_.streams()[stream].now;
  if (settings_.keep_records) {
    const TaskRef by = now.causes.released_by;
    const char* operands =
        task.effect == nullptr ? "" : intern(operand_columns(*task.effect).c_str());
    records_.push_back({task.id, task.timing, task.name, task.op, operands, task.submit_ps,
                        now.ready_ps, now.start_ps, now.end_ps,
                        by.stream == kNone || by.device != kNone ? UINT64_MAX : by.task, stream,
                        task.type});
  }
  if (!task.resident && is_event_task(task.type)) end_use_of_event(task.object);
  if (settings_.mode == DVT_NPU_PROMPT) take_effect(stream);
  if (settings_.mode == DVT_NPU_ADVERSARIAL) apply_some_effects();
}

void Npu::fail(Stream& stream, const Task& task, Status status) {
  ErrorDetail detail = status.detail();
  detail.node = task.name;
  detail.op = task.op;
  if (!stream.error) stream.error = std::move(detail);
}

void Npu::take_effect(uint32_t stream) {
  Stream& s = core_.streams()[stream];
  const Task& task = s.tasks.front();
  run_effect(stream, task);
  s.tasks.pop_front();
  s.causes.pop_front();
  --s.ended;
}

// What released a task comes before it. Waits for events have their record, which many share.
void Npu::begin_order(uint32_t stream, const Task& task, const Causes& causes) {
  order_.begin(stream, task.id);
  const TaskRef released_by = task.type == DVT_NPU_EVENT_WAIT ? TaskRef{} : causes.released_by;
  for (const TaskRef cause : {causes.activated_by, released_by}) {
    // Devices share no memory that is watched.
    if (cause.stream == kNone || cause.device != kNone) continue;
    const auto clock = released_clocks_.find(cause.task);
    if (clock == released_clocks_.end()) {  // A stream that has stopped or waits since.
      order_.wait(stream, order_.clock(cause.stream));
      continue;
    }
    order_.wait(stream, clock->second);
    released_clocks_.erase(clock);
  }
}

// After a failure the rest of the stream's work is skipped until a synchronisation has reported it,
// unless the stream continues on failure, and so is work elsewhere that waits for a record behind
// the failure.
void Npu::run_effect(uint32_t stream, const Task& task) {
  Stream& s = core_.streams()[stream];
  const bool ordered = settings_.check_order;
  const TaskRef activated_by = s.causes.front().activated_by;
  if (ordered) begin_order(stream, task, s.causes.front());
  if (activated_by.stream != kNone && !s.error) {
    const Stream& activator = core_.streams()[activated_by.stream];
    if (!activator.continues_on_failure) s.error = activator.error;
  }
  if (task.type == DVT_NPU_EVENT_WAIT) {
    const Record& record = core_.records()[task.object];
    if (record.error && !s.error) s.error = record.error;
    if (record.clock != nullptr) order_.wait(stream, *record.clock);
    if (!task.resident) core_.drop_reference(task.object);
  }
  const bool continues =
      (s.continues_on_failure && !breaks(Rule::kContinueRunsRest)) || breaks(Rule::kStopSkipsRest);
  const bool skipped = s.error && !continues;
  const bool decides = task.effect != nullptr && task.effect->kind == Effect::Kind::kDecide;
  if (task.effect != nullptr && !skipped && !decides) {
    auto status = do_work(stream, task);
    if (!status.ok()) fail(s, task, std::move(status));
  }
  if (task.type == DVT_NPU_MODEL_EXECUTE) collect_failures(s, core_.models()[task.object]);
  if (ordered) order_.end(stream, task.id);
  if (task.type == DVT_NPU_EVENT_RECORD) {
    Record& record = core_.records()[task.object];
    record.error = s.error;
    if (ordered) record.clock = std::make_shared<Clock>(order_.clock(stream));
    if (!task.resident) core_.drop_reference(task.object);
  }
  const bool releases = task.type == DVT_NPU_NOTIFY_RECORD || task.type == DVT_NPU_END_GRAPH ||
                        task.type == DVT_NPU_STREAM_ACTIVE;
  if (ordered && releases) released_clocks_[task.id] = order_.clock(stream);
}

Status Npu::do_work(uint32_t stream, const Task& task) {
  const Access access{stream, task.type, task.id, task.name};
  auto status = check_operands(*task.effect, memory_, task.serial);
  const bool on_aicpu = task.type == DVT_NPU_AI_CPU || task.type >= DVT_NPU_QUEUE_ENQUEUE;
  const bool caches = settings_.parameters.aicpu_coherent == 0 && settings_.check_order &&
                      !breaks(Rule::kAicpuHasCache);
  if (status.ok() && on_aicpu && caches) {
    if (task.invalidates) order_.invalidate(stream, task.id);
    status = check_cache(*task.effect, memory_, task.serial, access, order_);
  }
  if (status.ok() && settings_.check_order) {
    status = check_order(*task.effect, memory_, task.serial, access, order_.clock(stream),
                         [this](const void* address) { return later_writer(address); });
  }
  if (!status.ok()) return status;
  if (task.type >= DVT_NPU_QUEUE_ENQUEUE) return move_item(stream, task, access);
  return apply(*task.effect, memory_, access);
}

bool Npu::is_pending(TaskRef task) const {
  const Stream& s = core_.streams()[task.stream];
  return s.ended > 0 && s.tasks.front().id <= task.task;
}

TaskRef Npu::pending_cause(uint32_t stream) {
  const Causes& causes = core_.streams()[stream].causes.front();
  for (const TaskRef cause : {causes.activated_by, causes.released_by}) {
    if (cause.stream == kNone) continue;
    const Npu* device = device_of(cause);
    if (device != nullptr && device->is_pending(cause)) return cause;
  }
  return {};
}

void Npu::demand(TaskRef upto) {
  std::vector<std::pair<Npu*, TaskRef>> stack = {{this, upto}};
  while (!stack.empty()) {
    const auto [device, target] = stack.back();
    if (!device->is_pending(target)) {
      stack.pop_back();
    } else if (const TaskRef cause = device->pending_cause(target.stream); cause.stream != kNone) {
      stack.emplace_back(device->device_of(cause), cause);
    } else {
      device->take_effect(target.stream);
    }
  }
}

void Npu::demand_ended(uint32_t stream) {
  const Stream& s = core_.streams()[stream];
  if (s.ended > 0) demand({stream, s.tasks[s.ended - 1].id});
}

void Npu::host_saw(uint32_t stream) {
  if (settings_.check_order) order_.host_saw(order_.clock(stream));
}

std::optional<Access> Npu::later_writer(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  for (uint32_t i = 0; i < core_.streams().size(); ++i) {
    const auto& tasks = core_.streams()[i].tasks;
    for (size_t t = 0; t < tasks.size(); ++t) {
      const Task& task = tasks[t];
      bool writes = false;
      if (task.effect == nullptr) continue;
      for_each_operand(*task.effect, [&](const Operand& operand) {
        const auto* begin = static_cast<const std::byte*>(operand.address);
        writes = operand.is_write && byte >= begin && byte < begin + operand.bytes;
        return !writes;
      });
      if (writes) return Access{i, task.type, task.id, task.name};
    }
  }
  return std::nullopt;
}

// ---- Runs and records --------------------------------------------------------------------------

void Npu::run_begin() {
  runs_.push_back(
      {.begin_ps = host_->now_ps, .end_ps = host_->now_ps, .first_task = records_.size()});
  in_run_ = true;
}

void Npu::run_end() {
  if (!in_run_) return;
  in_run_ = false;
  DvtNpuRun& run = runs_.back();
  run.end_ps = host_->now_ps;
  run.task_count = records_.size() - std::min<uint64_t>(run.first_task, records_.size());
}

DvtNpuTask Npu::expand(const TaskRecord& record) {
  DvtNpuTask out{};
  out.name = record.name;
  out.op = record.op;
  out.type = record.type;
  out.stream = record.stream;
  out.id = record.id;
  out.released_by = record.released_by;
  out.submit_ps = record.submit_ps;
  out.ready_ps = record.ready_ps;
  out.start_ps = record.start_ps;
  out.end_ps = record.end_ps;
  if (record.timing == nullptr) {  // Synchronisation: all head.
    out.head_ps = out.end_ps - out.start_ps;
    return out;
  }
  const TaskTiming& timing = *record.timing;
  out.head_ps = timing.head_ps;
  out.body_ps = timing.body_ps;
  out.stall_ps = out.end_ps - out.start_ps - out.head_ps - out.body_ps;
  out.block_dim = timing.aic > 0 ? timing.aic : timing.aiv;
  std::copy(timing.tile.begin(), timing.tile.end(), out.tile);
  out.body_cycles = timing.body_cycles;
  std::copy(timing.pipe_cycles.begin(), timing.pipe_cycles.end(), out.pipe_cycles);
  out.read_bytes = timing.read_bytes;
  out.write_bytes = timing.write_bytes;
  out.hbm_bytes = timing.hbm_bytes;
  out.l2_bytes = timing.l2_bytes;
  return out;
}

DvtNpuTask Npu::record(uint64_t index) const {
  return expand(records_[index]);
}

Result<DvtNpuTask> Npu::estimate(const DvtTaskCost* cost, std::string_view op) const {
  const auto timing = timing_from(cost, op);
  if (!timing.ok()) return Status(timing.status().detail());
  return expand({0, &*timing, "", "", "", 0, 0, 0, timing->head_ps + timing->body_ps, UINT64_MAX, 0,
                 timing->type});
}

}  // namespace davit::npu
