// definition.hpp: what the compiler knows about an operator: inference, cost, and the kernel that
// runs it.
//
// One definition per operator and range of opset versions, in ops/defs/<family>.cpp; the kernels
// are in ops/kernels/<family>.c. docs/adding_an_operator.md walks through one.
//
// Threads  Definitions are constant; every function here is pure.
// Trust    Nodes come from a verified module, but their attributes and shapes are the model's:
//          infer() refuses what the operator's rules forbid, before recipe() and cost() see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "davit/kernel.h"
#include "ir/module.hpp"

namespace davit::ops {

// Read access to one node, with the attribute defaults of the ONNX standard.
class NodeView {
 public:
  NodeView(const ir::Module& module, ir::NodeId node) : module_(module), node_(node) {}

  [[nodiscard]] const ir::Module& module() const { return module_; }
  [[nodiscard]] ir::NodeId id() const { return node_; }
  [[nodiscard]] int64_t opset() const { return module_.opset_version(node_); }

  // Operands actually present; trailing absent ones are not counted.
  [[nodiscard]] uint32_t input_count() const;
  [[nodiscard]] uint32_t output_count() const;
  [[nodiscard]] bool has_input(uint32_t index) const;
  [[nodiscard]] bool has_output(uint32_t index) const;
  [[nodiscard]] DvtDType input_dtype(uint32_t index) const;  // DVT_DTYPE_NONE if absent/unknown.
  [[nodiscard]] const ir::Shape* input_shape(uint32_t index) const;  // nullptr: absent/unknown.
  // Extents when all are known.
  [[nodiscard]] std::optional<std::vector<int64_t>> input_extents(uint32_t index) const;
  [[nodiscard]] DvtDType output_dtype(uint32_t index) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> output_extents(uint32_t index) const;
  [[nodiscard]] const ir::TensorData* input_constant(uint32_t index) const;
  // Integer elements of a constant input.
  [[nodiscard]] std::optional<std::vector<int64_t>> input_i64(uint32_t index) const;

  [[nodiscard]] bool has_attribute(std::string_view name) const;
  [[nodiscard]] int64_t attribute_int(std::string_view name, int64_t fallback) const;
  [[nodiscard]] float attribute_float(std::string_view name, float fallback) const;
  [[nodiscard]] std::string attribute_string(std::string_view name,
                                             std::string_view fallback) const;
  [[nodiscard]] std::vector<int64_t> attribute_ints(std::string_view name,
                                                    std::vector<int64_t> fallback = {}) const;
  [[nodiscard]] std::vector<float> attribute_floats(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> attribute_strings(std::string_view name) const;
  [[nodiscard]] const ir::TensorData* attribute_tensor(std::string_view name) const;

  // An error if any attribute asked for so far was there with another type than asked for; the
  // answer was then the fallback. To be checked after infer() and recipe().
  [[nodiscard]] Status attribute_status() const;

  // An error at this node; stage is DVT_STAGE_INFER unless said.
  [[nodiscard]] Status error(DvtCode code, std::string message,
                             DvtStage stage = DVT_STAGE_INFER) const;

 private:
  template <class T>
  const T* typed_attribute(std::string_view name) const;

  const ir::Module& module_;
  ir::NodeId node_;
  // The first attribute of a wrong type. A NodeView is used by one thread.
  mutable std::string mistyped_;
  mutable const char* mistyped_expected_ = nullptr;
  mutable const char* mistyped_got_ = nullptr;
};

// What infer() found out: one entry per output. dtype DVT_DTYPE_NONE / no shape = unknown.
struct InferredOutput {
  DvtDType dtype = DVT_DTYPE_NONE;
  std::optional<ir::Shape> shape;
  std::optional<ir::TensorData>
      constant;  // When the value follows from shapes alone (Shape, Size).
};

// How a node runs. With static shapes, and with dynamic ones: then the kernel's infer() (see
// davit/kernel.h) gives the output shapes at run time, so a recipe must not depend on extents that
// are not known, and parameters that are not constant are inputs of the kernel.
struct Recipe {
  // The outputs are views of input `alias_input` (same bytes, other dims): no kernel runs.
  // Reshape, Flatten, Squeeze, Unsqueeze, Identity. kernel may be null then if all shapes are
  // static; else it is one with DVT_KERNEL_ALIAS, and alias_input is its input 0.
  bool is_alias = false;
  uint32_t alias_input = 0;

