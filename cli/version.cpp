// davit version: every version that matters when two sides disagree.

#include "cli/command.hpp"
#include "cli/components.hpp"

namespace davit::cli {
namespace {

class VersionCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "version"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Versions of Davit, its formats and the libraries it was built with";
  }
  void add_options(OptionSet& /*options*/) override {}

  Status run(Session& session, OptionSet& options) override {
    session.record_settings(options);
    for (const Component& component : components()) {
      session.print("{:<14} {}\n", component.name, component.version);
      session.result()["components"][component.name] = component.version;
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<Command> make_version_command() {
  return std::make_unique<VersionCommand>();
}

}  // namespace davit::cli
