// merge_casts: a cast of a cast, when the first loses nothing.
#include "ir/passes/passes.hpp"
#include "ir/passes/rewrite.hpp"

namespace davit::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::NodeId;
using ir::ValueId;

// Numbers that a dtype holds exactly: bits of a significand (or of an integer), and which kind.
struct Numbers {
  enum class Kind { kNone, kUnsigned, kSigned, kFloat } kind = Kind::kNone;
  int bits = 0;
  int exponent = 0;  // Largest, for floats.
};

Numbers numbers_of(DvtDType dtype) {
  using Kind = Numbers::Kind;
  switch (dtype) {
    case DVT_BOOL:
      return {Kind::kUnsigned, 1};
    case DVT_U8:
    case DVT_U16:
    case DVT_U32:
    case DVT_U64:
      return {Kind::kUnsigned, int(dvt_dtype_size(dtype)) * 8};
    case DVT_I8:
    case DVT_I16:
    case DVT_I32:
    case DVT_I64:
      return {Kind::kSigned, int(dvt_dtype_size(dtype)) * 8};
    case DVT_F16:
      return {Kind::kFloat, 11, 15};
    case DVT_BF16:
      return {Kind::kFloat, 8, 127};
    case DVT_F32:
      return {Kind::kFloat, 24, 127};
    case DVT_F64:
      return {Kind::kFloat, 53, 1023};
    default:
      return {};
  }
}

// Every number of `from` is one of `to`.
bool is_lossless(DvtDType from, DvtDType to) {
  using Kind = Numbers::Kind;
  const Numbers a = numbers_of(from);
  const Numbers b = numbers_of(to);
  if (a.kind == Kind::kNone || b.kind == Kind::kNone || to == DVT_BOOL) return from == to;
  if (a.kind == Kind::kFloat) {
    return b.kind == Kind::kFloat && a.bits <= b.bits && a.exponent <= b.exponent;
  }
  if (a.kind == b.kind) return a.bits <= b.bits;
  if (b.kind == Kind::kSigned) return a.bits < b.bits;
  return b.kind == Kind::kFloat && a.bits <= b.bits;  // Exponents of floats go far enough.
}

// Cast(Cast(x: a -> b) -> c) is Cast(x: a -> c).
bool composes(DvtDType a, DvtDType b, DvtDType c) {
  if (!is_lossless(a, b)) return false;
  // Integers wrap into narrower ones, floats saturate.
  const bool changes_rule = !is_float(a) && is_float(b) && !is_float(c);
  return !changes_rule || is_lossless(a, c) || c == DVT_BOOL;
}

bool is_cast(const ir::Module& module, NodeId node) {
  return is_op(module, node, "Cast") || is_op(module, node, "CastLike");
}

}  // namespace

Result<uint32_t> merge_casts(ir::Module& module, Refusals& /*refusals*/) {
  Rewriter rewriter(module);
  uint32_t changes = 0;
  for (const NodeId node : live_nodes(module)) {
    if (rewriter.is_struck(node) || !is_cast(module, node)) continue;
    const ValueId between = operand(module, node, 0);
    const NodeId inner = between == kNoValue ? kNoNode : module.producer(between);
    if (inner == kNoNode || !is_cast(module, inner) || rewriter.has_control_edges(node) ||
        rewriter.has_control_edges(inner)) {
      continue;
    }
    const ValueId source = operand(module, inner, 0);
    const ValueId result = module.outputs(node)[0];
    if (!composes(module.dtype(source), module.dtype(between), module.dtype(result))) continue;
    module.set_input(node, 0, source);
    ++changes;
    if (module.dtype(source) == module.dtype(result) && rewriter.replace(result, source)) {
      rewriter.strike(node);
    }
    if (!module.has_uses(between) && !module.is_graph_output(between)) {
      rewriter.strike_unneeded(inner);
    }
  }
  if (Status status = rewriter.finish(); !status.ok()) return status;
  return changes;
}

}  // namespace davit::passes
