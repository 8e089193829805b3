#include "exec/mt_topo/scheduler.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "exec/mt_topo/dynamic.hpp"
#include "exec/mt_topo/planned.hpp"
#include "exec/mt_topo/platform.hpp"

namespace davit::mt_topo {
namespace {

// A hand-over moves a few cache lines between cores, 50 to 500 ns each; a batch should be worth
// more.
constexpr double kBatchNs = 400;
// A unit that takes longer is worth a hand-over of its own, and none should wait behind it.
constexpr double kLongNs = 10'000;
constexpr uint32_t kBatchMax = 2 * Mailbox<RealThreads>::kItems;
// Sequential runs shorter than this leave nothing to gain: calling a helper and gathering it costs
// about half a microsecond.
constexpr double kWorthwhileNs = 4000;
// Another mode has to be this much faster than the sequential loop to be kept.
constexpr double kGain = 0.95;
constexpr uint32_t kTrials = 3;
// More than anything takes.
constexpr double kUnknownNs = 1e18;
// Dynamic runs from which on a comparison is made, alone and shared: 2, 8, 16, ... until the votes
// are clear; later all multiples of this.
constexpr uint32_t kCompareEvery = 512;
constexpr int kVotesMax = 3;
// Runs of one comparison: two by the caller alone, two shared. The first of each finds its cache
// lines where the others left them, and the second is measured.
constexpr uint32_t kComparedRuns = 4;

// As in exec/sequential_c/sequential.c, which exceptions cannot pass: by fours, so that a step
// costs no jump back.
Outcome run_in_order(std::span<const DvtStep> steps) noexcept {
  const DvtStep* step = steps.data();
  const DvtStep* const end = step + steps.size();
  const DvtStep* const last_four = step + steps.size() / 4 * 4;
  int32_t code = DVT_OK;
  try {
    for (; step != last_four; ++step) {
      if ((code = step->fn(step->ctx)) != DVT_OK) break;
      ++step;
      if ((code = step->fn(step->ctx)) != DVT_OK) break;
      ++step;
      if ((code = step->fn(step->ctx)) != DVT_OK) break;
      ++step;
      if ((code = step->fn(step->ctx)) != DVT_OK) break;
    }
    while (code == DVT_OK && step != end) {
      code = step->fn(step->ctx);
      if (code == DVT_OK) ++step;
    }
  } catch (...) {
    code = DVT_KERNEL_FAILED;
  }
  if (code == DVT_OK) return {};
  return {code, static_cast<uint32_t>(step - steps.data())};
}

// With limits, and an observer if there is one.
template <bool kObserved>
Outcome run_in_order(std::span<const DvtStep> steps, JobState<RealThreads>& state) noexcept {
  uint32_t node = 0;
  const auto count = static_cast<uint32_t>(steps.size());
  try {
    for (; node < count; ++node) {
      if (!state.may_go_on()) return state.outcome(/*all_ran=*/false);
      if constexpr (kObserved) state.observer()->begin(state.observer()->user, 0, node);
      const int32_t code = steps[node].fn(steps[node].ctx);
      if constexpr (kObserved) state.observer()->end(state.observer()->user, 0, node, code);
      if (code != DVT_OK) return {code, node};
    }
  } catch (...) {
    return {DVT_KERNEL_FAILED, node};
  }
  return {};
}

// Whether this thread calls a run of some pool, or is inside a node of one that it has called.
thread_local bool calls_a_run = false;

// A run among those of its pool: how many helpers it may have, so that callers and helpers together
// are no more than the workers. A run inside a node has the seat of the outer one.
class Seat {
 public:
  Seat(Pool* pool, uint32_t workers) noexcept : pool_(calls_a_run ? nullptr : pool) {
    if (pool == nullptr) return;
    const uint32_t callers = pool_ == nullptr ? pool->callers() : pool_->add_caller();
    if (pool_ != nullptr) calls_a_run = true;
    const uint32_t seats = pool->workers();
    helpers_ = std::min(workers - 1, seats - std::clamp(callers, 1U, seats));
  }
  ~Seat() {
    if (pool_ == nullptr) return;
    calls_a_run = false;
    pool_->remove_caller();
  }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  [[nodiscard]] uint32_t helpers() const noexcept { return helpers_; }

