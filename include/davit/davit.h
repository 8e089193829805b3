/* davit.h: the C API of the run side. Open an image, make executors, run them.
 *
 * Threads
 *   Library    No global state. Any number of images and executors in a process.
 *   Image      Immutable once open; share it between threads and executors freely.
 *   Executor   One thread at a time. Different executors run at the same time on any threads, also
 *              when they share an image. A run is cancelled from any thread (DvtCancel).
 *   fork       An executor made before fork() works in the child when its target is cpu.
 *
 * Trust
 *   An image file is untrusted input. dvt_image_open_* checks everything that running relies on;
 *   a file that breaks a rule gives DVT_INVALID_IMAGE and an error that names table, index, rule.
 *
 * Memory
 *   Objects are opaque; destroy what you create. An image must outlive its executors: executors
 * hold a reference, so that dvt_image_close() before dvt_executor_destroy() is safe. Bound input
 * and output buffers belong to the caller and stay in use until they are rebound, or the executor
 * is destroyed. dvt_executor_run() of a cpu image allocates nothing; with dynamic shapes, nothing
 * once it has seen the shapes.
 *
 * Errors
 *   Every function that can fail returns a DvtCode and, when `error` is not NULL, fills it in.
 *   Nothing throws.
 */
#pragma once

#include "davit/kernel.h"
#include "davit/types.h"

#if defined(__GNUC__)
#define DVT_API __attribute__((visibility("default")))
#define DVT_NODISCARD __attribute__((warn_unused_result))
#else
#define DVT_API
#define DVT_NODISCARD
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define DVT_VERSION_MAJOR 0
#define DVT_VERSION_MINOR 1
#define DVT_VERSION_PATCH 0

/* "0.1.0" */
DVT_API const char* dvt_version(void);

/* ---- Images -----------------------------------------------------------------------------------
 */

typedef struct DvtImage DvtImage;

typedef struct DvtImageOptions {
  uint32_t struct_size;  /* sizeof(DvtImageOptions); lets the struct grow. */
  uint32_t skip_digests; /* 1: do not check the XXH3 digests (structure is always checked). */
  uint32_t prefault; /* 1: touch all pages at open, so that the first run is as fast as others. */
  /* 1: DVT_UNSUPPORTED for an image that brings machine code (docs/code_generation.md): who opens
   * one trusts it as a program. */
  uint32_t refuse_code;
  /* Kernels of the caller, searched before Davit's own. The array and the kernels must outlive the
   * image. */
  const DvtKernelTable* kernel_tables;
  size_t kernel_table_count;
  uint64_t arena_bytes_max; /* Refuse images whose executors need more; 0: no limit. */
  /* Weights that an image has in a file beside it (`davit compile --external-weights`): that file's
   * content in memory of the caller's, which is then used in its place. Borrowed until the image
   * and all its executors are gone; aligned to 8. NULL: the file. */
  const void* weights;
  uint64_t weights_bytes;
} DvtImageOptions;

/* Defaults: everything checked, no extra kernels, no limit. */
DVT_API void dvt_image_options_init(DvtImageOptions* options);

/* Maps the file read-only. Constants are used in place, never copied. `options` may be NULL. */
DVT_API DVT_NODISCARD DvtCode dvt_image_open_file(const char* path, const DvtImageOptions* options,
                                                  DvtImage** out, DvtError* error);

/* Borrows [data, data + size), which must stay unchanged until the image and all its executors are
 * gone. If data is not aligned to 8 bytes, metadata is copied once, and an image with constants
 * that end up misaligned for their element is refused with DVT_INVALID_ARGUMENT. */
DVT_API DVT_NODISCARD DvtCode dvt_image_open_memory(const void* data, size_t size,
                                                    const DvtImageOptions* options, DvtImage** out,
                                                    DvtError* error);

/* Drops the caller's reference. NULL is fine. */
DVT_API void dvt_image_close(DvtImage* image);

/* "cpu" or "ascend:910B2". Lives as long as the image, like all strings below. */
DVT_API const char* dvt_image_target(const DvtImage* image);

typedef struct DvtPortInfo {
  const char* name;
  /* A dynamic shape has DVT_TENSOR_DYNAMIC in its flags, -1 for each dimension that is set at run
   * time, and 0 bytes; its rank may be DVT_RANK_UNKNOWN. */
  DvtTensor tensor;
  int64_t dims_min[DVT_MAX_RANK];    /* Equal to tensor.dims for static dimensions ... */
  int64_t dims_max[DVT_MAX_RANK];    /* ... and so is this; INT64_MAX: no limit. */
  const char* symbols[DVT_MAX_RANK]; /* "" for an unnamed dimension. */
} DvtPortInfo;

