// Models: resident tasks, activation, switches, labels; queues; callbacks; failures and aborts.
// Each in all modes where all promise the same.
#include <functional>
#include <string>
#include <vector>

#include "harness.hpp"

using namespace davit::testing;  // NOLINT(google-build-using-namespace)

namespace {

constexpr DvtNpuMode kModes[] = {DVT_NPU_PROMPT, DVT_NPU_LAZY, DVT_NPU_ADVERSARIAL};
const DvtTaskCost kCost = vector_cost(64);
const DvtTaskCost kSlow = vector_cost(uint64_t{8} << 20);

bool message_has(const std::string& part) {
  const bool found = last_message().find(part) != std::string::npos;
  if (!found) MESSAGE("message: " << last_message() << " lacks: " << part);
  return found;
}

// All modes, the adversarial one under several seeds, always with accesses checked.
void in_all_modes(const std::function<void(DvtNpu*)>& body) {
  for (const DvtNpuMode mode : kModes) {
    for (uint64_t seed = 0; seed < (mode == DVT_NPU_ADVERSARIAL ? 20U : 1U); ++seed) {
      auto npu = make_npu({.mode = mode, .seed = seed, .check_order = true});
      CAPTURE(mode);
      CAPTURE(seed);
      body(npu.get());
    }
  }
}

// A model, its streams bound in order, the first as head, and a stream to execute it from.
struct Sink {
  DvtNpu* npu;
  DvtNpuModel* model = nullptr;
  DvtStream* caller;
  std::vector<DvtStream*> streams;
  Sink(DvtNpu* device, size_t count) : npu(device), caller(make_stream(device)) {
    REQUIRE(dvt_npu_model_create(npu, &model) == DVT_OK);
    for (size_t i = 0; i < count; ++i) {
      streams.push_back(make_stream(npu));
      REQUIRE(dvt_npu_model_bind_stream(npu, model, streams[i], i == 0 ? 1 : 0) == DVT_OK);
    }
  }
  void end_on(DvtStream* stream) const {
    REQUIRE(dvt_npu_model_end_graph(npu, model, stream) == DVT_OK);
    REQUIRE(dvt_npu_model_build_end(npu, model) == DVT_OK);
  }
  [[nodiscard]] DvtCode run() const {
    REQUIRE(dvt_npu_model_execute(npu, model, caller) == DVT_OK);
    return dvt_npu_stream_synchronize(npu, caller, -1);
  }
  [[nodiscard]] DvtNpuLabel* label() const {
    DvtNpuLabel* out = nullptr;
    REQUIRE(dvt_npu_label_create(npu, model, &out) == DVT_OK);
    return out;
  }
};

template <class T>
void set_value(DvtNpu* npu, DvtStream* stream, T* to, T value) {
  static std::vector<std::unique_ptr<T>> kept;  // The host side stays valid.
  kept.push_back(std::make_unique<T>(value));
  REQUIRE(dvt_npu_copy_async(npu, stream, DVT_COPY_HOST_TO_DEVICE, to, kept.back().get(), sizeof(T),
                             "set") == DVT_OK);
}

template <class T>
T get_value(DvtNpu* npu, DvtStream* stream, const T* from) {
  T value{};
  REQUIRE(dvt_npu_copy_async(npu, stream, DVT_COPY_DEVICE_TO_HOST, &value, from, sizeof(T),
                             "get") == DVT_OK);
  REQUIRE(dvt_npu_stream_synchronize(npu, stream, -1) == DVT_OK);
  return value;
}

// x += 1, and x < limit into `more`.
struct Loop {
  uint32_t x, limit, more;
};
DvtCode step(void* raw) {
  const auto* context = static_cast<const DvtContext*>(raw);
  auto* loop = static_cast<Loop*>(dvt_output(context, 0)->data);
  ++loop->x;
  loop->more = loop->x < loop->limit ? 1 : 0;
  return DVT_OK;
}

}  // namespace

TEST_CASE("a model's tasks stay: built once, run by every execution, in the caller's order") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 1);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    CHECK(launch(npu, sink.streams[0], in_place, kCost, "resident") == DVT_OK);
    sink.end_on(sink.streams[0]);
    CHECK(dvt_npu_memset_async(npu, sink.caller, data, 5, 16) == DVT_OK);
    const uint64_t before = dvt_npu_task_count(npu);
    CHECK(dvt_npu_model_execute(npu, sink.model, sink.caller) == DVT_OK);
    CHECK(launch(npu, sink.caller, in_place, kCost, "between") == DVT_OK);
    CHECK(dvt_npu_model_execute(npu, sink.model, sink.caller) == DVT_OK);
    CHECK(get_value(npu, sink.caller, data) == 8);
    CHECK(dvt_npu_task_count(npu) > before);
    int resident = 0;
    for (const DvtNpuTask& task : tasks_of(npu)) resident += std::string(task.name) == "resident";
    CHECK(resident == 2);
    const DvtNpuTask between = task_named(npu, "between");
    for (const DvtNpuTask& task : tasks_of(npu)) {
      if (task.type != DVT_NPU_MODEL_EXECUTE || task.id > between.id) continue;
      CHECK(task.end_ps <= between.start_ps);
    }
    CHECK(dvt_npu_model_destroy(npu, sink.model) == DVT_OK);
    // The stream is an ordinary one again.
    CHECK(launch(npu, sink.streams[0], in_place, kCost, "ordinary") == DVT_OK);
    CHECK(get_value(npu, sink.streams[0], data) == 9);
  });
}

