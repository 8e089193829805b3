// Binding of inputs and outputs: what is refused, and with which words.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "davit/davit.hpp"
#include "tests/exec/support.hpp"

using davit::Error;
using davit::Executor;
using davit::test::TextImage;

namespace {

constexpr std::string_view kText = R"(davit 1.0 target cpu
input a: f32[2, 2]
input b: f32[4]
output sum: f32[4]
output next: f32[4]
view flat: f32[4] of input "a"
graph main {
  sum = t.Add(flat, b)
  next = t.Inc(b)
}
)";

Executor load(const TextImage& text) {
  auto executor = Executor::create(text.image);
  INFO(executor.error().text());
  REQUIRE(executor);
  return std::move(*executor);
}

struct Buffers {
  std::array<float, 4> a = {1, 2, 3, 4};
  std::array<float, 4> b = {10, 20, 30, 40};
  std::array<float, 4> sum{};
  std::array<float, 4> next{};

  void bind_all(Executor& executor) {
    CHECK(!executor.bind_input(0, std::span<const float>(a)));
    CHECK(!executor.bind_input(1, std::span<const float>(b)));
    CHECK(!executor.bind_output(0, std::span<float>(sum)));
    CHECK(!executor.bind_output(1, std::span<float>(next)));
  }
};

bool contains(const char* text, const char* part) {
  return std::string(text).find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an index beyond the ports") {
  const TextImage text(kText);
  Executor executor = load(text);
  std::array<float, 4> data{};
  const Error input = executor.bind_input(2, std::span<const float>(data));
  REQUIRE(input.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(input.detail()->message, "no input 2"));
  CHECK(contains(input.detail()->expected, "below 2"));
  const Error output = executor.bind_output(UINT32_MAX, std::span<float>(data));
  REQUIRE(output.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(output.detail()->message, "no output 4294967295"));
}

TEST_CASE("a buffer that is too small: tensor, expected and got") {
  const TextImage text(kText);
  Executor executor = load(text);
  const std::array<float, 3> data{};
  const Error error = executor.bind_input(0, std::span<const float>(data));
  REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(error.detail()->stage == DVT_STAGE_BIND);
  CHECK(error.detail()->tensor == std::string("a"));
  CHECK(error.detail()->expected == std::string("f32[2,2], 16 bytes"));
  CHECK(error.detail()->got == std::string("12 bytes"));
}

TEST_CASE("a larger buffer is fine") {
  const TextImage text(kText);
  Executor executor = load(text);
  const std::array<float, 100> data{};
  CHECK(!executor.bind_input(0, std::span<const float>(data)));
  std::array<float, 100> changing{};  // A span of as many as there are.
  CHECK(!executor.bind_input(0, std::span(changing)));
  CHECK(!executor.bind_output(0, std::span(changing)));
}

TEST_CASE("a null buffer") {
  const TextImage text(kText);
  Executor executor = load(text);
  DvtError error;
  CHECK(dvt_executor_bind_output(executor.get(), 0, nullptr, 16, &error) == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.message, "null"));
  CHECK(error.tensor == std::string("sum"));
}

TEST_CASE("a buffer that is not aligned to its element") {
  const TextImage text(kText);
  Executor executor = load(text);
  alignas(8) std::array<char, 32> data{};
  DvtError error;
  for (const size_t shift : {1, 2, 3}) {
    CHECK(dvt_executor_bind_input(executor.get(), 1, data.data() + shift, 16, &error) ==
          DVT_INVALID_ARGUMENT);
    CHECK(contains(error.expected, "multiple of 4"));
    CHECK(contains(error.got, "0x"));
    CHECK(error.tensor == std::string("b"));
  }
  CHECK(dvt_executor_bind_input(executor.get(), 1, data.data() + 4, 16, &error) == DVT_OK);
}

TEST_CASE("an empty tensor may be bound to nothing") {
  const TextImage text(R"(davit 1.0 target cpu
input x: f32[0, 3]
output y: f32[0, 3]
graph main {
  y = t.Inc(x)
}
)");
  Executor executor = load(text);
  CHECK(!executor.bind_input(0, std::span<const float>()));
  CHECK(!executor.bind_output(0, std::span<float>()));
  CHECK(!executor.run());
}

TEST_CASE("a run names the port that is not bound, each in turn") {
  const TextImage text(kText);
  Executor executor = load(text);
  Buffers buffers;
  const auto missing = [&] {
    const Error error = executor.run();
    REQUIRE(error.code() == DVT_FAILED_STATE);
    return std::string(error.detail()->tensor);
  };
  CHECK(missing() == "a");
  CHECK(!executor.bind_input(0, std::span<const float>(buffers.a)));
  CHECK(missing() == "b");
  CHECK(!executor.bind_input(1, std::span<const float>(buffers.b)));
  CHECK(missing() == "sum");
  CHECK(!executor.bind_output(0, std::span<float>(buffers.sum)));
  CHECK(missing() == "next");
  CHECK(!executor.bind_output(1, std::span<float>(buffers.next)));
  CHECK(!executor.run());
  CHECK(buffers.sum == std::array<float, 4>{11, 22, 33, 44});
}

