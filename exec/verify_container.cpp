// Stage 1 of the verifier: the bytes around the flatbuffer (schema/layout.h).
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/checked.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

static_assert(std::endian::native == std::endian::little, "images are read in place");

constexpr size_t kTableBytesMax =
    sizeof(DvtImageHeader) + DVT_IMAGE_SEGMENTS_MAX * sizeof(DvtSegment);

// The fixed part of the file, copied out because `bytes` may be misaligned.
struct Container {
  DvtImageHeader header;
  std::array<DvtSegment, DVT_IMAGE_SEGMENTS_MAX> segments;
};

bool digest_equals(std::span<const std::byte> bytes, const uint8_t (&digest)[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  static_assert(sizeof canonical.digest == sizeof digest);
  return std::memcmp(canonical.digest, digest, sizeof digest) == 0;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::string version_text(uint32_t major, uint32_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

Status version_mismatch(const char* message, std::string expected, std::string got,
                        const char* hint) {
  Status status = failed(DVT_VERSION_MISMATCH, "%s: expected %s, got %s", message, expected.c_str(),
                         got.c_str());
  status.detail().expected = std::move(expected);
  status.detail().got = std::move(got);
  status.detail().hint = hint;
  return status;
}

Status check_versions(const DvtImageHeader& header) {
  const std::string got = version_text(header.version_major, header.version_minor);
  if (header.version_major != DVT_IMAGE_VERSION_MAJOR ||
      header.version_minor > DVT_IMAGE_VERSION_MINOR) {
    const std::string readable = version_text(DVT_IMAGE_VERSION_MAJOR, 0) + " to " +
                                 version_text(DVT_IMAGE_VERSION_MAJOR, DVT_IMAGE_VERSION_MINOR);
    return version_mismatch("header.version: the image's format is not one this runtime reads",
                            readable, got, "compile the model with a matching version of davit");
  }
  constexpr uint32_t kRuntime = DVT_VERSION_MAJOR << 16 | DVT_VERSION_MINOR;
  if (header.runtime_version_min > kRuntime) {
    return version_mismatch(
        "header.runtime_version_min: the image needs a newer runtime",
        "at most " + version_text(DVT_VERSION_MAJOR, DVT_VERSION_MINOR),
        version_text(header.runtime_version_min >> 16, header.runtime_version_min & 0xFFFFU),
        "update the runtime");
  }
  return {};
}

Status read_header(std::span<const std::byte> bytes, DvtImageHeader& header) {
  if (bytes.size() < sizeof header) {
    return broken("header: the file has %zu bytes, fewer than the header's %zu", bytes.size(),
                  sizeof header);
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != DVT_IMAGE_MAGIC) {
    return broken("header.magic: this is not a davit image (expected \"DVTMIEG1\")");
  }
  if (Status s = check_versions(header); !s.ok()) return s;
  if (header.file_size != bytes.size()) {
    return broken("header.file_size: says %llu bytes, the file has %zu",
                  static_cast<unsigned long long>(header.file_size), bytes.size());
  }
  if (header.target != DVT_TARGET_CPU && header.target != DVT_TARGET_ASCEND) {
    return broken("header.target: %u is not a target", header.target);
  }
  if (header.segment_count == 0 || header.segment_count > DVT_IMAGE_SEGMENTS_MAX) {
    return broken("header.segment_count: %u is not in 1 to %d", header.segment_count,
                  DVT_IMAGE_SEGMENTS_MAX);
  }
  if (!all_zero(std::as_bytes(std::span(header.reserved)))) {
    return broken("header.reserved: must be zero");
  }
  return {};
}

Status check_header_digest(std::span<const std::byte> bytes, const DvtImageHeader& header) {
  std::array<std::byte, kTableBytesMax> copy;
  const size_t size = sizeof header + header.segment_count * sizeof(DvtSegment);
  std::memcpy(copy.data(), bytes.data(), size);
  std::memset(copy.data() + offsetof(DvtImageHeader, digest), 0, sizeof header.digest);
  if (!digest_equals(std::span(copy).first(size), header.digest)) {
    return broken("header.digest: header or segment table are damaged");
  }
  return {};
}

uint64_t segment_alignment(uint32_t kind) {
  return kind == DVT_SEGMENT_METADATA ? 64 : DVT_IMAGE_PAGE;
}

Status check_segment(std::span<const std::byte> bytes, const DvtSegment& segment, uint32_t index,
                     uint64_t previous_end) {
  if (segment.offset % segment_alignment(segment.kind) != 0) {
    return broken("segments[%u].offset: must be a multiple of %llu", index,
                  static_cast<unsigned long long>(segment_alignment(segment.kind)));
  }
  if (segment.offset < previous_end) {
    return broken("segments[%u].offset: segments must be ascending and must not overlap", index);
  }
  if (!in_range(segment.offset, segment.size, bytes.size())) {
    return broken("segments[%u]: reaches beyond the end of the file", index);
  }
  if (segment.offset - previous_end >= DVT_IMAGE_PAGE) {
    return broken("segments[%u].offset: the gap before it is a page or more", index);
  }
  if (!all_zero(bytes.subspan(previous_end, segment.offset - previous_end))) {
    return broken("segments[%u]: the gap before it must be zero", index);
  }
  if (segment.flags != 0 || !all_zero(std::as_bytes(std::span(segment.reserved)))) {
    return broken("segments[%u]: flags and reserved must be zero", index);
  }
  return {};
}

// Of a segment whose content is another file (open_weights()).
Status check_external(const DvtSegment& segment, uint32_t index) {
  if (segment.kind != DVT_SEGMENT_CONSTANTS) {
    return broken("segments[%u].flags: only constants may be external", index);
  }
  if (segment.offset != 0 || segment.size == 0) {
    return broken("segments[%u]: an external segment has offset 0, and is not empty", index);
  }
  if (segment.flags != DVT_SEGMENT_EXTERNAL ||
      !all_zero(std::as_bytes(std::span(segment.reserved)))) {
    return broken("segments[%u]: unknown flags, and reserved, must be zero", index);
  }
  return {};
}

// Keeps the segments that the runtime knows; each kind occurs once at most.
Status assign_segment(std::span<const std::byte> content, const DvtSegment& segment, uint32_t index,
                      uint32_t& kinds_seen, Segments& segments) {
  if (segment.kind > DVT_SEGMENT_CONSTANTS || segment.kind == 0) return {};
  const uint32_t bit = 1U << segment.kind;
  if ((kinds_seen & bit) != 0) {
    return broken("segments[%u].kind: a second segment of kind %u", index, segment.kind);
  }
  kinds_seen |= bit;
  if (segment.kind == DVT_SEGMENT_METADATA) segments.metadata = content;
  if (segment.kind == DVT_SEGMENT_CODE) segments.code = content;
  if (segment.kind == DVT_SEGMENT_CONSTANTS) segments.constants = content;
  return {};
}

}  // namespace

Status check_container(std::span<const std::byte> bytes, bool skip_digests, ImageView& view,
                       Segments& segments) {
  Container container{};
  const DvtImageHeader& header = container.header;
  if (Status s = read_header(bytes, container.header); !s.ok()) return s;
  const uint64_t table_bytes = header.segment_count * sizeof(DvtSegment);
  if (!in_range(sizeof header, table_bytes, bytes.size())) {
    return broken("header.segment_count: the segment table reaches beyond the end of the file");
  }
  std::memcpy(container.segments.data(), bytes.data() + sizeof header, table_bytes);
  if (!skip_digests) {
    if (Status s = check_header_digest(bytes, header); !s.ok()) return s;
  }

  uint64_t end = sizeof header + table_bytes;
  uint32_t kinds_seen = 0;
  for (uint32_t i = 0; i < header.segment_count; ++i) {
    const DvtSegment& segment = container.segments[i];
    if ((segment.flags & DVT_SEGMENT_EXTERNAL) != 0) {
      Status s = check_external(segment, i);
      if (s.ok()) s = assign_segment({}, segment, i, kinds_seen, segments);
      if (!s.ok()) return s;
      segments.external = segment;
      continue;
    }
    if (Status s = check_segment(bytes, segment, i, end); !s.ok()) return s;
    const auto content = bytes.subspan(segment.offset, segment.size);
    const bool check_digest = !skip_digests || segment.kind == DVT_SEGMENT_CODE;
    if (check_digest && !digest_equals(content, segment.digest)) {
      return broken("segments[%u].digest: the content of the segment is damaged", i);
    }
    if (Status s = assign_segment(content, segment, i, kinds_seen, segments); !s.ok()) return s;
    end = segment.offset + segment.size;
  }
  if (end != bytes.size()) {
    return broken("segments[%u]: the last segment must end at the end of the file",
                  header.segment_count - 1);
  }
  if (segments.metadata.empty()) return broken("segments: there is no metadata segment");

  view.version_major = header.version_major;
  view.version_minor = header.version_minor;
  view.target = static_cast<DvtTarget>(header.target);
  view.file_bytes = header.file_size;
  return {};
}

}  // namespace davit::exec::verify
