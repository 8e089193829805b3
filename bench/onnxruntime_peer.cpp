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

}  // namespace

// What is made here lives as long as the process: it is a benchmark's.
struct OnnxRuntime::State {
  OrtEnv* environment = nullptr;
  OrtSessionOptions* options = nullptr;
  OrtSession* session = nullptr;
  std::vector<std::vector<float>> buffers;
  std::vector<OrtValue*> inputs, outputs;
  std::vector<char*> input_names, output_names;
};

OnnxRuntime::OnnxRuntime(const std::string& path, int threads,
                         const std::vector<std::vector<int64_t>>& input_shapes)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  require(api().CreateEnv(ORT_LOGGING_LEVEL_ERROR, "bench", &s.environment));
  require(api().CreateSessionOptions(&s.options));
  require(api().SetIntraOpNumThreads(s.options, threads));
  require(api().SetInterOpNumThreads(s.options, 1));
  require(api().SetSessionGraphOptimizationLevel(s.options, ORT_ENABLE_ALL));
  require(api().CreateSession(s.environment, path.c_str(), s.options, &s.session));
  OrtAllocator* allocator = nullptr;
  require(api().GetAllocatorWithDefaultOptions(&allocator));
  OrtMemoryInfo* memory = nullptr;
  require(api().CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  s.buffers.resize(input_shapes.size());
  s.inputs.resize(input_shapes.size());
  s.input_names.resize(input_shapes.size());
  for (size_t i = 0; i < input_shapes.size(); ++i) {
    size_t count = 1;
    for (const int64_t dim : input_shapes[i]) count *= size_t(dim);
    s.buffers[i].resize(count);
    require(api().SessionGetInputName(s.session, i, allocator, &s.input_names[i]));
    require(api().CreateTensorWithDataAsOrtValue(
        memory, s.buffers[i].data(), count * sizeof(float), input_shapes[i].data(),
        input_shapes[i].size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &s.inputs[i]));
  }
  size_t outputs = 0;
  require(api().SessionGetOutputCount(s.session, &outputs));
  s.outputs.resize(outputs);
  s.output_names.resize(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    require(api().SessionGetOutputName(s.session, i, allocator, &s.output_names[i]));
  }
}

OnnxRuntime::~OnnxRuntime() = default;

std::vector<float>& OnnxRuntime::input(size_t index) {
  return state_->buffers[index];
}

void OnnxRuntime::run() {
  State& s = *state_;
  for (OrtValue*& output : s.outputs) {
    if (output != nullptr) api().ReleaseValue(output);
    output = nullptr;
  }
  require(api().Run(s.session, nullptr, s.input_names.data(), s.inputs.data(), s.inputs.size(),
                    s.output_names.data(), s.output_names.size(), s.outputs.data()));
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
