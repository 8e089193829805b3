// references.hpp: the reference inputs and outputs of real models.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/npy.hpp"

namespace davit::testing {

inline constexpr int kSkipped = 77;  // The exit code of a test that has no model.

// The arrays that a list of refs/index.json names; ends the process when one cannot be read.
inline std::vector<NpyArray> read_arrays(const std::string& folder, const nlohmann::json& list) {
  std::vector<NpyArray> arrays;
  for (const nlohmann::json& entry : list) {
    auto array = read_npy(folder + "/" + entry["file"].get<std::string>());
    if (!array.ok()) {
      std::fprintf(stderr, "%s\n", array.status().to_string().c_str());
      std::exit(1);
    }
    arrays.push_back(std::move(*array));
  }
  return arrays;
}

}  // namespace davit::testing
