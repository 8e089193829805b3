#include "exec/relations.hpp"

#include <string>

#include "davit/kernel.h"

namespace davit::exec {
namespace {

Status bad(const char* column, size_t index, const std::string& what) {
  return {DVT_INVALID_IMAGE, DVT_STAGE_CHECK,
          std::string(column) + "[" + std::to_string(index) + "]: " + what};
}

// A bit for each node of the launch lane, so that a million relations are looked up in the cache.
std::vector<uint64_t> launch_nodes(const RelationTables& tables) {
  std::vector<uint64_t> bits((tables.kernel.size() + 63) / 64, 0);
  for (size_t node = 0; node < tables.kernel.size(); ++node) {
    const uint32_t lane = tables.kernel_flags[tables.kernel[node]] & DVT_KERNEL_LANE_MASK;
    bits[node / 64] |= uint64_t{lane == DVT_KERNEL_LANE_LAUNCH} << (node % 64);
  }
  return bits;
}

// The fast way to see that a row is right, which adds it to `related`; what is wrong with one that
// is not, check_row() finds out. Bits of one word are gathered before the word is looked at.
bool take_row(std::span<const uint32_t> row, const std::vector<uint64_t>& launches,
              std::vector<uint64_t>& related) {
  bool right = true;
  uint64_t next = 0;  // The least that may follow.
  uint32_t at = row.front() / 64;
  uint64_t bits = 0;
  const auto flush = [&] {
    if (at >= launches.size() || (bits & ~launches[at]) != 0) return false;
    related[at] |= bits;
    return true;
  };
  for (const uint32_t launch : row) {
    right &= launch >= next;
    next = uint64_t{launch} + 1;
    if (launch / 64 != at) {
      if (!flush()) return false;
      at = launch / 64;
      bits = 0;
    }
    bits |= uint64_t{1} << (launch % 64);
  }
  return flush() && right;
}

Status check_row(const RelationTables& tables, std::span<const uint32_t> row, size_t first) {
  for (size_t i = 0; i < row.size(); ++i) {
    const uint32_t launch = row[i];
    if (launch >= tables.kernel.size()) {
      return bad("free_launch", first + i, std::to_string(launch) + " is not a node");
    }
    const uint32_t lane = tables.kernel_flags[tables.kernel[launch]] & DVT_KERNEL_LANE_MASK;
    if (lane != DVT_KERNEL_LANE_LAUNCH) {
      return bad("free_launch", first + i,
                 "node " + std::to_string(launch) + " is not on the launch lane");
    }
    if (i > 0 && launch <= row[i - 1]) {
      return bad("free_launch", first + i, "launches must be ascending");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<uint64_t>> related_nodes(const RelationTables& tables) {
  const size_t nodes = tables.kernel.size();
  const auto offsets = tables.free_offsets;
  for (size_t node = 0; node < nodes; ++node) {
    if (tables.kernel[node] >= tables.kernel_flags.size()) {
      return bad("kernel", node, std::to_string(tables.kernel[node]) + " is not in kernels");
    }
  }
  std::vector<uint64_t> related((nodes + 63) / 64, 0);
  if (offsets.empty() && tables.free_launches.empty()) return related;
  if (offsets.size() != nodes + 1 || offsets.front() != 0 ||
      offsets.back() != tables.free_launches.size()) {
    return Status(DVT_INVALID_IMAGE, DVT_STAGE_CHECK,
                  "free_off: must be " + std::to_string(nodes + 1) + " numbers from 0 to " +
                      std::to_string(tables.free_launches.size()));
  }
  const std::vector<uint64_t> launches = launch_nodes(tables);
  constexpr uint32_t kOwner = DVT_KERNEL_FREE | DVT_KERNEL_LANE_MEMORY;
  for (size_t node = 0; node < nodes; ++node) {
    if (offsets[node + 1] < offsets[node]) {
      return bad("free_off", node + 1, "offsets must not decrease");
    }
    if (offsets[node + 1] > tables.free_launches.size()) {
      return bad("free_off", node + 1, "is above the last offset");
    }
    const auto row = tables.free_launches.subspan(offsets[node], offsets[node + 1] - offsets[node]);
    if (row.empty()) continue;
    const uint32_t flags = tables.kernel_flags[tables.kernel[node]];
    if ((flags & (DVT_KERNEL_FREE | DVT_KERNEL_LANE_MASK)) != kOwner) {
      return bad("free_off", node, "the node frees nothing on the memory lane");
    }
    if (!take_row(row, launches, related)) return check_row(tables, row, offsets[node]);
    related[node / 64] |= uint64_t{1} << (node % 64);
  }
  return related;
}

}  // namespace davit::exec
