// The model executor on images for the cpu, written in the text form.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "davit/davit.hpp"
#include "exec/image.hpp"
#include "tests/exec/support.hpp"

using davit::Error;
using davit::Executor;
using davit::test::chain_text;
using davit::test::control;
using davit::test::TextImage;

namespace {

using Floats = std::array<float, 4>;

Executor load(const TextImage& text) {
  auto executor = Executor::create(text.image);
  INFO(executor.error().text());
  REQUIRE(executor);
  return std::move(*executor);
}

void check_ok(const Error& error) {
  INFO(error.text());
  CHECK(!error);
}

Error bind(Executor& executor, const Floats& x, Floats& y) {
  if (Error error = executor.bind_input(0, std::span<const float>(x))) return error;
  return executor.bind_output(0, std::span<float>(y));
}

// A list of t.Step nodes named step_0, step_1, ..., with a control edge from each to the next.
std::string steps_text(uint32_t count) {
  std::string text = "davit 1.0 target cpu\ngraph main {\n";
  for (uint32_t i = 0; i < count; ++i) {
    const std::string id = std::to_string(i);
    text += "  n" + id + ": t.Step() origin=\"block/step_" + id + "\" op=\"test::Step(1)\"";
    if (i > 0) text += " after=[n" + std::to_string(i - 1) + "]";
    text += "\n";
  }
  return text + "}\n";
}

}  // namespace

TEST_CASE("an image without nodes loads, runs and unloads") {
  const TextImage text("davit 1.0 target cpu\ngraph main {\n}\n");
  Executor executor = load(text);
  check_ok(executor.run());
  check_ok(executor.run_observed([](const DvtNodeEvent&) { FAIL("there is no node"); }));
  check_ok(executor.unload());
}

TEST_CASE("a chain computes, run after run, on the caller's buffers") {
  for (const uint32_t count : {1U, 2U, 17U}) {
    const TextImage text(chain_text(count));
    Executor executor = load(text);
    Floats x = {1, 2, 3, 4};
    Floats y{};
    check_ok(bind(executor, x, y));
    for (int run = 0; run < 3; ++run) {
      x[0] = static_cast<float>(run);  // Bound, not copied: the next run sees this.
      check_ok(executor.run());
      CHECK(y[0] == static_cast<float>(run + static_cast<int>(count)));
      CHECK(y[3] == 4 + static_cast<float>(count));
    }
  }
}

TEST_CASE("an input passes through to an output") {
  const TextImage text(R"(davit 1.0 target cpu
input x: f32[4]
output y: f32[4]
graph main {
  y = Copy(x)
}
)");
  Executor executor = load(text);
  const Floats x = {1, 2, 3, 4};
  Floats y{};
  check_ok(bind(executor, x, y));
  check_ok(executor.run());
  CHECK(y == x);
}

TEST_CASE("a port may have several values: binding reaches all of them") {
  const TextImage text(R"(davit 1.0 target cpu
input x: f32[2, 2]
output y: f32[4]
output z: f32[2, 2]
view flat: f32[4] of input "x"
view y2: f32[2, 2] of output "y"
graph main {
  y = t.Add(flat, flat)
  z = t.Add(y2, x)
}
)");
  Executor executor = load(text);
  for (const float scale : {1.0F, 100.0F}) {
    const Floats x = {scale, 2, 3, 4};
    Floats y{};
    Floats z{};
    check_ok(bind(executor, x, y));
    check_ok(executor.bind_output(1, std::span<float>(z)));
    check_ok(executor.run());
    CHECK(y == Floats{2 * scale, 4, 6, 8});
    CHECK(z == Floats{3 * scale, 6, 9, 12});
  }
}

TEST_CASE("constants are read where they are, words travel in cells") {
  const TextImage text(R"(davit 1.0 target cpu
input x: f32[4]
output y: f32[4]
const w: f32[4] = {10, 20, 30, 40}
word count
graph main {
  count = t.Step()
  y = t.Add(x, w)
  t.Step(count)
}
)");
  Executor executor = load(text);
  const Floats x = {1, 2, 3, 4};
  Floats y{};
  check_ok(bind(executor, x, y));
  const void* constant = nullptr;
  uint64_t word = 99;
  check_ok(executor.run_observed([&](const DvtNodeEvent& event) {
    if (event.node == 1) constant = dvt_input(event.context, 1)->data;
    if (event.node == 2) word = dvt_input(event.context, 0)->word;
  }));
  CHECK(y == Floats{11, 22, 33, 44});
  CHECK(word == 0);
  CHECK(constant >= text.bytes.data());
  CHECK(constant < text.bytes.data() + text.bytes.size());
}

