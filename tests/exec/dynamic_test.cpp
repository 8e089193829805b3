// Executors of images with dynamic shapes: binding, shapes that change from run to run, memory,
// failures.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/address_sanitizer.h"
#include "davit/davit.hpp"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Error;
using davit::Executor;
using davit::test::check_ok;
using davit::test::contains;
using davit::test::dynamic_control;
using davit::test::kDynamicSample;
using davit::test::TextImage;

namespace {

// An executor of kDynamicSample, what it is fed, and what must come out.
class Sample {
 public:
  explicit Sample(const char* source = kDynamicSample, uint64_t heap_bytes_max = 0)
      : text_(source), executor(load(text_, heap_bytes_max)) {
    dynamic_control = {};
    check_ok(executor.bind_output(3, std::span<int64_t>(dims_)));
    set_count(3);
  }
  ~Sample() { dynamic_control = {}; }

  Error bind(int64_t rows) {
    x_.resize(static_cast<size_t>(rows) * 4);
    for (size_t i = 0; i < x_.size(); ++i) {
      x_[i] = static_cast<float>(i + 1) * (i % 3 == 1 ? -1.0F : 1.0F);
    }
    const std::vector<int64_t> dims = {rows, 4};
    return executor.bind_input(0, std::span(x_), DVT_F32, dims);  // Of a vector that may change.
  }
  void set_count(int64_t count) {
    count_ = count;
    check_ok(executor.bind_input(1, std::span<const int64_t>(&count_, 1)));
  }

  // The outputs of the last run, wherever they are.
  void check_outputs() {
    std::vector<float> y, kept;
    std::vector<int64_t> where;
    for (const float element : x_) y.push_back(4 * element);
    for (int64_t i = 0; i < count_; ++i) {
      if (x_[static_cast<size_t>(i)] <= 0) continue;
      kept.push_back(2 * x_[static_cast<size_t>(i)]);
      where.push_back(i);
    }
    const auto rows = static_cast<int64_t>(x_.size() / 4);
    CHECK(read<float>(0, {rows, 4}) == y);
    CHECK(read<float>(1, {static_cast<int64_t>(kept.size())}) == kept);
    CHECK(read<int64_t>(2, {static_cast<int64_t>(kept.size())}) == where);
    CHECK(dims_ == std::array<int64_t, 2>{rows, 4});
  }
  void check_run() {
    check_ok(executor.run());
    check_outputs();
  }

  template <class T>
  std::vector<T> read(uint32_t index, const std::vector<int64_t>& dims) {
    const auto output = executor.output(index);
    INFO(output.error().text());
    REQUIRE(output);
    CHECK(std::vector<int64_t>(output->dims().begin(), output->dims().end()) == dims);
    const auto elements = output->as<T>();
    return {elements.begin(), elements.end()};
  }

 private:
  static Executor load(const TextImage& text, uint64_t heap_bytes_max) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.heap_bytes_max = heap_bytes_max;
    auto executor = Executor::create(text.image, &options);
    INFO(executor.error().text());
    REQUIRE(executor);
    return std::move(*executor);
  }

  TextImage text_;
  std::vector<float> x_;
  int64_t count_ = 0;
  std::array<int64_t, 2> dims_{};

 public:
  Executor executor;
};

// Nodes that a run visits, by their number in Main.
std::vector<uint32_t> visited(Executor& executor) {
  std::vector<uint32_t> nodes;
  check_ok(executor.run_observed([&](const DvtNodeEvent& event) { nodes.push_back(event.node); }));
  return nodes;
}

}  // namespace

// ---- Runs --------------------------------------------------------------------------------------

