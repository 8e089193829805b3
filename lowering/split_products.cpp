#include "lowering/split_products.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/passes/rewrite.hpp"
#include "ops/defs/fused.hpp"

namespace davit::lowering {
namespace {

using ir::kNoValue;
using ir::Module;
using ir::NodeId;
using ir::ValueId;
using Extents = std::vector<int64_t>;

// Multiply-adds, or elements that a pool reads. Below, a piece takes less than some ten
// microseconds, and handing it over costs some hundred nanoseconds.
constexpr int64_t kWorkMin = 1'000'000;
// Rows or channels of a piece are a multiple of these: the tiles of generated kernels
// (codegen/tiles.hpp).
constexpr int64_t kGrain = 16;
constexpr int64_t kPieceAlignment = 64;  // share_memory.hpp joins pieces that begin there.
constexpr int64_t kOpset = 13;           // Of the Splits and Concats.

// How one node is cut.
struct Cut {
  int64_t extent = 0;  // Of `axis` of the result.
  size_t axis = 0;
  int64_t work = 0;  // Of the whole node.
  int64_t grain = kGrain;
  // Inputs that are cut along an axis of theirs; the others go to all pieces. `per` extents of the
  // result are one of the input's.
  struct Input {
    uint32_t operand;
    size_t axis;
    int64_t numerator = 1,
            denominator = 1;  // Input extent = result extent * numerator / denominator.
  };
  std::vector<Input> inputs;
  int64_t groups = 1;  // Of a convolution whose groups are cut.
};

class Splitter {
 public:
  Splitter(Module& module, uint32_t pieces, passes::Refusals& refusals)
      : rewriter_(module), module_(module), pieces_(pieces), refusals_(refusals) {}

  Result<uint32_t> run() {
    uint32_t count = 0;
    const auto nodes = module_.graph_nodes(ir::kMainGraph);
    for (const NodeId node : std::vector<NodeId>(nodes.begin(), nodes.end())) {
      const auto cut = cut_of(node);
      if (!cut || cut->work < kWorkMin) continue;
      const std::vector<int64_t> sizes = sizes_of(*cut);
      const std::string reason = why_whole(node, *cut, sizes);
      if (!reason.empty()) {
        refusals_.push_back({"split_products", module_.node_path(node), reason});
        continue;
      }
      split(node, *cut, sizes);
      ++count;
    }
    Status status = rewriter_.finish();
    if (!status.ok()) return status;
    return count;
  }

 private:
  [[nodiscard]] std::optional<Extents> extents(ValueId value) const {
    return value == kNoValue ? std::nullopt : passes::static_shape(module_, value);
  }

  [[nodiscard]] std::optional<Cut> cut_of(NodeId node) const {
    const std::string_view op = module_.op(node);
    const std::string_view domain = module_.domain(node);
    const bool is_fused = domain == ops::kFusedDomain;
    if ((!domain.empty() && !is_fused) || module_.outputs(node).size() != 1) return std::nullopt;
    const auto y = extents(module_.outputs(node)[0]);
    if (!y || std::find(y->begin(), y->end(), 0) != y->end()) return std::nullopt;
    std::optional<Cut> cut;
    if (op == (is_fused ? "FusedConv" : "Conv")) {
      cut = cut_convolution(node, *y);
    } else if (op == (is_fused ? "FusedMatMul" : "MatMul") ||
               op == (is_fused ? "FusedGemm" : "Gemm")) {
      cut = cut_matrix(node, *y, op.ends_with("Gemm"));
    } else if (!is_fused && (op == "MaxPool" || op == "AveragePool")) {
      cut = cut_pool(node, *y);
    }
    if (cut && is_fused && !cut_steps(node, op, *y, *cut)) return std::nullopt;
    return cut;
  }

  [[nodiscard]] std::optional<Cut> cut_convolution(NodeId node, const Extents& y) const {
    const auto x = extents(passes::operand(module_, node, 0));
    const auto w = extents(passes::operand(module_, node, 1));
    if (!x || !w || y.size() < 3 || y[0] != 1) return std::nullopt;
    Cut cut{.extent = y[1], .axis = 1, .work = 1};
    for (size_t i = 1; i < y.size(); ++i) cut.work *= y[i];
    for (size_t i = 1; i < w->size(); ++i) cut.work *= (*w)[i];
    cut.inputs.push_back({1, 0});
    if (passes::operand(module_, node, 2) != kNoValue) cut.inputs.push_back({2, 0});
    const auto* group = module_.attribute(node, "group");
    const auto* groups = group == nullptr ? nullptr : std::get_if<int64_t>(group);
    if (groups != nullptr && *groups > 1) {
      cut.groups = *groups;
      const int64_t of_group = y[1] / *groups;
      cut.grain = of_group * ((kGrain + of_group - 1) / of_group);
      cut.inputs.push_back({0, 1, (*x)[1], y[1]});
    }
    return cut;
  }

