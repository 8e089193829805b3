// prepare.hpp: what the lowerings of all targets start from: recipes, views resolved, and a builder
// for the parts of an image that do not depend on the target.
//
// Threads  One builder per thread.
// Trust    As lower.hpp.
// Memory   A Prepared borrows the module; the builder owns the model it builds.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "lowering/image/image_model.hpp"
#include "ops/definition.hpp"

namespace davit::lowering {

// A node of the main graph that runs a kernel.
struct Step {
  ir::NodeId node;
  const ops::OperatorDefinition* definition;
  ops::Recipe recipe;

  // The value behind operand i of the kernel; ir::kNoValue for an absent one.
  [[nodiscard]] ir::ValueId input(const ir::Module& module, size_t operand) const;
  [[nodiscard]] ir::ValueId output(const ir::Module& module, size_t operand) const;
};

struct Prepared {
  // A value that begins `distance` bytes after the beginning of something larger.
  struct Part {
    ir::ValueId value;
    uint64_t distance;
  };

  std::vector<Step> steps;  // In topological order.
  // By value: the value whose bytes it is a view of; itself for all others.
  std::vector<ir::ValueId> root;
  uint32_t aliased_nodes = 0;

  // What share_memory() adds; until then, all of it is empty.
  std::vector<uint64_t> distance;         // By value: where in its root it begins.
  std::vector<std::vector<Part>> joined;  // By root: the roots that make it up, if no step does.
  std::vector<std::vector<Part>> bodies;  // Roots that have to lie at these distances.
  std::vector<uint32_t> body;             // By root: index in `bodies`, or image::kNone.
  uint32_t joined_nodes = 0;

  [[nodiscard]] ir::ValueId root_of(ir::ValueId value) const { return root[index_of(value)]; }
  [[nodiscard]] uint64_t distance_of(ir::ValueId value) const {
    return distance.empty() ? 0 : distance[index_of(value)];
  }
  // The roots that steps write where a root lies, and where in it they begin: itself, or what it
  // is joined of.
  template <class Function>
  void for_each_written(ir::ValueId of, Function&& function) const {
    if (joined.empty() || joined[index_of(of)].empty()) return function(of, uint64_t{0});
    for (const Part& part : joined[index_of(of)]) function(part.value, part.distance);
  }
};

// Recipe and definition of one node.
Result<Step> prepare_step(const ir::Module& module, ir::NodeId node);

Result<Prepared> prepare(const ir::Module& module);

// What is known of a value's shape, for a dynamic value. Refuses strings and ranks above
// DVT_MAX_RANK.
Result<DvtTensor> dynamic_tensor_of(const ir::Module& module, ir::ValueId value);

// The descriptor of a value. Refuses strings, ranks above DVT_MAX_RANK and sizes above 63 bits.
Result<DvtTensor> tensor_of(const ir::Module& module, ir::ValueId value);

class ModelBuilder {
 public:
  ModelBuilder(const ir::Module& module, DvtTarget target, std::string target_name);

  // A new value with the dims and the name of `like`.
  Result<uint32_t> add_value(image::ValueKind kind, ir::ValueId like, uint64_t offset);
  // A new dynamic value: of kind kHeap, or a port.
  Result<uint32_t> add_dynamic_value(image::ValueKind kind, ir::ValueId like, uint64_t offset);
  // A new value of u8[bytes].
  uint32_t add_scratch(image::ValueKind kind, uint64_t bytes, uint64_t offset);
  // The offset of the data in the constants segment. Equal bytes are stored once.
  Result<uint64_t> place_constant(ir::ValueId value);
  uint32_t add_kernel(const DvtKernel& kernel) { return image::intern_kernel(model_, kernel); }
  // A node with kernel, attributes, lane, path and label of a step; operands are the caller's.
  image::Node node_of(const Step& step);
  // Ports take their dims from `values`, one value id per graph input and output.
  void set_ports(const std::vector<uint32_t>& inputs, const std::vector<uint32_t>& outputs);

  [[nodiscard]] image::ImageModel& model() { return model_; }

 private:
  Result<uint32_t> add(image::ValueKind kind, ir::ValueId like, const Result<DvtTensor>& tensor,
                       uint64_t offset);
  [[nodiscard]] std::vector<image::Port> ports_of(const std::vector<uint32_t>& values,
                                                  std::span<const ir::ValueId> sources,
                                                  std::string_view kind) const;

  const ir::Module& module_;
  image::ImageModel model_;
  // XXH3-128 of constant bytes, to where such bytes are in the segment: offset and size.
  using Digest = std::pair<uint64_t, uint64_t>;
  std::multimap<Digest, std::pair<uint64_t, uint64_t>> constants_;
};

}  // namespace davit::lowering
