// support.hpp: kernels and images for the tests of executors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "davit/davit.hpp"

namespace davit::test {

// t.Add   (a, b) -> c   f32, same size; also a device kernel
// t.Inc   (a) -> b      f32, b = a + 1; also a device kernel
// t.Step  any operands; does nothing but what `control` says. Its first output, if it is a word,
//         is set to the node's index.
// t.Deny  its check refuses every operand
// t.Sum   (a, ...) -> b  f32, b = 1 + the sum of all inputs; tells `sum_hook` first
// Images may use the kernels of tests/support/dynamic_kernels.hpp, too.
DvtKernelTable exec_kernels();

// What t.Step does on this thread.
struct Control {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t fail_node = kNever;
  DvtCode fail_code = DVT_KERNEL_FAILED;
  std::string reason;            // Left for the executor to find.
  std::vector<uint32_t> visits;  // Nodes that ran.
};
extern thread_local Control control;

// Called by t.Sum on any thread with its node; what it returns is the kernel's code. Null: DVT_OK.
extern std::atomic<DvtCode (*)(uint32_t node)> sum_hook;

// The text form (docs/image.md) as bytes; a mistake ends the test case.
std::vector<std::byte> assemble(std::string_view text);
// Why the text cannot become an image; empty when it can.
std::string assembly_error(std::string_view text);

// An image of text together with its bytes.
struct TextImage {
  explicit TextImage(std::string_view text);

  std::vector<std::byte> bytes;
  Image image;
};

[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void check_ok(const Error& error);

// A cpu image: y[i] = x[i] + `count` by a chain of t.Inc nodes, four floats. Node i is "inc_i".
std::string chain_text(uint32_t count);

// A device image: Init copies w to the device; Main computes y = x + w + 1 there; DeInit cleans up.
extern const std::string_view kDeviceText;

}  // namespace davit::test
