// test_data.hpp: the test folders of ONNX: test_data_set_K/input_I.pb and output_I.pb.
//
// Threads  One thread.
// Trust    Files are untrusted; their types are checked against the image.
// Memory   Sets own their tensors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/tensors.hpp"

namespace davit::cli {

// Folders test_data_set_* of `folder` in order of K; `folder` itself when it holds input_0.pb or
// output_0.pb. Never empty.
Result<std::vector<std::string>> find_test_sets(const std::string& folder);

struct TestSet {
  std::string folder;
  std::vector<HostTensor> inputs;   // In the order of the image's inputs.
  std::vector<HostTensor> outputs;  // In the order of the image's outputs.
};

// A tensor belongs to the port of its name, or to that of its index when its name is not a port's.
// Inputs that were frozen at compilation have no port and are skipped.
Result<TestSet> read_test_set(const std::string& folder, std::span<const PortType> inputs,
                              std::span<const PortType> outputs);

}  // namespace davit::cli
