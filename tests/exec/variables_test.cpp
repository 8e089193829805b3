// Variables: an input and an output that are one thing, of static and of dynamic shape.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "davit/davit.hpp"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Error;
using davit::Executor;
using davit::test::TextImage;

namespace {

using Floats = std::array<float, 4>;
using Bytes = std::span<std::byte>;

void check_refused(const Error& error, const std::string& part,
                   DvtCode code = DVT_INVALID_ARGUMENT) {
  const std::string text = error.text();
  INFO(text);
  CHECK(error.code() == code);
  CHECK(text.find(part) != std::string::npos);
}

// y = x + 1, z = 2 x + 1; nobody reads w.
constexpr const char* kCounter = R"(davit 1.0 target cpu
input x: f32[4]
input w: f32[2, 2]
output y: f32[4]
output z: f32[4]
graph main {
  y = t.Sum(x)
  z = t.Sum(x, x)
}
)";

struct Counter {
  Counter() : text(kCounter), executor(std::move(*Executor::create(text.image))) {
    REQUIRE(!executor.bind_input(1, std::span<const float>(w)));
    REQUIRE(!executor.bind_output(1, std::span<float>(z)));
  }
  Error run() { return executor.run(); }
  Floats value() {
    const auto data = executor.variable(0);
    INFO(data.error().text());
    REQUIRE(data);
    Floats value{};
    std::memcpy(value.data(), *data, sizeof value);
    return value;
  }

  TextImage text;
  Executor executor;
  Floats w{}, z{};
};

struct alignas(64) Halves {
  std::array<std::byte, 128> bytes{};
  Bytes span() { return bytes; }
};

}  // namespace

TEST_CASE("a variable keeps what a run leaves for the next one") {
  Counter counter;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  CHECK(counter.value() == Floats{});
  for (int run = 1; run <= 5; ++run) {
    const Error error = counter.run();
    INFO(error.text());
    REQUIRE(!error);
    const auto value = static_cast<float>(run);
    CHECK(counter.value() == Floats{value, value, value, value});
    CHECK(counter.z[0] == 2 * (value - 1) + 1);  // Of the value before.
    const auto output = counter.executor.output(0);
    REQUIRE(output);
    CHECK(output->as<float>()[3] == value);
    CHECK(output->data == *counter.executor.variable(0));
  }
  // It may be written between runs.
  *static_cast<float*>(*counter.executor.variable(0)) = 100;
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{101, 6, 6, 6});
}

TEST_CASE("a run that fails changes no variable") {
  Counter counter;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  REQUIRE(!counter.run());
  davit::test::sum_hook = [](uint32_t node) -> DvtCode {
    return node == 1 ? DVT_KERNEL_FAILED : DVT_OK;
  };
  for (int run = 0; run < 3; ++run) CHECK(counter.run().code() == DVT_KERNEL_FAILED);
  davit::test::sum_hook = nullptr;
  CHECK(counter.value() == Floats{1, 1, 1, 1});
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{2, 2, 2, 2});
}

TEST_CASE("a variable in memory of the caller's outlives its executor") {
  Halves halves;
  const Floats start = {5, 6, 7, 8};
  std::memcpy(halves.bytes.data(), start.data(), sizeof start);
  {
    Counter counter;
    REQUIRE(!counter.executor.bind_variable(0, 0, halves.span()));
    REQUIRE(!counter.run());
    REQUIRE(!counter.run());
    CHECK(*counter.executor.variable(0) == halves.bytes.data());
  }
  Counter next;
  REQUIRE(!next.executor.bind_variable(0, 0, halves.span()));
  CHECK(next.value() == Floats{7, 8, 9, 10});
}

