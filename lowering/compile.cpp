#include "lowering/compile.hpp"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "base/dtype.hpp"
#include "davit/davit.h"
#include "ir/onnx/import.hpp"
#include "ir/onnx/standard_functions.hpp"
#include "ir/passes/passes.hpp"
#include "ir/verify.hpp"
#include "lowering/lower.hpp"
#include "lowering/split_products.hpp"
#include "ops/definition.hpp"
#include "ops/plugin.hpp"

namespace davit::compiler {
namespace {

using ir::ValueId;

// Times the stages and tells the caller about them.
class Stages {
 public:
  Stages(const CompileOptions& options, CompileReport& report)
      : options_(options), report_(report) {}
  ~Stages() { finish(); }
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  void start(const std::string& name) {
    finish();
    if (options_.on_stage) options_.on_stage(name);
    report_.stages.push_back({name, 0});
    began_ = Clock::now();
    running_ = true;
  }
  void finish() {
    if (!running_) return;
    report_.stages.back().seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    running_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const CompileOptions& options_;
  CompileReport& report_;
  Clock::time_point began_;
  bool running_ = false;
};

std::string dims_text(std::span<const int64_t> dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text;
}

std::string digest_text(std::span<const std::byte> bytes) {
  const XXH64_hash_t hash = XXH3_64bits(bytes.data(), bytes.size());
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[hash >> shift & 15];
  return text;
}

// Everything that shaped the image, in one spelling: the maps are sorted.
std::string canonical_options(const CompileOptions& options) {
  std::string text = options.target == DVT_TARGET_ASCEND ? "target=ascend:" + options.soc
                                                         : std::string("target=cpu");
  for (const auto& [name, dims] : options.shapes) {
    text += " shapes=" + name + ":" + dims_text(dims);
  }
  for (const auto& [name, extent] : options.symbols) {
    text += " dim=" + name + ":" + std::to_string(extent);
  }
  const lowering::GearRequest& gears = options.gears;
  for (const int64_t batch : gears.batches) text += " dynamic-batch=" + std::to_string(batch);
  for (const auto& size : gears.image_sizes) text += " dynamic-image-size=" + dims_text(size);
  if (!gears.image_sizes.empty() && gears.channels_last) text += " input-format=NHWC";
  for (const auto& row : gears.dims) text += " dynamic-dims=" + dims_text(row);
  for (const auto& [name, count] : options.elements) {
    text += " elements=" + name + ":" + (count < 0 ? "none" : std::to_string(count));
  }
  for (const auto& [name, data] : options.frozen_inputs) {
    text += " freeze=" + name + ":" + std::string(dtype_name(data.dtype)) + "[" +
            dims_text(data.dims) + "]:" +
            digest_text(data.bytes ? std::span<const std::byte>(*data.bytes)
                                   : std::span<const std::byte>());
  }
  if (options.level != CompileOptions().level) {
    text += " optimize=" + std::to_string(static_cast<unsigned>(options.level));
  }
  if (options.workers > 1) {
    text += " workers=" + std::to_string(options.workers);
    if (options.schedule_gain != CompileOptions().schedule_gain) {
      text += " schedule-gain=" + std::to_string(options.schedule_gain);
    }
    if (!options.node_costs_ns.empty()) {
      text += " node-costs=" + digest_text(std::as_bytes(std::span(options.node_costs_ns)));
    }
  }
  if (options.pieces > 1) text += " pieces=" + std::to_string(options.pieces);
  if (options.streams > 1) {
    text += " streams=" + std::to_string(options.streams);
    if (options.stream_gain != CompileOptions().stream_gain) {
      text += " stream-gain=" + std::to_string(options.stream_gain);
    }
  }
  if (options.external_weights) text += " external-weights";
  if (options.plan_budget_ms != CompileOptions().plan_budget_ms) {
    text += " plan-budget-ms=" + std::to_string(options.plan_budget_ms);
  }
  for (const DvtPlugin* plugin : options.plugins) {
    text += " plugin=" + std::string(plugin->name) + ":" +
            (plugin->version == nullptr ? "" : plugin->version);
  }
  for (const std::string& isa : options.codegen.isas) text += " isa=" + isa;
  if (options.codegen.plain_sums) text += " plain-sums";
  for (const std::string& pass : options.disabled_passes) text += " disable-pass=" + pass;
  for (const std::string& pass : options.enabled_passes) text += " enable-pass=" + pass;
  for (const std::string& pass : options.only_passes) text += " only-pass=" + pass;
  return text;
}

image::Provenance provenance_of(const ir::Module& module, const CompileOptions& options) {
  image::Provenance provenance;
  provenance.producer = "davit " + std::to_string(DVT_VERSION_MAJOR) + "." +
                        std::to_string(DVT_VERSION_MINOR) + "." + std::to_string(DVT_VERSION_PATCH);
  provenance.source_digest = module.source_digest;
  provenance.source_name = module.source_name;
  provenance.options = canonical_options(options);
  for (const auto& [domain, version] : module.opset_imports) {
    provenance.opsets += provenance.opsets.empty() ? "" : ",";
    provenance.opsets += (domain.empty() ? "ai.onnx" : domain) + ":" + std::to_string(version);
  }
  return provenance;
}

uint32_t count_nodes(const ir::Module& module) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < module.node_count(); ++i) {
    count += module.node_alive(ir::NodeId(i)) ? 1 : 0;
  }
  return count;
}

bool is_unsupported(const ir::Module& module, ir::NodeId node) {
  return ops::find_operator(module, node) == nullptr;
}

bool has_unsupported(const ir::Module& module) {
  for (uint32_t i = 0; i < module.node_count(); ++i) {
    if (module.node_alive(ir::NodeId(i)) && is_unsupported(module, ir::NodeId(i))) return true;
  }
  return false;
}

// Operators that Davit does not have become what the standard says they are made of. Bodies depend
// on element types, and contain functions in turn; the standard has two levels of them.
Status expand_functions(ir::Module& module) {
  constexpr int kLevelsMax = 8;
  for (int level = 0; level < kLevelsMax && has_unsupported(module); ++level) {
    // What is wrong with the model is said by the passes, after what is not supported.
    if (!passes::infer_shapes(module).ok()) return {};
    auto expanded = onnx_import::expand_standard_functions(module, is_unsupported);
    if (!expanded.ok()) return std::move(expanded.status());
    if (*expanded == 0) return {};
  }
  return {};
}

// The passes of plug-ins.
Result<std::vector<passes::Rewrite>> plugin_rewrites(std::span<const DvtPlugin* const> plugins) {
  std::vector<passes::Rewrite> rewrites;
  for (const DvtPlugin* plugin : plugins) {
    for (size_t i = 0; i < plugin->pass_count; ++i) {
      const DvtPluginPass& pass = plugin->passes[i];
      Result<passes::Rewrite> rewrite = passes::Rewrite{.name = pass.name, .run = pass.run};
      if (pass.run == nullptr) {
        rewrite = passes::make_rewrite(pass.name, pass.pattern, pass.replacement);
      }
      if (!rewrite.ok()) return std::move(rewrite.status());
      rewrite->is_late = pass.stage == DVT_PLUGIN_AFTER;
      rewrite->domain = pass.domain == nullptr ? "" : pass.domain;
      rewrite->version = pass.version;
      rewrites.push_back(std::move(*rewrite));
    }
  }
  return rewrites;
}

passes::SimplifyOptions pass_options(const CompileOptions& options) {
  return {.level = options.level,
          .disabled = options.disabled_passes,
          .enabled = options.enabled_passes,
          .only = options.only_passes,
          .rewrites = {},
          .after_pass = options.on_pass};
}

// Of several gears: by name, in the order of the first.
void add_changes(std::vector<std::pair<std::string, uint32_t>>& changes,
                 std::vector<std::pair<std::string, uint32_t>>& all) {
  for (auto& change : changes) {
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const auto& entry) { return entry.first == change.first; });
    if (known == all.end()) {
      all.push_back(std::move(change));
    } else {
      known->second += change.second;
    }
  }
}

