// plugins.hpp: --plugin: shared objects with operators, kernels and passes of their own.
//
// Threads  One thread.
// Trust    Plug-ins are code of the process.
// Memory   Plug-ins stay loaded until the process ends.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/options.hpp"
#include "davit/plugin.h"

namespace davit::cli {

class PluginArguments {
 public:
  // Adds --plugin to the group that is current.
  void add_options(OptionSet& options);
  // Loads what was named; once.
  Status load();

  [[nodiscard]] const std::vector<const DvtPlugin*>& plugins() const { return plugins_; }
  [[nodiscard]] const std::vector<DvtKernelTable>& kernel_tables() const { return tables_; }

 private:
  std::vector<std::string> paths_;
  std::vector<const DvtPlugin*> plugins_;
  std::vector<DvtKernelTable> tables_;
};

}  // namespace davit::cli
