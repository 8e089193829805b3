// The operator registry, NodeView, broadcast and evaluate().
#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>

#include "davit/davit.h"
#include "ops/definition.hpp"

using namespace davit;

TEST_CASE("kernel names are unique, checked, and found") {
  const DvtKernelTable table = dvt_cpu_kernels();
  std::set<std::string> names;
  for (size_t i = 0; i < table.count; ++i) {
    const DvtKernel& kernel = table.kernels[i];
    INFO(kernel.name);
    CHECK(names.insert(kernel.name).second);
    CHECK(kernel.abi_version == DVT_KERNEL_ABI_VERSION);
    CHECK(bool(kernel.run != nullptr));
    CHECK(bool(kernel.check != nullptr));
    CHECK(kernel.input_min <= kernel.input_max);
    CHECK(kernel.output_min <= kernel.output_max);
    CHECK(ops::find_kernel(kernel.name) == &kernel);
    uint32_t end = 0;
    for (uint32_t a = 0; a < kernel.attribute_count; ++a) {
      const DvtAttribute& attribute = kernel.attributes[a];
      CHECK(attribute.offset == end);  // No gaps: a text dump shows every byte.
      CHECK((attribute.kind == 'i' || attribute.kind == 'f'));
      end = attribute.offset + 8u * attribute.count;
    }
    CHECK(end == kernel.attribute_bytes);
  }
  CHECK(ops::find_kernel("NoSuchKernel") == nullptr);
}

TEST_CASE("kernels refuse empty and absent operands instead of crashing") {
  const DvtKernelTable table = dvt_cpu_kernels();
  for (size_t i = 0; i < table.count; ++i) {
    const DvtKernel& kernel = table.kernels[i];
    INFO(kernel.name);
    // No operands at all, and as many absent ones as the kernel asks for.
    for (const bool full : {false, true}) {
      std::vector<uint64_t> storage(4 + 70000);
      std::vector<uint64_t> attributes(kernel.attribute_bytes / 8 + 1);
      auto* context = reinterpret_cast<DvtContext*>(storage.data());
      context->attributes = attributes.data();
      context->input_count = full ? kernel.input_min : 0;
      context->output_count = full ? kernel.output_min : 0;
      char reason[256] = "";
      const DvtCode code = kernel.check(context, reason, sizeof reason);
      CHECK(code != DVT_OK);
      CHECK(std::strlen(reason) > 0);
      CHECK(kernel.check(context, nullptr, 0) == code);
    }
  }
}

TEST_CASE("definitions are sorted, and versions of one operator do not overlap") {
  const auto all = ops::all_operators();
  CHECK(!all.empty());
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(std::string(all[i].name));
    INFO(all[i].since_version);
    CHECK(all[i].since_version <= all[i].until_version);
    CHECK(bool(all[i].infer != nullptr));
    CHECK(bool(all[i].recipe != nullptr));
    CHECK(bool(all[i].cost != nullptr));
    if (i == 0 || all[i - 1].name != all[i].name) continue;
    CHECK(all[i - 1].until_version < all[i].since_version);
  }
}

TEST_CASE("broadcast keeps symbols and refuses what cannot be") {
  using ir::Dim;
  const Dim n = Dim::symbol(ir::SymbolId{0});
  const Dim m = Dim::symbol(ir::SymbolId{1});
  CHECK(*ops::broadcast({Dim(3), Dim(1)}, {Dim(4)}) == ir::Shape{Dim(3), Dim(4)});
  CHECK(*ops::broadcast({n, Dim(1)}, {n, Dim(4)}) == ir::Shape{n, Dim(4)});
  CHECK(*ops::broadcast({Dim(1)}, {n}) == ir::Shape{n});
  CHECK(*ops::broadcast({n}, {Dim(5)}) == ir::Shape{Dim(5)});
  CHECK(*ops::broadcast({Dim(0)}, {Dim(1)}) == ir::Shape{Dim(0)});
  CHECK(!ops::broadcast({Dim(2)}, {Dim(3)}));
  const auto unknown = ops::broadcast({n}, {m});
  REQUIRE(unknown);
  CHECK(!(*unknown)[0].is_known());
  CHECK(!(*unknown)[0].is_symbol());
}

TEST_CASE("axes count from both ends") {
  CHECK(ops::normalise_axis(-1, 4) == 3);
  CHECK(ops::normalise_axis(0, 4) == 0);
  CHECK(!ops::normalise_axis(4, 4));
  CHECK(!ops::normalise_axis(-5, 4));
  CHECK(!ops::normalise_axis(0, 0));
}
