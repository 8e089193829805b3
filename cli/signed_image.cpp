#include "cli/signed_image.hpp"

#include <unistd.h>

#include "cli/session.hpp"
#if defined(DAVIT_SIGNATURES)
#include "davit/signature.h"
#endif

namespace davit::cli {

void SignatureArguments::add_options(OptionSet& options) {
  options.add("--require-signature", key_,
              "Public key file: refuse the image unless this key signed it (davit sign)",
              "no signature is asked for", FileUse::kRead);
  options.add("--signature", signature_, "The image's signature", "IMAGE.sig", FileUse::kRead);
}

Status SignatureArguments::check() const {
  if (signature_.empty() || required()) return {};
  return usage_error("--signature needs --require-signature: nothing would look at it");
}

#if defined(DAVIT_SIGNATURES)

DvtCode SignatureArguments::open(const std::string& path, const DvtImageOptions* options,
                                 DvtImage** out, DvtError* error) const {
  if (!required()) return dvt_image_open_file(path.c_str(), options, out, error);
  DvtPublicKey key;
  const DvtCode code = dvt_public_key_read(key_.c_str(), &key, error);
  if (code != DVT_OK) return code;
  return dvt_image_open_signed(path.c_str(), signature_.empty() ? nullptr : signature_.c_str(),
                               &key, options, out, error);
}

Status make_key_files(const std::string& path) {
  DvtPublicKey public_key;
  DvtSecretKey secret_key;
  DvtError error{};
  if (dvt_key_make(&public_key, &secret_key, &error) != DVT_OK) return status_of(error);
  DvtCode code = dvt_secret_key_write(path.c_str(), &secret_key, &error);
  explicit_bzero(&secret_key, sizeof secret_key);
  if (code != DVT_OK) return status_of(error);
  code = dvt_public_key_write((path + ".pub").c_str(), &public_key, &error);
  if (code == DVT_OK) return {};
  ::unlink(path.c_str());  // One without the other is of no use.
  return status_of(error);
}

Result<std::string> signature_text(const std::string& image, const std::string& key) {
  DvtSecretKey secret_key;
  DvtSignature signature;
  DvtError error{};
  if (dvt_secret_key_read(key.c_str(), &secret_key, &error) != DVT_OK) return status_of(error);
  const DvtCode code = dvt_image_sign(image.c_str(), &secret_key, &signature, &error);
  explicit_bzero(&secret_key, sizeof secret_key);
  if (code != DVT_OK) return status_of(error);
  char text[DVT_SIGNATURE_TEXT_BYTES];
  dvt_signature_text(&signature, text);
  return std::string(text);
}

#else

namespace {

Status no_signatures() {
  return {DVT_UNSUPPORTED, DVT_STAGE_LOAD,
          "this davit was built without libsodium: it knows no signatures"};
}

}  // namespace

DvtCode SignatureArguments::open(const std::string& path, const DvtImageOptions* options,
                                 DvtImage** out, DvtError* error) const {
  if (!required()) return dvt_image_open_file(path.c_str(), options, out, error);
  no_signatures().to_c(error);
  return DVT_UNSUPPORTED;
}

Status make_key_files(const std::string& /*path*/) {
  return no_signatures();
}

Result<std::string> signature_text(const std::string& /*image*/, const std::string& /*key*/) {
  return no_signatures();
}

#endif

}  // namespace davit::cli
