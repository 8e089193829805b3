// key_files.hpp: keys and signatures as text files (davit/signature.h).
//
// Threads  Pure but for the file system.
// Trust    Files are untrusted.
// Memory   Values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace davit::signature {

// "davit-public-key 1\n0123...\n"
std::string key_text(std::string_view kind, std::span<const uint8_t> bytes);

// Exactly bytes.size() bytes of the kind. DVT_INVALID_ARGUMENT: the file is something else.
Status read_key(const std::string& path, std::string_view kind, std::span<uint8_t> bytes);

// A new file that its owner alone may read, or everybody. DVT_IO_ERROR: there is one already, or
// it cannot be written; nothing is left then.
Status write_key(const std::string& path, std::string_view kind, std::span<const uint8_t> bytes,
                 bool secret);

}  // namespace davit::signature
