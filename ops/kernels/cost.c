#include "ops/kernels/cost.h"

#include "ops/kernels/common.h"

static uint64_t add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void dvt_cost_traffic(const DvtContext* ctx, uint32_t outputs, DvtTaskCost* cost) {
  *cost = (DvtTaskCost){.dtype = dvt_input_tensor(ctx, 0)->dtype};
  for (uint32_t i = 0; i < ctx->input_count; ++i) {
    if (dvt_has_input(ctx, i)) {
      cost->read_bytes = add(cost->read_bytes, dvt_input_tensor(ctx, i)->bytes);
    }
  }
  for (uint32_t i = 0; i < outputs; ++i) {
    if (dvt_has_output(ctx, i)) {
      cost->write_bytes = add(cost->write_bytes, dvt_output_tensor(ctx, i)->bytes);
    }
  }
}

uint64_t dvt_cost_volume(const DvtTensor* tensor, uint32_t begin, uint32_t end) {
  uint64_t volume = 1;
  bool overflow = false;
  for (uint32_t i = begin; i < end; ++i) {
    const uint64_t extent = (uint64_t)tensor->dims[i];
    if (extent == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(volume, extent, &volume);
  }
  return overflow ? UINT64_MAX : volume;
}
