// files.hpp: what all writers of files share.
//
// Threads  Pure but for the file system.
// Trust    Paths are the user's.
// Memory   Values.
#pragma once

#include <string>

#include "base/status.hpp"

namespace davit {

// Refuses a path at which there is something that is no regular file: a rename would put a file in
// the place of the device, pipe or folder, or of what a symbolic link leads to. An absent file is
// fine. Error: DVT_IO_ERROR that names the path and what is there.
Status check_replaceable(const std::string& path);

// `path`, or where the symbolic link at `path` leads to, so that the link survives a rename.
std::string resolve_link(const std::string& path);

}  // namespace davit
