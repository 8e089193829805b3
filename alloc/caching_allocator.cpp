// The C interface: checks what comes from outside, and nothing else.
#include "alloc/caching_allocator.h"

#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <new>

#include "alloc/allocator.hpp"
#include "base/checked.hpp"

using davit::alloc::SpanId;

namespace {

constexpr uint64_t kDefaultSegment = uint64_t{2} << 20;
constexpr uint32_t kDefaultAlignment = 64;
// Larger spans than this many units do not exist.
constexpr uint64_t kMostUnits = UINT32_MAX;

void* host_allocate(void*, size_t bytes) {
  return std::malloc(bytes);
}
void host_release(void*, void* address) {
  std::free(address);
}

uint64_t host_memory_bytes() {
  const auto pages = sysconf(_SC_PHYS_PAGES);
  const auto page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return uint64_t{1} << 32;
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
}

bool source_makes_sense(const DvtMemorySource& source) {
  if (source.name == nullptr || source.reserve == nullptr || source.release == nullptr)
    return false;
  const bool commits = source.commit != nullptr;
  if (commits != (source.decommit != nullptr)) return false;
  return !commits || std::has_single_bit(source.page_bytes);
}

// Options with every default filled in, and the things they point at.
struct Validated {
  DvtAllocatorOptions options;
  DvtMemorySource source;
  DvtMetadataMemory metadata;
  DvtAllocatorHooks hooks;
};

bool validate(const DvtAllocatorOptions* given, Validated* out) {
  dvt_allocator_options_init(&out->options);
  if (given != nullptr) {
    if (given->struct_size != sizeof(DvtAllocatorOptions)) return false;
    out->options = *given;
  }
  DvtAllocatorOptions& options = out->options;
  out->source = options.source != nullptr ? *options.source : dvt_host_source(nullptr);
  out->metadata = options.metadata != nullptr ? *options.metadata : davit::alloc::default_host();
  out->hooks = options.hooks != nullptr ? *options.hooks : DvtAllocatorHooks{};
  if (!source_makes_sense(out->source)) return false;
  if (out->metadata.allocate == nullptr || out->metadata.release == nullptr) return false;
  if (options.alignment == 0) options.alignment = kDefaultAlignment;
  if (!std::has_single_bit(options.alignment) || options.alignment < 64) return false;

  if (options.segment_bytes == 0) options.segment_bytes = kDefaultSegment;
  const uint64_t step = std::max<uint64_t>(options.alignment, out->source.page_bytes);
  if (options.segment_bytes > uint64_t{1} << 40) return false;
  options.segment_bytes = std::bit_ceil(std::max(options.segment_bytes, step));
  if (options.limit_bytes == 0) options.limit_bytes = UINT64_MAX;
  if (options.watermark_bytes == 0) options.watermark_bytes = options.limit_bytes;
  const uint64_t most = kMostUnits * options.alignment / options.segment_bytes;
  if (most == 0) return false;
  if (options.reserve_bytes == 0) {
    options.reserve_bytes =
        options.limit_bytes != UINT64_MAX ? options.limit_bytes : host_memory_bytes();
  }
  const uint64_t segments = (options.reserve_bytes - 1) / options.segment_bytes + 1;
  options.reserve_bytes = std::min(segments, most) * options.segment_bytes;
  options.source = &out->source;
  options.metadata = &out->metadata;
  options.hooks = &out->hooks;
  return true;
}

}  // namespace

DvtMetadataMemory davit::alloc::default_host() {
  return {nullptr, host_allocate, host_release};
}

void dvt_allocator_options_init(DvtAllocatorOptions* options) {
  *options = {};
  options->struct_size = sizeof *options;
}

DvtCode dvt_allocator_create(const DvtAllocatorOptions* options, DvtAllocator** out) {
  *out = nullptr;
  Validated validated{};
  if (!validate(options, &validated)) return DVT_INVALID_ARGUMENT;
  const DvtMetadataMemory& host = validated.metadata;
  void* place = host.allocate(host.user, sizeof(DvtAllocator));
  if (place == nullptr) return DVT_OUT_OF_MEMORY;
  auto* allocator = new (place) DvtAllocator(validated.options);
  if (!allocator->init()) {
    dvt_allocator_destroy(allocator);
    return DVT_OUT_OF_MEMORY;
  }
  *out = allocator;
  return DVT_OK;
}

