"""simulate: predictions for hosts with many workers."""

import unittest

import tool
from tool import davit


def independent_matmuls(count):
    """`count` products, added up by a chain."""
    nodes = [("MatMul", "", f"m{i}", [f"x{i}", f"x{i}"], [f"p{i}"]) for i in range(count)]
    total = "p0"
    for i in range(1, count):
        nodes.append(("Add", "", f"a{i}", [total, f"p{i}"],
                      [f"s{i}" if i + 1 < count else "y"]))
        total = f"s{i}"
    inputs = [(f"x{i}", 1, [192, 192]) for i in range(count)]
    return tool.onnx_model(nodes, inputs, [("y", 1, [192, 192])])


TWO_STREAMS = """davit 1.1 target "ascend:910B2"
arena 0 align 64
streams 2 priority [0, 0]
events 2
input x: f32[4]
output y: f32[4]
device a: f32[4]
device b: f32[4]
device c: f32[4]

graph init {
  CreateStream() {stream=0, priority=0}
  CreateStream() {stream=1, priority=0}
  CreateEvent() {event=0}
  CreateEvent() {event=1}
}

graph main {
  a1: a = AllocMemHbm() {bytes=16}
  b1: b = AllocMemHbm() {bytes=16}
  c1: c = AllocMemHbm() {bytes=16}
  copy: LaunchH2DCopy(x, a) stream=0
  r0: RecordEvent() {event=0} stream=0 after=[copy]
  w0: WaitEvent() {event=0} stream=1 after=[r0]
  k0: b = LaunchKernel<Relu.f32>(a) stream=0 after=[copy, w0] cost={kind=vector, dtype=f32, vector_elements=1048576, vector_passes_x100=100, read_bytes=4194304, write_bytes=4194304}
  k1: c = LaunchKernel<Neg.f32>(a) stream=1 after=[w0, k0]
  r1: RecordEvent() {event=1} stream=1 after=[k1]
  w1: WaitEvent() {event=1} stream=0 after=[r1]
  k2: b = LaunchKernel<Add.f32>(b, c) {axis=-1} stream=0 after=[w1]
  d: y = LaunchD2HCopy(b) stream=0 after=[k2]
  s: SyncStream() {stream=0} after=[d]
  FreeMemHbm(a) after=[s]
  FreeMemHbm(b) after=[s]
  FreeMemHbm(c) after=[s]
}

graph deinit {
  DestroyEvent() {event=0}
  DestroyEvent() {event=1}
  DestroyStream() {stream=0}
  DestroyStream() {stream=1}
}
"""


