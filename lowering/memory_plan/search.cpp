#include "lowering/memory_plan/search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "lowering/memory_plan/partial_plan.hpp"

namespace davit::lowering {
namespace {

using Height = PartialPlan::Height;

// SplitMix64: a hash, and a random sequence when fed with a counter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

enum class Outcome { kFits, kImpossible, kGivenUp };

// One capacity, one order of the blocks.
class Attempt {
 public:
  // `failed` holds the hashes of contours that lead nowhere; a power of two of them.
  Attempt(PartialPlan& plan, const std::vector<uint32_t>& rank, std::vector<uint64_t>& failed)
      : plan_(plan), rank_(rank), failed_(failed), kind_seen_(plan.block_count(), 0) {}

  Outcome run(Height capacity, uint64_t nodes_max, Budget& budget) {
    capacity_ = capacity;
    uint64_t steps = plan_.steps();
    const auto spend = [&] {
      return budget.spend(plan_.steps() - std::exchange(steps, plan_.steps()));
    };
    const bool may_fit = plan_.start(capacity);
    if (!spend()) return Outcome::kGivenUp;
    if (!may_fit) return Outcome::kImpossible;
    add_parts(0, plan_.section_count(), kNoFrame);
    while (!parts_.empty()) {
      if (nodes_++ == nodes_max) return Outcome::kGivenUp;
      uint32_t frame = open();
      while (frame != kNoFrame && !advance(frame)) frame = close(frame);
      if (!spend()) return Outcome::kGivenUp;
      if (frame == kNoFrame) return Outcome::kImpossible;
    }
    return Outcome::kFits;
  }

 private:
  static constexpr uint32_t kNoFrame = UINT32_MAX;

  // Sections that no waiting block leaves; they wait to be solved.
  struct Part {
    uint32_t first, end;
    uint32_t parent;  // The frame that made it.
  };
  // A part with a decision: what lies at the floor of `section`.
  struct Frame {
    Part part;
    uint32_t section;
    uint32_t candidates_begin, next;  // Untried candidates are candidates_[next...].
    bool gap_left;                    // "Nothing" is untried.
    size_t mark;                      // Of the plan.
    size_t parts;                     // Number of parts that were waiting.
    uint64_t hash;
  };

  void add_parts(uint32_t first, uint32_t end, uint32_t parent) {
    const size_t begin = parts_.size();
    for (uint32_t s = first; s < end;) {
      uint32_t next = s + 1;
      if (!plan_.waiting(s).empty()) {
        while (next < end && !plan_.is_cut(next)) ++next;
        parts_.push_back({s, next, parent});
      }
      s = next;
    }
    plan_.add_steps(end - first);
    // The smallest is solved first: if it fails, that is known soonest.
    std::stable_sort(
        parts_.begin() + std::ptrdiff_t(begin), parts_.end(),
        [](const Part& a, const Part& b) { return a.end - a.first > b.end - b.first; });
  }

  // Opens the part on top. Returns the frame to go on with.
  uint32_t open() {
    const Part part = parts_.back();
    parts_.pop_back();
    const uint64_t hash = hash_of(part);
    Frame frame{part,
                choose_section(part),
                uint32_t(candidates_.size()),
                0,
                false,
                plan_.mark(),
                parts_.size(),
                hash};
    frame.next = frame.candidates_begin;
    if (failed_[hash & (failed_.size() - 1)] != hash) add_candidates(frame);
    frames_.push_back(frame);
    return uint32_t(frames_.size() - 1);
  }

  // Tries the next case of the frame on top. False when none is left.
  bool advance(uint32_t index) {
    while (true) {
      Frame& frame = frames_[index];
      plan_.undo_to(frame.mark);
      parts_.resize(frame.parts);
      if (frame.next < candidates_.size()) {
        if (!plan_.place(candidates_[frame.next++])) continue;
      } else if (frame.gap_left) {
        frame.gap_left = false;
        const Height height = plan_.next_floor(frame.section);
        if (height == PartialPlan::kNever || !plan_.raise(frame.section, height)) continue;
      } else {
        failed_[frame.hash & (failed_.size() - 1)] = frame.hash;
        return false;
      }
      add_parts(frame.part.first, frame.part.end, index);
      return true;
    }
  }

