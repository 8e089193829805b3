// davit emit-c: an image as C that calls its kernels one after the other.

#include <fmt/format.h>

#include <filesystem>

#include "cli/command.hpp"
#include "cli/plugins.hpp"
#include "cli/report.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "codegen/straight_line.hpp"
#include "exec/image.hpp"

namespace davit::cli {
namespace {

class EmitCCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "emit-c"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Write an image as one C file that needs no library";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add("image,-m,--model", path_, "Image to write", "", FileUse::kRead);
    options.group("Emit");
    options.add("-o,--output", folder_,
                "Folder for NAME.c, NAME.h, its weights and meson.build; made when it is missing",
                "");
    options.add("--name", name_, "Begins the names that a linker sees: a C identifier",
                "the image's file name");
    options.add("--isa", isa_, "Instruction set of generated kernels",
                "the most demanding one that the image has");
    options.add("--function", functions_,
                "KERNEL=FUNCTION: a kernel of a plug-in as a function that you link, int32_t "
                "FUNCTION(void* context); may be repeated",
                "");
    plugins_.add_options(options);
  }

  Status run(Session& session, OptionSet& options) override {
    if (name_.empty() && !path_.empty()) {
      name_ = default_name();
      options.resolve("--name", name_, "the image's file name");
    }
    session.echo_settings(options);
    codegen::StraightLineOptions emit{.name = name_, .isa = isa_};
    if (Status status = check_options(emit); !status.ok()) return status;
    if (Status status = plugins_.load(); !status.ok()) return status;
    set_stage("load");
    exec::OpenOptions open;
    open.kernel_tables = plugins_.kernel_tables();
    auto image = exec::open_image_file(path_, open);
    if (!image.ok()) return std::move(image.status());
    set_stage("emit");
    auto emitted = codegen::emit_straight_line((*image)->view, emit);
    if (!emitted.ok()) return std::move(emitted.status());
    return write(session, *emitted);
  }

 private:
  [[nodiscard]] std::string default_name() const {
    std::string result;
    for (const char c : std::filesystem::path(path_).stem().string()) {
      const bool keeps = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      result += keeps ? c : '_';
    }
    return result.empty() || (result[0] >= '0' && result[0] <= '9') ? "graph_" + result : result;
  }

  [[nodiscard]] Status check_options(codegen::StraightLineOptions& emit) const {
    if (path_.empty()) return usage_error("an image is needed", "davit emit-c IMAGE -o FOLDER");
    if (folder_.empty()) return usage_error("--output is needed", "davit emit-c IMAGE -o FOLDER");
    if (!codegen::is_c_identifier(name_)) {
      return usage_error(fmt::format("--name: '{}' is no identifier of C", printable(name_)));
    }
    for (const std::string& function : functions_) {
      const size_t equals = function.rfind('=');
      if (equals == std::string::npos || equals == 0 ||
          !codegen::is_c_identifier(std::string_view(function).substr(equals + 1))) {
        return usage_error(
            fmt::format("--function: '{}' is not KERNEL=FUNCTION", printable(function)),
            "--function acme.Scale=acme_scale");
      }
      emit.functions.emplace_back(function.substr(0, equals), function.substr(equals + 1));
    }
    return {};
  }

  Status write(Session& session, const codegen::StraightLine& emitted) const {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error || !fs::is_directory(folder_, error)) {
      return {DVT_IO_ERROR, DVT_STAGE_WRITE,
              fmt::format("{}: {}", folder_, error ? error.message() : "not a folder")};
    }
    const auto at = [&](const std::string& file) { return (fs::path(folder_) / file).string(); };
    std::vector<std::pair<std::string, std::string_view>> texts = {{name_ + ".c", emitted.source},
                                                                   {name_ + ".h", emitted.header},
                                                                   {"meson.build", emitted.meson}};
    for (size_t i = 0; i < emitted.plugin_sources.size(); ++i) {
      texts.emplace_back(codegen::plugin_source_name(name_, i), emitted.plugin_sources[i]);
    }
    if (!emitted.weights.empty()) {
      texts.emplace_back(name_ + "_weights.S", emitted.assembler);
      const std::string weights = at(name_ + "_weights.bin");
      if (Status status = write_bytes(weights, emitted.weights); !status.ok()) return status;
    }
    for (const auto& [file, text] : texts) {
      if (Status status = write_text(at(file), text); !status.ok()) return status;
    }
    session.print("{}: {}, {} of C, {} of constants, {} of static memory{}\n", at(name_ + ".c"),
                  format_count(emitted.nodes, "node"), format_bytes(emitted.source.size()),
                  format_bytes(emitted.weights.size()), format_bytes(emitted.arena_bytes),
                  emitted.isa.empty() ? "" : fmt::format(", kernels for {}", emitted.isa));
    session.result() = {{"output", folder_},
                        {"name", name_},
                        {"nodes", emitted.nodes},
                        {"source_bytes", emitted.source.size()},
                        {"weights_bytes", emitted.weights.size()},
                        {"arena_bytes", emitted.arena_bytes},
                        {"isa", emitted.isa}};
    return {};
  }

  std::string path_, folder_, name_, isa_;
  std::vector<std::string> functions_;
  PluginArguments plugins_;
};

}  // namespace

std::unique_ptr<Command> make_emit_c_command() {
  return std::make_unique<EmitCCommand>();
}

}  // namespace davit::cli
