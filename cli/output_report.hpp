// output_report.hpp: outputs in a table, so that a person sees at once whether they are sane.
//
// Threads  One.
// Memory   Borrows what it prints.
#pragma once

#include <span>

#include "cli/session.hpp"
#include "cli/tensors.hpp"

namespace davit::cli {

// A row each: type, range, mean, values that are not finite, and the XXH3-128 of the bytes. To
// stdout and JSON.
void report_outputs(Session& session, std::span<const HostTensor> outputs);

}  // namespace davit::cli