TEST_CASE("one image for all shapes: 1,000 runs, results right, memory flat") {
  Sample sample;
  const int64_t shapes[] = {1, 8, 3, 5, 2, 8, 7};
  DvtExecutorStatistics warm{};
  for (int run = 0; run < 1000; ++run) {
    const int64_t rows = shapes[static_cast<size_t>(run) % std::size(shapes)];
    check_ok(sample.bind(rows));
    sample.set_count(run % (4 * rows + 1));
    sample.check_run();
    if (run == 500) warm = sample.executor.statistics();
  }
  const DvtExecutorStatistics now = sample.executor.statistics();
  CHECK(now.heap_allocations > warm.heap_allocations);
  CHECK(now.heap_system_allocations == warm.heap_system_allocations);
  CHECK(now.heap_peak_bytes == warm.heap_peak_bytes);
}

TEST_CASE("shape nodes do not run again while the shapes stay") {
  Sample sample;
  check_ok(sample.bind(3));
  CHECK(visited(sample.executor).front() == 0);
  sample.check_outputs();
  CHECK(visited(sample.executor).front() == 5);
  sample.check_outputs();
  // The same shape with other data; another count.
  check_ok(sample.bind(3));
  sample.set_count(7);
  CHECK(visited(sample.executor).front() == 5);
  sample.check_outputs();
  // Another shape.
  check_ok(sample.bind(4));
  CHECK(visited(sample.executor).front() == 0);
  sample.check_outputs();
  CHECK(visited(sample.executor).size() == 22 - 5);
  // After a failure.
  dynamic_control = {.fail_run = 1};
  CHECK(sample.executor.run());
  dynamic_control = {};
  CHECK(visited(sample.executor).front() == 0);
  sample.check_outputs();
}

TEST_CASE("kernels of shape nodes are not called again either") {
  Sample sample;
  check_ok(sample.bind(3));
  sample.check_run();
  const uint32_t first = dynamic_control.runs;
  dynamic_control = {};
  sample.check_run();
  CHECK(dynamic_control.runs == first - 1);  // dyn.Shape.
}

TEST_CASE("shapes are remembered, the last few of each node") {
  Sample sample;
  for (int round = 0; round < 10; ++round) {
    for (const int64_t rows : {1, 2, 3, 4}) {
      check_ok(sample.bind(rows));
      check_ok(sample.executor.run());
    }
  }
  const DvtExecutorStatistics four = sample.executor.statistics();
  // Of seven InferShape nodes, the one that reads the count works anew each time and counts
  // nothing.
  CHECK(four.shape_misses <= 4 * 6);
  CHECK(four.shape_hits >= 9 * 4 * 5);
  dynamic_control = {};
  check_ok(sample.bind(1));
  sample.check_run();
  CHECK(dynamic_control.infers == 1);
}

TEST_CASE("one input binds an empty tensor, and all that follows is empty") {
  std::string text = kDynamicSample;
  for (size_t at = 0; (at = text.find("N=?1..8", at)) != std::string::npos; ++at) {
    text.replace(at, 7, "N=?0..8");
  }
  Sample sample(text.c_str());
  check_ok(sample.bind(0));
  sample.set_count(0);
  sample.check_run();
  check_ok(sample.bind(2));
  sample.set_count(2);
  sample.check_run();
}

// ---- Inputs ------------------------------------------------------------------------------------

TEST_CASE("shapes that the image does not take are refused, and change nothing") {
  Sample sample;
  check_ok(sample.bind(3));
  const std::vector<float> data(1000);
  const auto refused = [&](DvtDType dtype, std::vector<int64_t> dims) {
    const Error error =
        sample.executor.bind_input(0, std::span<const float>(data), dtype, std::span(dims));
    REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
    CHECK(error.detail()->stage == DVT_STAGE_BIND);
    CHECK(error.detail()->tensor == std::string("x"));
    return std::string(error.detail()->expected) + " / " + error.detail()->got;
  };
  CHECK(refused(DVT_F32, {9, 4}) == "f32[N=1..8,4] / f32[9,4]");
  CHECK(refused(DVT_F32, {0, 4}) == "f32[N=1..8,4] / f32[0,4]");
  CHECK(refused(DVT_F32, {3, 5}) == "f32[N=1..8,4] / f32[3,5]");
  CHECK(refused(DVT_F32, {12}) == "f32[N=1..8,4] / f32[12]");
  CHECK(refused(DVT_F32, {1, 3, 4}) == "f32[N=1..8,4] / f32[1,3,4]");
  CHECK(refused(DVT_F32, {}) == "f32[N=1..8,4] / f32[]");
  CHECK(refused(DVT_I32, {3, 4}) == "f32 / i32");
  sample.check_run();
  CHECK(dynamic_control.runs > 0);
}