TEST_CASE("nothing of a model runs before it is executed, and only its head streams then") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 2);
    auto* data = make_array<uint8_t>(npu, 32);
    CHECK(dvt_npu_memset_async(npu, sink.streams[0], data, 1, 16) == DVT_OK);
    CHECK(dvt_npu_memset_async(npu, sink.streams[1], data + 16, 1, 16) == DVT_OK);
    sink.end_on(sink.streams[0]);
    dvt_npu_host_advance(npu, int64_t{1'000'000'000});
    CHECK(dvt_npu_task_count(npu) == 0);
    CHECK(sink.run() == DVT_OK);
    int fills = 0;
    for (const DvtNpuTask& task : tasks_of(npu)) fills += task.type == DVT_NPU_MEMSET;
    CHECK(fills == 1);
  });
}

TEST_CASE("stream active: the target runs beside the present stream; an event joins them") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 2);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    DvtEvent* event = make_event(npu);
    CHECK(dvt_npu_memset_async(npu, sink.streams[0], data, 1, 16) == DVT_OK);
    CHECK(dvt_npu_stream_active(npu, sink.streams[0], sink.streams[1]) == DVT_OK);
    CHECK(launch(npu, sink.streams[1], in_place, kSlow, "beside") == DVT_OK);
    CHECK(dvt_npu_event_record(npu, sink.streams[1], event) == DVT_OK);
    CHECK(dvt_npu_event_wait(npu, sink.streams[0], event) == DVT_OK);
    CHECK(launch(npu, sink.streams[0], in_place, kCost, "joined") == DVT_OK);
    sink.end_on(sink.streams[0]);
    for (int i = 0; i < 3; ++i) {
      CHECK(sink.run() == DVT_OK);
      CHECK(get_value(npu, sink.caller, data) == 3);
    }
  });
}

TEST_CASE("stream switch: true runs the target and stops the stream, false falls through") {
  in_all_modes([](DvtNpu* npu) {
    for (int64_t left = -1; left <= 1; ++left) {
      const bool expected[] = {left == 0, left != 0, left > 0, left >= 0, left < 0, left <= 0};
      for (uint32_t condition = DVT_NPU_EQUAL; condition <= DVT_NPU_LESS_OR_EQUAL; ++condition) {
        Sink sink(npu, 2);
        auto* sides = make_array<int64_t>(npu, 2);
        auto* data = make_array<uint8_t>(npu, 16);
        CHECK(dvt_npu_stream_switch(npu, sink.streams[0], sides,
                                    static_cast<DvtNpuCondition>(condition), sides + 1,
                                    sink.streams[1]) == DVT_OK);
        CHECK(dvt_npu_memset_async(npu, sink.streams[0], data, 2, 16) == DVT_OK);
        DvtNpuLabel* end = sink.label();
        CHECK(dvt_npu_label_set(npu, sink.streams[0], end) == DVT_OK);
        CHECK(dvt_npu_memset_async(npu, sink.streams[1], data, 1, 16) == DVT_OK);
        CHECK(dvt_npu_label_goto(npu, sink.streams[1], end) == DVT_OK);
        sink.end_on(sink.streams[0]);
        set_value<int64_t>(npu, sink.caller, sides, left);
        set_value<int64_t>(npu, sink.caller, sides + 1, 0);
        CHECK(sink.run() == DVT_OK);
        CHECK(get_value(npu, sink.caller, data) == (expected[condition] ? 1 : 2));
        CHECK(dvt_npu_model_destroy(npu, sink.model) == DVT_OK);
      }
    }
  });
}

