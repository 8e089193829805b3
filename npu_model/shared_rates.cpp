#include "npu_model/shared_rates.hpp"

#include <algorithm>

namespace davit::npu {
namespace {

uint64_t key_of(uint32_t demand_mbps, uint32_t slot) {
  return uint64_t{demand_mbps} << 32 | slot;
}

uint64_t demand_of(uint64_t key) {
  return key >> 32;
}

uint32_t slot_of(uint64_t key) {
  return static_cast<uint32_t>(key);
}

}  // namespace

uint32_t SharedRates::open(uint64_t order) {
  uint32_t slot = static_cast<uint32_t>(phases_.size());
  if (free_slots_.empty()) {
    phases_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  phases_[slot] = {};
  phases_[slot].order = order;
  return slot;
}

void SharedRates::close(uint32_t slot) {
  free_slots_.push_back(slot);
}

void SharedRates::advance(int64_t now_ps) {
  if (now_ps == now_ps_) return;
  const auto passed = static_cast<uint64_t>(now_ps - now_ps_);
  now_ps_ = now_ps;
  for (Resource& r : resources_) {
    if (!r.bound.empty()) r.clock += Work{passed} * (r.level_mbps * kFullSpeed);
  }
}

// ---- Phases ------------------------------------------------------------------------------------

void SharedRates::run(uint32_t slot, int64_t now_ps, int64_t work_ps) {
  advance(now_ps);
  Phase& phase = phases_[slot];
  phase.need_mbps = phase.demand_mbps = {};
  phase.core_q16 = kFullSpeed;
  phase.state = State::kTimed;
  phase.remaining_q16 = work_ps * kFullSpeed;
  phase.updated_ps = now_ps;
  timed_.push(slot, now_ps + work_ps, phase.order);
  due_ps_ = std::min(due_ps_, now_ps + work_ps);
}

void SharedRates::run(uint32_t slot, int64_t now_ps, int64_t work_ps, uint32_t core_q16,
                      Needs needs) {
  advance(now_ps);
  Phase& phase = phases_[slot];
  // A task alone is never slower than its own timing says, whatever the capacity.
  const std::array<uint32_t, 2> stated = {needs.hbm, needs.l2};
  for (size_t r = 0; r < 2; ++r) {
    phase.need_mbps[r] =
        static_cast<uint32_t>(std::min<uint64_t>(stated[r], resources_[r].capacity_mbps));
  }
  phase.core_q16 = core_q16;
  phase.state = State::kFresh;
  phase.remaining_q16 = work_ps * kFullSpeed;
  phase.updated_ps = now_ps;
  fresh_.push_back(slot);
  enter(slot);
}

void SharedRates::stop(uint32_t slot, int64_t now_ps) {
  advance(now_ps);
  Phase& phase = phases_[slot];
  if (phase.state == State::kIdle) return;
  leave(slot);
  detach(slot);
  phase.state = State::kIdle;
}

void SharedRates::set_core_speed(uint32_t slot, int64_t now_ps, uint32_t core_q16) {
  advance(now_ps);
  Phase& phase = phases_[slot];
  if (phase.core_q16 == core_q16) return;
  leave(slot);
  const bool fresh = phase.state == State::kFresh;
  detach(slot);
  phase.core_q16 = core_q16;
  if (fresh) {
    phase.state = State::kFresh;
  } else {
    give_time(slot);
  }
  enter(slot);
}

// Joins those who share. Whoever wants more than one who is bound is bound.
void SharedRates::enter(uint32_t slot) {
  Phase& phase = phases_[slot];
  for (size_t r = 0; r < 2; ++r) {
    phase.demand_mbps[r] =
        static_cast<uint32_t>(uint64_t{phase.need_mbps[r]} * phase.core_q16 >> 16);
  }
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t demand = phase.demand_mbps[r];
    if (demand == 0) continue;
    Resource& resource = resources_[r];
    const uint64_t key = key_of(demand, slot);
    const auto at = std::lower_bound(resource.demands.begin(), resource.demands.end(), key);
    const auto index = static_cast<size_t>(at - resource.demands.begin());
    resource.demands.insert(at, key);
    resource.total_mbps += demand;
    if (index > resource.fitting) {
      bind(slot, r);
    } else {
      ++resource.fitting;
      resource.fitting_mbps += demand;
    }
  }
}

void SharedRates::leave(uint32_t slot) {
  const Phase& phase = phases_[slot];
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t demand = phase.demand_mbps[r];
    if (demand == 0) continue;
    Resource& resource = resources_[r];
    const auto at =
        std::lower_bound(resource.demands.begin(), resource.demands.end(), key_of(demand, slot));
    const auto index = static_cast<size_t>(at - resource.demands.begin());
    resource.demands.erase(at);
    resource.total_mbps -= demand;
    if (index >= resource.fitting) continue;
    --resource.fitting;
    resource.fitting_mbps -= demand;
  }
}

