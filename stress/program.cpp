#include "stress/program.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "exec/mt_topo/platform.hpp"
#include "stress/flow.hpp"

namespace davit::stress {
namespace {

constexpr int32_t kFailureCode = DVT_KERNEL_FAILED;

constexpr uint32_t kKernelFlags[] = {DVT_KERNEL_LANE_NORMAL, DVT_KERNEL_LANE_MEMORY,
                                     DVT_KERNEL_LANE_MEMORY | DVT_KERNEL_FREE,
                                     DVT_KERNEL_LANE_MEMORY, DVT_KERNEL_LANE_LAUNCH};

// Nodes of a program that suspends; what launches need is a square of them.
constexpr size_t kNeedsMax = 4096;

uint32_t pick(Random& random, uint64_t below) {
  return static_cast<uint32_t>(random() % below);
}

}  // namespace

const char* event_name(Event event) {
  constexpr const char* kNames[] = {"nothing", "failure",  "end of sequence", "exception",
                                    "cancel",  "deadline", "nested run"};
  return kNames[static_cast<size_t>(event)];
}

Shape random_shape(Random& random, uint32_t nodes_max) {
  const uint32_t count = 1 + pick(random, random() % 8 == 0 ? nodes_max : nodes_max / 8 + 1);
  Shape shape{.name = "", .from = std::vector<std::vector<uint32_t>>(count)};
  const uint32_t width = 1 + pick(random, 16);
  constexpr const char* kNames[] = {"chain", "wide", "layered", "wavefront", "random"};
  const uint32_t kind = pick(random, 5);
  shape.name = kNames[kind];
  for (uint32_t node = 1; node < count; ++node) {
    std::vector<uint32_t>& from = shape.from[node];
    if (kind == 0) {
      from = {node - 1};
    } else if (kind == 1) {
      if (node + 1 < count) from = {0};
      for (uint32_t i = 1; node + 1 == count && i < node; ++i) from.push_back(i);
    } else if (kind == 2 && node >= width) {
      const uint32_t first = (node / width - 1) * width;
      for (uint32_t i = 1 + pick(random, 4); i > 0; --i)
        from.push_back(first + pick(random, width));
    } else if (kind == 3) {
      if (node % width != 0) from.push_back(node - 1);
      if (node >= width) from.push_back(node - width);
    } else if (kind == 4) {
      for (uint32_t i = pick(random, 4); i > 0; --i) from.push_back(pick(random, node));
    }
    std::sort(from.begin(), from.end());
    from.erase(std::unique(from.begin(), from.end()), from.end());
  }
  return shape;
}

Program::Program(Random& random, const Options& options)
    : shape_(random_shape(random, options.nodes_max)),
      nodes_(shape_.from.size()),
      suspends_(options.suspends && shape_.from.size() <= kNeedsMax) {
  const uint32_t count = this->count();
  choose_flow_nodes(random, options.flows);
  has_lanes_ = random() % 2 == 0;
  const uint32_t spin = random() % 2 == 0 ? 0 : pick(random, 400);
  std::vector<std::vector<uint32_t>> to(count);
  uint32_t left_out = options.leave_out_edge ? pick(random, count) : count;
  for (uint32_t index = 0; index < count; ++index) {
    Node& node = nodes_[index];
    node.program = this;
    node.index = index;
    const bool flows = std::ranges::binary_search(flow_nodes_, index);
    node.kind = has_lanes_ && !flows ? static_cast<Kind>(random() % 5) : Kind::kPlain;
    node.spin = spin == 0 ? 0 : pick(random, spin);
    kernel_.push_back(static_cast<uint32_t>(node.kind));
    lane_.push_back(static_cast<uint8_t>(kKernelFlags[kernel_.back()] & DVT_KERNEL_LANE_MASK));
    steps_.push_back({run_node, &node});
    uint32_t known = 0;
    for (const uint32_t from : shape_.from[index]) {
      if (index >= left_out) {
        left_out = count;  // This edge the scheduler does not hear of.
        continue;
      }
      to[from].push_back(index);
      ++known;
    }
    indegree_.push_back(known);
  }
  successor_offsets_.push_back(0);
  for (const auto& targets : to) {
    successors_.insert(successors_.end(), targets.begin(), targets.end());
    successor_offsets_.push_back(static_cast<uint32_t>(successors_.size()));
  }
  make_relations(random);
}

Program::~Program() = default;

void Program::choose_flow_nodes(Random& random, uint32_t flows) {
  for (; flows > 0; --flows) flow_nodes_.push_back(pick(random, count()));
  std::sort(flow_nodes_.begin(), flow_nodes_.end());
  flow_nodes_.erase(std::unique(flow_nodes_.begin(), flow_nodes_.end()), flow_nodes_.end());
}

void Program::set_flow(uint32_t node, std::unique_ptr<Flow> flow) {
  nodes_[node].flow = std::move(flow);
}

void Program::count_flows(std::map<std::string, uint64_t>& scenarios, bool inside) const {
  for (const uint32_t node : flow_nodes_) {
    nodes_[node].flow->count_flows(scenarios);
    if (inside) ++scenarios["flow: in a body"];
  }
  if (!inside && flow_nodes_.empty()) ++scenarios["flow: none"];
}

uint64_t Program::suspensions() const {
  uint64_t suspended = relations_->statistics().suspended;
  for (const uint32_t node : flow_nodes_) suspended += nodes_[node].flow->suspensions();
  return suspended;
}

uint64_t Program::progress() const {
  uint64_t ended = progress_.load(std::memory_order_relaxed);
  for (const uint32_t node : flow_nodes_) ended += nodes_[node].flow->progress();
  return ended;
}

uint64_t Program::random_place(Random& random) const {
  if (flow_nodes_.empty() || random() % 2 == 0) return pick(random, count());
  const uint32_t node = flow_nodes_[random() % flow_nodes_.size()];
  return node + uint64_t{count()} * nodes_[node].flow->random_place(random);
}

bool Program::is_in_a_body(uint64_t place) const {
  return nodes_[place % count()].flow != nullptr;
}

void Program::make_relations(Random& random) {
  std::vector<uint32_t> launches;
  for (const Node& node : nodes_) {
    if (node.kind == Kind::kLaunch) launches.push_back(node.index);
  }
  free_offsets_.push_back(0);
  for (const Node& node : nodes_) {
    if (node.kind == Kind::kFree && !launches.empty()) {
      const size_t first = random() % launches.size();
      const size_t last = std::min(first + random() % 4, launches.size());
      for (size_t i = first; i < last; ++i) free_launches_.push_back(launches[i]);
    }
    free_offsets_.push_back(static_cast<uint32_t>(free_launches_.size()));
  }
  auto made = exec::Relations<mt_topo::RealThreads>::create({.kernel = kernel_,
                                                             .kernel_flags = kKernelFlags,
                                                             .free_offsets = free_offsets_,
                                                             .free_launches = free_launches_});
  if (made.ok()) relations_ = std::move(*made);
  if (!made.ok()) return complain("relations: " + made.status().to_string());
  if (suspends_) find_needs();
}

void Program::find_needs() {
  std::vector<std::vector<bool>> needs(count(), std::vector<bool>(count(), false));
  const auto take_over = [&](uint32_t node, uint32_t from) {
    for (uint32_t i = 0; i <= from; ++i) needs[node][i] = needs[node][i] || needs[from][i];
    needs[node][from] = true;
  };
  needs_.resize(count());
  const Node* last_launch = nullptr;
  for (Node& node : nodes_) {
    for (const uint32_t from : shape_.from[node.index]) take_over(node.index, from);
    if (node.kind == Kind::kAlloc) node.wait = relations_->make_wait();
    if (node.kind != Kind::kLaunch) continue;
    if (last_launch != nullptr) take_over(node.index, last_launch->index);
    last_launch = &node;
    for (uint32_t i = 0; i < node.index; ++i) {
      if (needs[node.index][i] && lane_[i] == DVT_KERNEL_LANE_MEMORY) {
        needs_[node.index].push_back(i);
      }
    }
  }
}

mt_topo::Tables Program::tables() const {
  return {.steps = steps_,
          .successor_offsets = successor_offsets_,
          .successors = successors_,
          .indegree = indegree_,
          .lane = lane_,
          .priority = {},
          .may_suspend = suspends_};
}

schedule::Plan Program::plan(uint32_t workers) const {
  const std::vector<double> cost(nodes_.size(), 1000.0);
  return schedule::make_plan({successor_offsets_, successors_, lane_, cost},
                             {.workers = workers, .transfer_ns = 10, .gain = 1.0});
}

Status Program::run_oracle() {
  arm(Event::kNothing, 0);
  own_given_.in_order = true;
  const mt_topo::Outcome outcome = run_in_order();
  own_given_.in_order = false;
  if (outcome.code != DVT_OK) {
    return {DVT_INTERNAL, DVT_STAGE_RUN, "the sequential loop fails"};
  }
  if (const std::string wrong = check(outcome); !wrong.empty()) {
    return {DVT_INTERNAL, DVT_STAGE_RUN, "the sequential loop: " + wrong};
  }
  expected_.clear();
  for (const Node& node : nodes_) expected_.push_back(node.result);
  return {};
}

mt_topo::Outcome Program::run_in_order() {
  int32_t code = DVT_OK;
  const size_t ran = dvt_sequential_run(steps_.data(), steps_.size(), &code);
  if (code == DVT_OK) return {};
  return {code, static_cast<uint32_t>(ran)};
}

void Program::arm(Event event, uint64_t place, std::function<bool()> nested) {
  own_given_.event = event;
  own_given_.nested = std::move(nested);
  own_given_.cancel = &cancel_;
  cancel_.store(0, std::memory_order_relaxed);
  own_given_.control = {};
  if (event == Event::kCancel) own_given_.control.cancel = &cancel_;
  if (event == Event::kDeadline) {
    own_given_.control.deadline_ns = mt_topo::RealThreads::now_ns() + kDeadlineNs;
  }
  prepare(own_given_, place);
  begin_run(0);
}

void Program::prepare(const Given& given, std::optional<uint64_t> place) {
  given_ = &given;
  happened_ = false;
  event_node_ = place ? static_cast<uint32_t>(*place % count()) : kNowhere;
  for (const uint32_t node : flow_nodes_) {
    nodes_[node].flow->prepare(
        given, node == event_node_ ? std::optional(*place / count()) : std::nullopt);
  }
}

void Program::begin_run(uint64_t input) {
  input_ = input;
  for (Node& each : nodes_) {
    each.result = 0;
    each.runs = 0;
    each.waits = each.has_waited = false;
    each.state.store(State::kWaiting, std::memory_order_relaxed);
  }
  freed_.assign(nodes_.size(), 0);
  launched_.assign(nodes_.size(), 0);
  in_memory_lane_ = 0;
  last_launch_ = 0;
  relations_->begin_run();
}

uint64_t Program::result() const {
  uint64_t all = 0;
  for (const Node& node : nodes_) all = mix(all, node.result);
  return all;
}

bool Program::happened() const {
  if (event_node_ == kNowhere) return false;
  const Node& node = nodes_[event_node_];
  return node.flow == nullptr ? happened_ : node.flow->happened();
}

void Program::complain(const std::string& what) {
  if (!complained_.exchange(true)) complaint_ = what;
}

int32_t Program::run_node(void* context) {
  auto& node = *static_cast<Node*>(context);
  return node.program->run(node);
}

// Memory lane. Each allocation waits once: for what is owed, unless that needs it or another memory
// node that has not run.
bool Program::has_to_wait(Node& node) {
  if (node.has_waited) return false;
  if (!node.waits) {
    node.waits = relations_->suspend(node.wait, [&](uint32_t launch) {
      return std::ranges::any_of(needs_[launch],
                                 [&](uint32_t memory) { return nodes_[memory].runs == 0; });
    });
  } else if (relations_->is_over(node.wait)) {
    relations_->resume(node.wait);
    node.waits = false;
  }
  node.has_waited = !node.waits;
  return node.waits;
}

int32_t Program::run(Node& node) {
  node.state.store(State::kRunning, std::memory_order_relaxed);
  const bool may_wait = suspends_ && node.kind == Kind::kAlloc && !given_->in_order;
  if (may_wait && has_to_wait(node)) return DVT_STEP_SUSPENDED;
  uint64_t hash = mix(node.index, input_);
  for (const uint32_t from : shape_.from[node.index]) hash = mix(hash, nodes_[from].result);
  enter_lane(node);
  const int32_t code = do_work(node, hash);
  if (lane_[node.index] == DVT_KERNEL_LANE_MEMORY) in_memory_lane_ = 0;
  if (code != DVT_OK) return code;
  keep_books(node);
  node.result = hash;
  ++node.runs;
  node.state.store(State::kDone, std::memory_order_relaxed);
  progress_.fetch_add(1, std::memory_order_relaxed);
  return DVT_OK;
}

int32_t Program::do_work(Node& node, uint64_t& hash) {
  if (node.flow != nullptr) return node.flow->run(hash);
  uint64_t turns = 0;
  for (uint32_t i = 0; i < node.spin; ++i) turns = mix(turns, i);
  if (node.spin % 64 == 63) std::this_thread::yield();
  if (turns == 1) std::this_thread::yield();  // The turns are work.
  return node.index == event_node_ ? happen(node) : int32_t{DVT_OK};
}

void Program::enter_lane(Node& node) {
  if (lane_[node.index] == DVT_KERNEL_LANE_MEMORY) {
    if (in_memory_lane_ != 0) complain("two memory nodes at once");
    in_memory_lane_ = 1;
  } else if (lane_[node.index] == DVT_KERNEL_LANE_LAUNCH) {
    if (node.index < last_launch_) complain("launches out of order");
    last_launch_ = node.index;
  }
}

int32_t Program::happen(const Node& node) {
  happened_ = true;
  switch (given_->event) {
    case Event::kFailure:
      return kFailureCode;
    case Event::kEndOfSequence:
      return DVT_END_OF_SEQUENCE;
    case Event::kException:
      if (lane_[node.index] == DVT_KERNEL_LANE_MEMORY) in_memory_lane_ = 0;
      throw std::runtime_error("a node throws");
    case Event::kCancel:
      given_->cancel->store(1, std::memory_order_relaxed);
      return DVT_OK;
    case Event::kDeadline:
      std::this_thread::sleep_for(std::chrono::nanoseconds(kDeadlineNs));
      return DVT_OK;
    case Event::kNestedRun:
      if (given_->nested && !given_->nested()) complain("a nested run fails");
      return DVT_OK;
    case Event::kNothing:
      break;
  }
  return DVT_OK;
}

void Program::keep_books(const Node& node) {
  if (node.kind == Kind::kFree && relations_->related(node.index)) {
    freed_[node.index] = 1;
    relations_->freed(node.index);
  } else if (node.kind == Kind::kLaunch) {
    launched_[node.index] = 1;
    if (relations_->related(node.index) && relations_->submitted(node.index) && !suspends_) {
      complain("a launch rings for nobody");
    }
  } else if (node.kind == Kind::kAlloc && relations_->settled()) {
    for (uint32_t free = 0; free < count(); ++free) {
      if (freed_[free] == 0) continue;
      for (uint32_t i = free_offsets_[free]; i < free_offsets_[free + 1]; ++i) {
        if (launched_[free_launches_[i]] == 0) complain("settled before a launch was submitted");
      }
    }
  }
}

std::string Program::check(const mt_topo::Outcome& outcome) const {
  if (complained_.load()) return complaint_;
  for (const uint32_t node : flow_nodes_) {
    const std::string& wrong = nodes_[node].flow->wrong();
    if (!wrong.empty()) return wrong;
  }
  const Event event = given_->event;
  const bool ends =
      event == Event::kFailure || event == Event::kException || event == Event::kEndOfSequence;
  // A branch that is not taken fails nobody.
  const bool fails = ends && happened();
  const int32_t failure = event == Event::kEndOfSequence ? DVT_END_OF_SEQUENCE : kFailureCode;
  if (fails && (outcome.code != failure || outcome.node != event_node_)) {
    return "the failure of node " + std::to_string(event_node_) + " was reported as code " +
           std::to_string(outcome.code) + " of node " + std::to_string(outcome.node);
  }
  const bool may_stop = (event == Event::kCancel && outcome.code == DVT_CANCELLED) ||
                        (event == Event::kDeadline && outcome.code == DVT_TIMEOUT);
  if (!fails && !may_stop && outcome.code != DVT_OK) {
    return "a run without failure ends with code " + std::to_string(outcome.code);
  }
  for (const Node& node : nodes_) {
    const std::string name = "node " + std::to_string(node.index);
    if (node.runs > 1) return name + " ran " + std::to_string(node.runs) + " times";
    if (node.runs == 0 && outcome.code == DVT_OK) return name + " did not run";
    if (node.runs == 1 && !expected_.empty() && node.result != expected_[node.index]) {
      return name + " has another result than the sequential loop";
    }
  }
  return "";
}

std::string Program::describe() const {
  constexpr uint32_t kLines = 12;
  constexpr const char* kLanes[] = {"normal", "memory", "launch"};
  std::string text;
  uint32_t lines = 0;
  uint32_t done = 0;
  for (const Node& node : nodes_) {
    const State state = node.state.load(std::memory_order_relaxed);
    done += state == State::kDone ? 1 : 0;
    if (state == State::kDone || lines == kLines) continue;
    const auto& from = shape_.from[node.index];
    const auto awaited = std::find_if(from.begin(), from.end(), [&](uint32_t source) {
      return nodes_[source].state.load(std::memory_order_relaxed) != State::kDone;
    });
    text += "\n  node " + std::to_string(node.index) + " (" + kLanes[lane_[node.index]] + ") ";
    if (state == State::kRunning) {
      text += node.flow == nullptr ? "is running" : "is running " + node.flow->describe();
    } else if (awaited == from.end()) {
      text += "could run, and nobody has started it";
    } else {
      text += "waits for node " + std::to_string(*awaited);
    }
    ++lines;
  }
  return std::to_string(done) + " of " + std::to_string(nodes_.size()) + " nodes are done" + text;
}

}  // namespace davit::stress
