// image_api.cpp: the image half of davit.h. Nothing throws across it.
#include <cstring>
#include <new>
#include <span>
#include <string>

#include "exec/api_error.hpp"
#include "exec/device_memory.hpp"
#include "exec/gears.hpp"
#include "exec/image.hpp"

using davit::Result;
using davit::Status;
using davit::exec::GraphView;
using davit::exec::ImageHandle;
using davit::exec::ImageView;
using davit::exec::OpenOptions;
using davit::exec::PortView;

namespace {

DvtCode report(const Status& status, DvtError* error) {
  status.to_c(error);
  return status.code();
}

DvtCode report(DvtCode code, DvtStage stage, const char* message, DvtError* error) {
  return report(Status(code, stage, message), error);
}

// `options` may be null, or shorter than this library's when the caller was built with an older
// one.
Status complete_options(const DvtImageOptions* options, DvtImageOptions& complete) {
  dvt_image_options_init(&complete);
  if (options == nullptr) return {};
  if (options->struct_size < sizeof options->struct_size ||
      options->struct_size > sizeof complete) {
    Status status(DVT_VERSION_MISMATCH, DVT_STAGE_LOAD,
                  "DvtImageOptions.struct_size is not of this version of the library; use "
                  "dvt_image_options_init()");
    status.detail().expected = "at most " + std::to_string(sizeof complete);
    status.detail().got = std::to_string(options->struct_size);
    return status;
  }
  std::memcpy(&complete, options, options->struct_size);
  return {};
}

OpenOptions open_options(const DvtImageOptions& options) {
  return {.skip_digests = options.skip_digests != 0,
          .code = options.refuse_code != 0 ? davit::exec::CodeUse::kRefuse
                                           : davit::exec::CodeUse::kLoad,
          .prefault = options.prefault != 0,
          .kernel_tables = {options.kernel_tables,
                            options.kernel_tables == nullptr ? 0 : options.kernel_table_count},
          .arena_bytes_max = options.arena_bytes_max,
          .weights = {static_cast<const std::byte*>(options.weights),
                      options.weights == nullptr ? 0 : options.weights_bytes}};
}

template <class Open>
DvtCode open_image(const DvtImageOptions* options, DvtImage** out, DvtError* error, Open open) {
  *out = nullptr;
  try {
    DvtImageOptions complete;
    if (Status s = complete_options(options, complete); !s.ok()) return report(s, error);
    Result<ImageHandle> image = open(open_options(complete));
    if (!image.ok()) return report(image.status(), error);
    if (complete.weights != nullptr && (*image)->view.constants != complete.weights) {
      return report(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD,
                    "DvtImageOptions.weights would do nothing: the image has its weights inside",
                    error);
    }
    *out = image->release();
    return DVT_OK;
  } catch (const std::bad_alloc&) {
    return davit::exec::out_of_memory(error, DVT_STAGE_LOAD, "no memory to open the image");
  }
}

DvtCode port_info(const ImageView& view, std::span<const PortView> ports, const char* what,
                  uint32_t index, DvtPortInfo* out, DvtError* error) {
  if (out == nullptr || index >= ports.size()) {
    const std::string message = out == nullptr ? std::string("out must not be NULL")
                                               : "there is no " + std::string(what) + " " +
                                                     std::to_string(index) + ": the image has " +
                                                     std::to_string(ports.size());
    return report(DVT_INVALID_ARGUMENT, DVT_STAGE_BIND, message.c_str(), error);
  }
  const PortView& port = ports[index];
  out->name = view.strings[port.name];
  out->tensor = view.descs[port.desc];
  for (uint32_t d = 0; d < DVT_MAX_RANK; ++d) {
    const bool ranged = port.dims != nullptr && d < out->tensor.rank;  // The rank is then known.
    out->dims_min[d] = ranged ? port.dims[d].min : out->tensor.dims[d];
    out->dims_max[d] = ranged ? port.dims[d].max : out->tensor.dims[d];
    if (!ranged && d < out->tensor.rank && out->tensor.rank <= DVT_MAX_RANK &&
        out->tensor.dims[d] < 0) {
      out->dims_min[d] = 0;
      out->dims_max[d] = INT64_MAX;
    }
    out->symbols[d] = ranged ? view.strings[port.dims[d].symbol] : "";
  }
  return DVT_OK;
}

uint32_t find_port(const ImageView& view, std::span<const PortView> ports, const char* name) {
  if (name == nullptr) return DVT_NO_INDEX;
  for (uint32_t i = 0; i < ports.size(); ++i) {
    if (std::strcmp(view.strings[ports[i].name], name) == 0) return i;
  }
  return DVT_NO_INDEX;
}

}  // namespace

