/* signature.h: who made an image. Ed25519 signatures of whole image files, and their check before
 * anything in them is looked at. In the library davit_signature, which needs libsodium.
 *
 *   davit sign --new-key release.key              release.key, release.key.pub
 *   davit sign model.davit --key release.key      model.davit.sig
 *   davit run model.davit --require-signature release.key.pub
 *
 * What is signed is "davit image 1", then the size (8 bytes, little-endian) and the bytes of the
 * image, then those of its weights where they are in a file of their own, by Ed25519ph (RFC 8032).
 *
 * Threads  Any; functions share nothing.
 * Trust    Files are untrusted until their signature is right. An image that has been opened by
 *          dvt_image_open_signed() cannot change any more: it is a copy, not a mapping of the file.
 * Memory   Keys are the caller's; secret ones are wiped from what these functions use.
 * Errors   As davit.h. A wrong signature is DVT_INVALID_IMAGE.
 */
#pragma once

#include "davit/davit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtPublicKey {
  uint8_t bytes[32];
} DvtPublicKey;
typedef struct DvtSecretKey {
  uint8_t bytes[64];
} DvtSecretKey;
typedef struct DvtSignature {
  uint8_t bytes[64];
} DvtSignature;

/* A new pair, from the system's randomness. */
DVT_API DVT_NODISCARD DvtCode dvt_key_make(DvtPublicKey* public_key, DvtSecretKey* secret_key,
                                           DvtError* error);

/* Text files: a line that says what it is ("davit-public-key 1", "davit-secret-key 1",
 * "davit-signature 1"), and one with hexadecimal digits. Writing never replaces a key; a secret one
 * can be read by its owner alone. */
DVT_API DVT_NODISCARD DvtCode dvt_public_key_read(const char* path, DvtPublicKey* out,
                                                  DvtError* error);
DVT_API DVT_NODISCARD DvtCode dvt_secret_key_read(const char* path, DvtSecretKey* out,
                                                  DvtError* error);
DVT_API DVT_NODISCARD DvtCode dvt_public_key_write(const char* path, const DvtPublicKey* key,
                                                   DvtError* error);
DVT_API DVT_NODISCARD DvtCode dvt_secret_key_write(const char* path, const DvtSecretKey* key,
                                                   DvtError* error);
DVT_API DVT_NODISCARD DvtCode dvt_signature_read(const char* path, DvtSignature* out,
                                                 DvtError* error);
/* The content of a signature file, NUL-terminated; how it gets to its place is the caller's. */
enum { DVT_SIGNATURE_TEXT_BYTES = 160 };
DVT_API void dvt_signature_text(const DvtSignature* signature, char text[DVT_SIGNATURE_TEXT_BYTES]);

/* Signs the image at `path`, with the weights beside it where it has such. It need not be a valid
 * image in other respects: verify it before. */
DVT_API DVT_NODISCARD DvtCode dvt_image_sign(const char* path, const DvtSecretKey* key,
                                             DvtSignature* out, DvtError* error);

/* dvt_image_open_file() of an image whose signature is right. `signature_path` NULL: `path` with
 * ".sig" behind it. Takes as much memory as the files. `options` may be NULL; weights in it are
 * checked too. */
DVT_API DVT_NODISCARD DvtCode dvt_image_open_signed(const char* path, const char* signature_path,
                                                    const DvtPublicKey* key,
                                                    const DvtImageOptions* options, DvtImage** out,
                                                    DvtError* error);

#ifdef __cplusplus
}
#endif
