// plugin.cpp: loads plug-ins and checks their records.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "davit/plugin.h"
#include "exec/api_error.hpp"
#include "exec/code_segment.hpp"
#include "exec/image.hpp"

using davit::Status;

namespace {

Status invalid(const DvtPlugin& plugin, const std::string& message) {
  const char* name = plugin.name == nullptr ? "?" : plugin.name;
  return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD,
                "plug-in '" + std::string(name) + "': " + message);
}

bool empty(const char* text) {
  return text == nullptr || *text == '\0';
}

bool is_davits(std::string_view kernel) {
  const DvtKernelTable table = dvt_cpu_kernels();
  for (size_t i = 0; i < table.count; ++i) {
    if (kernel == table.kernels[i].name) return true;
  }
  return false;
}

Status check_attributes(const DvtPlugin& plugin, const DvtKernel& kernel) {
  uint32_t end = 0;
  for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
    const DvtAttribute& attribute = kernel.attributes[i];
    if (empty(attribute.name) || attribute.offset != end || attribute.count == 0 ||
        (attribute.kind != 'i' && attribute.kind != 'f')) {
      return invalid(plugin, "kernel " + std::string(kernel.name) + ": attribute " +
                                 std::to_string(i) +
                                 " needs a name, the offset where the last one ends, a count and "
                                 "the kind 'i' or 'f'");
    }
    end += 8U * attribute.count;
  }
  if (end == kernel.attribute_bytes) return {};
  return invalid(plugin, "kernel " + std::string(kernel.name) + ": attribute_bytes is " +
                             std::to_string(kernel.attribute_bytes) + ", its attributes have " +
                             std::to_string(end));
}

Status check_kernels(const DvtPlugin& plugin, std::set<std::string_view>& names) {
  if (plugin.kernels.count > 0 && plugin.kernels.kernels == nullptr) {
    return invalid(plugin, "kernels is NULL");
  }
  for (size_t i = 0; i < plugin.kernels.count; ++i) {
    const DvtKernel& kernel = plugin.kernels.kernels[i];
    if (empty(kernel.name)) {
      return invalid(plugin, "kernel " + std::to_string(i) + " has no name");
    }
    const std::string name = kernel.name;
    if (is_davits(name)) return invalid(plugin, "kernel " + name + " is one of Davit's own");
    if (!names.insert(kernel.name).second) {
      return invalid(plugin, "kernel " + name + " is there twice");
    }
    if (kernel.abi_version != DVT_KERNEL_ABI_VERSION) {
      return Status(DVT_VERSION_MISMATCH, DVT_STAGE_LOAD,
                    "plug-in '" + std::string(plugin.name) + "': kernel " + name +
                        " was built for kernel ABI " + std::to_string(kernel.abi_version) +
                        ", this is " + std::to_string(DVT_KERNEL_ABI_VERSION));
    }
    if (kernel.run == nullptr || kernel.check == nullptr || kernel.infer == nullptr) {
      return invalid(plugin, "kernel " + name + " needs run, check and infer");
    }
    if (Status status = check_attributes(plugin, kernel); !status.ok()) return status;
  }
  return {};
}

bool has_kernel(const std::set<std::string_view>& names, const std::string& base) {
  if (names.contains(base)) return true;
  const auto at = names.lower_bound(base + ".");
  return at != names.end() && at->starts_with(base + ".");
}

Status check_operators(const DvtPlugin& plugin, const std::set<std::string_view>& kernels) {
  if (plugin.operator_count > 0 && plugin.operators == nullptr) {
    return invalid(plugin, "operators is NULL");
  }
  for (size_t i = 0; i < plugin.operator_count; ++i) {
    const DvtPluginOperator& op = plugin.operators[i];
    if (empty(op.domain) || empty(op.name) || empty(op.kernel)) {
      return invalid(plugin,
                     "operator " + std::to_string(i) + " needs a domain, a name and a kernel");
    }
    const std::string name = std::string(op.domain) + "::" + op.name;
    const std::string_view domain = op.domain;
    if (domain == "ai.onnx" || domain == "ai.onnx.ml" || domain == "davit") {
      return invalid(plugin, "operator " + name + ": the domain is not the plug-in's");
    }
    if (op.since_version < 1 || op.until_version < op.since_version ||
        op.input_min > op.input_max || op.output_min > op.output_max || op.output_max == 0) {
      return invalid(plugin, "operator " + name + ": a minimum is above its maximum");
    }
    if (!has_kernel(kernels, op.kernel)) {
      return invalid(plugin, "operator " + name + ": there is no kernel " + op.kernel + " or " +
                                 op.kernel + ".DTYPE");
    }
  }
  return {};
}

