#include "ops/defs/window.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ops/defs/common.hpp"

namespace davit::ops {
namespace {

std::string list_text(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(values[i]);
  return text + "]";
}

// An attribute with `count` entries in [low, DVT_WINDOW_LIMIT].
Result<std::vector<int64_t>> read_list(const NodeView& node, std::string_view name, size_t count,
                                       int64_t fallback, int64_t low) {
  std::vector<int64_t> values = node.attribute_ints(name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count) {
    return mismatch(node, "attribute " + std::string(name) + " has the wrong length",
                    std::to_string(count) + " values", list_text(values));
  }
  for (const int64_t value : values) {
    if (value >= low && value <= DVT_WINDOW_LIMIT) continue;
    return mismatch(node, "attribute " + std::string(name) + " is out of range",
                    "values of at least " + std::to_string(low), list_text(values));
  }
  return values;
}

struct AutoPad {
  DvtAutoPad mode;
  bool reads_pads;
};
Result<AutoPad> read_auto_pad(const NodeView& node) {
  const std::string text = node.attribute_string("auto_pad", "NOTSET");
  if (text == "NOTSET" || text.empty()) return AutoPad{DVT_PADS_STATED, true};
  if (text == "VALID") return AutoPad{DVT_PADS_STATED, false};
  if (text == "SAME_UPPER") return AutoPad{DVT_PADS_SAME_UPPER, false};
  if (text == "SAME_LOWER") return AutoPad{DVT_PADS_SAME_LOWER, false};
  return mismatch(node, "attribute auto_pad has an unknown value",
                  "NOTSET, VALID, SAME_UPPER or SAME_LOWER", text);
}

int64_t reach(const Window& window, size_t dim) {
  return (window.kernel[dim] - 1) * window.dilations[dim] + 1;
}

// Pads of one dim for a known extent.
std::pair<int64_t, int64_t> pads_of(const Window& window, size_t dim, int64_t in) {
  std::pair pads(window.pads_begin[dim], window.pads_end[dim]);
  if (window.auto_pad != DVT_PADS_STATED && in <= DVT_WINDOW_LIMIT) {
    dvt_same_pads(window.auto_pad, in, window.kernel[dim], window.strides[dim],
                  window.dilations[dim], &pads.first, &pads.second);
  }
  return pads;
}

}  // namespace

Status check_spatial_rank(const NodeView& node, size_t rank) {
  if (rank >= 3 && rank <= 2 + DVT_SPATIAL_MAX) return {};
  ErrorDetail detail = node.module().error_at(
      node.id(), rank < 3 ? DVT_INVALID_ARGUMENT : DVT_UNSUPPORTED, DVT_STAGE_INFER,
      "X must have a batch, a channel and 1 to 3 spatial dims");
  detail.expected = "rank 3 to 5";
  detail.got = "rank " + std::to_string(rank);
  return Status(std::move(detail));
}

Result<Window> read_window(const NodeView& node, std::vector<int64_t> kernel) {
  const size_t spatial = kernel.size();
  Window window;
  for (const int64_t extent : kernel) {
    if (extent >= 1 && extent <= DVT_WINDOW_LIMIT) continue;
    return mismatch(node, "kernel_shape is out of range", "extents of at least 1",
                    list_text(kernel));
  }
  window.kernel = std::move(kernel);
  auto strides = read_list(node, "strides", spatial, 1, 1);
  if (!strides.ok()) return std::move(strides.status());
  window.strides = std::move(*strides);
  auto dilations = read_list(node, "dilations", spatial, 1, 1);
  if (!dilations.ok()) return std::move(dilations.status());
  window.dilations = std::move(*dilations);
  auto auto_pad = read_auto_pad(node);
  if (!auto_pad.ok()) return std::move(auto_pad.status());
  window.auto_pad = auto_pad->mode;
  std::vector<int64_t> pads(2 * spatial, 0);
  if (auto_pad->reads_pads) {
    auto read = read_list(node, "pads", 2 * spatial, 0, 0);
    if (!read.ok()) return std::move(read.status());
    pads = std::move(*read);
  }
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(spatial);
  window.pads_begin.assign(pads.begin(), middle);
  window.pads_end.assign(middle, pads.end());
  return window;
}

Result<ir::Dim> window_output(const NodeView& node, const Window& window, size_t dim, ir::Dim in) {
  if (!in.is_known()) {
    const bool padded_to_same =
        window.auto_pad == DVT_PADS_STATED &&
        window.pads_begin[dim] + window.pads_end[dim] == reach(window, dim) - 1;
    const bool kept = window.strides[dim] == 1 && (window.auto_pad != DVT_PADS_STATED ||
                                                   padded_to_same || reach(window, dim) == 1);
    return kept && window.pads_begin[dim] + window.pads_end[dim] <= reach(window, dim) - 1
               ? in
               : ir::Dim();
  }
  const auto [begin, end] = pads_of(window, dim, in.extent());
  const int64_t out = dvt_window_out(in.extent(), window.kernel[dim], window.strides[dim],
                                     window.dilations[dim], begin, end, window.ceil_mode);
  if (out >= 0) return ir::Dim(out);
  if (!dvt_window_in_bounds(in.extent(), window.kernel[dim], window.strides[dim],
                            window.dilations[dim], begin, end)) {
    return mismatch(
        node,
        "spatial dim " + std::to_string(dim) +
            " is too large: extents, kernel, strides, dilations and pads end at 2^31 - 1",
        "at most " + std::to_string(DVT_WINDOW_LIMIT),
        "extent " + std::to_string(in.extent()) + ", pads " + std::to_string(begin) + " and " +
            std::to_string(end));
  }
  return mismatch(node, "the window does not fit into spatial dim " + std::to_string(dim),
                  "at least " + std::to_string(reach(window, dim)) + " elements with pads",
                  std::to_string(in.extent()) + " + pads " + std::to_string(begin) + " and " +
                      std::to_string(end));
}

DvtWindowAttributes window_attributes(const Window& window) {
  DvtWindowAttributes attributes{};
  attributes.auto_pad = window.auto_pad;
  for (size_t i = 0; i < DVT_SPATIAL_MAX; ++i) {
    const bool used = i < window.spatial();
    attributes.strides[i] = used ? window.strides[i] : 1;
    attributes.dilations[i] = used ? window.dilations[i] : 1;
    attributes.pads_begin[i] = used ? window.pads_begin[i] : 0;
    attributes.pads_end[i] = used ? window.pads_end[i] : 0;
  }
  return attributes;
}

}  // namespace davit::ops
