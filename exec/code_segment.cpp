#include "exec/code_segment.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/checked.hpp"
#include "base/files.hpp"

namespace davit::exec {
namespace {

// The most demanding first.
constexpr std::array<std::string_view, 3> kIsas = {"avx512", "avx2", "baseline"};

Status invalid(const std::string& message) {
  return {DVT_INVALID_IMAGE, DVT_STAGE_LOAD, "the code segment " + message};
}

// dlopen() takes a path that it has seen before for the library that it has loaded from there, and
// numbers of descriptors come again: each path is spelled in another way, by a "." for each bit of
// a count.
std::string path_of(int descriptor) {
  static std::atomic<uint64_t> count{0};
  std::string path = "/proc/self/fd";
  for (uint64_t bits = count.fetch_add(1, std::memory_order_relaxed); bits != 0; bits >>= 1) {
    path += (bits & 1) != 0 ? "/." : "/";
  }
  return path + "/" + std::to_string(descriptor);
}

// A file that has no name and lies in memory.
Result<FileDescriptor> memory_file(std::span<const std::byte> bytes) {
  FileDescriptor file(::memfd_create("davit-code", MFD_CLOEXEC));
  const auto failed = [] {
    return Status(DVT_OUT_OF_RESOURCE, DVT_STAGE_LOAD,
                  std::string("no memory file for the code segment: ") + std::strerror(errno));
  };
  if (!file.is_open()) return failed();
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed();
    bytes = bytes.subspan(size_t(written));
  }
  return file;
}

Status check_record(const DvtGeneratedCode* code) {
  if (code == nullptr) return invalid("has no record");
  if (code->struct_size != sizeof(DvtGeneratedCode) ||
      code->version != DVT_GENERATED_CODE_VERSION) {
    Status status(DVT_VERSION_MISMATCH, DVT_STAGE_LOAD,
                  "the code segment was made for another version of the runtime");
    status.detail().expected = "version " + std::to_string(DVT_GENERATED_CODE_VERSION);
    status.detail().got = "version " + std::to_string(code->version);
    status.detail().hint = "compile the model again";
    return status;
  }
  for (size_t v = 0; v < code->variant_count; ++v) {
    const DvtKernelTable& kernels = code->variants[v].kernels;
    for (size_t i = 0; i < kernels.count; ++i) {
      if (std::string_view(kernels.kernels[i].name).starts_with(DVT_GENERATED_PREFIX)) continue;
      return invalid(std::string("has a kernel \"") + kernels.kernels[i].name +
                     "\": generated ones are called " DVT_GENERATED_PREFIX "*");
    }
  }
  return {};
}

}  // namespace

bool processor_runs(std::string_view isa) {
  if (isa == "baseline") return true;
#if defined(__x86_64__)
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == "avx512") return __builtin_cpu_supports("avx512f") && processor_runs("avx2");
#endif
  return false;
}

std::string_view best_isa() {
  for (const std::string_view isa : kIsas) {
    if (processor_runs(isa)) return isa;
  }
  return "baseline";
}

Status check_complete(std::span<const std::byte> shared_object) {
  ElfW(Ehdr) header;
  if (shared_object.size() < sizeof header) return {};
  std::memcpy(&header, shared_object.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(ElfW(Phdr))) {
    return {};
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    const auto at = checked_add(header.e_phoff, i * sizeof segment);
    bool whole = at && in_range(*at, sizeof segment, shared_object.size());
    if (whole) {
      std::memcpy(&segment, shared_object.data() + *at, sizeof segment);
      whole = in_range(segment.p_offset, segment.p_filesz, shared_object.size());
    }
    if (whole) continue;
    return {DVT_INVALID_IMAGE, DVT_STAGE_LOAD,
            "the file ends before its segment " + std::to_string(i) + " does"};
  }
  return {};
}

CodeSegment::CodeSegment(CodeSegment&& other) noexcept
    : library_(std::exchange(other.library_, nullptr)),
      kernels_(std::exchange(other.kernels_, {})),
      isa_(other.isa_) {}

CodeSegment& CodeSegment::operator=(CodeSegment&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(kernels_, other.kernels_);
  std::swap(isa_, other.isa_);
  return *this;
}

CodeSegment::~CodeSegment() {
  if (library_ != nullptr) ::dlclose(library_);
}

Result<CodeSegment> CodeSegment::load(std::span<const std::byte> bytes) {
  if (Status status = check_complete(bytes); !status.ok()) {
    return invalid("is cut short: " + std::string(status.detail().message));
  }
  auto file = memory_file(bytes);
  if (!file.ok()) return std::move(file.status());
  CodeSegment segment;
  const std::string path = path_of(file->get());
  segment.library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (segment.library_ == nullptr) {
    const char* reason = ::dlerror();
    return invalid("cannot be loaded: " + std::string(reason == nullptr ? "?" : reason));
  }
  using Entry = const DvtGeneratedCode* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(segment.library_, "dvt_generated_code"));
  if (entry == nullptr) return invalid("exports no dvt_generated_code");
  const DvtGeneratedCode* code = entry();
  if (Status status = check_record(code); !status.ok()) return status;
  std::string there;
  for (size_t i = 0; i < code->variant_count; ++i) {
    const DvtCodeVariant& variant = code->variants[i];
    if (processor_runs(variant.isa)) {
      segment.kernels_ = variant.kernels;
      segment.isa_ = variant.isa;
      return segment;
    }
    there += (there.empty() ? "" : ", ") + std::string(variant.isa);
  }
  Status status(DVT_UNSUPPORTED, DVT_STAGE_LOAD, "the image has no code for this processor");
  status.detail().expected = there;
  status.detail().got = std::string(best_isa());
  status.detail().hint = "compile the model with --isa " + std::string(best_isa());
  return status;
}

}  // namespace davit::exec
