// The C API of executors (davit/davit.h): null checks, and no exception gets out.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "exec/api_error.hpp"
#include "exec/executor.hpp"
#include "exec/mt_topo/platform.hpp"

using davit::ErrorDetail;
using davit::Result;
using davit::Status;
using davit::exec::Observer;

namespace {

// Runs `body`, which returns a Status, and turns the outcome into the C record.
template <class Body>
DvtCode guarded(DvtError* error, DvtStage stage, Body body) noexcept {
  try {
    const Status status = body();
    if (status.ok()) {
      davit::exec::clear_error(error);
    } else {
      status.to_c(error);
    }
    return status.code();
  } catch (const std::bad_alloc&) {
    return davit::exec::out_of_memory(error, stage, "out of memory");
  }
}

Status null_argument(const char* name) {
  return {DVT_INVALID_ARGUMENT, DVT_STAGE_NONE, std::string(name) + " is NULL"};
}

// On CLOCK_MONOTONIC; INT64_MAX for none.
int64_t deadline_of(int64_t timeout_us) {
  if (timeout_us < 0) return INT64_MAX;
  const int64_t now_ns = davit::mt_topo::RealThreads::now_ns();
  if (timeout_us > (INT64_MAX - 1 - now_ns) / 1000) return INT64_MAX;
  return now_ns + timeout_us * 1000;
}

// The caller's options as this version knows them.
Status read_options(const DvtExecutorOptions* given, DvtExecutorOptions& options) {
  dvt_executor_options_init(&options);
  if (given == nullptr) return {};
  const auto wrong_size = [&](const char* message) {
    return Status(ErrorDetail{.code = DVT_VERSION_MISMATCH,
                              .stage = DVT_STAGE_LOAD,
                              .message = message,
                              .expected = std::to_string(sizeof options),
                              .got = std::to_string(given->struct_size),
                              .hint = "call dvt_executor_options_init() first"});
  };
  constexpr size_t kFirstVersion = offsetof(DvtExecutorOptions, heap_bytes_max);
  if (given->struct_size < kFirstVersion) {
    return wrong_size("DvtExecutorOptions.struct_size is not one of any version");
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  for (size_t i = sizeof options; i < given->struct_size; ++i) {
    if (bytes[i] != std::byte{0}) {
      return wrong_size("DvtExecutorOptions asks for something that this version does not know");
    }
  }
  std::memcpy(&options, given, std::min<size_t>(given->struct_size, sizeof options));
  options.struct_size = sizeof options;
  return {};
}

}  // namespace

const char* dvt_version(void) {
  return DAVIT_VERSION;
}

void dvt_executor_options_init(DvtExecutorOptions* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .reserved = 0,
              .device = nullptr,
              .synchronize_timeout_us = -1,
              .heap_bytes_max = 0,
              .pool = nullptr,
              .schedule = DVT_SCHEDULE_AUTO,
              .workers_max = 0,
              .device_bytes_max = 0,
              .device_memory = DVT_DEVICE_MEMORY_CACHED,
              .huge_pages = DVT_HUGE_PAGES_AUTO,
              .device_fixed = nullptr,
              .device_fixed_bytes = 0,
              .trust_output_shapes = 0,
              .reserved_2 = 0};
}

DvtCode dvt_executor_create(DvtImage* image, const DvtExecutorOptions* options, DvtExecutor** out,
                            DvtError* error) {
  return guarded(error, DVT_STAGE_LOAD, [&]() -> Status {
    if (out == nullptr) return null_argument("out");
    *out = nullptr;
    if (image == nullptr) return null_argument("image");
    DvtExecutorOptions known;
    if (Status status = read_options(options, known); !status.ok()) return status;
    Result<std::unique_ptr<DvtExecutor>> executor = DvtExecutor::create(*image, known);
    if (!executor.ok()) return std::move(executor.status());
    *out = std::move(executor).value().release();
    return {};
  });
}

void dvt_executor_destroy(DvtExecutor* executor) {
  // What unloading could not allocate for is dropped like its other errors.
  const DvtCode dropped = dvt_executor_unload(executor, nullptr);
  (void)dropped;
  delete executor;
}

