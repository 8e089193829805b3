// traces.hpp: what allocators are asked to do in the benchmarks, as flat lists, and how they are
// replayed.
//
//   pair         one block of 1 MiB, again and again
//   mixed        sizes log-uniform from 512 B to 64 MiB in steps of 512 B, 1,000 blocks live, each
//                step frees one at random and allocates one
//   model        the activations of a real model (tests/data/intervals), allocated when they are
//                made and freed after their last use, in program order
//   interleaved  the six models together: one operation of each in turn, or in random turn
//
// Threads  None of its own.
// Memory   A trace ends with nothing live, so that it can be replayed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace davit::bench {

struct TraceStep {
  uint32_t slot;
  uint32_t bytes;  // 0: free what is in the slot.
};

struct AllocationTrace {
  std::string name;
  std::vector<TraceStep> steps;
  uint32_t slots = 0;
  uint64_t peak_live_bytes = 0;
};

AllocationTrace pair_trace();
AllocationTrace mixed_trace(uint32_t live, size_t steps, uint32_t seed);
// Exits with a message when the file cannot be read.
AllocationTrace model_trace(const std::string& folder, const std::string& name);
std::vector<AllocationTrace> model_traces(const std::string& folder);
// `steps` steps, round robin when seed is 0, else in random turn.
AllocationTrace interleaved_trace(const std::vector<AllocationTrace>& models, size_t steps,
                                  uint32_t seed);

// An Allocator has a Handle, void allocate(uint32_t bytes, Handle& out) and void free(Handle). A
// handle is written where it stays: copied, it would be loaded while it is still on its way to
// memory.
template <class Allocator>
class Replay {
 public:
  Replay(Allocator& allocator, const AllocationTrace& trace)
      : allocator_(&allocator), trace_(&trace), handles_(trace.slots) {}

  void run() {
    for (const TraceStep& step : trace_->steps) {
      if (step.bytes != 0) {
        allocator_->allocate(step.bytes, handles_[step.slot]);
      } else {
        allocator_->free(handles_[step.slot]);
      }
    }
  }

  // Bytes from the start of the range to the last that was ever used, over the peak of live bytes.
  // An Allocator that has it tells the end of a block: uint64_t end(Handle, uint32_t bytes).
  double footprint() {
    uint64_t top = 0;
    for (const TraceStep& step : trace_->steps) {
      if (step.bytes != 0) {
        allocator_->allocate(step.bytes, handles_[step.slot]);
        top = std::max(top, allocator_->end(handles_[step.slot], step.bytes));
      } else {
        allocator_->free(handles_[step.slot]);
      }
    }
    return static_cast<double>(top) / static_cast<double>(trace_->peak_live_bytes);
  }

 private:
  Allocator* allocator_;
  const AllocationTrace* trace_;
  std::vector<typename Allocator::Handle> handles_;
};

}  // namespace davit::bench
