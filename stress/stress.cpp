#include "stress/stress.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "davit/davit.h"
#include "exec/mt_topo/pool.hpp"
#include "exec/mt_topo/scheduler.hpp"
#include "stress/flow.hpp"
#include "stress/model_program.hpp"
#include "stress/program.hpp"

namespace davit::stress {
namespace {

using mt_topo::Mode;
using mt_topo::Scheduler;

constexpr uint32_t kCallersMax = 3;
// One round in so many runs a model.
constexpr uint32_t kModelEvery = 4;

// A program with its scheduler, and what one caller does with them.
struct Case : Scheduled {
  std::unique_ptr<Case> nested;                  // What a node of it may run.
  std::vector<std::pair<Event, uint64_t>> runs;  // The event of each, and at which place.
  std::string wrong;
};

// Something whose nodes end, by any thread.
struct Watched {
  std::function<uint64_t()> progress;
  std::function<std::string()> describe;
};

Watched watched(const Case& one) {
  return {[&one] { return one.program->progress(); },
          [&one] {
            return std::string(mt_topo::mode_name(one.mode)) + ", " +
                   std::to_string(one.scheduler->workers()) + " workers, " + one.program->shape() +
                   ": " + one.program->describe();
          }};
}

// Looks whether nodes end. What is watched in a round is its for as long as the round lasts.
class Watch {
 public:
  explicit Watch(const StressOptions& options) : options_(options) {
    thread_ = std::thread([this] { wait(); });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void begin(uint64_t seed, std::vector<Watched> watched) {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    watched_ = std::move(watched);
  }
  void end() { begin(0, {}); }
  [[nodiscard]] bool stalled() const { return stalled_.load(); }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    uint64_t seen = 0;
    auto since = std::chrono::steady_clock::now();
    while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return over_; })) {
      uint64_t ended = seed_ * 0x9E3779B97F4A7C15;  // Another round is progress, too.
      for (const Watched& one : watched_) ended += one.progress();
      const auto now = std::chrono::steady_clock::now();
      if (ended != seen || watched_.empty()) {
        seen = ended;
        since = now;
      } else if (std::chrono::duration<double>(now - since).count() >= options_.stall_seconds) {
        return report();
      }
    }
  }

  void report() {
    stalled_.store(true);
    std::string text = "no node has ended for " + std::to_string(options_.stall_seconds) +
                       " s; seed " + std::to_string(seed_);
    for (const Watched& one : watched_) text += "\n" + one.describe();
    if (options_.on_stall) options_.on_stall(Status(DVT_TIMEOUT, DVT_STAGE_RUN, std::move(text)));
  }

  const StressOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  uint64_t seed_ = 0;
  std::vector<Watched> watched_;
  std::atomic<bool> stalled_{false};
  std::thread thread_;
};

class Stress {
 public:
  explicit Stress(const StressOptions& options) : options_(options), watch_(options) {}

  Result<StressReport> run() {
    if (Status status = make_pools(); !status.ok()) return status;
    const auto begin = std::chrono::steady_clock::now();
    const auto time_is_up = [&] {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      return options_.seconds > 0 && spent.count() >= options_.seconds;
    };
    while ((options_.rounds == 0 || report_.rounds < options_.rounds) && !time_is_up()) {
      const uint64_t seed = options_.seed + report_.rounds;
      if (Status status = round(seed); !status.ok()) return status;
      ++report_.rounds;
      if (options_.on_progress && report_.rounds % 64 == 0) options_.on_progress(report_.rounds);
    }
    return std::move(report_);
  }

 private:
  Status make_pools() {
    for (uint32_t workers = options_.workers_min; workers <= options_.workers_max; ++workers) {
      DvtPoolOptions pool_options;
      dvt_pool_options_init(&pool_options);
      pool_options.workers = workers;
      pool_options.spin_us = workers % 2 == 0 ? 50 : 0;
      DvtPool* pool = nullptr;
      DvtError error{};
      if (dvt_pool_create(&pool_options, &pool, &error) != DVT_OK) {
        return {error.code, DVT_STAGE_LOAD, error.message};
      }
      pools_.push_back(pool->pool);
      dvt_pool_destroy(pool);
    }
    return {};
  }