DVT_API uint32_t dvt_image_input_count(const DvtImage* image);
DVT_API uint32_t dvt_image_output_count(const DvtImage* image);
DVT_API DVT_NODISCARD DvtCode dvt_image_input_info(const DvtImage* image, uint32_t index,
                                                   DvtPortInfo* out, DvtError* error);
DVT_API DVT_NODISCARD DvtCode dvt_image_output_info(const DvtImage* image, uint32_t index,
                                                    DvtPortInfo* out, DvtError* error);
/* Index of a name, or DVT_NO_INDEX. */
DVT_API uint32_t dvt_image_find_input(const DvtImage* image, const char* name);
DVT_API uint32_t dvt_image_find_output(const DvtImage* image, const char* name);

/* Gears: sets of shapes of the inputs that an image is made for, each with a static plan of its own
 * (davit compile --dynamic-batch, ...). A run takes the gear that has the shapes which are bound;
 * it is an error when none has. 0: the image has none. */
DVT_API uint32_t dvt_image_gear_count(const DvtImage* image);
/* Dtype and shape of an input in a gear. */
DVT_API DVT_NODISCARD DvtCode dvt_image_gear_input(const DvtImage* image, uint32_t gear,
                                                   uint32_t input, DvtTensor* out, DvtError* error);

typedef struct DvtImageInfo {
  uint64_t file_bytes;
  uint64_t constant_bytes;
  uint64_t arena_bytes;             /* Planned values of one executor. */
  uint64_t arena_lower_bound_bytes; /* What no plan can beat. */
  uint64_t executor_bytes;          /* All that one executor allocates, arena included. */
  uint32_t node_count;              /* Of Main. */
  uint32_t edge_count;              /* Of Main. */
  uint32_t value_count;
  uint16_t version_major, version_minor;
  const char* producer;
  const char* source_name;
  const char* source_digest;
  const char* options;
} DvtImageInfo;
DVT_API void dvt_image_info(const DvtImage* image, DvtImageInfo* out);

/* What an executor allocates on a device, if it is to be in memory of the caller's. */
typedef struct DvtDeviceMemoryNeeds {
  uint64_t fixed_bytes; /* By Init: DvtExecutorOptions.device_fixed. */
  /* By a run of Main in the order of the image: dvt_executor_bind_device_memory(). Of an image
   * whose shapes are set at run time, what is known before: no less will do, and more may be
   * needed. */
  uint64_t feature_bytes;
} DvtDeviceMemoryNeeds;
/* All zero for an image that drives no device. DVT_OUT_OF_MEMORY when the host has none to work it
 * out. */
DVT_API DVT_NODISCARD DvtCode dvt_image_device_memory(const DvtImage* image,
                                                      DvtDeviceMemoryNeeds* out, DvtError* error);

/* ---- Executors --------------------------------------------------------------------------------
 */

/* Worker threads that executors share, from oneTBB. In the library davit_threads; everything else
 * works without it. */
typedef struct DvtPool DvtPool;

typedef struct DvtPoolOptions {
  uint32_t struct_size; /* sizeof(DvtPoolOptions). */
  uint32_t workers;     /* With the thread that calls dvt_executor_run(); 0: as many as the process
                           may use by affinity and cgroup quota. At most 64. */
  int64_t spin_us;      /* What an idle worker spins before it sleeps; default 50. */
} DvtPoolOptions;
DVT_API void dvt_pool_options_init(DvtPoolOptions* options);

/* `options` may be NULL. */
DVT_API DVT_NODISCARD DvtCode dvt_pool_create(const DvtPoolOptions* options, DvtPool** out,
                                              DvtError* error);
/* NULL is fine. Executors that use the pool keep what they need of it. */
DVT_API void dvt_pool_destroy(DvtPool* pool);
DVT_API uint32_t dvt_pool_workers(const DvtPool* pool);

typedef struct DvtExecutor DvtExecutor;

