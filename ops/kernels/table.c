#include <stdlib.h>
#include <threads.h>

#include "davit/davit.h"
#include "ops/kernels/kernels.h"

/* Joined on first use, because C cannot concatenate the families' constant tables. */
enum { KERNEL_LIMIT = 1024 };
static DvtKernel kernels[KERNEL_LIMIT];
static size_t kernel_count;
static once_flag joined = ONCE_FLAG_INIT;

static void join(void) {
  const DvtKernelTable families[] = {
      /* One line a family, sorted. */
      /* clang-format off */
      dvt_kernels_activation(),
      dvt_kernels_alias(),
      dvt_kernels_bitwise(),
      dvt_kernels_channel_normalisation(),
      dvt_kernels_convolution(),
      dvt_kernels_cumulative(),
      dvt_kernels_deformable(),
      dvt_kernels_determinant(),
      dvt_kernels_einsum(),
      dvt_kernels_elementwise(),
      dvt_kernels_fill(),
      dvt_kernels_fourier(),
      dvt_kernels_gather(),
      dvt_kernels_generate(),
      dvt_kernels_group_normalisation(),
      dvt_kernels_integer_convolution(),
      dvt_kernels_integer_matrix(),
      dvt_kernels_keep(),
      dvt_kernels_lp_pooling(),
      dvt_kernels_matrix(),
      dvt_kernels_movement(),
      dvt_kernels_normalisation(),
      dvt_kernels_pooling(),
      dvt_kernels_quantisation(),
      dvt_kernels_random(),
      dvt_kernels_range(),
      dvt_kernels_rearrange(),
      dvt_kernels_recurrent(),
      dvt_kernels_reduction(),
      dvt_kernels_regions(),
      dvt_kernels_resize(),
      dvt_kernels_scatter(),
      dvt_kernels_selection(),
      dvt_kernels_fused(),
      dvt_kernels_attention(),
      dvt_kernels_sampling(),
      dvt_kernels_signal(),
      dvt_kernels_strings(),
      dvt_kernels_tfidf(),
      dvt_kernels_training(),
      dvt_kernels_unpooling(),
      /* clang-format on */
  };
  for (size_t i = 0; i < sizeof families / sizeof families[0]; ++i) {
    for (size_t k = 0; k < families[i].count; ++k) {
      if (kernel_count == KERNEL_LIMIT) abort(); /* A bug: raise the limit. */
      kernels[kernel_count++] = families[i].kernels[k];
    }
  }
}

DvtKernelTable dvt_cpu_kernels(void) {
  call_once(&joined, join);
  return (DvtKernelTable){.kernels = kernels, .count = kernel_count};
}
