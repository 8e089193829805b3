/* npu.h: a functional, cycle-counted model of an Ascend NPU, in the shape of its runtime API.
 *
 * A DvtNpu computes the same numbers as the device would (kernels really run, when their task
 * completes in device order) and tells when each task would have started and ended. Time is
 * virtual: the host clock moves when the host submits, waits or says so (dvt_npu_host_advance), the
 * device follows it. docs/npu_model.md says what is counted, from which source, and how wrong it
 * is.
 *
 * Threads  Any thread may call; one lock per device serialises calls, kernels included. Submissions
 *          to one stream must come from one thread at a time. One host clock serves all threads.
 * Trust    Handles and addresses are checked, also stale and foreign ones: misuse gives
 *          DVT_INVALID_ARGUMENT and a reason. Costs are clamped, never trusted.
 * Memory   dvt_npu_destroy() frees everything, finished or not. Device memory is host memory that
 *          is accounted against the configured HBM; freed and fresh blocks hold 0xA5 bytes.
 * Errors   Functions that return DvtCode describe a failure in dvt_npu_last_error().
 * Time     Picoseconds of virtual time since dvt_npu_create(), in int64_t. Same calls, same times.
 */
#pragma once

#include "davit/davit.h"
#include "davit/device.h"
#include "davit/loop_nest.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtNpu DvtNpu;
typedef struct DvtNotify DvtNotify;
typedef struct DvtNpuModel DvtNpuModel;
typedef struct DvtNpuLabel DvtNpuLabel;
typedef struct DvtNpuQueue DvtNpuQueue;

/* ---- Creation ---------------------------------------------------------------------------------
 */

typedef enum DvtNpuMode {
  /* A task takes effect at its virtual completion, as soon as the host clock has passed it. */
  DVT_NPU_PROMPT = 0,
  /* A task takes effect only when a synchronisation demands it, in stream order. Legal, and as
   * late as can be: what is not synchronised is not there. */
  DVT_NPU_LAZY = 1,
  /* What the ordering rules leave open is decided by chance, and badly: tasks start late, and take
   * effect in any legal order, some only when a synchronisation demands it. The order of accesses
   * is checked (`check_order`). Times are those of a bad day, not predictions. */
  DVT_NPU_ADVERSARIAL = 2,
} DvtNpuMode;

typedef struct DvtNpuOptions {
  uint32_t struct_size;        /* sizeof(DvtNpuOptions); lets the struct grow. */
  DvtNpuMode mode;             /* Default DVT_NPU_PROMPT. */
  const char* soc;             /* "910B2" (default); see dvt_npu_soc_name(). */
  const char* parameters;      /* Text of a parameter file to use instead of `soc`; or NULL. */
  const char* const* override; /* `override_count` strings "key=value", applied last. */
  size_t override_count;
  uint32_t timing_only; /* 1: kernels and copies have no effect; memory has no backing. */
  uint32_t no_records;  /* 1: keep no task records (for very long runs). */
  const char* hang;     /* Fault injection: tasks of this name never complete. NULL: none. */
  uint64_t seed;        /* Of DVT_NPU_ADVERSARIAL: same calls and seed, same order and times. */
  /* 1: a task fails that reads what no task has written, or that touches bytes which a task that it
   * is not ordered behind writes or (if it writes) reads, even if they ran in a good order. The
   * error names both tasks. Adversarial mode always checks. */
  uint32_t check_order;
  /* Another NPU of the same host, or NULL: both then have one host clock and one lock, run in one
   * order of events, and notifies may cross. It may be destroyed first. */
  DvtNpu* beside;
} DvtNpuOptions;
DVT_API void dvt_npu_options_init(DvtNpuOptions* options);

/* `options` may be NULL. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_create(const DvtNpuOptions* options, DvtNpu** out,
                                             DvtError* error);
/* Stops where it is: unfinished tasks are dropped. NULL is fine. */
DVT_API void dvt_npu_destroy(DvtNpu* npu);

