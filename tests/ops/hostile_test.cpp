// Contexts as a crafted image could hold them: whatever check() lets pass, run() must survive. Run
// under AddressSanitizer and UndefinedBehaviorSanitizer this proves it; without, it still finds
// crashes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/checked.hpp"
#include "davit/davit.h"
#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

// The kernels whose checks reason about geometry.
bool is_subject(const std::string& name) {
  for (const char* base :
       {"Conv.", "ConvTranspose.", "MatMul.", "Gemm.", "MaxPool.", "AveragePool.",
        "BatchNormalization.", "Softmax.", "Reduce.", "Resize."}) {
    if (name.rfind(base, 0) == 0) return true;
  }
  return false;
}

DvtDType dtype_of(const std::string& name) {
  return *dtype_from_name(std::string_view(name).substr(name.find('.') + 1));
}

int64_t hostile_integer(Source& source) {
  static const std::vector<int64_t> extremes = {INT64_MIN,  INT64_MIN + 1, -1,
                                                INT64_MAX,  INT64_MAX - 1, int64_t{1} << 32,
                                                0x7fffffff, 1 << 20};
  return source.between(0, 9) == 0 ? source.pick(extremes) : source.between(0, 3);
}

double hostile_real(Source& source) {
  static const std::vector<double> extremes = {NAN,   INFINITY, -INFINITY, -1.0,    0.0,
                                               1e300, 1e-300,   0x1p63,    -0x1p63, 0x1p53};
  return source.between(0, 7) == 0 ? source.pick(extremes) : double(source.between(1, 8)) / 4.0;
}

// Small extents, often equal to others, sometimes 0; the image verifier has seen to it that a
// tensor with a huge extent is empty.
Dims hostile_dims(Source& source, size_t rank) {
  Dims dims(rank);
  for (int64_t& dim : dims) dim = source.between(0, 11) == 0 ? 0 : source.between(1, 4);
  const bool empty = std::find(dims.begin(), dims.end(), 0) != dims.end();
  if (empty && source.flip()) {
    for (int64_t& dim : dims) {
      if (dim != 0 && source.flip()) dim = source.pick<int64_t>({INT64_MAX, 1 << 30, 1 << 20});
    }
  }
  return dims;
}

Operand hostile_operand(Source& source, DvtDType dtype, const Dims& dims) {
  Operand operand(DVT_U8, {0});
  operand.tensor.dtype = dtype;
  operand.tensor.rank = uint8_t(dims.size());
  std::copy(dims.begin(), dims.end(), operand.tensor.dims);
  // As the verifier does; hostile_dims() keeps this small.
  operand.tensor.bytes = *checked_elements(dims) * dvt_dtype_size(dtype);
  operand.bytes.resize(operand.tensor.bytes);
  const size_t random = std::min<size_t>(operand.bytes.size(), 256);
  for (size_t i = 0; i < random; ++i) operand.bytes[i] = std::byte(source.between(0, 255));
  operand.present = source.between(0, 30) != 0;
  return operand;
}

// The extents of a spatial window that fit together, so that many contexts pass.
void sensible_window(Source& source, const std::string& name, std::vector<int64_t>& record, Dims& x,
                     Dims& w, Dims& y) {
  const size_t spatial = x.size() - 2;
  const bool pool = name.find("Pool") != std::string::npos;
  const bool transpose = name.rfind("ConvTranspose", 0) == 0;
  // Records: {group | kernel[3]}, strides[3], dilations[3], pads_begin[3], pads_end[3], auto_pad,
  // then ceil_mode for pools, output_padding[3] and output_shape[3] for transposes.
  const size_t strides = pool ? 3 : 1;
  if (!pool) record[0] = 1;
  record[strides + 12] = 0;
  if (transpose) std::fill(record.begin() + 17, record.begin() + 20, int64_t{0});
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t kernel = source.between(1, 3);
    if (pool) record[i] = kernel;
    w[i + 2] = kernel;
    record[strides + i] = source.between(1, 3);
    record[strides + 3 + i] = source.between(1, 2);
    record[strides + 6 + i] = source.between(0, 2);
    record[strides + 9 + i] = source.between(0, 2);
    const int64_t reach = (kernel - 1) * record[strides + 3 + i] + 1;
    x[i + 2] = std::max<int64_t>(reach, 1) + source.between(0, 4);
    const int64_t slack = x[i + 2] + record[strides + 6 + i] + record[strides + 9 + i] - reach;
    y[i + 2] = slack / record[strides + i] + 1;
    if (transpose) {
      record[14 + i] = source.between(0, 1);
      y[i + 2] = record[strides + i] * (x[i + 2] - 1) + record[14 + i] + reach -
                 record[strides + 6 + i] - record[strides + 9 + i];
      y[i + 2] = std::max<int64_t>(y[i + 2], 0);
    }
  }
  if (pool) record[16] = 0;
  x[0] = y[0] = source.between(0, 2);
  if (pool) {
    y[1] = x[1];
  } else if (transpose) {
    w[0] = x[1];
    w[1] = y[1];
  } else {
    w[1] = x[1];
    w[0] = y[1];
  }
}

