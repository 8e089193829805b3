#include "tests/exec/support.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <iterator>

#include "exec/runtime.h"
#include "lowering/image/image_model.hpp"
#include "tests/support/dynamic_kernels.hpp"

namespace davit::test {

thread_local Control control;
std::atomic<DvtCode (*)(uint32_t node)> sum_hook{nullptr};

namespace {

float* floats(DvtCell* cell) {
  return static_cast<float*>(cell->data);
}

size_t float_count(const DvtCell* cell) {
  return cell->tensor->bytes / sizeof(float);
}

DvtCode run_add(void* context) {
  auto* ctx = static_cast<DvtContext*>(context);
  for (size_t i = 0; i < float_count(dvt_output(ctx, 0)); ++i) {
    floats(dvt_output(ctx, 0))[i] = floats(dvt_input(ctx, 0))[i] + floats(dvt_input(ctx, 1))[i];
  }
  return DVT_OK;
}

DvtCode run_inc(void* context) {
  auto* ctx = static_cast<DvtContext*>(context);
  for (size_t i = 0; i < float_count(dvt_output(ctx, 0)); ++i) {
    floats(dvt_output(ctx, 0))[i] = floats(dvt_input(ctx, 0))[i] + 1;
  }
  return DVT_OK;
}

DvtCode run_sum(void* context) {
  auto* ctx = static_cast<DvtContext*>(context);
  const auto hook = sum_hook.load();
  const DvtCode code = hook == nullptr ? DVT_OK : hook(ctx->node);
  if (code != DVT_OK) return code;
  for (size_t i = 0; i < float_count(dvt_output(ctx, 0)); ++i) {
    float sum = 1;
    for (uint32_t k = 0; k < ctx->input_count; ++k) sum += floats(dvt_input(ctx, k))[i];
    floats(dvt_output(ctx, 0))[i] = sum;
  }
  return DVT_OK;
}

// Every operand is there, f32, and as large as the first.
DvtCode check_floats(const DvtContext* ctx, char* reason, size_t size) {
  const uint32_t operands = uint32_t{ctx->input_count} + ctx->output_count;
  for (uint32_t i = 0; i < operands; ++i) {
    const DvtCell* cell = ctx->cells[i];
    if (cell != nullptr && cell->tensor != nullptr && cell->tensor->dtype == DVT_F32 &&
        cell->tensor->bytes == ctx->cells[0]->tensor->bytes) {
      continue;
    }
    std::snprintf(reason, size, "operand %u is not as it should be", i);
    return DVT_INVALID_ARGUMENT;
  }
  return DVT_OK;
}

DvtCode run_step(void* context) {
  auto* ctx = static_cast<DvtContext*>(context);
  control.visits.push_back(ctx->node);
  if (ctx->node == control.fail_node) {
    if (!control.reason.empty()) {
      std::snprintf(ctx->runtime->reason, ctx->runtime->reason_bytes, "%s", control.reason.c_str());
    }
    return control.fail_code;
  }
  if (ctx->output_count > 0 && dvt_output(ctx, 0)->tensor == nullptr) {
    dvt_output(ctx, 0)->word = ctx->node;
  }
  return DVT_OK;
}

DvtCode check_anything(const DvtContext* /*ctx*/, char* /*reason*/, size_t /*size*/) {
  return DVT_OK;
}

DvtCode check_nothing(const DvtContext* /*ctx*/, char* reason, size_t size) {
  std::snprintf(reason, size, "it never agrees");
  return DVT_INVALID_ARGUMENT;
}

DvtKernel kernel(const char* name, uint32_t flags, uint16_t inputs, uint16_t outputs,
                 DvtKernelFn run, DvtKernelCheckFn check) {
  return {.name = name,
          .abi_version = DVT_KERNEL_ABI_VERSION,
          .flags = flags,
          .input_min = inputs,
          .input_max = inputs,
          .output_min = outputs,
          .output_max = outputs,
          .attribute_bytes = 0,
          .attribute_count = 0,
          .attributes = nullptr,
          .run = run,
          .check = check};
}

std::vector<DvtKernel> make_kernels() {
  const uint32_t pure = DVT_KERNEL_PURE | DVT_KERNEL_DEVICE;
  std::vector<DvtKernel> kernels = {
      kernel("t.Add", pure, 2, 1, run_add, check_floats),
      kernel("t.Inc", pure, 1, 1, run_inc, check_floats),
      kernel("t.Sum", DVT_KERNEL_PURE, 1, 1, run_sum, check_floats),
      kernel("t.Step", DVT_KERNEL_LANE_NORMAL, 0, 0, run_step, check_anything),
      kernel("t.Deny", DVT_KERNEL_LANE_NORMAL, 0, 0, run_step, check_nothing),
  };
  for (DvtKernel& any : kernels) {
    if (any.run == run_sum) any.input_max = 16;
    if (any.run != run_step) continue;
    any.input_max = 16;
    any.output_max = 16;
  }
  return kernels;
}

Image open_text(std::span<const std::byte> bytes) {
  const DvtKernelTable tables[] = {exec_kernels(), dynamic_kernels()};
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = tables;
  options.kernel_table_count = std::size(tables);
  auto image = Image::borrow(bytes, &options);
  INFO(image.error().text());
  REQUIRE(image);
  return std::move(*image);
}

}  // namespace

DvtKernelTable exec_kernels() {
  static const std::vector<DvtKernel> kernels = make_kernels();
  return {kernels.data(), kernels.size()};
}

std::vector<std::byte> assemble(std::string_view text) {
  const DvtKernelTable tables[] = {exec_kernels(), dynamic_kernels()};
  auto model = image::assemble_text(text, tables);
  INFO(model.status().to_string());
  REQUIRE(model.ok());
  auto bytes = image::write_image(*model, tables);
  INFO(bytes.status().to_string());
  REQUIRE(bytes.ok());
  return std::move(bytes).value();
}

std::string assembly_error(std::string_view text) {
  const DvtKernelTable tables[] = {exec_kernels(), dynamic_kernels()};
  const auto model = image::assemble_text(text, tables);
  if (!model.ok()) return model.status().to_string();
  const auto bytes = image::write_image(*model, tables);
  return bytes.ok() ? "" : bytes.status().to_string();
}

TextImage::TextImage(std::string_view text) : bytes(assemble(text)), image(open_text(bytes)) {}

std::string chain_text(uint32_t count) {
  std::string values = "davit 1.0 target cpu\ninput x: f32[4]\noutput y: f32[4]\n";
  std::string nodes = "graph main {\n";
  for (uint32_t i = 0; i < count; ++i) {
    const std::string from = i == 0 ? "x" : "v" + std::to_string(i - 1);
    const std::string to = i + 1 == count ? "y" : "v" + std::to_string(i);
    if (i + 1 < count) values += "planned " + to + ": f32[4] @" + std::to_string(i * 64) + "\n";
    nodes += "  " + to + " = t.Inc(" + from + ") origin=\"inc_" + std::to_string(i) +
             "\" op=\"test::Inc(1)\"\n";
  }
  return values + nodes + "}\n";
}

const std::string_view kDeviceText = R"text(davit 1.0 target "ascend:test"
streams 2
events 1
input x: f32[4]
output y: f32[4]
const w: f32[4] = {10, 20, 30, 40}
device dw: f32[4]
device dx: f32[4]
device sum: f32[4]
device sum2: f32[2, 2]
device dy: f32[2, 2]
device dy1: f32[4]

graph init {
  stream: CreateStream() {stream=0, priority=0} origin="stream_0"
  side: CreateStream() {stream=1, priority=1} origin="stream_1"
  event: CreateEvent() {event=0} origin="event_0"
  dw = AllocMemHbm() {bytes=16} origin="w"
  LaunchH2DCopy(w, dw) stream=0 after=[stream] origin="w"
  SyncStream() {stream=0} after=[side, event]
}

graph main {
  dx = AllocMemHbm() {bytes=16} origin="x"
  upload: LaunchH2DCopy(x, dx) stream=1 origin="x"
  record: RecordEvent() {event=0} stream=1 after=[upload]
  wait: WaitEvent() {event=0} stream=0 after=[record]
  asum: sum = AllocMemHbm() {bytes=16} origin="sum"
  sum = LaunchKernel<t.Add>(dx, dw) stream=0 after=[wait, asum] origin="add_1" op="test::Add(1)"
  sum2 = BuildRefTensor(sum) origin="reshape"
  ady: dy = AllocMemHbm() {bytes=16} origin="y"
  dy = LaunchKernel<t.Inc>(sum2) stream=0 after=[ady] origin="inc_1" op="test::Inc(1)"
  dy1 = BuildRefTensor(dy) origin="reshape_back"
  download: y = LaunchD2HCopy(dy1) stream=0 origin="y"
  sync: SyncStream() {stream=0} after=[download]
  FreeMemHbm(dx) after=[sync] origin="x"
  FreeMemHbm(sum) after=[sync] origin="sum"
  FreeMemHbm(dy) after=[sync] origin="y"
}

graph deinit {
  FreeMemHbm(dw) origin="w"
  DestroyEvent() {event=0} origin="event_0"
  DestroyStream() {stream=1} origin="stream_1"
  DestroyStream() {stream=0} origin="stream_0"
}
)text";

void check_ok(const Error& error) {
  INFO(error.text());
  CHECK(!error);
}

}  // namespace davit::test