/* How Main is run. All give the same results, bit for bit. */
enum {
  /* The fastest of all three, by trial in the first runs; the image's schedule is tried when there
   * are as many workers as it is for. */
  DVT_SCHEDULE_AUTO = 0,
  DVT_SCHEDULE_SEQUENTIAL = 1, /* In the order of the image, by the caller. */
  DVT_SCHEDULE_DYNAMIC = 2,    /* As nodes become ready, on whichever worker is free. */
  DVT_SCHEDULE_PLANNED = 3,    /* By the schedule in the image; DVT_FAILED_STATE if it has none. */
};

struct DvtDevice; /* davit/device.h; NULL selects the target's default. */

typedef struct DvtExecutorOptions {
  uint32_t struct_size; /* sizeof(DvtExecutorOptions). */
  uint32_t reserved;
  struct DvtDevice* device; /* Borrowed; must outlive the executor. NULL for cpu images is fine. */
  int64_t synchronize_timeout_us; /* For device waits; default -1: no limit. */
  uint64_t heap_bytes_max;        /* Of values whose size is known at run time only; 0: no limit. */
  DvtPool* pool;                  /* NULL: the caller runs everything. */
  uint32_t schedule;              /* DVT_SCHEDULE_*; without a pool all are sequential. */
  uint32_t workers_max;           /* Of the pool's; 0: all. */
  uint64_t device_bytes_max; /* As heap_bytes_max, of what Main allocates on a device; cached. */
  uint32_t device_memory;    /* DVT_DEVICE_MEMORY_*. */
  uint32_t huge_pages;       /* DVT_HUGE_PAGES_*. */
  /* Memory that the caller has allocated on `device`, for all that Init allocates there: weights,
   * and whatever else stays at its place. At least DvtDeviceMemoryNeeds.fixed_bytes from an address
   * that is a multiple of 64; borrowed until the executor is gone. NULL and 0: the device is asked
   * for each of them. */
  void* device_fixed;
  uint64_t device_fixed_bytes;
  /* 1: shapes that dvt_executor_bind_output_tensor() was given are not inferred again. */
  uint32_t trust_output_shapes;
  uint32_t reserved_2;
} DvtExecutorOptions;

/* Of the memory of an executor: its planned values and its tables. */
enum {
  DVT_HUGE_PAGES_AUTO = 0, /* From 2 MiB on, those that the system makes as it can (transparent). */
  DVT_HUGE_PAGES_NONE = 1, /* Pages of the usual size, faulted in one by one as they are used. */
  /* Those that were set aside (Linux: vm.nr_hugepages), of 2 MiB, whatever the size. Fewer than it
   * takes: DVT_OUT_OF_MEMORY. */
  DVT_HUGE_PAGES_RESERVED = 2,
};

/* What nodes of Main that allocate on a device do. */
enum {
  DVT_DEVICE_MEMORY_CACHED = 0, /* They use again what the executor has taken from the device. */
  DVT_DEVICE_MEMORY_DIRECT = 1, /* They call the device, which then sees the life of every value. */
};
DVT_API void dvt_executor_options_init(DvtExecutorOptions* options);

/* Load: allocates the arena, binds kernels, runs Init. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_create(DvtImage* image,
                                                  const DvtExecutorOptions* options,
                                                  DvtExecutor** out, DvtError* error);

/* Unload: runs DeInit, frees everything. NULL is fine. Errors of DeInit are dropped here; call
 * dvt_executor_unload() first to see them. */
DVT_API void dvt_executor_destroy(DvtExecutor* executor);
DVT_API DVT_NODISCARD DvtCode dvt_executor_unload(DvtExecutor* executor, DvtError* error);

