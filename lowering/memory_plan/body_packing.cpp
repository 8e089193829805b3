#include "lowering/memory_plan/body_packing.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "lowering/memory_plan/placed_blocks.hpp"

namespace davit::lowering {
namespace {

// What looking at a pair of parts, and placing a part, take in steps of the search.
constexpr uint64_t kStepsPerPair = 20, kStepsPerPart = 60;

// The parts of all bodies as blocks, for the tree of placed ones.
class Parts {
 public:
  explicit Parts(const std::vector<Body>& bodies) : of_body_(bodies.size()) {
    std::vector<uint64_t> times;
    for (uint32_t body = 0; body < bodies.size(); ++body) {
      for (const Body::Part& part : bodies[body].parts) {
        list_.push_back({body, part});
        times.push_back(part.lower);
        times.push_back(part.upper);
      }
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    std::stable_sort(list_.begin(), list_.end(),
                     [](const Entry& a, const Entry& b) { return a.part.lower < b.part.lower; });
    const auto squeezed = [&](uint64_t time) {
      return uint32_t(std::lower_bound(times.begin(), times.end(), time) - times.begin());
    };
    for (uint32_t i = 0; i < list_.size(); ++i) {
      const Entry& entry = list_[i];
      blocks_.push_back({squeezed(entry.part.lower), squeezed(entry.part.upper),
                         entry.part.high - entry.part.low});
      of_body_[entry.body].push_back(i);
    }
  }

  struct Entry {
    uint32_t body;
    Body::Part part;
  };
  [[nodiscard]] const Entry& entry(uint32_t part) const { return list_[part]; }
  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] const std::vector<uint32_t>& of_body(uint32_t body) const { return of_body_[body]; }

 private:
  std::vector<Entry> list_;  // By lower.
  std::vector<Block> blocks_;
  std::vector<std::vector<uint32_t>> of_body_;
};

class Packer {
 public:
  Packer(const std::vector<Body>& bodies, const Constraints& constraints, Budget& budget)
      : bodies_(bodies), constraints_(constraints), parts_(bodies), budget_(budget) {}

  // Fixed bodies first, wherever they are in the order.
  Result<BodyPacking> pack(const std::vector<uint32_t>& order) {
    PlacedBlocks placed(parts_.blocks());
    BodyPacking packing{.offsets = std::vector<uint64_t>(bodies_.size()), .height = 0};
    const auto put = [&](uint32_t body, uint64_t offset) {
      packing.offsets[body] = offset;
      packing.height = std::max(packing.height, offset + bodies_[body].bytes);
      for (const uint32_t part : parts_.of_body(body)) placed.place(part);
    };
    for (const uint32_t body : order) {
      const uint64_t fixed = bodies_[body].fixed;
      if (fixed == Body::kFree) continue;
      find_taken(body, placed, packing);
      for (const auto& [begin, end, other] : taken_) {
        if (begin < int64_t(fixed) && int64_t(fixed) < end) return collision(body, other);
      }
      put(body, fixed);
    }
    for (const uint32_t body : order) {
      if (bodies_[body].fixed == Body::kFree) put(body, lowest_offset(body, placed, packing));
    }
    return packing;
  }

 private:
  // Offsets strictly between begin and end would collide with `other`.
  struct Taken {
    int64_t begin, end;
    uint32_t other;
  };

  void find_taken(uint32_t body, const PlacedBlocks& placed, const BodyPacking& packing) {
    taken_.clear();
    for (const uint32_t mine : parts_.of_body(body)) {
      const Body::Part& part = parts_.entry(mine).part;
      placed.for_each_overlap(parts_.blocks()[mine], [&](uint32_t index) {
        const auto& [other, theirs] = parts_.entry(index);
        const uint64_t at = packing.offsets[other];
        taken_.push_back({int64_t(at + theirs.low) - int64_t(part.high),
                          int64_t(at + theirs.high) - int64_t(part.low), other});
      });
    }
    budget_.spend(kStepsPerPair * taken_.size() + kStepsPerPart * parts_.of_body(body).size());
  }

  uint64_t lowest_offset(uint32_t index, const PlacedBlocks& placed, const BodyPacking& packing) {
    const Body& body = bodies_[index];
    find_taken(index, placed, packing);
    std::sort(taken_.begin(), taken_.end(),
              [](const Taken& a, const Taken& b) { return a.begin < b.begin; });
    uint64_t offset = body.residue;
    for (const Taken& taken : taken_) {
      if (taken.begin >= int64_t(offset)) break;
      if (taken.end <= int64_t(offset)) continue;
      const uint64_t above = uint64_t(taken.end) - body.residue + body.alignment - 1;
      offset = (above & ~(body.alignment - 1)) + body.residue;
    }
    return offset;
  }

