// Weights in a file beside the image: found by their digest, and refused when they are not the
// ones.
#include "exec/weights.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::ImageModel;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kText = R"(davit 1.3 target cpu
input x: f32[4]
output y: f32[4]
const w: f32[4] = {1, 2, 3, 4}
constants external
graph main {
  y = test.Add(x, w)
}
)";

// An image and its weights, in a folder that goes with them.
class Beside {
 public:
  Beside() {
    std::string name = fs::temp_directory_path() / "davit-weights-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    const ImageModel model = parse(kText);
    weights_ = folder_ / davit::image::weights_file_name(model);
    write(folder_ / "model.davit", assemble(kText));
    write(weights_, model.constants);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  ~Beside() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  static void write(const fs::path& path, std::span<const std::byte> bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  }
  [[nodiscard]] const fs::path& folder() const { return folder_; }
  [[nodiscard]] const fs::path& weights() const { return weights_; }
  [[nodiscard]] davit::Status open(bool skip_digests = false) const {
    const auto kernels = tables();
    auto image =
        davit::exec::open_image_file((folder_ / "model.davit").string(),
                                     {.skip_digests = skip_digests, .kernel_tables = kernels});
    return image.ok() ? davit::Status() : std::move(image.status());
  }

 private:
  fs::path folder_, weights_;
};

// Pages that this thread had to be given while it ran `work`.
long faults_of(const std::function<void()>& work) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_THREAD, &before);
  work();
  ::getrusage(RUSAGE_THREAD, &after);
  return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt;
}

// What opening says when the segment table is changed.
std::string table_message(const std::function<void(DvtSegment&)>& change) {
  std::vector<std::byte> bytes = assemble(kText);
  DvtSegment segment;
  std::byte* const at = bytes.data() + sizeof(DvtImageHeader) + sizeof segment;
  std::memcpy(&segment, at, sizeof segment);
  REQUIRE(segment.flags == DVT_SEGMENT_EXTERNAL);
  change(segment);
  std::memcpy(at, &segment, sizeof segment);
  return open_message(bytes, true);
}

}  // namespace

TEST_CASE("an image finds its weights beside it, by their digest") {
  const Beside files;
  CHECK(files.weights().filename().string().size() == 32 + std::strlen(".weights"));
  CHECK(fs::file_size(files.weights()) == 16);
  CHECK(fs::file_size(files.folder() / "model.davit") < 4096);
  const auto status = files.open();
  CHECK_MESSAGE(status.ok(), status.to_string());
  // From another folder, and by a bare name.
  const fs::path before = fs::current_path();
  fs::current_path(files.folder());
  const auto kernels = tables();
  CHECK(davit::exec::open_image_file("model.davit", {.kernel_tables = kernels}).ok());
  fs::current_path(before);
}

TEST_CASE("text and model carry that the weights are external") {
  const ImageModel model = parse(kText);
  CHECK(model.external_constants);
  CHECK(davit::image::dump_text(model, tables()).find("constants external\n") != std::string::npos);
  const Beside files;
  const auto back = davit::image::read_image_model(assemble(kText), files.folder().string());
  REQUIRE_MESSAGE(back.ok(), back.status().to_string());
  CHECK(back->external_constants);
  CHECK(back->constants == model.constants);
  const auto again = davit::image::write_image(*back, tables());
  REQUIRE(again.ok());
  CHECK(*again == assemble(kText));
}

TEST_CASE("weights that are missing, short, long or changed are refused, with the file's name") {
  const Beside files;
  const std::string path = files.weights().string();
  std::vector<std::byte> good(16);
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(good.data()), 16);

  std::vector<std::byte> changed = good;
  changed[5] ^= std::byte{1};
  Beside::write(path, changed);
  davit::Status status = files.open();
  CHECK(status.code() == DVT_INVALID_IMAGE);
  CHECK(status.detail().message == path + ": the weights are damaged or were changed");
  CHECK(status.detail().expected == files.weights().filename().string());
  CHECK(files.open(true).ok());  // The caller does not want digests to be checked.

  for (const size_t bytes : {size_t{15}, size_t{17}}) {
    std::vector<std::byte> other = good;
    other.resize(bytes);
    Beside::write(path, other);
    for (const bool skip_digests : {false, true}) {
      status = files.open(skip_digests);
      CHECK(status.code() == DVT_INVALID_IMAGE);
      CHECK(status.detail().message ==
            path + ": the weights have another size than the image says");
      CHECK(status.detail().got == std::to_string(bytes) + " bytes");
    }
  }

  fs::remove(path);
  status = files.open();
  CHECK(status.code() == DVT_IO_ERROR);
  CHECK(status.detail().message.find(path) != std::string::npos);
  CHECK(status.detail().hint.find("beside it") != std::string::npos);
  fs::create_directory(path);
  CHECK(files.open().code() == DVT_IO_ERROR);
}