  [[nodiscard]] std::optional<Cut> cut_matrix(NodeId node, const Extents& y, bool is_gemm) const {
    const auto a = extents(passes::operand(module_, node, 0));
    const auto b = extents(passes::operand(module_, node, 1));
    if (!a || !b || b->size() != 2 || a->size() < 2 || y.size() != a->size()) return std::nullopt;
    if (module_.constant(passes::operand(module_, node, 1)) == nullptr) return std::nullopt;
    const size_t axis = y.size() - 2;
    for (size_t i = 0; i < axis; ++i) {
      if (y[i] != 1) return std::nullopt;
    }
    Cut cut{.extent = y[axis], .axis = axis, .work = y[axis] * y[axis + 1] * a->back()};
    cut.inputs.push_back({0, axis});
    if (!is_gemm) return cut;
    const auto* transposed = module_.attribute(node, "transA");
    const auto* value = transposed == nullptr ? nullptr : std::get_if<int64_t>(transposed);
    if (value != nullptr && *value != 0) return std::nullopt;
    const auto c = extents(passes::operand(module_, node, 2));
    if (c && c->size() == 2 && (*c)[0] != 1) cut.inputs.push_back({2, 0});
    return cut;
  }

  [[nodiscard]] std::optional<Cut> cut_pool(NodeId node, const Extents& y) const {
    const auto* shape = module_.attribute(node, "kernel_shape");
    const auto* window = shape == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(shape);
    if (window == nullptr || y.size() < 3 || y[0] != 1) return std::nullopt;
    Cut cut{.extent = y[1], .axis = 1, .work = 1};
    for (const int64_t extent : y) cut.work *= extent;
    for (const int64_t extent : *window) cut.work *= extent;
    cut.inputs.push_back({0, 1});
    return cut;
  }

  // Operands of steps that vary along the axis are cut, too.
  bool cut_steps(NodeId node, std::string_view op, const Extents& y, Cut& cut) const {
    const uint32_t first = op == "FusedMatMul" ? 2 : 3;
    for (uint32_t i = first; i < module_.inputs(node).size(); ++i) {
      const auto operand = extents(module_.inputs(node)[i]);
      if (!operand || operand->size() > y.size()) return false;
      const size_t missing = y.size() - operand->size();
      if (cut.axis < missing || (*operand)[cut.axis - missing] == 1) continue;
      cut.inputs.push_back({i, cut.axis - missing});
    }
    return true;
  }

  // Extents of the pieces: as even as the grain allows. One: it cannot be cut.
  [[nodiscard]] std::vector<int64_t> sizes_of(const Cut& cut) const {
    const int64_t grains = cut.extent / cut.grain;
    const int64_t count = std::clamp<int64_t>(grains, 1, pieces_);
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < count; ++i) {
      sizes.push_back((grains * (i + 1) / count - grains * i / count) * cut.grain);
    }
    sizes.back() += cut.extent - grains * cut.grain;
    return sizes;
  }

  // "" when it can be cut so that no node moves bytes.
  [[nodiscard]] std::string why_whole(NodeId node, const Cut& cut,
                                      const std::vector<int64_t>& sizes) const {
    if (sizes.size() < 2) return "it has too few rows or channels";
    const ValueId result = module_.outputs(node)[0];
    if (module_.is_graph_output(result)) return "its result is an output of the graph";
    if (rewriter_.has_control_edges(node)) return "it has control edges";
    if (std::string reason = why_not_cut(result, cut.axis, sizes); !reason.empty()) return reason;
    for (const Cut::Input& input : cut.inputs) {
      const ValueId value = module_.inputs(node)[input.operand];
      const std::string name = "'" + std::string(module_.value_name(value)) + "'";
      if (module_.constant(value) == nullptr &&
          (module_.producer(value) == ir::kNoNode || module_.is_graph_output(value))) {
        return name + " is an input or output of the graph";
      }
      std::string reason = why_not_cut(value, input.axis, scaled(sizes, input));
      if (!reason.empty() && module_.constant(value) == nullptr) return reason;
      if (reason.find("one after the other") != std::string::npos) return reason;
    }
    return {};
  }

  // Whether pieces of these extents along the axis lie one after the other, at aligned addresses.
  [[nodiscard]] std::string why_not_cut(ValueId value, size_t axis,
                                        const std::vector<int64_t>& sizes) const {
    const Extents dims = *extents(value);
    const std::string name = "'" + std::string(module_.value_name(value)) + "'";
    int64_t bytes = dvt_dtype_size(module_.dtype(value));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (i < axis && dims[i] != 1) return "pieces of " + name + " do not lie one after the other";
      if (i > axis) bytes *= dims[i];
    }
    int64_t at = 0;
    for (const int64_t size : sizes) {
      if (at * bytes % kPieceAlignment != 0)
        return "a piece of " + name + " would begin at an odd address";
      at += size;
    }
    return {};
  }