  Result<std::unique_ptr<Case>> make_case(Random& random,
                                          const std::shared_ptr<mt_topo::Pool>& pool,
                                          uint32_t nodes_max) {
    const Mode mode = options_.schedule.value_or(static_cast<Mode>(random() % 4));
    const bool by_chance = random() % 2 == 0;
    auto scheduled = make_scheduled(
        random, {.pool = pool,
                 .mode = mode,
                 .suspends = mode == Mode::kDynamic && options_.suspend.value_or(by_chance),
                 .nodes_max = nodes_max,
                 .parts_max = options_.workers_max,
                 .leave_out_edge = options_.leave_out_edge});
    if (!scheduled.ok()) return std::move(scheduled.status());
    if (Status status = scheduled->program->run_oracle(); !status.ok()) return status;
    return std::unique_ptr<Case>(new Case{std::move(*scheduled), nullptr, {}, ""});
  }

  void choose_runs(Random& random, Case& one) {
    for (uint64_t run = 1 + random() % 4; run > 0; --run) {
      const Event event =
          random() % 3 == 0 ? Event::kNothing : static_cast<Event>(random() % kEvents);
      const uint64_t place = one.program->random_place(random);
      one.runs.emplace_back(event, place);
      const bool inside = event != Event::kNothing && one.program->is_in_a_body(place);
      ++report_
            .scenarios[std::string("event: ") + event_name(event) + (inside ? ", in a body" : "")];
    }
    // Whatever happened, a run after it is right.
    one.runs.emplace_back(Event::kNothing, 0);
    ++report_.scenarios[std::string("shape: ") + one.program->shape()];
    ++report_.scenarios[std::string("schedule: ") + mt_topo::mode_name(one.mode)];
    ++report_.scenarios["workers: " + std::to_string(one.scheduler->workers())];
    ++report_.scenarios[one.program->has_lanes() ? "lanes: mixed" : "lanes: normal"];
    one.program->count_flows(report_.scenarios, /*inside=*/false);
  }

  static void run_case(Case& one, const std::function<void()>& in_a_node) {
    for (const auto& [event, place] : one.runs) {
      one.program->arm(event, place, [&] {
        if (in_a_node) in_a_node();
        if (one.nested == nullptr) return true;
        one.nested->program->arm(Event::kNothing, 0);
        const mt_topo::Outcome outcome = one.nested->scheduler->run();
        return one.nested->program->check(outcome).empty();
      });
      const mt_topo::Outcome outcome = one.scheduler->run(one.program->control(), nullptr);
      one.wrong = one.program->check(outcome);
      if (!one.wrong.empty()) {
        one.wrong += std::string(" (event: ") + event_name(event) + ")";
        return;
      }
    }
  }

  Status round(uint64_t seed) {
    Random random(seed);
    const auto& pool = pools_[random() % pools_.size()];
    if (random() % kModelEvery == 0 && !options_.in_a_node) {
      return model_round(seed, random, pool);
    }
    std::vector<std::unique_ptr<Case>> cases(1 + random() % kCallersMax);
    std::vector<Watched> all;
    for (auto& one : cases) {
      auto made = make_case(random, pool, options_.nodes_max);
      if (!made.ok()) return std::move(made.status());
      one = std::move(*made);
      auto nested = make_case(random, pool, 30);
      if (!nested.ok()) return std::move(nested.status());
      one->nested = std::move(*nested);
      choose_runs(random, *one);
      if (options_.in_a_node) one->runs.front() = {Event::kNestedRun, 0};
      all.push_back(watched(*one));
      all.push_back(watched(*one->nested));
    }
    ++report_.scenarios["callers at once: " + std::to_string(cases.size())];
    watch_.begin(seed, std::move(all));
    std::vector<std::thread> callers;
    for (size_t i = 1; i < cases.size(); ++i) {
      callers.emplace_back([this, &one = *cases[i]] { run_case(one, options_.in_a_node); });
    }
    run_case(*cases[0], options_.in_a_node);
    for (std::thread& caller : callers) caller.join();
    watch_.end();
    return judge(seed, cases);
  }