TEST_CASE("variables that will not do are refused, and what was bound stays") {
  Counter counter;
  Halves halves, other;
  Executor& executor = counter.executor;
  REQUIRE(!executor.bind_variable(0, 0, halves.span()));
  check_refused(executor.bind_variable(0, 0, halves.span().first(127)),
                "is too small; expected 128 bytes; got 127 bytes");
  check_refused(executor.bind_variable(0, 0, other.span().subspan(4)), "is too small");
  std::vector<std::byte> large(512);
  const auto skew = 4 + (64 - reinterpret_cast<uintptr_t>(large.data()) % 64) % 64;
  check_refused(executor.bind_variable(0, 0, Bytes(large).subspan(skew, 128)), "is not aligned");
  check_refused(executor.bind_variable(1, 0), "of one type");
  check_refused(executor.bind_variable(2, 0), "there is no such input; expected an index below 2");
  check_refused(executor.bind_variable(0, 2), "there is no such output; expected an index below 2");
  CHECK(dvt_executor_bind_variable(executor.get(), 0, 0, nullptr, 128, nullptr) ==
        DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_variable(nullptr, 0, 0, nullptr, 0, nullptr) == DVT_INVALID_ARGUMENT);
  CHECK(executor.variable(1).error().code() == DVT_INVALID_ARGUMENT);
  CHECK(executor.variable(9).error().code() == DVT_INVALID_ARGUMENT);
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{1, 1, 1, 1});

  // Somebody else's memory in a half is found by the next run.
  REQUIRE(!executor.bind_output(1, std::span(halves.bytes).last(64)));
  check_refused(counter.run(), "overlaps");
  REQUIRE(!executor.bind_output(1, std::span<float>(counter.z)));
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{2, 2, 2, 2});
  // Also in the half that is an output only after the next run.
  REQUIRE(executor.variable(0));
  const auto* current = static_cast<const float*>(*executor.variable(0));
  REQUIRE(!executor.bind_input(1, std::span(current, 4)));
  check_refused(counter.run(), "a bound buffer overlaps a variable; tensor w");
  REQUIRE(!executor.bind_input(1, std::span<const float>(counter.w)));
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{3, 3, 3, 3});
  CHECK(!executor.unload());
  check_refused(executor.bind_variable(0, 0), "unloaded", DVT_FAILED_STATE);
}

TEST_CASE("binding either port ends a variable") {
  for (const bool by_input : {true, false}) {
    Counter counter;
    Executor& executor = counter.executor;
    REQUIRE(!executor.bind_variable(0, 0));
    REQUIRE(!counter.run());
    Floats x = {1, 2, 3, 4}, y{};
    if (by_input) {
      REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    } else {
      REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    }
    check_refused(counter.run(), by_input ? "an output is not bound" : "an input is not bound",
                  DVT_FAILED_STATE);
    CHECK(!executor.variable(0));
    REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    REQUIRE(!counter.run());
    CHECK(y == Floats{2, 3, 4, 5});
    // An output that was part of another variable becomes part of this one.
    REQUIRE(!executor.bind_variable(0, 0));
    REQUIRE(!executor.bind_variable(0, 1));
    check_refused(counter.run(), "an output is not bound", DVT_FAILED_STATE);
  }
}

TEST_CASE("a variable in memory of the executor's is on its account") {
  Counter counter;
  const uint64_t before = counter.executor.host_memory().mapped_bytes;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  CHECK(counter.executor.host_memory().mapped_bytes == before + 4096);
}

// ---- Dynamic shapes ----------------------------------------------------------------------------

namespace {

// kDynamicSample: y = 4 x, and kept = the positive ones of the first `count` elements of 2 x.
class Quadruple {
 public:
  explicit Quadruple(const std::string& source = davit::test::kDynamicSample,
                     uint64_t heap_bytes_max = 0, DvtPool* pool = nullptr)
      : text_(source), executor(load(text_, heap_bytes_max, pool)) {
    REQUIRE(!executor.bind_input(1, std::span<const int64_t>(&count_, 1)));
    REQUIRE(!executor.bind_output(3, std::span<int64_t>(dims_)));
  }