Status check_times(const DvtPlugin& plugin) {
  if (plugin.time_count > 0 && plugin.times == nullptr) return invalid(plugin, "times is NULL");
  for (size_t i = 0; i < plugin.time_count; ++i) {
    const DvtKernelTime& time = plugin.times[i];
    if (empty(time.op)) return invalid(plugin, "times " + std::to_string(i) + " has no operator");
    const std::span operators(plugin.operators, plugin.operator_count);
    const bool known = std::any_of(
        operators.begin(), operators.end(),
        [&](const DvtPluginOperator& op) { return std::string_view(op.name) == time.op; });
    if (!known) {
      return invalid(plugin, "times: there is no operator " + std::string(time.op));
    }
    if ((time.nest == nullptr) == (time.pipes == nullptr)) {
      return invalid(plugin,
                     "times of " + std::string(time.op) + ": one of nest and pipes expected");
    }
  }
  return {};
}

Status check_passes(const DvtPlugin& plugin) {
  if (plugin.pass_count > 0 && plugin.passes == nullptr) return invalid(plugin, "passes is NULL");
  for (size_t i = 0; i < plugin.pass_count; ++i) {
    const DvtPluginPass& pass = plugin.passes[i];
    const bool rewrites = !empty(pass.pattern) && !empty(pass.replacement);
    const bool either =
        pass.run != nullptr ? empty(pass.pattern) && empty(pass.replacement) : rewrites;
    if (empty(pass.name) || !either) {
      return invalid(plugin, "pass " + std::to_string(i) +
                                 " needs a name, and a pattern and a replacement, or run alone");
    }
    if (pass.stage > DVT_PLUGIN_AFTER) {
      return invalid(plugin, "pass " + std::string(pass.name) + ": there is no stage " +
                                 std::to_string(pass.stage));
    }
  }
  return {};
}

// The text becomes part of generated files: the function is named by a word.
Status check_sources(const DvtPlugin& plugin, const std::set<std::string_view>& kernels) {
  if (plugin.source_count > 0 && plugin.sources == nullptr) {
    return invalid(plugin, "sources is NULL");
  }
  for (size_t i = 0; i < plugin.source_count; ++i) {
    const DvtPluginSource& source = plugin.sources[i];
    if (empty(source.kernel) || empty(source.function) || empty(source.text)) {
      return invalid(plugin,
                     "source " + std::to_string(i) + " needs a kernel, a function and a text");
    }
    if (!kernels.contains(source.kernel)) {
      return invalid(plugin, "source " + std::to_string(i) + ": there is no kernel " +
                                 std::string(source.kernel));
    }
    const std::string_view function = source.function;
    constexpr std::string_view kWord =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    if (function.find_first_not_of(kWord) != std::string_view::npos || function[0] < 'A') {
      return invalid(plugin, "source " + std::to_string(i) + ": '" + std::string(function) +
                                 "' is no name of a function");
    }
  }
  return {};
}

Status check(const DvtPlugin* plugin) {
  if (plugin == nullptr) {
    return Status(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, "dvt_plugin() returned NULL");
  }
  if (plugin->abi_version != DVT_PLUGIN_ABI_VERSION || plugin->struct_size != sizeof(DvtPlugin)) {
    Status status(DVT_VERSION_MISMATCH, DVT_STAGE_LOAD,
                  "the plug-in was built for another version of davit/plugin.h");
    status.detail().expected = "ABI " + std::to_string(DVT_PLUGIN_ABI_VERSION) + ", " +
                               std::to_string(sizeof(DvtPlugin)) + " bytes";
    status.detail().got = "ABI " + std::to_string(plugin->abi_version) + ", " +
                          std::to_string(plugin->struct_size) + " bytes";
    return status;
  }
  if (empty(plugin->name)) return invalid(*plugin, "it has no name");
  std::set<std::string_view> kernels;
  Status status = check_kernels(*plugin, kernels);
  if (status.ok()) status = check_operators(*plugin, kernels);
  if (status.ok()) status = check_passes(*plugin);
  if (status.ok()) status = check_times(*plugin);
  if (status.ok()) status = check_sources(*plugin, kernels);
  return status;
}

