// Several devices of one host: parts of Npu.
#include <fmt/format.h>

#include <algorithm>

#include "npu_model/npu.hpp"

namespace davit::npu {

void Npu::leave() {
  std::replace(host_->devices.begin(), host_->devices.end(), this, static_cast<Npu*>(nullptr));
  for (Npu* other : host_->devices) {
    if (other == nullptr) continue;
    for (auto& [index, elsewhere] : other->imported_) {
      if (elsewhere.owner == this) elsewhere.owner = nullptr;
    }
  }
}

int64_t Npu::next_ps() const {
  int64_t next = kNever;
  for (const Npu* device : host_->devices) {
    if (device != nullptr) next = std::min(next, device->core_.next_ps());
  }
  return next;
}

void Npu::run_until(int64_t limit_ps) {
  const auto& devices = host_->devices;
  if (devices.size() == 1) {
    core_.run_until(limit_ps);
    return;
  }
  for (int64_t next = next_ps(); next != kNever && next <= limit_ps; next = next_ps()) {
    for (Npu* device : devices) {
      if (device != nullptr) device->core_.run_until(next);
    }
  }
  for (Npu* device : devices) {
    if (device != nullptr) device->core_.run_until(limit_ps);
  }
}

uint32_t Npu::number() const {
  const auto at = std::find(host_->devices.begin(), host_->devices.end(), this);
  return static_cast<uint32_t>(at - host_->devices.begin());
}

Npu* Npu::device_of(TaskRef task) {
  return task.device == kNone ? this : host_->devices[task.device];
}

Result<DvtNotify*> Npu::import_notify(Npu& owner, DvtNotify* notify) {
  if (owner.host_ != host_ || &owner == this) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
                  &owner == this ? "import: the notify is of this device"
                                 : "import: the devices are not of one host");
  }
  auto theirs = owner.notify_handles_.resolve(notify, "import");
  if (!theirs.ok()) return std::move(theirs.status());
  if (owner.core_.notifies()[*theirs].elsewhere) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_RUN,
                  fmt::format("import: notify {} is imported itself", *theirs));
  }
  auto created = create_notify();
  if (!created.ok()) return created;
  auto index = notify_handles_.resolve(*created, "import");
  if (!index.ok()) return std::move(index.status());
  core_.notifies()[*index].elsewhere = true;
  owner.core_.notifies()[*theirs].imported = true;
  imported_[*index] = {&owner, notify};
  return created;
}

// The owner is not ahead: devices of a host run in one order of events.
void Npu::record_elsewhere(uint32_t notify, TaskRef by) {
  const Elsewhere& elsewhere = imported_.at(notify);
  if (elsewhere.owner == nullptr) return;
  auto theirs = elsewhere.owner->notify_handles_.resolve(elsewhere.notify, "record");
  if (!theirs.ok()) return;  // Destroyed meanwhile.
  by.device = number();
  elsewhere.owner->core_.set_notify(*theirs, core_.now_ps() + cross_device_ps_, by);
}

std::string Npu::explain_others() const {
  std::string text;
  for (const Npu* other : host_->devices) {
    if (other == this || other == nullptr) continue;
    for (uint32_t i = 0; i < other->core_.streams().size(); ++i) {
      if (other->core_.streams()[i].queued() == 0) continue;
      text += fmt::format("; device {}: {}", other->number(), other->core_.explain_stream(i));
      break;
    }
  }
  return text;
}

}  // namespace davit::npu
