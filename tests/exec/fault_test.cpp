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

#include "davit/device.h"
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
  long live_bytes = 0;  // Of malloc's, as malloc_usable_size() has them.
  long mapped_bytes = 0;
};
// Helpers of a pool have their own, which nobody arms.
thread_local Faults faults;

bool fails() {
  if (!faults.armed) return false;
  const long request = faults.requests++;
  const bool fail =
      faults.failing == Failing::kOnce ? request == faults.fail_at : request >= faults.fail_at;
  faults.failed += fail ? 1 : 0;
  return fail;
}

void* given(void* block) {
  if (faults.counting && block != nullptr) {
    ++faults.live_blocks;
    faults.live_bytes += static_cast<long>(malloc_usable_size(block));
  }
  return block;
}
void taken_back(void* block) {
  if (!faults.counting || block == nullptr) return;
  --faults.live_blocks;
  faults.live_bytes -= static_cast<long>(malloc_usable_size(block));
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
  taken_back(block);
  void* moved = __libc_realloc(block, size);
  return given(moved != nullptr || size == 0 ? moved : block);
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
  taken_back(block);
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

// What runs beside the model.
struct Setting {
  bool variable = false;        // The first input and the first output are one.
  bool callers_memory = false;  // For the arena, and for all that is allocated on a device.
  DvtPool* pool = nullptr;      // Runs are dynamic, and watched.
};

// A model with its inputs, and what it answers to them.
struct Sample {
  const char* name;
  std::vector<std::byte> bytes;
  int rank;   // Of the first input, whose first dim is the number of rows; 0: four floats.
  bool flow;  // Inputs of kFlowSample.
  Setting setting;
  bool on_device;
  std::vector<std::vector<std::byte>> expected;  // Outputs for kRowsMax rows.
};

// One image and executor, with everything that runs need.
class Life {
 public:
  explicit Life(const Sample& sample) : sample_(sample) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = float(i);
    if (!sample.setting.callers_memory) return;
    device_ = dvt_cpu_device_create();
    for (void** piece : {&fixed_, &features_}) {
      REQUIRE(device_->vtable->malloc(device_, kPieceBytes, "the test", piece) == DVT_OK);
    }
  }
  ~Life() {
    close_executor();
    library([&] {
      dvt_image_close(image_);
      return DVT_OK;
    });
    for (void* piece : {fixed_, features_}) {
      if (piece != nullptr) (void)device_->vtable->free(device_, piece);
    }
    dvt_cpu_device_destroy(device_);
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
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.pool = sample_.setting.pool;
    if (options.pool != nullptr) options.schedule = DVT_SCHEDULE_DYNAMIC;
    if (drives_device()) {
      options.device = device_;
      options.device_fixed = fixed_;
      options.device_fixed_bytes = kPieceBytes;
    }
    return library([&] {
      DvtCode code = dvt_executor_create(image_, &options, &executor_, &error);
      if (code == DVT_OK && drives_device()) {
        code = dvt_executor_bind_device_memory(executor_, features_, kPieceBytes, &error);
      }
      if (code == DVT_OK && sample_.setting.callers_memory) {
        code = dvt_executor_bind_arena(executor_, arena_.data(), arena_.size(), &error);
      }
      return code;
    });
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
      if (code != DVT_OK || sample_.setting.pool == nullptr) {
        return code != DVT_OK ? code : dvt_executor_run(executor_, &error);
      }
      DvtRunOptions options;
      dvt_run_options_init(&options);
      options.flags = DVT_RUN_WATCHED;
      return dvt_executor_run_with(executor_, &options, &error);
    });
  }
  // What image and executor say that they hold of malloc's.
  [[nodiscard]] uint64_t accounted_bytes() const {
    DvtHostMemory image, executor;
    dvt_image_host_memory(image_, &image);
    dvt_executor_host_memory(executor_, &executor);
    return image.reserved_bytes + executor.reserved_bytes;
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
  static constexpr size_t kPieceBytes = 4096;

  [[nodiscard]] bool drives_device() const { return device_ != nullptr && sample_.on_device; }
  // The first input, with its shape.
  DvtCode bind_x(const DvtTensor& shape) {
    if (!sample_.setting.variable) {
      return dvt_executor_bind_input_tensor(executor_, 0, &shape, x_.data(), &error);
    }
    const DvtCode code = dvt_executor_bind_variable(executor_, 0, 0, nullptr, 0, &error);
    if (code != DVT_OK) return code;
    return dvt_executor_set_variable(executor_, 0, &shape, x_.data(), &error);
  }
  DvtCode bind(int64_t rows) {
    DvtTensor shape{};
    shape.dtype = DVT_F32;
    const int64_t dims[] = {sample_.rank == 0 ? 4 : rows, 4};
    DvtCode code = dvt_set_shape(&shape, sample_.rank == 0 ? 1U : uint32_t(sample_.rank), dims);
    if (code == DVT_OK) code = bind_x(shape);
    for (const uint32_t i : {1U, 2U, 4U}) {
      if (code != DVT_OK || !sample_.flow) continue;
      code = dvt_executor_bind_input(executor_, i, &yes_, sizeof yes_, &error);
    }
    if (code == DVT_OK && sample_.rank > 0) {
      code =
          dvt_executor_bind_input(executor_, sample_.flow ? 3 : 1, &count_, sizeof count_, &error);
    }
    const uint32_t fixed = sample_.rank == 0 ? 0 : 3;
    const bool is_variable = sample_.setting.variable && fixed == 0;
    if (code == DVT_OK && !sample_.flow && !is_variable) {
      code = dvt_executor_bind_output(executor_, fixed, y_.data(), 16, &error);
    }
    return code;
  }

  const Sample& sample_;
  DvtImage* image_ = nullptr;
  DvtExecutor* executor_ = nullptr;
  DvtDevice* device_ = nullptr;
  void *fixed_ = nullptr, *features_ = nullptr;
  alignas(4096) std::array<std::byte, 4096> arena_{};
  std::array<float, kRowsMax * 4> x_{};
  std::array<int64_t, 2> y_{};
  bool yes_ = true;
  int64_t count_ = 3;
};

