// What users ask of gears becomes shapes of inputs. See gears.hpp.
#include <algorithm>
#include <set>
#include <utility>

#include "ir/text.hpp"
#include "lowering/gears.hpp"

namespace davit::lowering {
namespace {

struct FreeDim {
  ir::ValueId input;
  size_t axis;
  ir::Dim dim;
};

Status gear_error(const ir::Module& module, ir::ValueId input, std::string message,
                  std::string hint = {}) {
  const ir::Shape* shape = module.shape(input);
  return Status(ErrorDetail{
      .code = DVT_INVALID_ARGUMENT,
      .stage = DVT_STAGE_CHECK,
      .message = std::move(message),
      .tensor = std::string(module.value_name(input)),
      .got = shape == nullptr ? std::string("any shape") : ir::shape_text(module, *shape),
      .hint = std::move(hint)});
}

Status request_error(std::string message, std::string expected = {}, std::string got = {}) {
  return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                            .stage = DVT_STAGE_CHECK,
                            .message = std::move(message),
                            .expected = std::move(expected),
                            .got = std::move(got)});
}

class Resolver {
 public:
  explicit Resolver(const ir::Module& module) : module_(module) {}

  Result<std::vector<GearShapes>> run(const GearRequest& request) {
    if (Status status = find_free_dims(); !status.ok()) return status;
    std::vector<GearShapes> gears;
    Status status;
    if (!request.batches.empty()) status = by_batch(request.batches, gears);
    if (!request.image_sizes.empty()) status = by_image_size(request, gears);
    if (!request.dims.empty()) status = by_dims(request.dims, gears);
    if (!status.ok()) return status;
    if (gears.size() > kGearsMax) {
      return request_error("there are too many gears", "at most " + std::to_string(kGearsMax),
                           std::to_string(gears.size()));
    }
    for (size_t i = 0; i < gears.size(); ++i) {
      const auto same = std::find(gears.begin(), gears.begin() + ptrdiff_t(i), gears[i]);
      if (same == gears.begin() + ptrdiff_t(i)) continue;
      return request_error("two gears have the same shapes", "", gear_text(gears[i]));
    }
    return gears;
  }

 private:
  Status find_free_dims() {
    for (const ir::ValueId input : module_.graph_inputs(ir::kMainGraph)) {
      const ir::Shape* shape = module_.shape(input);
      if (shape == nullptr) {
        return gear_error(module_, input, "gears need inputs whose rank is known",
                          "--shapes gives the input a shape");
      }
      for (size_t axis = 0; axis < shape->size(); ++axis) {
        if (!(*shape)[axis].is_known()) free_.push_back({input, axis, (*shape)[axis]});
      }
    }
    if (free_.empty()) return request_error("gears are for free dimensions, and no input has one");
    return {};
  }

  // The inputs' shapes with these extents in place of the free dimensions, in their order.
  [[nodiscard]] GearShapes shapes_of(const std::vector<int64_t>& extents) const {
    GearShapes shapes;
    for (size_t i = 0; i < free_.size(); ++i) {
      const auto [entry, is_new] =
          shapes.try_emplace(std::string(module_.value_name(free_[i].input)));
      if (is_new) {
        for (const ir::Dim dim : *module_.shape(free_[i].input)) {
          entry->second.push_back(dim.is_known() ? dim.extent() : 0);
        }
      }
      entry->second[free_[i].axis] = extents[i];
    }
    return shapes;
  }

  Status by_batch(const std::vector<int64_t>& batches, std::vector<GearShapes>& gears) {
    for (const FreeDim& dim : free_) {
      const bool is_batch = dim.axis == 0 || std::any_of(free_.begin(), free_.end(), [&](auto& d) {
                              return d.axis == 0 && d.dim == dim.dim;
                            });
      if (is_batch) continue;
      return gear_error(module_, dim.input,
                        "batches are first dimensions, and dimension " + std::to_string(dim.axis) +
                            " of the input is free, too",
                        "--dim or --shapes fixes it; --dynamic-dims sets all");
    }
    for (const int64_t batch : batches) {
      gears.push_back(shapes_of(std::vector<int64_t>(free_.size(), batch)));
    }
    return {};
  }

  Status by_image_size(const GearRequest& request, std::vector<GearShapes>& gears) {
    const size_t height = request.channels_last ? 1 : 2;
    for (const FreeDim& dim : free_) {
      const bool is_size =
          module_.shape(dim.input)->size() == 4 && (dim.axis == height || dim.axis == height + 1);
      if (is_size) continue;
      return gear_error(module_, dim.input,
                        "dimension " + std::to_string(dim.axis) +
                            " of the input is free, and is no height or width of an image in " +
                            (request.channels_last ? "NHWC" : "NCHW"),
                        "--dim or --shapes fixes it; --dynamic-dims sets all");
    }
    for (const auto& size : request.image_sizes) {
      std::vector<int64_t> extents;
      for (const FreeDim& dim : free_) extents.push_back(size[dim.axis == height ? 0 : 1]);
      gears.push_back(shapes_of(extents));
    }
    return {};
  }

  // The first free dimension of the same name; itself for one without.
  [[nodiscard]] size_t first_of(size_t index) const {
    for (size_t i = 0; i < index; ++i) {
      if (free_[i].dim == free_[index].dim) return i;
    }
    return index;
  }

  Status by_dims(const std::vector<std::vector<int64_t>>& rows, std::vector<GearShapes>& gears) {
    std::vector<size_t> distinct;
    for (size_t i = 0; i < free_.size(); ++i) {
      if (first_of(i) == i) distinct.push_back(i);
    }
    for (const std::vector<int64_t>& row : rows) {
      if (row.size() != free_.size() && row.size() != distinct.size()) {
        std::string expected = std::to_string(free_.size());
        if (distinct.size() != free_.size()) {
          expected += ", or " + std::to_string(distinct.size()) + " where a name counts once";
        }
        return request_error("a gear has another number of extents than there are free dimensions",
                             expected, std::to_string(row.size()));
      }
      std::vector<int64_t> extents(free_.size());
      for (size_t i = 0; i < free_.size(); ++i) {
        const auto at = std::find(distinct.begin(), distinct.end(), first_of(i));
        extents[i] = row.size() == free_.size() ? row[i] : row[size_t(at - distinct.begin())];
      }
      gears.push_back(shapes_of(extents));
    }
    return {};
  }

  const ir::Module& module_;
  std::vector<FreeDim> free_;
};

}  // namespace

Result<std::vector<GearShapes>> resolve_gears(const ir::Module& module,
                                              const GearRequest& request) {
  return Resolver(module).run(request);
}

std::string gear_text(const GearShapes& gear) {
  std::string text;
  for (const auto& [name, dims] : gear) {
    text += (text.empty() ? "" : ",") + name + ":";
    for (size_t d = 0; d < dims.size(); ++d) {
      text += (d == 0 ? "" : "x") + std::to_string(dims[d]);
    }
  }
  return text;
}

}  // namespace davit::lowering
