#include "codegen/generate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "codegen/code_source.hpp"
#include "codegen/products.hpp"
#include "exec/code_segment.hpp"
#include "ir/passes/rewrite.hpp"
#include "ops/definition.hpp"
#include "ops/defs/fused.hpp"
#include "ops/plugin.hpp"

namespace davit::codegen {
namespace {

DvtTensor tensor_of(DvtDType dtype, std::span<const int64_t> dims) {
  DvtTensor tensor{};
  tensor.dtype = dtype;
  tensor.rank = uint8_t(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  return tensor;
}

DvtTensor tensor_of(const ir::Module& module, ir::ValueId value) {
  return tensor_of(module.dtype(value), *passes::static_shape(module, value));
}

// Cost of the product, for schedules: batch, m, n, k of DvtTaskCost.
std::vector<int64_t> cost_of(const Product& product) {
  if (const auto* conv = std::get_if<Convolution>(&product.what)) {
    return {conv->batch * conv->groups, dvt_volume(conv->window.out), conv->out_channels,
            conv->in_channels * dvt_volume(conv->window.kernel)};
  }
  if (const auto* attention = std::get_if<Attention>(&product.what)) {
    return {int64_t(attention->q_at.size()), attention->rows, attention->columns,
            attention->inner + attention->width};
  }
  const auto* matrix = std::get_if<Matrix>(&product.what);
  if (matrix == nullptr) return {0, 0, 0, 0};
  return {1, matrix->rows, matrix->columns, matrix->inner};
}

class Generator {
 public:
  Generator(ir::Module& module, std::span<const Isa> isas, bool plain_sums)
      : rewriter_(module), isas_(isas), plain_sums_(plain_sums) {}

  Status run(std::vector<std::pair<std::string, std::string>>& refusals) {
    for (const ir::NodeId node : passes::live_nodes(module())) {
      if (rewriter_.has_control_edges(node)) continue;
      if (const DvtPluginSource* source = source_of(node)) {
        if (Status status = replace_by_source(node, *source, refusals); !status.ok()) return status;
        continue;
      }
      auto recognised = recognise(module(), node);
      if (!recognised.ok()) return std::move(recognised.status());
      if (!recognised->reason.empty()) {
        refusals.emplace_back(module().node_path(node), recognised->reason);
      }
      if (recognised->product) replace(node, std::move(*recognised->product));
    }
    return rewriter_.finish();
  }

  [[nodiscard]] uint32_t nodes() const { return nodes_; }
  // Each once, by name: the order of the graph leaves no trace in the code.
  [[nodiscard]] std::map<std::string, Kernel>& kernels() { return kernels_; }

 private:
  ir::Module& module() { return rewriter_.module(); }

  // Weights that several nodes share are packed once for each layout.
  ir::ValueId packed_weights(const Kernel& kernel) {
    const Product& product = kernel.product;
    const auto [at, is_new] = packed_.try_emplace(
        std::tuple(product.weights, kernel.layout.weight_dims, product.scale), ir::kNoValue);
    if (!is_new) return at->second;
    const std::vector<float> packed =
        pack_weights(product, kernel.layout, module().constant(product.weights)->as<float>());
    std::vector<std::byte> bytes(packed.size() * sizeof(float));
    std::memcpy(bytes.data(), packed.data(), bytes.size());
    at->second = rewriter_.add_constant(
        ir::kMainGraph, std::string(module().value_name(product.weights)) + ".packed",
        ir::make_tensor(DVT_F32, kernel.layout.weight_dims, std::move(bytes)));
    return at->second;
  }

  // The source that a plug-in has for the kernel of a node; null: none.
  const DvtPluginSource* source_of(ir::NodeId node) {
    const ops::PluginOperators* operators = module().plugin_operators;
    if (operators == nullptr || !operators->has_sources()) return nullptr;
    const ops::OperatorDefinition* definition = ops::find_operator(module(), node);
    if (definition == nullptr) return nullptr;
    const auto recipe = definition->recipe(ops::NodeView(module(), node));
    if (!recipe.ok() || recipe->kernel == nullptr) return nullptr;
    return operators->find_source(recipe->kernel->name);
  }

  // Why a kernel given as source cannot run a node; empty when it can.
  std::string reason_against(ir::NodeId node, const ops::Recipe& recipe) {
    if (recipe.kernel->flags !=
            (recipe.kernel->flags & (DVT_KERNEL_PURE | DVT_KERNEL_DEVICE | DVT_KERNEL_IN_PLACE)) ||
        (recipe.kernel->flags & DVT_KERNEL_PURE) == 0 || recipe.kernel->host_inputs != 0) {
      return "its kernel is not pure, or has flags that a kernel given as source cannot have";
    }
    const auto inputs = module().inputs(node);
    const auto outputs = module().outputs(node);
    if (!recipe.workspace_bytes.empty() || outputs.size() != 1 || inputs.empty()) {
      return "a kernel given as source has one output, an input, and no scratch";
    }
    for (const ir::ValueId value : inputs) {
      if (value == ir::kNoValue) return "an input is absent";
      if (!passes::static_shape(module(), value)) return "a shape is not static";
    }
    if (!passes::static_shape(module(), outputs[0])) return "a shape is not static";
    const bool same = module().dtype(outputs[0]) == module().dtype(inputs[0]);
    return same ? "" : "the output has another element type than input 0";
  }

  Status replace_by_source(ir::NodeId node, const DvtPluginSource& source,
                           std::vector<std::pair<std::string, std::string>>& refusals) {
    const auto recipe = ops::find_operator(module(), node)->recipe(ops::NodeView(module(), node));
    if (std::string reason = reason_against(node, *recipe); !reason.empty()) {
      refusals.emplace_back(module().node_path(node), std::move(reason));
      return {};
    }
    Kernel kernel;
    kernel.source = {source.function, source.text, recipe->attributes};
    const auto inputs = module().inputs(node);
    const ir::ValueId y = module().outputs(node)[0];
    for (const ir::ValueId input : inputs) kernel.operands.push_back(tensor_of(module(), input));
    kernel.operands.push_back(tensor_of(module(), y));
    kernel.inputs = uint32_t(inputs.size());
    kernel.outputs = 1;
    name_kernel(kernel, isas_);
    ir::Module::NodeInit init{
        .domain = std::string(ops::kFusedDomain),
        .op = "GeneratedSource",
        .name = std::string(module().node_name(node)),
        .inputs = {inputs.begin(), inputs.end()},
        .outputs = {},
        .attributes = {{"kernel", kernel.name}, {"shape", *passes::static_shape(module(), y)}},
        .opset = ops::kFusedOpset};
    init.outputs = {y};
    rewriter_.add_node(module().node_graph(node), std::move(init));
    rewriter_.strike_unneeded(node);
    kernels_.try_emplace(kernel.name, std::move(kernel));
    ++nodes_;
    return {};
  }

  // A weight that is not finite meets pads in the plain way only.
  [[nodiscard]] bool has_finite_weights(const Product& product) {
    const auto weights = module().constant(product.weights)->as<float>();
    return std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); });
  }

