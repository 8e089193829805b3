// davit dump: an image as text, JSON or a graph, its memory plan and its schedule.

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/image_onnx.hpp"
#include "cli/image_views.hpp"
#include "cli/model.hpp"
#include "cli/model_ports.hpp"
#include "cli/stage.hpp"
#include "exec/weights.hpp"

namespace davit::cli {
namespace {

class DumpCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "dump"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Print an image as text (which assembles to the same bytes), JSON, DOT or ONNX, its "
           "memory plan (also as SVG), its schedule, or what a model takes and gives";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add("image,-m,--model", path_, "Image to print; with --io also model.onnx", "",
                FileUse::kRead);
    options.group("Report");
    options.add("--format", format_,
                "text, json, dot, or onnx (for viewers); with --memory-plan text, json or svg", "");
    options.add("--io", ports_, "Print inputs and outputs instead: names, types, shapes", "");
    options.add("--memory-plan", memory_plan_, "Print the memory plan instead", "");
    options.add("--schedule", schedule_, "Print the nodes in stored order as a table instead", "");
    options.add("-o,--output", output_, "File to write", "stdout", FileUse::kWritten);
  }

  [[nodiscard]] bool writes_document() const override {
    return output_.empty() && format_ != "onnx";
  }

  Status run(Session& session, OptionSet& options) override {
    session.echo_settings(options);
    Status status = check_options(options);
    if (!status.ok()) return status;
    if (auto kind = model_kind(path_); ports_ && kind.ok() && *kind == ModelKind::kOnnx) {
      auto ports = read_model_ports(path_);
      if (!ports.ok()) return std::move(ports.status());
      set_stage("dump");
      return write_document(session, ports_document(session, *ports));
    }
    auto model = read_image(path_);
    if (!model.ok()) return std::move(model.status());
    if (model->external_constants) {
      const std::string weights = exec::folder_of(path_) + "/" + image::weights_file_name(*model);
      status = session.check_files(options, std::span(&weights, 1));
      if (!status.ok()) return status;
    }
    set_stage("dump");
    if (format_ == "onnx") {
      auto bytes = onnx_view(*model);
      if (!bytes.ok()) return std::move(bytes.status());
      session.result()["bytes"] = bytes->size();
      session.result()["output"] = output_;
      return write_bytes(output_, *bytes);
    }
    std::string text;
    if (ports_) text += ports_document(session, image_ports(*model)) + gears(session, *model);
    if (memory_plan_) text += memory_plan(*model);
    if (schedule_) text += schedule_text(*model);
    if (!ports_ && !memory_plan_ && !schedule_) text = formatted(*model);
    return write_document(session, text);
  }

 private:
  static std::string gears(Session& session, const image::ImageModel& model) {
    const std::vector<std::string> gears = image_gears(model);
    session.result()["gears"] = gears;
    std::string text;
    for (const std::string& gear : gears) text += "gear " + gear + "\n";
    return text;
  }
  static std::string ports_document(Session& session, const std::vector<ModelPort>& ports) {
    add_ports(ports, session.result());
    return ports_text(ports);
  }

  Status write_document(Session& session, const std::string& text) const {
    session.result()["bytes"] = text.size();
    if (output_.empty()) {
      session.print("{}", text);
      return {};
    }
    session.result()["output"] = output_;
    return write_text(output_, text);
  }

  [[nodiscard]] Status check_options(const OptionSet& options) const {
    if (path_.empty()) return usage_error("an image is needed", "davit dump IMAGE");
    const std::vector<std::string> formats =
        memory_plan_ ? std::vector<std::string>{"text", "json", "svg"}
                     : std::vector<std::string>{"text", "json", "dot", "onnx"};
    if (std::find(formats.begin(), formats.end(), format_) == formats.end()) {
      const std::string near = nearest(format_, formats);
      if (format_ == "svg")
        return usage_error("--format svg needs --memory-plan: it is its picture");
      return usage_error(fmt::format("--format: '{}' is not {} or {}{}{}", format_,
                                     fmt::join(formats.begin(), formats.end() - 1, ", "),
                                     formats.back(),
                                     memory_plan_ ? ", which a memory plan has" : "",
                                     near.empty() ? "" : "; did you mean " + near + "?"));
    }
    if (format_ == "onnx" && output_.empty()) {
      return usage_error("--format onnx is binary and needs --output", "-o view.onnx");
    }
    if ((schedule_ || ports_) && options.given("--format")) {
      return usage_error(
          fmt::format("--format does not go with {}", schedule_ ? "--schedule" : "--io"));
    }
    auto kind = model_kind(path_);
    if (ports_ && (schedule_ || memory_plan_) && kind.ok() && *kind == ModelKind::kOnnx) {
      return usage_error(
          fmt::format("{} is a model: it has no {}", path_, schedule_ ? "schedule" : "memory plan"),
          "compile it first, or ask for --io alone");
    }
    return {};
  }

  [[nodiscard]] std::string memory_plan(const image::ImageModel& model) const {
    if (format_ == "svg") return memory_plan_svg(model);
    if (format_ == "json") return json_text(memory_plan_json(model));
    return memory_plan_text(model);
  }

  [[nodiscard]] std::string formatted(const image::ImageModel& model) const {
    if (format_ == "dot") return dot_text(model);
    if (format_ == "json") return json_text(image_json(model));
    return image::dump_text(model, all_kernel_tables());
  }

  static std::string json_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  std::string path_, format_ = "text", output_;
  bool ports_ = false, memory_plan_ = false, schedule_ = false;
};

}  // namespace

std::unique_ptr<Command> make_dump_command() {
  return std::make_unique<DumpCommand>();
}

}  // namespace davit::cli
