#include "cli/memory_profile.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report.hpp"
#include "cli/table.hpp"

namespace davit::cli {
namespace {

constexpr const char* kPlanned = "planned";

double fragmentation(const DvtMemoryStatistics& pool) {
  if (pool.cached_bytes == 0) return 0;
  return 1 - static_cast<double>(pool.largest_hole_bytes) / static_cast<double>(pool.cached_bytes);
}

}  // namespace

MemoryProfiler::MemoryProfiler(const DvtExecutor* executor, const image::ImageModel& model,
                               Watchdog* watchdog)
    : executor_(executor),
      watchdog_(watchdog),
      planned_(planned_values(model)),
      arena_bytes_(model.arena_bytes) {
  for (const image::Graph& graph : model.graphs) {
    if (graph.role == image::GraphRole::kMain) planned_bytes_.resize(graph.nodes.size());
  }
  // Results in place share bytes, which count once. Values come by offset.
  std::vector<uint64_t> counted_to(planned_bytes_.size());
  for (const PlannedValue& value : planned_) {
    if (value.nodes.first == image::kNone) continue;
    const uint64_t end = value.offset + value.bytes;
    for (uint32_t node = value.nodes.first; node <= value.nodes.last; ++node) {
      const uint64_t begin = std::max(counted_to[node], value.offset);
      if (end > begin) planned_bytes_[node] += end - begin;
      counted_to[node] = std::max(counted_to[node], end);
    }
  }
}

void MemoryProfiler::observe(void* user, const DvtNodeEvent* event) {
  auto& self = *static_cast<MemoryProfiler*>(user);
  if (self.watchdog_ != nullptr) self.watchdog_->note(event->origin, event->op);
  // Nodes of bodies run inside the next node of Main that is told of.
  if (event->body == DVT_NO_INDEX) self.main_node_ = event->node;
  const Event now = {.node = event->node,
                     .body = event->body,
                     .origin = event->origin,
                     .op = event->op,
                     .kernel = event->kernel,
                     .planned_bytes = self.main_node_ < self.planned_bytes_.size()
                                          ? self.planned_bytes_[self.main_node_]
                                          : 0,
                     .heap_bytes = dvt_executor_live_bytes(self.executor_, DVT_MEMORY_HEAP),
                     .device_bytes = dvt_executor_live_bytes(self.executor_, DVT_MEMORY_DEVICE)};
  if (now.bytes() > self.peak_.bytes()) self.note_peak(now);
  if (self.events_.size() < kEventsMax) {
    self.events_.push_back(now);
  } else {
    ++self.dropped_;
  }
}

void MemoryProfiler::note_peak(const Event& event) {
  peak_ = event;
  const auto visit = [](void* owners, const char* node, uint64_t bytes) {
    Owned& owned = (*static_cast<std::map<std::string, Owned>*>(owners))[node];
    owned.bytes += bytes;
    ++owned.blocks;
  };
  heap_owners_.clear();
  device_owners_.clear();
  dvt_executor_visit_memory(executor_, DVT_MEMORY_HEAP, visit, &heap_owners_);
  dvt_executor_visit_memory(executor_, DVT_MEMORY_DEVICE, visit, &device_owners_);
}

// Who held memory at the peak, most first.
std::vector<MemoryProfiler::Owner> MemoryProfiler::owners() const {
  std::vector<Owner> owners;
  for (const PlannedValue& value : planned_) {
    const bool live = value.nodes.first != image::kNone && value.nodes.first <= peak_.node &&
                      peak_.node <= value.nodes.last;
    if (live && peak_.body == DVT_NO_INDEX)
      owners.push_back({kPlanned, value.name, {value.bytes, 1}});
  }
  for (const auto& [name, owned] : heap_owners_) owners.push_back({"heap", name, owned});
  for (const auto& [name, owned] : device_owners_) owners.push_back({"device", name, owned});
  std::ranges::stable_sort(
      owners, [](const Owner& a, const Owner& b) { return a.owned.bytes > b.owned.bytes; });
  return owners;
}

void MemoryProfiler::report_pool(Table& table, Json& json, const char* name,
                                 DvtMemoryPool pool) const {
  DvtMemoryStatistics now;
  dvt_executor_memory(executor_, pool, &now);
  if (now.allocations == 0) return;
  table.add_row({name, format_bytes(now.live_peak_bytes), format_bytes(now.reserved_peak_bytes),
                 format_bytes(now.live_bytes), format_bytes(now.cached_bytes),
                 format_bytes(now.largest_hole_bytes), format_percent(fragmentation(now)),
                 fmt::format("{}", now.allocations), fmt::format("{}", now.system_allocations),
                 now.limit_bytes == 0 ? "none" : format_bytes(now.limit_bytes)});
  json.push_back({{"pool", name},
                  {"live_peak_bytes", now.live_peak_bytes},
                  {"reserved_peak_bytes", now.reserved_peak_bytes},
                  {"live_bytes", now.live_bytes},
                  {"cached_bytes", now.cached_bytes},
                  {"largest_hole_bytes", now.largest_hole_bytes},
                  {"fragmentation", fragmentation(now)},
                  {"allocations", now.allocations},
                  {"system_allocations", now.system_allocations},
                  {"recoveries", now.recoveries},
                  {"limit_bytes", now.limit_bytes}});
}

// What the engine keeps on the host for itself.
Json MemoryProfiler::report_host(Session& session, const DvtImage* image) const {
  Table table({{"engine", Table::Align::kLeft},
               {"objects"},
               {"bytes"},
               {"peak"},
               {"allocations"},
               {"mapped"}});
  Json json = Json::array();
  const auto add = [&](const char* name, const DvtHostMemory& memory) {
    table.add_row({name, fmt::format("{}", memory.live_objects), format_bytes(memory.live_bytes),
                   format_bytes(memory.live_peak_bytes), fmt::format("{}", memory.allocations),
                   format_bytes(memory.mapped_bytes)});
    json.push_back({{"engine", name},
                    {"live_objects", memory.live_objects},
                    {"live_bytes", memory.live_bytes},
                    {"live_peak_bytes", memory.live_peak_bytes},
                    {"allocations", memory.allocations},
                    {"mapped_bytes", memory.mapped_bytes},
                    {"allocator", memory.allocator}});
  };
  DvtHostMemory memory;
  dvt_image_host_memory(image, &memory);
  add("image", memory);
  dvt_executor_host_memory(executor_, &memory);
  add("executor", memory);
  session.print("Kept on the host beside values ({})\n{}", memory.allocator, table.to_text());
  return json;
}

// Who held memory when most was live.
Json MemoryProfiler::report_owners(Session& session, size_t top) const {
  using Align = Table::Align;
  Table table({{"owner", Align::kLeft}, {"pool", Align::kLeft}, {"bytes"}, {"blocks"}, {"%"}});
  const std::vector<Owner> held = owners();
  Json json = Json::array();
  for (size_t i = 0; i < held.size(); ++i) {
    const Owned& owned = held[i].owned;
    json.push_back({{"owner", held[i].name},
                    {"pool", held[i].pool},
                    {"bytes", owned.bytes},
                    {"blocks", owned.blocks}});
    if (i >= top) continue;
    const double share = static_cast<double>(owned.bytes) /
                         static_cast<double>(std::max<uint64_t>(peak_.bytes(), 1));
    table.add_row({held[i].name, held[i].pool, format_bytes(owned.bytes),
                   fmt::format("{}", owned.blocks), format_percent(share)});
  }
  if (peak_.origin != nullptr) {  // Something was live.
    session.print("Most live: {} after node {} ({}); held by ({} of {})\n{}",
                  format_bytes(peak_.bytes()), peak_.node, printable(peak_place()),
                  std::min(top, held.size()), held.size(), table.to_text());
  }
  return json;
}

const char* MemoryProfiler::peak_place() const {
  return *peak_.origin != '\0' ? peak_.origin : peak_.kernel;
}

void MemoryProfiler::report(Session& session, const DvtImage* image, size_t top) const {
  using Align = Table::Align;
  Table pools({{"pool", Align::kLeft},
               {"live peak"},
               {"reserved peak"},
               {"live now"},
               {"cached"},
               {"largest hole"},
               {"fragmentation"},
               {"allocations"},
               {"of the system"},
               {"limit"}});
  Json json = {{"pools", Json::array()}};
  const uint64_t planned_peak =
      planned_bytes_.empty() ? 0 : *std::ranges::max_element(planned_bytes_);
  if (arena_bytes_ > 0) {
    pools.add_row({kPlanned, format_bytes(planned_peak), format_bytes(arena_bytes_), "-", "-", "-",
                   "-", "-", "-", "-"});
    json["pools"].push_back({{"pool", kPlanned},
                             {"live_peak_bytes", planned_peak},
                             {"reserved_peak_bytes", arena_bytes_}});
  }
  report_pool(pools, json["pools"], "heap", DVT_MEMORY_HEAP);
  report_pool(pools, json["pools"], "device", DVT_MEMORY_DEVICE);
  session.print("Memory of values, one observed run after the others\n{}", pools.to_text());

  json["owners_at_peak"] = report_owners(session, top);
  if (peak_.origin != nullptr) {
    json["peak"] = {{"node", peak_.node}, {"origin", peak_place()}, {"live_bytes", peak_.bytes()}};
  }
  json["host"] = report_host(session, image);
  session.result()["memory"] = std::move(json);
}

std::vector<uint64_t> MemoryProfiler::live_bytes() const {
  std::vector<uint64_t> bytes;
  bytes.reserve(events_.size());
  for (const Event& event : events_) bytes.push_back(event.bytes());
  return bytes;
}

Status MemoryProfiler::write_csv(const std::string& path) const {
  std::string text = csv_line({"node", "body", "origin", "op", "kernel", "planned_live_bytes",
                               "heap_live_bytes", "device_live_bytes"});
  for (const Event& event : events_) {
    text += csv_line({fmt::format("{}", event.node),
                      event.body == DVT_NO_INDEX ? "" : fmt::format("{}", event.body), event.origin,
                      event.op, event.kernel, fmt::format("{}", event.planned_bytes),
                      fmt::format("{}", event.heap_bytes), fmt::format("{}", event.device_bytes)});
  }
  return write_text(path, text);
}

}  // namespace davit::cli
