// The sequential loop alone: order, the failing step, the trace hooks.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "exec/sequential_c/sequential.h"

namespace {

struct Probe {
  std::string* log;
  char name;
  int32_t code;
};

int32_t probe(void* ctx) {
  const auto* self = static_cast<const Probe*>(ctx);
  self->log->push_back(self->name);
  return self->code;
}

struct List {
  std::string log;
  std::vector<Probe> probes;
  std::vector<DvtStep> steps;

  // Steps named a, b, ...; the one at `failing` returns `code`.
  explicit List(size_t count, size_t failing = SIZE_MAX, int32_t code = 0) {
    probes.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      probes.push_back({&log, static_cast<char>('a' + i), i == failing ? code : 0});
      steps.push_back({probe, &probes.back()});
    }
  }
};

}  // namespace

TEST_CASE("an empty list runs nothing and succeeds") {
  int32_t code = 42;
  CHECK(dvt_sequential_run(nullptr, 0, &code) == 0);
  CHECK(code == 0);
}

TEST_CASE("steps run in order") {
  List list(5);
  int32_t code = 42;
  CHECK(dvt_sequential_run(list.steps.data(), list.steps.size(), &code) == 5);
  CHECK(code == 0);
  CHECK(list.log == "abcde");
}

TEST_CASE("a run stops at the failing step, wherever it is") {
  for (size_t failing = 0; failing < 5; ++failing) {
    for (const int32_t wanted : {1, -7}) {
      List list(5, failing, wanted);
      int32_t code = 0;
      CHECK(dvt_sequential_run(list.steps.data(), list.steps.size(), &code) == failing);
      CHECK(code == wanted);
      CHECK(list.log == std::string("abcde").substr(0, failing + 1));
    }
  }
}

TEST_CASE("a traced run does the same and brackets every step, the failing one included") {
  List list(4, 2, 9);
  DvtStepTrace trace{};
  trace.user = &list.log;
  trace.begin = [](void* user, size_t step) {
    *static_cast<std::string*>(user) += "<" + std::to_string(step);
  };
  trace.end = [](void* user, size_t step, int32_t code) {
    *static_cast<std::string*>(user) += std::to_string(step) + "=" + std::to_string(code) + ">";
  };
  int32_t code = 0;
  CHECK(dvt_sequential_run_traced(list.steps.data(), list.steps.size(), &trace, nullptr, &code) ==
        2);
  CHECK(code == 9);
  CHECK(list.log == "<0a0=0><1b1=0><2c2=9>");
}

TEST_CASE("a checked run asks before every step, and stops where it is told to") {
  struct Asked {
    size_t left;
    int32_t then;
  };
  const auto go_on = [](void* user) {
    auto& asked = *static_cast<Asked*>(user);
    return asked.left-- == 0 ? asked.then : 0;
  };
  for (size_t stop = 0; stop <= 4; ++stop) {
    for (const bool traced : {false, true}) {
      List list(4);
      Asked asked{stop, 77};
      const DvtStepCheck check = {go_on, &asked};
      const DvtStepTrace trace = {[](void*, size_t) {}, [](void*, size_t, int32_t) {}, nullptr};
      int32_t code = 42;
      const size_t done =
          traced ? dvt_sequential_run_traced(list.steps.data(), 4, &trace, &check, &code)
                 : dvt_sequential_run_checked(list.steps.data(), 4, &check, &code);
      CHECK(done == stop);
      CHECK(code == (stop == 4 ? 0 : 77));
      CHECK(list.log == std::string("abcd").substr(0, stop));
    }
  }
}

TEST_CASE("of a checked run, too, a failing step gives its own code") {
  List list(4, 1, 9);
  const DvtStepCheck check = {[](void*) { return 0; }, nullptr};
  int32_t code = 0;
  CHECK(dvt_sequential_run_checked(list.steps.data(), 4, &check, &code) == 1);
  CHECK(code == 9);
  CHECK(list.log == "ab");
}
