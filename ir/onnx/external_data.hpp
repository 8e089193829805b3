// external_data.hpp: tensor bytes outside the model file, confined to the model's folder.
//
// Threads  Externally synchronised.
// Trust    Locations come from the model. A location is a relative path below the folder: no "..",
//          no absolute path, no symbolic link in any component, no hard link, no device or pipe,
//          and no in-memory marker of another runtime. What is refused is never opened.
// Memory   read() allocates only what the file is known to hold.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ir/onnx/digest.hpp"

namespace davit::onnx_import {

class ExternalData {
 public:
  // Without a folder every read is refused. Bytes read are added to `digest`, which must outlive
  // this.
  ExternalData(std::optional<std::string> folder, Digest& digest)
      : folder_(std::move(folder)), digest_(digest) {}

  // Bytes [offset, offset + size) of the file at `location`.
  Result<std::vector<std::byte>> read(const std::string& location, uint64_t offset, uint64_t size);

  // Paths of all files that were read, each under the first of its spellings.
  [[nodiscard]] std::vector<std::string> files() const;

 private:
  struct File {
    std::string path;
    uint64_t total_bytes = 0;  // Handed out.
  };

  std::optional<std::string> folder_;
  Digest& digest_;
  // By device and inode, whatever the spelling: tensors that overlap many times over would turn a
  // small file into much memory.
  std::map<std::pair<dev_t, ino_t>, File> files_;
};

}  // namespace davit::onnx_import