// What the user fixes.
Status bind_inputs(ir::Module& module, const CompileOptions& options, Stages& stages,
                   CompileReport& report) {
  stages.start("bind shapes");
  report.source_nodes = count_nodes(module);
  Status status = module.sort();
  if (status.ok()) status = ir::verify(module);
  if (status.ok()) status = passes::bind_elements(module, options.elements);
  if (status.ok()) status = passes::freeze_inputs(module, options.frozen_inputs);
  if (status.ok()) {
    status = passes::bind_shapes(module, {.shapes = options.shapes, .symbols = options.symbols});
  }
  return status;
}

// Expects the stage "bind shapes".
Status run_passes(ir::Module& module, const CompileOptions& options, Stages& stages,
                  CompileReport& report) {
  if (Status status = expand_functions(module); !status.ok()) return status;
  stages.start("passes");
  if (options.on_pass) {
    if (Status status = options.on_pass("bind_shapes", module); !status.ok()) return status;
  }
  auto rewrites = plugin_rewrites(options.plugins);
  if (!rewrites.ok()) return std::move(rewrites.status());
  passes::SimplifyOptions passes = pass_options(options);
  passes.rewrites = std::move(*rewrites);
  auto simplified = passes::simplify(module, passes);
  if (!simplified.ok()) return std::move(simplified.status());
  report.folded_nodes += simplified->folded_nodes;
  report.dead_nodes += simplified->dead_nodes;
  add_changes(simplified->changes, report.pass_changes);
  std::move(simplified->refusals.begin(), simplified->refusals.end(),
            std::back_inserter(report.refusals));
  return passes::check_inference(module);
}

