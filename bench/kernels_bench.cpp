// kernels_bench: generated kernels one by one, on one thread, against oneDNN: products with a
// constant matrix over a grid of 40 shapes, and the distinct convolutions of three networks.
//
// oneDNN may choose the layout of all operands, activations too, and what it takes to get them
// there is not counted; ours lie as in the model. Weights are packed beforehand on both sides. Time
// of the processor, contenders in turn, medians; results are compared once.
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "davit/davit.hpp"
#include "exec/code_segment.hpp"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"

namespace {

constexpr double kGeometricMeanLimit = 1 / 0.95;  // Of our time to oneDNN's.
constexpr double kKernelLimit = 1 / 0.75;

struct Product {
  int64_t m, k, n;
};
// Squares, then layers of MiniLM (128, 16 and 1 tokens), of the readers of text, of classifiers.
const Product kProducts[] = {
    {64, 64, 64},       {96, 96, 96},       {128, 128, 128},    {192, 192, 192}, {256, 256, 256},
    {320, 320, 320},    {384, 384, 384},    {512, 512, 512},    {640, 640, 640}, {768, 768, 768},
    {1024, 1024, 1024}, {1536, 1536, 1536}, {2048, 2048, 2048}, {128, 384, 384}, {128, 384, 1536},
    {128, 1536, 384},   {16, 384, 384},     {16, 384, 1536},    {16, 1536, 384}, {1, 384, 384},
    {1, 384, 1536},     {1, 1536, 384},     {40, 120, 120},     {40, 120, 360},  {40, 120, 240},
    {40, 240, 120},     {40, 120, 6625},    {80, 120, 6625},    {1, 512, 1000},  {1, 1280, 1000},
    {4, 512, 1000},     {32, 1280, 1000},   {1, 1536, 128},     {1, 128, 128},   {1, 128, 512},
    {1, 400, 120},      {1, 120, 84},       {76, 32, 24},       {300, 700, 100}, {7, 2048, 2048}};

struct Layer {
  int64_t in, extent, out, kernel, stride, pad, groups;
};
const Layer kLayers[] = {
    // resnet18
    {3, 224, 64, 7, 2, 3, 1},
    {64, 56, 64, 3, 1, 1, 1},
    {64, 56, 128, 3, 2, 1, 1},
    {64, 56, 128, 1, 2, 0, 1},
    {128, 28, 128, 3, 1, 1, 1},
    {128, 28, 256, 3, 2, 1, 1},
    {128, 28, 256, 1, 2, 0, 1},
    {256, 14, 256, 3, 1, 1, 1},
    {256, 14, 512, 3, 2, 1, 1},
    {256, 14, 512, 1, 2, 0, 1},
    {512, 7, 512, 3, 1, 1, 1},
    // squeezenet1_1
    {3, 224, 64, 3, 2, 0, 1},
    {64, 55, 16, 1, 1, 0, 1},
    {16, 55, 64, 1, 1, 0, 1},
    {16, 55, 64, 3, 1, 1, 1},
    {128, 55, 16, 1, 1, 0, 1},
    {128, 27, 32, 1, 1, 0, 1},
    {32, 27, 128, 1, 1, 0, 1},
    {32, 27, 128, 3, 1, 1, 1},
    {256, 27, 32, 1, 1, 0, 1},
    {256, 13, 48, 1, 1, 0, 1},
    {48, 13, 192, 1, 1, 0, 1},
    {48, 13, 192, 3, 1, 1, 1},
    {384, 13, 48, 1, 1, 0, 1},
    {384, 13, 64, 1, 1, 0, 1},
    {64, 13, 256, 1, 1, 0, 1},
    {64, 13, 256, 3, 1, 1, 1},
    {512, 13, 64, 1, 1, 0, 1},
    {512, 13, 1000, 1, 1, 0, 1},
    // mobilenet_v2
    {3, 224, 32, 3, 2, 1, 1},
    {32, 112, 32, 3, 1, 1, 32},
    {32, 112, 16, 1, 1, 0, 1},
    {16, 112, 96, 1, 1, 0, 1},
    {96, 112, 96, 3, 2, 1, 96},
    {96, 56, 24, 1, 1, 0, 1},
    {24, 56, 144, 1, 1, 0, 1},
    {144, 56, 144, 3, 1, 1, 144},
    {144, 56, 24, 1, 1, 0, 1},
    {144, 56, 144, 3, 2, 1, 144},
    {144, 28, 32, 1, 1, 0, 1},
    {32, 28, 192, 1, 1, 0, 1},
    {192, 28, 192, 3, 1, 1, 192},
    {192, 28, 32, 1, 1, 0, 1},
    {192, 28, 192, 3, 2, 1, 192},
    {192, 14, 64, 1, 1, 0, 1},
    {64, 14, 384, 1, 1, 0, 1},
    {384, 14, 384, 3, 1, 1, 384},
    {384, 14, 64, 1, 1, 0, 1},
    {384, 14, 96, 1, 1, 0, 1},
    {96, 14, 576, 1, 1, 0, 1},
    {576, 14, 576, 3, 1, 1, 576},
    {576, 14, 96, 1, 1, 0, 1},
    {576, 14, 576, 3, 2, 1, 576},
    {576, 7, 160, 1, 1, 0, 1},
    {160, 7, 960, 1, 1, 0, 1},
    {960, 7, 960, 3, 1, 1, 960},
    {960, 7, 160, 1, 1, 0, 1},
    {960, 7, 320, 1, 1, 0, 1},
    {320, 7, 1280, 1, 1, 0, 1}};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "kernels_bench: %s\n", why.c_str());
  std::_Exit(1);
}