void SharedRates::detach(uint32_t slot) {
  Phase& phase = phases_[slot];
  if (phase.state == State::kTimed) {
    timed_.erase(slot);
    const int64_t done = (now_ps_ - phase.updated_ps) * phase.core_q16;
    phase.remaining_q16 = std::max<int64_t>(phase.remaining_q16 - done, 0);
  } else if (phase.state == State::kDue) {
    std::erase(due_, slot);
    phase.remaining_q16 = 0;
  } else if (is_bound(slot)) {
    const uint32_t r = phase.state == State::kBoundByHbm ? kHbm : kL2;
    const Resource& resource = resources_[r];
    unbind(slot, r);
    const Work left = phase.finish > resource.clock ? phase.finish - resource.clock : 0;
    const uint32_t need = phase.need_mbps[r];
    // Nearly always it fits a word, whose division is much cheaper.
    const Work rounded = left + need - 1;
    phase.remaining_q16 = static_cast<int64_t>(
        rounded >> 64 == 0 ? static_cast<uint64_t>(rounded) / need : rounded / need);
  }
  phase.updated_ps = now_ps_;
}

void SharedRates::give_time(uint32_t slot) {
  Phase& phase = phases_[slot];
  phase.state = State::kTimed;
  const int64_t speed = phase.core_q16;
  const int64_t due = now_ps_ + (phase.remaining_q16 + speed - 1) / speed;
  timed_.push(slot, due, phase.order);
}

void SharedRates::bind(uint32_t slot, uint32_t r) {
  Phase& phase = phases_[slot];
  if (phase.state == bound_by(r)) return;
  detach(slot);
  Resource& resource = resources_[r];
  if (resource.bound.empty()) resource.clock = 0;
  phase.state = bound_by(r);
  phase.finish =
      resource.clock + Work{static_cast<uint64_t>(phase.remaining_q16)} * phase.need_mbps[r];
  resource.bound.push(slot, phase.finish, phase.order);
  if (r != kHbm) return;
  phase.ratio_q16 = (uint64_t{phase.need_mbps[kL2]} << 16) / phase.need_mbps[kHbm];
  bound_l2_mbps_ += phase.demand_mbps[kL2];
  bound_ratio_q16_ += phase.ratio_q16;
}

void SharedRates::unbind(uint32_t slot, uint32_t r) {
  resources_[r].bound.erase(slot);
  if (r != kHbm) return;
  bound_l2_mbps_ -= phases_[slot].demand_mbps[kL2];
  bound_ratio_q16_ -= phases_[slot].ratio_q16;
}

void SharedRates::release(uint32_t slot) {
  if (!is_bound(slot)) return;
  detach(slot);
  give_time(slot);
}

// Whoever ends in the same picosecond does so in order of dispatch, bound or not (S2).
uint32_t SharedRates::next_due(int64_t now_ps) {
  advance(now_ps);
  const auto later = [&](uint32_t a, uint32_t b) { return phases_[a].order > phases_[b].order; };
  for (uint32_t r = 0; r < 2; ++r) {
    Resource& resource = resources_[r];
    while (!resource.bound.empty() && resource.bound.least() <= resource.clock) {
      const uint32_t slot = resource.bound.first();
      unbind(slot, r);
      phases_[slot].state = State::kDue;
      due_.insert(std::lower_bound(due_.begin(), due_.end(), slot, later), slot);
    }
  }
  const bool timed = !timed_.empty() && timed_.least() <= now_ps;
  uint32_t slot = kNone;
  if (!due_.empty() && (!timed || later(timed_.first(), due_.back()))) {
    slot = due_.back();
    due_.pop_back();
  } else if (timed) {
    slot = timed_.first();
    timed_.erase(slot);
  } else {
    due_ps_ = kNever;  // Until settle(), or until something else begins.
    return kNone;
  }
  leave(slot);
  phases_[slot].state = State::kIdle;
  return slot;
}

// ---- Sharing -----------------------------------------------------------------------------------

