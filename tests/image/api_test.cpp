// The image half of davit.h, files, and writing files.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "exec/image.hpp"
#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::write_file_atomically;
namespace fs = std::filesystem;

namespace {

// A folder of its own, gone with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = fs::temp_directory_path() / "davit-image-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::permissions(path_, fs::perms::owner_all, ignored);
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }
  [[nodiscard]] size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

DvtImageOptions options() {
  static const DvtKernelTable table = test_kernels();
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = &table;
  options.kernel_table_count = 1;
  return options;
}

// The error of opening a file.
DvtError open_error(const std::string& path) {
  const DvtImageOptions with_kernels = options();
  DvtImage* image = nullptr;
  DvtError error;
  CHECK(dvt_image_open_file(path.c_str(), &with_kernels, &image, &error) == error.code);
  CHECK(image == nullptr);
  return error;
}

}  // namespace

TEST_CASE("a file opens, tells what it is, and stays open while somebody holds it") {
  const TemporaryFolder folder;
  REQUIRE(write_file_atomically(folder.file("a.davit"), assemble(kCpuSample)).ok());
  for (const uint32_t prefault : {0U, 1U}) {
    DvtImageOptions with_kernels = options();
    with_kernels.prefault = prefault;
    DvtImage* image = nullptr;
    DvtError error;
    REQUIRE(dvt_image_open_file(folder.file("a.davit").c_str(), &with_kernels, &image, &error) ==
            DVT_OK);
    CHECK(std::string(dvt_image_target(image)) == "cpu");
    REQUIRE(dvt_image_input_count(image) == 1);
    REQUIRE(dvt_image_output_count(image) == 3);
    CHECK(dvt_image_find_input(image, "x") == 0);
    CHECK(dvt_image_find_input(image, "result") == DVT_NO_INDEX);
    CHECK(dvt_image_find_output(image, "result") == 0);
    CHECK(dvt_image_find_output(image, nullptr) == DVT_NO_INDEX);

    DvtPortInfo port;
    REQUIRE(dvt_image_input_info(image, 0, &port, &error) == DVT_OK);
    CHECK(std::string(port.name) == "x");
    CHECK(port.tensor.rank == 2);
    CHECK(port.tensor.dims[0] == 2);
    CHECK(port.dims_min[0] == 1);
    CHECK(port.dims_min[1] == 4);
    CHECK(std::string(port.symbols[0]) == "N");
    CHECK(std::string(port.symbols[1]).empty());
    CHECK(dvt_image_output_info(image, 3, &port, &error) == DVT_INVALID_ARGUMENT);
    CHECK(std::string(error.message) == "there is no output 3: the image has 3");

    DvtImageInfo info;
    dvt_image_info(image, &info);
    CHECK(info.file_bytes == fs::file_size(folder.file("a.davit")));
    CHECK(info.arena_bytes == 192);
    CHECK(info.arena_lower_bound_bytes == 128);
    CHECK(info.executor_bytes >= 192);
    CHECK(info.node_count == 8);
    CHECK(info.edge_count == 7);
    CHECK(info.value_count == 13);
    CHECK(info.version_major == 1);
    CHECK(info.version_minor == 3);
    CHECK(std::string(info.producer) == "davit test");
    CHECK(std::string(info.source_name) == "sample.onnx");
    CHECK(std::string(info.source_digest) == "0123");
    CHECK(std::string(info.options) == "a=1");
    dvt_image_close(image);
  }
  dvt_image_close(nullptr);
}

