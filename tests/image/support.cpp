#include "tests/image/support.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "exec/image.hpp"
#include "image_generated.h"
#include "schema/layout.h"

namespace davit::test {
namespace {

DvtCode refuse(char* reason, size_t size, const char* why) {
  if (reason != nullptr && size != 0) std::snprintf(reason, size, "%s", why);
  return DVT_INVALID_IMAGE;
}

bool all_tensors(const DvtContext* ctx) {
  for (uint32_t i = 0; i < uint32_t{ctx->input_count} + ctx->output_count; ++i) {
    if (ctx->cells[i] == nullptr || ctx->cells[i]->tensor == nullptr) return false;
  }
  return true;
}

// All operands are f32 tensors with the same bytes.
DvtCode check_f32(const DvtContext* ctx, char* reason, size_t size) {
  if (!all_tensors(ctx)) return refuse(reason, size, "an operand is absent");
  for (uint32_t i = 0; i < uint32_t{ctx->input_count} + ctx->output_count; ++i) {
    const DvtTensor& tensor = *ctx->cells[i]->tensor;
    if (tensor.dtype != DVT_F32) return refuse(reason, size, "takes f32 only");
    if (tensor.bytes != ctx->cells[0]->tensor->bytes) return refuse(reason, size, "sizes differ");
  }
  return DVT_OK;
}

DvtCode run_add(void* context) {
  const auto* ctx = static_cast<const DvtContext*>(context);
  const auto* a = static_cast<const float*>(dvt_input(ctx, 0)->data);
  const auto* b = static_cast<const float*>(dvt_input(ctx, 1)->data);
  auto* c = static_cast<float*>(dvt_output(ctx, 0)->data);
  for (uint64_t i = 0; i < dvt_output(ctx, 0)->tensor->bytes / sizeof(float); ++i)
    c[i] = a[i] + b[i];
  return DVT_OK;
}

DvtCode run_scale(void* context) {
  const auto* ctx = static_cast<const DvtContext*>(context);
  double factor = 0;
  std::memcpy(&factor, ctx->attributes, sizeof factor);
  const auto* a = static_cast<const float*>(dvt_input(ctx, 0)->data);
  auto* b = static_cast<float*>(dvt_output(ctx, 0)->data);
  for (uint64_t i = 0; i < dvt_output(ctx, 0)->tensor->bytes / sizeof(float); ++i) {
    b[i] = static_cast<float>(a[i] * factor);
  }
  return DVT_OK;
}

// Outputs are no larger than the input.
DvtCode check_prefixes(const DvtContext* ctx, char* reason, size_t size) {
  if (!all_tensors(ctx)) return refuse(reason, size, "an operand is absent");
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    if (dvt_output(ctx, i)->tensor->bytes > dvt_input(ctx, 0)->tensor->bytes) {
      return refuse(reason, size, "an output is larger than the input");
    }
  }
  return DVT_OK;
}

DvtCode run_prefixes(void* context) {
  const auto* ctx = static_cast<const DvtContext*>(context);
  for (uint32_t i = 0; i < ctx->output_count; ++i) {
    const DvtCell* out = dvt_output(ctx, i);
    if (out->tensor->bytes != 0) {
      std::memcpy(out->data, dvt_input(ctx, 0)->data, out->tensor->bytes);
    }
  }
  return DVT_OK;
}

DvtCode check_word(const DvtContext* ctx, char* reason, size_t size) {
  if (dvt_output(ctx, 0) == nullptr || dvt_output(ctx, 0)->tensor != nullptr) {
    return refuse(reason, size, "writes a word");
  }
  return DVT_OK;
}

DvtCode run_count(void* context) {
  dvt_output(static_cast<const DvtContext*>(context), 0)->word = 42;
  return DVT_OK;
}

DvtCode check_use(const DvtContext* ctx, char* reason, size_t size) {
  const DvtCell* in = dvt_input(ctx, 0);
  const DvtCell* out = dvt_output(ctx, 0);
  if (in == nullptr || in->tensor != nullptr) return refuse(reason, size, "reads a word");
  if (out == nullptr || out->tensor == nullptr || out->tensor->bytes != 8) {
    return refuse(reason, size, "writes 8 bytes");
  }
  return DVT_OK;
}

DvtCode run_use(void* context) {
  const auto* ctx = static_cast<const DvtContext*>(context);
  std::memcpy(dvt_output(ctx, 0)->data, &dvt_input(ctx, 0)->word, 8);
  return DVT_OK;
}

DvtCode run_nothing(void* context) {
  (void)context;
  return DVT_OK;
}

constexpr DvtAttribute kScaleAttributes[] = {{"factor", 0, 1, 'f'}, {"shape", 8, 4, 'i'}};
constexpr uint32_t kAbi = DVT_KERNEL_ABI_VERSION;

constexpr DvtKernel kKernels[] = {
    {"test.Add", kAbi, DVT_KERNEL_PURE | DVT_KERNEL_IN_PLACE | DVT_KERNEL_DEVICE, 2, 2, 1, 1, 0, 0,
     nullptr, run_add, check_f32},
    {"test.Copy", kAbi, DVT_KERNEL_PURE, 1, 1, 1, 1, 0, 0, nullptr, run_prefixes, check_prefixes},
    {"test.Scale", kAbi, DVT_KERNEL_PURE, 1, 1, 1, 1, 40, 2, kScaleAttributes, run_scale,
     check_f32},
    {"test.Split", kAbi, DVT_KERNEL_PURE, 1, 1, 1, 3, 0, 0, nullptr, run_prefixes, check_prefixes},
    {"test.Count", kAbi, 0, 0, 0, 1, 1, 0, 0, nullptr, run_count, check_word},
    {"test.Use", kAbi, 0, 1, 1, 1, 1, 0, 0, nullptr, run_use, check_use},
    {"test.Run", kAbi, 0, 0, 16, 0, 16, 0, 0, nullptr, run_nothing, nullptr},
};

[[noreturn]] void give_up(const std::string& why) {
  throw std::runtime_error(why);
}

DvtImageHeader header_of(std::span<const std::byte> bytes) {
  DvtImageHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

void set_digest(std::span<const std::byte> content, uint8_t (&digest)[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(content.data(), content.size()));
  std::memcpy(digest, canonical.digest, sizeof digest);
}

constexpr uint64_t kBufferBytes = 4096;  // Of each port: samples need less.
constexpr uint32_t kRunsMax = 2000;      // Of kernels of a run: the samples need fewer.

// Buffers of all ports of an executor, and the calls that bind them.
class Bindings {
 public:
  Bindings(DvtImage* image, DvtExecutor* executor) : image_(image), executor_(executor) {}

  // Dims that are set at run time become `extent`, or what their range allows instead.
  bool bind_inputs(int64_t extent) {
    for (uint32_t i = 0; i < dvt_image_input_count(image_); ++i) {
      DvtPortInfo port;
      if (dvt_image_input_info(image_, i, &port, nullptr) != DVT_OK) return false;
      if (!bind_input(i, port, extent)) return false;
    }
    return true;
  }

  // Outputs with a dynamic shape are left to the executor, or get buffers that may be too small.
  bool bind_outputs(bool dynamic_too) {
    for (uint32_t i = 0; i < dvt_image_output_count(image_); ++i) {
      DvtPortInfo port;
      if (dvt_image_output_info(image_, i, &port, nullptr) != DVT_OK) return false;
      const bool dynamic = (port.tensor.flags & DVT_TENSOR_DYNAMIC) != 0;
      if (port.tensor.bytes > kBufferBytes) return false;
      if (dynamic && !dynamic_too) continue;
      const uint64_t bytes = dynamic ? 64 : port.tensor.bytes;
      if (dvt_executor_bind_output(executor_, i, buffer(0), bytes, nullptr) != DVT_OK) return false;
    }
    return true;
  }

  // Reads every byte, so that sanitizers see memory that is gone or was never set.
  void read_outputs() const {
    for (uint32_t i = 0; i < dvt_image_output_count(image_); ++i) {
      DvtTensor tensor;
      const void* data = nullptr;
      if (dvt_executor_output_tensor(executor_, i, &tensor, &data, nullptr) != DVT_OK) return;
      std::vector<std::byte> copy(tensor.bytes);
      if (!copy.empty()) std::memcpy(copy.data(), data, copy.size());
    }
  }

 private:
  bool bind_input(uint32_t index, const DvtPortInfo& port, int64_t extent) {
    const bool dynamic = (port.tensor.flags & DVT_TENSOR_DYNAMIC) != 0;
    DvtTensor tensor = port.tensor;
    if (tensor.rank == DVT_RANK_UNKNOWN) {
      tensor.rank = 1;
      tensor.dims[0] = extent;
    } else {
      for (uint32_t d = 0; d < tensor.rank; ++d) {
        if (tensor.dims[d] < 0) {
          tensor.dims[d] = std::clamp(extent, port.dims_min[d], port.dims_max[d]);
        }
      }
    }
    if (dvt_set_shape(&tensor, tensor.rank, tensor.dims) != DVT_OK) return false;
    if (tensor.bytes > kBufferBytes) return false;
    // Numbers that mean something: ones, and small counts.
    void* data = buffer(tensor.dtype == DVT_F32 ? 0x3f8000003f800000 : 2);
    const DvtCode code =
        dynamic ? dvt_executor_bind_input_tensor(executor_, index, &tensor, data, nullptr)
                : dvt_executor_bind_input(executor_, index, data, tensor.bytes, nullptr);
    return code == DVT_OK;
  }

  void* buffer(uint64_t word) {
    return buffers_.emplace_back(kBufferBytes / sizeof word, word).data();
  }

  DvtImage* image_;
  DvtExecutor* executor_;
  std::vector<std::vector<uint64_t>> buffers_;
};

void run_some_times(DvtImage* image) {
  DvtExecutorOptions options;
  dvt_executor_options_init(&options);
  options.heap_bytes_max = 1U << 20U;
  DvtExecutor* executor = nullptr;
  if (dvt_executor_create(image, &options, &executor, nullptr) != DVT_OK) return;
  Bindings bindings(image, executor);
  bool bound = bindings.bind_outputs(false);
  // The second run finds its shapes known; the last has outputs in buffers of the caller.
  for (const int64_t extent : {3, 3, 1, 0}) {
    bound = bound && bindings.bind_inputs(extent);
    if (extent == 0) bound = bound && bindings.bind_outputs(true);
    if (!bound) break;
    dynamic_control = {};
    dynamic_control.runs_max = kRunsMax;
    // The result does not matter: an image whose bits were flipped computes something else.
    if (dvt_executor_run(executor, nullptr) == DVT_OK) bindings.read_outputs();
  }
  dynamic_control = {};
  dvt_executor_destroy(executor);
}

}  // namespace

DvtKernelTable test_kernels() {
  return {kKernels, std::size(kKernels)};
}

const std::string_view kCpuSample = R"davit(davit 1.3 target cpu
producer "davit test"
source_name "sample.onnx"
source_digest "0123"
options "a=1"
opsets "ai.onnx:13"
arena 192 align 64 lower_bound 128

input x: f32[N=1..2, 4]
output y as "result": f32[2, 4]
output y2: i64[1]
const w: f32[2, 4] = {1, -2.5, 3, 0.1, inf, -0, 1e-20, 8}
const %4 "w": f32[4] = fill 0.5
view flat: f32[8] of input "x"
planned a: f32[2, 4] @0
planned "a/flat:0": f32[8] @0
planned b: f32[8] @64
planned c: f32[8] @64
planned half: f32[4] @128
word count
output[2] h: f32[4]

graph main {
  n0: a = test.Add(x, w) origin="layer/add_1" op="ai.onnx::Add(14)" cost={kind=vector, dtype=f32, vector_elements=8}
  n1: b = test.Scale("a/flat:0") {factor=0.1, shape=[1, 2]} origin="scale" priority=-3
  n2: c = test.Add(b, flat)
  n3: half = test.Split(c)
  n4: y = test.Copy(c) after=[n0]
  n5: count = test.Count()
  n6: y2 = test.Use(count)
  n7: h = test.Add(half, %4)
}
)davit";

