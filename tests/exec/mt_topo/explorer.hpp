// explorer.hpp: runs the real code of the scheduler under interleavings of its own choice.
//
// Threads are fibers of one thread; every operation of Explored is a point where another may go on.
// What may happen next is a list of options; explore() goes through the lists depth first, so that
// it has seen everything with at most so many preemptions, or draws from them by a seed. Every
// execution is known by its choices, and can be run again.
//
//   memory    sequentially consistent but for stores, which may stay in a buffer of their thread,
//   as
//             processors keep them: until it does something locked or calls the kernel, until
//             heavy_fence() of anybody (membarrier), or until nobody has anything else to do
//   time      passes with every look at the clock and every turn of a loop that waits
//   waiting   who spins goes on when memory is not what it was, or when all others wait, too
//   a hang    all are parked, or more steps than any execution needs
//
// Not shown are reorderings that x86 does not have: ThreadSanitizer judges acquire and release in
// the other tests.
//
// Threads  One explorer at a time in a process, on one thread.
// Memory   Fibers have stacks of 128 KiB.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/mt_topo/crew_slots.hpp"

namespace davit::test {

struct ExploreOptions {
  uint32_t preemptions = 2;       // At most, in each execution; a store that stays counts, too.
  uint64_t executions = 1000000;  // At most.
  bool store_buffers = true;
  bool membarrier = true;    // False: heavy_fence() empties the caller's own buffer only.
  uint64_t random_seed = 0;  // Not 0: draws `executions` of them, without a bound on preemptions.
  std::vector<uint32_t>
      replay;  // Not empty: one execution, with these choices, found by these bounds.
};

struct Exploration {
  uint64_t executions = 0;
  bool complete = false;          // All within the bound have been seen.
  std::string failure;            // Of the first that went wrong; empty when none did.
  std::vector<uint32_t> choices;  // Of that one.
};

class Explorer {
 public:
  static Explorer& current() { return *current_; }

  // Calls `body` as thread 0 of each execution.
  static Exploration explore(const ExploreOptions& options, const std::function<void()>& body) {
    Explorer explorer(options, body);
    return explorer.run();
  }

  // From within an execution.
  void spawn(std::function<void()> body) { add_fiber(std::move(body)); }
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }

  // ---- For Explored.
  void point() { maybe_switch(); }
  void wrote(const void* to, uint64_t before, uint64_t after) {
    memory_ ^= trace_of(to, before) ^ trace_of(to, after);
  }
  int64_t now() { return time_ += 1; }
  void relax() {
    time_ += 200;
    Fiber& me = *fibers_[running_];
    me.state = State::kSpinning;
    me.seen = memory_;
    yield();
  }
  void park(const void* word, const std::function<bool()>& unchanged, bool for_ever) {
    flush(running_);
    maybe_switch();
    if (!unchanged()) return;
    if (!for_ever) return relax();
    fibers_[running_]->state = State::kParked;
    fibers_[running_]->word = word;
    yield();
  }
  void unpark(const void* word) {
    flush(running_);
    maybe_switch();
    for (const auto& fiber : fibers_) {
      if (fiber->state == State::kParked && fiber->word == word) fiber->state = State::kReady;
    }
  }
  void heavy_fence() {
    maybe_switch();
    for (uint32_t i = 0; i < fibers_.size(); ++i) {
      if (options_.membarrier || i == running_) flush(i);
    }
  }

  // A store of up to 8 bytes: to memory, or into the buffer of the running thread.
  void store(void* to, uint64_t bits, uint32_t bytes) {
    maybe_switch();
    auto& buffer = fibers_[running_]->buffer;
    const bool may_stay = options_.store_buffers && (buffer.empty() ? may_preempt() : true);
    if (!buffer.empty() || (may_stay && choose(2) == 1)) {
      if (buffer.empty()) ++preemptions_;
      buffer.push_back({to, bits, bytes});
      return;
    }
    write(to, bits, bytes);
  }
  // What the running thread sees there.
  uint64_t load(const void* from, uint32_t bytes) {
    maybe_switch();
    const auto& buffer = fibers_[running_]->buffer;
    for (size_t i = buffer.size(); i-- > 0;) {
      if (buffer[i].to == from) return buffer[i].bits;
    }
    uint64_t bits = 0;
    std::memcpy(&bits, from, bytes);
    return bits;
  }
  // Before a locked operation.
  void lock() {
    maybe_switch();
    flush(running_);
  }

 private:
  enum class State : uint8_t { kReady, kSpinning, kParked, kEnded };
  struct Stored {
    void* to;
    uint64_t bits;
    uint32_t bytes;
  };
  struct Fiber {
    std::function<void()> body;
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    State state = State::kReady;
    uint64_t seen = 0;
    uint64_t ran_at = 0;  // Step.
    const void* word = nullptr;
    std::vector<Stored> buffer;
  };
  static constexpr size_t kStackBytes = 128 * 1024;
  static constexpr uint64_t kStepsMax = 200'000;
  static constexpr uint32_t kNobody = UINT32_MAX;

