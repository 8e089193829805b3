#include "exec/access_sweep.hpp"

#include <algorithm>
#include <utility>

namespace davit::exec {

Range data_of(const ImageView& image, uint32_t value) {
  const uint64_t offset = image.values.offset[value];
  switch (image.values.kind[value]) {
    case ValueKind::kPlanned: {
      const DvtTensor* tensor = image.tensor_of(value);
      const uint64_t bytes = tensor == nullptr ? sizeof(uint64_t) : tensor->bytes;
      return {offset, offset + std::max<uint64_t>(bytes, 1)};
    }
    case ValueKind::kOutput:
      return place_of(Place::kPort, offset);
    case ValueKind::kWord:
      return place_of(Place::kWord, value);
    default:
      return {0, 0};
  }
}

void AccessSweep::cut() {
  if (!cuts_.empty()) return;
  for (const Access& access : accesses_) {
    cuts_.push_back(access.range.begin);
    cuts_.push_back(access.range.end);
  }
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
}

std::pair<size_t, size_t> AccessSweep::pieces_of(Range range) const {
  const auto first = std::lower_bound(cuts_.begin(), cuts_.end(), range.begin);
  const auto last = std::lower_bound(first, cuts_.end(), range.end);
  return {static_cast<size_t>(first - cuts_.begin()), static_cast<size_t>(last - cuts_.begin())};
}

uint64_t AccessSweep::cost() {
  cut();
  uint64_t total = 0;
  for (const Access& access : accesses_) {
    const auto [first, last] = pieces_of(access.range);
    total += last - first;
  }
  return total;
}

void AccessSweep::run(std::span<std::vector<uint32_t>> before) {
  cut();
  std::vector<Piece> pieces(cuts_.size());
  for (uint32_t node = 0; node < node_count_; ++node) {
    const auto wait_for = [&](uint32_t other) {
      if (other != kNone && other != node) before[node].push_back(other);
    };
    const size_t end = node + 1 < begin_.size() ? begin_[node + 1] : accesses_.size();
    for (size_t i = begin_[node]; i < end; ++i) {
      const auto [first, last] = pieces_of(accesses_[i].range);
      for (size_t at = first; at < last; ++at) {
        Piece& piece = pieces[at];
        wait_for(piece.writer);
        if (!accesses_[i].writes) {
          if (piece.readers.empty() || piece.readers.back() != node) piece.readers.push_back(node);
          continue;
        }
        for (const uint32_t reader : piece.readers) wait_for(reader);
        piece.writer = node;
        piece.readers.clear();
      }
    }
  }
}

}  // namespace davit::exec
