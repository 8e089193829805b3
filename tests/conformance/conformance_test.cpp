// conformance_test DATA LISTS [--print GROUP | --why NAME]: runs the ONNX back-end tests in
// DATA/{node,simple,pytorch-converted,pytorch-operator} on target cpu and compares what passes with
// the checked-in lists LISTS/<group>.txt.
//
// A list has one test per line; "frozen" behind its name says that it passes only with its
// shape-like inputs compiled in (davit compile --freeze): first its integer inputs of rank 0 and 1,
// then also its float inputs of rank 0 and 1. LISTS/not_passed.txt has all other tests, by reason:
//
//   reason: why they do not pass, for people
//   error: a part of what is reported for each of them
//   <group>/<test>
//
// Every test is in exactly one list and fares as that says, or the run fails: a listed test that
// fails or now needs freezing, one that now passes, one that fails in another way, one that is new.
//
//   --print GROUP   prints the group's list as it would be now
//   --why NAME      prints how the test NAME fares, and why
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "ir/onnx/import.hpp"
#include "ir/onnx/tensor_io.hpp"
#include "lowering/compile.hpp"
#include "tests/support/run_image.hpp"

namespace {

namespace fs = std::filesystem;
using davit::NpyArray;
using davit::Result;
using davit::Status;
using davit::ir::TensorData;

constexpr std::string_view kGroups[] = {"node", "simple", "pytorch-converted", "pytorch-operator"};
// As the ONNX back-end test runner.
constexpr davit::testing::Tolerance kTolerance{.relative = 1e-3, .absolute = 1e-7};

NpyArray to_array(const TensorData& data) {
  return {data.dtype, data.dims, data.bytes ? *data.bytes : std::vector<std::byte>()};
}

// The test data has bf16 as u16, since numpy has no such type.
TensorData as_declared(TensorData data, DvtDType declared) {
  if (declared == DVT_BF16 && data.dtype == DVT_U16) data.dtype = DVT_BF16;
  return data;
}

using Values = std::vector<davit::onnx_import::NamedValue>;

// "input_0.pb", "input_1.pb", ... of one data set, for the model's `ports`.
Result<Values> read_values(const fs::path& folder, const std::string& kind,
                           const davit::ir::Module& module,
                           std::span<const davit::ir::ValueId> ports) {
  Values values;
  for (size_t i = 0;; ++i) {
    const fs::path path = folder / (kind + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(path)) return values;
    auto value = davit::onnx_import::read_value_file(
        path.string(), i < ports.size() ? module.container(ports[i]) : nullptr);
    if (!value.ok()) return std::move(value.status());
    values.push_back(std::move(*value));
  }
}

// The tensors of all values, by the names that the compiler gives them.
std::vector<davit::onnx_import::NamedTensor> flatten(const Values& values) {
  std::vector<davit::onnx_import::NamedTensor> tensors;
  for (const auto& value : values) {
    for (const TensorData& data : value.tensors) tensors.push_back({value.name, data});
  }
  return tensors;
}

// The value of each model input: by name when all names fit, else by position.
Result<std::map<std::string, davit::onnx_import::NamedValue>> match_inputs(
    const davit::ir::Module& module, const Values& values) {
  std::vector<std::string> names;
  for (const auto value : module.graph_inputs(davit::ir::kMainGraph)) {
    names.emplace_back(module.value_name(value));
  }
  if (names.size() != values.size()) {
    return Status(
        DVT_INVALID_ARGUMENT, DVT_STAGE_BIND,
        std::to_string(names.size()) + " inputs, data for " + std::to_string(values.size()));
  }
  const bool by_name = std::ranges::all_of(
      values, [&](const auto& v) { return std::ranges::find(names, v.name) != names.end(); });
  std::map<std::string, davit::onnx_import::NamedValue> matched;
  for (size_t i = 0; i < values.size(); ++i) {
    matched[by_name ? values[i].name : names[i]] = values[i];
  }
  return matched;
}

// Makes tensors of inputs that are sequences and optionals, and returns all inputs' data by name.
Result<std::map<std::string, TensorData>> bind_inputs(davit::ir::Module& module,
                                                      const Values& values) {
  const auto matched = match_inputs(module, values);
  if (!matched.ok()) return Status(matched.status().detail());
  std::map<std::string, int64_t> elements;
  std::map<std::string, TensorData> data;
  for (const auto input : module.graph_inputs(davit::ir::kMainGraph)) {
    const std::string name(module.value_name(input));
    const auto& value = matched->at(name);
    const auto* type = module.container(input);
    if (type != nullptr) {
      elements[name] = value.is_present ? int64_t(value.tensors.size()) : davit::passes::kAbsent;
    }
    for (size_t i = 0; i < value.tensors.size(); ++i) {
      const bool is_element = type != nullptr && type->is_sequence;
      data[is_element ? name + "[" + std::to_string(i) + "]" : name] =
          as_declared(value.tensors[i], type != nullptr ? type->dtype : module.dtype(input));
    }
  }
  Status status = davit::passes::bind_elements(module, elements);
  if (!status.ok()) return status;
  return data;
}

enum class Freeze { kNothing, kIntegers, kParameters };

bool is_frozen(const TensorData& data, Freeze freeze) {
  if (freeze == Freeze::kNothing || data.dims.size() > 1) return false;
  return data.dtype == DVT_I64 || data.dtype == DVT_I32 || freeze == Freeze::kParameters;
}

// Compiles with the inputs' shapes, runs and compares.
Status try_case(const davit::ir::Module& module, const std::map<std::string, TensorData>& data,
                const std::vector<davit::onnx_import::NamedTensor>& expected, Freeze freeze) {
  davit::compiler::CompileOptions options;
  std::vector<NpyArray> inputs;
  for (const auto value : module.graph_inputs(davit::ir::kMainGraph)) {
    const std::string name(module.value_name(value));
    const TensorData& tensor = data.at(name);
    if (is_frozen(tensor, freeze)) {
      options.frozen_inputs[name] = tensor;
    } else {
      options.shapes[name] = tensor.dims;
      inputs.push_back(to_array(tensor));
    }
  }
  const auto image = davit::compiler::compile_module(module, options);
  if (!image.ok()) return Status(image.status().detail());
  const auto outputs = davit::testing::run_image(image->bytes, inputs);
  if (!outputs.ok()) return Status(outputs.status().detail());
  if (outputs->size() != expected.size()) {
    return Status(
        DVT_INTERNAL, DVT_STAGE_RUN,
        std::to_string(outputs->size()) + " outputs, expected " + std::to_string(expected.size()));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const TensorData data = as_declared(expected[i].data, (*outputs)[i].dtype);
    Status status = davit::testing::compare(to_array(data), (*outputs)[i], kTolerance);
    if (!status.ok()) {
      status.detail().tensor = expected[i].name;
      return status;
    }
  }
  return {};
}

struct Outcome {
  bool passed = false;
  bool frozen = false;
  std::string why;  // When it failed.

