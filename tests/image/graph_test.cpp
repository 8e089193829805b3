// Stages 3, 4 and 8 of the verifier: columns and nodes of graphs. One broken rule per check.
#include <doctest/doctest.h>

#include <string>

#include "image_generated.h"
#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::ImageModel;
using davit::image::kNone;
using davit::image::Node;
namespace schema = davit::schema;

namespace {

// What the verifier says after a change of graphs[0] of a sample.
std::string message(const std::function<void(schema::Graph&)>& change,
                    std::string_view sample = kCpuSample) {
  return open_message(with_metadata(assemble(sample), [&](schema::Image& image) {
    change(*image.mutable_graphs()->GetMutableObject(0));
  }));
}

// The same for a change that the writer passes on.
std::string node_message(uint32_t graph, uint32_t node, const std::function<void(Node&)>& change,
                         std::string_view sample = kCpuSample) {
  return write_message(sample, [&](ImageModel& m) { change(m.graphs[graph].nodes[node]); });
}

}  // namespace

TEST_CASE("offset columns") {
  CHECK(message([](schema::Graph& g) { g.mutable_succ_off()->Mutate(0, 1); }) ==
        "graphs[0].succ_off[0]: the first offset must be 0");
  CHECK(message([](schema::Graph& g) { g.mutable_succ_off()->Mutate(3, 0); }) ==
        "graphs[0].succ_off[3]: offsets must not decrease");
  CHECK(message([](schema::Graph& g) { g.mutable_inputs_off()->Mutate(8, 99); }) ==
        "graphs[0].inputs_off[8]: the last offset must be 10, the length of the data");
  CHECK(message([](schema::Graph& g) { g.mutable_outputs_off()->Mutate(2, UINT32_MAX); }) ==
        "graphs[0].outputs_off[3]: offsets must not decrease");
  CHECK(message([](schema::Graph& g) { g.mutable_attributes_off()->Mutate(8, 48); }) ==
        "graphs[0].attributes_off[8]: the last offset must be 40, the length of the data");
  CHECK(message([](schema::Graph& g) { g.mutable_branch_off()->Mutate(0, 1); }, kBodySample) ==
        "graphs[0].branch_off[0]: the first offset must be 0");
}

TEST_CASE("attribute records") {
  CHECK(message([](schema::Graph& g) { g.mutable_attributes_off()->Mutate(1, 4); }) ==
        "graphs[0].attributes_off[0]: a record of 4 bytes, \"test.Add\" has one of 0");
  CHECK(node_message(0, 1, [](Node& n) { n.attributes.resize(32); }) ==
        "graphs[0].attributes_off[1]: a record of 32 bytes, \"test.Scale\" has one of 40");
  CHECK(node_message(0, 0, [](Node& n) { n.attributes.resize(8); }) ==
        "graphs[0].attributes_off[0]: a record of 8 bytes, \"test.Add\" has one of 0");
  CHECK(node_message(0, 1, [](Node& n) { n.attributes.clear(); }) ==
        "graphs[0].attributes_off[1]: a record of 0 bytes, \"test.Scale\" has one of 40");
}

TEST_CASE("ids stay inside their tables") {
  CHECK(node_message(0, 0, [](Node& n) { n.kernel = 99; }) ==
        "graphs[0].kernel[0]: 99 is not in kernels");
  CHECK(node_message(0, 1, [](Node& n) { n.inputs[0] = 99; }) ==
        "graphs[0].inputs[2]: 99 is not in values");
  CHECK(node_message(0, 1, [](Node& n) { n.outputs[0] = 99; }) ==
        "graphs[0].outputs[1]: 99 is not in values");
  CHECK(node_message(0, 1, [](Node& n) { n.outputs[0] = kNone; }) ==
        "graphs[0].outputs[1]: 4294967295 is not in values");
  CHECK(message([](schema::Graph& g) { g.mutable_origin()->Mutate(0, 999); }) ==
        "graphs[0].origin[0]: 999 is not in strings");
  CHECK(message([](schema::Graph& g) { g.mutable_op()->Mutate(0, 999); }) ==
        "graphs[0].op[0]: 999 is not in strings");
  CHECK(message([](schema::Graph& g) { g.mutable_cost()->Mutate(0, 1); }) ==
        "graphs[0].cost[0]: 1 is not in costs");
  CHECK(node_message(0, 0, [](Node& n) { n.stream = 0; }) ==
        "graphs[0].stream[0]: 0 is not in the stream plan");
}

TEST_CASE("lanes agree with kernels") {
  CHECK(node_message(0, 0, [](Node& n) { n.lane = DVT_KERNEL_LANE_LAUNCH; }) ==
        "graphs[0].lane[0]: 2, but the kernel \"test.Add\" runs on lane 0");
  CHECK(node_message(
            0, 0, [](Node& n) { n.lane = 77; }, kDeviceSample) ==
        "graphs[0].lane[0]: 77, but the kernel \"CreateStream\" runs on lane 1");
}

