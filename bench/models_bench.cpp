// models_bench: real models on one thread: generated kernels against the reference kernels, and
// against ONNX Runtime where the Meson option `onnxruntime` names one; on two threads: large
// operators in pieces by a schedule, against one thread, and against ONNX Runtime with two; and
// from the file, in the page cache, to the first result.
//
// DAVIT_MODELS_DIR names the models; those that are not there are left out. Time of the processor,
// on two threads that of the wall; contenders in turn, on two threads with a rest before each turn,
// since the threads of ONNX Runtime spin on after a run and would take our second core. Outputs are
// compared once: a fast wrong answer is none.
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "davit/davit.hpp"
#include "exec/code_segment.hpp"
#include "lowering/compile.hpp"
#ifdef DAVIT_ONNXRUNTIME
#include "bench/onnxruntime_peer.hpp"
#endif

namespace {

constexpr double kGeometricMeanLimit = 0.85;
constexpr double kModelLimit = 1.10;
constexpr double kTinyModelLimit = 0.5;
constexpr double kLoadLimit = 0.2;
constexpr double kGeometricMeanLimitOfTwo = 0.90;
constexpr double kModelLimitOfTwo = 1.20;

struct Input {
  const char* name;  // Empty: the only one.
  std::vector<int64_t> shape;
  std::optional<std::pair<int64_t, int64_t>> integers;  // An i64 input: smallest and largest value.
};
struct Model {
  const char* name;
  std::vector<Input> inputs;
  double limit = kModelLimit;
};
const Model kModels[] = {
    {"lenet_mnist", {{"", {1, 1, 28, 28}, {}}}, kTinyModelLimit},
    {"hey_jarvis_v0.1", {{"", {1, 16, 96}, {}}}, kTinyModelLimit},
    {"silero_vad_op18_ifless",
     {{"input", {1, 512}, {}}, {"sr", {}, {{16000, 16000}}}, {"state", {2, 1, 128}, {}}},
     kTinyModelLimit},
    {"minilm_l6_static",
     {{"input_ids", {1, 128}, {{0, 999}}},
      {"attention_mask", {1, 128}, {{1, 1}}},
      {"token_type_ids", {1, 128}, {{0, 0}}}}},
    {"face_detection_front_128x128_barracuda", {{"", {1, 128, 128, 3}, {}}}},
    {"mlsd_320x320_tiny", {{"", {1, 320, 320, 4}, {}}}},
    {"mobilenet_v2", {{"", {1, 3, 224, 224}, {}}}},
    {"squeezenet1_1", {{"", {1, 3, 224, 224}, {}}}},
    {"resnet18", {{"", {1, 3, 224, 224}, {}}}},
    {"ch_PP-OCRv4_det_infer", {{"x", {1, 3, 640, 640}, {}}}},
    {"ch_PP-OCRv4_rec_infer", {{"x", {1, 3, 48, 320}, {}}}},
    {"ch_ppocr_mobile_v2.0_cls_infer", {{"x", {1, 3, 48, 192}, {}}}},
    {"embedding_model", {{"input_1", {1, 76, 32, 1}, {}}}},
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "models_bench: %s\n", why.c_str());
  std::_Exit(1);
}

std::vector<std::byte> random_values(const Input& input) {
  size_t count = 1;
  for (const int64_t dim : input.shape) count *= size_t(dim);
  std::vector<std::byte> bytes(count * (input.integers ? sizeof(int64_t) : sizeof(float)));
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    if (input.integers) {
      const auto [low, high] = *input.integers;
      const int64_t value = low + int64_t(state >> 8) % (high - low + 1);
      std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
    } else {
      const float value = float(state >> 8) / float(1U << 23) - 1.0F;
      std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
    }
  }
  return bytes;
}

// In the order of Model.inputs.
using Values = std::vector<std::vector<std::byte>>;

Values random_values(const Model& model) {
  Values values;
  for (const Input& input : model.inputs) values.push_back(random_values(input));
  return values;
}

#ifdef DAVIT_ONNXRUNTIME
std::vector<davit::bench::PeerInput> peer_inputs(const Model& model, const Values& values) {
  std::vector<davit::bench::PeerInput> inputs;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const Input& input = model.inputs[i];
    inputs.push_back({input.name, input.integers.has_value(), input.shape, values[i]});
  }
  return inputs;
}
#endif