  Error set(std::vector<float> value) {
    const std::vector<int64_t> dims = {static_cast<int64_t>(value.size() / 4), 4};
    return executor.set_variable(0, std::span<const float>(value), DVT_F32, dims);
  }
  std::vector<float> value() {
    const auto variable = executor.variable_tensor(0);
    INFO(variable.error().text());
    REQUIRE(variable);
    REQUIRE(variable->tensor.dtype == DVT_F32);
    const auto* data = static_cast<const float*>(variable->data);
    CHECK(data == *executor.variable(0));
    return {data, data + variable->tensor.bytes / sizeof(float)};
  }
  void check_run(std::vector<float> wanted) {
    for (float& element : wanted) element *= 4;
    const Error error = executor.run();
    INFO(error.text());
    REQUIRE(!error);
    CHECK(value() == wanted);
    const auto output = executor.output(0);
    REQUIRE(output);
    CHECK(output->data == *executor.variable(0));
    CHECK(output->tensor.bytes == wanted.size() * sizeof(float));
  }

 private:
  static Executor load(const TextImage& text, uint64_t heap_bytes_max, DvtPool* pool) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.heap_bytes_max = heap_bytes_max;
    options.pool = pool;
    options.schedule = pool == nullptr ? DVT_SCHEDULE_AUTO : DVT_SCHEDULE_DYNAMIC;
    auto executor = Executor::create(text.image, &options);
    INFO(executor.error().text());
    REQUIRE(executor);
    return std::move(*executor);
  }

  TextImage text_;
  int64_t count_ = 3;
  std::array<int64_t, 2> dims_{};

 public:
  Executor executor;
};

std::vector<float> rows(int64_t count, float value) {
  return std::vector<float>(static_cast<size_t>(4 * count), value);
}

// `s` becomes its own positive elements: fewer from run to run.
constexpr const char* kFilter = R"(davit 1.3 target cpu
input s: f32[?] dynamic
output kept: f32[?] dynamic
output where: i64[?] dynamic
graph main {
  n0: kept, where = InferShape(s) {target=3}
  n1: kept = BindOutput() {output=0}
  n2: where = BindOutput() {output=1}
  n3: kept, where = dyn.Keep(s)
}
)";

}  // namespace

TEST_CASE("a variable of dynamic shape has the shape that was set, and keeps what runs leave") {
  Quadruple quadruple;
  REQUIRE(!quadruple.executor.bind_variable(0, 0));
  check_refused(quadruple.executor.variable(0).error(), "no value yet", DVT_FAILED_STATE);
  check_refused(quadruple.executor.run(), "a variable has no value; tensor x", DVT_FAILED_STATE);
  for (const int64_t count : {1, 1, 8, 3, 8}) {
    CAPTURE(count);
    REQUIRE(!quadruple.set(rows(count, 1)));
    CHECK(quadruple.value() == rows(count, 1));
    quadruple.check_run(rows(count, 1));
    quadruple.check_run(rows(count, 4));
    quadruple.check_run(rows(count, 16));
  }
  // It may be written in place, too.
  *static_cast<float*>(*quadruple.executor.variable(0)) = 0.5F;
  std::vector<float> expected = rows(8, 64);
  expected[0] = 0.5F;
  quadruple.check_run(expected);
  // Once both halves are there, runs take no more memory.
  const uint64_t live = quadruple.executor.memory(DVT_MEMORY_HEAP).live_bytes;
  for (int run = 0; run < 10; ++run) REQUIRE(!quadruple.executor.run());
  CHECK(quadruple.executor.memory(DVT_MEMORY_HEAP).live_bytes == live);
  CHECK(quadruple.set({}));  // N=1..8 has no 0 rows.
}

