// The header is the build's, the library whatever is there when compare runs: its table of
// functions has the version that it is asked for, or it is refused.
#include <dlfcn.h>
#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/checked.hpp"
#include "base/files.hpp"
#include "cli/onnxruntime_folder.hpp"
#include "cli/reference.hpp"

namespace davit::cli {
namespace {

constexpr size_t kValuesPerRun = 16;  // While sizes are looked at.

Status ort_error(const std::string& what, DvtCode code = DVT_KERNEL_FAILED) {
  return Status(code, DVT_STAGE_RUN, "ONNX Runtime: " + what);
}

Result<const OrtApi*> load_api(const std::string& library) {
  std::vector<std::string> places = {library};
  if (library.empty()) {
    places = {"libonnxruntime.so", std::string(kOnnxruntimeFolder) + "/libonnxruntime.so"};
  }
  std::string reasons;
  for (const std::string& place : places) {
    void* handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(::dlerror());
      continue;
    }
    void* symbol = ::dlsym(handle, "OrtGetApiBase");
    if (symbol == nullptr) return ort_error(place + " has no OrtGetApiBase", DVT_IO_ERROR);
    const OrtApiBase* (*base)() = nullptr;
    static_assert(sizeof base == sizeof symbol, "POSIX: a function fits an object pointer");
    std::memcpy(&base, &symbol, sizeof base);
    const OrtApi* api = base()->GetApi(ORT_API_VERSION);
    if (api != nullptr) return api;
    return ort_error(fmt::format("{} is version {}, older than API {}", place,
                                 base()->GetVersionString(), ORT_API_VERSION),
                     DVT_VERSION_MISMATCH);
  }
  Status status = ort_error("cannot be loaded: " + reasons, DVT_IO_ERROR);
  status.detail().hint = "--onnxruntime /path/to/libonnxruntime.so";
  return status;
}

class OnnxRuntimeReference final : public Reference {
 public:
  OnnxRuntimeReference(const OrtApi& api, std::span<const HostTensor> inputs)
      : api_(api), inputs_(inputs) {}
  OnnxRuntimeReference(const OnnxRuntimeReference&) = delete;
  OnnxRuntimeReference& operator=(const OnnxRuntimeReference&) = delete;
  ~OnnxRuntimeReference() override {
    for (OrtValue* value : input_values_) api_.ReleaseValue(value);
    if (memory_ != nullptr) api_.ReleaseMemoryInfo(memory_);
    if (session_ != nullptr) api_.ReleaseSession(session_);
    if (options_ != nullptr) api_.ReleaseSessionOptions(options_);
    if (environment_ != nullptr) api_.ReleaseEnv(environment_);
  }

  Status open(const std::string& path) {
    auto bytes = read_regular_file(path, DVT_STAGE_LOAD);
    if (!bytes.ok()) return std::move(bytes.status());
    onnx::ModelProto model;
    if (!model.ParseFromArray(bytes->data(), int(bytes->size()))) {
      return ort_error("the model cannot be parsed", DVT_INVALID_ARGUMENT);
    }
    ask_for_all(*model.mutable_graph());
    const std::string all = model.SerializeAsString();
    const std::string folder = std::filesystem::absolute(path).parent_path().string();
    Status status = check(api_.CreateEnv(ORT_LOGGING_LEVEL_ERROR, "davit", &environment_));
    if (status.ok()) status = check(api_.CreateSessionOptions(&options_));
    if (status.ok()) {
      status = check(api_.SetSessionGraphOptimizationLevel(options_, ORT_DISABLE_ALL));
    }
    if (status.ok()) {
      status = check(api_.AddSessionConfigEntry(
          options_, "session.model_external_initializers_file_folder_path", folder.c_str()));
    }
    if (status.ok()) {
      status = check(
          api_.CreateSessionFromArray(environment_, all.data(), all.size(), options_, &session_));
    }
    if (status.ok()) {
      status = check(api_.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory_));
    }
    return status.ok() ? bind_inputs() : std::move(status);
  }

  Result<std::vector<Item>> items() override {
    std::vector<Item> all;
    for (size_t begin = 0; begin < names_.size(); begin += kValuesPerRun) {
      const size_t count = std::min(kValuesPerRun, names_.size() - begin);
      Status status = run(std::span(names_).subspan(begin, count),
                          [&](const std::string& name, OrtValue* value) {
                            auto tensor = tensor_of(name, value, /*with_data=*/false);
                            if (tensor.ok() && tensor->dtype != DVT_DTYPE_NONE) {
                              all.push_back({name, bytes_of(*tensor)});
                            }
                            return tensor.ok() ? Status() : std::move(tensor.status());
                          });
      if (!status.ok()) return status;
    }
    return all;
  }

  Result<Tensors> read(const std::unordered_set<std::string>& names) override {
    const std::vector<std::string> wanted(names.begin(), names.end());
    Tensors tensors;
    Status status = run(wanted, [&](const std::string& name, OrtValue* value) {
      auto tensor = tensor_of(name, value, /*with_data=*/true);
      if (!tensor.ok()) return std::move(tensor.status());
      tensors.insert_or_assign(name, std::move(*tensor));
      return Status();
    });
    if (!status.ok()) return status;
    return tensors;
  }

