// An allocation that waits for a launch, under chosen interleavings: the dynamic schedule, the
// books of relations and the blocks that are held, all of them the code of the product.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/held_blocks.hpp"
#include "exec/mt_topo/dynamic.hpp"
#include "tests/exec/mt_topo/explorer.hpp"

using namespace davit;           // NOLINT(google-build-using-namespace)
using namespace davit::mt_topo;  // NOLINT(google-build-using-namespace)
using davit::test::Exploration;
using davit::test::Explored;
using davit::test::ExploredCrew;
using davit::test::ExploreOptions;
using davit::test::Explorer;

namespace {

constexpr int64_t kSpinNs = 1000;

enum class Kind : uint8_t { kPlain, kMemory, kAlloc, kFree, kLaunch };
enum class Wait : uint8_t { kSuspended, kInPlace, kNever };

struct Node {
  Kind kind = Kind::kPlain;
  std::vector<uint32_t> to;
};

// A graph on a device that has memory for one block. The only Free is of the block that the first
// allocation gets and the launches use.
class Subject {
 public:
  Subject(std::vector<Node> nodes, Wait wait)
      : nodes_(std::move(nodes)), wait_(wait), contexts_(nodes_.size()) {
    offsets_.push_back(0);
    row_offsets_.push_back(0);
    indegree_.resize(nodes_.size());
    for (uint32_t index = 0; index < nodes_.size(); ++index) {
      const Node& node = nodes_[index];
      contexts_[index] = {this, index};
      steps_.push_back({run_node, &contexts_[index]});
      kernel_.push_back(static_cast<uint32_t>(node.kind));
      lane_.push_back(static_cast<uint8_t>(kFlags[kernel_.back()] & DVT_KERNEL_LANE_MASK));
      for (const uint32_t to : node.to) {
        successors_.push_back(to);
        ++indegree_[to];
      }
      offsets_.push_back(static_cast<uint32_t>(successors_.size()));
    }
    for (const Node& node : nodes_) {
      for (uint32_t i = 0; node.kind == Kind::kFree && i < nodes_.size(); ++i) {
        if (nodes_[i].kind == Kind::kLaunch) rows_.push_back(i);
      }
      row_offsets_.push_back(static_cast<uint32_t>(rows_.size()));
    }
    topology_ = std::make_unique<Topology>(Tables{.steps = steps_,
                                                  .successor_offsets = offsets_,
                                                  .successors = successors_,
                                                  .indegree = indegree_,
                                                  .lane = lane_,
                                                  .priority = {},
                                                  .may_suspend = wait == Wait::kSuspended});
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  Exploration explore(const ExploreOptions& options, uint32_t workers = 2, uint32_t runs = 1) {
    return Explorer::explore(options, [&] {
      auto books = exec::Relations<Explored>::create({.kernel = kernel_,
                                                      .kernel_flags = kFlags,
                                                      .free_offsets = row_offsets_,
                                                      .free_launches = rows_});
      blocks_ = std::make_unique<Blocks>(std::move(*books), 1);
      Dynamic<Explored> way(*topology_, workers, kSpinNs);
      ExploredCrew crew(workers - 1, kSpinNs);
      for (uint32_t run = 0; run < runs; ++run) {
        submitted_.assign(nodes_.size(), false);
        ran_.assign(nodes_.size(), 0);
        live_ = 0;
        blocks_->begin_run();
        check(way.run(&crew, workers - 1, {}, nullptr, 1));
      }
      crew.stop();
      while (crew.attending() != 0) Explored::relax();
    });
  }

  // Over all executions.
  [[nodiscard]] uint64_t suspensions() const { return suspensions_; }

 private:
  using Blocks = exec::HeldBlocks<Explored, uint32_t>;
  static constexpr uint32_t kFlags[] = {0, DVT_KERNEL_LANE_MEMORY, DVT_KERNEL_LANE_MEMORY,
                                        DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE,
                                        DVT_KERNEL_LANE_LAUNCH};
  struct Context {
    Subject* subject;
    uint32_t node;
  };
  struct Device {
    Subject& subject;
    int32_t allocate() {
      if (subject.live_ == 1) return DVT_OUT_OF_MEMORY;
      ++subject.live_;
      return DVT_OK;
    }
    int32_t release(uint32_t /*block*/) {
      --subject.live_;
      for (uint32_t i = 0; i < subject.nodes_.size(); ++i) {
        if (subject.nodes_[i].kind == Kind::kLaunch && !subject.submitted_[i]) {
          Explorer::current().fail("recycled before node " + std::to_string(i) + " was submitted");
        }
      }
      return DVT_OK;
    }
    void will_retry() {}
  };

  static int32_t run_node(void* context) {
    auto& mine = *static_cast<Context*>(context);
    return mine.subject->run(mine.node);
  }

  int32_t run(uint32_t node) {
    Explorer::current().point();  // A node takes its time.
    switch (nodes_[node].kind) {
      case Kind::kAlloc:
        if (const int32_t code = allocate(); code != DVT_OK) return code;
        break;
      case Kind::kFree:
        if (wait_ == Wait::kNever) {
          (void)Device{*this}.release(0);
        } else {
          (void)blocks_->free(Device{*this}, node, 0);
        }
        break;
      case Kind::kLaunch:
        submitted_[node] = true;
        blocks_->submitted(node);
        break;
      default:
        break;
    }
    ++ran_[node];
    return DVT_OK;
  }

  int32_t allocate() {
    int32_t code = blocks_->allocate(Device{*this});
    if (code == DVT_STEP_SUSPENDED) ++suspensions_;
    // What this design is known to get wrong: the allocation keeps the memory lane meanwhile.
    while (wait_ == Wait::kInPlace && code == DVT_STEP_SUSPENDED) {
      Explored::relax();
      code = blocks_->allocate(Device{*this});
    }
    return code;
  }

  void check(const Outcome& outcome) const {
    Explorer& explorer = Explorer::current();
    if (outcome.code != DVT_OK) explorer.fail("a run fails");
    for (const uint32_t runs : ran_) {
      if (runs != 1) explorer.fail("a node has not run once");
    }
  }

  std::vector<Node> nodes_;
  Wait wait_;
  std::vector<Context> contexts_;
  std::vector<DvtStep> steps_;
  std::vector<uint32_t> kernel_, offsets_, successors_, indegree_, row_offsets_, rows_;
  std::vector<uint8_t> lane_;
  std::unique_ptr<Topology> topology_;
  std::unique_ptr<Blocks> blocks_;
  std::vector<bool> submitted_;
  std::vector<uint32_t> ran_;
  uint32_t live_ = 0;
  uint64_t suspensions_ = 0;
};

// Alloc, Launch and Free of one block; the next Alloc needs it, and a node needs that.
const std::vector<Node> kLate = {{Kind::kAlloc, {1, 2}},
                                 {Kind::kLaunch, {}},
                                 {Kind::kFree, {3}},
                                 {Kind::kAlloc, {4}},
                                 {Kind::kPlain, {}}};
// The same, but the Launch needs a memory node that nobody orders before the second Alloc.
const std::vector<Node> kCrossed = {{Kind::kAlloc, {1, 2, 3}},
                                    {Kind::kMemory, {2}},
                                    {Kind::kLaunch, {}},
                                    {Kind::kFree, {4}},
                                    {Kind::kAlloc, {}}};

void check_complete(const Exploration& found) {
  CHECK_MESSAGE(found.failure.empty(), found.failure);
  CHECK(found.complete);
  CHECK(found.executions > 100);
}

}  // namespace

TEST_CASE("a suspended allocation goes on when its launch is submitted, in every interleaving") {
  for (const auto& nodes : {kLate, kCrossed}) {
    Subject subject(nodes, Wait::kSuspended);
    check_complete(subject.explore({.preemptions = 3}));
    CHECK(subject.suspensions() > 0);
  }
}

TEST_CASE("by chance: three workers, two runs in a row") {
  for (const auto& nodes : {kLate, kCrossed}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      Subject subject(nodes, Wait::kSuspended);
      const Exploration found = subject.explore({.executions = 200, .random_seed = seed}, 3, 2);
      CHECK_MESSAGE(found.failure.empty(), found.failure);
    }
  }
}

TEST_CASE("an allocation that waits in the memory lane hangs, and the explorer finds it") {
  Subject subject(kCrossed, Wait::kInPlace);
  const Exploration found = subject.explore({.preemptions = 2});
  CHECK_MESSAGE(found.failure.starts_with("more steps than any"), found.failure);
}

TEST_CASE("a Free that holds nothing back recycles early, and the explorer finds it") {
  Subject subject(kLate, Wait::kNever);
  const Exploration found = subject.explore({.preemptions = 2});
  CHECK_MESSAGE(found.failure.starts_with("recycled before node 1"), found.failure);
}
