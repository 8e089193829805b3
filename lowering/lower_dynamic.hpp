// lower_dynamic.hpp: the lowering behind lower_cpu_dynamic() and lower_ascend_dynamic()
// (lowering/lower.hpp).
//
// Where the bytes of a value are:
//
//   constants, static inputs and outputs    as in lower_cpu()
//   static shape, in the main graph         planned, with an interval
//   all else that a kernel computes         heap: InferShape, AllocHost, the kernel, FreeHost
//   a view whose shape is not static        a heap value without memory: InferShape, ReferTo
//
// Values of bodies are heap values: the plan cannot reuse memory inside a body.
//
// For ascend, kernels of the main graph that a device can run are launched there, on device values;
// shape arithmetic, what depends on data, and bodies run on the host. Values are copied when the
// other side needs them, once.
//
// Threads, trust  As lower.hpp.
// Memory          Borrows the module.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exec/dynamic.h"
#include "lowering/lower.hpp"
#include "lowering/prepare.hpp"

namespace davit::lowering {

class DynamicLowering {
 public:
  // `soc` empty: for the cpu.
  DynamicLowering(const ir::Module& module, const std::string& soc);
  Result<Lowered> run();

 private:
  // What becomes of one node of the module, or a copy into an output.
  struct Item {
    enum class Kind : uint8_t { kKernel, kReference, kIf, kLoop, kCopy };
    Kind kind = Kind::kKernel;
    Step step{};                         // Of kernels and references.
    ir::NodeId node = ir::kNoNode;       // Of the others; none for a copy.
    std::vector<ir::ValueId> reads;      // With what the bodies of the node capture.
    ir::ValueId defines = ir::kNoValue;  // Of a copy: the value that it gives memory to.
    // What lowering has found out.
    uint64_t position = 0;      // In time, for the plan.
    bool infers_early = false;  // Its InferShape is a shape node ...
    bool on_device = false;
    bool runs_early = false;                         // ... and it is one itself.
    bool has_operands = false;                       // inputs and outputs are filled in.
    std::vector<uint32_t> inputs, outputs, scratch;  // Image values; scratch is among outputs.
    uint32_t infer_node = image::kNone;
    bool output_bound = false;
  };
  // A graph of the image in the making.
  struct Scope {
    ir::GraphId source = ir::kMainGraph;
    image::Graph graph;
    std::vector<Item> items;
    std::map<ir::ValueId, size_t> last_item;               // By heap root that this graph frees.
    std::map<ir::ValueId, std::vector<uint32_t>> readers;  // By heap root: image nodes.
  };

  // lower_dynamic.cpp: what each value is.
  Status collect(ir::GraphId graph, std::vector<Item>& items);
  Result<Item> item_of(ir::NodeId node);
  void collect_captures(ir::NodeId node, std::vector<ir::ValueId>& reads) const;
  void classify_values();
  void claim_outputs();
  void order_main(Scope& scope);
  [[nodiscard]] bool is_static(ir::ValueId value) const;
  [[nodiscard]] bool is_computed(ir::ValueId value) const;
  [[nodiscard]] bool is_heap(ir::ValueId value) const { return heap_[index_of(value)]; }
  [[nodiscard]] ir::ValueId root_of(ir::ValueId value) const { return root_[index_of(value)]; }
  [[nodiscard]] bool shape_known_early(ir::ValueId value) const;
  [[nodiscard]] bool data_known_early(ir::ValueId value) const;
  [[nodiscard]] bool is_dynamic(uint32_t image_value) const;
  [[nodiscard]] bool reads_on_host(const Item& item, size_t input) const;
  [[nodiscard]] bool needs_inference(const Item& item) const;

