#include "cli/components.hpp"

#include <fmt/core.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <CLI/Version.hpp>
#include <set>

#include "cli/build_info.hpp"
#include "cli/session.hpp"
#include "davit/davit.h"
#include "flatbuffers/base.h"
#include "ir/onnx/import.hpp"
#include "nlohmann/json.hpp"
#include "ops/definition.hpp"
#include "schema/layout.h"

namespace davit::cli {

std::string opset_text() {
  std::set<std::string> names;
  for (const ops::OperatorDefinition& op : ops::all_operators()) {
    names.insert(fmt::format("{}::{}", op.domain, op.name));
  }
  return fmt::format("{} to {}, {} operators", onnx_import::kOpsetMin, onnx_import::kOpsetMax,
                     names.size());
}

std::vector<Component> components() {
  const unsigned xxhash = XXH_versionNumber();
  return {
      {"davit", fmt::format("{} (git {})", kVersion, kGitId)},
      {"library", dvt_version()},
      {"image_format",
       fmt::format("{}.{}", int{DVT_IMAGE_VERSION_MAJOR}, int{DVT_IMAGE_VERSION_MINOR})},
      {"kernel_abi", fmt::format("{}", int{DVT_KERNEL_ABI_VERSION})},
      {"schema", "schema/image.fbs, file identifier DVTM"},
      {"json_schema", fmt::format("davit.cli {}", kJsonSchemaVersion)},
      {"onnx_opsets", opset_text()},
      {"flatbuffers", fmt::format("{}.{}.{}", FLATBUFFERS_VERSION_MAJOR, FLATBUFFERS_VERSION_MINOR,
                                  FLATBUFFERS_VERSION_REVISION)},
      {"protobuf", kProtobufVersion},
      {"xxhash", fmt::format("{}.{}.{}", xxhash / 10000, xxhash / 100 % 100, xxhash % 100)},
      {"cli11", CLI11_VERSION},
      {"fmt",
       fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"compiler", kCompiler},
      {"build",
       fmt::format("{}, optimisation {}, sanitizers {}", kBuildType, kOptimisation, kSanitizers)},
  };
}

}  // namespace davit::cli
