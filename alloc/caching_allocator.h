/* caching_allocator.h: the memory of a device, or of the host, for values whose size is known only
 * when they are made.
 *
 * It takes big ranges from a source and cuts blocks out of them: best fit over spans of any size,
 * split and merged with both neighbours, found through a bitmap of size classes in constant time.
 * What a block costs is metadata outside the managed memory, which is never read or written here.
 *
 * Threads  One owner at a time (the memory lane): no locks, no atomics. Another thread may become
 *          the owner when the hand-over orders the two. Different allocators share nothing.
 * Trust    Sizes, block ids and addresses may be anything: what is not a live block of this
 *          allocator is refused (a stale id with 255 chances in 256).
 * Memory   The allocator owns its metadata, which grows and is reused, so that nothing is taken
 *          from the host once the number of blocks has been reached before. The source owns the
 *          ranges. destroy() gives both back, live blocks included.
 * Errors   A code. After DVT_OUT_OF_MEMORY, dvt_allocator_explain() tells the whole story.
 */
#pragma once

#include "davit/davit.h"
#include "davit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtAllocator DvtAllocator;

/* A block for the hot path: its id finds it without a look-up. */
typedef struct DvtBlock {
  void* address; /* Aligned to DvtAllocatorOptions.alignment. */
  uint64_t id;   /* Never 0. */
} DvtBlock;

/* ---- What lies below --------------------------------------------------------------------------
 */

/* Where ranges come from: the host, a device, another allocator. The struct is copied, `user` must
 * live as long as the allocator. Sources are called on slow paths only. */
typedef struct DvtMemorySource {
  const char* name; /* For messages; lives as long as the allocator. */
  void* user;
  /* `bytes` that are aligned to `alignment` (a power of two). */
  DvtCode (*reserve)(void* user, uint64_t bytes, uint64_t alignment, void** out);
  /* Gives back a whole range of reserve(). */
  void (*release)(void* user, void* address, uint64_t bytes);
  /* Both or neither. With them, reserve() gives address space only: commit() puts memory behind a
   * part of it before that part is used, and decommit() takes it away, contents lost. Addresses and
   * sizes are multiples of page_bytes, which is a power of two. */
  uint64_t page_bytes;
  DvtCode (*commit)(void* user, void* address, uint64_t bytes);
  DvtCode (*decommit)(void* user, void* address, uint64_t bytes);
} DvtMemorySource;

typedef struct DvtHostSourceOptions {
  uint32_t huge_pages; /* 1: ask for transparent huge pages; never an error. */
} DvtHostSourceOptions;

/* Host memory through mmap: address space up front, pages when they are needed. `options` may be
 * NULL. */
DvtMemorySource dvt_host_source(const DvtHostSourceOptions* options);

/* malloc and free of a device; `device` outlives the allocator. */
DvtMemorySource dvt_device_source(DvtDevice* device);

/* Where metadata comes from. allocate() returns NULL when there is none, else memory aligned to
 * 16 bytes. */
typedef struct DvtMetadataMemory {
  void* user;
  void* (*allocate)(void* user, size_t bytes);
  void (*release)(void* user, void* address);
} DvtMetadataMemory;

/* ---- What a failing malloc does ---------------------------------------------------------------
 * In this order, each if it is set:
 *
 *   no span fits, and growing would pass the watermark or fails
 *     exact_wait   until every launch whose block was freed early is submitted
 *     synchronize  the streams, so that no task uses cached memory any more
 *     recycle      release blocks that wait for an event or a synchronisation
 *     retry
 *     other_pools  make others give memory back to the source
 *     trim         give cached memory of our own back to the source
 *     retry, now up to the limit
 *   DVT_OUT_OF_MEMORY
 *
 * A hook that returns another code than DVT_OK ends the call with that code and changes nothing:
 * exact_wait returns DVT_ALLOCATOR_SUSPENDED to suspend the caller, which calls again later. Hooks
 * may release blocks of this allocator, and must not allocate from it.
 */
enum { DVT_ALLOCATOR_SUSPENDED = -1 }; /* A DvtCode that never leaves the engine. */

typedef struct DvtAllocatorHooks {
  void* user;
  DvtCode (*exact_wait)(void* user, uint64_t bytes);
  DvtCode (*synchronize)(void* user);
  void (*recycle)(void* user, uint64_t bytes);
  void (*other_pools)(void* user, uint64_t bytes);
  /* Name of an owner, for texts; NULL for an unknown one. Valid until the next call. */
  const char* (*owner_name)(void* user, uint32_t owner);
} DvtAllocatorHooks;

/* ---- Life -------------------------------------------------------------------------------------
 */

typedef struct DvtAllocatorOptions {
  uint32_t struct_size; /* sizeof(DvtAllocatorOptions); lets the struct grow. */
  uint32_t alignment;   /* Of every block and size: a power of two from 64. Default 64. */
  /* Size of a range where the source commits pages: address space, not memory. 0: the limit, or
   * what the host has. More ranges follow when one is full. */
  uint64_t reserve_bytes;
  /* Memory is taken in steps of this: pages committed at once, or the smallest range where the
   * source has none. 0: 2 MiB. */
  uint64_t segment_bytes;
  /* Most that blocks may hold, and that may be taken from the source: rounded up to segment_bytes
   * where the source commits. 0: no limit of ours. */
  uint64_t limit_bytes;
  /* Bytes that will be live at most, as far as is known: a source that does not commit is asked for
   * a range that holds them. When all ranges were given back, what has been live counts, too. */
  uint64_t expected_bytes;
  uint64_t watermark_bytes;          /* Above it, recycling comes before growing. 0: the limit. */
  const DvtMemorySource* source;     /* NULL: the host. */
  const DvtMetadataMemory* metadata; /* NULL: malloc and free. */
  const DvtAllocatorHooks* hooks;    /* NULL: none. */
} DvtAllocatorOptions;
void dvt_allocator_options_init(DvtAllocatorOptions* options);

