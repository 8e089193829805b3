// Stage 4b of the verifier: gears, and values at ports whose shape is dynamic.
#include <doctest/doctest.h>

#include <string>

#include "tests/image/dynamic_images.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::ImageModel;
using davit::image::kNone;
using davit::image::Node;
using davit::image::ValueKind;

namespace {

// Two gears, whose planned values share the arena.
const std::string kGears = R"davit(davit 1.3 target cpu
input x: f32[N=?1..2, 2] dynamic
output y: f32[?, 2] dynamic
view x1: f32[1, 2] of input x
view x2: f32[2, 2] of input x
view y1: f32[1, 2] of output y
view y2: f32[2, 2] of output y
planned t1: f32[1, 2] @0
planned t2: f32[2, 2] @0

graph main {
  y, y1, y2 = SelectGear(x, x1, x2) bodies=[one, two]
}

graph body one {
  t1 = test.Copy(x1)
  y1 = test.Copy(t1)
}

graph body two {
  t2 = test.Copy(x2)
  y2 = test.Copy(t2)
}
)davit";

std::string gears_with(const std::string& from, const std::string& to) {
  std::string text = kGears;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return write_message(text.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("gears share an arena") {
  CHECK(write_message(kGears) == "");
}

TEST_CASE("a SelectGear is the one node of Main, with bodies") {
  const std::string refused =
      "graphs[0] node 0 (SelectGear): must be the one node of Main, and have bodies";
  CHECK(gears_with("bodies=[one, two]\n}", "bodies=[one, two]\n  test.Run()\n}") == refused);
  CHECK(write_message(kGears, [](ImageModel& m) {
          m.graphs[0].nodes[0].bodies.clear();
          m.graphs.resize(1);
        }) == refused);
}

TEST_CASE("a gear has a static value of the right type at each port") {
  CHECK(change(kGears, 0, 0, [](Node& n) { n.inputs.pop_back(); }) ==
        "graphs[0] node 0 (SelectGear): needs a value for each port of the image, and for each "
        "gear");
  CHECK(change(kGears, 0, 0, [](Node& n) { n.inputs[1] = n.inputs[0]; }) ==
        "graphs[0] node 0 (SelectGear): value 0 \"x\" is not one of port \"x\"");
  CHECK(change(kGears, 0, 0, [](Node& n) { n.inputs[1] = kNone; }) ==
        "graphs[0] node 0 (SelectGear): value _ is not one of port \"x\"");
  CHECK(gears_with("f32[2, 2] of input", "i32[2, 2] of input").find("is not one of port \"x\"") !=
        std::string::npos);
  // Outside of the range of N.
  CHECK(gears_with("N=?1..2", "N=?1..1").find("is not one of port \"x\"") != std::string::npos);
}

TEST_CASE("values of a gear are for its body") {
  CHECK(gears_with("t1 = test.Copy(x1)", "t1 = test.Copy(x2)")
            .find("graphs[1]: value 3 \"x2\" is not of the gear that the graph belongs to") == 0);
  // As many bytes: a view.
  CHECK(gears_with("planned t1", "view x3: f32[2] of input x\nplanned t1") == "");
  CHECK(write_message("davit 1.3 target cpu\ninput x: f32[?1..2] dynamic\n"
                      "view v: f32[2] of input x\noutput y: f32[2]\n"
                      "graph main {\n  y = test.Copy(v)\n}\n")
            .find("graphs[0]: value 1 \"v\" is not of the gear") == 0);
}

TEST_CASE("each body writes its own outputs, all of them") {
  CHECK(gears_with("  y1 = test.Copy(t1)\n", "") ==
        "graphs[1]: result 4 \"y1\" is not filled at the end, with memory of its own");
  CHECK(write_message(kGears, [](ImageModel& m) {
          m.graphs[2].nodes[1].outputs[0] = m.graphs[1].nodes[1].outputs[0];
          m.values[m.graphs[2].nodes[1].outputs[0]].tensor = m.values[3].tensor;
        }) != "");
}

namespace {

// Gears that drive a device, and use a weight that Init has brought there.
const std::string kDeviceGears = R"davit(davit 1.3 target "ascend:910B2"
streams 1 priority [0]
input x: f32[N=?1..2, 2] dynamic
output y: f32[?1..2, 2] dynamic
const w: f32[4] = fill 1
device dw: f32[4]
view x1: f32[1, 2] of input x
view x2: f32[2, 2] of input x
view y1: f32[1, 2] of output y
view y2: f32[2, 2] of output y
device d1: f32[1, 2]
device d2: f32[2, 2]
device e2: f32[2, 2]

graph main {
  y, y1, y2 = SelectGear(x, x1, x2) bodies=[one, two]
}

graph body one {
  d1 = AllocMemHbm() {bytes=8}
  copy: LaunchH2DCopy(x1, d1) stream=0
  y1 = LaunchD2HCopy(d1) stream=0
  SyncStream() {stream=0}
  FreeMemHbm(d1) after=[copy]
}

graph body two {
  d2 = AllocMemHbm() {bytes=16}
  e2 = AllocMemHbm() {bytes=16}
  copy: LaunchH2DCopy(x2, d2) stream=0
  add: e2 = LaunchKernel<test.Add>(d2, dw) stream=0 after=[copy]
  y2 = LaunchD2HCopy(e2) stream=0
  SyncStream() {stream=0}
  FreeMemHbm(d2) after=[add]
  FreeMemHbm(e2)
}

graph init {
  CreateStream() {stream=0, priority=0}
  dw = AllocMemHbm() {bytes=16}
  LaunchH2DCopy(w, dw) stream=0
}

graph deinit {
  FreeMemHbm(dw)
  DestroyStream() {stream=0}
}
)davit";

std::string device_gears_with(const std::string& from, const std::string& to) {
  std::string text = kDeviceGears;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return write_message(text.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("gears of a device use what Init holds, and give back what they allocate") {
  CHECK(write_message(kDeviceGears) == "");
  const auto refused = [](const std::string& from, const std::string& to, const char* reason) {
    const std::string message = device_gears_with(from, to);
    CHECK_MESSAGE(message.find(reason) != std::string::npos, message);
  };
  refused("  FreeMemHbm(e2)\n", "", "\"e2\", which the graph does not free");
  refused("  FreeMemHbm(e2)\n", "  FreeMemHbm(e2)\n  FreeMemHbm(dw)\n",
          "\"dw\", which graphs[3] allocated");
  refused("  LaunchH2DCopy(w, dw) stream=0\n}",
          "  LaunchH2DCopy(w, dw) stream=0\n  FreeMemHbm(dw)\n}",
          "\"dw\", which graphs[3] node 3 freed");
  // Of another gear.
  refused("LaunchKernel<test.Add>(d2, dw)", "LaunchKernel<test.Add>(d1, dw)",
          "\"d1\" is read before it is written");
  refused("  y2 = LaunchD2HCopy(e2) stream=0\n", "", "\"y2\" is not filled at the end");
}

TEST_CASE("within a gear, values that are alive together do not overlap") {
  const std::string text = R"davit(
graph body two {
  t2 = test.Copy(x2)
  u2 = test.Copy(x2)
  y2 = test.Add(t2, u2)
}
)davit";
  std::string source = kGears.substr(0, kGears.find("\ngraph body two"));
  const auto plan = [&](const std::string& place) {
    std::string all = source + text;
    const size_t at = all.find("planned t2");
    return write_message(all.insert(at, "planned u2: f32[2, 2] @" + place + "\n"));
  };
  CHECK(plan("64") == "");
  CHECK(plan("0").find("shares memory with value") != std::string::npos);
}
