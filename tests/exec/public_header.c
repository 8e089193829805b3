/* The public C headers compile as strict C11, without extensions. */
#include <davit/davit.h>
#include <davit/device.h>

int main(void) {
  return dvt_dtype_size(DVT_F32) == 4 ? 0 : 1;
}
