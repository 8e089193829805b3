// node_times.hpp: what the nodes of a model take on this machine.
//
// Threads  One thread.
// Memory   8 bytes for each node and run while it measures.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "cli/runner.hpp"

namespace davit::cli {

// Nanoseconds of each of the `nodes` nodes of Main: medians of `iterations` observed runs, after
// one that touches all pages. 0 for nodes that run once only (those that depend on shapes alone).
// Precondition: inputs are bound.
Result<std::vector<double>> measure_nodes(Runner& runner, size_t nodes, uint64_t iterations);

// The upper one of an even number; 0 of none.
double median_of(std::vector<double> samples);

}  // namespace davit::cli