DvtCode dvt_executor_unload(DvtExecutor* executor, DvtError* error) {
  return guarded(error, DVT_STAGE_UNLOAD, [&]() -> Status {
    return executor == nullptr ? null_argument("executor") : executor->unload();
  });
}

DvtCode dvt_executor_bind_input(DvtExecutor* executor, uint32_t index, const void* data,
                                size_t bytes, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    return executor->bind_input(index, data, bytes);
  });
}

DvtCode dvt_executor_bind_output(DvtExecutor* executor, uint32_t index, void* data, size_t bytes,
                                 DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    return executor->bind_output(index, data, bytes);
  });
}

DvtCode dvt_executor_bind_arena(DvtExecutor* executor, void* base, size_t bytes, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    return executor->bind_arena(base, bytes);
  });
}

DvtCode dvt_executor_bind_device_memory(DvtExecutor* executor, void* base, size_t bytes,
                                        DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    return executor->bind_device_memory(base, bytes);
  });
}

DvtCode dvt_executor_bind_variable(DvtExecutor* executor, uint32_t input, uint32_t output,
                                   void* base, size_t bytes, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    return executor->bind_variable(input, output, base, bytes);
  });
}

DvtCode dvt_executor_variable(const DvtExecutor* executor, uint32_t input, void** data,
                              DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (data == nullptr) return null_argument("data");
    return executor->variable(input, nullptr, *data);
  });
}

DvtCode dvt_executor_variable_tensor(const DvtExecutor* executor, uint32_t input, DvtTensor* tensor,
                                     void** data, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (tensor == nullptr) return null_argument("tensor");
    if (data == nullptr) return null_argument("data");
    return executor->variable(input, tensor, *data);
  });
}

DvtCode dvt_executor_set_variable(DvtExecutor* executor, uint32_t input, const DvtTensor* tensor,
                                  const void* data, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    return executor->set_variable(input, tensor, data);
  });
}

DvtCode dvt_executor_bind_input_tensor(DvtExecutor* executor, uint32_t index,
                                       const DvtTensor* tensor, const void* data, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (tensor == nullptr) return null_argument("tensor");
    return executor->bind_input_tensor(index, *tensor, data);
  });
}

DvtCode dvt_executor_bind_output_tensor(DvtExecutor* executor, uint32_t index,
                                        const DvtTensor* tensor, void* data, size_t bytes,
                                        DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (tensor == nullptr) return null_argument("tensor");
    return executor->bind_output_tensor(index, *tensor, data, bytes);
  });
}

DvtCode dvt_executor_output_tensor(const DvtExecutor* executor, uint32_t index, DvtTensor* tensor,
                                   const void** data, DvtError* error) {
  return guarded(error, DVT_STAGE_BIND, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (tensor == nullptr) return null_argument("tensor");
    const void* unused = nullptr;
    return executor->output_tensor(index, *tensor, data != nullptr ? *data : unused);
  });
}

uint32_t dvt_executor_gear(const DvtExecutor* executor) {
  return executor == nullptr ? DVT_NO_INDEX : executor->gear();
}

void dvt_executor_statistics(const DvtExecutor* executor, DvtExecutorStatistics* out) {
  if (out == nullptr) return;
  *out = {};
  if (executor != nullptr) executor->statistics(*out);
}

void dvt_executor_memory(const DvtExecutor* executor, DvtMemoryPool pool,
                         DvtMemoryStatistics* out) {
  if (out == nullptr) return;
  *out = {};
  if (executor != nullptr) executor->memory(pool, *out);
}

uint64_t dvt_executor_live_bytes(const DvtExecutor* executor, DvtMemoryPool pool) {
  return executor != nullptr ? executor->live_bytes(pool) : 0;
}

void dvt_executor_visit_memory(const DvtExecutor* executor, DvtMemoryPool pool,
                               DvtMemoryVisitor visit, void* user) {
  if (executor != nullptr && visit != nullptr) executor->visit_memory(pool, visit, user);
}

void dvt_executor_host_memory(const DvtExecutor* executor, DvtHostMemory* out) {
  if (out == nullptr) return;
  *out = {};
  if (executor != nullptr) executor->host_memory(*out);
}

