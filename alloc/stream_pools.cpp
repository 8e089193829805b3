#include "alloc/stream_pools.h"

#include <algorithm>
#include <bit>
#include <new>

#include "alloc/allocator.hpp"
#include "alloc/stream_clocks.hpp"

using davit::alloc::GrowArray;
using davit::alloc::MetadataMemory;
using davit::alloc::StreamClocks;

namespace {

using BlockIndex = uint32_t;
constexpr BlockIndex kNoBlock = UINT32_MAX;

enum class BlockState : uint8_t { kUnused, kLive, kWaiting };

struct StreamBlock {
  DvtBlock memory;  // In the pool of `birth`.
  uint64_t bytes;
  uint64_t holders;  // Bit s: stream s has not freed it.
  uint64_t users;    // Bit s: stream s used it; its tick counts.
  BlockIndex next;   // Unused or waiting: in that list.
  uint32_t version;  // Changes with every end of a life.
  uint8_t birth;
  BlockState state;
};

struct Pool {
  DvtStreamPools* owner;
  DvtAllocator* allocator;
  BlockIndex first_waiting;
};

uint64_t bit(uint32_t stream) {
  return uint64_t{1} << stream;
}

}  // namespace

struct DvtStreamPools {
 public:
  DvtStreamPools(const DvtStreamPoolsOptions& options, const DvtMetadataMemory& host,
                 const DvtAllocatorHooks& hooks)
      : memory_(host),
        device_(options.device),
        hooks_(hooks),
        timeout_us_(options.timeout_us),
        clocks_(memory_),
        streams_(memory_),
        events_(memory_),
        pools_(memory_),
        blocks_(memory_),
        ticks_(memory_),
        ids_(memory_) {}
  ~DvtStreamPools();

  DvtCode init(const DvtStreamPoolsOptions& options, const DvtMetadataMemory& host);

  DvtCode allocate(uint32_t stream, uint64_t bytes, uint32_t owner, DvtBlock* out);
  DvtCode use(uint64_t id, uint32_t stream);
  DvtCode free(uint64_t id, uint32_t stream);

  DvtCode record(uint32_t stream, uint32_t event);
  DvtCode wait(uint32_t stream, uint32_t event);
  DvtCode synchronize(uint32_t stream);
  DvtCode synchronize_all();
  DvtCode finish(bool trim);

  void statistics(DvtStreamPoolsStatistics* out) const;
  void explain(uint64_t bytes, uint32_t owner, DvtError* out) const;
  MetadataMemory& memory() { return memory_; }

 private:
  DvtCode add_pool(const DvtStreamPoolsOptions& options, const DvtMetadataMemory& host, Pool* pool);
  StreamBlock* live_block(uint64_t id);
  // A block of another birth whose last uses are all ordered before `stream`, the smallest that
  // fits.
  bool borrow(uint32_t stream, uint64_t bytes, uint32_t owner, DvtBlock* out);
  [[nodiscard]] bool knows_all(uint32_t observer, BlockIndex index) const;
  void begin_life(BlockIndex index, uint32_t stream, DvtBlock* out);
  void give_back(BlockIndex index);
  // Returns the waiting blocks of a pool whose stream of birth may have them.
  void recycle(Pool& pool);
  void recycle_all() {
    for (Pool& pool : pools_) recycle(pool);
  }
  void trim_pools(const Pool* except);
  uint64_t& tick(BlockIndex index, uint32_t stream) {
    return ticks_[size_t{index} * streams_.size() + stream];
  }
  [[nodiscard]] uint64_t tick(BlockIndex index, uint32_t stream) const {
    return ticks_[size_t{index} * streams_.size() + stream];
  }
  [[nodiscard]] bool has_stream(uint32_t stream) const { return stream < streams_.size(); }
  bool prepare_block();

