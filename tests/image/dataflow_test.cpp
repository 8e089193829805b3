// Stages 5 to 7 of the verifier: writers and readers, views, edges, bodies, device memory,
// overlaps.
#include <doctest/doctest.h>

#include <string>

#include "image_generated.h"
#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::Graph;
using davit::image::GraphRole;
using davit::image::ImageModel;
using davit::image::Node;
using davit::image::ValueKind;
namespace schema = davit::schema;

namespace {

// What write_image() says of values and the nodes of Main.
std::string main_message(const std::string& values, const std::string& nodes) {
  return write_message("davit 1.0 target cpu\ninput x: f32[4]\nconst w: f32[4] = fill 1\n" +
                       values + "graph main {\n" + nodes + "}\n");
}

std::string edge_message(const std::function<void(schema::Graph&)>& change) {
  return open_message(with_metadata(assemble(kCpuSample), [&](schema::Image& image) {
    change(*image.mutable_graphs()->GetMutableObject(0));
  }));
}

}  // namespace

TEST_CASE("what is read has been written") {
  CHECK(main_message("word n\nplanned i: i64[1]\n", "i = test.Use(n)\n") ==
        "graphs[0].inputs[0]: value 2 \"n\" is read before it is written");
  CHECK(main_message("planned a: f32[4]\nplanned b: f32[4]\n",
                     "b = test.Copy(a)\na = test.Copy(x)\n") ==
        "graphs[0].inputs[0]: value 2 \"a\" is read before it is written");
  CHECK(main_message("planned a: f32[4]\n", "a = test.Add(a, x)\n") ==
        "graphs[0].inputs[0]: value 2 \"a\" is read before it is written");
}

TEST_CASE("cells are written once; constants and inputs never") {
  CHECK(main_message("planned a: f32[4]\n", "a = test.Copy(x)\na = test.Copy(x)\n") ==
        "graphs[0].outputs[1]: value 2 \"a\" is also written by node 0");
  CHECK(main_message("", "w = test.Copy(x)\n") ==
        "graphs[0].outputs[0]: value 1 \"w\" is a constant or an input");
  CHECK(main_message("", "x = test.Copy(w)\n") ==
        "graphs[0].outputs[0]: value 0 \"x\" is a constant or an input");
  const std::string twice = R"(davit 1.0 target cpu
word n
graph init {
  n = test.Count()
}
graph main {
  n = test.Count()
}
)";
  CHECK(write_message(twice) == "graphs[1].outputs[0]: value 0 \"n\" is also written in graphs[0]");
}

TEST_CASE("every output is written, by Main") {
  CHECK(main_message("output y: f32[4]\n", "") == "outputs[0]: no node of Main writes it");
  const std::string init = R"(davit 1.0 target cpu
const w: f32[4] = fill 1
output y: f32[4]
graph init {
  y = test.Copy(w)
}
graph main {
}
)";
  CHECK(write_message(init) ==
        "graphs[0].outputs[0]: value 1 \"y\" is a model input or output; only Main may use it");
}

TEST_CASE("Main and DeInit read what Init wrote; Init and DeInit cannot read what Main wrote") {
  const std::string words = R"(davit 1.0 target cpu
word n
planned a: i64[1]
planned b: i64[1]
graph init {
  n = test.Count()
}
graph main {
  a = test.Use(n)
}
graph deinit {
  b = test.Use(n)
}
)";
  CHECK(write_message(words) == "");
  CHECK(write_message(words, [](ImageModel& m) {
          std::swap(m.graphs[0].role, m.graphs[1].role);
        }).find("graphs[1].inputs[0]: value 0 \"n\" is read before it is written") == 0);
  CHECK(write_message(words, [](ImageModel& m) {
          m.graphs[0].role = GraphRole::kMain;
          m.graphs.erase(m.graphs.begin() + 1);
        }) == "graphs[1].inputs[0]: value 0 \"n\" is read before it is written");
}

