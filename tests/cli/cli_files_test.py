"""compile, dump, verify: what is written, and what is not."""

import os
import resource
import signal
import subprocess
import unittest

import tool
from tool import davit

F32 = 1


class CompileTest(tool.ToolTest):

    def relu(self, dims=(2, 3)):
        return self.path("relu.onnx", tool.onnx_model(
            [("Relu", "", "act_1", ["x"], ["y"])], [("x", F32, dims)], [("y", F32, dims)]))

    def test_a_model_becomes_an_image(self):
        out = self.path("relu.davit")
        result, document = self.davit_json("compile", self.relu(), "-o", out, "--verbose")
        self.check_passed(result)
        report = document["result"]["compile"]
        self.assertEqual(report["source_nodes"], 1)
        self.assertIn(": 1 source node, 0 folded", result.out)
        self.assertEqual(report["file_bytes"], os.path.getsize(out))
        self.assertTrue(report["stages"])
        self.check_passed(davit("verify", out))

    def test_both_targets_agree(self):
        digests = []
        for target in ["cpu", "ascend", "ascend:910B2"]:
            out = self.path("relu.davit")
            # Nothing is planned here: one kernel between input and output.
            compiled = davit("compile", self.relu(), "-o", out, "--target", target)
            self.check_passed(compiled)
            self.assertNotIn("arena", compiled.out)
            result, document = self.davit_json("run", out)
            self.assertNotIn("arena", result.out)
            self.check_passed(result)
            digests.append(document["result"]["outputs"][0]["digest"])
            self.assertEqual("predicted" in document["result"], target != "cpu")
        self.assertEqual(len(set(digests)), 1)

    def test_unsupported_operators_are_all_listed(self):
        model = self.path("odd.onnx", tool.onnx_model(
            [("Frobnicate", "acme", "frob_1", ["x"], ["a"]), ("Relu", "", "act", ["a"], ["b"]),
             ("Twiddle", "acme", "twid_2", ["b"], ["y"])],
            [("x", F32, [2])], [("y", F32, [2])]))
        out = self.path("odd.davit")
        result, document = self.davit_json("compile", model, "-o", out)
        self.assertEqual(result.code, 4, result.out + result.err)
        for word in ["acme", "Frobnicate", "frob_1", "Twiddle", "twid_2", "3"]:
            self.assertIn(word, result.err)
        self.assertEqual(document["failure"]["kind"], "unsupported")
        self.assertFalse(os.path.exists(out))
        self.assertEqual(sorted(os.listdir(self.folder)), ["odd.onnx", "result.json"])

    def test_an_invalid_model_is_not_a_usage_error(self):
        model = self.path("bad.onnx", tool.onnx_model(
            [("MatMul", "", "mm_1", ["x", "w"], ["y"])],
            [("x", F32, [2, 3]), ("w", F32, [4, 5])], [("y", F32, [2, 5])]))
        for arguments in (["compile", model, "-o", self.path("x")], ["run", model]):
            result, document = self.davit_json(*arguments)
            self.assertEqual(result.code, 3, result.out + result.err)
            self.assertIn("mm_1", result.last)
            self.assertEqual(document["failure"]["kind"], "invalid model or image")
        # The user's own mistakes stay usage errors.
        result = davit("compile", self.relu(), "-o", self.path("x"), "--shapes", "x:2x3x4x5x6x7")
        self.assertEqual(result.code, 2, result.out + result.err)

    def test_the_last_line_names_the_tensor_and_stays_short(self):
        result = davit("compile", self.relu(), "-o", self.path("x"), "--shapes", "zebra:1")
        self.assertEqual(result.code, 2)
        self.assertIn("zebra", result.last)
        many = [("Frobnicate", "acme", f"a_node_with_a_long_name_{i}", ["x"], [f"y{i}"])
                for i in range(200)]
        outputs = [(f"y{i}", F32, [2]) for i in range(200)]
        model = self.path("many.onnx", tool.onnx_model(many, [("x", F32, [2])], outputs))
        result = davit("compile", model, "-o", self.path("x"))
        self.assertEqual(result.code, 4)
        self.assertIn("a_node_with_a_long_name_199", result.err)
        self.assertLess(len(result.last), 500)

    def test_a_failure_leaves_an_older_image_alone(self):
        out = self.path("model.davit", b"older")
        bad = self.path("bad.onnx", b"\xff\xff\xff not a protobuf")
        self.assertEqual(davit("compile", bad, "-o", out).code, 3)
        with open(out, "rb") as file:
            self.assertEqual(file.read(), b"older")

    def test_external_weights(self):
        text = ("davit 1.3 target cpu\ninput x: f32[2]\noutput y: f32[2]\n"
                "const w: f32[2] = {1, 2}\nconstants external\ngraph main {\n"
                "  y = Add.f32(x, w) {axis=-1}\n}\n")
        model = self.path("m.txt", text.encode())
        out = self.path("m.davit")
        result, document = self.davit_json("compile", model, "-o", out)
        self.check_passed(result)
        weights = document["result"]["weights"]
        self.assertEqual(os.path.dirname(weights), self.folder)
        self.assertIn(weights, result.out)
        self.assertEqual(os.path.getsize(weights), 8)
        stamp = os.stat(weights).st_mtime_ns
        # A second image shares the file.
        self.check_passed(davit("compile", model, "-o", self.path("n.davit")))
        self.assertEqual(os.stat(weights).st_mtime_ns, stamp)
        result, document = self.davit_json("verify", out)
        self.check_passed(result)
        self.assertIn(os.path.basename(weights), [s["file"] for s in document["result"]["segments"]])
        self.check_passed(davit("run", out))
        self.check_passed(davit("run", model))  # In memory, weights are in the image.
        result = davit("dump", out)
        self.assertIn("constants external", result.out)
        # No output takes their place.
        with open(weights, "rb") as file:
            before = file.read()
        for arguments in (["run", out, "--json", weights], ["run", out, "--output-data", "@" + weights],
                          ["verify", out, "--json", weights], ["dump", out, "-o", weights],
                          ["compile", model, "-o", out, "--json", weights],
                          ["compile", model, "-o", weights]):
            self.check_failed(davit(*arguments), 2, "usage", "are one file")
        with open(weights, "rb") as file:
            self.assertEqual(file.read(), before)
        # A failure leaves no weights behind.
        os.remove(weights)
        os.mkdir(self.path("folder"))
        self.check_failed(davit("compile", model, "-o", self.path("folder")), 1, "write")
        self.assertFalse(os.path.exists(weights))
        self.check_failed(davit("run", out), 1, "load", os.path.basename(weights))
        result = davit("compile", model, "-o", out, "--external-weights")
        self.check_failed(result, 2, "usage", "--external-weights")

    def test_missing_files_and_folders(self):
        self.assertEqual(davit("compile", self.path("none.onnx"), "-o", self.path("x")).code, 1)
        self.assertEqual(davit("compile", self.folder, "-o", self.path("x")).code, 1)
        result = davit("compile", self.relu(), "-o", os.path.join(self.folder, "none", "x.davit"))
        self.check_failed(result, 1, "write")

    def test_bad_values(self):
        model = self.relu()
        out = self.path("x.davit")
        for arguments in (["--target", "gpu"], ["--target", "ascend:"], ["--shapes", "x"],
                          ["--shapes", "x:2x"], ["--shapes", "x:-1x2"], ["--dim", "N"],
                          ["--dim", "N=x"], ["--elements", "x"], ["--elements", "x=-1"],
                          ["--freeze", "x"], ["--freeze", "x=@" + out],
                          ["--freeze", "x=2xf32=1,2,3"], ["--freeze", "x=99999999999x9xf32=1"]):
            result = davit("compile", model, "-o", out, *arguments)
            self.assertIn(result.code, (1, 2), arguments)
            self.assertTrue(result.last.startswith("FAILED: "))
            self.assertFalse(os.path.exists(out))
        self.check_failed(davit("compile", model, "-o", out, "--target", "asend"), 2, "usage",
                          "did you mean ascend?")

    def test_an_unknown_soc_is_refused_before_anything_is_opened(self):
        out = self.path("x.davit")
        missing = self.path("missing.onnx")
        for arguments in (["compile", missing, "-o", out], ["run", missing], ["bench", missing]):
            for soc in ("foo", "910b2", ""):
                result = davit(*arguments, "--target", "ascend:" + soc)
                self.check_failed(result, 2, "usage", f"'{soc}' is not a SoC")
                self.assertIn("910B2", result.last)
        self.assertEqual(os.listdir(self.folder), [])

    def test_shapes_bind_free_dimensions(self):
        tool_model = tool.onnx_model([("Relu", "", "r", ["in:0"], ["y"])],
                                     [("in:0", F32, [2, 3])], [("y", F32, [2, 3])])
        # The extent becomes a symbol: field dim_param (2) in place of dim_value (1).
        free = tool_model.replace(tool.field(1, 2, tool.field(1, 0, 2)),
                                  tool.field(1, 2, tool.field(2, 2, b"")[:0] + b"\x12\x00"))
        model = self.path("free.onnx", free)
        out = self.path("free.davit")
        for spelling in ("in:0:5x3", "in:0=5x3"):
            self.check_passed(davit("compile", model, "-o", out, "--shapes", spelling))
            result, document = self.davit_json("run", out)
            self.check_passed(result)
            self.assertEqual(document["result"]["inputs"][0]["type"], "5x3xf32")

    def test_the_graph_is_saved_after_each_pass(self):
        model = self.relu()
        plain, out = self.path("plain.davit"), self.path("relu.davit")
        folder = os.path.join(self.folder, "new", "passes")
        self.check_passed(davit("compile", model, "-o", plain))
        self.check_passed(davit("compile", model, "-o", out, "--save-passes", folder))
        names = sorted(os.listdir(folder))
        self.assertEqual([int(name.split("_")[0]) for name in names], list(range(len(names))))
        self.assertEqual(names[0], "00_bind_shapes.txt")
        for name in ("infer_shapes", "fold_constants", "remove_dead_nodes"):
            self.assertTrue(any(other.endswith(f"_{name}.txt") for other in names), names)
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            self.assertTrue(text.startswith("davit-ir 1\n"), text)
            self.assertIn("act_1", text)
        # Looking does not change what is made.
        with open(plain, "rb") as one, open(out, "rb") as two:
            self.assertEqual(one.read(), two.read())

    def test_levels_and_passes_are_chosen_by_name(self):
        model, out = self.relu(), self.path("relu.davit")
        for options in (["-O0"], ["-O", "1"], ["--optimize=3"], ["-O3", "--disable-pass", "merge_equal_nodes"],
                        ["-O0", "--enable-pass", "remove_dead_nodes"],
                        ["--only-pass", "remove_identities", "--only-pass", "fold_constants"]):
            result, document = self.davit_json("compile", model, "-o", out, *options)
            self.check_passed(result)
            compiled = document["result"]["compile"]
            self.assertIsInstance(compiled["passes"], dict)
            self.assertEqual(compiled["refusals"], [])
        result = davit("compile", model, "-o", out, "-O4")
        self.check_failed(result, 2, "usage", "--optimize")
        result = davit("compile", model, "-o", out, "--only-pass", "everything")
        self.check_failed(result, 2, "optimise", "'everything' is not a pass that can be run alone")

    def test_passes_are_saved_to_folders_only(self):
        model, out = self.relu(), self.path("relu.davit")
        occupied = self.path("occupied", "kept")
        result = davit("compile", model, "-o", out, "--save-passes", occupied)
        self.check_failed(result, 2, "usage", f"{occupied} is not a folder")
        result = davit("compile", model, "-o", out, "--save-passes", occupied + "/below")
        self.check_failed(result, 1, "write", occupied + "/below")
        self.assertEqual(sorted(os.listdir(self.folder)), ["occupied", "relu.onnx"])
        image = self.image()
        result = davit("run", image, "--save-passes", os.path.join(self.folder, "new"))
        self.check_failed(result, 2, "usage", "--save-passes would do nothing")

    def test_options_that_would_do_nothing(self):
        image = self.image()
        text = self.path("model.txt")
        self.check_failed(davit("run", image, "--shapes", "x:4"), 2, "usage", "--shapes")
        self.check_failed(davit("run", image, "--target", "cpu"), 2, "usage", "--target")
        self.check_failed(davit("compile", text, "-o", image, "--dim", "N=1"), 2, "usage", "--dim")
        self.check_failed(davit("run", image, "--op-summary", "x.csv"), 2, "usage", "--op-summary")
        self.check_failed(davit("run", image, "--atol", "1"), 2, "usage", "--atol")
        self.check_failed(davit("run", image, "--device", "npu-sim"), 2, "usage", "--device")

    def interrupted_compilation(self, number):
        """Compiles an image that takes a while to write (64 MB); sends the signal while it is being
        written, under its temporary name."""
        text = tool.IMAGE_TEXT.replace("const w: f32[4] = {1, 2, 3, 4}",
                                       "const w: f32[4] = {1, 2, 3, 4}\n"
                                       "const big: f32[16000000] = fill 0.5")
        source = self.path("model.txt", text)
        for _ in range(10):  # This process may be too slow to hit the moment.
            process = subprocess.Popen(
                [tool.DAVIT, "compile", source, "-o", self.path("model.davit")],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and len(os.listdir(self.folder)) == 1:
                pass
            process.send_signal(number)
            if process.wait(timeout=60) == -number:
                return
            os.remove(self.path("model.davit"))
        self.fail("the compilation was never interrupted")

    def test_interrupting_a_compilation_leaves_no_partial_file(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.interrupted_compilation(number)
            # The signal waited for the rename: the image is whole, the temporary name is gone.
            self.assertEqual(sorted(os.listdir(self.folder)), ["model.davit", "model.txt"])
            self.check_passed(davit("verify", self.path("model.davit")))
            os.remove(self.path("model.davit"))

    def test_killing_a_compilation_leaves_no_partial_image(self):
        self.interrupted_compilation(signal.SIGKILL)
        # Nobody can clean up, but nothing half-written has the image's name.
        if os.path.exists(self.path("model.davit")):
            self.check_passed(davit("verify", self.path("model.davit")))


class SameFileTest(tool.ToolTest):
    """A file that a command would write although it reads it, or writes it under another name."""

    def refused(self, *arguments, names):
        before = {name: os.stat(self.path(name)) for name in os.listdir(self.folder)}
        result = davit(*arguments, cwd=self.folder)
        self.check_failed(result, 2, "usage", "are one file")
        for name in names:
            self.assertIn(name, result.last)
        after = {name: os.stat(self.path(name)) for name in os.listdir(self.folder)}
        self.assertEqual({n: (s.st_ino, s.st_size, s.st_mtime_ns) for n, s in before.items()},
                         {n: (s.st_ino, s.st_size, s.st_mtime_ns) for n, s in after.items()})

    def test_an_output_is_no_input(self):
        image = os.path.basename(self.image())
        os.symlink(image, self.path("link.davit"))
        os.link(self.path(image), self.path("hard.davit"))
        os.mkdir(self.path("folder"))
        model = ["--model", image]
        self.refused("compile", "model.txt", "-o", "model.txt", names=["--output", "model.txt"])
        self.refused("compile", "model.txt", "-o", self.path("model.txt"), names=["--model"])
        self.refused("compile", "model.txt", "-o", "folder/../model.txt", names=["folder/../"])
        self.refused("dump", image, "-o", "./" + image, names=["--output", "./" + image])
        for output in ("--json", "--trace", "--profile-csv", "--op-summary"):
            for spelling in (image, "link.davit", "hard.davit", "folder/../" + image):
                self.refused("run", image, output, spelling, names=[output, "--model"])
        self.refused("run", image, "--output-data", "y=@" + image, names=["--output-data"])
        self.refused("verify", image, "--json", image, names=["--json", *model[:1]])
        self.refused("bench", image, "--json", image, names=["--json"])

    def test_an_output_is_none_of_the_tensors(self):
        image = os.path.basename(self.image())
        self.path("x.npy", tool.npy("<f4", [4], [1, 2, 3, 4], "f"))
        for option in ("--input", "--expect"):
            for form in ("@x.npy", "x=@x.npy"):
                self.refused("run", image, option, form, "--output-data", "@./x.npy",
                             names=[option, "--output-data"])
        self.refused("compile", "model.txt", "-o", "x.npy", "--freeze", "x=@x.npy",
                     names=["--freeze", "--output"])
        os.makedirs(self.path("sets/test_data_set_0"))
        self.path("sets/test_data_set_0/input_0.pb", b"")
        self.refused("run", image, "--test-data", "sets", "--output-data",
                     "@sets/test_data_set_0/input_0.pb", names=["--test-data", "--output-data"])

    def test_an_output_is_no_external_data(self):
        tensor = (tool.field(1, 0, 2) + tool.field(2, 0, F32) + tool.field(8, 2, b"w") +
                  tool.field(14, 0, 1) + tool.field(13, 2, tool.field(1, 2, b"location") +
                                                    tool.field(2, 2, b"model.bin")))
        model = tool.onnx_model([("Add", "", "add", ["x", "w"], ["y"])], [("x", F32, [2])],
                                [("y", F32, [2])], initializers=[tensor])
        self.path("model.bin", b"12345678")
        self.path("model.onnx", model)
        words = ["--output", "the model's weights", "model.bin"]
        self.refused("compile", "model.onnx", "-o", "./model.bin", names=words)
        self.refused("run", "model.onnx", "--json", "model.bin", names=["--json", *words[1:]])
        self.check_passed(davit("compile", "model.onnx", "-o", "model.davit", cwd=self.folder))

    def test_outputs_are_different_files(self):
        image = os.path.basename(self.image())
        os.mkdir(self.path("folder"))
        options = ("--json", "--trace", "--profile-csv", "--op-summary")
        for i, one in enumerate(options):
            for other in options[i + 1:]:
                self.refused("run", image, one, "new", other, "./new", names=[one, other])
        self.refused("run", image, "--output-data", "y=@new", "--output-data", "m=@./new",
                     names=["--output-data"])
        self.refused("run", image, "--output-data", "new=@new", "--json", self.path("new"),
                     names=["--json"])
        self.refused("compile", "model.onnx", "-o", "new", "--save-passes", "folder/../new/",
                     names=["--save-passes", "--output"])

    def test_folders_have_files_of_their_own(self):
        image = os.path.basename(self.image())
        for arguments in (
                ["run", image, "--dump-nodes", ".", "--dump-dir", "new", "--json", "new/values.json"],
                ["run", image, "--dump-nodes", ".", "--dump-dir", "new/.", "--output-data",
                 "y=@./new/00000.npy"],
                ["compile", "model.onnx", "-o", "new/00_bind_shapes.txt", "--save-passes", "new"],
                ["compile", "new/00_model.txt", "-o", "m.davit", "--save-passes", "new"]):
            result = davit(*arguments, cwd=self.folder)
            self.check_failed(result, 2, "usage", "where files of such names are written")
            self.assertIn("new/", result.last)
            self.assertFalse(os.path.exists(self.path("new")))
        # Others may lie there.
        relu = tool.onnx_model([("Relu", "", "act", ["x"], ["y"])], [("x", F32, [2])],
                               [("y", F32, [2])])
        self.path("model.onnx", relu)
        self.check_passed(davit("compile", "model.onnx", "-o", "model.davit", "--save-passes", ".",
                                "--json", "report.json", cwd=self.folder))

    def test_different_files_are_fine(self):
        image = self.image()
        x = self.path("x.npy", tool.npy("<f4", [4], [1, 2, 3, 4], "f"))
        for _ in range(2):  # The second time all outputs exist.
            self.check_passed(davit(
                "run", image, "--input", "@" + x, "--output-data", "y=@" + self.path("y.npy"),
                "--output-data", "m=@" + self.path("m.npy"), "--json", self.path("a.json"),
                "--trace", self.path("b.json"), "--profile-csv", self.path("c.csv")))


class FileSizeLimitTest(tool.ToolTest):
    """The kernel's limit on the size of files ends no process with SIGXFSZ."""

    def limited(self, *arguments):
        process = subprocess.run(
            [tool.DAVIT, *arguments], capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        result = tool.Result(process)
        self.assertEqual(result.code, 1, result.out + result.err)
        self.assertIn("File too large", result.out + result.err)
        self.assertIn("FAILED: ", (result.out + result.err).splitlines()[-1] + result.last)

    def test_outputs_are_whole_or_not_there(self):
        image = self.image()
        self.path("big.txt", "davit 1.1 target cpu\ninput x: f32[100]\noutput y: f32[100]\n"
                             "graph main {\n  y = Copy(x)\n}\n")
        big = self.path("big.davit")
        self.check_passed(davit("compile", self.path("big.txt"), "-o", big))
        relu = self.path("relu.onnx", tool.onnx_model(
            [("Relu", "", "r", ["x"], ["y"])], [("x", F32, [2])], [("y", F32, [2])]))
        ascend = self.path("ascend.davit")
        self.check_passed(davit("compile", relu, "-o", ascend, "--target", "ascend"))
        before = sorted(os.listdir(self.folder))
        out = self.path("out")
        self.limited("compile", self.path("model.txt"), "-o", out)
        self.limited("compile", relu, "-o", out, "--save-passes", self.folder)
        self.limited("dump", image, "-o", out)
        self.limited("run", big, "--output-data", "@" + out)
        self.limited("run", ascend, "--op-summary", out)
        for command in (["run", image], ["verify", image], ["version"]):
            self.limited(*command, "--json", out)
        self.limited("run", image, "--trace", out)
        self.limited("run", image, "--profile-csv", out)
        self.assertEqual(sorted(os.listdir(self.folder)), before)


class DumpTest(tool.ToolTest):

    def test_text_assembles_to_the_same_bytes(self):
        image = self.image()
        dumped = davit("dump", image)
        self.assertEqual(dumped.code, 0)
        self.assertTrue(dumped.out.startswith("davit 1."), dumped.out)
        self.assertTrue(dumped.err.rstrip().endswith("PASSED"))
        again = self.path("again.davit")
        self.check_passed(davit("compile", self.path("again.txt", dumped.out), "-o", again))
        with open(image, "rb") as one, open(again, "rb") as two:
            self.assertEqual(one.read(), two.read())

    def test_text_of_an_image_with_machine_code(self):
        weights = (tool.field(1, 0, 8) + tool.field(1, 0, 8) + tool.field(2, 0, F32) +
                   tool.field(8, 2, b"w") + tool.field(9, 2, b"\0\0\x80?" * 64))
        model = tool.onnx_model([("MatMul", "", "mm", ["x", "w"], ["y"])], [("x", F32, [8, 8])],
                                [("y", F32, [8, 8])], initializers=[weights])
        image, text = self.path("code.davit"), self.path("code.txt")
        self.check_passed(davit("compile", self.path("code.onnx", model), "-o", image, "--isa",
                                "baseline", "--no-cache"))
        self.check_passed(davit("dump", image, "-o", text))
        result = davit("compile", text, "-o", image)
        self.check_failed(result, 4, "check", "there is no kernel \"generated.MatMul")
        self.assertIn("text forms leave code out", result.err)
        self.assertIn("--isa", result.err)
        self.assertNotIn("kernel_tables", result.err)

    def test_json_and_dot(self):
        image = self.image()
        document = tool.json.loads(davit("dump", image, "--format", "json").out)
        self.assertEqual(document["schema"], "davit.image")
        main = next(g for g in document["graphs"] if g["role"] == "main")
        self.assertEqual(main["nodes"][0]["origin"], "block/add_1")
        dot = davit("dump", image, "--format", "dot").out
        self.assertTrue(dot.startswith("digraph"))
        self.assertIn("block/add_1", dot)

    def test_tables(self):
        image = self.image()
        plan = davit("dump", image, "--memory-plan").out
        self.assertIn("offset", plan)
        schedule = davit("dump", image, "--schedule").out
        self.assertIn("block/add_1", schedule)
        out = self.path("plan.txt")
        result = davit("dump", image, "--memory-plan", "--schedule", "-o", out)
        self.check_passed(result)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), plan + schedule)

    def test_what_a_model_takes_and_gives(self):
        result, document = self.davit_json("dump", self.image(), "--io")
        self.assertEqual(result.code, 0, result.err)
        self.assertRegex(result.out, r"input +k +i64 +\[2\]")
        self.assertRegex(result.out, r"output +y +f32 +\[4\]")
        self.assertEqual(document["result"]["inputs"],
                         [{"name": "x", "type": "f32", "dims": [4]},
                          {"name": "k", "type": "i64", "dims": [2]}])
        # Of a model, as it is: an open dimension by its symbol.
        path = self.path("free.onnx", tool.onnx_model(
            [("Relu", "", "r", ["in:0"], ["y"])], [("in:0", F32, ["Nb", 3, 8])],
            [("y", F32, ["Nb", 3, 8])]))
        result, document = self.davit_json("dump", path, "--io")
        self.assertEqual(result.code, 0, result.err)
        self.assertRegex(result.out, r"input +in:0 +f32 +\[Nb, 3, 8\]")
        self.assertEqual(document["result"]["inputs"][0]["dims"], ["Nb", 3, 8])
        image = self.path("free.davit")
        self.check_passed(davit("compile", path, "-o", image))
        self.assertRegex(davit("dump", image, "--io").out, r"output +y +f32 +\[Nb, 3, 8\]")
        for option, words in (("--schedule", "no schedule"), ("--memory-plan", "no memory plan")):
            result = davit("dump", path, "--io", option)
            self.assertEqual(result.code, 2)
            self.assertIn(words, result.err)
        self.assertIn("--format does not go with --io",
                      davit("dump", image, "--io", "--format", "json").err)
        self.assertIn("dump --io takes models", davit("dump", path).err)

    def test_bad_formats(self):
        image = self.image()
        result = davit("dump", image, "--format", "jsno")
        self.assertEqual(result.code, 2)
        self.assertIn("did you mean json?", result.err)
        self.assertEqual(result.out, "")


# The Free of x lets a launch be late that needs the allocation behind it.
WAITS_FOR_ITSELF = """davit 1.3 target "ascend:910B2"
streams 1
input x: f32[4]
output y: f32[4]
device d0: f32[4]
device d1: f32[4]
device d2: f32[4]
graph init {
CreateStream() {stream=0, priority=0}
}
graph main {
d0 = AllocMemHbm() {bytes=16} origin="x"
l0: LaunchH2DCopy(x, d0) stream=0 origin="x"
a1: d1 = AllocMemHbm() {bytes=16} origin="one"
l1: d1 = LaunchKernel<Relu.f32>(d0) stream=0 after=[a1, l0] origin="one"
FreeMemHbm(d0) frees=[l1, l2] origin="x"
a2: d2 = AllocMemHbm() {bytes=16} origin="two"
l2: d2 = LaunchKernel<Relu.f32>(d1) stream=0 after=[a2, l1] origin="two"
down: y = LaunchD2HCopy(d2) stream=0 after=[l2] origin="y"
sync: SyncStream() {stream=0} after=[down]
FreeMemHbm(d1) after=[sync]
FreeMemHbm(d2) after=[sync]
}
graph deinit {
DestroyStream() {stream=0}
}
"""


class VerifyTest(tool.ToolTest):

    def test_says_who_made_it(self):
        line = davit("verify", self.image()).out.splitlines()[1]
        self.assertRegex(line, r"target cpu, [0-9.]+ k?B$")
        text = tool.IMAGE_TEXT.replace("arena", 'producer "by hand"\narena')
        line = davit("verify", self.image(text)).out.splitlines()[1]
        self.assertTrue(line.endswith(", producer: by hand"), line)

    def test_says_what_was_checked(self):
        result, document = self.davit_json("verify", self.image())
        self.check_passed(result)
        self.assertRegex(document["result"]["digest"], r"^[0-9a-f]{32}$")
        for area in ["container", "tables", "graphs", "dataflow", "memory plan", "kernels"]:
            self.assertIn(area, document["result"]["checked"])

    def test_liveness(self):
        image = self.path("relu.davit")
        model = self.path("relu.onnx", tool.onnx_model(
            [("Relu", "", "act_1", ["x"], ["y"])], [("x", F32, (2, 3))], [("y", F32, (2, 3))]))
        compiled, document = self.davit_json("compile", model, "-o", image, "--target", "ascend",
                                             "--verbose")
        self.check_passed(compiled)
        self.assertEqual(document["result"]["compile"]["launch_edges_removed"], 1)
        self.assertIn("1 edge became relations, 0 kept",
                      compiled.out + compiled.err)
        result, document = self.davit_json("verify", image, "--liveness")
        self.check_passed(result)
        self.assertEqual(document["result"]["liveness"], {"proved": True, "relations": 1})
    def test_liveness_that_is_not_proved(self):
        image = self.image(WAITS_FOR_ITSELF)
        self.check_passed(davit("verify", image))
        result = davit("verify", image, "--liveness")
        self.check_failed(result, 3, "check", "liveness is not proved")
        self.assertIn("node 5 (AllocMemHbm, two) may wait for node 6 (LaunchKernel, two), which "
                      "node 4 (FreeMemHbm, x) has named; ", result.last)
        self.assertIn("node 6 (LaunchKernel, two) waits for node 5 (AllocMemHbm, two)",
                      result.last)

    def test_bad_images(self):
        with open(self.image(), "rb") as file:
            good = file.read()
        damaged = {
            "empty": b"",
            "short": good[:40],
            "cut": good[:-1],
            "flipped": good[:200] + bytes([good[200] ^ 1]) + good[201:],
            "other": b"hello" * 100,
        }
        for name, content in damaged.items():
            for command in ("verify", "run", "bench", "dump"):
                result = davit(command, self.path(name + ".davit", content))
                self.assertEqual(result.code, 3, (name, command, result.out, result.err))
                self.assertIn("FAILED: ", result.out + result.err)

    def test_a_newer_format_is_refused_with_both_versions(self):
        with open(self.image(), "rb") as file:
            image = bytearray(file.read())
        image[8] = 9  # version_major
        result = davit("verify", self.path("newer.davit", bytes(image)))
        self.assertEqual(result.code, 3)
        self.assertIn("9", result.err)

    def test_bad_text(self):
        result = davit("compile", self.path("bad.txt", "davit 1.1 target cpu\nnonsense\n"), "-o",
                       self.path("x"))
        self.assertEqual(result.code, 3)
        self.assertIn("line 2", result.out)

    def test_dump_for_viewers_of_onnx(self):
        image, view = self.image(), self.path("view.onnx")
        self.check_failed(davit("dump", image, "--format", "onnx"), 2, "usage", "needs --output")
        self.check_passed(davit("dump", image, "--format", "onnx", "-o", view))
        with open(view, "rb") as file:
            content = file.read()
        for words in (b"block/add_1", b"davit.lane", b"davit.position", b"ai.onnx::Add(14)"):
            self.assertIn(words, content)
        # It is a well-formed model, of operators that only an executor has.
        result = davit("compile", view, "-o", self.path("again.davit"))
        self.check_failed(result, 4, "check")
        self.assertIn("davit::Add.f32(1): block/add_1; davit::Copy(1): copy_1", result.last)


if __name__ == "__main__":
    unittest.main()
