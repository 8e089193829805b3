// compile.hpp: the compile side's front door: a model becomes an image.
//
// Threads  Functions are pure but for files; call them from any thread.
// Trust    Models are untrusted input. Errors name node, operator and cause; unsupported operators
//          are all reported at once.
// Memory   Returns owned bytes. No file is written here but by compile_file().
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "codegen/generate.hpp"
#include "davit/plugin.h"
#include "ir/module.hpp"
#include "ir/passes/passes.hpp"
#include "lowering/gears.hpp"
#include "lowering/lower.hpp"
#include "lowering/stream_plan.hpp"
#include "schema/layout.h"

namespace davit::compiler {

struct CompileOptions {
  DvtTarget target = DVT_TARGET_CPU;
  std::string soc = "910B2";  // For ascend.
  // Input name to extents; replaces free dimensions (trtexec --shapes).
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, int64_t> symbols;  // --dim N=8
  // What free dimensions may be: each gear gets a static plan of its own. Of cpu images.
  lowering::GearRequest gears;
  // How many tensors an input holds that is a sequence or an optional, as passes::bind_elements().
  std::map<std::string, int64_t> elements;
  // Inputs turned into constants (--freeze name=@file.npy), for parameters that shapes depend on.
  std::map<std::string, ir::TensorData> frozen_inputs;
  passes::Level level = passes::Level::kEliminate;  // -O2
  // As in passes::SimplifyOptions.
  std::vector<std::string> disabled_passes, enabled_passes, only_passes;
  // More than 1: also lay down a schedule for as many workers, where Main can have one and it pays.
  uint32_t workers = 1;
  // More than 1: large operators are cut into as many pieces, for workers to share
  // (lowering/split_products.hpp).
  uint32_t pieces = 1;
  // Of static ascend images: streams of Main, at most (lowering/stream_plan.hpp); 1 to kStreamsMax.
  uint32_t streams = 1;
  // The part of the modelled time on one stream, host included, that several have to promise.
  double stream_gain = 0.98;
  // It pays when it promises at most this part of the time on one worker. Executors, which measure,
  // want 5 % too.
  double schedule_gain = 0.95;
  // Plug-ins (davit/plugin.h), loaded or linked in: their operators and rewrites. Executors need
  // their kernels: DvtImageOptions.kernel_tables.
  std::vector<const DvtPlugin*> plugins;
  // Kernels are generated for these instruction sets (codegen/tiles.hpp), and go into the image. Of
  // cpu images. Empty: the image is for the reference kernels.
  codegen::Options codegen;
  // Weights go to a file of their own, which lies beside the image: CompiledImage::weights.
  bool external_weights = false;
  // Bounds the search for a smaller arena; nominal, see lowering/memory_plan/planner.hpp. 0: none.
  uint64_t plan_budget_ms = 1000;
  // Nanoseconds of each node of Main, in the order of the image for one worker (davit tune). Empty:
  // the schedule goes by modelled costs.
  std::vector<double> node_costs_ns;
  // Told before each stage starts, with the seconds the last one took. May be empty.
  std::function<void(std::string_view stage)> on_stage;
  // Given the graph as the passes get it ("bind_shapes"), then after each of them (--save-passes).
  // An error ends the compilation, which returns it. May be empty.
  std::function<Status(std::string_view pass, const ir::Module& module)> on_pass;
};

struct CompileReport {
  struct Stage {
    std::string name;
    double seconds;
  };
  std::vector<Stage> stages;
  // What the passes did, and what they recognised but left alone.
  std::vector<std::pair<std::string, uint32_t>> pass_changes;
  std::vector<passes::Refusal> refusals;
  // Of generated code: nodes and kernels, what was recognised but left alone, and files that were
  // compiled or found in the cache.
  uint32_t generated_nodes = 0, generated_kernels = 0;
  std::vector<std::pair<std::string, std::string>> generation_refusals;
  uint64_t code_files = 0, cached_code_files = 0, code_bytes = 0;
  std::vector<std::string> kernels;         // Names of those that the image calls.
  std::string cache_problem;                // Why compiled code is not kept; empty where it is.
  std::vector<std::string> external_files;  // Paths of weights beside the model file.
  uint32_t source_nodes = 0, folded_nodes = 0, dead_nodes = 0, aliased_nodes = 0, image_nodes = 0;
  uint32_t split_nodes = 0;        // Cut into pieces.
  uint32_t joined_nodes = 0;       // See lowering::Lowered.
  std::vector<std::string> gears;  // Their shapes, as lowering::gear_text(); empty without.
  bool is_dynamic = false;         // Some shape is set at run time, or there is control flow.
  uint64_t arena_bytes = 0, lower_bound_bytes = 0, constant_bytes = 0, file_bytes = 0;
  // Of the schedule: workers (0: there is none), and what it promises by modelled costs.
  uint32_t schedule_workers = 0;
  double schedule_ns = 0, sequential_ns = 0;
  std::string why_no_schedule;  // When more than one worker was asked for.
  // As in lowering::Lowered.
  uint32_t launch_edges_removed = 0, launch_edges_kept = 0;
  std::string why_edges_kept;
  lowering::Lowered::Streams streams;
  std::string why_one_stream;    // When more than one was asked for.
  std::string_view plan_method;  // See lowering::Plan; empty when nothing was planned.
};

struct CompiledImage {
  std::vector<std::byte> bytes;
  // External weights, and the name of their file; empty when they are in the image.
  std::vector<std::byte> weights = {};
  std::string weights_name = {};
  CompileReport report;
};

// Imports an ONNX file (ir/onnx), then compile_module().
Result<CompiledImage> compile_onnx_file(const std::string& path, const CompileOptions& options);

// Shapes, inference, folding, dead code, lowering, planning, writing. Takes the module by value: it
// is rewritten.
Result<CompiledImage> compile_module(ir::Module module, const CompileOptions& options);

}  // namespace davit::compiler