void dvt_image_options_init(DvtImageOptions* options) {
  *options = {};
  options->struct_size = sizeof *options;
}

DvtCode dvt_image_open_file(const char* path, const DvtImageOptions* options, DvtImage** out,
                            DvtError* error) {
  if (path == nullptr || out == nullptr) {
    return report(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, "path and out must not be NULL", error);
  }
  return open_image(options, out, error, [&](const OpenOptions& complete) {
    return davit::exec::open_image_file(path, complete);
  });
}

DvtCode dvt_image_open_memory(const void* data, size_t size, const DvtImageOptions* options,
                              DvtImage** out, DvtError* error) {
  if ((data == nullptr && size != 0) || out == nullptr) {
    return report(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, "data and out must not be NULL", error);
  }
  return open_image(options, out, error, [&](const OpenOptions& complete) {
    return davit::exec::open_image_memory({static_cast<const std::byte*>(data), size}, complete);
  });
}

void dvt_image_close(DvtImage* image) {
  davit::exec::release_image(image);
}

const char* dvt_image_target(const DvtImage* image) {
  return image->view.target_name;
}

uint32_t dvt_image_input_count(const DvtImage* image) {
  return static_cast<uint32_t>(image->view.inputs.size());
}

uint32_t dvt_image_output_count(const DvtImage* image) {
  return static_cast<uint32_t>(image->view.outputs.size());
}

DvtCode dvt_image_input_info(const DvtImage* image, uint32_t index, DvtPortInfo* out,
                             DvtError* error) {
  return port_info(image->view, image->view.inputs, "input", index, out, error);
}

DvtCode dvt_image_output_info(const DvtImage* image, uint32_t index, DvtPortInfo* out,
                              DvtError* error) {
  return port_info(image->view, image->view.outputs, "output", index, out, error);
}

uint32_t dvt_image_find_input(const DvtImage* image, const char* name) {
  return find_port(image->view, image->view.inputs, name);
}

uint32_t dvt_image_find_output(const DvtImage* image, const char* name) {
  return find_port(image->view, image->view.outputs, name);
}

uint32_t dvt_image_gear_count(const DvtImage* image) {
  return davit::exec::gears_of(image->view).count;
}

DvtCode dvt_image_gear_input(const DvtImage* image, uint32_t gear, uint32_t input, DvtTensor* out,
                             DvtError* error) {
  const davit::exec::GearsView gears = davit::exec::gears_of(image->view);
  if (out == nullptr || gear >= gears.count || input >= image->view.inputs.size()) {
    return report(DVT_INVALID_ARGUMENT, DVT_STAGE_BIND,
                  out == nullptr ? "out must not be NULL" : "there is no such gear or input",
                  error);
  }
  *out = gears.input(gear, input);
  return DVT_OK;
}

void dvt_image_info(const DvtImage* image, DvtImageInfo* out) {
  const ImageView& view = image->view;
  const GraphView& main = view.graphs[view.main];
  *out = {.file_bytes = view.file_bytes,
          .constant_bytes = view.constant_bytes,
          .arena_bytes = view.arena_bytes,
          .arena_lower_bound_bytes = view.lower_bound_bytes,
          .executor_bytes = davit::exec::executor_bytes(view),
          .node_count = main.node_count,
          .edge_count = main.edge_count,
          .value_count = view.values.count,
          .version_major = view.version_major,
          .version_minor = view.version_minor,
          .producer = view.provenance.producer,
          .source_name = view.provenance.source_name,
          .source_digest = view.provenance.source_digest,
          .options = view.provenance.options};
}

DvtCode dvt_image_device_memory(const DvtImage* image, DvtDeviceMemoryNeeds* out, DvtError* error) {
  if (image == nullptr || out == nullptr) {
    return report(DVT_INVALID_ARGUMENT, DVT_STAGE_LOAD, "image and out must not be NULL", error);
  }
  *out = {};
  try {
    Result<DvtDeviceMemoryNeeds> needs = davit::exec::device_memory_needs(image->view);
    if (!needs.ok()) return report(needs.status(), error);
    *out = *needs;
    davit::exec::clear_error(error);
    return DVT_OK;
  } catch (const std::bad_alloc&) {
    return davit::exec::out_of_memory(error, DVT_STAGE_LOAD, "no memory to replay Main");
  }
}

void dvt_image_host_memory(const DvtImage* image, DvtHostMemory* out) {
  if (out == nullptr) return;
  *out = {};
  if (image == nullptr) return;
  image->memory.statistics(*out);
  out->mapped_bytes = image->mapping.bytes().size() + image->weights.bytes().size();
}