  Explorer(const ExploreOptions& options, const std::function<void()>& body)
      : options_(options), body_(body), random_(options.random_seed) {}

  Exploration run() {
    current_ = this;
    Exploration result;
    do {
      execute();
      ++result.executions;
      if (!failure_.empty()) {
        result.failure = failure_;
        for (const Choice& choice : choices_) result.choices.push_back(choice.taken);
        break;
      }
      if (!options_.replay.empty()) break;
      result.complete = options_.random_seed == 0 && !next();
    } while (!result.complete && result.executions < options_.executions);
    current_ = nullptr;
    return result;
  }

  void execute() {
    fibers_.clear();
    failure_.clear();
    at_ = 0;
    steps_ = 0;
    preemptions_ = 0;
    time_ = 0;
    memory_ = 0;
    if (options_.random_seed != 0) choices_.clear();
    add_fiber(body_);
    running_ = 0;
    swapcontext(&main_, &fibers_[0]->context);
  }

  // The next path of the search; false: there is none.
  bool next() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of) {
      choices_.pop_back();
    }
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

  // 0 to of - 1.
  uint32_t choose(uint32_t of) {
    if (of == 1) return 0;
    if (!options_.replay.empty()) {
      const uint32_t wanted = at_ < options_.replay.size() ? options_.replay[at_] : 0;
      ++at_;
      return std::min(wanted, of - 1);
    }
    if (at_ == choices_.size()) {
      // By a seed, most points are passed: else nobody would get anywhere.
      const bool drawn = options_.random_seed != 0 && random_() % 4 == 0;
      choices_.push_back({drawn ? static_cast<uint32_t>(random_() % of) : 0, of});
    }
    if (choices_[at_].of != of) fail("the execution does not follow from its choices");
    return std::min(choices_[at_++].taken, of - 1);
  }
  [[nodiscard]] bool may_preempt() const {
    return options_.random_seed != 0 || preemptions_ < options_.preemptions;
  }

  void add_fiber(std::function<void()> body) {
    auto fiber = std::make_unique<Fiber>();
    fiber->body = std::move(body);
    fiber->stack.reset(new char[kStackBytes]);
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, &Explorer::enter, 0);
    fibers_.push_back(std::move(fiber));
  }

  static void enter() {
    Explorer& self = *current_;
    self.fibers_[self.running_]->body();
    self.maybe_switch();  // What has been stored may arrive late.
    self.flush(self.running_);
    self.fibers_[self.running_]->state = State::kEnded;
    self.yield();
    std::abort();  // Nobody goes on with a fiber that has ended.
  }

  static uint64_t trace_of(const void* to, uint64_t bits) {
    uint64_t hash = (reinterpret_cast<uintptr_t>(to) ^ bits * 0x9E3779B97F4A7C15) + bits;
    hash = (hash ^ hash >> 31) * 0xBF58476D1CE4E5B9;
    return hash ^ hash >> 29;
  }
  void write(void* to, uint64_t bits, uint32_t bytes) {
    uint64_t before = 0;
    std::memcpy(&before, to, bytes);
    std::memcpy(to, &bits, bytes);
    wrote(to, before, bits);
  }

  void flush(uint32_t fiber) {
    for (const Stored& stored : fibers_[fiber]->buffer) {
      write(stored.to, stored.bits, stored.bytes);
    }
    fibers_[fiber]->buffer.clear();
  }

  [[nodiscard]] bool can_run(uint32_t index) const {
    const Fiber& fiber = *fibers_[index];
    return fiber.state == State::kReady ||
           (fiber.state == State::kSpinning && fiber.seen != memory_);
  }

  // A point of the running thread: it goes on, or is preempted.
  void maybe_switch() {
    if (++steps_ > kStepsMax) {
      fail("more steps than any execution needs: somebody spins for ever");
      leave();
    }
    if (!may_preempt()) return;
    std::vector<uint32_t> others;
    for (uint32_t i = 0; i < fibers_.size(); ++i) {
      if (i != running_ && can_run(i)) others.push_back(i);
    }
    const uint32_t choice = choose(static_cast<uint32_t>(others.size()) + 1);
    if (choice == 0) return;
    ++preemptions_;
    go_to(others[choice - 1]);
  }

  // The running thread cannot go on, or waits: somebody else does.
  void yield() {
    if (++steps_ > kStepsMax) fail("more steps than any execution needs: somebody spins for ever");
    uint32_t to = failure_.empty() || steps_ <= kStepsMax ? choose_ready() : kNobody;
    if (to == kNobody) leave();
    go_to(to);
  }

  uint32_t choose_ready() {
    for (int attempt = 0; attempt < 3; ++attempt) {
      std::vector<uint32_t> ready;
      bool all_ended = true;
      for (uint32_t i = 0; i < fibers_.size(); ++i) {
        all_ended = all_ended && fibers_[i]->state == State::kEnded;
        // In the last attempt those who spin go on, too: time passes for them.
        const bool spins = attempt == 2 && fibers_[i]->state == State::kSpinning;
        if (can_run(i) || spins) ready.push_back(i);
      }
      if (all_ended) return kNobody;
      // Who has waited longest comes first, so that nobody spins for ever in the way of another.
      std::ranges::stable_sort(ready, {}, [&](uint32_t i) { return fibers_[i]->ran_at; });
      if (!ready.empty()) {
        return ready[attempt == 2 ? 0 : choose(static_cast<uint32_t>(ready.size()))];
      }
      // Nobody has anything to do: what has been stored arrives.
      if (attempt == 0) {
        for (uint32_t i = 0; i < fibers_.size(); ++i) flush(i);
      }
    }
    fail("a hang: all threads are parked");
    return kNobody;
  }

  void go_to(uint32_t to) {
    const uint32_t from = running_;
    fibers_[to]->state = State::kReady;
    fibers_[to]->ran_at = steps_;
    if (to == from) return;
    running_ = to;
    swapcontext(&fibers_[from]->context, &fibers_[to]->context);
  }

  // The execution is over. Stacks that have not been unwound are given up.
  [[noreturn]] void leave() {
    setcontext(&main_);
    std::abort();
  }

  struct Choice {
    uint32_t taken;
    uint32_t of;
  };

  inline static Explorer* current_ = nullptr;
  const ExploreOptions options_;
  const std::function<void()>& body_;
  std::mt19937_64 random_;
  std::vector<Choice> choices_;
  size_t at_ = 0;
  uint64_t steps_ = 0;
  uint32_t preemptions_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  uint32_t running_ = 0;
  int64_t time_ = 0;
  uint64_t memory_ = 0;  // What has been written, as one number: equal when all is as it was.
  std::string failure_;
  ucontext_t main_{};
};