TEST_CASE("planned values have the alignment of the plan") {
  const TextImage text(R"(davit 1.0 target cpu
arena 4112 align 4096
input x: f32[4]
output y: f32[4]
planned a: f32[4] @4096
graph main {
  a = t.Inc(x)
  y = t.Inc(a)
}
)");
  Executor executor = load(text);
  const Floats x{};
  Floats y{};
  check_ok(bind(executor, x, y));
  check_ok(executor.run_observed([&](const DvtNodeEvent& event) {
    if (event.node != 0) return;
    CHECK(reinterpret_cast<uintptr_t>(dvt_output(event.context, 0)->data) % 4096 == 0);
  }));
}

TEST_CASE("a failing kernel stops the run, wherever it is, and the next run is right") {
  constexpr uint32_t kCount = 5;
  const TextImage text(steps_text(kCount));
  Executor executor = load(text);
  for (uint32_t failing = 0; failing < kCount; ++failing) {
    control = {.fail_node = failing};
    const Error error = executor.run();
    REQUIRE(error);
    CHECK(error.code() == DVT_KERNEL_FAILED);
    CHECK(error.detail()->stage == DVT_STAGE_RUN);
    CHECK(error.detail()->node == "block/step_" + std::to_string(failing));
    CHECK(error.detail()->op == std::string("test::Step(1)"));
    CHECK(std::string(error.detail()->message).find("t.Step") != std::string::npos);
    CHECK(control.visits.size() == failing + 1);

    control = {};
    check_ok(executor.run());
    CHECK(control.visits == std::vector<uint32_t>{0, 1, 2, 3, 4});
  }
}

TEST_CASE("a kernel's reason is in the message, once") {
  const TextImage text(steps_text(2));
  Executor executor = load(text);
  control = {.fail_node = 1, .reason = "index 7 is out of range"};
  const Error with_reason = executor.run();
  REQUIRE(with_reason);
  CHECK(std::string(with_reason.detail()->message) ==
        "kernel t.Step failed: index 7 is out of range");
  control = {.fail_node = 0};
  const Error without = executor.run();
  REQUIRE(without);
  CHECK(std::string(without.detail()->message).find("index 7") == std::string::npos);
  control = {};
}

TEST_CASE("codes of kernels come through; those that are no DvtCode become readable") {
  const TextImage text(steps_text(1));
  Executor executor = load(text);
  for (DvtCode code = DVT_INVALID_ARGUMENT; code <= DVT_INTERNAL; ++code) {
    control = {.fail_node = 0, .fail_code = code};
    CHECK(executor.run().code() == code);
  }
  for (const DvtCode code : {-1, 14, 77, INT32_MIN, INT32_MAX}) {
    control = {.fail_node = 0, .fail_code = code};
    const Error error = executor.run();
    REQUIRE(error.code() == DVT_KERNEL_FAILED);
    CHECK(error.detail()->got == "code " + std::to_string(code));
  }
  control = {};
}

TEST_CASE("a node without an operator is named by its kernel") {
  const TextImage text("davit 1.0 target cpu\ngraph main {\n  t.Step() origin=\"n\"\n}\n");
  Executor executor = load(text);
  control = {.fail_node = 0};
  CHECK(executor.run().detail()->op == std::string("t.Step"));
  control = {};
}

TEST_CASE("an observed run gives the same results and reports every node in order") {
  const TextImage text(chain_text(6));
  Executor executor = load(text);
  const Floats x = {1, 2, 3, 4};
  Floats plain{};
  Floats observed{};
  check_ok(bind(executor, x, plain));
  check_ok(executor.run());
  check_ok(bind(executor, x, observed));
  std::vector<DvtNodeEvent> events;
  check_ok(executor.run_observed([&](const DvtNodeEvent& event) { events.push_back(event); }));
  CHECK(plain == observed);
  REQUIRE(events.size() == 6);
  for (uint32_t i = 0; i < 6; ++i) {
    CHECK(events[i].node == i);
    CHECK(events[i].origin == "inc_" + std::to_string(i));
    CHECK(events[i].op == std::string("test::Inc(1)"));
    CHECK(events[i].kernel == std::string("t.Inc"));
    CHECK(events[i].lane == DVT_KERNEL_LANE_NORMAL);
    CHECK(events[i].code == DVT_OK);
    CHECK(events[i].begin_ns <= events[i].end_ns);
    if (i > 0) CHECK(events[i - 1].end_ns <= events[i].begin_ns);
  }
}