// Records as they were in ABI 1, without passes over the whole graph, times and sources.
struct PassOfAbi1 {
  const char* name;
  uint32_t stage;
  uint32_t reserved;
  const char* pattern;
  const char* replacement;
  const char* domain;
  int64_t version;
};
struct PluginOfAbi1 {
  uint32_t struct_size;
  uint32_t abi_version;
  const char* name;
  const char* version;
  DvtKernelTable kernels;
  const DvtPluginOperator* operators;
  size_t operator_count;
  const PassOfAbi1* passes;
  size_t pass_count;
};
static_assert(sizeof(PassOfAbi1) == offsetof(DvtPluginPass, run));
static_assert(sizeof(PluginOfAbi1) == offsetof(DvtPlugin, times));

struct Converted {
  std::vector<DvtPluginPass> passes;
  DvtPlugin plugin{};
};

// What the plug-in would return today. Plug-ins are never unloaded, and neither is this.
const DvtPlugin* converted(const PluginOfAbi1& old) {
  static std::mutex mutex;
  static auto& known = *new std::map<const PluginOfAbi1*, std::unique_ptr<Converted>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Converted>& made = known[&old];
  if (made != nullptr) return &made->plugin;
  auto fresh = std::make_unique<Converted>();
  for (size_t i = 0; old.passes != nullptr && i < old.pass_count; ++i) {
    const PassOfAbi1& pass = old.passes[i];
    fresh->passes.push_back({.name = pass.name,
                             .stage = pass.stage,
                             .reserved = pass.reserved,
                             .pattern = pass.pattern,
                             .replacement = pass.replacement,
                             .domain = pass.domain,
                             .version = pass.version,
                             .run = nullptr});
  }
  std::memcpy(&fresh->plugin, &old, sizeof old);
  fresh->plugin.struct_size = sizeof(DvtPlugin);
  fresh->plugin.abi_version = DVT_PLUGIN_ABI_VERSION;
  fresh->plugin.passes = old.passes == nullptr ? nullptr : fresh->passes.data();
  made = std::move(fresh);
  return &made->plugin;
}

Status load(const char* path, const DvtPlugin** plugin) {
  // dlopen() looks for names without a slash along the library path: a file is what is meant.
  std::string file = path;
  if (file.find('/') == std::string::npos) file.insert(0, "./");
  // Opening a pipe would wait for a writer.
  auto content = davit::exec::map_file(file, /*prefault=*/false);
  if (!content.ok()) return std::move(content.status());
  if (Status status = davit::exec::check_complete(content->bytes()); !status.ok()) {
    return Status(DVT_IO_ERROR, DVT_STAGE_LOAD,
                  "cannot load plug-in " + file + ": " + std::string(status.detail().message));
  }
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return Status(DVT_IO_ERROR, DVT_STAGE_LOAD,
                  "cannot load plug-in " + file + ": " + (reason == nullptr ? "?" : reason));
  }
  using Entry = const DvtPlugin* (*)();
  void* symbol = ::dlsym(library, "dvt_plugin");
  if (symbol == nullptr) {
    ::dlclose(library);
    return Status(DVT_IO_ERROR, DVT_STAGE_LOAD, file + " is no plug-in: it exports no dvt_plugin");
  }
  Entry entry = nullptr;
  static_assert(sizeof entry == sizeof symbol, "POSIX: a function fits an object pointer");
  std::memcpy(&entry, &symbol, sizeof entry);
  *plugin = entry();
  if (*plugin != nullptr && (*plugin)->abi_version == 1 &&
      (*plugin)->struct_size == sizeof(PluginOfAbi1)) {
    // The two records begin alike.
    *plugin = converted(*reinterpret_cast<const PluginOfAbi1*>(*plugin));
  }
  return check(*plugin);
}

template <class Function>
DvtCode guarded(DvtError* error, const Function& function) {
  try {
    const Status status = function();
    status.to_c(error);
    return status.code();
  } catch (const std::bad_alloc&) {
    return davit::exec::out_of_memory(error, DVT_STAGE_LOAD, "not enough memory for a plug-in");
  }
}

}  // namespace

extern "C" DvtCode dvt_plugin_load(const char* path, const DvtPlugin** plugin, DvtError* error) {
  *plugin = nullptr;
  const DvtCode code = guarded(error, [&] { return load(path, plugin); });
  if (code != DVT_OK) *plugin = nullptr;
  return code;
}

extern "C" DvtCode dvt_plugin_check(const DvtPlugin* plugin, DvtError* error) {
  return guarded(error, [&] { return check(plugin); });
}