uint64_t dvt_executor_trim(DvtExecutor* executor, uint64_t keep_bytes) {
  return executor != nullptr ? executor->trim(keep_bytes) : 0;
}

void dvt_executor_schedule(const DvtExecutor* executor, DvtScheduleInfo* out) {
  if (out == nullptr) return;
  *out = {};
  if (executor != nullptr) executor->schedule(*out);
}

DvtCode dvt_executor_run(DvtExecutor* executor, DvtError* error) {
  return guarded(error, DVT_STAGE_RUN, [&]() -> Status {
    return executor == nullptr ? null_argument("executor") : executor->run();
  });
}

DvtCode dvt_executor_run_observed(DvtExecutor* executor, DvtNodeObserver observer, void* user,
                                  DvtError* error) {
  return guarded(error, DVT_STAGE_RUN, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (observer == nullptr) return null_argument("observer");
    const Observer call = {observer, user, nullptr};
    return executor->run({.control = {}, .observer = &call, .in_order = true});
  });
}

void dvt_run_options_init(DvtRunOptions* options) {
  if (options == nullptr) return;
  *options = {.struct_size = sizeof *options,
              .flags = 0,
              .cancel = nullptr,
              .timeout_us = -1,
              .observer = nullptr,
              .observer_user = nullptr};
}

DvtCode dvt_executor_run_with(DvtExecutor* executor, const DvtRunOptions* options,
                              DvtError* error) {
  return guarded(error, DVT_STAGE_RUN, [&]() -> Status {
    if (executor == nullptr) return null_argument("executor");
    if (options == nullptr) return executor->run();
    if (options->struct_size != sizeof *options) {
      return Status(ErrorDetail{.code = DVT_VERSION_MISMATCH,
                                .stage = DVT_STAGE_RUN,
                                .message = "DvtRunOptions.struct_size is not one of any version",
                                .expected = std::to_string(sizeof *options),
                                .got = std::to_string(options->struct_size),
                                .hint = "call dvt_run_options_init() first"});
    }
    if (options->flags > DVT_RUN_WATCHED) {
      return Status(ErrorDetail{.code = DVT_INVALID_ARGUMENT,
                                .stage = DVT_STAGE_RUN,
                                .message = "DvtRunOptions.flags has unknown bits",
                                .expected = "DVT_RUN_*",
                                .got = std::to_string(options->flags)});
    }
    const bool watched = options->flags == DVT_RUN_WATCHED;
    const Observer call = {options->observer, options->observer_user,
                           watched ? &executor->watch() : nullptr};
    return executor->run(
        {.control = {.cancel = options->cancel == nullptr ? nullptr : &options->cancel->requested,
                     .deadline_ns = deadline_of(options->timeout_us)},
         .observer = options->observer == nullptr && !watched ? nullptr : &call,
         .in_order = false});
  });
}

size_t dvt_executor_describe_waits(const DvtExecutor* executor, char* text, size_t size) {
  std::string words;
  try {
    words = executor == nullptr ? "there is no executor" : executor->describe_waits();
  } catch (const std::bad_alloc&) {
    words = "no memory";
  }
  if (text != nullptr && size > 0) {
    const size_t count = words.copy(text, size - 1);
    text[count] = '\0';
  }
  return words.size();
}

DvtCode dvt_cancel_create(DvtCancel** out, DvtError* error) {
  return guarded(error, DVT_STAGE_NONE, [&]() -> Status {
    if (out == nullptr) return null_argument("out");
    *out = new DvtCancel;
    return {};
  });
}

void dvt_cancel_destroy(DvtCancel* cancel) {
  delete cancel;
}

// Relaxed: a run that sees it only stops; what it leaves is not read by who asked.
void dvt_cancel_request(DvtCancel* cancel) {
  if (cancel != nullptr) cancel->requested.store(1, std::memory_order_relaxed);
}

void dvt_cancel_reset(DvtCancel* cancel) {
  if (cancel != nullptr) cancel->requested.store(0, std::memory_order_relaxed);
}
