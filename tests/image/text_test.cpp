// The text form: assembling, dumping, and that they are inverse.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "tests/image/support.hpp"

using davit::image::assemble_text;
using davit::image::dump_text;
using davit::image::Graph;
using davit::image::ImageModel;
using davit::image::Node;
using davit::image::read_image_model;
using davit::image::Value;
using davit::image::ValueKind;
using davit::image::write_image;
using namespace davit::test;  // NOLINT(google-build-using-namespace)

namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  auto model = read_image_model(bytes);
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  return dump_text(*model, tables());
}

// The message of a text that must not assemble.
std::string message(const std::string& text) {
  const auto model = assemble_text(text, tables());
  return model.ok() ? "" : model.status().detail().message;
}

// The same for lines after a heading; line numbers count from the heading.
std::string line_message(const std::string& line) {
  return message("davit 1.3 target cpu\n" + line);
}

DvtTensor f32_tensor(std::vector<int64_t> dims) {
  DvtTensor tensor{.dtype = DVT_F32, .rank = static_cast<uint8_t>(dims.size())};
  tensor.bytes = sizeof(float);
  for (size_t d = 0; d < dims.size(); ++d) {
    tensor.dims[d] = dims[d];
    tensor.bytes *= static_cast<uint64_t>(dims[d]);
  }
  return tensor;
}

// A random valid cpu image: a chain with side reads, odd names, random attributes and constants.
class RandomModel {
 public:
  explicit RandomModel(uint32_t seed) : random_(seed) {}

  ImageModel make() {
    const DvtTensor tensor = f32_tensor({1 + pick(3), 4});
    add_port(model_.inputs, ValueKind::kInput, tensor);
    add_constants(tensor);
    Graph main;
    const uint32_t nodes = 1 + pick(30);
    for (uint32_t i = 0; i < nodes; ++i) add_node(main, i, tensor);
    add_port(model_.outputs, ValueKind::kOutput, tensor);
    Node copy{.kernel = intern("test.Copy"), .inputs = {readable_.back()}};
    copy.outputs = {model_.outputs[0].value};
    main.nodes.push_back(std::move(copy));
    model_.graphs.push_back(std::move(main));
    model_.provenance.producer = random_name();
    model_.lower_bound_bytes = pick(2) * 16;
    return std::move(model_);
  }

 private:
  uint32_t pick(uint32_t below) { return random_() % below; }

  std::string random_name() {
    constexpr std::string_view kLetters =
        "ab/:.\"\\ _%\n\t\x01\xc3\xa9"
        "0";
    std::string name;
    for (uint32_t i = pick(6); i > 0; --i) name += kLetters[pick(kLetters.size())];
    return name;
  }

  uint32_t intern(std::string_view name) {
    const DvtKernelTable table = test_kernels();
    for (size_t i = 0; i < table.count; ++i) {
      if (table.kernels[i].name == name) return intern_kernel(model_, table.kernels[i]);
    }
    return davit::image::kNone;
  }

  uint32_t add_value(ValueKind kind, const DvtTensor& tensor, uint64_t offset) {
    model_.values.push_back({.kind = kind,
                             .has_tensor = true,
                             .tensor = tensor,
                             .offset = offset,
                             .name = random_name()});
    return static_cast<uint32_t>(model_.values.size() - 1);
  }

  void add_port(std::vector<davit::image::Port>& ports, ValueKind kind, const DvtTensor& tensor) {
    const uint32_t value = add_value(kind, tensor, ports.size());
    davit::image::Port port{.name = "p" + random_name(), .value = value};
    for (uint32_t d = 0; d < tensor.rank; ++d) {
      port.dims.push_back({static_cast<int64_t>(pick(2)), tensor.dims[d], random_name()});
    }
    ports.push_back(std::move(port));
    if (kind == ValueKind::kInput) readable_.push_back(value);
  }

