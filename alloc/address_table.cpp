#include "alloc/address_table.hpp"

#include <bit>

namespace davit::alloc {

bool AddressTable::grow() {
  const size_t size = !entries_.empty() ? entries_.size() * 2 : 64;
  GrowArray<uint64_t> before(entries_.memory());
  if (size > UINT32_MAX || !before.assign_zeroed(size)) return false;
  entries_.swap(before);
  home_shift_ = 32 - static_cast<uint32_t>(std::countr_zero(size));
  for (const uint64_t entry : before) {
    if (entry != 0) place(entry);
  }
  return true;
}

}  // namespace davit::alloc