// Kernels for the products of a cpu image. The result outlives the lowering, which names them.
Result<std::unique_ptr<codegen::Generated>> generate_code(std::span<ir::Module* const> modules,
                                                          const CompileOptions& options,
                                                          ops::PluginOperators& operators,
                                                          Stages& stages, CompileReport& report) {
  if (options.codegen.isas.empty() || options.target != DVT_TARGET_CPU) {
    return std::unique_ptr<codegen::Generated>();
  }
  stages.start("generate code");
  auto generated = codegen::generate(modules, options.codegen);
  if (!generated.ok()) return generated;
  operators.add_kernels((*generated)->kernels());
  report.generated_nodes = (*generated)->nodes;
  report.generated_kernels = uint32_t((*generated)->kernel_count());
  report.generation_refusals = (*generated)->refusals;
  report.code_files = (*generated)->files;
  report.cached_code_files = (*generated)->cached_files;
  report.code_bytes = (*generated)->code.size();
  report.cache_problem = (*generated)->cache_problem;
  return generated;
}

lowering::ScheduleRequest schedule_request(const CompileOptions& options) {
  return {.workers = options.workers,
          .gain = options.schedule_gain,
          .node_costs_ns = options.node_costs_ns};
}

bool does_in_lowering(std::string_view name, const CompileOptions& options) {
  const passes::SimplifyOptions passes = pass_options(options);
  return std::any_of(passes::lowering_passes().begin(), passes::lowering_passes().end(),
                     [&](const passes::LoweringPass& pass) {
                       return pass.name == name && passes::is_enabled(name, pass.level, passes);
                     });
}

lowering::Sharing sharing_of(const CompileOptions& options) {
  return {.view_parts = does_in_lowering("view_parts", options),
          .join_parts = does_in_lowering("join_parts", options),
          .work_in_place = does_in_lowering("work_in_place", options)};
}

lowering::AscendPasses ascend_passes(const CompileOptions& options) {
  return {.move_to_init = does_in_lowering("move_to_init", options),
          .fuse_copies = does_in_lowering("fuse_copies", options),
          .order_launches = does_in_lowering("order_launches", options),
          .streams = options.streams,
          .stream_gain = options.stream_gain};
}

void report_schedule(const lowering::Lowered& lowered, const CompileOptions& options,
                     CompileReport& report) {
  if (options.workers < 2) return;
  if (lowered.schedule) {
    report.schedule_workers = static_cast<uint32_t>(lowered.schedule->part_offsets.size() - 1);
    report.schedule_ns = lowered.schedule->makespan_ns;
    report.sequential_ns = lowered.schedule->sequential_ns;
  } else if (options.target == DVT_TARGET_ASCEND) {
    report.why_no_schedule = "the image drives a device";
  } else if (report.is_dynamic) {
    report.why_no_schedule = "shapes are set at run time, or there are branches or loops";
  } else {
    report.why_no_schedule = lowered.why_no_schedule;
  }
}

