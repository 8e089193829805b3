// Planned values in memory of the caller's, and constants that executors share.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

using davit::Error;
using davit::Executor;
using davit::test::TextImage;

namespace {

constexpr std::byte kUntouched{0x5A};

uint64_t arena_bytes(const TextImage& text) {
  DvtImageInfo info;
  dvt_image_info(text.image.get(), &info);
  return info.arena_bytes;
}

// Memory with 64 bytes before and behind it that nobody may touch.
class Arena {
 public:
  explicit Arena(uint64_t bytes) : bytes_(bytes), memory_(bytes + 3 * 64, kUntouched) {}
  std::span<std::byte> span() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return std::span(memory_).subspan(64 + (64 - address % 64) % 64, bytes_);
  }
  bool is_used() {
    const auto inside = span();
    return std::any_of(inside.begin(), inside.end(), [](std::byte b) { return b != kUntouched; });
  }
  bool outside_is_untouched() {
    const auto* begin = span().data();
    const auto* end = begin + bytes_;
    return std::all_of(memory_.begin(), memory_.end(), [&](const std::byte& b) {
      return (&b >= begin && &b < end) || b == kUntouched;
    });
  }

 private:
  uint64_t bytes_;
  std::vector<std::byte> memory_;
};

struct Chain {
  explicit Chain(const TextImage& text) : executor(make(text)) {
    REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor.bind_output(0, std::span<float>(y)));
  }
  void check_run() {
    y = {};
    const Error error = executor.run();
    INFO(error.text());
    REQUIRE(!error);
    CHECK(y == std::array<float, 4>{6, 7, 8, 9});
  }
  static Executor make(const TextImage& text) {
    auto executor = Executor::create(text.image);
    INFO(executor.error().text());
    REQUIRE(executor);
    return std::move(*executor);
  }

  Executor executor;
  std::array<float, 4> x = {1, 2, 3, 4};
  std::array<float, 4> y{};
};

}  // namespace