  void add_constants(const DvtTensor& tensor) {
    for (uint32_t i = pick(4); i > 0; --i) {
      const uint64_t gap = 4 * pick(40);
      const uint64_t offset = model_.constants.size() + gap;
      model_.constants.resize(offset + tensor.bytes);
      for (size_t at = offset - (pick(2) == 0 ? gap : 0); at < model_.constants.size(); ++at) {
        model_.constants[at] = static_cast<std::byte>(random_());
      }
      readable_.push_back(add_value(ValueKind::kConstant, tensor, offset));
    }
    model_.constants.resize(model_.constants.size() + pick(2) * 12);
  }

  uint32_t readable() { return readable_[pick(static_cast<uint32_t>(readable_.size()))]; }

  void add_node(Graph& graph, uint32_t index, const DvtTensor& tensor) {
    const uint64_t offset = model_.arena_bytes;
    model_.arena_bytes = (offset + tensor.bytes + 63) / 64 * 64;
    const uint32_t out = add_value(ValueKind::kPlanned, tensor, offset);
    Node node{.kernel = intern(pick(2) == 0 ? "test.Add" : "test.Scale"), .outputs = {out}};
    if (model_.kernels[node.kernel].name == "test.Add") {
      node.inputs = {readable(), readable()};
    } else {
      node.inputs = {readable()};
      node.attributes.resize(40);
      for (std::byte& byte : node.attributes) {
        byte = static_cast<std::byte>(pick(3) == 0 ? random_() : 0);
      }
    }
    for (uint32_t i = 0; i < index; ++i) {
      if (pick(8) == 0) node.control_inputs.push_back(i);
    }
    node.priority = static_cast<int32_t>(pick(5)) - 2;
    node.has_cost = pick(2) == 0;
    node.cost = {.kind = DVT_TASK_MATMUL, .dtype = DVT_F32, .block_dim = pick(9), .m = random_()};
    if (!node.has_cost) node.cost = {};
    node.origin = random_name();
    node.op = random_name();
    graph.nodes.push_back(std::move(node));
    readable_.push_back(out);
    if (pick(4) == 0) readable_.push_back(add_value(ValueKind::kPlanned, view_of(tensor), offset));
  }

  static DvtTensor view_of(const DvtTensor& tensor) {
    DvtTensor view = tensor;
    std::swap(view.dims[0], view.dims[1]);
    return view;
  }

  std::mt19937 random_;
  ImageModel model_;
  std::vector<uint32_t> readable_;
};

}  // namespace

TEST_CASE("samples survive image to text to image, byte for byte") {
  for (const std::string_view sample : {kCpuSample, kDeviceSample, kBodySample}) {
    const std::vector<std::byte> bytes = assemble(sample);
    const std::string text = text_of(bytes);
    INFO(text);
    CHECK(assemble(text) == bytes);
    CHECK(text_of(assemble(text)) == text);
  }
}

TEST_CASE("random models survive model to image to text to image, byte for byte") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const ImageModel model = RandomModel(seed).make();
    const auto bytes = write_image(model, tables());
    REQUIRE_MESSAGE(bytes.ok(), bytes.status().to_string());
    CHECK(*write_image(model, tables()) == *bytes);
    CHECK(*write_image(*read_image_model(*bytes), tables()) == *bytes);
    const std::string text = text_of(*bytes);
    INFO(text);
    const auto again = assemble_text(text, tables());
    REQUIRE_MESSAGE(again.ok(), again.status().to_string());
    const auto rewritten = write_image(*again, tables());
    REQUIRE_MESSAGE(rewritten.ok(), rewritten.status().to_string());
    CHECK(*rewritten == *bytes);
  }
}

