// support.hpp: what the tests of passes share: graphs as text, and their results.
//
// Threads  One test at a time.
// Trust    Test data only.
// Memory   Results own their data.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "ir/module.hpp"
#include "ir/passes/passes.hpp"

namespace davit::testing {

// The main graph whose text form is `body`, under that opset, sorted and with all types inferred.
// Domains com.x and davit are imported too. Fails the test when there is no such graph.
ir::Module parse_graph(const std::string& body, int64_t opset = 13);

// The text of the main graph without the header; "const" lines in the order of their names.
std::string graph_text(const ir::Module& module);

ir::ValueId find_value(const ir::Module& module, std::string_view name);
ir::NodeId find_node(const ir::Module& module, std::string_view name);

// Inputs and outputs of the main graph by name.
using Tensors = std::map<std::string, ir::TensorData>;

// Numbers for the inputs, specials (NaN, infinities, zeros of both signs, extremes) among them when
// asked for. Precondition: static shapes.
Tensors random_inputs(const ir::Module& module, uint32_t seed, bool specials);

// Every node of the main graph by its reference kernel, one after the other.
Result<Tensors> evaluate_graph(const ir::Module& module, const Tensors& inputs);

// OK when the outputs agree; NaN equals NaN. `relative` is a part of the largest |expected| of an
// output; 0 asks for equal bits.
Status compare_outputs(const Tensors& expected, const Tensors& got, double relative);

struct PassCase {
  std::string pass;
  std::string before, after;  // Bodies, as for parse_graph().
  int64_t opset = 13;
  double relative = 0;    // Of results: see compare_outputs().
  bool evaluates = true;  // Results are compared; otherwise only the graphs are.
  bool specials = true;   // Inputs hold special numbers.
};

// The pass turns `before` into `after`, again and again if it needs it (dead nodes and folded ones
// are cleared away); then does nothing more; and no result changes. Returns what it refused.
passes::Refusals check_pass(const PassCase& sample);

// The pass leaves the graph alone. Returns what it refused.
passes::Refusals check_untouched(const std::string& pass, const std::string& body,
                                 int64_t opset = 13);

}  // namespace davit::testing