/* Binds a caller's buffer, without a copy. `bytes` must be at least the tensor's, and `data`
 * aligned to its element. Two outputs must not overlap; an output must not overlap an input: the
 * next run checks this, and that all are bound, so that buffers may be swapped one by one. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_input(DvtExecutor* executor, uint32_t index,
                                                      const void* data, size_t bytes,
                                                      DvtError* error);
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_output(DvtExecutor* executor, uint32_t index,
                                                       void* data, size_t bytes, DvtError* error);

/* Binds a buffer together with the shape of its tensor: dtype, rank and dims of `tensor`; bytes are
 * computed. For inputs with a dynamic shape; any other must have its static shape. The shape must
 * be within the ranges of dvt_image_input_info(). dvt_executor_bind_input() then rebinds a buffer
 * of the same shape. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_input_tensor(DvtExecutor* executor, uint32_t index,
                                                             const DvtTensor* tensor,
                                                             const void* data, DvtError* error);

/* The same with the shape that the caller expects: dtype, rank and dims of `tensor`. Runs that give
 * the output another shape fail, naming it and both: before any kernel computes if the shape
 * follows from input shapes. `data` may be NULL, with 0 bytes: the output is in memory of the
 * executor.
 *
 * With DvtExecutorOptions.trust_output_shapes, a shape that only the kernel which makes the output
 * would infer is taken as it is given, and that kernel's check() alone stands between a wrong one
 * and the run. It saves the inference; all else, and outputs copied from a device, is checked as
 * ever. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_output_tensor(DvtExecutor* executor, uint32_t index,
                                                              const DvtTensor* tensor, void* data,
                                                              size_t bytes, DvtError* error);

/* After a successful run: shape and data of an output, until the next run or the next binding of an
 * output. An output with a dynamic shape need not be bound (or may be unbound again with NULL and 0
 * bytes): it is then in memory of the executor. One that is bound to a buffer that turns out too
 * small stops the run, before any kernel computes if the shape follows from input shapes. Where it
 * depends on data, the buffer must take the largest shape that it may have. `data` may be NULL. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_output_tensor(const DvtExecutor* executor,
                                                         uint32_t index, DvtTensor* tensor,
                                                         const void** data, DvtError* error);

/* The gear of the last run; DVT_NO_INDEX where the image has none. */
DVT_API uint32_t dvt_executor_gear(const DvtExecutor* executor);

/* From the next run on, planned values live in memory of the caller's: at least
 * DvtImageInfo.arena_bytes from `base`, aligned to 64 (an error names what an image needs beyond
 * that), and no bound buffer overlaps it. It stays until another is bound or the executor is gone;
 * executors that do not run at the same time may share it. NULL and 0: the executor's own again.
 * May be called between any two runs. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_arena(DvtExecutor* executor, void* base,
                                                      size_t bytes, DvtError* error);

/* The same for what Main allocates on the device: from the next run on it comes from `bytes` bytes
 * at `base`, which the caller has allocated on the executor's device, aligned to 64, of at least
 * DvtDeviceMemoryNeeds.feature_bytes. A run that needs more fails with DVT_OUT_OF_MEMORY. NULL and
 * 0: from the device again. May be called between any two runs, also with other memory each time;
 * executors that do not run at the same time may share it. The figures of DVT_MEMORY_DEVICE begin
 * anew. DVT_FAILED_STATE with DVT_DEVICE_MEMORY_DIRECT, and after a failed run whose work the
 * device has not ended. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_device_memory(DvtExecutor* executor, void* base,
                                                              size_t bytes, DvtError* error);

/* Makes an input and an output of one type a variable: what a run leaves in the output, the next
 * one finds in the input, without a copy. A run that fails changes no variable.
 *
 * The variable lives in two halves, each of the tensor's bytes rounded up to 64, which take turns:
 * `bytes` is at least that of both, `base` aligned to 64, and the first half is the value that
 * there is. NULL and 0: memory of the executor, all zeros. Binding either port to anything else
 * ends the variable, and leaves the other port unbound.
 *
 * Where the output's shape is dynamic, the variable may have another one after each run. It has no
 * value before dvt_executor_set_variable() has given it one. In memory of the caller's a half is
 * `bytes` / 2, rounded down to 64, and a run whose output needs more fails; blocks of the
 * executor's heap grow. A run whose output has a shape that the input does not take fails, too. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_bind_variable(DvtExecutor* executor, uint32_t input,
                                                         uint32_t output, void* base, size_t bytes,
                                                         DvtError* error);
/* Where the value of a variable is, by its input, until the next run; until then it may be read and
 * written. DVT_INVALID_ARGUMENT when the input is no variable's. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_variable(const DvtExecutor* executor, uint32_t input,
                                                    void** data, DvtError* error);
/* The same with the shape that it has now. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_variable_tensor(const DvtExecutor* executor,
                                                           uint32_t input, DvtTensor* tensor,
                                                           void** data, DvtError* error);
/* Gives a variable a value, between runs: copies the bytes of `tensor` from `data`; all zeros when
 * `data` is NULL. `tensor` says dtype, rank and dims, as for dvt_executor_bind_input_tensor();
 * NULL: the shape that it has. What cannot be is refused, and changes nothing. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_set_variable(DvtExecutor* executor, uint32_t input,
                                                        const DvtTensor* tensor, const void* data,
                                                        DvtError* error);

/* Counters since the executor was made. */
typedef struct DvtExecutorStatistics {
  uint64_t shape_hits, shape_misses; /* Shapes remembered, and worked out anew. */
  /* Memory of values whose size is known at run time only: in use, kept for reuse, most of both. */
  uint64_t heap_live_bytes, heap_cached_bytes, heap_peak_bytes;
  uint64_t heap_allocations, heap_system_allocations; /* All; those not served from the cache. */
} DvtExecutorStatistics;
DVT_API void dvt_executor_statistics(const DvtExecutor* executor, DvtExecutorStatistics* out);

