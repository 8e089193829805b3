// Scan, from a module to a result.
#include <doctest/doctest.h>

#include <cstring>

#include "ir/text.hpp"
#include "lowering/compile.hpp"
#include "tests/support/run_image.hpp"

using namespace davit;

namespace {

ir::Module parse(const std::string& body, int64_t opset) {
  auto module = ir::parse_text("davit-ir 1\nsource \"\" \"\"\nopset \"\" " + std::to_string(opset) +
                               "\ngraph \"g\" {\n" + body + "\n}\n");
  REQUIRE_MESSAGE(module.ok(), module.status().to_string());
  return std::move(*module);
}

NpyArray f32(std::vector<int64_t> dims, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {DVT_F32, std::move(dims), std::move(bytes)};
}
std::vector<float> floats(const NpyArray& array) {
  std::vector<float> values(array.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::vector<NpyArray> run(const std::string& body, const std::vector<NpyArray>& inputs,
                          int64_t opset = 13) {
  const auto image = compiler::compile_module(parse(body, opset), {});
  REQUIRE_MESSAGE(image.ok(), image.status().to_string());
  auto outputs = testing::run_image(image->bytes, inputs, nullptr, 3);
  REQUIRE_MESSAGE(outputs.ok(), outputs.status().to_string());
  return std::move(*outputs);
}

std::string why(const std::string& body, int64_t opset = 13) {
  const auto image = compiler::compile_module(parse(body, opset), {});
  REQUIRE_FALSE(image.ok());
  return image.status().to_string();
}

// s += e, and 2 * s for each element.
const std::string kBody =
    "body = graph { input %t: f32[?] input %e: f32[?] (%u) = Add \"add\" (%t, %e) "
    "(%v) = Add \"twice\" (%u, %u) output (%u, %v) }";

std::string sum(const std::string& attributes, const std::string& x = "f32[?, ?]") {
  return "input %s: f32[?] input %x: " + x + " (%y, %z) = Scan \"scan\" (%s, %x) { " + kBody +
         " num_scan_inputs = int 1 " + attributes + " } output (%y, %z)";
}
std::string list(const std::string& name, int64_t value) {
  return name + " = ints [" + std::to_string(value) + "] ";
}

}  // namespace

TEST_CASE("axes and directions of inputs and outputs") {
  constexpr int64_t kSteps = 3, kWidth = 2;
  for (int choice = 0; choice < 32; ++choice) {
    const int64_t in_axis = choice & 1, in_back = choice >> 1 & 1;
    const int64_t out_axis = choice >> 2 & 1, out_back = choice >> 3 & 1;
    const bool is_negative = (choice >> 4) != 0;  // Axes from the end.
    std::vector<float> x;
    for (int i = 0; i < kSteps * kWidth; ++i) x.push_back(float(i + 1));
    std::vector<float> state = {10, 20}, collected(kSteps * kWidth);
    const auto at = [&](int64_t axis, int64_t step, int64_t column) {
      return size_t(axis == 0 ? step * kWidth + column : column * kSteps + step);
    };
    for (int64_t t = 0; t < kSteps; ++t) {
      for (int64_t w = 0; w < kWidth; ++w) {
        state[size_t(w)] += x[at(in_axis, in_back != 0 ? kSteps - 1 - t : t, w)];
        collected[at(out_axis, out_back != 0 ? kSteps - 1 - t : t, w)] = 2 * state[size_t(w)];
      }
    }
    const int64_t shift = is_negative ? -2 : 0;
    const std::string text =
        sum(list("scan_input_axes", in_axis + shift) + list("scan_input_directions", in_back) +
            list("scan_output_axes", out_axis + shift) + list("scan_output_directions", out_back));
    const std::vector<int64_t> dims =
        in_axis == 0 ? std::vector<int64_t>{kSteps, kWidth} : std::vector<int64_t>{kWidth, kSteps};
    const auto outputs = run(text, {f32({kWidth}, {10, 20}), f32(dims, x)});
    CHECK(floats(outputs[0]) == state);
    CHECK(floats(outputs[1]) == collected);
    CHECK(outputs[1].dims == (out_axis == 0 ? std::vector<int64_t>{kSteps, kWidth}
                                            : std::vector<int64_t>{kWidth, kSteps}));
  }
}

TEST_CASE("several inputs, no state, values from around, one Scan inside another") {
  const auto outputs =
      run("input %a: f32[3] input %b: f32[3] input %k: f32[] (%y) = Scan \"scan\" (%a, %b) { "
          "body = graph { input %p: f32[] input %q: f32[] (%m) = Mul (%p, %q) (%n) = Add (%m, %k) "
          "output (%n) } num_scan_inputs = int 2 } output (%y)",
          {f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6}), f32({}, {0.5F})});
  CHECK(floats(outputs[0]) == std::vector<float>{4.5F, 10.5F, 18.5F});
  const auto nested = run(
      "input %x: f32[2, 3] (%y) = Scan \"outer\" (%x) { body = graph { input %r: f32[3] "
      "const %zero: f32[] = {0} (%t, %z) = Scan \"inner\" (%zero, %r) { body = graph { "
      "input %s: f32[] input %e: f32[] (%u) = Add (%s, %e) (%v) = Identity (%u) output (%u, %v) } "
      "num_scan_inputs = int 1 } output (%z) } num_scan_inputs = int 1 } output (%y)",
      {f32({2, 3}, {1, 2, 3, 4, 5, 6})});
  CHECK(floats(nested[0]) == std::vector<float>{1, 3, 6, 4, 9, 15});
}