TEST_CASE("label switch takes the index from memory and clamps it; goto joins") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 3);
    auto* index = make_array<uint32_t>(npu, 1);
    auto* data = make_array<uint8_t>(npu, 16);
    std::vector<DvtNpuLabel*> branches = {sink.label(), sink.label(), sink.label()};
    DvtNpuLabel* end = sink.label();
    CHECK(dvt_npu_label_switch(npu, sink.streams[0], index, branches.data(), 3) == DVT_OK);
    for (uint32_t i = 0; i < 3; ++i) {
      DvtStream* stream = sink.streams[i];
      CHECK(dvt_npu_label_set(npu, stream, branches[i]) == DVT_OK);
      CHECK(dvt_npu_memset_async(npu, stream, data, static_cast<int>(i + 1), 16) == DVT_OK);
      CHECK(dvt_npu_label_goto(npu, stream, end) == DVT_OK);
    }
    CHECK(dvt_npu_label_set(npu, sink.streams[2], end) == DVT_OK);
    sink.end_on(sink.streams[2]);
    for (const uint32_t value : {0U, 1U, 2U, 3U, UINT32_MAX, 0U}) {
      set_value(npu, sink.caller, index, value);
      CHECK(sink.run() == DVT_OK);
      CHECK(get_value(npu, sink.caller, data) == std::min(value, 2U) + 1);
    }
  });
}

TEST_CASE("a while loop on the device: as many rounds as the data say, in every execution") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 1);
    auto* loop = make_array<Loop>(npu, 1);
    const Arguments body({loop}, {loop}, sizeof(Loop));
    DvtNpuLabel* again = sink.label();
    DvtNpuLabel* done = sink.label();
    DvtNpuLabel* const targets[] = {done, again};
    CHECK(dvt_npu_label_set(npu, sink.streams[0], again) == DVT_OK);
    CHECK(launch(npu, sink.streams[0], body, kCost, "body", step) == DVT_OK);
    CHECK(dvt_npu_label_switch(npu, sink.streams[0], &loop->more, targets, 2) == DVT_OK);
    CHECK(dvt_npu_label_set(npu, sink.streams[0], done) == DVT_OK);
    sink.end_on(sink.streams[0]);
    for (const uint32_t limit : {1U, 5U, 17U}) {
      set_value(npu, sink.caller, loop, Loop{0, limit, 0});
      CHECK(sink.run() == DVT_OK);
      CHECK(get_value(npu, sink.caller, loop).x == limit);
    }
  });
}

TEST_CASE("an endless loop on the device ends with an error, not a hang") {
  auto npu = make_npu({.overrides = {"vector.head=0"}});
  Sink sink(npu.get(), 1);
  DvtNpuLabel* again = sink.label();
  CHECK(dvt_npu_label_set(npu.get(), sink.streams[0], again) == DVT_OK);
  CHECK(dvt_npu_label_goto(npu.get(), sink.streams[0], again) == DVT_OK);
  sink.end_on(sink.streams[0]);
  CHECK(sink.run() == DVT_FAILED_STATE);
  CHECK(message_has("endless loop: more than 1000000 jumps in one execution of model 0"));
}

TEST_CASE("executions of one model follow each other, whoever calls") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 1);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    CHECK(launch(npu, sink.streams[0], in_place, kSlow, "resident") == DVT_OK);
    sink.end_on(sink.streams[0]);
    CHECK(dvt_npu_memset_async(npu, sink.caller, data, 0, 16) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, sink.caller, -1) == DVT_OK);
    DvtStream* other = make_stream(npu);
    CHECK(dvt_npu_model_execute(npu, sink.model, sink.caller) == DVT_OK);
    CHECK(dvt_npu_model_execute(npu, sink.model, other) == DVT_OK);
    CHECK(dvt_npu_synchronize(npu, -1) == DVT_OK);
    CHECK(get_value(npu, other, data) == 2);
  });
}

TEST_CASE("a failure inside a model is the execution's; the next execution starts clean") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 1);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    CHECK(launch(npu, sink.streams[0], in_place, kCost, "resident") == DVT_OK);
    sink.end_on(sink.streams[0]);
    CHECK(sink.run() == DVT_INVALID_ARGUMENT);  // Nobody has written `data`.
    CHECK(std::string(dvt_npu_last_error()->node) == "resident");
    CHECK(dvt_npu_memset_async(npu, sink.caller, data, 1, 16) == DVT_OK);
    CHECK(sink.run() == DVT_OK);
    CHECK(get_value(npu, sink.caller, data) == 2);
  });
}