TEST_CASE("kernels that nobody has dump as hexadecimal and survive") {
  const std::vector<std::byte> bytes = assemble(kCpuSample);
  const std::string text = dump_text(*read_image_model(bytes));  // Without the test's tables.
  CHECK(text.find("kernel test.Scale abi 1 flags 4\n") != std::string::npos);
  CHECK(text.find("{hex 9a9999999999b93f") != std::string::npos);
  const auto model = assemble_text(text);
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(*write_image(*model, tables()) == bytes);
}

TEST_CASE("every element type survives, whatever its bits") {
  const std::string text = R"(davit 1.3 target cpu
const a: f32[3] = {0x7fc00001, -inf, 1.17549435e-38}
const b: f64[2] = {0x7ff8000000000001, -5e-324}
const c: f16[2] = {0x3c00, 0x7e01}
const d: bf16[1] = {0x3f80}
const e: i8[2] = {-128, 127}
const f: u64[1] = {18446744073709551615}
const g: bool[2] = {0, 1}
const h: i64[] = {-9223372036854775808}
const i: f32[0] = {}
const j: i16[200] = fill -3
const k: u8[3] = hex { 00 ff
  10 }
graph main {
}
)";
  const std::vector<std::byte> bytes = assemble(text);
  const std::string dump = text_of(bytes);
  INFO(dump);
  CHECK(assemble(dump) == bytes);
  CHECK(dump.find("const a: f32[3] = {0x7fc00001, -inf, 1.1754944e-38}\n") != std::string::npos);
  CHECK(dump.find("const j: i16[200] @576 = fill -3\n") == std::string::npos);
}

TEST_CASE("a dump for people leaves large constants out, and says so when it is assembled") {
  const ImageModel model = parse(kCpuSample);
  const std::string text = dump_text(model, tables(), {.constant_bytes_max = 16});
  CHECK(text.find("const %3 \"w\": f32[2, 4] = ...\n") != std::string::npos);
  CHECK(message(text).find("the constant was left out of this text") != std::string::npos);
}

TEST_CASE("values without an offset get memory of their own") {
  const ImageModel model = parse(R"(davit 1.0 target cpu
planned a: f32[3]
planned b: f32[100]
planned c: f32[1]
const d: f32[1] = {1}
const e: f32[1] = {2}
graph main {
}
)");
  CHECK(model.values[0].offset == 0);
  CHECK(model.values[1].offset == 64);
  CHECK(model.values[2].offset == 512);
  CHECK(model.arena_bytes == 516);
  CHECK(model.values[4].offset == 64);
  CHECK(model.constants.size() == 68);
}

TEST_CASE("errors of the text form give line and column") {
  const std::string heading = "davit 1.3 target cpu\n";
  CHECK(message("") == "line 1, column 1: expected 'davit', got the end of the text");
  CHECK(message("davit 2.0 target cpu") ==
        "line 1, column 7: format 2.0 is not one this version of davit reads (1.0 to 1.3)");
  CHECK(message("davit 1.7 target cpu").find("format 1.7 is not one") != std::string::npos);
  CHECK(message("davit x target cpu") ==
        "line 1, column 7: expected the format version, such as 1.0, got 'x'");
  CHECK(line_message("frobnicate 1") == "line 2, column 1: unknown statement 'frobnicate'");
  CHECK(line_message("planned a: f33[1]") ==
        "line 2, column 12: expected an element type, got 'f33'");
  CHECK(line_message("planned a: f32[1]\nplanned a: f32[1]") ==
        "line 3, column 9: value a is declared twice");
  CHECK(line_message("planned a: f32[N=1..2]") ==
        "line 2, column 16: only inputs and outputs have ranges and symbols");
  CHECK(line_message("planned a: f32[1, 1, 1, 1, 1, 1, 1, 1, 1]") ==
        "line 2, column 40: more than 8 dimensions");
  CHECK(line_message("planned a: f32[-1]") == "line 2, column 16: must be 0 <= min <= max");
  CHECK(line_message("planned a: f32[3000000000, 3000000000]") ==
        "line 2, column 12: the tensor is too large");
  CHECK(line_message("const a: f32[2] = {1}") == "line 2, column 21: 1 elements, the tensor has 2");
  CHECK(line_message("const a: f32[1] = {1, 2}") ==
        "line 2, column 23: more elements than the tensor has");
  CHECK(line_message("const a: i8[1] = {200}") ==
        "line 2, column 19: expected an element of type i8, got '200'");
  CHECK(line_message("const a: f32[1] = hex {00}") ==
        "line 2, column 19: 1 bytes, the tensor has 4");
  CHECK(line_message("const a: f32[1] = hex {000}") ==
        "line 2, column 27: an odd number of hexadecimal digits");
  CHECK(line_message("const a: f32[1000000000000] = fill 0") ==
        "line 2, column 29: the text is too short for constants of 4000000000000 bytes");
  CHECK(line_message("view a: f32[1] of input \"x\"") ==
        "line 2, column 25: there is no such port");
  CHECK(line_message("word \"a\\q\"") ==
        "line 2, column 6: expected the name of a value, got "
        "'\"a\\q\"'");
}

