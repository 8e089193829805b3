"""plan, and the memory plans that compile makes and dump shows."""

import os
import unittest
import xml.etree.ElementTree

import tool
from tool import davit

HEADER = "id,lower,upper,size\n"
# Perfect at 192 bytes: b and c share.
SMALL = HEADER + "a,0,4,64\nb,0,2,128\nc,2,4,128\n"

# Two planned values that never live together, and one that lives with both.
IMAGE_TEXT = """davit 1.1 target cpu
arena 128 align 64
input x: f32[4]
output y: f32[4]
planned a: f32[4] @ 0
planned b: f32[4] @ 64
graph main {
  a = Relu.f32(x)
  b = Relu.f32(a)
  y = Relu.f32(b)
}
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class PlanTest(tool.ToolTest):

    def test_the_report_and_the_files(self):
        out, svg = self.path("plan.csv"), self.path("plan.svg")
        result, document = self.davit_json("plan", self.path("v.csv", SMALL), "-o", out, "--svg",
                                           svg)
        self.check_passed(result)
        self.assertIn("arena 192 bytes, 1.0000 x the lower bound", result.out)
        self.assertIn("no plan is smaller", result.out)
        self.assertEqual(document["result"]["arena_bytes"], 192)
        self.assertEqual(document["result"]["lower_bound_bytes"], 192)
        self.assertEqual(document["result"]["values"], 3)
        rows = [line.split(",") for line in read(out).splitlines()]
        self.assertEqual(rows[0], ["id", "lower", "upper", "size", "offset"])
        offsets = {row[0]: int(row[4]) for row in rows[1:]}
        self.assertEqual(offsets["b"], offsets["c"])
        self.assertTrue(offsets["a"] in (0, 128))
        xml.etree.ElementTree.parse(svg)
        self.assertIn("c: 128 bytes at", read(svg))

    def test_the_same_every_time(self):
        rows = "".join(f"{i},{i % 17},{i % 17 + 1 + i % 5},{100 + i * 7919 % 3000}\n"
                       for i in range(150))
        table = self.path("v.csv", HEADER + rows)
        outputs = []
        for name in ("one.csv", "two.csv"):
            out = self.path(name)
            self.check_passed(davit("plan", table, "-o", out, "--plan-budget-ms", "20"))
            outputs.append(read(out))
        self.assertEqual(*outputs)

    def test_a_budget_buys_bytes(self):
        data = os.path.join(os.environ["DAVIT_TEST_DATA"], "minimalloc", "F.1048576.csv")
        _, heuristic = self.davit_json("plan", data, "--plan-budget-ms", "0")
        self.assertGreater(heuristic["result"]["arena_bytes"], 1048576)
        result, searched = self.davit_json("plan", data, "--capacity", "1048576")
        self.check_passed(result)
        self.assertEqual(searched["result"]["plan_method"], "search")
        self.assertLessEqual(searched["result"]["arena_bytes"], 1048576)
        self.assertRegex(result.err, r"s: 10[0-9]{5} bytes\n")  # Progress.

    def test_alignment(self):
        table = self.path("v.csv", HEADER + "a,0,2,1\nb,0,2,1\n")
        for alignment, arena in (("1", 2), ("64", 128)):
            _, document = self.davit_json("plan", table, "--alignment", alignment)
            self.assertEqual(document["result"]["arena_bytes"], arena)
        self.check_failed(davit("plan", table, "--alignment", "24"), 2, "usage",
                          "24 is not a power of two")

    def test_fixed_offsets_and_a_plan_as_input(self):
        table = self.path("v.csv", "id,lower,upper,size,offset,alignment\n"
                          "a,0,4,64,128,\nb,0,2,128,,\nc,2,4,100,,32\n")
        out = self.path("plan.csv")
        self.check_passed(davit("plan", table, "-o", out))
        self.assertIn("a,0,4,64,128,\n", read(out))
        self.assertRegex(read(out), r"c,2,4,100,\d+,32\n")
        # Every offset is fixed now: the command checks the plan.
        result, document = self.davit_json("plan", out)
        self.check_passed(result)
        self.assertEqual(document["result"]["arena_bytes"], 192)
        broken = self.path("broken.csv", read(out).replace("b,0,2,128,0", "b,0,2,128,64"))
        self.check_failed(davit("plan", broken), 3, "plan",
                          "a and b are fixed at bytes that overlap")
        odd = self.path("odd.csv", "id,lower,upper,size,alignment\na,0,4,64,48\n")
        self.check_failed(davit("plan", odd), 3, "plan", "the alignment of a is 48")

    def test_no_values(self):
        result, document = self.davit_json("plan", self.path("v.csv", HEADER), "--svg",
                                           self.path("v.svg"))
        self.check_passed(result)
        self.assertEqual(document["result"]["arena_bytes"], 0)
        xml.etree.ElementTree.parse(self.path("v.svg"))

    def test_what_does_not_fit_is_not_written(self):
        out = self.path("plan.csv")
        table = self.path("v.csv", SMALL)
        result, document = self.davit_json("plan", table, "--capacity", "191", "-o", out)
        self.check_failed(result, 5, "plan", "does not fit --capacity")
        self.assertIn("at most 191 bytes", result.err)
        self.assertIn("no plan fits: all need at least 192 bytes", document["failure"]["hint"])
        self.assertEqual(document["result"]["arena_bytes"], 192)
        self.assertFalse(os.path.exists(out))

    def test_sizes_without_sense(self):
        huge = str(2**64 - 1)
        result = davit("plan", self.path("v.csv", HEADER + f"a,0,1,{huge}\nb,0,1,{huge}\n"))
        self.check_failed(result, 5, "plan", "2^63")
        self.check_passed(davit("plan", self.path("v.csv", HEADER + f"a,0,{huge},64\n")))

    def test_bad_tables(self):
        bad = {
            "": "there is no header",
            "id,lower,upper\n": "no column 'size'",
            HEADER + "a,0,1\n": "line 2: 3 cells",
            HEADER + "a,0,1,64\nb,1,0,64\n": "line 3: lower is 1, upper is 0",
            HEADER + "a,0,1,x\n": "size is 'x'",
            HEADER + "a,0,1,1e3\n": "size is '1e3'",
            HEADER + "a,0,1,64\na,0,1,64\n": "id 'a' is that of line 2",
        }
        out = self.path("plan.csv")
        for content, words in bad.items():
            result, document = self.davit_json("plan", self.path("v.csv", content), "-o", out)
            self.check_failed(result, 3, "parse", words)
            self.assertEqual(document["exit_code"], 3)
            self.assertFalse(os.path.exists(out))
        self.check_failed(davit("plan", self.path("v.csv", os.urandom(4096))), 3, "parse")

    def test_bad_arguments(self):
        table = self.path("v.csv", SMALL)
        self.check_failed(davit("plan"), 2, "usage", "a table of intervals is needed")
        self.check_failed(davit("plan", table, "--capacitty", "1"), 2, "usage",
                          "did you mean --capacity?")
        self.check_failed(davit("plan", table, "--plan-budget-ms", "-1"), 2, "usage")
        self.check_failed(davit("plan", table, "--capacity", "0"), 2, "usage", "--capacity")
        self.check_failed(davit("plan", table, "-o", table), 2, "usage", "v.csv")
        self.check_failed(davit("plan", table, "--svg", table), 2, "usage", "v.csv")
        self.assertEqual(read(table), SMALL)
        self.assertEqual(davit("plan", self.path("none.csv")).code, 1)
        self.assertEqual(davit("plan", self.folder).code, 1)
        os.mkfifo(self.path("pipe"))
        self.check_failed(davit("plan", self.path("pipe"), timeout=10), 1, "load", "it is a pipe")


class ImagePlanTest(tool.ToolTest):

    def test_a_plan_as_json_and_as_a_picture(self):
        image = self.image(IMAGE_TEXT)
        document = tool.json.loads(davit("dump", image, "--memory-plan", "--format", "json").out)
        self.assertEqual(document["schema"], "davit.memory_plan")
        self.assertEqual(document["arena_bytes"], 128)
        a, b = document["values"]
        self.assertEqual((a["name"], a["offset"], a["bytes"]), ("a", 0, 16))
        self.assertEqual((a["first_node"], a["last_node"]), (0, 1))
        self.assertEqual((b["offset"], b["first_node"], b["last_node"]), (64, 1, 2))
        out = self.path("plan.svg")
        self.check_passed(davit("dump", image, "--memory-plan", "--format", "svg", "-o", out))
        root = xml.etree.ElementTree.parse(out).getroot()
        titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(titles[0], "a: 16 bytes at 0, steps 0 to 2")

    def test_formats_that_a_plan_has_not(self):
        image = self.image(IMAGE_TEXT)
        self.assertIn("--format svg needs --memory-plan", davit("dump", image, "--format", "svg").err)
        for arguments in (["--memory-plan", "--format", "dot"], ["--format", "svg"],
                          ["--schedule", "--format", "json"],
                          ["--schedule", "--memory-plan", "--format", "json"]):
            result = davit("dump", image, *arguments)
            self.assertEqual(result.code, 2, arguments)
            self.assertEqual(result.out, "")

    def test_a_budget_of_compile_is_part_of_the_image(self):
        model = self.path("m.onnx", tool.onnx_model(
            [("Relu", "", f"r{i}", [f"v{i}"], [f"v{i + 1}"]) for i in range(3)],
            [("v0", 1, [2])], [("v3", 1, [2])]))
        images = []
        for i, budget in enumerate(["1000", "1000", "7"]):
            out = self.path(f"{i}.davit")
            self.check_passed(davit("compile", model, "-o", out, "--plan-budget-ms", budget))
            with open(out, "rb") as file:
                images.append(file.read())
        self.assertEqual(images[0], images[1])
        self.assertIn(b"plan-budget-ms=7", images[2])
        result = davit("compile", model, "-o", self.path("x"), "--plan-budget-ms", "soon")
        self.check_failed(result, 2, "usage", "--plan-budget-ms")


if __name__ == "__main__":
    unittest.main()
