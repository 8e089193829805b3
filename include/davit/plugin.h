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
 * Versions DVT_PLUGIN_ABI_VERSION changes with the records below. Shared objects of older versions
 *          are loaded (ABI 1: without DvtPluginPass.run and what follows DvtPlugin.pass_count), of
 *          newer ones refused; plug-ins that are linked in have the version of this header.
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

/* ---- Passes over the whole graph ----------------------------------------------------------------
 * A pass that no pattern expresses gets the main graph of the model, and functions to look at it
 * and to change it. Ids of nodes and values stay as they are while it runs; DVT_NO_INDEX is none.
 * Strings and arrays that functions return live until the next change. */
typedef struct DvtGraph DvtGraph;

typedef struct DvtGraphAttribute {
  const char* name;
  char kind;       /* 'i', 'f' or 's'. */
  uint8_t is_list; /* ints, floats; else count is 1. */
  uint32_t count;
  const void*
      values; /* int64_t[count], float[count], or const char* (one string, NUL-terminated). */
} DvtGraphAttribute;

/* A node to add. Its outputs are new values. */
typedef struct DvtGraphNode {
  const char* domain; /* "" for ONNX. */
  const char* op;
  const char* name;
  const uint32_t* inputs; /* DVT_NO_INDEX: absent. */
  uint32_t input_count;
  uint32_t output_count;
  const DvtGraphAttribute* attributes;
  uint32_t attribute_count;
} DvtGraphNode;

typedef struct DvtGraphFunctions {
  uint32_t struct_size; /* Later versions have more at the end. */
  /* Nodes in topological order, as they were when the pass began. */
  uint32_t (*node_count)(const DvtGraph* graph);
  uint32_t (*node_at)(const DvtGraph* graph, uint32_t position); /* DVT_NO_INDEX: erased since. */
  const char* (*node_name)(const DvtGraph* graph, uint32_t node);
  const char* (*node_domain)(const DvtGraph* graph, uint32_t node);
  const char* (*node_op)(const DvtGraph* graph, uint32_t node);
  /* How many there are, and which; `values` may be NULL. */
  uint32_t (*node_inputs)(const DvtGraph* graph, uint32_t node, const uint32_t** values);
  uint32_t (*node_outputs)(const DvtGraph* graph, uint32_t node, const uint32_t** values);
  /* 1 when the node has it, as integers, reals or a string. */
  int (*node_attribute)(const DvtGraph* graph, uint32_t node, const char* name,
                        DvtGraphAttribute* out);
  const char* (*value_name)(const DvtGraph* graph, uint32_t value);
  /* What is known of it: dtype (DVT_DTYPE_NONE: not even that), rank or DVT_RANK_UNKNOWN, dims or
   * -1. */
  DvtTensor (*value_tensor)(const DvtGraph* graph, uint32_t value);
  const void* (*value_constant)(const DvtGraph* graph, uint32_t value); /* NULL: no constant. */
  uint32_t (*value_producer)(const DvtGraph* graph, uint32_t value);    /* A node, or none. */
  /* Nodes that read it, once for each operand, and outputs of the graph. */
  uint32_t (*value_reader_count)(const DvtGraph* graph, uint32_t value);
  /* Changes. The first copies the data; both give DVT_NO_INDEX for what is malformed. */
  uint32_t (*add_constant)(DvtGraph* graph, const char* name, const DvtTensor* tensor,
                           const void* data);
  uint32_t (*add_node)(DvtGraph* graph, const DvtGraphNode* node); /* The node. */
  /* Whoever reads `from`, an output of a node, reads `to`, which must not depend on it. 0: that
   * cannot be, and nothing has changed. What nobody reads any more goes at the end of the pass. */
  int (*replace_value)(DvtGraph* graph, uint32_t from, uint32_t to);
} DvtGraphFunctions;

/* Sets *changes, 0 when it is done: it is called until then, a few times at most. An error ends the
 * compilation with what is in `reason`. The graph is verified afterwards. */
typedef DvtCode (*DvtGraphPass)(DvtGraph* graph, const DvtGraphFunctions* functions,
                                uint32_t* changes, char* reason, size_t size);

/* A rewrite: wherever `pattern` is found, `replacement` takes its place. Both are graphs in the
 * text form of docs/compiling.md; inputs and outputs of the replacement belong to those of the same
 * name and place. The rest of the graph must not read what is inside the match. */
typedef struct DvtPluginPass {
  const char* name; /* For --disable-pass; unique. */
  uint32_t stage;   /* DvtPluginStage. */
  uint32_t reserved;
  const char* pattern;
  const char* replacement;
  const char* domain; /* Of operators that are not ONNX's and that the pass brings, ... */
  int64_t version;    /* ... and its version. */
  DvtGraphPass run;   /* Over the whole graph; pattern and replacement are NULL then. */
} DvtPluginPass;

/* A kernel as C source, for images with generated code (davit compile --isa ...). Where a node of
 * static shapes runs the kernel, the source is compiled for its shapes, and the image then needs no
 * plug-in for it: such a kernel has one output, of the dtype of input 0, and no scratch.
 *
 * The text defines DvtCode function(void* context). Above it stand davit/types.h, davit/kernel.h,
 * math.h and string.h; LANES, the number of f32 in a vector of the processor; and
 * DVT_SOURCE_ATTRIBUTES, a pointer to the node's attribute record. Shapes are checked around it. */
typedef struct DvtPluginSource {
  const char* kernel; /* The name of a kernel of this plug-in: "acme.Swish.f32". */
  const char* function;
  const char* text;
} DvtPluginSource;

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
  const DvtPluginSource* sources;
  size_t source_count;
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
