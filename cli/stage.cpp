#include "cli/stage.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace davit::cli {
namespace {

constexpr size_t kStageBytes = 121;
using StageText = std::array<char, kStageBytes>;

// Written alternately: a handler that interrupts set_stage() still sees the complete other buffer.
StageText g_buffers[2] = {{"start"}, {}};
std::atomic<const char*> g_stage{g_buffers[0].data()};
std::atomic<int> g_verdict_fd{STDOUT_FILENO};
static_assert(std::atomic<const char*>::is_always_lock_free, "read in signal handlers");
static_assert(std::atomic<int>::is_always_lock_free, "read in signal handlers");

struct Watched {
  const char* name;
  int number;
  bool crash;
};
constexpr Watched kWatched[] = {
    {"SIGSEGV", SIGSEGV, true},  {"SIGBUS", SIGBUS, true},   {"SIGFPE", SIGFPE, true},
    {"SIGILL", SIGILL, true},    {"SIGABRT", SIGABRT, true}, {"SIGINT", SIGINT, false},
    {"SIGTERM", SIGTERM, false}, {"SIGHUP", SIGHUP, false},
};
constexpr size_t kWatchedCount = std::size(kWatched);
struct sigaction g_previous[kWatchedCount];

// A fixed buffer that only grows: everything a signal handler may do with text.
class Line {
 public:
  void add(const char* text) {
    const size_t room = text_.size() - size_;
    const size_t wanted = strlen(text);
    const size_t length = wanted < room ? wanted : room;
    memcpy(text_.data() + size_, text, length);
    size_ += length;
  }
  void write_to(int fd) const {
    size_t done = 0;
    while (done < size_) {
      const ssize_t count = write(fd, text_.data() + done, size_ - done);
      if (count <= 0) return;
      done += static_cast<size_t>(count);
    }
  }

 private:
  std::array<char, 400> text_{};
  size_t size_ = 0;
};

void on_signal(int number, siginfo_t* info, void* /*machine_context*/) {
  size_t index = 0;
  while (index < kWatchedCount && kWatched[index].number != number) ++index;
  if (index == kWatchedCount) return;
  const Watched& watched = kWatched[index];
  if (watched.crash) {
    Line line;
    line.add("davit: crashed with ");
    line.add(watched.name);
    line.add(" in stage: ");
    line.add(current_stage());
    line.add("\ndavit: this is a bug in Davit; please report the command and the model\n");
    line.write_to(STDERR_FILENO);
  }
  Line verdict;
  verdict.add("\nFAILED: ");
  verdict.add(current_stage());
  verdict.add(watched.crash ? ": crashed with " : ": interrupted by ");
  verdict.add(watched.name);
  verdict.add("\n");
  verdict.write_to(g_verdict_fd.load());
  // The previous handler takes over when this one returns: a faulting instruction (si_code > 0)
  // runs again and gives it the true address; a signal that was sent is sent again.
  sigaction(number, &g_previous[index], nullptr);
  if (info->si_code <= 0) raise(number);
}

}  // namespace

void set_stage(std::string_view name) {
  StageText& next = g_stage.load() == g_buffers[0].data() ? g_buffers[1] : g_buffers[0];
  const size_t length = name.size() < kStageBytes - 1 ? name.size() : kStageBytes - 1;
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    next[i] = byte < 0x20 || byte == 0x7F ? '?' : name[i];
  }
  next[length] = '\0';
  g_stage.store(next.data());
}

const char* current_stage() {
  return g_stage.load();
}

void set_verdict_fd(int fd) {
  g_verdict_fd.store(fd);
}

void install_signal_handlers(int verdict_fd) {
  set_verdict_fd(verdict_fd);
  signal(SIGXFSZ, SIG_IGN);
  // The handler needs little; 64 KiB is above every MINSIGSTKSZ, AVX-512 state included.
  alignas(16) static std::array<char, size_t{64} * 1024> stack;
  stack_t alternate{};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  for (size_t i = 0; i < kWatchedCount; ++i) {
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    // A signal that the parent chose to ignore (nohup) stays ignored.
    sigaction(kWatched[i].number, nullptr, &g_previous[i]);
    if (!kWatched[i].crash && g_previous[i].sa_handler == SIG_IGN) continue;
    sigaction(kWatched[i].number, &action, &g_previous[i]);
  }
}

SignalsHeld::SignalsHeld() {
  sigset_t held;
  sigemptyset(&held);
  for (const Watched& watched : kWatched) {
    if (!watched.crash) sigaddset(&held, watched.number);
  }
  pthread_sigmask(SIG_BLOCK, &held, &previous_);
}

SignalsHeld::~SignalsHeld() {
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

}  // namespace davit::cli