TEST_CASE("tensors that are none are refused by the C API") {
  Sample sample;
  const std::vector<float> data(64);
  DvtError error;
  const auto bind = [&](const DvtTensor& tensor, const void* buffer) {
    return dvt_executor_bind_input_tensor(sample.executor.get(), 0, &tensor, buffer, &error);
  };
  DvtTensor tensor{.dtype = DVT_F32, .rank = 2, .dims = {3, 4}};
  CHECK(bind(tensor, data.data()) == DVT_OK);
  CHECK(bind(tensor, nullptr) == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.message, "null"));
  CHECK(bind(tensor, reinterpret_cast<const char*>(data.data()) + 1) == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.message, "aligned"));
  for (const int64_t dim : {int64_t{-1}, INT64_MIN, INT64_MAX}) {
    tensor.dims[0] = dim;
    CHECK(bind(tensor, data.data()) == DVT_INVALID_ARGUMENT);
  }
  for (const uint8_t rank : {9, 254, 255}) {
    tensor.rank = rank;
    CHECK(bind(tensor, data.data()) == DVT_INVALID_ARGUMENT);
  }
  CHECK(dvt_executor_bind_input_tensor(sample.executor.get(), 0, nullptr, data.data(), &error) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_input_tensor(nullptr, 0, &tensor, data.data(), &error) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_input_tensor(sample.executor.get(), 7, &tensor, data.data(), &error) ==
        DVT_INVALID_ARGUMENT);
}

TEST_CASE("a refused buffer leaves shape and buffer of before in place") {
  Sample sample;
  check_ok(sample.bind(2));
  DvtError error;
  // Were its shape taken, the run would read eight rows of a buffer of two.
  const DvtTensor tensor{.dtype = DVT_F32, .rank = 2, .dims = {8, 4}};
  CHECK(dvt_executor_bind_input_tensor(sample.executor.get(), 0, &tensor, nullptr, &error) ==
        DVT_INVALID_ARGUMENT);
  sample.check_run();
}

TEST_CASE("a dynamic input needs a shape first, and then may change its buffer alone") {
  Sample sample;
  std::vector<float> data(12, 1.0F);
  const Error early = sample.executor.bind_input(0, std::span<const float>(data));
  REQUIRE(early.code() == DVT_FAILED_STATE);
  CHECK(early.detail()->tensor == std::string("x"));
  CHECK(contains(early.detail()->hint, "dvt_executor_bind_input_tensor"));
  CHECK(sample.executor.run().code() == DVT_FAILED_STATE);
  check_ok(sample.bind(3));
  check_ok(sample.executor.run());
  check_ok(sample.executor.bind_input(0, std::span<const float>(data)));
  check_ok(sample.executor.run());
  CHECK(sample.read<float>(0, {3, 4}) == std::vector<float>(12, 4.0F));
  const Error small = sample.executor.bind_input(0, std::span<const float>(data).first(11));
  REQUIRE(small.code() == DVT_INVALID_ARGUMENT);
  CHECK(small.detail()->expected == std::string("f32[3,4], 48 bytes"));
}

TEST_CASE("a dynamic input whose dims the image knows needs its shape all the same") {
  const TextImage text(R"(davit 1.2 target cpu
input x: f32[4] dynamic
output y: f32[?] dynamic
graph main {
  y = InferShape(x) {target=2}
  y = BindOutput() {output=0}
  y = dyn.Double(x)
}
)");
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  const std::array<float, 4> data = {1, 2, 3, 4};
  CHECK(executor->bind_input(0, std::span<const float>()).code() == DVT_FAILED_STATE);
  const int64_t dims[] = {4};
  check_ok(executor->bind_input(0, std::span<const float>(data), DVT_F32, dims));
  check_ok(executor->run());
  CHECK(executor->output(0)->as<float>()[3] == 8);
}