/* The adapter that executors drive (DvtExecutorOptions.device). Lives as long as the NPU. */
DVT_API DvtDevice* dvt_npu_device(DvtNpu* npu);

/* The last failure of a call on this thread, on any NPU. Valid until the next failure. */
DVT_API const DvtError* dvt_npu_last_error(void);

/* Parameter sets that are built in. Name for index < count, else NULL. */
DVT_API uint32_t dvt_npu_soc_count(void);
DVT_API const char* dvt_npu_soc_name(uint32_t index);

/* One model parameter. Evidence: 'M' measured on hardware, 'C' constant in published vendor code,
 * 'D' vendor document, 'F' fitted to published data, 'A' assumption without a public source. */
typedef struct DvtNpuParameter {
  const char* key;
  double value;
  const char* unit;
  char evidence;
  uint8_t overridden; /* 1: by DvtNpuOptions.override; `source` still names the original. */
  const char* source;
} DvtNpuParameter;
DVT_API uint32_t dvt_npu_parameter_count(const DvtNpu* npu);
DVT_API DvtCode dvt_npu_parameter(const DvtNpu* npu, uint32_t index, DvtNpuParameter* out);

/* ---- Memory -----------------------------------------------------------------------------------
 */

/* First fit in the configured HBM, 512-byte units. `owner` names the block in errors; copied. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_malloc(DvtNpu* npu, uint64_t bytes, const char* owner,
                                             void** out);
/* Gives the range back at once. Tasks that were submitted before may still use the block; one that
 * finds it overwritten by a task of the next owner fails and names both. Later submissions that
 * use it are refused. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_free(DvtNpu* npu, void* address);

typedef struct DvtNpuMemory {
  uint64_t capacity_bytes, live_bytes, peak_bytes, largest_hole_bytes;
  uint64_t block_count;
} DvtNpuMemory;
DVT_API void dvt_npu_memory(const DvtNpu* npu, DvtNpuMemory* out);

/* ---- Streams and tasks ------------------------------------------------------------------------
 * A stream is a FIFO: its tasks run strictly one after another. Streams are not ordered among each
 * other except by events, notifies and host synchronisation. Priority (0 first, to 7) orders
 * dispatch only. Every submission costs host time; a full queue makes the host wait.
 */

DVT_API DVT_NODISCARD DvtCode dvt_npu_stream_create(DvtNpu* npu, uint32_t priority,
                                                    DvtStream** out);
/* Waits for the stream's work. Work that cannot complete is dropped and reported as DVT_TIMEOUT; a
 * task that failed is reported as by synchronize. The stream is gone in all three cases. */
DVT_API DvtCode dvt_npu_stream_destroy(DvtNpu* npu, DvtStream* stream);

/* What a failed task means for the later ones of its stream, until a synchronisation reports it. */
typedef enum DvtNpuFailureMode {
  DVT_NPU_STOP_ON_FAILURE = 0,     /* They are skipped. */
  DVT_NPU_CONTINUE_ON_FAILURE = 1, /* They run. */
} DvtNpuFailureMode;

typedef struct DvtNpuStreamOptions {
  uint32_t struct_size; /* sizeof(DvtNpuStreamOptions). */
  uint32_t priority;    /* 0 (first) to 7. */
  uint32_t queue_depth; /* Tasks that may be queued; 0: what the device has, which is the most. */
  DvtNpuFailureMode failure_mode;
} DvtNpuStreamOptions;
DVT_API void dvt_npu_stream_options_init(DvtNpuStreamOptions* options);
DVT_API DVT_NODISCARD DvtCode dvt_npu_stream_create_with(DvtNpu* npu,
                                                         const DvtNpuStreamOptions* options,
                                                         DvtStream** out);
