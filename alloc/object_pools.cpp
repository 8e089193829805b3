#include "alloc/object_pools.hpp"

#include <algorithm>
#include <cstring>

namespace davit::alloc {

ObjectPools::~ObjectPools() {
  for (const Class& of : classes_) {
    if (of.bottom != nullptr) host_.release(host_.user, of.bottom);
  }
  while (slabs_ != nullptr) {
    Slab* slab = slabs_;
    slabs_ = slab->next;
    host_.release(host_.user, slab);
  }
}

void* ObjectPools::carve(size_t kind) {
  if (!make_room(classes_[kind])) return nullptr;
  const size_t bytes = class_bytes(kind);
  if (rest_bytes_ < bytes) {
    const size_t slab_bytes = std::max(next_slab_bytes_, sizeof(Slab) + bytes);
    void* place = host_.allocate(host_.user, slab_bytes);
    if (place == nullptr) return nullptr;
    slabs_ = new (place) Slab{slabs_};
    rest_ = static_cast<std::byte*>(place) + sizeof(Slab);
    rest_bytes_ = slab_bytes - sizeof(Slab);
    next_slab_bytes_ = std::min(2 * next_slab_bytes_, kSlabBytes);
    host_bytes_ += slab_bytes;
  }
  void* object = rest_;
  rest_ += bytes;
  rest_bytes_ -= bytes;
  ++classes_[kind].objects;
  return object;
}

// For one more object. Nothing is free, so that there is nothing to move.
bool ObjectPools::make_room(Class& of) {
  if (of.objects < of.room) return true;
  const size_t room = of.room == 0 ? kFirstRoom : 2 * of.room;
  void* place = host_.allocate(host_.user, room * sizeof(void*));
  if (place == nullptr) return false;
  if (of.bottom != nullptr) host_.release(host_.user, of.bottom);
  host_bytes_ += (room - of.room) * sizeof(void*);
  of.top = of.bottom = static_cast<void**>(place);
  of.room = room;
  return true;
}

void ObjectPools::poison(void* address, size_t bytes) {
  std::memset(address, 0xDD, bytes);
}

}  // namespace davit::alloc
