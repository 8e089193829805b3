#include "lowering/share_memory.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace davit::lowering {
namespace {

using ir::ValueId;
using Part = Prepared::Part;

// The verifier counts the values behind a joined one at each read, and has a limit (verify_dataflow
// .cpp); a fourth of that is enough for every model.
constexpr uint64_t kJoinedReadsMax = uint64_t{1} << 20;
constexpr size_t kBodyPartsMax = 4096;

class Sharer {
 public:
  Sharer(const ir::Module& module, Prepared& prepared, const Sharing& sharing, uint64_t alignment,
         passes::Refusals& refusals)
      : module_(module),
        prepared_(prepared),
        sharing_(sharing),
        alignment_(alignment),
        refusals_(refusals),
        is_port_(module.value_count(), false),
        reads_(module.value_count(), 0) {}

  void run() {
    const size_t values = module_.value_count();
    prepared_.distance.assign(values, 0);
    prepared_.joined.resize(values);
    prepared_.body.assign(values, image::kNone);
    for (const ValueId output : module_.graph_outputs(ir::kMainGraph)) {
      is_port_[index_of(prepared_.root_of(output))] = true;
    }
    for (const Step& step : prepared_.steps) {
      for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
        const ValueId value = step.input(module_, k);
        if (value != ir::kNoValue) ++reads_[index_of(prepared_.root_of(value))];
      }
    }
    std::vector<Step> kept;
    for (Step& step : prepared_.steps) {
      if (sharing_.view_parts && view_parts(step)) {
        ++prepared_.aliased_nodes;
      } else if (sharing_.join_parts && join(step)) {
        ++prepared_.joined_nodes;
      } else {
        kept.push_back(std::move(step));
      }
    }
    prepared_.steps = std::move(kept);
    // Views of what has become a part of something.
    for (uint32_t i = 0; i < values; ++i) {
      const auto [root, distance] = resolve(ValueId(i));
      prepared_.root[i] = root;
      prepared_.distance[i] = distance;
    }
    settle_bodies();
  }

 private:
  // The root of a value and where in it the value begins, whatever has become of them so far.
  [[nodiscard]] Part resolve(ValueId value) const {
    const ValueId first = prepared_.root_of(value);
    const ValueId root = prepared_.root_of(first);
    const uint64_t more = first == value ? 0 : prepared_.distance_of(first);
    return {root, prepared_.distance_of(value) + more};
  }

  [[nodiscard]] std::optional<uint64_t> bytes_of(ValueId value) const {
    const auto tensor = tensor_of(module_, value);
    return tensor.ok() ? std::optional(tensor->bytes) : std::nullopt;
  }

  bool refuse(const Step& step, std::string_view pass, std::string reason) {
    refusals_.push_back({std::string(pass), module_.node_path(step.node), std::move(reason)});
    return false;
  }

  // Why the bytes of a root cannot lie where lowering likes; empty if they can.
  [[nodiscard]] std::string why_elsewhere(ValueId root) const {
    const std::string name = "'" + std::string(module_.value_name(root)) + "'";
    if (is_port_[index_of(root)]) return name + " is an output of the graph";
    if (module_.producer(root) != ir::kNoNode) return {};
    return name +
           (module_.constant(root) == nullptr ? " is an input of the graph" : " is a constant");
  }

  bool view_parts(const Step& step) {
    const ops::Recipe& recipe = step.recipe;
    if (recipe.part_offsets.empty() || recipe.part_offsets.size() != recipe.outputs.size()) {
      return false;
    }
    const auto [root, distance] = resolve(step.input(module_, 0));
    const auto whole = bytes_of(root);
    if (!whole) return false;
    const auto leave = [&](std::string reason) {
      return refuse(step, "view_parts", std::move(reason));
    };
    if (std::string reason = why_elsewhere(root); !reason.empty()) return leave(std::move(reason));
    uint64_t total = 0;
    for (size_t k = 0; k < recipe.outputs.size(); ++k) {
      const ValueId output = step.output(module_, k);
      const auto bytes = bytes_of(output);
      const uint64_t at = distance + recipe.part_offsets[k];
      if (!bytes || *bytes == 0) return false;
      if (is_port_[index_of(output)]) return leave(why_elsewhere(output));
      if (at % alignment_ != 0) return leave("a piece begins at an odd address");
      total += *bytes;
    }
    if (total < *whole / 2) return leave("the rest of the value would stay in memory");
    for (size_t k = 0; k < recipe.outputs.size(); ++k) {
      const size_t output = index_of(step.output(module_, k));
      prepared_.root[output] = root;
      prepared_.distance[output] = distance + recipe.part_offsets[k];
      reads_[index_of(root)] += reads_[output];
    }
    return true;
  }

