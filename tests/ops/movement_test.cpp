// Kernels that move elements, against index arithmetic written out naively.
#include "ops/kernels/movement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/kernels/fill.h"
#include "ops/kernels/strided.h"
#include "tests/ops/harness.hpp"

using namespace davit;
using namespace davit::test;

namespace {

using Index = std::vector<int64_t>;

// Calls `visit` with every index of `dims` in row-major order.
void for_each_index(const Dims& dims, const std::function<void(const Index&)>& visit) {
  Index index(dims.size(), 0);
  for (uint64_t n = product(dims); n > 0; --n) {
    visit(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

size_t flat(const Dims& dims, const Index& index) {
  size_t at = 0;
  for (size_t d = 0; d < dims.size(); ++d) at = at * size_t(dims[d]) + size_t(index[d]);
  return at;
}

// Random elements of a random size; compared byte by byte.
constexpr DvtDType kSizes[] = {DVT_U8, DVT_F16, DVT_I32, DVT_F64};

Operand random_operand(Random& random, DvtDType dtype, const Dims& dims) {
  Operand operand(dtype, dims);
  for (std::byte& byte : operand.bytes) byte = std::byte(random.engine()());
  return operand;
}

// Output[index] must be input[source(index)], or `fill` where source gives nothing.
void check_moved(const Operand& input, const Dims& input_dims, const Operand& output,
                 const Dims& output_dims,
                 const std::function<std::optional<Index>(const Index&)>& source,
                 const std::byte* fill = nullptr) {
  const size_t size = dvt_dtype_size(input.tensor.dtype);
  bool same = true;
  for_each_index(output_dims, [&](const Index& index) {
    const auto from = source(index);
    const std::byte* expected = from ? &input.bytes[flat(input_dims, *from) * size] : fill;
    same = same && std::memcmp(&output.bytes[flat(output_dims, index) * size], expected, size) == 0;
  });
  REQUIRE(same);
}

DvtDType pick_size(Random& random) {
  return kSizes[random.integer(0, 3)];
}

// A parameter of a kernel: in its record, or as input `index`.
DvtIntegerList give(Random& random, std::vector<Operand>& inputs, size_t index,
                    const std::vector<int64_t>& values) {
  DvtIntegerList list{.count = DVT_LIST_INPUT, .values = {}};
  if (random.chance(0.5)) {
    list.count = int64_t(values.size());
    std::copy(values.begin(), values.end(), list.values);
    return list;
  }
  while (inputs.size() <= index) inputs.push_back(Operand::absent());
  const bool narrow = random.chance(0.5) && std::ranges::all_of(values, [](int64_t value) {
                        return value == int32_t(value);
                      });
  inputs[index] = narrow ? Operand(DVT_I32, {int64_t(values.size())},
                                   std::vector<int32_t>(values.begin(), values.end()))
                         : Operand(DVT_I64, {int64_t(values.size())}, values);
  return list;
}

// numpy.pad of one axis: for each output position the input's, or -1.
std::vector<int64_t> padded(int64_t extent, int64_t before, int64_t after, int64_t mode) {
  std::vector<int64_t> list(static_cast<size_t>(extent));
  std::iota(list.begin(), list.end(), 0);
  if (before < 0) list.erase(list.begin(), list.begin() - before);
  if (after < 0) list.erase(list.end() + after, list.end());
  const std::vector<int64_t> core = list;
  const auto extend = [&](bool front) {
    const auto n = int64_t(core.size());
    const int64_t added = int64_t(list.size()) - n + 1;  // How far out this one is.
    if (mode == DVT_PAD_CONSTANT) return int64_t{-1};
    if (mode == DVT_PAD_EDGE) return front ? core.front() : core.back();
    if (mode == DVT_PAD_WRAP) {
      const int64_t at = (added - 1) % n;
      return core[size_t(front ? n - 1 - at : at)];
    }
    // Reflect: walk to and fro.
    int64_t at = front ? 0 : n - 1;
    int64_t step = front ? 1 : -1;
    for (int64_t i = 0; i < added && n > 1; ++i) {
      if (at + step < 0 || at + step >= n) step = -step;
      at += step;
    }
    return core[size_t(at)];
  };
  std::vector<int64_t> head;
  for (int64_t i = 0; i < before; ++i) {
    head.insert(head.begin(), extend(true));
    list.push_back(0);
  }
  list = core;
  for (int64_t i = 0; i < after; ++i) list.push_back(extend(false));
  list.insert(list.begin(), head.begin(), head.end());
  return list;
}

}  // namespace

TEST_CASE("Transpose: all permutations of small ranks, random ones of large") {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const DvtDType dtype = pick_size(random);
    Dims dims = random.dims();
    if (round % 20 == 0) dims = {33, 3, 47};  // More than a tile.
    DvtTransposeAttributes attributes{};
    std::vector<size_t> perm(dims.size());
    std::iota(perm.begin(), perm.end(), size_t{0});
    std::shuffle(perm.begin(), perm.end(), random.engine());
    Dims out_dims;
    for (size_t d = 0; d < perm.size(); ++d) {
      attributes.perm[d] = int64_t(perm[d]);
      out_dims.push_back(dims[perm[d]]);
    }
    const Operand input = random_operand(random, dtype, dims);
    std::vector<Operand> outputs = {Operand(dtype, out_dims)};
    run_kernel("Transpose", {input}, outputs, &attributes);
    check_moved(input, dims, outputs[0], out_dims, [&](const Index& index) {
      Index from(dims.size());
      for (size_t d = 0; d < perm.size(); ++d) from[perm[d]] = index[d];
      return std::optional(from);
    });
  }
}

TEST_CASE("Slice: any start, step and count inside the input") {
  Random random(2);
  for (int round = 0; round < 600; ++round) {
    const DvtDType dtype = pick_size(random);
    const Dims dims = random.dims();
    std::vector<int64_t> starts, ends, axes, steps;
    Dims out_dims;
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t count = 0;
      starts.push_back(0);
      ends.push_back(0);
      steps.push_back(1);
      if (dims[d] > 0) {
        starts[d] = random.integer(0, dims[d] - 1);
        int64_t step = random.integer(-3, 3);
        if (step == 0) step = random.chance(0.5) ? INT64_MAX : INT64_MIN;
        steps[d] = step;
        const int64_t room = step > 0 ? dims[d] - 1 - starts[d] : starts[d];
        const int64_t most = step == INT64_MAX || step == INT64_MIN ? 1 : room / std::abs(step) + 1;
        count = random.chance(0.05) ? 0 : random.integer(1, most);
        // One behind the last, unless that is before the first element.
        const int64_t last = count > 1 ? starts[d] + (count - 1) * step : starts[d];
        ends[d] = count == 0 ? starts[d] : step > 0 ? last + 1 : last - 1;
        if (ends[d] < 0) ends[d] = INT64_MIN;
      }
      out_dims.push_back(count);
      axes.push_back(random.chance(0.5) ? int64_t(d) : int64_t(d) - int64_t(dims.size()));
    }
    const Operand input = random_operand(random, dtype, dims);
    std::vector<Operand> inputs = {input};
    DvtSliceAttributes attributes{};
    const bool in_order = random.chance(0.5);
    std::vector<size_t> order(dims.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (!in_order) std::shuffle(order.begin(), order.end(), random.engine());
    const auto ordered = [&](const std::vector<int64_t>& values) {
      std::vector<int64_t> result;
      for (const size_t d : order) result.push_back(values[d]);
      return result;
    };
    attributes.starts = give(random, inputs, 1, ordered(starts));
    attributes.ends = give(random, inputs, 2, ordered(ends));
    attributes.axes.count = DVT_LIST_NONE;
    if (!in_order) attributes.axes = give(random, inputs, 3, ordered(axes));
    attributes.steps = give(random, inputs, 4, ordered(steps));
    std::vector<Operand> outputs = {Operand(dtype, out_dims)};
    run_kernel("Slice", inputs, outputs, &attributes);
    check_moved(input, dims, outputs[0], out_dims, [&](const Index& index) {
      Index from(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        from[d] = starts[d] + (index[d] == 0 ? 0 : index[d] * steps[d]);
      }
      return std::optional(from);
    });
  }
}

TEST_CASE("Concat and Split are inverse, with empty parts too") {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const DvtDType dtype = pick_size(random);
    const Dims dims = random.dims(1);
    const auto axis = size_t(random.integer(0, int64_t(dims.size()) - 1));
    const DvtAxisAttributes attributes{.axis = int64_t(axis)};
    const Operand whole = random_operand(random, dtype, dims);
    std::vector<Operand> parts;
    for (int64_t left = dims[axis]; left > 0 || parts.empty();) {
      Dims part_dims = dims;
      part_dims[axis] = random.integer(0, left);
      left -= part_dims[axis];
      parts.emplace_back(dtype, part_dims);
    }
    std::vector<Operand> split_inputs = {whole};
    DvtSplitAttributes split{
        .axis = int64_t(axis) - (random.chance(0.5) ? int64_t(dims.size()) : 0),
        .count = DVT_SPLIT_ANY,
        .sizes = {}};
    std::vector<int64_t> sizes;
    for (const Operand& part : parts) sizes.push_back(part.tensor.dims[axis]);
    if (sizes.size() <= DVT_MAX_RANK && random.chance(0.8)) {
      const DvtIntegerList list = give(random, split_inputs, 1, sizes);
      split.count = list.count;
      std::copy(list.values, list.values + DVT_MAX_RANK, split.sizes);
    }
    if (split.count == DVT_SPLIT_ANY) {
      Call call(*ops::find_kernel("Split"), split_inputs, parts, &split);
      REQUIRE(call.check() == DVT_OK);
      REQUIRE(call.run() == DVT_OK);
    } else {
      run_kernel("Split", split_inputs, parts, &split);
    }
    int64_t begin = 0;
    for (const Operand& part : parts) {
      const Dims part_dims(part.tensor.dims, part.tensor.dims + part.tensor.rank);
      check_moved(whole, dims, part, part_dims, [&](const Index& index) {
        Index from = index;
        from[axis] += begin;
        return std::optional(from);
      });
      begin += part_dims[axis];
    }
    std::vector<Operand> outputs = {Operand(dtype, dims)};
    run_kernel("Concat", parts, outputs, &attributes);
    CHECK(outputs[0].bytes == whole.bytes);
  }
}

TEST_CASE("Pad: all modes, cropping, and reflection further than the input reaches") {
  Random random(4);
  for (int round = 0; round < 600; ++round) {
    const DvtDType dtype = pick_size(random);
    const Dims dims = random.dims(0, 5);
    DvtPadAttributes attributes{};
    attributes.mode = random.integer(0, 3);
    attributes.bits = int64_t(random.engine()());
    Dims out_dims;
    std::vector<std::vector<int64_t>> maps;
    for (size_t d = 0; d < dims.size(); ++d) {
      const int64_t most = dims[d] > 100 ? 3 : 2 * dims[d] + 1;
      int64_t before = random.integer(-dims[d] / 3, most);
      int64_t after = random.integer(-dims[d] / 3, most);
      if (random.chance(0.4)) before = after = 0;
      if (dims[d] == 0 && attributes.mode != DVT_PAD_CONSTANT) before = after = 0;
      attributes.before[d] = before;
      attributes.after[d] = after;
      maps.push_back(padded(dims[d], before, after, attributes.mode));
      out_dims.push_back(int64_t(maps.back().size()));
    }
    const Operand input = random_operand(random, dtype, dims);
    Operand value = random_operand(random, dtype, {});
    const bool by_input = random.chance(0.5);
    std::vector<Operand> inputs = {input};
    if (by_input) {
      inputs.push_back(value);
    } else {
      std::memcpy(value.bytes.data(), &attributes.bits, value.bytes.size());
    }
    attributes.rank = int64_t(dims.size());
    if (random.chance(0.5)) {
      // As inputs: two lists in one, of all axes or of those named, in any order.
      std::vector<int64_t> axes(dims.size());
      std::iota(axes.begin(), axes.end(), 0);
      std::vector<int64_t> pads;
      const bool named = random.chance(0.5);
      if (named) std::shuffle(axes.begin(), axes.end(), random.engine());
      for (const int64_t axis : axes) pads.push_back(attributes.before[axis]);
      for (const int64_t axis : axes) pads.push_back(attributes.after[axis]);
      if (named && !axes.empty()) axes[0] -= int64_t(dims.size());
      if (!by_input) inputs.push_back(Operand::absent());
      inputs.emplace_back(DVT_I64, Dims{int64_t(pads.size())}, pads);
      if (named) inputs.emplace_back(DVT_I64, Dims{int64_t(axes.size())}, axes);
      attributes.rank = DVT_LIST_INPUT;
      std::fill(attributes.before, attributes.before + DVT_MAX_RANK, int64_t{77});
    }
    std::vector<Operand> outputs = {Operand(dtype, out_dims)};
    run_kernel("Pad", inputs, outputs, &attributes);
    check_moved(
        input, dims, outputs[0], out_dims,
        [&](const Index& index) -> std::optional<Index> {
          Index from(dims.size());
          for (size_t d = 0; d < dims.size(); ++d) {
            from[d] = maps[d][size_t(index[d])];
            if (from[d] < 0) return std::nullopt;
          }
          return from;
        },
        value.bytes.data());
  }
}

TEST_CASE("Expand and Tile repeat the input") {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = pick_size(random);
    const bool expand = random.chance(0.5);
    const Dims out_shape = random.dims(0, 6);
    Dims dims(out_shape.begin() + random.integer(0, int64_t(out_shape.size())), out_shape.end());
    Dims out_dims = out_shape;
    for (size_t d = 0; d < dims.size(); ++d) {
      const size_t at = out_dims.size() - dims.size() + d;
      if (expand && random.chance(0.5)) dims[d] = 1;
      if (!expand && dims[d] > 0) out_dims[at] = dims[d] * random.integer(1, 3);
    }
    const Operand input = random_operand(random, dtype, dims);
    std::vector<Operand> inputs = {input};
    std::vector<Operand> outputs = {Operand(dtype, out_dims)};
    // Expand may also state 1 where the input has more, Tile counts along each axis of the input.
    std::vector<int64_t> stated = out_dims;
    if (!expand) out_dims.erase(out_dims.begin(), out_dims.end() - int64_t(dims.size()));
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t& value = stated[stated.size() - dims.size() + d];
      if (expand && dims[d] == value && random.chance(0.3)) value = 1;
      if (!expand) value = dims[d] == 0 ? random.integer(0, 9) : value / dims[d];
    }
    if (!expand) {
      stated.erase(stated.begin(), stated.end() - int64_t(dims.size()));
      outputs = {Operand(dtype, out_dims)};
    }
    const DvtIntegerList list = give(random, inputs, 1, stated);
    run_kernel(expand ? "Expand" : "Tile", inputs, outputs, &list);
    check_moved(input, dims, outputs[0], out_dims, [&](const Index& index) {
      Index from(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        from[d] = index[out_dims.size() - dims.size() + d] % dims[d];
      }
      return std::optional(from);
    });
  }
}

