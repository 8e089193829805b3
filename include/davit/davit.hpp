// davit.hpp: davit.h for C++20: RAII, spans, no exceptions of its own. Header only.
//
//   davit::Expected<davit::Image> image = davit::Image::open("model.davit");
//   if (!image) return fail(image.error());
//   davit::Expected<davit::Executor> executor = davit::Executor::create(*image);
//   ...
//   if (davit::Error error = executor->bind_input(0, std::span<const float>(pixels))) return ...;
//   if (davit::Error error = executor->bind_output(0, std::span<float>(scores))) return ...;
//   if (davit::Error error = executor->run()) std::fputs(error.text().c_str(), stderr);
//
// Threads  As davit.h: share an Image freely, use an Executor from one thread at a time.
// Memory   Each class owns one C object and are moved, not copied. An Executor keeps its image
//          alive by itself. Bound spans must stay valid until they are rebound or the Executor is
//          gone.
// Errors   Functions return an Error, which is true when something failed, or an Expected. Success
//          allocates nothing.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "davit/davit.h"

namespace davit {

// What went wrong, or nothing. True when something did.
class [[nodiscard]] Error {
 public:
  Error() = default;
  // From what a C function returned and filled in.
  Error(DvtCode code, const DvtError& detail) : code_(code) {
    // Without memory for the words, the code has to do.
    if (code != DVT_OK) detail_.reset(new (std::nothrow) DvtError(detail));
  }

  explicit operator bool() const { return code_ != DVT_OK; }
  [[nodiscard]] DvtCode code() const { return code_; }
  // All that is known; null when nothing failed, or when memory ran out.
  [[nodiscard]] const DvtError* detail() const { return detail_.get(); }

  // "bind: the buffer is too small; tensor x; expected f32[4], 16 bytes; got 8 bytes"
  [[nodiscard]] std::string text() const {
    if (code_ == DVT_OK) return "ok";
    if (detail_ == nullptr) return "error " + std::to_string(code_);
    std::string text = detail_->message;
    const auto add = [&text](const char* label, const char* part) {
      if (*part != '\0') text.append("; ").append(label).append(part);
    };
    add("node ", detail_->node);
    add("operator ", detail_->op);
    add("tensor ", detail_->tensor);
    add("expected ", detail_->expected);
    add("got ", detail_->got);
    add("hint: ", detail_->hint);
    return text;
  }

 private:
  DvtCode code_ = DVT_OK;
  std::unique_ptr<DvtError> detail_;
};

// A value, or the error that there is instead. Dereference only when it is true.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Expected(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return value_.has_value(); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

namespace detail {

// Calls a C function whose last parameter is a DvtError*.
template <class Function, class... Arguments>
Error call(Function function, Arguments... arguments) {
  DvtError error;  // NOLINT(cppcoreguidelines-pro-type-member-init): written on failure only.
  const DvtCode code = function(arguments..., &error);
  return code == DVT_OK ? Error() : Error(code, error);
}

inline Error refuse_shape(const char* message) {
  DvtError error{};
  error.code = DVT_INVALID_ARGUMENT;
  error.stage = DVT_STAGE_BIND;
  std::snprintf(error.message, sizeof error.message, "%s", message);
  return {DVT_INVALID_ARGUMENT, error};
}

}  // namespace detail

class Image {
 public:
  // `options` null: the defaults.
  static Expected<Image> open(const std::string& path, const DvtImageOptions* options = nullptr) {
    DvtImage* image = nullptr;
    Error error = detail::call(dvt_image_open_file, path.c_str(), options, &image);
    if (error) return error;
    return Image(image);
  }

  // Borrows `bytes`, which must outlive the image and its executors.
  static Expected<Image> borrow(std::span<const std::byte> bytes,
                                const DvtImageOptions* options = nullptr) {
    DvtImage* image = nullptr;
    Error error = detail::call(dvt_image_open_memory, static_cast<const void*>(bytes.data()),
                               bytes.size(), options, &image);
    if (error) return error;
    return Image(image);
  }

  [[nodiscard]] const char* target() const { return dvt_image_target(get()); }
  [[nodiscard]] DvtImageInfo info() const {
    DvtImageInfo info;
    dvt_image_info(get(), &info);
    return info;
  }

