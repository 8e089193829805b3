// read_line: reads the line of text in a picture, with a PP-OCR recogniser compiled to an image.
//
//   read_line MODEL.davit DICTIONARY.txt PICTURE.png
//
// The image says which device it wants. On the Ascend model the program prints the predicted time
// of the run and its most expensive operators; on the cpu it prints the median latency of a few
// runs.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "davit/npu.h"
#include "recognise.hpp"

namespace {

constexpr int kTimedRuns = 5;
constexpr size_t kTopOperators = 5;

int fail(const std::string& what) {
  std::fprintf(stderr, "read_line: %s\n", what.c_str());
  return 1;
}

struct NpuCloser {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};
using Npu = std::unique_ptr<DvtNpu, NpuCloser>;

// Median of a few runs, in milliseconds; the outputs are those of the last one.
davit::Expected<double> time_runs(davit::Executor& executor) {
  std::array<double, kTimedRuns> milliseconds{};
  for (double& time : milliseconds) {
    const auto begin = std::chrono::steady_clock::now();
    if (davit::Error error = executor.run()) return error;
    time =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds[kTimedRuns / 2];
}

// What the model predicts for the latest run.
void print_prediction(const DvtNpu* npu, const std::string& target) {
  DvtNpuRun run{};
  if (dvt_npu_run(npu, dvt_npu_run_count(npu) - 1, &run) != DVT_OK) return;
  std::printf("predicted time on %s: %.3f ms (%llu device tasks)\n", target.c_str(),
              static_cast<double>(run.end_ps - run.begin_ps) * 1e-9,
              static_cast<unsigned long long>(run.task_count));
  std::array<DvtNpuOperator, kTopOperators> rows{};
  const uint64_t count =
      dvt_npu_operators(npu, run.first_task, run.task_count, rows.data(), rows.size());
  std::printf("  %-34s %-16s %6s %11s %7s\n", "operator", "task type", "calls", "total us", "%");
  for (size_t i = 0; i < std::min<uint64_t>(count, rows.size()); ++i) {
    std::printf("  %-34s %-16s %6llu %11.2f %7.1f\n", rows[i].op,
                dvt_npu_task_type_name(rows[i].type),
                static_cast<unsigned long long>(rows[i].count),
                static_cast<double>(rows[i].total_ps) * 1e-6,
                static_cast<double>(rows[i].share_ppm) * 1e-4);
  }
}

// The recogniser's shapes: [1][3][height][width] in, [1][steps][classes] out.
bool is_recogniser(const DvtPortInfo& input, const DvtPortInfo& output) {
  return input.tensor.dtype == DVT_F32 && input.tensor.rank == 4 && input.tensor.dims[0] == 1 &&
         input.tensor.dims[1] == 3 && output.tensor.dtype == DVT_F32 && output.tensor.rank == 3 &&
         output.tensor.dims[0] == 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: read_line MODEL.davit DICTIONARY.txt PICTURE.png\n");
    return 2;
  }
  const auto dictionary = ocr::load_dictionary(argv[2]);
  if (!dictionary) return fail(std::string(argv[2]) + ": not readable");
  std::string reason;
  const auto picture = ocr::load_png(argv[3], reason);
  if (!picture) return fail(reason);

  davit::Expected<davit::Image> image = davit::Image::open(argv[1]);
  if (!image) return fail(image.error().text());
  if (image->input_count() != 1 || image->output_count() != 1) {
    return fail("this image is not a recogniser: it has more than one input or output");
  }
  const davit::Expected<DvtPortInfo> input = image->input(0);
  const davit::Expected<DvtPortInfo> output = image->output(0);
  if (!input || !output || !is_recogniser(*input, *output)) {
    return fail("this image is not a recogniser: its input or output has another shape");
  }

  // A cpu image needs no device. The device must outlive the executor.
  const std::string target = image->target();
  Npu npu;
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  if (target.starts_with("ascend:")) {
    const std::string soc = target.substr(std::strlen("ascend:"));
    DvtNpuOptions npu_options;
    dvt_npu_options_init(&npu_options);
    npu_options.soc = soc.c_str();
    DvtNpu* raw = nullptr;
    DvtError error;
    if (dvt_npu_create(&npu_options, &raw, &error) != DVT_OK) return fail(error.message);
    npu.reset(raw);
    options.device = dvt_npu_device(raw);
  }
  davit::Expected<davit::Executor> executor = davit::Executor::create(*image, &options);
  if (!executor) return fail(executor.error().text());

  const std::vector<float> pixels =
      ocr::picture_to_tensor(*picture, input->tensor.dims[2], input->tensor.dims[3]);
  std::vector<float> probabilities(output->tensor.bytes / sizeof(float));
  if (davit::Error error = executor->bind_input(0, std::span<const float>(pixels))) {
    return fail(error.text());
  }
  if (davit::Error error = executor->bind_output(0, std::span<float>(probabilities))) {
    return fail(error.text());
  }

  const davit::Expected<double> milliseconds = time_runs(*executor);
  if (!milliseconds) return fail(milliseconds.error().text());
  std::printf("text: %s\n", ocr::decode(probabilities, output->tensor.dims[1],
                                        output->tensor.dims[2], *dictionary)
                                .c_str());
  if (npu) {
    print_prediction(npu.get(), target);
  } else {
    std::printf("latency on the cpu: %.2f ms (median of %d runs, 1 thread)\n", *milliseconds,
                kTimedRuns);
  }
  return 0;
}