std::vector<float> random_floats(const std::vector<int64_t>& dims, uint32_t seed) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= size_t(dim);
  std::vector<float> values(count);
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = float(state >> 8) / float(1U << 23) - 1.0F;
  }
  return values;
}

// A problem of one node.
struct Problem {
  std::string name;
  bool is_product;
  std::vector<int64_t> input, weights, output;
  std::vector<davit::ir::Attribute> attributes;
  dnnl::memory::dims strides, pads;
};

Problem problem_of(const Product& p) {
  return {.name = "product " + std::to_string(p.m) + "x" + std::to_string(p.k) + "x" +
                  std::to_string(p.n),
          .is_product = true,
          .input = {p.m, p.k},
          .weights = {p.k, p.n},
          .output = {p.m, p.n}};
}

Problem problem_of(const Layer& l) {
  const int64_t extent = (l.extent + 2 * l.pad - l.kernel) / l.stride + 1;
  std::string name = "convolution " + std::to_string(l.in) + "x" + std::to_string(l.extent) +
                     "^2 to " + std::to_string(l.out) + ", " + std::to_string(l.kernel) + "^2 by " +
                     std::to_string(l.stride);
  if (l.groups > 1) name += ", depthwise";
  return {.name = std::move(name),
          .is_product = false,
          .input = {1, l.in, l.extent, l.extent},
          .weights = {l.out, l.in / l.groups, l.kernel, l.kernel},
          .output = {1, l.out, extent, extent},
          .attributes = {{"group", l.groups},
                         {"strides", std::vector<int64_t>{l.stride, l.stride}},
                         {"pads", std::vector<int64_t>{l.pad, l.pad, l.pad, l.pad}}},
          .strides = {l.stride, l.stride},
          .pads = {l.pad, l.pad}};
}

class Ours {
 public:
  Ours(const Problem& problem, std::vector<float>& x, const std::vector<float>& w)
      : y_(random_floats(problem.output, 3)) {
    davit::testing::TinyModule tiny;
    const auto input = tiny.input("x", problem.input);
    const auto weights = tiny.constant("w", davit::testing::f32_tensor(problem.weights, w));
    const auto module = tiny.build({tiny.node(problem.is_product ? "MatMul" : "Conv",
                                              {input, weights}, "y", problem.attributes)});
    davit::compiler::CompileOptions options{.level = davit::passes::Level(3)};
    options.codegen.isas = {std::string(davit::exec::best_isa())};
    options.codegen.toolchain.cache_folder = davit::codegen::default_cache_folder();
    auto compiled = davit::compiler::compile_module(module, options);
    if (!compiled.ok()) give_up(compiled.status().to_string());
    if (compiled->report.generated_nodes != 1) give_up(problem.name + ": no kernel is generated");
    bytes_ = std::move(compiled->bytes);
    auto image = davit::Image::borrow(bytes_);
    if (!image) give_up(image.error().text());
    image_.emplace(std::move(*image));
    auto executor = davit::Executor::create(*image_);
    if (!executor) give_up(executor.error().text());
    executor_.emplace(std::move(*executor));
    if (const davit::Error error = executor_->bind_input(0, std::span(x))) give_up(error.text());
    if (const davit::Error error = executor_->bind_output(0, std::span(y_))) give_up(error.text());
  }
  void run() {
    if (const davit::Error error = executor_->run()) give_up(error.text());
  }
  [[nodiscard]] const std::vector<float>& result() const { return y_; }

 private:
  std::vector<float> y_;
  std::vector<std::byte> bytes_;
  std::optional<davit::Image> image_;
  std::optional<davit::Executor> executor_;
};