TEST_CASE("abort: the execution fails as cancelled, and the model can run again") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 1);
    auto* data = make_array<uint8_t>(npu, 16);
    DvtNotify* notify = make_notify(npu);
    CHECK(dvt_npu_notify_wait(npu, sink.streams[0], notify) == DVT_OK);
    CHECK(dvt_npu_memset_async(npu, sink.streams[0], data, 1, 16) == DVT_OK);
    sink.end_on(sink.streams[0]);
    CHECK(dvt_npu_model_abort(npu, sink.model) == DVT_FAILED_STATE);
    CHECK(message_has("model 0 is not running"));
    CHECK(sink.run() == DVT_TIMEOUT);
    CHECK(message_has("waits for model 0, whose streams have not come to their end"));
    CHECK(message_has("waits for notify 0, which nobody records"));
    CHECK(dvt_npu_model_destroy(npu, sink.model) == DVT_FAILED_STATE);
    CHECK(dvt_npu_model_abort(npu, sink.model) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, sink.caller, -1) == DVT_CANCELLED);
    CHECK(message_has("execution of model 0 was aborted"));
    DvtStream* other = make_stream(npu);
    CHECK(dvt_npu_notify_record(npu, other, notify) == DVT_OK);
    CHECK(sink.run() == DVT_OK);
    CHECK(get_value(npu, sink.caller, data) == 1);
    CHECK(dvt_npu_model_destroy(npu, sink.model) == DVT_OK);
  });
}

TEST_CASE("a caller that is destroyed takes its execution with it") {
  auto npu = make_npu();
  Sink sink(npu.get(), 1);
  DvtNotify* notify = make_notify(npu.get());
  CHECK(dvt_npu_notify_wait(npu.get(), sink.streams[0], notify) == DVT_OK);
  sink.end_on(sink.streams[0]);
  CHECK(dvt_npu_model_execute(npu.get(), sink.model, sink.caller) == DVT_OK);
  DvtStream* second = make_stream(npu.get());
  CHECK(dvt_npu_model_execute(npu.get(), sink.model, second) == DVT_OK);
  CHECK(dvt_npu_stream_destroy(npu.get(), sink.caller) == DVT_TIMEOUT);
  CHECK(dvt_npu_notify_record(npu.get(), make_stream(npu.get()), notify) == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), second, -1) == DVT_OK);
  CHECK(dvt_npu_model_destroy(npu.get(), sink.model) == DVT_OK);
}

TEST_CASE("misuse of models is refused, and the error names what and why") {
  auto npu = make_npu();
  auto other_npu = make_npu();
  Sink sink(npu.get(), 2);
  Sink foreign(other_npu.get(), 1);
  DvtNpu* n = npu.get();
  auto* data = make_array<uint8_t>(n, 64);
  const auto refused = [](DvtCode code, DvtCode expected, const char* text) {
    CHECK(code == expected);
    CHECK(message_has(text));
  };
  refused(dvt_npu_model_bind_stream(n, sink.model, sink.streams[0], 1), DVT_FAILED_STATE,
          "bind: stream 1 is bound to model 0");
  refused(dvt_npu_model_bind_stream(n, foreign.model, sink.caller, 1), DVT_INVALID_ARGUMENT,
          "bind: model belongs to another device");
  refused(dvt_npu_model_bind_stream(n, sink.model, foreign.caller, 1), DVT_INVALID_ARGUMENT,
          "bind: stream belongs to another device");
  refused(dvt_npu_model_execute(n, sink.model, sink.caller), DVT_FAILED_STATE,
          "execute: model 0 is not complete");
  refused(dvt_npu_stream_active(n, sink.caller, sink.streams[0]), DVT_FAILED_STATE,
          "activate: stream 0 is not bound to a model");
  refused(dvt_npu_stream_active(n, sink.streams[0], sink.caller), DVT_INVALID_ARGUMENT,
          "activate: target stream 0 is not bound to model 0");
  refused(dvt_npu_stream_synchronize(n, sink.streams[0], -1), DVT_FAILED_STATE,
          "synchronise: stream 1 is bound to model 0");
  refused(dvt_npu_stream_destroy(n, sink.streams[0]), DVT_FAILED_STATE,
          "destroy: stream 1 is bound to model 0");
  DvtEvent* event = make_event(n);
  refused(dvt_npu_event_wait(n, sink.streams[0], event), DVT_FAILED_STATE,
          "event 0 is not recorded inside model 0");
  CHECK(dvt_npu_event_record(n, sink.streams[0], event) == DVT_OK);
  refused(dvt_npu_event_wait(n, sink.caller, event), DVT_FAILED_STATE,
          "event 0 is recorded inside model 0, where stream 0 does not run");
  DvtNpuLabel* label = sink.label();
  refused(dvt_npu_label_goto(n, sink.caller, label), DVT_FAILED_STATE, "stream 0 is not bound");
  refused(dvt_npu_label_switch(n, sink.streams[0], data, &label, 0), DVT_INVALID_ARGUMENT,
          "label switch: no labels");
  refused(dvt_npu_label_switch(n, sink.streams[0], &label, &label, 1), DVT_INVALID_ARGUMENT,
          "not device memory");
  refused(dvt_npu_model_build_end(n, sink.model), DVT_FAILED_STATE,
          "model 0 has no end-graph task");
  CHECK(dvt_npu_model_end_graph(n, sink.model, sink.streams[0]) == DVT_OK);
  refused(dvt_npu_model_end_graph(n, sink.model, sink.streams[0]), DVT_FAILED_STATE,
          "model 0 has its end on stream 1 already");
  refused(dvt_npu_model_build_end(n, sink.model), DVT_FAILED_STATE,
          "label 0 of model 0 is not set");
  CHECK(dvt_npu_label_set(n, sink.streams[0], label) == DVT_OK);
  refused(dvt_npu_label_set(n, sink.streams[1], label), DVT_FAILED_STATE,
          "label 0 is set on stream 1 already");
  CHECK(dvt_npu_model_build_end(n, sink.model) == DVT_OK);
  refused(dvt_npu_memset_async(n, sink.streams[0], data, 0, 16), DVT_FAILED_STATE,
          "stream 1 belongs to model 0, which is complete");
  refused(dvt_npu_model_execute(n, sink.model, sink.streams[1]), DVT_FAILED_STATE,
          "execute: stream 2 is bound to model 0");
  CHECK(dvt_npu_model_destroy(n, sink.model) == DVT_OK);
  refused(dvt_npu_model_execute(n, sink.model, sink.caller), DVT_INVALID_ARGUMENT,
          "model 0 is destroyed");
  refused(dvt_npu_label_goto(n, sink.caller, label), DVT_FAILED_STATE, "not bound");
  // A model without a head, and a stream with work.
  DvtNpuModel* headless = nullptr;
  CHECK(dvt_npu_model_create(n, &headless) == DVT_OK);
  refused(dvt_npu_model_build_end(n, headless), DVT_FAILED_STATE, "model 0 has no head stream");
  CHECK(dvt_npu_memset_async(n, sink.caller, data, 0, 64) == DVT_OK);
  refused(dvt_npu_model_bind_stream(n, headless, sink.caller, 1), DVT_FAILED_STATE,
          "stream 0 has 1 unfinished tasks");
}