struct Context {
  std::vector<int64_t> record;
  std::vector<Operand> inputs, outputs;
};

Context hostile_context(Source& source, const DvtKernel& kernel) {
  const std::string name = kernel.name;
  const DvtDType dtype = source.between(0, 20) == 0 ? DvtDType{DVT_I16} : dtype_of(name);
  Context context;
  context.record.resize(kernel.attribute_bytes / 8);
  for (uint32_t a = 0; a < kernel.attribute_count; ++a) {
    const DvtAttribute& attribute = kernel.attributes[a];
    for (uint32_t i = 0; i < attribute.count; ++i) {
      int64_t& slot = context.record[attribute.offset / 8 + i];
      if (attribute.kind == 'i') {
        slot = hostile_integer(source);
      } else {
        const double value = hostile_real(source);
        std::memcpy(&slot, &value, sizeof slot);
      }
    }
  }
  const size_t rank = size_t(source.between(0, 5));
  Dims x = hostile_dims(source, rank);
  Dims w = hostile_dims(source, source.flip() ? rank : size_t(source.between(0, 5)));
  Dims y = source.flip() ? x : hostile_dims(source, rank);
  const bool windowed =
      name.find("Conv") != std::string::npos || name.find("Pool") != std::string::npos;
  if (windowed && rank >= 3 && w.size() == rank && y.size() == rank && source.between(0, 3) != 0) {
    for (Dims* dims : {&x, &w, &y}) {
      for (int64_t& dim : *dims) dim = std::clamp<int64_t>(dim, 1, 4);
    }
    sensible_window(source, name, context.record, x, w, y);
    if (source.flip()) context.record[size_t(source.between(0, 12))] = hostile_integer(source);
  }
  if (name.rfind("MatMul", 0) == 0 && rank >= 2 && w.size() == rank && source.flip()) {
    w[rank - 2] = x[rank - 1];
    y = x;
    y[rank - 1] = w[rank - 1];
    for (size_t i = 0; i + 2 < rank; ++i) {
      w[i] = source.flip() ? 1 : x[i];
    }
    if (!checked_elements(w) || !checked_elements(y)) w = x;
  }
  if (name.rfind("Gemm", 0) == 0 && source.flip()) {
    const int64_t m = source.between(0, 4), n = source.between(0, 4), k = source.between(0, 4);
    x = context.record[2] != 0 ? Dims{k, m} : Dims{m, k};
    w = context.record[3] != 0 ? Dims{n, k} : Dims{k, n};
    y = {m, n};
  }
  const auto count = [&source](uint16_t low, uint16_t high) {
    return source.between(low, std::min<int64_t>(high, low + 2));
  };
  const int64_t inputs = count(kernel.input_min, kernel.input_max);
  const int64_t outputs = count(kernel.output_min, kernel.output_max);
  // A tensor that does not fit is replaced, as its image would not have been opened.
  const auto fitting = [](const Dims& dims) {
    const auto elements = checked_elements(dims);
    return elements && *elements < (1 << 21) ? dims : Dims{0};
  };
  for (int64_t i = 0; i < inputs; ++i) {
    const Dims extra = i < 2 ? Dims{} : Dims{source.flip() && y.size() > 1 ? y[1] : 3};
    const Dims& dims = i == 0 ? x : i == 1 && inputs < 5 ? w : extra;
    context.inputs.push_back(hostile_operand(source, dtype, fitting(dims)));
  }
  for (int64_t i = 0; i < outputs; ++i) {
    const bool workspace = i > 0 && name.rfind("MaxPool", 0) != 0;
    const Dims scratch = {source.pick<int64_t>({0, 64, 1 << 12, 1 << 18, 1 << 20})};
    const DvtDType type = workspace ? DvtDType{DVT_U8} : i > 0 ? DvtDType{DVT_I64} : dtype;
    context.outputs.push_back(hostile_operand(source, type, fitting(workspace ? scratch : y)));
  }
  return context;
}

}  // namespace

TEST_CASE("whatever check() lets pass, run() survives") {
  const DvtKernelTable table = dvt_cpu_kernels();
  Source source(51);
  for (size_t k = 0; k < table.count; ++k) {
    const DvtKernel& kernel = table.kernels[k];
    if (!is_subject(kernel.name)) continue;
    INFO(std::string(kernel.name));
    int64_t passed = 0;
    for (int round = 0; round < 1500; ++round) {
      Context context = hostile_context(source, kernel);
      Call call(kernel, context.inputs, context.outputs,
                context.record.empty() ? nullptr : context.record.data());
      std::string reason;
      const DvtCode code = call.check(&reason);
      CHECK((code == DVT_OK) == reason.empty());
      if (code != DVT_OK) continue;
      ++passed;
      CHECK(call.run() == DVT_OK);
    }
    CHECK(passed > 5);  // The contexts are not all nonsense.
  }
}
