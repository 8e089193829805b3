// fold_pads: convolutions and pools pad for themselves.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

struct Padding {
  std::vector<int64_t> begins, ends;  // By axis.
  double number;
};

// A Pad with constant extents and a constant number; nullopt for others.
std::optional<Padding> padding_of(const ir::Module& module, NodeId node) {
  const ops::NodeView view(module, node);
  const ir::Shape* shape = view.input_shape(0);
  if (shape == nullptr || view.attribute_string("mode", "constant") != "constant") {
    return std::nullopt;
  }
  const size_t rank = shape->size();
  const auto pads =
      view.opset() < 11 ? std::optional(view.attribute_ints("pads")) : view.input_i64(1);
  std::vector<int64_t> axes(rank);
  for (size_t i = 0; i < rank; ++i) axes[i] = int64_t(i);
  if (view.has_input(3)) {
    const auto given = view.input_i64(3);
    if (!given) return std::nullopt;
    axes = *given;
  }
  if (!pads || pads->size() != 2 * axes.size()) return std::nullopt;
  Padding padding{std::vector<int64_t>(rank), std::vector<int64_t>(rank), 0};
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = ops::normalise_axis(axes[i], int64_t(rank));
    if (!axis) return std::nullopt;
    padding.begins[size_t(*axis)] = (*pads)[i];
    padding.ends[size_t(*axis)] = (*pads)[i + axes.size()];
  }
  if (view.opset() < 11) {
    padding.number = view.attribute_float("value", 0);
  } else if (view.has_input(2)) {
    const auto number = uniform_constant(module, operand(module, node, 2));
    if (!number) return std::nullopt;
    padding.number = *number;
  }
  return padding;
}

bool is_lowest(DvtDType dtype, double number) {
  return number == -HUGE_VAL || (dtype == DVT_F32 && number == double(-FLT_MAX));
}

// True when the padding is as large as a window.
bool covers_windows(const ops::NodeView& view, const Padding& padding) {
  const std::vector<int64_t> kernel = view.attribute_ints("kernel_shape");
  for (size_t i = 0; i < kernel.size() && i + 2 < padding.begins.size(); ++i) {
    if (std::max(padding.begins[i + 2], padding.ends[i + 2]) >= kernel[i]) return true;
  }
  return false;
}

// Why the window cannot take the padding in; empty when it can.
std::string obstacle(const ir::Module& module, NodeId window, const Padding& padding) {
  const ops::NodeView view(module, window);
  const std::vector<int64_t> own = view.attribute_ints("pads");
  const bool pads_already =
      std::any_of(own.begin(), own.end(), [](int64_t pad) { return pad != 0; });
  const std::string auto_pad = view.attribute_string("auto_pad", "NOTSET");
  for (size_t axis = 0; axis < padding.begins.size(); ++axis) {
    if (padding.begins[axis] < 0 || padding.ends[axis] < 0) return "it crops";
    if (axis < 2 && (padding.begins[axis] != 0 || padding.ends[axis] != 0)) {
      return "it pads the batch or the channels";
    }
  }
  if (auto_pad != "NOTSET" && auto_pad != "VALID") {
    return "the pads of the reader follow from its input (" + auto_pad + ")";
  }
  if (is_op(module, window, "MaxPool")) {
    // What lies in the reader's own pads is below everything.
    if (!is_lowest(view.input_dtype(0), padding.number)) {
      return "the reader takes maxima, and the padding is no lowest number";
    }
    if (view.has_output(1)) return "the reader returns indices";
    return covers_windows(view, padding) ? "a window would see nothing but padding" : "";
  }
  if (padding.number != 0) return "the reader pads with 0";
  if (!is_op(module, window, "AveragePool")) return {};
  if (view.attribute_int("ceil_mode", 0) != 0) return "the reader rounds up its extent";
  if (view.opset() < 7) return "the reader cannot count pads";
  const bool counts = view.attribute_int("count_include_pad", 0) != 0;
  return pads_already && !counts ? "the reader does not count its own pads" : "";
}

void fold_into(Rewriter& rewriter, NodeId window, const Padding& padding, ValueId source) {
  ir::Module& module = rewriter.module();
  const size_t spatial = padding.begins.size() - 2;
  std::vector<int64_t> pads = ops::NodeView(module, window).attribute_ints("pads");
  pads.resize(2 * spatial, 0);
  for (size_t i = 0; i < spatial; ++i) {
    pads[i] += padding.begins[i + 2];
    pads[i + spatial] += padding.ends[i + 2];
  }
  std::vector<ir::Attribute> attributes(module.attributes(window).begin(),
                                        module.attributes(window).end());
  std::erase_if(attributes, [](const ir::Attribute& each) { return each.name == "auto_pad"; });
  module.set_attributes(window, std::move(attributes));
  module.set_attribute(window, "pads", pads);
  if (is_op(module, window, "AveragePool")) {
    module.set_attribute(window, "count_include_pad", int64_t(1));
  }
  module.set_input(window, 0, source);
}

}  // namespace

Result<uint32_t> fold_pads(ir::Module& module, Refusals& refusals) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || rewriter.has_control_edges(node)) continue;
    if (!is_op(module, node, "Conv") && !is_op(module, node, "MaxPool") &&
        !is_op(module, node, "AveragePool")) {
      continue;
    }
    const ValueId padded = operand(module, node, 0);
    const NodeId pad = padded == kNoValue ? kNoNode : module.producer(padded);
    if (pad == kNoNode || !is_op(module, pad, "Pad") || rewriter.has_control_edges(pad)) continue;
    const auto padding = padding_of(module, pad);
    if (!padding || padding->begins.size() < 3) continue;
    const std::string reason = obstacle(module, node, *padding);
    if (!reason.empty()) {
      refusals.push_back({"fold_pads", module.node_path(pad), reason});
      continue;
    }
    fold_into(rewriter, node, *padding, operand(module, pad, 0));
    if (!module.has_uses(padded) && !module.is_graph_output(padded)) rewriter.strike(pad);
    ++changes;
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