  // As in the lists; empty for a failure.
  [[nodiscard]] std::string line(const std::string& name) const {
    return !passed ? "" : frozen ? name + " frozen" : name;
  }
};

Outcome run_case(const fs::path& folder) {
  const auto fail = [](const Status& status) { return Outcome{.why = status.to_string()}; };
  const auto imported = davit::onnx_import::import_onnx_file((folder / "model.onnx").string());
  if (!imported.ok()) return fail(imported.status());
  Outcome outcome{.passed = false};
  for (size_t set = 0;; ++set) {
    const fs::path data_folder = folder / ("test_data_set_" + std::to_string(set));
    if (!fs::exists(data_folder)) break;
    davit::ir::Module module = *imported;
    const auto inputs =
        read_values(data_folder, "input", module, module.graph_inputs(davit::ir::kMainGraph));
    if (!inputs.ok()) return fail(inputs.status());
    const auto outputs =
        read_values(data_folder, "output", module, module.graph_outputs(davit::ir::kMainGraph));
    if (!outputs.ok()) return fail(outputs.status());
    const auto expected = flatten(*outputs);
    const auto data = bind_inputs(module, *inputs);
    if (!data.ok()) return fail(data.status());
    Status status;
    bool frozen = false;
    for (const Freeze freeze : {Freeze::kNothing, Freeze::kIntegers, Freeze::kParameters}) {
      const bool any = std::ranges::any_of(
          *data, [&](const auto& entry) { return is_frozen(entry.second, freeze); });
      if (freeze != Freeze::kNothing && !any) continue;
      Status now = try_case(module, *data, expected, freeze);
      frozen = freeze != Freeze::kNothing;
      if (now.ok() || !frozen) status = std::move(now);  // The first error says most.
      if (status.ok()) break;
    }
    if (!status.ok()) return fail(status);
    outcome.passed = true;
    outcome.frozen = outcome.frozen || frozen;
  }
  if (!outcome.passed) outcome.why = "there is no test data";
  return outcome;
}

// Lines by test name.
std::map<std::string, std::string> read_list(const fs::path& path) {
  std::ifstream file(path);
  std::map<std::string, std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines[line.substr(0, line.find(' '))] = line;
  }
  return lines;
}

