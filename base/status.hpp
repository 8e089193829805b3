// status.hpp: errors inside the C++ parts. Codes cross boundaries, exceptions do not.
//
// Threads  A Status is a value; share it like any other value.
// Memory   An OK status is one null pointer. An error owns its detail on the heap; it is made on
//          failure paths only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "davit/types.h"

namespace davit {

// The parts of DvtError as strings of any length. Fill in what is known; outer layers add what the
// inner ones could not know (stage, node path).
struct ErrorDetail {
  DvtCode code = DVT_INTERNAL;
  DvtStage stage = DVT_STAGE_NONE;
  std::string message;
  std::string node;
  std::string op;
  std::string tensor;
  std::string expected;
  std::string got;
  std::string hint;
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK.
  explicit Status(ErrorDetail detail) : detail_(std::make_unique<ErrorDetail>(std::move(detail))) {}
  Status(DvtCode code, DvtStage stage, std::string message)
      : Status(ErrorDetail{.code = code, .stage = stage, .message = std::move(message)}) {}

  [[nodiscard]] bool ok() const { return detail_ == nullptr; }
  [[nodiscard]] DvtCode code() const { return detail_ ? detail_->code : DVT_OK; }
  // Precondition: !ok().
  [[nodiscard]] ErrorDetail& detail() { return *detail_; }
  [[nodiscard]] const ErrorDetail& detail() const { return *detail_; }

  // All parts on one line, for people: "lower: Conv_3 (ai.onnx::Conv(11)): message; tensor x;
  // expected ...; got ...; hint: ...".
  [[nodiscard]] std::string to_string() const;

  // Copies into the C record; strings are cut at its sizes, on a UTF-8 boundary. `out` may be null.
  void to_c(DvtError* out) const;

 private:
  std::unique_ptr<ErrorDetail> detail_;
};

// "parse", "check", ... for messages.
const char* stage_name(DvtStage stage);
// "invalid argument", ... for messages.
const char* code_name(DvtCode code);

// A value or an error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] Status& status() { return status_; }
  [[nodiscard]] const Status& status() const { return status_; }
  // Precondition for all of these: ok().
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace davit
