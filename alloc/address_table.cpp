#include "alloc/address_table.hpp"

#include <bit>

namespace davit::alloc {

bool AddressTable::grow(const SpanHeap& heap) {
  const size_t size = slots_.size() > 0 ? slots_.size() * 2 : 64;
  GrowArray<SpanId> grown(slots_.memory());
  if (!grown.assign_zeroed(size)) return false;
  slots_.swap(grown);
  hash_shift_ = 64 - static_cast<uint32_t>(std::countr_zero(size));
  for (const SpanId id : grown) {
    if (id != 0) place(hash(heap[id].address), id);
  }
  return true;
}

}  // namespace davit::alloc
