// Schedules in images: what the verifier refuses, and the text form.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::ImageModel;
using davit::image::Schedule;

namespace {

// What the verifier says of the sample after `change` of its schedule.
std::string message(const std::function<void(Schedule&)>& change) {
  return write_message(kScheduleSample, [&](ImageModel& m) { change(m.graphs[0].schedule); });
}

// The sample with other parts.
std::string parts(const std::string& lines) {
  std::string text(kScheduleSample);
  const size_t begin = text.find("  part ");
  text.replace(begin, text.find("}\n", begin) - begin, lines);
  return write_message(text);
}

}  // namespace

TEST_CASE("a schedule round-trips through bytes and text") {
  const auto model = davit::image::read_image_model(assemble(kScheduleSample));
  REQUIRE(model.ok());
  const Schedule& schedule = model->graphs[0].schedule;
  CHECK(schedule.part_offsets == std::vector<uint32_t>{0, 4, 5});
  CHECK(schedule.nodes == std::vector<uint32_t>{0, 1, 3, 4, 2});
  CHECK(schedule.wait_offsets == std::vector<uint32_t>{0, 0, 0, 1, 1, 2});
  CHECK(schedule.waits == std::vector<uint32_t>{4, 0});
  CHECK(davit::image::dump_text(*model, tables()) == kScheduleSample);
}

TEST_CASE("schedules that are fine") {
  CHECK(parts("").empty());
  CHECK(parts("  part [n0, n2, n1, n3, n4]\n").empty());
  CHECK(parts("  part [n0, n2, n1, n3, n4]\n  part []\n").empty());
  CHECK(parts("  part [n0]\n  part [n1 after [n0]]\n  part [n2 after [n0]]\n"
              "  part [n3 after [n1, n2], n4]\n")
            .empty());
}

TEST_CASE("every node has one position") {
  CHECK(parts("  part [n0, n1, n2, n3]\n") == "graphs[0].part_nodes: has 4 entries, must have 5");
  CHECK(message([](Schedule& s) { s.nodes[1] = 4; }) ==
        "graphs[0].part_nodes[3]: the node occurs twice");
  CHECK(message([](Schedule& s) { s.nodes[1] = 5; }) ==
        "graphs[0].part_nodes[1]: there is no such node");
}

TEST_CASE("offsets and waits stay inside the tables") {
  CHECK(message([](Schedule& s) {
          s.part_offsets = {0, 4, 4};
        }) == "graphs[0].part_off: must be 3 numbers from 0 to 5");
  CHECK(message([](Schedule& s) {
          s.part_offsets = {0, 5, 4, 5};
        }) == "graphs[0].part_off[2]: offsets must not decrease");
  CHECK(message([](Schedule& s) { s.part_offsets.assign(1, 0); }) ==
        "graphs[0].part_off: a schedule without parts");
  CHECK(message([](Schedule& s) {
          s.part_offsets.assign(66, 5);
          s.part_offsets[0] = 0;
        }) == "graphs[0].part_off: there must be 1 to 64 parts");
  CHECK(message([](Schedule& s) { s.wait_offsets[5] = 1; }) ==
        "graphs[0].wait_off[5]: the last offset must be 2, the length of the data");
  CHECK(message([](Schedule& s) { s.waits[0] = 5; }) ==
        "graphs[0].waits[0]: there is no such position");
  CHECK(message([](Schedule& s) { s.waits[0] = 1; }) ==
        "graphs[0].waits[0]: it is of the part that waits");
}

TEST_CASE("waits have no cycle, and nothing that a node needs is missing") {
  CHECK(parts("  part [n0 after [n2], n1, n3, n4]\n  part [n2 after [n0]]\n") ==
        "graphs[0].waits: they form a cycle");
  CHECK(parts("  part [n0, n3 after [n2], n1, n4]\n  part [n2 after [n0]]\n") ==
        "graphs[0].waits: node 3 may run before node 1, which it has to come after");
  CHECK(parts("  part [n0, n1, n3, n4]\n  part [n2 after [n0]]\n") ==
        "graphs[0].waits: node 3 may run before node 2, which it has to come after");
  CHECK(parts("  part [n0, n1, n3 after [n2], n4]\n  part [n2]\n") ==
        "graphs[0].waits: node 2 may run before node 0, which it has to come after");
}

TEST_CASE("no two values that may live together under some interleaving share memory") {
  // In the order of the image c is written when b's reader has run; here both run at once.
  const std::string text = R"(davit 1.3 target cpu
input x: f32[4]
output y: f32[4]
output z: f32[4]
planned b: f32[4] @0
planned c: f32[4] @0
graph main {
  n0: b = test.Copy(x)
  n1: y = test.Copy(b)
  n2: c = test.Copy(x)
  n3: z = test.Copy(c)
)";
  CHECK(write_message(text + "}\n").empty());
  CHECK(write_message(text + "  part [n0, n1]\n  part [n2 after [n1], n3]\n}\n").empty());
  CHECK(write_message(text + "  part [n0, n1]\n  part [n2 after [n0], n3]\n}\n") ==
        "graphs[0].waits: node 2 may run before node 1, which it has to come after");
  CHECK(write_message(text + "  part [n2, n3, n0, n1]\n}\n") ==
        "graphs[0].waits: node 2 may run before node 0, which it has to come after");
}

TEST_CASE("only Main of a static cpu graph has a schedule") {
  const auto with_schedule = [&](davit::image::GraphRole role) {
    return write_message(kBodySample, [&](ImageModel& m) {
      for (davit::image::Graph& graph : m.graphs) {
        if (graph.role != role) continue;
        const auto count = static_cast<uint32_t>(graph.nodes.size());
        graph.schedule.part_offsets = {0, count};
        graph.schedule.wait_offsets.assign(count + 1, 0);
        for (uint32_t i = 0; i < count; ++i) graph.schedule.nodes.push_back(i);
      }
    });
  };
  CHECK(with_schedule(davit::image::GraphRole::kMain)
            .find("part_off: a schedule, but the graph has branches or loops") !=
        std::string::npos);
  CHECK(with_schedule(davit::image::GraphRole::kBody).find("part_off: only Main has a schedule") !=
        std::string::npos);
}

TEST_CASE("errors of the text form have a place") {
  const auto parse_message = [&](const std::string& line) {
    std::string text(kScheduleSample);
    text.insert(text.rfind('}'), line);
    const auto made = davit::image::assemble_text(text, tables());
    return made.ok() ? std::string() : made.status().detail().message;
  };
  CHECK(parse_message("  part [n9]\n") == "line 18, column 9: no node has this label");
  CHECK(parse_message("  part [n1 after [n9]]\n") == "line 18, column 19: no part has this node");
  CHECK(parse_message("  part [n1 after n0]\n") == "line 18, column 18: expected '[', got 'n0'");
}
