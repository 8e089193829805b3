// straight_line_models_test NAME: straight-line C of a real model, with generated kernels and
// without, gives the bits of its image on the reference inputs.
//
// DAVIT_MODELS_DIR holds NAME.onnx; without it the test is skipped (exit code 77).
// DAVIT_TEST_DATA holds refs/index.json.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/code_segment.hpp"
#include "exec/image.hpp"
#include "lowering/compile.hpp"
#include "tests/models/references.hpp"
#include "tests/support/compiled_graph.hpp"
#include "tests/support/run_image.hpp"

namespace {

using davit::NpyArray;
using davit::Status;
using nlohmann::json;

Status compare(const std::string& path, const davit::compiler::CompileOptions& options,
               std::vector<NpyArray> inputs) {
  auto image = davit::compiler::compile_onnx_file(path, options);
  if (!image.ok()) return std::move(image.status());
  auto expected = davit::testing::run_image(image->bytes, inputs);
  if (!expected.ok()) return std::move(expected.status());
  const davit::testing::AlignedBytes aligned(image->bytes);
  const auto open = davit::exec::open_image_memory(
      {static_cast<const std::byte*>(aligned.data()), aligned.size()}, {});
  if (!open.ok()) return Status(open.status().detail());
  auto graph = davit::codegen::emit_straight_line((*open)->view, {.name = "model"});
  if (!graph.ok()) return std::move(graph.status());
  auto built =
      davit::testing::CompiledGraph::build(*graph, "model", inputs.size() + expected->size());
  if (!built.ok()) return std::move(built.status());
  std::vector<void*> ports;
  for (NpyArray& input : inputs) ports.push_back(input.bytes.data());
  std::vector<std::vector<std::byte>> outputs;
  for (const NpyArray& output : *expected) outputs.emplace_back(output.bytes.size());
  for (auto& output : outputs) ports.push_back(output.data());
  const int32_t code = built->run(ports);
  if (code != 0) return {DVT_KERNEL_FAILED, DVT_STAGE_RUN, built->failed_node() + " failed"};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == (*expected)[i].bytes) continue;
    return {DVT_INTERNAL, DVT_STAGE_RUN, "output " + std::to_string(i) + " has other bits"};
  }
  return {};
}

int run(const std::string& name, const std::string& models, const std::string& data) {
  const std::string path = models + "/" + name + ".onnx";
  if (!std::filesystem::exists(path)) {
    std::printf("skipped: there is no %s\n", path.c_str());
    return davit::testing::kSkipped;
  }
  std::ifstream file(data + "/refs/index.json");
  const json index = json::parse(file);
  const auto model = std::find_if(index["models"].begin(), index["models"].end(),
                                  [&](const json& candidate) { return candidate["name"] == name; });
  if (model == index["models"].end()) {
    std::fprintf(stderr, "no references for %s\n", name.c_str());
    return 2;
  }
  const json& set = (*model)["sets"][0];
  const auto inputs =
      davit::testing::read_arrays(data + "/refs/" + set["dir"].get<std::string>(), set["inputs"]);
  davit::compiler::CompileOptions options;
  for (const json& input : set["inputs"]) {
    options.shapes[input["name"].get<std::string>()] = input["shape"].get<std::vector<int64_t>>();
  }
  int failures = 0;
  for (const bool generated : {false, true}) {
    options.level = davit::passes::Level::kFuse;
    if (generated) options.codegen.isas = {std::string(davit::exec::best_isa())};
    const Status status = compare(path, options, inputs);
    std::printf("%-24s %s\n", generated ? "generated kernels" : "reference kernels",
                status.ok() ? "ok" : status.to_string().c_str());
    failures += status.ok() ? 0 : 1;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else runs yet.
  const char* models = std::getenv("DAVIT_MODELS_DIR");
  const char* data = std::getenv("DAVIT_TEST_DATA");
  // NOLINTEND(concurrency-mt-unsafe)
  if (argc != 2 || data == nullptr) {
    std::fprintf(stderr, "usage: straight_line_models_test NAME\n");
    return 2;
  }
  return models == nullptr ? davit::testing::kSkipped : run(argv[1], models, data);
}
