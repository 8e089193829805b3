// named_bench: a benchmark that does what the name says that it is called by, so that one program
// serves as several.
#include <cstdlib>
#include <string>

#include "bench/report.hpp"

int main(int argc, char** argv) {
  using namespace davit::bench;
  const std::string path = argv[0];
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "crash_bench") std::abort();
  if (name == "quit_bench") return 1;
  if (name == "whole_bench") {
    Report report("whole_bench", argc, argv, Parts::kWhole);
    report.add({.metric = "all", .value = 1, .unit = "ns"});
    return report.finish();
  }
  Report report(name.c_str(), argc, argv);
  if (report.wants("first part")) report.add({.metric = "first", .value = 1, .unit = "ns"}, 2);
  if (report.wants("second part")) {
    const double value = name == "slow_bench" ? 3 : 1;
    report.add(
        {.metric = "second", .value = value, .unit = "ns", .peer = "loop", .peer_value = 1.0}, 2);
  }
  return report.finish();
}
