/* stream_pools.h: device memory for work on several streams, reused as early as the order of that
 * work allows, without a wait of the host.
 *
 * Every stream has a pool, a caching allocator of its own, on top of one shared allocator that
 * takes memory from the device:
 *
 *      stream 0    stream 1   ...    a block is born in the pool of the stream that asked for it
 *     +--------+  +--------+
 *     | pool 0 |  | pool 1 |  ...    memory moves between pools through `shared` only, and only
 * after
 *     +--------+  +--------+         the host has waited for the stream it leaves
 *     +--------------------+
 *     |       shared       |
 *     +--------------------+
 *             device
 *
 * What a stream has freed, later work of the same stream may use: streams are in order. A block
 * that several streams use is free when all have freed it, but who may have it next depends on what
 * is ordered after their last uses, by events. Every stream counts its ticks, one for each record
 * and each synchronisation, and knows how far every other stream is ordered before it (a vector
 * clock). A record copies the clock of its stream into the event, a wait takes it over. A freed
 * block carries its version and, for each of its streams, the tick of the free:
 *
 *   birth    the stream of birth knows all those ticks: the block returns to its pool
 *   borrow   another stream does, and would otherwise have to grow: it takes the block as it is
 *   local    nobody does yet: the block waits; a wait, a synchronisation or the last clean-up frees
 * it
 *
 * Threads  One owner at a time (the memory lane), in the order in which the work is submitted.
 * Trust    Ids, streams and events may be anything: what does not exist is refused.
 * Memory   Metadata grows and is reused. destroy() gives everything back to the device; the caller
 * has made sure that no task is left. Errors   A code; after DVT_OUT_OF_MEMORY,
 * dvt_stream_pools_explain().
 */
#pragma once

#include "alloc/caching_allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtStreamPools DvtStreamPools;

enum { DVT_STREAM_POOLS_MAX = 64 }; /* Streams. */

typedef struct DvtStreamPoolsOptions {
  uint32_t struct_size; /* sizeof(DvtStreamPoolsOptions); lets the struct grow. */
  uint32_t stream_count;
  uint32_t event_count;
  DvtDevice* device;
  DvtStream* const* streams; /* [stream_count] of the device; they outlive the pools. */
  DvtEvent* const* events;   /* [event_count], likewise. */
  /* Of the shared allocator. source NULL is the device's malloc and free. hooks->exact_wait and
   * owner_name are used, the other hooks are the pools' own. */
  DvtAllocatorOptions shared;
  uint64_t pool_segment_bytes; /* What a pool takes from `shared` at least. 0: 2 MiB. */
  int64_t timeout_us;          /* Of each wait of the host for a stream; < 0: none. */
} DvtStreamPoolsOptions;
void dvt_stream_pools_options_init(DvtStreamPoolsOptions* options);

DVT_NODISCARD DvtCode dvt_stream_pools_create(const DvtStreamPoolsOptions* options,
                                              DvtStreamPools** out);
void dvt_stream_pools_destroy(DvtStreamPools* pools);

/* ---- Blocks -----------------------------------------------------------------------------------
 */

/* A block that work submitted to `stream` from now on may use. When nothing fits, the failure path
 * of caching_allocator.h runs: exact wait, synchronisation of all streams, recycling, the caches of
 * the other pools, trim. */
DVT_NODISCARD DvtCode dvt_stream_pools_malloc(DvtStreamPools* pools, uint32_t stream,
                                              uint64_t bytes, uint32_t owner, DvtBlock* out);
/* Work on `stream`, too, will use the block. The caller orders that work after what it needs. */
DVT_NODISCARD DvtCode dvt_stream_pools_use(DvtStreamPools* pools, uint64_t id, uint32_t stream);
/* No work submitted to `stream` from now on will use the block. Every stream that uses a block
 * frees it once; DVT_INVALID_ARGUMENT for one that does not use it, and for stale ids. */
DvtCode dvt_stream_pools_free(DvtStreamPools* pools, uint64_t id, uint32_t stream);

/* ---- Order ------------------------------------------------------------------------------------
 * These call the device, and note what the call orders.
 */
DVT_NODISCARD DvtCode dvt_stream_pools_record(DvtStreamPools* pools, uint32_t stream,
                                              uint32_t event);
DVT_NODISCARD DvtCode dvt_stream_pools_wait(DvtStreamPools* pools, uint32_t stream, uint32_t event);
DVT_NODISCARD DvtCode dvt_stream_pools_synchronize(DvtStreamPools* pools, uint32_t stream);

/* The last clean-up of a run: waits for all streams, returns all freed blocks to their pools, and
 * the caches of the pools to `shared` if trim is not 0. */
DVT_NODISCARD DvtCode dvt_stream_pools_finish(DvtStreamPools* pools, int trim);

/* ---- What is going on -------------------------------------------------------------------------
 */
typedef struct DvtStreamPoolsStatistics {
  uint64_t live_bytes;     /* In blocks that are not freed by all their streams. */
  uint64_t waiting_bytes;  /* In blocks that are, but that the stream of birth cannot have yet. */
  uint64_t reserved_bytes; /* Taken from the device. */
  uint64_t cached_bytes;   /* The rest of that: in pools and in `shared`. */
  uint64_t birth_count;    /* Blocks that returned to the pool of their birth. */
  uint64_t borrow_count;   /* Blocks that another stream took over. */
  uint64_t synchronize_count;
} DvtStreamPoolsStatistics;
void dvt_stream_pools_statistics(const DvtStreamPools* pools, DvtStreamPoolsStatistics* out);

/* As dvt_allocator_explain(), over all pools. */
void dvt_stream_pools_explain(const DvtStreamPools* pools, uint64_t bytes, uint32_t owner,
                              DvtError* out);

#ifdef __cplusplus
}
#endif
