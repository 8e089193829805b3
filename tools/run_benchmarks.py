"""Runs benchmarks one after the other, whatever becomes of each, and says at the end what exceeded
its limit or failed. What `./dev bench` calls.

  run_benchmarks.py FOLDER [NAME...] [--json FILE] [--only TEXT]

FOLDER has the programs; without a NAME all of them run. --json: what they measured, as one array.
--only: the parts whose name has TEXT; programs that have none are passed over.
Exit code: 0; 1 when a limit was exceeded or a program failed; 2 for a wrong argument.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

USAGE = 2  # Exit code of a program that has no part of the name.


def run(program, only, folder):
    """Runs one program. Returns its exit code and its measurements."""
    path = os.path.join(folder, os.path.basename(program) + ".json")
    command = [program, "--json", path] + (["--only", only] if only else [])
    code = subprocess.run(command, check=False).returncode
    try:
        with open(path, encoding="utf-8") as file:
            return code, json.load(file)
    except (OSError, ValueError):
        return code, []


def number(value):
    return "-" if value is None else f"{value:.4g}"


def print_exceeded(rows):
    """One line for each measurement that exceeded its limit."""
    header = ("benchmark", "metric", "value", "unit", "ratio", "limit")
    lines = [header] + [(row["benchmark"], row["metric"], number(row["value"]), row["unit"],
                         number(row["ratio"]), number(row["limit"])) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def write_json(path, rows):
    """Complete or not at all."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write("[" + ",".join("\n " + json.dumps(row) for row in rows) + "\n]\n")
        os.replace(part, path)
    except OSError as error:
        print(f"cannot write {path}: {error.strerror}", file=sys.stderr)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", add_help=False, allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--only")
    options = parser.parse_intermixed_args()
    for name in ("json", "only"):
        if getattr(options, name) == "":
            print(f"./dev bench: --{name} needs a value", file=sys.stderr)
            return USAGE
    built = sorted(name for name in os.listdir(options.folder) if name.endswith("_bench"))
    unknown = [name for name in options.names if name not in built]
    if unknown:
        print(f"./dev bench: there is no benchmark '{unknown[0]}'; there are {', '.join(built)}",
              file=sys.stderr)
        return USAGE

    rows, failures, passed_over = [], [], []
    chosen = options.names or built
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            print(f"\n== {name}", flush=True)
            code, measured = run(os.path.join(options.folder, name), options.only, folder)
            rows += measured
            if code == USAGE and options.only and not measured:
                passed_over.append(name)
            elif code != 0 and not any(row["exceeded"] for row in measured):
                failures.append(f"{name}: " +
                                (f"exit code {code}" if code > 0 else f"signal {-code}"))
    exceeded = [row for row in rows if row["exceeded"]]
    if options.json and not write_json(options.json, rows):
        return 1
    if len(passed_over) == len(chosen):
        print(f"./dev bench: no benchmark has a part '{options.only}'", file=sys.stderr)
        return USAGE
    print(f"\n== {len(chosen) - len(passed_over)} run, {len(rows)} measurements, "
          f"{len(exceeded)} above their limit, {len(failures)} failed")
    if exceeded:
        print_exceeded(exceeded)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if exceeded or failures else 0


sys.exit(main())