  void replace(ir::NodeId node, Product product) {
    Kernel kernel;
    if (auto* conv = std::get_if<Convolution>(&product.what)) {
      conv->plain_sums = plain_sums_ || !has_finite_weights(product);
    }
    kernel.layout = layout_of(product, isas_);
    kernel.product = std::move(product);
    const ir::ValueId y = module().outputs(node)[0];
    std::vector<ir::ValueId> inputs = {kernel.product.input};
    if (kernel.product.weights != ir::kNoValue) inputs.push_back(packed_weights(kernel));
    inputs.insert(inputs.end(), kernel.product.operands.begin(), kernel.product.operands.end());
    if (kernel.layout.weights_operand != 0) inputs.push_back(kernel.product.weights);
    for (const ir::ValueId input : inputs) kernel.operands.push_back(tensor_of(module(), input));
    kernel.inputs = uint32_t(inputs.size());
    kernel.operands.push_back(tensor_of(module(), y));
    kernel.outputs = 1;
    const int64_t workspace = kernel.layout.workspace_floats * int64_t(sizeof(float));
    if (workspace > 0) {
      kernel.operands.push_back(tensor_of(DVT_U8, std::span(&workspace, 1)));
      kernel.outputs = 2;
    }
    name_kernel(kernel, isas_);
    ir::Module::NodeInit init{.domain = std::string(ops::kFusedDomain),
                              .op = "Generated" + std::string(kind_of(kernel.product)),
                              .name = std::string(module().node_name(node)),
                              .inputs = std::move(inputs),
                              .outputs = {},
                              .attributes = {{"kernel", kernel.name},
                                             {"workspace_bytes", workspace},
                                             {"shape", *passes::static_shape(module(), y)},
                                             {"cost", cost_of(kernel.product)}},
                              .opset = ops::kFusedOpset};
    init.outputs = {y};
    rewriter_.add_node(module().node_graph(node), std::move(init));
    rewriter_.strike_unneeded(node);
    kernels_.try_emplace(kernel.name, std::move(kernel));
    ++nodes_;
  }

