// Whatever the bytes: an error or a valid run. Run under ASan and UBSan in CI.
#include <doctest/doctest.h>
#include <flatbuffers/reflection.h>
#include <flatbuffers/util.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "exec/image.hpp"
#include "image_generated.h"
#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
namespace schema = davit::schema;

namespace {

// A view of two values, a piece of one, and what replaces both in place.
constexpr std::string_view kJoinedSample = R"davit(davit 1.3 target cpu
arena 128 align 64
input x: f32[16]
input z: f32[32]
output y: f32[16]
planned a: f32[16] @0
planned b: f32[16] @64
planned both: f32[32] @0
planned sum: f32[32] @0
planned piece: f32[16] @64

graph main {
  a = test.Copy(x)
  b = test.Copy(a)
  sum = test.Add(both, z)
  y = test.Copy(piece)
}
)davit";

const std::string_view kSamples[] = {kJoinedSample, kCpuSample,     kScheduleSample, kDeviceSample,
                                     kBodySample,   kDynamicSample, kFlowSample};

// A copy whose first byte is at `offset` modulo 64.
class Shifted {
 public:
  Shifted(std::span<const std::byte> bytes, size_t offset)
      : storage_(bytes.size() + 128), size_(bytes.size()) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(storage_.data()) % 64;
    start_ = (64 - misaligned) % 64 + offset;
    std::copy(bytes.begin(), bytes.end(), storage_.begin() + static_cast<ptrdiff_t>(start_));
  }
  [[nodiscard]] std::span<std::byte> bytes() { return std::span(storage_).subspan(start_, size_); }

 private:
  std::vector<std::byte> storage_;
  size_t size_;
  size_t start_ = 0;
};

}  // namespace

TEST_CASE("A14: a file cut at any length is an error") {
  for (const std::string_view sample : kSamples) {
    const std::vector<std::byte> bytes = assemble(sample);
    for (size_t length = 0; length < bytes.size(); ++length) {
      // A copy of its own, so that ASan sees a read beyond the end.
      const std::vector<std::byte> cut(bytes.begin(),
                                       bytes.begin() + static_cast<ptrdiff_t>(length));
      CHECK(!open(cut).ok());
      CHECK(!open(cut, true).ok());
      CHECK(!open_message(cut).empty());
    }
  }
}

TEST_CASE("A14: any flipped bit is found by the digests; without them it is an error or a run") {
  for (const std::string_view sample : kSamples) {
    std::vector<std::byte> bytes = assemble(sample);
    // All that is not padding or digest decides something; flips in padding are errors, too.
    for (size_t bit = 0; bit < 8 * std::min<size_t>(bytes.size(), 4096); ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      CHECK(!open(bytes).ok());
      open_and_run(bytes);
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
  }
}

TEST_CASE("A14: 10,000 random sets of flipped bits") {
  std::mt19937 random(1);
  for (const std::string_view sample : kSamples) {
    const std::vector<std::byte> good = assemble(sample);
    for (uint32_t i = 0; i < 10000 / std::size(kSamples) + 1; ++i) {
      std::vector<std::byte> bytes = good;
      for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
      }
      if (bytes != good) CHECK(!open(bytes).ok());
      open_and_run(bytes);
    }
  }
}

