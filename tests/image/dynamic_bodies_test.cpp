// Stage 6b of the verifier: nodes that run bodies. One broken rule per check.
#include <doctest/doctest.h>

#include <string>

#include "exec/image.hpp"
#include "tests/image/dynamic_images.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::GraphRole;
using davit::image::ImageModel;
using davit::image::kNone;
using davit::image::Node;
using davit::image::ValueKind;

// ---- If ----------------------------------------------------------------------------------------

TEST_CASE("If: two bodies, a condition, heap values as results") {
  CHECK(change(kFlowSample, 0, 0, [](Node& n) { n.inputs[0] = 0; }) ==
        "graphs[0] node 0 (If): its condition is no bool tensor");
  CHECK(change(kFlowSample, 0, 0, [](Node& n) { n.inputs[0] = kNone; }) ==
        "graphs[0] node 0 (If): its condition is no bool tensor");
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[2].nodes[0].bodies.pop_back();
          m.graphs.erase(m.graphs.begin() + 4);
          m.graphs[0].nodes[1].bodies[0] = 4;
          m.graphs[4].nodes[3].bodies[0] = 5;
        }) == "graphs[2] node 0 (If): needs two bodies");
  const std::string bodies = R"(graph body t {
  p = test.Copy(s)
}
graph body e {
  p = test.Copy(w)
}
)";
  CHECK(write_message(kValues +
                      "input go: bool[]\ngraph main {\n"
                      "p = If(go, s) bodies=[t, e]\n}\n" +
                      bodies) == "graphs[0] node 0 (If): its results must be heap values");
}

TEST_CASE("results of bodies are written once, and not over what has a shape") {
  const std::string body =
      "{\na = InferShape(x) {target=2}\na = AllocHost()\na = dyn.Double(x)\n}\n";
  const auto text = [&](const std::string& nodes) {
    return write_message(kValues + "input go: bool[]\ngraph main {\n" + nodes + "}\n" +
                         "graph body t " + body + "graph body e " + body);
  };
  CHECK(text("a = If(go, x) bodies=[t, e]\nFreeHost(a)\n") == "");
  // Else b's shape and memory would be those of another a.
  CHECK(text("a = InferShape(x) {target=2}\na = AllocHost()\na = dyn.Double(x)\n"
             "b = InferShape(a) {target=6}\nb = AllocHost()\n"
             "a = If(go, x) bodies=[t, e]\nb = dyn.Double(a)\nFreeHost(a, b)\n") ==
        "graphs[0] node 5 (If): value 7 \"a\" has a shape already");
}

TEST_CASE("bodies fill their results, with memory of their own") {
  // Of a branch: nothing; a reference; memory without data; freed.
  CHECK(write_message(kFlowSample, [](ImageModel& m) { m.graphs[1].nodes.clear(); }) ==
        "graphs[1]: result 14 \"start\" is not filled at the end, with memory of its own");
  const auto then = [](const std::string& nodes) {
    return write_message(kValues +
                         "input go: bool[]\ngraph main {\n"
                         "a = If(go, x) bodies=[t, e]\nFreeHost(a)\n}\n"
                         "graph body t {\n" +
                         nodes + "}\ngraph body e {\n" + kFillA + "}\n");
  };
  const std::string refused =
      "graphs[1]: result 7 \"a\" is not filled at the end, with memory of its own";
  CHECK(then(kFillA) == "");
  CHECK(then("a = InferShape(x) {target=1}\na = ReferTo<dyn.Flat>(x)\n") == refused);
  CHECK(then(kFillA + "FreeHost(a)\n") == refused);
  CHECK(then("a = InferShape(x) {target=2}\na = AllocHost()\np = dyn.Double(w)\n") != "");
}

// ---- Loop --------------------------------------------------------------------------------------