std::vector<std::byte> compile(const std::string& path, const Model& model,
                               const std::vector<std::string>& isas,
                               const davit::Pool* pool = nullptr) {
  davit::compiler::CompileOptions options{.level = davit::passes::Level(3)};
  for (const Input& input : model.inputs) {
    if (input.name[0] != '\0') options.shapes[input.name] = input.shape;
  }
  options.codegen.isas = isas;
  options.codegen.toolchain.cache_folder = davit::codegen::default_cache_folder();
  options.codegen.toolchain.jobs = 2;
  if (pool != nullptr) options.workers = options.pieces = pool->workers();
  auto compiled = davit::compiler::compile_onnx_file(path, options);
  if (!compiled.ok()) give_up(compiled.status().to_string());
  return std::move(compiled->bytes);
}

// One image and one executor of it.
class Davit {
 public:
  // `bytes` outlive this.
  Davit(const std::vector<std::byte>& bytes, const Model& model, const Values& values,
        const davit::Pool* pool = nullptr)
      : Davit(davit::Image::borrow(bytes), model, values, pool) {}

  Davit(davit::Expected<davit::Image> image, const Model& model, const Values& values,
        const davit::Pool* pool = nullptr) {
    if (!image) give_up(image.error().text());
    image_.emplace(std::move(*image));
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    if (pool != nullptr) options.pool = pool->get();
    auto executor = davit::Executor::create(*image_, &options);
    if (!executor) give_up(executor.error().text());
    executor_.emplace(std::move(*executor));
    bind(model, values);
  }

  void run() {
    if (const davit::Error error = executor_->run()) give_up(error.text());
  }
  // The first one, of the last run.
  [[nodiscard]] std::vector<float> output() const {
    const auto output = executor_->output(0);
    if (!output) give_up(output.error().text());
    const auto* values = static_cast<const float*>(output->data);
    return {values, values + output->tensor.bytes / sizeof(float)};
  }

 private:
  void bind(const Model& model, const Values& values) {
    for (size_t i = 0; i < model.inputs.size(); ++i) {
      uint32_t port = 0;
      if (model.inputs[i].name[0] != '\0') {
        const auto found = image_->find_input(model.inputs[i].name);
        if (!found) give_up(std::string(model.name) + " has no input " + model.inputs[i].name);
        port = *found;
      }
      if (const davit::Error error = executor_->bind_input(port, std::span(values[i]))) {
        give_up(error.text());
      }
    }
    for (uint32_t i = 0; i < image_->output_count(); ++i) {
      const auto info = image_->output(i);
      if (!info) give_up(info.error().text());
      if (info->tensor.bytes == 0) continue;  // Behind an If: in memory of the executor's.
      outputs_.emplace_back(info->tensor.bytes / sizeof(float));
      const davit::Error error = executor_->bind_output(i, std::span<float>(outputs_.back()));
      if (error) give_up(error.text());
    }
  }

  std::optional<davit::Image> image_;
  std::optional<davit::Executor> executor_;
  std::vector<std::vector<float>> outputs_;
};

void compare(const std::string& name, const std::vector<float>& expected,
             const std::vector<float>& got) {
  if (expected.size() != got.size()) give_up(name + ": outputs of different sizes");
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(expected[i] - got[i]));
  }
  if (!(difference <= 1e-3F * largest + 1e-6F)) give_up(name + ": another result");
}

struct GeometricMean {
  double logarithms = 0;
  int count = 0;
  void add(double ratio) {
    logarithms += std::log(ratio);
    ++count;
  }
  [[nodiscard]] double value() const { return std::exp(logarithms / count); }
};

void measure(davit::bench::Report& report, const Model& model, const std::string& path,
             GeometricMean& mean) {
  const Values input = random_values(model);
  const auto with_code = compile(path, model, {std::string(davit::exec::best_isa())});
  const auto without = compile(path, model, {});
  Davit generated(with_code, model, input);
  Davit reference(without, model, input);
  std::vector<std::function<void()>> steps = {[&] { generated.run(); }, [&] { reference.run(); }};
#ifdef DAVIT_ONNXRUNTIME
  davit::bench::OnnxRuntime peer(path, 1, peer_inputs(model, input));
  steps.emplace_back([&] { peer.run(); });
#endif
  for (const auto& step : steps) step();
  compare(model.name, reference.output(), generated.output());
#ifdef DAVIT_ONNXRUNTIME
  compare(model.name, peer.output(0), generated.output());
#endif
  const auto contest = davit::bench::measure(steps, {.samples = 21});
  const auto add = [&](const char* name, size_t step, std::optional<double> limit) {
    report.add({.metric = model.name,
                .value = contest.median_ns[0] / 1e6,
                .unit = "ms",
                .peer = name,
                .peer_value = contest.median_ns[step] / 1e6},
               limit);
  };
  add("reference kernels", 1, std::nullopt);
  if (steps.size() > 2) {
    add("ONNX Runtime", 2, model.limit);
    mean.add(contest.median_ns[0] / contest.median_ns[2]);
  }
}

