#include "lowering/stream_plan.hpp"

#include <algorithm>
#include <array>

namespace davit::lowering {
namespace {

// What a stream costs to hand over to another: an event record and a wait.
constexpr double kHandOverNs = 2000;

// Where tasks go, by modelled times.
class Assigner {
 public:
  Assigner(std::span<const StreamTask> tasks, uint32_t streams_max, double submit_ns)
      : tasks_(tasks),
        submit_ns_(submit_ns),
        end_(tasks.size()),
        last_(streams_max, StreamPlan::kNone) {}

  void run(StreamPlan& plan) {
    plan.stream.resize(tasks_.size());
    for (uint32_t task = 0; task < tasks_.size(); ++task) {
      uint32_t best = 0;
      double best_start = start_on(0, task, plan);
      for (uint32_t stream = 1; stream < last_.size(); ++stream) {
        const double start = start_on(stream, task, plan);
        const bool earlier = start < best_start - 1e-6;
        const bool nearer =
            start <= best_start + 1e-6 && !continues(best, task) && continues(stream, task);
        if (earlier || nearer) {
          best = stream;
          best_start = start;
        }
        if (last_[stream] == StreamPlan::kNone) break;  // The other empty ones are no better.
      }
      plan.stream[task] = best;
      end_[task] = best_start + tasks_[task].cost_ns;
      engine_free_[size_t(tasks_[task].engine)] = end_[task];
      last_[best] = task;
    }
  }

 private:
  [[nodiscard]] bool continues(uint32_t stream, uint32_t task) const {
    const auto& after = tasks_[task].after;
    return last_[stream] != StreamPlan::kNone &&
           std::find(after.begin(), after.end(), last_[stream]) != after.end();
  }

  [[nodiscard]] double start_on(uint32_t stream, uint32_t task, const StreamPlan& plan) const {
    const double submitted = submit_ns_ * (task + 1);  // Events make it later.
    double start = std::max(submitted, engine_free_[size_t(tasks_[task].engine)]);
    if (last_[stream] != StreamPlan::kNone) start = std::max(start, end_[last_[stream]]);
    for (const uint32_t needed : tasks_[task].after) {
      const double hand_over = plan.stream[needed] == stream ? 0 : kHandOverNs;
      start = std::max(start, end_[needed] + hand_over);
    }
    return start;
  }

