/* deformable.h: the attribute record of DeformConv.
 *
 *   kernel           inputs                                          outputs
 *   DeformConv.<t>   X [N,C,in...], W [M,C/group,kernel...],         Y [N,M,out...]
 *                    offset [N,offset_group*K*S,out...], B [M]?,     workspace: u8, C*K doubles
 *                    mask [N,offset_group*K,out...]?
 *
 * S spatial dims, one to three; K taps, the product of the kernel's extents. <t> is f32, f64, f16
 * or bf16. Tap k of offset group g moves by offset channels (g * K + k) * S + s along axis s.
 *
 * Numbers  In double, rounded once (halves: to float, then to half). A tap between pixels is
 *          interpolated linearly, with zeros outside the image; times the mask, if any. Y is the
 * sum over c, then taps, ascending, of taps * W, and then B.
 *
 * Threads  Pure functions of their context.
 * Trust    As davit/kernel.h.
 * Memory   The workspace's contents mean nothing before and after a run.
 */
#pragma once

#include "ops/kernels/window.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtDeformConvAttributes {
  int64_t group, offset_group;
  DvtWindowAttributes window;
} DvtDeformConvAttributes;

#ifdef __cplusplus
} /* extern "C" */
#endif
