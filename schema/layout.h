/* layout.h: the bytes of an execute-graph image around its flatbuffer.
 *
 *   offset 0                 64                     64 + 48 * segment_count
 *   | header, 64 bytes       | segment table        | metadata | code | constants |
 *
 *   header    0      8       10      12       16          24          32          36
 *             | magic | major | minor | target | file_size | min_major | segments  |
 *                                                24..28: min runtime version
 *
 * All integers are little-endian. Metadata starts at a multiple of 64, the code and constants
 * segments at multiples of DVT_IMAGE_PAGE, so that they can be mapped and used in place. Gaps are
 * zero. Segments are ascending, do not overlap, and end at file_size.
 *
 * Threads  Types only.
 * Trust    Nothing here is trusted before exec/image.cpp has checked it.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DVT_IMAGE_MAGIC 0x314745494D545644ULL /* "DVTMIEG1" in file order */

enum {
  DVT_IMAGE_VERSION_MAJOR = 1, /* A reader refuses another major. */
  DVT_IMAGE_VERSION_MINOR = 3, /* A reader takes any minor up to its own. */
  DVT_IMAGE_PAGE = 4096,
  DVT_IMAGE_SEGMENTS_MAX = 16,
};

typedef enum DvtTarget {
  DVT_TARGET_CPU = 1,
  DVT_TARGET_ASCEND = 2,
} DvtTarget;

typedef enum DvtSegmentKind {
  DVT_SEGMENT_METADATA = 1, /* Flatbuffer, schema/image.fbs. Exactly one. */
  DVT_SEGMENT_CODE = 2,     /* Generated machine code. At most one. */
  DVT_SEGMENT_CONSTANTS = 3 /* Weights. At most one. */
} DvtSegmentKind;

typedef struct DvtImageHeader {
  uint64_t magic;
  uint16_t version_major;
  uint16_t version_minor;
  uint32_t target; /* DvtTarget. */
  uint64_t file_size;
  uint32_t runtime_version_min; /* major << 16 | minor of the oldest runtime. */
  uint32_t segment_count;
  uint8_t digest[16]; /* XXH3-128 of header (this field zero) + segment table. */
  uint8_t reserved[16];
} DvtImageHeader;
static_assert(sizeof(DvtImageHeader) == 64, "the header is one cache line");
static_assert(offsetof(DvtImageHeader, file_size) == 16, "no padding");
static_assert(offsetof(DvtImageHeader, digest) == 32, "no padding");

enum {
  /* Since 1.3, constants only: the content is a file beside the image, named by its digest
   * ("0123...cdef.weights"), and takes no room in this one: offset is 0. */
  DVT_SEGMENT_EXTERNAL = 1
};

typedef struct DvtSegment {
  uint32_t kind;  /* DvtSegmentKind; unknown kinds are skipped. */
  uint32_t flags; /* DVT_SEGMENT_*; others are 0. */
  uint64_t offset;
  uint64_t size;
  uint8_t digest[16]; /* XXH3-128, canonical (big-endian) byte order. */
  uint8_t reserved[8];
} DvtSegment;
static_assert(sizeof(DvtSegment) == 48, "no padding");

#ifdef __cplusplus
}
#endif
