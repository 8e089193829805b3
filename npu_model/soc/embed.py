"""Writes the parameter files as one C++ source: embed.py OUT FILE..."""

import pathlib
import sys


def main(out: str, files: list[str]) -> None:
    lines = ['#include "npu_model/parameters.hpp"', "", "namespace davit::npu {", "namespace {"]
    names = []
    for file in sorted(files):
        path = pathlib.Path(file)
        text = path.read_text(encoding="utf-8")
        if ')params"' in text:
            raise SystemExit(f"{file}: holds the raw string delimiter")
        names.append((path.stem, f"kText{len(names)}"))
        lines.append(f'constexpr std::string_view {names[-1][1]} = R"params({text})params";')
    lines.append("constexpr BuiltinSoc kSocs[] = {")
    lines += [f'    {{"{stem}", {variable}}},' for stem, variable in names]
    lines += ["};", "}  // namespace", ""]
    lines += ["std::span<const BuiltinSoc> builtin_socs() { return kSocs; }", ""]
    lines += ["}  // namespace davit::npu", ""]
    pathlib.Path(out).write_text("\n".join(lines), encoding="utf-8")


main(sys.argv[1], sys.argv[2:])
