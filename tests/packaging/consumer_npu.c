/* A host of the Ascend model: runs the image of argv[1], which is for ascend:910B2 and computes
 * y = max(x, 0) of four floats, on a device that takes virtual time. */
#include <davit/davit.h>
#include <davit/npu.h>
#include <stdio.h>

int main(int argc, char** argv) {
  float x[4] = {-1, 2, -3, 4}, y[4] = {0};
  DvtNpu* npu = NULL;
  DvtImage* image = NULL;
  DvtExecutor* executor = NULL;
  DvtExecutorOptions options;
  DvtNpuRun run;
  DvtError error;
  dvt_executor_options_init(&options);
  if (argc != 2 || dvt_npu_create(NULL, &npu, &error) != DVT_OK) return 2;
  options.device = dvt_npu_device(npu);
  if (dvt_image_open_file(argv[1], NULL, &image, &error) != DVT_OK ||
      dvt_executor_create(image, &options, &executor, &error) != DVT_OK ||
      dvt_executor_bind_input(executor, 0, x, sizeof x, &error) != DVT_OK ||
      dvt_executor_bind_output(executor, 0, y, sizeof y, &error) != DVT_OK ||
      dvt_executor_run(executor, &error) != DVT_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  if (dvt_npu_run(npu, 0, &run) != DVT_OK) return 1;
  dvt_executor_destroy(executor);
  dvt_image_close(image);
  dvt_npu_destroy(npu);
  printf("npu: %g %g %g %g in %lld ps\n", y[0], y[1], y[2], y[3],
         (long long)(run.end_ps - run.begin_ps));
  return y[0] == 0 && y[1] == 2 && y[3] == 4 && run.end_ps > run.begin_ps ? 0 : 1;
}