struct KnownFailure {
  std::string error;
  bool has_reason = false;
};

// Of LISTS/not_passed.txt, by "group/test".
std::map<std::string, KnownFailure> read_known_failures(const fs::path& lists) {
  std::ifstream file(lists / "not_passed.txt");
  std::map<std::string, KnownFailure> failures;
  KnownFailure section;
  const auto value_of = [](const std::string& line) { return line.substr(line.find(": ") + 2); };
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("reason: ")) {
      section = {.error = "", .has_reason = true};
    } else if (line.starts_with("error: ")) {
      section.error = value_of(line);
    } else {
      failures[line] = section;
    }
  }
  return failures;
}

// What is wrong with a failure or its entry; empty when it is the one expected.
std::string judge_failure(const KnownFailure* known, const std::string& why) {
  if (known == nullptr) return "fails and is in no list: " + why;
  if (!known->has_reason || known->error.empty()) return "not_passed.txt has no reason or no error";
  if (why.find(known->error) != std::string::npos) return {};
  return "fails in another way than '" + known->error + "': " + why;
}

std::vector<std::string> case_names(const fs::path& group) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(group)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// True when every test of the group fares as the lists say. Takes what it saw out of `failures`.
bool check_group(const fs::path& data, const fs::path& lists, const std::string& group,
                 std::map<std::string, KnownFailure>& failures) {
  std::map<std::string, std::string> listed = read_list(lists / (group + ".txt"));
  bool good = !listed.empty();
  const auto fail = [&](const std::string& line, const std::string& why) {
    std::printf("FAILED %s/%s: %s\n", group.c_str(), line.c_str(), why.c_str());
    good = false;
  };
  size_t passed = 0;
  const std::vector<std::string> names = case_names(data / group);
  for (const std::string& name : names) {
    const Outcome outcome = run_case(data / group / name);
    passed += outcome.passed ? 1 : 0;
    const auto entry = listed.extract(name);
    const auto failure = failures.extract(group + "/" + name);
    if (!entry.empty() && !failure.empty()) fail(name, "is in two lists");
    if (!entry.empty()) {
      if (entry.mapped() == outcome.line(name)) continue;
      fail(entry.mapped(),
           outcome.passed ? "now passes as '" + outcome.line(name) + "'" : outcome.why);
    } else if (outcome.passed) {
      fail(name, "passes: put the output of --print " + group + " in " + group +
                     ".txt and take it out of not_passed.txt");
    } else {
      const std::string wrong =
          judge_failure(failure.empty() ? nullptr : &failure.mapped(), outcome.why);
      if (!wrong.empty()) fail(name, wrong);
    }
  }
  for (const auto& [name, line] : listed) fail(line, "there is no such test");
  std::printf("%-18s %4zu of %4zu pass\n", group.c_str(), passed, names.size());
  return good;
}

int explain(const fs::path& data, const std::string& name) {
  for (const std::string_view group : kGroups) {
    if (!fs::exists(data / group / name)) continue;
    const Outcome outcome = run_case(data / group / name);
    std::printf("%s: %s\n", name.c_str(),
                outcome.passed ? outcome.line("passes as").c_str() : outcome.why.c_str());
  }
  return 0;
}

int print_list(const fs::path& data, const std::string& group) {
  for (const std::string& name : case_names(data / group)) {
    const Outcome outcome = run_case(data / group / name);
    if (outcome.passed) {
      std::printf("%s\n", outcome.line(name).c_str());
    } else {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), outcome.why.c_str());
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) {
    std::fprintf(stderr, "usage: conformance_test DATA LISTS [--print GROUP | --why NAME]\n");
    return 2;
  }
  const fs::path data = argv[1];
  if (!fs::exists(data / "node")) {
    std::printf("skipped: %s has no ONNX test data (Debian: libonnx-testdata)\n", argv[1]);
    return 77;
  }
  if (argc == 5 && std::string_view(argv[3]) == "--print") return print_list(data, argv[4]);
  if (argc == 5) return explain(data, argv[4]);
  std::map<std::string, KnownFailure> failures = read_known_failures(argv[2]);
  bool good = true;
  for (const std::string_view group : kGroups) {
    good = check_group(data, argv[2], std::string(group), failures) && good;
  }
  for (const auto& [name, failure] : failures) {
    std::printf("FAILED not_passed.txt: %s: there is no such test\n", name.c_str());
    good = false;
  }
  return good ? 0 : 1;
}
