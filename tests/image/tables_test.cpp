// Stage 2 of the verifier: tables of the metadata. One broken rule per check.
#include <doctest/doctest.h>

#include <string>

#include "exec/image.hpp"
#include "image_generated.h"
#include "tests/image/support.hpp"

using namespace davit::test;  // NOLINT(google-build-using-namespace)
using davit::image::ImageModel;
using davit::image::kNone;
namespace schema = davit::schema;

namespace {

// What the verifier says of the cpu sample after a change of its metadata.
std::string message(const std::function<void(schema::Image&)>& change) {
  return open_message(with_metadata(assemble(kCpuSample), change));
}

// The same for a change that the writer passes on.
std::string model_message(const std::function<void(ImageModel&)>& change) {
  return write_message(kCpuSample, change);
}

DvtTensor& desc(schema::Image& image, uint32_t index) {
  return *reinterpret_cast<DvtTensor*>(image.mutable_descs()->GetMutableObject(index));
}

}  // namespace

TEST_CASE("A1: descriptors: types, ranks and sizes") {
  CHECK(message([](schema::Image& i) { desc(i, 1).dtype = 0xFF; }) ==
        "descs[1].dtype: 255 is unknown");
  CHECK(message([](schema::Image& i) {
          desc(i, 1).dtype = DVT_STRING;
        }).find("but the dimensions make") != std::string::npos);
  CHECK(message([](schema::Image& i) { desc(i, 1).rank = 9; }) ==
        "descs[1].rank: 9 is more than 8");
  CHECK(message([](schema::Image& i) { desc(i, 1).flags = 2; }) ==
        "descs[1]: unknown flags, or reserved is not zero");
  CHECK(message([](schema::Image& i) { desc(i, 1).reserved = 1; }) ==
        "descs[1]: unknown flags, or reserved is not zero");
  CHECK(message([](schema::Image& i) { desc(i, 1).dims[7] = 1; }) ==
        "descs[1].dims[7]: dimensions beyond the rank must be zero");
  CHECK(message([](schema::Image& i) { desc(i, 0).dims[0] = -1; }) ==
        "descs[0].dims: negative, or more elements than 2^63 - 1");
  CHECK(message([](schema::Image& i) { desc(i, 0).bytes = 31; }) ==
        "descs[0].bytes: 31, but the dimensions make 32");
}

TEST_CASE("A11: products that wrap in 64 bits are refused") {
  CHECK(message([](schema::Image& i) {
          desc(i, 0).dims[0] = int64_t{1} << 62;
          desc(i, 0).dims[1] = 4;
          desc(i, 0).bytes = 0;
        }) == "descs[0].dims: negative, or more elements than 2^63 - 1");
  CHECK(message([](schema::Image& i) {
          desc(i, 0).dims[0] = int64_t{1} << 60;
          desc(i, 0).dims[1] = 4;
          desc(i, 0).bytes = 0;
        }) == "descs[0].dims: more bytes than 2^63 - 1");
}

TEST_CASE("values: kinds, descriptors, names") {
  CHECK(message([](schema::Image& i) { i.mutable_values()->mutable_kind()->Mutate(5, 7); }) ==
        "values.kind[5]: 7 is unknown");
  CHECK(message([](schema::Image& i) { i.mutable_values()->mutable_desc()->Mutate(6, kNone); }) ==
        "values.desc[6]: only words may be without a descriptor");
  CHECK(message([](schema::Image& i) { i.mutable_values()->mutable_desc()->Mutate(11, 0); }) ==
        "values.desc[11]: words have no descriptor");
  CHECK(message([](schema::Image& i) { i.mutable_values()->mutable_desc()->Mutate(6, 99); }) ==
        "values.desc[6]: 99 is not in descs");
  CHECK(message([](schema::Image& i) { i.mutable_values()->mutable_name()->Mutate(6, 999); }) ==
        "values.name[6]: 999 is not in strings");
  CHECK(message([](schema::Image& i) { i.mutable_values()->mutable_offset()->Mutate(11, 8); }) ==
        "values.offset[11]: must be 0 for words, device and heap values");
}

