// dynamic_bench: what the host pays for dynamic shapes, per node that computes: models with free
// dimensions whose kernels do nothing. Shape arithmetic, results of up to 256 bytes, is real.
//
//   same shapes     as in steady state: the shape nodes are skipped
//   other shapes    each run has another shape than the one before; both have been seen
//
// DAVIT_MODELS_DIR names the models; those that are not there are left out.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/report.hpp"
#include "davit/davit.hpp"
#include "lowering/compile.hpp"

namespace {

constexpr double kLimitNs = 150;

struct Model {
  const char* name;
  std::vector<std::vector<int64_t>> shapes[2];  // Of each input, twice.
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "dynamic_bench: %s\n", why.c_str());
  std::_Exit(1);
}

constexpr size_t kKernelsMax = 1024;
constexpr uint64_t kRealBytesMax = 256;
DvtKernelFn real_kernels[kKernelsMax];

// Stands for kernel I of the table. Whatever computes floats, or many integers, is left out.
template <size_t I>
DvtCode run_if_small(void* context) {
  const DvtTensor* result = dvt_output(static_cast<const DvtContext*>(context), 0)->tensor;
  if (result->bytes > kRealBytesMax || result->dtype == DVT_F32) return DVT_OK;
  return real_kernels[I](context);
}

template <size_t... I>
std::vector<DvtKernelFn> stand_ins(std::index_sequence<I...> /*indices*/) {
  return {run_if_small<I>...};
}

std::vector<DvtKernel> empty_kernels() {
  const DvtKernelTable table = dvt_cpu_kernels();
  if (table.count > kKernelsMax) give_up("more kernels than kKernelsMax");
  const std::vector<DvtKernelFn> run = stand_ins(std::make_index_sequence<kKernelsMax>());
  std::vector<DvtKernel> kernels(table.kernels, table.kernels + table.count);
  for (size_t i = 0; i < kernels.size(); ++i) {
    real_kernels[i] = kernels[i].run;
    kernels[i].run = run[i];
  }
  return kernels;
}

class Subject {
 public:
  Subject(const std::string& path, const Model& model, const DvtKernelTable& table)
      : model_(model) {
    auto compiled = davit::compiler::compile_onnx_file(path, {});
    if (!compiled.ok()) give_up(compiled.status().to_string());
    bytes_ = std::move(compiled->bytes);
    DvtImageOptions options;
    dvt_image_options_init(&options);
    options.kernel_tables = &table;
    options.kernel_table_count = 1;
    DvtError error{};
    if (dvt_image_open_memory(bytes_.data(), bytes_.size(), &options, &image_, &error) != DVT_OK ||
        dvt_executor_create(image_, nullptr, &executor_, &error) != DVT_OK) {
      give_up(error.message);
    }
    buffers_.resize(dvt_image_input_count(image_));
    count_nodes();
  }
  ~Subject() {
    dvt_executor_destroy(executor_);
    dvt_image_close(image_);
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  void bind(int which) {
    DvtError error{};
    for (uint32_t i = 0; i < buffers_.size(); ++i) {
      DvtPortInfo info;
      if (dvt_image_input_info(image_, i, &info, &error) != DVT_OK) give_up(error.message);
      DvtTensor tensor{};
      tensor.dtype = info.tensor.dtype;
      const std::vector<int64_t>& dims = model_.shapes[which][i];
      if (dvt_set_shape(&tensor, uint32_t(dims.size()), dims.data()) != DVT_OK) give_up("shape");
      if (buffers_[i].size() * 8 < tensor.bytes) buffers_[i].resize(tensor.bytes / 8 + 1);
      if (dvt_executor_bind_input_tensor(executor_, i, &tensor, buffers_[i].data(), &error) !=
          DVT_OK) {
        give_up(error.message);
      }
    }
  }
  void run() {
    DvtError error{};
    if (dvt_executor_run(executor_, &error) != DVT_OK) give_up(error.message);
  }
  [[nodiscard]] double computing_nodes() const { return computing_; }
  [[nodiscard]] uint64_t system_allocations() const {
    DvtExecutorStatistics statistics;
    dvt_executor_statistics(executor_, &statistics);
    return statistics.heap_system_allocations;
  }

 private:
  void count_nodes() {
    DvtError error{};
    bind(0);
    const auto count = [](void* user, const DvtNodeEvent* event) {
      const std::string_view op = event->op;
      if (!op.starts_with("davit::")) *static_cast<double*>(user) += 1;
    };
    if (dvt_executor_run_observed(executor_, count, &computing_, &error) != DVT_OK) {
      give_up(error.message);
    }
  }

  const Model& model_;
  std::vector<std::byte> bytes_;
  DvtImage* image_ = nullptr;
  DvtExecutor* executor_ = nullptr;
  std::vector<std::vector<uint64_t>> buffers_;
  double computing_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("dynamic_bench", argc, argv, davit::bench::Parts::kWhole);
  const char* folder = std::getenv("DAVIT_MODELS_DIR");
  const std::vector<std::vector<int64_t>> one(3, {1, 128}), two(3, {4, 33});
  const Model models[] = {{"minilm_l6_dyn", {one, two}},
                          {"ch_PP-OCRv4_rec_infer", {{{1, 3, 48, 320}}, {{3, 3, 48, 112}}}}};
  const std::vector<DvtKernel> kernels = empty_kernels();
  const DvtKernelTable table = {kernels.data(), kernels.size()};
  for (const Model& model : models) {
    const std::string path = std::string(folder ? folder : ".") + "/" + model.name + ".onnx";
    if (!std::filesystem::exists(path)) {
      std::printf("left out: %s is not there\n", path.c_str());
      continue;
    }
    Subject subject(path, model, table);
    int turn = 0;
    const davit::bench::Contest contest = davit::bench::measure({[&] { subject.run(); },
                                                                 [&] {
                                                                   subject.bind(++turn % 2);
                                                                   subject.run();
                                                                 }});
    const uint64_t settled = subject.system_allocations();
    for (int i = 0; i < 100; ++i) {
      subject.bind(i % 2);
      subject.run();
    }
    report.add({.metric = std::string(model.name) + " allocations in steady state",
                .value = double(subject.system_allocations() - settled),
                .unit = "of 100 runs",
                .peer = "",
                .peer_value = {},
                .paired_ratio = {}},
               0);
    for (size_t i = 0; i < 2; ++i) {
      report.add({.metric = std::string(model.name) + (i == 0 ? " same shapes" : " other shapes"),
                  .value = contest.median_ns[i] / subject.computing_nodes(),
                  .unit = "ns per computing node",
                  .peer = "",
                  .peer_value = {},
                  .paired_ratio = {}},
                 kLimitNs);
    }
  }
  return report.finish();
}