  MetadataMemory memory_;
  DvtDevice* device_;
  DvtAllocatorHooks hooks_;  // The caller's.
  int64_t timeout_us_;
  DvtAllocator* shared_ = nullptr;
  StreamClocks clocks_;
  GrowArray<DvtStream*> streams_;
  GrowArray<DvtEvent*> events_;
  GrowArray<Pool> pools_;
  GrowArray<StreamBlock> blocks_;
  GrowArray<uint64_t> ticks_;  // [block][stream]: of its free.
  GrowArray<BlockIndex> ids_;  // Unused.
  uint64_t waiting_bytes_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t birth_count_ = 0;
  uint64_t borrow_count_ = 0;
  uint64_t synchronize_count_ = 0;
};

DvtStreamPools::~DvtStreamPools() {
  for (const Pool& pool : pools_) dvt_allocator_destroy(pool.allocator);
  dvt_allocator_destroy(shared_);
}

DvtCode DvtStreamPools::init(const DvtStreamPoolsOptions& options, const DvtMetadataMemory& host) {
  if (!clocks_.init(options.stream_count, options.event_count)) return DVT_OUT_OF_MEMORY;
  if (!pools_.reserve(options.stream_count) || !streams_.reserve(options.stream_count) ||
      !events_.reserve(options.event_count)) {
    return DVT_OUT_OF_MEMORY;
  }
  const DvtMemorySource source = dvt_device_source(options.device);
  DvtAllocatorOptions shared = options.shared;
  if (shared.source == nullptr) shared.source = &source;
  shared.metadata = &host;
  shared.hooks = nullptr;
  const DvtCode code = dvt_allocator_create(&shared, &shared_);
  if (code != DVT_OK) return code;
  for (uint32_t event = 0; event < options.event_count; ++event) {
    events_.push_back_reserved(options.events[event]);
  }
  for (uint32_t stream = 0; stream < options.stream_count; ++stream) {
    streams_.push_back_reserved(options.streams[stream]);
    pools_.push_back_reserved({this, nullptr, kNoBlock});
  }
  for (Pool& pool : pools_) {
    const DvtCode added = add_pool(options, host, &pool);
    if (added != DVT_OK) return added;
  }
  return DVT_OK;
}

// The pool's hooks are where the failure path of the pools is spelled out.
DvtCode DvtStreamPools::add_pool(const DvtStreamPoolsOptions& options,
                                 const DvtMetadataMemory& host, Pool* pool) {
  const DvtMemorySource source{
      .name = options.device->vtable->name,
      .user = this,
      .reserve = [](void* user, uint64_t bytes, uint64_t, void** out) -> DvtCode {
        auto& self = *static_cast<DvtStreamPools*>(user);
        return dvt_allocator_malloc(self.shared_, bytes, 0, out);
      },
      .release =
          [](void* user, void* address, uint64_t) {
            dvt_allocator_free(static_cast<DvtStreamPools*>(user)->shared_, address);
          },
      .page_bytes = 0,
      .commit = nullptr,
      .decommit = nullptr};
  const DvtAllocatorHooks hooks{
      .user = pool,
      .exact_wait = [](void* user, uint64_t bytes) -> DvtCode {
        const DvtAllocatorHooks& outer = static_cast<Pool*>(user)->owner->hooks_;
        return outer.exact_wait == nullptr ? DVT_OK : outer.exact_wait(outer.user, bytes);
      },
      .synchronize = [](void* user) -> DvtCode {
        return static_cast<Pool*>(user)->owner->synchronize_all();
      },
      .recycle = [](void* user, uint64_t) { static_cast<Pool*>(user)->owner->recycle_all(); },
      .other_pools =
          [](void* user, uint64_t) {
            auto* of = static_cast<Pool*>(user);
            of->owner->trim_pools(of);
          },
      .owner_name = [](void* user, uint32_t owner) -> const char* {
        const DvtAllocatorHooks& outer = static_cast<Pool*>(user)->owner->hooks_;
        return outer.owner_name == nullptr ? nullptr : outer.owner_name(outer.user, owner);
      }};
  DvtAllocatorOptions pool_options;
  dvt_allocator_options_init(&pool_options);
  pool_options.alignment = options.shared.alignment;
  pool_options.segment_bytes = options.pool_segment_bytes;
  pool_options.source = &source;
  pool_options.metadata = &host;
  pool_options.hooks = &hooks;
  return dvt_allocator_create(&pool_options, &pool->allocator);
}

