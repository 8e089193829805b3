#include "exec/mt_topo/pool.hpp"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <pthread.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "davit/davit.h"
#include "exec/mt_topo/cpus.hpp"
#include "exec/mt_topo/crew_slots.hpp"
#include "exec/mt_topo/platform.hpp"

namespace davit::mt_topo {
namespace {

// oneTBB shares as many threads as it may have among the arenas of the process, those included that
// pools have left and nobody has cleared away yet: there have to be enough for all, or the last
// helper of a pool comes late. None is made before it is asked for.
constexpr size_t kThreadsToSpare = 16;

// More threads than CPUs. oneTBB obeys the lowest of all controls, so there is one of ours, which
// is replaced and never destroyed: oneTBB may be gone before the last pool is. `helpers`: of a new
// pool, or less than 0 of one that goes.
void allow_helpers(int64_t helpers) {
  using tbb::global_control;
  static std::mutex mutex;
  static global_control* control = nullptr;
  static int64_t total = 0;
  const std::lock_guard lock(mutex);
  total += helpers;
  const size_t workers = size_t(total) + 1 + kThreadsToSpare;
  if (global_control::active_value(global_control::max_allowed_parallelism) >= workers) return;
  delete control;
  control = new global_control(global_control::max_allowed_parallelism, workers);
}

// Shared by the pool and the tasks that it has submitted.
class Helpers final : public CrewSlots<RealThreads>, public std::enable_shared_from_this<Helpers> {
 public:
  Helpers(uint32_t helpers, int64_t spin_ns)
      : CrewSlots(helpers, spin_ns), helpers_(helpers), arena_(static_cast<int>(helpers), 0) {
    allow_helpers(helpers);
    arena_.initialize();
  }

  // Ends the tasks. Those that oneTBB does not get to in time end later, on their own.
  void retire() noexcept {
    stop();
    allow_helpers(-helpers_);
    const int64_t limit = RealThreads::now_ns() + kRetireNs;
    for (;;) {
      const uint32_t tasks = tasks_.load(std::memory_order_acquire);
      if (tasks == 0 || RealThreads::now_ns() >= limit) return;
      RealThreads::park(tasks_, tasks, kRetireNs / 10);
    }
  }

 private:
  static constexpr int64_t kRetireNs = 100'000'000;

  bool send_thread(uint32_t index) noexcept override {
    tasks_.fetch_add(1, std::memory_order_relaxed);
    try {
      submit([self = shared_from_this(), index] {
        self->attend(index);
        self->end_task();
      });
      return true;
    } catch (...) {
      end_task();
      return false;
    }
  }
  template <class Task>
  void submit(Task task) {
#if defined(__SANITIZE_THREAD__)
    // oneTBB is not built for ThreadSanitizer, which would report every task as a race with its
    // maker. Everything from the task on is the same.
    std::thread(std::move(task)).detach();
#else
    arena_.enqueue(std::move(task));
#endif
  }
  void end_task() noexcept {
    tasks_.fetch_sub(1, std::memory_order_release);
    RealThreads::unpark(&tasks_);
  }

  const int64_t helpers_;
  tbb::task_arena arena_;
  std::atomic<uint32_t> tasks_{0};
};

// How many forks led to this process since it first made a pool. Every run asks, and getpid(2)
// would cost it more than a hundred nodes.
std::atomic<uint32_t> forks{0};
uint32_t count_forks() {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (registered != 0) throw std::bad_alloc();  // It has no other reason.
  return forks.load(std::memory_order_relaxed);
}

class TbbPool final : public Pool {
 public:
  TbbPool(const PoolOptions& options, uint32_t workers)
      : workers_(workers),
        spin_ns_(std::clamp<int64_t>(options.spin_us, 0, 1'000'000) * 1000),
        made_after_(count_forks()) {
    if (workers > 1) helpers_ = std::make_shared<Helpers>(workers - 1, spin_ns_);
  }

  ~TbbPool() override {
    if (helpers_ == nullptr) return;
    if (is_mine()) {
      helpers_->retire();
    } else {
      // What oneTBB knows of threads is the parent's. Nothing here can be given back.
      new std::shared_ptr<Helpers>(std::move(helpers_));
    }
  }
  TbbPool(const TbbPool&) = delete;
  TbbPool& operator=(const TbbPool&) = delete;

  [[nodiscard]] uint32_t workers() const noexcept override { return workers_; }
  [[nodiscard]] int64_t spin_ns() const noexcept override { return spin_ns_; }
  [[nodiscard]] Crew* crew() noexcept override { return is_mine() ? helpers_.get() : nullptr; }

 private:
  // Threads do not survive a fork.
  [[nodiscard]] bool is_mine() const noexcept {
    return forks.load(std::memory_order_relaxed) == made_after_;
  }

  uint32_t workers_;
  int64_t spin_ns_;
  uint32_t made_after_;
  std::shared_ptr<Helpers> helpers_;
};

}  // namespace

Result<std::shared_ptr<Pool>> Pool::create(const PoolOptions& options) {
  const uint32_t workers =
      options.workers == 0 ? std::min(usable_cpus().threads(), kWorkersMax) : options.workers;
  if (workers > kWorkersMax) {
    return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                              .stage = DVT_STAGE_LOAD,
                              .message = "too many workers",
                              .expected = "1 to " + std::to_string(kWorkersMax),
                              .got = std::to_string(workers)});
  }
  try {
    return std::shared_ptr<Pool>(std::make_shared<TbbPool>(options, workers));
  } catch (const std::exception& error) {
    return Status(DVT_OUT_OF_RESOURCE, DVT_STAGE_LOAD,
                  std::string("cannot make a pool of workers: ") + error.what());
  }
}

}  // namespace davit::mt_topo

void dvt_pool_options_init(DvtPoolOptions* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options, .workers = 0, .spin_us = 50};
}

DvtCode dvt_pool_create(const DvtPoolOptions* options, DvtPool** out, DvtError* error) {
  using davit::ErrorDetail;
  using davit::Status;
  if (out != nullptr) *out = nullptr;
  DvtPoolOptions known;
  dvt_pool_options_init(&known);
  Status status;
  if (out == nullptr) {
    status = Status(DVT_INVALID_ARGUMENT, DVT_STAGE_NONE, "out is NULL");
  } else if (options != nullptr && options->struct_size != sizeof known) {
    status = Status(ErrorDetail{.code = DVT_VERSION_MISMATCH,
                                .stage = DVT_STAGE_LOAD,
                                .message = "DvtPoolOptions.struct_size is not one of any version",
                                .expected = std::to_string(sizeof known),
                                .got = std::to_string(options->struct_size),
                                .hint = "call dvt_pool_options_init() first"});
  } else {
    if (options != nullptr) known = *options;
    auto pool = davit::mt_topo::Pool::create({.workers = known.workers, .spin_us = known.spin_us});
    if (pool.ok()) {
      *out = new (std::nothrow) DvtPool{std::move(*pool)};
      if (*out == nullptr) status = Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "out of memory");
    } else {
      status = std::move(pool.status());
    }
  }
  if (error != nullptr) status.to_c(error);
  return status.code();
}

void dvt_pool_destroy(DvtPool* pool) {
  delete pool;
}

uint32_t dvt_pool_workers(const DvtPool* pool) {
  return pool == nullptr ? 1 : pool->pool->workers();
}