TEST_CASE("A14: words of the metadata replaced by telling numbers, digests valid") {
  std::mt19937 random(2);
  constexpr uint32_t kNumbers[] = {0, 1, 2, 7, 64, 255, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  for (const std::string_view sample : kSamples) {
    const std::vector<std::byte> good = assemble(sample);
    for (uint32_t i = 0; i < 5000; ++i) {
      std::vector<std::byte> bytes = good;
      const auto metadata = metadata_of(bytes);
      for (uint32_t changes = 1 + random() % 2; changes > 0; --changes) {
        const uint32_t number = kNumbers[random() % std::size(kNumbers)];
        std::memcpy(metadata.data() + random() % (metadata.size() / 4) * 4, &number, 4);
      }
      repair_digests(bytes);
      open_and_run(bytes);
    }
  }
}

TEST_CASE("A7: an image at any address: metadata is copied, constants are used or refused") {
  const std::vector<std::byte> bytes = assemble(kCpuSample);
  for (size_t offset = 0; offset < 64; ++offset) {
    Shifted shifted(bytes, offset);
    const davit::Status status = open(shifted.bytes());
    if (offset % 4 == 0) {
      CHECK_MESSAGE(status.ok(), status.to_string());  // Its constants are f32.
    } else {
      REQUIRE(!status.ok());
      CHECK(status.code() == DVT_INVALID_ARGUMENT);
      CHECK(status.detail().message.find("leaves this constant misaligned") != std::string::npos);
    }
    open_and_run(shifted.bytes());
  }
}

TEST_CASE("A7: constants of 8 bytes at base + 4 are refused, and used at base + 8") {
  const std::vector<std::byte> bytes = assemble(R"(davit 1.0 target cpu
const w: i64[2] = {1, 2}
output y: i64[2]
graph main {
  y = test.Copy(w)
}
)");
  CHECK(open(Shifted(bytes, 8).bytes()).ok());
  CHECK(open(Shifted(bytes, 4).bytes()).code() == DVT_INVALID_ARGUMENT);
}

TEST_CASE("A7: a vector of 8-byte elements at 4 modulo 8 is an error, whatever flatbuffers says") {
  // Moves the column values.offset by four bytes: a flatbuffer whose vector lengths are all at
  // multiples of 4, which is all that the flatbuffer verifier asks.
  const std::vector<std::byte> bytes = assemble(kCpuSample);
  std::vector<std::byte> image = bytes;
  const auto metadata = metadata_of(image);
  auto* root = schema::GetMutableImage(metadata.data());
  auto* values = root->mutable_values();
  std::vector<uint64_t> offsets(values->offset()->begin(), values->offset()->end());

  std::vector<std::byte> longer(metadata.begin(), metadata.end());
  while (longer.size() % 8 != 0) longer.push_back(std::byte{0});
  // Length at a multiple of 8, so elements at 4 modulo 8.
  const size_t vector_at = longer.size();
  longer.resize(longer.size() + 4 + 8 * offsets.size());
  const auto count = static_cast<uint32_t>(offsets.size());
  std::memcpy(longer.data() + vector_at, &count, 4);
  std::memcpy(longer.data() + vector_at + 4, offsets.data(), 8 * offsets.size());
  // Point the table's field there.
  const auto* table = reinterpret_cast<const uint8_t*>(values);
  const size_t field = static_cast<size_t>(table - reinterpret_cast<uint8_t*>(metadata.data())) +
                       reinterpret_cast<const flatbuffers::Table*>(values)->GetOptionalFieldOffset(
                           schema::Values::VT_OFFSET);
  const auto relative = static_cast<uint32_t>(vector_at - field);
  std::memcpy(longer.data() + field, &relative, 4);

  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(longer.data()), longer.size());
  CHECK(schema::VerifyImageBuffer(verifier));
  CHECK(open_message(replace_metadata(bytes, longer)) ==
        "values.offset: must be aligned to 8 bytes");
}

// ---- Optional fields ---------------------------------------------------------------------------

namespace {

// The schema itself, compiled at build time: new fields are covered without touching this file.
class Reflection {
 public:
  Reflection() {
    const char* path = std::getenv("DAVIT_IMAGE_SCHEMA");
    REQUIRE_MESSAGE(path != nullptr, "DAVIT_IMAGE_SCHEMA must name the compiled schema");
    REQUIRE(flatbuffers::LoadFile(path, true, &text_));
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(text_.data()), text_.size());
    REQUIRE(reflection::VerifySchemaBuffer(verifier));
  }
  [[nodiscard]] const reflection::Schema& schema() const {
    return *reflection::GetSchema(text_.data());
  }

 private:
  std::string text_;
};

using Visit = std::function<void(flatbuffers::Table&, const reflection::Object&)>;

// Calls `visit` for a table and all that are reached from it.
void walk(flatbuffers::Table& table, const reflection::Object& type, const reflection::Schema& all,
          const Visit& visit) {
  visit(table, type);
  for (const reflection::Field* field : *type.fields()) {
    const bool is_table = field->type()->base_type() == reflection::Obj;
    const bool is_vector = field->type()->base_type() == reflection::Vector &&
                           field->type()->element() == reflection::Obj;
    if (!is_table && !is_vector) continue;
    const reflection::Object& inner =
        *all.objects()->Get(static_cast<uint32_t>(field->type()->index()));
    if (inner.is_struct()) continue;
    if (is_table) {
      auto* child = table.GetPointer<flatbuffers::Table*>(field->offset());
      if (child != nullptr) walk(*child, inner, all, visit);
      continue;
    }
    auto* children =
        table.GetPointer<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::Table>>*>(
            field->offset());
    for (uint32_t i = 0; children != nullptr && i < children->size(); ++i) {
      walk(*children->GetMutableObject(i), inner, all, visit);
    }
  }
}

// Makes a field absent: its entry in the vtable becomes 0. The vtable may be shared with tables of
// the same shape; then the field disappears from all of them.
bool remove_field(flatbuffers::Table& table, uint16_t field) {
  if (table.GetOptionalFieldOffset(field) == 0) return false;
  auto* vtable = const_cast<uint8_t*>(table.GetVTable());
  std::memset(vtable + field, 0, sizeof(flatbuffers::voffset_t));
  return true;
}

}  // namespace