TEST_CASE("a running stream cannot be activated again") {
  auto npu = make_npu();
  Sink sink(npu.get(), 2);
  CHECK(launch_timing(npu.get(), sink.streams[0], kCost) == DVT_INVALID_ARGUMENT);
  auto* data = make_array<uint8_t>(npu.get(), 16);
  CHECK(dvt_npu_stream_active(npu.get(), sink.streams[0], sink.streams[1]) == DVT_OK);
  CHECK(dvt_npu_stream_active(npu.get(), sink.streams[0], sink.streams[1]) == DVT_OK);
  CHECK(dvt_npu_memset_async(npu.get(), sink.streams[1], data, 0, 16) == DVT_OK);
  sink.end_on(sink.streams[0]);
  CHECK(sink.run() == DVT_FAILED_STATE);
  CHECK(message_has("(STREAM_ACTIVE): stream 2 is already running"));
}

// ---- Queues ------------------------------------------------------------------------------------

namespace {
DvtNpuQueue* make_queue(DvtNpu* npu, uint32_t depth) {
  DvtNpuQueue* queue = nullptr;
  REQUIRE(dvt_npu_queue_create(npu, depth, &queue) == DVT_OK);
  return queue;
}
}  // namespace

TEST_CASE("items leave a queue in the order in which they came, and order what is around them") {
  in_all_modes([](DvtNpu* npu) {
    DvtNpuQueue* queue = make_queue(npu, 3);
    DvtStream* producer = make_stream(npu);
    DvtStream* consumer = make_stream(npu);
    auto* from = make_array<uint8_t>(npu, 16);
    auto* to = make_array<uint8_t>(npu, 16 * 10);
    const Arguments in_place({from}, {from}, 16);
    // The consumer comes first and pends; the producer fills the queue and pends.
    for (int i = 0; i < 10; ++i) {
      CHECK(dvt_npu_dequeue_async(npu, consumer, queue, to + 16 * i, 16) == DVT_OK);
    }
    CHECK(dvt_npu_memset_async(npu, producer, from, 0, 16) == DVT_OK);
    for (int i = 0; i < 10; ++i) {
      CHECK(launch(npu, producer, in_place, kCost, "next") == DVT_OK);
      CHECK(dvt_npu_enqueue_async(npu, producer, queue, from, 16) == DVT_OK);
    }
    std::array<uint8_t, 160> out{};
    CHECK(dvt_npu_copy_async(npu, consumer, DVT_COPY_DEVICE_TO_HOST, out.data(), to, 160, "out") ==
          DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, consumer, -1) == DVT_OK);
    for (size_t i = 0; i < 10; ++i) CHECK(out[16 * i] == i + 1);
    CHECK(dvt_npu_queue_destroy(npu, queue) == DVT_OK);
  });
}