TEST_CASE("Loop: counts, one body") {
  const auto counts = [](int64_t states, int64_t collected) {
    return change(kFlowSample, 0, 1, [&](Node& n) {
      set_attribute(n, 0, states);
      set_attribute(n, 1, collected);
    });
  };
  for (const auto& [states, collected] : {std::pair<int64_t, int64_t>{2, 1},
                                          {1, 2},
                                          {-1, 1},
                                          {1, -1},
                                          {INT64_MAX, INT64_MAX},
                                          {INT64_MIN, 0},
                                          {65536, 0},
                                          {0, 1}}) {
    CHECK(counts(states, collected) != "");
  }
  CHECK(write_message(kFlowSample,
                      [](ImageModel& m) {
                        m.values.push_back(m.values[value_named(m, "row")]);
                        m.graphs[0].nodes[1].outputs.push_back(
                            static_cast<uint32_t>(m.values.size() - 1));
                      }) ==
        "graphs[0] node 1 (Loop): its counts of states and collected results do not fit its "
        "operands");
  CHECK(change(kFlowSample, 5, 3, [](Node& n) { n.inputs.resize(2); }) ==
        "graphs[5] node 3 (Loop): its counts of states and collected results do not fit its "
        "operands");
  CHECK(change(kFlowSample, 0, 1, [](Node& n) { n.bodies = {5, 6}; }) != "");
}

TEST_CASE("Loop: element types and kinds of its operands") {
  const std::string here = "graphs[0] node 1 (Loop): ";
  const auto input = [](uint32_t at, const char* name) {
    return write_message(kFlowSample, [&](ImageModel& m) {
      m.graphs[0].nodes[1].inputs[at] = *name == '\0' ? kNone : value_named(m, name);
    });
  };
  CHECK(input(0, "") == "");
  CHECK(input(1, "") == "");
  CHECK(input(0, "go") == here + "input 0 is not of the element type that a loop needs");
  CHECK(input(1, "two") == here + "input 1 is not of the element type that a loop needs");
  CHECK(input(2, "") == here + "initial state 0 is absent");
  const std::string wrong = " is not of the kind and element type that a loop needs there";
  // Another type than the initial state's.
  CHECK(input(2, "two") == here + "value 16 \"last\"" + wrong);
  const auto retype = [](const char* name, DvtDType dtype) {
    return write_message(kFlowSample, [&](ImageModel& m) {
      DvtTensor& tensor = m.values[value_named(m, name)].tensor;
      tensor.dtype = dtype;
      if (tensor.flags == 0) tensor.bytes = dvt_dtype_size(dtype);
    });
  };
  CHECK(retype("i", DVT_I32) == here + "value 8 \"i\"" + wrong);
  CHECK(retype("cond", DVT_U8) == here + "value 9 \"cond\"" + wrong);
  CHECK(retype("next", DVT_U8) == here + "value 10 \"next\"" + wrong);
  CHECK(retype("last", DVT_I32) == here + "value 16 \"last\"" + wrong);
  CHECK(retype("state", DVT_F64) == here + "value 18 \"state\"" + wrong);
  CHECK(retype("state_next", DVT_I32) == here + "value 19 \"state_next\"" + wrong);
  CHECK(retype("rows", DVT_I32) == here + "value 17 \"rows\"" + wrong);
  // The iteration number has a place.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          DvtTensor& tensor = m.values[value_named(m, "i")].tensor;
          tensor.rank = 1;
          tensor.bytes = 0;
        }) == here + "value 8 \"i\"" + wrong);
}

TEST_CASE("what a loop and its body use is gone after it, and was not there before it") {
  const auto append = [](const char* name, const char* kernel) {
    return write_message(kFlowSample, [&](ImageModel& m) {
      Node node;
      for (uint32_t k = 0; k < m.kernels.size(); ++k) {
        if (m.kernels[k].name == kernel) node.kernel = k;
      }
      node.inputs = {value_named(m, name)};
      if (std::string_view(kernel) == "FreeHost") node.lane = DVT_KERNEL_LANE_MEMORY;
      if (std::string_view(kernel) == "dyn.Less") {
        node.inputs = {value_named(m, name), value_named(m, "two")};
        m.values.push_back(m.values[value_named(m, "next")]);
        m.values.back().name = "spare";
        m.values.back().offset = (m.arena_bytes + 63) / 64 * 64;
        m.arena_bytes = m.values.back().offset + 1;
        node.outputs = {static_cast<uint32_t>(m.values.size() - 1)};
      }
      m.graphs[0].nodes.push_back(node);
    });
  };
  // Without an iteration nothing is written there.
  CHECK(append("i", "dyn.Less") == "graphs[0] node 9 (dyn.Less): value 8 \"i\" has no data here");
  CHECK(append("state", "FreeHost") ==
        "graphs[0] node 9 (FreeHost): value 18 \"state\" is not a heap value with memory of its "
        "own");
  CHECK(append("state_next", "FreeHost") ==
        "graphs[0] node 9 (FreeHost): value 19 \"state_next\" is not a heap value with memory of "
        "its own");
  CHECK(append("row", "FreeHost").find("is not a heap value") != std::string::npos);
  // Before.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[0].nodes[1].inputs.push_back(value_named(m, "state"));
        }).find("value 18 \"state\" is read before it is written") != std::string::npos);
  // Results are not there before the body writes them.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[5].nodes[0].inputs[0] = value_named(m, "state_next");
          m.graphs[5].nodes[2].inputs[0] = value_named(m, "state_next");
        }).find("value 19 \"state_next\" is read before it is written") != std::string::npos);
}

