#include "cli/test_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/numbers.hpp"
#include "cli/session.hpp"

namespace davit::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSetPrefix = "test_data_set_";

Status load_error(std::string message) {
  return Status(DVT_IO_ERROR, DVT_STAGE_LOAD, std::move(message));
}

// The tensors "<kind>_0.pb", "<kind>_1.pb", ... of a folder, placed at their ports.
Result<std::vector<HostTensor>> read_side(const std::string& folder, const char* kind,
                                          std::span<const PortType> ports) {
  std::vector<HostTensor> files;
  for (;;) {
    const fs::path path = fs::path(folder) / fmt::format("{}_{}.pb", kind, files.size());
    std::error_code error;
    if (!fs::exists(path, error)) break;
    auto tensor = read_tensor_file(path.string());
    if (!tensor.ok()) return std::move(tensor.status());
    files.push_back(std::move(*tensor));
  }
  const auto port_named = [&](const std::string& name) {
    return std::find_if(ports.begin(), ports.end(),
                        [&](const PortType& port) { return port.name == name; });
  };
  std::vector<std::optional<HostTensor>> placed(ports.size());
  const bool same_count = files.size() == ports.size();
  for (size_t i = 0; i < files.size(); ++i) {
    const auto named = port_named(files[i].name);
    if (named == ports.end() && !same_count) continue;  // Frozen at compilation.
    const size_t port = named == ports.end() ? i : static_cast<size_t>(named - ports.begin());
    Status status = check_type(files[i], ports[port]);
    if (!status.ok()) return status;
    placed[port] = std::move(files[i]);
  }
  std::vector<HostTensor> tensors;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (!placed[i]) {
      return load_error(fmt::format("{} has no {} for '{}'", folder, kind, ports[i].name));
    }
    tensors.push_back(std::move(*placed[i]));
    tensors.back().name = ports[i].name;
  }
  return tensors;
}

}  // namespace

Result<std::vector<std::string>> find_test_sets(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return load_error(fmt::format("--test-data: {} is not a folder", folder));
  }
  const fs::path root(folder);
  if (fs::exists(root / "input_0.pb", error) || fs::exists(root / "output_0.pb", error)) {
    return std::vector<std::string>{folder};
  }
  std::vector<std::pair<int64_t, std::string>> sets;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kSetPrefix)) continue;
    const auto number = parse_integer(std::string_view(name).substr(kSetPrefix.size()));
    if (number) sets.emplace_back(*number, entry.path().string());
  }
  if (sets.empty()) {
    return load_error(fmt::format("--test-data: {} has no test_data_set_* folder", folder));
  }
  std::sort(sets.begin(), sets.end());
  std::vector<std::string> paths;
  for (auto& [number, path] : sets) paths.push_back(std::move(path));
  return paths;
}

Result<TestSet> read_test_set(const std::string& folder, std::span<const PortType> inputs,
                              std::span<const PortType> outputs) {
  TestSet set{.folder = folder, .inputs = {}, .outputs = {}};
  auto in = read_side(folder, "input", inputs);
  if (!in.ok()) return std::move(in.status());
  auto out = read_side(folder, "output", outputs);
  if (!out.ok()) return std::move(out.status());
  set.inputs = std::move(*in);
  set.outputs = std::move(*out);
  return set;
}

}  // namespace davit::cli
