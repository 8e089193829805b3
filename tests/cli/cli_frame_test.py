"""First and last lines, exit codes of usage errors, help, settings, JSON, the small sub-commands."""

import json
import os
import resource
import signal
import subprocess
import time
import unittest

import tool
from tool import davit

COMMANDS = ["compile", "tune", "run", "bench", "dump", "plan", "verify", "simulate", "stress", "cache", "doctor", "version"]


class FrameTest(tool.ToolTest):

    def test_first_line_says_tool_version_git_and_command(self):
        result = davit("version")
        self.assertRegex(result.first, r"^davit \d+\.\d+\.\d+ \(git [^)]+\): davit version$")
        self.check_passed(result)

    def test_first_line_quotes_what_a_shell_would_split(self):
        result = davit("verify", "no such file.davit")
        self.assertTrue(result.first.endswith("davit verify 'no such file.davit'"), result.first)

    # Sanitizers reserve more address space than any of these limits.
    @unittest.skipIf(os.environ.get("DAVIT_RED_ZONE", "0") != "0", "under AddressSanitizer")
    def test_no_memory_at_the_start_is_said(self):
        def start(kilobytes):
            limit = kilobytes << 10
            return subprocess.run(
                [tool.DAVIT, "version"], capture_output=True, text=True, check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

        # From the least that the libraries can be loaded with to what is enough, so that memory
        # ends in each part of the start.
        low, high = 1 << 10, 1 << 20
        while high - low > 4:
            middle = (low + high) // 2
            low, high = (low, middle) if start(middle).returncode == 0 else (middle, high)
        outcomes = set()
        for kilobytes in range(max(high - 1200, 1), high, 20):
            result = start(kilobytes)
            outcomes.add(result.returncode)
            if result.returncode == 127:  # The loader: "cannot map ..."
                continue
            self.assertIn(result.returncode, (0, 5), (kilobytes, result.stdout, result.stderr))
            if result.returncode == 5:
                self.assertIn("out of memory", result.stdout.splitlines()[-1])
        self.assertIn(5, outcomes)

    def test_help_of_each_command(self):
        for command in COMMANDS:
            result = davit(command, "--help")
            self.assertEqual(result.code, 0)
            self.assertIn("--json", result.out)
            self.assertIn("--help", result.out)
        self.assertEqual(davit("--help").code, 0)
        self.assertEqual(davit("--version").code, 0)

    def test_help_offers_what_there_is(self):
        run = davit("run", "--help").out
        self.assertIn("@FILE.pb", run)
        self.assertIn("random:2x4", run)
        # The groups of --help, each with its options.
        device = run[run.index("Device"):run.index("Report")]
        self.assertNotIn("--watch", device)
        self.assertNotIn("--target", davit("tune", "--help").out)
        plan = davit("plan", "--help").out
        self.assertIn("alignment", plan)
        for word in ("ONNX", "SVG"):
            self.assertIn(word, davit("--help").out)

    def test_unknown_option_names_the_nearest(self):
        for command in COMMANDS:
            result = davit(command, "--jsno", "x")
            self.check_failed(result, 2, "usage", "unknown option --jsno; did you mean --json?")
        result = davit("compile", "a.onnx", "--ouptut=b")
        self.check_failed(result, 2, "usage", "unknown option --ouptut; did you mean --output?")

    def test_unknown_option_without_a_near_one(self):
        result = davit("version", "--frobnicate-everything")
        self.check_failed(result, 2, "usage", "unknown option --frobnicate-everything")
        self.assertNotIn("did you mean", result.last)

    def test_unknown_command_names_the_nearest(self):
        self.check_failed(davit("complie", "x"), 2, "usage", "did you mean compile?")
        self.check_failed(davit(), 2, "usage", "a sub-command is needed")

    def test_missing_and_superfluous_arguments(self):
        for command in ["compile", "run", "bench", "dump", "plan", "verify"]:
            self.assertEqual(davit(command).code, 2)
        self.check_failed(davit("verify", "a", "b"), 2, "usage", "unexpected argument 'b'")
        self.check_failed(davit("verify", "--json=", "a"), 2, "usage", "--json needs a value")
        for arguments in (["verify", "a", "--json", ""], ["run", "a", "--input", ""],
                          ["run", "a", "--trace", ""], ["verify", ""]):
            self.check_failed(davit(*arguments), 2, "usage", "it needs a value")
        self.check_failed(davit("bench", "a", "--duration", "soon"), 2, "usage", "--duration")

    def test_numbers_outside_their_bounds(self):
        whole = {
            "--iterations": "a whole number from 1 to 1000000000",
            "--seed": "a whole number from 0 to 18446744073709551615",
            "--top": "a whole number from 1 to 1000000",
            "--concurrency": "a whole number from 1 to 1024",
        }
        for option, words in whole.items():
            for value in ("-1", "1.5", "1e3", "0x10", "abc", "99999999999999999999", "", " 1"):
                result = davit("bench", "a", option, value)
                self.check_failed(result, 2, "usage", f"{option}: '{value}' is not {words}")
        real = {
            "--timeout": "a number from 0.001 to 1000000000",
            "--duration": "a number from 0 to 1000000",
            "--warmup-ms": "a number from 0 to 1000000000",
        }
        for option, words in real.items():
            for value in ("-1", "abc", "nan", "inf", "1e400", "1e10", ""):
                result = davit("bench", "a", option, value)
                self.check_failed(result, 2, "usage", f"{option}: '{value}' is not {words}")
        self.check_failed(davit("bench", "a", "--timeout", "0"), 2, "usage", "--timeout: '0' is")
        self.check_failed(davit("bench", "a", "--iterations", "0"), 2, "usage", "from 1 to")
        result = davit("run", "a", "--expect", "@b", "--atol", "-1")
        self.check_failed(result, 2, "usage", "--atol: '-1' is not a number from 0")
        image = self.image()
        for arguments in (["--seed", "18446744073709551615"], ["--top", "1"],
                          ["--timeout", "1e9"], ["--timeout", "0.5"]):
            self.check_passed(davit("run", image, *arguments))

    def test_both_spellings_of_an_option(self):
        image = self.image()
        for arguments in (["--seed=3"], ["--seed", "3"]):
            result, document = self.davit_json("run", image, *arguments)
            self.check_passed(result)
            seed = next(s for s in document["settings"] if s["name"] == "--seed")
            self.assertEqual((seed["value"], seed["default"]), ("3", False))

    def test_settings_are_grouped_and_defaults_are_marked(self):
        result = davit("run", self.image(), "--seed", "3")
        for group in ["Model", "Run", "Device", "Report"]:
            self.assertIn(f"=== {group} options ===", result.err)
        self.assertRegex(result.err, r"--iterations +1  \(default: once\)")
        self.assertRegex(result.err, r"--seed +3\n")

    def test_quiet_has_no_log(self):
        result = davit("run", self.image(), "--quiet")
        self.check_passed(result)
        self.assertEqual(result.err, "")

    def test_no_escape_codes(self):
        result = davit("run", self.image(), "--profile", "--verbose")
        self.assertNotIn("\x1b", result.out + result.err)

    def test_unwritable_stdout_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            process = subprocess.run([tool.DAVIT, "version"], stdout=full, stderr=subprocess.PIPE,
                                     check=False)
        self.assertEqual(process.returncode, 1)

    def test_help_that_cannot_be_written_is_a_failure(self):
        for arguments in (["--help"], ["run", "--help"], ["--version"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                process = subprocess.run([tool.DAVIT, *arguments], stdout=full,
                                         stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(process.returncode, 1)
            self.assertIn("cannot write to stdout", process.stderr)


class JsonTest(tool.ToolTest):

    def test_every_command_writes_a_document(self):
        image = self.image()
        commands = [["compile", self.path("model.txt"), "-o", image], ["run", image],
                    ["bench", image, "--duration", "0", "--warmup-ms", "0"], ["dump", image],
                    ["verify", image], ["doctor"], ["version"]]
        for arguments in commands:
            result, document = self.davit_json(*arguments)
            self.assertEqual(result.code, 0, result.err)
            self.assertEqual(document["schema"], "davit.cli")
            self.assertEqual(document["schema_version"], 1)
            self.assertEqual(document["command"], arguments[0])
            self.assertEqual(document["status"], "PASSED")
            self.assertEqual(document["exit_code"], 0)
            self.assertIsNone(document["failure"])
            self.assertTrue(document["result"])

    def test_a_failure_is_a_document_too(self):
        result, document = self.davit_json("verify", self.path("bad.davit", b"not an image"))
        self.assertEqual(result.code, 3)
        self.assertEqual(document["status"], "FAILED")
        self.assertEqual(document["exit_code"], 3)
        self.assertEqual(document["failure"]["kind"], "invalid model or image")
        self.assertTrue(document["failure"]["message"])

    def test_a_document_that_cannot_be_written_is_a_failure(self):
        result = davit("version", "--json", os.path.join(self.folder, "none", "x.json"))
        self.check_failed(result, 1, "report")


class SmallCommandsTest(tool.ToolTest):

    def test_version_names_every_component(self):
        result, document = self.davit_json("version")
        self.check_passed(result)
        self.assertIn("image.fbs", document["result"]["components"]["schema"])
        for name in ["davit", "image_format", "kernel_abi", "onnx_opsets", "flatbuffers",
                     "protobuf", "xxhash", "compiler"]:
            self.assertRegex(document["result"]["components"][name], r"\d|gcc|clang")

    def test_doctor(self):
        result, document = self.davit_json("doctor", "--soc", "910B2")
        self.check_passed(result)
        machine = document["result"]["machine"]
        self.assertGreaterEqual(machine["cpus_online"], machine["cpus_affinity"])
        self.assertGreater(machine["cpus_usable"], 0)
        targets = [t["target"] for t in document["result"]["targets"]]
        self.assertEqual(targets[0], "cpu")
        self.assertIn("ascend:910B2", targets)
        evidence = {p["evidence"] for p in document["result"]["soc"]["parameters"]}
        self.assertIn("A", evidence)
        self.assertIn("A (assumption)", result.out)

    def test_doctor_shows_overrides(self):
        result, document = self.davit_json("doctor", "--soc", "910B2", "--soc-override",
                                           "core.clock=1750")
        self.check_passed(result)
        changed = [p for p in document["result"]["soc"]["parameters"] if p["overridden"]]
        self.assertEqual([(p["key"], p["value"]) for p in changed], [("core.clock", 1750)])
        self.assertIn("overridden", result.out)
        self.assertEqual(davit("doctor", "--soc-override", "core.clock=1750").code, 2)

    def test_doctor_of_an_unknown_soc(self):
        self.assertNotEqual(davit("doctor", "--soc", "9000").code, 0)

    def test_affinity_limits_the_usable_cpus(self):
        cpu = min(os.sched_getaffinity(0))
        path = self.path("doctor.json")
        subprocess.run(["taskset", "-c", str(cpu), tool.DAVIT, "doctor", "--json", path],
                       check=True, capture_output=True)
        with open(path, encoding="utf-8") as file:
            machine = json.load(file)["result"]["machine"]
        self.assertLessEqual(machine["cpus_usable"], 1)


class SignalTest(tool.ToolTest):

    def start(self, *arguments):
        process = subprocess.Popen([tool.DAVIT, *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def running_bench(self):
        """A bench in its measuring loop."""
        process = self.start("bench", self.image(), "--duration", "60")
        for line in process.stderr:
            if line.startswith("warm-up:"):
                break
        time.sleep(0.05)
        return process

    def test_an_interrupt_prints_the_last_line(self):
        for number, name in ((signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")):
            process = self.running_bench()
            process.send_signal(number)
            out, _ = process.communicate(timeout=10)
            self.assertEqual(process.returncode, -number)
            self.assertEqual(out.splitlines()[-1], f"FAILED: measure: interrupted by {name}")

    def test_a_crash_prints_its_stage(self):
        process = self.running_bench()
        process.send_signal(signal.SIGSEGV)
        out, err = process.communicate(timeout=10)
        self.assertIn("crashed with SIGSEGV in stage: measure", err)
        self.assertIn("FAILED: measure: crashed with SIGSEGV", out)
        self.assertNotEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
