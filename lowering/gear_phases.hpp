// gear_phases.hpp: Init and DeInit of a device image with gears, from those of each gear.
//
//   Init    of gear 0, then what the others have beyond it. Memory whose content is there already,
//   a
//           weight or what is computed of weights alone, becomes a reference (BuildRefTensor).
//   DeInit  SyncStream of each stream; FreeMemHbm of what Init holds; the events; the streams
//
// Threads  One merger at a time.
// Trust    Graphs are those of lower_ascend(), with values and kernels of the common model.
// Memory   Borrows the common model, whose values they name; owns the nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lowering/image/image_model.hpp"

namespace davit::lowering {

class GearPhases {
 public:
  explicit GearPhases(image::ImageModel& model) : model_(model) {}

  // Those of one gear, in this order.
  void add_init(image::Graph graph);
  void add_deinit(image::Graph graph);
  // Appends both graphs, if there were any.
  void finish(std::vector<image::Graph>& graphs);

 private:
  [[nodiscard]] const std::string& kernel_of(const image::Node& node) const {
    return model_.kernels[node.kernel].name;
  }
  [[nodiscard]] std::string operand_text(uint32_t value) const;
  [[nodiscard]] std::string work_text(const image::Node& node) const;
  void note_content(uint32_t value, std::string text);
  void find_contents(const image::Graph& graph);
  [[nodiscard]] uint32_t known_node(const image::Node& node) const;
  void refer_to_known(image::Node& allocation);
  uint32_t append_init(image::Node node);

  image::ImageModel& model_;
  image::Graph init_{.role = image::GraphRole::kInit, .nodes = {}};
  image::Graph deinit_{.role = image::GraphRole::kDeInit, .nodes = {}};
  std::map<std::string, uint32_t> numbers_;  // Of contents, by what they are made of.
  std::map<uint32_t, uint32_t> content_;     // By value of Init: its content.
  std::map<uint32_t, uint32_t> holder_;      // By content: the value whose memory has it.
  std::map<uint32_t, uint32_t> maker_;       // By content: the node of Init that submits it.
  std::map<std::string, uint32_t> created_;  // Streams and events: the node of Init.
  std::vector<image::Node> init_syncs_;      // At most one.
  std::vector<uint32_t> before_sync_;        // Nodes of Init.
  std::map<std::string, image::Node> syncs_, events_, streams_;  // Of DeInit.
  std::vector<image::Node> frees_;
};

}  // namespace davit::lowering
