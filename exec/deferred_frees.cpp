#include "exec/deferred_frees.hpp"

#include <new>
#include <span>
#include <utility>

#include "exec/sequential_c/sequential.h"

namespace davit::exec {
namespace {

// What HeldBlocks asks of a device. The three last fields are those of an allocation.
struct OnDevice {
  DvtRuntime& runtime;
  DvtCell* cell = nullptr;
  uint64_t bytes = 0;
  const char* owner = nullptr;

  int32_t allocate() noexcept { return dvt_allocate_on_device(&runtime, cell, bytes, owner); }
  int32_t release(DvtCell* held) noexcept { return dvt_free_on_device(&runtime, held); }
  void will_retry() noexcept { runtime.memory.failed = nullptr; }
};

}  // namespace

Result<ResourcePtr<DeferredFrees>> DeferredFrees::create(const ImageView& image,
                                                         const GraphView& graph,
                                                         std::pmr::memory_resource& memory) {
  try {
    size_t rows = 0;
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      rows += graph.free_launches_of(node).empty() ? 0 : 1;
    }
    auto made = make_at_in<DeferredFrees>(
        memory, [&](void* place) { return new (place) DeferredFrees(memory); });
    made->kernel_flags_.reserve(image.kernel_refs.size());
    for (const auto& kernel : image.kernel_refs) made->kernel_flags_.push_back(kernel.flags);
    RelationTables tables = {.kernel = {graph.kernel, graph.node_count},
                             .kernel_flags = made->kernel_flags_,
                             .free_offsets = {},
                             .free_launches = {}};
    if (graph.free_off != nullptr) {
      tables.free_offsets = {graph.free_off, size_t{graph.node_count} + 1};
      tables.free_launches = {graph.free_launch, graph.free_off[graph.node_count]};
    }
    auto books = Relations<mt_topo::RealThreads>::create(tables, memory);
    if (!books.ok()) return std::move(books.status());
    made->blocks_.emplace(std::move(*books), rows, memory);
    return made;
  } catch (const std::bad_alloc&) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "no memory for Free-to-Launch relations");
  }
}

DvtCode DeferredFrees::finish(DvtRuntime& runtime) noexcept {
  return blocks_->release_all(OnDevice{.runtime = runtime});
}

DvtCode DeferredFrees::free(DvtRuntime& runtime, uint32_t node, DvtCell* cell) noexcept {
  return blocks_->free(OnDevice{.runtime = runtime}, node, cell);
}

int32_t DeferredFrees::allocate(DvtRuntime& runtime, DvtCell* cell, uint64_t bytes,
                                const char* owner) noexcept {
  return blocks_->allocate(
      OnDevice{.runtime = runtime, .cell = cell, .bytes = bytes, .owner = owner});
}

}  // namespace davit::exec

int32_t dvt_deferred_allocate(DvtDeferredFrees* deferred, DvtRuntime* runtime, DvtCell* cell,
                              uint64_t bytes, const char* owner) {
  return deferred->frees.allocate(*runtime, cell, bytes, owner);
}
DvtCode dvt_deferred_free(DvtDeferredFrees* deferred, DvtRuntime* runtime, uint32_t node,
                          DvtCell* cell) {
  return deferred->frees.free(*runtime, node, cell);
}
void dvt_deferred_submitted(DvtDeferredFrees* deferred, uint32_t node) {
  deferred->frees.submitted(node);
}