TEST_CASE("errors of graphs in the text form") {
  const auto node_message = [](const std::string& node) {
    return line_message("planned a: f32[4]\ngraph main {\n  " + node + "\n}\n");
  };
  CHECK(node_message("a = test.Copy(b)") == "line 4, column 17: unknown value b");
  CHECK(node_message("a = test.Nothing()") ==
        "line 4, column 7: unknown kernel \"test.Nothing\"; declare it with a kernel line, or give "
        "its plug-in with --plugin");
  CHECK(node_message("a = test.Scale(a)") ==
        "line 4, column 20: attribute factor of test.Scale is missing");
  CHECK(node_message("a = test.Scale(a) {factor=1, shape=[1, 2, 3, 4, 5]}") ==
        "line 4, column 51: attribute shape has 4 entries");
  CHECK(node_message("a = test.Scale(a) {factor=1, other=2}") ==
        "line 4, column 32: expected an attribute of test.Scale, got 'other'");
  CHECK(node_message("a = test.Copy(a) after=[n7]") == "line 4, column 27: no node has this label");
  CHECK(node_message("a = test.Copy(a) colour=1") == "line 4, column 20: unknown key 'colour'");
  CHECK(node_message("a = test.Copy(a) bodies=[b]") == "line 4, column 28: no body has this label");
  CHECK(node_message("a = test.Copy(a) lane=fast") ==
        "line 4, column 25: expected 'normal', 'memory' or 'launch', got 'fast'");
  CHECK(node_message("n: a = test.Copy(a)\n  n: a = test.Copy(a)") ==
        "line 5, column 3: label n is used twice");
  CHECK(line_message("graph main {\n") ==
        "line 3, column 1: expected '}', got the end of the text");
  CHECK(line_message("graph side {\n") ==
        "line 2, column 7: expected 'init', 'main', 'deinit' or 'body', got 'side'");
}

TEST_CASE("no text crashes the assembler: every prefix, and random damage") {
  std::mt19937 random(7);
  for (const std::string_view sample : {kCpuSample, kDeviceSample, kBodySample}) {
    for (size_t length = 0; length < sample.size(); ++length) {
      const auto model = assemble_text(sample.substr(0, length), tables());
      if (model.ok()) static_cast<void>(dump_text(*model, tables()));
    }
    for (uint32_t i = 0; i < 3000; ++i) {
      std::string text(sample);
      for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
        text[random() % text.size()] =
            static_cast<char>(random() % 3 == 0 ? random() : sample[random() % sample.size()]);
      }
      const auto model = assemble_text(text, tables());
      if (!model.ok()) {
        CHECK(model.status().detail().message.starts_with("line "));
        continue;
      }
      static_cast<void>(dump_text(*model, tables()));
      if (model->arena_bytes < 1U << 20U) static_cast<void>(write_image(*model, tables()));
    }
  }
}