bool DvtStreamPools::prepare_block() {
  if (!ids_.empty()) return true;
  const size_t index = blocks_.size();
  if (index >= kNoBlock || !ids_.reserve(index + 1) || !blocks_.reserve(index + 1)) return false;
  if (!ticks_.reserve((index + 1) * streams_.size())) return false;
  for (size_t i = 0; i < streams_.size(); ++i) ticks_.push_back_reserved(0);
  blocks_.push_back_reserved({.next = kNoBlock, .version = 1, .state = BlockState::kUnused});
  ids_.push_back_reserved(static_cast<BlockIndex>(index));
  return true;
}

void DvtStreamPools::begin_life(BlockIndex index, uint32_t stream, DvtBlock* out) {
  StreamBlock& block = blocks_[index];
  block.holders = bit(stream);
  block.users = bit(stream);
  block.state = BlockState::kLive;
  live_bytes_ += block.bytes;
  out->address = block.memory.address;
  out->id = uint64_t{block.version} << 32 | index;
}

DvtCode DvtStreamPools::allocate(uint32_t stream, uint64_t bytes, uint32_t owner, DvtBlock* out) {
  if (!has_stream(stream)) return DVT_INVALID_ARGUMENT;
  if (!prepare_block()) return DVT_OUT_OF_MEMORY;
  Pool& pool = pools_[stream];
  recycle(pool);
  DvtBlock memory{};
  DvtCode code = dvt_allocator_acquire_cached(pool.allocator, bytes, owner, &memory);
  if (code == DVT_OUT_OF_MEMORY) {
    if (borrow(stream, bytes, owner, out)) return DVT_OK;
    code = dvt_allocator_acquire(pool.allocator, bytes, owner, &memory);
  }
  if (code != DVT_OK) return code;
  const BlockIndex index = ids_.pop_back();
  StreamBlock& block = blocks_[index];
  block.memory = memory;
  block.bytes = dvt_allocator_block_bytes(pool.allocator, memory.id);
  block.birth = static_cast<uint8_t>(stream);
  begin_life(index, stream, out);
  return DVT_OK;
}

bool DvtStreamPools::knows_all(uint32_t observer, BlockIndex index) const {
  for (uint64_t users = blocks_[index].users; users != 0; users &= users - 1) {
    const auto stream = static_cast<uint32_t>(std::countr_zero(users));
    if (stream != observer && !clocks_.knows(observer, stream, tick(index, stream))) return false;
  }
  return true;
}

bool DvtStreamPools::borrow(uint32_t stream, uint64_t bytes, uint32_t owner, DvtBlock* out) {
  BlockIndex* best = nullptr;
  for (Pool& pool : pools_) {
    for (BlockIndex* link = &pool.first_waiting; *link != kNoBlock; link = &blocks_[*link].next) {
      const StreamBlock& block = blocks_[*link];
      const bool fits = block.bytes >= bytes && block.bytes / 2 <= bytes;
      if (!fits || (best != nullptr && blocks_[*best].bytes <= block.bytes)) continue;
      if (knows_all(stream, *link)) best = link;
    }
  }
  if (best == nullptr) return false;
  const BlockIndex index = *best;
  StreamBlock& block = blocks_[index];
  *best = block.next;
  waiting_bytes_ -= block.bytes;
  dvt_allocator_set_owner(pools_[block.birth].allocator, block.memory.id, owner);
  begin_life(index, stream, out);
  ++borrow_count_;
  return true;
}

StreamBlock* DvtStreamPools::live_block(uint64_t id) {
  const auto index = static_cast<BlockIndex>(id);
  if (index >= blocks_.size()) return nullptr;
  StreamBlock& block = blocks_[index];
  return block.state == BlockState::kLive && block.version == id >> 32 ? &block : nullptr;
}

DvtCode DvtStreamPools::use(uint64_t id, uint32_t stream) {
  StreamBlock* block = live_block(id);
  if (block == nullptr || !has_stream(stream)) return DVT_INVALID_ARGUMENT;
  block->holders |= bit(stream);
  block->users |= bit(stream);
  return DVT_OK;
}