TEST_CASE("a variable whose shape depends on data changes it from run to run") {
  const TextImage text(kFilter);
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  REQUIRE(!executor->bind_variable(0, 0));
  const std::array<int64_t, 1> dims = {6};
  const std::array<float, 6> start = {1, -1, 2, 3, -4, 5};
  REQUIRE(!executor->set_variable(0, std::span<const float>(start), DVT_F32, dims));
  const auto check_value = [&](std::vector<float> wanted) {
    const auto variable = executor->variable_tensor(0);
    REQUIRE(variable);
    REQUIRE(variable->dims().size() == 1);
    REQUIRE(variable->dims()[0] == static_cast<int64_t>(wanted.size()));
    CHECK(std::memcmp(variable->data, wanted.data(), wanted.size() * sizeof(float)) == 0);
  };
  REQUIRE(!executor->run());
  check_value({1, 2, 3, 5});
  static_cast<float*>(*executor->variable(0))[1] = -7;
  REQUIRE(!executor->run());
  check_value({1, 3, 5});
  REQUIRE(!executor->run());
  check_value({1, 3, 5});
  const auto where = executor->output(1);
  REQUIRE(where);
  CHECK(where->tensor.dims[0] == 3);
}

TEST_CASE("a variable of dynamic shape in memory of the caller's stays there") {
  alignas(64) std::array<std::byte, 2 * 64 + 40> memory{};
  Quadruple quadruple;
  REQUIRE(!quadruple.executor.bind_variable(0, 0, Bytes(memory)));
  check_refused(quadruple.set(rows(5, 1)),
                "too large for half of the memory of x; expected at most");
  REQUIRE(!quadruple.set(rows(4, 1)));
  CHECK(*quadruple.executor.variable(0) == memory.data());
  quadruple.check_run(rows(4, 1));
  CHECK(*quadruple.executor.variable(0) == memory.data() + 64);
  quadruple.check_run(rows(4, 4));
  CHECK(*quadruple.executor.variable(0) == memory.data());
  REQUIRE(!quadruple.set(rows(1, 2)));
  quadruple.check_run(rows(1, 2));
  // What else is bound lies elsewhere.
  int64_t* inside = reinterpret_cast<int64_t*>(memory.data() + 64);
  REQUIRE(!quadruple.executor.bind_input(1, std::span<const int64_t>(inside, 1)));
  check_refused(quadruple.executor.run(), "overlaps a variable; tensor count");
  check_refused(quadruple.executor.bind_variable(0, 0, Bytes(memory).first(127)), "is too small");
}

TEST_CASE("a failed run changes no variable of dynamic shape, and the next is right") {
  Quadruple quadruple;
  REQUIRE(!quadruple.executor.bind_variable(0, 0));
  REQUIRE(!quadruple.set(rows(2, 1)));
  quadruple.check_run(rows(2, 1));
  for (uint32_t node = 0; node < 5; ++node) {
    davit::test::dynamic_control = {};
    davit::test::dynamic_control.fail_run = node;
    CHECK(quadruple.executor.run());
    davit::test::dynamic_control = {};
    CHECK(quadruple.value() == rows(2, 4));
  }
  quadruple.check_run(rows(2, 4));
}

TEST_CASE("what a run leaves must be a value of the variable") {
  // Three elements are fewer than s may have.
  std::string text = kFilter;
  text.replace(text.find("s: f32[?]"), 9, "s: f32[?4..8]");
  const TextImage image(text);
  auto executor = Executor::create(image.image);
  REQUIRE(executor);
  REQUIRE(!executor->bind_variable(0, 0));
  const std::array<int64_t, 1> dims = {4};
  const std::array<float, 4> all = {1, 2, 3, 4}, some = {1, 2, 3, -4};
  REQUIRE(!executor->set_variable(0, std::span<const float>(all), DVT_F32, dims));
  REQUIRE(!executor->run());
  REQUIRE(!executor->set_variable(0, std::span<const float>(some), DVT_F32, dims));
  for (int run = 0; run < 2; ++run) {
    check_refused(executor->run(), "is no value of the variable: the shape does not fit");
    const auto kept = executor->variable_tensor(0);
    REQUIRE(kept);
    CHECK(kept->dims()[0] == 4);
    CHECK(std::memcmp(kept->data, some.data(), sizeof some) == 0);
  }
  REQUIRE(!executor->set_variable(0, std::span<const float>(all), DVT_F32, dims));
  REQUIRE(!executor->run());
}