class SimulateTest(tool.ToolTest):

    def simulate(self, *arguments):
        result, document = self.davit_json("simulate", *arguments, "-O0")
        self.check_passed(result)
        return document["result"]

    def test_more_workers_take_less(self):
        model = self.path("model.onnx", independent_matmuls(8))
        found = self.simulate(model, "--host-workers", "1..4,8", "--workers", "8")
        runs = {(run["schedule"], run["workers"]): run for run in found["runs"]}
        self.assertEqual(len(runs), 1 + 2 * 4)
        alone = runs[("sequential", 1)]["predicted_ns"]
        for schedule in ("planned", "dynamic"):
            times = [runs[(schedule, workers)]["predicted_ns"] for workers in (2, 3, 4, 8)]
            self.assertEqual(times, sorted(times, reverse=True))
            self.assertLess(times[-1], alone)
            least = found["least_by_values_ns" if schedule == "planned" else "least_ns"]
            self.assertGreaterEqual(times[-1], least)
            if schedule == "planned":
                self.assertLess(times[-1], 1.3 * least)
        for run in runs.values():
            self.assertTrue(0 < run["utilisation"] <= 1, run)
        path = found["critical_path"]
        self.assertAlmostEqual(sum(part["ns"] for part in path["by_operator"]),
                               min(run["predicted_ns"] for run in runs.values()), delta=1)

    def test_slow_hand_overs_cost(self):
        model = self.path("model.onnx", independent_matmuls(4))
        slow = self.simulate(model, "--host-workers", "4", "--workers", "4", "--transfer-ns", "1e9",
                             "--hand-over-ns", "1e9")
        times = {run["schedule"]: run["predicted_ns"] for run in slow["runs"]}
        # A plan stays on one worker then; who takes what was laid out has to wait for it.
        self.assertLess(times["planned"], 1.5 * times["sequential"])
        self.assertGreater(times["dynamic"], 1e9)

    def test_a_device_is_part_of_it(self):
        model = self.path("model.onnx", independent_matmuls(4))
        image = self.path("model.davit")
        self.check_passed(davit("compile", model, "--target", "ascend", "-O0", "-o", image))
        result, document = self.davit_json("simulate", image, "--host-workers", "1..2",
                                           "--node-ns", "0")
        self.check_passed(result)
        found = document["result"]
        _, ran = self.davit_json("run", image, "--iterations", "2")
        predicted = ran["result"]["predicted"]
        alone = found["runs"][0]
        self.assertAlmostEqual(alone["predicted_ns"] * 1000 / predicted["run_ps"], 1, delta=0.002)
        self.assertGreater(alone["device_busy_ns"], 0)
        self.assertEqual([run["schedule"] for run in found["runs"]], ["sequential", "dynamic"])
        for option in (["--measure"], ["--planned-node-ns", "3"]):
            self.check_failed(davit("simulate", image, *option), 2, "usage", "would do nothing")
        for option in (["--device-mode", "lazy"], ["--soc-override", "a=b"],
                       ["--device-memory", "direct"]):
            self.check_failed(davit("simulate", model, *option), 2, "usage", "would do nothing")

    def ran_ns(self, *arguments):
        """What the model says a run takes."""
        result, document = self.davit_json("run", *arguments, "--iterations", "2")
        self.check_passed(result)
        return document["result"]["predicted"]["run_ps"] / 1000

    def test_streams_beside_each_other(self):
        image = self.path("two.txt", TWO_STREAMS)
        result, document = self.davit_json("simulate", image, "--node-ns", "0")
        self.check_passed(result)
        alone = document["result"]["runs"][0]
        self.assertAlmostEqual(alone["predicted_ns"] / self.ran_ns(image), 1, delta=0.002)
        self.assertLess(alone["device_busy_ns"], alone["predicted_ns"])

    def test_too_few_streams_or_events_are_named_at_load(self):
        image = self.path("two.txt", TWO_STREAMS)
        for resource in ("stream", "event"):
            result = davit("run", image, "--soc-override", resource + ".max=1")
            self.check_failed(result, 5, "load", f"no {resource} left; expected at most 1 {resource}s")
            self.assertIn("the image needs 2 streams and 2 events", result.out + result.err)

    def test_shapes_of_run_time_on_a_device(self):
        model = self.path("dynamic.onnx", tool.onnx_model(
            [("Relu", "", "r", ["x"], ["h"]), ("MatMul", "", "m", ["h", "w"], ["y"])],
            [("x", 1, ["n", 64]), ("w", 1, [64, 32])], [("y", 1, ["n", 32])]))
        inputs = ["--target", "ascend", "--input", "x=random:8x64"]
        found = self.simulate(model, *inputs, "--node-ns", "0", "--iterations", "5")
        self.assertNotIn("reason", found)
        self.assertEqual({run["schedule"] for run in found["runs"]}, {"sequential", "dynamic"})
        # What the device and the calls take, and what the host computes.
        ran_ns = self.ran_ns(model, *inputs, "-O0")
        alone = found["runs"][0]
        self.assertGreater(alone["predicted_ns"], 0.999 * ran_ns)
        self.assertLess(alone["predicted_ns"], ran_ns + 1e6)
        self.assertGreater(alone["device_busy_ns"], 0.3 * ran_ns)

    def test_no_time_has_no_shares(self):
        empty = self.path("empty.txt", "davit 1.3 target \"cpu\"\narena 0 align 64\n\n"
                                       "graph main {\n}\n")
        result = davit("simulate", empty)
        self.check_passed(result)
        self.assertNotIn("nan", result.out)

    def test_the_trace_has_all_nodes(self):
        model = self.path("model.onnx", independent_matmuls(4))
        trace = self.path("trace.json")
        self.simulate(model, "--host-workers", "2", "--trace", trace)
        with open(trace, encoding="utf-8") as file:
            slices = [e for e in tool.json.load(file)["traceEvents"] if e["ph"] == "X"]
        self.assertEqual(len(slices), 7)

    def test_measured_runs_stand_beside(self):
        model = self.path("model.onnx", independent_matmuls(2))
        found = self.simulate(model, "--host-workers", "1", "--measure")
        self.assertGreater(found["runs"][0]["measured_ns"], 0)

    def test_what_cannot_be_shared_says_why(self):
        model = self.path("dynamic.onnx", tool.onnx_model(
            [("Relu", "", "r", ["x"], ["y"])], [("x", 1, [4])], [("y", 1, [4])]))
        for wrong in ("0", "65", "4..2", "two", "1,,2", ""):
            result = davit("simulate", model, "--host-workers", wrong)
            self.assertEqual(result.code, 2, result.out)
        self.check_failed(davit("simulate", model, "--host-workers", "2..65"), 2, "usage",
                          "counts from 1 to 64")
        self.assertEqual(davit("simulate").code, 2)


if __name__ == "__main__":
    unittest.main()
