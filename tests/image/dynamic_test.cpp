// Stage 6b of the verifier: values whose shape is set at run time, and nodes that run bodies. One
// broken rule per check. An image that passed in spite of one would read memory that is not there.
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

TEST_CASE("the samples are valid, and their text comes back the same") {
  for (const std::string_view sample : {kDynamicSample, kFlowSample}) {
    const auto bytes = assemble(sample);
    CHECK(open_message(bytes) == "");
    auto model = davit::image::read_image_model(bytes);
    REQUIRE(model.ok());
    CHECK(assemble(davit::image::dump_text(*model, tables())) == bytes);
  }
}

TEST_CASE("the example of docs/image.md is valid") {
  CHECK(write_message(R"(davit 1.2 target cpu
input x: f32[N=?1..8, 4] dynamic
output y: f32[N=?1..8, 4] dynamic
heap t: f32[?, 4] dynamic

graph main shape_nodes=3 {
  t = InferShape(x) {target=4}
  y = InferShape(t) {target=5}
  y = BindOutput() {output=0}
  t = AllocHost()
  t = Relu.f32(x)
  y = Relu.f32(t)
  FreeHost(t)
}
)") == "");
}

// ---- Descriptors -------------------------------------------------------------------------------

TEST_CASE("descriptors of dynamic values") {
  const auto desc = [](const std::function<void(DvtTensor&)>& f) {
    return write_message(kDynamicSample,
                         [&](ImageModel& m) { f(m.values[value_named(m, "flat")].tensor); });
  };
  const auto ends = [](const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
  };
  CHECK(desc([](DvtTensor&) {}) == "");
  CHECK(ends(desc([](DvtTensor& t) { t.rank = 9; }), "rank: 9 is more than 8"));
  CHECK(ends(desc([](DvtTensor& t) { t.rank = 254; }), "rank: 254 is more than 8"));
  CHECK(ends(desc([](DvtTensor& t) { t.bytes = 4; }), "bytes: must be 0 for a dynamic shape"));
  CHECK(ends(desc([](DvtTensor& t) { t.dims[0] = -2; }),
             "dims[0]: must be -1 or an extent, and zero beyond the rank"));
  CHECK(ends(desc([](DvtTensor& t) { t.dims[3] = -1; }),
             "dims[3]: must be -1 or an extent, and zero beyond the rank"));
  CHECK(ends(desc([](DvtTensor& t) { t.rank = DVT_RANK_UNKNOWN; }),
             "dims[0]: must be -1 or an extent, and zero beyond the rank"));
  CHECK(ends(desc([](DvtTensor& t) { t.flags = 0; }), "negative, or more elements than 2^63 - 1"));
  CHECK(ends(desc([](DvtTensor& t) { t.flags = 3; }), "unknown flags, or reserved is not zero"));
  CHECK(desc([](DvtTensor& t) { t.dtype = DVT_STRING; }) == "");
}

TEST_CASE("heap values are dynamic; ports and device values may be") {
  const char* const message =
      "heap values have dynamic shapes; words, constants, planned values have not";
  CHECK(main_message("", "heap h: f32[4]\n") == std::string("values.desc[10]: ") + message);
  CHECK(main_message("", "planned h: f32[?] dynamic\n") ==
        std::string("values.desc[10]: ") + message);
  CHECK(main_message("", "const h: f32[4] dynamic = fill 1\n") != "");
  // Device values may be dynamic, too.
  CHECK(main_message("", "device h: f32[?] dynamic\n") == "");
  CHECK(write_message(kDynamicSample, [](ImageModel& m) {
          m.values[value_named(m, "a")].offset = 8;
        }).find("must be 0 for words, device and heap values") != std::string::npos);
}

TEST_CASE("a port whose shape is dynamic has one value, and no ranges without a rank") {
  CHECK(main_message("", "view v: f32[?] dynamic of input \"x\"\n") ==
        "values.desc[10]: a port whose shape is dynamic has one dynamic value");
  CHECK(main_message("p = test.Copy(v)\n", "view v: f32[4] of input \"x\"\n")
            .find("graphs[0]: value 10 \"v\" is not of the gear") == 0);
  CHECK(write_message(kDynamicSample, [](ImageModel& m) {
          m.values[0].tensor.rank = DVT_RANK_UNKNOWN;
          m.values[0].tensor.dims[0] = m.values[0].tensor.dims[1] = 0;
        }) == "inputs[0].dims: the rank is unknown");
  CHECK(write_message(kDynamicSample, [](ImageModel& m) { m.inputs[0].dims[1].max = 5; }) ==
        "inputs[0].dims[1]: must be 0 <= min <= max = the descriptor's extent, if it has one");
}

TEST_CASE("shape_nodes: of Main, and no more than there are") {
  CHECK(write_message(kDynamicSample, [](ImageModel& m) { m.graphs[0].shape_nodes = 99; }) ==
        "graphs[0].shape_nodes: 99, but there are 22 nodes, and only Main has any");
  CHECK(write_message(kFlowSample, [](ImageModel& m) { m.graphs[1].shape_nodes = 1; }) ==
        "graphs[1].shape_nodes: 1, but there are 3 nodes, and only Main has any");
}

// ---- InferShape --------------------------------------------------------------------------------

TEST_CASE("an InferShape has a target: a later node that computes") {
  const auto target = [](int64_t to) {
    return change(kDynamicSample, 0, 7, [&](Node& n) { set_attribute(n, 0, to); });
  };
  const std::string here = "graphs[0] node 7 (InferShape): ";
  for (const int64_t to :
       {int64_t{7}, int64_t{6}, int64_t{-1}, int64_t{22}, INT64_MIN, (int64_t{1} << 32) + 8}) {
    CHECK(target(to) == here + "target " + std::to_string(to) + " is not a later node");
  }
  CHECK(target(9) == here + "target 9 computes nothing");
  CHECK(target(10) == here + "target 10 computes nothing");
  CHECK(target(21) == here + "target 21 computes nothing");
  // Node 6 has node 0 already.
  CHECK(change(kDynamicSample, 0, 3, [](Node& n) {
          set_attribute(n, 0, int64_t{6});
        }).find("target 6 has an InferShape already") != std::string::npos);
  const std::string body =
      "{\na = InferShape(x) {target=2}\na = AllocHost()\na = dyn.Double(x)\n}\n";
  CHECK(write_message(kValues + "input go: bool[]\ngraph main {\na = InferShape(x) {target=1}\n" +
                      "a = If(go, x) bodies=[t, e]\nFreeHost(a)\n}\ngraph body t " + body +
                      "graph body e " + body) ==
        "graphs[0] node 0 (InferShape): target 1 computes nothing");
}

TEST_CASE("a kernel without a shape function takes static shapes only") {
  const std::string text =
      "a = InferShape(x) {target=2}\na = AllocHost()\n"
      "a = test.Copy(x) origin=\"here\"\nFreeHost(a)\n";
  ImageModel model = parse(kValues + "graph main {\n" + text + "}\n");
  const auto bytes = davit::image::write_image(model, tables());
  REQUIRE(!bytes.ok());
  CHECK(bytes.status().code() == DVT_UNSUPPORTED);
  CHECK(bytes.status().detail().message ==
        "graphs[0] node 2: kernel \"test.Copy\" has no shape function");
  CHECK(bytes.status().detail().node == "here");
}

TEST_CASE("an InferShape has the operands of its target") {
  const auto inputs = [](std::vector<uint32_t> to) {
    return change(kDynamicSample, 0, 9, [&](Node& n) { n.inputs = to; });
  };
  const std::string here = "graphs[0] node 9 (InferShape): ";
  // Values: 0 x, 1 count, 7 a, 8 flat, 9 some.
  CHECK(inputs({8}) == here + "has 1 inputs, its target 2");
  CHECK(inputs({8, 1, 1}) == here + "has 3 inputs, its target 2");
  CHECK(inputs({7, 1}) == here + "input 0 is not the one that its target asks for");
  CHECK(inputs({kNone, 1}) == here + "input 0 is not the one that its target asks for");
  // What the kernel reads on the host it reads here.
  CHECK(inputs({8, kNone}) == here + "input 1 is not the one that its target asks for");
  // And nothing else.
  CHECK(main_message("b = InferShape(s, x) {target=1}\nb = dyn.Add(s, x)\n")
            .find("input 0 is not the one that its target asks for") != std::string::npos);
  const auto outputs = [](std::vector<uint32_t> to) {
    return change(kDynamicSample, 0, 17, [&](Node& n) { n.outputs = to; });
  };
  const std::string there = "graphs[0] node 17 (InferShape): ";
  CHECK(outputs({10}) == there + "output 1 is not the dynamic output of its target");
  CHECK(outputs({11, 10}) == there + "output 0 is not the dynamic output of its target");
  CHECK(main_message("a, b = InferShape(x) {target=1}\na = dyn.Double(x)\n") ==
        "graphs[0] node 0 (InferShape): has more outputs than its target");
}

TEST_CASE("shapes are read when they are final") {
  // Before there is one.
  CHECK(main_message("b = InferShape(a) {target=1}\nb = dyn.Double(a)\n")
            .find("is read before it is written") != std::string::npos);
  // Upper bounds are none, neither before nor after there is memory for them.
  const std::string bounds = "a, c = InferShape(x) {target=T}\n";
  const std::string early = "b = InferShape(a) {target=9}\n";
  const std::string memory = "a, c = AllocHost()\n";
  const std::string keep = "a, c = dyn.Keep(x)\n";
  const auto with_target = [&](const char* target) {
    std::string text = bounds;
    return text.replace(text.find('T'), 1, target);
  };
  CHECK(main_message(with_target("3") + "b = InferShape(a) {target=4}\n" + memory + keep +
                     "b = dyn.Double(a)\n") ==
        "graphs[0] node 1 (InferShape): the shape of value 7 \"a\" is not final here");
  CHECK(main_message(with_target("3") + memory + "b = InferShape(a) {target=4}\n" + keep +
                     "b = dyn.Double(a)\n") ==
        "graphs[0] node 2 (InferShape): the shape of value 7 \"a\" is not final here");
  CHECK(main_message(with_target("2") + memory + keep +
                     "b = InferShape(a) {target=5}\nb = AllocHost()\nb = dyn.Double(a)\n"
                     "FreeHost(a, b, c)\n") == "");
  // A shape that follows from shapes is final with or without memory.
  CHECK(main_message("a = InferShape(x) {target=4}\na = AllocHost()\n"
                     "b = InferShape(a) {target=5}\nb = AllocHost()\na = dyn.Double(x)\n"
                     "b = dyn.Double(a)\nFreeHost(a, b)\n") == "");
  // Not of memory that is gone.
  CHECK(main_message(kFillA + "free: FreeHost(a)\nb = InferShape(a) {target=5} after=[free]\n"
                              "b = dyn.Double(a)\n") ==
        "graphs[0] node 4 (InferShape): the shape of value 7 \"a\" is not final here");
  // What the kernel reads on the host has data.
  CHECK(main_message("c = InferShape(x) {target=3}\nb = InferShape(x, c) {target=4}\n"
                     "c = AllocHost()\nc = dyn.Shape(x)\nb = dyn.Take(x, c)\n") ==
        "graphs[0] node 1 (InferShape): value 9 \"c\" has no data here");
}

TEST_CASE("a value gets its shape once") {
  CHECK(main_message("a = InferShape(x) {target=2}\na = InferShape(x) {target=3}\n"
                     "a = dyn.Double(x)\na = dyn.Double(x)\n") ==
        "graphs[0] node 1 (InferShape): value 7 \"a\" has a shape already");
  CHECK(main_message(kFillA + "f: FreeHost(a)\na = InferShape(x) {target=5} after=[f]\n"
                              "a = dyn.Double(x)\n") ==
        "graphs[0] node 4 (InferShape): value 7 \"a\" has a shape already");
  // Its own output twice.
  CHECK(main_message("a, a = InferShape(x) {target=1}\na, a = dyn.Halves(x)\n") != "");
}

// ---- Memory ------------------------------------------------------------------------------------

TEST_CASE("AllocHost: heap values with a shape, once") {
  const std::string refused = " is not a heap value with a shape and no memory";
  CHECK(main_message("a = AllocHost()\n") ==
        "graphs[0] node 0 (AllocHost): value 7 \"a\"" + refused);
  CHECK(main_message("p = AllocHost()\n") ==
        "graphs[0] node 0 (AllocHost): value 5 \"p\"" + refused);
  CHECK(main_message("a = InferShape(x) {target=3}\na = AllocHost()\na = AllocHost()\n"
                     "a = dyn.Double(x)\n") ==
        "graphs[0] node 2 (AllocHost): value 7 \"a\"" + refused);
  CHECK(main_message("y = InferShape(x) {target=2}\ny = AllocHost()\ny = dyn.Double(x)\n",
                     "output y: f32[?] dynamic\n") ==
        "graphs[0] node 1 (AllocHost): value 10 \"y\"" + refused);
}

TEST_CASE("FreeHost: heap values of this graph with memory of their own, once") {
  const std::string refused = " is not a heap value with memory of its own";
  CHECK(main_message(kFillA + "FreeHost(a, a)\n") ==
        "graphs[0] node 3 (FreeHost): value 7 \"a\"" + refused);
  CHECK(main_message(kFillA + "f: FreeHost(a)\nFreeHost(a) after=[f]\n") ==
        "graphs[0] node 4 (FreeHost): value 7 \"a\"" + refused);
  CHECK(main_message("FreeHost(x)\n") == "graphs[0] node 0 (FreeHost): value 0 \"x\"" + refused);
  CHECK(main_message("FreeHost(w)\n") == "graphs[0] node 0 (FreeHost): value 3 \"w\"" + refused);
  CHECK(main_message("FreeHost(_)\n") == "graphs[0] node 0 (FreeHost): value _" + refused);
  CHECK(main_message("a = InferShape(x) {target=2}\nFreeHost(a)\na = dyn.Double(x)\n") ==
        "graphs[0] node 1 (FreeHost): value 7 \"a\"" + refused);
  CHECK(main_message(kFillA + "b = InferShape(a) {target=4}\nb = ReferTo<dyn.Flat>(a)\n"
                              "FreeHost(b)\nFreeHost(a)\n") ==
        "graphs[0] node 5 (FreeHost): value 8 \"b\"" + refused);
  // In a body, what belongs to the parent.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          Node& free = m.graphs[5].nodes[8];
          free.inputs[0] = value_named(m, "state");
        }).find("(FreeHost): value 18 \"state\"" + refused) != std::string::npos);
}