// The platform (exec/mt_topo/platform.hpp).
struct Explored {
  template <class T>
  class Atom {
   public:
    static_assert(sizeof(T) <= 8);
    Atom() = default;
    Atom(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic.
    Atom(const Atom&) = delete;
    Atom& operator=(const Atom&) = delete;

    T load(std::memory_order /*order*/) const {
      const uint64_t bits = Explorer::current().load(&value_, sizeof value_);
      T value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    void store(T value, std::memory_order /*order*/) {
      Explorer::current().store(&value_, bits_of(value), sizeof value_);
    }
    T exchange(T value, std::memory_order /*order*/) {
      return change([&](T /*old*/) { return value; });
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order /*success*/,
                                 std::memory_order /*failure*/ = std::memory_order_relaxed) {
      Explorer::current().lock();
      if (value_ != expected) {
        expected = value_;
        return false;
      }
      value_ = value;
      Explorer::current().wrote(&value_, bits_of(expected), bits_of(value));
      return true;
    }
    bool compare_exchange_weak(T& expected, T value, std::memory_order success,
                               std::memory_order failure = std::memory_order_relaxed) {
      return compare_exchange_strong(expected, value, success, failure);
    }
    T fetch_add(T more, std::memory_order /*order*/) {
      return change([&](T old) { return static_cast<T>(old + more); });
    }
    T fetch_sub(T less, std::memory_order /*order*/) {
      return change([&](T old) { return static_cast<T>(old - less); });
    }
    T fetch_or(T bits, std::memory_order /*order*/) {
      return change([&](T old) { return static_cast<T>(old | bits); });
    }
    T fetch_and(T bits, std::memory_order /*order*/) {
      return change([&](T old) { return static_cast<T>(old & bits); });
    }

   private:
    template <class Change>
    T change(const Change& to) {
      Explorer::current().lock();
      const T old = value_;
      value_ = to(old);
      Explorer::current().wrote(&value_, bits_of(old), bits_of(value_));
      return old;
    }
    static uint64_t bits_of(T value) {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof value);
      return bits;
    }

    T value_{};
  };

  static void relax() { Explorer::current().relax(); }
  static void light_fence() {}  // A compiler barrier.
  static void heavy_fence() { Explorer::current().heavy_fence(); }
  static void park(const Atom<uint32_t>& word, uint32_t expected, int64_t timeout_ns = -1) {
    Explorer::current().park(
        &word, [&] { return word.load(std::memory_order_relaxed) == expected; }, timeout_ns < 0);
  }
  static void unpark(const Atom<uint32_t>* word) { Explorer::current().unpark(word); }
  static int64_t now_ns() { return Explorer::current().now(); }
};

// Helpers that are fibers.
class ExploredCrew final : public mt_topo::CrewSlots<Explored> {
 public:
  using CrewSlots::CrewSlots;

  // Threads that have not gone yet: the crew must outlive them.
  [[nodiscard]] uint32_t attending() const { return attending_; }

 private:
  bool send_thread(uint32_t index) noexcept override {
    ++attending_;
    Explorer::current().spawn([this, index] {
      attend(index);
      Explored::heavy_fence();  // Nothing of this thread is on its way any more.
      --attending_;
    });
    return true;
  }

  uint32_t attending_ = 0;
};

}  // namespace davit::test
