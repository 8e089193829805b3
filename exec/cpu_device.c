/* The cpu device: every call does its work before it returns, so streams are always idle and an
 * event is either recorded or not. It checks the addresses and handles it is given, like hardware.
 */
#define _XOPEN_SOURCE 700 /* posix_memalign, tsearch */
#include <pthread.h>
#include <search.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "davit/device.h"

typedef struct CpuBlock {
  void* address;
  uint64_t bytes;
} CpuBlock;

typedef struct CpuDevice {
  DvtDevice base;
  pthread_mutex_t mutex; /* Guards blocks. */
  void* blocks;          /* tsearch() tree of CpuBlock by address: what is allocated. */
} CpuDevice;

struct DvtStream {
  CpuDevice* device;
  void* record; /* The running task's copy of its arguments; record_bytes long. */
  size_t record_bytes;
};

struct DvtEvent {
  CpuDevice* device;
  bool recorded;
};

static _Thread_local char last_error_text[256];

__attribute__((format(printf, 2, 3))) static DvtCode fail(DvtCode code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error_text, sizeof last_error_text, format, arguments);
  va_end(arguments);
  return code;
}

static int compare_blocks(const void* left, const void* right) {
  const uintptr_t a = (uintptr_t)((const CpuBlock*)left)->address;
  const uintptr_t b = (uintptr_t)((const CpuBlock*)right)->address;
  return a < b ? -1 : a > b;
}

static DvtCode cpu_malloc(DvtDevice* base, uint64_t bytes, const char* owner, void** out) {
  CpuDevice* device = (CpuDevice*)base;
  if (bytes > PTRDIFF_MAX) {
    return fail(DVT_OUT_OF_MEMORY, "%llu bytes for %s exceed the address space",
                (unsigned long long)bytes, owner);
  }
  CpuBlock* block = malloc(sizeof *block);
  void* address = NULL;
  const size_t size = bytes > 0 ? (size_t)bytes : 1;
  if (block == NULL || posix_memalign(&address, 64, size) != 0) {
    free(block);
    return fail(DVT_OUT_OF_MEMORY, "no memory for %llu bytes of %s", (unsigned long long)bytes,
                owner);
  }
  *block = (CpuBlock){address, bytes};
  pthread_mutex_lock(&device->mutex);
  const bool kept = tsearch(block, &device->blocks, compare_blocks) != NULL;
  pthread_mutex_unlock(&device->mutex);
  if (!kept) {
    free(address);
    free(block);
    return fail(DVT_OUT_OF_MEMORY, "no memory to note %llu bytes of %s", (unsigned long long)bytes,
                owner);
  }
  *out = address;
  return DVT_OK;
}

static DvtCode cpu_free(DvtDevice* base, void* address) {
  CpuDevice* device = (CpuDevice*)base;
  const CpuBlock key = {address, 0};
  pthread_mutex_lock(&device->mutex);
  CpuBlock** found = tfind(&key, &device->blocks, compare_blocks);
  CpuBlock* block = found != NULL ? *found : NULL;
  if (block != NULL) tdelete(&key, &device->blocks, compare_blocks);
  pthread_mutex_unlock(&device->mutex);
  if (block == NULL) {
    return fail(DVT_INVALID_ARGUMENT, "address %p is not allocated on this device", address);
  }
  free(block->address);
  free(block);
  return DVT_OK;
}

static DvtCode cpu_stream_create(DvtDevice* base, uint32_t priority, DvtStream** out) {
  (void)priority; /* Work is done at once, so none waits for other work. */
  DvtStream* stream = calloc(1, sizeof *stream);
  if (stream == NULL) return fail(DVT_OUT_OF_MEMORY, "no memory for a stream");
  stream->device = (CpuDevice*)base;
  *out = stream;
  return DVT_OK;
}

static DvtCode check_stream(const DvtDevice* base, const DvtStream* stream) {
  if (stream != NULL && &stream->device->base == base) return DVT_OK;
  return fail(DVT_INVALID_ARGUMENT, "the stream is not one of this device");
}

static DvtCode check_event(const DvtDevice* base, const DvtEvent* event) {
  if (event != NULL && &event->device->base == base) return DVT_OK;
  return fail(DVT_INVALID_ARGUMENT, "the event is not one of this device");
}

static DvtCode cpu_stream_destroy(DvtDevice* base, DvtStream* stream) {
  const DvtCode code = check_stream(base, stream);
  if (code != DVT_OK) return code;
  free(stream->record);
  free(stream);
  return DVT_OK;
}

static DvtCode cpu_launch(DvtDevice* base, DvtStream* stream, const DvtLaunch* launch) {
  const DvtCode code = check_stream(base, stream);
  if (code != DVT_OK) return code;
  if (stream->record_bytes < launch->argument_bytes) {
    void* record = realloc(stream->record, launch->argument_bytes);
    if (record == NULL) return fail(DVT_OUT_OF_MEMORY, "no memory for the arguments of a task");
    stream->record = record;
    stream->record_bytes = launch->argument_bytes;
  }
  memcpy(stream->record, launch->arguments, launch->argument_bytes);
  dvt_launch_bind(stream->record);
  const DvtCode result = launch->run(stream->record);
  if (result != DVT_OK) return fail(result, "the task failed with code %d", result);
  return DVT_OK;
}

