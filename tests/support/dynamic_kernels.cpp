#include "tests/support/dynamic_kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace davit::test {

thread_local DynamicControl dynamic_control;
std::atomic<DvtCode (*)(const DvtContext* context)> dynamic_hook{nullptr};

namespace {

DvtCode refuse(char* reason, size_t size, const char* why) {
  if (reason != nullptr && size != 0) std::snprintf(reason, size, "%s", why);
  return DVT_INVALID_ARGUMENT;
}

const DvtTensor& in(const DvtContext* ctx, uint32_t i) {
  return *dvt_input(ctx, i)->tensor;
}
const DvtTensor& out(const DvtContext* ctx, uint32_t i) {
  return *dvt_output(ctx, i)->tensor;
}
template <class T>
T* data(const DvtCell* cell) {
  return static_cast<T*>(cell->data);
}
size_t elements(const DvtTensor& tensor) {
  return tensor.bytes / dvt_dtype_size(tensor.dtype);
}

// All operands are there, and those from `first` on are f32.
bool are_f32(const DvtContext* ctx, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i < last; ++i) {
    if (ctx->cells[i] == nullptr || ctx->cells[i]->tensor == nullptr) return false;
    if (ctx->cells[i]->tensor->dtype != DVT_F32) return false;
  }
  return true;
}
bool is(const DvtCell* cell, DvtDType dtype, uint64_t bytes) {
  return cell != nullptr && cell->tensor != nullptr && cell->tensor->dtype == dtype &&
         cell->tensor->bytes == bytes;
}

using Run = void (*)(const DvtContext* ctx);
using Infer = DvtCode (*)(const DvtContext* ctx, DvtTensor* outputs);

template <Run kRun>
DvtCode run(void* context) {
  const uint32_t call = dynamic_control.runs++;
  if (call >= dynamic_control.runs_max) return DVT_CANCELLED;
  if (call == dynamic_control.fail_run) return DVT_KERNEL_FAILED;
  if (auto* const hook = dynamic_hook.load(std::memory_order_relaxed); hook != nullptr) {
    const DvtCode code = hook(static_cast<const DvtContext*>(context));
    if (code != DVT_OK) return code;
  }
  kRun(static_cast<const DvtContext*>(context));
  return DVT_OK;
}

template <Infer kInfer>
DvtCode infer(const DvtContext* ctx, DvtTensor* outputs, char* reason, size_t size) {
  if (dynamic_control.infers++ == dynamic_control.fail_infer) {
    return refuse(reason, size, "it was told to fail");
  }
  if (kInfer(ctx, outputs) == DVT_OK) return DVT_OK;
  return refuse(reason, size, "no shape fits");
}

DvtCode infer_same(const DvtContext* ctx, DvtTensor* outputs) {
  return dvt_set_shape(&outputs[0], in(ctx, 0).rank, in(ctx, 0).dims);
}

DvtCode check_f32(const DvtContext* ctx, char* reason, size_t size) {
  const uint32_t operands = uint32_t{ctx->input_count} + ctx->output_count;
  if (!are_f32(ctx, 0, operands)) return refuse(reason, size, "takes f32 only");
  for (uint32_t i = 0; i < operands; ++i) {
    if (ctx->cells[i]->tensor->bytes != in(ctx, 0).bytes) {
      return refuse(reason, size, "sizes differ");
    }
  }
  return DVT_OK;
}

void run_double(const DvtContext* ctx) {
  for (size_t i = 0; i < elements(out(ctx, 0)); ++i) {
    data<float>(dvt_output(ctx, 0))[i] = 2 * data<float>(dvt_input(ctx, 0))[i];
  }
}

void run_add(const DvtContext* ctx) {
  for (size_t i = 0; i < elements(out(ctx, 0)); ++i) {
    data<float>(dvt_output(ctx, 0))[i] =
        data<float>(dvt_input(ctx, 0))[i] + data<float>(dvt_input(ctx, 1))[i];
  }
}