TEST_CASE("views read the memory of the last value at their address") {
  const std::string values =
      "planned a: f32[4] @0\nplanned v: f32[2, 2] @0\nplanned b: f32[4] @64\n";
  CHECK(main_message(values, "a = test.Copy(x)\nb = test.Copy(v)\n") == "");
  CHECK(main_message(values, "b = test.Copy(v)\na = test.Copy(x)\n") ==
        "graphs[0].inputs[0]: value 3 \"v\" is read, but nothing was written at its address");
  CHECK(main_message("planned a: f32[2] @0\nplanned v: f32[2, 2] @0\nplanned b: f32[4] @64\n",
                     "a = test.Split(x)\nb = test.Copy(v)\n") ==
        "graphs[0].inputs[1]: value 3 \"v\" is a view of 2 \"a\", and larger");
  CHECK(main_message("planned a: f32[4] @64\nplanned v: f32[4] @0\nplanned b: f32[4] @128\n",
                     "a = test.Copy(x)\nb = test.Copy(v)\n") ==
        "graphs[0].inputs[1]: value 3 \"v\" is read, but nothing was written at its address");
  // Views of inputs and outputs.
  CHECK(main_message("view v: f32[2, 2] of input \"x\"\nplanned b: f32[4]\n",
                     "b = test.Copy(v)\n") == "");
  CHECK(main_message("output y: f32[4]\nview v: f32[2, 2] of output \"y\"\nplanned b: f32[4]\n",
                     "y = test.Copy(x)\nb = test.Copy(v)\n") == "");
  CHECK(main_message("output y: f32[4]\nview v: f32[2, 2] of output \"y\"\nplanned b: f32[4]\n",
                     "b = test.Copy(v)\ny = test.Copy(x)\n") ==
        "graphs[0].inputs[0]: value 3 \"v\" is read, but nothing was written at its address");
}

TEST_CASE("views may lie inside a value, or be made up of several") {
  const std::string inside =
      "planned a: f32[32] @0\nplanned v: f32[16] @64\nplanned b: f32[16] @128\n";
  CHECK(main_message(inside, "a = test.Run(x)\nb = test.Copy(v)\n") == "");
  CHECK(main_message("planned a: f32[32] @0\nplanned v: f32[32] @64\nplanned b: f32[4] @192\n",
                     "a = test.Run(x)\nb = test.Copy(v)\n") ==
        "graphs[0].inputs[1]: value 3 \"v\" is a view of 2 \"a\", and larger");
  const std::string joined =
      "planned a: f32[16] @0\nplanned b: f32[16] @64\nplanned v: f32[32] @0\n"
      "planned c: f32[16] @128\n";
  CHECK(main_message(joined, "a = test.Run(x)\nb = test.Run(x)\nc = test.Run(v)\n") == "");
  CHECK(main_message(joined, "b = test.Run(x)\na = test.Run(b)\nc = test.Run(v, a)\n") == "");
  // Every byte must have been written by what is still there.
  CHECK(main_message(joined, "a = test.Run(x)\nc = test.Run(v)\nb = test.Run(x)\n") ==
        "graphs[0].inputs[1]: value 4 \"v\" is a view of 2 \"a\", and larger");
  CHECK(main_message(joined, "b = test.Run(x)\nc = test.Run(v)\na = test.Run(x)\n") ==
        "graphs[0].inputs[1]: value 4 \"v\" is read, but nothing was written at its address");
  CHECK(main_message("planned a: f32[12] @0\nplanned b: f32[16] @64\nplanned v: f32[32] @0\n"
                     "planned c: f32[16] @128\n",
                     "a = test.Run(x)\nb = test.Run(x)\nc = test.Run(v)\n") ==
        "graphs[0].inputs[2]: value 4 \"v\" is a view of 2 \"a\", and larger");
}

TEST_CASE("what a view is made up of lives as long as the view") {
  const std::string values =
      "planned a: f32[16] @0\nplanned b: f32[16] @64\nplanned v: f32[32] @0\n";
  // c overwrites b before v is read again.
  CHECK(
      main_message(values + "planned c: f32[16] @64\nplanned d: f32[16] @128\n",
                   "a = test.Run(x)\nb = test.Run(x)\nd = test.Run(v)\nc = test.Run(x)\n"
                   "test.Run(v)\n") ==
      "values.offset[5]: value 5 \"c\" at [64, 128) shares memory with value 3 \"b\" at [64, 128), "
      "and both are live at graphs[0] node 3");
  // A part may replace what another value has left, but not what a view still shows.
  CHECK(main_message(values + "planned c: f32[16] @64\nplanned d: f32[16] @128\n",
                     "a = test.Run(x)\nc = test.Run(x)\nd = test.Run(c)\nb = test.Run(x)\n"
                     "test.Run(v)\n") == "");
  const std::string piece =
      "planned a: f32[32] @0\nplanned v: f32[16] @64\nplanned c: f32[16] @0\n";
  CHECK(main_message(piece, "a = test.Run(x)\ntest.Run(v)\nc = test.Run(x)\ntest.Run(v)\n")
            .find("values.offset[4]: value 4 \"c\" at [0, 64) shares memory with value 2 \"a\"") ==
        0);
}