TEST_CASE("what is allocated is freed, by the graph that did it") {
  CHECK(main_message(kFillA) == "graphs[0] node 1 (AllocHost): value 7 \"a\" is not freed");
  CHECK(main_message("a, c = InferShape(x) {target=2}\na, c = AllocHost()\na, c = dyn.Keep(x)\n"
                     "FreeHost(a)\n") ==
        "graphs[0] node 1 (AllocHost): value 9 \"c\" is not freed");
  CHECK(write_message(kFlowSample, [](ImageModel& m) { m.graphs[5].nodes.pop_back(); }) ==
        "graphs[5] node 1 (AllocHost): value 21 \"sum\" is not freed");
  CHECK(change(kFlowSample, 0, 8, [](Node& n) { n.inputs.erase(n.inputs.begin()); }) ==
        "graphs[0] node 0 (If): value 14 \"start\" is not freed");
  CHECK(change(kFlowSample, 0, 8, [](Node& n) { n.inputs.pop_back(); }) ==
        "graphs[0] node 1 (Loop): value 17 \"rows\" is not freed");
}

TEST_CASE("nothing is read without data, or after it was freed") {
  CHECK(main_message("a = InferShape(x) {target=3}\na = AllocHost()\n"
                     "InferShape(a) {target=4}\na = dyn.Double(x)\np = dyn.Double(a)\n"
                     "FreeHost(a)\n") == "");
  CHECK(main_message("a = InferShape(x) {target=4}\na = AllocHost()\n"
                     "InferShape(a) {target=3}\np = dyn.Double(a)\na = dyn.Double(x)\n") ==
        "graphs[0] node 3 (dyn.Double): value 7 \"a\" has no data here");
  CHECK(main_message(kFillA + "InferShape(a) {target=5}\nf: FreeHost(a)\n"
                              "p = dyn.Double(a) after=[f]\n") ==
        "graphs[0] node 5 (dyn.Double): value 7 \"a\" has no data here");
  // The memory behind a reference.
  const std::string refer = "b = InferShape(a) {target=4}\nb = ReferTo<dyn.Flat>(a)\n";
  CHECK(main_message(kFillA + refer +
                     "InferShape(b) {target=7}\nf: FreeHost(a)\n"
                     "p = dyn.Double(b) after=[f]\n") ==
        "graphs[0] node 7 (dyn.Double): value 8 \"b\" uses memory that was freed");
  // Nodes that run bodies hand on what has data.
  CHECK(write_message(kFlowSample, [](ImageModel& m) {
          m.graphs[0].nodes[0].inputs[1] = value_named(m, "y");
        }).find("is read before it is written") != std::string::npos);
  // A kernel that reads no data may do without.
  CHECK(main_message("a = InferShape(x) {target=4}\na = AllocHost()\n"
                     "InferShape(a) {target=3}\np2 = dyn.Shape(a)\na = dyn.Double(x)\n"
                     "FreeHost(a)\n") == "");
}

