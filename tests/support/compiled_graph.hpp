// compiled_graph.hpp: straight-line C, built by the system's compiler and loaded, for tests and
// benchmarks.
//
// Threads  As the graph's: one call at a time.
// Memory   Files live in a temporary folder that goes with the object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.hpp"
#include "codegen/straight_line.hpp"

namespace davit::testing {

class CompiledGraph {
 public:
  // Builds with $CC, else cc, as NAME.c says, and `flags`, which come last, together with
  // `functions`, another C file. The errors have the compiler's words.
  static Result<CompiledGraph> build(const codegen::StraightLine& graph, const std::string& name,
                                     size_t ports, const std::string& flags = "",
                                     const std::string& functions = "");
  CompiledGraph(CompiledGraph&& other) noexcept;
  CompiledGraph& operator=(CompiledGraph&&) = delete;
  ~CompiledGraph();

  // Runs it: inputs, then outputs.
  int32_t run(std::span<void* const> ports) { return run_(ports.data()); }
  // "" when the last run went well.
  [[nodiscard]] std::string failed_node() const;
  // A symbol of the shared object, or null.
  [[nodiscard]] void* symbol(const char* name) const;

 private:
  CompiledGraph() = default;

  std::filesystem::path folder_;
  void* library_ = nullptr;
  int32_t (*run_)(void* const* ports) = nullptr;
  const char* (*failed_node_)() = nullptr;
};

}  // namespace davit::testing