/* Drops what has not ended, at once, the running task included; the stream stays. Who waits for a
 * record among it goes on, with DVT_CANCELLED. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_stream_abort(DvtNpu* npu, DvtStream* stream);

/* Copies the argument record. Operands must lie in live blocks, now and when the task runs. The
 * block dim is launch->cost->block_dim. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_launch(DvtNpu* npu, DvtStream* stream,
                                             const DvtLaunch* launch);
/* A launch starts when one of the cores that it wants is free; this one when all are, for kernels
 * that synchronise their cores with each other. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_launch_on_all_cores(DvtNpu* npu, DvtStream* stream,
                                                          const DvtLaunch* launch);
/* As dvt_npu_launch(), after invalidating the caches of AICPUs. Where AICPUs do not see what copies
 * from the host write (aicpu.coherent is 0), an AICPU task that reads such bytes, a queue's
 * included, fails unless it is such a launch, or one lies between copy and task. Checked with
 * check_order. Executors launch all kernels so. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_launch_invalidating(DvtNpu* npu, DvtStream* stream,
                                                          const DvtLaunch* launch);
/* The host side of a copy must stay valid until a synchronisation covers it. `name` is copied and
 * may be NULL. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_copy_async(DvtNpu* npu, DvtStream* stream, DvtCopyKind kind,
                                                 void* to, const void* from, uint64_t bytes,
                                                 const char* name);
DVT_API DVT_NODISCARD DvtCode dvt_npu_memset_async(DvtNpu* npu, DvtStream* stream, void* to,
                                                   int value, uint64_t bytes);

/* Calls function(data) on a thread of the model's choice, in stream order; the stream waits for it.
 * It may not call this NPU: such calls return DVT_FAILED_STATE. Not called by a timing_only NPU. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_host_callback(DvtNpu* npu, DvtStream* stream,
                                                    void (*function)(void* data), void* data);

/* At most event.max ids are in use at a time. The id of a destroyed event is in use until the
 * records and waits of it that are queued have ended: creation makes the host wait for that, and
 * fails with DVT_OUT_OF_RESOURCE when nothing will come free.
 *
 * A record captures the work submitted to its stream so far. A wait blocks the later work of its
 * stream until the latest record at the time of the call is reached; later re-records do not move
 * it. Waiting on an event that was never recorded, or is reached already, adds no task. Destroying
 * an event leaves pending waits as they are. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_create(DvtNpu* npu, DvtEvent** out);
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_destroy(DvtNpu* npu, DvtEvent* event);
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_record(DvtNpu* npu, DvtStream* stream, DvtEvent* event);
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_wait(DvtNpu* npu, DvtStream* stream, DvtEvent* event);
/* *complete = 1 when the latest record is reached, or there is none. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_query(DvtNpu* npu, DvtEvent* event, int* complete);
/* Virtual time at which the latest record was reached. DVT_FAILED_STATE before that. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_time(DvtNpu* npu, DvtEvent* event, int64_t* out_ps);

/* Virtual time from the latest record of `first` to that of `last`; negative when it was reached
 * before. DVT_FAILED_STATE while one is not reached. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_event_elapsed(DvtNpu* npu, DvtEvent* first, DvtEvent* last,
                                                    int64_t* out_ps);

/* A notify is a flag: record sets it, wait blocks its stream until it is set and resets it. Unlike
 * an event, a wait may be submitted before the record it needs. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_notify_create(DvtNpu* npu, DvtNotify** out);
DVT_API DVT_NODISCARD DvtCode dvt_npu_notify_destroy(DvtNpu* npu, DvtNotify* notify);
DVT_API DVT_NODISCARD DvtCode dvt_npu_notify_record(DvtNpu* npu, DvtStream* stream,
                                                    DvtNotify* notify);
DVT_API DVT_NODISCARD DvtCode dvt_npu_notify_wait(DvtNpu* npu, DvtStream* stream,
                                                  DvtNotify* notify);

/* A notify of another NPU of the same host (DvtNpuOptions.beside), for records on this one: the
 * stream that waits for it is the owner's. The record arrives after notify.cross_device, and what
 * the recording stream did before it is done by then. Waiting for it here, or importing an imported
 * one, is DVT_INVALID_ARGUMENT, and so is recording it when the owner's is destroyed. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_notify_import(DvtNpu* npu, DvtNpu* owner, DvtNotify* notify,
                                                    DvtNotify** out);

/* Blocks, in virtual time, until the stream's submitted work is done, and returns the first error
 * of its tasks; that error is then cleared. timeout_us < 0: no limit. DVT_TIMEOUT when the limit
 * passes, or at once when nothing that has been submitted can ever complete it (the text then says
 * "deadlock at cycle ..." and lists who waits for whom). The work stays queued. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_stream_synchronize(DvtNpu* npu, DvtStream* stream,
                                                         int64_t timeout_us);
/* All streams. The first error by stream index. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_synchronize(DvtNpu* npu, int64_t timeout_us);

/* ---- Queues -----------------------------------------------------------------------------------
 * First in, first out; items are byte strings, copied. Device tasks run on an AICPU; one that
 * cannot go on (empty, full) gives its AICPU back and its stream pends until an item comes or goes.
 */