DvtCode DvtStreamPools::free(uint64_t id, uint32_t stream) {
  StreamBlock* block = live_block(id);
  if (block == nullptr || !has_stream(stream) || (block->holders & bit(stream)) == 0) {
    return DVT_INVALID_ARGUMENT;
  }
  const auto index = static_cast<BlockIndex>(id);
  tick(index, stream) = clocks_.now(stream);
  block->holders &= ~bit(stream);
  if (block->holders != 0) return DVT_OK;
  ++block->version;
  live_bytes_ -= block->bytes;
  if (knows_all(block->birth, index)) {
    give_back(index);
    return DVT_OK;
  }
  Pool& pool = pools_[block->birth];
  block->state = BlockState::kWaiting;
  block->next = pool.first_waiting;
  pool.first_waiting = index;
  waiting_bytes_ += block->bytes;
  return DVT_OK;
}

void DvtStreamPools::give_back(BlockIndex index) {
  StreamBlock& block = blocks_[index];
  dvt_allocator_release(pools_[block.birth].allocator, block.memory.id);
  block.state = BlockState::kUnused;
  ids_.push_back_reserved(index);
  ++birth_count_;
}

void DvtStreamPools::recycle(Pool& pool) {
  BlockIndex* link = &pool.first_waiting;
  while (*link != kNoBlock) {
    const BlockIndex index = *link;
    StreamBlock& block = blocks_[index];
    if (!knows_all(block.birth, index)) {
      link = &block.next;
      continue;
    }
    *link = block.next;
    waiting_bytes_ -= block.bytes;
    give_back(index);
  }
}

// Only after all streams were synchronised: the memory may go to any of them.
void DvtStreamPools::trim_pools(const Pool* except) {
  for (size_t i = 0; i < pools_.size(); ++i) {
    if (&pools_[i] != except) dvt_allocator_trim(pools_[i].allocator, 0);
  }
}

DvtCode DvtStreamPools::record(uint32_t stream, uint32_t event) {
  if (!has_stream(stream) || event >= events_.size()) return DVT_INVALID_ARGUMENT;
  const DvtCode code = device_->vtable->event_record(device_, streams_[stream], events_[event]);
  if (code == DVT_OK) clocks_.record(stream, event);
  return code;
}

DvtCode DvtStreamPools::wait(uint32_t stream, uint32_t event) {
  if (!has_stream(stream) || event >= events_.size()) return DVT_INVALID_ARGUMENT;
  const DvtCode code = device_->vtable->event_wait(device_, streams_[stream], events_[event]);
  if (code == DVT_OK) clocks_.wait(stream, event);
  return code;
}

DvtCode DvtStreamPools::synchronize(uint32_t stream) {
  if (!has_stream(stream)) return DVT_INVALID_ARGUMENT;
  ++synchronize_count_;
  const DvtCode code = device_->vtable->stream_synchronize(device_, streams_[stream], timeout_us_);
  if (code == DVT_OK) clocks_.synchronized(stream);
  return code;
}

DvtCode DvtStreamPools::synchronize_all() {
  for (uint32_t stream = 0; stream < streams_.size(); ++stream) {
    const DvtCode code = synchronize(stream);
    if (code != DVT_OK) return code;
  }
  return DVT_OK;
}

DvtCode DvtStreamPools::finish(bool trim) {
  const DvtCode code = synchronize_all();
  if (code != DVT_OK) return code;
  recycle_all();
  if (trim) trim_pools(nullptr);
  return DVT_OK;
}

void DvtStreamPools::statistics(DvtStreamPoolsStatistics* out) const {
  DvtAllocatorStatistics shared{};
  dvt_allocator_statistics(shared_, &shared);
  *out = {.live_bytes = live_bytes_,
          .waiting_bytes = waiting_bytes_,
          .reserved_bytes = shared.reserved_bytes,
          .cached_bytes = shared.reserved_bytes - live_bytes_ - waiting_bytes_,
          .birth_count = birth_count_,
          .borrow_count = borrow_count_,
          .synchronize_count = synchronize_count_};
}