TEST_CASE("a full queue holds the producer back") {
  auto npu = make_npu();
  DvtNpuQueue* queue = make_queue(npu.get(), 2);
  DvtStream* stream = make_stream(npu.get());
  auto* data = make_array<uint8_t>(npu.get(), 16);
  CHECK(dvt_npu_memset_async(npu.get(), stream, data, 4, 16) == DVT_OK);
  for (int i = 0; i < 3; ++i) {
    CHECK(dvt_npu_enqueue_async(npu.get(), stream, queue, data, 16) == DVT_OK);
  }
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_TIMEOUT);
  CHECK(message_has("(QUEUE_ENQUEUE) waits for room in queue 0, from which nobody dequeues"));
  uint32_t size = 0;
  CHECK(dvt_npu_queue_size(npu.get(), queue, &size) == DVT_OK);
  CHECK(size == 2);
  CHECK(dvt_npu_queue_destroy(npu.get(), queue) == DVT_FAILED_STATE);
  CHECK(message_has("queue 0 is used by task 3 of stream 0"));
  std::array<uint8_t, 16> out{};
  CHECK(dvt_npu_queue_dequeue(npu.get(), queue, out.data(), 16, -1) == DVT_OK);
  CHECK(out[15] == 4);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
}

TEST_CASE("a pending task gives its AICPU back") {
  auto npu = make_npu({.overrides = {"core.aicpu=1"}});
  DvtNpuQueue* queue = make_queue(npu.get(), 1);
  auto* data = make_array<uint8_t>(npu.get(), 32);
  DvtStream* pending = make_stream(npu.get());
  DvtStream* busy = make_stream(npu.get());
  CHECK(dvt_npu_dequeue_async(npu.get(), pending, queue, data, 16) == DVT_OK);
  DvtTaskCost aicpu{};
  aicpu.kind = DVT_TASK_AICPU;
  aicpu.read_bytes = 16;
  CHECK(dvt_npu_memset_async(npu.get(), busy, data + 16, 1, 16) == DVT_OK);
  const Arguments in_place({data + 16}, {data + 16}, 16);
  CHECK(launch(npu.get(), busy, in_place, aicpu, "aicpu") == DVT_OK);
  CHECK(dvt_npu_stream_synchronize(npu.get(), busy, -1) == DVT_OK);  // With the only AICPU.
  CHECK(dvt_npu_stream_synchronize(npu.get(), pending, 100) == DVT_TIMEOUT);
  CHECK(message_has("(QUEUE_DEQUEUE) waits for an item of queue 0, into which nobody enqueues"));
  const std::array<uint8_t, 16> item{7};
  CHECK(dvt_npu_queue_enqueue(npu.get(), queue, item.data(), 16) == DVT_OK);
  CHECK(get_value(npu.get(), pending, data) == 7);
}

TEST_CASE("host and device share a queue; sizes and limits are checked") {
  in_all_modes([](DvtNpu* npu) {
    DvtNpuQueue* in = make_queue(npu, 1);
    DvtNpuQueue* out = make_queue(npu, 4);
    DvtStream* stream = make_stream(npu);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    const std::array<uint8_t, 16> item{41};
    std::array<uint8_t, 16> result{};
    CHECK(dvt_npu_queue_dequeue(npu, out, result.data(), 16, 50) == DVT_TIMEOUT);
    CHECK(message_has("queue 1 is empty after 50.0 us"));
    CHECK(dvt_npu_queue_enqueue(npu, in, item.data(), 16) == DVT_OK);
    CHECK(dvt_npu_queue_enqueue(npu, in, item.data(), 16) == DVT_OUT_OF_RESOURCE);
    CHECK(message_has("queue 0 is full"));
    CHECK(dvt_npu_dequeue_async(npu, stream, in, data, 16) == DVT_OK);
    CHECK(launch(npu, stream, in_place, kCost, "add") == DVT_OK);
    CHECK(dvt_npu_enqueue_async(npu, stream, out, data, 16) == DVT_OK);
    CHECK(dvt_npu_queue_dequeue(npu, out, result.data(), 8, -1) == DVT_INVALID_ARGUMENT);
    CHECK(message_has("the item of queue 1 has 16 bytes, not 8"));
    CHECK(dvt_npu_queue_dequeue(npu, out, result.data(), 16, -1) == DVT_OK);
    CHECK(result[0] == 42);
    // What the host has dequeued is over for later submissions on other streams, too.
    DvtStream* other = make_stream(npu);
    CHECK(launch(npu, other, in_place, kCost, "later") == DVT_OK);
    CHECK(dvt_npu_synchronize(npu, -1) == DVT_OK);
    CHECK(dvt_npu_queue_enqueue(npu, in, item.data(), 4) == DVT_OK);
    CHECK(dvt_npu_dequeue_async(npu, stream, in, data, 16) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, stream, -1) == DVT_INVALID_ARGUMENT);
    CHECK(message_has("the item of queue 0 has 4 bytes, not 16"));
    DvtNpuQueue* queue = nullptr;
    CHECK(dvt_npu_queue_create(npu, 0, &queue) == DVT_INVALID_ARGUMENT);
    CHECK(message_has("depth 0 is not in 1..8192"));
  });
}

