// products.hpp: what a generated kernel computes: a convolution or a product of matrices, and the
// pointwise steps behind it; or a pool, reduction, softmax, resizing or attention. Recognised in
// the graph, with the reason where it cannot be.
//
// Threads  Pure functions.
// Trust    The module has passed inference: records and shapes obey their operators' rules.
// Memory   Specifications own their data; weights stay in the module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ops/definition.hpp"
#include "ops/kernels/fused.h"

namespace davit::codegen {

// How an operand of a step lies over the result. A result is rows of columns: a convolution's rows
// are channels, its columns positions; a matrix's are what they are called.
enum class Spread : uint8_t { kAll, kPerRow, kPerColumn, kOne };

struct Step {
  int64_t kind = 0;     // DvtStepKind.
  int64_t operand = 0;  // Input of the kernel, or DVT_STEP_BEFORE - k.
  Spread spread = Spread::kOne;
  double alpha = 0, beta = 0;
};

struct Convolution {
  int64_t batch = 0, groups = 0;
  int64_t in_channels = 0, out_channels = 0;  // Of one group.
  DvtWindow window{};
  std::vector<Step> steps;  // The bias is the first, if there is one.
  bool plain_sums = false;  // Not by Winograd's way.

  [[nodiscard]] bool is_depthwise() const {
    return in_channels == 1 && out_channels == 1 && groups > 1;
  }
};

// rows x inner by inner x columns; the second operand is constant.
struct Matrix {
  int64_t rows = 0, inner = 0, columns = 0;
  std::vector<Step> steps;
};

// Of planes of one or two dims.
struct Pool {
  int64_t planes = 0;
  DvtWindow window{};
  bool is_max = false;
  bool counts_pads = false;  // An average divides by them too.
};

struct Reduction {
  int64_t rows = 0, count = 0;  // Of a row.
  bool is_mean = false;         // Else the sum.
};

struct Softmax {
  int64_t rows = 0, count = 0;
};

// Each line and column of the result is a sum of some of the input's.
struct Resize {
  struct Axis {
    int64_t in = 0, out = 0, taps = 0;
    std::vector<int64_t> index;  // [out][taps]
    std::vector<float> weight;
  };
  int64_t planes = 0;
  Axis lines, columns;
};

// softmax(Q K * scale + mask) V, see ops/kernels/attention.h; one matrix of each for each batch.
struct Attention {
  int64_t rows = 0, columns = 0;          // Of Q K.
  int64_t inner = 0, width = 0;           // Columns of Q, of V.
  std::vector<int64_t> q_at, k_at, v_at;  // [batch]: which matrix of the operand.
  int64_t scaling = 0;                    // DVT_ATTENTION_*.
  double scale = 1;
  std::vector<int64_t> mask_at;             // [batch]; empty: there is no mask.
  int64_t mask_rows = 0, mask_columns = 0;  // Those of Q K, or 1.
};

struct Product {
  std::variant<Convolution, Matrix, Pool, Reduction, Softmax, Resize, Attention> what;
  // Of the kernel, behind the packed weights: the bias and what steps read.
  std::vector<ir::ValueId> operands;
  ir::ValueId input{}, weights = ir::kNoValue;  // Weights of Convolution and Matrix.
  bool transpose_weights = false;               // Of a Matrix: they are stored columns x inner.
  double scale = 1;                             // The weights are multiplied by it.
};

// The product that the node is; or why no kernel is generated for it, empty for a node that is no
// product at all.
struct Recognised {
  std::optional<Product> product;
  std::string reason;
};
Result<Recognised> recognise(const ir::Module& module, ir::NodeId node);

// Likewise of what has no weights.
Result<std::optional<Product>> recognise_planewise(const ir::Module& module,
                                                   const ops::NodeView& node);
// Likewise of a davit::Attention.
Result<Recognised> recognise_attention(const ir::Module& module, const ops::NodeView& node);

}  // namespace davit::codegen