DVT_API DVT_NODISCARD DvtCode dvt_npu_queue_create(DvtNpu* npu, uint32_t depth, DvtNpuQueue** out);
/* DVT_FAILED_STATE while a task uses it. Items that are left are dropped. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_queue_destroy(DvtNpu* npu, DvtNpuQueue* queue);
/* By the host. DVT_OUT_OF_RESOURCE when full. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_queue_enqueue(DvtNpu* npu, DvtNpuQueue* queue,
                                                    const void* from, uint64_t bytes);
/* By the host: waits for an item as dvt_npu_stream_synchronize() does. The item must have `bytes`
 * bytes; otherwise it stays, and the error says its size. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_queue_dequeue(DvtNpu* npu, DvtNpuQueue* queue, void* to,
                                                    uint64_t bytes, int64_t timeout_us);
/* By the device, from and to device memory. A task that dequeues an item of another size fails. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_enqueue_async(DvtNpu* npu, DvtStream* stream,
                                                    DvtNpuQueue* queue, const void* from,
                                                    uint64_t bytes);
DVT_API DVT_NODISCARD DvtCode dvt_npu_dequeue_async(DvtNpu* npu, DvtStream* stream,
                                                    DvtNpuQueue* queue, void* to, uint64_t bytes);
/* Items in the queue now. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_queue_size(DvtNpu* npu, DvtNpuQueue* queue, uint32_t* out);

/* ---- Models (graph sink) ----------------------------------------------------------------------
 * Tasks of streams that are bound to a model stay on the device. They are submitted once and run by
 * every execution:
 *
 *   model_create, bind_stream..., submit to the bound streams, end_graph, model_build_end
 *   model_execute (any number of times) ... model_destroy
 *
 * An execution starts the head streams at their first task; the others run once a task activates
 * them. Events of a model are recorded and waited for inside it only, and begin each execution
 * unrecorded. Executions of one model follow each other.
 */

DVT_API DVT_NODISCARD DvtCode dvt_npu_model_create(DvtNpu* npu, DvtNpuModel** out);
/* DVT_FAILED_STATE while an execution is queued or running. Frees its streams of their tasks and
 * unbinds them; its labels are gone. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_model_destroy(DvtNpu* npu, DvtNpuModel* model);
/* The stream must have no unfinished work and belong to no model. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_model_bind_stream(DvtNpu* npu, DvtNpuModel* model,
                                                        DvtStream* stream, int is_head);
/* The task at which an execution ends, on a bound stream: one for each model. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_model_end_graph(DvtNpu* npu, DvtNpuModel* model,
                                                      DvtStream* stream);
/* No more tasks: checks that there is a head stream, an end-graph task, and that labels are set. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_model_build_end(DvtNpu* npu, DvtNpuModel* model);
/* One task on `stream`, which is not the model's: done when the execution is. Failures of the
 * model's tasks become failures of this one. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_model_execute(DvtNpu* npu, DvtNpuModel* model,
                                                    DvtStream* stream);
/* Stops the present execution where it is; its MODEL_EXECUTE fails with DVT_CANCELLED. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_model_abort(DvtNpu* npu, DvtNpuModel* model);

/* Control flow inside a model. After a task that goes elsewhere the present stream stops, unless it
 * is where the label is. A stream can run once at a time: activating a running one fails. */