void dvt_allocator_destroy(DvtAllocator* allocator) {
  if (allocator == nullptr) return;
  davit::alloc::MetadataMemory memory = allocator->memory();
  allocator->~DvtAllocator();
  memory.release(allocator, sizeof(DvtAllocator));
}

DvtCode dvt_allocator_acquire(DvtAllocator* allocator, uint64_t bytes, uint32_t owner,
                              DvtBlock* out) {
  SpanId id = 0;
  const DvtCode code = allocator->acquire(bytes, owner, &id);
  if (code != DVT_OK) return code;
  out->address = allocator->heap().pointer(id);
  out->id = allocator->heap().outside(id);
  return DVT_OK;
}

DvtCode dvt_allocator_acquire_cached(DvtAllocator* allocator, uint64_t bytes, uint32_t owner,
                                     DvtBlock* out) {
  SpanId id = 0;
  const DvtCode code = allocator->acquire_cached(bytes, owner, &id);
  if (code != DVT_OK) return code;
  out->address = allocator->heap().pointer(id);
  out->id = allocator->heap().outside(id);
  return DVT_OK;
}

DvtCode dvt_allocator_set_owner(DvtAllocator* allocator, uint64_t id, uint32_t owner) {
  const SpanId span = allocator->heap().live(id);
  if (span == 0) return DVT_INVALID_ARGUMENT;
  allocator->heap().set_owner(span, owner);
  return DVT_OK;
}

DvtCode dvt_allocator_release(DvtAllocator* allocator, uint64_t id) {
  const SpanId span = allocator->heap().live(id);
  if (span == 0) return DVT_INVALID_ARGUMENT;
  allocator->release(span);
  return DVT_OK;
}

DvtCode dvt_allocator_malloc(DvtAllocator* allocator, uint64_t bytes, uint32_t owner, void** out) {
  if (!allocator->table().prepare_insert()) return DVT_OUT_OF_MEMORY;
  SpanId id = 0;
  const DvtCode code = allocator->acquire(bytes, owner, &id);
  if (code != DVT_OK) return code;
  *out = allocator->heap().pointer(id);
  allocator->table().insert(reinterpret_cast<uint64_t>(*out), id);
  return DVT_OK;
}

DvtCode dvt_allocator_free(DvtAllocator* allocator, void* address) {
  if (address == nullptr) return DVT_OK;
  const SpanId id =
      allocator->table().extract(allocator->heap(), reinterpret_cast<uint64_t>(address));
  if (id == 0) return DVT_INVALID_ARGUMENT;
  allocator->release(id);
  return DVT_OK;
}

uint64_t dvt_allocator_block_bytes(const DvtAllocator* allocator, uint64_t id) {
  const SpanId span = allocator->heap().live(id);
  return span == 0 ? 0 : uint64_t{allocator->heap()[span].units} << allocator->heap().shift();
}

uint64_t dvt_allocator_trim(DvtAllocator* allocator, uint64_t keep_bytes) {
  return allocator->trim(keep_bytes);
}

DvtCode dvt_allocator_pin(DvtAllocator* allocator, const void* address, uint64_t bytes) {
  return allocator->pin(reinterpret_cast<uint64_t>(address), bytes);
}

DvtCode dvt_allocator_unpin(DvtAllocator* allocator, const void* address, uint64_t bytes) {
  return allocator->unpin(reinterpret_cast<uint64_t>(address), bytes);
}

void dvt_allocator_statistics(const DvtAllocator* allocator, DvtAllocatorStatistics* out) {
  allocator->statistics(out);
}

uint64_t dvt_allocator_live_bytes(const DvtAllocator* allocator) {
  return allocator->heap().live_bytes();
}

void dvt_allocator_reset_peaks(DvtAllocator* allocator) {
  allocator->reset_peaks();
}

void dvt_allocator_visit(const DvtAllocator* allocator, DvtBlockVisitor visit, void* user) {
  allocator->visit(visit, user);
}

void dvt_allocator_explain(const DvtAllocator* allocator, uint64_t bytes, uint32_t owner,
                           DvtError* out) {
  allocator->explain(bytes, owner, out);
}

int dvt_allocator_is_valid(const DvtAllocator* allocator) {
  return allocator->is_valid() ? 1 : 0;
}