TEST_CASE("a node writes dynamic values that have memory") {
  CHECK(main_message("a = InferShape(x) {target=1}\na = dyn.Double(x)\n") ==
        "graphs[0] node 1 (dyn.Double): value 7 \"a\" has no memory here");
  // Twice: shapes and data would be those of one and of the other.
  CHECK(main_message("a = InferShape(x) {target=2}\na = AllocHost()\na = dyn.Double(x)\n"
                     "a = dyn.Double(x)\n") ==
        "graphs[0] node 3 (dyn.Double): value 7 \"a\" has no memory here");
}

TEST_CASE("a node with dynamic operands, or that is steered by data, is a target") {
  CHECK(main_message("p = dyn.Double(x)\n") ==
        "graphs[0] node 0 (dyn.Double): no InferShape has it as its target");
  CHECK(main_message("p = dyn.Take(s, n)\n") ==
        "graphs[0] node 0 (dyn.Take): no InferShape has it as its target");
  CHECK(main_message("InferShape(_, n) {target=1}\np = dyn.Take(s, n)\n") == "");
}

TEST_CASE("what a constant steers is checked when the image is opened") {
  CHECK(main_message("a = InferShape(_, two) {target=2}\na = AllocHost()\n"
                     "a = dyn.Take(w, two)\nFreeHost(a)\n") == "");
  CHECK(main_message("p2 = dyn.Shape(s)\np = dyn.Take(p2, two)\n").find("takes f32") !=
        std::string::npos);
}

