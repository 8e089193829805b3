// harness.hpp: what the tests of kernels and definitions share.
//
// Threads  One test at a time.
// Trust    Test data only.
// Memory   Operands are vectors of exactly their size, so that AddressSanitizer sees any overrun.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "davit/kernel.h"
#include "ops/definition.hpp"
#include "tests/support/run_dynamic.hpp"

namespace davit::test {

using Dims = std::vector<int64_t>;

inline uint64_t product(const Dims& dims) {
  uint64_t result = 1;
  for (const int64_t dim : dims) result *= static_cast<uint64_t>(dim);
  return result;
}

// One operand of a kernel call.
struct Operand {
  DvtTensor tensor{};
  std::vector<std::byte> bytes;
  bool present = true;

  Operand(DvtDType dtype, const Dims& dims) {
    tensor.dtype = dtype;
    tensor.rank = static_cast<uint8_t>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) tensor.dims[i] = dims[i];
    tensor.bytes = product(dims) * dvt_dtype_size(dtype);
    bytes.resize(tensor.bytes);
  }
  template <class T>
  Operand(DvtDType dtype, const Dims& dims, const std::vector<T>& values) : Operand(dtype, dims) {
    REQUIRE(values.size() * sizeof(T) == bytes.size());
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  static Operand absent() {
    Operand operand(DVT_U8, {0});
    operand.present = false;
    return operand;
  }
  template <class T>
  [[nodiscard]] std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

// A kernel call on the operands; `alias_in_place` puts output 0 in input 0's memory.
class Call {
 public:
  Call(const DvtKernel& kernel, std::vector<Operand>& inputs, std::vector<Operand>& outputs,
       const void* attributes, bool alias_in_place = false)
      : kernel_(kernel), cells_(inputs.size() + outputs.size()), context_(4 + cells_.size()) {
    auto* context = get();
    context->attributes = attributes;
    context->input_count = static_cast<uint16_t>(inputs.size());
    context->output_count = static_cast<uint16_t>(outputs.size());
    context->stream = DVT_NO_INDEX;
    context->device_kernel = DVT_NO_INDEX;
    for (size_t i = 0; i < cells_.size(); ++i) {
      Operand& operand = i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
      cells_[i].data = operand.bytes.data();
      cells_[i].tensor = &operand.tensor;
      context->cells[i] = operand.present ? &cells_[i] : nullptr;
    }
    if (alias_in_place) cells_[inputs.size()].data = cells_[0].data;
  }
  [[nodiscard]] DvtCode check(std::string* reason = nullptr) {
    char text[256] = "";
    const DvtCode code = kernel_.check(get(), text, sizeof text);
    if (reason != nullptr) *reason = text;
    return code;
  }
  [[nodiscard]] DvtCode run() { return kernel_.run(get()); }
  // The kernel's infer(), whose outputs start with the dtypes of the call's.
  [[nodiscard]] DvtCode infer(std::vector<DvtTensor>& outputs, std::string* reason = nullptr) {
    outputs.assign(get()->output_count, DvtTensor{});
    for (size_t i = 0; i < outputs.size(); ++i) {
      const DvtCell* cell = get()->cells[get()->input_count + i];
      if (cell != nullptr) outputs[i].dtype = cell->tensor->dtype;
    }
    char text[256] = "";
    const DvtCode code = kernel_.infer(get(), outputs.data(), text, sizeof text);
    if (reason != nullptr) *reason = text;
    return code;
  }
  [[nodiscard]] const DvtContext& context() { return *get(); }

 private:
  DvtContext* get() { return reinterpret_cast<DvtContext*>(context_.data()); }

  const DvtKernel& kernel_;
  std::vector<DvtCell> cells_;
  std::vector<uint64_t> context_;
};

// Checks and runs; fails the test with the kernel's reason.
inline void run_kernel(const std::string& name, std::vector<Operand> inputs,
                       std::vector<Operand>& outputs, const void* attributes = nullptr) {
  const DvtKernel* kernel = ops::find_kernel(name);
  REQUIRE_MESSAGE(kernel != nullptr, name);
  Call call(*kernel, inputs, outputs, attributes);
  std::string reason;
  const DvtCode code = call.check(&reason);
  REQUIRE_MESSAGE(code == DVT_OK, name, ": ", reason);
  if (kernel->infer != nullptr) {
    std::vector<DvtTensor> inferred;
    REQUIRE_MESSAGE(call.infer(inferred, &reason) == DVT_OK, name, ": ", reason);
    CHECK(std::memcmp(&inferred[0], &outputs[0].tensor, sizeof(DvtTensor)) == 0);
  }
  REQUIRE(call.run() == DVT_OK);
}

// The reason for which the kernel refuses the operands; empty if it does not.
inline std::string refusal(const std::string& name, std::vector<Operand> inputs,
                           std::vector<Operand> outputs, const void* attributes = nullptr) {
  const DvtKernel* kernel = ops::find_kernel(name);
  REQUIRE_MESSAGE(kernel != nullptr, name);
  Call call(*kernel, inputs, outputs, attributes);
  std::string reason;
  const DvtCode code = call.check(&reason);
  CHECK((code == DVT_OK) == reason.empty());
  return reason;
}

// Random shapes: mostly small, sometimes empty, scalar or of rank 8.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  double real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  bool chance(double probability) { return real(0, 1) < probability; }
  Dims dims(int64_t rank_min = 0, int64_t rank_max = DVT_MAX_RANK) {
    Dims result(static_cast<size_t>(integer(rank_min, rank_max)));
    const int64_t limit = result.size() > 5 ? 2 : result.size() > 3 ? 4 : 9;
    for (int64_t& dim : result) dim = chance(0.03) ? 0 : integer(1, limit);
    if (result.size() == 1 && chance(0.3)) result[0] = integer(500, 2000);  // More than a block.
    return result;
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

// A module with one node, to test definitions. Inputs are added in order.
class OneNode {
 public:
  OneNode(std::string op, int64_t opset, std::string domain = "") {
    module_.opset_imports[domain] = opset;
    init_.op = op;
    init_.domain = domain;
    init_.name = "node";
  }
  OneNode& input(DvtDType dtype, ir::Shape shape) {
    const ir::ValueId value = untyped();
    module_.set_dtype(value, dtype);
    module_.set_shape(value, std::move(shape));
    return *this;
  }
  OneNode& input(DvtDType dtype, const Dims& dims) {
    ir::Shape shape;
    for (const int64_t dim : dims) shape.emplace_back(dim);
    return input(dtype, std::move(shape));
  }
  OneNode& unknown_input() {
    untyped();
    return *this;
  }
  OneNode& absent_input() {
    init_.inputs.push_back(ir::kNoValue);
    return *this;
  }
  OneNode& constant(ir::TensorData data) {
    init_.inputs.push_back(module_.add_constant(ir::kMainGraph, next_name(), std::move(data)));
    return *this;
  }
  OneNode& constant_i64(const std::vector<int64_t>& values) {
    return constant(ir::make_i64_tensor({static_cast<int64_t>(values.size())}, values));
  }
  OneNode& attribute(std::string name, ir::AttributeValue value) {
    init_.attributes.push_back({std::move(name), std::move(value)});
    return *this;
  }
  OneNode& outputs(uint32_t count) {
    output_count_ = count;
    return *this;
  }
  // Output `index` is one that nobody asks for.
  OneNode& absent_output(uint32_t index) {
    absent_outputs_ |= 1U << index;
    return *this;
  }
  // The same node, with inputs of unknown extents in the place of constants, but for those in the
  // bit mask `keep`.
  [[nodiscard]] OneNode without_extents(uint32_t keep) const {
    OneNode node(init_.op, module_.opset_imports.at(init_.domain));
    node.init_.domain = init_.domain;
    node.module_.opset_imports = module_.opset_imports;
    node.init_.attributes = init_.attributes;
    node.output_count_ = output_count_;
    node.absent_outputs_ = absent_outputs_;
    for (size_t i = 0; i < init_.inputs.size(); ++i) {
      const ir::ValueId value = init_.inputs[i];
      if (value == ir::kNoValue) {
        node.absent_input();
      } else if (module_.constant(value) != nullptr && i < 32 && (keep >> i & 1U) != 0) {
        node.constant(*module_.constant(value));
      } else {
        const ir::Shape* shape = module_.shape(value);
        node.input(module_.dtype(value), ir::Shape(shape == nullptr ? 0 : shape->size()));
      }
    }
    return node;
  }
  ir::Dim symbol(std::string_view name) { return ir::Dim::symbol(module_.intern_symbol(name)); }
  ir::Module& module() { return module_; }
  [[nodiscard]] ops::NodeView view() const { return {module_, node_}; }

  // Finds the definition and infers; stores what was found, as the inference pass does.
  Status infer() {
    if (node_ == ir::kNoNode) {
      for (uint32_t i = 0; i < output_count_; ++i) {
        const bool absent = (absent_outputs_ >> i & 1U) != 0;
        init_.outputs.push_back(absent ? ir::kNoValue
                                       : module_.add_value(ir::kMainGraph, next_name()));
      }
      node_ = module_.add_node(ir::kMainGraph, init_);
    }
    definition = ops::find_operator(module_, node_);
    if (definition == nullptr) return view().error(DVT_UNSUPPORTED, "no definition");
    found.assign(output_count_, {});
    Status status = definition->infer(view(), found);
    for (uint32_t i = 0; status.ok() && i < output_count_; ++i) {
      const ir::ValueId value = module_.outputs(node_)[i];
      if (value == ir::kNoValue) continue;
      module_.set_dtype(value, found[i].dtype);
      if (found[i].shape) module_.set_shape(value, *found[i].shape);
    }
    return status;
  }
  // Infers, then runs on the constant inputs.
  Result<std::vector<ir::TensorData>> evaluate() {
    Status status = infer();
    if (!status.ok()) return status;
    std::vector<const ir::TensorData*> inputs;
    for (const ir::ValueId value : module_.inputs(node_)) {
      inputs.push_back(value == ir::kNoValue ? nullptr : module_.constant(value));
    }
    auto outputs = ops::evaluate(view(), inputs);
    if (outputs.ok()) check_dynamic(inputs, *outputs);
    return outputs;
  }
  // The only output's shape as text: "[1,N,?]", "none" when unknown, or the error.
  std::string shape() {
    Status status = infer();
    if (!status.ok()) return status.to_string();
    if (!found[0].shape) return "none";
    std::string text = "[";
    for (const ir::Dim dim : *found[0].shape) {
      if (text.size() > 1) text += ',';
      text += dim.is_known()    ? std::to_string(dim.extent())
              : dim.is_symbol() ? std::string(module_.symbol_name(dim.symbol_id()))
                                : "?";
    }
    return text + "]";
  }

  const ops::OperatorDefinition* definition = nullptr;
  std::vector<ops::InferredOutput> found;

 private:
  // The same with dynamic shapes, and with parameters that arrive at run time, gives the same bits.
  void check_dynamic(const std::vector<const ir::TensorData*>& inputs,
                     const std::vector<ir::TensorData>& expected) {
    const auto recipe = definition->recipe(view());
    if (recipe->kernel == nullptr || recipe->kernel->infer == nullptr) return;
    for (const testing::Known known :
         {testing::Known{.ranks = true, .parameters = true}, {true, false}, {false, false}}) {
      const auto got = testing::run_dynamic(module_, node_, inputs, known);
      INFO(std::string(module_.op_label(node_)), known.ranks ? " ranks" : "",
           known.parameters ? " parameters" : "");
      const bool may_lack = !known.parameters || !known.ranks;
      if (!got.ok() && got.status().code() == DVT_UNSUPPORTED && may_lack) continue;
      REQUIRE_MESSAGE(got.ok(), got.status().to_string());
      for (size_t i = 0; i < expected.size(); ++i) {
        if (expected[i].bytes == nullptr) continue;
        CHECK(expected[i].dims == (*got)[i].dims);
        CHECK(*expected[i].bytes == *(*got)[i].bytes);
      }
    }
  }
  std::string next_name() { return "v" + std::to_string(next_++); }
  ir::ValueId untyped() {
    const ir::ValueId value = module_.add_value(ir::kMainGraph, next_name());
    init_.inputs.push_back(value);
    return value;
  }

  ir::Module module_;
  ir::Module::NodeInit init_;
  ir::NodeId node_ = ir::kNoNode;
  uint32_t output_count_ = 1;
  uint32_t absent_outputs_ = 0;
  uint32_t next_ = 0;
};

template <class T>
ir::TensorData tensor(DvtDType dtype, const Dims& dims, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return ir::make_tensor(dtype, dims, std::move(bytes));
}

}  // namespace davit::test