TEST_CASE("Gather: every axis, both index types, negative indices") {
  Random random(6);
  for (int round = 0; round < 300; ++round) {
    const DvtDType dtype = pick_size(random);
    const Dims dims = random.dims(1, 4);
    const auto axis = size_t(random.integer(0, int64_t(dims.size()) - 1));
    const Dims index_dims = dims[axis] == 0 ? Dims{0} : random.dims(0, 3);
    const bool wide = random.chance(0.5);
    std::vector<int64_t> indices(product(index_dims));
    for (int64_t& index : indices) index = random.integer(-dims[axis], dims[axis] - 1);
    Operand second(wide ? DVT_I64 : DVT_I32, index_dims);
    const std::vector<int32_t> narrow(indices.begin(), indices.end());
    if (!indices.empty()) {
      std::memcpy(second.bytes.data(),
                  wide ? static_cast<const void*>(indices.data()) : narrow.data(),
                  second.bytes.size());
    }
    Dims out_dims(dims.begin(), dims.begin() + int64_t(axis));
    out_dims.insert(out_dims.end(), index_dims.begin(), index_dims.end());
    out_dims.insert(out_dims.end(), dims.begin() + int64_t(axis) + 1, dims.end());
    const DvtAxisAttributes attributes{.axis = int64_t(axis)};
    const Operand input = random_operand(random, dtype, dims);
    std::vector<Operand> outputs = {Operand(dtype, out_dims)};
    run_kernel("Gather", {input, second}, outputs, &attributes);
    check_moved(input, dims, outputs[0], out_dims, [&](const Index& index) {
      Index from(index.begin(), index.begin() + int64_t(axis));
      const Index at(index.begin() + int64_t(axis),
                     index.begin() + int64_t(axis + index_dims.size()));
      const int64_t chosen = indices[flat(index_dims, at)];
      from.push_back(chosen < 0 ? chosen + dims[axis] : chosen);
      from.insert(from.end(), index.begin() + int64_t(axis + index_dims.size()), index.end());
      return std::optional(from);
    });
  }
}