TEST_CASE("readers of a view come after all that it is made up of") {
  const std::string text =
      "davit 1.0 target cpu\ninput x: f32[4]\nplanned a: f32[16] @0\nplanned b: f32[16] @64\n"
      "planned v: f32[32] @0\nplanned c: f32[16] @128\ngraph main {\n"
      "a = test.Run(x)\nb = test.Run(x)\nc = test.Run(v)\n}\n";
  // Node 2 comes after one of the others alone, by the rows of successors {1}, {2} or {1, 2}, {}.
  const auto message = [&](uint32_t first_row) {
    return open_message(with_metadata(assemble(text), [&](schema::Image& image) {
      schema::Graph& graph = *image.mutable_graphs()->GetMutableObject(0);
      REQUIRE(graph.succ()->size() == 2);
      graph.mutable_succ()->Mutate(0, 1);
      graph.mutable_succ()->Mutate(1, 2);
      graph.mutable_succ_off()->Mutate(1, first_row);
      graph.mutable_indegree()->Mutate(1, 1);
      graph.mutable_indegree()->Mutate(2, 1);
    }));
  };
  CHECK(message(1) ==
        "graphs[0].succ: node 2 must be a successor of node 0, whose value 3 \"v\" it uses");
  CHECK(message(2) ==
        "graphs[0].succ: node 2 must be a successor of node 1, whose value 3 \"v\" it uses");
}

TEST_CASE("empty values need no memory") {
  CHECK(main_message("planned a: f32[0] @0\nplanned b: f32[4] @0\nplanned c: f32[0] @0\n",
                     "b = test.Copy(x)\na = test.Split(x)\nc = test.Copy(a)\n") == "");
}

TEST_CASE("every data edge is in succ") {
  // n3 reads c, which n2 wrote; pretend that n2 points elsewhere.
  CHECK(edge_message([](schema::Graph& g) {
          const uint32_t at = g.succ_off()->Get(2);
          REQUIRE(g.succ()->Get(at) == 3);
          REQUIRE(g.succ()->Get(at + 1) == 4);
          g.mutable_succ()->Mutate(at + 1, 5);
          g.mutable_indegree()->Mutate(4, 1);
          g.mutable_indegree()->Mutate(5, 1);
        }) == "graphs[0].succ: node 4 must be a successor of node 2, whose value 9 \"c\" it uses");
  // The same for the reader of a view.
  CHECK(edge_message([](schema::Graph& g) {
          REQUIRE(g.succ()->Get(0) == 1);
          g.mutable_succ()->Mutate(0, 2);
          g.mutable_indegree()->Mutate(1, 0);
          g.mutable_indegree()->Mutate(2, 2);
        }) ==
        "graphs[0].succ: node 1 must be a successor of node 0, whose value 7 \"a/flat:0\" it uses");
}

// ---- Memory ------------------------------------------------------------------------------------

