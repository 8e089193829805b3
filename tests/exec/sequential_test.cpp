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
  CHECK(dvt_sequential_run_traced(list.steps.data(), list.steps.size(), &trace, &code) == 2);
  CHECK(code == 9);
  CHECK(list.log == "<0a0=0><1b1=0><2c2=9>");
}