Sample make_sample(const char* name, std::string_view text, int rank, bool flow,
                   const Setting& setting = {}) {
  Sample sample{name,    davit::test::assemble(text),
                rank,    flow,
                setting, text.find("AllocMemHbm") != std::string::npos,
                {}};
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

namespace {

std::string device_text() {
  std::string text(davit::test::kDeviceText);
  text.replace(text.find("\"ascend:test\""), 13, "cpu");
  return text;
}

// Null in a build without threads.
DvtPool* make_pool(uint32_t workers) {
  DvtPoolOptions options;
  dvt_pool_options_init(&options);
  options.workers = workers;
  DvtPool* pool = nullptr;
  const DvtCode code = dvt_pool_create(&options, &pool, nullptr);
  REQUIRE((code == DVT_OK || code == DVT_UNSUPPORTED));
  return pool;
}

// x and y of one shape.
constexpr const char* kStaticState = R"(davit 1.0 target cpu
input x: f32[4]
output y: f32[4]
graph main {
  y = t.Inc(x)
}
)";

}  // namespace

TEST_CASE("memory fails at every request of a model on a device") {
  fail_everywhere(make_sample("device", device_text(), 0, false), true);
}

TEST_CASE("memory fails at every request with variables") {
  const Setting setting{.variable = true};
  fail_everywhere(make_sample("static variable", kStaticState, 0, false, setting), true);
  fail_everywhere(make_sample("dynamic variable", davit::test::kDynamicSample, 2, false, setting),
                  true);
}

TEST_CASE("memory fails at every request with memory of the caller's") {
  const Setting setting{.callers_memory = true};
  fail_everywhere(make_sample("arena", davit::test::chain_text(5), 0, false, setting), false);
  fail_everywhere(make_sample("memory on a device", device_text(), 0, false, setting), true);
}

