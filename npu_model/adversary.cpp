// Adversarial mode: everything that the ordering rules leave open is decided by chance, and badly.
#include "npu_model/npu.hpp"

namespace davit::npu {

// One task in four starts late; one of them in eight very late.
uint32_t Npu::delay_us() {
  if (settings_.mode != DVT_NPU_ADVERSARIAL || random_.below(4) != 0) return 0;
  return random_.below(random_.below(8) == 0 ? 5000 : 200);
}

// Streams whose oldest task has ended take turns in any order, some of them not at all: what nobody
// waits for need not be visible. A wait never overtakes the record that released it.
void Npu::apply_some_effects() {
  const auto count = static_cast<uint32_t>(core_.streams().size());
  for (uint32_t turns = random_.below(4); turns > 0; --turns) {
    const uint32_t stream = random_.below(count);
    if (core_.streams()[stream].ended == 0) continue;
    if (pending_cause(stream).stream == kNone) take_effect(stream);
  }
  // Spurious wake-ups: whoever waits must look again.
  if (random_.below(4) == 0) core_.wake_for_nothing(random_.below(count));
}

// A query may be late to see what has happened, until a synchronisation has made it visible.
bool Npu::looks_unfinished(TaskRef task) {
  return settings_.mode == DVT_NPU_ADVERSARIAL && is_pending(task) && random_.below(2) == 0;
}

}  // namespace davit::npu