void DvtStreamPools::explain(uint64_t bytes, uint32_t owner, DvtError* out) const {
  davit::alloc::Shortage shortage = shared_->shortage();
  shortage.live_bytes = live_bytes_ + waiting_bytes_;
  shortage.cached_bytes = shared_->shortage().reserved_bytes - shortage.live_bytes;
  MetadataMemory scratch = memory_;
  GrowArray<davit::alloc::OwnerTotal> totals(scratch);
  for (const Pool& pool : pools_) {
    const uint64_t hole = pool.allocator->shortage().largest_hole_bytes;
    shortage.largest_hole_bytes = std::max(shortage.largest_hole_bytes, hole);
    pool.allocator->add_owners(&totals);
  }
  pools_[0].allocator->explain(bytes, owner, shortage, &totals, out);
}

void dvt_stream_pools_options_init(DvtStreamPoolsOptions* options) {
  *options = {};
  options->struct_size = sizeof *options;
  options->timeout_us = -1;
  dvt_allocator_options_init(&options->shared);
}

DvtCode dvt_stream_pools_create(const DvtStreamPoolsOptions* options, DvtStreamPools** out) {
  *out = nullptr;
  if (options->struct_size != sizeof *options || options->device == nullptr ||
      options->stream_count == 0 || options->stream_count > DVT_STREAM_POOLS_MAX ||
      options->streams == nullptr || (options->event_count > 0 && options->events == nullptr)) {
    return DVT_INVALID_ARGUMENT;
  }
  const DvtMetadataMemory host = options->shared.metadata != nullptr ? *options->shared.metadata
                                                                     : davit::alloc::default_host();
  const DvtAllocatorHooks hooks =
      options->shared.hooks != nullptr ? *options->shared.hooks : DvtAllocatorHooks{};
  void* place = host.allocate(host.user, sizeof(DvtStreamPools));
  if (place == nullptr) return DVT_OUT_OF_MEMORY;
  auto* pools = new (place) DvtStreamPools(*options, host, hooks);
  const DvtCode code = pools->init(*options, host);
  if (code != DVT_OK) {
    dvt_stream_pools_destroy(pools);
    return code;
  }
  *out = pools;
  return DVT_OK;
}

void dvt_stream_pools_destroy(DvtStreamPools* pools) {
  if (pools == nullptr) return;
  MetadataMemory memory = pools->memory();
  pools->~DvtStreamPools();
  memory.release(pools, sizeof(DvtStreamPools));
}

DvtCode dvt_stream_pools_malloc(DvtStreamPools* pools, uint32_t stream, uint64_t bytes,
                                uint32_t owner, DvtBlock* out) {
  return pools->allocate(stream, bytes, owner, out);
}

DvtCode dvt_stream_pools_use(DvtStreamPools* pools, uint64_t id, uint32_t stream) {
  return pools->use(id, stream);
}

DvtCode dvt_stream_pools_free(DvtStreamPools* pools, uint64_t id, uint32_t stream) {
  return pools->free(id, stream);
}

DvtCode dvt_stream_pools_record(DvtStreamPools* pools, uint32_t stream, uint32_t event) {
  return pools->record(stream, event);
}

DvtCode dvt_stream_pools_wait(DvtStreamPools* pools, uint32_t stream, uint32_t event) {
  return pools->wait(stream, event);
}

DvtCode dvt_stream_pools_synchronize(DvtStreamPools* pools, uint32_t stream) {
  return pools->synchronize(stream);
}

DvtCode dvt_stream_pools_finish(DvtStreamPools* pools, int trim) {
  return pools->finish(trim != 0);
}

void dvt_stream_pools_statistics(const DvtStreamPools* pools, DvtStreamPoolsStatistics* out) {
  pools->statistics(out);
}

void dvt_stream_pools_explain(const DvtStreamPools* pools, uint64_t bytes, uint32_t owner,
                              DvtError* out) {
  pools->explain(bytes, owner, out);
}