static DvtCode cpu_copy_async(DvtDevice* base, DvtStream* stream, DvtCopyKind kind, void* to,
                              const void* from, uint64_t bytes, const char* name) {
  (void)kind;
  const DvtCode code = check_stream(base, stream);
  if (code != DVT_OK) return code;
  if (bytes == 0) return DVT_OK;
  if (to == NULL || from == NULL) {
    return fail(DVT_INVALID_ARGUMENT, "%s copies from or to a null address", name);
  }
  memmove(to, from, (size_t)bytes);
  return DVT_OK;
}

static DvtCode cpu_memset_async(DvtDevice* base, DvtStream* stream, void* to, int value,
                                uint64_t bytes) {
  const DvtCode code = check_stream(base, stream);
  if (code != DVT_OK) return code;
  if (bytes == 0) return DVT_OK;
  if (to == NULL) return fail(DVT_INVALID_ARGUMENT, "memset of a null address");
  memset(to, value, (size_t)bytes);
  return DVT_OK;
}

static DvtCode cpu_event_create(DvtDevice* base, DvtEvent** out) {
  DvtEvent* event = calloc(1, sizeof *event);
  if (event == NULL) return fail(DVT_OUT_OF_MEMORY, "no memory for an event");
  event->device = (CpuDevice*)base;
  *out = event;
  return DVT_OK;
}

static DvtCode cpu_event_destroy(DvtDevice* base, DvtEvent* event) {
  const DvtCode code = check_event(base, event);
  if (code == DVT_OK) free(event);
  return code;
}

static DvtCode cpu_event_record(DvtDevice* base, DvtStream* stream, DvtEvent* event) {
  DvtCode code = check_stream(base, stream);
  if (code == DVT_OK) code = check_event(base, event);
  if (code == DVT_OK) event->recorded = true;
  return code;
}

static DvtCode cpu_event_wait(DvtDevice* base, DvtStream* stream, DvtEvent* event) {
  DvtCode code = check_stream(base, stream);
  if (code == DVT_OK) code = check_event(base, event);
  if (code == DVT_OK && !event->recorded) {
    return fail(DVT_FAILED_STATE, "waits for an event that nothing has recorded: it would not end");
  }
  return code;
}

static DvtCode cpu_stream_synchronize(DvtDevice* base, DvtStream* stream, int64_t timeout_us) {
  (void)timeout_us;
  return check_stream(base, stream);
}

/* Blocks do not overlap, so that the order of the tree finds the one that has an address, too. */
static int compare_inside(const void* key, const void* block) {
  const uintptr_t address = (uintptr_t)((const CpuBlock*)key)->address;
  const CpuBlock* other = block;
  const uintptr_t begin = (uintptr_t)other->address;
  if (address < begin) return -1;
  return address - begin >= (other->bytes > 0 ? other->bytes : 1);
}

static DvtCode cpu_check_range(DvtDevice* base, const void* address, uint64_t bytes) {
  CpuDevice* device = (CpuDevice*)base;
  const CpuBlock key = {(void*)(uintptr_t)address, 0};
  pthread_mutex_lock(&device->mutex);
  CpuBlock** found = tfind(&key, &device->blocks, compare_inside);
  const CpuBlock block = found != NULL ? **found : (CpuBlock){NULL, 0};
  pthread_mutex_unlock(&device->mutex);
  if (block.address == NULL) {
    return fail(DVT_INVALID_ARGUMENT, "address %p is not allocated on this device", address);
  }
  const uint64_t left = block.bytes - ((uintptr_t)address - (uintptr_t)block.address);
  if (bytes <= left) return DVT_OK;
  return fail(DVT_INVALID_ARGUMENT, "%llu bytes at %p reach beyond their block: it has %llu there",
              (unsigned long long)bytes, address, (unsigned long long)left);
}

static const char* cpu_last_error(DvtDevice* base) {
  (void)base;
  return last_error_text;
}

static const DvtDeviceVtable cpu_vtable = {
    .name = "cpu",
    .malloc = cpu_malloc,
    .free = cpu_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .launch = cpu_launch,
    .copy_async = cpu_copy_async,
    .memset_async = cpu_memset_async,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .stream_synchronize = cpu_stream_synchronize,
    .last_error = cpu_last_error,
    .check_range = cpu_check_range,
};

DvtDevice* dvt_cpu_device_create(void) {
  CpuDevice* device = calloc(1, sizeof *device);
  if (device == NULL) return NULL;
  device->base.vtable = &cpu_vtable;
  if (pthread_mutex_init(&device->mutex, NULL) != 0) {
    free(device);
    return NULL;
  }
  return &device->base;
}

void dvt_cpu_device_destroy(DvtDevice* base) {
  if (base == NULL) return;
  CpuDevice* device = (CpuDevice*)base;
  /* Whatever is left belongs to executors that broke the rule that a device outlives them. */
  while (device->blocks != NULL) {
    CpuBlock* block = *(CpuBlock**)device->blocks;
    tdelete(block, &device->blocks, compare_blocks);
    free(block->address);
    free(block);
  }
  pthread_mutex_destroy(&device->mutex);
  free(device);
}
