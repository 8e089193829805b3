// Every request for memory fails, in opening an image, in making an executor and in runs: once, or
// from then on. The caller gets a status, nothing is leaked, and the next run is right. malloc and
// its family, mmap and mprotect are replaced by ones that fail and that keep accounts. Not under
// sanitizers, which replace them themselves (tests/exec/meson.build).
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/exec/support.hpp"
#include "tests/support/dynamic_kernels.hpp"

// glibc's own names of the functions that are replaced below.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);
}

namespace {

enum class Failing { kOnce, kFromThenOn };

// What the functions below do, while the library is being called.
struct Faults {
  bool counting = false;
  bool armed = false;
  Failing failing = Failing::kOnce;
  long fail_at = 0;
  long requests = 0;  // While armed.
  long failed = 0;
  long live_blocks = 0;
  long mapped_bytes = 0;
};
Faults faults;

bool fails() {
  if (!faults.armed) return false;
  const long request = faults.requests++;
  const bool fail =
      faults.failing == Failing::kOnce ? request == faults.fail_at : request >= faults.fail_at;
  faults.failed += fail ? 1 : 0;
  return fail;
}

void* given(void* block) {
  if (faults.counting && block != nullptr) ++faults.live_blocks;
  return block;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Calls the library with accounts, and with faults if they are armed.
template <class Call>
DvtCode library(Call call) {
  faults.counting = true;
  const DvtCode code = call();
  faults.counting = false;
  return code;
}

}  // namespace

// Visible, so that the C++ library's calls come here, too.
#pragma GCC visibility push(default)
extern "C" {
void* malloc(size_t size) {
  return faults.counting && fails() ? nullptr : given(__libc_malloc(size));
}
void* calloc(size_t number, size_t size) {
  return faults.counting && fails() ? nullptr : given(__libc_calloc(number, size));
}
void* realloc(void* block, size_t size) {
  if (faults.counting && fails()) return nullptr;
  void* moved = __libc_realloc(block, size);
  return block == nullptr ? given(moved) : moved;
}
void* aligned_alloc(size_t alignment, size_t size) {
  return faults.counting && fails() ? nullptr : given(__libc_memalign(alignment, size));
}
void* memalign(size_t alignment, size_t size) {
  return faults.counting && fails() ? nullptr : given(__libc_memalign(alignment, size));
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  if (faults.counting && fails()) return ENOMEM;
  *out = given(__libc_memalign(alignment, size));
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  if (faults.counting && block != nullptr) --faults.live_blocks;
  __libc_free(block);
}
void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  using Mmap = void* (*)(void*, size_t, int, int, int, off_t);
  static const auto map = real<Mmap>("mmap");
  if (faults.counting && fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* mapped = map(address, length, protection, flags, file, offset);
  if (faults.counting && mapped != MAP_FAILED) faults.mapped_bytes += static_cast<long>(length);
  return mapped;
}
int munmap(void* address, size_t length) {
  using Munmap = int (*)(void*, size_t);
  static const auto unmap = real<Munmap>("munmap");
  if (faults.counting) faults.mapped_bytes -= static_cast<long>(length);
  return unmap(address, length);
}
int mprotect(void* address, size_t length, int protection) {
  using Mprotect = int (*)(void*, size_t, int);
  static const auto protect = real<Mprotect>("mprotect");
  // Taking access away asks for nothing.
  if (faults.counting && protection != PROT_NONE && fails()) {
    errno = ENOMEM;
    return -1;
  }
  return protect(address, length, protection);
}
}
#pragma GCC visibility pop

namespace {

constexpr int64_t kRowsMax = 8;

// A model with its inputs, and what it answers to them.
struct Sample {
  const char* name;
  std::vector<std::byte> bytes;
  int rank;   // Of the first input, whose first dim is the number of rows; 0: four floats.
  bool flow;  // Inputs of kFlowSample.
  std::vector<std::vector<std::byte>> expected;  // Outputs for kRowsMax rows.
};

// One image and executor, with everything that runs need.
class Life {
 public:
  explicit Life(const Sample& sample) : sample_(sample) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = float(i);
  }
  ~Life() {
    close_executor();
    library([&] {
      dvt_image_close(image_);
      return DVT_OK;
    });
  }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  DvtCode open() {
    DvtImageOptions options;
    dvt_image_options_init(&options);
    const DvtKernelTable tables[] = {davit::test::exec_kernels(), davit::test::dynamic_kernels()};
    options.kernel_tables = tables;
    options.kernel_table_count = std::size(tables);
    return library([&] {
      return dvt_image_open_memory(sample_.bytes.data(), sample_.bytes.size(), &options, &image_,
                                   &error);
    });
  }
  DvtCode create() {
    return library([&] { return dvt_executor_create(image_, nullptr, &executor_, &error); });
  }
  void close_executor() {
    library([&] {
      dvt_executor_destroy(std::exchange(executor_, nullptr));
      return DVT_OK;
    });
  }
  // Binds and runs.
  DvtCode run(int64_t rows) {
    return library([&] {
      DvtCode code = bind(rows);
      if (code == DVT_OK) code = dvt_executor_run(executor_, &error);
      return code;
    });
  }
  std::vector<std::vector<std::byte>> outputs() {
    std::vector<std::vector<std::byte>> all;
    for (uint32_t i = 0; i < dvt_image_output_count(image_); ++i) {
      DvtTensor tensor;
      const void* data = nullptr;
      REQUIRE(dvt_executor_output_tensor(executor_, i, &tensor, &data, &error) == DVT_OK);
      const auto* bytes = static_cast<const std::byte*>(data);
      all.emplace_back(bytes, bytes + tensor.bytes);
    }
    return all;
  }

