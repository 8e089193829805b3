#include "lowering/schedule/run_order.hpp"

#include <algorithm>

namespace davit::schedule {

RunOrder::RunOrder(const Plan& plan)
    : parts_(static_cast<uint32_t>(plan.part_offsets.size() - 1)),
      part_(plan.order.size()),
      position_(plan.order.size()),
      done_(plan.order.size() * parts_) {
  for (uint32_t part = 0; part < parts_; ++part) {
    for (uint32_t at = plan.part_offsets[part]; at < plan.part_offsets[part + 1]; ++at) {
      part_[plan.order[at]] = part;
      position_[plan.order[at]] = at;
    }
  }
  const auto take_over = [&](uint32_t from, std::span<uint32_t> done) {
    const auto known = done_before(from);
    for (uint32_t part = 0; part < parts_; ++part) done[part] = std::max(done[part], known[part]);
    done[part_[from]] = std::max(done[part_[from]], position_[from] + 1);
  };
  for (const uint32_t node : plan.sequence) {
    const std::span<uint32_t> done = std::span(done_).subspan(size_t{node} * parts_, parts_);
    std::copy_n(plan.part_offsets.begin(), parts_, done.begin());
    const uint32_t at = position_[node];
    if (at > plan.part_offsets[part_[node]]) take_over(plan.order[at - 1], done);
    for (uint32_t i = plan.wait_offsets[at]; i < plan.wait_offsets[at + 1]; ++i) {
      take_over(plan.order[plan.waits[i]], done);
    }
  }
}

}  // namespace davit::schedule
