#include "base/status.hpp"

#include <cstring>

namespace davit {
namespace {

template <size_t N>
void copy_cut(char (&out)[N], const std::string& in) {
  size_t length = in.size() < N ? in.size() : N - 1;
  // Do not end inside a UTF-8 sequence: step back over its continuation bytes.
  if (length < in.size()) {
    while (length > 0 && (static_cast<unsigned char>(in[length]) & 0xC0U) == 0x80U) --length;
  }
  std::memcpy(out, in.data(), length);
  out[length] = '\0';
}

void append_part(std::string& text, const char* label, const std::string& part) {
  if (part.empty()) return;
  text += "; ";
  text += label;
  text += part;
}

}  // namespace

const char* stage_name(DvtStage stage) {
  switch (stage) {
    case DVT_STAGE_NONE:
      return "";
    case DVT_STAGE_PARSE:
      return "parse";
    case DVT_STAGE_CHECK:
      return "check";
    case DVT_STAGE_INFER:
      return "infer";
    case DVT_STAGE_OPTIMISE:
      return "optimise";
    case DVT_STAGE_LOWER:
      return "lower";
    case DVT_STAGE_PLAN:
      return "plan";
    case DVT_STAGE_WRITE:
      return "write";
    case DVT_STAGE_LOAD:
      return "load";
    case DVT_STAGE_BIND:
      return "bind";
    case DVT_STAGE_RUN:
      return "run";
    case DVT_STAGE_UNLOAD:
      return "unload";
  }
  return "unknown stage";
}

const char* code_name(DvtCode code) {
  switch (code) {
    case DVT_OK:
      return "ok";
    case DVT_INVALID_ARGUMENT:
      return "invalid argument";
    case DVT_INVALID_IMAGE:
      return "invalid model or image";
    case DVT_UNSUPPORTED:
      return "unsupported";
    case DVT_OUT_OF_MEMORY:
      return "out of memory";
    case DVT_OUT_OF_RESOURCE:
      return "out of resource";
    case DVT_TIMEOUT:
      return "timeout";
    case DVT_CANCELLED:
      return "cancelled";
    case DVT_IO_ERROR:
      return "input/output error";
    case DVT_VERSION_MISMATCH:
      return "version mismatch";
    case DVT_FAILED_STATE:
      return "not allowed in this state";
    case DVT_KERNEL_FAILED:
      return "kernel failed";
    case DVT_END_OF_SEQUENCE:
      return "end of sequence";
    case DVT_INTERNAL:
      return "internal error";
    default:
      return "unknown code";
  }
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  const ErrorDetail& d = *detail_;
  std::string text;
  if (d.stage != DVT_STAGE_NONE) {
    text += stage_name(d.stage);
    text += ": ";
  }
  if (!d.node.empty()) text += d.node;
  if (!d.op.empty()) text += (d.node.empty() ? "" : " ") + ("(" + d.op + ")");
  if (!d.node.empty() || !d.op.empty()) text += ": ";
  text += d.message.empty() ? code_name(d.code) : d.message;
  append_part(text, "tensor ", d.tensor);
  append_part(text, "expected ", d.expected);
  append_part(text, "got ", d.got);
  append_part(text, "hint: ", d.hint);
  return text;
}

void Status::to_c(DvtError* out) const {
  if (out == nullptr) return;
  std::memset(out, 0, sizeof *out);
  if (ok()) return;
  const ErrorDetail& d = *detail_;
  out->code = d.code;
  out->stage = d.stage;
  copy_cut(out->message, d.message.empty() ? code_name(d.code) : d.message);
  copy_cut(out->node, d.node);
  copy_cut(out->op, d.op);
  copy_cut(out->tensor, d.tensor);
  copy_cut(out->expected, d.expected);
  copy_cut(out->got, d.got);
  copy_cut(out->hint, d.hint);
}

}  // namespace davit