TEST_CASE("a loop's body writes the condition and all results, each iteration") {
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[5].nodes.erase(m.graphs[5].nodes.begin() + 7);
        }) == "graphs[5]: result 10 \"next\" is not filled at the end, with memory of its own");
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[5].nodes[4].outputs[0] = m.graphs[5].nodes[5].outputs[0] =
              m.graphs[5].nodes[6].outputs[0] = value_named(m, "y");
        }) != "");
  // A loop in the body does not count: it may have no iteration.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[5].nodes.erase(m.graphs[5].nodes.begin() + 7);
          m.graphs[5].nodes[3].outputs[2] = value_named(m, "next");
        }) == "graphs[5]: result 10 \"next\" is not filled at the end, with memory of its own");
  // A next state that is the state itself has no memory of its own.
  CHECK(write_message(kFlowSample,
                      [](ImageModel& m) {
                        const uint32_t state2 = value_named(m, "state2");
                        const uint32_t next = value_named(m, "state2_next");
                        Node& infer = m.graphs[6].nodes[0];
                        set_attribute(infer, 0, int64_t{1});
                        Node refer = m.graphs[6].nodes[2];
                        for (uint32_t k = 0; k < m.kernels.size(); ++k) {
                          if (m.kernels[k].name == "dyn.Double") refer.device_kernel = k;
                        }
                        m.kernels.push_back({"ReferTo", 1, DVT_KERNEL_LANE_NORMAL});
                        m.kernels.push_back({"dyn.Flat", 1, DVT_KERNEL_PURE | DVT_KERNEL_ALIAS});
                        refer.kernel = static_cast<uint32_t>(m.kernels.size() - 2);
                        refer.device_kernel = static_cast<uint32_t>(m.kernels.size() - 1);
                        refer.inputs = {state2};
                        refer.outputs = {next};
                        m.graphs[6].nodes.erase(m.graphs[6].nodes.begin() + 1,
                                                m.graphs[6].nodes.begin() + 3);
                        m.graphs[6].nodes.insert(m.graphs[6].nodes.begin() + 1, refer);
                      }) ==
        "graphs[6]: result 23 \"state2_next\" is not filled at the end, with memory of its own");
}

TEST_CASE("the operands of a loop are distinct") {
  const auto output = [](uint32_t at, const char* name) {
    return write_message(kFlowSample, [&](ImageModel& m) {
      m.graphs[0].nodes[1].outputs[at] = value_named(m, name);
    });
  };
  CHECK(output(1, "last") != "");        // Collected is the last state.
  CHECK(output(6, "state") != "");       // The next state is the state.
  CHECK(output(5, "cond") != "");        // One condition for both.
  CHECK(output(7, "state_next") != "");  // What is collected is the next state.
  CHECK(output(0, "start") != "");       // The last state is the first.
}

TEST_CASE("bodies read what their runner hands them, and nothing else") {
  // `add` reads x, which the Loop does not list any more.
  CHECK(change(kFlowSample, 0, 1, [](Node& n) { n.inputs.pop_back(); }) == "");  // An input.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          const uint32_t start = value_named(m, "start");
          m.graphs[5].nodes[0].inputs[1] = start;
          m.graphs[5].nodes[2].inputs[1] = start;
          m.graphs[0].nodes[1].inputs[2] = value_named(m, "x");
        }).find("value 14 \"start\" is read before it is written") != std::string::npos);
}
