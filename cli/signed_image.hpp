// signed_image.hpp: --require-signature: images are opened only with the signature of a key.
//
// Threads  One thread.
// Trust    Nothing of an image is looked at before its signature is right.
// Memory   Owns the option variables.
#pragma once

#include <string>

#include "base/status.hpp"
#include "cli/options.hpp"
#include "davit/davit.h"

namespace davit::cli {

class SignatureArguments {
 public:
  // Adds --require-signature and --signature to the group that is current.
  void add_options(OptionSet& options);
  // --signature without --require-signature would do nothing.
  [[nodiscard]] Status check() const;
  [[nodiscard]] bool required() const { return !key_.empty(); }
  // dvt_image_open_file(), or dvt_image_open_signed() when a signature is required.
  DvtCode open(const std::string& path, const DvtImageOptions* options, DvtImage** out,
               DvtError* error) const;

 private:
  std::string key_, signature_;
};

// `davit sign`: a pair of keys at `path` and `path`.pub; the signature of an image.
Status make_key_files(const std::string& path);
Result<std::string> signature_text(const std::string& image, const std::string& key);

}  // namespace davit::cli