TEST_CASE("A11: values stay inside arena and constants, also when offset + size wraps") {
  const auto offset = [](uint32_t value, uint64_t to) {
    return message(
        [&](schema::Image& i) { i.mutable_values()->mutable_offset()->Mutate(value, to); });
  };
  CHECK(offset(6, 8) == "values.offset[6]: must be a multiple of memory.alignment (64)");
  CHECK(offset(6, 192) == "values.offset[6]: the value reaches beyond memory.arena_bytes (192)");
  CHECK(offset(6, UINT64_MAX - 63) ==
        "values.offset[6]: the value reaches beyond memory.arena_bytes (192)");
  CHECK(offset(3, 2) == "values.offset[3]: must be a multiple of the element's 4 bytes");
  CHECK(offset(3, 64) == "values.offset[3]: the constant reaches beyond the constants segment");
  CHECK(offset(3, UINT64_MAX - 7) ==
        "values.offset[3]: the constant reaches beyond the constants segment");
  CHECK(offset(0, 1) == "inputs[0].value: value 0 \"x\" does not name this port");
  CHECK(offset(5, 1) == "values.offset[5]: there is no input 1");
}

TEST_CASE("the arena is as large as its values need, and no larger") {
  CHECK(model_message([](ImageModel& m) { m.arena_bytes = 160; }) == "");
  // Half of the sample's last value ends at 144; 192 is that, rounded up.
  CHECK(model_message([](ImageModel& m) { m.arena_bytes = 144; }) == "");
  CHECK(model_message([](ImageModel& m) { m.arena_bytes = 143; }) ==
        "values.offset[10]: the value reaches beyond memory.arena_bytes (143)");
  CHECK(model_message([](ImageModel& m) { m.arena_bytes = 193; }) ==
        "memory.arena_bytes: 193, but the planned values end at 144");
  CHECK(model_message([](ImageModel& m) { m.arena_alignment = 48; }) ==
        "memory.alignment: 48 is not a power of two in 8 to 4096");
  CHECK(model_message([](ImageModel& m) { m.arena_alignment = 0; }) ==
        "memory.alignment: 0 is not a power of two in 8 to 4096");
  CHECK(model_message([](ImageModel& m) { m.lower_bound_bytes = 200; }) ==
        "memory.lower_bound_bytes: must not be above memory.arena_bytes");
}

TEST_CASE("the caller's limit on the arena is an out-of-memory error with both numbers") {
  const auto bytes = assemble(kCpuSample);
  const auto kernel_tables = tables();
  const auto image = davit::exec::open_image_memory(
      bytes, {.kernel_tables = kernel_tables, .arena_bytes_max = 191});
  REQUIRE(!image.ok());
  CHECK(image.status().code() == DVT_OUT_OF_MEMORY);
  CHECK(image.status().detail().expected == "at most 191 bytes");
  CHECK(image.status().detail().got == "192 bytes");
}

TEST_CASE("ports: names, values, dimensions") {
  CHECK(model_message([](ImageModel& m) { m.outputs[1].name = "result"; }) ==
        "outputs[1].name: \"result\" is taken");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].name = ""; }) ==
        "inputs[0].name: must have 1 to 4096 bytes");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].name = std::string(5000, 'x'); }) ==
        "inputs[0].name: must have 1 to 4096 bytes");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].value = 99; }) ==
        "inputs[0].value: 99 is not in values");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].value = 1; }) ==
        "inputs[0].value: value 1 \"y\" does not name this port");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].dims.pop_back(); }) ==
        "inputs[0].dims: has 1 entries, must have 2");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].dims[0].max = 3; }) ==
        "inputs[0].dims[0]: must be 0 <= min <= max = the descriptor's extent, if it has one");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].dims[0].min = 3; }) ==
        "inputs[0].dims[0]: must be 0 <= min <= max = the descriptor's extent, if it has one");
  CHECK(model_message([](ImageModel& m) { m.inputs[0].dims[0].min = -1; }) ==
        "inputs[0].dims[0]: must be 0 <= min <= max = the descriptor's extent, if it has one");
  CHECK(
      message([](schema::Image& i) {
        i.mutable_inputs()->GetMutableObject(0)->mutable_dims()->GetMutableObject(0)->mutate_symbol(
            999);
      }) == "inputs[0].dims[0].symbol: 999 is not in strings");
  CHECK(message([](schema::Image& i) {
          i.mutable_inputs()
              ->GetMutableObject(0)
              ->mutable_dims()
              ->GetMutableObject(0)
              ->mutate_reserved(1);
        }) == "inputs[0].dims[0].reserved: must be zero");
  CHECK(message([](schema::Image& i) {
          i.mutable_outputs()->GetMutableObject(1)->mutate_name(999);
        }) == "outputs[1].name: 999 is not in strings");
  CHECK(model_message([](ImageModel& m) {
          m.values[5].tensor.dims[0] = 4;
          m.values[5].tensor.bytes = 16;
        }) == "values.desc[5]: has other bytes than input 0, which it views");
}

