// Shapes of outputs that the caller gives: checked, or trusted.
#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <string>
#include <vector>

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

// An executor of kDynamicSample: y = 4 x; kept depends on data; dims is static.
class Sample {
 public:
  explicit Sample(bool trust) : text_(kDynamicSample), executor(load(text_, trust)) {
    dynamic_control = {};
    std::iota(x_.begin(), x_.end(), 1.0F);
    check_ok(executor.bind_output(3, std::span<int64_t>(dims_)));
    check_ok(executor.bind_input(1, std::span<const int64_t>(&count_, 1)));
    bind(3);
  }
  ~Sample() { dynamic_control = {}; }

  void bind(int64_t rows) {
    const int64_t dims[] = {rows, 4};
    check_ok(executor.bind_input(0, std::span<const float>(x_), DVT_F32,
                                 std::span<const int64_t>(dims)));
  }
  Error expect(uint32_t output, const std::vector<int64_t>& dims, std::span<float> data = {},
               DvtDType dtype = DVT_F32) {
    return executor.bind_output(output, data, dtype, dims);
  }
  std::vector<int64_t> dims_of(uint32_t output) {
    const auto found = executor.output(output);
    REQUIRE(found);
    return {found->dims().begin(), found->dims().end()};
  }

 private:
  static Executor load(const TextImage& text, bool trust) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.trust_output_shapes = trust ? 1 : 0;
    auto executor = Executor::create(text.image, &options);
    INFO(executor.error().text());
    REQUIRE(executor);
    return std::move(*executor);
  }

  TextImage text_;
  std::array<float, 32> x_{};
  std::array<int64_t, 2> dims_{};
  int64_t count_ = 5;

 public:
  Executor executor;
};

}  // namespace

TEST_CASE("a shape that was given is checked before anything is computed") {
  Sample sample(/*trust=*/false);
  check_ok(sample.expect(0, {3, 4}));
  check_ok(sample.executor.run());
  check_ok(sample.executor.run());
  check_ok(sample.expect(0, {4, 4}));
  dynamic_control = {};
  const Error error = sample.executor.run();
  CHECK(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.text(), "output 'y' has another shape than was given"));
  CHECK(contains(error.text(), "expected [3,4], got [4,4]"));
  CHECK(dynamic_control.runs == 0);
  // The input follows, or what was said is taken back.
  sample.bind(4);
  check_ok(sample.executor.run());
  CHECK(sample.dims_of(0) == std::vector<int64_t>{4, 4});
  sample.bind(2);
  CHECK(sample.executor.run().code() == DVT_INVALID_ARGUMENT);
  check_ok(sample.executor.unbind_output(0));
  check_ok(sample.executor.run());
}

TEST_CASE("a shape that depends on data is checked at the end of the run") {
  Sample sample(/*trust=*/false);
  check_ok(sample.expect(1, {5}));
  check_ok(sample.executor.run());
  check_ok(sample.expect(1, {4}));
  const Error error = sample.executor.run();
  CHECK(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.text(), "kept"));
  CHECK(contains(error.text(), "f32[5]"));
  CHECK(contains(error.text(), "f32[4]"));
  CHECK(!sample.executor.output(0));
  check_ok(sample.expect(1, {5}));
  check_ok(sample.executor.run());
}

TEST_CASE("what cannot be the shape of the output is refused at once") {
  Sample sample(/*trust=*/false);
  std::array<float, 4> small{};
  CHECK(contains(sample.expect(0, {3, 4}, small).text(), "too small"));
  CHECK(contains(sample.expect(0, {9, 4}).text(), "does not fit the port"));
  CHECK(contains(sample.expect(0, {3, 4}, {}, DVT_I32).text(), "element type"));
  CHECK(sample.expect(9, {1}).code() == DVT_INVALID_ARGUMENT);
  // A static output has its one shape.
  std::array<int64_t, 2> dims{};
  const int64_t right[] = {2};
  const int64_t wrong[] = {3};
  check_ok(
      sample.executor.bind_output(3, std::span(dims), DVT_I64, std::span<const int64_t>(right)));
  CHECK(sample.executor.bind_output(3, std::span(dims), DVT_I64, std::span<const int64_t>(wrong))
            .code() == DVT_INVALID_ARGUMENT);
  check_ok(sample.executor.run());
  CHECK(dims == std::array<int64_t, 2>{3, 4});
  CHECK(dvt_executor_bind_output_tensor(nullptr, 0, nullptr, nullptr, 0, nullptr) ==
        DVT_INVALID_ARGUMENT);
}

TEST_CASE("a trusted shape is not inferred") {
  std::array<float, 12> y{};
  uint32_t infers[2] = {};
  for (const bool trust : {false, true}) {
    Sample sample(trust);
    check_ok(sample.expect(0, {3, 4}, y));
    check_ok(sample.executor.run());
    CHECK(y[11] == 48.0F);
    infers[trust ? 1 : 0] = dynamic_control.infers;
  }
  CHECK(infers[1] + 1 == infers[0]);
}

TEST_CASE("a trusted shape that is wrong is stopped by the kernel's check") {
  Sample sample(/*trust=*/true);
  check_ok(sample.expect(0, {2, 4}));
  CHECK(sample.executor.run().code() == DVT_INVALID_ARGUMENT);
  check_ok(sample.expect(0, {3, 4}));
  check_ok(sample.executor.run());
  // Not said any more: inferred again.
  check_ok(sample.executor.unbind_output(0));
  sample.bind(2);
  check_ok(sample.executor.run());
  CHECK(sample.dims_of(0) == std::vector<int64_t>{2, 4});
}
