"""compare and --dump-nodes: values of nodes beside those of a reference."""

import json
import os
import struct
import unittest

import tool
from tool import davit


class CompareTest(tool.ToolTest):

    def model(self):
        """y = sqrt(x + x), s = -y; four floats."""
        return self.path("m.onnx", tool.onnx_model(
            [("Add", "", "double", ["x", "x"], ["a"]), ("Sqrt", "", "root", ["a"], ["y"]),
             ("Neg", "", "minus", ["y"], ["s"])],
            [("x", 1, [4])], [("y", 1, [4]), ("s", 1, [4])]))

    def dump(self, model, *arguments):
        folder = self.path("values")
        result = davit("run", model, "--dump-nodes", ".", "--dump-dir", folder, *arguments)
        self.check_passed(result)
        return folder

    def test_a_model_agrees_with_its_reference(self):
        for level in ("-O0", "-O3"):
            result, document = self.davit_json("compare", self.model(), level,
                                               "--input", "x=4xf32=1,2,3,4")
            self.check_passed(result)
            self.assertEqual([row["value"] for row in document["result"]["values"]],
                             ["a", "y", "s"])
            self.assertNotIn("first_difference", document["result"])
            self.assertNotIn("first_nan", document["result"])

    def test_first_difference_is_named(self):
        model = self.model()
        folder = self.dump(model, "--input", "x=4xf32=1,2,3,4")
        self.check_passed(davit("compare", model, "--against", folder))
        with open(os.path.join(folder, "values.json"), encoding="utf-8") as file:
            index = json.load(file)
        entry = next(e for e in index["values"] if e["name"] == "y")
        with open(os.path.join(folder, entry["file"]), "r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(struct.pack("<f", 7))
        result, document = self.davit_json("compare", model, "--against", folder)
        self.check_failed(result, 1, "compare", "value y of node root (ai.onnx::Sqrt(13)): 1 of 4 "
                          "elements differ; element 2: got 2.4494")
        self.assertEqual(document["result"]["first_difference"]["node"], "root")

    def test_first_nan_is_named(self):
        result, document = self.davit_json("compare", self.model(), "--input", "x=4xf32=1,-2,3,4")
        self.check_passed(result)
        self.assertEqual(document["result"]["first_nan"],
                         {"value": "y", "node": "root", "op": "ai.onnx::Sqrt(13)",
                          "detail": "on both sides"})

    def test_memory_bounds_change_nothing(self):
        _, whole = self.davit_json("compare", self.model())
        result, windows = self.davit_json("compare", self.model(), "--memory", "0", "--verbose")
        self.check_passed(result)
        self.assertIn("3 windows of reference values", result.err)
        self.assertEqual(whole["result"]["values"], windows["result"]["values"])

    def test_dump_nodes(self):
        model, folder = self.model(), self.path("some")
        result = davit("run", model, "--dump-nodes", "^ro+t$", "--dump-dir", folder,
                       "--input", "x=4xf32=2,8,18,32")
        self.check_passed(result)
        self.assertIn("wrote 1 value to ", result.out)
        with open(os.path.join(folder, "values.json"), encoding="utf-8") as file:
            index = json.load(file)
        self.assertEqual(index["values"], [{"name": "y", "file": "00001.npy", "dtype": "f32",
                                            "node": "root", "op": "ai.onnx::Sqrt(13)"}])
        self.assertEqual(tool.read_npy(os.path.join(folder, "00001.npy"), "f"), [2, 4, 6, 8])
        self.assertEqual(tool.read_npy(os.path.join(folder, "00000.npy"), "f"), [2, 8, 18, 32])

    def test_shapes_that_are_set_at_run_time(self):
        """Values are compared where they are computed, not where they get shape and room."""
        path = os.path.join(tool.ONNX_TESTS, "node", "test_nonzero_example", "model.onnx")
        if not os.path.exists(path):
            self.skipTest("no conformance data")
        result, document = self.davit_json("compare", path)
        self.check_passed(result)
        self.assertEqual([row["op"] for row in document["result"]["values"]],
                         ["ai.onnx::NonZero(13)", "davit::Copy"])
        folder = self.path("nonzero")
        self.check_passed(davit("run", path, "--dump-nodes", ".", "--dump-dir", folder))
        self.check_passed(davit("compare", path, "--against", folder))

    def test_an_image_needs_a_folder(self):
        image = self.path("m.davit")
        self.check_passed(davit("compile", self.model(), "-o", image))
        self.check_failed(davit("compare", image), 2, "usage", "an image has none")
        self.check_passed(davit("compare", image, "--against", self.dump(image)))

    def test_bad_usage(self):
        model, folder = self.model(), self.path("f")
        self.check_failed(davit("run", model, "--dump-nodes", "a"), 2, "usage", "need each other")
        self.check_failed(davit("run", model, "--dump-nodes", "(", "--dump-dir", folder), 2,
                          "usage", "'(' is no regular expression")
        self.check_failed(davit("run", model, "--dump-nodes", "a" * 300, "--dump-dir", folder), 2,
                          "usage", "more than 256 characters")
        self.check_failed(davit("run", model, "--dump-nodes", "a", "--dump-dir", self.folder), 2,
                          "usage", "not an empty folder")
        self.check_failed(davit("run", model, "--target", "ascend", "--dump-nodes", ".",
                                "--dump-dir", folder), 2, "usage", "memory of a device")
        self.check_failed(davit("compare", model, "--target", "ascend"), 2, "usage", "on the cpu")
        self.check_failed(davit("compare", model, "--against", folder), 1, "load", "values.json")
        self.assertFalse(os.path.exists(folder))

    def test_bad_folders(self):
        model, folder = self.model(), self.dump(self.model())
        index_path = os.path.join(folder, "values.json")
        with open(index_path, encoding="utf-8") as file:
            good = file.read()
        escaping = good.replace("00001.npy", "../values/00001.npy")
        for text, words in (("", "no index"), ("{}", "no index"), (good.replace("f32", "f31"), "dtype"),
                            (good.replace('"f32"', '"f64"'), "is of f32, values.json says f64"),
                            (escaping, "a file of the folder"),
                            (good.replace("00002.npy", "00009.npy"), "00009.npy"),
                            (good.replace('"x"', '"q"'), "no input 'x'")):
            with open(index_path, "w", encoding="utf-8") as file:
                file.write(text)
            result = davit("compare", model, "--against", folder)
            self.assertIn(result.code, (1, 3), (text, result.out, result.err))
            self.assertIn(words, result.last)
        entries = json.loads(good)
        entries["values"].append(entries["values"][0])
        with open(index_path, "w", encoding="utf-8") as file:
            json.dump(entries, file)
        self.check_failed(davit("compare", model, "--against", folder), 1, "load", "has two values")
        # Nothing to compare is no success.
        with open(index_path, "w", encoding="utf-8") as file:
            json.dump({**json.loads(good), "values": []}, file)
        result = davit("compare", model, "--against", folder)
        self.check_failed(result, 2, "usage", "no value has a counterpart")


if __name__ == "__main__":
    unittest.main()
