// memory_profile.hpp: what memory a run uses, node by node: planned values, and the pools of values
// whose size is known at run time only.
//
// Threads  One thread: the one that runs the executor, in order.
// Trust    Names come from a verified image.
// Memory   A record for each node that ran, up to kEventsMax. Strings are borrowed from the image.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/image_views.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "cli/watchdog.hpp"
#include "davit/davit.h"

namespace davit::cli {

class MemoryProfiler {
 public:
  // Nodes of bodies count each time they run.
  static constexpr size_t kEventsMax = 1'000'000;

  // The watchdog may be null; it is told of every node.
  MemoryProfiler(const DvtExecutor* executor, const image::ImageModel& model, Watchdog* watchdog);

  // A DvtNodeObserver; user is the MemoryProfiler.
  static void observe(void* user, const DvtNodeEvent* event);

  // Tables of the pools, of who held most when most was live, at most `top` rows, and of what the
  // engine keeps on the host; and JSON.
  void report(Session& session, const DvtImage* image, size_t top) const;
  // Live bytes when each node had ended, one line per node.
  [[nodiscard]] Status write_csv(const std::string& path) const;
  [[nodiscard]] uint64_t dropped() const { return dropped_; }
  // The same, in the order in which they ran.
  [[nodiscard]] std::vector<uint64_t> live_bytes() const;

 private:
  struct Event {
    uint32_t node, body;
    const char* origin;
    const char* op;
    const char* kernel;
    uint64_t planned_bytes, heap_bytes, device_bytes;
    [[nodiscard]] uint64_t bytes() const { return planned_bytes + heap_bytes + device_bytes; }
  };
  struct Owned {
    uint64_t bytes = 0;
    uint64_t blocks = 0;
  };
  struct Owner {
    const char* pool;
    std::string name;
    Owned owned;
  };

  void note_peak(const Event& event);
  [[nodiscard]] std::vector<Owner> owners() const;
  void report_pool(Table& table, Json& json, const char* name, DvtMemoryPool pool) const;
  [[nodiscard]] const char* peak_place() const;  // Precondition: something was live.
  [[nodiscard]] Json report_owners(Session& session, size_t top) const;
  [[nodiscard]] Json report_host(Session& session, const DvtImage* image) const;

  const DvtExecutor* executor_;
  Watchdog* watchdog_;
  std::vector<PlannedValue> planned_;
  std::vector<uint64_t> planned_bytes_;  // Live while node i of Main runs.
  uint64_t arena_bytes_;
  std::vector<Event> events_;
  uint64_t dropped_ = 0;
  uint32_t main_node_ = 0;  // The last one that began, as far as events tell.
  // When most was live.
  Event peak_{};
  std::map<std::string, Owned> heap_owners_, device_owners_;
};

}  // namespace davit::cli
