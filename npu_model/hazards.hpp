// hazards.hpp: which task may see what another one wrote: happens-before by vector clocks.
//
// Tasks of one stream are ordered; a wait comes after its record; what the host submits comes after
// everything that it has seen complete. Two tasks that touch the same bytes, one of them writing,
// must be ordered that way, however they happened to run. The clock of a stream holds, for every
// stream, the first task id that it does not come after:
//
//   stream 0:  write(0)  record(1) --.            clock of stream 1 before read(3): [2, 3]
//   stream 1:                 wait(2) '-> read(3)          task 0 of stream 0 is known: 0 < 2
//
// Threads  None of its own; the NPU's lock covers it.
// Trust    Callers have checked that ranges lie in their block.
// Memory   A history keeps one segment per written range, and of each the reads since that no later
//          read comes after.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "davit/npu.h"

namespace davit::npu {

using Clock = std::vector<uint64_t>;

struct Access {
  uint32_t stream = 0;
  DvtNpuTaskType type = DVT_NPU_AI_CORE;
  uint64_t task = 0;
  const char* name = "";
};
// "stream 0 task 7 (AI_CORE /conv1/Conv)"
std::string describe(const Access& access);

// True when `access` is known to be over at `clock`.
bool is_before(const Access& access, const Clock& clock);
void join(Clock& clock, const Clock& other);

// Who touched which bytes of one block.
class History {
 public:
  enum class Kind : uint8_t { kUnwritten, kWrite, kRead };
  // The access that a new one is not ordered behind; for kUnwritten only the place.
  struct Conflict {
    Kind kind;
    uint64_t begin;
    Access other;
  };

  // Checks a new access to bytes [begin, end) and, when it is ordered, notes it.
  std::optional<Conflict> read(uint64_t begin, uint64_t end, const Access& by, const Clock& clock);
  std::optional<Conflict> write(uint64_t begin, uint64_t end, const Access& by, const Clock& clock);
  // The first of these bytes whose writer `is_stale`: who has not seen that write, though it is
  // ordered behind it.
  [[nodiscard]] std::optional<Conflict> find_stale(
      uint64_t begin, uint64_t end, const std::function<bool(const Access&)>& is_stale);

 private:
  struct Segment {
    uint64_t end;
    Access writer;
    std::vector<Access> readers;
  };
  using Segments = std::map<uint64_t, Segment>;  // By begin; they do not overlap.

  Segments::iterator first_reaching(uint64_t begin);
  // Makes `at` a boundary if it lies inside a segment.
  void split(uint64_t at);

  Segments segments_;
};

// The clocks of the streams and of the host.
class Order {
 public:
  // The stream begins anew: its queue is empty and the host has seen all of its tasks.
  void create_stream(uint32_t stream);
  // The host submits `task`: it comes after all that the host has seen so far.
  void submit(uint32_t stream, uint64_t task);
  // The clock `task` starts with; good until the next call.
  const Clock& begin(uint32_t stream, uint64_t task);
  // `begin()` has been called and what the task does is done.
  void end(uint32_t stream, uint64_t task);
  [[nodiscard]] const Clock& clock(uint32_t stream) const { return streams_[stream].clock; }
  // A wait has been released by a record that ended with `clock`.
  void wait(uint32_t stream, const Clock& clock) { join(streams_[stream].clock, clock); }
  [[nodiscard]] std::shared_ptr<const Clock> host() const { return host_; }
  // The host has seen everything that `clock` knows.
  void host_saw(const Clock& clock);
  // `task`, which has begun, invalidates the caches of AICPUs: whoever comes after it sees there
  // what it comes after.
  void invalidate(uint32_t stream, uint64_t task);
  // Whether an AICPU task that has begun, `by`, finds in its cache, or in memory, what `writer`, a
  // copy from the host, has written.
  [[nodiscard]] bool is_visible(const Access& writer, const Access& by) const;

 private:
  struct Invalidation {
    Access by;
    Clock clock;
  };
  struct Seen {
    uint64_t first_task;  // And all that are submitted later.
    std::shared_ptr<const Clock> clock;
  };
  struct StreamOrder {
    Clock clock;
    std::deque<Seen> seen;
    std::shared_ptr<const Clock> last_seen;  // Of the latest submission.
  };

  std::deque<StreamOrder> streams_;
  std::shared_ptr<const Clock> host_ = std::make_shared<Clock>();
  std::vector<Invalidation> invalidations_;
};

}  // namespace davit::npu
