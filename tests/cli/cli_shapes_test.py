"""Gears, shapes of outputs that the caller gives, streams; ONNX Runtime beside compare."""

import os
import unittest

import tool
from tool import davit


class ShapesTest(tool.ToolTest):

    def model(self, dims=("N", 3)):
        """y = sigmoid(relu(x))."""
        nodes = [("Relu", "", "relu", ["x"], ["r"]), ("Sigmoid", "", "sigmoid", ["r"], ["y"])]
        return self.path("m.onnx",
                         tool.onnx_model(nodes, [("x", 1, list(dims))], [("y", 1, list(dims))]))

    def test_a_window_over_too_large_a_dim_is_said_to_be_that(self):
        for extent, words in ((5_000_000_000, "spatial dim 0 is too large"),
                              (1, "the window does not fit into spatial dim 0")):
            model = self.path("pool.onnx", tool.onnx_model(
                [("MaxPool", "", "p", ["x"], ["y"])], [("x", 1, [1, 1, extent])],
                [("y", 1, [1, 1, "n"])],
                extra={"p": tool.field(5, 2, tool.field(1, 2, b"kernel_shape") +
                                       tool.field(8, 0, 2) + tool.field(20, 0, 7))}))
            result = davit("compile", model, "-o", self.path("pool.davit"))
            self.check_failed(result, 3, "infer", words)

    def test_gears(self):
        image, out = self.path("m.davit"), self.path("y.npy")
        result = davit("compile", self.model(), "-o", image, "--dynamic-batch", "1,2,4")
        self.check_passed(result)
        self.assertIn("gear x:2x3", result.out)
        for gear, batch in enumerate((1, 2, 4)):
            result, document = self.davit_json("run", image, "--input", f"x={batch}x3xf32=0",
                                               "--output-data", "@" + out)
            self.check_passed(result)
            self.assertEqual(document["result"]["gear"], gear)
            self.assertEqual(tool.read_npy(out, "f"), [0.5] * 3 * batch)
        # The first gear is what random inputs have.
        self.check_passed(davit("run", image, "--iterations", "3"))
        result = davit("run", image, "--input", "x=3x3xf32=0")
        self.assertEqual(result.code, 2, result.out)
        for words in ("the shape is that of no gear", "x", "f32[1,3] or f32[2,3] or f32[4,3]",
                      "f32[3,3]"):
            self.assertIn(words, result.out + result.err)
        result, document = self.davit_json("dump", image, "--io")
        self.assertEqual(document["result"]["gears"], ["x:1x3", "x:2x3", "x:4x3"])
        self.check_passed(davit("verify", image))
        text = self.path("m.txt", davit("dump", image, "--format", "text").out)
        self.check_passed(davit("compile", text, "-o", self.path("again.davit")))
        with open(image, "rb") as one, open(self.path("again.davit"), "rb") as two:
            self.assertEqual(one.read(), two.read())
        self.assertEqual(davit("dump", image, "--memory-plan").code, 0)

    def test_gears_on_a_device(self):
        image, out = self.path("m.davit"), self.path("y.npy")
        result = davit("compile", self.model(), "-o", image, "--dynamic-batch", "1,4",
                       "--target", "ascend")
        self.check_passed(result)
        for gear, batch in enumerate((1, 4)):
            inputs = ("--input", f"x={batch}x3xf32=0")
            for workers in ((), ("--workers", "2", "--schedule", "dynamic")):
                result, document = self.davit_json("run", image, *inputs, *workers, "--memory",
                                                   "--output-data", "@" + out)
                self.check_passed(result)
                self.assertEqual(document["result"]["gear"], gear)
                self.assertEqual(tool.read_npy(out, "f"), [0.5] * 3 * batch)
            trace = self.path("trace.json")
            result, document = self.davit_json("simulate", image, *inputs, "--host-workers", "1,4",
                                               "--trace", trace)
            self.check_passed(result)
            self.assertEqual([run["workers"] for run in document["result"]["runs"]], [1, 4])
            with open(trace, encoding="utf-8") as file:
                self.assertIn("relu", file.read())
            self.check_passed(davit("run", image, *inputs, "--report", self.path("report.html")))
        self.check_passed(davit("verify", image, "--liveness"))
        self.check_passed(davit("dump", image, "--format", "onnx", "-o", self.path("m.onnx")))
        text = self.path("m.txt", davit("dump", image, "--format", "text").out)
        self.check_passed(davit("compile", text, "-o", self.path("again.davit")))
        with open(image, "rb") as one, open(self.path("again.davit"), "rb") as two:
            self.assertEqual(one.read(), two.read())

    def test_gears_of_sizes_and_dims(self):
        model = self.model((1, 3, "H", "W"))
        result = davit("run", model, "--dynamic-image-size", "4,5;6,7", "--input",
                       "x=1x3x6x7xf32=0")
        self.check_passed(result)
        result = davit("run", model, "--dynamic-dims", "4,5;6,7", "--input", "x=1x3x4x5xf32=0")
        self.check_passed(result)

    def test_bad_gears(self):
        model = self.model()
        for arguments, words in ((("--dynamic-batch", "1,x"), "is not N,N"),
                                 (("--dynamic-batch", "0"), "is not N,N"),
                                 (("--dynamic-batch", "1", "--dynamic-dims", "1"), "exclude"),
                                 (("--dynamic-image-size", "4"), "is not HEIGHT,WIDTH"),
                                 (("--input-format", "NHWC"), "do nothing"),
                                 (("--streams", "2"), "without --target ascend")):
            result = davit("compile", model, "-o", self.path("no.davit"), *arguments)
            self.assertEqual(result.code, 2, result.out)
            self.assertIn(words, result.out + result.err)
        result = davit("compile", model, "-o", self.path("no.davit"), "--shapes", "x:2x3",
                       "--dynamic-batch", "2")
        self.assertNotEqual(result.code, 0)
        self.assertIn("no input has one", result.out + result.err)
        self.assertFalse(os.path.exists(self.path("no.davit")))

    def test_shapes_of_outputs(self):
        for trust in ((), ("--trust-output-shapes",)):
            self.check_passed(davit("run", self.model(), "--input", "x=2x3xf32=0", "--output-shape",
                                    "y:2x3", *trust))
            result = davit("run", self.model(), "--input", "x=2x3xf32=0", "--output-shape", "y:4x3",
                           *trust)
            self.assertNotEqual(result.code, 0)
            self.assertIn("[4,3]", result.out + result.err)
        for form, words in (("y", "NAME:DIMS"), ("z:2x3", "no output"), ("y:2x4", "fit")):
            result = davit("run", self.model(), "--output-shape", form)
            self.assertNotEqual(result.code, 0)
            self.assertIn(words, result.out + result.err)
        result = davit("run", self.model(), "--trust-output-shapes")
        self.assertEqual(result.code, 2)

    def test_streams(self):
        nodes = [("MatMul", "", "a", ["x", "w"], ["a"]), ("Exp", "", "b", ["x"], ["b"]),
                 ("Add", "", "c", ["a", "b"], ["y"])]
        model = self.path("s.onnx", tool.onnx_model(
            nodes, [("x", 1, [64, 64]), ("w", 1, [64, 64])], [("y", 1, [64, 64])]))
        digests = set()
        for streams in ((), ("--streams", "3"), ("--streams", "3", "--stream-gain", "100")):
            result, document = self.davit_json("run", model, "--target", "ascend", *streams,
                                               "--device-mode", "adversarial:3")
            self.check_passed(result)
            digests.add(document["result"]["outputs"][0]["digest"])
            compiled = document["result"]["compile"]
            self.assertEqual(compiled["streams"] > 1, "--stream-gain" in streams)
            if len(streams) == 2:
                self.assertIn("as fast as a host submits them", compiled["why_one_stream"])
                self.assertIn("one stream: no two tasks", result.err + result.out)
        self.assertEqual(len(digests), 1)
        result = davit("run", model, "--target", "ascend", "--stream-gain", "0.5")
        self.check_failed(result, 2, "usage", "--stream-gain would do nothing")

    def test_onnx_runtime(self):
        library = os.environ.get("DAVIT_ONNXRUNTIME")
        result = davit("compare", self.model((2, 3)), "--against", "onnxruntime",
                       *(("--onnxruntime", library) if library else ()))
        if "knows nothing of ONNX Runtime" in result.out + result.err:
            self.assertEqual(result.code, 4)
            self.assertIn("-Donnxruntime", result.out + result.err)
        elif "cannot be loaded" not in result.out + result.err:
            self.check_passed(result)
            self.assertIn("2 values compared, 0 differ", result.out)


if __name__ == "__main__":
    unittest.main()