 private:
  Status check(OrtStatus* status) const {
    if (status == nullptr) return {};
    std::string message = api_.GetErrorMessage(status);
    api_.ReleaseStatus(status);
    return ort_error(message);
  }

  // Results of the main graph's nodes; its outputs are among them.
  void ask_for_all(onnx::GraphProto& graph) {
    std::unordered_set<std::string> outputs;
    for (const auto& output : graph.output()) outputs.insert(output.name());
    for (const auto& node : graph.node()) {
      for (const std::string& name : node.output()) {
        if (name.empty()) continue;
        names_.push_back(name);
        if (!outputs.contains(name)) graph.add_output()->set_name(name);
      }
    }
    std::unordered_set<std::string> constants;
    for (const auto& tensor : graph.initializer()) constants.insert(tensor.name());
    for (const auto& input : graph.input()) {
      if (!constants.contains(input.name())) input_names_.push_back(input.name());
    }
  }

  Status bind_inputs() {
    for (const std::string& name : input_names_) {
      const auto given =
          std::find_if(inputs_.begin(), inputs_.end(),
                       [&](const HostTensor& tensor) { return tensor.name == name; });
      if (given == inputs_.end()) {
        return ort_error("the model has an input '" + name + "' that the image has not",
                         DVT_UNSUPPORTED);
      }
      if (given->dtype == DVT_STRING) {
        return ort_error("input '" + name + "' is of strings", DVT_UNSUPPORTED);
      }
      // Neither side writes inputs.
      auto* data = const_cast<std::byte*>(given->bytes.data());
      OrtValue* value = nullptr;
      Status status = check(api_.CreateTensorWithDataAsOrtValue(
          memory_, data, given->bytes.size(), given->dims.data(), given->dims.size(),
          static_cast<ONNXTensorElementDataType>(given->dtype), &value));
      if (!status.ok()) return status;
      input_values_.push_back(value);
    }
    return {};
  }

  template <class Visit>
  Status run(std::span<const std::string> names, const Visit& visit) {
    std::vector<const char*> inputs, outputs;
    for (const std::string& name : input_names_) inputs.push_back(name.c_str());
    for (const std::string& name : names) outputs.push_back(name.c_str());
    std::vector<OrtValue*> values(names.size(), nullptr);
    Status status = check(api_.Run(session_, nullptr, inputs.data(), input_values_.data(),
                                   inputs.size(), outputs.data(), outputs.size(), values.data()));
    for (size_t i = 0; i < values.size(); ++i) {
      if (status.ok()) status = visit(names[i], values[i]);
      if (values[i] != nullptr) api_.ReleaseValue(values[i]);
    }
    return status;
  }

  // Of no type: a string, a sequence, or nothing.
  Result<HostTensor> tensor_of(const std::string& name, OrtValue* value, bool with_data) const {
    HostTensor tensor{.name = name, .dtype = DVT_DTYPE_NONE, .dims = {}, .bytes = AlignedBytes(0)};
    int is_tensor = 0;
    if (value == nullptr) return tensor;
    if (Status status = check(api_.IsTensor(value, &is_tensor)); !status.ok()) return status;
    if (is_tensor == 0) return tensor;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    if (Status status = check(api_.GetTensorTypeAndShape(value, &info)); !status.ok()) {
      return status;
    }
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    Status status = check(api_.GetTensorElementType(info, &type));
    if (status.ok()) status = check(api_.GetDimensionsCount(info, &rank));
    tensor.dims.resize(rank);
    if (status.ok()) status = check(api_.GetDimensions(info, tensor.dims.data(), rank));
    api_.ReleaseTensorTypeAndShapeInfo(info);
    if (!status.ok()) return status;
    // Element types have the numbers of ONNX on both sides.
    const auto dtype = static_cast<DvtDType>(type);
    if (dtype == DVT_STRING || dvt_dtype_size(dtype) == 0) return tensor;
    tensor.dtype = dtype;
    if (!with_data) return tensor;
    const void* data = nullptr;
    status = check(api_.GetTensorData(value, &data));
    if (!status.ok()) return status;
    tensor.bytes = AlignedBytes(bytes_of(tensor));
    if (tensor.bytes.size() > 0) std::memcpy(tensor.bytes.data(), data, tensor.bytes.size());
    return tensor;
  }

  static uint64_t bytes_of(const HostTensor& tensor) {
    return checked_elements(tensor.dims).value_or(0) * dvt_dtype_size(tensor.dtype);
  }

  const OrtApi& api_;
  std::span<const HostTensor> inputs_;
  OrtEnv* environment_ = nullptr;
  OrtSessionOptions* options_ = nullptr;
  OrtSession* session_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
  std::vector<std::string> names_, input_names_;
  std::vector<OrtValue*> input_values_;
};

}  // namespace

Result<std::unique_ptr<Reference>> open_onnxruntime(const std::string& model,
                                                    const std::string& library,
                                                    std::span<const HostTensor> inputs) {
  auto api = load_api(library);
  if (!api.ok()) return std::move(api.status());
  auto reference = std::make_unique<OnnxRuntimeReference>(**api, inputs);
  if (Status status = reference->open(model); !status.ok()) return status;
  return std::unique_ptr<Reference>(std::move(reference));
}

}  // namespace davit::cli
