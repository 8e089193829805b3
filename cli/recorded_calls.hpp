// recorded_calls.hpp: what each node of Main asks of a device, recorded while it runs.
//
// A device that passes every call on to an Ascend model and notes it. Calls of the bodies that a
// node runs are the node's.
//
// Threads  One thread.
// Trust    As davit/device.h.
// Memory   Borrows the model, and the executor's nodes while it observes. 32 bytes a call.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "davit/davit.h"
#include "davit/npu.h"
#include "simulation/host.hpp"

namespace davit::cli {

struct RecordedRun {
  std::vector<double> own_ns;          // Per node: on this host, beside its calls.
  std::vector<uint32_t> call_offsets;  // Per node, as in simulation::HostGraph.
  std::vector<simulation::DeviceCall> calls;
  std::vector<simulation::DeviceCall> last_calls;  // Of the executor, after the last node.
};

class CallRecorder final : public DvtDevice {
 public:
  explicit CallRecorder(DvtNpu* npu);
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  // Whose nodes are recorded from here on: Main's (DVT_NO_INDEX), or those of a body.
  void record(uint32_t body, uint32_t node_count);
  // Before each run that is to be recorded. The last one counts; what nodes take on the
  // host is the median of all.
  void begin_run();
  // A DvtNodeObserver; `user` is the recorder.
  static void observe(void* user, const DvtNodeEvent* event);
  // What was recorded. DVT_INTERNAL when the model's tasks are not those of the calls.
  Result<RecordedRun> finish();

 private:
  struct Call {
    simulation::DeviceCall call;
    uint32_t node;
    DvtNpuTaskType type;  // Of its task: the first of a kind, for kernels.
  };

  // Runs `call`, and notes what it takes on both clocks.
  template <class Function>
  DvtCode note(simulation::DeviceCall::Kind kind, DvtNpuTaskType type, const void* stream,
               const void* event, const Function& call);
  static uint32_t index_of(std::vector<const void*>& known, const void* handle);
  static DvtDeviceVtable functions();

  DvtNpu* npu_;
  uint32_t body_ = DVT_NO_INDEX;
  DvtDeviceVtable functions_;
  std::vector<const void*> streams_, events_;
  std::vector<Call> calls_;
  std::vector<std::vector<double>> own_ns_;  // By node, run by run.
  uint32_t node_ = 0;                        // That is running, or comes next.
  int64_t in_calls_ns_ = 0;                  // Of it, by this host's clock.
};

}  // namespace davit::cli