TEST_CASE("a model that serves requests: dequeue, compute, enqueue, again") {
  in_all_modes([](DvtNpu* npu) {
    Sink sink(npu, 1);
    DvtNpuQueue* in = make_queue(npu, 4);
    DvtNpuQueue* out = make_queue(npu, 4);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    DvtNpuLabel* again = sink.label();
    CHECK(dvt_npu_label_set(npu, sink.streams[0], again) == DVT_OK);
    CHECK(dvt_npu_dequeue_async(npu, sink.streams[0], in, data, 16) == DVT_OK);
    CHECK(launch(npu, sink.streams[0], in_place, kCost, "add") == DVT_OK);
    CHECK(dvt_npu_enqueue_async(npu, sink.streams[0], out, data, 16) == DVT_OK);
    CHECK(dvt_npu_label_goto(npu, sink.streams[0], again) == DVT_OK);
    sink.end_on(sink.streams[0]);
    CHECK(dvt_npu_model_execute(npu, sink.model, sink.caller) == DVT_OK);
    for (uint8_t request = 1; request < 20; ++request) {
      std::array<uint8_t, 16> item{};
      item.fill(request);
      CHECK(dvt_npu_queue_enqueue(npu, in, item.data(), 16) == DVT_OK);
      CHECK(dvt_npu_queue_dequeue(npu, out, item.data(), 16, -1) == DVT_OK);
      CHECK(item[15] == request + 1);
    }
    CHECK(dvt_npu_model_abort(npu, sink.model) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, sink.caller, -1) == DVT_CANCELLED);
  });
}

// ---- Streams -----------------------------------------------------------------------------------

TEST_CASE("a host callback runs in stream order and holds its stream; it cannot call back") {
  in_all_modes([](DvtNpu* npu) {
    struct Seen {
      DvtNpu* npu;
      std::array<uint8_t, 16> host{};
      int at_call = -1;
      DvtCode nested = DVT_OK;
    } seen{npu};
    DvtStream* stream = make_stream(npu);
    auto* data = make_array<uint8_t>(npu, 16);
    CHECK(dvt_npu_memset_async(npu, stream, data, 3, 16) == DVT_OK);
    CHECK(dvt_npu_copy_async(npu, stream, DVT_COPY_DEVICE_TO_HOST, seen.host.data(), data, 16,
                             "out") == DVT_OK);
    const auto function = [](void* raw) {
      auto* s = static_cast<Seen*>(raw);
      s->at_call = s->host[0];
      s->host[0] = 9;
      s->nested = dvt_npu_synchronize(s->npu, -1);
    };
    CHECK(dvt_npu_host_callback(npu, stream, function, &seen) == DVT_OK);
    CHECK(dvt_npu_copy_async(npu, stream, DVT_COPY_HOST_TO_DEVICE, data, seen.host.data(), 16,
                             "in") == DVT_OK);
    CHECK(get_value(npu, stream, data) == 9);
    CHECK(seen.at_call == 3);
    CHECK(seen.nested == DVT_FAILED_STATE);
    CHECK(dvt_npu_host_callback(npu, stream, nullptr, &seen) == DVT_INVALID_ARGUMENT);
  });
}

TEST_CASE("failure mode: stop skips the rest of the stream, continue runs it") {
  for (const DvtNpuFailureMode failure_mode :
       {DVT_NPU_STOP_ON_FAILURE, DVT_NPU_CONTINUE_ON_FAILURE}) {
    auto npu = make_npu();
    DvtNpuStreamOptions options;
    dvt_npu_stream_options_init(&options);
    options.failure_mode = failure_mode;
    DvtStream* stream = nullptr;
    REQUIRE(dvt_npu_stream_create_with(npu.get(), &options, &stream) == DVT_OK);
    auto* data = make_array<uint8_t>(npu.get(), 16);
    const Arguments in_place({data}, {data}, 16);
    CHECK(dvt_npu_memset_async(npu.get(), stream, data, 1, 16) == DVT_OK);
    CHECK(launch(npu.get(), stream, in_place, kCost, "fails", refuse) == DVT_OK);
    CHECK(launch(npu.get(), stream, in_place, kCost, "fails too", refuse) == DVT_OK);
    CHECK(launch(npu.get(), stream, in_place, kCost, "after") == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_KERNEL_FAILED);
    CHECK(std::string(dvt_npu_last_error()->node) == "fails");
    CHECK(get_value(npu.get(), stream, data) == (failure_mode == DVT_NPU_STOP_ON_FAILURE ? 1 : 2));
  }
}

