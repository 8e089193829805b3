// davit cache: the compiled objects that --isa keeps.

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/report.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "codegen/cache.hpp"
#include "codegen/toolchain.hpp"

namespace davit::cli {
namespace {

class CacheCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "cache"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Show or clear the cache of compiled kernels";
  }

  void add_options(OptionSet& options) override {
    options.group("Cache");
    options.add("action", action_, "stats or clear", "");
    options.add("--folder", folder_, "The cache's folder",
                "DAVIT_CACHE_DIR, XDG_CACHE_HOME/davit or ~/.cache/davit");
  }

  Status run(Session& session, OptionSet& options) override {
    if (folder_.empty()) {
      folder_ = codegen::default_cache_folder();
      options.resolve("--folder", folder_, "the environment");
    }
    session.echo_settings(options);
    if (action_ != "stats" && action_ != "clear") {
      return usage_error(action_.empty()
                             ? "stats or clear is needed"
                             : fmt::format("'{}' is not stats or clear", printable(action_)),
                         "davit cache stats");
    }
    if (folder_.empty()) return usage_error("there is no cache", "set DAVIT_CACHE_DIR");
    set_stage("cache");
    const bool clears = action_ == "clear";
    const auto contents = clears ? codegen::clear_cache(folder_) : codegen::inspect_cache(folder_);
    if (!contents.ok()) return Status(contents.status().detail());
    session.print("{} {}: {}, {}\n", clears ? "Removed from" : "Cache", printable(folder_),
                  format_count(contents->objects, "object"), format_bytes(contents->bytes));
    if (contents->damaged > 0) {
      session.print("  {} damaged: they are compiled anew when they are needed\n",
                    contents->damaged);
    }
    if (contents->unfinished > 0) {
      session.print("  {} unfinished: being written, or left behind by a process that was killed\n",
                    contents->unfinished);
    }
    session.result() = {{"folder", folder_},
                        {"action", action_},
                        {"objects", contents->objects},
                        {"damaged", contents->damaged},
                        {"unfinished", contents->unfinished},
                        {"bytes", contents->bytes}};
    return {};
  }

 private:
  std::string action_, folder_;
};

}  // namespace

std::unique_ptr<Command> make_cache_command() {
  return std::make_unique<CacheCommand>();
}

}  // namespace davit::cli