void measure_two(davit::bench::Report& report, const Model& model, const std::string& path,
                 [[maybe_unused]] GeometricMean& mean) {
  const auto pool = davit::Pool::create(2);
  if (!pool) give_up(pool.error().text());
  const Values input = random_values(model);
  const std::vector<std::string> isas = {std::string(davit::exec::best_isa())};
  const auto for_two = compile(path, model, isas, &*pool);
  const auto for_one = compile(path, model, isas);
  Davit two(for_two, model, input, &*pool);
  Davit one(for_one, model, input);
  std::vector<std::function<void()>> steps = {[&] { two.run(); }, [&] { one.run(); }};
#ifdef DAVIT_ONNXRUNTIME
  davit::bench::OnnxRuntime peer(path, 2, peer_inputs(model, input));
  steps.emplace_back([&] { peer.run(); });
#endif
  for (const auto& step : steps) step();
  compare(model.name, one.output(), two.output());
  const auto contest = davit::bench::measure(
      steps,
      {.clock = davit::bench::Clock::kWall, .samples = 21, .warm_up_ns = 2e8, .rest_ns = 3e7});
  const auto add = [&](const char* name, size_t step, std::optional<double> limit) {
    report.add({.metric = std::string(model.name) + ", two threads",
                .value = contest.median_ns[0] / 1e6,
                .unit = "ms",
                .peer = name,
                .peer_value = contest.median_ns[step] / 1e6},
               limit);
  };
  add("one thread", 1, std::nullopt);
#ifdef DAVIT_ONNXRUNTIME
  add("ONNX Runtime, two threads", 2, kModelLimitOfTwo);
  mean.add(contest.median_ns[0] / contest.median_ns[2]);
#endif
}

// A file that goes with this.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::byte>& bytes) {
    const int file = ::mkstemp(path_.data());
    const bool written =
        file >= 0 && ::write(file, bytes.data(), bytes.size()) == ssize_t(bytes.size());
    if (file >= 0) ::close(file);
    if (!written) give_up("cannot write " + path_);
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "models_bench_XXXXXX";
};

void measure_load(davit::bench::Report& report, const Model& model, const std::string& path) {
  const Values input = random_values(model);
  const TemporaryFile image(compile(path, model, {std::string(davit::exec::best_isa())}));
  std::vector<std::function<void()>> steps = {
      [&] { Davit(davit::Image::open(image.path()), model, input).run(); }};
#ifdef DAVIT_ONNXRUNTIME
  steps.emplace_back([&] { davit::bench::OnnxRuntime(path, 1, peer_inputs(model, input)).run(); });
#endif
  const auto contest = davit::bench::measure(
      steps, {.clock = davit::bench::Clock::kWall, .samples = 7, .sample_ns = 1, .warm_up_ns = 1});
  const bool has_peer = contest.median_ns.size() > 1;
  davit::bench::Measurement row{.metric = std::string(model.name) + ", load to first result",
                                .value = contest.median_ns[0] / 1e6,
                                .unit = "ms"};
  if (has_peer) {
    row.peer = "ONNX Runtime";
    row.peer_value = contest.median_ns[1] / 1e6;
  }
  report.add(row, has_peer ? std::optional(kLoadLimit) : std::nullopt);
}

void add_mean(davit::bench::Report& report, const GeometricMean& mean, const char* name,
              double limit) {
  if (mean.count == 0) return;
  report.add({.metric = name, .value = mean.value(), .unit = ""}, limit);
}

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("models_bench", argc, argv);
  const char* folder = std::getenv("DAVIT_MODELS_DIR");
  if (folder == nullptr) give_up("DAVIT_MODELS_DIR is not set");
  GeometricMean mean, mean_of_two;
  for (const Model& model : kModels) {
    const std::string path = std::string(folder) + "/" + model.name + ".onnx";
    const bool one = report.wants(std::string(model.name) + ", one thread");
    const bool two = report.wants(std::string(model.name) + ", two threads");
    const bool load = report.wants(std::string(model.name) + ", load to first result");
    if (!std::filesystem::exists(path)) continue;
    if (one) measure(report, model, path, mean);
    if (two) measure_two(report, model, path, mean_of_two);
    if (load) measure_load(report, model, path);
  }
  add_mean(report, mean, "geometric mean of the ratios to ONNX Runtime", kGeometricMeanLimit);
  add_mean(report, mean_of_two, "geometric mean of the ratios on two threads",
           kGeometricMeanLimitOfTwo);
  return report.finish();
}