  passes::Rewriter rewriter_;
  std::span<const Isa> isas_;
  const bool plain_sums_;
  std::map<std::tuple<ir::ValueId, std::vector<int64_t>, double>, ir::ValueId> packed_;
  std::map<std::string, Kernel> kernels_;
  uint32_t nodes_ = 0;
};

// The compiler's process need not be able to run what it makes.
DvtCode run_nothing(void* /*context*/) {
  return DVT_UNSUPPORTED;
}
DvtCode accept(const DvtContext* /*context*/, char* /*reason*/, size_t /*size*/) {
  return DVT_OK;
}

DvtCode infer_nothing(const DvtContext* /*context*/, DvtTensor* /*outputs*/, char* /*reason*/,
                      size_t /*size*/) {
  return DVT_UNSUPPORTED;
}

}  // namespace

Result<std::unique_ptr<Generated>> generate(std::span<ir::Module* const> modules,
                                            const Options& options) {
  std::vector<Isa> isas;
  for (const std::string& name : options.isas) {
    auto isa = isa_named(name);
    if (!isa.ok()) return std::move(isa.status());
    isas.push_back(*isa);
  }
  // The loader takes the first that the processor can run.
  std::sort(isas.begin(), isas.end(), [](const Isa& a, const Isa& b) { return a.lanes > b.lanes; });
  auto generated = std::make_unique<Generated>();
  std::map<std::string, Kernel> named;
  for (ir::Module* module : modules) {
    Generator generator(*module, isas, options.plain_sums);
    if (Status status = generator.run(generated->refusals); !status.ok()) return status;
    generated->nodes += generator.nodes();
    named.merge(generator.kernels());
  }
  std::vector<Kernel> kernels;
  for (auto& [name, kernel] : named) kernels.push_back(std::move(kernel));
  if (kernels.empty()) return generated;
  const std::vector<SourceFile> files = make_sources(kernels, isas);
  auto built = build(files, options.toolchain);
  if (!built.ok()) return std::move(built.status());
  generated->code = std::move(built->bytes);
  append_source(generated->code, kernels, isas);
  // What the loader would say of it. That this processor cannot run it does not matter here.
  const auto loaded = exec::CodeSegment::load(generated->code);
  if (!loaded.ok() && loaded.status().code() != DVT_UNSUPPORTED) {
    return Status(DVT_IO_ERROR, DVT_STAGE_LOWER,
                  "the C compiler made code that is of no use: " +
                      std::string(loaded.status().detail().message));
  }
  generated->files = built->files;
  generated->cached_files = built->cached_files;
  generated->cache_problem = std::move(built->cache_problem);
  generated->names_.reserve(kernels.size());
  for (const Kernel& kernel : kernels) {
    generated->names_.push_back(kernel.name);
    DvtKernel record{};
    record.name = generated->names_.back().c_str();
    record.abi_version = DVT_KERNEL_ABI_VERSION;
    record.flags = DVT_KERNEL_PURE;
    record.input_min = record.input_max = uint16_t(kernel.inputs);
    record.output_min = record.output_max = uint16_t(kernel.outputs);
    record.run = run_nothing;
    record.check = accept;
    record.infer = infer_nothing;
    generated->records_.push_back(record);
  }
  return generated;
}

}  // namespace davit::codegen