TEST_CASE("operand counts") {
  CHECK(node_message(0, 0, [](Node& n) { n.inputs.pop_back(); }) ==
        "graphs[0].inputs_off[0]: the node has 1 inputs, \"test.Add\" takes 2 to 2");
  CHECK(node_message(0, 3, [](Node& n) { n.outputs.clear(); }) ==
        "graphs[0].outputs_off[3]: the node has 0 outputs, \"test.Split\" takes 1 to 3");
  // A launch takes what its device kernel takes.
  CHECK(node_message(
            1, 3, [](Node& n) { n.inputs.pop_back(); }, kDeviceSample) ==
        "graphs[1].inputs_off[3]: the node has 1 inputs, \"test.Add\" takes 2 to 2");
}

TEST_CASE("launches have device kernels, and only launches") {
  CHECK(node_message(0, 0, [](Node& n) { n.device_kernel = 0; }) ==
        "graphs[0].device_kernel[0]: only LaunchKernel and ReferTo nodes have one");
  CHECK(node_message(
            1, 3, [](Node& n) { n.device_kernel = kNone; }, kDeviceSample) ==
        "graphs[1].device_kernel[3]: 4294967295 is not in kernels");
  CHECK(node_message(
            1, 3, [](Node& n) { n.device_kernel = 0; }, kDeviceSample) ==
        "graphs[1].device_kernel[3]: \"CreateStream\" does not run on devices");
}

TEST_CASE("successors are later nodes, ascending, and counted") {
  CHECK(message([](schema::Graph& g) { g.mutable_succ()->Mutate(0, 99); }) ==
        "graphs[0].succ[0]: 99 is not a node");
  CHECK(message([](schema::Graph& g) { g.mutable_succ()->Mutate(0, 0); }) ==
        "graphs[0].succ[0]: successors of node 0 must be ascending and above it");
  CHECK(message([](schema::Graph& g) { g.mutable_succ()->Mutate(1, 1); }) ==
        "graphs[0].succ[1]: successors of node 0 must be ascending and above it");
  CHECK(message([](schema::Graph& g) { g.mutable_indegree()->Mutate(4, 1); }) ==
        "graphs[0].indegree[4]: 1, but the node occurs 2 times in succ");
  const std::string text =
      write_message(kCpuSample, [](ImageModel& m) { m.graphs[0].nodes[2].control_inputs = {5}; });
  CHECK(text == "graphs[0] node 2: control input 5 is not an earlier node");
}

TEST_CASE("rows of Free-to-Launch") {
  const auto row = [](uint32_t node, std::vector<uint32_t> launches) {
    return node_message(
        1, node, [&](Node& n) { n.free_launches = launches; }, kDeviceSample);
  };
  CHECK(row(10, {2, 3, 5}) == "");
  CHECK(row(9, {2}) == "graphs[1].free_off[9]: the node frees nothing");
  CHECK(row(10, {0}) == "graphs[1].free_launch[0]: node 0 is not on the launch lane");
  CHECK(row(10, {99}) == "graphs[1].free_launch[0]: 99 is not a node");
  CHECK(row(10, {3, 3}) == "graphs[1].free_launch[1]: launches must be ascending");
}

TEST_CASE("a kernel's own check names node, operator and kernel") {
  ImageModel model = parse(kCpuSample);
  model.values[3].tensor.dtype = DVT_I32;
  const auto bytes = davit::image::write_image(model, tables());
  REQUIRE(!bytes.ok());
  CHECK(bytes.status().code() == DVT_INVALID_IMAGE);
  CHECK(bytes.status().detail().message ==
        "graphs[0] node 0: kernel \"test.Add\" refuses its operands: takes f32 only");
  CHECK(bytes.status().detail().node == "layer/add_1");
  CHECK(bytes.status().detail().op == "ai.onnx::Add(14)");
}

TEST_CASE("a launch is checked by its device kernel") {
  const std::string text = write_message(kDeviceSample, [](ImageModel& m) {
    m.values[3].tensor.dtype = DVT_I32;  // dw
  });
  CHECK(text == "graphs[1] node 3: kernel \"test.Add\" refuses its operands: takes f32 only");
}

TEST_CASE("device nodes are checked against the stream plan") {
  const std::string text = write_message(kDeviceSample, [](ImageModel& m) { m.event_count = 0; });
  CHECK(text ==
        "graphs[0] node 1: kernel \"CreateEvent\" refuses its operands: event 0 is not below "
        "the plan's 0");
}

TEST_CASE("B1: an image whose Main has no nodes opens") {
  CHECK(open_message(assemble("davit 1.0 target cpu\ngraph main {\n}\n")).empty());
}
