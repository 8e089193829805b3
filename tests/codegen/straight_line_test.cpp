// Straight-line C: gives the bits that the image gives, says which node failed, and is refused for
// what it cannot be.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "codegen/code_source.hpp"
#include "codegen/kernel_pieces.hpp"
#include "davit/davit.h"
#include "exec/image.hpp"
#include "lowering/compile.hpp"
#include "lowering/image/image_model.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/compiled_graph.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::Result;
using davit::codegen::emit_straight_line;
using davit::codegen::StraightLine;
using davit::codegen::StraightLineOptions;
using davit::compiler::compile_module;
using davit::compiler::CompileOptions;
using davit::testing::CompiledGraph;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

std::vector<std::byte> compiled(davit::ir::Module module, CompileOptions options = {}) {
  auto image = compile_module(std::move(module), options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  return std::move(image->bytes);
}

Result<StraightLine> emitted(const std::vector<std::byte>& image,
                             StraightLineOptions options = {}) {
  const davit::testing::AlignedBytes aligned(image);
  const auto open = davit::exec::open_image_memory(
      {static_cast<const std::byte*>(aligned.data()), aligned.size()}, {});
  REQUIRE_MESSAGE(open.ok(), open.status().to_string());
  if (options.name.empty()) options.name = "graph";
  return emit_straight_line((*open)->view, options);
}

CompiledGraph built(const std::vector<std::byte>& image, size_t ports,
                    const StraightLineOptions& options = {}) {
  const auto graph = emitted(image, options);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  auto built = CompiledGraph::build(*graph, options.name.empty() ? "graph" : options.name, ports);
  REQUIRE_MESSAGE(built.ok(), built.status().to_string());
  return std::move(*built);
}

NpyArray ramp(std::vector<int64_t> dims, float step) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  NpyArray array{.dtype = DVT_F32, .dims = std::move(dims), .bytes = {}};
  array.bytes.resize(size_t(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    const float value = step * float(i % 37) - 1.0F;
    std::memcpy(array.bytes.data() + size_t(i) * sizeof value, &value, sizeof value);
  }
  return array;
}

// Runs both twice, on two inputs, and compares the bits.
void check_equal(const std::vector<std::byte>& image, const std::vector<int64_t>& dims) {
  CompiledGraph graph = built(image, 2);
  for (const float step : {0.25F, 0.75F}) {
    NpyArray x = ramp(dims, step);
    const auto expected = davit::testing::run_image(image, std::vector{x});
    REQUIRE_MESSAGE(expected.ok(), expected.status().to_string());
    std::vector<std::byte> y(expected->front().bytes.size(), std::byte{0xAB});
    void* const ports[] = {x.bytes.data(), y.data()};
    REQUIRE(graph.run(ports) == DVT_OK);
    CHECK(graph.failed_node().empty());
    CHECK(y == expected->front().bytes);
  }
}

davit::ir::Module small_net() {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 3, 12, 12});
  std::vector<float> weights(8 * 3 * 3 * 3);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = float(i % 11) * 0.1F - 0.5F;
  const auto w = tiny.constant("w", f32_tensor({8, 3, 3, 3}, weights));
  const auto conv = tiny.node("Conv", {x, w}, "c");
  const auto relu = tiny.node("Relu", {conv}, "r");
  const auto pool = tiny.node("GlobalAveragePool", {relu}, "p");
  const auto sigmoid = tiny.node("Sigmoid", {pool}, "s");
  const auto scaled = tiny.node("Mul", {conv, sigmoid}, "m");
  return tiny.build({tiny.node("Softmax", {scaled}, "y")});
}

}  // namespace

TEST_CASE("reference kernels give the bits of the image") {
  check_equal(compiled(small_net()), {1, 3, 12, 12});
}

TEST_CASE("generated kernels of every instruction set give the bits of the image") {
  for (const std::string isa : {"baseline", "avx2", "avx512"}) {
    if (!davit::exec::processor_runs(isa)) continue;
    CAPTURE(isa);
    CompileOptions options;
    options.level = davit::passes::Level::kFuse;
    options.codegen.isas = {isa};
    const auto image = compiled(small_net(), options);
    const auto graph = emitted(image);
    REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
    CHECK(graph->isa == isa);
    check_equal(image, {1, 3, 12, 12});
  }
}

TEST_CASE("one of several instruction sets is chosen") {
  CompileOptions options;
  options.codegen.isas = {"baseline", "avx2"};
  const auto image = compiled(small_net(), options);
  CHECK(emitted(image)->isa == "avx2");
  CHECK(emitted(image, {.isa = "baseline"})->isa == "baseline");
  const auto other = emitted(image, {.isa = "avx512"});
  REQUIRE(!other.ok());
  CHECK(other.status().to_string().find("avx2, baseline") != std::string::npos);
}

TEST_CASE("long graphs: loops for equal calls, a list where there are too many others") {
  for (const bool alternates : {false, true}) {
    TinyModule tiny;
    auto value = tiny.input("x", {4});
    const auto two = tiny.constant("two", f32_tensor({1}, {1.5F}));
    for (int i = 0; i < 2401; ++i) {
      const bool unary = alternates && i % 2 == 1;
      const std::string name = "v" + std::to_string(i);
      value = unary ? tiny.node("Sin", {value}, name) : tiny.node("Add", {value, two}, name);
    }
    const auto image = compiled(tiny.build({value}));
    const auto graph = emitted(image);
    REQUIRE(graph.ok());
    CHECK(graph->nodes == 2401);
    CHECK((graph->source.find("main_steps") != std::string::npos) == alternates);
    CHECK((graph->source.find("i += 4") != std::string::npos) == !alternates);
    check_equal(image, {4});
  }
}

