// model_ports.hpp: the inputs and outputs of a model or an image, as its user has to know them.
//
// Threads  Pure functions but for read_model_ports().
// Trust    Models are untrusted; names pass through Table and Json, which escape them.
// Memory   Returns owned data.
#pragma once

#include <string>
#include <vector>

#include "cli/report.hpp"
#include "lowering/image/image_model.hpp"

namespace davit::cli {

struct ModelPort {
  bool is_output = false;
  std::string name;
  std::string type;  // "f32"; "sequence of f32", "optional f32", ... in models.
  bool is_rank_known = true;
  std::vector<std::string> dims;  // "3"; an open one is its symbol, or "?".

  // "[1, 3, H, ?]"; "any shape".
  [[nodiscard]] std::string shape_text() const;
};

// Of an ONNX model as it is, before any option of compile.
Result<std::vector<ModelPort>> read_model_ports(const std::string& path);
std::vector<ModelPort> image_ports(const image::ImageModel& model);

// Of an image with gears: the shapes of each, "x:1x3x224x224".
std::vector<std::string> image_gears(const image::ImageModel& model);

std::string ports_text(const std::vector<ModelPort>& ports);
// "inputs" and "outputs": name, type, dims (numbers; a string for an open one; null: any shape).
void add_ports(const std::vector<ModelPort>& ports, Json& json);

}  // namespace davit::cli