typedef enum DvtNpuCondition {
  DVT_NPU_EQUAL = 0,
  DVT_NPU_NOT_EQUAL = 1,
  DVT_NPU_GREATER = 2,
  DVT_NPU_GREATER_OR_EQUAL = 3,
  DVT_NPU_LESS = 4,
  DVT_NPU_LESS_OR_EQUAL = 5,
} DvtNpuCondition;
/* `target` runs from its start, beside the present stream. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_stream_active(DvtNpu* npu, DvtStream* stream,
                                                    DvtStream* target);
/* Two int64 in device memory. If `*left condition *right`, `target` runs and the present stream
 * stops; otherwise it goes on. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_stream_switch(DvtNpu* npu, DvtStream* stream,
                                                    const void* left, DvtNpuCondition condition,
                                                    const void* right, DvtStream* target);
DVT_API DVT_NODISCARD DvtCode dvt_npu_label_create(DvtNpu* npu, DvtNpuModel* model,
                                                   DvtNpuLabel** out);
/* Marks the present end of a bound stream; once for each label. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_label_set(DvtNpu* npu, DvtStream* stream, DvtNpuLabel* label);
DVT_API DVT_NODISCARD DvtCode dvt_npu_label_goto(DvtNpu* npu, DvtStream* stream,
                                                 DvtNpuLabel* label);
/* Goes to labels[*index], `index` being a uint32 in device memory that is clamped to the last. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_label_switch(DvtNpu* npu, DvtStream* stream,
                                                   const void* index, DvtNpuLabel* const* labels,
                                                   uint32_t label_count);

/* ---- Clock and results ------------------------------------------------------------------------
 */

DVT_API int64_t dvt_npu_host_now_ps(const DvtNpu* npu);
/* The host was busy elsewhere for `ps` >= 0. */
DVT_API void dvt_npu_host_advance(DvtNpu* npu, int64_t ps);

typedef enum DvtNpuTaskType {
  DVT_NPU_AI_CORE = 0,
  DVT_NPU_AI_VECTOR_CORE = 1,
  DVT_NPU_MIX_AIC = 2,
  DVT_NPU_AI_CPU = 3,
  DVT_NPU_COPY_H2D = 4,
  DVT_NPU_COPY_D2H = 5,
  DVT_NPU_COPY_D2D = 6,
  DVT_NPU_MEMSET = 7,
  DVT_NPU_EVENT_RECORD = 8,
  DVT_NPU_EVENT_WAIT = 9,
  DVT_NPU_NOTIFY_RECORD = 10,
  DVT_NPU_NOTIFY_WAIT = 11,
  DVT_NPU_HOST_CALLBACK = 12,
  DVT_NPU_MODEL_EXECUTE = 13,
  DVT_NPU_END_GRAPH = 14,
  DVT_NPU_STREAM_ACTIVE = 15,
  DVT_NPU_STREAM_SWITCH = 16,
  DVT_NPU_LABEL_SET = 17,
  DVT_NPU_LABEL_GOTO = 18,
  DVT_NPU_LABEL_SWITCH = 19,
  DVT_NPU_QUEUE_ENQUEUE = 20,
  DVT_NPU_QUEUE_DEQUEUE = 21,
} DvtNpuTaskType;
/* "AI_CORE", "AI_VECTOR_CORE", ... as msprof prints them. */
DVT_API const char* dvt_npu_task_type_name(DvtNpuTaskType type);

/* Pipes of a core. Cube cores have MAC, MTE1, MTE2, FIXP; vector cores VEC, MTE2, MTE3. */
enum {
  DVT_NPU_PIPE_MAC = 0,
  DVT_NPU_PIPE_VEC = 1,
  DVT_NPU_PIPE_MTE1 = 2,
  DVT_NPU_PIPE_MTE2 = 3,
  DVT_NPU_PIPE_MTE3 = 4,
  DVT_NPU_PIPE_FIXP = 5,
  DVT_NPU_PIPE_COUNT = 6,
};
DVT_API const char* dvt_npu_pipe_name(uint32_t pipe);