TEST_CASE("any shape is bound where the rank is unknown") {
  const TextImage text(R"(davit 1.2 target cpu
input x: f32[...] dynamic
output y: f32[...] dynamic
graph main shape_nodes=2 {
  y = InferShape(x) {target=2}
  y = BindOutput() {output=0}
  y = dyn.Double(x)
}
)");
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  const std::array<float, 8> data = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {}, {8}, {2, 4}, {1, 1, 1, 1, 1, 1, 1, 8}, {0, 7}, {4, 2}, {3}}) {
    check_ok(executor->bind_input(0, std::span<const float>(data), DVT_F32, dims));
    check_ok(executor->run());
    const auto y = executor->output(0);
    REQUIRE(y);
    CHECK(std::vector<int64_t>(y->dims().begin(), y->dims().end()) == dims);
    for (size_t i = 0; i < y->as<float>().size(); ++i) CHECK(y->as<float>()[i] == 2 * data[i]);
  }
  const std::vector<int64_t> nine(9, 1);
  CHECK(executor->bind_input(0, std::span<const float>(data), DVT_F32, nine));
  const auto info = text.image.input(0);
  REQUIRE(info);
  CHECK(info->tensor.rank == DVT_RANK_UNKNOWN);
}

TEST_CASE("a static input takes its one shape") {
  Sample sample;
  const int64_t count = 2;
  const DvtTensor wrong{.dtype = DVT_I64, .rank = 1, .dims = {1}};
  const DvtTensor right{.dtype = DVT_I64, .rank = 0};
  DvtError error;
  CHECK(dvt_executor_bind_input_tensor(sample.executor.get(), 1, &wrong, &count, &error) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_input_tensor(sample.executor.get(), 1, &right, &count, &error) == DVT_OK);
}

TEST_CASE("ports tell what is known of their shapes") {
  const TextImage text(kDynamicSample);
  const auto x = text.image.input(0);
  REQUIRE(x);
  CHECK((x->tensor.flags & DVT_TENSOR_DYNAMIC) != 0);
  CHECK(x->tensor.dims[0] == -1);
  CHECK(x->tensor.bytes == 0);
  CHECK(x->dims_min[0] == 1);
  CHECK(x->dims_max[0] == 8);
  CHECK(x->symbols[0] == std::string("N"));
  CHECK(x->dims_min[1] == 4);
  CHECK(x->dims_max[1] == 4);
  const auto where = text.image.output(2);
  REQUIRE(where);
  CHECK(where->dims_min[0] == 0);
  CHECK(where->dims_max[0] == INT64_MAX);
}

// ---- Outputs -----------------------------------------------------------------------------------

TEST_CASE("outputs go to the caller's buffers, and back to the executor's") {
  Sample sample;
  std::vector<float> y(100, -1.0F);
  std::vector<float> other(100, -1.0F);
  check_ok(sample.bind(3));
  check_ok(sample.executor.bind_output(0, std::span<float>(y)));
  sample.check_run();
  CHECK(sample.executor.output(0)->data == y.data());
  CHECK(y[11] == 48);
  CHECK(y[12] == -1);
  // Rebound between runs of one shape: the shape nodes that bound the first do not run again.
  check_ok(sample.executor.bind_output(0, std::span<float>(other)));
  y.assign(100, -1.0F);
  sample.check_run();
  CHECK(other[11] == 48);
  CHECK(y[11] == -1);
  check_ok(sample.executor.unbind_output(0));
  other.assign(100, -1.0F);
  sample.check_run();
  CHECK(other[11] == -1);
  CHECK(sample.executor.output(0)->data != other.data());
}

