// The operator registry, NodeView, broadcast and evaluate().
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

#include "base/dtype.hpp"
#include "davit/davit.h"
#include "ops/definition.hpp"
#include "tests/ops/harness.hpp"

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

namespace {

// Small shapes, sometimes the same as the last one so that checks pass often enough.
test::Dims hostile_dims(test::Random& random, const test::Dims& last) {
  if (random.chance(0.7)) return last;
  return random.dims(0, random.chance(0.2) ? DVT_MAX_RANK : 3);
}

int64_t hostile_integer(test::Random& random) {
  constexpr std::array kExtremes = {INT64_MIN,          INT64_MIN + 1, int64_t{INT32_MIN},
                                    int64_t{INT32_MAX}, INT64_MAX - 1, INT64_MAX};
  if (random.chance(0.1)) return kExtremes[size_t(random.integer(0, kExtremes.size() - 1))];
  return random.integer(-2, 4);
}

std::vector<int64_t> hostile_attributes(test::Random& random, const DvtKernel& kernel) {
  std::vector<int64_t> record(kernel.attribute_bytes / 8);
  for (int64_t& value : record) value = hostile_integer(random);
  for (uint32_t a = 0; a < kernel.attribute_count; ++a) {
    if (kernel.attributes[a].kind != 'f') continue;
    for (uint32_t i = 0; i < kernel.attributes[a].count; ++i) {
      const double value = double(hostile_integer(random));
      std::memcpy(&record[kernel.attributes[a].offset / 8 + i], &value, sizeof value);
    }
  }
  return record;
}

DvtDType kernel_dtype(const DvtKernel& kernel) {
  const std::string_view name(kernel.name);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return DVT_DTYPE_NONE;
  return dtype_from_name(name.substr(dot + 1)).value_or(DVT_DTYPE_NONE);
}

}  // namespace

TEST_CASE("what check() lets pass, run() survives: contexts as a crafted image could hold them") {
  // Operands are heap blocks of exactly their size: the sanitizers of a debug build see overruns.
  const DvtKernelTable table = dvt_cpu_kernels();
  test::Random random(42);
  uint64_t passed = 0;
  for (size_t k = 0; k < table.count; ++k) {
    const DvtKernel& kernel = table.kernels[k];
    INFO(kernel.name);
    for (int round = 0; round < 300; ++round) {
      const DvtDType dtype = kernel_dtype(kernel) != DVT_DTYPE_NONE
                                 ? kernel_dtype(kernel)
                                 : DvtDType(random.chance(0.5) ? DVT_F32 : DVT_I64);
      test::Dims dims = random.dims(0, 4);
      const auto operands = [&](uint32_t least, uint32_t most) {
        std::vector<test::Operand> list;
        const auto count = random.integer(least, std::min<int64_t>(most, least + 2));
        for (int64_t i = 0; i < count; ++i) {
          dims = hostile_dims(random, dims);
          const bool other = random.chance(0.1);
          list.emplace_back(other ? DvtDType(random.integer(1, 16)) : dtype, dims);
          for (std::byte& byte : list.back().bytes) byte = std::byte(random.integer(0, 3));
          list.back().present = !random.chance(0.03);
        }
        return list;
      };
      std::vector<test::Operand> inputs = operands(kernel.input_min, kernel.input_max);
      std::vector<test::Operand> outputs = operands(kernel.output_min, kernel.output_max);
      const auto attributes = hostile_attributes(random, kernel);
      test::Call call(kernel, inputs, outputs, random.chance(0.98) ? attributes.data() : nullptr);
      if (call.check() != DVT_OK) continue;
      const DvtCode code = call.run();
      CHECK((code == DVT_OK || code == DVT_INVALID_ARGUMENT));
      ++passed;
    }
  }
  CHECK(passed > table.count * 20);
}
