/* device.h: what the executor asks of a device. The cpu device (exec/cpu_device.c) and the Ascend
 * model (davit/npu.h) implement it; host nodes of device graphs (exec/device_kernels.c) call it.
 *
 * Threads  submit-side calls on one stream come from one thread at a time, in submission order.
 *          malloc/free come from the memory lane only. synchronize may be called by any thread.
 * Trust    Arguments come from verified graphs; a device still checks addresses and handles, and
 *          returns DVT_INVALID_ARGUMENT with a reason for a misuse.
 * Memory   A device owns what malloc returns until free. launch() copies its argument record.
 * Errors   A failed call describes itself in device->error (owned by the device, valid until the
 *          next call from the same thread).
 */
#pragma once

#include "davit/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DvtDevice DvtDevice;
typedef struct DvtStream DvtStream; /* Defined by each device. */
typedef struct DvtEvent DvtEvent;

typedef enum DvtCopyKind {
  DVT_COPY_HOST_TO_DEVICE = 1,
  DVT_COPY_DEVICE_TO_HOST = 2,
  DVT_COPY_DEVICE_TO_DEVICE = 3,
} DvtCopyKind;

/* One task. `arguments` is an argument record: a DvtContext whose cells[] hold byte offsets from
 * the record's start (0 = absent operand) to DvtCell copies stored behind it. So the address of
 * each operand is fixed at submission, as on hardware, and a device may copy the record as plain
 * bytes into memory aligned to 16; dvt_launch_bind() on the copy makes it callable. */
typedef struct DvtLaunch {
  DvtKernelFn run;
  const void* arguments;
  size_t argument_bytes;
  const DvtTaskCost* cost; /* Copied; may be NULL. */
  const char* name;        /* Original node path; lives as long as the image. */
  const char* op;
} DvtLaunch;

/* Turns the offsets of a copied argument record into pointers. Call once per copy, then
 * run(record). */
static inline void dvt_launch_bind(void* record) {
  DvtContext* context = (DvtContext*)record;
  const uint32_t count = (uint32_t)context->input_count + context->output_count;
  for (uint32_t i = 0; i < count; ++i) {
    const uintptr_t offset = (uintptr_t)context->cells[i];
    if (offset != 0) context->cells[i] = (DvtCell*)((char*)record + offset);
  }
}

typedef struct DvtDeviceVtable {
  const char* name; /* "cpu", "ascend:910B2" */
  DvtCode (*malloc)(DvtDevice* device, uint64_t bytes, const char* owner, void** out);
  DvtCode (*free)(DvtDevice* device, void* address);
  DvtCode (*stream_create)(DvtDevice* device, uint32_t priority, DvtStream** out);
  DvtCode (*stream_destroy)(DvtDevice* device, DvtStream* stream);
  DvtCode (*launch)(DvtDevice* device, DvtStream* stream, const DvtLaunch* launch);
  DvtCode (*copy_async)(DvtDevice* device, DvtStream* stream, DvtCopyKind kind, void* to,
                        const void* from, uint64_t bytes, const char* name);
  DvtCode (*memset_async)(DvtDevice* device, DvtStream* stream, void* to, int value,
                          uint64_t bytes);
  DvtCode (*event_create)(DvtDevice* device, DvtEvent** out);
  DvtCode (*event_destroy)(DvtDevice* device, DvtEvent* event);
  DvtCode (*event_record)(DvtDevice* device, DvtStream* stream, DvtEvent* event);
  DvtCode (*event_wait)(DvtDevice* device, DvtStream* stream, DvtEvent* event);
  /* Blocks until all submitted work of the stream is done and returns the first error of any of its
   * tasks. timeout_us < 0 waits without limit. */
  DvtCode (*stream_synchronize)(DvtDevice* device, DvtStream* stream, int64_t timeout_us);
  /* Brackets of one executor run, for reports. May be NULL. */
  void (*run_begin)(DvtDevice* device);
  void (*run_end)(DvtDevice* device);
  const char* (*last_error)(DvtDevice* device);
  /* DVT_OK when [address, address + bytes) lies in what one malloc() has returned and no free() has
   * taken back. May be NULL: nobody asks then. */
  DvtCode (*check_range)(DvtDevice* device, const void* address, uint64_t bytes);
} DvtDeviceVtable;

/* A device begins with this. */
struct DvtDevice {
  const DvtDeviceVtable* vtable;
};

/* The cpu device: launches run at once on the calling thread, copies are memcpy, memory is the
 * host's. Never NULL except when out of memory. */
DvtDevice* dvt_cpu_device_create(void);
void dvt_cpu_device_destroy(DvtDevice* device);

#ifdef __cplusplus
}
#endif
