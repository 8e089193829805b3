// The list of all operators and kernels, and how a node finds its own.
#include <algorithm>
#include <array>
#include <tuple>

#include "base/dtype.hpp"
#include "davit/davit.h"
#include "ops/defs/families.hpp"
#include "ops/plugin.hpp"

namespace davit::ops {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

Key key_of(const OperatorDefinition& definition) {
  return {definition.domain, definition.name};
}

std::vector<OperatorDefinition> join_families() {
  // clang-format off: one line each, for merges
  const std::array families = {
      activation_operators(),
      bitwise_operators(),
      channel_normalisation_operators(),
      control_operators(),
      convolution_operators(),
      cumulative_operators(),
      deformable_operators(),
      determinant_operators(),
      einsum_operators(),
      elementwise_operators(),
      gather_operators(),
      generate_operators(),
      group_normalisation_operators(),
      integer_convolution_operators(),
      integer_matrix_operators(),
      keep_operators(),
      lp_pooling_operators(),
      matrix_operators(),
      movement_operators(),
      normalisation_operators(),
      pooling_operators(),
      quantisation_operators(),
      random_operators(),
      range_operators(),
      rearrange_operators(),
      recurrent_operators(),
      reduction_operators(),
      regions_operators(),
      fused_operators(),
      generated_operators(),
      resize_operators(),
      sampling_operators(),
      selection_operators(),
      shape_operators(),
      signal_operators(),
      strings_operators(),
      tfidf_operators(),
      training_operators(),
      unpooling_operators(),
  };
  // clang-format on
  std::vector<OperatorDefinition> all;
  for (const auto family : families) all.insert(all.end(), family.begin(), family.end());
  std::sort(all.begin(), all.end(), [](const OperatorDefinition& a, const OperatorDefinition& b) {
    return std::tuple(a.domain, a.name, a.since_version) <
           std::tuple(b.domain, b.name, b.since_version);
  });
  return all;
}

std::vector<const DvtKernel*> sort_kernels() {
  const DvtKernelTable table = dvt_cpu_kernels();
  std::vector<const DvtKernel*> sorted;
  for (size_t i = 0; i < table.count; ++i) sorted.push_back(&table.kernels[i]);
  std::sort(sorted.begin(), sorted.end(), [](const DvtKernel* a, const DvtKernel* b) {
    return std::string_view(a->name) < std::string_view(b->name);
  });
  return sorted;
}

}  // namespace

std::span<const OperatorDefinition> all_operators() {
  // Never destroyed, so that threads may outlive main().
  static const auto* const all = new std::vector<OperatorDefinition>(join_families());
  return *all;
}

const OperatorDefinition* find_operator(const ir::Module& module, ir::NodeId node) {
  // "ai.onnx" is the long name of the default domain.
  const std::string_view written = module.domain(node);
  const Key key{written == "ai.onnx" ? std::string_view() : written, module.op(node)};
  const auto all = all_operators();
  auto at = std::lower_bound(
      all.begin(), all.end(), key,
      [](const OperatorDefinition& definition, const Key& k) { return key_of(definition) < k; });
  const int64_t version = module.opset_version(node);
  for (; at != all.end() && key_of(*at) == key; ++at) {
    if (version >= at->since_version && version <= at->until_version) return &*at;
  }
  return module.plugin_operators == nullptr
             ? nullptr
             : module.plugin_operators->find(key.first, key.second, version);
}

const DvtKernel* find_kernel(std::string_view name) {
  static const auto* const sorted = new std::vector<const DvtKernel*>(sort_kernels());
  const auto at = std::lower_bound(sorted->begin(), sorted->end(), name,
                                   [](const DvtKernel* kernel, std::string_view n) {
                                     return std::string_view(kernel->name) < n;
                                   });
  return at != sorted->end() && name == (*at)->name ? *at : nullptr;
}

const DvtKernel* find_kernel(std::string_view base, DvtDType dtype) {
  std::string name(base);
  name += '.';
  name += dtype_name(dtype);
  return find_kernel(name);
}

}  // namespace davit::ops