namespace {

// Mappings of this process whose flags have `flag` ("hg": asks for huge pages, "nh": refuses them).
size_t mappings_with(const std::string& flag) {
  std::ifstream maps("/proc/self/smaps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("VmFlags:") && line.find(" " + flag) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("pages behind planned values are as the options say") {
  const TextImage text(
      "davit 1.3 target cpu\ninput x: f32[1048576]\noutput y: f32[1048576]\n"
      "planned v: f32[1048576]\ngraph main {\n  v = t.Sum(x)\n  y = t.Sum(v)\n}\n");
  const auto make = [&](uint32_t pages) {
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.huge_pages = pages;
    return Executor::create(text.image, &options);
  };
  const size_t asking = mappings_with("hg");
  const size_t refusing = mappings_with("nh");
  const auto as_default = make(DVT_HUGE_PAGES_AUTO);
  REQUIRE(as_default);
  // A system without huge pages knows neither flag.
  const bool knows = mappings_with("hg") > asking;
  const auto none = make(DVT_HUGE_PAGES_NONE);
  REQUIRE(none);
  if (knows) {
    CHECK(mappings_with("hg") == asking + 1);
    CHECK(mappings_with("nh") == refusing + 1);
  }
  const auto reserved = make(DVT_HUGE_PAGES_RESERVED);
  if (!reserved) {
    CHECK(reserved.error().code() == DVT_OUT_OF_MEMORY);
    CHECK(reserved.error().text().find("vm.nr_hugepages") != std::string::npos);
  }
  CHECK(make(DVT_HUGE_PAGES_RESERVED + 1).error().code() == DVT_INVALID_ARGUMENT);
}

TEST_CASE("planned values live where the caller says, and move between runs") {
  const TextImage text(davit::test::chain_text(5));
  const uint64_t bytes = arena_bytes(text);
  REQUIRE(bytes > 0);
  Chain chain(text);
  chain.check_run();
  Arena first(bytes), second(bytes);
  REQUIRE(!chain.executor.bind_arena(first.span()));
  CHECK(!first.is_used());
  chain.check_run();
  CHECK(first.is_used());
  REQUIRE(!chain.executor.bind_arena(second.span()));
  chain.check_run();
  CHECK(second.is_used());
  // Back in its own memory, the executor leaves the caller's alone.
  std::ranges::fill(second.span(), kUntouched);
  REQUIRE(!chain.executor.bind_arena({}));
  chain.check_run();
  CHECK(!second.is_used());
  CHECK(first.outside_is_untouched());
  CHECK(second.outside_is_untouched());
}

TEST_CASE("executors that take turns share one arena") {
  const TextImage text(davit::test::chain_text(5));
  Arena arena(arena_bytes(text));
  Chain a(text), b(text);
  REQUIRE(!a.executor.bind_arena(arena.span()));
  REQUIRE(!b.executor.bind_arena(arena.span()));
  for (int turn = 0; turn < 3; ++turn) {
    a.check_run();
    b.check_run();
  }
  CHECK(arena.outside_is_untouched());
}

TEST_CASE("an arena that will not do is refused, and the one before stays") {
  const TextImage text(davit::test::chain_text(5));
  const uint64_t bytes = arena_bytes(text);
  Arena good(bytes), small(bytes - 1), skewed(bytes + 64);
  Chain chain(text);
  REQUIRE(!chain.executor.bind_arena(good.span()));
  const Error too_small = chain.executor.bind_arena(small.span());
  REQUIRE(too_small.code() == DVT_INVALID_ARGUMENT);
  CHECK(too_small.detail()->expected == std::to_string(bytes) + " bytes");
  CHECK(too_small.detail()->got == std::to_string(bytes - 1) + " bytes");
  const Error misaligned = chain.executor.bind_arena(skewed.span().subspan(4));
  REQUIRE(misaligned.code() == DVT_INVALID_ARGUMENT);
  CHECK(misaligned.detail()->message == std::string("the arena is not aligned"));
  chain.check_run();
  CHECK(good.is_used());
  CHECK(!small.is_used());
  CHECK(!chain.executor.unload());
  CHECK(chain.executor.bind_arena(good.span()).code() == DVT_FAILED_STATE);
  CHECK(dvt_executor_bind_arena(nullptr, nullptr, 0, nullptr) == DVT_INVALID_ARGUMENT);
}

TEST_CASE("a bound buffer in the arena is refused at the next run") {
  const TextImage text(davit::test::chain_text(5));
  Arena arena(arena_bytes(text) + 64);
  Chain chain(text);
  REQUIRE(!chain.executor.bind_arena(arena.span().first(arena_bytes(text))));
  auto* inside = reinterpret_cast<float*>(arena.span().data() + 16);
  REQUIRE(!chain.executor.bind_output(0, std::span(inside, 4)));
  const Error error = chain.executor.run();
  REQUIRE(error.code() == DVT_INVALID_ARGUMENT);
  CHECK(error.detail()->message == std::string("a bound buffer overlaps the arena"));
  CHECK(error.detail()->tensor == std::string("y"));
  CHECK(!arena.is_used());
  // Right behind it is fine.
  auto* behind = reinterpret_cast<float*>(arena.span().data() + arena_bytes(text));
  REQUIRE(!chain.executor.bind_output(0, std::span(behind, 4)));
  REQUIRE(!chain.executor.run());
  CHECK(behind[3] == 9);
}

TEST_CASE("what shape nodes have computed moves along, as does what Init has") {
  const TextImage text(davit::test::kDynamicSample);
  auto executor = Executor::create(text.image);
  REQUIRE(executor);
  std::array<float, 32> x{};
  const int64_t count = 2;
  std::array<int64_t, 2> dims{};
  const int64_t shape[] = {3, 4};
  REQUIRE(!executor->bind_input(0, std::span<const float>(x), DVT_F32, std::span(shape)));
  REQUIRE(!executor->bind_input(1, std::span<const int64_t>(&count, 1)));
  REQUIRE(!executor->bind_output(3, std::span<int64_t>(dims)));
  REQUIRE(!executor->run());
  Arena arena(arena_bytes(text));
  dims = {};
  REQUIRE(!executor->bind_arena(arena.span()));
  REQUIRE(!executor->run());
  CHECK(dims == std::array<int64_t, 2>{3, 4});
  CHECK(arena.is_used());

  const TextImage with_init(R"(davit 1.0 target cpu
output y: f32[4]
const w: f32[4] = {1, 2, 3, 4}
planned v: f32[4] @0
graph init {
  v = t.Inc(w)
}
graph main {
  y = t.Inc(v)
}
)");
  Executor initialised = Chain::make(with_init);
  std::array<float, 4> y{};
  Arena second(arena_bytes(with_init));
  REQUIRE(!initialised.bind_output(0, std::span<float>(y)));
  REQUIRE(!initialised.bind_arena(second.span()));
  REQUIRE(!initialised.run());
  CHECK(y == std::array<float, 4>{3, 4, 5, 6});
}

TEST_CASE("executors read constants where the image has them") {
  const TextImage text(R"(davit 1.0 target cpu
input x: f32[4]
output y: f32[4]
const w: f32[4] = {1, 2, 3, 4}
graph main {
  y = t.Add(x, w)
}
)");
  std::vector<const void*> seen;
  for (int i = 0; i < 2; ++i) {
    Executor executor = Chain::make(text);
    std::array<float, 4> x{}, y{};
    REQUIRE(!executor.bind_input(0, std::span<const float>(x)));
    REQUIRE(!executor.bind_output(0, std::span<float>(y)));
    REQUIRE(!executor.run_observed([&](const DvtNodeEvent& event) {
      CHECK(dvt_input(event.context, 0)->data == x.data());  // Inputs and outputs, too.
      seen.push_back(dvt_input(event.context, 1)->data);
      CHECK(dvt_output(event.context, 0)->data == y.data());
    }));
    CHECK(y == std::array<float, 4>{1, 2, 3, 4});
  }
  REQUIRE(seen.size() == 2);
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] >= text.bytes.data());
  CHECK(seen[0] < text.bytes.data() + text.bytes.size());
}
