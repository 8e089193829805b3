// dynamic_images.hpp: images with dynamic values for the tests of stage 6b of the verifier.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "tests/image/support.hpp"

namespace davit::test {

inline const std::string kValues = R"(davit 1.2 target cpu
input x: f32[?1..8] dynamic
input n: i64[]
input s: f32[4]
const w: f32[4] = fill 1
const two: i64[] = {2}
planned p: f32[4]
planned p2: i64[1]
heap a: f32[?] dynamic
heap b: f32[?] dynamic
heap c: i64[?] dynamic
)";

// What write_image() says of the nodes of Main.
inline std::string main_message(const std::string& nodes, const std::string& values = "",
                                const std::string& head = "graph main {\n") {
  return write_message(kValues + values + head + nodes + "}\n");
}

// a = 2 x, filled after node 2.
inline const std::string kFillA =
    "a = InferShape(x) {target=2}\na = AllocHost()\na = dyn.Double(x)\n";

// The same after a change of a node of a sample.
inline std::string change(std::string_view sample, uint32_t graph, uint32_t node,
                          const std::function<void(image::Node&)>& f) {
  return write_message(sample, [&](image::ImageModel& m) { f(m.graphs[graph].nodes[node]); });
}

inline uint32_t value_named(const image::ImageModel& model, std::string_view name) {
  for (uint32_t i = 0; i < model.values.size(); ++i) {
    if (model.values[i].name == name) return i;
  }
  return image::kNone;
}

template <class T>
void set_attribute(image::Node& node, size_t index, T number) {
  std::memcpy(node.attributes.data() + index * sizeof number, &number, sizeof number);
}

}  // namespace davit::test