TEST_CASE("a failing node is named, and the next run is right") {
  TinyModule tiny;
  const auto x = tiny.input("x", {3});
  const auto index = tiny.node("Cast", {x}, "i", {{"to", int64_t{DVT_I64}}});
  const auto table = tiny.constant("table", f32_tensor({4}, {10, 20, 30, 40}));
  const auto image = compiled(tiny.build({tiny.node("Gather", {table, index}, "y")}));
  CompiledGraph graph = built(image, 2);
  float bad[] = {0, 9, 1};
  float good[] = {3, 0, 2};
  float y[3];
  void* ports[] = {bad, y};
  CHECK(graph.run(ports) != DVT_OK);
  CHECK(graph.failed_node().find("Gather_y (ai.onnx::Gather") == 0);
  ports[0] = good;
  CHECK(graph.run(ports) == DVT_OK);
  CHECK(graph.failed_node().empty());
  CHECK(y[0] == 40);
  CHECK(y[2] == 30);
}

TEST_CASE("names of a model are no C") {
  TinyModule tiny;
  const auto a = tiny.input("1 a*/ \"?\?/\\\n", {2});
  const auto b = tiny.input("1_a___________", {2});
  const auto sum = tiny.node("Add", {a, b}, "*/ int main(void) { \"");
  const auto image = compiled(tiny.build({tiny.node("Relu", {sum}, "return")}));
  CompiledGraph graph = built(image, 3, {.name = "odd"});
  float in[] = {1, -5};
  float y[2];
  void* const ports[] = {in, in, y};
  CHECK(graph.run(ports) == DVT_OK);
  CHECK(y[0] == 2);
  CHECK(y[1] == 0);
  CHECK(graph.symbol("odd_run") != nullptr);
  CHECK(graph.symbol("dvt_cpu_kernels") == nullptr);
}

TEST_CASE("what cannot be straight-line C is refused by name") {
  const auto message = [](const std::vector<std::byte>& image, const StraightLineOptions& options) {
    const auto graph = emitted(image, options);
    return graph.ok() ? std::string() : graph.status().to_string();
  };
  TinyModule tiny;
  const auto x = tiny.input("x", {-1, 3});
  const auto dynamic = compiled(tiny.build({tiny.node("Relu", {x}, "y")}));
  CHECK(message(dynamic, {}).find("shapes are set at run time") != std::string::npos);
  CompileOptions ascend;
  ascend.target = DVT_TARGET_ASCEND;
  CHECK(message(compiled(small_net(), ascend), {}).find("ascend") != std::string::npos);
  const auto image = compiled(small_net());
  CHECK(message(image, {.name = "a b"}).find("'a b' is no identifier") != std::string::npos);
  CHECK(message(image, {.functions = {{"acme.Scale", "acme_scale"}}}).find("acme.Scale") !=
        std::string::npos);
  CHECK(message(image, {.functions = {{"acme.Scale", "a-b"}}}).find("'a-b'") != std::string::npos);
  CHECK(message(image, {}) == "");
}

TEST_CASE("an image with code but without its source is refused") {
  CompileOptions options;
  options.codegen.isas = {"baseline"};
  auto model = davit::image::read_image_model(compiled(small_net(), options));
  REQUIRE(model.ok());
  const auto message = [&](std::vector<std::byte> code) {
    const auto source = davit::codegen::parse_source(code);
    return source.ok() ? std::string() : source.status().to_string();
  };
  CHECK(message(model->code) == "");
  CHECK(message({}).find("not the C") != std::string::npos);
  auto cut = model->code;
  cut.resize(cut.size() - 1);
  CHECK(message(cut).find("not the C") != std::string::npos);
  auto longer = model->code;
  longer[longer.size() - 16 + 6] = std::byte{0x7F};
  CHECK(message(longer).find("longer than") != std::string::npos);
  // No damage to the text makes the parser read elsewhere.
  for (size_t at = model->code.size() - 20000; at < model->code.size(); at += 7) {
    auto damaged = model->code;
    damaged[at] ^= std::byte{0x51};
    const auto parsed = davit::codegen::parse_source(damaged);
    if (!parsed.ok()) CHECK(!parsed.status().to_string().empty());
  }
}

TEST_CASE("all pieces of the reference kernels stand in one file") {
  // A function of each family, so that everything is used.
  StraightLine graph;
  std::string headers;
  for (const auto& piece : davit::codegen::kernel_pieces()) {
    for (const auto header : piece.system_headers)
      headers += "#include " + std::string(header) + "\n";
    if (piece.target.empty()) graph.source += piece.text;
  }
  std::string sums;
  for (const auto& family : davit::codegen::kernel_families()) {
    sums += " + dvt_kernels_" + std::string(family.name) + "().count";
  }
  graph.header =
      "#include <stdint.h>\nint32_t graph_run(void);\nconst char* graph_failed_node(void);\n";
  graph.source = "#pragma GCC diagnostic ignored \"-Wunused-function\"\n" + headers + graph.header +
                 graph.source + "const char* graph_failed_node(void) { return 0; }\n" +
                 "int32_t graph_run(void) { return (int32_t)(0" + sums + "); }\n";
  auto built = CompiledGraph::build(graph, "graph", 0, "-O0");
  REQUIRE_MESSAGE(built.ok(), built.status().to_string());
  size_t expected = 0;
  for (const auto& family : davit::codegen::kernel_families()) expected += family.table().count;
  CHECK(built->run({}) == int32_t(expected));
}
