"""emit-c: what it writes, builds with Meson and with the compiler, and what it refuses."""

import os
import shutil
import subprocess
import unittest

import tool
from tool import davit

SMALL = """davit 1.1 target cpu
arena 64 align 64
input x: f32[4]
output y: f32[4]
planned a: f32[4] @ 0
graph main {
  a = Neg.f32(x)
  y = Relu.f32(a)
}
"""

PROGRAM = """#include <stdio.h>
#include "small.h"
int main(void) {
  const float x[4] = {1, -2, 3, -4};
  float y[4];
  if (small_run(x, y) != 0) return 1;
  printf("%g %g %g %g\\n", y[0], y[1], y[2], y[3]);
  return 0;
}
"""


class EmitCTest(tool.ToolTest):

    def test_the_files_build_without_davit(self):
        folder = self.path("out/deep")
        result, document = self.davit_json("emit-c", self.image(SMALL), "-o", folder, "--name", "small")
        self.check_passed(result)
        self.assertEqual(document["result"]["nodes"], 2)
        self.assertEqual(sorted(os.listdir(folder)), ["meson.build", "small.c", "small.h"])
        with open(os.path.join(folder, "main.c"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        flags = ["-std=gnu11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["cc", *flags, "main.c", "small.c", "-o", "main", "-lm"], cwd=folder, check=True)
        out = subprocess.run([os.path.join(folder, "main")], check=True, capture_output=True, text=True).stdout
        self.assertEqual(out, "0 2 0 4\n")
        symbols = subprocess.run(["nm", "-u", "main"], cwd=folder, capture_output=True, text=True).stdout
        self.assertNotIn("malloc", symbols)

    @unittest.skipUnless(shutil.which("meson"), "needs meson")
    def test_the_meson_snippet_builds(self):
        image = self.image()
        os.mkdir(self.path("project"))
        self.check_passed(davit("emit-c", image, "-o", self.path("project/net"), "--name", "net"))
        with open(self.path("project/meson.build"), "w", encoding="utf-8") as file:
            file.write("project('user', 'c')\nsubdir('net')\n"
                       "executable('user', 'main.c', dependencies: net_dep)\n")
        with open(self.path("project/main.c"), "w", encoding="utf-8") as file:
            file.write('#include "net.h"\nint main(void) { return net_failed_node() != 0; }\n')
        build = self.path("project/build")
        subprocess.run(["meson", "setup", build, self.path("project")], check=True, capture_output=True)
        subprocess.run(["ninja", "-C", build], check=True, capture_output=True)
        subprocess.run([os.path.join(build, "user")], check=True)

    def test_what_is_refused(self):
        image = self.image()
        for arguments, words in ([], "an image is needed"), ([image], "--output is needed"), (
            [image, "-o", self.path("a"), "--name", "a-b"], "'a-b' is no identifier"), (
            [image, "-o", self.path("a"), "--function", "Relu.f32"], "not KERNEL=FUNCTION"):
            with self.subTest(arguments=arguments):
                self.check_failed(davit("emit-c", *arguments), 2, "usage", words)
        result = davit("emit-c", image, "-o", self.path("a"), "--function", "acme.Scale=f")
        self.check_failed(result, 2, "check", "acme.Scale")
        self.assertFalse(os.path.exists(self.path("a")))
        result = davit("emit-c", image, "-o", image)
        self.assertNotEqual(result.code, 0)
        self.assertIn("model.davit", result.last)


if __name__ == "__main__":
    unittest.main()
