// davit compare: runs a model and a reference beside it, node by node, and names the first value
// that differs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_set>

#include "cli/command.hpp"
#include "cli/execution_options.hpp"
#include "cli/image_views.hpp"
#include "cli/model.hpp"
#include "cli/node_values.hpp"
#include "cli/numbers.hpp"
#include "cli/reference.hpp"
#include "cli/report.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"

namespace davit::cli {
namespace {

// The same model compiled without rewrites: one reference kernel for each node of the source.
class KernelReference final : public Reference {
 public:
  static Result<std::unique_ptr<Reference>> create(LoadedModel model,
                                                   std::span<const HostTensor> inputs) {
    auto described = image::read_image_model(model.bytes.span());
    if (!described.ok()) return std::move(described.status());
    auto runner =
        Runner::create(model.image.get(), /*device=*/nullptr, /*timeout_us=*/-1, Workers{});
    if (!runner.ok()) return std::move(runner.status());
    Status status = runner->bind_inputs(inputs);
    if (!status.ok()) return status;
    return std::unique_ptr<Reference>(
        new KernelReference(std::move(model), NodeValues(*described), std::move(*runner)));
  }

  Result<std::vector<Item>> items() override {
    std::vector<Item> all;
    auto time = values_.run(runner_, [&](const NodeValue& value) {
      all.push_back({std::string(value.name), value.tensor->bytes});
    });
    if (!time.ok()) return std::move(time.status());
    return all;
  }

  Result<Tensors> read(const std::unordered_set<std::string>& names) override {
    Tensors tensors;
    auto time = values_.run(runner_, [&](const NodeValue& value) {
      std::string name(value.name);
      if (names.contains(name)) tensors.insert_or_assign(std::move(name), host_tensor(value));
    });
    if (!time.ok()) return std::move(time.status());
    return tensors;
  }

 private:
  KernelReference(LoadedModel model, NodeValues values, Runner runner)
      : model_(std::move(model)), values_(std::move(values)), runner_(std::move(runner)) {}

  LoadedModel model_;
  NodeValues values_;
  Runner runner_;
};

// Values that somebody has written to files: another runtime, or --dump-nodes.
class FolderReference final : public Reference {
 public:
  explicit FolderReference(ValueFolder folder) : folder_(std::move(folder)) {}

  Result<std::vector<Item>> items() override {
    std::vector<Item> all;
    for (const std::string& name : folder_.names()) {
      auto tensor = folder_.read(name);
      if (!tensor.ok()) return std::move(tensor.status());
      all.push_back({name, tensor->bytes.size()});
    }
    return all;
  }

  Result<Tensors> read(const std::unordered_set<std::string>& names) override {
    Tensors tensors;
    for (const std::string& name : names) {
      auto tensor = folder_.read(name);
      if (!tensor.ok()) return std::move(tensor.status());
      tensors.emplace(name, std::move(*tensor));
    }
    return tensors;
  }

 private:
  ValueFolder folder_;
};

// One value on both sides.
struct Row {
  std::string name, origin, op, type;
  uint32_t node = 0;
  Comparison result;
  std::string other_type;  // Of the reference, when it is another one.
  bool has_nan = false, reference_has_nan = false;

  [[nodiscard]] bool differs() const { return !other_type.empty() || result.mismatches > 0; }
  [[nodiscard]] double severity() const {
    if (!other_type.empty()) return std::numeric_limits<double>::infinity();
    return result.max_difference / std::max(result.max_expected, 1e-30);
  }
};

bool has_nan(const HostTensor& tensor) {
  if (!is_floating(tensor.dtype)) return false;
  const uint32_t size = dvt_dtype_size(tensor.dtype);
  for (uint64_t i = 0; i < tensor.element_count(); ++i) {
    if (std::isnan(load_element(tensor.dtype, tensor.bytes.data() + i * size))) return true;
  }
  return false;
}

Row compare_value(const NodeValue& value, const HostTensor& expected, const Tolerance& tolerance) {
  const HostTensor actual = host_tensor(value);
  Row row{.name = actual.name,
          .origin = std::string(value.origin),
          .op = std::string(value.op),
          .type = actual.type_text(),
          .node = value.node,
          .result = {},
          .other_type = "",
          .has_nan = has_nan(actual),
          .reference_has_nan = has_nan(expected)};
  if (actual.dtype != expected.dtype || actual.dims != expected.dims) {
    row.other_type = expected.type_text();
  } else {
    row.result = compare(actual, expected, tolerance);
  }
  return row;
}

class CompareCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "compare"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Run a model and a reference node by node, name the first value that differs";
  }
  void add_options(OptionSet& options) override;
  Status run(Session& session, OptionSet& options) override;

 private:
  Status check_options(OptionSet& options);
  Result<std::unique_ptr<Reference>> open_reference(std::span<const HostTensor> inputs);
  // Sets of names that fit the memory, in the order of the reference.
  Result<std::vector<std::unordered_set<std::string>>> make_windows(Reference& reference,
                                                                    const NodeValues& ours);
  Status compare_all(Session& session, Runner& runner, const NodeValues& ours,
                     Reference& reference);
  void report(Session& session);
  // The values that differ most.
  void report_table(Session& session) const;
  [[nodiscard]] Json rows_json() const;
  void report_first(Session& session, const char* what, const Row& row,
                    const std::string& detail) const;