TEST_CASE("kernels that set shapes have dynamic outputs only") {
  CHECK(main_message("InferShape(x) {target=1}\np, p2 = dyn.Keep(x)\n") ==
        "graphs[0] node 1 (dyn.Keep): sets the shape of value 5 \"p\", which is static");
  CHECK(main_message("p, p2 = dyn.Keep(s)\n") ==
        "graphs[0] node 0 (dyn.Keep): sets the shape of value 5 \"p\", which is static");
}

TEST_CASE("the same rules hold in an image without anything dynamic") {
  const std::string plain =
      "davit 1.2 target cpu\ninput s: f32[4]\nplanned p: f32[4]\n"
      "planned q: i64[4]\n";
  CHECK(write_message(plain + "graph main {\np, q = dyn.Keep(s)\n}\n") ==
        "graphs[0] node 0 (dyn.Keep): sets the shape of value 1 \"p\", which is static");
  CHECK(
      write_message(plain + "graph main {\np = dyn.Flat(s)\n}\n") ==
      "graphs[0] node 0 (dyn.Flat): an alias kernel computes nothing: only a ReferTo may have it");
  CHECK(write_message(plain + "graph main shape_nodes=1 {\np = test.Copy(s)\n}\n") ==
        "graphs[0] node 0 (test.Copy): is among shape_nodes, but reads the data of value 0 \"s\"");
  CHECK(write_message(plain + "graph main {\np = dyn.Double(s)\n}\n") == "");
}

