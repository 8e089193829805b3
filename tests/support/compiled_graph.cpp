#include "tests/support/compiled_graph.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace davit::testing {
namespace {

namespace fs = std::filesystem;

Status failed(std::string message) {
  return {DVT_IO_ERROR, DVT_STAGE_LOAD, std::move(message)};
}

// `int32_t call_graph(void** ports)`, because the number of parameters is the graph's.
std::string caller_of(const std::string& name, size_t ports) {
  std::string arguments;
  for (size_t i = 0; i < ports; ++i) arguments += fmt::format("{}ports[{}]", i == 0 ? "" : ", ", i);
  return fmt::format(
      "#include \"{0}.h\"\nint32_t call_graph(void* const* ports) {{ (void)ports; return "
      "{0}_run({1}); }}\n",
      name, arguments);
}

bool write(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), std::streamsize(text.size()));
  return bool(file.flush());
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

CompiledGraph::CompiledGraph(CompiledGraph&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      library_(std::exchange(other.library_, nullptr)),
      run_(other.run_),
      failed_node_(other.failed_node_) {}

CompiledGraph::~CompiledGraph() {
  if (library_ != nullptr) dlclose(library_);
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Result<CompiledGraph> CompiledGraph::build(const codegen::StraightLine& graph,
                                           const std::string& name, size_t ports,
                                           const std::string& flags, const std::string& functions) {
  std::string pattern = (fs::temp_directory_path() / "straight_line_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return failed("no temporary folder");
  CompiledGraph result;
  result.folder_ = pattern;
  const fs::path& folder = result.folder_;
  const std::string_view weights(reinterpret_cast<const char*>(graph.weights.data()),
                                 graph.weights.size());
  if (!write(folder / (name + ".c"), graph.source) ||
      !write(folder / (name + ".h"), graph.header) ||
      !write(folder / "call.c", caller_of(name, ports) + functions) ||
      !write(folder / (name + "_weights.S"), graph.assembler) ||
      !write(folder / (name + "_weights.bin"), weights)) {
    return failed("cannot write to " + folder.string());
  }
  std::string sources = graph.weights.empty() ? "" : name + "_weights.S";
  for (size_t i = 0; i < graph.plugin_sources.size(); ++i) {
    const std::string file = codegen::plugin_source_name(name, i);
    if (!write(folder / file, graph.plugin_sources[i])) return failed("cannot write " + file);
    sources += " " + file;
  }
  const char* cc = std::getenv("CC");
  const std::string command = fmt::format(
      "cd '{0}' && {1} -std=gnu11 -O3 -ffp-contract=off -fno-trapping-math -fno-math-errno -Wall "
      "-Wextra "
      "-Werror -fPIC -shared {2} {3}.c call.c {4} -o graph.so -lm >log 2>&1",
      folder.string(), cc == nullptr || *cc == '\0' ? "cc" : cc, flags, name, sources);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): tests of one thread; the names in it are our own.
  if (std::system(command.c_str()) != 0) return failed(command + "\n" + text_of(folder / "log"));
  result.library_ = dlopen((folder / "graph.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (result.library_ == nullptr) return failed(dlerror());
  result.run_ = reinterpret_cast<decltype(result.run_)>(result.symbol("call_graph"));
  result.failed_node_ = reinterpret_cast<decltype(result.failed_node_)>(
      result.symbol((name + "_failed_node").c_str()));
  return result;
}

std::string CompiledGraph::failed_node() const {
  const char* node = failed_node_();
  return node == nullptr ? "" : node;
}

void* CompiledGraph::symbol(const char* name) const {
  return dlsym(library_, name);
}

}  // namespace davit::testing