TEST_CASE("stream options are checked; a shallow queue makes the host wait sooner") {
  auto npu = make_npu({.timing_only = true, .hang = "stuck"});
  DvtNpuStreamOptions options;
  dvt_npu_stream_options_init(&options);
  DvtStream* stream = nullptr;
  options.queue_depth = 4000;
  CHECK(dvt_npu_stream_create_with(npu.get(), &options, &stream) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("queue depth 4000 of a stream is more than the 2013 of the device"));
  options.queue_depth = 3;
  options.priority = 8;
  CHECK(dvt_npu_stream_create_with(npu.get(), &options, &stream) == DVT_INVALID_ARGUMENT);
  CHECK(message_has("stream priority 8 is not in 0..7"));
  options.priority = 7;
  CHECK(dvt_npu_stream_create_with(npu.get(), &options, &stream) == DVT_OK);
  for (int i = 0; i < 4; ++i) CHECK(launch_timing(npu.get(), stream, kSlow) == DVT_OK);
  CHECK(dvt_npu_host_now_ps(npu.get()) > 70'000'000);  // It waited for the first one to end.
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(launch_timing(npu.get(), stream, kSlow, "stuck") == DVT_OK);
  for (int i = 0; i < 2; ++i) CHECK(launch_timing(npu.get(), stream, kSlow) == DVT_OK);
  CHECK(launch_timing(npu.get(), stream, kSlow) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("submission queue of stream 0 is full and cannot drain"));
}

TEST_CASE("abort drops a stream's work, tells those who wait for it, and leaves it usable") {
  in_all_modes([](DvtNpu* npu) {
    DvtStream* stream = make_stream(npu);
    DvtStream* waiter = make_stream(npu);
    DvtEvent* event = make_event(npu);
    auto* data = make_array<uint8_t>(npu, 16);
    const Arguments in_place({data}, {data}, 16);
    CHECK(dvt_npu_memset_async(npu, stream, data, 1, 16) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, stream, -1) == DVT_OK);
    CHECK(launch(npu, stream, in_place, vector_cost(uint64_t{1} << 30), "long") == DVT_OK);
    CHECK(dvt_npu_event_record(npu, stream, event) == DVT_OK);
    CHECK(dvt_npu_event_wait(npu, waiter, event) == DVT_OK);
    CHECK(dvt_npu_stream_abort(npu, stream) == DVT_OK);
    CHECK(dvt_npu_stream_synchronize(npu, waiter, -1) == DVT_CANCELLED);
    CHECK(message_has("stream 0 was aborted"));
    CHECK(get_value(npu, stream, data) == 1);
  });
}

TEST_CASE("time between events") {
  auto npu = make_npu({.timing_only = true});
  DvtStream* stream = make_stream(npu.get());
  DvtEvent* first = make_event(npu.get());
  DvtEvent* last = make_event(npu.get());
  int64_t ps = 0;
  CHECK(dvt_npu_event_record(npu.get(), stream, first) == DVT_OK);
  CHECK(launch_timing(npu.get(), stream, kSlow, "slow") == DVT_OK);
  CHECK(dvt_npu_event_record(npu.get(), stream, last) == DVT_OK);
  CHECK(dvt_npu_event_elapsed(npu.get(), first, last, &ps) == DVT_FAILED_STATE);
  CHECK(dvt_npu_stream_synchronize(npu.get(), stream, -1) == DVT_OK);
  CHECK(dvt_npu_event_elapsed(npu.get(), first, last, &ps) == DVT_OK);
  const DvtNpuTask slow = task_named(npu.get(), "slow");
  CHECK(ps > slow.end_ps - slow.start_ps);
  const int64_t forward = ps;
  CHECK(dvt_npu_event_elapsed(npu.get(), last, first, &ps) == DVT_OK);
  CHECK(ps == -forward);
}

TEST_CASE("limits name the resource") {
  auto npu = make_npu({.overrides = {"model.max=1", "label.max=1", "queue.max=1"}});
  DvtNpuModel* model = nullptr;
  DvtNpuLabel* label = nullptr;
  DvtNpuQueue* queue = nullptr;
  CHECK(dvt_npu_model_create(npu.get(), &model) == DVT_OK);
  CHECK(dvt_npu_label_create(npu.get(), model, &label) == DVT_OK);
  CHECK(dvt_npu_label_create(npu.get(), model, &label) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no label left"));
  CHECK(dvt_npu_model_create(npu.get(), &model) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no model left"));
  CHECK(dvt_npu_queue_create(npu.get(), 1, &queue) == DVT_OK);
  CHECK(dvt_npu_queue_create(npu.get(), 1, &queue) == DVT_OUT_OF_RESOURCE);
  CHECK(message_has("no queue left"));
}
