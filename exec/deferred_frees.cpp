#include "exec/deferred_frees.hpp"

#include <new>
#include <span>
#include <utility>

#include "exec/sequential_c/sequential.h"

namespace davit::exec {

Result<std::unique_ptr<DeferredFrees>> DeferredFrees::create(const ImageView& image,
                                                             const GraphView& graph) {
  try {
    std::vector<uint32_t> flags;
    for (const auto& kernel : image.kernel_refs) flags.push_back(kernel.flags);
    size_t rows = 0;
    for (uint32_t node = 0; node < graph.node_count; ++node) {
      rows += graph.free_launches_of(node).empty() ? 0 : 1;
    }
    std::unique_ptr<DeferredFrees> made(new DeferredFrees(std::move(flags), rows));
    RelationTables tables = {.kernel = {graph.kernel, graph.node_count},
                             .kernel_flags = made->kernel_flags_,
                             .free_offsets = {},
                             .free_launches = {}};
    if (graph.free_off != nullptr) {
      tables.free_offsets = {graph.free_off, size_t{graph.node_count} + 1};
      tables.free_launches = {graph.free_launch, graph.free_off[graph.node_count]};
    }
    auto books = Books::create(tables);
    if (!books.ok()) return std::move(books.status());
    made->relations_ = std::move(*books);
    made->wait_ = made->relations_->make_wait();
    return made;
  } catch (const std::bad_alloc&) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_LOAD, "no memory for Free-to-Launch relations");
  }
}

void DeferredFrees::begin_run() noexcept {
  relations_->begin_run();
  held_.clear();
  waiting_ = false;
  awaited_launch_.store(kNone, std::memory_order_relaxed);
}

DvtCode DeferredFrees::finish(DvtRuntime& runtime) noexcept {
  return release(runtime, held_.size());
}

DvtCode DeferredFrees::release(DvtRuntime& runtime, size_t count) noexcept {
  DvtCode first = DVT_OK;
  for (size_t i = 0; i < count; ++i) {
    const DvtCode code = dvt_free_on_device(&runtime, held_[i]);
    if (first == DVT_OK) first = code;
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
  return first;
}

DvtCode DeferredFrees::free(DvtRuntime& runtime, uint32_t node, DvtCell* cell) noexcept {
  if (!relations_->related(node)) return dvt_free_on_device(&runtime, cell);
  relations_->freed(node);
  held_.push_back(cell);
  return relations_->settled() ? release(runtime, held_.size()) : DVT_OK;
}

int32_t DeferredFrees::allocate(DvtRuntime& runtime, DvtCell* cell, uint64_t bytes,
                                const char* owner) noexcept {
  if (waiting_) {
    if (!relations_->is_over(wait_)) return DVT_STEP_SUSPENDED;
    relations_->resume(wait_);
    waiting_ = false;
    awaited_launch_.store(kNone, std::memory_order_relaxed);
    if (const DvtCode code = release(runtime, awaited_); code != DVT_OK) return code;
  }
  DvtCode code = dvt_allocate_on_device(&runtime, cell, bytes, owner);
  while (code == DVT_OUT_OF_MEMORY && !held_.empty()) {
    runtime.memory.failed = nullptr;  // It may succeed yet.
    // No Launch that is owed waits for this allocation: its relations are proved to end.
    awaited_ = held_.size();
    if (relations_->suspend(wait_, [](uint32_t /*launch*/) { return false; })) {
      waiting_ = true;
      awaited_launch_.store(wait_.launch(), std::memory_order_relaxed);
      return DVT_STEP_SUSPENDED;
    }
    if (const DvtCode freed = release(runtime, awaited_); freed != DVT_OK) return freed;
    code = dvt_allocate_on_device(&runtime, cell, bytes, owner);
  }
  return code;
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
