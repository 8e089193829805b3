/* gemm_block.h: the register-blocked inner loops of gemm.h, for one vector width.
 *
 * Included once by each gemm_block_<name>.c, which defines DVT_VECTOR_BYTES and is compiled for the
 * instruction set it names. The compiler's vector type maps `a * b` and `a + b` to one instruction
 * each; without contraction every lane rounds as scalar float code does.
 *
 * Threads, Trust, Memory: as gemm.h.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "ops/kernels/gemm.h"

enum {
  TILE_ROWS = 6,
  LANES = DVT_VECTOR_BYTES / 4,
  TILE_VECTORS = DVT_GEMM_PANEL / LANES,
};
typedef float Vector __attribute__((vector_size(DVT_VECTOR_BYTES)));

static inline __attribute__((always_inline)) Vector load(const float* from) {
  Vector vector;
  memcpy(&vector, from, sizeof vector);
  return vector;
}

/* `height` rows of C, a constant at each call site, by DVT_GEMM_PANEL columns. */
static inline __attribute__((always_inline)) void full_tile(const int height, const float* a,
                                                            int64_t a_row, int64_t a_column,
                                                            int64_t rows, const float* panel,
                                                            float* c, int64_t c_row, bool first,
                                                            const float* bias) {
  Vector sums[TILE_ROWS][TILE_VECTORS];
  for (int i = 0; i < height; ++i) {
    for (int v = 0; v < TILE_VECTORS; ++v) {
      sums[i][v] = first ? (Vector){0} : load(c + i * c_row + v * LANES);
    }
  }
  for (int64_t k = 0; k < rows; ++k) {
    Vector b[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; ++v) b[v] = load(panel + k * DVT_GEMM_PANEL + v * LANES);
    for (int i = 0; i < height; ++i) {
      const float x = a[i * a_row + k * a_column];
      for (int v = 0; v < TILE_VECTORS; ++v) sums[i][v] += x * b[v];
    }
  }
  for (int i = 0; i < height; ++i) {
    for (int v = 0; v < TILE_VECTORS; ++v) {
      if (bias != NULL) sums[i][v] += bias[i];
      memcpy(c + i * c_row + v * LANES, &sums[i][v], sizeof(Vector));
    }
  }
}

/* A tile of C that may be narrower than a panel: works on a copy then. */
static inline __attribute__((always_inline)) void tile(const int height, const DvtGemm* gemm,
                                                       int64_t i0, int64_t k0, int64_t rows,
                                                       int64_t j0, int64_t columns,
                                                       const float* panel) {
  const float* a = gemm->a + i0 * gemm->a_row + k0 * gemm->a_column;
  const float* bias = gemm->bias != NULL && k0 + rows == gemm->k ? gemm->bias + i0 : NULL;
  float* c = gemm->c + i0 * gemm->c_row + j0;
  const bool whole = columns == DVT_GEMM_PANEL;
  const size_t bytes = (size_t)columns * sizeof(float);
  float copy[TILE_ROWS][DVT_GEMM_PANEL] = {0};
  if (!whole && k0 > 0) {
    for (int i = 0; i < height; ++i) memcpy(copy[i], c + i * gemm->c_row, bytes);
  }
  full_tile(height, a, gemm->a_row, gemm->a_column, rows, panel, whole ? c : copy[0],
            whole ? gemm->c_row : DVT_GEMM_PANEL, k0 == 0, bias);
  if (!whole) {
    for (int i = 0; i < height; ++i) memcpy(c + i * gemm->c_row, copy[i], bytes);
  }
}

static inline __attribute__((always_inline)) void block(const DvtGemm* gemm, int64_t k0,
                                                        int64_t rows, int64_t j0, int64_t columns,
                                                        const float* panels) {
  for (int64_t i = 0; i < gemm->m; i += TILE_ROWS) {
    const int64_t height = gemm->m - i < TILE_ROWS ? gemm->m - i : TILE_ROWS;
    for (int64_t j = 0; j < columns; j += DVT_GEMM_PANEL) {
      const int64_t width = columns - j < DVT_GEMM_PANEL ? columns - j : DVT_GEMM_PANEL;
      const float* panel = panels + j * rows;
      switch (height) {
        case 1:
          tile(1, gemm, i, k0, rows, j0 + j, width, panel);
          break;
        case 2:
          tile(2, gemm, i, k0, rows, j0 + j, width, panel);
          break;
        case 3:
          tile(3, gemm, i, k0, rows, j0 + j, width, panel);
          break;
        case 4:
          tile(4, gemm, i, k0, rows, j0 + j, width, panel);
          break;
        case 5:
          tile(5, gemm, i, k0, rows, j0 + j, width, panel);
          break;
        default:
          tile(TILE_ROWS, gemm, i, k0, rows, j0 + j, width, panel);
          break;
      }
    }
  }
}