  ExecutionArguments execution_;
  std::string against_ = "reference";
  std::string onnxruntime_;
  ToleranceArguments tolerances_;
  double memory_mb_ = 512;
  Tolerance tolerance_;
  std::optional<ValueFolder> folder_;
  std::vector<Row> rows_;
  uint64_t not_in_reference_ = 0;
};

void CompareCommand::add_options(OptionSet& options) {
  execution_.add_model(options);
  options.group("Run");
  execution_.add_inputs(options);
  options.add("--against", against_,
              "reference: the model without rewrites on the reference kernels; onnxruntime; or a "
              "folder of values (run --dump-nodes writes one, other runtimes can)",
              "needs nothing else", FileUse::kNone);
  options.add("--onnxruntime", onnxruntime_,
              "Library that --against onnxruntime loads (libonnxruntime.so)",
              "where the build has it", FileUse::kNone);
  tolerances_.add(options);
  options.add("--memory", memory_mb_, {.min = 0, .max = 1e9},
              "Megabytes of reference values to keep; more values mean more runs",
              "enough for most models in one run");
  options.group("Report");
  execution_.add_top(options);
}

Status CompareCommand::check_options(OptionSet& options) {
  Status status = execution_.check(options);
  if (!status.ok()) return status;
  if (execution_.target() != "cpu") {
    return usage_error("compare runs on the cpu",
                       "an ascend image gives the same bits: compare the cpu's");
  }
  tolerance_ = tolerances_.resolve(options);
  if (!execution_.compile().gears().empty()) {
    return usage_error("compare looks at the nodes of Main, and gears have theirs elsewhere",
                       "fix the shapes: --shapes or --dim");
  }
  if (!onnxruntime_.empty() && against_ != "onnxruntime") {
    return usage_error("--onnxruntime would do nothing without --against onnxruntime");
  }
  if (against_ == "reference" || against_ == "onnxruntime") {
    auto kind = model_kind(execution_.model());
    if (!kind.ok()) return std::move(kind.status());
    if (*kind == ModelKind::kOnnx) return {};
    return usage_error("the reference is made from the model, and an image has none",
                       "give the .onnx file, or --against FOLDER");
  }
  auto folder = ValueFolder::open(against_);
  if (!folder.ok()) return std::move(folder.status());
  folder_ = std::move(*folder);
  return {};
}

Result<std::unique_ptr<Reference>> CompareCommand::open_reference(
    std::span<const HostTensor> inputs) {
  set_stage("reference");
  if (folder_) return std::unique_ptr<Reference>(new FolderReference(*folder_));
  if (against_ == "onnxruntime") return open_onnxruntime(execution_.model(), onnxruntime_, inputs);
  auto model = execution_.open_unoptimised();
  if (!model.ok()) return std::move(model.status());
  return KernelReference::create(std::move(*model), inputs);
}

Result<std::vector<std::unordered_set<std::string>>> CompareCommand::make_windows(
    Reference& reference, const NodeValues& ours) {
  auto items = reference.items();
  if (!items.ok()) return std::move(items.status());
  std::unordered_set<std::string> left;
  for (const auto& outputs : ours.names()) {
    for (const std::string& name : outputs) {
      if (!name.empty()) left.insert(name);
    }
  }
  const double budget = memory_mb_ * 1e6;
  std::vector<std::unordered_set<std::string>> windows;
  double used = 0;
  for (const Reference::Item& item : *items) {
    if (left.erase(item.name) == 0) continue;
    if (windows.empty() || used + static_cast<double>(item.bytes) > budget) {
      windows.emplace_back();
      used = 0;
    }
    used += static_cast<double>(item.bytes);
    windows.back().insert(item.name);
  }
  not_in_reference_ = left.size();
  return windows;
}

Status CompareCommand::compare_all(Session& session, Runner& runner, const NodeValues& ours,
                                   Reference& reference) {
  auto windows = make_windows(reference, ours);
  if (!windows.ok()) return std::move(windows.status());
  session.detail("{} of reference values\n", format_count(windows->size(), "window"));
  for (const std::unordered_set<std::string>& window : *windows) {
    auto expected = reference.read(window);
    if (!expected.ok()) return std::move(expected.status());
    auto time = ours.run(runner, [&](const NodeValue& value) {
      const auto at = expected->find(value.name);
      if (at != expected->end()) rows_.push_back(compare_value(value, at->second, tolerance_));
    });
    if (!time.ok()) return std::move(time.status());
  }
  std::stable_sort(rows_.begin(), rows_.end(),
                   [](const Row& a, const Row& b) { return a.node < b.node; });
  return {};
}