TEST_CASE("Gather stops at an index out of range") {
  const DvtAxisAttributes attributes{.axis = 0};
  for (const int64_t bad : {int64_t{3}, int64_t{-4}, INT64_MAX, INT64_MIN}) {
    for (const int64_t width : {2, 0}) {
      std::vector<Operand> inputs = {Operand(DVT_F32, {3, width}),
                                     Operand(DVT_I64, {2}, std::vector<int64_t>{0, bad})};
      std::vector<Operand> outputs = {Operand(DVT_F32, {2, width})};
      Call call(*ops::find_kernel("Gather"), inputs, outputs, &attributes);
      REQUIRE(call.check() == DVT_OK);
      CHECK(call.run() == DVT_INVALID_ARGUMENT);
    }
  }
}

TEST_CASE("Fill, Shape and Copy") {
  for (const DvtDType dtype : kSizes) {
    Random random(dtype);
    std::vector<Operand> inputs;
    const DvtFillAttributes attributes{.bits = 0x0123456789abcdef,
                                       .shape = give(random, inputs, 0, {3, 700})};
    std::vector<Operand> outputs = {Operand(dtype, {3, 700})};
    run_kernel("Fill", inputs, outputs, &attributes);
    const size_t size = dvt_dtype_size(dtype);
    bool same = true;
    for (size_t i = 0; i < outputs[0].bytes.size(); ++i) {
      same = same && outputs[0].bytes[i] == std::byte(uint64_t(attributes.bits) >> 8 * (i % size));
    }
    CHECK(same);
  }
  const DvtShapeAttributes range{.start = 1, .end = 3};
  std::vector<Operand> shape = {Operand(DVT_I64, {2})};
  run_kernel("Shape", {Operand(DVT_F32, {0, 7, 8, 9})}, shape, &range);
  CHECK(shape[0].as<int64_t>() == std::vector<int64_t>{7, 8});
  const DvtShapeAttributes last{.start = -1, .end = INT64_MAX};
  std::vector<Operand> one = {Operand(DVT_I64, {1})};
  run_kernel("Shape", {Operand(DVT_F32, {0, 7, 8, 9})}, one, &last);
  CHECK(one[0].as<int64_t>() == std::vector<int64_t>{9});
  for (const DvtShapeAttributes none : {DvtShapeAttributes{2, 1}, {INT64_MAX, INT64_MIN}, {9, 9}}) {
    std::vector<Operand> nothing = {Operand(DVT_I64, {0})};
    run_kernel("Shape", {Operand(DVT_F32, {0, 7, 8, 9})}, nothing, &none);
  }
  std::vector<Operand> size = {Operand(DVT_I64, {})};
  run_kernel("Size", {Operand(DVT_F32, {2, 3})}, size);
  CHECK(size[0].as<int64_t>() == std::vector<int64_t>{6});
  std::vector<Operand> copy = {Operand(DVT_F32, {4})};
  std::vector<Operand> square = {Operand(DVT_F32, {2, 2}, std::vector<float>{1, 2, 3, 4})};
  Call call(*ops::find_kernel("Copy"), square, copy, nullptr);
  REQUIRE(call.check() == DVT_OK);  // Any shape of as many bytes.
  REQUIRE(call.run() == DVT_OK);
  CHECK(copy[0].as<float>() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("strided copies of any view") {
  // Merging, transposing and gathering rows, with zero and negative strides.
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint16_t> source(4000);
    std::iota(source.begin(), source.end(), uint16_t{0});
    DvtView view{};
    Dims dims;
    std::vector<int64_t> strides;
    int64_t low = 0;
    for (int64_t d = random.integer(0, 4); d > 0; --d) {
      dims.push_back(random.integer(1, 7));
      strides.push_back(random.integer(-40, 40));
      if (random.chance(0.3)) strides.back() = random.integer(-1, 1);
      dvt_view_add_axis(&view, dims.back(), strides.back());
      low += std::min<int64_t>(0, strides.back() * (dims.back() - 1));
    }
    view.data = source.data() - low;
    std::vector<uint16_t> target(product(dims));
    dvt_strided_copy(&view, 2, target.data());
    bool same = true;
    for_each_index(dims, [&](const Index& index) {
      int64_t at = -low;
      for (size_t d = 0; d < dims.size(); ++d) at += index[d] * strides[d];
      same = same && target[flat(dims, index)] == source[size_t(at)];
    });
    REQUIRE(same);
  }
}

TEST_CASE("movement checks name what they refuse") {
  using V = std::vector<Operand>;
  const Operand x(DVT_F32, {2, 3});
  const Operand y(DVT_F32, {3, 2});
  const Operand i(DVT_I32, {2, 3});
  const DvtTransposeAttributes twice{.perm = {0, 0}};
  const DvtTransposeAttributes outside{.perm = {0, 2}};
  const DvtTransposeAttributes huge{.perm = {0, INT64_MIN}};
  CHECK(refusal("Transpose", V{x}, V{y}, &twice) ==
        "perm[1]: expected a permutation of 2 axes, got 0");
  CHECK(!refusal("Transpose", V{x}, V{y}, &outside).empty());
  CHECK(!refusal("Transpose", V{x}, V{y}, &huge).empty());
  const DvtTransposeAttributes fine{.perm = {1, 0}};
  CHECK(refusal("Transpose", V{x}, V{x}, &fine) == "output 0: expected shape [3,2], got [2,3]");
  CHECK(refusal("Transpose", V{i}, V{y}, &fine) == "inputs: expected dtype f32, got i32");
  const DvtAxisAttributes first{.axis = 0};
  for (const int64_t axis : {int64_t{-3}, int64_t{2}, INT64_MAX, INT64_MIN}) {
    const DvtAxisAttributes bad{.axis = axis};
    const DvtSplitAttributes split{.axis = axis, .count = DVT_SPLIT_EQUAL, .sizes = {}};
    CHECK(!refusal("Concat", V{x}, V{x}, &bad).empty());
    CHECK(!refusal("Split", V{x}, V{x}, &split).empty());
    CHECK(!refusal("Gather", V{x, Operand(DVT_I64, {2})}, V{x}, &bad).empty());
  }
  CHECK(refusal("Concat", V{x, y}, V{Operand(DVT_F32, {5, 3})}, &first) ==
        "input 1: shape [3,2] does not fit [2,3] along axis 0");
  CHECK(refusal("Concat", V{x, x}, V{Operand(DVT_F32, {5, 3})}, &first) ==
        "output 0: expected shape [4,3], got [5,3]");
  const auto split = [&](int64_t count, int64_t size0, int64_t size1, const V& outputs) {
    const DvtSplitAttributes attributes{.axis = 0, .count = count, .sizes = {size0, size1}};
    return refusal("Split", V{x}, outputs, &attributes);
  };
  const Operand row(DVT_F32, {1, 3});
  const Operand none(DVT_F32, {0, 3});
  CHECK(split(2, 1, 1, V{row, row}).empty());
  CHECK(split(2, 2, 0, V{x, none}).empty());
  CHECK(split(DVT_SPLIT_ANY, 0, 0, V{none, x}).empty());
  CHECK(split(DVT_SPLIT_ANY, 0, 0, V{row, x}) ==
        "the outputs do not add up to the extent 2 of axis 0");
  CHECK(split(DVT_SPLIT_EQUAL, 0, 0, V{row, row, row}) ==
        "axis 0: extent 2 does not divide into 3 parts");
  CHECK(split(DVT_SPLIT_RAGGED, 0, 0, V{row, row, none}).empty());
  CHECK(split(2, -1, 3, V{row, row}) == "sizes do not add up to the extent 2 of axis 0");
  CHECK(!split(2, INT64_MAX, INT64_MAX, V{row, row}).empty());
  CHECK(!split(2, 2, 0, V{row, row}).empty());
  CHECK(!split(1, 2, 0, V{row, row}).empty());
  CHECK(!split(DVT_SPLIT_MAX + 1, 1, 1, V{row, row}).empty());
  CHECK(!split(DVT_SPLIT_ANY, 0, 0, V{x, Operand::absent()}).empty());
  const auto slice = [&](int64_t start, int64_t end, int64_t step, int64_t count) {
    DvtSliceAttributes attributes{.starts = {.count = 1, .values = {start}},
                                  .ends = {.count = 1, .values = {end}},
                                  .axes = {.count = DVT_LIST_NONE, .values = {}},
                                  .steps = {.count = 1, .values = {step}}};
    return refusal("Slice", V{Operand(DVT_F32, {5})}, V{Operand(DVT_F32, {count})}, &attributes);
  };
  CHECK(slice(0, 5, 2, 3).empty());
  CHECK(slice(0, 5, 2, 4) == "output 0: expected shape [3], got [4]");
  CHECK(slice(0, 5, 0, 5) == "steps: step 0 is zero");
  CHECK(slice(1, INT64_MAX, INT64_MAX, 1).empty());
  CHECK(slice(4, INT64_MIN, INT64_MIN, 1).empty());
  CHECK(!slice(4, INT64_MIN, INT64_MIN, 2).empty());
  DvtSliceAttributes lists{.starts = {.count = 1, .values = {}},
                           .ends = {.count = 2, .values = {}},
                           .axes = {.count = DVT_LIST_NONE, .values = {}},
                           .steps = {.count = DVT_LIST_NONE, .values = {}}};
  CHECK(refusal("Slice", V{x}, V{x}, &lists) == "starts, ends, axes and steps differ in length");
  lists.ends.count = 9;
  CHECK(refusal("Slice", V{x}, V{x}, &lists) == "ends: expected at most 8 values, got 9");
  lists.ends.count = INT64_MIN;
  CHECK(!refusal("Slice", V{x}, V{x}, &lists).empty());
  const auto pad = [&](int64_t mode, int64_t before, int64_t extent, int64_t count) {
    int64_t after = 0;
    (void)__builtin_sub_overflow(count - extent, before, &after);
    DvtPadAttributes attributes{
        .mode = mode, .bits = 0, .rank = 1, .before = {before}, .after = {after}};
    return refusal("Pad", V{Operand(DVT_F32, {extent})}, V{Operand(DVT_F32, {count})}, &attributes);
  };
  CHECK(pad(0, 1, 2, 4).empty());
  CHECK(pad(4, 1, 2, 4) == "mode: expected 0 to 3, got 4");
  CHECK(pad(0, 5, 2, 4) == "axis 0: pads 5 and -3 do not fit extent 2");
  CHECK(!pad(0, -3, 2, 4).empty());
  CHECK(!pad(0, INT64_MIN, 2, 4).empty());
  CHECK(!pad(0, INT64_MAX, 2, 4).empty());
  for (const int64_t mode : {1, 2, 3})
    CHECK(pad(mode, 1, 0, 2) == "an axis has no element to repeat");
  const DvtPadAttributes scalars{.mode = 0, .bits = 0, .rank = 1, .before = {}, .after = {}};
  CHECK(refusal("Pad", V{x}, V{x}, &scalars) == "pads of 1 axes for an input of rank 2");
  CHECK(!refusal("Pad", V{x, y}, V{x}, std::vector<int64_t>(19).data()).empty());
  const DvtIntegerList four{.count = 2, .values = {4, 3}};
  CHECK(refusal("Expand", V{x}, V{Operand(DVT_F32, {4, 3})}, &four) ==
        "shape [2,3] does not broadcast to [4,3]");
  CHECK(!refusal("Tile", V{x}, V{Operand(DVT_F32, {3, 3})}, &four).empty());
  const DvtIntegerList below{.count = 2, .values = {1, -1}};
  const DvtIntegerList huge_repeats{.count = 2, .values = {1, INT64_MAX}};
  CHECK(refusal("Tile", V{x}, V{x}, &below) == "repeats: value 1 is out of range");
  CHECK(refusal("Tile", V{x}, V{x}, &huge_repeats) == "repeats: value 1 is out of range");
  CHECK(refusal("Gather", V{x, Operand(DVT_F32, {2})}, V{x}, &first) ==
        "input 1: expected dtype i32 or i64, got f32");
  CHECK(!refusal("Gather", V{Operand(DVT_F32, {1, 1, 1, 1, 1}), Operand(DVT_I64, {1, 1, 1, 1, 1})},
                 V{x}, &first)
             .empty());
  CHECK(refusal("Copy", V{x}, V{Operand(DVT_F32, {7})}) == "output 0: expected 24 bytes, got 28");
}

TEST_CASE("parameters that check() could not see are judged by run()") {
  const DvtIntegerList by_input{.count = DVT_LIST_INPUT, .values = {}};
  const DvtPadAttributes pad{
      .mode = 0, .bits = 0, .rank = DVT_LIST_INPUT, .before = {}, .after = {}};
  const DvtSplitAttributes split{.axis = 0, .count = DVT_LIST_INPUT, .sizes = {}};
  const DvtIntegerList none{.count = DVT_LIST_NONE, .values = {}};
  const DvtSliceAttributes slice{.starts = by_input, .ends = by_input, .axes = none, .steps = none};
  struct Case {
    const char* kernel;
    const void* attributes;
    std::vector<std::vector<int64_t>> parameters;  // Of inputs 1, 2 ...; empty: absent.
    Dims y;
  };
  // Each fits; with its last value one larger it does not.
  const Case good[] = {{"Expand", &by_input, {{2, 4}}, {2, 4}},
                       {"Tile", &by_input, {{2, 2}}, {4, 2}},
                       {"Pad", &pad, {{}, {0, 1, 0, 2}}, {2, 4}},
                       {"Split", &split, {{2}}, {2, 1}},
                       {"Slice", &slice, {{0}, {1}}, {1, 1}}};
  for (const Case& c : good) {
    INFO(c.kernel);
    for (const bool fits : {true, false}) {
      std::vector<Operand> inputs = {Operand(DVT_F32, {2, 1})};
      for (size_t i = 0; i < c.parameters.size(); ++i) {
        std::vector<int64_t> values = c.parameters[i];
        if (!fits && i + 1 == c.parameters.size()) values.back() += 1;
        inputs.push_back(values.empty() ? Operand::absent()
                                        : Operand(DVT_I64, {int64_t(values.size())}, values));
      }
      std::vector<Operand> outputs = {Operand(DVT_F32, c.y)};
      Call call(*ops::find_kernel(c.kernel), inputs, outputs, c.attributes);
      std::vector<void*> hidden;
      for (size_t i = 1; i < inputs.size(); ++i) {
        if (inputs[i].present) std::swap(hidden.emplace_back(), call.context().cells[i]->data);
      }
      CHECK(call.check() == DVT_OK);
      size_t next = 0;
      for (size_t i = 1; i < inputs.size(); ++i) {
        if (inputs[i].present) call.context().cells[i]->data = hidden[next++];
      }
      CHECK((call.check() == DVT_OK) == fits);
      CHECK((call.run() == DVT_OK) == fits);
    }
  }
}