TEST_CASE("a refused binding leaves the one before it in place") {
  const TextImage text(kText);
  Executor executor = load(text);
  Buffers buffers;
  buffers.bind_all(executor);
  CHECK(executor.bind_input(1, std::span<const float>(buffers.a.data(), 1)));
  CHECK(!executor.run());
  CHECK(buffers.sum[0] == 11);
}

TEST_CASE("outputs that overlap each other or an input, in any order of addresses") {
  const TextImage text(kText);
  Executor executor = load(text);
  Buffers buffers;
  std::array<float, 12> shared{};
  const auto refused = [&](const char* output, const char* other) {
    const Error error = executor.run();
    REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
    CHECK(contains(error.detail()->message, "overlaps"));
    CHECK(error.detail()->tensor == std::string(output));
    CHECK(contains(error.detail()->got, other));
  };
  for (const size_t shift : {0, 1, 3}) {
    // Output and output.
    buffers.bind_all(executor);
    CHECK(!executor.bind_output(0, std::span(shared).subspan(0, 4)));
    CHECK(!executor.bind_output(1, std::span(shared).subspan(shift, 4)));
    const Error error = executor.run();
    CHECK(error.code() == DVT_INVALID_ARGUMENT);
    CHECK(contains(error.detail()->message, "another output"));

    // Output behind input, input behind output.
    buffers.bind_all(executor);
    CHECK(!executor.bind_input(0, std::span<const float>(shared).subspan(0, 4)));
    CHECK(!executor.bind_output(1, std::span(shared).subspan(shift, 4)));
    refused("next", "a");
    buffers.bind_all(executor);
    CHECK(!executor.bind_input(1, std::span<const float>(shared).subspan(shift, 4)));
    CHECK(!executor.bind_output(0, std::span(shared).subspan(0, 4)));
    refused("sum", "b");
  }
  // Neighbours touch, but do not overlap.
  buffers.bind_all(executor);
  CHECK(!executor.bind_input(0, std::span<const float>(shared).subspan(0, 4)));
  CHECK(!executor.bind_output(0, std::span(shared).subspan(4, 4)));
  CHECK(!executor.bind_output(1, std::span(shared).subspan(8, 4)));
  CHECK(!executor.run());
}

TEST_CASE("an output inside a larger input that starts before another one") {
  const TextImage text(R"(davit 1.0 target cpu
input wide: f32[16]
input narrow: f32[1]
output y: f32[1]
graph main {
  y = t.Inc(narrow)
}
)");
  Executor executor = load(text);
  std::array<float, 16> shared{};
  CHECK(!executor.bind_input(0, std::span<const float>(shared)));
  CHECK(!executor.bind_input(1, std::span<const float>(shared).subspan(2, 1)));
  CHECK(!executor.bind_output(0, std::span(shared).subspan(9, 1)));
  const Error error = executor.run();
  REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(contains(error.detail()->got, "wide"));
}

TEST_CASE("inputs may share memory") {
  const TextImage text(kText);
  Executor executor = load(text);
  Buffers buffers;
  buffers.bind_all(executor);
  CHECK(!executor.bind_input(1, std::span<const float>(buffers.a)));
  CHECK(!executor.run());
  CHECK(buffers.sum == std::array<float, 4>{2, 4, 6, 8});
}

TEST_CASE("buffers may be swapped one by one between runs") {
  const TextImage text(davit::test::chain_text(1));
  Executor executor = load(text);
  std::array<float, 4> ping = {0, 10, 20, 30};
  std::array<float, 4> pong{};
  for (int run = 0; run < 6; ++run) {
    auto& from = run % 2 == 0 ? ping : pong;
    auto& to = run % 2 == 0 ? pong : ping;
    CHECK(!executor.bind_input(0, std::span<const float>(from)));  // Still the output of before.
    CHECK(!executor.bind_output(0, std::span<float>(to)));
    CHECK(!executor.run());
  }
  CHECK(ping == std::array<float, 4>{6, 16, 26, 36});
}

TEST_CASE("nothing can be bound after unload") {
  const TextImage text(kText);
  Executor executor = load(text);
  CHECK(!executor.unload());
  std::array<float, 4> data{};
  CHECK(executor.bind_input(0, std::span<const float>(data)).code() == DVT_FAILED_STATE);
  CHECK(executor.bind_output(0, std::span<float>(data)).code() == DVT_FAILED_STATE);
}