void CompareCommand::report_first(Session& session, const char* what, const Row& row,
                                  const std::string& detail) const {
  session.print("First {}: value {} of node {} ({}): {}\n", what, printable(row.name),
                printable(row.origin), printable(row.op), detail);
  session.result()["first_" + std::string(what == std::string_view("NaN") ? "nan" : what)] = {
      {"value", row.name}, {"node", row.origin}, {"op", row.op}, {"detail", detail}};
}

void CompareCommand::report_table(Session& session) const {
  using Align = Table::Align;
  std::vector<const Row*> worst;
  for (const Row& row : rows_) worst.push_back(&row);
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Row* a, const Row* b) { return a->severity() > b->severity(); });
  worst.resize(std::min(worst.size(), execution_.top()));
  Table table({{"value", Align::kLeft},
               {"node", Align::kLeft},
               {"op", Align::kLeft},
               {"type", Align::kLeft},
               {"max difference"},
               {"max |expected|"},
               {"differ"}});
  for (const Row* row : worst) {
    const std::string difference = row->other_type.empty()
                                       ? fmt::format("{:.3g}", row->result.max_difference)
                                       : "expected " + row->other_type;
    table.add_row({row->name, row->origin, row->op, row->type, difference,
                   fmt::format("{:.3g}", row->result.max_expected),
                   fmt::format("{} of {}", row->result.mismatches, row->result.elements)});
  }
  session.print("{}", table.to_text());
}

Json CompareCommand::rows_json() const {
  Json values = Json::array();
  for (const Row& row : rows_) {
    values.push_back({{"value", row.name},
                      {"node", row.origin},
                      {"op", row.op},
                      {"type", row.type},
                      {"expected_type", row.other_type.empty() ? row.type : row.other_type},
                      {"match", !row.differs()},
                      {"elements", row.result.elements},
                      {"mismatches", row.result.mismatches},
                      {"max_difference", row.result.max_difference},
                      {"max_expected", row.result.max_expected},
                      {"nan", row.has_nan},
                      {"expected_nan", row.reference_has_nan}});
  }
  return values;
}

void CompareCommand::report(Session& session) {
  const auto differing =
      std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.differs(); });
  session.print("{} compared, {} differ; {} without a counterpart\n",
                format_count(rows_.size(), "value"), differing,
                format_count(not_in_reference_, "value"));
  report_table(session);
  session.result()["values"] = rows_json();
  session.result()["not_in_reference"] = not_in_reference_;
  const auto nan = std::find_if(rows_.begin(), rows_.end(), [](const Row& row) {
    return row.has_nan || row.reference_has_nan;
  });
  if (nan != rows_.end()) {
    const bool both = nan->has_nan && nan->reference_has_nan;
    const char* where = nan->has_nan ? "the reference has none" : "in the reference only";
    report_first(session, "NaN", *nan, both ? "on both sides" : where);
  }
  const auto first =
      std::find_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.differs(); });
  if (first == rows_.end()) return;
  const std::string detail =
      first->other_type.empty()
          ? fmt::format("{} of {} elements differ; element {}: got {}, expected {}",
                        first->result.mismatches, first->result.elements,
                        first->result.first_mismatch, first->result.first_actual,
                        first->result.first_expected)
          : fmt::format("got {}, expected {}", first->type, first->other_type);
  report_first(session, "difference", *first, detail);
  session.set_mismatch(
      fmt::format("value {} of node {} ({}): {}", first->name, first->origin, first->op, detail));
}

Status CompareCommand::run(Session& session, OptionSet& options) {
  Status status = check_options(options);
  session.echo_settings(options);
  if (!status.ok()) return status;
  auto model = execution_.open(session, options);
  if (!model.ok()) return std::move(model.status());
  if (model->target != "cpu") {
    return usage_error(fmt::format("compare runs on the cpu, the image is for {}", model->target));
  }
  auto described = model->bytes.size() > 0 ? image::read_image_model(model->bytes.span())
                                           : read_image(execution_.model());
  if (!described.ok()) return std::move(described.status());
  const NodeValues ours(*described);
  const std::vector<PortType> ports = input_ports(model->image.get());
  set_stage("input");
  const bool from_folder = folder_ && folder_->has_inputs() && !execution_.has_inputs();
  auto inputs = from_folder ? folder_->read_inputs(ports) : execution_.inputs(session, ports);
  if (!inputs.ok()) return std::move(inputs.status());
  if (from_folder) session.log("inputs are those of {}\n", against_);
  set_stage("load");
  auto runner =
      Runner::create(model->image.get(), /*device=*/nullptr, /*timeout_us=*/-1, Workers{});
  if (!runner.ok()) return std::move(runner.status());
  status = runner->bind_inputs(*inputs);
  if (!status.ok()) return status;
  auto reference = open_reference(*inputs);
  if (!reference.ok()) return std::move(reference.status());
  set_stage("compare");
  status = compare_all(session, *runner, ours, **reference);
  if (!status.ok()) return status;
  if (rows_.empty()) {
    return usage_error("no value has a counterpart of its name in the reference");
  }
  report(session);
  return runner->unload();
}

}  // namespace

std::unique_ptr<Command> make_compare_command() {
  return std::make_unique<CompareCommand>();
}

}  // namespace davit::cli
