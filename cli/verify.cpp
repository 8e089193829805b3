// davit verify: checks an image completely and says what was checked.

#include <fmt/format.h>

#include "base/dtype.hpp"
#include "cli/command.hpp"
#include "cli/model.hpp"
#include "cli/plugins.hpp"
#include "cli/report.hpp"
#include "cli/signed_image.hpp"
#include "cli/stage.hpp"
#include "exec/image.hpp"
#include "exec/liveness.hpp"
#include "exec/weights.hpp"

namespace davit::cli {
namespace {

class VerifyCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "verify"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Check everything in an image that running relies on";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add("image,-m,--model", path_, "Image to check", "", FileUse::kRead);
    options.add("--liveness", liveness_,
                "Also prove that no run waits for ever for Free-to-Launch relations",
                "or show who waits for whom");
    signature_.add_options(options);
    plugins_.add_options(options);
  }

  Status run(Session& session, OptionSet& options) override {
    session.echo_settings(options);
    if (path_.empty()) return usage_error("an image is needed", "davit verify IMAGE");
    if (Status status = signature_.check(); !status.ok()) return status;
    if (Status status = plugins_.load(); !status.ok()) return status;
    set_stage("verify");
    const double begin = now_ns();
    DvtImage* raw = nullptr;
    DvtError error{};
    DvtImageOptions image_options;
    dvt_image_options_init(&image_options);
    image_options.kernel_tables = plugins_.kernel_tables().data();
    image_options.kernel_table_count = plugins_.kernel_tables().size();
    if (signature_.open(path_, &image_options, &raw, &error) != DVT_OK) {
      return status_of(error);
    }
    const ImagePtr image(raw);
    if (Status status = session.check_files(options, weights_beside(path_, image->mapping.bytes()));
        !status.ok()) {
      return status;
    }
    report(session, *image, image->mapping.bytes(), now_ns() - begin);
    std::vector<std::string> kernels;
    for (const exec::KernelRefView& kernel : image->view.kernel_refs) {
      kernels.push_back(kernel.name);
    }
    plugins_.report_unused(session, "image", kernels, {});
    return liveness_ ? report_liveness(session, image->view) : Status();
  }

 private:
  void report(Session& session, const DvtImage& image, std::span<const std::byte> bytes,
              double elapsed_ns) const;

  static Status report_liveness(Session& session, const exec::ImageView& view);

  bool liveness_ = false;
  std::string path_;
  PluginArguments plugins_;
  SignatureArguments signature_;
};

const char* segment_name(uint32_t kind) {
  switch (kind) {
    case DVT_SEGMENT_METADATA:
      return "metadata";
    case DVT_SEGMENT_CODE:
      return "code";
    case DVT_SEGMENT_CONSTANTS:
      return "constants";
    default:
      return "unknown (skipped)";
  }
}

std::string hex(std::span<const uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes.begin(), bytes.end(), ""));
}

void VerifyCommand::report(Session& session, const DvtImage& image,
                           std::span<const std::byte> bytes, double elapsed_ns) const {
  // Verified above: header and segment table are there and in range.
  DvtImageHeader header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string digest = hex(header.digest);
  const exec::ImageView& view = image.view;
  const std::string producer = view.provenance.producer;
  session.print("Image {}: format {}.{}, target {}, {}{}{}\n", path_, header.version_major,
                header.version_minor, view.target_name, format_bytes(view.file_bytes),
                producer.empty() ? "" : ", producer: ", producer);
  session.print("  digest      {} (header and segment table)\n", digest);
  Json segments = Json::array();
  for (uint32_t i = 0; i < header.segment_count; ++i) {
    DvtSegment segment{};
    std::memcpy(&segment, bytes.data() + sizeof header + i * sizeof segment, sizeof segment);
    const bool external = (segment.flags & DVT_SEGMENT_EXTERNAL) != 0;
    const std::string place = external ? "in " + exec::weights_file_name(segment.digest)
                                       : "at " + std::to_string(segment.offset);
    session.print("  segment     {} {}, {} bytes, digest {}\n", segment_name(segment.kind), place,
                  segment.size, hex(segment.digest));
    segments.push_back({{"kind", segment_name(segment.kind)},
                        {"offset", segment.offset},
                        {"bytes", segment.size},
                        {"file", external ? Json(exec::weights_file_name(segment.digest)) : Json()},
                        {"digest", hex(segment.digest)}});
  }
  uint64_t nodes = 0, edges = 0;
  for (const exec::GraphView& graph : view.graphs) {
    nodes += graph.node_count;
    edges += graph.edge_count;
  }
  const uint32_t workers = view.graphs[view.main].part_count;
  const std::pair<const char*, std::string> checks[] = {
      {"container", "header, versions, segment table, XXH3-128 digests"},
      {"tables", fmt::format("{}, {}, {}, {}, {}, {}", format_count(view.values.count, "value"),
                             format_count(view.desc_count, "descriptor"),
                             format_count(view.strings.size(), "string"),
                             format_count(view.inputs.size(), "input"),
                             format_count(view.outputs.size(), "output"),
                             format_count(view.cost_count, "cost"))},
      {"graphs", fmt::format("{}, {}, {}: CSR offsets, ranges, order, lanes",
                             format_count(view.graphs.size(), "graph"), format_count(nodes, "node"),
                             format_count(edges, "edge"))},
      {"dataflow", "every value written once, before it is read; edges cover all dependences"},
      {"memory plan", fmt::format("{} bytes, lower bound {}: alignment, range, no live overlap",
                                  view.arena_bytes, view.lower_bound_bytes)},
      {"schedule", workers == 0 ? std::string("none")
                                : fmt::format("for {}: every node once, no circle of waits, all "
                                              "that shares bytes in order",
                                              format_count(workers, "worker"))},
      {"kernels", fmt::format("{} found, ABI and flags agree, each node's check passed",
                              format_count(view.kernels.size(), "kernel"))},
  };
  Json checked = Json::object();
  for (const auto& [name, what] : checks) {
    session.print("  checked     {}: {}\n", name, what);
    checked[name] = what;
  }
  session.print("Verified in {}\n", format_time(elapsed_ns));
  session.result() = {{"path", path_},
                      {"digest", digest},
                      {"target", view.target_name},
                      {"format", fmt::format("{}.{}", header.version_major, header.version_minor)},
                      {"file_bytes", view.file_bytes},
                      {"segments", std::move(segments)},
                      {"checked", std::move(checked)},
                      {"verify_ns", elapsed_ns}};
}

Status VerifyCommand::report_liveness(Session& session, const exec::ImageView& view) {
  uint64_t relations = 0;
  for (const exec::GraphView& graph : view.graphs) {
    const exec::Liveness liveness = exec::prove_liveness(view, graph);
    relations += liveness.relations;
    if (liveness.proved()) continue;
    return Status(ErrorDetail{
        .code = DVT_INVALID_IMAGE,
        .stage = DVT_STAGE_CHECK,
        .message = "liveness is not proved: " + exec::describe_liveness(view, graph, liveness),
        .hint = "executors run this image in order"});
  }
  session.print("Liveness proved: {}, none waits for memory behind who waits for it\n",
                format_count(relations, "Free-to-Launch relation"));
  session.result()["liveness"] = {{"proved", true}, {"relations", relations}};
  return {};
}

}  // namespace

std::unique_ptr<Command> make_verify_command() {
  return std::make_unique<VerifyCommand>();
}

}  // namespace davit::cli
