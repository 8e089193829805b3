#include "bench/onnxruntime_peer.hpp"

#include <onnxruntime_c_api.h>

#include <cstdio>
#include <cstdlib>

namespace davit::bench {
namespace {

const OrtApi& api() {
  static const OrtApi* const functions = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (functions == nullptr) {
    std::fprintf(stderr, "models_bench: libonnxruntime is older than its header\n");
    std::_Exit(1);
  }
  return *functions;
}

void require(OrtStatus* status) {
  if (status == nullptr) return;
  std::fprintf(stderr, "models_bench: ONNX Runtime: %s\n", api().GetErrorMessage(status));
  std::_Exit(1);
}

// One for the process.
OrtEnv* environment() {
  static OrtEnv* const one = [] {
    OrtEnv* made = nullptr;
    require(api().CreateEnv(ORT_LOGGING_LEVEL_ERROR, "bench", &made));
    return made;
  }();
  return one;
}

}  // namespace

struct OnnxRuntime::State {
  OrtSessionOptions* options = nullptr;
  OrtSession* session = nullptr;
  std::vector<OrtValue*> inputs, outputs;
  std::vector<std::string> input_names;
  std::vector<const char*> input_name_pointers;
  std::vector<char*> output_names;
};

OnnxRuntime::OnnxRuntime(const std::string& path, int threads, const std::vector<PeerInput>& inputs)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  require(api().CreateSessionOptions(&s.options));
  require(api().SetIntraOpNumThreads(s.options, threads));
  require(api().SetInterOpNumThreads(s.options, 1));
  require(api().SetSessionGraphOptimizationLevel(s.options, ORT_ENABLE_ALL));
  require(api().CreateSession(environment(), path.c_str(), s.options, &s.session));
  OrtAllocator* allocator = nullptr;
  require(api().GetAllocatorWithDefaultOptions(&allocator));
  OrtMemoryInfo* memory = nullptr;
  require(api().CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  s.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PeerInput& input = inputs[i];
    s.input_names.push_back(input.name);
    if (input.name.empty()) {
      char* name = nullptr;
      require(api().SessionGetInputName(s.session, i, allocator, &name));
      s.input_names.back() = name;
    }
    // ONNX Runtime does not write to inputs; its interface only lacks the const.
    require(api().CreateTensorWithDataAsOrtValue(
        memory, const_cast<std::byte*>(input.values.data()), input.values.size(),
        input.shape.data(), input.shape.size(),
        input.is_i64 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        &s.inputs[i]));
  }
  api().ReleaseMemoryInfo(memory);
  for (const std::string& name : s.input_names) s.input_name_pointers.push_back(name.c_str());
  size_t outputs = 0;
  require(api().SessionGetOutputCount(s.session, &outputs));
  s.outputs.resize(outputs);
  s.output_names.resize(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    require(api().SessionGetOutputName(s.session, i, allocator, &s.output_names[i]));
  }
}

// Names stay: they are the allocator's, and few.
OnnxRuntime::~OnnxRuntime() {
  for (OrtValue* value : state_->outputs) {
    if (value != nullptr) api().ReleaseValue(value);
  }
  for (OrtValue* value : state_->inputs) api().ReleaseValue(value);
  api().ReleaseSession(state_->session);
  api().ReleaseSessionOptions(state_->options);
}

void OnnxRuntime::run() {
  State& s = *state_;
  for (OrtValue*& output : s.outputs) {
    if (output != nullptr) api().ReleaseValue(output);
    output = nullptr;
  }
  require(api().Run(s.session, nullptr, s.input_name_pointers.data(), s.inputs.data(),
                    s.inputs.size(), s.output_names.data(), s.output_names.size(),
                    s.outputs.data()));
}

std::vector<float> OnnxRuntime::output(size_t index) const {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  size_t count = 0;
  float* data = nullptr;
  require(api().GetTensorTypeAndShape(state_->outputs[index], &info));
  require(api().GetTensorShapeElementCount(info, &count));
  require(api().GetTensorMutableData(state_->outputs[index], reinterpret_cast<void**>(&data)));
  api().ReleaseTensorTypeAndShapeInfo(info);
  return {data, data + count};
}

std::string OnnxRuntime::version() {
  return OrtGetApiBase()->GetVersionString();
}

}  // namespace davit::bench