// Pieces that could not lie together would be copied.
Status split_products(ir::Module& module, const CompileOptions& options, CompileReport& report) {
  const lowering::Sharing sharing = sharing_of(options);
  if (options.pieces < 2 || options.target != DVT_TARGET_CPU || !sharing.view_parts ||
      !sharing.join_parts || !does_in_lowering("split_products", options) ||
      lowering::needs_dynamic_lowering(module)) {
    return {};
  }
  auto split = lowering::split_products(module, options.pieces, report.refusals);
  if (!split.ok()) return std::move(split.status());
  report.split_nodes = *split;
  return {};
}

void report_lowered(lowering::Lowered& lowered, CompileReport& report) {
  report.aliased_nodes += lowered.aliased_nodes;
  report.joined_nodes += lowered.joined_nodes;
  report.refusals.insert(report.refusals.end(), lowered.refusals.begin(), lowered.refusals.end());
  report.launch_edges_removed += lowered.launch_edges_removed;
  report.launch_edges_kept += lowered.launch_edges_kept;
  if (!lowered.why_edges_kept.empty()) report.why_edges_kept = lowered.why_edges_kept;
  if (lowered.streams.count >= report.streams.count) report.streams = lowered.streams;
  add_changes(lowered.changes, report.pass_changes);
}

// From a module with its passes run to a model with its memory planned.
Result<image::ImageModel> lower_module(ir::Module& module, const CompileOptions& options,
                                       Stages& stages, CompileReport& report) {
  stages.start("lower");
  report.is_dynamic = lowering::needs_dynamic_lowering(module);
  const bool ascend = options.target == DVT_TARGET_ASCEND;
  auto lowered =
      !report.is_dynamic
          ? (ascend ? lowering::lower_ascend(module, options.soc, ascend_passes(options))
                    : lowering::lower_cpu(module, schedule_request(options), sharing_of(options)))
          : (ascend ? lowering::lower_ascend_dynamic(module, options.soc)
                    : lowering::lower_cpu_dynamic(module));
  if (!lowered.ok()) return std::move(lowered.status());
  report_lowered(*lowered, report);
  if (options.streams > 1 && lowered->streams.count < 2) {
    report.why_one_stream = !ascend             ? "the image is for the cpu"
                            : report.is_dynamic ? "shapes are set at run time"
                                                : lowered->why_one_stream;
  }
  stages.start("plan memory");
  auto method = lowering::place_values(*lowered, options.plan_budget_ms);
  if (!method.ok()) return std::move(method.status());
  report.plan_method = *method;
  report_schedule(*lowered, options, report);
  return std::move(lowered->model);
}

// What has to hold for every gear.
Status check_gear(const ir::Module& module, const std::string& gear) {
  if (!lowering::needs_dynamic_lowering(module)) return {};
  return Status(
      ErrorDetail{.code = DVT_UNSUPPORTED,
                  .stage = DVT_STAGE_LOWER,
                  .message = "a gear needs static shapes and no branches or loops: in " + gear +
                             " there are shapes that are set at run time, or nodes with subgraphs",
                  .hint = "leave the gears out: the image then takes any shape"});
}

Result<image::ImageModel> compile_gears(const ir::Module& source, CompileOptions options,
                                        ops::PluginOperators& operators, Stages& stages,
                                        CompileReport& report,
                                        std::unique_ptr<codegen::Generated>& generated) {
  auto gears = lowering::resolve_gears(source, options.gears);
  if (!gears.ok()) return std::move(gears.status());
  std::vector<ir::Module> modules;
  std::vector<ir::Module*> pointers;
  modules.reserve(gears->size());
  for (const lowering::GearShapes& gear : *gears) {
    report.gears.push_back(lowering::gear_text(gear));
    modules.push_back(source);
    pointers.push_back(&modules.back());
    Status status = passes::bind_shapes(modules.back(), {.shapes = gear, .symbols = {}});
    if (status.ok()) status = run_passes(modules.back(), options, stages, report);
    if (status.ok()) status = check_gear(modules.back(), report.gears.back());
    if (!status.ok()) return status;
  }
  auto made = generate_code(pointers, options, operators, stages, report);
  if (!made.ok()) return std::move(made.status());
  generated = std::move(*made);
  const uint32_t workers = std::exchange(options.workers, 1U);
  std::vector<image::ImageModel> models;
  for (ir::Module& module : modules) {
    auto model = lower_module(module, options, stages, report);
    if (!model.ok()) return model;
    models.push_back(std::move(*model));
  }
  if (workers > 1) report.why_no_schedule = "gears run in order";
  stages.start("merge gears");
  return lowering::merge_gears(source, std::move(models));
}

