/* A host with worker threads: runs the image of argv[1], y = max(x, 0) of four floats, on a pool.
 */
#include <davit/davit.h>
#include <stdio.h>

int main(int argc, char** argv) {
  float x[4] = {-1, 2, -3, 4}, y[4] = {0};
  DvtPool* pool = NULL;
  DvtPoolOptions pool_options;
  DvtImage* image = NULL;
  DvtExecutor* executor = NULL;
  DvtExecutorOptions options;
  DvtError error;
  dvt_pool_options_init(&pool_options);
  pool_options.workers = 2;
  dvt_executor_options_init(&options);
  if (argc != 2) return 2;
  const DvtCode code = dvt_pool_create(&pool_options, &pool, &error);
  if (code == DVT_UNSUPPORTED) { /* A build without oneTBB says so. */
    printf("threads: %s\n", error.message);
    return 0;
  }
  options.pool = pool;
  options.schedule = DVT_SCHEDULE_DYNAMIC;
  if (code != DVT_OK || dvt_image_open_file(argv[1], NULL, &image, &error) != DVT_OK ||
      dvt_executor_create(image, &options, &executor, &error) != DVT_OK ||
      dvt_executor_bind_input(executor, 0, x, sizeof x, &error) != DVT_OK ||
      dvt_executor_bind_output(executor, 0, y, sizeof y, &error) != DVT_OK ||
      dvt_executor_run(executor, &error) != DVT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  printf("threads: %g %g %g %g, %u workers\n", y[0], y[1], y[2], y[3], dvt_pool_workers(pool));
  dvt_executor_destroy(executor);
  dvt_image_close(image);
  dvt_pool_destroy(pool);
  return y[0] == 0 && y[1] == 2 && y[3] == 4 ? 0 : 1;
}