TEST_CASE("an observed run reports the failing node as well") {
  const TextImage text(steps_text(4));
  Executor executor = load(text);
  control = {.fail_node = 2, .fail_code = DVT_CANCELLED};
  std::vector<DvtCode> codes;
  CHECK(executor.run_observed([&](const DvtNodeEvent& event) { codes.push_back(event.code); })
            .code() == DVT_CANCELLED);
  CHECK(codes == std::vector<DvtCode>{DVT_OK, DVT_OK, DVT_CANCELLED});
  control = {};
}

TEST_CASE("Init runs at load, DeInit at unload, each once") {
  const TextImage text(R"(davit 1.0 target cpu
word state
graph init {
  state = t.Step()
}
graph main {
  t.Step(state)
  t.Step(state)
}
graph deinit {
  t.Step(state)
  t.Step(state)
  t.Step(state)
}
)");
  control = {};
  Executor executor = load(text);
  CHECK(control.visits.size() == 1);
  check_ok(executor.run());
  check_ok(executor.run());
  CHECK(control.visits.size() == 5);
  check_ok(executor.unload());
  CHECK(control.visits.size() == 8);
  check_ok(executor.unload());  // Nothing is left to do.
  CHECK(control.visits.size() == 8);
  const Error error = executor.run();
  CHECK(error.code() == DVT_FAILED_STATE);
  CHECK(std::string(error.detail()->message).find("unloaded") != std::string::npos);
}

TEST_CASE("a failing Init fails the load and names the node") {
  const TextImage text(R"(davit 1.0 target cpu
graph init {
  t.Step()
  t.Step() origin="weights" op="davit::Init"
}
graph main {
}
graph deinit {
  t.Step()
}
)");
  control = {.fail_node = 1, .fail_code = DVT_OUT_OF_RESOURCE};
  const auto executor = Executor::create(text.image);
  REQUIRE(!executor);
  CHECK(executor.error().code() == DVT_OUT_OF_RESOURCE);
  CHECK(executor.error().detail()->stage == DVT_STAGE_LOAD);
  CHECK(executor.error().detail()->node == std::string("weights"));
  CHECK(control.visits.size() == 2);  // DeInit does not run after half an Init.
  control = {};
}

TEST_CASE("a failing DeInit is reported by unload and dropped by destroy") {
  const TextImage text(R"(davit 1.0 target cpu
graph main {
}
graph deinit {
  t.Step() origin="closing"
}
)");
  control = {.fail_node = 0};
  Executor executor = load(text);
  const Error error = executor.unload();
  CHECK(error.code() == DVT_KERNEL_FAILED);
  CHECK(error.detail()->stage == DVT_STAGE_UNLOAD);
  CHECK(error.detail()->node == std::string("closing"));
  check_ok(executor.unload());
  { const Executor dropped = load(text); }
  control = {};
}

TEST_CASE("executors live on when the caller closes the image") {
  Floats y{};
  const Floats x = {1, 2, 3, 4};
  std::vector<Executor> executors;
  std::vector<std::byte> bytes;
  {
    TextImage text(chain_text(3));
    bytes = text.bytes;  // Copied: the image borrows the original, which moves below.
    executors.push_back(load(text));
    executors.push_back(load(text));
    bytes = std::move(text.bytes);
  }
  for (Executor& executor : executors) {
    check_ok(bind(executor, x, y));
    check_ok(executor.run());
    CHECK(y == Floats{4, 5, 6, 7});
  }
}