/* ---- Memory whose size is known at run time only ------------------------------------------------
 * An executor has two pools of it. Both keep what is freed; a static cpu image has neither. These
 * functions may be called between runs and by the observer of a sequential run, never by others
 * while a run is in progress. */
typedef enum DvtMemoryPool {
  DVT_MEMORY_HEAP = 0,   /* Host memory of values of dynamic shape. */
  DVT_MEMORY_DEVICE = 1, /* What Main allocates on the device, if that is cached. */
} DvtMemoryPool;

typedef struct DvtMemoryStatistics {
  uint64_t live_bytes; /* Of values, each rounded up to 64. */
  uint64_t live_peak_bytes;
  uint64_t cached_bytes;   /* Free, and kept. */
  uint64_t reserved_bytes; /* Both: what the system or the device has given. */
  uint64_t reserved_peak_bytes;
  uint64_t largest_hole_bytes; /* Largest piece of what is cached. */
  uint64_t limit_bytes;        /* 0: none. */
  uint64_t live_blocks;
  uint64_t allocations;        /* All, since the executor was made. */
  uint64_t system_allocations; /* Times that the pool grew. */
  uint64_t recoveries; /* Times that nothing fitted: streams were waited for, caches trimmed. */
} DvtMemoryStatistics;
/* All zero for a pool that the executor does not have. */
DVT_API void dvt_executor_memory(const DvtExecutor* executor, DvtMemoryPool pool,
                                 DvtMemoryStatistics* out);
/* live_bytes alone, in constant time: for timelines. */
DVT_API uint64_t dvt_executor_live_bytes(const DvtExecutor* executor, DvtMemoryPool pool);
/* Calls visit() for everything that is live, with the path of the node whose result it is, which
 * lives as long as the image. Slow. */
typedef void (*DvtMemoryVisitor)(void* user, const char* node, uint64_t bytes);
DVT_API void dvt_executor_visit_memory(const DvtExecutor* executor, DvtMemoryPool pool,
                                       DvtMemoryVisitor visit, void* user);
/* Gives cached memory of both pools back until at most `keep_bytes` of each are left, or what is
 * left shares a page or range with what is live. Returns the bytes given back. Between runs only.
 */
DVT_API uint64_t dvt_executor_trim(DvtExecutor* executor, uint64_t keep_bytes);

/* ---- Memory of the host that the engine keeps ---------------------------------------------------
 * Every image and every executor has an account of its own for what it keeps on the host, so that
 * what stays, and what was there at most, has a name. The account is a heap, too: its small objects
 * share pages with nobody else's, and go with it. */
typedef struct DvtHostMemory {
  uint64_t live_bytes; /* In objects: tables, books of pools, ... As they were asked for. */
  uint64_t live_peak_bytes;
  uint64_t live_objects;
  uint64_t allocations; /* Since it was made. */
  /* Of the system, beside that: an executor's planned values and tables, an image's file and
   * weights, which processes may share. */
  uint64_t mapped_bytes;
  const char* allocator;   /* "malloc", or "mimalloc 3.3.2". */
  uint64_t reserved_bytes; /* Taken from it for the objects, free places between them included. */
} DvtHostMemory;
/* Executors: between runs, or in a run's observer. Values of dynamic shape: dvt_executor_memory().
 */
DVT_API void dvt_image_host_memory(const DvtImage* image, DvtHostMemory* out);
DVT_API void dvt_executor_host_memory(const DvtExecutor* executor, DvtHostMemory* out);