// The model of an image. Its kernels may be records of `generated`.
Result<image::ImageModel> compile_model(ir::Module& module, const CompileOptions& options,
                                        ops::PluginOperators& operators, Stages& stages,
                                        CompileReport& report,
                                        std::unique_ptr<codegen::Generated>& generated) {
  if (Status status = bind_inputs(module, options, stages, report); !status.ok()) return status;
  Result<image::ImageModel> model = image::ImageModel();
  if (!options.gears.empty()) {
    model = compile_gears(module, options, operators, stages, report, generated);
  } else {
    Status status = run_passes(module, options, stages, report);
    if (status.ok()) status = split_products(module, options, report);
    if (!status.ok()) return status;
    ir::Module* const modules[] = {&module};
    auto made = generate_code(modules, options, operators, stages, report);
    if (!made.ok()) return std::move(made.status());
    generated = std::move(*made);
    model = lower_module(module, options, stages, report);
  }
  if (model.ok() && generated != nullptr) model->code = generated->code;
  return model;
}

Result<CompiledImage> write_compiled(image::ImageModel& model,
                                     std::span<const DvtKernelTable> kernel_tables, Stages& stages,
                                     CompileReport& report) {
  for (const image::Graph& graph : model.graphs) {
    const bool counts = graph.role == image::GraphRole::kMain ||
                        (graph.role == image::GraphRole::kBody && !report.gears.empty());
    if (counts) report.image_nodes += uint32_t(graph.nodes.size());
  }
  for (const image::KernelRef& kernel : model.kernels) report.kernels.push_back(kernel.name);
  report.arena_bytes = model.arena_bytes;
  report.lower_bound_bytes = model.lower_bound_bytes;
  report.constant_bytes = model.constants.size();
  stages.start("write image");
  auto bytes = image::write_image(model, kernel_tables);
  if (!bytes.ok()) return std::move(bytes.status());
  report.file_bytes = bytes->size();
  stages.finish();
  CompiledImage compiled{.bytes = std::move(*bytes), .report = std::move(report)};
  if (model.external_constants) {
    compiled.weights_name = image::weights_file_name(model);
    compiled.weights = std::move(model.constants);
  }
  return compiled;
}

Result<CompiledImage> compile_stages(ir::Module& module, const CompileOptions& options,
                                     CompileReport& report) {
  Stages stages(options, report);
  auto operators = ops::PluginOperators::create(options.plugins);
  if (!operators.ok()) return std::move(operators.status());
  module.plugin_operators = operators->get();
  std::unique_ptr<codegen::Generated> generated;
  auto model = compile_model(module, options, **operators, stages, report, generated);
  if (!model.ok()) return std::move(model.status());
  model->provenance = provenance_of(module, options);
  model->external_constants = options.external_weights && !model->constants.empty();
  return write_compiled(*model, (*operators)->kernel_tables(), stages, report);
}

}  // namespace

Result<CompiledImage> compile_onnx_file(const std::string& path, const CompileOptions& options) {
  try {
    CompileReport report;
    Stages stages(options, report);
    stages.start("import");
    auto module = onnx_import::import_onnx_file(path, &report.external_files);
    stages.finish();
    if (!module.ok()) return std::move(module.status());
    return compile_stages(*module, options, report);
  } catch (const std::bad_alloc&) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_NONE, "not enough memory to compile the model");
  }
}

Result<CompiledImage> compile_module(ir::Module module, const CompileOptions& options) {
  try {
    CompileReport report;
    return compile_stages(module, options, report);
  } catch (const std::bad_alloc&) {
    return Status(DVT_OUT_OF_MEMORY, DVT_STAGE_NONE, "not enough memory to compile the model");
  }
}

}  // namespace davit::compiler