TEST_CASE("many executors of one image on many threads") {
  const TextImage text(chain_text(40));
  std::vector<std::thread> threads;
  std::array<int, 8> right{};
  for (size_t thread = 0; thread < right.size(); ++thread) {
    threads.emplace_back([&text, &right, thread] {
      for (int load = 0; load < 10; ++load) {
        auto executor = Executor::create(text.image);
        if (!executor) return;
        const Floats x = {static_cast<float>(thread), 0, 0, 0};
        Floats y{};
        if (bind(*executor, x, y)) return;
        for (int run = 0; run < 20; ++run) {
          if (executor->run()) return;
          right[thread] += y[0] == static_cast<float>(thread + 40) ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) CHECK(count == 200);
}

TEST_CASE("an executor made before fork works in the child and in the parent") {
  const TextImage text(chain_text(5));
  Executor executor = load(text);
  const Floats x = {1, 2, 3, 4};
  Floats y{};
  check_ok(bind(executor, x, y));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool right = !executor.run() && y == Floats{6, 7, 8, 9} && !executor.unload();
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(y == Floats{});  // The child wrote its own copy.
  check_ok(executor.run());
  CHECK(y == Floats{6, 7, 8, 9});
}

TEST_CASE("an executor larger than the machine is out of memory") {
  const TextImage text(R"(davit 1.0 target cpu
output y: f32[4]
input x: f32[4]
planned far: f32[4] @1125899906842624
graph main {
  far = t.Inc(x)
  y = t.Inc(far)
}
)");
  const auto executor = Executor::create(text.image);
  REQUIRE(!executor);
  CHECK(executor.error().code() == DVT_OUT_OF_MEMORY);
  CHECK(std::string(executor.error().detail()->expected).find("bytes") != std::string::npos);
}

TEST_CASE("the image tells what an executor takes") {
  const TextImage small(chain_text(1));
  const TextImage large(chain_text(1000));
  CHECK(small.image.info().executor_bytes >= small.image.info().arena_bytes);
  CHECK(large.image.info().executor_bytes >
        small.image.info().executor_bytes + 999 * (16 + 32 + 16 + 16));
}

TEST_CASE("an image opened for reading only cannot be executed") {
  const TextImage text(chain_text(1));
  auto image = davit::exec::open_image_memory(text.bytes, {.resolve_kernels = false});
  REQUIRE(image.ok());
  DvtExecutor* executor = nullptr;
  DvtError error;
  CHECK(dvt_executor_create(image->get(), nullptr, &executor, &error) == DVT_FAILED_STATE);
  CHECK(executor == nullptr);
}

TEST_CASE("options of another version are refused when they ask for something") {
  const TextImage text(chain_text(1));
  struct Newer {
    DvtExecutorOptions options;
    uint64_t unknown;
  } newer{};
  dvt_executor_options_init(&newer.options);
  newer.options.struct_size = sizeof newer;
  CHECK(Executor::create(text.image, &newer.options));
  newer.unknown = 1;
  CHECK(Executor::create(text.image, &newer.options).error().code() == DVT_VERSION_MISMATCH);
  newer.options.struct_size = 0;
  CHECK(Executor::create(text.image, &newer.options).error().code() == DVT_VERSION_MISMATCH);
}

TEST_CASE("null arguments are errors, not crashes") {
  const TextImage text(chain_text(1));
  DvtError error;
  CHECK(dvt_executor_create(text.image.get(), nullptr, nullptr, &error) == DVT_INVALID_ARGUMENT);
  DvtExecutor* executor = nullptr;
  CHECK(dvt_executor_create(nullptr, nullptr, &executor, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_run(nullptr, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_unload(nullptr, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_input(nullptr, 0, nullptr, 0, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_bind_output(nullptr, 0, nullptr, 0, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_executor_run(nullptr, nullptr) == DVT_INVALID_ARGUMENT);  // No record either.
  REQUIRE(dvt_executor_create(text.image.get(), nullptr, &executor, &error) == DVT_OK);
  CHECK(dvt_executor_run_observed(executor, nullptr, nullptr, &error) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.message).find("observer") != std::string::npos);
  dvt_executor_destroy(executor);
  dvt_executor_destroy(nullptr);
  dvt_executor_options_init(nullptr);
}

TEST_CASE("success clears the caller's error record") {
  const TextImage text(chain_text(1));
  DvtError error;
  std::memset(&error, 'x', sizeof error);
  DvtExecutor* executor = nullptr;
  REQUIRE(dvt_executor_create(text.image.get(), nullptr, &executor, &error) == DVT_OK);
  CHECK(error.code == DVT_OK);
  CHECK(error.stage == DVT_STAGE_NONE);
  for (const char* part :
       {error.message, error.node, error.op, error.tensor, error.expected, error.got, error.hint}) {
    CHECK(part[0] == '\0');
  }
  dvt_executor_destroy(executor);
}

TEST_CASE("the version is that of the header") {
  CHECK(std::string(dvt_version()) == std::to_string(DVT_VERSION_MAJOR) + "." +
                                          std::to_string(DVT_VERSION_MINOR) + "." +
                                          std::to_string(DVT_VERSION_PATCH));
}
