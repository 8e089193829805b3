/* host_memory.h: memory of heap values: host memory whose size is known at run time only.
 *
 * A pool of blocks by size class, eight classes to each power of two, so that at most an eighth of
 * a block is lost. A freed block is kept for the next of its class. When the system is asked for a
 * block and more is kept than was ever in use at a time, all that is kept is given back; each time
 * twice as much may be kept from then on, so that work that repeats comes to allocate nothing.
 *
 *   block   0                              64
 *           | class, bytes, list of live   | data, 64-byte aligned
 *
 * Threads  One at a time.
 * Memory   Blocks come from the C library. dvt_host_memory_destroy() returns all, live ones too.
 */
#pragma once

#include "davit/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtHostMemory DvtHostMemory;

typedef struct DvtHostMemoryStatistics {
  uint64_t live_bytes; /* Of the blocks in use, with what the size class adds. */
  uint64_t cached_bytes;
  uint64_t peak_live_bytes;
  uint64_t peak_reserved_bytes; /* Live and cached. */
  uint64_t allocations;         /* Calls of dvt_host_memory_allocate(). */
  uint64_t system_allocations;  /* Those that went to the C library. */
} DvtHostMemoryStatistics;

/* NULL when there is no memory. `limit_bytes`: of live and cached blocks together; 0: none. */
DvtHostMemory* dvt_host_memory_create(uint64_t limit_bytes);
void dvt_host_memory_destroy(DvtHostMemory* memory); /* NULL is fine. */

/* At least `bytes` bytes, aligned to 64; or NULL. */
void* dvt_host_memory_allocate(DvtHostMemory* memory, uint64_t bytes);
void dvt_host_memory_free(DvtHostMemory* memory, void* data); /* NULL is fine. */
/* Frees every block in use: after a run that failed. */
void dvt_host_memory_free_all(DvtHostMemory* memory);
void dvt_host_memory_statistics(const DvtHostMemory* memory, DvtHostMemoryStatistics* out);

#ifdef __cplusplus
} /* extern "C" */
#endif