/* Takes nothing from the source yet. DVT_INVALID_ARGUMENT for options that make no sense. */
DVT_NODISCARD DvtCode dvt_allocator_create(const DvtAllocatorOptions* options, DvtAllocator** out);
/* NULL is fine. */
void dvt_allocator_destroy(DvtAllocator* allocator);

/* ---- Blocks -----------------------------------------------------------------------------------
 */

/* A block of at least `bytes` (0 counts as 1) for `owner`, which means what hooks.owner_name says.
 * Contents are undefined. */
DVT_NODISCARD DvtCode dvt_allocator_acquire(DvtAllocator* allocator, uint64_t bytes, uint32_t owner,
                                            DvtBlock* out);
/* The same from cached memory alone: calls neither the source nor a hook. DVT_OUT_OF_MEMORY when
 * nothing cached fits. */
DVT_NODISCARD DvtCode dvt_allocator_acquire_cached(DvtAllocator* allocator, uint64_t bytes,
                                                   uint32_t owner, DvtBlock* out);
/* A live block changes hands. */
DvtCode dvt_allocator_set_owner(DvtAllocator* allocator, uint64_t id, uint32_t owner);
/* DVT_INVALID_ARGUMENT when the id is not that of a live block. */
DvtCode dvt_allocator_release(DvtAllocator* allocator, uint64_t id);

/* The same by address, for callers that keep nothing else; a hash look-up dearer. What malloc gave
 * goes back through free, and what acquire gave through release. free(NULL) is fine. */
DVT_NODISCARD DvtCode dvt_allocator_malloc(DvtAllocator* allocator, uint64_t bytes, uint32_t owner,
                                           void** out);
DvtCode dvt_allocator_free(DvtAllocator* allocator, void* address);

/* Bytes of a live block, which may be more than was asked for; 0 for anything else. */
uint64_t dvt_allocator_block_bytes(const DvtAllocator* allocator, uint64_t id);

/* ---- Keeping and giving back ------------------------------------------------------------------
 */

/* Gives cached memory back to the source until at most `keep_bytes` are cached, or what is left is
 * pinned or shares a page or range with live blocks. The caller has made sure that no task uses
 * memory it has freed. Returns the bytes given back. */
uint64_t dvt_allocator_trim(DvtAllocator* allocator, uint64_t keep_bytes);

/* While pinned, [address, address + bytes) stays backed at its place, free or not: addresses in it
 * may be baked into something. Ranges may overlap; each pin needs its own unpin, with equal
 * arguments. DVT_INVALID_ARGUMENT for memory that is not this allocator's, or not backed. */
DVT_NODISCARD DvtCode dvt_allocator_pin(DvtAllocator* allocator, const void* address,
                                        uint64_t bytes);
DvtCode dvt_allocator_unpin(DvtAllocator* allocator, const void* address, uint64_t bytes);

/* ---- What is going on -------------------------------------------------------------------------
 */

typedef struct DvtAllocatorStatistics {
  uint64_t live_bytes;      /* In blocks, rounded to the alignment. */
  uint64_t live_peak_bytes; /* Since creation or dvt_allocator_reset_peaks(). */
  uint64_t reserved_bytes;  /* Taken from the source and not given back. */
  uint64_t reserved_peak_bytes;
  uint64_t cached_bytes;       /* reserved - live: free, and ours. */
  uint64_t largest_hole_bytes; /* Largest piece of that. */
  uint64_t limit_bytes;        /* UINT64_MAX: none. */
  uint64_t live_blocks;
  uint64_t free_spans;
  uint64_t segments;     /* Ranges of the source. */
  uint64_t malloc_count; /* Successful ones. */
  uint64_t free_count;
  uint64_t grow_count;    /* Times that memory was taken from the source. */
  uint64_t recover_count; /* Times that a malloc went down the failure path. */
  uint64_t metadata_bytes;
} DvtAllocatorStatistics;

/* Walks all spans: for reports, not for hot paths. */
void dvt_allocator_statistics(const DvtAllocator* allocator, DvtAllocatorStatistics* out);
/* The one figure that is cheap: for timelines. */
uint64_t dvt_allocator_live_bytes(const DvtAllocator* allocator);
/* Peaks become what is there now. */
void dvt_allocator_reset_peaks(DvtAllocator* allocator);

/* Calls visit() for every live block, in address order within a range. visit() must not call the
 * allocator. */
typedef void (*DvtBlockVisitor)(void* user, uint32_t owner, const void* address, uint64_t bytes);
void dvt_allocator_visit(const DvtAllocator* allocator, DvtBlockVisitor visit, void* user);

/* Describes the failed request for `bytes`: what was asked, the limit, what is live and cached, the
 * largest hole, fragmentation, and who owns most, by name. Sets code, message, expected, got and
 * hint, nothing else. */
void dvt_allocator_explain(const DvtAllocator* allocator, uint64_t bytes, uint32_t owner,
                           DvtError* out);

/* True when every invariant of the metadata holds; slow, for tests. */
int dvt_allocator_is_valid(const DvtAllocator* allocator);

#ifdef __cplusplus
}
#endif
