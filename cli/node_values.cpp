#include "cli/node_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/dtype.hpp"
#include "base/files.hpp"
#include "base/npy.hpp"

namespace davit::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "values.json";
constexpr const char* kSchema = "davit.values";

const image::Graph* main_graph(const image::ImageModel& model) {
  for (const image::Graph& graph : model.graphs) {
    if (graph.role == image::GraphRole::kMain) return &graph;
  }
  return nullptr;
}

// Nodes that give a value its shape or its room, before another node computes it.
bool prepares(const image::ImageModel& model, const image::Node& node) {
  constexpr std::array<std::string_view, 4> kKernels = {"InferShape", "AllocHost", "FreeHost",
                                                        "BindOutput"};
  const std::string& kernel = model.kernels[node.kernel].name;
  return std::find(kKernels.begin(), kKernels.end(), kernel) != kKernels.end();
}

struct Visit {
  const std::vector<std::vector<std::string>>* names;
  const NodeValues::Visitor* visitor;
};

void visit_outputs(void* user, const DvtNodeEvent* event) {
  const auto* visit = static_cast<const Visit*>(user);
  if (event->body != DVT_NO_INDEX || event->code != DVT_OK) return;
  const std::vector<std::string>& names = (*visit->names)[event->node];
  for (uint32_t i = 0; i < names.size(); ++i) {
    const DvtCell* cell = dvt_output(event->context, i);
    if (names[i].empty() || cell == nullptr || cell->tensor == nullptr) continue;
    if (cell->data == nullptr && cell->tensor->bytes > 0) continue;
    (*visit->visitor)({.name = names[i],
                       .origin = event->origin,
                       .op = event->op,
                       .node = event->node,
                       .tensor = cell->tensor,
                       .data = cell->data});
  }
}

Status folder_error(const std::string& folder, std::string_view what) {
  return Status(DVT_IO_ERROR, DVT_STAGE_LOAD, fmt::format("{}: {}", folder, what));
}

std::optional<std::string> text_of(const Json& entry, const char* key) {
  const auto at = entry.find(key);
  if (at == entry.end() || !at->is_string()) return std::nullopt;
  return at->get<std::string>();
}

}  // namespace

NodeValues::NodeValues(const image::ImageModel& model) {
  const image::Graph* graph = main_graph(model);
  if (graph == nullptr) return;
  for (const image::Node& node : graph->nodes) {
    std::vector<std::string>& names = names_.emplace_back(node.outputs.size());
    if (prepares(model, node)) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == image::kNone) continue;
      const image::Value& value = model.values[node.outputs[i]];
      if (value.has_tensor && value.tensor.dtype != DVT_STRING) names[i] = value.name;
    }
  }
}

Result<double> NodeValues::run(Runner& runner, const Visitor& visit) const {
  Visit user{.names = &names_, .visitor = &visit};
  return runner.run_observed(&visit_outputs, &user);
}

HostTensor host_tensor(const NodeValue& value) {
  const DvtTensor& from = *value.tensor;
  HostTensor tensor{.name = std::string(value.name),
                    .dtype = from.dtype,
                    .dims = {from.dims, from.dims + from.rank},
                    .bytes = AlignedBytes(from.bytes)};
  if (from.bytes > 0) std::memcpy(tensor.bytes.data(), value.data, from.bytes);
  return tensor;
}

Status ValueFolderWriter::check_new(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return {};
  if (fs::is_directory(folder, error) && fs::is_empty(folder, error)) return {};
  return usage_error(fmt::format("{} is there, and not an empty folder", folder),
                     "values go to a folder of their own");
}

Result<ValueFolderWriter> ValueFolderWriter::create(std::string folder) {
  if (Status status = check_new(folder); !status.ok()) return status;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return Status(DVT_IO_ERROR, DVT_STAGE_WRITE,
                  fmt::format("cannot create the folder {}: {}", folder, error.message()));
  }
  return ValueFolderWriter(std::move(folder));
}

Result<Json> ValueFolderWriter::add(const HostTensor& tensor) {
  const std::string file = fmt::format("{:05}.npy", files_++);
  DvtDType stored = tensor.dtype;
  if (stored == DVT_BF16) stored = DVT_U16;
  auto content = format_npy(stored, tensor.dims, tensor.bytes.span());
  if (!content.ok()) return std::move(content.status());
  Status status = write_bytes((fs::path(folder_) / file).string(), *content);
  if (!status.ok()) return status;
  return Json{{"name", tensor.name}, {"file", file}, {"dtype", dtype_name(tensor.dtype)}};
}

Status ValueFolderWriter::add_input(const HostTensor& tensor) {
  auto entry = add(tensor);
  if (!entry.ok()) return std::move(entry.status());
  inputs_.push_back(std::move(*entry));
  return {};
}

