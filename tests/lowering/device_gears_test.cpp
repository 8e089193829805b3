// Gears of device images: each body runs in the place of Main, in order and with its lanes apart.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "davit/davit.hpp"
#include "davit/npu.h"
#include "exec/image.hpp"
#include "exec/runtime.h"
#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::NpyArray;
using davit::compiler::compile_module;
using davit::compiler::CompiledImage;
using davit::compiler::CompileOptions;
using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

constexpr int64_t kBatches[] = {1, 2, 5};

// y = tanh(x w + b) + exp(k), z = b - y; k is computed by Init where folding is off.
davit::ir::Module branches(int64_t batch = -1) {
  TinyModule tiny;
  const auto x = tiny.input("x", {batch, 64});
  const auto b = tiny.input("b", {64});
  std::vector<float> weights(64 * 64);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.01F * float(i % 13) - 0.05F;
  const auto w = tiny.constant("w", f32_tensor({64, 64}, weights));
  const auto k = tiny.constant("k", f32_tensor({32, 64}, std::vector<float>(2048, 0.5F)));
  const auto once = tiny.node("ReduceMax", {tiny.node("Exp", {k}, "e")}, "once");
  const auto product = tiny.node("MatMul", {x, w}, "p");
  const auto sum = tiny.node("Tanh", {tiny.node("Add", {product, b}, "s")}, "t");
  const auto y = tiny.node("Add", {sum, once}, "y");
  return tiny.build({y, tiny.node("Sub", {b, tiny.node("Sigmoid", {x}, "g")}, "z")});
}

CompileOptions with_gears(DvtTarget target = DVT_TARGET_ASCEND) {
  CompileOptions options;
  options.target = target;
  options.gears.batches.assign(std::begin(kBatches), std::end(kBatches));
  options.disabled_passes = {"fold_constants"};
  return options;
}

std::vector<float> numbers(int64_t count, float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + 0.03F * float(i % 29));
  return values;
}

struct DestroyNpu {
  void operator()(DvtNpu* npu) const { dvt_npu_destroy(npu); }
};
using Npu = std::unique_ptr<DvtNpu, DestroyNpu>;

Npu make_npu(DvtNpuMode mode, uint64_t seed = 1) {
  DvtNpuOptions options;
  dvt_npu_options_init(&options);
  options.mode = mode;
  options.seed = seed;
  options.check_order = 1;
  DvtNpu* npu = nullptr;
  DvtError error{};
  REQUIRE_MESSAGE(dvt_npu_create(&options, &npu, &error) == DVT_OK, error.message);
  return Npu(npu);
}

using Outputs = std::vector<std::vector<float>>;

