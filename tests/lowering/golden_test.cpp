// Whole images of tiny modules, as text. A change of lowering shows here as a diff to review: run
// with DAVIT_UPDATE_GOLDEN=1 to rewrite the files.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lowering/compile.hpp"
#include "lowering/image/image_model.hpp"
#include "tests/lowering/tiny_modules.hpp"
#include "tests/support/run_image.hpp"

using davit::testing::f32_tensor;
using davit::testing::TinyModule;

namespace {

// In-place results, a result with two readers, a constant.
davit::ir::Module chain() {
  TinyModule tiny;
  const auto x = tiny.input("x", {2, 3});
  const auto k = tiny.constant("k", f32_tensor({3}, {1, 2, 3}));
  const auto a = tiny.node("Add", {x, k}, "a");
  const auto b = tiny.node("Relu", {a}, "b");
  const auto c = tiny.node("Sigmoid", {b}, "c");
  const auto y = tiny.node("Mul", {b, c}, "y");
  return tiny.build({y});
}

// Views of an input, of a result and of an output; outputs that need a copy.
davit::ir::Module views() {
  TinyModule tiny;
  const auto x = tiny.input("x", {2, 3});
  const auto row = tiny.node("Flatten", {x}, "row", {{"axis", int64_t(0)}});
  const auto a = tiny.node("Relu", {row}, "a");
  const auto column = tiny.node("Flatten", {a}, "column", {{"axis", int64_t(2)}});
  const auto b = tiny.node("Sigmoid", {column}, "b");
  const auto y = tiny.node("Flatten", {b}, "y", {{"axis", int64_t(0)}});
  return tiny.build({y, row, y});
}

// Scratch memory and a cube task.
davit::ir::Module convolution() {
  TinyModule tiny;
  const auto x = tiny.input("x", {1, 2, 4, 4});
  const auto w = tiny.constant("w", f32_tensor({2, 2, 3, 3}, std::vector<float>(36, 0.5F)));
  const auto c = tiny.node("Conv", {x, w}, "c", {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const auto y = tiny.node("Relu", {c}, "y");
  return tiny.build({y});
}

void check_golden(const std::string& name, const davit::ir::Module& module,
                  const std::vector<std::string>& disabled_passes = {}) {
  for (const DvtTarget target : {DVT_TARGET_CPU, DVT_TARGET_ASCEND}) {
    davit::compiler::CompileOptions options;
    options.target = target;
    options.disabled_passes = disabled_passes;
    const auto image = davit::compiler::compile_module(module, options);
    REQUIRE_MESSAGE(image.ok(), image.status().to_string());
    const davit::testing::AlignedBytes aligned(image->bytes);
    const auto model = davit::image::read_image_model(
        {static_cast<const std::byte*>(aligned.data()), aligned.size()});
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    const std::string text = davit::image::dump_text(*model);

    const char* folder = std::getenv("DAVIT_GOLDEN_DIR");
    REQUIRE_MESSAGE(folder != nullptr, "run by meson, or set DAVIT_GOLDEN_DIR");
    const std::string path =
        std::string(folder) + "/" + name + (target == DVT_TARGET_CPU ? ".cpu.txt" : ".ascend.txt");
    if (std::getenv("DAVIT_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
    std::ifstream file(path);
    const std::string golden{std::istreambuf_iterator<char>(file), {}};
    CHECK_MESSAGE(text == golden, path, " has become:\n", text);
  }
}

}  // namespace

TEST_CASE("chain") {
  check_golden("chain", chain());
}
TEST_CASE("views") {
  // Passes would leave lowering no views of views.
  check_golden("views", views(), {"merge_views", "move_views"});
}
TEST_CASE("convolution") {
  check_golden("convolution", convolution());
}