const std::string_view kScheduleSample = R"davit(davit 1.3 target cpu
arena 192 align 64
input x: f32[4]
output y: f32[4]
planned a: f32[4] @0
planned b: f32[4] @64
planned c: f32[4] @128
planned d: f32[4] @0

graph main {
  n0: a = test.Copy(x)
  n1: b = test.Copy(a)
  n2: c = test.Copy(a)
  n3: d = test.Add(b, c)
  n4: y = test.Copy(d)
  part [n0, n1, n3 after [n2], n4]
  part [n2 after [n0]]
}
)davit";

const std::string_view kDeviceSample = R"davit(davit 1.3 target "ascend:test"
arena 64 align 64
streams 1 priority [3]
events 1
input x: f32[4]
output y: f32[4]
const w: f32[4] = {1, 2, 3, 4}
device dw: f32[4]
device dx: f32[4]
device dy: f32[4]
device dy2: f32[2, 2]
planned t: f32[4] @0

graph init {
  stream: CreateStream() {stream=0, priority=3}
  event: CreateEvent() {event=0}
  alloc: dw = AllocMemHbm() {bytes=16}
  LaunchH2DCopy(w, dw) stream=0 after=[stream]
  SyncStream() {stream=0}
}

graph main {
  allocx: dx = AllocMemHbm() {bytes=16}
  allocy: dy = AllocMemHbm() {bytes=64}
  copy: LaunchH2DCopy(x, dx) stream=0
  dy = LaunchKernel<test.Add>(dx, dw) stream=0 after=[copy] origin="add"
  ref: dy2 = BuildRefTensor(dy)
  dy = LaunchKernel<test.Add>(dy2, dw) stream=0
  t = LaunchD2HCopy(dy2) stream=0 after=[ref]
  RecordEvent() {event=0} stream=0
  sync: SyncStream() {stream=0}
  y = test.Copy(t) after=[sync]
  FreeMemHbm(dx) frees=[copy]
  FreeMemHbm(dy) after=[sync]
}

