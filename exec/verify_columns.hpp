// verify_columns.hpp: vectors of the flatbuffer as plain columns.
//
// Threads  Pure functions of their arguments.
// Trust    Vectors come from a buffer that the flatbuffer verifier accepted. That one checks the
//          position of a vector's length only, so 8-byte elements may be misaligned: see below.
// Memory   Columns point into the buffer.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "exec/image.hpp"
#include "exec/verify_internal.hpp"
#include "image_generated.h"

namespace davit::exec::verify {

template <class T>
struct Column {
  const T* data = nullptr;
  uint32_t size = 0;
};

template <class T>
Status set_column(const uint8_t* data, uint32_t size, const char* name, Column<T>& out) {
  if (reinterpret_cast<uintptr_t>(data) % alignof(T) != 0) {
    return broken("%s: must be aligned to %zu bytes", name, alignof(T));
  }
  out = {reinterpret_cast<const T*>(data), size};
  return {};
}

// A vector of scalars; absent means empty.
template <class T>
Status read_column(const flatbuffers::Vector<T>* vector, const char* name, Column<T>& out) {
  if (vector == nullptr || vector->size() == 0) return {};
  return set_column(vector->Data(), vector->size(), name, out);
}

// A vector of structs, read as the C struct of the same layout; absent means empty.
template <class T, class Struct>
Status read_structs(const flatbuffers::Vector<const Struct*>* vector, const char* name,
                    Column<T>& out) {
  static_assert(sizeof(T) == sizeof(Struct) && alignof(T) == alignof(Struct));
  if (vector == nullptr || vector->size() == 0) return {};
  return set_column(vector->Data(), vector->size(), name, out);
}

inline Status require_size(const char* name, uint32_t size, uint32_t expected) {
  if (size == expected) return {};
  return broken("%s: has %u entries, must have %u", name, size, expected);
}

// Columns and roles of all graphs (verify_columns.cpp).
Status read_graphs(const schema::Image& root, size_t metadata_bytes, ImageView& view);

}  // namespace davit::exec::verify