  // On the host or, where the schedule is one for it, on a device.
  ModelMaking choose_model(Random& random, const std::shared_ptr<mt_topo::Pool>& pool) const {
    const bool device = !options_.schedule || options_.schedule == Mode::kDynamic;
    ModelMaking making{.pool = pool};
    const bool by_chance = random() % 2 == 0;
    making.on_device = device && random() % 2 == 0;
    making.mode = options_.schedule.value_or(static_cast<Mode>(random() % 4));
    if (making.on_device) {
      // With as little memory as in order, allocations have to suspend.
      const bool little = options_.suspend.value_or(by_chance);
      making.memory = little ? ModelMemory::kAsInOrder : ModelMemory::kEnough;
    } else {
      making.memory = static_cast<ModelMemory>(random() % 3);
    }
    return making;
  }

  Status model_round(uint64_t seed, Random& random, const std::shared_ptr<mt_topo::Pool>& pool) {
    auto made = ModelProgram::make(random, choose_model(random, pool));
    if (!made.ok()) return std::move(made.status());
    ModelProgram& program = **made;
    watch_.begin(seed, {{[&] { return program.progress(); }, [&] { return program.describe(); }}});
    std::string wrong;
    // As many as executors need to learn what sharing is worth.
    for (uint64_t run = 1 + random() % 16; run > 0 && wrong.empty(); --run) {
      wrong = program.run(random);
      ++report_.runs;
    }
    watch_.end();
    if (wrong.empty()) wrong = program.finish();
    report_.nodes += program.progress();
    for (const auto& [scenario, times] : program.scenarios()) report_.scenarios[scenario] += times;
    if (!wrong.empty()) return found(seed, wrong);
    ++report_.scenarios["model: all memory returned"];
    return watch_.stalled() ? Status(DVT_TIMEOUT, DVT_STAGE_RUN, "a run stalled") : Status();
  }

  static Status found(uint64_t seed, std::string what) {
    return Status(ErrorDetail{.code = DVT_INTERNAL,
                              .stage = DVT_STAGE_RUN,
                              .message = std::move(what),
                              .hint = "again: --seed " + std::to_string(seed) + " --rounds 1"});
  }

  Status judge(uint64_t seed, const std::vector<std::unique_ptr<Case>>& cases) {
    for (const auto& one : cases) {
      report_.runs += one->runs.size();
      report_.nodes += one->program->progress();
      report_.suspensions += one->program->suspensions();
      if (one->wrong.empty()) continue;
      return found(seed, one->wrong + "; " + mt_topo::mode_name(one->mode) + ", " +
                             std::to_string(one->scheduler->workers()) + " workers, " +
                             one->program->shape() + " of " +
                             std::to_string(one->program->count()) + " nodes");
    }
    if (watch_.stalled()) return {DVT_TIMEOUT, DVT_STAGE_RUN, "a run stalled"};
    return {};
  }

  const StressOptions& options_;
  std::vector<std::shared_ptr<mt_topo::Pool>> pools_;
  StressReport report_;
  Watch watch_;
};

}  // namespace

Result<StressReport> run(const StressOptions& options) {
  const bool bounded = options.rounds > 0 || options.seconds > 0;
  if (options.suspend == true && options.schedule && options.schedule != Mode::kDynamic) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_NONE, "only the dynamic schedule can suspend");
  }
  if (!bounded || options.workers_min < 1 || options.workers_min > options.workers_max ||
      options.workers_max > mt_topo::kWorkersMax || options.nodes_max < 1) {
    return Status(
        DVT_INVALID_ARGUMENT, DVT_STAGE_NONE,
        "stress needs rounds or seconds, 1 to 64 workers (least at most most) and at least "
        "one node");
  }
  return Stress(options).run();
}

}  // namespace davit::stress