TEST_CASE("kernel references") {
  CHECK(model_message([](ImageModel& m) { m.kernels[0].name = ""; }) ==
        "kernels[0].name: must have 1 to 255 bytes");
  CHECK(model_message([](ImageModel& m) { m.kernels[0].flags = 3; }) ==
        "kernels[0].flags: 0x3 names no lane");
}

TEST_CASE("a kernel that nobody has is unsupported, with a hint") {
  ImageModel model = parse(kCpuSample);
  model.kernels[2].name = "acme.Missing";
  const auto bytes = davit::image::write_image(model, tables());
  REQUIRE(!bytes.ok());
  CHECK(bytes.status().code() == DVT_UNSUPPORTED);
  CHECK(bytes.status().detail().message == "kernels[2]: there is no kernel \"acme.Missing\"");
  CHECK(bytes.status().detail().hint.find("kernel_tables") != std::string::npos);
}

TEST_CASE("J8: kernels of another ABI or with other flags: the text has both sides") {
  ImageModel model = parse(kCpuSample);
  model.kernels[0].abi_version = 9;
  auto bytes = davit::image::write_image(model, tables());
  REQUIRE(!bytes.ok());
  CHECK(bytes.status().code() == DVT_VERSION_MISMATCH);
  CHECK(bytes.status().detail().message ==
        "kernels[0] \"test.Add\": the image was made for kernel ABI 9, the kernel has 1, the "
        "runtime 1");
  model.kernels[0].abi_version = 1;
  model.kernels[0].flags = 0x3c;
  bytes = davit::image::write_image(model, tables());
  REQUIRE(!bytes.ok());
  CHECK(bytes.status().code() == DVT_VERSION_MISMATCH);
  CHECK(
      bytes.status().detail().message ==
      "kernels[0].flags: the image was made for a \"test.Add\" with flags 0x3c, this runtime's has "
      "0x1c");
  // Another lane; fewer abilities than the kernel has by now are fine.
  CHECK(model_message([](ImageModel& m) { m.kernels[0].flags = 0x1d; }).find("flags 0x1d") !=
        std::string::npos);
  CHECK(model_message([](ImageModel& m) { m.kernels[0].flags = DVT_KERNEL_IN_PLACE; }) == "");
}

TEST_CASE("costs, streams, target, graphs") {
  CHECK(message([](schema::Image& i) { i.mutable_costs()->GetMutableObject(0)->mutate_kind(9); }) ==
        "costs[0].kind: 9 is unknown");
  CHECK(message([](schema::Image& i) {
          i.mutable_costs()->GetMutableObject(0)->mutate_dtype(99);
        }) == "costs[0].dtype: 99 is unknown");
  CHECK(message([](schema::Image& i) {
          i.mutable_costs()->GetMutableObject(0)->mutate_reserved(1);
        }) == "costs[0].reserved: must be zero");
  CHECK(model_message([](ImageModel& m) { m.stream_count = 9; }) ==
        "streams.stream_count: 9 streams, but no more than 8 nodes");
  CHECK(model_message([](ImageModel& m) { m.event_count = 4000000000; }) ==
        "streams.event_count: 4000000000 events, but no more than 8 nodes");
  CHECK(model_message([](ImageModel& m) {
          m.stream_priority = {1, 2};
        }) == "streams.stream_priority: has 2 entries, must have 0");
  CHECK(model_message([](ImageModel& m) { m.target_name = "gpu"; }) ==
        "target: \"gpu\" does not agree with the header's target 1");
  CHECK(model_message([](ImageModel& m) { m.target = DVT_TARGET_ASCEND; }) ==
        "target: \"cpu\" does not agree with the header's target 2");
  CHECK(model_message([](ImageModel& m) {
          m.target = DVT_TARGET_ASCEND;
          m.target_name = "ascend:";
        }) == "target: \"ascend:\" does not agree with the header's target 2");
  CHECK(model_message([](ImageModel& m) { m.graphs.clear(); }) == "graphs: there is no Main graph");
  CHECK(model_message([](ImageModel& m) { m.graphs.push_back(m.graphs[0]); }) ==
        "graphs[1].role: a second Main graph; graphs[0] is the first");
  CHECK(message([](schema::Image& i) {
          i.mutable_graphs()->GetMutableObject(0)->mutate_role(4);
        }) == "graphs[0].role: 4 is unknown");
}
