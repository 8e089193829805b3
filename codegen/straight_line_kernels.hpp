// straight_line_kernels.hpp: the part of straight-line C that is kernels.
//
// Threads  Objects that one thread owns.
// Trust    As straight_line.hpp.
// Memory   A KernelText refers to the image.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "codegen/code_source.hpp"
#include "codegen/straight_line.hpp"

namespace davit::codegen {

class KernelText {
 public:
  // Finds the C of every kernel that `graphs` call. Errors as emit_straight_line().
  static Result<KernelText> find(const exec::ImageView& image,
                                 const std::vector<const exec::GraphView*>& graphs,
                                 const StraightLineOptions& options);

  // The function that runs kernel `index` of the image.
  [[nodiscard]] const std::string& function(uint32_t index) const { return functions_.at(index); }
  [[nodiscard]] const std::string& isa() const { return isa_; }
  // Headers, pieces, generated kernels, and the functions above.
  [[nodiscard]] std::string text() const;
  // Kernels whose C a plug-in has written, each as a file: its names are its own, and it may be
  // there for several shapes.
  [[nodiscard]] std::vector<std::string> files() const;

 private:
  Status choose_isa(const exec::ImageView& image, const std::set<std::string_view>& names,
                    const std::string& wanted);
  [[nodiscard]] std::string head(const std::set<size_t>& pieces) const;
  [[nodiscard]] std::string begin_generated() const;
  bool add(uint32_t index, std::string_view name, const StraightLineOptions& options);
  void use_piece(size_t piece);

  std::map<uint32_t, std::string> functions_;
  std::set<size_t> pieces_;
  std::string wrappers_;
  CodeSource source_;
  std::vector<const KernelSource*> generated_;  // Those of the chosen set, written by Davit.
  std::vector<const KernelSource*> foreign_;    // The same, written by plug-ins.
  std::string prefix_;                          // Of names that a linker sees.
  std::string isa_;
};

}  // namespace davit::codegen
