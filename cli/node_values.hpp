// node_values.hpp: the values that nodes of Main write, by name, as a run produces them; and
// folders that hold such values as files.
//
// A folder of values has an index, values.json, and one .npy file for each value:
//
//   {"schema": "davit.values", "schema_version": 1,
//    "inputs": [ENTRY, ...], "values": [ENTRY, ...]}
//   ENTRY: {"name": "conv1_output", "file": "00001.npy", "dtype": "f32", "node": "conv1",
//           "op": "ai.onnx::Conv(11)"}
//
// bf16, which .npy lacks, is kept as u16; "dtype" says what it is. node and op may be absent.
//
// Threads  One thread.
// Trust    Folders are untrusted: an entry names a file of the folder itself.
// Memory   What visitors get is valid during the call only.
#pragma once

#include <regex.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "cli/runner.hpp"
#include "cli/tensors.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::cli {

struct NodeValue {
  std::string_view name;        // As in the source model.
  std::string_view origin, op;  // Of the node that wrote it.
  uint32_t node = 0;            // Its index in Main.
  const DvtTensor* tensor = nullptr;
  const void* data = nullptr;
};

// Which named tensors the nodes of an image's Main compute. Strings, which .npy lacks, are left
// out.
class NodeValues {
 public:
  using Visitor = std::function<void(const NodeValue&)>;

  explicit NodeValues(const image::ImageModel& model);

  // Runs once; `visit` sees every value as soon as it is written, in the order of execution.
  Result<double> run(Runner& runner, const Visitor& visit) const;
  // Names, by the index of the node that writes them.
  [[nodiscard]] const std::vector<std::vector<std::string>>& names() const { return names_; }

 private:
  // By node of Main, by output; empty where there is nothing to see.
  std::vector<std::vector<std::string>> names_;
};

// A copy.
HostTensor host_tensor(const NodeValue& value);

// Writes values to a folder of their own.
class ValueFolderWriter {
 public:
  // A usage error when there is something at that path other than an empty folder.
  static Status check_new(const std::string& folder);
  // check_new(), then creates the folder.
  static Result<ValueFolderWriter> create(std::string folder);
  Status add_input(const HostTensor& tensor);
  Status add_value(const NodeValue& value);
  // Writes the index, last.
  Status finish();
  [[nodiscard]] size_t value_count() const { return values_.size(); }

 private:
  explicit ValueFolderWriter(std::string folder) : folder_(std::move(folder)) {}
  Result<Json> add(const HostTensor& tensor);

  std::string folder_;
  Json inputs_ = Json::array(), values_ = Json::array();
  uint32_t files_ = 0;
};

class ValueFolder {
 public:
  static Result<ValueFolder> open(std::string folder);
  // Names in the order of the index.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] bool has_inputs() const { return !inputs_.empty(); }
  Result<HostTensor> read(const std::string& name) const;
  // One for each port; an absent one, or one of another type, is an error.
  Result<std::vector<HostTensor>> read_inputs(std::span<const PortType> ports) const;

 private:
  struct Entry {
    std::string file;
    DvtDType dtype;
  };
  explicit ValueFolder(std::string folder) : folder_(std::move(folder)) {}
  Status read_index(const Json& index);
  Result<HostTensor> read_entry(const std::string& name, const Entry& entry) const;

  std::string folder_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, Entry> values_, inputs_;
};

// --dump-nodes: an extended regular expression (POSIX) that is searched in the paths of nodes.
class NodeRegex {
 public:
  // A usage error when `text` is none, or longer than 256 characters.
  static Result<NodeRegex> parse(const std::string& text);
  // Paths are searched up to 1024 characters.
  [[nodiscard]] bool matches(std::string_view path) const;

 private:
  struct Free {
    void operator()(regex_t* regex) const;
  };
  std::unique_ptr<regex_t, Free> regex_;
};

}  // namespace davit::cli