// Moves the border between those who fit and those who are bound, and sets the level.
void SharedRates::rebalance(uint32_t r) {
  Resource& resource = resources_[r];
  const size_t count = resource.demands.size();
  for (; resource.fitting < count; ++resource.fitting) {
    const uint64_t key = resource.demands[resource.fitting];
    const uint64_t sharers = count - resource.fitting;
    if (resource.fitting_mbps + demand_of(key) * sharers > resource.capacity_mbps) break;
    resource.fitting_mbps += demand_of(key);
    if (phases_[slot_of(key)].state == bound_by(r)) release(slot_of(key));
  }
  for (; resource.fitting > 0; --resource.fitting) {
    const uint64_t key = resource.demands[resource.fitting - 1];
    const uint64_t others = resource.fitting_mbps - demand_of(key);
    const uint64_t sharers = count - resource.fitting + 1;
    if (others + demand_of(key) * sharers <= resource.capacity_mbps) break;
    resource.fitting_mbps = others;
    bind(slot_of(key), r);
  }
  if (resource.fitting == count) return;
  resource.level_mbps = std::max<uint64_t>(
      (resource.capacity_mbps - resource.fitting_mbps) / (count - resource.fitting), 1);
}

// As if there were enough for all.
void SharedRates::release_all(uint32_t r) {
  Resource& resource = resources_[r];
  while (!resource.bound.empty()) release(resource.bound.first());
  resource.fitting = resource.demands.size();
  resource.fitting_mbps = resource.total_mbps;
}

// HBM binds some, and yet L2 has not enough for what is left: the rare case. Looks at every phase.
void SharedRates::bind_by_l2_too() {
  Resource& l2 = resources_[kL2];
  wanted_.clear();
  for (const uint64_t key : l2.demands) {
    const Phase& phase = phases_[slot_of(key)];
    uint64_t wanted = demand_of(key);
    if (phase.state == State::kBoundByHbm) {
      wanted = std::min(wanted,
                        resources_[kHbm].level_mbps * phase.need_mbps[kL2] / phase.need_mbps[kHbm]);
    }
    wanted_.push_back(key_of(static_cast<uint32_t>(wanted), slot_of(key)));
  }
  std::sort(wanted_.begin(), wanted_.end());
  uint64_t left = l2.capacity_mbps;
  size_t fitting = 0;
  for (; fitting < wanted_.size(); ++fitting) {
    const uint64_t wanted = demand_of(wanted_[fitting]);
    if (wanted * (wanted_.size() - fitting) > left) break;
    left -= wanted;
  }
  if (fitting == wanted_.size()) return;
  l2.level_mbps = std::max<uint64_t>(left / (wanted_.size() - fitting), 1);
  for (; fitting < wanted_.size(); ++fitting) bind(slot_of(wanted_[fitting]), kL2);
}

void SharedRates::settle(int64_t now_ps) {
  advance(now_ps);
  Resource& hbm = resources_[kHbm];
  Resource& l2 = resources_[kL2];
  if (both_are_short_) {
    both_are_short_ = false;
    release_all(kL2);
    for (size_t i = hbm.fitting; i < hbm.demands.size(); ++i) bind(slot_of(hbm.demands[i]), kHbm);
  }
  rebalance(kHbm);
  if (hbm.fitting == hbm.demands.size()) {
    rebalance(kL2);
  } else {
    if (l2.fitting < l2.demands.size()) release_all(kL2);
    const uint64_t bound_mbps = (hbm.level_mbps * bound_ratio_q16_) >> 16;
    both_are_short_ = l2.total_mbps - bound_l2_mbps_ + bound_mbps > l2.capacity_mbps;
    if (both_are_short_) bind_by_l2_too();
  }
  for (const uint32_t slot : fresh_) {
    if (phases_[slot].state == State::kFresh) give_time(slot);
  }
  fresh_.clear();
  due_ps_ = timed_.empty() ? kNever : timed_.least();
  for (const Resource& resource : resources_) {
    if (!resource.bound.empty()) due_ps_ = std::min(due_ps_, clock_due_ps(resource));
  }
}

int64_t SharedRates::clock_due_ps(const Resource& resource) const {
  if (resource.bound.least() <= resource.clock) return now_ps_;
  const Work left = resource.bound.least() - resource.clock;
  const uint64_t pace = resource.level_mbps * kFullSpeed;
  const Work rounded = left + pace - 1;
  const Work wait = rounded >> 64 == 0 ? static_cast<uint64_t>(rounded) / pace : rounded / pace;
  const auto most = static_cast<uint64_t>(kNever / 2 - now_ps_);
  return now_ps_ + static_cast<int64_t>(wait > most ? Work{most} : wait);
}

}  // namespace davit::npu
