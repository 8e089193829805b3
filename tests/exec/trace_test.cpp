// The trace writer: what it writes is JSON that a parser takes, whatever the names are.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "exec/trace.hpp"

namespace trace = davit::trace;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  trace::append_json_string(out, text);
  return out;
}

json events_of(const trace::TraceWriter& writer) {
  return json::parse(writer.json()).at("traceEvents");
}

}  // namespace

TEST_CASE("strings survive a parser") {
  for (const std::string& text :
       {std::string(), std::string("plain"), std::string("quote \" slash \\ tab \t line \n"),
        std::string("nul \0 inside", 12), std::string("\x01\x1f\x7f"),
        std::string("caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x9A\xA2")}) {
    CHECK(json::parse(escaped(text)).get<std::string>() == text);
  }
}

TEST_CASE("bytes that are not UTF-8 become U+FFFD") {
  // A stray continuation, a cut sequence, an overlong one, a surrogate, a value above U+10FFFF.
  for (const std::string text :
       {"\x80", "a\xE6\xBC", "\xC0\xAF", "\xED\xA0\x80", "\xF5\x80\x80\x80"}) {
    const auto parsed = json::parse(escaped(text)).get<std::string>();
    CHECK(parsed.find("\xEF\xBF\xBD") != std::string::npos);
  }
  CHECK(escaped("a\xFF"
                "b") == "\"a\\ufffdb\"");
}

TEST_CASE("args hold text, integers and reals, and null for what JSON has no number for") {
  const json args = json::parse(trace::Args()
                                    .text("t", "x\"y")
                                    .integer("i", std::numeric_limits<int64_t>::min())
                                    .real("r", 0.1)
                                    .real("n", std::numeric_limits<double>::quiet_NaN())
                                    .json());
  CHECK(args["t"] == "x\"y");
  CHECK(args["i"] == std::numeric_limits<int64_t>::min());
  CHECK(args["r"] == 0.1);
  CHECK(args["n"].is_null());
  CHECK(trace::Args().json() == "{}");
}

TEST_CASE("a slice has its place, its time in microseconds and its args") {
  trace::TraceWriter writer;
  writer.process(7, "davit cpu", 1);
  writer.row({7, 2}, "mem-0", 3);
  writer.slice({7, 2}, "Conv_0", "normal", 1'234'567, 890, trace::Args().text("op", "Conv"));
  const json events = events_of(writer);
  CHECK(events[0]["ph"] == "M");
  CHECK(events[0]["name"] == "process_name");
  CHECK(events[0]["args"]["name"] == "davit cpu");
  CHECK(events[2]["name"] == "thread_name");
  CHECK(events[2]["args"]["name"] == "mem-0");
  const json& slice = events[4];
  CHECK(slice["ph"] == "X");
  CHECK(slice["pid"] == 7);
  CHECK(slice["tid"] == 2);
  CHECK(slice["ts"] == 1234.567);
  CHECK(slice["dur"] == 0.89);
  CHECK(slice["cat"] == "normal");
  CHECK(slice["args"]["op"] == "Conv");
}

TEST_CASE("times before the origin keep their sign") {
  trace::TraceWriter writer;
  writer.instant({1, 1}, "before", -1'500);
  CHECK(events_of(writer)[0]["ts"] == -1.5);
}

TEST_CASE("each flow has an id of its own, shared by its two ends") {
  trace::TraceWriter writer;
  writer.flow({1, 1}, 10, {1, 2}, 20);
  writer.flow({1, 1}, 11, {1, 2}, 21);
  const json events = events_of(writer);
  CHECK(events[0]["ph"] == "s");
  CHECK(events[1]["ph"] == "f");
  CHECK(events[1]["bp"] == "e");
  CHECK(events[0]["id"] == events[1]["id"]);
  CHECK(events[2]["id"] == events[3]["id"]);
  CHECK(events[0]["id"] != events[2]["id"]);
}

TEST_CASE("runs are asynchronous spans and counters have a series") {
  trace::TraceWriter writer;
  writer.async_begin(1, 42, "run", "run", 5, trace::Args().integer("run_id", 0));
  writer.async_end(1, 42, "run", "run", 9);
  writer.counter(1, "memory", 7, "live bytes", 1024);
  writer.metadata("clock", "cycles");
  const json document = json::parse(writer.json());
  const json& events = document["traceEvents"];
  CHECK(events[0]["ph"] == "b");
  CHECK(events[1]["ph"] == "e");
  CHECK(events[0]["id"] == events[1]["id"]);
  CHECK(events[2]["args"]["live bytes"] == 1024);
  CHECK(document["otherData"]["clock"] == "cycles");
}

TEST_CASE("a file appears complete, or not at all") {
  const fs::path folder = fs::temp_directory_path() / ("davit_trace_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  trace::TraceWriter writer;
  writer.instant({1, 1}, "here", 0);
  const fs::path path = folder / "t.json";
  REQUIRE(writer.write_file(path.string()).ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() == writer.json());
  CHECK(std::distance(fs::directory_iterator(folder), {}) == 1);  // No temporary file is left.

  const davit::Status failed = writer.write_file((folder / "missing" / "t.json").string());
  CHECK(failed.code() == DVT_IO_ERROR);
  CHECK(failed.detail().message.find("missing") != std::string::npos);
  fs::remove_all(folder);
}
