#include "stress/flow.hpp"

#include <utility>

namespace davit::stress {
namespace {

using mt_topo::Mode;
using mt_topo::Scheduler;

constexpr uint32_t kDepthMax = 3;
constexpr uint32_t kBodyNodesMax = 64;
constexpr uint64_t kTripsMax = 5;  // Less one.

uint32_t random_flows(Random& random, uint32_t depth) {
  if (depth == kDepthMax || random() % (depth + 2) != 0) return 0;
  return 1 + static_cast<uint32_t>(random() % (depth == 0 ? 3 : 1));
}

}  // namespace

Result<Scheduled> make_scheduled(Random& random, const Making& making) {
  Scheduled made;
  made.mode = making.mode;
  made.program = std::make_unique<Program>(
      random, Program::Options{.nodes_max = making.nodes_max,
                               .suspends = making.suspends,
                               .leave_out_edge = making.leave_out_edge,
                               .flows = random_flows(random, making.depth)});
  Making inside = making;
  inside.nodes_max = kBodyNodesMax;
  inside.leave_out_edge = false;
  ++inside.depth;
  for (const uint32_t node : made.program->flow_nodes()) {
    auto flow = Flow::make(random, inside);
    if (!flow.ok()) return std::move(flow.status());
    made.program->set_flow(node, std::move(*flow));
  }
  const uint32_t parts = 1 + static_cast<uint32_t>(random() % making.parts_max);
  const schedule::Plan plan = made.program->plan(parts);
  const mt_topo::PlanTables tables = {.part_offsets = plan.part_offsets,
                                      .order = plan.order,
                                      .wait_offsets = plan.wait_offsets,
                                      .waits = plan.waits};
  // Most share as much as they can: what a scheduler has learned to leave alone shows little.
  auto scheduler = Scheduler::create(made.program->tables(), &tables, making.pool,
                                     {.mode = making.mode, .measures = random() % 4 == 0});
  if (!scheduler.ok()) return std::move(scheduler.status());
  made.scheduler = std::move(*scheduler);
  return made;
}

Result<std::unique_ptr<Flow>> Flow::make(Random& random, const Making& making) {
  std::unique_ptr<Flow> made(new Flow);
  for (uint64_t bodies = 1 + random() % 2; bodies > 0; --bodies) {
    auto body = make_scheduled(random, making);
    if (!body.ok()) return std::move(body.status());
    made->bodies_.push_back(std::move(*body));
  }
  return made;
}

uint64_t Flow::random_place(Random& random) const {
  const uint64_t body = random() % bodies_.size();
  return body + bodies_.size() * bodies_[body].program->random_place(random);
}

void Flow::prepare(const Given& given, std::optional<uint64_t> place) {
  given_ = &given;
  wrong_.clear();
  for (size_t body = 0; body < bodies_.size(); ++body) {
    const bool here = place && *place % bodies_.size() == body;
    bodies_[body].program->prepare(given,
                                   here ? std::optional(*place / bodies_.size()) : std::nullopt);
  }
}

int32_t Flow::run_body(const Scheduled& body, uint64_t input) {
  body.program->begin_run(input);
  const mt_topo::Outcome outcome = given_->in_order ? body.program->run_in_order()
                                                    : body.scheduler->run(given_->control, nullptr);
  std::string wrong = body.program->check(outcome);
  if (!wrong.empty() && wrong_.empty()) wrong_ = "in a body: " + std::move(wrong);
  return outcome.code;
}

int32_t Flow::run(uint64_t& value) {
  const uint64_t chosen = value >> 32;
  const auto body = static_cast<uint32_t>(loops() ? 0 : chosen % bodies_.size());
  const uint64_t trips = loops() ? chosen % kTripsMax : 1;
  running_.store(body, std::memory_order_relaxed);
  for (uint64_t trip = 0; trip < trips; ++trip) {
    const int32_t code = run_body(bodies_[body], mix(value, trip));
    if (code != DVT_OK) return code;
    value = mix(value, bodies_[body].program->result());
  }
  return DVT_OK;
}

bool Flow::happened() const {
  bool happened = false;
  for (const Scheduled& body : bodies_) happened = happened || body.program->happened();
  return happened;
}

uint64_t Flow::progress() const {
  uint64_t ended = 0;
  for (const Scheduled& body : bodies_) ended += body.program->progress();
  return ended;
}

uint64_t Flow::suspensions() const {
  uint64_t suspended = 0;
  for (const Scheduled& body : bodies_) suspended += body.program->suspensions();
  return suspended;
}

std::string Flow::describe() const {
  const uint32_t body = running_.load(std::memory_order_relaxed);
  return (loops() ? "the body of its loop: " : "branch " + std::to_string(body) + ": ") +
         bodies_[body].program->describe();
}

void Flow::count_flows(std::map<std::string, uint64_t>& scenarios) const {
  ++scenarios[loops() ? "flow: loop" : "flow: branch"];
  for (const Scheduled& body : bodies_) body.program->count_flows(scenarios, /*inside=*/true);
}

}  // namespace davit::stress
