// stream_clocks.hpp: what is ordered before what on several streams, as vector clocks.
//
// Tick t of stream s covers the work that was submitted to s while its count was at most t.
// clock[o][s] is the largest tick of s that is ordered before whatever stream o gets from now on;
// the own entry clock[o][o] is the present tick, since a stream is in order.
//
//   record  event = clock[s], and s goes on to the next tick
//   wait    clock[o] = the larger of clock[o] and the event, entry by entry
//   host    waited for s: all streams take over clock[s], since all later work is submitted later
//
// Ticks are 64 bits wide and do not wrap.
//
// Threads  Those of the pools.
// Memory   (streams + events) x streams ticks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "alloc/grow_array.hpp"

namespace davit::alloc {

class StreamClocks {
 public:
  explicit StreamClocks(MetadataMemory& memory) : clocks_(memory), events_(memory) {}
  [[nodiscard]] bool init(uint32_t streams, uint32_t events) {
    streams_ = streams;
    if (!clocks_.assign_zeroed(size_t{streams} * streams)) return false;
    if (!events_.assign_zeroed(size_t{streams} * events)) return false;
    // Event entries of 0 order nothing: the first tick is 1.
    for (uint32_t stream = 0; stream < streams; ++stream) clock(stream)[stream] = 1;
    return true;
  }

  [[nodiscard]] uint64_t now(uint32_t stream) const { return clock(stream)[stream]; }
  [[nodiscard]] bool knows(uint32_t observer, uint32_t stream, uint64_t tick) const {
    return tick <= clock(observer)[stream];
  }

  void record(uint32_t stream, uint32_t event) {
    uint64_t* own = clock(stream);
    std::copy(own, own + streams_, &events_[size_t{event} * streams_]);
    ++own[stream];
  }
  void wait(uint32_t observer, uint32_t event) {
    join(clock(observer), &events_[size_t{event} * streams_], observer);
  }
  void synchronized(uint32_t stream) {
    uint64_t* own = clock(stream);
    for (uint32_t other = 0; other < streams_; ++other) {
      if (other != stream) join(clock(other), own, other);
    }
    ++own[stream];
  }

 private:
  [[nodiscard]] uint64_t* clock(uint32_t stream) { return &clocks_[size_t{stream} * streams_]; }
  [[nodiscard]] const uint64_t* clock(uint32_t stream) const {
    return &clocks_[size_t{stream} * streams_];
  }
  // A stream's own entry is its present, which nobody knows better.
  void join(uint64_t* into, const uint64_t* from, uint32_t self) const {
    for (uint32_t stream = 0; stream < streams_; ++stream) {
      if (stream != self) into[stream] = std::max(into[stream], from[stream]);
    }
  }

  GrowArray<uint64_t> clocks_;
  GrowArray<uint64_t> events_;
  uint32_t streams_ = 0;
};

}  // namespace davit::alloc
