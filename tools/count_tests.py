"""Prints "passed failed skipped" for a Meson test log (one JSON object a line).

A doctest program counts as its test cases, any other program as one test.
"""
import json
import re
import sys

CASES = re.compile(r"test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")

passed = failed = skipped = 0
with open(sys.argv[1], encoding="utf-8") as log:
    for line in log:
        test = json.loads(line)
        cases = CASES.search(re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout") or ""))
        good = test["result"] in ("OK", "EXPECTEDFAIL")
        if test["result"] == "SKIP":
            skipped += 1
        elif cases:
            passed += int(cases.group(2))
            # A program that fails outside its cases (a leak, a crash) still is a failure.
            failed += max(int(cases.group(3)), 0 if good else 1)
        elif good:
            passed += 1
        else:
            failed += 1
print(passed, failed, skipped)