  [[nodiscard]] Status collision(uint32_t a, uint32_t b) const {
    const uint32_t first = bodies_[a].members.front().value;
    const uint32_t second = bodies_[b].members.front().value;
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_PLAN,
                  constraints_.name_of(std::min(first, second)) + " and " +
                      constraints_.name_of(std::max(first, second)) +
                      " are fixed at bytes that overlap while both live");
  }

  const std::vector<Body>& bodies_;
  const Constraints& constraints_;  // For names.
  Parts parts_;
  Budget& budget_;
  std::vector<Taken> taken_;
};

template <class Key>
std::vector<uint32_t> order_by(const std::vector<Body>& bodies, Key key) {
  std::vector<uint32_t> order(bodies.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return key(bodies[a]) > key(bodies[b]); });
  return order;
}

double area_of(const Body& body) {
  double area = 0;
  for (const Body::Part& part : body.parts) {
    area += double(part.high - part.low) * double(part.upper - part.lower);
  }
  return area;
}

uint64_t duration_of(const Body& body) {
  uint64_t lower = UINT64_MAX;
  uint64_t upper = 0;
  for (const Body::Part& part : body.parts) {
    lower = std::min(lower, part.lower);
    upper = std::max(upper, part.upper);
  }
  return upper > lower ? upper - lower : 0;
}

// SplitMix64.
uint64_t next_random(uint64_t& state) {
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Result<uint64_t> bodies_lower_bound(const std::vector<Body>& bodies) {
  std::vector<std::tuple<uint64_t, bool, uint64_t>> changes;  // Time, is birth, bytes.
  uint64_t most = 0;
  for (const Body& body : bodies) {
    most = std::max(most, (body.fixed == Body::kFree ? body.residue : body.fixed) + body.bytes);
    for (const Body::Part& part : body.parts) {
      changes.emplace_back(part.lower, true, part.high - part.low);
      changes.emplace_back(part.upper, false, part.high - part.low);
    }
  }
  std::sort(changes.begin(), changes.end());  // Deaths first.
  uint64_t live = 0;
  uint64_t sum_of_all = 0;
  for (const auto& [time, is_birth, bytes] : changes) {
    if (!is_birth) {
      live -= bytes;
      continue;
    }
    live += bytes;
    most = std::max(most, live);
    const auto sum = checked_add(sum_of_all, bytes);
    // The packer's worst is everything on top of each other, aligned, above what is fixed.
    if (!sum || *sum > uint64_t{1} << 61) {
      return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_PLAN, "the values need more than 2^61 bytes");
    }
    sum_of_all = *sum;
  }
  return most;
}

Result<BodyPacking> pack_bodies(const std::vector<Body>& bodies, const Constraints& constraints,
                                uint64_t enough, Budget& budget) {
  Packer packer(bodies, constraints, budget);
  std::vector<uint32_t> order = order_by(bodies, [](const Body& body) { return body.bytes; });
  auto first = packer.pack(order);
  if (!first.ok()) return std::move(first.status());
  BodyPacking best = std::move(*first);
  for (auto& other : {order_by(bodies, area_of), order_by(bodies, [](const Body& body) {
                        return std::tuple(duration_of(body), body.bytes);
                      })}) {
    if (best.height <= enough || budget.empty()) return best;
    auto packing = packer.pack(other);
    if (packing.ok() && packing->height < best.height) {
      best = std::move(*packing);
      order = other;
    }
  }
  uint64_t random = 0;
  while (best.height > enough && !budget.empty()) {
    // Mostly a body at the top goes before another one; now and then any two change places.
    std::vector<uint32_t> changed = order;
    const size_t to = next_random(random) % changed.size();
    size_t from = next_random(random) % changed.size();
    if (next_random(random) % 4 != 0) {
      const size_t start = from;
      do {
        from = (from + 1) % changed.size();
      } while (from != start &&
               best.offsets[changed[from]] + bodies[changed[from]].bytes < best.height);
      std::rotate(changed.begin() + std::ptrdiff_t(to % (from + 1)),
                  changed.begin() + std::ptrdiff_t(from),
                  changed.begin() + std::ptrdiff_t(from) + 1);
    } else {
      std::swap(changed[from], changed[to]);
    }
    auto packing = packer.pack(changed);
    if (!packing.ok() || packing->height > best.height) continue;
    best = std::move(*packing);
    order = std::move(changed);
  }
  return best;
}

}  // namespace davit::lowering
