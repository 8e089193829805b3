#define _XOPEN_SOURCE 700 /* posix_memalign */
#include "exec/host_memory.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
  CLASSES_PER_OCTAVE = 8,
  SMALLEST_SHIFT = 6, /* 64 bytes. */
  CLASS_COUNT = (63 - SMALLEST_SHIFT) * CLASSES_PER_OCTAVE,
  HEADER_BYTES = 64,
};

typedef struct Block {
  struct Block* next; /* Of the live blocks, or of the cached ones of the class. */
  struct Block* previous;
  uint64_t bytes; /* That the class stands for. */
  uint32_t size_class;
} Block;
static_assert(sizeof(Block) <= HEADER_BYTES, "the data behind it is aligned to 64 bytes");

struct DvtHostMemory {
  Block live; /* Head of a ring. */
  Block* cached[CLASS_COUNT];
  uint64_t limit_bytes;
  uint64_t keep_bytes; /* That may be cached, if more than was in use at a time. */
  DvtHostMemoryStatistics statistics;
};

/* The class of a size and the bytes it stands for: m * 2^e with m in 8..15. */
static uint32_t class_of(uint64_t bytes, uint64_t* rounded) {
  if (bytes <= 1U << SMALLEST_SHIFT) {
    *rounded = 1U << SMALLEST_SHIFT;
    return 0;
  }
  const uint32_t octave = 63 - (uint32_t)__builtin_clzll(bytes - 1);
  const uint32_t shift = octave - 3;
  const uint64_t steps = ((bytes - 1) >> shift) + 1; /* 9..16 */
  *rounded = steps << shift;
  return (octave - SMALLEST_SHIFT) * CLASSES_PER_OCTAVE + (uint32_t)(steps - 8);
}

DvtHostMemory* dvt_host_memory_create(uint64_t limit_bytes) {
  DvtHostMemory* memory = calloc(1, sizeof *memory);
  if (memory == NULL) return NULL;
  memory->limit_bytes = limit_bytes;
  memory->live.next = memory->live.previous = &memory->live;
  return memory;
}

static void give_back_cached(DvtHostMemory* memory) {
  for (uint32_t i = 0; i < CLASS_COUNT; ++i) {
    while (memory->cached[i] != NULL) {
      Block* block = memory->cached[i];
      memory->cached[i] = block->next;
      free(block);
    }
  }
  memory->statistics.cached_bytes = 0;
}

void dvt_host_memory_destroy(DvtHostMemory* memory) {
  if (memory == NULL) return;
  dvt_host_memory_free_all(memory);
  give_back_cached(memory);
  free(memory);
}

static Block* new_block(DvtHostMemory* memory, uint64_t rounded, uint32_t size_class) {
  DvtHostMemoryStatistics* statistics = &memory->statistics;
  const uint64_t limit = memory->limit_bytes;
  const bool above_limit =
      limit != 0 && statistics->live_bytes + statistics->cached_bytes + rounded > limit;
  const uint64_t cached = statistics->cached_bytes;
  const bool above_keep = cached > memory->keep_bytes && cached > statistics->peak_live_bytes;
  if (above_keep) memory->keep_bytes = 2 * cached;
  if (above_limit || above_keep) give_back_cached(memory);
  if (limit != 0 && statistics->live_bytes + rounded > limit) return NULL;
  void* address = NULL;
  if (rounded > PTRDIFF_MAX - HEADER_BYTES ||
      posix_memalign(&address, 64, HEADER_BYTES + rounded) != 0) {
    return NULL;
  }
  Block* block = address;
  block->bytes = rounded;
  block->size_class = size_class;
  ++statistics->system_allocations;
  return block;
}

void* dvt_host_memory_allocate(DvtHostMemory* memory, uint64_t bytes) {
  if (bytes > PTRDIFF_MAX / 2) return NULL;
  uint64_t rounded = 0;
  const uint32_t size_class = class_of(bytes, &rounded);
  DvtHostMemoryStatistics* statistics = &memory->statistics;
  Block* block = memory->cached[size_class];
  if (block != NULL) {
    memory->cached[size_class] = block->next;
    statistics->cached_bytes -= rounded;
  } else {
    block = new_block(memory, rounded, size_class);
    if (block == NULL) return NULL;
  }
  block->next = memory->live.next;
  block->previous = &memory->live;
  block->next->previous = block;
  memory->live.next = block;
  ++statistics->allocations;
  statistics->live_bytes += rounded;
  if (statistics->live_bytes > statistics->peak_live_bytes) {
    statistics->peak_live_bytes = statistics->live_bytes;
  }
  const uint64_t reserved = statistics->live_bytes + statistics->cached_bytes;
  if (reserved > statistics->peak_reserved_bytes) statistics->peak_reserved_bytes = reserved;
  return (unsigned char*)block + HEADER_BYTES;
}

void dvt_host_memory_free(DvtHostMemory* memory, void* data) {
  if (data == NULL) return;
  Block* block = (Block*)((unsigned char*)data - HEADER_BYTES);
  block->previous->next = block->next;
  block->next->previous = block->previous;
  block->next = memory->cached[block->size_class];
  memory->cached[block->size_class] = block;
  memory->statistics.live_bytes -= block->bytes;
  memory->statistics.cached_bytes += block->bytes;
}

void dvt_host_memory_free_all(DvtHostMemory* memory) {
  while (memory->live.next != &memory->live) {
    dvt_host_memory_free(memory, (unsigned char*)memory->live.next + HEADER_BYTES);
  }
}

void dvt_host_memory_statistics(const DvtHostMemory* memory, DvtHostMemoryStatistics* out) {
  *out = memory->statistics;
}
