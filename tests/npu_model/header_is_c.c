/* The public header must compile as C11 on its own. Building this file is the test. */
#include "davit/npu.h"

int davit_npu_header_is_c(void);
int davit_npu_header_is_c(void) {
  return (int)sizeof(DvtNpuTask);
}
