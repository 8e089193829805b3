#include "exec/verify.hpp"

#include <cstdarg>
#include <cstdio>
#include <string>

#include "exec/block.hpp"
#include "exec/verify_internal.hpp"
#include "exec/weights.hpp"

namespace davit::exec {
namespace verify {
namespace {

[[gnu::format(printf, 2, 0)]] Status make_failure(DvtCode code, const char* format,
                                                  va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  return {code, DVT_STAGE_CHECK, text};
}

}  // namespace

Status broken(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Status status = make_failure(DVT_INVALID_IMAGE, format, arguments);
  va_end(arguments);
  return status;
}

Status failed(DvtCode code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Status status = make_failure(code, format, arguments);
  va_end(arguments);
  return status;
}

std::string describe_value(const ImageView& view, uint32_t value) {
  std::string text = std::to_string(value);
  const std::string_view name = view.value_name(value);
  if (!name.empty()) text.append(" \"").append(name.substr(0, 100)).append("\"");
  return text;
}

namespace {

// The view's pointers need 8-byte alignment. A flatbuffer of a misaligned caller is copied once;
// constants stay where they are, and read_metadata() refuses those that end up misaligned.
std::span<const std::byte> aligned_metadata(std::span<const std::byte> metadata, DvtImage& image) {
  if (reinterpret_cast<uintptr_t>(metadata.data()) % 8 == 0) return metadata;
  image.metadata_storage.assign(metadata.begin(), metadata.end());
  return image.metadata_storage;
}

Status check_limits(const OpenOptions& options, const ImageView& view) {
  if (options.arena_bytes_max == 0 || view.arena_bytes <= options.arena_bytes_max) return {};
  Status status = failed(DVT_OUT_OF_MEMORY, "memory.arena_bytes: above the limit of the caller");
  status.detail().expected = "at most " + std::to_string(options.arena_bytes_max) + " bytes";
  status.detail().got = std::to_string(view.arena_bytes) + " bytes";
  return status;
}

Status load_code(const OpenOptions& options, DvtImage& image) {
  if (image.view.code.empty() || options.code == CodeUse::kIgnore) return {};
  if (options.code == CodeUse::kRefuse) {
    Status status = failed(DVT_UNSUPPORTED, "the image brings machine code, which is refused here");
    status.detail().hint = "compile the model with --isa none, or allow code";
    return status;
  }
  auto code = CodeSegment::load(image.view.code);
  if (!code.ok()) return std::move(code.status());
  image.code = std::move(*code);
  return {};
}

// Bytes of the arrays of stages 4 to 7, about; what exceeds it comes from the heap.
uint64_t scratch_bytes(const ImageView& view) {
  uint64_t nodes = 0;
  for (const GraphView& graph : view.graphs) nodes += graph.node_count;
  constexpr uint64_t kPerValue = sizeof(ValueFacts) + 7 * sizeof(uint32_t) + 3 * sizeof(uint64_t);
  return 4096 + view.values.count * kPerValue + 4 * nodes * sizeof(uint32_t);
}

// Stages 4 to 8.
Status check_structure(const ImageView& view) {
  const uint64_t bytes = scratch_bytes(view);
  const Result<Block> block = Block::map(bytes, "the verifier");
  if (!block.ok()) return Status(block.status().detail());
  std::pmr::monotonic_buffer_resource scratch(block->at<std::byte>(0), bytes);
  if (Status s = check_graphs(view, scratch); !s.ok()) return s;
  if (Status s = check_gears(view); !s.ok()) return s;
  FlowFacts facts(scratch);
  if (Status s = map_memory(view, facts); !s.ok()) return s;
  if (Status s = check_dataflow(view, facts, scratch); !s.ok()) return s;
  if (Status s = check_device_memory(view, facts); !s.ok()) return s;
  if (Status s = check_dynamic_values(view, facts); !s.ok()) return s;
  if (Status s = check_plan(view, facts, scratch); !s.ok()) return s;
  return check_schedule(view);
}

}  // namespace
}  // namespace verify

Status verify_image(std::span<const std::byte> bytes, const OpenOptions& options, DvtImage& image) {
  using namespace verify;  // NOLINT(google-build-using-namespace)
  ImageView& view = image.view;
  Segments segments;
  if (Status s = check_container(bytes, options.skip_digests, view, segments); !s.ok()) return s;
  if (segments.external.kind != 0) {
    auto weights = open_weights(segments.external, options, image);
    if (!weights.ok()) return std::move(weights.status());
    if (weights->size() != segments.external.size) {
      return broken("segments: the external weights have another size than the table says");
    }
    segments.constants = *weights;
  }
  view.constants = segments.constants.data();
  view.constant_bytes = segments.constants.size();
  view.code = segments.code;
  if (Status s = read_metadata(aligned_metadata(segments.metadata, image), view); !s.ok()) return s;
  if (Status s = check_limits(options, view); !s.ok()) return s;
  if (options.resolve_kernels) {
    if (Status s = load_code(options, image); !s.ok()) return s;
    if (Status s = resolve_kernels(options.kernel_tables, image.code.kernels(), view); !s.ok()) {
      return s;
    }
  }
  if (Status s = check_structure(view); !s.ok()) return s;
  return options.resolve_kernels ? check_kernels(view) : Status();
}

}  // namespace davit::exec
