// values.hpp: tensors of any dtype as lists of doubles, for tests against naive computations.
//
// Threads  Nothing is shared.
// Trust    Test data only.
// Memory   Values are returned by value.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "ops/definition.hpp"
#include "tests/ops/harness.hpp"

namespace davit::test {

using Values = std::vector<double>;

// Elements as doubles, and doubles rounded to the dtype; integers must be in range.
ir::TensorData make_data(DvtDType dtype, Dims dims, const Values& values);
Values to_values(const ir::TensorData& data);

// Deterministic tensors and choices.
class Source {
 public:
  explicit Source(uint32_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high);  // Both included.
  bool flip() { return between(0, 1) == 1; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, static_cast<int64_t>(from.size()) - 1))];
  }
  // Sixteenths in [-4, 4], exact in every float type; whole numbers to 100 for integer types.
  ir::TensorData tensor(DvtDType dtype, Dims dims);
  // Any floats in [-1, 1), so that the order of a sum shows in its bits.
  ir::TensorData rough_tensor(Dims dims);
  // Any values of DVT_U8 or DVT_I8.
  Values bytes(DvtDType dtype, size_t count);

 private:
  std::mt19937 engine_;
};

// Calls a kernel whose output 0 is a tensor and whose output 1, if `workspace` is not 0, is scratch
// memory. The kernel must accept the operands.
ir::TensorData call_kernel(const char* name, const void* attributes,
                           const std::vector<ir::TensorData>& inputs, DvtDType dtype,
                           const Dims& dims, uint64_t workspace = 0);

// infer() and then the definition's recipe or cost. cost_of() needs static shapes.
Result<ops::Recipe> recipe_of(OneNode& node);
DvtTaskCost cost_of(OneNode& node);

// The largest |got - expected| - absolute - relative * |expected|; not above 0 when all are close.
// NaN equals NaN.
double excess_error(const Values& expected, const Values& got, double relative, double absolute);
// The relative error that `steps` roundings and one to the dtype may leave.
double tolerance(DvtDType dtype, int64_t steps);

}  // namespace davit::test
