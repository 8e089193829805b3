// npu_handle.hpp: what a DvtNpu* points at, and how the C API enters it.
//
// Threads  The lock of its host covers `npu`.
// Trust    Callers pass live NPUs.
// Memory   Owned by whoever called dvt_npu_create().
#pragma once

#include <memory>
#include <string>

#include "davit/device.h"
#include "npu_model/npu.hpp"

// The adapter of davit/device.h comes first, so that both pointers convert without arithmetic.
struct DvtNpu : DvtDevice {
  // The caller holds the lock of `host`.
  DvtNpu(davit::npu::Settings settings, std::shared_ptr<davit::npu::Host> host);

  std::string name;  // "ascend:910B2"
  DvtDeviceVtable functions;
  davit::npu::Npu npu;
};

namespace davit::npu {

// Takes the lock, unless this thread holds it: when a kernel or callback calls an NPU of its host.
class Entry {
 public:
  explicit Entry(const DvtNpu* npu);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  // Then nothing may be changed.
  [[nodiscard]] bool nested() const { return outer_ == host_; }

 private:
  static thread_local const Host* entered;

  Host* host_;
  const Host* outer_;
};

// Remembers a failure for dvt_npu_last_error().
DvtCode finish(const Status& status);
DvtCode null_output();
Status refuse_nested();

template <class T, class Out>
DvtCode finish(Result<T> result, Out* out) {
  if (!result.ok()) return finish(result.status());
  *out = *result;
  return DVT_OK;
}

// Locks, calls, and remembers the error. `call` takes an Npu& and returns a Status, or with `out` a
// Result.
template <class Call>
DvtCode enter(DvtNpu* npu, Call call) {
  const Entry entry(npu);
  return finish(entry.nested() ? refuse_nested() : call(npu->npu));
}

template <class Call, class Out>
DvtCode enter(DvtNpu* npu, Call call, Out* out) {
  const Entry entry(npu);
  return entry.nested() ? finish(refuse_nested()) : finish(call(npu->npu), out);
}

}  // namespace davit::npu
