// What users of such engines report of dynamic shapes and control flow (docs/stress.md), from a
// module to a result.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "lowering/compile.hpp"
#include "tests/lowering/nested_graphs.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::ir::GraphId;
using davit::ir::kMainGraph;
using davit::ir::NodeId;
using davit::ir::ValueId;
using davit::testing::TinyModule;
using Builder = davit::testing::NestedGraphs;

namespace {

// An open image with its executor.
class Session {
 public:
  explicit Session(const davit::ir::Module& module) : bytes_(compiled(module)) {
    auto image =
        davit::Image::borrow({static_cast<const std::byte*>(bytes_.data()), bytes_.size()});
    REQUIRE_MESSAGE(image, image.error().text());
    image_ = std::make_unique<davit::Image>(std::move(*image));
    auto executor = davit::Executor::create(*image_);
    REQUIRE_MESSAGE(executor, executor.error().text());
    executor_ = std::make_unique<davit::Executor>(std::move(*executor));
  }

  davit::Executor& operator*() { return *executor_; }

  davit::Error bind(uint32_t port, std::span<const float> values) {
    const int64_t dims[] = {int64_t(values.size())};
    return executor_->bind_input(port, values, DVT_F32, std::span<const int64_t>(dims));
  }

  std::vector<float> output(uint32_t port) {
    const auto found = executor_->output(port);
    REQUIRE(found);
    std::vector<float> values(found->tensor.bytes / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), found->data, found->tensor.bytes);
    return values;
  }

 private:
  static std::vector<std::byte> compiled(const davit::ir::Module& module) {
    auto image = compile_module(module, {});
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    return std::move(image->bytes);
  }

  davit::testing::AlignedBytes bytes_;
  std::unique_ptr<davit::Image> image_;
  std::unique_ptr<davit::Executor> executor_;
};

// Memory that nobody may write to.
class ReadOnly {
 public:
  explicit ReadOnly(float value) : size_(4096) {
    base_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(base_ != MAP_FAILED);
    std::fill_n(static_cast<float*>(base_), size_ / sizeof(float), value);
    REQUIRE(::mprotect(base_, size_, PROT_READ) == 0);
  }
  ~ReadOnly() { ::munmap(base_, size_); }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;
  [[nodiscard]] std::span<const float> first(size_t count) const {
    return {static_cast<const float*>(base_), count};
  }

 private:
  void* base_;
  size_t size_;
};

NpyArray i64(int64_t value) {
  std::vector<std::byte> bytes(8);
  std::memcpy(bytes.data(), &value, 8);
  return {DVT_I64, {}, std::move(bytes)};
}

NpyArray f32(const std::vector<float>& values) {
  const auto data = davit::testing::f32_tensor({int64_t(values.size())}, values);
  return {data.dtype, data.dims, *data.bytes};
}

std::vector<float> floats(const NpyArray& array) {
  std::vector<float> values(array.bytes.size() / 4);
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::vector<NpyArray> run(const davit::ir::Module& module, const std::vector<NpyArray>& inputs,
                          int runs = 2) {
  const auto image = compile_module(module, {});
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  auto outputs = davit::testing::run_image(image->bytes, inputs, nullptr, runs);
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return std::move(*outputs);
}

}  // namespace

// E1.
TEST_CASE(
    "a long sequence, a short one, a long one: right, and the caller's memory is not written") {
  TinyModule tiny;
  const auto x = tiny.input("x", {-1});
  const auto y = tiny.node("Relu", {x}, "y");
  const auto z = tiny.node("Neg", {tiny.node("Add", {tiny.node("Exp", {y}, "e"), x}, "s")}, "z");
  Session session(tiny.build({z, y}));
  const ReadOnly memory(0.0F);
  for (const size_t length : {32U, 1U, 32U, 7U, 32U}) {
    davit::Error error = session.bind(0, memory.first(length));
    if (!error) error = (*session).run();
    REQUIRE_MESSAGE(!error, error.text());
    CHECK(session.output(0) == std::vector<float>(length, -1.0F));
    CHECK(session.output(1) == std::vector<float>(length, 0.0F));
  }
}