/* A finished task. The parts add up exactly:
 *
 *   submit ... ready ... start .. (head) .. (body) .. (stall) .. end
 *   |- queue -|- wait -|- head + body + stall = end - start ---|
 *
 * ready: submitted, and earlier work of the stream has ended (plus the task gap).
 * wait: for cores, an engine, a stream slot, or the event to be reached.
 * stall: longer than alone on the device, because cores or bandwidth were shared. */
typedef struct DvtNpuTask {
  const char* name;
  const char* op;
  DvtNpuTaskType type;
  uint32_t stream;      /* Index, in order of creation. */
  uint64_t id;          /* Submission order on the device. */
  uint64_t released_by; /* What waits: id of the task that let it go on; else UINT64_MAX. */
  int64_t submit_ps, ready_ps, start_ps, end_ps;
  int64_t head_ps, body_ps, stall_ps;
  uint32_t block_dim;                       /* Cores used; 0 for tasks without cores. */
  uint32_t tile[3];                         /* Cube tasks: tile m, tile n, splits of k. */
  uint64_t body_cycles;                     /* Per core, alone on the device. */
  uint64_t pipe_cycles[DVT_NPU_PIPE_COUNT]; /* Busy cycles of a core; each <= body_cycles. */
  uint64_t read_bytes, write_bytes;         /* Unique bytes of the task. */
  uint64_t hbm_bytes, l2_bytes;             /* Traffic counted at HBM and at L2. */
} DvtNpuTask;
/* Finished tasks in order of completion (ties: submission). Strings live as long as the NPU. */
DVT_API uint64_t dvt_npu_task_count(const DvtNpu* npu);
DVT_API DvtCode dvt_npu_task(const DvtNpu* npu, uint64_t index, DvtNpuTask* out);
/* Forgets the records (not the tasks). */
DVT_API void dvt_npu_clear_tasks(DvtNpu* npu);

/* One executor run, between run_begin and run_end of the adapter. */
typedef struct DvtNpuRun {
  int64_t begin_ps, end_ps;        /* Host clock. */
  uint64_t first_task, task_count; /* Records that completed meanwhile. */
} DvtNpuRun;
DVT_API uint64_t dvt_npu_run_count(const DvtNpu* npu);
DVT_API DvtCode dvt_npu_run(const DvtNpu* npu, uint64_t index, DvtNpuRun* out);

/* Time by operator over a range of records, longest first. */
typedef struct DvtNpuOperator {
  const char* op;
  DvtNpuTaskType type;
  uint64_t count;
  int64_t total_ps, min_ps, max_ps;
  uint32_t share_ppm; /* Of the total of all rows; the rows' shares add up to at most 1e6. */
  uint64_t read_bytes, write_bytes;
} DvtNpuOperator;
/* Writes up to `capacity` rows and returns how many there are. */
DVT_API uint64_t dvt_npu_operators(const DvtNpu* npu, uint64_t first_task, uint64_t task_count,
                                   DvtNpuOperator* out, uint64_t capacity);

/* Writes all records as CSV under msprof's op_summary column names. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_write_op_summary(const DvtNpu* npu, const char* path,
                                                       DvtError* error);

/* From now on, launches of one operator type take what `kernel` says (davit/loop_nest.h), instead
 * of what the model makes of their cost. Copied; its functions and data live as long as the NPU. A
 * later description replaces an earlier one. DVT_FAILED_STATE when the type has been launched. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_describe_kernel(DvtNpu* npu, const DvtKernelTime* kernel);

/* What the cost model says about one launch alone on the device, without running it. */
DVT_API DVT_NODISCARD DvtCode dvt_npu_estimate(const DvtNpu* npu, const DvtTaskCost* cost,
                                               const char* op, DvtNpuTask* out);

#ifdef __cplusplus
} /* extern "C" */
#endif