TEST_CASE("an image cannot hide that a kernel sets shapes, or that it is an alias") {
  for (const std::string_view kernel : {"dyn.Keep", "dyn.Flat"}) {
    CAPTURE(kernel);
    CHECK(write_message(kDynamicSample,
                        [&](ImageModel& m) {
                          for (auto& ref : m.kernels) {
                            if (ref.name == kernel) ref.flags = DVT_KERNEL_PURE;
                          }
                        })
              .find("the image was made for a \"" + std::string(kernel) + "\" with flags 0x4") !=
          std::string::npos);
  }
}

// ---- References and outputs --------------------------------------------------------------------

TEST_CASE("ReferTo: of memory that lasts, with data") {
  const std::string refer = "b = InferShape(a) {target=4}\nb = ReferTo<dyn.Flat>(a)\n";
  CHECK(main_message(kFillA + refer + "FreeHost(a)\n") == "");
  CHECK(main_message("b = InferShape(x) {target=1}\nb = ReferTo<dyn.Flat>(x)\n") == "");
  CHECK(main_message("b = InferShape(_) {target=1}\nb = ReferTo<dyn.Flat>(w)\n") == "");
  CHECK(main_message(kFillA + "b = ReferTo<dyn.Flat>(a)\n") ==
        "graphs[0] node 3 (ReferTo): no InferShape has it as its target");
  CHECK(main_message("p = test.Copy(s)\nb = InferShape(_) {target=2}\n"
                     "b = ReferTo<dyn.Flat>(p)\n") ==
        "graphs[0] node 2 (ReferTo): refers to value 5 \"p\", whose memory is planned");
  CHECK(main_message("InferShape(x) {target=1}\np = ReferTo<dyn.Flat>(x)\n") ==
        "graphs[0] node 1 (ReferTo): needs an input, and a heap value as output");
  CHECK(main_message("a = InferShape(x) {target=4}\na = AllocHost()\n"
                     "b = InferShape(a) {target=3}\nb = ReferTo<dyn.Flat>(a)\n"
                     "a = dyn.Double(x)\n") ==
        "graphs[0] node 3 (ReferTo): value 7 \"a\" has no data here");
  CHECK(main_message(kFillA + "b = InferShape(a) {target=5}\nb = AllocHost()\n"
                              "b = ReferTo<dyn.Flat>(a)\n") ==
        "graphs[0] node 5 (ReferTo): its output has no shape, or memory already");
}