 private:
  Pool* pool_;  // That counts this caller, or null.
  uint32_t helpers_ = 0;
};

}  // namespace

uint32_t batch_minimum(double unit_ns) {
  if (unit_ns >= kLongNs) return 0;
  const auto batch = static_cast<uint32_t>(std::clamp(kBatchNs / unit_ns, 1.0, double{kBatchMax}));
  return batch == 1 ? 1 : 2 * batch;
}

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::kAutomatic:
      return "auto";
    case Mode::kSequential:
      return "sequential";
    case Mode::kPlanned:
      return "planned";
    case Mode::kDynamic:
      return "dynamic";
  }
  return "?";
}

struct Scheduler::State {
  State(const Tables& tables, const PlanTables* plan, std::shared_ptr<Pool> the_pool,
        uint32_t worker_count, const SchedulerOptions& options)
      : steps(tables.steps),
        pool(std::move(the_pool)),
        workers(worker_count),
        wanted(options.mode),
        minds_load(options.measures),
        // What the sequential runs of kAutomatic tell is enough.
        measures(options.measures && options.mode == Mode::kDynamic),
        order(pool == nullptr ? 0 : pool->spin_ns()),
        topology(tables, *options.memory),
        // Whoever of the pool may come, also where fewer may come at a time.
        dynamic(topology, pool == nullptr ? 1 : pool->workers(), order.spin_ns(), *options.memory) {
    if (plan != nullptr) {
      segments.emplace(*plan, tables, *options.memory);
      planned.emplace(*segments, workers, order.spin_ns(), *options.memory);
    }
    if (wanted != Mode::kAutomatic) settle(wanted, "asked for");
    if (wanted == Mode::kAutomatic) find_candidates();
  }

  [[nodiscard]] double width() const {
    return topology.depth() == 0 ? 1 : double(topology.unit_count()) / topology.depth();
  }

  void settle(Mode mode, const char* why) {
    settled = mode;
    std::snprintf(reason.data(), reason.size(), "%s", why);
  }

  // What kAutomatic chooses from.
  void find_candidates() {
    if (workers == 1) return settle(Mode::kSequential, "one worker");
    if (width() < 1.05) return settle(Mode::kSequential, "the graph is a chain");
    candidates[candidate_count++] = Mode::kSequential;
    if (planned && segments->parts() > 1) candidates[candidate_count++] = Mode::kPlanned;
    candidates[candidate_count++] = Mode::kDynamic;
  }

  void forget() noexcept {
    unit_ns = kUnknownNs;
    dynamic_runs = compared_runs_left = 0;
    sharing_votes = 0;
    if (wanted == Mode::kDynamic) settle(wanted, "asked for");
    if (candidate_count == 0) return;
    settled = Mode::kAutomatic;
    trial = 0;
    best_ns.fill(kUnknownNs);
  }

  [[nodiscard]] bool trying() const {
    return wanted == Mode::kAutomatic && settled == Mode::kAutomatic;
  }

  // As many helpers as there are seats for. In kAutomatic, nobody is in the way of other runs.
  Outcome run_shared(Mode mode, const RunControl& control, const RunObserver* observer) noexcept {
    const Seat seat(pool.get(), workers);
    const uint32_t helpers = minds_load ? seat.helpers() : workers - 1;
    Crew* const crew = helpers == 0 ? nullptr : pool->crew();
    crowded = crew == nullptr && wanted == Mode::kAutomatic;
    last = crowded ? Mode::kSequential : mode;
    if (crowded) return run_sequential(control, observer);
    if (mode == Mode::kPlanned) {
      shared = &planned->state();
      return planned->run(crew, helpers, control, observer);
    }
    return run_dynamic(crew, helpers, control, observer);
  }

  Outcome run(Mode mode, const RunControl& control, const RunObserver* observer) noexcept {
    if (mode != Mode::kSequential) return run_shared(mode, control, observer);
    crowded = false;
    last = mode;
    return run_sequential(control, observer);
  }

  Outcome run_sequential(const RunControl& control, const RunObserver* observer) noexcept {
    shared = nullptr;
    if (observer == nullptr && !control.limited()) return run_in_order(steps);
    order.start(nullptr, 0, control, observer);
    if (observer == nullptr) return run_in_order<false>(steps, order);
    return run_in_order<true>(steps, order);
  }