graph deinit {
  FreeMemHbm(dw)
  DestroyEvent() {event=0}
  DestroyStream() {stream=0}
}
)davit";

const std::string_view kBodySample = R"davit(davit 1.3 target cpu
arena 128 align 64
input x: f32[4]
output y: f32[4]
const w: f32[4] = {1, 2, 3, 4}
planned t: f32[4] @0
planned inner: f32[4] @64

graph main {
  t = test.Run(x) bodies=[then, else]
  y = test.Copy(t)
}

graph body then {
  t = test.Add(x, w)
}

graph body else {
  inner = test.Scale(x) {factor=2, shape=[]}
  t = test.Run(inner) bodies=[deep]
}

graph body deep {
  t = test.Copy(inner)
}
)davit";

image::ImageModel parse(std::string_view text) {
  auto model = image::assemble_text(text, tables());
  if (!model.ok()) give_up(model.status().to_string());
  return std::move(*model);
}

std::vector<std::byte> assemble(std::string_view text) {
  auto bytes = image::write_image(parse(text), tables());
  if (!bytes.ok()) give_up(bytes.status().to_string());
  return std::move(*bytes);
}

Status open(std::span<const std::byte> bytes, bool skip_digests) {
  const auto kernel_tables = tables();
  auto image = exec::open_image_memory(
      bytes, {.skip_digests = skip_digests, .kernel_tables = kernel_tables});
  return image.ok() ? Status() : std::move(image.status());
}