TEST_CASE("ReferTo takes alias kernels, and these compute nothing") {
  CHECK(main_message("b = InferShape(x) {target=1}\nb = ReferTo<dyn.Double>(x)\n") ==
        "graphs[0].device_kernel[1]: \"dyn.Double\" is no alias kernel");
  CHECK(
      main_message("p = dyn.Flat(s)\n") ==
      "graphs[0] node 0 (dyn.Flat): an alias kernel computes nothing: only a ReferTo may have it");
}

TEST_CASE("BindOutput: the output that it names, in Main, once") {
  const std::string output = "output y: f32[?] dynamic\n";
  const std::string infer = "y = InferShape(x) {target=2}\n";
  CHECK(main_message(infer + "y = BindOutput() {output=0}\ny = dyn.Double(x)\n", output) == "");
  for (const char* other : {"1", "-1"}) {
    CHECK(main_message(infer + "y = BindOutput() {output=" + other + "}\ny = dyn.Double(x)\n",
                       output) ==
          "graphs[0] node 1 (BindOutput): its value is not the dynamic output that it names");
  }
  CHECK(main_message("a = BindOutput() {output=0}\n") ==
        "graphs[0] node 0 (BindOutput): its value is not the dynamic output that it names");
  CHECK(main_message("z = BindOutput() {output=0}\n", "output z: f32[4]\n") ==
        "graphs[0] node 0 (BindOutput): its value is not the dynamic output that it names");
  CHECK(main_message("y = BindOutput() {output=0}\n", output) ==
        "graphs[0] node 0 (BindOutput): the output has no shape yet, or memory already");
  CHECK(main_message("y = InferShape(x) {target=3}\ny = BindOutput() {output=0}\n"
                     "y = BindOutput() {output=0}\ny = dyn.Double(x)\n",
                     output) ==
        "graphs[0] node 2 (BindOutput): the output has no shape yet, or memory already");
  CHECK(main_message(infer + "y = BindOutput() {output=0}\nx = dyn.Double(x)\n", output) != "");
  CHECK(main_message("y = InferShape(x) {target=1}\ny = dyn.Double(x)\n", output) ==
        "graphs[0] node 1 (dyn.Double): value 10 \"y\" has no memory here");
}

TEST_CASE("every output is filled by Main itself: a body may not run") {
  const std::string rest = R"(
graph body t {
  y = InferShape(x) {target=2}
  y = BindOutput() {output=0}
  y = dyn.Double(x)
}
graph body e {
}
)";
  const std::string values = "input go: bool[]\noutput y: f32[?] dynamic\n";
  CHECK(write_message(kValues + values + "graph main {\nIf(go, x) bodies=[t, e]\n}\n" + rest) ==
        "outputs[0]: no node of Main writes it");
  CHECK(main_message("y = InferShape(x) {target=2}\ny = BindOutput() {output=0}\n"
                     "y = dyn.Double(x)\n",
                     values) == "");
  // A static one, too.
  CHECK(write_message(kValues + "input go: bool[]\noutput z: f32[4]\n"
                                "graph main {\nIf(go, s) bodies=[t, e]\n}\n"
                                "graph body t {\nz = test.Copy(s)\n}\ngraph body e {\n}\n") ==
        "outputs[0]: no node of Main writes it");
}

// ---- Shape nodes -------------------------------------------------------------------------------