  // Where units are so cheap that sharing might cost more than it gains.
  [[nodiscard]] bool comparison_begins() const noexcept {
    if (dynamic_runs < 2 || unit_ns > 10 * kBatchNs) return false;
    if (dynamic_runs % kCompareEvery == 0) return true;
    return std::has_single_bit(dynamic_runs) && std::abs(sharing_votes) < kVotesMax;
  }

  Outcome run_dynamic(Crew* crew, uint32_t helpers, const RunControl& control,
                      const RunObserver* observer) noexcept {
    if (!measures) return share(crew, helpers, control, observer);
    if (crew == nullptr) return run_alone(control, observer);
    if (compared_runs_left == 0 && comparison_begins()) compared_runs_left = kComparedRuns;
    const uint32_t left = compared_runs_left;
    const bool learns = dynamic_runs < 2;
    const bool alone = left == 0 ? learns || sharing_votes < 0 : left > kComparedRuns / 2;
    const bool measured = learns || (left != 0 && left % 2 == 1);
    const int64_t begin = measured ? RealThreads::now_ns() : 0;
    const Outcome outcome =
        alone ? run_alone(control, observer) : share(crew, helpers, control, observer);
    ++dynamic_runs;
    if (outcome.code != DVT_OK) {
      compared_runs_left = 0;
      return outcome;
    }
    if (left != 0) --compared_runs_left;
    if (measured) note(alone, RealThreads::now_ns() - begin);
    return outcome;
  }

  // Who is alone needs no counters: in the order of the image, each node is ready when it comes.
  // One that suspends itself may wait for a later one.
  Outcome run_alone(const RunControl& control, const RunObserver* observer) noexcept {
    if (!topology.may_suspend()) return run_sequential(control, observer);
    return share(nullptr, 0, control, observer);
  }

  Outcome share(Crew* crew, uint32_t helpers, const RunControl& control,
                const RunObserver* observer) noexcept {
    shared = &dynamic.state();
    return dynamic.run(crew, helpers, control, observer, batch_minimum(unit_ns));
  }

  void note(bool alone, int64_t took) noexcept {
    // What is clear by a fifth has two votes.
    if (!alone) {
      const double share = double(took) / double(std::max<int64_t>(alone_ns, 1));
      return vote((share < 1 ? 1 : -1) * (share < 0.8 || share > 1.25 ? 2 : 1));
    }
    learn(took);
    alone_ns = took;
  }

  void vote(int for_sharing) noexcept {
    const bool shared = sharing_votes >= 0;
    sharing_votes = std::clamp(sharing_votes + for_sharing, -kVotesMax, kVotesMax);
    if (shared == (sharing_votes >= 0)) return;
    settle(Mode::kDynamic,
           shared ? "asked for; by the caller alone, since sharing costs more" : "asked for");
  }

  void learn(int64_t alone_ns) {
    const double each = double(alone_ns) / std::max(topology.unit_count(), 1U);
    unit_ns = std::clamp(std::min(each, unit_ns), 0.1, kUnknownNs);
  }

  Outcome try_next(const RunControl& control, const RunObserver* observer) noexcept {
    const Mode mode = candidates[trial / kTrials];
    const int64_t begin = RealThreads::now_ns();
    const Outcome outcome = run(mode, control, observer);
    const int64_t took = RealThreads::now_ns() - begin;
    // A failed or observed run tells nothing of its time, nor does one that other runs kept from
    // its helpers.
    if (outcome.code != DVT_OK || observer != nullptr || crowded) return outcome;
    double& best = best_ns[trial / kTrials];
    best = std::min(best, double(took));
    if (mode == Mode::kSequential) learn(took);
    ++trial;
    if (trial == kTrials && best_ns[0] < kWorthwhileNs) {
      settled = Mode::kSequential;
      std::snprintf(reason.data(), reason.size(), "a run takes %.1f us, too short to share",
                    best_ns[0] / 1000);
    } else if (trial == kTrials * candidate_count) {
      compare();
    }
    return outcome;
  }