/* Execute: runs Main once. All inputs and outputs must be bound, but for outputs with a dynamic
 * shape. After a failure the executor is ready for the next run. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_run(DvtExecutor* executor, DvtError* error);

/* How the last run was scheduled, or the next one will be, and why. */
typedef struct DvtScheduleInfo {
  uint32_t schedule; /* DVT_SCHEDULE_*, never AUTO. */
  uint32_t workers;  /* That may take part. */
  char reason[160];
} DvtScheduleInfo;
DVT_API void dvt_executor_schedule(const DvtExecutor* executor, DvtScheduleInfo* out);

/* Called after every node of an observed run. `begin_ns` and `end_ns` are from CLOCK_MONOTONIC. */
typedef struct DvtNodeEvent {
  uint32_t node;
  uint32_t lane;
  DvtCode code;
  uint32_t body;      /* DVT_NO_INDEX in Main; else which body: its index among the graphs. */
  const char* origin; /* Original node path. */
  const char* op;
  const char* kernel;
  int64_t begin_ns, end_ns;
  const DvtContext* context;
  uint32_t worker; /* Who ran it: 0 is the thread that called; below DvtScheduleInfo.workers. */
  uint32_t reserved;
} DvtNodeEvent;
typedef void (*DvtNodeObserver)(void* user, const DvtNodeEvent* event);

/* As dvt_executor_run, in the order of the image whatever the schedule, but calls `observer` after
 * every node; those of the body of a branch or loop before the node that runs it. Same results; its
 * own loop, so that dvt_executor_run pays nothing for it. */
DVT_API DVT_NODISCARD DvtCode dvt_executor_run_observed(DvtExecutor* executor,
                                                        DvtNodeObserver observer, void* user,
                                                        DvtError* error);

/* Ends runs early, from any thread. One may serve any number of runs and executors, also at once.
 */
typedef struct DvtCancel DvtCancel;
DVT_API DVT_NODISCARD DvtCode dvt_cancel_create(DvtCancel** out, DvtError* error);
/* NULL is fine. No run may use it any more. */
DVT_API void dvt_cancel_destroy(DvtCancel* cancel);
/* Runs that were given it end, and so do later ones until it is reset. Safe in a signal handler. */
DVT_API void dvt_cancel_request(DvtCancel* cancel);
DVT_API void dvt_cancel_reset(DvtCancel* cancel);

/* DvtRunOptions.flags */
enum {
  DVT_RUN_WATCHED = 1, /* Notes what every node is doing, for dvt_executor_describe_waits(). */
};

typedef struct DvtRunOptions {
  uint32_t struct_size;     /* sizeof(DvtRunOptions). */
  uint32_t flags;           /* DVT_RUN_*; default 0. */
  const DvtCancel* cancel;  /* Or NULL. When it is requested, the run ends with DVT_CANCELLED. */
  int64_t timeout_us;       /* From the call on; then DVT_TIMEOUT. Default -1: no limit. */
  DvtNodeObserver observer; /* Or NULL. Called by the worker that ran the node: several at a time
                             * when the schedule has several workers. */
  void* observer_user;
} DvtRunOptions;
DVT_API void dvt_run_options_init(DvtRunOptions* options);

/* As dvt_executor_run, with limits that are looked at before every node, and while a worker waits
 * for others. A kernel that runs is not interrupted, nor is a wait for a device, which has a limit
 * of its own (DvtExecutorOptions.synchronize_timeout_us). What had started is back when this
 * returns, nothing else starts, and the executor is ready for the next run. When a node has failed
 * before, its error is the one that is reported. dvt_executor_run() pays nothing for any of this.
 */
DVT_API DVT_NODISCARD DvtCode dvt_executor_run_with(DvtExecutor* executor,
                                                    const DvtRunOptions* options, DvtError* error);

/* Who waits for whom in the watched run that is in progress, or where the last one ended: for each
 * lane the last node that has ended and the first that has not, how many could run; allocations
 * that are suspended, and the launch they wait for; unfinished nodes and what they wait for.
 *
 * Writes at most `size` bytes, the last of them 0, and returns how many the whole text needs
 * without that one. Any thread may call, also while the run is in progress; not in a signal
 * handler. A host that wants the text on a signal blocks that signal in all threads and waits for
 * it in one of its own, as `davit run --watch` does for SIGUSR1. NULL and unwatched: a text that
 * says so. */
DVT_API size_t dvt_executor_describe_waits(const DvtExecutor* executor, char* text, size_t size);

/* Davit's own kernels for the cpu. */
DVT_API DvtKernelTable dvt_cpu_kernels(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
