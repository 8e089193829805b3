// DepthToSpace, SpaceToDepth and ReverseSequence, by index arithmetic written out.
#include <doctest/doctest.h>

#include <string>

#include "tests/ops/harness.hpp"
#include "tests/ops/values.hpp"

using namespace davit;
using namespace davit::test;

namespace {

Values counting(uint64_t count) {
  Values values(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = double(i % 120);
  return values;
}

}  // namespace

TEST_CASE("DepthToSpace and SpaceToDepth: both modes, all sizes, and back") {
  Source random(121);
  for (int round = 0; round < 150; ++round) {
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F16, DVT_I64, DVT_U8});
    const int64_t b = random.between(1, 3);
    const bool crd = random.flip();
    const int64_t n = random.between(0, 2), c = random.between(1, 3), h = random.between(1, 3),
                  w = random.between(1, 3);
    const Dims deep = {n, c * b * b, h, w};
    const auto x = make_data(dtype, deep, counting(product(deep)));
    OneNode node("DepthToSpace", 13);
    node.attribute("blocksize", b).attribute("mode", std::string(crd ? "CRD" : "DCR")).constant(x);
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const Dims wide = {n, c, h * b, w * b};
    REQUIRE((*y)[0].dims == wide);
    const Values from = to_values(x);
    const Values got = to_values((*y)[0]);
    bool same = true;
    for (int64_t i = 0; i < int64_t(got.size()); ++i) {
      const int64_t column = i % (w * b), row = i / (w * b) % (h * b);
      const int64_t channel = i / (w * b * h * b) % c, image = i / (w * b * h * b * c);
      const int64_t cell = row % b * b + column % b;
      const int64_t depth = crd ? channel * b * b + cell : cell * c + channel;
      same = same && got[size_t(i)] ==
                         from[size_t(((image * c * b * b + depth) * h + row / b) * w + column / b)];
    }
    CHECK(same);
    if (crd) continue;
    OneNode back("SpaceToDepth", 13);
    const auto z = back.attribute("blocksize", b).constant((*y)[0]).evaluate();
    REQUIRE_MESSAGE(z.ok(), z.status().to_string());
    CHECK((*z)[0].dims == deep);
    CHECK(*(*z)[0].bytes == *x.bytes);
  }
  const auto shape = [](const char* op, int64_t block, const Dims& dims) {
    return OneNode(op, 13).attribute("blocksize", block).input(DVT_F32, dims).shape();
  };
  CHECK(shape("DepthToSpace", 2, {1, 6, 1, 1}).find("multiples of 4") != std::string::npos);
  CHECK(shape("SpaceToDepth", 2, {1, 1, 3, 2}).find("multiples of 2") != std::string::npos);
  CHECK(shape("SpaceToDepth", 0, {1, 1, 2, 2}).find("blocksize") != std::string::npos);
  CHECK(shape("SpaceToDepth", INT64_MAX, {1, 1, 2, 2}).find("blocksize") != std::string::npos);
  CHECK(shape("DepthToSpace", 2, {4, 1, 1}).find("rank 4") != std::string::npos);
  OneNode open("DepthToSpace", 13);
  open.attribute("blocksize", int64_t{2})
      .input(DVT_F32, {open.symbol("N"), ir::Dim(8), ir::Dim(), ir::Dim(3)});
  CHECK(open.shape() == "[N,2,?,6]");
}

TEST_CASE("ReverseSequence: either axis first, lengths up to the whole") {
  Source random(122);
  for (int round = 0; round < 150; ++round) {
    const DvtDType dtype = random.pick<DvtDType>({DVT_F32, DVT_F16, DVT_I64, DVT_U8});
    const bool batch_first = random.flip();
    Dims dims = {random.between(1, 4), random.between(1, 4)};
    if (random.flip()) dims.push_back(random.between(0, 3));
    const int64_t batches = dims[batch_first ? 0 : 1], times = dims[batch_first ? 1 : 0];
    std::vector<int64_t> lengths(static_cast<size_t>(batches));
    for (int64_t& length : lengths) length = random.between(0, times);
    const auto x = make_data(dtype, dims, counting(product(dims)));
    OneNode node("ReverseSequence", 10);
    node.attribute("batch_axis", int64_t{batch_first ? 0 : 1})
        .attribute("time_axis", int64_t{batch_first ? 1 : 0})
        .constant(x)
        .constant_i64(lengths);
    const auto y = node.evaluate();
    REQUIRE_MESSAGE(y.ok(), y.status().to_string());
    const Values from = to_values(x);
    const Values got = to_values((*y)[0]);
    const int64_t inner = dims.size() > 2 ? dims[2] : 1;
    for (int64_t i = 0; i < int64_t(got.size()); ++i) {
      const int64_t first = i / inner / dims[1], second = i / inner % dims[1];
      const int64_t b = batch_first ? first : second, t = batch_first ? second : first;
      const int64_t source = t < lengths[size_t(b)] ? lengths[size_t(b)] - 1 - t : t;
      const int64_t at = batch_first ? b * dims[1] + source : source * dims[1] + b;
      REQUIRE(got[size_t(i)] == from[size_t(at * inner + i % inner)]);
    }
  }
  const int64_t record[2] = {1, 0};
  for (const int64_t bad : {int64_t{-1}, int64_t{3}, INT64_MIN, INT64_MAX}) {
    std::vector<Operand> inputs = {Operand(DVT_F32, {2, 1}),
                                   Operand(DVT_I64, {1}, std::vector<int64_t>{bad})};
    std::vector<Operand> outputs = {Operand(DVT_F32, {2, 1})};
    Call call(*ops::find_kernel("ReverseSequence"), inputs, outputs, record);
    REQUIRE(call.check() == DVT_OK);
    CHECK(call.run() == DVT_INVALID_ARGUMENT);
  }
  OneNode same("ReverseSequence", 10);
  same.attribute("batch_axis", int64_t{0}).input(DVT_F32, Dims{2, 2}).input(DVT_I64, Dims{2});
  CHECK(same.shape().find("0 and 1") != std::string::npos);
  OneNode few("ReverseSequence", 10);
  few.input(DVT_F32, Dims{2, 3}).input(DVT_I64, Dims{2});
  CHECK(few.shape().find("one length per batch") != std::string::npos);
}
