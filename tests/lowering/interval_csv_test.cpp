#include "lowering/memory_plan/interval_csv.hpp"

#include <doctest/doctest.h>

#include <string>

using davit::lowering::parse_intervals;
using davit::lowering::print_offsets;

TEST_CASE("columns come in any order, ids are words, lines may end in CR LF") {
  const auto table =
      parse_intervals("\xEF\xBB\xBFsize, id ,upper,lower\r\n64,a,3,1\r\n\r\n 0 ,b c,9,8");
  REQUIRE(table.ok());
  REQUIRE(table->intervals.size() == 2);
  CHECK(table->ids[0] == "a");
  CHECK(table->ids[1] == "b c");
  CHECK(table->intervals[0].lower == 1);
  CHECK(table->intervals[0].upper == 3);
  CHECK(table->intervals[0].size == 64);
  CHECK(table->intervals[1].size == 0);
  const std::vector<uint64_t> offsets = {128, 0};
  CHECK(print_offsets(*table, offsets) ==
        "id,lower,upper,size,offset\na,1,3,64,128\nb c,8,9,0,0\n");
  CHECK(parse_intervals("id,lower,upper,size\n")->intervals.empty());
  CHECK(table->constraints.empty());
}

TEST_CASE("offsets and alignments are for some values") {
  const auto table = parse_intervals(
      "id,offset,lower,upper,size,alignment\na,64,0,1,64,\nb,,0,1,64,128\nc,,0,1,64,\n");
  REQUIRE(table.ok());
  REQUIRE(table->constraints.fixed.size() == 1);
  CHECK(table->constraints.fixed[0].value == 0);
  CHECK(table->constraints.fixed[0].offset == 64);
  REQUIRE(table->constraints.alignments.size() == 1);
  CHECK(table->constraints.alignments[0].value == 1);
  CHECK(table->constraints.alignments[0].bytes == 128);
  // Written with its offsets, the table is what it was.
  const std::vector<uint64_t> offsets = {64, 128, 0};
  CHECK(print_offsets(*table, offsets) ==
        "id,lower,upper,size,offset,alignment\na,0,1,64,64,\nb,0,1,64,128,128\nc,0,1,64,0,\n");
}

TEST_CASE("what is wrong with a table is said with its line") {
  const auto refuses = [](const std::string& text, const std::string& why) {
    const auto table = parse_intervals(text);
    REQUIRE(!table.ok());
    CHECK(table.status().code() == DVT_INVALID_IMAGE);
    CHECK_MESSAGE(table.status().to_string().find(why) != std::string::npos,
                  table.status().to_string());
  };
  const std::string header = "id,lower,upper,size\n";
  refuses("", "there is no header");
  refuses("\n\n", "there is no header");
  refuses("id,lower,upper\n", "no column 'size'");
  refuses("id,lower,upper,size,colour\n", "unknown column 'colour'");
  refuses("id,lower,upper,size,id\n", "two columns 'id'");
  refuses("id,lower,upper,size,offset\na,0,1,64,x\n", "line 2: offset is 'x'");
  refuses("id,lower,upper,size,offset\na,0,1,64\n", "4 cells where the header has 5");
  refuses(header + "1,0,1\n", "line 2: 3 cells where the header has 4");
  refuses(header + "1,0,1,64\n2,0,1,64,5\n", "line 3: 5 cells");
  refuses(header + "1,0,1,-5\n", "size is '-5', not a number");
  refuses(header + "1,0,1,0x40\n", "size is '0x40'");
  refuses(header + "1,0,1,\n", "size is ''");
  refuses(header + "1,0,1,18446744073709551616\n", "size is '18446744073709551616'");
  refuses(header + "1,0,1," + std::string(100'000, '9'), "...'");
  refuses(header + "1,2,2,64\n", "lower is 2, upper is 2: the value dies before it is born");
  refuses(header + "a,0,1,64\n\nb,0,1,64\na,0,1,64\n", "line 5: id 'a' is that of line 2");
  refuses(header + ",0,1,64\n", "the id is empty");
  refuses(header + "a,0,1,\xFF\x01\xC3\xA4\n", "size is '??\xC3\xA4'");
}