TEST_CASE("values that will not do are refused, and the old one stays") {
  Quadruple quadruple(davit::test::kDynamicSample, 16 << 10);
  Executor& executor = quadruple.executor;
  check_refused(quadruple.set(rows(1, 1)), "is no variable's");
  REQUIRE(!executor.bind_variable(0, 0));
  CHECK(dvt_executor_set_variable(executor.get(), 0, nullptr, nullptr, nullptr) ==
        DVT_FAILED_STATE);
  REQUIRE(!quadruple.set(rows(2, 3)));
  check_refused(quadruple.set(rows(9, 1)), "does not fit the port");
  const std::array<int64_t, 2> dims = {1, 4};
  const std::array<int64_t, 4> words{};
  check_refused(executor.set_variable(0, std::span<const int64_t>(words), DVT_I64, dims),
                "element type");
  CHECK(executor.set_variable(0, std::span<const int64_t>(words).first(1), DVT_F32, dims));
  CHECK(quadruple.value() == rows(2, 3));
  // NULL: zeros of the shape that it has.
  REQUIRE(dvt_executor_set_variable(executor.get(), 0, nullptr, nullptr, nullptr) == DVT_OK);
  CHECK(quadruple.value() == rows(2, 0));
  CHECK(dvt_executor_set_variable(nullptr, 0, nullptr, nullptr, nullptr) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_variable_tensor(executor.get(), 0, nullptr, nullptr, nullptr) ==
        DVT_INVALID_ARGUMENT);
  // Binding either port ends it, and its memory goes back.
  const uint64_t live = executor.memory(DVT_MEMORY_HEAP).live_bytes;
  std::vector<float> x = rows(1, 1);
  REQUIRE(!executor.bind_input(0, std::span<const float>(x), DVT_F32, dims));
  CHECK(executor.memory(DVT_MEMORY_HEAP).live_bytes < live);
  CHECK(!executor.variable(0));
  REQUIRE(!executor.run());
  REQUIRE(!executor.bind_variable(0, 0));
  REQUIRE(!quadruple.set(rows(1, 1)));
  std::vector<float> y = rows(1, 0);
  REQUIRE(!executor.bind_output(0, std::span<float>(y)));
  CHECK(!executor.variable(0));
  REQUIRE(!executor.bind_input(0, std::span<const float>(x), DVT_F32, dims));
  REQUIRE(!executor.run());
  CHECK(y == rows(1, 4));
  REQUIRE(!executor.bind_variable(0, 0));
  REQUIRE(!quadruple.set(rows(1, 1)));
  CHECK(!executor.unload());
  check_refused(executor.variable(0).error(), "unloaded", DVT_FAILED_STATE);
  check_refused(quadruple.set(rows(1, 1)), "unloaded", DVT_FAILED_STATE);
}

TEST_CASE("a static variable takes a value of its shape") {
  Counter counter;
  REQUIRE(!counter.executor.bind_variable(0, 0));
  const Floats start = {1, 2, 3, 4};
  const std::array<int64_t, 1> dims = {4}, wrong = {2};
  REQUIRE(!counter.executor.set_variable(0, std::span<const float>(start), DVT_F32, dims));
  CHECK(counter.executor.set_variable(0, std::span<const float>(start), DVT_F32, wrong));
  REQUIRE(!counter.run());
  CHECK(counter.value() == Floats{2, 3, 4, 5});
  const auto variable = counter.executor.variable_tensor(0);
  REQUIRE(variable);
  CHECK(variable->dims().size() == 1);
}