// An executor of an image with gears.
class Session {
 public:
  Session(const CompiledImage& compiled, DvtDevice* device, DvtPool* pool = nullptr)
      : bytes_(compiled.bytes) {
    auto image =
        davit::Image::borrow({static_cast<const std::byte*>(bytes_.data()), bytes_.size()});
    REQUIRE_MESSAGE(image, image.error().text());
    image_ = std::make_unique<davit::Image>(std::move(*image));
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.device = device;
    options.pool = pool;
    if (pool != nullptr) options.schedule = DVT_SCHEDULE_DYNAMIC;
    DvtError error{};
    REQUIRE_MESSAGE(dvt_executor_create(image_->get(), &options, &executor_, &error) == DVT_OK,
                    error.message);
  }
  ~Session() { dvt_executor_destroy(executor_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  DvtError bind(int64_t batch) {
    x_ = numbers(batch * 64, -0.4F);
    b_ = numbers(64, 0.1F);
    DvtError error{};
    DvtTensor x{};
    x.dtype = DVT_F32;
    x.rank = 2;
    x.dims[0] = batch;
    x.dims[1] = 64;
    if (dvt_executor_bind_input_tensor(executor_, 0, &x, x_.data(), &error) == DVT_OK) {
      error.code =
          dvt_executor_bind_input(executor_, 1, b_.data(), b_.size() * sizeof(float), &error);
    }
    return error;
  }

  DvtError run(int64_t batch, const DvtRunOptions* options = nullptr) {
    DvtError error = bind(batch);
    if (error.code != DVT_OK) return error;
    error.code = options == nullptr ? dvt_executor_run(executor_, &error)
                                    : dvt_executor_run_with(executor_, options, &error);
    return error;
  }

  Outputs outputs() {
    Outputs values;
    for (uint32_t i = 0; i < 2; ++i) {
      DvtTensor tensor;
      const void* data = nullptr;
      DvtError error{};
      REQUIRE_MESSAGE(dvt_executor_output_tensor(executor_, i, &tensor, &data, &error) == DVT_OK,
                      error.message);
      auto& output = values.emplace_back(tensor.bytes / sizeof(float));
      std::memcpy(output.data(), data, tensor.bytes);
    }
    return values;
  }

  DvtExecutor* get() { return executor_; }

 private:
  davit::testing::AlignedBytes bytes_;
  std::unique_ptr<davit::Image> image_;
  DvtExecutor* executor_ = nullptr;
  std::vector<float> x_, b_;
};

CompiledImage compiled(const CompileOptions& options) {
  auto image = compile_module(branches(), options);
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  return std::move(*image);
}

std::vector<Outputs> on_cpu() {
  const CompiledImage image = compiled(with_gears(DVT_TARGET_CPU));
  Session session(image, nullptr);
  std::vector<Outputs> expected;
  for (const int64_t batch : kBatches) {
    const DvtError error = session.run(batch);
    REQUIRE_MESSAGE(error.code == DVT_OK, error.message);
    expected.push_back(session.outputs());
  }
  return expected;
}

// Alternating gears, each with the bits of the cpu; nothing is left on the device.
void check_runs(const CompiledImage& image, const std::vector<Outputs>& expected, DvtPool* pool) {
  for (const DvtNpuMode mode : {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL}) {
    const Npu npu = make_npu(mode, 7);
    {
      Session session(image, dvt_npu_device(npu.get()), pool);
      for (const size_t gear : {1U, 0U, 2U, 2U, 0U, 1U}) {
        const DvtError error = session.run(kBatches[gear]);
        REQUIRE_MESSAGE(error.code == DVT_OK, error.message);
        CHECK(dvt_executor_gear(session.get()) == gear);
        CHECK(session.outputs() == expected[gear]);
        DvtScheduleInfo ran;
        dvt_executor_schedule(session.get(), &ran);
        CHECK_MESSAGE(ran.schedule == uint32_t(pool == nullptr ? DVT_SCHEDULE_SEQUENTIAL
                                                               : DVT_SCHEDULE_DYNAMIC),
                      ran.reason);
      }
    }
    DvtNpuMemory memory;
    dvt_npu_memory(npu.get(), &memory);
    CHECK(memory.live_bytes == 0);
  }
}

uint32_t count_nodes(const davit::image::ImageModel& model, davit::image::GraphRole role,
                     const std::string& kernel) {
  uint32_t count = 0;
  for (const davit::image::Graph& graph : model.graphs) {
    if (graph.role != role) continue;
    for (const davit::image::Node& node : graph.nodes) {
      count += model.kernels[node.kernel].name == kernel ? 1 : 0;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("gears on a device give the bits of the cpu, in any order, one stream or several") {
  const std::vector<Outputs> expected = on_cpu();
  for (const uint32_t streams : {1U, 3U}) {
    CompileOptions options = with_gears();
    options.streams = streams;
    options.stream_gain = 1e9;  // Whatever they promise.
    options.enabled_passes = {"fuse_copies"};
    const CompiledImage image = compiled(options);
    CHECK(image.report.gears.size() == 3);
    check_runs(image, expected, nullptr);
  }
}

TEST_CASE("gears on a device run with their lanes apart, too") {
  const std::vector<Outputs> expected = on_cpu();
  for (const uint32_t workers : {1U, 2U, 3U}) {
    auto pool = davit::Pool::create(workers);
    REQUIRE(pool);
    for (const uint32_t streams : {1U, 3U}) {
      CompileOptions options = with_gears();
      options.streams = streams;
      options.stream_gain = 1e9;
      check_runs(compiled(options), expected, pool->get());
    }
  }
}

TEST_CASE("all gears share what Init brings to the device, and no more") {
  const CompiledImage gears = compiled(with_gears());
  CompileOptions options = with_gears();
  options.gears = {};
  const auto alone = compile_module(branches(5), options);
  REQUIRE_MESSAGE(alone.ok(), alone.status().to_string());
  const auto of_gears = davit::image::read_image_model(gears.bytes);
  const auto of_one = davit::image::read_image_model(alone->bytes);
  REQUIRE(of_gears.ok());
  REQUIRE(of_one.ok());
  using davit::image::GraphRole;
  for (const char* kernel : {"CreateStream", "AllocMemHbm", "LaunchH2DCopy", "LaunchKernel"}) {
    INFO(kernel);
    const uint32_t expected = count_nodes(*of_one, GraphRole::kInit, kernel);
    CHECK(expected > 0);
    CHECK(count_nodes(*of_gears, GraphRole::kInit, kernel) == expected);
  }
  CHECK(count_nodes(*of_gears, GraphRole::kDeInit, "FreeMemHbm") ==
        count_nodes(*of_one, GraphRole::kDeInit, "FreeMemHbm"));
  CHECK(of_gears->constants.size() == of_one->constants.size());
  // A run needs as much memory as its gear, and so does the image as its largest.
  const auto needs_of = [](const std::vector<std::byte>& bytes) {
    const davit::testing::AlignedBytes memory(bytes);
    auto image =
        davit::Image::borrow({static_cast<const std::byte*>(memory.data()), memory.size()});
    REQUIRE(image);
    DvtDeviceMemoryNeeds needs{};
    CHECK(dvt_image_device_memory(image->get(), &needs, nullptr) == DVT_OK);
    return needs;
  };
  CHECK(needs_of(gears.bytes).fixed_bytes == needs_of(alone->bytes).fixed_bytes);
  CHECK(needs_of(gears.bytes).feature_bytes == needs_of(alone->bytes).feature_bytes);
}

TEST_CASE("a shape that is no gear is an error before anything is submitted") {
  const Npu npu = make_npu(DVT_NPU_PROMPT);
  const CompiledImage image = compiled(with_gears());
  Session session(image, dvt_npu_device(npu.get()));
  const DvtError error = session.run(3);
  CHECK(error.code == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.tensor) == "x");
  CHECK(std::string(error.expected) == "f32[1,64] or f32[2,64] or f32[5,64]");
  CHECK(std::string(error.got) == "f32[3,64]");
  CHECK(dvt_npu_run_count(npu.get()) == 0);
  CHECK(session.run(5).code == DVT_OK);
}

TEST_CASE("observers see the nodes of the gear that runs; a cancelled one leaves no memory") {
  const Npu npu = make_npu(DVT_NPU_LAZY);
  const CompiledImage image = compiled(with_gears());
  Session session(image, dvt_npu_device(npu.get()));
  REQUIRE(session.run(2).code == DVT_OK);
  struct Seen {
    std::multiset<uint32_t> bodies;
    std::set<std::string> kernels;
    DvtCancel* cancel = nullptr;
  } seen;
  DvtRunOptions options;
  dvt_run_options_init(&options);
  options.observer = [](void* user, const DvtNodeEvent* event) {
    auto& to = *static_cast<Seen*>(user);
    to.bodies.insert(event->body);
    to.kernels.insert(event->kernel);
    if (to.cancel != nullptr && to.bodies.size() == 4) dvt_cancel_request(to.cancel);
  };
  options.observer_user = &seen;
  REQUIRE(session.run(2, &options).code == DVT_OK);
  CHECK(seen.bodies.count(DVT_NO_INDEX) == 1);  // SelectGear itself.
  CHECK(seen.bodies.count(2) == seen.bodies.size() - 1);
  CHECK(seen.kernels.count("LaunchKernel") == 1);
  CHECK(dvt_executor_live_bytes(session.get(), DVT_MEMORY_DEVICE) == 0);
  REQUIRE(dvt_cancel_create(&seen.cancel, nullptr) == DVT_OK);
  options.cancel = seen.cancel;
  seen.bodies.clear();
  const DvtError error = session.run(5, &options);
  CHECK(error.code == DVT_CANCELLED);
  CHECK(dvt_executor_live_bytes(session.get(), DVT_MEMORY_DEVICE) == 0);
  dvt_cancel_destroy(seen.cancel);
  CHECK(session.run(1).code == DVT_OK);
}
