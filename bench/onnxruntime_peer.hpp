// onnxruntime_peer.hpp: a session of ONNX Runtime, as what others would use in our place.
//
// Built where the Meson option `onnxruntime` names a folder with onnxruntime_c_api.h and
// libonnxruntime.so. Threads: one session, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace davit::bench {

// What an input is given: by name, since an image's inputs need not be in the model's order.
struct PeerInput {
  std::string name;  // Empty: that of the model's first input.
  bool is_i64;       // Else f32.
  std::vector<int64_t> shape;
  std::span<const std::byte> values;  // The caller's, as long as this session.
};

class OnnxRuntime {
 public:
  // With so many threads inside operators, all optimisations on. Ends the program when the model
  // cannot be loaded.
  OnnxRuntime(const std::string& path, int threads, const std::vector<PeerInput>& inputs);
  ~OnnxRuntime();
  OnnxRuntime(const OnnxRuntime&) = delete;
  OnnxRuntime& operator=(const OnnxRuntime&) = delete;

  void run();
  // Of the last run.
  [[nodiscard]] std::vector<float> output(size_t index) const;
  [[nodiscard]] static std::string version();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace davit::bench