TEST_CASE("version 8 has a batch") {
  const std::string text =
      "input %s: f32[2, 1] input %x: f32[2, 3, 1] (%y, %z) = Scan \"scan\" (_, %s, %x) { " + kBody +
      " num_scan_inputs = int 1 directions = ints [1] } output (%y, %z)";
  const auto outputs = run(text, {f32({2, 1}, {0, 100}), f32({2, 3, 1}, {1, 2, 3, 10, 20, 30})}, 8);
  CHECK(floats(outputs[0]) == std::vector<float>{6, 160});
  CHECK(floats(outputs[1]) == std::vector<float>{6, 10, 12, 260, 300, 320});
  CHECK(outputs[1].dims == std::vector<int64_t>{2, 3, 1});
  CHECK(why("input %l: i64[2] input %s: f32[2, 1] input %x: f32[2, 3, 1] "
            "(%y, %z) = Scan \"scan\" (%l, %s, %x) { " +
                kBody + " num_scan_inputs = int 1 } output (%y, %z)",
            8)
            .find("lengths of sequences are not supported") != std::string::npos);
}

TEST_CASE("what is wrong with a Scan is said, with its name") {
  const auto refused = [](const std::string& body, const std::string& reason) {
    const std::string text = why(body);
    CHECK_MESSAGE(text.find("scan (ai.onnx::Scan(13))") != std::string::npos, text);
    CHECK_MESSAGE(text.find(reason) != std::string::npos, text);
  };
  refused(sum("scan_input_axes = ints [0, 0]"), "scan_input_axes has the wrong length");
  refused(sum(list("scan_output_directions", 2)), "scan_output_directions must be 0 or 1");
  refused(sum(list("scan_output_axes", 2)), "scan_output_axes is out of range");
  refused("input %s: f32[2] input %x: f32[3, 2] (%y, %z) = Scan \"scan\" (%s, %x) { " + kBody +
              " num_scan_inputs = int 3 } output (%y, %z)",
          "num_scan_inputs does not fit");
  refused("input %x: f32[3, 2] (%y, %z) = Scan \"scan\" (%x) { " + kBody +
              " num_scan_inputs = int 1 } output (%y, %z)",
          "another number of values");
  refused(
      "input %s: f32[2] (%y, %z) = Scan \"scan\" (%s) { num_scan_inputs = int 1 } "
      "output (%y, %z)",
      "it has no body");
  refused(
      "input %a: f32[3] input %b: f32[4] (%y) = Scan \"scan\" (%a, %b) { body = graph { "
      "input %p: f32[] input %q: f32[] (%m) = Mul (%p, %q) output (%m) } "
      "num_scan_inputs = int 2 } output (%y)",
      "its inputs differ in length");
}