  // Closes a frame that has failed, and all that were opened after the one that made its part.
  uint32_t close(uint32_t index) {
    const uint32_t parent = frames_[index].part.parent;
    while (!frames_.empty() && frames_.size() - 1 != parent) {
      const Frame& frame = frames_.back();
      plan_.undo_to(frame.mark);
      candidates_.resize(frame.candidates_begin);
      parts_.resize(frame.parts);
      parts_.push_back(frame.part);
      frames_.pop_back();
    }
    return parent;
  }

  uint64_t hash_of(const Part& part) const {
    uint64_t hash = mix(capacity_);
    for (uint32_t s = part.first; s < part.end; ++s) {
      hash += mix(uint64_t(plan_.floor(s)) << 32 | s);
      for (const uint16_t block : plan_.starting(s)) {
        if (plan_.is_waiting(block)) hash += mix(uint64_t(plan_.kind(block)) << 32 | UINT32_MAX);
      }
    }
    plan_.add_steps(2 * (part.end - part.first));
    return hash | 1;  // 0 is an empty slot.
  }

  // The section of a valley with the fewest cases for the conflicts it has been in.
  uint32_t choose_section(const Part& part) {
    uint32_t best = part.first;
    double best_score = 1e300;
    for (uint32_t begin = part.first; begin < part.end;) {
      const Height floor = plan_.floor(begin);
      uint32_t end = begin + 1;
      while (end < part.end && plan_.floor(end) == floor) ++end;
      const bool is_valley = (begin == part.first || plan_.floor(begin - 1) > floor) &&
                             (end == part.end || plan_.floor(end) > floor);
      for (uint32_t s = begin; is_valley && s < end; ++s) {
        const double score = score_of(s);
        if (score < best_score) {
          best_score = score;
          best = s;
        }
      }
      begin = end;
    }
    return best;
  }

  double score_of(uint32_t section) {
    const auto blocks = plan_.waiting(section);
    plan_.add_steps(blocks.size());
    uint32_t cases = plan_.slack(section) > 0 ? 1 : 0;
    for (const uint16_t block : blocks) {
      cases += plan_.lowest(block) == plan_.floor(section) ? 1 : 0;
    }
    // The root, since conflicts heap up without bound. It is exact, hence the same everywhere.
    return cases == 1 ? 0 : double(cases) / std::sqrt(1.0 + plan_.conflicts(section));
  }

  void add_candidates(Frame& frame) {
    frame.gap_left = plan_.slack(frame.section) > 0;
    for (const uint16_t block : plan_.waiting(frame.section)) {
      if (plan_.lowest(block) == plan_.floor(frame.section)) candidates_.push_back(block);
    }
    const auto begin = candidates_.begin() + frame.candidates_begin;
    std::sort(begin, candidates_.end(),
              [&](uint16_t a, uint16_t b) { return rank_[a] < rank_[b]; });
    // One of each kind is enough.
    ++kinds_time_;
    const auto is_known = [&](uint16_t block) {
      uint64_t& seen = kind_seen_[plan_.kind(block)];
      return std::exchange(seen, kinds_time_) == kinds_time_;
    };
    candidates_.erase(std::remove_if(begin, candidates_.end(), is_known), candidates_.end());
  }

