// StringNormalizer and casts from and to strings, by lists written out and by round trips.
#include "ops/kernels/strings.h"

#include <doctest/doctest.h>

#include <charconv>
#include <clocale>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

using Words = std::vector<std::string>;

ir::TensorData text(Dims dims, const Words& words) {
  auto made = ir::make_string_tensor(std::move(dims), words);
  REQUIRE(made);
  return *made;
}

struct Options {
  std::string change = "NONE";
  bool case_sensitive = true;
  Words stopwords;
};

Result<std::vector<ir::TensorData>> normalize(const ir::TensorData& x, const Options& options) {
  OneNode node("StringNormalizer", 10);
  node.attribute("case_change_action", options.change)
      .attribute("is_case_sensitive", int64_t{options.case_sensitive})
      .constant(x);
  if (!options.stopwords.empty()) {
    node.constant(text({int64_t(options.stopwords.size())}, options.stopwords));
  }
  return node.evaluate();
}

Words words_of(const Result<std::vector<ir::TensorData>>& result) {
  REQUIRE_MESSAGE(result.ok(), result.status().to_string());
  CHECK((*result)[0].dtype == DVT_STRING);
  return ir::strings_of((*result)[0]);
}

Result<std::vector<ir::TensorData>> cast(const ir::TensorData& x, DvtDType to) {
  OneNode node("Cast", 13);
  return node.attribute("to", int64_t{to}).constant(x).evaluate();
}

Words to_text(DvtDType dtype, const Values& values) {
  return words_of(cast(make_data(dtype, {int64_t(values.size())}, values), DVT_STRING));
}

Values from_text(DvtDType dtype, const Words& words) {
  const auto result = cast(text({int64_t(words.size())}, words), dtype);
  REQUIRE_MESSAGE(result.ok(), result.status().to_string());
  CHECK((*result)[0].dtype == dtype);
  return to_values((*result)[0]);
}

}  // namespace

TEST_CASE("StringNormalizer: stopwords go, cases change, something stays") {
  const Words week = {"Monday", "tuesday", "Monday", "WEDNESDAY"};
  const ir::TensorData x = text({4}, week);
  CHECK(words_of(normalize(x, {})) == week);
  CHECK(words_of(normalize(x, {.stopwords = {"monday"}})) == week);
  CHECK(words_of(normalize(x, {.stopwords = {"Monday", "x"}})) == Words{"tuesday", "WEDNESDAY"});
  CHECK(words_of(normalize(x, {.case_sensitive = false, .stopwords = {"mONDAY"}})) ==
        Words{"tuesday", "WEDNESDAY"});
  CHECK(words_of(normalize(x, {.change = "UPPER", .stopwords = {"Monday"}})) ==
        Words{"TUESDAY", "WEDNESDAY"});
  CHECK(words_of(normalize(x, {.change = "LOWER"})) ==
        Words{"monday", "tuesday", "monday", "wednesday"});
  const auto none = normalize(text({1, 2}, {"a", "a"}), {.stopwords = {"a"}});
  CHECK(words_of(none) == Words{""});
  CHECK((*none)[0].dims == Dims{1, 1});
  const auto row = normalize(text({1, 3}, {"a", "b", "c"}), {.stopwords = {"b"}});
  CHECK(words_of(row) == Words{"a", "c"});
  CHECK((*row)[0].dims == Dims{1, 2});
  CHECK(words_of(normalize(text({0}, {}), {})) == Words{""});
  const Words letters = {"Äpfel ÷×ÿß", "ΑΒΓΩς", "Ёлка", "日本"};
  CHECK(words_of(normalize(text({4}, letters), {.change = "UPPER"})) ==
        Words{"ÄPFEL ÷×ÿß", "ΑΒΓΩς", "ЁЛКА", "日本"});
  CHECK(words_of(normalize(text({4}, letters), {.change = "LOWER"})) ==
        Words{"äpfel ÷×ÿß", "αβγως", "ёлка", "日本"});
  // Bytes that are no UTF-8 stay.
  CHECK(words_of(normalize(text({1}, {"a\xC3"}), {.change = "UPPER"})) == Words{"A\xC3"});
}