TEST_CASE("shape nodes follow from shapes and constants") {
  const auto prefix = [](uint32_t count, const std::string& nodes, const std::string& values = "") {
    return main_message(nodes, values, "graph main shape_nodes=" + std::to_string(count) + " {\n");
  };
  CHECK(prefix(1, kFillA + "FreeHost(a)\n") == "");
  CHECK(prefix(2, kFillA + "FreeHost(a)\n") ==
        "graphs[0] node 1 (AllocHost): is not one that shape_nodes may count");
  CHECK(prefix(1,
               "a, c = InferShape(x) {target=2}\na, c = AllocHost()\na, c = dyn.Keep(x)\n"
               "FreeHost(a, c)\n") ==
        "graphs[0] node 0 (InferShape): is among shape_nodes, but the shape depends on data");
  CHECK(prefix(1, "test.Run()\n") ==
        "graphs[0] node 0 (test.Run): is among shape_nodes, but its kernel is not pure");
  CHECK(prefix(1, "p = test.Copy(s)\n") ==
        "graphs[0] node 0 (test.Copy): is among shape_nodes, but reads the data of value 2 \"s\"");
  CHECK(prefix(1, "InferShape(_, n) {target=1}\np = dyn.Take(s, n)\n") ==
        "graphs[0] node 0 (InferShape): is among shape_nodes, but reads the data of value 1 \"n\"");
  CHECK(prefix(1, "z = test.Copy(w)\n", "output z: f32[4]\n") ==
        "graphs[0] node 0 (test.Copy): is among shape_nodes, but writes value 10 \"z\"");
  // The dims of x, and a number that follows from them, steer what comes after.
  CHECK(prefix(4,
               "InferShape(x) {target=1}\np2 = dyn.Shape(x)\nInferShape(_, p2) {target=4}\n"
               "q = test.Copy(p2)\np = dyn.Take(w, p2)\n",
               "planned q: i64[1]\n") == "");
}

TEST_CASE("what shape nodes write is never overwritten, since they do not run again") {
  const std::string text = main_message(
      "InferShape(x) {target=1}\nsh = dyn.Shape(x)\nq = test.Copy(s)\n",
      "planned sh: i64[1] @1024\nplanned q: f32[4] @1024\n", "graph main shape_nodes=2 {\n");
  CHECK(text.find("both are live at graphs[0] node 2") != std::string::npos);
}

// ---- Init --------------------------------------------------------------------------------------

TEST_CASE("Init hands no dynamic values on, nor what its loops leave") {
  const std::string init = R"(davit 1.2 target cpu
const w: f32[4] = fill 1
planned p: f32[4]
heap a: f32[?] dynamic
heap b: f32[?] dynamic
graph init {
  a = InferShape(_) {target=2}
  a = AllocHost()
  a = dyn.Double(w)
  FreeHost(a)
}
)";
  CHECK(write_message(init + "graph main {\n}\n") == "");
  CHECK(
      write_message(init + "graph main {\n  InferShape(a) {target=1}\n  p = dyn.Double(a)\n}\n") ==
      "graphs[1] node 0 (InferShape): the shape of value 2 \"a\" is not final here");
  const std::string loop = R"(davit 1.2 target cpu
const zero: i64[] = {0}
planned i: i64[]
planned cond: bool[]
planned next: bool[]
planned less: bool[]
graph init {
  i, cond, next = Loop(zero, _) {states=0, collected=0} bodies=[body]
}
graph main {
  less = dyn.Less(NAME, zero)
}
graph body body {
  next = dyn.Less(i, zero)
}
)";
  std::string text = loop;
  text.replace(text.find("NAME"), 4, "i");
  CHECK(write_message(text) == "graphs[1] node 0 (dyn.Less): value 1 \"i\" has no data here");
  text = loop;
  text.replace(text.find("NAME"), 4, "zero");
  CHECK(write_message(text) == "");
}

// ---- Devices -----------------------------------------------------------------------------------

namespace {

const std::string kDeviceValues = R"(davit 1.2 target "ascend:test"
streams 2
input x: f32[?] dynamic
input s: f32[4]
output y: f32[?] dynamic
planned n: i64[1]
planned p: f32[4]
heap h: f32[?] dynamic
heap k: f32[?] dynamic
device dx: f32[?] dynamic
device dn: i64[1]
device de: i64[?] dynamic
device ds: f32[?] dynamic
graph init {
  CreateStream() {stream=0, priority=0}
  CreateStream() {stream=1, priority=0}
}
graph deinit {
  DestroyStream() {stream=0}
  DestroyStream() {stream=1}
}
graph main {
)";

std::string device_message(const std::string& nodes, const std::string& y = "y = dyn.Double(x)\n") {
  return write_message(kDeviceValues +
                       "y = InferShape(x) {target=2}\ny = BindOutput() {output=0}\n" + y + nodes +
                       "}\n");
}

// dx = x on the device, h its copy on the host; from node 3 on.
const std::string kThere =
    "dx = CopyShape(x)\na: dx = AllocMemHbm() {bytes=1}\n"
    "up: LaunchH2DCopy(x, dx) stream=0 after=[a]\n"
    "h = CopyShape(dx) after=[up]\nh = AllocHost()\ndown: h = LaunchD2HCopy(dx) stream=0 "
    "after=[up]\n";

}  // namespace