TEST_CASE("live values do not overlap") {
  const std::string values =
      "planned a: f32[4] @0\nplanned b: f32[4] @0\nplanned c: f32[4] @64\nplanned d: f32[20] @0\n";
  // a is dead when b is born.
  CHECK(main_message(values, "a = test.Copy(x)\nc = test.Copy(a)\nb = test.Copy(x)\n") == "");
  // a is read after b is born.
  CHECK(
      main_message(values, "a = test.Copy(x)\nb = test.Copy(x)\nc = test.Copy(a)\n") ==
      "values.offset[3]: value 3 \"b\" at [0, 16) shares memory with value 2 \"a\" at [0, 16), and "
      "both are live at graphs[0] node 1");
  // Not the same address.
  CHECK(main_message(values, "c = test.Copy(x)\nd = test.Run(c)\na = test.Copy(c)\n") ==
        "values.offset[5]: value 5 \"d\" at [0, 80) shares memory with value 4 \"c\" at [64, 80), "
        "and "
        "both are live at graphs[0] node 1");
  CHECK(main_message(values, "d = test.Run(x)\nc = test.Copy(x)\na = test.Copy(d)\n") ==
        "values.offset[4]: value 4 \"c\" at [64, 80) shares memory with value 5 \"d\" at [0, 80), "
        "and "
        "both are live at graphs[0] node 1");
  // Two outputs of one node; an output over a live input.
  CHECK(main_message(values, "a, b = test.Split(x)\n").find("both are live at graphs[0] node 0") !=
        std::string::npos);
  CHECK(main_message(values, "a = test.Copy(x)\nb = test.Copy(a)\n")
            .find("both are live at graphs[0] node 1") != std::string::npos);
}

TEST_CASE("kernels that can work in place may, on the last read of input 0") {
  const std::string values =
      "planned a: f32[4] @0\nplanned b: f32[4] @0\nplanned c: f32[4] @64\nplanned v: f32[2, 2] @0\n"
      "planned s: f32[2] @0\n";
  CHECK(main_message(values, "a = test.Copy(x)\nb = test.Add(a, x)\n") == "");
  CHECK(main_message(values, "a = test.Copy(x)\nb = test.Add(v, x)\n") == "");
  const std::string second = main_message(values, "a = test.Copy(x)\nb = test.Add(x, a)\n");
  CHECK(second.find("both are live at graphs[0] node 1") != std::string::npos);
  const std::string both = main_message(values, "a = test.Copy(x)\nb = test.Add(a, a)\n");
  CHECK(both.find("both are live at graphs[0] node 1") != std::string::npos);
  const std::string later =
      main_message(values, "a = test.Copy(x)\nb = test.Add(a, x)\nc = test.Copy(a)\n");
  CHECK(later.find("both are live at graphs[0] node 1") != std::string::npos);
  // A view that is read later keeps its root alive.
  const std::string view =
      main_message(values, "a = test.Copy(x)\nc = test.Copy(v)\nb = test.Add(a, v)\n");
  CHECK(view.find("both are live at graphs[0] node 2") != std::string::npos);
  // Other bytes than the input's.
  const std::string smaller = main_message(values, "a = test.Copy(x)\ns = test.Split(a)\n");
  CHECK(smaller.find("both are live at graphs[0] node 1") != std::string::npos);
}

TEST_CASE("what Init writes for Main is never overwritten, since Main runs again") {
  const std::string text = R"(davit 1.0 target cpu
const w: f32[4] = fill 1
planned a: f32[4] @0
planned b: f32[4] @64
planned c: f32[4] @0
graph init {
  a = test.Copy(w)
}
graph main {
  b = test.Copy(a)
  c = test.Copy(b)
}
)";
  CHECK(
      write_message(text) ==
      "values.offset[3]: value 3 \"c\" at [0, 16) shares memory with value 1 \"a\" at [0, 16), and "
      "both are live at graphs[1] node 1");
  CHECK(write_message(text, [](ImageModel& m) { m.graphs[1].nodes[0].inputs[0] = 0; }) == "");
}

TEST_CASE("the views of one output are one memory") {
  const std::string values =
      "output y: f32[4]\nview v: f32[2, 2] of output \"y\"\nplanned a: f32[4]\n";
  CHECK(main_message(values, "v = test.Copy(x)\n") == "");
  CHECK(main_message(values, "y = test.Copy(x)\nv = test.Add(y, x)\n") == "");
  CHECK(
      main_message(values, "y = test.Copy(x)\nv = test.Copy(x)\na = test.Copy(y)\n") ==
      "values.offset[3]: value 3 \"v\" (output 0) shares memory with value 2 \"y\" (output 0), and "
      "both are live at graphs[0] node 1");
}