DvtCode infer_shape(const DvtContext* ctx, DvtTensor* outputs) {
  const int64_t rank = in(ctx, 0).rank;
  return dvt_set_shape(&outputs[0], 1, &rank);
}
DvtCode check_shape(const DvtContext* ctx, char* reason, size_t size) {
  const bool fits = dvt_input(ctx, 0) != nullptr && dvt_input(ctx, 0)->tensor != nullptr &&
                    is(dvt_output(ctx, 0), DVT_I64, uint64_t{8} * in(ctx, 0).rank);
  return fits ? DVT_OK : refuse(reason, size, "writes an i64 for each dim");
}
void run_shape(const DvtContext* ctx) {
  std::memcpy(dvt_output(ctx, 0)->data, in(ctx, 0).dims, out(ctx, 0).bytes);
}

DvtCode infer_take(const DvtContext* ctx, DvtTensor* outputs) {
  int64_t count = 0;
  if (!is(dvt_input(ctx, 1), DVT_I64, 8)) return DVT_INVALID_ARGUMENT;
  std::memcpy(&count, dvt_input(ctx, 1)->data, sizeof count);
  return dvt_set_shape(&outputs[0], 1, &count);
}
DvtCode check_take(const DvtContext* ctx, char* reason, size_t size) {
  if (!are_f32(ctx, 0, 1) || !are_f32(ctx, 2, 3) || !is(dvt_input(ctx, 1), DVT_I64, 8)) {
    return refuse(reason, size, "takes f32 and one i64");
  }
  if (out(ctx, 0).bytes > in(ctx, 0).bytes) return refuse(reason, size, "takes more than there is");
  return DVT_OK;
}
void run_take(const DvtContext* ctx) {
  // The count again, so that a test sees when it is not what infer() saw.
  int64_t count = 0;
  std::memcpy(&count, dvt_input(ctx, 1)->data, sizeof count);
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  if (bytes > 0) std::memcpy(dvt_output(ctx, 0)->data, dvt_input(ctx, 0)->data, bytes);
}

DvtCode infer_keep(const DvtContext* ctx, DvtTensor* outputs) {
  const auto most = static_cast<int64_t>(elements(in(ctx, 0)));
  const DvtCode code = dvt_set_shape(&outputs[0], 1, &most);
  return code == DVT_OK ? dvt_set_shape(&outputs[1], 1, &most) : code;
}
DvtCode check_keep(const DvtContext* ctx, char* reason, size_t size) {
  const bool fits = are_f32(ctx, 0, 2) && out(ctx, 0).bytes >= in(ctx, 0).bytes &&
                    is(dvt_output(ctx, 1), DVT_I64, 2 * in(ctx, 0).bytes);
  return fits ? DVT_OK : refuse(reason, size, "needs room for all elements");
}
void run_keep(const DvtContext* ctx) {
  int64_t kept = 0;
  for (size_t i = 0; i < elements(in(ctx, 0)); ++i) {
    const float element = data<float>(dvt_input(ctx, 0))[i];
    if (!(element > 0)) continue;
    data<float>(dvt_output(ctx, 0))[kept] = element;
    data<int64_t>(dvt_output(ctx, 1))[kept++] = static_cast<int64_t>(i);
  }
  static_cast<void>(dvt_set_shape(dvt_output_shape(ctx, 0), 1, &kept));
  static_cast<void>(dvt_set_shape(dvt_output_shape(ctx, 1), 1, &kept));
}

DvtCode infer_flat(const DvtContext* ctx, DvtTensor* outputs) {
  const auto count = static_cast<int64_t>(elements(in(ctx, 0)));
  return dvt_set_shape(&outputs[0], 1, &count);
}
void run_nothing(const DvtContext* ctx) {
  static_cast<void>(ctx);
}

DvtCode infer_halves(const DvtContext* ctx, DvtTensor* outputs) {
  const auto count = static_cast<int64_t>(elements(in(ctx, 0)));
  const int64_t first = count / 2;
  const int64_t rest = count - first;
  const DvtCode code = dvt_set_shape(&outputs[0], 1, &first);
  return code == DVT_OK ? dvt_set_shape(&outputs[1], 1, &rest) : code;
}
DvtCode check_halves(const DvtContext* ctx, char* reason, size_t size) {
  const bool fits = are_f32(ctx, 0, 3) && out(ctx, 0).bytes + out(ctx, 1).bytes == in(ctx, 0).bytes;
  return fits ? DVT_OK : refuse(reason, size, "both halves make the whole");
}
void run_halves(const DvtContext* ctx) {
  const auto* from = data<std::byte>(dvt_input(ctx, 0));
  for (uint32_t k = 0; k < 2; ++k) {
    const uint64_t bytes = out(ctx, k).bytes;
    if (bytes > 0) std::memcpy(dvt_output(ctx, k)->data, from, bytes);
    from += bytes;
  }
}

