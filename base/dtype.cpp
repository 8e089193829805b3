#include "base/dtype.hpp"

namespace davit {
namespace {

struct Name {
  DvtDType dtype;
  std::string_view davit, numpy, onnx;
};

constexpr Name kNames[] = {
    {DVT_F32, "f32", "float32", "float"},  {DVT_U8, "u8", "uint8", "uint8"},
    {DVT_I8, "i8", "int8", "int8"},        {DVT_U16, "u16", "uint16", "uint16"},
    {DVT_I16, "i16", "int16", "int16"},    {DVT_I32, "i32", "int32", "int32"},
    {DVT_I64, "i64", "int64", "int64"},    {DVT_STRING, "string", "object", "string"},
    {DVT_BOOL, "bool", "bool", "bool"},    {DVT_F16, "f16", "float16", "float16"},
    {DVT_F64, "f64", "float64", "double"}, {DVT_U32, "u32", "uint32", "uint32"},
    {DVT_U64, "u64", "uint64", "uint64"},  {DVT_BF16, "bf16", "bfloat16", "bfloat16"},
};

}  // namespace

std::string_view dtype_name(DvtDType dtype) {
  for (const Name& name : kNames) {
    if (name.dtype == dtype) return name.davit;
  }
  return "?";
}

std::optional<DvtDType> dtype_from_name(std::string_view text) {
  for (const Name& name : kNames) {
    if (text == name.davit || text == name.numpy || text == name.onnx) return name.dtype;
  }
  return std::nullopt;
}

bool dtype_is_valid(uint32_t value) {
  for (const Name& name : kNames) {
    if (name.dtype == value) return true;
  }
  return false;
}

}  // namespace davit
