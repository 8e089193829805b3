// Signed images: only whole, unchanged files of the right key are opened.
#include "davit/signature.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lowering/compile.hpp"
#include "tests/lowering/tiny_modules.hpp"

namespace {

namespace fs = std::filesystem;
using davit::testing::TinyModule;

void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder with an image, its weights in a file of their own when asked for, and a pair of keys.
struct Signed {
  explicit Signed(bool external = false) {
    std::string pattern = (fs::temp_directory_path() / "signature_test_XXXXXX").string();
    folder = mkdtemp(pattern.data());
    image = folder / "m.davit";
    TinyModule tiny;
    const auto x = tiny.input("x", {4});
    const auto w = tiny.constant("w", davit::testing::f32_tensor({4}, {1, 2, 3, 4}));
    davit::compiler::CompileOptions options;
    options.external_weights = external;
    const auto compiled =
        davit::compiler::compile_module(tiny.build({tiny.node("Add", {x, w}, "y")}), options);
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().to_string());
    const auto text = [](const std::vector<std::byte>& bytes) {
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    write(image, text(compiled->bytes));
    if (external) {
      weights = folder / compiled->weights_name;
      write(weights, text(compiled->weights));
    }
    DvtError error{};
    REQUIRE(dvt_key_make(&public_key, &secret_key, &error) == DVT_OK);
    sign();
  }
  ~Signed() { fs::remove_all(folder); }

  void sign() {
    DvtError error{};
    DvtSignature signature;
    REQUIRE(dvt_image_sign(image.c_str(), &secret_key, &signature, &error) == DVT_OK);
    char text[DVT_SIGNATURE_TEXT_BYTES];
    dvt_signature_text(&signature, text);
    write(image.string() + ".sig", text);
  }

  // "" when it opens.
  [[nodiscard]] std::string open(const DvtPublicKey& key) const {
    DvtImage* opened = nullptr;
    DvtError error{};
    if (dvt_image_open_signed(image.c_str(), nullptr, &key, nullptr, &opened, &error) != DVT_OK) {
      CHECK(opened == nullptr);
      return error.message;
    }
    // What becomes of the files does not matter any more.
    fs::rename(image, folder / "away");
    CHECK(std::string(dvt_image_target(opened)) == "cpu");
    fs::rename(folder / "away", image);
    dvt_image_close(opened);
    return "";
  }

  fs::path folder, image, weights;
  DvtPublicKey public_key{};
  DvtSecretKey secret_key{};
};

}  // namespace

TEST_CASE("a signed image opens, with the key that signed it only") {
  const Signed good;
  CHECK(good.open(good.public_key) == "");
  const Signed other;
  CHECK(good.open(other.public_key).find("signature is not that of this image") !=
        std::string::npos);
}

TEST_CASE("no byte of image or signature may change") {
  const Signed files;
  const std::string image = read(files.image);
  const std::string signature = read(files.image.string() + ".sig");
  for (size_t at = 0; at < image.size(); at += 97) {
    std::string bad = image;
    bad[at] = char(bad[at] ^ 4);
    write(files.image, bad);
    CHECK(files.open(files.public_key).find("signature is not") != std::string::npos);
  }
  for (const size_t size : {size_t{0}, size_t{63}, image.size() - 1}) {
    write(files.image, image.substr(0, size));
    CHECK(files.open(files.public_key) != "");
  }
  write(files.image, image + '\0');
  CHECK(files.open(files.public_key) != "");
  write(files.image, image);
  for (size_t at = 0; at + 1 < signature.size(); ++at) {
    std::string bad = signature;
    bad[at] = bad[at] == '0' ? '1' : '0';
    write(files.image.string() + ".sig", bad);
    CHECK(files.open(files.public_key) != "");
  }
  fs::remove(files.image.string() + ".sig");
  CHECK(files.open(files.public_key).find("m.davit.sig") != std::string::npos);
}

TEST_CASE("weights in a file of their own are signed, too") {
  const Signed files(true);
  CHECK(files.open(files.public_key) == "");
  std::string weights = read(files.weights);
  weights[2] = char(weights[2] ^ 1);
  write(files.weights, weights);
  CHECK(files.open(files.public_key).find("signature is not") != std::string::npos);
  fs::remove(files.weights);
  CHECK(files.open(files.public_key).find(files.weights.filename().string()) != std::string::npos);
}

TEST_CASE("key files: read back, never replaced, secret ones for their owner") {
  const Signed files;
  const std::string path = (files.folder / "k").string();
  DvtError error{};
  REQUIRE(dvt_secret_key_write(path.c_str(), &files.secret_key, &error) == DVT_OK);
  REQUIRE(dvt_public_key_write((path + ".pub").c_str(), &files.public_key, &error) == DVT_OK);
  CHECK(dvt_secret_key_write(path.c_str(), &files.secret_key, &error) == DVT_IO_ERROR);
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  DvtSecretKey secret;
  DvtPublicKey key;
  REQUIRE(dvt_secret_key_read(path.c_str(), &secret, &error) == DVT_OK);
  CHECK(std::memcmp(&secret, &files.secret_key, sizeof secret) == 0);
  REQUIRE(dvt_public_key_read((path + ".pub").c_str(), &key, &error) == DVT_OK);
  CHECK(std::memcmp(&key, &files.public_key, sizeof key) == 0);
  // One is not taken for the other, nor something longer or shorter for either.
  CHECK(dvt_public_key_read(path.c_str(), &key, &error) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.expected).find("davit-public-key 1") == 0);
  const std::string good = read(path + ".pub");
  for (const std::string& bad : {good.substr(0, good.size() - 2), good + "0", std::string(),
                                 std::string(4000, 'a'), std::string("davit-public-key 2\n")}) {
    write(files.folder / "bad", bad);
    CHECK(dvt_public_key_read((files.folder / "bad").c_str(), &key, &error) ==
          DVT_INVALID_ARGUMENT);
  }
  CHECK(dvt_public_key_read("/", &key, &error) == DVT_IO_ERROR);
  CHECK(dvt_public_key_read(nullptr, &key, &error) == DVT_INVALID_ARGUMENT);
}
