// emit.hpp: products as C.
//
// Threads  Pure functions.
// Trust    Specifications come from recognise().
// Memory   Text and packed weights are returned by value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/products.hpp"
#include "codegen/tiles.hpp"

namespace davit::codegen {

// How a convolution is computed, which is how its weights lie; a depthwise one has the model's.
enum class Way : uint8_t { kPlain, kPositions, kChannels, kWinograd };

// What the graph has to know of a kernel.
struct Layout {
  int64_t tile_rows = 0;         // Way::kPositions: how the weights are packed.
  int64_t workspace_floats = 0;  // Output 1; 0: the kernel has none.
  std::vector<int64_t> weight_dims;
  Way way = Way::kPlain;
  int64_t weights_operand = 0;  // Where the kernel finds the model's weights too; 0: nowhere.
};

Layout layout_of(const Product& product, std::span<const Isa> isas);

// The weights of a convolution or matrix in the order in which the kernel reads them, zeros where
// tiles hang over.
std::vector<float> pack_weights(const Product& product, const Layout& layout,
                                std::span<const float> weights);

// A function `<symbol>_run(void* context)`, and what it calls. Equal products give equal text.
std::string emit_product(const Product& product, const Layout& layout, const Isa& isa,
                         const std::string& symbol);

// ---- Inside codegen ----------------------------------------------------------------------------

// `<symbol>_finish(...)`: takes `count` sums of one row through the steps and stores them.
std::string emit_steps(std::span<const Step> steps, const std::string& symbol);
// Declarations of `accumulators` rows x vectors called a<row>_<vector>, all zero, and their stores
// to `tile`.
std::string emit_accumulators(const Tile& tile);
std::string emit_store_tile(const Tile& tile);
// A float as C text that reads back as the same bits.
std::string float_literal(double value);
// The multiply-adds of one step: vectors at `columns[v]`, the broadcast of row r is `rows[r]`.
std::string emit_multiply_adds(std::span<const std::string> rows,
                               std::span<const std::string> columns);

// `<symbol>_transpose(from, from_step, to, to_step)`: LANES rows of LANES floats.
std::string emit_transpose(const Isa& isa, const std::string& symbol);

Layout layout_of_positions(const Convolution& conv, std::span<const Isa> isas);
std::string emit_positions(const Convolution& conv, const Layout& layout, const Isa& isa,
                           const std::string& symbol);
std::vector<float> pack_positions(const Convolution& conv, const Layout& layout,
                                  std::span<const float> weights);
bool prefers_channels(const Convolution& conv, std::span<const Isa> isas);
Layout layout_of_channels(const Convolution& conv, std::span<const Isa> isas);
std::string emit_channels(const Convolution& conv, const Isa& isa, const std::string& symbol);
std::vector<float> pack_channels(const Convolution& conv, std::span<const float> weights);
Layout layout_of_depthwise(const Convolution& conv, std::span<const Isa> isas);
std::string emit_depthwise(const Convolution& conv, const Isa& isa, const std::string& symbol);
bool prefers_winograd(const Convolution& conv);
Layout layout_of_winograd(const Convolution& conv, std::span<const Isa> isas);
std::string emit_winograd(const Convolution& conv, const Layout& layout, const Isa& isa,
                          const std::string& symbol);
std::vector<float> pack_winograd(const Convolution& conv, std::span<const float> weights);
Layout layout_of_attention(const Attention& attention, std::span<const Isa> isas);
std::string emit_attention(const Attention& attention, const Isa& isa, const std::string& symbol);
std::string emit_planewise(const Product& product, const Isa& isa, const std::string& symbol);
std::string emit_matrix(const Matrix& matrix, const Isa& isa, const std::string& symbol);
std::vector<float> pack_matrix(const Product& product, const Matrix& matrix,
                               std::span<const float> weights);

}  // namespace davit::codegen