TEST_CASE("references keep an image alive, from any thread") {
  const auto bytes = assemble(kCpuSample);
  const auto kernel_tables = tables();
  auto image = davit::exec::open_image_memory(bytes, {.kernel_tables = kernel_tables});
  REQUIRE(image.ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    davit::exec::retain_image(**image);
    threads.emplace_back([held = image->get()] {
      for (int k = 0; k < 1000; ++k) {
        davit::exec::retain_image(*held);
        davit::exec::release_image(held);
      }
      davit::exec::release_image(held);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK((*image)->references.load() == 1);
}

TEST_CASE("files that are none, or not files") {
  const TemporaryFolder folder;
  DvtError error = open_error(folder.file("missing"));
  CHECK(error.code == DVT_IO_ERROR);
  CHECK(error.stage == DVT_STAGE_LOAD);
  CHECK(std::string(error.message).find("cannot read ") == 0);
  CHECK(std::string(error.message).find("No such file or directory") != std::string::npos);

  CHECK(open_error(folder.file("")).code == DVT_IO_ERROR);
  CHECK(std::string(open_error(folder.file(".")).message).find("it is a folder") !=
        std::string::npos);
  REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
  CHECK(std::string(open_error(folder.file("fifo")).message).find("it is a pipe") !=
        std::string::npos);
  CHECK(open_error("/dev/zero").code == DVT_IO_ERROR);

  std::ofstream(folder.file("empty")).close();
  CHECK(open_error(folder.file("empty")).code == DVT_INVALID_IMAGE);
  std::ofstream(folder.file("text")) << std::string(5000, 'x');
  error = open_error(folder.file("text"));
  CHECK(error.code == DVT_INVALID_IMAGE);
  CHECK(std::string(error.message).find("this is not a davit image") != std::string::npos);
}

TEST_CASE("a file that is shorter than it says") {
  const TemporaryFolder folder;
  std::vector<std::byte> bytes = assemble(kCpuSample);
  const std::string says = std::to_string(bytes.size());
  bytes.resize(bytes.size() - 1);
  REQUIRE(write_file_atomically(folder.file("short"), bytes).ok());
  CHECK(std::string(open_error(folder.file("short")).message) ==
        "header.file_size: says " + says + " bytes, the file has " + std::to_string(bytes.size()));
}

TEST_CASE("arguments of the C API") {
  DvtImage* image = nullptr;
  DvtError error;
  CHECK(dvt_image_open_file(nullptr, nullptr, &image, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_image_open_file("x", nullptr, nullptr, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_image_open_memory(nullptr, 1, nullptr, &image, &error) == DVT_INVALID_ARGUMENT);
  CHECK(dvt_image_open_memory(nullptr, 0, nullptr, &image, nullptr) == DVT_INVALID_IMAGE);
  DvtImageOptions with_kernels = options();
  with_kernels.struct_size = sizeof with_kernels + 8;
  const auto bytes = assemble(kCpuSample);
  CHECK(dvt_image_open_memory(bytes.data(), bytes.size(), &with_kernels, &image, &error) ==
        DVT_VERSION_MISMATCH);
  CHECK(std::string(error.got) == std::to_string(sizeof with_kernels + 8));
  // An older caller does not know the last field.
  with_kernels.struct_size = offsetof(DvtImageOptions, arena_bytes_max);
  with_kernels.arena_bytes_max = 1;
  REQUIRE(dvt_image_open_memory(bytes.data(), bytes.size(), &with_kernels, &image, &error) ==
          DVT_OK);
  dvt_image_close(image);
  with_kernels = options();
  with_kernels.arena_bytes_max = 1;
  CHECK(dvt_image_open_memory(bytes.data(), bytes.size(), &with_kernels, &image, &error) ==
        DVT_OUT_OF_MEMORY);
}

TEST_CASE("constants are used in place") {
  const auto bytes = assemble(kCpuSample);
  const auto kernel_tables = tables();
  const auto image = davit::exec::open_image_memory(bytes, {.kernel_tables = kernel_tables});
  REQUIRE(image.ok());
  const std::byte* data = (*image)->view.constant_data(3);
  CHECK(data >= bytes.data());
  CHECK(data < bytes.data() + bytes.size());
  float first = 0;
  std::memcpy(&first, data + 4, sizeof first);
  CHECK(first == -2.5F);
}

TEST_CASE("writing a file replaces it at once, or leaves everything as it was") {
  const TemporaryFolder folder;
  const std::vector<std::byte> first = assemble(kCpuSample);
  const std::vector<std::byte> second = assemble(kBodySample);
  const std::string path = folder.file("image.davit");
  REQUIRE(write_file_atomically(path, first).ok());
  CHECK(read_file(path) == first);
  REQUIRE(write_file_atomically(path, second).ok());
  CHECK(read_file(path) == second);
  CHECK(folder.entries() == 1);

  const davit::Status missing = write_file_atomically(folder.file("no/such/folder"), first);
  REQUIRE(!missing.ok());
  CHECK(missing.code() == DVT_IO_ERROR);
  CHECK(missing.detail().stage == DVT_STAGE_WRITE);

  // A folder in the place of the file: the rename fails, the temporary file goes.
  fs::create_directory(folder.file("taken"));
  CHECK(write_file_atomically(folder.file("taken"), first).code() == DVT_IO_ERROR);
  CHECK(folder.entries() == 2);
}

TEST_CASE("J8: images of the older minor versions that are kept here still open and load") {
  const char* folder = std::getenv("DAVIT_IMAGE_DATA");
  REQUIRE(folder != nullptr);
  for (const uint16_t minor : {0, 1, 2}) {
    CAPTURE(minor);
    DvtImage* image = nullptr;
    DvtError error;
    const std::string path = std::string(folder) + "/format_1_" + std::to_string(minor) + ".davit";
    REQUIRE_MESSAGE(dvt_image_open_file(path.c_str(), nullptr, &image, &error) == DVT_OK,
                    error.message);
    DvtImageInfo info;
    dvt_image_info(image, &info);
    CHECK(info.version_major == 1);
    CHECK(info.version_minor == minor);
    // Of 1.1: its documented default, and what the writer of 1.2 knew.
    CHECK(info.arena_lower_bound_bytes == (minor < 2 ? 0 : 16));
    DvtExecutor* executor = nullptr;
    CHECK(dvt_executor_create(image, nullptr, &executor, &error) == DVT_OK);
    dvt_executor_destroy(executor);
    // Schedules are of 1.3.
    DvtExecutorOptions options;
    dvt_executor_options_init(&options);
    options.schedule = DVT_SCHEDULE_PLANNED;
    CHECK(dvt_executor_create(image, &options, &executor, &error) == DVT_FAILED_STATE);
    dvt_image_close(image);
  }
}