  static std::vector<int64_t> scaled(std::vector<int64_t> sizes, const Cut::Input& input) {
    for (int64_t& size : sizes) size = size * input.numerator / input.denominator;
    return sizes;
  }

  // The pieces of a value, made once for all that read it.
  const std::vector<ValueId>& pieces_of(ValueId value, size_t axis,
                                        const std::vector<int64_t>& sizes) {
    const auto [at, is_new] = made_.try_emplace({value, axis, sizes});
    std::vector<ValueId>& pieces = at->second;
    if (!is_new) return pieces;
    const Extents dims = *extents(value);
    const std::string name(module_.value_name(value));
    int64_t begin = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Extents part = dims;
      part[axis] = sizes[i];
      const std::string part_name = piece_name(name, i, sizes.size());
      if (const ir::TensorData* constant = module_.constant(value)) {
        const size_t row = constant->bytes->size() / size_t(dims[axis]);
        const auto* first = constant->bytes->data() + row * size_t(begin);
        pieces.push_back(rewriter_.add_constant(
            ir::kMainGraph, part_name,
            ir::make_tensor(constant->dtype, part, {first, first + row * size_t(sizes[i])})));
      } else {
        ir::Shape shape(part.begin(), part.end());
        pieces.push_back(
            rewriter_.add_value(ir::kMainGraph, part_name, module_.dtype(value), shape));
      }
      begin += sizes[i];
    }
    if (module_.constant(value) != nullptr) return pieces;
    const ValueId lengths = rewriter_.add_constant(
        ir::kMainGraph, name + ".pieces", ir::make_i64_tensor({int64_t(sizes.size())}, sizes));
    rewriter_.add_node(ir::kMainGraph, {.domain = "",
                                        .op = "Split",
                                        .name = name + ".split",
                                        .inputs = {value, lengths},
                                        .outputs = pieces,
                                        .attributes = {{"axis", int64_t(axis)}},
                                        .opset = kOpset});
    return pieces;
  }

  static std::string piece_name(std::string_view name, size_t index, size_t count) {
    return std::string(name) + "[" + std::to_string(index + 1) + "/" + std::to_string(count) + "]";
  }

  void split(NodeId node, const Cut& cut, const std::vector<int64_t>& sizes) {
    const ValueId result = module_.outputs(node)[0];
    const Extents y = *extents(result);
    std::vector<std::vector<ValueId>> inputs(
        sizes.size(), {module_.inputs(node).begin(), module_.inputs(node).end()});
    for (const Cut::Input& input : cut.inputs) {
      const auto pieces =
          pieces_of(module_.inputs(node)[input.operand], input.axis, scaled(sizes, input));
      for (size_t i = 0; i < sizes.size(); ++i) inputs[i][input.operand] = pieces[i];
    }
    const auto span = module_.attributes(node);
    const std::vector<ir::Attribute> attributes(span.begin(), span.end());
    const std::string name = module_.local_name(node);
    const std::string domain(module_.domain(node)), op(module_.op(node));
    const int64_t opset = module_.opset_version(node);
    std::vector<ValueId> results;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Extents part = y;
      part[cut.axis] = sizes[i];
      results.push_back(rewriter_.add_value(
          ir::kMainGraph, piece_name(module_.value_name(result), i, sizes.size()),
          module_.dtype(result), ir::Shape(part.begin(), part.end())));
      std::vector<ir::Attribute> own = attributes;
      for (ir::Attribute& attribute : own) {
        if (cut.groups > 1 && attribute.name == "group") {
          attribute.value = cut.groups * sizes[i] / cut.extent;
        }
      }
      rewriter_.add_node(ir::kMainGraph, {.domain = domain,
                                          .op = op,
                                          .name = piece_name(name, i, sizes.size()),
                                          .inputs = inputs[i],
                                          .outputs = {results.back()},
                                          .attributes = std::move(own),
                                          .opset = opset});
    }
    // It takes the result over.
    rewriter_.add_node(ir::kMainGraph, {.domain = "",
                                        .op = "Concat",
                                        .name = name + ".join",
                                        .inputs = results,
                                        .outputs = {result},
                                        .attributes = {{"axis", int64_t(cut.axis)}},
                                        .opset = kOpset});
    rewriter_.strike(node);
  }

  passes::Rewriter rewriter_;
  Module& module_;
  int64_t pieces_;
  passes::Refusals& refusals_;
  std::map<std::tuple<ValueId, size_t, std::vector<int64_t>>, std::vector<ValueId>> made_;
};

}  // namespace

Result<uint32_t> split_products(Module& module, uint32_t pieces, passes::Refusals& refusals) {
  if (pieces < 2) return uint32_t{0};
  return Splitter(module, pieces, refusals).run();
}

}  // namespace davit::lowering