  [[nodiscard]] DvtHostMemory host_memory() const {
    DvtHostMemory memory;
    dvt_image_host_memory(get(), &memory);
    return memory;
  }
  // What an executor allocates on a device.
  [[nodiscard]] Expected<DvtDeviceMemoryNeeds> device_memory() const {
    DvtDeviceMemoryNeeds needs{};
    Error error =
        detail::call(dvt_image_device_memory, static_cast<const DvtImage*>(get()), &needs);
    if (error) return error;
    return needs;
  }

  [[nodiscard]] uint32_t input_count() const { return dvt_image_input_count(get()); }
  [[nodiscard]] uint32_t output_count() const { return dvt_image_output_count(get()); }
  [[nodiscard]] Expected<DvtPortInfo> input(uint32_t index) const {
    return port(dvt_image_input_info, index);
  }
  [[nodiscard]] Expected<DvtPortInfo> output(uint32_t index) const {
    return port(dvt_image_output_info, index);
  }
  [[nodiscard]] std::optional<uint32_t> find_input(const std::string& name) const {
    return found(dvt_image_find_input(get(), name.c_str()));
  }
  [[nodiscard]] std::optional<uint32_t> find_output(const std::string& name) const {
    return found(dvt_image_find_output(get(), name.c_str()));
  }

  [[nodiscard]] DvtImage* get() const { return image_.get(); }

 private:
  struct Closer {
    void operator()(DvtImage* image) const { dvt_image_close(image); }
  };

  explicit Image(DvtImage* image) : image_(image) {}

  template <class Query>
  Expected<DvtPortInfo> port(Query query, uint32_t index) const {
    DvtPortInfo info;
    Error error = detail::call(query, static_cast<const DvtImage*>(get()), index, &info);
    if (error) return error;
    return info;
  }
  static std::optional<uint32_t> found(uint32_t index) {
    return index == DVT_NO_INDEX ? std::nullopt : std::optional(index);
  }

  std::unique_ptr<DvtImage, Closer> image_;
};

// Worker threads for executors. Needs the library davit_threads.
class Pool {
 public:
  // `options` null: as many workers as the process may use.
  static Expected<Pool> create(const DvtPoolOptions* options = nullptr) {
    DvtPool* pool = nullptr;
    Error error = detail::call(dvt_pool_create, options, &pool);
    if (error) return error;
    return Pool(pool);
  }
  static Expected<Pool> create(uint32_t workers) {
    DvtPoolOptions options;
    dvt_pool_options_init(&options);
    options.workers = workers;
    return create(&options);
  }

  [[nodiscard]] uint32_t workers() const { return dvt_pool_workers(get()); }
  // For DvtExecutorOptions.pool.
  [[nodiscard]] DvtPool* get() const { return pool_.get(); }

 private:
  struct Destroyer {
    void operator()(DvtPool* pool) const { dvt_pool_destroy(pool); }
  };

  explicit Pool(DvtPool* pool) : pool_(pool) {}

  std::unique_ptr<DvtPool, Destroyer> pool_;
};

// Ends runs early, from any thread.
class Cancel {
 public:
  static Expected<Cancel> create() {
    DvtCancel* cancel = nullptr;
    Error error = detail::call(dvt_cancel_create, &cancel);
    if (error) return error;
    return Cancel(cancel);
  }

  void request() const { dvt_cancel_request(get()); }
  void reset() const { dvt_cancel_reset(get()); }
  // For DvtRunOptions.cancel.
  [[nodiscard]] DvtCancel* get() const { return cancel_.get(); }

 private:
  struct Destroyer {
    void operator()(DvtCancel* cancel) const { dvt_cancel_destroy(cancel); }
  };

  explicit Cancel(DvtCancel* cancel) : cancel_(cancel) {}

  std::unique_ptr<DvtCancel, Destroyer> cancel_;
};

class Executor {
 public:
  // Load: allocates and runs Init. `options` null: the defaults.
  static Expected<Executor> create(const Image& image,
                                   const DvtExecutorOptions* options = nullptr) {
    DvtExecutor* executor = nullptr;
    Error error = detail::call(dvt_executor_create, image.get(), options, &executor);
    if (error) return error;
    return Executor(executor);
  }