TEST_CASE("memory fails at every request of runs by the scheduler") {
  // One worker: what oneTBB keeps for calling others is not ours to count.
  DvtPool* const pool = make_pool(1);
  if (pool == nullptr) return;
  const Setting setting{.pool = pool};
  // These runs are watched, and the first one makes what watches.
  fail_everywhere(make_sample("scheduled", davit::test::chain_text(5), 0, false, setting), true);
  fail_everywhere(make_sample("scheduled, dynamic", davit::test::kDynamicSample, 2, false, setting),
                  true);
  fail_everywhere(make_sample("scheduled, device", device_text(), 0, false, setting), true);
  const Setting both{.variable = true, .pool = pool};
  fail_everywhere(
      make_sample("scheduled, dynamic variable", davit::test::kDynamicSample, 2, false, both),
      true);
  dvt_pool_destroy(pool);
}

// Their runs are left alone: oneTBB asks for memory, too, and keeps it.
TEST_CASE("memory fails at every request of making executors with helpers") {
  DvtPool* const pool = make_pool(2);
  if (pool == nullptr) return;
  const Setting setting{.pool = pool};
  for (const Sample& sample :
       {make_sample("helpers", davit::test::chain_text(5), 0, false, setting),
        make_sample("helpers, dynamic", davit::test::kDynamicSample, 2, false, setting),
        make_sample("helpers, device", device_text(), 0, false, setting)}) {
    for (const Failing failing : {Failing::kOnce, Failing::kFromThenOn}) {
      for (long fail_at = 0, failed = 1; failed > 0; ++fail_at) {
        faults = {.armed = true, .failing = failing, .fail_at = fail_at};
        {
          Life life(sample);
          DvtCode code = life.open();
          if (code == DVT_OK) code = life.create();
          faults.armed = false;
          CHECK((code == DVT_OK || (code == DVT_OUT_OF_MEMORY && faults.failed > 0)));
          failed = faults.failed;
        }
        CHECK(faults.live_blocks == 0);
        CHECK(faults.mapped_bytes == 0);
      }
    }
    Life life(sample);
    REQUIRE(life.open() == DVT_OK);
    REQUIRE(life.create() == DVT_OK);
    REQUIRE(life.run(kRowsMax) == DVT_OK);
    CHECK(life.outputs() == sample.expected);
  }
  dvt_pool_destroy(pool);
}

TEST_CASE("what image and executor keep on the host is on their accounts") {
  DvtPool* const pool = make_pool(2);
  if (pool == nullptr) return;
  const Sample samples[] = {
      make_sample("static", davit::test::chain_text(500), 0, false),
      make_sample("static, scheduled", davit::test::chain_text(500), 0, false, {.pool = pool}),
      make_sample("dynamic", davit::test::kDynamicSample, 2, false, {.pool = pool}),
      make_sample("control flow", davit::test::kFlowSample, 1, true),
      make_sample("variable", davit::test::kDynamicSample, 2, false, {.variable = true}),
      make_sample("device, scheduled", device_text(), 0, false,
                  {.callers_memory = true, .pool = pool}),
  };
  for (const Sample& sample : samples) {
    const std::string name = sample.name;
    CAPTURE(name);
    faults = {};
    Life life(sample);
    REQUIRE(life.open() == DVT_OK);
    REQUIRE(life.create() == DVT_OK);
    REQUIRE(life.run(kRowsMax) == DVT_OK);
    const auto accounted = static_cast<long>(life.accounted_bytes());
    MESSAGE(name << ": " << faults.live_bytes << " bytes in " << faults.live_blocks
                 << " blocks, accounted " << accounted);
    // malloc rounds up.
    CHECK(accounted <= faults.live_bytes);
    CHECK(accounted + 24 * faults.live_blocks >= faults.live_bytes);
  }
  dvt_pool_destroy(pool);
}