DvtCode infer_less(const DvtContext* ctx, DvtTensor* outputs) {
  static_cast<void>(ctx);
  return dvt_set_shape(&outputs[0], 0, nullptr);
}
DvtCode check_less(const DvtContext* ctx, char* reason, size_t size) {
  for (uint32_t i = 0; i < 2; ++i) {
    const DvtCell* cell = dvt_input(ctx, i);
    if (cell == nullptr || cell->tensor == nullptr || elements(*cell->tensor) == 0 ||
        (cell->tensor->dtype != DVT_F32 && cell->tensor->dtype != DVT_I64) ||
        cell->tensor->dtype != in(ctx, 0).dtype) {
      return refuse(reason, size, "compares f32 or i64");
    }
  }
  return is(dvt_output(ctx, 0), DVT_BOOL, 1) ? DVT_OK : refuse(reason, size, "writes a bool");
}
void run_less(const DvtContext* ctx) {
  const bool less = in(ctx, 0).dtype == DVT_F32
                        ? *data<float>(dvt_input(ctx, 0)) < *data<float>(dvt_input(ctx, 1))
                        : *data<int64_t>(dvt_input(ctx, 0)) < *data<int64_t>(dvt_input(ctx, 1));
  *data<uint8_t>(dvt_output(ctx, 0)) = less ? 1 : 0;
}

DvtKernel kernel(const char* name, uint32_t flags, uint16_t inputs, uint16_t outputs,
                 DvtKernelFn run, DvtKernelCheckFn check, DvtKernelInferFn infer,
                 uint32_t host_inputs = 0) {
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
          .check = check,
          .infer = infer,
          .cost = nullptr,
          .host_inputs = host_inputs};
}

}  // namespace

DvtKernelTable dynamic_kernels() {
  constexpr uint32_t kPure = DVT_KERNEL_PURE;
  static const DvtKernel kernels[] = {
      kernel("dyn.Double", kPure, 1, 1, run<run_double>, check_f32, infer<infer_same>),
      kernel("dyn.Add", kPure, 2, 1, run<run_add>, check_f32, infer<infer_same>),
      kernel("dyn.Shape", kPure | DVT_KERNEL_SHAPE_ONLY, 1, 1, run<run_shape>, check_shape,
             infer<infer_shape>),
      kernel("dyn.Take", kPure, 2, 1, run<run_take>, check_take, infer<infer_take>, 2),
      kernel("dyn.Keep", kPure | DVT_KERNEL_SHAPES_OUTPUTS, 1, 2, run<run_keep>, check_keep,
             infer<infer_keep>),
      kernel("dyn.Flat", kPure | DVT_KERNEL_ALIAS, 1, 1, run<run_nothing>, check_f32,
             infer<infer_flat>),
      kernel("dyn.Halves", kPure, 1, 2, run<run_halves>, check_halves, infer<infer_halves>),
      kernel("dyn.Less", kPure, 2, 1, run<run_less>, check_less, infer<infer_less>),
  };
  return {kernels, std::size(kernels)};
}

// n0 to n4 are shape nodes: n4 needs the dims of x, not its data.
const char* const kDynamicSample = R"davit(davit 1.3 target cpu
input x: f32[N=?1..8, 4] dynamic
input count: i64[]
output y: f32[N=?1..8, 4] dynamic
output kept: f32[...] dynamic
output where: i64[?] dynamic
output dims: i64[2]
planned shape: i64[2]
heap a: f32[?, 4] dynamic
heap flat: f32[?] dynamic
heap some: f32[?] dynamic
heap first: f32[...] dynamic
heap rest: f32[...] dynamic

