/* monitor.c: a host without files, without machine learning, and without allocation in its loop.
 * The image is part of the program (pipeline_image, made from pipeline.davit.txt by the build). */
#include <davit/davit.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "kernels.h"

extern const unsigned char pipeline_image[];
extern const size_t pipeline_image_size;

enum { SAMPLES = 64, BLOCKS = 4 };

/* A shaft that is quiet at first, and shakes more with every block. */
static void read_sensor(int block, float samples[SAMPLES]) {
  for (int i = 0; i < SAMPLES; ++i) {
    samples[i] = 0.3F * (float)block * sinf((float)(block * SAMPLES + i) * 0.4F);
  }
}

static int fail(const char* what, const DvtError* error) {
  fprintf(stderr, "monitor: %s: %s %s\n", what, error->node, error->message);
  return 1;
}

int main(void) {
  DvtImage* image = NULL;
  DvtExecutor* executor = NULL;
  DvtError error;
  const DvtKernelTable tables[] = {acme_kernels()};
  DvtImageOptions options;
  dvt_image_options_init(&options);
  options.kernel_tables = tables;
  options.kernel_table_count = 1;

  if (dvt_image_open_memory(pipeline_image, pipeline_image_size, &options, &image, &error)) {
    return fail("open", &error);
  }
  if (dvt_executor_create(image, NULL, &executor, &error)) return fail("load", &error);
  dvt_image_close(image); /* The executor keeps it. */

  static float samples[SAMPLES];
  static float smooth[SAMPLES];
  static int64_t alarms;
  if (dvt_executor_bind_input(executor, 0, samples, sizeof samples, &error) ||
      dvt_executor_bind_output(executor, 0, smooth, sizeof smooth, &error) ||
      dvt_executor_bind_output(executor, 1, &alarms, sizeof alarms, &error)) {
    return fail("bind", &error);
  }
  for (int block = 0; block < BLOCKS; ++block) {
    read_sensor(block, samples); /* Bound, so the next run sees it. */
    if (dvt_executor_run(executor, &error)) return fail("run", &error);
    printf("block %d: last sample %+.3f, smoothed %+.3f, alarms %" PRId64 "\n", block,
           (double)samples[SAMPLES - 1], (double)smooth[SAMPLES - 1], alarms);
  }
  dvt_executor_destroy(executor);
  return 0;
}
