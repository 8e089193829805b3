#include "exec/value_memory.h"

#include "base/address_sanitizer.h"

/* Bytes between heap values that nobody may touch, where somebody looks. */
enum { RED_ZONE = DVT_ADDRESS_SANITIZER ? 64 : 0 };

static DvtCode allocate(DvtValueMemory* memory, DvtAllocator* allocator, DvtCell* cell,
                        uint64_t bytes) {
  const uint32_t value = (uint32_t)(cell - memory->cells);
  DvtBlock block;
  const DvtCode code = dvt_allocator_acquire(allocator, bytes, value, &block);
  if (code != DVT_OK) {
    memory->failed = allocator;
    memory->failed_bytes = bytes;
    memory->failed_value = value;
    return code;
  }
  memory->blocks[value] = block.id;
  cell->data = block.address;
  return DVT_OK;
}

static void lock_heap(const DvtValueMemory* memory) {
  if (memory->lock != NULL) (void)pthread_mutex_lock(memory->lock);
}
static void unlock_heap(const DvtValueMemory* memory) {
  if (memory->lock != NULL) (void)pthread_mutex_unlock(memory->lock);
}

DvtCode dvt_heap_allocate(DvtValueMemory* memory, DvtCell* cell, uint64_t bytes) {
  /* What is above any limit is asked for as it is; no sum wraps. */
  const uint64_t padded = bytes > UINT64_MAX - RED_ZONE ? bytes : bytes + RED_ZONE;
  lock_heap(memory);
  const DvtCode code = allocate(memory, memory->heap, cell, padded);
  if (DVT_ADDRESS_SANITIZER && code == DVT_OK) {
    dvt_poison(cell->data, dvt_allocator_block_bytes(memory->heap, *dvt_block_of(memory, cell)));
    dvt_unpoison(cell->data, bytes);
  }
  unlock_heap(memory);
  return code;
}

void dvt_heap_release(DvtValueMemory* memory, DvtBlock block) {
  if (block.id == 0) return;
  lock_heap(memory);
  if (DVT_ADDRESS_SANITIZER) {
    dvt_poison(block.address, dvt_allocator_block_bytes(memory->heap, block.id));
  }
  (void)dvt_allocator_release(memory->heap, block.id);
  unlock_heap(memory);
}

DvtCode dvt_device_allocate(DvtValueMemory* memory, DvtCell* cell, uint64_t bytes) {
  return allocate(memory, memory->active, cell, bytes);
}

void dvt_device_free(DvtValueMemory* memory, DvtCell* cell) {
  const DvtBlock block = dvt_take_block(memory, cell);
  const uintptr_t address = (uintptr_t)block.address;
  const bool is_fixed = address >= memory->fixed_begin && address < memory->fixed_end;
  (void)dvt_allocator_release(is_fixed ? memory->fixed : memory->device, block.id);
}