  bool join(const Step& step) {
    if (!step.recipe.joins_inputs) return false;
    const ValueId output = step.output(module_, 0);
    const auto leave = [&](std::string reason) {
      return refuse(step, "join_parts", std::move(reason));
    };
    if (is_port_[index_of(output)]) return leave(why_elsewhere(output));
    std::vector<Part> parts;
    uint64_t end = 0;
    for (size_t k = 0; k < step.recipe.inputs.size(); ++k) {
      const ValueId input = step.input(module_, k);
      const auto [root, distance] = resolve(input);
      const auto bytes = bytes_of(input);
      if (!bytes) return false;
      if (*bytes == 0) continue;
      if (std::string reason = why_elsewhere(root); !reason.empty()) {
        return leave(std::move(reason));
      }
      if (distance != 0 || bytes_of(root) != bytes) return leave("an input is a piece of a value");
      if (end % alignment_ != 0) return leave("an input would begin at an odd address");
      prepared_.for_each_written(root, [&](ValueId value, uint64_t within) {
        parts.push_back({value, end + within});
      });
      end += *bytes;
      if (parts.size() > kBodyPartsMax) return leave("too many values lie together");
    }
    const uint64_t reads = parts.size() * (uint64_t{reads_[index_of(output)]} + 1);
    if (parts.size() < 2) return false;
    if (joined_reads_ + reads > kJoinedReadsMax) return leave("too many values are read together");
    if (!merge(parts)) return leave("an input has other neighbours already");
    joined_reads_ += reads;
    prepared_.joined[index_of(output)] = std::move(parts);
    return true;
  }

  // Distances in bodies may be negative until settle_bodies().
  struct Member {
    ValueId value;
    int64_t distance, end;
  };

  // Ties the parts together with what they are tied to already. False if distances contradict each
  // other, or values would share bytes.
  bool merge(const std::vector<Part>& parts) {
    std::vector<uint32_t> old;
    std::vector<Member> members;
    const auto among = [](const std::vector<Member>& list, ValueId value) {
      return std::find_if(list.begin(), list.end(),
                          [&](const Member& member) { return member.value == value; });
    };
    for (const Part& part : parts) {
      const uint32_t body = prepared_.body[index_of(part.value)];
      const auto at = static_cast<int64_t>(part.distance);
      if (body == image::kNone) {
        if (among(members, part.value) != members.end()) return false;  // Cannot lie twice.
        members.push_back({part.value, at, at + static_cast<int64_t>(*bytes_of(part.value))});
        continue;
      }
      if (std::find(old.begin(), old.end(), body) != old.end()) {
        // Its members are here: this one has to be where it is wanted.
        if (among(members, part.value)->distance != at) return false;
        continue;
      }
      old.push_back(body);
      const auto& known = bodies_[body];
      const int64_t shift = at - among(known, part.value)->distance;
      for (const Member& member : known) {
        members.push_back({member.value, member.distance + shift, member.end + shift});
      }
    }
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.distance < b.distance; });
    for (size_t i = 1; i < members.size(); ++i) {
      if (members[i].distance < members[i - 1].end) return false;
    }
    if (members.size() > kBodyPartsMax) return false;
    const auto body = static_cast<uint32_t>(bodies_.size());
    for (const Member& member : members) prepared_.body[index_of(member.value)] = body;
    for (const uint32_t emptied : old) bodies_[emptied].clear();
    bodies_.push_back(std::move(members));
    return true;
  }

  void settle_bodies() {
    for (const std::vector<Member>& members : bodies_) {
      std::vector<Part> parts;
      for (const Member& member : members) {
        parts.push_back(
            {member.value, static_cast<uint64_t>(member.distance - members.front().distance)});
      }
      if (!parts.empty()) prepared_.bodies.push_back(std::move(parts));
    }
    prepared_.body.assign(prepared_.body.size(), image::kNone);
    for (uint32_t body = 0; body < prepared_.bodies.size(); ++body) {
      for (const Part& part : prepared_.bodies[body]) prepared_.body[index_of(part.value)] = body;
    }
  }

  const ir::Module& module_;
  Prepared& prepared_;
  const Sharing& sharing_;
  const uint64_t alignment_;
  passes::Refusals& refusals_;
  std::vector<bool> is_port_;    // By root: an output of the graph shows its bytes.
  std::vector<uint32_t> reads_;  // By root.
  uint64_t joined_reads_ = 0;
  std::vector<std::vector<Member>> bodies_;  // Emptied ones were merged into others.
};

}  // namespace

void share_memory(const ir::Module& module, Prepared& prepared, const Sharing& sharing,
                  uint64_t alignment, passes::Refusals& refusals) {
  if (!sharing.view_parts && !sharing.join_parts) return;
  Sharer(module, prepared, sharing, alignment, refusals).run();
}

}  // namespace davit::lowering
