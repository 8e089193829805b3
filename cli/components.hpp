// components.hpp: versions of everything that had a part in this binary or in an image.
//
// Threads  Pure functions.
// Memory   Returns owned strings.
#pragma once

#include <string>
#include <vector>

namespace davit::cli {

struct Component {
  std::string name;  // Stable: a key of the JSON documents.
  std::string version;
};
std::vector<Component> components();

// "6 to 21" and the number of operators, as the operator table has them.
std::string opset_text();

}  // namespace davit::cli
