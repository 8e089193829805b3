#include "exec/trace.hpp"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/files.hpp"
#include "base/utf8.hpp"
namespace davit::trace {
namespace {

// Nanoseconds as the format's microseconds, without loss.
void append_microseconds(std::string& out, int64_t ns) {
  char text[40];
  const uint64_t magnitude = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  std::snprintf(text, sizeof text, "%s%" PRIu64 ".%03" PRIu64, ns < 0 ? "-" : "", magnitude / 1000,
                magnitude % 1000);
  out += text;
}

Status file_error(const std::string& path, const char* what) {
  return Status(ErrorDetail{.code = DVT_IO_ERROR,
                            .stage = DVT_STAGE_WRITE,
                            .message = std::string("cannot ") + what + " the trace file " + path +
                                       ": " + std::strerror(errno)});
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    size_t length = 1;
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text.front();
    } else if (byte < 0x20 || byte == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else if (const size_t sequence = utf8_length(text); sequence != 0) {
      out += text.substr(0, sequence);
      length = sequence;
    } else {
      out += "\\ufffd";
    }
    text.remove_prefix(length);
  }
  out += '"';
}

void Args::key(std::string_view key) {
  if (!body_.empty()) body_ += ',';
  append_json_string(body_, key);
  body_ += ':';
}

Args& Args::text(std::string_view name, std::string_view value) {
  key(name);
  append_json_string(body_, value);
  return *this;
}

Args& Args::integer(std::string_view name, int64_t value) {
  key(name);
  body_ += std::to_string(value);
  return *this;
}

Args& Args::real(std::string_view name, double value) {
  key(name);
  char text[40] = "null";
  if (std::isfinite(value)) std::snprintf(text, sizeof text, "%.17g", value);
  body_ += text;
  return *this;
}

void TraceWriter::open(std::string_view phase, Row row, std::string_view name, int64_t at_ns) {
  events_ += events_.empty() ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
  events_ += phase;
  events_ +=
      "\",\"pid\":" + std::to_string(row.pid) + ",\"tid\":" + std::to_string(row.tid) + ",\"ts\":";
  append_microseconds(events_, at_ns);
  events_ += ",\"name\":";
  append_json_string(events_, name);
}

void TraceWriter::close(const Args& args) {
  if (!args.empty()) events_ += ",\"args\":" + args.json();
  events_ += '}';
}

void TraceWriter::metadata(std::string_view key, std::string_view value) {
  other_.text(key, value);
}

void TraceWriter::process(uint32_t pid, std::string_view name, int32_t sort_index) {
  open("M", {pid, 0}, "process_name", 0);
  close(Args().text("name", name));
  open("M", {pid, 0}, "process_sort_index", 0);
  close(Args().integer("sort_index", sort_index));
}

void TraceWriter::row(Row row, std::string_view name, int32_t sort_index) {
  open("M", row, "thread_name", 0);
  close(Args().text("name", name));
  open("M", row, "thread_sort_index", 0);
  close(Args().integer("sort_index", sort_index));
}

void TraceWriter::slice(Row row, std::string_view name, std::string_view category, int64_t begin_ns,
                        int64_t duration_ns, const Args& args) {
  open("X", row, name, begin_ns);
  events_ += ",\"dur\":";
  append_microseconds(events_, duration_ns);
  events_ += ",\"cat\":";
  append_json_string(events_, category);
  close(args);
}

void TraceWriter::instant(Row row, std::string_view name, int64_t at_ns, const Args& args) {
  open("i", row, name, at_ns);
  events_ += ",\"s\":\"t\"";
  close(args);
}

void TraceWriter::flow(Row from, int64_t from_ns, Row to, int64_t to_ns) {
  const std::string id = std::to_string(next_flow_++);
  open("s", from, "data", from_ns);
  events_ += ",\"cat\":\"flow\",\"id\":" + id;
  close({});
  open("f", to, "data", to_ns);
  events_ += ",\"cat\":\"flow\",\"bp\":\"e\",\"id\":" + id;
  close({});
}

void TraceWriter::async_begin(uint32_t pid, uint64_t id, std::string_view name,
                              std::string_view category, int64_t at_ns, const Args& args) {
  open("b", {pid, 0}, name, at_ns);
  events_ += ",\"id\":" + std::to_string(id) + ",\"cat\":";
  append_json_string(events_, category);
  close(args);
}

void TraceWriter::async_end(uint32_t pid, uint64_t id, std::string_view name,
                            std::string_view category, int64_t at_ns) {
  open("e", {pid, 0}, name, at_ns);
  events_ += ",\"id\":" + std::to_string(id) + ",\"cat\":";
  append_json_string(events_, category);
  close({});
}

void TraceWriter::counter(uint32_t pid, std::string_view name, int64_t at_ns,
                          std::string_view series, int64_t value) {
  open("C", {pid, 0}, name, at_ns);
  close(Args().integer(series, value));
}

std::string TraceWriter::json() const {
  return "{\"displayTimeUnit\":\"ns\",\"otherData\":" + other_.json() + ",\"traceEvents\":[" +
         events_ + "\n]}\n";
}

Status TraceWriter::write_file(const std::string& stated_path) const {
  if (Status status = check_replaceable(stated_path); !status.ok()) return status;
  const std::string path = resolve_link(stated_path);
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) return file_error(temporary, "create");
  const std::string text = json();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  // Close in any case, but do not let a good close hide a bad write.
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) {
    Status status = file_error(temporary, "write");
    ::unlink(temporary.c_str());
    return status;
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    Status status = file_error(path, "create");
    ::unlink(temporary.c_str());
    return status;
  }
  return {};
}

}  // namespace davit::trace
