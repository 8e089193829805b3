// image_bench: what it costs to open, verify and load an image of 100,000 nodes and 300,000 edges:
// time, memory, and whether constants stay where they are.
//
// Memory is measured in child processes, because a peak cannot be taken back: VmHWM of the child
// minus its resident size before the step. Pages of the mapped file count as well (user report I7).
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench/graphs.hpp"
#include "bench/report.hpp"
#include "davit/davit.hpp"

namespace {

namespace fs = std::filesystem;

// Nodes 1,000 to 99,999 read three nodes of the layer before; 3,000 of them read a fourth.
constexpr davit::bench::LayeredGraph kGraph = {
    .layers = 100, .width = 1'000, .inputs = 3, .extra_every = 33, .value_bytes = 64};
constexpr uint64_t kConstantBytes = uint64_t{64} << 20;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "image_bench: %s\n", why.c_str());
  std::_Exit(1);
}

DvtImageOptions options() {
  static const DvtKernelTable tables[] = {davit::bench::empty_kernels()};
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = tables;
  options.kernel_table_count = 1;
  return options;
}

davit::Image open_image(const std::string& path) {
  const DvtImageOptions with_kernels = options();
  auto image = davit::Image::open(path, &with_kernels);
  if (!image) give_up(image.error().text());
  return std::move(*image);
}

davit::Executor load(const davit::Image& image) {
  auto executor = davit::Executor::create(image);
  if (!executor) give_up(executor.error().text());
  return std::move(*executor);
}

// A line of /proc/self/status, such as "VmHWM", in bytes.
double status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stod(line.substr(field.size() + 1)) * 1024;
  }
  give_up("no " + field + " in /proc/self/status");
}

// Runs `measurement` in a child process and returns its result.
double in_child(const std::function<double()>& measurement) {
  int ends[2];
  if (::pipe(ends) != 0) give_up("no pipe");
  const pid_t child = ::fork();
  if (child < 0) give_up("no child process");
  if (child == 0) {
    const double result = measurement();
    const bool sent = ::write(ends[1], &result, sizeof result) == sizeof result;
    std::_Exit(sent ? 0 : 1);
  }
  double result = 0;
  int status = 0;
  const bool received = ::read(ends[0], &result, sizeof result) == sizeof result;
  ::waitpid(child, &status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  if (!received || status != 0) give_up("a child process failed");
  return result;
}

// True when the address lies in a mapping of the file.
bool is_mapped_from(const void* address, const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (begin <= wanted && wanted < end) return line.find(path) != std::string::npos;
  }
  return false;
}

void measure_time(davit::bench::Report& report, const std::string& path) {
  const std::vector<std::function<void()>> steps = {
      [&] {
        const davit::Image image = open_image(path);
        const davit::Executor executor = load(image);
      },
      [&] { const davit::Image image = open_image(path); },
  };
  const auto cpu = davit::bench::measure(steps, {.samples = 31});
  const auto wall =
      davit::bench::measure(steps, {.clock = davit::bench::Clock::kWall, .samples = 31});
  const auto add = [&](const char* metric, double ns, std::optional<double> limit = std::nullopt) {
    report.add({.metric = metric, .value = ns / 1e6, .unit = "ms"}, limit);
  };
  // The file is in the page cache, so on a machine of one's own both clocks agree.
  add("open + verify + load, 100,000 nodes, 300,000 edges", cpu.median_ns[0], 15);
  add("  of this, open + verify", cpu.median_ns[1]);
  add("  wall time, with whatever else runs on the machine", wall.median_ns[0]);
}

void measure_memory(davit::bench::Report& report, const std::string& path) {
  const DvtImageInfo info = open_image(path).info();
  const auto file_and_executor = static_cast<double>(info.file_bytes + info.executor_bytes);
  const double peak = in_child([&] {
    const double before = status_bytes("VmRSS");
    const davit::Image image = open_image(path);
    const davit::Executor executor = load(image);
    return status_bytes("VmHWM") - before;
  });
  report.add({.metric = "peak memory at load",
              .value = peak / 1e6,
              .unit = "MB",
              .peer = "file + executor",
              .peer_value = file_and_executor / 1e6},
             1.1);

  const double second = in_child([&] {
    const davit::Image image = open_image(path);
    const davit::Executor first = load(image);
    const double before = status_bytes("VmRSS");
    const davit::Executor second = load(image);
    return status_bytes("VmRSS") - before;
  });
  report.add({.metric = "a second executor of the image",
              .value = second / 1e6,
              .unit = "MB",
              .peer = "executor_bytes of the image",
              .peer_value = static_cast<double>(info.executor_bytes) / 1e6},
             1.1);
}

void check_constants(davit::bench::Report& report, const std::string& path,
                     const std::string& small_path) {
  const davit::Image image = open_image(path);
  davit::Executor executor = load(image);
  const void* constant = nullptr;
  const davit::Error error = executor.run_observed([&](const DvtNodeEvent& event) {
    if (event.node == 0) constant = dvt_input(event.context, 0)->data;
  });
  if (error) give_up(error.text());
  report.add({.metric = "constants that are not in the mapped file (0 of 1)",
              .value = is_mapped_from(constant, path) ? 0.0 : 1.0,
              .unit = "tensors"},
             0);
  // Mapping the metadata may map its neighbours in the page cache as well, up to 2 MiB.
  const auto load_unchecked = [](const std::string& from) {
    DvtImageOptions unchecked = options();
    unchecked.skip_digests = 1;
    const auto opened = davit::Image::open(from, &unchecked);
    if (!opened) give_up(opened.error().text());
    const davit::Executor loaded = load(*opened);
    return status_bytes("VmHWM");
  };
  const double growth = in_child([&] {
    const double code_pages_are_in = load_unchecked(small_path);
    return load_unchecked(path) - code_pages_are_in;
  });
  report.add({.metric = "memory that 64 MiB of constants add at load, no digests",
              .value = growth / 1e6,
              .unit = "MB"},
             4);
}

void write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) give_up("cannot write " + path);
}

}  // namespace

int main(int argc, char** argv) {
  davit::bench::Report report("image_bench", argc, argv, davit::bench::Parts::kWhole);
  const fs::path folder =
      fs::temp_directory_path() / ("davit_image_bench_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const std::string graph = folder / "graph.davit";
  const std::string constants = folder / "constants.davit";
  const std::string few_constants = folder / "few_constants.davit";
  write_file(graph, davit::bench::layered_image(kGraph));
  write_file(constants,
             davit::bench::layered_image({.inputs = 0, .constant_bytes = kConstantBytes}));
  write_file(few_constants, davit::bench::layered_image({.inputs = 0, .constant_bytes = 64}));
  measure_memory(report, graph);
  measure_time(report, graph);
  check_constants(report, constants, few_constants);
  fs::remove_all(folder);
  return report.finish();
}