  const DvtKernel* kernel = nullptr;
  std::vector<std::byte> attributes;  // The kernel's attribute record.
  std::vector<uint32_t> inputs;       // Node input indices the kernel takes, in its order;
                                      // ir::kNone for an absent optional operand.
  std::vector<uint32_t> outputs;      // Node output indices; likewise.
  // Extra outputs after `outputs`: scratch of u8[bytes]. Their number does not depend on shapes;
  // with dynamic shapes the bytes are infer()'s, and what is here is ignored.
  std::vector<uint64_t> workspace_bytes;

  // With static shapes, what makes the kernel needless where values lie in each other:
  // output 0 is the bytes of the inputs, one after the other (Concat);
  bool joins_inputs = false;
  // output k is the bytes of input 0 from part_offsets[k] on (Split, Slice). Empty: it is not.
  std::vector<uint64_t> part_offsets = {};
};

struct OperatorDefinition {
  std::string_view domain;  // "" is ai.onnx.
  std::string_view name;
  int64_t since_version;          // First opset it holds for ...
  int64_t until_version;          // ... and the last; INT64_MAX for "still current".
  uint32_t input_min, input_max;  // input_max UINT32_MAX: variadic.
  uint32_t output_min, output_max;

  // Dtypes and shapes of all outputs from those of the inputs. Partial knowledge is fine: unknown
  // in, unknown out. Refuses nodes that break the operator's rules. `outputs` has one entry per
  // output of the node.
  Status (*infer)(const NodeView& node, std::span<InferredOutput> outputs);

  // Precondition: infer() succeeded, dtypes are known. Shapes and parameters that come as inputs
  // (axes, starts, pads ...) may be unknown: the kernel is then one that takes them as inputs, or
  // DVT_UNSUPPORTED says what has to be constant.
  Result<Recipe> (*recipe)(const NodeView& node);

  // Work of the node for device models. Precondition: recipe() succeeded, all shapes are static.
  DvtTaskCost (*cost)(const NodeView& node);
};

// Every definition, sorted by (domain, name, since_version).
std::span<const OperatorDefinition> all_operators();

// The definition that governs `node` under the module's opset imports, or nullptr.
const OperatorDefinition* find_operator(const ir::Module& module, ir::NodeId node);

// Runs a recipe on constant inputs with the reference kernel: constant folding, and tests.
// inputs[i] is node input i (nullptr when absent).
Result<std::vector<ir::TensorData>> evaluate(const NodeView& node,
                                             std::span<const ir::TensorData* const> inputs);

// ---- Helpers for definitions (ops/defs) ----------------------------------------------------

// Numpy broadcasting, symbols kept; nullopt if the shapes cannot broadcast.
std::optional<ir::Shape> broadcast(const ir::Shape& a, const ir::Shape& b);
// Axis in [-rank, rank) to [0, rank); nullopt outside.
std::optional<int64_t> normalise_axis(int64_t axis, int64_t rank);
// The kernel "<base>.<dtype>" ("Conv.f32"), or nullptr: that dtype is not supported.
const DvtKernel* find_kernel(std::string_view base, DvtDType dtype);
const DvtKernel* find_kernel(std::string_view name);
// Bytes of a record for Recipe::attributes.
template <class Record>
std::vector<std::byte> attribute_bytes(const Record& record) {
  static_assert(sizeof(Record) % 8 == 0);
  const auto* begin = reinterpret_cast<const std::byte*>(&record);
  return {begin, begin + sizeof(Record)};
}

}  // namespace davit::ops