TEST_CASE("copies to and from a device, shapes at run time") {
  CHECK(device_message(kThere + "join: SyncStream() {stream=0} after=[down]\n"
                                "InferShape(h) {target=11} after=[join]\np = dyn.Double(h)\n"
                                "FreeHost(h)\nFreeMemHbm(dx) after=[down]\n") == "");
}

TEST_CASE("what a copy writes on the host is not read before its stream is joined") {
  CHECK(device_message(kThere + "InferShape(h) {target=10}\np = dyn.Double(h)\nFreeHost(h)\n"
                                "FreeMemHbm(dx) after=[down]\n") ==
        "graphs[2] node 10 (dyn.Double): value 5 \"h\" is read before a SyncStream of stream 0");
  // Another stream's.
  CHECK(device_message(kThere + "SyncStream() {stream=1}\nInferShape(h) {target=11}\n"
                                "p = dyn.Double(h)\nFreeHost(h)\nFreeMemHbm(dx) after=[down]\n") ==
        "graphs[2] node 11 (dyn.Double): value 5 \"h\" is read before a SyncStream of stream 0");
  // A number that steers: checked with one, run with another.
  const std::string number = "m: dn = AllocMemHbm() {bytes=8}\nd: n = LaunchD2HCopy(dn) stream=1\n";
  CHECK(device_message(number + "InferShape(_, n) {target=6}\np = dyn.Take(s, n)\n"
                                "FreeMemHbm(dn) after=[d]\n") ==
        "graphs[2] node 5 (InferShape): value 3 \"n\" is read before a SyncStream of stream 1");
  CHECK(device_message(number + "j: SyncStream() {stream=1} after=[d]\n"
                                "InferShape(_, n) {target=7} after=[j]\np = dyn.Take(s, n)\n"
                                "FreeMemHbm(dn) after=[d]\n") == "");
}

TEST_CASE("heap memory is not freed while a copy may use it, whatever the streams") {
  CHECK(
      device_message(kThere + "FreeHost(h)\nFreeMemHbm(dx) after=[down]\n") ==
      "graphs[2] node 9 (FreeHost): value 5 \"h\" is freed while a copy of stream 0 may still use "
      "it");
  const std::string fill = "k = InferShape(x) {target=5}\nk = AllocHost()\nk = dyn.Double(x)\n";
  const std::string up =
      "dx = CopyShape(k)\na: dx = AllocMemHbm() {bytes=1}\n"
      "u0: LaunchH2DCopy(k, dx) stream=0 after=[a]\n";
  CHECK(device_message(fill + up +
                       "j: SyncStream() {stream=0} after=[u0]\nFreeHost(k) after=[j]\n"
                       "FreeMemHbm(dx) after=[j]\n") == "");
  CHECK(device_message(fill + up + "FreeHost(k)\nFreeMemHbm(dx) after=[u0]\n")
            .find("is freed while a copy of stream 0 may still use it") != std::string::npos);
  // Joining one stream says nothing of the other.
  CHECK(
      write_message(kDeviceValues +
                    "y = InferShape(x) {target=2}\ny = BindOutput() {output=0}\n"
                    "y = dyn.Double(x)\n" +
                    fill + up +
                    "ds = CopyShape(k)\nb: ds = AllocMemHbm() {bytes=1}\n"
                    "u1: LaunchH2DCopy(k, ds) stream=1 after=[b]\n"
                    "j: SyncStream() {stream=1} after=[u0, u1]\nFreeHost(k) after=[j]\n"
                    "FreeMemHbm(dx) after=[j]\nFreeMemHbm(ds) after=[j]\n}\n") ==
      "graphs[2] node 11 (LaunchH2DCopy): value 6 \"k\" is used by copies of streams 0 and 1 at a "
      "time");
}

TEST_CASE("a task cannot set shapes, nor can a copy do without a shape or memory") {
  CHECK(device_message("h = CopyShape(s)\nh = CopyShape(x)\n") ==
        "graphs[2] node 4 (CopyShape): value 5 \"h\" has a shape already");
  CHECK(device_message("de = CopyShape(x)\n") ==
        "graphs[2] node 3 (CopyShape): copies the shape of a tensor to a dynamic value of its "
        "element type");
  CHECK(device_message("dx = CopyShape(x)\nLaunchH2DCopy(x, dx) stream=0\n") ==
        "graphs[2] node 4 (LaunchH2DCopy): value 7 \"dx\" has no memory here");
  CHECK(device_message("dx = AllocMemHbm() {bytes=1}\nFreeMemHbm(dx)\n") ==
        "graphs[2] node 3 (AllocMemHbm): value 7 \"dx\" has no shape yet, or memory already");
}