// E2.
TEST_CASE("extents without a name are not taken for equal") {
  TinyModule tiny;
  const auto a = tiny.input("a", {-1});
  const auto b = tiny.input("b", {-1});
  const auto u = tiny.node("Neg", {tiny.node("Exp", {a}, "ea")}, "u");
  const auto v = tiny.node("Neg", {tiny.node("Exp", {b}, "eb")}, "v");
  const auto both = tiny.node("Concat", {u, v}, "both", {{"axis", int64_t(0)}});
  const auto sum = tiny.node("Add", {u, v}, "sum");
  Session session(tiny.build({both, sum}));
  const ReadOnly zeros(0.0F);
  for (const auto& [left, right] : {std::pair(1U, 9U), std::pair(300U, 1U), std::pair(5U, 5U)}) {
    davit::Error error = session.bind(0, zeros.first(left));
    if (!error) error = session.bind(1, zeros.first(right));
    if (!error) error = (*session).run();
    REQUIRE_MESSAGE(!error, error.text());
    CHECK(session.output(0) == std::vector<float>(left + right, -1.0F));
    CHECK(session.output(1) == std::vector<float>(std::max(left, right), -2.0F));
  }
  // What cannot be added is an error of the run, and the next run is right.
  davit::Error error = session.bind(0, zeros.first(4));
  if (!error) error = session.bind(1, zeros.first(3));
  REQUIRE(!error);
  CHECK((*session).run().code() == DVT_INVALID_ARGUMENT);
  error = session.bind(1, zeros.first(4));
  if (!error) error = (*session).run();
  CHECK(!error);
}

