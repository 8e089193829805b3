/* reason.h: how C kernels of exec say why they fail.
 *
 * Threads, memory  Touches its arguments only.
 */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "davit/types.h"

/* Writes a reason, if there is room for one, and returns `code`, so that a failure is one
 * statement. */
__attribute__((format(printf, 4, 5))) static inline DvtCode dvt_fail_because(
    DvtCode code, char* reason, size_t size, const char* format, ...) {
  if (reason != NULL && size > 0) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, size, format, arguments);
    va_end(arguments);
  }
  return code;
}