TEST_CASE("the overlap check finds neighbours among many live values") {
  // 5000 values in shuffled memory order, all live until the end; one of them moved onto another.
  std::string values = "output y: f32[4]\n";
  std::string nodes;
  for (uint32_t i = 0; i < 5000; ++i) {
    const uint32_t slot = i * 7919 % 5000;
    values += "planned t" + std::to_string(i) + ": f32[4] @" + std::to_string(64 * slot) + "\n";
    nodes += "t" + std::to_string(i) + " = test.Copy(x)\n";
  }
  for (uint32_t i = 0; i < 5000; i += 16) {
    nodes += "test.Run(";
    for (uint32_t k = i; k < std::min(i + 16, 5000U); ++k) {
      nodes += (k == i ? "t" : ", t") + std::to_string(k);
    }
    nodes += ")\n";
  }
  nodes += "y = test.Copy(x)\n";
  CHECK(main_message(values, nodes) == "");
  const std::string moved = write_message(
      "davit 1.0 target cpu\ninput x: f32[4]\n" + values + "graph main {\n" + nodes + "}\n",
      [](ImageModel& m) { m.values[2 + 4321].offset = m.values[2 + 17].offset; });
  CHECK(moved.find("value 4323 \"t4321\"") != std::string::npos);
  CHECK(moved.find("shares memory with value 19 \"t17\"") != std::string::npos);
}

// ---- Bodies ------------------------------------------------------------------------------------

TEST_CASE("bodies form a tree") {
  const auto change = [](const std::function<void(ImageModel&)>& f) {
    return write_message(kBodySample, f);
  };
  CHECK(change({}) == "");
  CHECK(change([](ImageModel& m) { m.graphs[0].nodes[0].bodies[0] = 9; }) ==
        "graphs[0].branch_graph[0]: 9 is not a body graph");
  CHECK(change([](ImageModel& m) { m.graphs[0].nodes[0].bodies[0] = 0; }) ==
        "graphs[0].branch_graph[0]: 0 is not a body graph");
  CHECK(change([](ImageModel& m) { m.graphs[0].nodes[0].bodies[1] = 1; }) ==
        "graphs[0].branch_graph[1]: body 1 is already run by graphs[0] node 0");
  CHECK(change([](ImageModel& m) { m.graphs[0].nodes[0].bodies.pop_back(); }) ==
        "graphs[2]: a body that no node of Init, Main or DeInit leads to");
  // A cycle is never reached.
  CHECK(change([](ImageModel& m) {
          m.graphs[0].nodes[0].bodies = {1};
          m.graphs[3].nodes[0].bodies = {2};
        }) == "graphs[2]: a body that no node of Init, Main or DeInit leads to");
}

TEST_CASE("A8: bodies nested 10,000 deep are refused, and 64 deep are not") {
  const auto nested = [](uint32_t depth) {
    ImageModel model = parse("davit 1.0 target cpu\ngraph main {\n  test.Run()\n}\n");
    const Node run = model.graphs[0].nodes[0];
    for (uint32_t i = 0; i < depth; ++i) {
      model.graphs.push_back({.role = GraphRole::kBody, .nodes = {run}});
      model.graphs[i].nodes[0].bodies = {i + 1};
    }
    const auto bytes = davit::image::write_image(model, tables());
    return bytes.ok() ? std::string() : bytes.status().detail().message;
  };
  CHECK(nested(64) == "");
  CHECK(nested(65) ==
        "graphs[64].branch_graph[0]: bodies are nested more than 64 deep (depth limit)");
  CHECK(nested(10000).find("(depth limit)") != std::string::npos);
}

TEST_CASE("bodies read what their runner reads, and write for it") {
  const auto change = [](const std::function<void(ImageModel&)>& f) {
    return write_message(kBodySample, f);
  };
  // inner is not an input of the node that runs `deep` any more.
  CHECK(change([](ImageModel& m) { m.graphs[2].nodes[1].inputs[0] = 0; }) ==
        "graphs[3].inputs[0]: value 4 \"inner\" is read before it is written");
  // t is no output of the node that runs the bodies any more, so nobody wrote it for Main.
  CHECK(change([](ImageModel& m) {
          m.graphs[0].nodes[0].outputs.clear();
        }).find("graphs[0].inputs[1]: value 3 \"t\" is read before it is written") == 0);
  // Memory of a body is live while its runner runs.
  CHECK(
      change([](ImageModel& m) {
        m.values[4].offset = 0;
        m.arena_bytes = 16;
      }) ==
      "values.offset[4]: value 4 \"inner\" at [0, 16) shares memory with value 3 \"t\" at [0, 16), "
      "and both are live at graphs[0] node 0");
}

