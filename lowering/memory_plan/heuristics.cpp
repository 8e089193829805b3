#include "lowering/memory_plan/heuristics.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace davit::lowering {
namespace {

using Order = std::vector<uint32_t> (*)(const Problem&);

constexpr std::pair<Order, std::string_view> kOrders[] = {{order_by_size, "largest first"},
                                                          {order_by_breadth, "breadth first"},
                                                          {order_by_area, "largest area first"},
                                                          {order_by_duration, "longest first"}};
constexpr std::string_view kLinear[] = {"best fit in time", "best fit back in time",
                                        "best fit from the peak", "skyline"};
constexpr size_t kSkyline = 3;
constexpr size_t kFirstOrder = std::size(kLinear);
constexpr size_t kRanks = kFirstOrder + 2 * std::size(kOrders);

// Fewer blocks are packed in every way before a thread has begun.
constexpr size_t kBlocksWorthThreads = 1024;

class Contest {
 public:
  Contest(const Problem& problem, const HeuristicOptions& options)
      : problem_(problem), options_(options) {}

  Winner run() {
    // Mostly enough for networks.
    compete(0);
    if (results_[0]->height > options_.enough) {
      next_rank_.store(1, std::memory_order_relaxed);
      compete_on_threads();
    }
    size_t best = 0;
    for (size_t rank = 1; rank <= last_rank(); ++rank) {
      if (results_[rank] && results_[rank]->height < results_[best]->height) best = rank;
    }
    return {std::move(*results_[best]), name_of(best)};
  }

 private:
  // The first rank that is good enough; the last of all while none is.
  [[nodiscard]] size_t last_rank() const { return last_rank_.load(std::memory_order_relaxed); }

  void compete(size_t rank) {
    results_[rank] = pack(rank);
    if (!results_[rank] || results_[rank]->height > options_.enough) return;
    size_t last = last_rank();
    while (rank < last &&
           !last_rank_.compare_exchange_weak(last, rank, std::memory_order_relaxed)) {
    }
    for (size_t behind = rank + 1; behind < kRanks; ++behind) {
      stopped_[behind].store(true, std::memory_order_relaxed);
    }
  }

  // Ranks that nobody has taken, until there is none that counts. No exception leaves a thread.
  void take_ranks() noexcept {
    try {
      while (true) {
        const size_t rank = next_rank_.fetch_add(1, std::memory_order_relaxed);
        if (rank > last_rank()) return;
        compete(rank);
      }
    } catch (...) {
      // Other ranks do not matter any more.
      for (auto& stopped : stopped_) stopped.store(true, std::memory_order_relaxed);
      next_rank_.store(kRanks, std::memory_order_relaxed);
      if (!has_failed_.test_and_set(std::memory_order_relaxed)) failure_ = std::current_exception();
    }
  }

  void compete_on_threads() {
    const size_t cpus = std::max(std::thread::hardware_concurrency(), 1U);
    size_t threads = options_.threads == 0 ? cpus : options_.threads;
    threads = std::min(threads, kRanks - 1);
    if (problem_.blocks.size() < kBlocksWorthThreads) threads = 1;
    std::vector<std::thread> others;
    others.reserve(threads - 1);
    try {
      while (others.size() < threads - 1) others.emplace_back([this] { take_ranks(); });
    } catch (const std::system_error&) {
      // There are no more threads to be had: those that there are do it all.
    }
    take_ranks();
    for (std::thread& other : others) other.join();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  [[nodiscard]] std::optional<Packing> pack(size_t rank) const {
    switch (rank) {
      case 0:
        return pack_in_time(problem_);
      case 1:
        return pack_back_in_time(problem_);
      case 2:
        return pack_from_peak(problem_);
      case kSkyline: {
        Budget budget(options_.work_max, &stopped_[rank]);
        return pack_skyline(problem_, budget);
      }
      default:
        return pack_ordered(rank);
    }
  }

  // Those before it in rank have their share of the work, whether they use it or not.
  [[nodiscard]] std::optional<Packing> pack_ordered(size_t rank) const {
    const size_t index = rank - kFirstOrder;
    const uint64_t pairs = count_pairs(problem_);
    if (pairs > options_.work_max / (index + 1)) return std::nullopt;
    Budget budget(pairs, &stopped_[rank]);
    const bool best_fit = index >= std::size(kOrders);
    const Order order = kOrders[index % std::size(kOrders)].first;
    return pack_in_order(problem_, order(problem_), best_fit, budget);
  }

  [[nodiscard]] static std::string_view name_of(size_t rank) {
    return rank < kFirstOrder ? kLinear[rank]
                              : kOrders[(rank - kFirstOrder) % std::size(kOrders)].second;
  }

  const Problem& problem_;
  const HeuristicOptions options_;
  std::atomic<size_t> next_rank_{0};
  std::atomic<size_t> last_rank_{kRanks - 1};
  std::array<std::atomic<bool>, kRanks> stopped_{};
  // Each written by who has taken the rank, and read when all have been joined.
  std::array<std::optional<Packing>, kRanks> results_;
  std::atomic_flag has_failed_ = ATOMIC_FLAG_INIT;
  std::exception_ptr failure_;
};

}  // namespace

Winner pack_by_heuristics(const Problem& problem, const HeuristicOptions& options) {
  return Contest(problem, options).run();
}

}  // namespace davit::lowering
