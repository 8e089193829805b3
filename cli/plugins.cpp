#include "cli/plugins.hpp"

#include "cli/session.hpp"
#include "cli/stage.hpp"

namespace davit::cli {

void PluginArguments::add_options(OptionSet& options) {
  options.add("--plugin", paths_,
              "Shared object with operators, kernels and passes (davit/plugin.h); repeatable",
              "none", FileUse::kReadPaths);
}

Status PluginArguments::load() {
  if (paths_.size() == plugins_.size()) return {};
  set_stage("plugin");
  for (const std::string& path : paths_) {
    const DvtPlugin* plugin = nullptr;
    DvtError error{};
    if (dvt_plugin_load(path.c_str(), &plugin, &error) != DVT_OK) return status_of(error);
    plugins_.push_back(plugin);
    tables_.push_back(plugin->kernels);
  }
  return {};
}

}  // namespace davit::cli