// ---- Device memory -----------------------------------------------------------------------------

TEST_CASE("device memory") {
  const auto change = [](const std::function<void(ImageModel&)>& f) {
    return write_message(kDeviceSample, f);
  };
  const auto main = [&](uint32_t node, const std::function<void(Node&)>& f) {
    return change([&](ImageModel& m) { f(m.graphs[1].nodes[node]); });
  };
  CHECK(change({}) == "");
  // Values: 0 x, 1 y, 2 w, 3 dw, 4 dx, 5 dy, 6 dy2, 7 t.
  CHECK(main(9, [](Node& n) { n.inputs[0] = 5; }) ==
        "graphs[1].inputs[8]: kernel \"test.Copy\" cannot use device value 5 \"dy\"");
  CHECK(main(6, [](Node& n) { n.inputs[0] = 0; }) ==
        "graphs[1].inputs[7]: value 0 \"x\" is an operand of LaunchD2HCopy and must be a device "
        "value");
  CHECK(main(2, [](Node& n) { n.inputs[1] = 2; }) ==
        "graphs[1].inputs[1]: value 2 \"w\" is an operand of LaunchH2DCopy and must be a device "
        "value");
  CHECK(main(2, [](Node& n) { n.inputs[0] = 4; }) ==
        "graphs[1].inputs[0]: value 4 \"dx\" is an operand of LaunchH2DCopy and must be a tensor "
        "on the "
        "host");
  CHECK(main(3, [](Node& n) { n.inputs[0] = 2; }) ==
        "graphs[1].inputs[2]: value 2 \"w\" is an operand of LaunchKernel and must be a device "
        "value or "
        "a word");
  CHECK(main(3, [](Node& n) { n.outputs[0] = 7; }).find("value 7 \"t\"") != std::string::npos);
  CHECK(main(10, [](Node& n) { n.inputs[0] = 6; }) ==
        "graphs[1] node 10: frees device value 6 \"dy2\", a reference to value 5 \"dy\"");
  CHECK(main(10, [](Node& n) { n.inputs[0] = 3; }) ==
        "graphs[1] node 10: frees device value 3 \"dw\", which graphs[0] allocated");
  CHECK(main(10, [](Node& n) { n.inputs[0] = 5; }) ==
        "graphs[1] node 11: uses device value 5 \"dy\", which graphs[1] node 10 freed");
  CHECK(change([](ImageModel& m) {
          std::swap(m.graphs[1].nodes[5], m.graphs[1].nodes[11]);
          for (Node& node : m.graphs[1].nodes) node.control_inputs.clear();
        }) == "graphs[1] node 6: uses device value 6 \"dy2\", which graphs[1] node 5 freed");
  CHECK(change([](ImageModel& m) { m.graphs[1].nodes.pop_back(); }) ==
        "graphs[1] node 1: allocates device value 5 \"dy\", which the graph does not free");
  CHECK(change([](ImageModel& m) {
          m.graphs[0].nodes.push_back(m.graphs[2].nodes[0]);
          m.graphs[2].nodes.erase(m.graphs[2].nodes.begin());
        }) == "graphs[1] node 3: uses device value 3 \"dw\", which graphs[0] node 5 freed");
}

TEST_CASE("launches overwrite device memory, they do not allocate it") {
  const std::string text = write_message(kDeviceSample, [](ImageModel& m) {
    m.graphs[1].nodes.erase(m.graphs[1].nodes.begin() + 1);
    for (Node& node : m.graphs[1].nodes) {
      node.control_inputs.clear();
      node.free_launches.clear();
    }
  });
  CHECK(text == "graphs[1].outputs[1]: value 5 \"dy\" is read before it is written");
}

TEST_CASE("launches do not write what they read, unless they can work in place") {
  const auto launch = [](std::vector<uint32_t> inputs) {
    return write_message(kDeviceSample,
                         [&](ImageModel& m) { m.graphs[1].nodes[5].inputs = inputs; });
  };
  CHECK(launch({6, 3}) == "");  // In place, through the reference.
  CHECK(launch({3, 6}) ==
        "graphs[1] node 5: writes device value 5 \"dy\", which is also another operand");
  CHECK(launch({5, 6}) ==
        "graphs[1] node 5: writes device value 5 \"dy\", which is also another operand");
}
