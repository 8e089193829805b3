/* What a user writes first: runs the image of argv[1], which computes y = max(x, 0) of four floats.
 * Loads the plug-in of argv[2], if there is one. */
#include <davit/davit.h>
#include <davit/plugin.h>
#include <stdio.h>

int main(int argc, char** argv) {
  float x[4] = {-1, 2, -3, 4}, y[4] = {0};
  DvtImage* image = NULL;
  DvtExecutor* executor = NULL;
  const DvtPlugin* plugin = NULL;
  DvtError error;
  if (argc < 2 || (argc > 2 && dvt_plugin_load(argv[2], &plugin, &error) != DVT_OK) ||
      dvt_image_open_file(argv[1], NULL, &image, &error) != DVT_OK ||
      dvt_executor_create(image, NULL, &executor, &error) != DVT_OK ||
      dvt_executor_bind_input(executor, 0, x, sizeof x, &error) != DVT_OK ||
      dvt_executor_bind_output(executor, 0, y, sizeof y, &error) != DVT_OK ||
      dvt_executor_run(executor, &error) != DVT_OK) {
    fprintf(stderr, "%s\n", argc > 1 ? error.message : "usage: consumer IMAGE [PLUGIN]");
    return 1;
  }
  dvt_executor_destroy(executor);
  dvt_image_close(image);
  printf("%s: %g %g %g %g\n", dvt_version(), y[0], y[1], y[2], y[3]);
  return y[0] == 0 && y[1] == 2 && y[2] == 0 && y[3] == 4 ? 0 : 1;
}
