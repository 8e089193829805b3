#include "alloc/object_pools.hpp"

#include <cstring>

namespace davit::alloc {

ObjectPools::~ObjectPools() {
  while (slabs_ != nullptr) {
    Slab* slab = slabs_;
    slabs_ = slab->next;
    host_.release(host_.user, slab);
  }
}

void* ObjectPools::carve(size_t kind) {
  const size_t bytes = class_bytes(kind);
  if (rest_bytes_ < bytes) {
    void* place = host_.allocate(host_.user, kSlabBytes);
    if (place == nullptr) return nullptr;
    slabs_ = new (place) Slab{slabs_};
    rest_ = static_cast<std::byte*>(place) + sizeof(Slab);
    rest_bytes_ = kSlabBytes - sizeof(Slab);
    slab_bytes_ += kSlabBytes;
  }
  void* object = rest_;
  rest_ += bytes;
  rest_bytes_ -= bytes;
  return object;
}

void ObjectPools::poison(void* address, size_t bytes) {
  std::memset(address, 0xDD, bytes);
}

}  // namespace davit::alloc
