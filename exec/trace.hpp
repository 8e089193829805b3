// trace.hpp: writes traces in the Chrome JSON format, which Perfetto opens directly.
//
//   process (pid)  one per engine: the executors of this process, or a device model
//   row     (tid)  one per worker or device resource, its role in the name
//   X       one slice per node or task; args: node, op, kernel, shapes, dtype, bytes, ...
//   s / f   flow arrows from producer to consumer
//   b / e   one asynchronous span per run
//   C       counters
//
// docs/trace.md describes every field. Device models add their own process and rows to the same
// writer.
//
// Threads  A writer belongs to one thread.
// Memory   A writer holds the whole trace as text, about 300 bytes a slice. Strings are copied.
// Time     Nanoseconds from any fixed origin; clocks of processes may differ (name them with
//          metadata()).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace davit::trace {

// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

// The args of an event: a flat JSON object. Keys are not checked for duplicates.
class Args {
 public:
  Args& text(std::string_view key, std::string_view value);
  Args& integer(std::string_view key, int64_t value);
  Args& real(std::string_view key, double value);  // null when not finite.

  // "{...}"
  [[nodiscard]] std::string json() const { return "{" + body_ + "}"; }
  [[nodiscard]] bool empty() const { return body_.empty(); }

 private:
  void key(std::string_view key);

  std::string body_;
};

// Where an event is drawn.
struct Row {
  uint32_t pid = 0;
  uint32_t tid = 0;
};

class TraceWriter {
 public:
  // One entry of "otherData": facts about the whole trace.
  void metadata(std::string_view key, std::string_view value);

  // Name and position of a process and of a row. Rows without events may be named too.
  void process(uint32_t pid, std::string_view name, int32_t sort_index);
  void row(Row row, std::string_view name, int32_t sort_index);

  // A slice. Slices of one row must nest or be disjoint.
  void slice(Row row, std::string_view name, std::string_view category, int64_t begin_ns,
             int64_t duration_ns, const Args& args = {});
  void instant(Row row, std::string_view name, int64_t at_ns, const Args& args = {});

  // An arrow from the slice that encloses `from_ns` on `from` to the one that encloses `to_ns`.
  void flow(Row from, int64_t from_ns, Row to, int64_t to_ns);

  // A span that may overlap others; begin and end meet by pid, category and id.
  void async_begin(uint32_t pid, uint64_t id, std::string_view name, std::string_view category,
                   int64_t at_ns, const Args& args = {});
  void async_end(uint32_t pid, uint64_t id, std::string_view name, std::string_view category,
                 int64_t at_ns);

  void counter(uint32_t pid, std::string_view name, int64_t at_ns, std::string_view series,
               int64_t value);

  // The complete document.
  [[nodiscard]] std::string json() const;

  // Writes json() to a temporary file beside `path` and renames it, so that nobody sees half a
  // trace under that name.
  [[nodiscard]] Status write_file(const std::string& path) const;

 private:
  // Starts an event with the fields that all have; the caller appends more and calls close().
  void open(std::string_view phase, Row row, std::string_view name, int64_t at_ns);
  void close(const Args& args);

  std::string events_;
  Args other_;
  uint64_t next_flow_ = 1;
};

}  // namespace davit::trace