  PartialPlan& plan_;
  const std::vector<uint32_t>& rank_;
  std::vector<uint64_t>& failed_;
  Height capacity_ = 0;
  uint64_t nodes_ = 0;
  std::vector<Part> parts_;
  std::vector<Frame> frames_;
  std::vector<uint16_t> candidates_;  // Of all frames.
  std::vector<uint64_t> kind_seen_;
  uint64_t kinds_time_ = 0;
};

// Orders of blocks, as ranks. Beyond the first few, values are shaken by up to 30 %.
std::vector<uint32_t> make_ranks(const Problem& problem, const PartialPlan& plan, uint64_t round) {
  const auto value = [&](uint32_t i) {
    const Block& block = problem.blocks[i];
    const double duration = block.upper - block.lower;
    const double sections = plan.end_section(i) - plan.first_section(i);
    const double size = double(block.size);
    switch (round % 4) {
      case 0:
        return duration;
      case 1:
        return duration * size;
      case 2:
        return sections;
      default:
        return sections * size;
    }
  };
  std::vector<double> values(problem.blocks.size());
  for (uint32_t i = 0; i < values.size(); ++i) {
    const uint64_t shake = round < 4 ? 0 : mix(round << 32 | i) % 601;
    values[i] = value(i) * (0.7 + double(shake) / 1000);
  }
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
  std::vector<uint32_t> rank(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

// Attempts at capacities between the bound and the best height. At first every third one is at the
// bound itself, which most problems can reach; the others halve the rest, upwards from where they
// fail.
class Descent {
 public:
  Descent(const Problem& problem, const SearchGoal& goal, Packing& best, Budget& budget)
      : problem_(problem),
        goal_(goal),
        plan_(problem),
        best_(best),
        budget_(budget),
        failed_(kFailedMax, 0) {
    const uint64_t unit = plan_.unit();
    lower_ = Height((goal.bound + unit - 1) / unit);
    enough_ = std::max(lower_, Height(std::min(goal.enough, best.height) / unit));
    given_up_ = enough_;
  }

  // Returns the largest lower bound it has shown.
  uint64_t run() {
    for (uint64_t round = 0; best_height() > enough_ && !budget_.empty(); ++round) {
      if (round % (round < kBoundRounds ? 2 : 4) == 0) attempt(enough_, round);
      given_up_ = std::max(given_up_, enough_);
      if (given_up_ + 1 >= best_height()) given_up_ = enough_;
      if (best_height() > enough_ + 1) {
        const Height between = given_up_ + (best_height() - given_up_) / 2;
        if (!attempt(between, round)) given_up_ = std::max(given_up_, between);
      }
      if (round % 4 == 3) {
        nodes_max_ += nodes_max_ / 8;
        plan_.halve_conflicts();
      }
    }
    return lower_ * plan_.unit();
  }

 private:
  static constexpr size_t kFailedMax = size_t(1) << 18;
  static constexpr uint64_t kNodesMin = 500;
  static constexpr uint64_t kBoundRounds = 16;

  [[nodiscard]] Height best_height() const { return Height(best_.height / plan_.unit()); }

  // True when it fits.
  bool attempt(Height capacity, uint64_t round) {
    const std::vector<uint32_t> rank = make_ranks(problem_, plan_, round);
    switch (Attempt(plan_, rank, failed_).run(capacity, nodes_max_, budget_)) {
      case Outcome::kFits:
        take();
        return true;
      case Outcome::kImpossible:
        lower_ = capacity + 1;
        enough_ = std::max(enough_, lower_);
        return false;
      case Outcome::kGivenUp:
        return false;
    }
    return false;
  }

  void take() {
    best_.height = 0;
    for (uint32_t i = 0; i < plan_.block_count(); ++i) {
      best_.offsets[i] = plan_.offset(i) * plan_.unit();
      best_.height = std::max(best_.height, best_.offsets[i] + problem_.blocks[i].size);
    }
    if (goal_.on_better) goal_.on_better(best_.height);
  }

  const Problem& problem_;
  const SearchGoal& goal_;
  PartialPlan plan_;
  Packing& best_;
  Budget& budget_;
  std::vector<uint64_t> failed_;
  Height lower_, enough_;  // No plan is below lower_.
  Height given_up_;        // The highest capacity tried in vain in this sweep.
  uint64_t nodes_max_ = kNodesMin;
};

}  // namespace

uint64_t search_packing(const Problem& problem, const SearchGoal& goal, Packing& best,
                        Budget& budget) {
  if (best.height <= std::max(goal.bound, goal.enough) || budget.empty()) return goal.bound;
  if (!PartialPlan::can_hold(problem, best.height)) return goal.bound;
  return Descent(problem, goal, best, budget).run();
}

}  // namespace davit::lowering