  DvtError error{};

 private:
  DvtCode bind(int64_t rows) {
    DvtTensor shape{};
    shape.dtype = DVT_F32;
    const int64_t dims[] = {sample_.rank == 0 ? 4 : rows, 4};
    DvtCode code = dvt_set_shape(&shape, sample_.rank == 0 ? 1U : uint32_t(sample_.rank), dims);
    if (code == DVT_OK) {
      code = dvt_executor_bind_input_tensor(executor_, 0, &shape, x_.data(), &error);
    }
    for (const uint32_t i : {1U, 2U, 4U}) {
      if (code != DVT_OK || !sample_.flow) continue;
      code = dvt_executor_bind_input(executor_, i, &yes_, sizeof yes_, &error);
    }
    if (code == DVT_OK && sample_.rank > 0) {
      code =
          dvt_executor_bind_input(executor_, sample_.flow ? 3 : 1, &count_, sizeof count_, &error);
    }
    const uint32_t fixed = sample_.rank == 0 ? 0 : 3;
    if (code == DVT_OK && !sample_.flow) {
      code = dvt_executor_bind_output(executor_, fixed, y_.data(), 16, &error);
    }
    return code;
  }

  const Sample& sample_;
  DvtImage* image_ = nullptr;
  DvtExecutor* executor_ = nullptr;
  std::array<float, kRowsMax * 4> x_{};
  std::array<int64_t, 2> y_{};
  bool yes_ = true;
  int64_t count_ = 3;
};

Sample make_sample(const char* name, std::string_view text, int rank, bool flow) {
  Sample sample{name, davit::test::assemble(text), rank, flow, {}};
  // The first call of anything may leave something behind for good; it is not a leak.
  Life life(sample);
  REQUIRE(life.open() == DVT_OK);
  REQUIRE(life.create() == DVT_OK);
  REQUIRE(life.run(1) == DVT_OK);
  REQUIRE(life.run(kRowsMax) == DVT_OK);
  sample.expected = life.outputs();
  return sample;
}

// A whole life in which the `fail_at`-th request fails. False: it has fewer.
bool live_with(const Sample& sample, Failing failing, long fail_at) {
  faults = {.armed = true, .failing = failing, .fail_at = fail_at};
  {
    Life life(sample);
    DvtCode code = life.open();
    if (code == DVT_OK) code = life.create();
    if (code == DVT_OK) code = life.run(1);
    // A request that may fail without harm (a huge page, a name for a message) is not an error.
    if (code != DVT_OK) {
      CHECK(faults.failed > 0);
      CHECK(code == DVT_OUT_OF_MEMORY);
      CHECK(life.error.code == DVT_OUT_OF_MEMORY);
      CHECK(std::strlen(life.error.message) > 0);
    }
    if (code == DVT_OK) code = life.run(kRowsMax);
    CHECK((code == DVT_OK || code == DVT_OUT_OF_MEMORY));
    faults.armed = false;
  }
  CHECK(faults.live_blocks == 0);
  CHECK(faults.mapped_bytes == 0);
  return faults.failed > 0;
}

// A run in which a request fails, and the one after it. False: it has fewer.
bool run_with(const Sample& sample, Failing failing, long fail_at) {
  faults = {.failing = failing, .fail_at = fail_at};
  {
    Life life(sample);
    REQUIRE(life.open() == DVT_OK);
    REQUIRE(life.create() == DVT_OK);
    for (const int64_t rows : {int64_t{1}, kRowsMax}) {
      faults.armed = true;
      const DvtCode code = life.run(rows);
      faults.armed = false;
      CHECK((code == DVT_OK || code == DVT_OUT_OF_MEMORY));
      REQUIRE(life.run(kRowsMax) == DVT_OK);
      CHECK(life.outputs() == sample.expected);
    }
  }
  CHECK(faults.live_blocks == 0);
  CHECK(faults.mapped_bytes == 0);
  return faults.failed > 0;
}

void fail_everywhere(const Sample& sample, bool runs_ask) {
  for (const Failing failing : {Failing::kOnce, Failing::kFromThenOn}) {
    long lives = 0;
    while (live_with(sample, failing, lives)) ++lives;
    long runs = 0;
    while (run_with(sample, failing, runs)) ++runs;
    MESSAGE(std::string(sample.name)
            << ": " << lives << " requests of a life, " << runs << " of two runs");
    CHECK(lives > 10);
    CHECK((runs > 0) == runs_ask);
  }
}

}  // namespace

TEST_CASE("memory fails at every request of a static model") {
  fail_everywhere(make_sample("static", davit::test::chain_text(5), 0, false), false);
}

TEST_CASE("memory fails at every request of a model with dynamic shapes") {
  fail_everywhere(make_sample("dynamic", davit::test::kDynamicSample, 2, false), true);
}

TEST_CASE("memory fails at every request of a model with control flow") {
  fail_everywhere(make_sample("control flow", davit::test::kFlowSample, 1, true), true);
}

TEST_CASE("memory fails at every request of a model on a device") {
  std::string text(davit::test::kDeviceText);
  text.replace(text.find("\"ascend:test\""), 13, "cpu");
  fail_everywhere(make_sample("device", text, 0, false), true);
}