class OneDnn {
 public:
  OneDnn(const Problem& problem, std::vector<float>& x, std::vector<float>& w) {
    const dnnl::memory::dims in = problem.input;
    const dnnl::memory::dims out = problem.output;
    dnnl::memory::dims weights = problem.weights;
    if (!problem.is_product && problem.weights[1] != in[1]) {  // [groups, out, in, ...]
      const int64_t groups = in[1] / problem.weights[1];
      weights = {groups, problem.weights[0] / groups, problem.weights[1], problem.weights[2],
                 problem.weights[3]};
    }
    if (problem.is_product) {
      const dnnl::matmul::primitive_desc primitive({any(in), any(weights), any(out)}, engine_);
      setup(primitive, dnnl::matmul(primitive), x, w, in, weights, out);
    } else {
      const dnnl::convolution_forward::primitive_desc primitive(
          {dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto, any(in),
           any(weights), any(out), problem.strides, problem.pads, problem.pads},
          engine_);
      setup(primitive, dnnl::convolution_forward(primitive), x, w, in, weights, out);
    }
  }
  void run() { primitive_.execute(stream_, arguments_); }
  std::vector<float> result() {
    size_t count = 1;
    for (const int64_t dim : out_) count *= size_t(dim);
    std::vector<float> y(count);
    dnnl::memory plain({out_, dnnl::memory::data_type::f32, plain_strides(out_)}, engine_,
                       y.data());
    dnnl::reorder(y_, plain).execute(stream_, y_, plain);
    return y;
  }

 private:
  static dnnl::memory::desc any(const dnnl::memory::dims& dims) {
    return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
  }
  static dnnl::memory::dims plain_strides(const dnnl::memory::dims& dims) {
    dnnl::memory::dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return strides;
  }
  dnnl::memory reordered(std::vector<float>& from, const dnnl::memory::dims& dims,
                         const dnnl::memory::desc& to) {
    dnnl::memory plain({dims, dnnl::memory::data_type::f32, plain_strides(dims)}, engine_,
                       from.data());
    dnnl::memory result(to, engine_);
    dnnl::reorder(plain, result).execute(stream_, plain, result);
    return result;
  }
  template <class Description>
  void setup(const Description& description, dnnl::primitive primitive, std::vector<float>& x,
             std::vector<float>& w, const dnnl::memory::dims& in, const dnnl::memory::dims& weights,
             const dnnl::memory::dims& out) {
    out_ = out;
    primitive_ = std::move(primitive);
    y_ = dnnl::memory(description.dst_desc(), engine_);
    arguments_ = {{DNNL_ARG_SRC, reordered(x, in, description.src_desc())},
                  {DNNL_ARG_WEIGHTS, reordered(w, weights, description.weights_desc())},
                  {DNNL_ARG_DST, y_}};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::memory::dims out_;
  dnnl::primitive primitive_;
  dnnl::memory y_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void compare(const Problem& problem, const std::vector<float>& expected,
             const std::vector<float>& got) {
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(expected[i] - got[i]));
  }
  if (!(difference <= 1e-4F * largest)) give_up(problem.name + ": another result");
}

// Logarithms of the ratios.
void measure(davit::bench::Report& report, const Problem& problem, std::vector<double>& ratios) {
  if (!report.wants(problem.name)) return;
  std::vector<float> x = random_floats(problem.input, 1);
  std::vector<float> w = random_floats(problem.weights, 2);
  Ours ours(problem, x, w);
  OneDnn peer(problem, x, w);
  ours.run();
  peer.run();
  compare(problem, peer.result(), ours.result());
  const auto contest = davit::bench::measure({[&] { ours.run(); }, [&] { peer.run(); }},
                                             {.samples = 31, .sample_ns = 1e6, .warm_up_ns = 1e7});
  report.add({.metric = problem.name,
              .value = contest.median_ns[0] / 1e3,
              .unit = "us",
              .peer = "oneDNN",
              .peer_value = contest.median_ns[1] / 1e3,
              .paired_ratio = contest.ratio[0]},
             kKernelLimit);
  ratios.push_back(std::log(contest.ratio[0]));
}

void add_mean(davit::bench::Report& report, const char* name, const std::vector<double>& ratios) {
  if (ratios.empty()) return;
  double sum = 0;
  for (const double ratio : ratios) sum += ratio;
  report.add({.metric = name, .value = std::exp(sum / double(ratios.size())), .unit = ""},
             kGeometricMeanLimit);
}

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("kernels_bench", argc, argv);
  omp_set_num_threads(1);  // oneDNN's.
  std::vector<double> products, convolutions;
  for (const Product& product : kProducts) measure(report, problem_of(product), products);
  for (const Layer& layer : kLayers) measure(report, problem_of(layer), convolutions);
  add_mean(report, "products, geometric mean of the ratios", products);
  add_mean(report, "convolutions, geometric mean of the ratios", convolutions);
  return report.finish();
}
