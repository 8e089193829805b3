// A run of a loaded executor allocates nothing: malloc and its family, and mmap, are replaced by
// ones that count. Not under sanitizers, which replace them themselves (tests/exec/meson.build).
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "davit/davit.hpp"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

// glibc's own names of the functions that are replaced below.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
}

// Allocations of `work`.
template <class Work>
int allocations_of(Work work) {
  allocations = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

}  // namespace

// Visible, so that the C++ library's calls come here, too.
#pragma GCC visibility push(default)
extern "C" {
void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* block, size_t size) {
  count();
  return __libc_realloc(block, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  count();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  using Mmap = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto real = reinterpret_cast<Mmap>(dlsym(RTLD_NEXT, "mmap"));
  count();
  return real(address, length, protection, flags, file, offset);
}
}
#pragma GCC visibility pop

using davit::Executor;
using davit::test::TextImage;

namespace {

using Floats = std::array<float, 4>;

struct Loaded {
  TextImage text;
  Executor executor;
  Floats x = {1, 2, 3, 4};
  Floats y{};
};

std::unique_ptr<Loaded> load(std::string_view source) {
  TextImage text(source);
  auto executor = Executor::create(text.image);
  INFO(executor.error().text());
  REQUIRE(executor);
  auto loaded = std::make_unique<Loaded>(Loaded{std::move(text), std::move(*executor)});
  REQUIRE(!loaded->executor.bind_input(0, std::span<const float>(loaded->x)));
  REQUIRE(!loaded->executor.bind_output(0, std::span<float>(loaded->y)));
  return loaded;
}

}  // namespace

TEST_CASE("the counters count, or the other cases would show nothing") {
  const auto loaded = load(davit::test::chain_text(3));
  CHECK(allocations_of([] {
          void* block = std::malloc(10);
          block = std::realloc(block, 20);
          std::free(block);
          std::free(std::calloc(2, 2));
          std::free(std::aligned_alloc(64, 64));
          void* aligned = nullptr;
          if (::posix_memalign(&aligned, 64, 64) == 0) std::free(aligned);
          ::munmap(::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
        }) == 6);
  CHECK(allocations_of([] { ::operator delete(::operator new(100)); }) == 1);
  // Loading allocates, so the library's calls come here as well.
  CHECK(allocations_of([&] { REQUIRE(Executor::create(loaded->text.image)); }) > 0);
  // And so does a run that fails: its error has words.
  const TextImage failing("davit 1.0 target cpu\ngraph main {\n  t.Step()\n}\n");
  auto executor = Executor::create(failing.image);
  REQUIRE(executor);
  davit::test::control.fail_node = 0;
  CHECK(allocations_of([&] { CHECK(executor->run()); }) > 0);
  davit::test::control = {};
}

TEST_CASE("no run allocates on the cpu, from the first on") {
  const auto loaded = load(davit::test::chain_text(50));
  for (int run = 0; run < 5; ++run) {
    bool failed = false;
    CHECK(allocations_of([&] { failed = static_cast<bool>(loaded->executor.run()); }) == 0);
    CHECK(!failed);
    CHECK(loaded->y[0] == 51);
  }
}

TEST_CASE("binding and the run after it allocate nothing") {
  const auto loaded = load(davit::test::chain_text(3));
  Floats other{};
  bool failed = false;
  CHECK(allocations_of([&] {
          failed =
              loaded->executor.bind_output(0, std::span<float>(other)) || loaded->executor.run();
        }) == 0);
  CHECK(!failed);
  CHECK(other[0] == 4);
}

TEST_CASE("an observed run allocates nothing of its own") {
  const auto loaded = load(davit::test::chain_text(3));
  int events = 0;
  CHECK(allocations_of([&] {
          const davit::Error error =
              loaded->executor.run_observed([&](const DvtNodeEvent&) { ++events; });
          static_cast<void>(error);
        }) == 0);
  CHECK(events == 3);
}

TEST_CASE("runs with dynamic shapes allocate nothing once they have seen the shapes") {
  for (const char* source : {davit::test::kDynamicSample, davit::test::kFlowSample}) {
    const TextImage text(source);
    auto executor = Executor::create(text.image);
    REQUIRE(executor);
    const bool flow = source == davit::test::kFlowSample;
    std::array<float, 32> x{};
    std::array<int64_t, 2> dims{};
    const bool yes = true;
    const int64_t count = 2;
    bool failed = false;
    if (flow) {
      for (const uint32_t i : {1, 2, 4}) {
        failed = failed || executor->bind_input(i, std::span<const bool>(&yes, 1));
      }
      failed = failed || executor->bind_input(3, std::span<const int64_t>(&count, 1));
    } else {
      failed = failed || executor->bind_input(1, std::span<const int64_t>(&count, 1));
      failed = failed || executor->bind_output(3, std::span<int64_t>(dims));
    }
    const auto run = [&](int64_t rows) {
      const int64_t shape[] = {rows, 4};
      failed = failed || executor->bind_input(0, std::span<const float>(x), DVT_F32,
                                              std::span(shape).first(flow ? 1 : 2));
      failed = failed || executor->run();
    };
    const auto rounds = [&](int count) {
      for (int round = 0; round < count; ++round) {
        for (const int64_t rows : {1, 8, 3, 5, 2, 7}) run(rows);
      }
    };
    rounds(20);
    REQUIRE(!failed);
    CHECK(allocations_of([&] { rounds(20); }) == 0);
    CHECK(!failed);
  }
}
