// merge_casts.
#include <doctest/doctest.h>

#include <array>

#include "base/dtype.hpp"
#include "tests/ir/passes/support.hpp"

using namespace davit;
using testing::check_pass;
using testing::check_untouched;

namespace {

std::string casts(DvtDType from, DvtDType between, DvtDType to) {
  return "input %x: " + std::string(dtype_name(from)) + "[64] (%a) = Cast (%x) { to = int " +
         std::to_string(between) + " } (%b) = Cast (%a) { to = int " + std::to_string(to) +
         " } (%y) = com.x::Use (%b) output (%y)";
}

}  // namespace

TEST_CASE("a cast that loses nothing is skipped") {
  check_pass({.pass = "merge_casts",
              .before = "input %x: f16[4] (%a) = Cast \"up\" (%x) { to = int 1 } "
                        "(%b) = Cast \"down\" (%a) { to = int 3 } output (%b)",
              .after = "input %x: f16[4] (%b) = Cast \"down\" (%x) { to = int 3 } output (%b)"});
  check_pass({.pass = "merge_casts",
              .before = "input %x: i32[4] (%a) = Cast (%x) { to = int 7 } "
                        "(%b) = CastLike (%a, %x) (%y) = Neg (%b) output (%y)",
              .after = "input %x: i32[4] (%y) = Neg (%x) output (%y)",
              .opset = 15});
}

TEST_CASE("a cast that is read elsewhere stays there") {
  check_pass({.pass = "merge_casts",
              .before = "input %x: f16[4] (%a) = Cast \"up\" (%x) { to = int 1 } "
                        "(%b) = Cast \"on\" (%a) { to = int 11 } output (%a, %b)",
              .after = "input %x: f16[4] (%a) = Cast \"up\" (%x) { to = int 1 } "
                       "(%b) = Cast \"on\" (%x) { to = int 11 } output (%a, %b)"});
}

TEST_CASE("casts that lose something stay") {
  check_untouched("merge_casts", casts(DVT_F32, DVT_F16, DVT_F32));
  check_untouched("merge_casts", casts(DVT_I64, DVT_F32, DVT_F64));
  check_untouched("merge_casts", casts(DVT_F16, DVT_BF16, DVT_F32));
  check_untouched("merge_casts", casts(DVT_I32, DVT_BOOL, DVT_F32));
  check_untouched("merge_casts", casts(DVT_F32, DVT_I64, DVT_F32));
  check_untouched("merge_casts", casts(DVT_I8, DVT_U32, DVT_I64));
  // 200 saturates from float, and wraps from integer.
  check_untouched("merge_casts", casts(DVT_U8, DVT_F32, DVT_I8));
}

TEST_CASE("every pair of casts that is merged gives the same bits") {
  constexpr std::array kTypes = {DVT_F32, DVT_F64, DVT_F16, DVT_BF16, DVT_I8,  DVT_U8,  DVT_I16,
                                 DVT_U16, DVT_I32, DVT_U32, DVT_I64,  DVT_U64, DVT_BOOL};
  uint32_t merged = 0;
  for (const DvtDType from : kTypes) {
    for (const DvtDType between : kTypes) {
      for (const DvtDType to : kTypes) {
        const std::string text = "input %x: " + std::string(dtype_name(from)) +
                                 "[64] (%a) = Cast (%x) { to = int " + std::to_string(between) +
                                 " } (%b) = Cast (%a) { to = int " + std::to_string(to) +
                                 " } output (%b)";
        INFO(text);
        const ir::Module before = testing::parse_graph(text);
        ir::Module after = before;
        passes::Refusals refusals;
        merged += *passes::merge_casts(after, refusals);
        REQUIRE(passes::remove_dead_nodes(after).ok());
        for (const bool specials : {false, true}) {
          const testing::Tensors inputs = testing::random_inputs(before, 5, specials);
          const auto wanted = testing::evaluate_graph(before, inputs);
          const auto got = testing::evaluate_graph(after, inputs);
          REQUIRE(wanted.ok());
          REQUIRE(got.ok());
          const Status same = testing::compare_outputs(*wanted, *got, 0);
          CHECK_MESSAGE(same.ok(), same.to_string());
        }
      }
    }
  }
  CHECK(merged > 500);
}
