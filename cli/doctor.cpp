// davit doctor: what this machine and this build can do.

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/components.hpp"
#include "cli/device.hpp"
#include "cli/machine.hpp"
#include "cli/report.hpp"
#include "cli/stage.hpp"
#include "cli/table.hpp"
#include "exec/mt_topo/cpus.hpp"

namespace davit::cli {
namespace {

class DoctorCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "doctor"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Machine, build, targets, and the parameters of the Ascend models";
  }
  void add_options(OptionSet& options) override {
    options.group("Device");
    options.add("--soc", soc_, "Show the parameters of this SoC", "only the list of SoCs");
    options.add("--soc-override", settings_.overrides,
                "KEY=VALUE: another value of one of its parameters; repeatable", "none");
  }

  Status run(Session& session, OptionSet& options) override {
    session.echo_settings(options);
    set_stage("machine");
    report_machine(session);
    set_stage("build");
    session.print("Build\n");
    for (const Component& component : components()) {
      session.print("  {:<14} {}\n", component.name, component.version);
      session.result()["components"][component.name] = component.version;
    }
    set_stage("targets");
    report_targets(session);
    if (!soc_.empty()) return report_soc(session);
    if (settings_.overrides.empty()) return {};
    return usage_error("--soc-override without --soc would do nothing", "--soc 910B2");
  }

 private:
  static void report_machine(Session& session);
  static void report_targets(Session& session);
  Status report_soc(Session& session) const;

  std::string soc_;
  DeviceSettings settings_;
};

void DoctorCommand::report_machine(Session& session) {
  const Machine machine = this_machine();
  const mt_topo::Cpus cpus = mt_topo::usable_cpus();
  const std::string isa = fmt::format("{}", fmt::join(machine.isa, " "));
  const auto or_unknown = [](const std::string& text) { return text.empty() ? "unknown" : text; };
  session.print("Machine\n  cpu            {}\n  isa            {}\n",
                or_unknown(machine.cpu_model), or_unknown(isa));
  session.print("  cpus           {} online, affinity {}, cgroup quota {}: {:g} usable ({})\n",
                cpus.online, cpus.affinity,
                cpus.quota > 0 ? fmt::format("{:g}", cpus.quota) : "none", cpus.usable(),
                cpus.why());
  session.print("  memory         {}, cgroup limit {}, pages of {}\n",
                format_bytes(machine.memory_bytes),
                machine.memory_limit_bytes > 0 ? format_bytes(machine.memory_limit_bytes) : "none",
                format_bytes(machine.page_bytes));
  session.print("  system         {}, {}\n  cpu governor   {}\n", machine.kernel, machine.libc,
                or_unknown(machine.governor));
  session.result()["machine"] = {{"cpu", machine.cpu_model},
                                 {"isa", machine.isa},
                                 {"cpus_online", cpus.online},
                                 {"cpus_affinity", cpus.affinity},
                                 {"cgroup_quota", cpus.quota},
                                 {"cpus_usable", cpus.usable()},
                                 {"cpus_why", cpus.why()},
                                 {"memory_bytes", machine.memory_bytes},
                                 {"cgroup_memory_bytes", machine.memory_limit_bytes},
                                 {"page_bytes", machine.page_bytes},
                                 {"kernel", machine.kernel},
                                 {"libc", machine.libc},
                                 {"governor", machine.governor}};
}

void DoctorCommand::report_targets(Session& session) {
  session.print("Targets (--target) and the device that runs them (--device)\n");
  session.print("  {:<16} {:<18} kernels run on this machine\n", "cpu", "cpu");
  Json targets = Json::array({{{"target", "cpu"}, {"device", "cpu"}}});
  for (uint32_t i = 0; i < dvt_npu_soc_count(); ++i) {
    const std::string soc = dvt_npu_soc_name(i);
    session.print("  {:<16} {:<18} cycle-counted model\n", "ascend:" + soc, "npu-sim:" + soc);
    targets.push_back({{"target", "ascend:" + soc}, {"device", "npu-sim:" + soc}});
  }
  session.result()["targets"] = std::move(targets);
}

Status DoctorCommand::report_soc(Session& session) const {
  set_stage("soc");
  std::string resolved;
  auto device = open_device("npu-sim:" + soc_, "ascend:" + soc_, settings_, resolved);
  if (!device.ok()) return std::move(device.status());
  const DvtNpu* npu = device->npu.get();
  using Align = Table::Align;
  Table table({{"parameter", Align::kLeft},
               {"value"},
               {"unit", Align::kLeft},
               {"evidence", Align::kLeft},
               {"source", Align::kLeft}});
  Json parameters = Json::array();
  uint32_t assumptions = 0;
  for (uint32_t i = 0; i < dvt_npu_parameter_count(npu); ++i) {
    DvtNpuParameter parameter{};
    if (dvt_npu_parameter(npu, i, &parameter) != DVT_OK) continue;
    const bool assumed = parameter.evidence == 'A';
    assumptions += assumed ? 1 : 0;
    table.add_row({parameter.key, fmt::format("{:g}", parameter.value), parameter.unit,
                   parameter.overridden != 0 ? "overridden"
                   : assumed                 ? "A (assumption)"
                                             : std::string(1, parameter.evidence),
                   parameter.source});
    parameters.push_back({{"key", parameter.key},
                          {"value", parameter.value},
                          {"unit", parameter.unit},
                          {"evidence", std::string(1, parameter.evidence)},
                          {"overridden", parameter.overridden != 0},
                          {"source", parameter.source}});
  }
  session.print(
      "Parameters of {} (M measured, C vendor code, D vendor document, F fitted, "
      "A assumption; {} of {} are assumptions)\n{}",
      soc_, assumptions, parameters.size(), table.to_text());
  session.result()["soc"] = {{"name", soc_}, {"parameters", std::move(parameters)}};
  return {};
}

}  // namespace

std::unique_ptr<Command> make_doctor_command() {
  return std::make_unique<DoctorCommand>();
}

}  // namespace davit::cli
