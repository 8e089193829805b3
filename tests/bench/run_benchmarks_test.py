"""tools/run_benchmarks.py and what the options of a benchmark do (bench/report.hpp)."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["DAVIT_NAMED_BENCH"]
TOOL = os.environ["DAVIT_RUN_BENCHMARKS"]


class RunBenchmarksTest(unittest.TestCase):

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_tool(self, *arguments, programs=()):
        for name in programs:
            os.symlink(PROGRAM, self.path(name))
        return subprocess.run([sys.executable, TOOL, self.folder, *arguments], text=True,
                              capture_output=True, check=False)

    def test_all_run_whatever_becomes_of_each(self):
        out = self.path("out.json")
        result = self.run_tool("--json", out, programs=["crash_bench", "good_bench", "quit_bench",
                                                        "slow_bench", "whole_bench"])
        self.assertEqual(result.returncode, 1, result.stderr)
        for name in ("crash_bench", "good_bench", "quit_bench", "slow_bench", "whole_bench"):
            self.assertIn(f"== {name}", result.stdout)
        end = result.stdout[result.stdout.index("== 5 run"):]
        self.assertIn("5 measurements, 1 above their limit, 2 failed", end)
        self.assertRegex(end, r"slow_bench +second +3 +ns +3 +2\n")
        self.assertNotIn("good_bench", end)
        self.assertIn("FAILED: crash_bench: signal 6", end)
        self.assertIn("FAILED: quit_bench: exit code 1", end)
        with open(out, encoding="utf-8") as file:
            rows = json.load(file)
        self.assertEqual([(row["benchmark"], row["metric"], row["exceeded"]) for row in rows],
                         [("good_bench", "first", 0), ("good_bench", "second", 0),
                          ("slow_bench", "first", 0), ("slow_bench", "second", 1),
                          ("whole_bench", "all", 0)])
        self.assertEqual(rows[3], {"benchmark": "slow_bench", "metric": "second", "value": 3,
                                   "unit": "ns", "peer": "loop", "peer_value": 1, "ratio": 3,
                                   "limit": 2, "exceeded": 1})
        self.assertIsNone(rows[4]["limit"])

    def test_all_is_well(self):
        result = self.run_tool(programs=["good_bench", "whole_bench"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("2 run, 3 measurements, 0 above their limit, 0 failed", result.stdout)

    def test_some(self):
        result = self.run_tool("good_bench", programs=["good_bench", "crash_bench"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertNotIn("crash_bench", result.stdout)
        result = self.run_tool("good_bench", "nosuch_bench")
        self.assertEqual(result.returncode, 2)
        self.assertIn("'nosuch_bench'; there are crash_bench, good_bench", result.stderr)

    def test_only(self):
        result = self.run_tool("--only", "second", programs=["good_bench", "whole_bench"])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("1 run, 1 measurements", result.stdout)
        result = self.run_tool("--only", "nosuch")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no benchmark has a part 'nosuch'", result.stderr)
        # Programs on their own refuse what would do nothing, and say what there is.
        for name, words in (("good_bench", "'first part' 'second part'"),
                            ("whole_bench", "no parts for --only")):
            result = subprocess.run([self.path(name), "--only", "nosuch"], text=True,
                                    capture_output=True, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)

    def test_a_file_that_cannot_be_written(self):
        result = self.run_tool("--json", self.path("no/such/folder.json"), programs=["good_bench"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write", result.stderr)
        result = self.run_tool("--json", "")
        self.assertEqual(result.returncode, 2)
        self.assertIn("needs a value", result.stderr)


if __name__ == "__main__":
    unittest.main()