TEST_CASE("a buffer that is too small stops the run before anything is computed") {
  Sample sample;
  std::vector<float> y(100, -1.0F);
  check_ok(sample.bind(3));
  check_ok(sample.executor.bind_output(0, std::span(y).first(11)));
  const Error error = sample.executor.run();
  REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.detail()->message,
                 "the buffer of output 'y' is too small: expected 48 bytes, got 44"));
  CHECK(dynamic_control.runs == 0);
  CHECK(y[0] == -1);
  CHECK(sample.executor.statistics().heap_live_bytes == 0);
  // A larger one, and a smaller shape, will do.
  check_ok(sample.executor.bind_output(0, std::span(y).first(12)));
  sample.check_run();
  check_ok(sample.executor.bind_output(0, std::span(y).first(4)));
  CHECK(sample.executor.run());
  check_ok(sample.bind(1));
  sample.check_run();
  check_ok(sample.bind(2));
  CHECK(sample.executor.run());
}

TEST_CASE("where a shape depends on data, the buffer takes the largest") {
  Sample sample;
  std::vector<float> kept(100);
  check_ok(sample.bind(3));
  sample.set_count(6);
  check_ok(sample.executor.bind_output(1, std::span(kept).first(5)));
  const Error error = sample.executor.run();
  REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.detail()->message, "output 'kept'"));
  check_ok(sample.executor.bind_output(1, std::span(kept).first(6)));
  sample.check_run();
  CHECK(sample.executor.output(1)->dims()[0] == 4);
}

TEST_CASE("buffers of dynamic ports do not overlap") {
  Sample sample;
  std::vector<float> shared(100);
  check_ok(sample.bind(3));
  check_ok(sample.executor.bind_output(0, std::span(shared).first(12)));
  check_ok(sample.executor.bind_output(1, std::span(shared).subspan(11)));
  CHECK(contains(sample.executor.run().text(), "overlaps that of another output"));
  check_ok(sample.executor.bind_output(1, std::span(shared).subspan(12)));
  sample.check_run();
  const int64_t dims[] = {3, 4};
  check_ok(sample.executor.bind_input(0, std::span<const float>(shared).first(12), DVT_F32, dims));
  CHECK(contains(sample.executor.run().text(), "overlaps that of an input"));
}

TEST_CASE("results are there after a run that succeeded, until outputs are bound") {
  Sample sample;
  CHECK(sample.executor.output(0).error().code() == DVT_FAILED_STATE);
  check_ok(sample.bind(3));
  sample.check_run();
  CHECK(sample.executor.output(9).error().code() == DVT_INVALID_ARGUMENT);
  CHECK(sample.executor.output(3)->as<int64_t>()[0] == 3);  // A static one.
  check_ok(sample.executor.unbind_output(0));
  CHECK(sample.executor.output(0).error().code() == DVT_FAILED_STATE);
  sample.check_run();
  dynamic_control = {.fail_run = 0};
  CHECK(sample.executor.run());
  CHECK(sample.executor.output(0).error().code() == DVT_FAILED_STATE);
  dynamic_control = {};
  sample.check_run();
  check_ok(sample.executor.unload());
  CHECK(sample.executor.output(0).error().code() == DVT_FAILED_STATE);
  CHECK(sample.bind(3).code() == DVT_FAILED_STATE);
  DvtTensor tensor;
  CHECK(dvt_executor_output_tensor(nullptr, 0, &tensor, nullptr, nullptr) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_output_tensor(sample.executor.get(), 0, nullptr, nullptr, nullptr) ==
        DVT_INVALID_ARGUMENT);
}

TEST_CASE("what is no buffer of a dynamic output is refused") {
  Sample sample;
  std::array<float, 8> data{};
  DvtError error;
  CHECK(dvt_executor_bind_output(sample.executor.get(), 0, nullptr, 16, &error) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_output(sample.executor.get(), 0, reinterpret_cast<char*>(data.data()) + 2,
                                 16, &error) == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.message, "aligned"));
  CHECK(error.tensor == std::string("y"));
}

// ---- Failures ----------------------------------------------------------------------------------