TEST_CASE("A4: every optional field absent, by reflection over the schema") {
  const Reflection reflection;
  const auto& all = reflection.schema();
  std::set<std::string> removed;
  std::set<std::string> accepted;
  for (const std::string_view sample : kSamples) {
    const std::vector<std::byte> good = assemble(sample);
    // Counts (table, field) pairs in walking order, and removes one of them per round.
    for (size_t target = 0;; ++target) {
      size_t seen = 0;
      std::string name;
      std::vector<std::byte> bytes = with_metadata(good, [&](schema::Image& image) {
        walk(reinterpret_cast<flatbuffers::Table&>(image), *all.root_table(), all,
             [&](flatbuffers::Table& table, const reflection::Object& type) {
               for (const reflection::Field* field : *type.fields()) {
                 if (!name.empty() || table.GetOptionalFieldOffset(field->offset()) == 0) continue;
                 if (seen++ != target) continue;
                 name = type.name()->str() + "." + field->name()->str();
                 REQUIRE(remove_field(table, field->offset()));
               }
             });
      });
      if (name.empty()) break;
      CAPTURE(name);
      removed.insert(name);
      const std::string message = open_message(bytes);
      if (message.empty()) accepted.insert(name);
      open_and_run(bytes);
    }
  }
  // Every field of every table of the schema occurs in some sample, so the loop above covers it.
  for (const reflection::Object* object : *all.objects()) {
    if (object->is_struct()) continue;
    for (const reflection::Field* field : *object->fields()) {
      const std::string name = object->name()->str() + "." + field->name()->str();
      CHECK_MESSAGE(removed.contains(name), name << " is in no sample");
    }
  }
  // The documented defaults (docs/image.md), for some sample that does not need the field; all
  // other fields are missed.
  const std::set<std::string> documented = {
      "davit.schema.Graph.cost",
      "davit.schema.Graph.op",
      "davit.schema.Graph.origin",
      "davit.schema.Graph.outputs",
      "davit.schema.Graph.priority",
      "davit.schema.Graph.shape_nodes",
      "davit.schema.Graph.succ",
      "davit.schema.Image.costs",
      "davit.schema.Image.provenance",
      "davit.schema.Image.streams",
      "davit.schema.Kernel.flags",
      "davit.schema.MemoryPlan.lower_bound_bytes",
      "davit.schema.Port.dims",
      "davit.schema.Port.name",
      "davit.schema.Provenance.options",
      "davit.schema.Provenance.opsets",
      "davit.schema.Provenance.producer",
      "davit.schema.Provenance.source_digest",
      "davit.schema.Provenance.source_name",
      "davit.schema.StreamPlan.stream_priority",
      "davit.schema.Values.name",
  };
  for (const std::string& name : removed) {
    CHECK_MESSAGE(accepted.contains(name) == documented.contains(name), name);
  }
}

// ---- Shared tables -----------------------------------------------------------------------------

namespace {

// Metadata whose vector of graphs names one Main graph of `nodes` nodes `count` times.
std::vector<std::byte> repeated_graph(uint32_t nodes, uint32_t count) {
  flatbuffers::FlatBufferBuilder builder;
  const std::vector<uint32_t> zeros(nodes + 1, 0);
  const auto column = builder.CreateVector(zeros.data(), nodes);
  const auto offsets = builder.CreateVector(zeros);
  const auto lanes = builder.CreateVector(std::vector<uint8_t>(nodes, 0));
  const auto empty = builder.CreateVector(std::vector<uint32_t>());
  const auto graph =
      schema::CreateGraph(builder, static_cast<uint8_t>(schema::GraphRole::Body), column, offsets,
                          empty, offsets, empty, offsets, empty, column, lanes);
  const auto graphs = builder.CreateVector(std::vector(count, graph));
  const auto kernel = schema::CreateKernelDirect(builder, "test.Run", DVT_KERNEL_ABI_VERSION, 0);
  const auto kernels = builder.CreateVector(&kernel, 1);
  const auto target = builder.CreateString("cpu");
  schema::ImageBuilder image(builder);
  image.add_target(target);
  image.add_kernels(kernels);
  image.add_graphs(graphs);
  schema::FinishImageBuffer(builder, image.Finish());
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {data, data + builder.GetSize()};
}

}  // namespace

TEST_CASE("a graph that is listed many times is refused before it is checked many times") {
  const std::vector<std::byte> carrier = assemble("davit 1.0 target cpu\ngraph main {\n}\n");
  const auto message = [&](uint32_t nodes, uint32_t count) {
    return open_message(replace_metadata(carrier, repeated_graph(nodes, count)));
  };
  CHECK(message(100000, 5000).find(": shares columns: ") != std::string::npos);
  CHECK(message(10, 5000).find(": shares columns: ") != std::string::npos);
  CHECK(message(0, 65537) == "graphs: 65537 entries, more than 65536");
  CHECK(message(10, 1) == "graphs: there is no Main graph");
}
