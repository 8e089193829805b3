/* value_memory.h: memory of values whose size is known at run time only: heap values in host
 * memory, and what AllocMemHbm nodes ask a device for. What Init allocates on a device is asked for
 * once and never used again, so that a cache would only be in its way: it comes from the device
 * itself, or from memory that the caller has allocated there.
 *
 * Every executor has a caching allocator (alloc/caching_allocator.h) for each of these that it
 * needs. A value owns at most one block; which one, a column beside the cells says, since a cell
 * has room for the address alone:
 *
 *   cells    | tensor, data | tensor, data | ...
 *   blocks   | id           | 0            | ...    0: data is a view, planned, bound, or nothing
 *
 * In builds with AddressSanitizer, heap memory that no value owns is poisoned.
 *
 * Threads  One at a time: the memory lane. Where bodies run beside other nodes, each graph has such
 * a lane, and `lock` keeps the heap, which they share, to one of them at a time. Trust
 * exec/verify_dynamic.cpp proves that memory is allocated once and not used after its Free. Memory
 * The executor owns the struct and what it points at. A cached allocation takes nothing from the
 * host.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "alloc/caching_allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtValueMemory {
  DvtAllocator* heap;    /* NULL: no value is dynamic. */
  pthread_mutex_t* lock; /* Of the heap; NULL: its lane is enough. */
  DvtAllocator* device;  /* Of Main. NULL: its Alloc nodes call the device. */
  DvtAllocator* fixed;   /* Of Init, over memory of the caller's. NULL: as above. */
  uintptr_t fixed_begin, fixed_end;
  const DvtCell* cells;
  uint64_t* blocks; /* [values] */
  /* Of the last failure, until somebody has told about it. */
  const DvtAllocator* failed;
  uint64_t failed_bytes;
  uint32_t failed_value;
  DvtAllocator*
      active; /* Which of the two Alloc nodes of the graph that is running use, or NULL. */
} DvtValueMemory;

/* Points cell->data at `bytes` bytes, aligned to 64. The value owned nothing before. */
DVT_NODISCARD DvtCode dvt_heap_allocate(DvtValueMemory* memory, DvtCell* cell, uint64_t bytes);
/* The same on a device. Precondition: active is not NULL. */
DVT_NODISCARD DvtCode dvt_device_allocate(DvtValueMemory* memory, DvtCell* cell, uint64_t bytes);

/* In use by values; of no allocator: 0. */
static inline uint64_t dvt_live_bytes(const DvtAllocator* allocator) {
  return allocator != NULL ? dvt_allocator_live_bytes(allocator) : 0;
}

static inline uint64_t* dvt_block_of(const DvtValueMemory* memory, const DvtCell* cell) {
  return &memory->blocks[cell - memory->cells];
}
static inline bool dvt_owns_memory(const DvtValueMemory* memory, const DvtCell* cell) {
  return *dvt_block_of(memory, cell) != 0;
}

/* The block of a value, which owns nothing from now on and has no data; id 0: it owned nothing. */
static inline DvtBlock dvt_take_block(DvtValueMemory* memory, DvtCell* cell) {
  const DvtBlock block = {cell->data, *dvt_block_of(memory, cell)};
  cell->data = NULL;
  *dvt_block_of(memory, cell) = 0;
  return block;
}
/* A value that owned nothing gets a block. */
static inline void dvt_give_block(DvtValueMemory* memory, DvtCell* cell, DvtBlock block) {
  cell->data = block.address;
  *dvt_block_of(memory, cell) = block.id;
}
/* Frees a block that no value owns; one of id 0 is fine. */
void dvt_heap_release(DvtValueMemory* memory, DvtBlock block);

/* Gives back what a value owns, if anything; its data is NULL then. */
static inline void dvt_heap_free(DvtValueMemory* memory, DvtCell* cell) {
  dvt_heap_release(memory, dvt_take_block(memory, cell));
}
void dvt_device_free(DvtValueMemory* memory, DvtCell* cell);

#ifdef __cplusplus
} /* extern "C" */
#endif