TEST_CASE("StringNormalizer: what is refused") {
  CHECK(normalize(text({2, 2}, {"a", "b", "c", "d"}), {}).status().to_string().find("one list") !=
        std::string::npos);
  CHECK(normalize(text({1}, {"a"}), {.change = "Upper"}).status().to_string().find("LOWER") !=
        std::string::npos);
  OneNode number("StringNormalizer", 10);
  CHECK(!number.input(DVT_F32, Dims{2}).shape().empty());
  // A file may say that a string is longer than it can be.
  DvtString bad{};
  bad.length = DVT_STRING_MAX + 1;
  const DvtNormalizerAttributes record{};
  std::vector<Operand> inputs = {Operand(DVT_STRING, {1}, std::vector<DvtString>{bad})};
  std::vector<Operand> outputs = {Operand(DVT_STRING, {1})};
  Call call(*ops::find_kernel("StringNormalizer"), inputs, outputs, &record);
  REQUIRE(call.check() == DVT_OK);
  CHECK(call.run() == DVT_INVALID_ARGUMENT);
}

TEST_CASE("numbers as text") {
  CHECK(to_text(DVT_F32, {0.9767611, 0.039187793, 1e6, 1e-7, -0.0, 0.1, 16777216}) ==
        Words{"0.9767611", "0.039187793", "1e+06", "1e-07", "-0", "0.1", "16777216"});
  CHECK(to_text(DVT_F64, {0.1, 1.0 / 3, 1e300}) == Words{"0.1", "0.3333333333333333", "1e+300"});
  CHECK(to_text(DVT_F32, {NAN, INFINITY, -INFINITY}) == Words{"NaN", "INF", "-INF"});
  CHECK(to_text(DVT_I8, {-128, 127}) == Words{"-128", "127"});
  CHECK(to_text(DVT_U8, {255}) == Words{"255"});
  CHECK(to_text(DVT_BOOL, {0, 1}) == Words{"False", "True"});
  const auto extremes = [](DvtDType dtype, uint64_t bits) {
    std::vector<std::byte> bytes(sizeof bits);
    std::memcpy(bytes.data(), &bits, sizeof bits);
    return words_of(cast(ir::make_tensor(dtype, {1}, std::move(bytes)), DVT_STRING))[0];
  };
  CHECK(extremes(DVT_I64, uint64_t{1} << 63) == "-9223372036854775808");
  CHECK(extremes(DVT_U64, UINT64_MAX) == "18446744073709551615");
}

TEST_CASE("text as numbers, under any locale") {
  // Where the machine has none with a decimal comma, this changes nothing.
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  std::setlocale(LC_NUMERIC, "de_DE.UTF-8");
  CHECK(to_text(DVT_F32, {0.5}) == Words{"0.5"});
  const Words words = {"0.5", "-12", "+7", "1e-7", "1000000", ".25", "3."};
  CHECK(from_text(DVT_F64, words) == Values{0.5, -12, 7, 1e-7, 1e6, 0.25, 3});
  CHECK(from_text(DVT_I32, words) == Values{0, -12, 7, 0, 1000000, 0, 3});
  CHECK(from_text(DVT_BOOL, {"True", "false", "1", "0", "2"}) == Values{1, 0, 1, 0, 1});
  const Values odd = from_text(DVT_F32, {"NaN", "INF", "+INF", "-inf"});
  CHECK(std::isnan(odd[0]));
  CHECK((odd[1] == INFINITY && odd[2] == INFINITY && odd[3] == -INFINITY));
  CHECK(from_text(DVT_I8, {"1e9", "-1e9", "256"}) == Values{127, -128, 0});
  for (const char* wrong : {"", "x", "1x", "0x10", " 1", "1,5", "--1", "e5", "-"}) {
    OneNode node("Cast", 13);
    node.attribute("to", int64_t{DVT_F32}).constant(text({1}, {wrong}));
    CHECK_MESSAGE(!node.evaluate().ok(), wrong);
  }
  CHECK(!cast(text({1}, {std::string("1\0", 2)}), DVT_F32).ok());
  CHECK(!cast(text({1}, {std::string("1\0", 2)}), DVT_I64).ok());
  const auto exact = cast(text({2}, {"9223372036854775807", "-9223372036854775808"}), DVT_I64);
  REQUIRE(exact.ok());
  CHECK((*exact)[0].as<int64_t>()[0] == INT64_MAX);
  CHECK((*exact)[0].as<int64_t>()[1] == INT64_MIN);
  const auto large = cast(text({1}, {"18446744073709551615"}), DVT_U64);
  REQUIRE(large.ok());
  CHECK((*large)[0].as<uint64_t>()[0] == UINT64_MAX);
  std::setlocale(LC_NUMERIC, before.c_str());
}