  // lower_dynamic_emit.cpp: nodes.
  image::Node host_node(DvtHostNode kind, const Item& item) const;
  Result<uint32_t> operand(ir::ValueId value);
  Result<uint32_t> planned(ir::ValueId value);
  Status give_operands(Item& item);
  void emit_shape(Scope& scope, Item& item);
  void emit_memory(Scope& scope, Item& item);
  Status emit(Scope& scope, size_t index);
  Status emit_kernel(Scope& scope, Item& item);
  Status emit_if(Scope& scope, Item& item);
  Status emit_loop(Scope& scope, Item& item);
  void note_reads(Scope& scope, const Item& item, uint32_t node);
  void emit_frees(Scope& scope, size_t index);
  void find_last_items(Scope& scope);
  Status lower_main();
  // `copies`: parameters of the body that need memory of its own, and the planned values they are
  // in.
  using Copies = std::vector<std::pair<ir::ValueId, uint32_t>>;
  Result<uint32_t> lower_body(ir::GraphId graph, const std::vector<uint32_t>& results,
                              const Copies& copied_parameters);
  static Item copy_item(uint32_t from, uint32_t to);
  Result<Item> copy_item(ir::ValueId from, uint32_t to);
  void add_captures(const std::vector<uint32_t>& bodies, image::Node& node) const;
  void add_runner(Scope& scope, Item& item, image::Node node, std::vector<uint32_t> unused);
  uint32_t add_typed(image::ValueKind kind, DvtDType dtype, uint64_t offset, bool dynamic);
  Result<uint32_t> loop_parameter(ir::ValueId value, uint64_t position);
  Result<uint32_t> result_value(ir::ValueId outer, ir::ValueId inner);

  // lower_dynamic_device.cpp: what the device runs.
  void place_items(Scope& scope);
  [[nodiscard]] bool on_device(ir::ValueId value) const {
    return device_[index_of(root_of(value))];
  }
  image::Node device_node(DvtDeviceNode kind, const Item& item);
  Result<uint32_t> new_device_value(ir::ValueId value, bool dynamic);
  Result<uint32_t> device_operand(Scope& scope, const Item& item, ir::ValueId value);
  Result<uint32_t> upload(Scope& scope, const Item& item, ir::ValueId value);
  Result<uint32_t> weight(ir::ValueId value);
  Status download(Scope& scope, const Item& item, ir::ValueId value);
  Status download_for(Scope& scope, const Item& item);
  void append_copy_shape(Scope& scope, const Item& item, uint32_t from, uint32_t to);
  void append_alloc(Scope& scope, const Item& item, uint32_t value);
  void append_sync(image::Graph& graph, const Item& item);
  Status emit_on_device(Scope& scope, Item& item);
  Status emit_device_reference(Scope& scope, Item& item);
  Status emit_device_output(Scope& scope, Item& item, uint32_t port);
  void emit_device_frees(Scope& scope, size_t index);
  void append_free(Scope& scope, const Item& item, uint32_t value,
                   const std::vector<uint32_t>& users);
  void finish_device(Scope& scope);

  const ir::Module& module_;
  ModelBuilder builder_;
  std::map<ir::GraphId, std::vector<Item>> items_;  // By graph, in topological order.
  std::vector<ir::ValueId> root_;                   // By value: whose memory it uses.
  std::vector<bool> heap_;             // By value: it is a heap value, or a dynamic output.
  std::vector<bool> reference_;        // By value: a view that a ReferTo node makes.
  std::vector<bool> early_shape_;      // By value: a shape node gives its shape ...
  std::vector<bool> early_data_;       // ... and its data (of the root).
  std::vector<bool> loop_scalar_;      // By value: iteration or condition of a loop body.
  std::vector<uint32_t> port_;         // By value: the output port that it is written to.
  std::vector<uint32_t> image_value_;  // By value, or kNone.
  std::vector<std::optional<uint64_t>> place_;  // By root: index in intervals_.
  std::vector<uint64_t> born_, last_read_;      // By root: positions, for planned values.
  std::vector<Interval> intervals_;
  std::vector<uint32_t> input_values_, output_values_;
  std::vector<uint32_t> copied_ports_;
  uint64_t end_ = 0;       // Behind the last position.
  uint64_t position_ = 0;  // Of the main graph's item that is emitted.
  uint32_t aliased_nodes_ = 0;
  uint32_t launch_edges_removed_ = 0;

  // Of ascend.
  const bool for_device_;
  std::vector<bool> device_;            // By root: a kernel on the device computes it.
  std::vector<uint32_t> device_value_;  // By value: its image value on the device, or kNone.
  std::vector<uint32_t> uploads_;       // Device values that hold copies; freed at the end.
  std::vector<uint32_t> downloads_;     // Heap values, likewise.
  image::Graph init_, deinit_;
  std::vector<uint32_t> weights_;  // Device values that Init fills.
};

}  // namespace davit::lowering
