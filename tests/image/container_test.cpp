// Stage 1 of the verifier: header, versions, segment table, digests. One broken rule per check.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>

#include "exec/image.hpp"
#include "schema/layout.h"
#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::Status;

namespace {

struct Container {
  DvtImageHeader header;
  DvtSegment segments[2];
};

// The sample's image after a change of header or segment table, digests repaired where asked.
std::vector<std::byte> changed(const std::function<void(Container&)>& change, bool repair = true) {
  std::vector<std::byte> bytes = assemble(kCpuSample);
  Container container;
  std::memcpy(&container, bytes.data(), sizeof container);
  change(container);
  std::memcpy(bytes.data(), &container, sizeof container);
  if (repair) repair_digests(bytes);
  return bytes;
}

std::string message(const std::function<void(Container&)>& change) {
  // With digests skipped: the rules do not depend on them.
  const auto bytes = changed(change, false);
  return open_message(bytes, true);
}

}  // namespace

TEST_CASE("a good image opens") {
  CHECK(open_message(assemble(kCpuSample)).empty());
  CHECK(open_message(assemble(kDeviceSample)).empty());
  CHECK(open_message(assemble(kBodySample)).empty());
}

TEST_CASE("header rules") {
  CHECK(message([](Container& c) { c.header.magic ^= 1; }) ==
        "header.magic: this is not a davit image (expected \"DVTMIEG1\")");
  CHECK(message([](Container& c) { c.header.target = 3; }) == "header.target: 3 is not a target");
  CHECK(message([](Container& c) { c.header.segment_count = 0; }) ==
        "header.segment_count: 0 is not in 1 to 16");
  CHECK(message([](Container& c) { c.header.segment_count = 17; }) ==
        "header.segment_count: 17 is not in 1 to 16");
  CHECK(message([](Container& c) { c.header.reserved[3] = 1; }) == "header.reserved: must be zero");
  CHECK(message([](Container& c) { ++c.header.file_size; }).find("header.file_size: says ") == 0);
}

TEST_CASE("J8: another major or a newer minor is refused, and the text has both versions") {
  for (const auto& [bad_major, bad_minor] : {std::pair(2, 0), std::pair(0, 9), std::pair(1, 4)}) {
    const int major = bad_major;  // clang 14 captures no structured bindings.
    const int minor = bad_minor;
    const auto bytes = changed([&](Container& c) {
      c.header.version_major = static_cast<uint16_t>(major);
      c.header.version_minor = static_cast<uint16_t>(minor);
    });
    const Status status = open(bytes);
    REQUIRE(!status.ok());
    const std::string got = std::to_string(major) + "." + std::to_string(minor);
    CHECK(status.code() == DVT_VERSION_MISMATCH);
    CHECK(status.detail().message.find("expected 1.0 to 1.3, got " + got) != std::string::npos);
    CHECK(status.detail().expected == "1.0 to 1.3");
    CHECK(status.detail().got == got);
    CHECK(!status.detail().hint.empty());
  }
  const Status status =
      open(changed([](Container& c) { c.header.runtime_version_min = 7 << 16 | 3; }));
  REQUIRE(!status.ok());
  CHECK(status.code() == DVT_VERSION_MISMATCH);
  CHECK(
      status.detail().message ==
      "header.runtime_version_min: the image needs a newer runtime: expected at most 0.1, got 7.3");
}

TEST_CASE("J8: an image of the minor version 0 opens") {
  const auto bytes = changed([](Container& c) { c.header.version_minor = 0; });
  CHECK(open_message(bytes).empty());
}

TEST_CASE("segment table rules") {
  CHECK(message([](Container& c) { c.segments[0].offset += 8; }) ==
        "segments[0].offset: must be a multiple of 64");
  CHECK(message([](Container& c) { c.segments[1].offset += 64; }) ==
        "segments[1].offset: must be a multiple of 4096");
  CHECK(message([](Container& c) { c.segments[0].offset = 64; }) ==
        "segments[0].offset: segments must be ascending and must not overlap");
  CHECK(message([](Container& c) { c.segments[1].offset = 0; }) ==
        "segments[1].offset: segments must be ascending and must not overlap");
  CHECK(message([](Container& c) { c.segments[1].size += 1; }) ==
        "segments[1]: reaches beyond the end of the file");
  CHECK(message([](Container& c) { c.segments[1].size = UINT64_MAX; }) ==
        "segments[1]: reaches beyond the end of the file");
  CHECK(message([](Container& c) { c.segments[1].size -= 1; }) ==
        "segments[1]: the last segment must end at the end of the file");
  CHECK(message([](Container& c) { c.segments[0].flags = 2; }) ==
        "segments[0]: flags and reserved must be zero");
  CHECK(message([](Container& c) { c.segments[0].reserved[0] = 1; }) ==
        "segments[0]: flags and reserved must be zero");
  CHECK(message([](Container& c) { c.segments[0].size -= 8; }) ==
        "segments[1]: the gap before it must be zero");
}

TEST_CASE("a file without metadata is refused, and one with more than a page between segments") {
  const auto message = [](uint64_t pages) {
    std::vector<std::byte> bytes(pages * DVT_IMAGE_PAGE);
    Container container{.header = {.magic = DVT_IMAGE_MAGIC,
                                   .version_major = DVT_IMAGE_VERSION_MAJOR,
                                   .target = DVT_TARGET_CPU,
                                   .file_size = bytes.size(),
                                   .segment_count = 1}};
    container.segments[0] = {.kind = 99, .offset = bytes.size()};
    std::memcpy(bytes.data(), &container, sizeof container);
    repair_digests(bytes);
    return open_message(bytes);
  };
  CHECK(message(1) == "segments: there is no metadata segment");
  CHECK(message(2) == "segments[0].offset: the gap before it is a page or more");
}

TEST_CASE("two segments of one kind are refused, unknown kinds are skipped") {
  // The same metadata twice: the second takes the place of the constants.
  std::vector<std::byte> bytes = assemble(kCpuSample);
  Container container;
  std::memcpy(&container, bytes.data(), sizeof container);
  container.segments[1].kind = DVT_SEGMENT_METADATA;
  container.segments[1].offset = 4096;
  std::memcpy(bytes.data(), &container, sizeof container);
  repair_digests(bytes);
  CHECK(open_message(bytes) == "segments[1].kind: a second segment of kind 1");
  container.segments[1].kind = 77;
  std::memcpy(bytes.data(), &container, sizeof container);
  repair_digests(bytes);
  CHECK(open_message(bytes) ==
        "values.offset[3]: the constant reaches beyond the constants segment");
}

TEST_CASE("digests: damage is found in header, metadata and constants, or not looked for") {
  std::vector<std::byte> bytes = assemble(kCpuSample);
  bytes[60] = std::byte{0};  // Already zero, but the digest field of the header is not.
  auto damaged = bytes;
  damaged[40] ^= std::byte{1};
  CHECK(open_message(damaged) == "header.digest: header or segment table are damaged");
  CHECK(open_message(damaged, true).empty());
  damaged = bytes;
  damaged.back() ^= std::byte{1};
  CHECK(open_message(damaged) == "segments[1].digest: the content of the segment is damaged");
  CHECK(open_message(damaged, true).empty());
  damaged = bytes;
  metadata_of(damaged)[metadata_of(damaged).size() / 2] ^= std::byte{0x40};
  CHECK(open_message(damaged) == "segments[0].digest: the content of the segment is damaged");
}