TEST_CASE("weights in memory of the caller's take the place of the file") {
  const std::vector<std::byte> image_bytes = assemble(kText);
  const std::vector<std::byte> good = parse(kText).constants;
  // Aligned to 8, with room to be misaligned in.
  alignas(8) std::array<std::byte, 32> memory{};
  std::memcpy(memory.data(), good.data(), good.size());
  const auto kernels = tables();
  const auto open = [&](const void* weights, uint64_t bytes, uint32_t skip_digests, DvtError& error,
                        const std::vector<std::byte>& image) {
    DvtImageOptions options;
    dvt_image_options_init(&options);
    options.kernel_tables = kernels.data();
    options.kernel_table_count = kernels.size();
    options.weights = weights;
    options.weights_bytes = bytes;
    options.skip_digests = skip_digests;
    DvtImage* opened = nullptr;
    const DvtCode code =
        dvt_image_open_memory(image.data(), image.size(), &options, &opened, &error);
    if (code == DVT_OK) CHECK(opened->view.constants == memory.data());
    dvt_image_close(opened);
    return code;
  };
  DvtError error{};
  CHECK(open(memory.data(), 16, 0, error, image_bytes) == DVT_OK);
  CHECK(open(nullptr, 0, 0, error, image_bytes) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.hint).find("in memory") != std::string::npos);
  CHECK(open(memory.data(), 15, 1, error, image_bytes) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.got) == "15 bytes");
  CHECK(open(memory.data(), 0, 1, error, image_bytes) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.got) == "0 bytes");

  memory[5] ^= std::byte{1};
  CHECK(open(memory.data(), 16, 0, error, image_bytes) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.message) ==
        "memory of the caller's: the weights are damaged or were changed");
  CHECK(open(memory.data(), 16, 1, error, image_bytes) == DVT_OK);
  std::memcpy(memory.data() + 1, good.data(), good.size());
  CHECK(open(memory.data() + 1, 16, 0, error, image_bytes) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.message).find("misaligned") != std::string::npos);

  std::string inside(kText);
  inside.erase(inside.find("constants external\n"), std::strlen("constants external\n"));
  CHECK(open(memory.data(), 16, 1, error, assemble(inside)) == DVT_INVALID_ARGUMENT);
  CHECK(std::string(error.message).find("has its weights inside") != std::string::npos);
}

// User reports I7 and I8: weights are used where the file is mapped, and preloading leaves no page
// for the first run to fault in.
TEST_CASE("mapped weights are not copied, and preloaded ones cost the first run nothing") {
  constexpr size_t kBytes = size_t{16} << 20;
  const Beside beside;
  std::string text(kText);
  for (const bool external : {false, true}) {
    CAPTURE(external);
    if (!external)
      text.erase(text.find("constants external\n"), std::strlen("constants external\n"));
    ImageModel model = parse(external ? kText : text);
    model.constants.resize(kBytes, std::byte{1});
    const fs::path path = beside.folder() / "large.davit";
    const auto kernels = tables();
    const auto image_bytes = davit::image::write_image(model, kernels);
    REQUIRE(image_bytes.ok());
    Beside::write(path, *image_bytes);
    Beside::write(beside.folder() / davit::image::weights_file_name(model), model.constants);
    for (const bool prefault : {false, true}) {
      CAPTURE(prefault);
      const auto image = davit::exec::open_image_file(
          path.string(), {.skip_digests = true, .prefault = prefault, .kernel_tables = kernels});
      REQUIRE(image.ok());
      const std::byte* constants = (*image)->view.constants;
      const auto mapped = external ? (*image)->weights.bytes() : (*image)->mapping.bytes();
      CHECK(constants >= mapped.data());
      CHECK(constants + kBytes <= mapped.data() + mapped.size());
      DvtHostMemory kept;
      dvt_image_host_memory(image->get(), &kept);
      CHECK(kept.live_peak_bytes < 64 << 10);
      CHECK(kept.mapped_bytes >= kBytes);
      const long faults = faults_of([&] {
        for (size_t i = 64; i < kBytes; i += 4096) CHECK(constants[i] != std::byte{0});
      });
      // Without, the system still maps up to 16 pages around each that is touched.
      if (prefault) CHECK(faults < 64);
    }
  }
}

TEST_CASE("an image in memory has no folder") {
  const std::string message = open_message(assemble(kText));
  CHECK(message.find("the weights of the image are in a file beside it") == 0);
  CHECK(davit::exec::folder_of("model.davit") == ".");
  CHECK(davit::exec::folder_of("/model.davit") == "/");
  CHECK(davit::exec::folder_of("a/b/model.davit") == "a/b");
}

TEST_CASE("rules of external segments") {
  CHECK(table_message([](DvtSegment& s) { s.offset = 4096; }) ==
        "segments[1]: an external segment has offset 0, and is not empty");
  CHECK(table_message([](DvtSegment& s) { s.size = 0; }) ==
        "segments[1]: an external segment has offset 0, and is not empty");
  CHECK(table_message([](DvtSegment& s) { s.flags |= 2; }) ==
        "segments[1]: unknown flags, and reserved, must be zero");
  CHECK(table_message([](DvtSegment& s) { s.reserved[7] = 1; }) ==
        "segments[1]: unknown flags, and reserved, must be zero");
  CHECK(table_message([](DvtSegment& s) { s.kind = DVT_SEGMENT_CODE; }) ==
        "segments[1].flags: only constants may be external");
  CHECK(table_message([](DvtSegment& s) { s.flags = 2; }).find("segments[1]") == 0);
}
