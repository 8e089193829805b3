/* plugin.h: operators, kernels and rewrites that a shared object adds to Davit.
 *
 * A plug-in is a shared object that exports dvt_plugin(), which returns one constant record:
 *
 *   const DvtPlugin* dvt_plugin(void) { static const DvtPlugin plugin = {...}; return &plugin; }
 *
 * The compile side (davit compile --plugin acme.so) learns from it which nodes of a model there are
 * kernels for, and how to rewrite others into them; the run side (davit run --plugin acme.so, or
 * DvtImageOptions.kernel_tables) takes the kernels. An image names kernels, it does not hold them.
 *
 *   node of the model            com.acme::MovingAverage(1), inputs f32
 *     -> DvtPluginOperator       kernel "acme.MovingAverage"
 *     -> DvtKernel               "acme.MovingAverage.f32", or "acme.MovingAverage" for all dtypes
 *
 * Shapes come from the kernel's infer(), device time from its cost() or `times`, attributes from
 * its attribute record: a member takes the node's attribute of its name (an int or ints for 'i', a
 * float or floats for 'f'; a list fills the array from its start). A member NAME_count takes the
 * length of the list NAME. Members without an attribute keep their default.
 *
 * Threads  Functions of a plug-in may be called from any thread.
 * Trust    A plug-in is code of the process; nothing confines it. Its record is checked when it is
 *          loaded. Kernels still check() what they are given: images are untrusted.
 * Memory   Everything a plug-in points to lives as long as the process: plug-ins are not unloaded.
 * Versions DVT_PLUGIN_ABI_VERSION changes with the records below; plug-ins of another version are
 *          refused.
 */
#pragma once

#include "davit/davit.h"
#include "davit/loop_nest.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DVT_PLUGIN_ABI_VERSION = 2 };

/* In DvtPluginOperator.input_max: as many as the node has. */
enum { DVT_PLUGIN_VARIADIC = UINT16_MAX };

typedef struct DvtPluginOperator {
  const char* domain;                   /* "com.acme"; not that of ONNX, and not "davit". */
  const char* name;                     /* "MovingAverage" */
  int64_t since_version, until_version; /* Of the domain, both included; INT64_MAX: current. */
  uint16_t input_min, input_max;        /* Inputs after the first input_min may be absent. */
  uint16_t output_min, output_max;
  /* Scratch outputs of the kernel, after those of the node; its infer() says how many bytes. */
  uint32_t workspace_count;
  const char* kernel; /* See the drawing above. */
  /* Dtype of an output by those of the inputs (DVT_DTYPE_NONE for absent ones). NULL: all outputs
   * have that of input 0. */
  DvtDType (*output_dtype)(const DvtDType* inputs, uint32_t input_count, uint32_t output);
  const void* default_attributes; /* A record of the kernel; NULL: zeros. */
} DvtPluginOperator;

enum DvtPluginStage {
  DVT_PLUGIN_BEFORE = 0, /* On the graph as the model has it, with shapes as far as known. */
  DVT_PLUGIN_AFTER = 1,  /* After Davit's own passes of -O2, before those of -O3. */
};

/* A rewrite: wherever `pattern` is found, `replacement` takes its place. Both are graphs in the
 * text form of docs/compiling.md; inputs and outputs of the replacement belong to those of the same
 * name and place. The rest of the graph must not read what is inside the match. */
typedef struct DvtPluginPass {
  const char* name; /* For --disable-pass; unique. */
  uint32_t stage;   /* DvtPluginStage. */
  uint32_t reserved;
  const char* pattern;
  const char* replacement;
  const char* domain; /* Of the replacement's operators that are not ONNX's, ... */
  int64_t version;    /* ... and its version. */
} DvtPluginPass;

typedef struct DvtPlugin {
  uint32_t struct_size; /* sizeof(DvtPlugin) */
  uint32_t abi_version; /* DVT_PLUGIN_ABI_VERSION */
  const char* name;     /* "acme" */
  const char* version;  /* Of the plug-in, for people. */
  DvtKernelTable kernels;
  const DvtPluginOperator* operators;
  size_t operator_count;
  const DvtPluginPass* passes;
  size_t pass_count;
  /* How long kernels take on the Ascend model, by the name of their operator here. Of those without
   * one, the model makes what it can of their DvtKernel.cost(). */
  const DvtKernelTime* times;
  size_t time_count;
} DvtPlugin;

/* What a plug-in exports. */
DVT_API const DvtPlugin* dvt_plugin(void);

/* Loads a shared object and checks what it returns. The same file gives the same record again.
 * Errors: DVT_IO_ERROR (cannot be loaded, or exports no dvt_plugin), DVT_VERSION_MISMATCH,
 * DVT_INVALID_ARGUMENT (a rule above is broken; the message names the member). */
DVT_API DVT_NODISCARD DvtCode dvt_plugin_load(const char* path, const DvtPlugin** plugin,
                                              DvtError* error);

/* The check alone, for plug-ins that are linked in. */
DVT_API DVT_NODISCARD DvtCode dvt_plugin_check(const DvtPlugin* plugin, DvtError* error);

#ifdef __cplusplus
} /* extern "C" */
#endif