  std::span<const StreamTask> tasks_;
  const double submit_ns_;
  std::vector<double> end_;     // By task.
  std::vector<uint32_t> last_;  // By stream: its last task.
  std::array<double, kEngines> engine_free_{};
};

void renumber(StreamPlan& plan, uint32_t streams_max) {
  std::vector<uint32_t> number(streams_max, StreamPlan::kNone);
  for (uint32_t& stream : plan.stream) {
    if (number[stream] == StreamPlan::kNone) number[stream] = plan.streams++;
    stream = number[stream];
  }
}

// Waits, without those that are implied.
void add_events(std::span<const StreamTask> tasks, StreamPlan& plan) {
  const size_t streams = plan.streams;
  plan.position_.resize(tasks.size());
  plan.clocks_.assign(tasks.size() * streams, 0);
  plan.event.assign(tasks.size(), StreamPlan::kNone);
  plan.waits.resize(tasks.size());
  std::vector<uint32_t> last(streams, StreamPlan::kNone);
  std::vector<uint32_t> count(streams, 0);
  const auto join = [&](uint32_t task, uint32_t earlier) {
    uint32_t* clock = plan.clocks_.data() + task * streams;
    const uint32_t* other = plan.clocks_.data() + earlier * streams;
    for (size_t s = 0; s < streams; ++s) clock[s] = std::max(clock[s], other[s]);
    uint32_t& own = clock[plan.stream[earlier]];
    own = std::max(own, plan.position_[earlier] + 1);
  };
  for (uint32_t task = 0; task < tasks.size(); ++task) {
    const uint32_t stream = plan.stream[task];
    plan.position_[task] = count[stream]++;
    if (last[stream] != StreamPlan::kNone) join(task, last[stream]);
    last[stream] = task;
    std::vector<uint32_t> needed = tasks[task].after;
    std::sort(needed.begin(), needed.end(), std::greater<>());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    // The latest first: they know most.
    for (const uint32_t earlier : needed) {
      if (plan.stream[earlier] == stream) continue;
      ++plan.crossing_edges;
      if (plan.before(earlier, task)) {
        ++plan.implied_edges;
        continue;
      }
      plan.waits[task].push_back(earlier);
      if (plan.event[earlier] == StreamPlan::kNone) plan.event[earlier] = 0;
      join(task, earlier);
    }
    std::sort(plan.waits[task].begin(), plan.waits[task].end());
  }
  for (uint32_t& event : plan.event) {
    if (event != StreamPlan::kNone) event = plan.events++;
  }
}

// When the last task has ended, with events as they are.
double makespan_of(std::span<const StreamTask> tasks, const StreamPlan& plan, double submit_ns) {
  std::vector<double> end(tasks.size());
  std::vector<double> stream_end(plan.streams);
  std::array<double, kEngines> engine_free{};
  double host = 0;
  double last = 0;
  for (uint32_t task = 0; task < tasks.size(); ++task) {
    double& of_stream = stream_end[plan.stream[task]];
    double& of_engine = engine_free[size_t(tasks[task].engine)];
    host += submit_ns * double(1 + plan.waits[task].size());
    double start = std::max({host, of_stream, of_engine});
    for (const uint32_t other : plan.waits[task]) start = std::max(start, end[other] + kHandOverNs);
    end[task] = of_stream = of_engine = start + tasks[task].cost_ns;
    last = std::max(last, end[task]);
    if (plan.event[task] != StreamPlan::kNone) host += submit_ns;
  }
  return last;
}

}  // namespace

StreamPlan plan_streams(std::span<const StreamTask> tasks, uint32_t streams_max, double submit_ns) {
  StreamPlan plan;
  Assigner(tasks, streams_max, submit_ns).run(plan);
  renumber(plan, streams_max);
  add_events(tasks, plan);
  plan.makespan_ns = makespan_of(tasks, plan, submit_ns);
  double host = 0;
  for (const StreamTask& task : tasks) {
    host += submit_ns;
    plan.one_stream_ns = std::max(plan.one_stream_ns, host) + task.cost_ns;
  }
  return plan;
}

std::vector<uint32_t> order_by_distance(std::span<const StreamTask> tasks, uint32_t first,
                                        uint32_t last) {
  std::vector<double> distance(tasks.size());
  std::vector<uint32_t> missing(tasks.size(), 0);
  std::vector<std::vector<uint32_t>> readers(tasks.size());
  for (uint32_t task = uint32_t(tasks.size()); task-- > 0;) {
    distance[task] += tasks[task].cost_ns;
    for (const uint32_t needed : tasks[task].after) {
      distance[needed] = std::max(distance[needed], distance[task]);
      if (needed < first || task < first || task >= last) continue;
      readers[needed].push_back(task);
      ++missing[task];
    }
  }
  const auto later = [&](uint32_t a, uint32_t b) {
    return distance[a] != distance[b] ? distance[a] < distance[b] : a > b;
  };
  std::vector<uint32_t> ready, order;
  for (uint32_t task = first; task < last; ++task) {
    if (missing[task] == 0) ready.push_back(task);
  }
  std::make_heap(ready.begin(), ready.end(), later);
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), later);
    const uint32_t task = ready.back();
    ready.pop_back();
    order.push_back(task);
    for (const uint32_t reader : readers[task]) {
      if (--missing[reader] > 0) continue;
      ready.push_back(reader);
      std::push_heap(ready.begin(), ready.end(), later);
    }
  }
  return order;
}

}  // namespace davit::lowering