std::string open_message(std::span<const std::byte> bytes, bool skip_digests) {
  const Status status = open(bytes, skip_digests);
  return status.ok() ? "" : status.detail().message;
}

std::string write_message(std::string_view text,
                          const std::function<void(image::ImageModel&)>& change) {
  image::ImageModel model = parse(text);
  if (change) change(model);
  const auto bytes = image::write_image(model, tables());
  return bytes.ok() ? "" : bytes.status().detail().message;
}

std::span<std::byte> metadata_of(std::span<std::byte> bytes) {
  DvtSegment segment;
  std::memcpy(&segment, bytes.data() + sizeof(DvtImageHeader), sizeof segment);
  return bytes.subspan(segment.offset, segment.size);
}

void repair_digests(std::span<std::byte> bytes) {
  DvtImageHeader header = header_of(bytes);
  for (uint32_t i = 0; i < header.segment_count; ++i) {
    std::byte* at = bytes.data() + sizeof header + i * sizeof(DvtSegment);
    DvtSegment segment;
    std::memcpy(&segment, at, sizeof segment);
    set_digest(bytes.subspan(segment.offset, segment.size), segment.digest);
    std::memcpy(at, &segment, sizeof segment);
  }
  std::memset(header.digest, 0, sizeof header.digest);
  std::memcpy(bytes.data(), &header, sizeof header);
  set_digest(bytes.first(sizeof header + header.segment_count * sizeof(DvtSegment)), header.digest);
  std::memcpy(bytes.data(), &header, sizeof header);
}