graph main shape_nodes=5 {
  n0: a = InferShape(x) {target=6}
  n1: y = InferShape(a, a) {target=16}
  n2: y = BindOutput() {output=0}
  n3: InferShape(x) {target=4}
  n4: shape = dyn.Shape(x) origin="shape"
  n5: a = AllocHost()
  n6: a = dyn.Double(x) origin="double"
  n7: flat = InferShape(a) {target=8}
  n8: flat = ReferTo<dyn.Flat>(a)
  n9: some = InferShape(flat, count) {target=11}
  n10: some = AllocHost()
  n11: some = dyn.Take(flat, count) origin="take"
  n12: kept, where = InferShape(some) {target=15}
  n13: kept = BindOutput() {output=1}
  n14: where = BindOutput() {output=2}
  n15: kept, where = dyn.Keep(some) origin="keep"
  n16: y = dyn.Add(a, a) origin="add"
  n17: first, rest = InferShape(a) {target=19}
  n18: first, rest = AllocHost()
  n19: first, rest = dyn.Halves(a) origin="halves"
  n20: dims = Copy(shape)
  FreeHost(a, some, first, rest) after=[n11, n15, n16]
}
)davit";

const char* const kFlowSample = R"davit(davit 1.3 target cpu
input x: f32[?1..8] dynamic
input go: bool[]
input deep: bool[]
input trip: i64[]
input more: bool[]
output y: f32[...] dynamic
output all: f32[...] dynamic
const two: i64[] = {2}
planned i: i64[]
planned cond: bool[]
planned next: bool[]
planned i2: i64[]
planned cond2: bool[]
planned next2: bool[]
heap start: f32[?] dynamic
heap twice: f32[?] dynamic
heap last: f32[?] dynamic
heap rows: f32[?, ?] dynamic
heap state: f32[...] dynamic
heap state_next: f32[...] dynamic
heap row: f32[...] dynamic
heap sum: f32[...] dynamic
heap state2: f32[...] dynamic
heap state2_next: f32[...] dynamic

graph main {
  start = If(go, x, deep) bodies=[then, else] origin="if"
  last, rows, i, cond, state, next, state_next, row = Loop(trip, more, start, x) {states=1, collected=1} bodies=[body] origin="loop"
  y = InferShape(last) {target=4} origin="y"
  y = BindOutput() {output=0} origin="y"
  y = dyn.Double(last) origin="y"
  all = InferShape(rows) {target=7} origin="all"
  all = BindOutput() {output=1} origin="all"
  all = dyn.Double(rows) origin="all"
  FreeHost(start, last, rows)
}

graph body then {
  start = InferShape(x) {target=2} origin="if.then/double"
  start = AllocHost() origin="if.then/double"
  start = dyn.Double(x) origin="if.then/double"
}

graph body else {
  start = If(deep, x) bodies=[deep_then, deep_else] origin="if.else/if"
}

graph body deep_then {
  start = InferShape(x, x) {target=2}
  start = AllocHost()
  start = dyn.Add(x, x) origin="if.else/if.then/add"
}

graph body deep_else {
  twice = InferShape(x) {target=2}
  twice = AllocHost()
  twice = dyn.Double(x) origin="if.else/if.else/twice"
  start = InferShape(twice) {target=5}
  start = AllocHost()
  start = dyn.Double(twice) origin="if.else/if.else/start"
  FreeHost(twice)
}

graph body body {
  sum = InferShape(state, x) {target=2} origin="loop.body/add"
  sum = AllocHost() origin="loop.body/add"
  sum = dyn.Add(state, x) origin="loop.body/add"
  state_next, i2, cond2, state2, next2, state2_next = Loop(two, _, sum, i, two) {states=1, collected=0} bodies=[inner] origin="loop.body/loop"
  row = InferShape(sum) {target=6} origin="loop.body/row"
  row = AllocHost() origin="loop.body/row"
  row = dyn.Double(sum) origin="loop.body/row"
  next = dyn.Less(i, two) origin="loop.body/less"
  FreeHost(sum)
}

graph body inner {
  state2_next = InferShape(state2) {target=2} origin="loop.body/loop.body/double"
  state2_next = AllocHost() origin="loop.body/loop.body/double"
  state2_next = dyn.Double(state2) origin="loop.body/loop.body/double"
  next2 = dyn.Less(i2, two) origin="loop.body/loop.body/less"
}
)davit";

}  // namespace davit::test
