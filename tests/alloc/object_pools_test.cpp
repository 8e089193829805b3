#include "alloc/object_pools.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/alloc/checker.hpp"

using davit::alloc::ObjectPools;
using davit::test::Checker;
using davit::test::FakeHost;

TEST_CASE("classes hold what is asked, and waste at most a quarter") {
  for (size_t bytes = 0; bytes <= ObjectPools::kLargest; ++bytes) {
    const size_t kind = ObjectPools::class_of(bytes);
    const size_t given = ObjectPools::class_bytes(kind);
    REQUIRE(given >= bytes);
    REQUIRE(ObjectPools::class_of(given) == kind);
    if (bytes > 64) REQUIRE(given <= bytes + bytes / 4 + ObjectPools::kGranule);
  }
}

TEST_CASE("objects do not overlap, and come back to the host") {
  FakeHost host;
  {
    ObjectPools pools(host.memory());
    Checker checker(16);
    std::mt19937 random(3);
    std::vector<std::pair<void*, size_t>> live;
    for (int i = 0; i < 50'000; ++i) {
      if (random() % 2 == 0 || live.empty()) {
        const size_t bytes = random() % (size_t{1} << random() % 16);
        void* address = pools.allocate(bytes);
        REQUIRE(address != nullptr);
        const auto wrong = checker.gave(address, ObjectPools::class_bytes(pools.class_of(bytes)));
        REQUIRE_MESSAGE(!wrong.has_value(), wrong.value_or(""));
        std::memset(address, 1, bytes);
        live.emplace_back(address, bytes);
      } else {
        const size_t index = random() % live.size();
        checker.took(live[index].first);
        pools.release(live[index].first, live[index].second);
        live[index] = live.back();
        live.pop_back();
      }
    }
    // Slabs, and a stack for each of the 40 classes.
    const uint64_t full_slabs = pools.host_bytes() / ObjectPools::kSlabBytes;
    CHECK(full_slabs > 10);
    CHECK(static_cast<uint64_t>(host.live) > 40);
    CHECK(static_cast<uint64_t>(host.live) <= full_slabs + 5 + 40);
    CHECK(pools.host_bytes() == host.bytes);
    CHECK(pools.allocate(ObjectPools::kLargest + 1) == nullptr);
    CHECK(pools.allocate(SIZE_MAX) == nullptr);
  }
  CHECK(host.live == 0);
}

TEST_CASE("slabs begin small") {
  FakeHost host;
  ObjectPools pools(host.memory());
  REQUIRE(pools.allocate(100) != nullptr);
  CHECK(pools.host_bytes() < 5000);
  REQUIRE(pools.allocate(ObjectPools::kLargest) != nullptr);  // More than the next would be.
  CHECK(pools.host_bytes() < 40'000);
}

TEST_CASE("an object comes back last in, first out; without host memory there is none") {
  FakeHost host;
  ObjectPools pools(host.memory());
  struct Node {
    uint64_t value[5];
  };
  Node* first = pools.make<Node>();
  REQUIRE(first != nullptr);
  pools.destroy(first);
  CHECK(pools.make<Node>() == first);
  host.fail_in = 2;  // The first is the stack of the class.
  CHECK(pools.allocate(32 << 10) == nullptr);
  CHECK(pools.allocate(32 << 10) != nullptr);
  CHECK(pools.make<Node>() != nullptr);
}

TEST_CASE("a stack that cannot grow leaves the pool as it was") {
  FakeHost host;
  ObjectPools pools(host.memory());
  std::vector<void*> objects;
  for (int i = 0; i < 32; ++i) objects.push_back(pools.allocate(16));
  host.fail_in = 1;
  CHECK(pools.allocate(16) == nullptr);
  objects.push_back(pools.allocate(16));
  REQUIRE(objects.back() != nullptr);
  for (void* object : objects) pools.release(object, 16);
  std::reverse(objects.begin(), objects.end());
  for (void* object : objects) CHECK(pools.allocate(16) == object);
}