TEST_CASE("numbers that steer a kernel are checked before it runs") {
  Sample sample;
  check_ok(sample.bind(3));
  for (const auto& [count, why] : {std::pair<int64_t, const char*>{-1, "no shape fits"},
                                   {INT64_MIN, "no shape fits"},
                                   {INT64_MAX, "no shape fits"},
                                   {13, "takes more than there is"}}) {
    sample.set_count(count);
    const Error error = sample.executor.run();
    REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
    CHECK(contains(error.detail()->message, why));
    CHECK(contains(error.detail()->message, "InferShape"));
    CHECK(sample.executor.statistics().heap_live_bytes == 0);
  }
  sample.set_count(12);
  sample.check_run();
}

TEST_CASE("a kernel fails, each in turn: named, memory returned, the next run right") {
  for (uint32_t failing = 0;; ++failing) {
    Sample sample;
    check_ok(sample.bind(3));
    dynamic_control = {.fail_run = failing};
    const Error error = sample.executor.run();
    if (!error) {
      CHECK(failing == 6);
      break;
    }
    CHECK(error.code() == DVT_KERNEL_FAILED);
    const char* const names[] = {"shape", "double", "take", "keep", "add", "halves"};
    CHECK(error.detail()->node == std::string(names[failing]));
    CHECK(sample.executor.statistics().heap_live_bytes == 0);
    dynamic_control = {};
    sample.check_run();
    sample.check_run();
  }
}

TEST_CASE("a shape function fails, each in turn") {
  uint32_t failing = 0;
  for (;; ++failing) {
    Sample sample;
    check_ok(sample.bind(3));
    dynamic_control = {.fail_infer = failing};
    const Error error = sample.executor.run();
    if (!error) break;
    CHECK(error.code() == DVT_INVALID_ARGUMENT);
    CHECK(contains(error.detail()->message, "InferShape failed: it was told to fail"));
    CHECK(sample.executor.statistics().heap_live_bytes == 0);
    dynamic_control = {};
    sample.check_run();
    sample.check_run();
  }
  CHECK(failing == 7);
}

// Of a small value: red zones come with AddressSanitizer.
constexpr uint64_t kBlockBytes = DVT_ADDRESS_SANITIZER ? 128 : 64;

TEST_CASE("memory runs out, wherever it may: named, all returned, smaller shapes run") {
  uint32_t failures = 0;
  for (uint64_t limit = 64;; limit += 32) {
    Sample sample(kDynamicSample, limit);
    check_ok(sample.bind(8));
    sample.set_count(30);
    const Error error = sample.executor.run();
    if (!error) {
      sample.check_outputs();
      break;
    }
    ++failures;
    CHECK(error.code() == DVT_OUT_OF_MEMORY);
    CHECK(contains(error.detail()->message, " asks the host for "));
    CHECK(contains(error.detail()->message, "the limit is reached"));
    CHECK(contains(error.detail()->expected, std::to_string(limit) + " bytes"));
    CHECK(contains(error.detail()->got, " live, "));
    CHECK(sample.executor.statistics().heap_live_bytes == 0);
    CHECK(sample.executor.run().code() == DVT_OUT_OF_MEMORY);
    if (limit < 7 * kBlockBytes) continue;
    check_ok(sample.bind(1));
    sample.set_count(1);
    sample.check_run();
  }
  CHECK(failures > 5);
}

TEST_CASE("without dynamic values there is no heap, and statistics are zero") {
  const TextImage text(davit::test::chain_text(2));
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  const DvtExecutorStatistics statistics = executor->statistics();
  CHECK(statistics.heap_allocations == 0);
  CHECK(statistics.shape_misses == 0);
  DvtExecutorStatistics zero;
  std::memset(&zero, 1, sizeof zero);
  dvt_executor_statistics(nullptr, &zero);
  CHECK(zero.heap_live_bytes == 0);
  dvt_executor_statistics(executor->get(), nullptr);
}

TEST_CASE("options of the version before this one have no limit") {
  const TextImage text(kDynamicSample);
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.heap_bytes_max = 1;  // Beyond what that version knows of.
  options.struct_size = offsetof(DvtExecutorOptions, heap_bytes_max);
  CHECK(Executor::create(text.image, &options));
}
