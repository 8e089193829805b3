// davit dump: an image as text, JSON or a graph, its memory plan and its schedule.

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/image_onnx.hpp"
#include "cli/image_views.hpp"
#include "cli/model.hpp"
#include "cli/stage.hpp"
#include "exec/weights.hpp"

namespace davit::cli {
namespace {

class DumpCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "dump"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Print an image as text (which assembles to the same bytes), JSON or DOT, its memory "
           "plan or its schedule";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add("image,-m,--model", path_, "Image to print", "", FileUse::kRead);
    options.group("Report");
    options.add("--format", format_,
                "text, json, dot, or onnx (for viewers); with --memory-plan text, json or svg", "");
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
    if (memory_plan_) text += memory_plan(*model);
    if (schedule_) text += schedule_text(*model);
    if (!memory_plan_ && !schedule_) text = formatted(*model);
    session.result()["bytes"] = text.size();
    if (output_.empty()) {
      session.print("{}", text);
      return {};
    }
    session.result()["output"] = output_;
    return write_text(output_, text);
  }

 private:
  [[nodiscard]] Status check_options(const OptionSet& options) const {
    if (path_.empty()) return usage_error("an image is needed", "davit dump IMAGE");
    const std::vector<std::string> formats =
        memory_plan_ ? std::vector<std::string>{"text", "json", "svg"}
                     : std::vector<std::string>{"text", "json", "dot", "onnx"};
    if (std::find(formats.begin(), formats.end(), format_) == formats.end()) {
      const std::string near = nearest(format_, formats);
      return usage_error(fmt::format("--format: '{}' is not {} or {}{}{}", format_,
                                     fmt::join(formats.begin(), formats.end() - 1, ", "),
                                     formats.back(),
                                     memory_plan_ ? ", which a memory plan has" : "",
                                     near.empty() ? "" : "; did you mean " + near + "?"));
    }
    if (format_ == "onnx" && output_.empty()) {
      return usage_error("--format onnx is binary and needs --output", "-o view.onnx");
    }
    if (schedule_ && options.given("--format")) {
      return usage_error("--format does not go with --schedule");
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
  bool memory_plan_ = false, schedule_ = false;
};

}  // namespace

std::unique_ptr<Command> make_dump_command() {
  return std::make_unique<DumpCommand>();
}

}  // namespace davit::cli
