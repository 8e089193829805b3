"""run and bench: inputs, outputs, comparisons, profiles, traces, limits."""

import csv
import os
import shutil
import signal
import subprocess
import unittest
import xml.etree.ElementTree

import tool
from tool import davit

# Heap values of 1,000 f32; with AddressSanitizer there is a red zone behind each.
RED_ZONE = int(os.environ.get("DAVIT_RED_ZONE", "0"))
BLOCK = (4000 + RED_ZONE + 63) // 64 * 64


class RunTest(tool.ToolTest):

    def x(self, values=(1, 2, 3, 4)):
        return self.path("x.npy", tool.npy("<f4", [4], values, "f"))

    def test_npy_in_and_out(self):
        out_y, out_m = self.path("y.npy"), self.path("m.npy")
        result = davit("run", self.image(), "--input", "x=@" + self.x(), "--input", "k=2xi64=7,-9",
                       "--output-data", "y=@" + out_y, "--output-data=m=@" + out_m)
        self.check_passed(result)
        self.assertEqual(tool.read_npy(out_y, "f"), [2, 4, 6, 8])
        self.assertEqual(tool.read_npy(out_m, "q"), [7, -9])

    def test_a_variable_goes_from_run_to_run(self):
        image, out = self.image(), self.path("y.npy")
        arguments = ["run", image, "--variable", "x=y", "--output-data", "y=@" + out]
        for iterations, expected in ((1, [1, 2, 3, 4]), (4, [4, 8, 12, 16])):
            self.check_passed(davit(*arguments, "--input", "x=zeros", "--iterations",
                                    str(iterations)))
            self.assertEqual(tool.read_npy(out, "f"), expected)
        # What one process has left, the next one goes on with.
        before = shutil.copy(out, self.path("before.npy"))
        self.check_passed(davit(*arguments, "--input", "x=@" + before, "--iterations", "2"))
        self.assertEqual(tool.read_npy(out, "f"), [6, 12, 18, 24])
        # Observed runs go on, too; what is saved was there before them.
        result, document = self.davit_json(*arguments, "--input", "x=zeros", "--memory",
                                           "--profile", "--iterations", "3")
        self.check_passed(result)
        self.assertEqual(tool.read_npy(out, "f"), [3, 6, 9, 12])
        mapped = document["result"]["memory"]["host"][1]["mapped_bytes"]
        _, document = self.davit_json("run", image, "--memory")
        self.assertEqual(mapped, document["result"]["memory"]["host"][1]["mapped_bytes"] + 4096)

    def test_a_variable_of_dynamic_shape_grows(self):
        # present = past, then step: as a cache of keys and values.
        model = self.path("cache.onnx", tool.onnx_model(
            [("Concat", "", "c", ["past", "step"], ["present"])],
            [("past", 1, ["n", 2]), ("step", 1, [1, 2])], [("present", 1, ["m", 2])],
            extra={"c": tool.field(5, 2, tool.field(1, 2, b"axis") + tool.field(3, 0, 0) +
                                   tool.field(20, 0, 2))}))
        out = self.path("present.npy")
        arguments = ["run", model, "--variable", "past=present", "--input", "step=1x2xf32=3,4",
                     "--output-data", "present=@" + out]
        for start, iterations in (("past=1x2xf32=1,2", 1), ("past=1x2xf32=1,2", 5)):
            self.check_passed(davit(*arguments, "--input", start, "--iterations", str(iterations)))
            self.assertEqual(tool.read_npy(out, "f"), [1, 2] + [3, 4] * iterations)
        before = shutil.copy(out, self.path("before.npy"))
        self.check_passed(davit(*arguments, "--input", "past=@" + before, "--iterations", "2"))
        self.assertEqual(tool.read_npy(out, "f"), [1, 2] + [3, 4] * 7)
        result = davit(*arguments, "--output-shape", "present:2x2", "--input", "past=1x2xf32=0")
        self.check_failed(result, 2, "usage", "is the output of a --variable")

    def test_bad_variables(self):
        image = self.image()
        for forms, code, words in ((["q=y"], 2, "no input or output is named 'q'"),
                                   (["x=q"], 2, "no output is named 'q'"),
                                   (["x=m"], 2, "an input and an output of one type"),
                                   (["x=y", "x=y"], 2, "shares a port"), (["x"], 2, ""),
                                   (["x="], 2, "no output is named ''"), (["="], 2, "")):
            options = [option for form in forms for option in ("--variable", form)]
            result = davit("run", image, *options)
            self.assertEqual(result.code, code, (forms, result.out + result.err))
            self.assertIn(words, result.last, forms)

    def test_forms_of_inputs(self):
        image = self.image()
        out = self.path("y.npy")
        for form, expected in (("x=zeros", [1, 2, 3, 4]), ("x=4xf32=1", [2, 3, 4, 5]),
                               ("x=4xf32=-1,0.5,1e1,2", [0, 2.5, 13, 6]),
                               ("4xf32=10", [11, 12, 13, 14])):
            result = davit("run", image, "--input", form, "--output-data", "@" + out)
            self.check_passed(result)
            self.assertEqual(tool.read_npy(out, "f"), expected, form)

    def test_random_inputs_repeat_with_their_seed(self):
        image = self.image()
        digests = {}
        for seed in ("1", "1", "2"):
            _, document = self.davit_json("run", image, "--seed", seed)
            digests.setdefault(seed, set()).add(document["result"]["outputs"][0]["digest"])
        self.assertEqual(len(digests["1"]), 1)
        self.assertNotEqual(digests["1"], digests["2"])

    def test_bad_inputs(self):
        image = self.image()
        wrong_type = self.path("d.npy", tool.npy("<f8", [4], [1, 2, 3, 4], "d"))
        wrong_shape = self.path("s.npy", tool.npy("<f4", [3], [1, 2, 3], "f"))
        cut = self.path("cut.npy", tool.npy("<f4", [4], [1, 2, 3, 4], "f")[:-3])
        for form, words in (("z=zeros", "no input or output is named 'z'"),
                            ("x=@" + wrong_type, "another type"),
                            ("x=@" + wrong_shape, "another type"), ("x=@" + cut, ""),
                            ("x=4xf32=1,2", "number of values"), ("x=4xf32=1,2,3,4,5", "values"),
                            ("x=4xf32=a", "'a' is not a value"), ("x=4xi64=1", "another type"),
                            ("x=ones", "not understood"), ("k=2xi64=1.5", "'1.5'"),
                            ("x=", "needs a value")):
            result = davit("run", image, "--input", form)
            self.assertIn(result.code, (1, 2, 3), (form, result.out, result.err))
            self.assertIn(words, result.last, form)
        result = davit("run", image, "--input", "x=zeros", "--input", "x=zeros")
        self.check_failed(result, 2, "usage", "twice")

    def test_expect(self):
        image = self.image()
        good = self.path("good.npy", tool.npy("<f4", [4], [2, 4, 6, 8], "f"))
        near = self.path("near.npy", tool.npy("<f4", [4], [2, 4, 6.01, 8], "f"))
        arguments = ["run", image, "--input", "x=@" + self.x(), "--expect"]
        self.check_passed(davit(*arguments, "y=@" + good, "--atol=0", "--rtol=0"))
        result, document = self.davit_json(*arguments, "y=@" + near)
        self.check_failed(result, 1, "compare", "output y: 1 of 4 elements differ")
        self.assertIn("first at [2]: got 6", result.last)
        self.assertIn("MISMATCH", result.out)
        comparison = document["result"]["comparisons"][0]
        self.assertEqual((comparison["match"], comparison["mismatches"]), (False, 1))
        self.check_passed(davit(*arguments, "y=@" + near, "--atol", "0.02"))
        self.check_passed(davit(*arguments, "y=@" + near, "--rtol", "0.01"))
        self.check_passed(davit(*arguments, "y=@" + near, "--rtol-max", "0.01"))
        self.assertEqual(davit(*arguments, "y=@" + near, "--atol", "0").code, 1)

    def test_nan_and_infinity(self):
        image = self.image()
        nan, inf = float("nan"), float("inf")
        x = self.path("odd.npy", tool.npy("<f4", [4], [nan, inf, -inf, 0], "f"))
        same = self.path("same.npy", tool.npy("<f4", [4], [nan, inf, -inf, 4], "f"))
        self.check_passed(davit("run", image, "--input", "x=@" + x, "--expect", "y=@" + same))
        for values in ([0, inf, -inf, 4], [nan, -inf, -inf, 4], [nan, 1e30, -inf, 4]):
            other = self.path("other.npy", tool.npy("<f4", [4], values, "f"))
            result = davit("run", image, "--input", "x=@" + x, "--expect", "y=@" + other,
                           "--atol", "1e30")
            self.check_failed(result, 1, "compare", "1 of 4")

    def test_text_image_and_model_run_directly(self):
        self.check_passed(davit("run", self.path("m.txt", tool.IMAGE_TEXT)))
        model = self.path("r.onnx", tool.onnx_model([("Relu", "", "r", ["x"], ["y"])],
                                                    [("x", 1, [2])], [("y", 1, [2])]))
        result, document = self.davit_json("run", model, "--target", "ascend:910B2",
                                           "--input", "x=2xf32=-1,5",
                                           "--output-data", "y=@" + self.path("y.npy"))
        self.check_passed(result)
        self.assertEqual(tool.read_npy(self.path("y.npy"), "f"), [0, 5])
        self.assertEqual(document["result"]["model"]["target"], "ascend:910B2")

    def test_profile_table_csv_and_trace(self):
        table, trace = self.path("p.csv"), self.path("t.json")
        result, document = self.davit_json("run", self.image(), "--profile", "--profile-csv", table,
                                           "--trace", trace, "--iterations", "3")
        self.check_passed(result)
        self.assertIn("block/add_1", result.out)
        profile = document["result"]["profile"]
        self.assertEqual(profile["runs"], 3)
        self.assertEqual([n["calls"] for n in profile["by_node"]], [3, 3])
        self.assertAlmostEqual(sum(n["share"] for n in profile["by_node"]), 1, places=6)
        self.assertAlmostEqual(sum(t["share"] for t in profile["by_type"]), 1, places=6)
        with open(table, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([r["origin"] for r in rows], ["block/add_1", "copy_1"])
        with open(trace, encoding="utf-8") as file:
            document = tool.json.load(file)
        slices = [e for e in document["traceEvents"] if e["ph"] == "X"]
        self.assertEqual(sum(e["name"] == "block/add_1" for e in slices), 3)
        # What DAVIT_TRACE writes says the same of the trace.
        facts = document["otherData"]
        self.assertEqual(sorted(facts), ["clock", "davit", "image", "target"])
        self.assertEqual(facts["target"], "cpu")
        by_environment = self.path("e.json")
        subprocess.run([tool.DAVIT, "run", self.image()], check=True, capture_output=True,
                       env={**os.environ, "DAVIT_TRACE": by_environment})
        with open(by_environment, encoding="utf-8") as file:
            self.assertEqual(tool.json.load(file)["otherData"], facts)

    DYNAMIC = """davit 1.2 target cpu
input x: f32[?] dynamic
output y: f32[?] dynamic
heap a: f32[?] dynamic
const w: f32[1] = {1}
graph main {
  a = InferShape(x, _) {target=2}
  a = AllocHost() origin="block/add"
  a = Add.f32(x, w) {axis=-1} origin="block/add" op="ai.onnx::Add(14)"
  y = InferShape(a, _) {target=5}
  y = BindOutput() {output=0} origin="block/last"
  y = Add.f32(a, w) {axis=-1} origin="block/last" op="ai.onnx::Add(14)"
  FreeHost(a) origin="block/last"
}
"""

    def test_open_dimensions_that_were_taken_as_one(self):
        # A pool of 2 x 2 has no output where an extent is 1.
        pool = tool.field(5, 2, tool.field(1, 2, b"kernel_shape") + tool.field(8, 0, 2) +
                          tool.field(8, 0, 2) + tool.field(20, 0, 7))
        model = tool.onnx_model([("MaxPool", "", "pool", ["image"], ["y"])],
                                [("image", 1, [1, 1, "H", "W"])], [("y", 1, [1, 1, "A", "B"])],
                                extra={"pool": pool})
        image = self.path("pool.davit")
        self.check_passed(davit("compile", self.path("pool.onnx", model), "-o", image))
        for command in ("run", "bench"):
            result, document = self.davit_json(command, image)
            self.assertNotEqual(result.code, 0)
            hint = document["failure"]["hint"]
            self.assertIn("taken as 1 (image 1x1x?x?xf32)", hint)
            self.assertIn("--input image=random:DIMS", hint)
            self.assertIn(hint, result.err)
        # Who says that they are 1 is not told.
        result, document = self.davit_json("run", image, "--input", "random:1x1x1x1")
        self.assertNotEqual(result.code, 0)
        self.assertEqual(document["failure"]["hint"], "")
        self.check_passed(davit("run", image, "--input", "random:1x1x3x3"))

    def test_memory_tables_and_csv(self):
        image, table = self.path("d.txt", self.DYNAMIC.encode()), self.path("m.csv")
        trace = self.path("t.json")
        arguments = ["run", image, "--input", "x=random:1000", "--memory", "--memory-csv", table,
                     "--trace", trace]
        result, document = self.davit_json(*arguments)
        self.check_passed(result)
        memory = document["result"]["memory"]
        heap = memory["pools"][0]
        self.assertEqual(heap["pool"], "heap")
        self.assertEqual(heap["live_peak_bytes"], 2 * BLOCK)
        self.assertEqual(heap["live_bytes"], BLOCK)  # The output.
        self.assertEqual(heap["limit_bytes"], 0)
        self.assertEqual({o["owner"]: o["bytes"] for o in memory["owners_at_peak"]},
                         {"block/add": BLOCK, "block/last": BLOCK})
        self.assertIn("block/last", result.out)
        self.assertIn("Kept on the host beside values", result.out)
        host = {entry["engine"]: entry for entry in memory["host"]}
        self.assertEqual(sorted(host), ["executor", "image"])
        for entry in host.values():
            self.assertGreater(entry["live_bytes"], 0)
            self.assertGreaterEqual(entry["live_peak_bytes"], entry["live_bytes"])
            self.assertGreater(entry["live_objects"], 0)
            self.assertIn("malloc", entry["allocator"])
        self.assertGreater(host["executor"]["mapped_bytes"], 0)
        with open(table, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        # The output is kept from the run before.
        self.assertEqual([int(r["heap_live_bytes"]) for r in rows],
                         [BLOCK] + [2 * BLOCK] * 5 + [BLOCK])
        with open(trace, encoding="utf-8") as file:
            events = tool.json.load(file)["traceEvents"]
        counters = [e for e in events if e["ph"] == "C"]
        self.assertTrue(counters)
        self.assertEqual(counters[-1]["args"], {"live bytes": BLOCK})

    def test_memory_of_planned_values(self):
        model = self.path("r.onnx", tool.onnx_model(
            [("Relu", "", "r", ["x"], ["a"]), ("Exp", "", "e", ["a"], ["b"]),
             ("Neg", "", "n", ["b"], ["y"])], [("x", 1, [64, 64])], [("y", 1, [64, 64])]))
        result, document = self.davit_json("run", model, "--memory", "-O0")
        self.check_passed(result)
        pool = document["result"]["memory"]["pools"][0]
        self.assertEqual(pool["pool"], "planned")
        self.assertLessEqual(pool["live_peak_bytes"], pool["reserved_peak_bytes"])
        self.assertGreaterEqual(pool["live_peak_bytes"], 64 * 64 * 4)
        self.assertTrue(document["result"]["memory"]["owners_at_peak"])

    def test_memory_of_nothing(self):
        model = self.path("r.onnx", tool.onnx_model([("Relu", "", "r", ["x"], ["y"])],
                                                    [("x", 1, [4])], [("y", 1, [4])]))
        self.check_passed(davit("run", model, "--memory"))

    def test_memory_limit(self):
        image = self.path("d.txt", self.DYNAMIC.encode())
        result = davit("run", image, "--input", "x=random:1000", "--memory-max",
                       str(2 * BLOCK))
        self.check_passed(result)
        result = davit("run", image, "--input", "x=random:1000", "--memory-max",
                       str(2 * BLOCK - 1))
        self.check_failed(result, 5, "run", f"block/last asks the host for {4000 + RED_ZONE} bytes")
        for words in (f"limit of {2 * BLOCK - 1} bytes", "live", "cached", "largest hole", "fragmentation",
                      "most is held by block/add"):
            self.assertIn(words, result.err)
        model = self.path("r.onnx", tool.onnx_model([("Relu", "", "r", ["x"], ["y"])],
                                                    [("x", 1, [64, 64])], [("y", 1, [64, 64])]))
        on_device = ["run", model, "--target", "ascend", "--memory-max"]
        self.check_failed(davit(*on_device, "20000"), 5, "run", "asks ascend")
        self.check_failed(davit(*on_device, "20000", "--device-memory", "direct"), 2, "usage",
                          "--memory-max limits what an executor keeps")
        self.check_passed(davit(*on_device, "40000"))
        self.check_failed(davit("run", model, "--device-memory", "some"), 2, "usage", "direct")
        for arguments in (["--memory-max", "1000"], ["--device-memory", "direct"],
                          ["--device-memory", "cached"]):
            for command in ("run", "bench"):
                self.check_failed(davit(command, model, *arguments), 2, "usage",
                                  arguments[0] + " would do nothing: the image is for the cpu")

    def test_huge_pages(self):
        model = self.path("r.onnx", tool.onnx_model(
            [("Relu", "", "r", ["x"], ["a"]), ("Exp", "", "e", ["a"], ["y"])],
            [("x", 1, [64, 64])], [("y", 1, [64, 64])]))
        digests = set()
        for pages in ("auto", "none"):
            result, document = self.davit_json("run", model, "-O0", "--huge-pages", pages)
            self.check_passed(result)
            digests.add(document["result"]["outputs"][0]["digest"])
        self.assertEqual(len(digests), 1)
        self.check_failed(davit("run", model, "--huge-pages", "all"), 2, "usage",
                          "'all' is not auto, none or reserved")
        result = davit("run", model, "-O0", "--huge-pages", "reserved")
        if result.code != 0:  # This machine has set none aside.
            self.check_failed(result, 5, "load", "huge pages that were set aside")
            self.assertIn("vm.nr_hugepages", result.err)

    def test_the_report_of_a_predicted_run(self):
        model = self.path("model.onnx", tool.onnx_model(
            [("MatMul", "", "<a & \"b\">", ["x", "x"], ["p"]), ("Relu", "", "r", ["p"], ["y"])],
            [("x", 1, [64, 64])], [("y", 1, [64, 64])]))
        page = self.path("page.html")
        result, document = self.davit_json("run", model, "--target", "ascend", "-O0", "--report",
                                           page)
        self.check_passed(result)
        predicted = document["result"]["predicted"]
        self.assertEqual(sum(share["ps"] for share in predicted["shares"]), predicted["run_ps"])
        self.assertIn("the run is ", result.out)
        root = xml.etree.ElementTree.parse(page).getroot()
        self.assertEqual([h.text for h in root.iter("h2")],
                         ["What bounds the run", "Timeline", "Operators", "Roofline", "Memory"])
        titles = [title.text for title in root.iter("title")]
        self.assertTrue(any("<a & \"b\">" in title for title in titles), titles)
        self.assertEqual(len(list(root.iter("circle"))), 2)
        self.check_failed(davit("run", model, "--report", page), 2, "usage", "would do nothing")

    def test_device_reports(self):
        model = self.path("r.onnx", tool.onnx_model([("Relu", "", "r", ["x"], ["y"])],
                                                    [("x", 1, [64, 64])], [("y", 1, [64, 64])]))
        summary, trace = self.path("op.csv"), self.path("t.json")
        result, document = self.davit_json("run", model, "--target", "ascend", "--op-summary",
                                           summary, "--trace", trace)
        self.check_passed(result)
        predicted = document["result"]["predicted"]
        self.assertGreater(predicted["run_ps"], 0)
        self.assertTrue(any("Relu" in o["op"] for o in predicted["operators"]))
        with open(summary, encoding="utf-8", newline="") as file:
            self.assertIn("Task Duration(us)", next(csv.reader(file)))
        with open(trace, encoding="utf-8") as file:
            events = tool.json.load(file)["traceEvents"]
        self.assertEqual({e["pid"] for e in events if e["ph"] == "X"}, {1, 2})

    def test_modes_and_parameters_of_the_device(self):
        model = self.path("r.onnx", tool.onnx_model([("Relu", "", "r", ["x"], ["y"])],
                                                    [("x", 1, [64, 64])], [("y", 1, [64, 64])]))
        runs = {}
        for name, arguments in (("prompt", []), ("lazy", ["--device-mode", "lazy"]),
                                ("bad day", ["--device-mode", "adversarial:3"]),
                                ("again", ["--device-mode", "adversarial:3"]),
                                ("slow", ["--soc-override", "vector.head=500"])):
            result, document = self.davit_json("run", model, "--target", "ascend", *arguments)
            self.check_passed(result)
            runs[name] = document["result"]
        self.assertEqual(len({run["outputs"][0]["digest"] for run in runs.values()}), 1)
        time = {name: run["predicted"]["run_ps"] for name, run in runs.items()}
        self.assertEqual(time["prompt"], time["lazy"])
        self.assertEqual(time["bad day"], time["again"])
        self.assertGreater(time["slow"], time["prompt"] + 400_000_000)
        for arguments, error in ((["--device-mode", "eager"], "'eager' is not prompt, lazy or"),
                                 (["--device-mode", "adversarial:x"], "'x' is not a seed"),
                                 (["--device-mode", "lazy:1"], "'lazy:1' is not prompt"),
                                 (["--soc-override", "core.cloc=1"],
                                  "unknown parameter 'core.cloc'"),
                                 (["--soc-override", "core.clock"],
                                  "malformed override 'core.clock'")):
            result = davit("run", model, "--target", "ascend", *arguments)
            self.assertNotEqual(result.code, 0)
            self.assertIn(error, result.last)
        for arguments in (["--device-mode", "lazy"], ["--soc-override", "core.clock=1"]):
            result = davit("run", model, *arguments)
            self.assertEqual(result.code, 2)
            self.assertIn(arguments[0] + " would do nothing: the image is for the cpu", result.err)

    def test_workers_and_schedules(self):
        model, image = self.path("b.onnx"), self.path("b.davit")
        self.path("b.onnx", tool.onnx_model(
            [("Sigmoid", "", "s", ["x"], ["a"]), ("Tanh", "", "t", ["x"], ["b"]),
             ("Add", "", "sum", ["a", "b"], ["y"])], [("x", 1, [256, 256])], [("y", 1, [256, 256])]))
        result, document = self.davit_json("compile", model, "-o", image, "--workers", "2")
        self.check_passed(result)
        self.assertIn("schedule for 2 workers: promises ", result.out)
        compiled = document["result"]["compile"]
        self.assertEqual(compiled["schedule_workers"], 2)
        self.assertLess(compiled["schedule_ns"], 0.8 * compiled["sequential_ns"])
        self.assertIn("part [n", davit("dump", image).out)
        self.assertIn("waits for", davit("dump", image, "--schedule").out)
        graph = tool.json.loads(davit("dump", image, "--format", "json").out)["graphs"][0]
        self.assertEqual(sorted(step["node"] for part in graph["schedule"] for step in part),
                         [0, 1, 2])
        self.assertIn("schedule: for 2 workers", davit("verify", image).out)
        if davit("run", image, "--workers", "2").code == 4:
            self.skipTest("this build has no worker threads")
        digests = set()
        for schedule in ("sequential", "planned", "dynamic", "auto"):
            result, document = self.davit_json("run", image, "--workers", "2", "--schedule",
                                               schedule, "--iterations", "12")
            self.check_passed(result)
            ran = document["result"]["schedule"]
            self.assertEqual("--workers is for compiling alone" in result.err,
                             schedule == "sequential")
            if schedule != "auto":
                self.assertEqual(ran["kind"], schedule)
                self.assertTrue(ran["reason"].startswith("asked for"), ran["reason"])
            digests.update(output["digest"] for output in document["result"]["outputs"])
        self.assertEqual(len(digests), 1)
        tuned = self.path("tuned.davit")
        result, document = self.davit_json("tune", model, "-o", tuned, "--workers", "2")
        self.check_passed(result)
        self.assertIn("Measured 3 nodes in 10 runs", result.out)
        self.assertEqual(document["result"]["compile"]["schedule_workers"], 2)
        self.check_passed(davit("run", tuned, "--workers", "2", "--schedule", "planned"))
        self.assertIn("node-costs=", davit("dump", tuned).out)
        self.check_failed(davit("tune", image, "-o", tuned), 2, "usage", "is no model")
        self.check_failed(davit("tune", model, "-o", tuned, "--workers", "1"), 2, "usage",
                          "nothing to schedule for one worker")
        trace = self.path("rows.json")
        self.check_passed(davit("run", image, "--workers", "2", "--schedule", "planned", "--trace",
                                trace))
        with open(trace, encoding="utf-8") as file:
            rows = [e["args"]["name"] for e in tool.json.load(file)["traceEvents"]
                    if e["name"] == "thread_name"]
        self.assertEqual(len([row for row in rows if "worker-" in row]), 2)
        self.check_failed(davit("run", self.image(), "--workers", "2", "--schedule", "planned"), 1,
                          "load", "the image has no schedule")
        self.check_failed(davit("run", image, "--schedule", "planned"), 2, "usage",
                          "would do nothing with one worker")
        self.check_failed(davit("run", image, "--percentiles", "50"), 2, "usage",
                          "would do nothing with one iteration")
        self.check_failed(davit("compile", model, "-o", image, "--workers", "0"), 2, "usage",
                          "--workers")

    def test_a_pipe_is_no_model_and_does_not_block(self):
        for name in ("pipe", "pipe.onnx", "pipe.txt"):
            pipe = self.path(name)
            os.mkfifo(pipe)
            for arguments in (["run", pipe], ["bench", pipe], ["dump", pipe], ["verify", pipe],
                              ["compile", pipe, "-o", self.path("x")]):
                result = davit(*arguments, timeout=10)
                self.assertNotIn(result.code, (0, 7), arguments)
                self.assertIn("FAILED: ", result.out + result.err)
        for device in ("/dev/zero", "/dev/null"):
            self.assertEqual(davit("run", device, timeout=10).code, 1)

    def test_a_pipe_is_no_tensor_and_does_not_block(self):
        image = self.image()
        for name in ("pipe.npy", "pipe.pb"):
            pipe = self.path(name)
            os.mkfifo(pipe)
            for option in ("--input", "--expect"):
                result = davit("run", image, option, "@" + pipe, timeout=10)
                self.assertEqual(result.code, 1, result.out + result.err)
                self.assertIn(f"{pipe}: it is a pipe", result.last)
        os.mkfifo(self.path("input_0.pb"))
        result = davit("run", image, "--test-data", self.folder, timeout=10)
        self.assertEqual(result.code, 1, result.out + result.err)
        self.assertIn("input_0.pb: it is a pipe", result.last)

    def test_timeout(self):
        result, document = self.davit_json("run", self.image(), "--iterations", "1000000000",
                                           "--timeout", "0.3")
        self.check_failed(result, 6, "run", "not done after 0.3 s")
        self.assertRegex(document["failure"]["hint"], "add_1|copy_1")
        self.assertRegex(result.err, r"watched run \d+ (is in progress|has ended: timeout)\n"
                         r"  normal lane: \d of \d have ended")
        result = davit("bench", self.image(), "--duration", "1000", "--timeout=0.5")
        self.assertEqual(result.code, 6)
        self.assertEqual(davit("run", self.image(), "--timeout", "-1").code, 2)
        self.assertEqual(davit("run", self.image(), "--timeout", "nan").code, 2)
        self.check_passed(davit("run", self.image(), "--timeout", "60"))

    def test_watch(self):
        with subprocess.Popen(
                [tool.DAVIT, "run", self.image(), "--iterations", "1000000000", "--watch"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stderr:  # The executor is there when its input is.
                    if line.startswith("input "):
                        break
                said = ""
                while "normal lane: " not in said:
                    process.send_signal(signal.SIGUSR1)
                    said = process.stderr.readline()
                self.assertIn("have ended", said)
                self.assertIsNone(process.poll())
            finally:
                process.terminate()


class BenchTest(tool.ToolTest):

    def test_summary(self):
        result, document = self.davit_json(
            "bench", self.image(), "--duration", "0.05", "--warmup-ms", "5", "--iterations", "20",
            "--concurrency", "3", "--percentiles", "50,99.9")
        self.check_passed(result)
        for words in ("load ", "first run ", "throughput ", "latency ", "host memory "):
            self.assertIn(words, result.out)
        data = document["result"]
        self.assertGreaterEqual(data["latency"]["count"], 60)
        self.assertEqual(list(data["latency"]["percentiles_ns"]), ["p50", "p99.9"])
        self.assertLessEqual(data["latency"]["min_ns"], data["latency"]["median_ns"])
        self.assertLessEqual(data["latency"]["median_ns"], data["latency"]["max_ns"])
        self.assertGreaterEqual(data["measured_ns"], 0.05e9)
        self.assertGreater(data["throughput_per_second"], 0)
        self.assertEqual(data["clients"], 3)

    def test_advice_needs_a_measurement(self):
        clients = len(os.sched_getaffinity(0)) + 1
        result = davit("bench", self.image(), "--duration", "0", "--warmup-ms", "0",
                       "--concurrency", str(clients))
        self.assertIn(f"oversubscribed: {clients} clients", result.out)
        result = davit("bench", self.image(), "--duration", "0", "--warmup-ms", "0")
        self.assertNotIn("oversubscribed", result.out)

    def test_bad_values(self):
        image = self.image()
        for arguments in (["--concurrency", "0"], ["--iterations", "0"], ["--duration", "-1"],
                          ["--percentiles", "50,101"], ["--percentiles", "x"],
                          ["--duration", "nan"], ["--iterations", "-3"]):
            self.assertEqual(davit("bench", image, *arguments).code, 2, arguments)


@unittest.skipUnless(os.path.isdir(tool.ONNX_TESTS), "libonnx-testdata is not installed")
class TestDataTest(tool.ToolTest):

    def test_onnx_test_folders(self):
        for name in ("test_relu", "test_add", "test_concat_1d_axis_0", "test_transpose_default"):
            folder = os.path.join(tool.ONNX_TESTS, "node", name)
            result, document = self.davit_json("run", os.path.join(folder, "model.onnx"),
                                               "--test-data", folder)
            self.check_passed(result)
            self.assertTrue(document["result"]["comparisons"][0]["match"])

    def test_a_set_of_another_model(self):
        relu = os.path.join(tool.ONNX_TESTS, "node", "test_relu", "model.onnx")
        other = os.path.join(tool.ONNX_TESTS, "node", "test_add")
        self.assertNotEqual(davit("run", relu, "--test-data", other).code, 0)
        self.assertNotEqual(davit("run", relu, "--test-data", self.folder).code, 0)

    def test_frozen_inputs(self):
        folder = os.path.join(tool.ONNX_TESTS, "node", "test_reshape_reordered_all_dims")
        shape = os.path.join(folder, "test_data_set_0", "input_1.pb")
        result = davit("run", os.path.join(folder, "model.onnx"), "--freeze", "shape=@" + shape,
                       "--test-data", folder)
        self.check_passed(result)


if __name__ == "__main__":
    unittest.main()
