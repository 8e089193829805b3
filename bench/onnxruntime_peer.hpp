// onnxruntime_peer.hpp: a session of ONNX Runtime, as what others would use in our place.
//
// Built where the Meson option `onnxruntime` names a folder with onnxruntime_c_api.h and
// libonnxruntime.so. Threads: one session, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace davit::bench {

class OnnxRuntime {
 public:
  // With so many threads inside operators, all optimisations on. Ends the program when the model
  // cannot be loaded. Inputs are f32, zeros but for what set_input() gives.
  OnnxRuntime(const std::string& path, int threads,
              const std::vector<std::vector<int64_t>>& input_shapes);
  ~OnnxRuntime();
  OnnxRuntime(const OnnxRuntime&) = delete;
  OnnxRuntime& operator=(const OnnxRuntime&) = delete;

  [[nodiscard]] std::vector<float>& input(size_t index);
  void run();
  // Of the last run.
  [[nodiscard]] std::vector<float> output(size_t index) const;
  [[nodiscard]] static std::string version();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace davit::bench