TEST_CASE("every float comes back from its text, which is the shortest") {
  Source random(131);
  for (int round = 0; round < 3000; ++round) {
    const auto bits = uint32_t(random.between(0, UINT32_MAX));
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    char buffer[DVT_NUMBER_TEXT], shortest[64];
    const size_t length = dvt_number_to_text(value, true, buffer);
    REQUIRE(length < DVT_NUMBER_TEXT);
    DvtString string{};
    dvt_string_set(&string, buffer, length);
    double back = 0;
    REQUIRE(dvt_number_from_text(&string, &back));
    REQUIRE(float(back) == value);
    const auto end =
        std::to_chars(shortest, shortest + sizeof shortest, value, std::chars_format::scientific);
    const auto digits = [](std::string_view number) {
      std::string kept;
      for (const char c : number.substr(0, number.find('e'))) {
        if (c >= '1' || (c == '0' && !kept.empty())) kept += c > '9' ? "" : std::string(1, c);
      }
      while (!kept.empty() && kept.back() == '0') kept.pop_back();
      return kept.size();
    };
    CHECK(digits({buffer, length}) <= digits({shortest, size_t(end.ptr - shortest)}));
  }
}

TEST_CASE("strings move like any element") {
  const ir::TensorData x = text({2, 3}, {"a", "b", "c", "d", "e", "f"});
  OneNode transpose("Transpose", 13);
  CHECK(words_of(transpose.constant(x).evaluate()) == Words{"a", "d", "b", "e", "c", "f"});
  OneNode gather("Gather", 13);
  gather.attribute("axis", int64_t{1}).constant(x).constant_i64({2, 0});
  CHECK(words_of(gather.evaluate()) == Words{"c", "a", "f", "d"});
  OneNode slice("Slice", 13);
  slice.constant(x).constant_i64({2}).constant_i64({0}).constant_i64({1}).constant_i64({-1});
  CHECK(words_of(slice.evaluate()) == Words{"c", "b", "f", "e"});
  OneNode tile("Tile", 13);
  CHECK(words_of(tile.constant(text({2}, {"x", "y"})).constant_i64({2}).evaluate()) ==
        Words{"x", "y", "x", "y"});
  OneNode expand("Expand", 13);
  CHECK(words_of(expand.constant(text({1}, {"z"})).constant_i64({3}).evaluate()) ==
        Words{"z", "z", "z"});
  OneNode add("Add", 13);
  CHECK(!add.constant(x).constant(x).evaluate().ok());
  // No kernel for numbers takes them from a file.
  std::vector<Operand> inputs = {Operand(DVT_STRING, {2}), Operand(DVT_STRING, {2})};
  std::vector<Operand> outputs = {Operand(DVT_STRING, {2})};
  Call call(*ops::find_kernel("Add.f32"), inputs, outputs, nullptr);
  CHECK(call.check() != DVT_OK);
}
