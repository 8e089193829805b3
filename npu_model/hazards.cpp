#include "npu_model/hazards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace davit::npu {

std::string describe(const Access& access) {
  std::string text = fmt::format("stream {} task {} ({}", access.stream, access.task,
                                 dvt_npu_task_type_name(access.type));
  if (*access.name != '\0') text += fmt::format(" {}", access.name);
  return text + ")";
}

bool is_before(const Access& access, const Clock& clock) {
  return access.stream < clock.size() && access.task < clock[access.stream];
}

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

// ---- History -----------------------------------------------------------------------------------

History::Segments::iterator History::first_reaching(uint64_t begin) {
  auto it = segments_.upper_bound(begin);
  if (it != segments_.begin() && std::prev(it)->second.end > begin) --it;
  return it;
}

void History::split(uint64_t at) {
  const auto it = first_reaching(at);
  if (it == segments_.end() || it->first >= at) return;
  Segment tail = it->second;
  it->second.end = at;
  segments_.emplace(at, std::move(tail));
}

std::optional<History::Conflict> History::read(uint64_t begin, uint64_t end, const Access& by,
                                               const Clock& clock) {
  uint64_t covered = begin;
  for (auto it = first_reaching(begin); it != segments_.end() && it->first < end; ++it) {
    if (it->first > covered) break;
    const Segment& segment = it->second;
    if (!is_before(segment.writer, clock) && segment.writer.task != by.task) {
      return Conflict{Kind::kWrite, it->first, segment.writer};
    }
    covered = segment.end;
  }
  if (covered < end) return Conflict{Kind::kUnwritten, covered, {}};
  split(begin);
  split(end);
  for (auto it = first_reaching(begin); it != segments_.end() && it->first < end; ++it) {
    auto& readers = it->second.readers;
    std::erase_if(readers, [&](const Access& reader) { return is_before(reader, clock); });
    readers.push_back(by);
  }
  return std::nullopt;
}

std::optional<History::Conflict> History::write(uint64_t begin, uint64_t end, const Access& by,
                                                const Clock& clock) {
  const auto clashes = [&](const Access& other) {
    return other.task != by.task && !is_before(other, clock);
  };
  for (auto it = first_reaching(begin); it != segments_.end() && it->first < end; ++it) {
    const Segment& segment = it->second;
    const auto reader = std::find_if(segment.readers.begin(), segment.readers.end(), clashes);
    if (reader != segment.readers.end()) return Conflict{Kind::kRead, it->first, *reader};
    if (clashes(segment.writer)) return Conflict{Kind::kWrite, it->first, segment.writer};
  }
  if (begin >= end) return std::nullopt;
  split(begin);
  split(end);
  segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(end));
  segments_.emplace(begin, Segment{end, by, {}});
  return std::nullopt;
}

std::optional<History::Conflict> History::find_stale(
    uint64_t begin, uint64_t end, const std::function<bool(const Access&)>& is_stale) {
  for (auto it = first_reaching(begin); it != segments_.end() && it->first < end; ++it) {
    if (is_stale(it->second.writer)) return Conflict{Kind::kWrite, it->first, it->second.writer};
  }
  return std::nullopt;
}

// ---- Order -------------------------------------------------------------------------------------

void Order::create_stream(uint32_t stream) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  streams_[stream] = {};
}

void Order::submit(uint32_t stream, uint64_t task) {
  StreamOrder& s = streams_[stream];
  if (s.last_seen == host_) return;
  s.last_seen = host_;
  s.seen.push_back({task, host_});
}

const Clock& Order::begin(uint32_t stream, uint64_t task) {
  StreamOrder& s = streams_[stream];
  while (!s.seen.empty() && s.seen.front().first_task <= task) {
    join(s.clock, *s.seen.front().clock);
    s.seen.pop_front();
  }
  return s.clock;
}

void Order::end(uint32_t stream, uint64_t task) {
  Clock& clock = streams_[stream].clock;
  if (clock.size() <= stream) clock.resize(stream + 1);
  clock[stream] = task + 1;
}

void Order::host_saw(const Clock& clock) {
  const bool news = std::mismatch(clock.begin(), clock.end(), host_->begin(), host_->end(),
                                  [](uint64_t a, uint64_t b) { return a <= b; })
                        .first != clock.end();
  if (!news) return;
  auto joined = std::make_shared<Clock>(*host_);
  join(*joined, clock);
  host_ = std::move(joined);
}

void Order::invalidate(uint32_t stream, uint64_t task) {
  invalidations_.push_back({{stream, DVT_NPU_AI_CPU, task, ""}, streams_[stream].clock});
}

bool Order::is_visible(const Access& writer, const Access& by) const {
  const Clock& clock = streams_[by.stream].clock;
  return std::any_of(invalidations_.rbegin(), invalidations_.rend(), [&](const auto& earlier) {
    return (earlier.by.task == by.task || is_before(earlier.by, clock)) &&
           is_before(writer, earlier.clock);
  });
}

}  // namespace davit::npu