  // Binds the caller's memory, without a copy. Elements of any trivial type; the size in bytes has
  // to suffice for the tensor.
  template <class T, size_t N>
  requires std::is_trivially_copyable_v<T> Error bind_input(uint32_t index, std::span<T, N> data) {
    return detail::call(dvt_executor_bind_input, get(), index,
                        static_cast<const void*>(data.data()), data.size_bytes());
  }
  template <class T, size_t N>
  requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>) Error
      bind_output(uint32_t index, std::span<T, N> data) {
    return detail::call(dvt_executor_bind_output, get(), index, static_cast<void*>(data.data()),
                        data.size_bytes());
  }

  // The same with the shape of the tensor: for inputs with a dynamic shape. `data` has to be of the
  // input's element type, and as many elements as `dims` make, or more.
  template <class T, size_t N>
  requires std::is_trivially_copyable_v<T> Error bind_input(uint32_t index, std::span<T, N> data,
                                                            DvtDType dtype,
                                                            std::span<const int64_t> dims) {
    DvtTensor tensor{};
    tensor.dtype = dtype;
    const bool fits =
        dims.size() <= DVT_MAX_RANK &&
        dvt_set_shape(&tensor, static_cast<uint32_t>(dims.size()), dims.data()) == DVT_OK;
    if (!fits) return detail::refuse_shape("the dimensions are no shape of a tensor");
    if (data.size_bytes() < tensor.bytes) return detail::refuse_shape("the buffer is too small");
    return detail::call(dvt_executor_bind_input_tensor, get(), index,
                        static_cast<const DvtTensor*>(&tensor),
                        static_cast<const void*>(data.data()));
  }
  // The same for an output: runs that give it another shape fail. An empty span: in memory of the
  // executor.
  template <class T, size_t N>
  requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>) Error
      bind_output(uint32_t index, std::span<T, N> data, DvtDType dtype,
                  std::span<const int64_t> dims) {
    DvtTensor tensor{};
    tensor.dtype = dtype;
    const bool fits =
        dims.size() <= DVT_MAX_RANK &&
        dvt_set_shape(&tensor, static_cast<uint32_t>(dims.size()), dims.data()) == DVT_OK;
    if (!fits) return detail::refuse_shape("the dimensions are no shape of a tensor");
    return detail::call(dvt_executor_bind_output_tensor, get(), index,
                        static_cast<const DvtTensor*>(&tensor), static_cast<void*>(data.data()),
                        data.size_bytes());
  }
  // Memory for planned values, see dvt_executor_bind_arena(); an empty span: the executor's own.
  Error bind_arena(std::span<std::byte> memory) {
    return detail::call(dvt_executor_bind_arena, get(), static_cast<void*>(memory.data()),
                        memory.size());
  }
  // Memory on the device for what runs allocate there, see dvt_executor_bind_device_memory(); an
  // empty span: from the device.
  Error bind_device_memory(std::span<std::byte> memory) {
    return detail::call(dvt_executor_bind_device_memory, get(), static_cast<void*>(memory.data()),
                        memory.size());
  }
  // What a run leaves in the output, the next one finds in the input: see
  // dvt_executor_bind_variable(); an empty span: memory of the executor's, all zeros.
  Error bind_variable(uint32_t input, uint32_t output, std::span<std::byte> memory = {}) {
    return detail::call(dvt_executor_bind_variable, get(), input, output,
                        static_cast<void*>(memory.data()), memory.size());
  }
  // Where its value is until the next run.
  [[nodiscard]] Expected<void*> variable(uint32_t input) const {
    void* data = nullptr;
    Error error =
        detail::call(dvt_executor_variable, static_cast<const DvtExecutor*>(get()), input, &data);
    if (error) return error;
    return data;
  }
  // With its shape.
  struct Variable {
    DvtTensor tensor;
    void* data;
    [[nodiscard]] std::span<const int64_t> dims() const { return {tensor.dims, tensor.rank}; }
  };
  [[nodiscard]] Expected<Variable> variable_tensor(uint32_t input) const {
    Variable variable{};
    Error error = detail::call(dvt_executor_variable_tensor, static_cast<const DvtExecutor*>(get()),
                               input, &variable.tensor, &variable.data);
    if (error) return error;
    return variable;
  }
  // Copies as many elements as `dims` make; an empty span: zeros.
  template <class T, size_t N>
  requires std::is_trivially_copyable_v<T> Error set_variable(uint32_t input, std::span<T, N> data,
                                                              DvtDType dtype,
                                                              std::span<const int64_t> dims) {
    DvtTensor tensor{};
    tensor.dtype = dtype;
    const bool fits =
        dims.size() <= DVT_MAX_RANK &&
        dvt_set_shape(&tensor, static_cast<uint32_t>(dims.size()), dims.data()) == DVT_OK &&
        (data.empty() || data.size_bytes() >= tensor.bytes);
    if (!fits) return detail::refuse_shape("the dimensions are no shape of these elements");
    return detail::call(dvt_executor_set_variable, get(), input,
                        static_cast<const DvtTensor*>(&tensor),
                        static_cast<const void*>(data.empty() ? nullptr : data.data()));
  }
  // Gives an output with a dynamic shape back to the executor's own memory.
  Error unbind_output(uint32_t index) {
    return detail::call(dvt_executor_bind_output, get(), index, static_cast<void*>(nullptr),
                        size_t{0});
  }

  // After a successful run: an output's shape and data, until the next run or the next binding of
  // an output.
  struct Output {
    DvtTensor tensor;
    const void* data;

    [[nodiscard]] std::span<const int64_t> dims() const { return {tensor.dims, tensor.rank}; }
    // As many elements of T as its bytes make.
    template <class T>
    [[nodiscard]] std::span<const T> as() const {
      return {static_cast<const T*>(data), static_cast<size_t>(tensor.bytes / sizeof(T))};
    }
  };
  [[nodiscard]] Expected<Output> output(uint32_t index) const {
    Output output{};
    Error error = detail::call(dvt_executor_output_tensor, static_cast<const DvtExecutor*>(get()),
                               index, &output.tensor, &output.data);
    if (error) return error;
    return output;
  }

  [[nodiscard]] DvtExecutorStatistics statistics() const {
    DvtExecutorStatistics statistics;
    dvt_executor_statistics(get(), &statistics);
    return statistics;
  }

  // Memory whose size is known at run time only; all zero for a pool that there is not.
  [[nodiscard]] DvtMemoryStatistics memory(DvtMemoryPool pool) const {
    DvtMemoryStatistics statistics;
    dvt_executor_memory(get(), pool, &statistics);
    return statistics;
  }
  // What the executor keeps on the host.
  [[nodiscard]] DvtHostMemory host_memory() const {
    DvtHostMemory memory;
    dvt_executor_host_memory(get(), &memory);
    return memory;
  }
  // Gives cached memory back; returns the bytes.
  uint64_t trim(uint64_t keep_bytes = 0) { return dvt_executor_trim(get(), keep_bytes); }

  // How the last run was scheduled, or the next one will be.
  [[nodiscard]] DvtScheduleInfo schedule() const {
    DvtScheduleInfo info;
    dvt_executor_schedule(get(), &info);
    return info;
  }

  // Execute: runs Main once.
  Error run() { return detail::call(dvt_executor_run, get()); }

  // The same with limits, and reporting to `options.observer`.
  Error run(const DvtRunOptions& options) {
    return detail::call(dvt_executor_run_with, get(), &options);
  }

  // Of runs with DVT_RUN_WATCHED; any thread may call.
  [[nodiscard]] std::string describe_waits() const {
    std::string text(dvt_executor_describe_waits(get(), nullptr, 0) + 1024, '\0');
    text.resize(
        std::min(dvt_executor_describe_waits(get(), text.data(), text.size()), text.size() - 1));
    return text;
  }

  // The same; calls `observer(const DvtNodeEvent&)` after every node.
  template <std::invocable<const DvtNodeEvent&> Observer>
  Error run_observed(Observer&& observer) {
    using Plain = std::remove_reference_t<Observer>;
    const DvtNodeObserver call = [](void* user, const DvtNodeEvent* event) {
      (*static_cast<Plain*>(user))(*event);
    };
    return detail::call(dvt_executor_run_observed, get(), call,
                        const_cast<void*>(static_cast<const void*>(std::addressof(observer))));
  }

  // Unload: runs DeInit and reports its errors, which the destructor drops.
  Error unload() { return detail::call(dvt_executor_unload, get()); }

  [[nodiscard]] DvtExecutor* get() const { return executor_.get(); }

 private:
  struct Destroyer {
    void operator()(DvtExecutor* executor) const { dvt_executor_destroy(executor); }
  };

  explicit Executor(DvtExecutor* executor) : executor_(executor) {}

  std::unique_ptr<DvtExecutor, Destroyer> executor_;
};

}  // namespace davit
