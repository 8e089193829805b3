// support.hpp: kernels, sample images and byte surgery for the tests of images.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "davit/davit.h"
#include "lowering/image/image_model.hpp"
#include "tests/support/dynamic_kernels.hpp"

namespace davit::schema {
struct Image;
}

namespace davit::test {

// test.Add     (a, b) -> c, f32 of one size; in place; also a device kernel
// test.Copy    (a) -> b, the same bytes
// test.Scale   (a) -> b, f32; attributes factor: double, shape: int64[4]
// test.Split   (a) -> up to 3 prefixes of a
// test.Count   () -> word;  test.Use (word) -> planned i64[1]
// test.Run     any operands; for nodes with bodies
// dyn.*        see tests/support/dynamic_kernels.hpp
DvtKernelTable test_kernels();
inline std::vector<DvtKernelTable> tables() {
  return {test_kernels(), dynamic_kernels()};
}

// A cpu image with one of everything that a cpu image may have.
extern const std::string_view kCpuSample;
// Two workers; d may take the place of a when both readers of a are done.
extern const std::string_view kScheduleSample;
// Init, Main and DeInit of a device image.
extern const std::string_view kDeviceSample;
// A node with two bodies, one of which has a body of its own.
extern const std::string_view kBodySample;

// Text to model and bytes; a failure ends the test case.
image::ImageModel parse(std::string_view text);
std::vector<std::byte> assemble(std::string_view text);

// Opens bytes with the test kernels. OK, or why not.
Status open(std::span<const std::byte> bytes, bool skip_digests = false);
// The message of open(); empty when it succeeds.
std::string open_message(std::span<const std::byte> bytes, bool skip_digests = false);
// What write_image() says of a text after `change`.
std::string write_message(std::string_view text,
                          const std::function<void(image::ImageModel&)>& change = {});

// Calls `change` on the metadata of an image, then repairs all digests.
std::vector<std::byte> with_metadata(std::vector<std::byte> bytes,
                                     const std::function<void(schema::Image&)>& change);
// The metadata segment.
std::span<std::byte> metadata_of(std::span<std::byte> bytes);
// Puts a flatbuffer in the place of the metadata.
std::vector<std::byte> replace_metadata(std::span<const std::byte> bytes,
                                        std::span<const std::byte> metadata);
void repair_digests(std::span<std::byte> bytes);

// Opens without digests, and runs some times if that succeeds, dynamic inputs with several shapes.
// What this must show is that nothing else happens.
void open_and_run(std::span<const std::byte> bytes);

}  // namespace davit::test
