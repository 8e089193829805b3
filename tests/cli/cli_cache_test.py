"""cache: what generated kernels leave behind."""

import os
import unittest

import tool
from tool import davit

KEY = "0123456789abcdef" * 2


class CacheTest(tool.ToolTest):

    def cache(self, action, folder):
        result, document = self.davit_json("cache", action, "--folder", folder)
        self.check_passed(result)
        found = document["result"]
        return found["objects"], found["damaged"], found["unfinished"], found["bytes"]

    def test_only_entries_count_and_go(self):
        folder = self.path("cache")
        self.assertEqual(self.cache("stats", folder), (0, 0, 0, 0))
        os.makedirs(os.path.join(folder, KEY[::-1] + ".o"))
        for name, size in ((KEY + ".o", 100), (KEY + ".Ab12cD", 7), ("notes.txt", 5),
                           ("x" + KEY[1:] + ".o", 3), (KEY + ".o.bak", 9)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"z" * size)
        self.assertEqual(self.cache("stats", folder), (0, 1, 1, 107))
        self.assertEqual(self.cache("clear", folder)[3], 107)
        self.assertEqual(self.cache("stats", folder), (0, 0, 0, 0))
        self.assertEqual(sorted(os.listdir(folder)),
                         sorted(["notes.txt", KEY[::-1] + ".o", "x" + KEY[1:] + ".o",
                                 KEY + ".o.bak"]))

    def test_a_compilation_fills_it(self):
        folder = self.path("cache")
        weights = tool.field(1, 0, 64) + tool.field(1, 0, 64) + tool.field(2, 0, 1)
        weights += tool.field(8, 2, b"w") + tool.field(9, 2, b"\0" * 64 * 64 * 4)
        model = self.path("m.onnx", tool.onnx_model(
            [("MatMul", "", "m", ["x", "w"], ["y"])], [("x", 1, [32, 64])], [("y", 1, [32, 64])],
            initializers=[weights]))
        environment = dict(os.environ, DAVIT_CACHE_DIR=folder)
        result = davit("compile", model, "--isa", "baseline", "-o", self.path("m.davit"),
                       env=environment)
        if result.code == 4:
            self.skipTest("no C compiler")
        self.check_passed(result)
        objects, damaged, unfinished, size = self.cache("stats", folder)
        self.assertEqual((damaged, unfinished), (0, 0))
        self.assertGreater(objects, 0)
        self.assertGreater(size, 0)
        self.assertEqual(self.cache("clear", folder)[0], objects)

    def test_bad_uses(self):
        self.check_failed(davit("cache"), 2, "usage", "stats or clear")
        self.check_failed(davit("cache", "wipe"), 2, "usage", "'wipe' is not stats or clear")
        file = self.path("file", "x")
        self.check_failed(davit("cache", "stats", "--folder", file), 1, "cache", "cannot read")


if __name__ == "__main__":
    unittest.main()