std::vector<std::byte> with_metadata(std::vector<std::byte> bytes,
                                     const std::function<void(schema::Image&)>& change) {
  change(*schema::GetMutableImage(metadata_of(bytes).data()));
  repair_digests(bytes);
  return bytes;
}

std::vector<std::byte> replace_metadata(std::span<const std::byte> bytes,
                                        std::span<const std::byte> metadata) {
  DvtImageHeader header = header_of(bytes);
  DvtSegment segments[2];
  std::memcpy(segments, bytes.data() + sizeof header, header.segment_count * sizeof(DvtSegment));
  std::span<const std::byte> constants;
  if (header.segment_count > 1) constants = bytes.subspan(segments[1].offset, segments[1].size);
  segments[0].size = metadata.size();
  header.file_size = segments[0].offset + metadata.size();
  if (header.segment_count > 1) {
    segments[1].offset = (header.file_size + DVT_IMAGE_PAGE - 1) / DVT_IMAGE_PAGE * DVT_IMAGE_PAGE;
    header.file_size = segments[1].offset + constants.size();
  }
  std::vector<std::byte> out(header.file_size);
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, segments, header.segment_count * sizeof(DvtSegment));
  std::memcpy(out.data() + segments[0].offset, metadata.data(), metadata.size());
  if (!constants.empty()) {
    std::memcpy(out.data() + segments[1].offset, constants.data(), constants.size());
  }
  repair_digests(out);
  return out;
}

void open_and_run(std::span<const std::byte> bytes) {
  const std::vector<DvtKernelTable> kernel_tables = tables();
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.skip_digests = 1;
  options.refuse_code = 1;  // Bytes are anybody's.
  options.kernel_tables = kernel_tables.data();
  options.kernel_table_count = kernel_tables.size();
  options.arena_bytes_max = 1U << 20U;
  DvtImage* image = nullptr;
  DvtError error;
  if (dvt_image_open_memory(bytes.data(), bytes.size(), &options, &image, &error) != DVT_OK) {
    if (error.code == DVT_OK || error.message[0] == '\0') give_up("an error without a message");
    return;
  }
  run_some_times(image);
  dvt_image_close(image);
}

}  // namespace davit::test
