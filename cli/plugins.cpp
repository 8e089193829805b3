#include "cli/plugins.hpp"

#include <algorithm>

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

Status PluginArguments::describe_kernels(DvtNpu* npu) const {
  for (const DvtPlugin* plugin : plugins_) {
    for (size_t i = 0; i < plugin->time_count; ++i) {
      if (dvt_npu_describe_kernel(npu, &plugin->times[i]) != DVT_OK) {
        return status_of(*dvt_npu_last_error());
      }
    }
  }
  return {};
}

void PluginArguments::report_unused(Session& session, std::string_view where,
                                    std::span<const std::string> kernels,
                                    std::span<const std::string> passes) const {
  const auto lists = [](std::span<const std::string> names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const DvtPlugin* plugin : plugins_) {
    const std::span theirs(plugin->kernels.kernels, plugin->kernels.count);
    const std::span rewrites(plugin->passes, plugin->pass_count);
    const bool used =
        std::any_of(theirs.begin(), theirs.end(),
                    [&](const DvtKernel& kernel) { return lists(kernels, kernel.name); }) ||
        std::any_of(rewrites.begin(), rewrites.end(),
                    [&](const DvtPluginPass& pass) { return lists(passes, pass.name); });
    if (used) continue;
    Json& unused = session.result()["unused_plugins"];
    // `tune` compiles twice.
    if (std::find(unused.begin(), unused.end(), Json(plugin->name)) != unused.end()) continue;
    session.warn("plug-in {} does nothing here: the {} needs none of its kernels{}", plugin->name,
                 where,
                 rewrites.empty() || where == "image" ? "" : ", and its rewrites found no match");
    unused.push_back(plugin->name);
  }
}

}  // namespace davit::cli
