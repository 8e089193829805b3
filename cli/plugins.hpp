// plugins.hpp: --plugin: shared objects with operators, kernels and passes of their own.
//
// Threads  One thread.
// Trust    Plug-ins are code of the process.
// Memory   Plug-ins stay loaded until the process ends.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "cli/options.hpp"
#include "davit/npu.h"
#include "davit/plugin.h"

namespace davit::cli {

class Session;

class PluginArguments {
 public:
  // Adds --plugin to the group that is current.
  void add_options(OptionSet& options);
  // Loads what was named; once.
  Status load();
  // Warns of plug-ins that do nothing here: none of `kernels` is theirs, nor one of `passes`, those
  // that changed something. `where`: "model" or "image".
  void report_unused(Session& session, std::string_view where, std::span<const std::string> kernels,
                     std::span<const std::string> passes) const;

  // Tells the model how long their kernels take.
  [[nodiscard]] Status describe_kernels(DvtNpu* npu) const;

  [[nodiscard]] const std::vector<const DvtPlugin*>& plugins() const { return plugins_; }
  [[nodiscard]] const std::vector<DvtKernelTable>& kernel_tables() const { return tables_; }

 private:
  std::vector<std::string> paths_;
  std::vector<const DvtPlugin*> plugins_;
  std::vector<DvtKernelTable> tables_;
};

}  // namespace davit::cli
