// davit compile: a model becomes an image.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "cli/command.hpp"
#include "cli/compile_options.hpp"
#include "cli/model.hpp"
#include "cli/runner.hpp"
#include "cli/stage.hpp"
#include "exec/weights.hpp"

namespace davit::cli {
namespace {

class CompileCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "compile"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Compile an ONNX model, or assemble a text image, into an image file";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add("model,-m,--model", model_, "model.onnx, or a text image (.txt)", "",
                FileUse::kRead);
    options.add("-o,--output", output_, "Image file to write", "", FileUse::kWritten);
    compile_.add_options(options);
    compile_.add_workers(options);
    compile_.add_external_weights(options);
  }

  Status run(Session& session, OptionSet& options) override {
    session.echo_settings(options);
    if (model_.empty()) return usage_error("a model is needed", "davit compile MODEL -o IMAGE");
    if (output_.empty())
      return usage_error("-o/--output is needed", "davit compile MODEL -o IMAGE");
    Status status = compile_.check();
    if (status.ok()) status = compile_.load_plugins();
    if (!status.ok()) return status;
    const double begin = now_ns();
    auto compiled = compile_model(session, model_, compile_, options);
    if (!compiled.ok()) return std::move(compiled.status());
    set_stage("write");
    const bool external = !compiled->weights.empty();
    const std::string weights = exec::folder_of(output_) + "/" + compiled->weights_name;
    if (external) status = session.check_files(options, std::span(&weights, 1));
    if (!status.ok()) return status;
    bool is_new = false;
    if (external) status = write_weights(weights, compiled->weights, is_new);
    if (status.ok()) status = write_bytes(output_, compiled->bytes);
    if (!status.ok()) {
      std::error_code ignored;
      if (is_new) std::filesystem::remove(weights, ignored);
      return status;
    }
    report_compilation(session, compiled->report, (now_ns() - begin) / 1e9);
    session.print("Wrote {}\n", output_);
    session.result()["output"] = output_;
    session.result()["weights"] = external ? Json(weights) : Json(nullptr);
    if (external) session.print("  weights in {}\n", weights);
    return {};
  }

 private:
  // Images with the same weights share a file.
  static Status write_weights(const std::string& path, std::span<const std::byte> weights,
                              bool& is_new) {
    is_new = !std::filesystem::exists(path);
    if (!is_new) {
      auto there = exec::map_file(path, /*prefault=*/false);
      if (there.ok() && std::ranges::equal(there->bytes(), weights)) return {};
    }
    return write_bytes(path, weights);
  }

  std::string model_, output_;
  CompileArguments compile_;
};

}  // namespace

std::unique_ptr<Command> make_compile_command() {
  return std::make_unique<CompileCommand>();
}

}  // namespace davit::cli
