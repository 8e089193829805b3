// verify.hpp: checks an image once, completely, so that nobody has to check it again.
//
// Threads  Pure functions of their arguments.
// Trust    `bytes` are untrusted: any content, any length, any address. The result is trusted.
// Memory   Temporary arrays are linear in the number of values and nodes, and gone on return. No
//          allocation is sized by a number that the file merely claims.
// Errors   DVT_INVALID_IMAGE with a message that names table, index and rule; also
//          DVT_VERSION_MISMATCH, DVT_UNSUPPORTED (a kernel nobody has), DVT_OUT_OF_MEMORY (the
//          arena is above arena_bytes_max).
//
// The rules are listed in docs/image.md. Files: verify_container (header, segments, digests),
// verify_tables (everything but graphs), verify_graph (columns of one graph), verify_dataflow
// (who writes and reads what, edges, bodies), verify_plan (memory), verify_kernels.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.hpp"
#include "exec/image.hpp"

namespace davit::exec {

// Verifies `bytes` and fills in `image` (its view, and its metadata_storage when `bytes` is not
// aligned to 8). The view points into `bytes`.
Status verify_image(std::span<const std::byte> bytes, const OpenOptions& options, DvtImage& image);

}  // namespace davit::exec
