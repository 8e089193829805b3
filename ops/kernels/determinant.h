/* determinant.h: Det.
 *
 *   kernel    input            outputs
 *   Det.<t>   X [batch...,N,N] Y [batch...]; workspace: u8, N * N doubles
 *
 * <t> is f32, f64 or f16. Gaussian elimination in double with the largest pivot of each column (the
 * first of equals), rounded once (f16: to float, then to half). A matrix of no rows has
 * determinant 1.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   The workspace's contents mean nothing before and after a run.
 */
#pragma once

#include "davit/kernel.h"
