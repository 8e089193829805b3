// image_views.hpp: an image as people and other programs read it. The text form that round-trips is
// image::dump_text().
//
// Threads  Pure functions but for read_image().
// Trust    Models come from verified images; names are escaped.
// Memory   Returns owned strings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/report.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::cli {

// Maps and verifies an image file (or assembles its text form) and reads it back.
Result<image::ImageModel> read_image(const std::string& path);

// Everything but constant bytes and attribute values; docs/cli.md describes the fields.
Json image_json(const image::ImageModel& model);

// Graphviz: a cluster per graph, data edges labelled with shapes, control edges dashed.
std::string dot_text(const image::ImageModel& model);

// First and last node of Main that touch a value; kNone when none does.
struct NodeRange {
  uint32_t first = image::kNone, last = image::kNone;
};
struct PlannedValue {
  uint32_t id;
  std::string name;
  uint64_t offset, bytes;
  NodeRange nodes;
};
// By offset.
std::vector<PlannedValue> planned_values(const image::ImageModel& model);

// Planned values by offset: value, name, type, offset, bytes, first and last node of Main.
std::string memory_plan_text(const image::ImageModel& model);
// The same for programs; docs/cli.md describes the fields.
Json memory_plan_json(const image::ImageModel& model);
// The same as a picture: nodes of Main to the right, addresses upwards.
std::string memory_plan_svg(const image::ImageModel& model);

// Nodes of every graph in stored order: lane, priority, stream, kernel, origin, control inputs.
std::string schedule_text(const image::ImageModel& model);

}  // namespace davit::cli