  void compare() {
    size_t best = 0;
    for (size_t i = 1; i < candidate_count; ++i) {
      const double limit = best == 0 ? best_ns[0] * kGain : best_ns[best];
      if (best_ns[i] < limit) best = i;
    }
    settled = candidates[best];
    int at = std::snprintf(reason.data(), reason.size(), "measured:");
    for (size_t i = 0; i < candidate_count; ++i) {
      at += std::snprintf(reason.data() + at, reason.size() - static_cast<size_t>(at),
                          "%s %s %.1f us", i == 0 ? "" : ",", mode_name(candidates[i]),
                          best_ns[i] / 1000);
    }
  }

  std::span<const DvtStep> steps;
  std::shared_ptr<Pool> pool;
  uint32_t workers;
  Mode wanted;
  bool minds_load;
  bool measures;
  Mode settled = Mode::kAutomatic;
  Mode last = Mode::kSequential;
  bool crowded = false;  // The last run had no worker but its caller.
  std::array<char, 160> reason{};

  std::array<Mode, 3> candidates{};
  std::array<double, 3> best_ns = {kUnknownNs, kUnknownNs, kUnknownNs};
  size_t candidate_count = 0;
  size_t trial = 0;

  double unit_ns = kUnknownNs;  // Of one unit on one worker; the least seen.
  uint32_t dynamic_runs = 0;
  uint32_t compared_runs_left = 0;  // Of the comparison that is being made.
  int64_t alone_ns = 0;             // What its measured run by the caller alone took.
  int sharing_votes = 0;            // Less than 0: runs are not shared.

  // Of the run in progress, or the last: what its workers share; null if its caller does it alone.
  const JobState<RealThreads>* shared = nullptr;
  JobState<RealThreads> order;  // Of sequential runs: limits and observer.
  Topology topology;
  Dynamic<RealThreads> dynamic;
  std::optional<Segments> segments;
  std::optional<Planned<RealThreads>> planned;
};

Scheduler::Scheduler(ResourcePtr<State> state) : state_(std::move(state)) {}
Scheduler::~Scheduler() = default;

Result<ResourcePtr<Scheduler>> Scheduler::create(const Tables& tables, const PlanTables* plan,
                                                 std::shared_ptr<Pool> pool,
                                                 const SchedulerOptions& options) {
  if (Status status = check_tables(tables); !status.ok()) return status;
  if (plan != nullptr) {
    if (Status status = check_plan(*plan, tables); !status.ok()) {
      status.detail().message.insert(0, "schedule plan: ");
      return status;
    }
  }
  if (options.mode == Mode::kPlanned && plan == nullptr) {
    return Status(ErrorDetail{.code = DVT_FAILED_STATE,
                              .stage = DVT_STAGE_LOAD,
                              .message = "planned scheduling was asked for, but there is no plan",
                              .hint = "compile with --workers N"});
  }
  if (tables.may_suspend && options.mode != Mode::kDynamic) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD,
                  "nodes that may suspend run as they become ready only (dynamic)");
  }
  uint32_t workers = pool == nullptr ? 1 : pool->workers();
  if (options.workers != 0) workers = std::min(workers, options.workers);
  try {
    auto state = make_in<State>(*options.memory, tables, plan, std::move(pool), workers, options);
    return make_at_in<Scheduler>(
        *options.memory, [&](void* place) { return new (place) Scheduler(std::move(state)); });
  } catch (const std::bad_alloc&) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "no memory for the scheduler's tables");
  }
}

Outcome Scheduler::run(const RunControl& control, const RunObserver* observer) noexcept {
  State& state = *state_;
  if (state.trying()) return state.try_next(control, observer);
  return state.run(state.settled, control, observer);
}

void Scheduler::forget() noexcept {
  state_->forget();
}

bool Scheduler::has_failed() const noexcept {
  return state_->shared != nullptr && state_->shared->failed();
}

Choice Scheduler::choice() const {
  if (state_->trying()) return {state_->last, "trying which is fastest"};
  if (state_->crowded) return {state_->last, "other runs have all workers of the pool"};
  return {state_->last, state_->reason.data()};
}

uint32_t Scheduler::workers() const {
  return state_->workers;
}

}  // namespace davit::mt_topo
