/* address_sanitizer.h: tells AddressSanitizer which parts of memory that is handed out in pieces
 * may be touched. Costs nothing in other builds.
 */
#pragma once

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define DVT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DVT_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef DVT_ADDRESS_SANITIZER
#define DVT_ADDRESS_SANITIZER 0
#endif

#if DVT_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

/* Accesses to [address, address + bytes) are errors from now on. */
static inline void dvt_poison(const void* address, size_t bytes) {
#if DVT_ADDRESS_SANITIZER
  __asan_poison_memory_region(address, bytes);
#else
  (void)address;
  (void)bytes;
#endif
}

/* They are fine again. */
static inline void dvt_unpoison(const void* address, size_t bytes) {
#if DVT_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(address, bytes);
#else
  (void)address;
  (void)bytes;
#endif
}