// E5.
TEST_CASE("10,000 shapes: what is remembered of them is bounded, and memory flat") {
  TinyModule tiny;
  const auto x = tiny.input("x", {-1});
  const auto y = tiny.node("Exp", {tiny.node("Neg", {x}, "n")}, "y");
  Session session(tiny.build({tiny.node("Add", {y, x}, "z")}));
  const std::vector<float> values(10'000, 0.5F);
  DvtExecutorStatistics warm{}, now{};
  for (size_t run = 0; run < 20'000; ++run) {
    // All shapes, largest first, then all again.
    const size_t length = 10'000 - run % 10'000;
    davit::Error error = session.bind(0, std::span(values).first(length));
    if (!error) error = (*session).run();
    REQUIRE_MESSAGE(!error, error.text());
    if (run == 100) warm = (*session).statistics();
  }
  now = (*session).statistics();
  CHECK(now.heap_peak_bytes == warm.heap_peak_bytes);
  CHECK(now.heap_system_allocations == warm.heap_system_allocations);
  CHECK(now.shape_misses > 19'000);
  for (int run = 0; run < 100; ++run) {
    const std::span<const float> few = std::span(values).first(run % 2 == 0 ? 3 : 4);
    REQUIRE(!session.bind(0, few));
    REQUIRE(!(*session).run());
  }
  const DvtExecutorStatistics after = (*session).statistics();
  CHECK(after.shape_hits - now.shape_hits > 10 * (after.shape_misses - now.shape_misses));
}

// F1.
TEST_CASE(
    "a state that only an inner branch uses, and whose shape grows from iteration to iteration") {
  Builder b;
  const ValueId trip = b.input(kMainGraph, "trip", DVT_I64, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {-1});
  const ValueId last = b.value(kMainGraph, "last");
  const NodeId node = b.add(kMainGraph, "Loop", {trip, davit::ir::kNoValue, x}, {last}, "loop");
  b.body(node, "body", [&](GraphId g) -> std::vector<ValueId> {
    const ValueId i = b.input(g, "i", DVT_I64, {});
    const ValueId condition = b.input(g, "condition", DVT_BOOL, {});
    const ValueId s = b.value(g, "s");  // Of no declared type.
    b.module.add_graph_input(g, s);
    const ValueId two = b.constant(g, "two", davit::ir::make_tensor(DVT_I64, {}, i64(2).bytes));
    const ValueId odd = b.node(g, "Cast", {b.node(g, "Mod", {i, two}, "rest")}, "odd");
    b.module.set_attribute(b.module.producer(odd), "to", int64_t(9));  // BOOL in ONNX.
    const ValueId next = b.value(g, "next");
    const NodeId choice = b.add(g, "If", {odd}, {next}, "choice");
    b.body(choice, "then_branch", [&](GraphId inner) -> std::vector<ValueId> {
      const ValueId longer = b.node(inner, "Concat", {s, x}, "longer");
      b.module.set_attribute(b.module.producer(longer), "axis", int64_t(0));
      return {longer};
    });
    b.body(choice, "else_branch", [&](GraphId) -> std::vector<ValueId> { return {s}; });
    return {condition, next};
  });
  b.module.set_graph_outputs(kMainGraph, {last});
  const auto got = run(b.module, {i64(5), f32({1, 2})});
  CHECK(floats(got[0]) == std::vector<float>{1, 2, 1, 2, 1, 2});  // Iterations 1 and 3.
}

// F2.
TEST_CASE("a body gets the number of its iteration, from 0") {
  Builder b;
  const ValueId trip = b.input(kMainGraph, "trip", DVT_I64, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_I64, {});
  const ValueId last = b.value(kMainGraph, "last");
  const NodeId node = b.add(kMainGraph, "Loop", {trip, davit::ir::kNoValue, x}, {last}, "loop");
  b.body(node, "body", [&](GraphId g) -> std::vector<ValueId> {
    const ValueId i = b.input(g, "i", DVT_I64, {});
    const ValueId condition = b.input(g, "condition", DVT_BOOL, {});
    return {condition, b.node(g, "Add", {b.input(g, "s", DVT_I64, {}), i}, "next")};
  });
  b.module.set_graph_outputs(kMainGraph, {last});
  for (const auto& [trips, sum] : {std::pair(5, 0 + 1 + 2 + 3 + 4), std::pair(4'000'000, -1)}) {
    const int64_t count = trips;
    // F5: four million iterations of one node are no matter of minutes.
    const int64_t expected = sum >= 0 ? sum : count * (count - 1) / 2;
    CHECK(run(b.module, {i64(count), i64(0)}, 1)[0].bytes == i64(expected).bytes);
  }
}

// F4.
TEST_CASE("a value that a branch or body only hands on, also twice, comes out each time") {
  Builder b;
  const ValueId trip = b.input(kMainGraph, "trip", DVT_I64, {});
  const ValueId x = b.input(kMainGraph, "x", DVT_F32, {-1});
  const ValueId c = b.input(kMainGraph, "c", DVT_BOOL, {});
  std::vector<ValueId> outputs;
  for (const char* name : {"a", "b", "first", "second"}) {
    outputs.push_back(b.value(kMainGraph, name));
  }
  const NodeId choice = b.add(kMainGraph, "If", {c}, {outputs[0], outputs[1]}, "choice");
  b.body(choice, "then_branch", [&](GraphId) -> std::vector<ValueId> { return {x, x}; });
  b.body(choice, "else_branch", [&](GraphId g) -> std::vector<ValueId> {
    const ValueId y = b.node(g, "Neg", {x}, "y");
    return {y, y};
  });
  const NodeId loop = b.add(kMainGraph, "Loop", {trip, davit::ir::kNoValue, x, x},
                            {outputs[2], outputs[3]}, "loop");
  b.body(loop, "body", [&](GraphId g) -> std::vector<ValueId> {
    b.input(g, "i", DVT_I64, {});
    const ValueId condition = b.input(g, "condition", DVT_BOOL, {});
    const ValueId s = b.input(g, "s", DVT_F32, {-1});
    b.input(g, "t", DVT_F32, {-1});
    return {condition, s, s};
  });
  b.module.set_graph_outputs(kMainGraph, outputs);
  const std::vector<float> values = {1, -2, 3};
  for (const bool taken : {true, false}) {
    const NpyArray condition{DVT_BOOL, {}, {taken ? std::byte{1} : std::byte{0}}};
    const auto got = run(b.module, {i64(7), f32(values), condition}, 5);
    const std::vector<float> negated = {-1, 2, -3};
    CHECK(floats(got[0]) == (taken ? values : negated));
    CHECK(floats(got[1]) == (taken ? values : negated));
    CHECK(floats(got[2]) == values);
    CHECK(floats(got[3]) == values);
  }
}