Status ValueFolderWriter::add_value(const NodeValue& value) {
  auto entry = add(host_tensor(value));
  if (!entry.ok()) return std::move(entry.status());
  (*entry)["node"] = value.origin;
  (*entry)["op"] = value.op;
  values_.push_back(std::move(*entry));
  return {};
}

Status ValueFolderWriter::finish() {
  const Json index = {
      {"schema", kSchema}, {"schema_version", 1}, {"inputs", inputs_}, {"values", values_}};
  return write_text((fs::path(folder_) / kIndexName).string(),
                    index.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<ValueFolder> ValueFolder::open(std::string folder) {
  auto text = read_regular_file((fs::path(folder) / kIndexName).string(), DVT_STAGE_LOAD);
  if (!text.ok()) return std::move(text.status());
  const auto* begin = reinterpret_cast<const char*>(text->data());
  const Json index = Json::parse(begin, begin + text->size(), nullptr, /*allow_exceptions=*/false);
  ValueFolder result(std::move(folder));
  Status status = result.read_index(index);
  if (!status.ok()) return status;
  return result;
}

Status ValueFolder::read_index(const Json& index) {
  if (!index.is_object() || text_of(index, "schema") != kSchema ||
      !index.contains("schema_version") || index["schema_version"] != 1) {
    return folder_error(folder_, "values.json is no index of values, version 1");
  }
  for (const char* side : {"inputs", "values"}) {
    const auto entries = index.find(side);
    if (entries == index.end() || !entries->is_array()) {
      return folder_error(folder_, fmt::format("values.json has no list '{}'", side));
    }
    const bool is_input = side == std::string_view("inputs");
    for (const Json& entry : *entries) {
      const auto name = text_of(entry, "name");
      const auto file = text_of(entry, "file");
      const auto dtype = dtype_from_name(text_of(entry, "dtype").value_or(""));
      if (!name || !file || !dtype || file->find('/') != std::string::npos || *file == "..") {
        return folder_error(folder_,
                            "an entry of values.json lacks a name, a file of the folder "
                            "or a dtype: " +
                                entry.dump(-1, ' ', true, Json::error_handler_t::replace));
      }
      auto& known = is_input ? inputs_ : values_;
      if (!known.try_emplace(*name, Entry{*file, *dtype}).second) {
        return folder_error(folder_, fmt::format("values.json has two {} '{}'", side, *name));
      }
      if (!is_input) names_.push_back(*name);
    }
  }
  return {};
}

Result<HostTensor> ValueFolder::read_entry(const std::string& name, const Entry& entry) const {
  auto tensor = read_tensor_file((fs::path(folder_) / entry.file).string());
  if (!tensor.ok()) return tensor;
  const bool is_bf16 = entry.dtype == DVT_BF16 && tensor->dtype == DVT_U16;
  if (!is_bf16 && tensor->dtype != entry.dtype) {
    return folder_error(folder_, fmt::format("{} is of {}, values.json says {}", entry.file,
                                             dtype_name(tensor->dtype), dtype_name(entry.dtype)));
  }
  tensor->dtype = entry.dtype;
  tensor->name = name;
  return tensor;
}

Result<HostTensor> ValueFolder::read(const std::string& name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return folder_error(folder_, "there is no value '" + name + "'");
  return read_entry(name, at->second);
}

Result<std::vector<HostTensor>> ValueFolder::read_inputs(std::span<const PortType> ports) const {
  std::vector<HostTensor> tensors;
  for (const PortType& port : ports) {
    const auto at = inputs_.find(port.name);
    if (at == inputs_.end()) return folder_error(folder_, "there is no input '" + port.name + "'");
    auto tensor = read_entry(port.name, at->second);
    if (!tensor.ok()) return std::move(tensor.status());
    Status status = check_type(*tensor, port);
    if (!status.ok()) return status;
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

Result<NodeRegex> NodeRegex::parse(const std::string& text) {
  constexpr size_t kLengthMax = 256;
  const char* example = "--dump-nodes 'layer1/.*Conv'";
  if (text.size() > kLengthMax) {
    return usage_error(
        fmt::format("--dump-nodes: the expression has more than {} characters", kLengthMax),
        example);
  }
  auto compiled = std::make_unique<regex_t>();
  const int code = ::regcomp(compiled.get(), text.c_str(), REG_EXTENDED | REG_NOSUB);
  if (code != 0) {
    std::array<char, 128> reason{};
    ::regerror(code, compiled.get(), reason.data(), reason.size());
    return usage_error(
        fmt::format("--dump-nodes: '{}' is no regular expression: {}", text, reason.data()),
        example);
  }
  NodeRegex result;
  result.regex_.reset(compiled.release());
  return result;
}

void NodeRegex::Free::operator()(regex_t* regex) const {
  ::regfree(regex);
  delete regex;
}

bool NodeRegex::matches(std::string_view path) const {
  constexpr size_t kSearchedMax = 1024;
  const std::string searched(path.substr(0, kSearchedMax));
  return ::regexec(regex_.get(), searched.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace davit::cli
