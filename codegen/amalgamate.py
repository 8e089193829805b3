#!/usr/bin/env python3
"""Writes a C++ file with the reference kernels as text, cut into pieces that can be put together to one
C file (codegen/kernel_pieces.hpp). Usage: amalgamate.py OUTPUT DEPFILE ROOT COMPILER... -- KERNEL_FILE...

A piece is a header, or a C file with the .inc files it includes. So that all may stand in one file:
names that two C files use for things of their own get the file's name as a suffix, macros of a C file end
with it, and what has external linkage becomes static.
"""

import re
import subprocess
import sys
from pathlib import Path

# Included several times with other parameters, as the .inc files are.
TEMPLATES = {"ops/kernels/gemm_block.h"}
# Compiled for an instruction set of their own: macro that guards them, and the target.
TARGETS = {"gemm_block_avx2": "avx2", "gemm_block_avx512": "avx512f"}
# Joins all families at run time, which nothing in one file needs.
LEFT_OUT = {"table"}

IDENTIFIER = r"[A-Za-z_]\w*"


def without_comments(text):
    pattern = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.S)
    text = pattern.sub(lambda m: " " if m.group(0).startswith("/*") else m.group(0), text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    return re.sub(r"\n\n+", "\n", text)


def without_linkage_blocks(text):
    return re.sub(r'#ifdef __cplusplus\n(extern "C" \{|\} ?)\n#endif\n', "", text)


class Source:
    """The kernels' folder, read once."""

    def __init__(self, root):
        self.root = Path(root)
        self.texts = {}
        self.paths = []

    def read(self, path):
        if path not in self.texts:
            for folder in (self.root, self.root / "include"):
                if (folder / path).exists():
                    self.paths.append(folder / path)
                    text = (folder / path).read_text(encoding="utf-8")
                    self.texts[path] = without_linkage_blocks(without_comments(text))
                    break
            else:
                raise SystemExit(f"amalgamate.py: {path} is nowhere")
        return self.texts[path]


class Piece:
    def __init__(self, name, source, path):
        self.name = name
        self.path = path
        self.headers = []  # Of ours, in the order of their inclusion.
        self.system = []
        self.macros = set()
        self.text = self.expand(source, path).strip("\n") + "\n"

    def expand(self, source, path):
        lines = []
        for line in source.read(path).split("\n"):
            include = re.match(r'#include ([<"])([^>"]+)[>"]', line)
            if include is None:
                if line != "#pragma once":
                    lines.append(line)
                macro = re.match(r"#define (\w+)", line)
                if macro:
                    self.macros.add(macro.group(1))
            elif include.group(1) == "<":
                self.system.append(include.group(2))
            elif include.group(2).endswith(".inc") or include.group(2) in TEMPLATES:
                lines.append(self.expand(source, include.group(2)))
            else:
                self.headers.append(include.group(2))
        return "\n".join(lines)


def preprocessed(compiler, root, path):
    """What the compiler sees of a C file, without what system headers bring."""
    text = subprocess.run([*compiler, "-E", f"-I{root}", f"-I{root}/include", f"{root}/{path}"], check=True,
                          capture_output=True, text=True).stdout
    ours, lines = False, []
    for line in text.split("\n"):
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = marker.group(1).endswith((".c", ".inc")) or marker.group(1).endswith(tuple(TEMPLATES))
        elif ours:
            lines.append(line)
    return "\n".join(lines)


def own_names(text):
    """What a C file defines at its outermost level and keeps to itself. `text` is preprocessed."""
    names = set()
    text = re.sub(r" ?__attribute__\(\(.*?\)+", "", text)
    for match in re.finditer(rf"\bstatic [^;={{}}()]*?({IDENTIFIER})(?=[\[(;]| =)", text):
        names.add(match.group(1))
    for match in re.finditer(r"^(?:typedef )?enum \w* ?\{(.*?)\}", text, flags=re.M | re.S):
        names.update(re.findall(rf"({IDENTIFIER})(?: = [^,]*)?(?:,|$)", match.group(1).strip()))
    for match in re.finditer(rf"^typedef [^;{{]*?({IDENTIFIER});", text, flags=re.M):
        names.add(match.group(1))
    for match in re.finditer(rf"^typedef [^;]*?\(\*({IDENTIFIER})\)", text, flags=re.M):
        names.add(match.group(1))
    for match in re.finditer(rf"^typedef (?:struct|union|enum) ?(\w*) \{{.*?^\}} ({IDENTIFIER});", text,
                             flags=re.M | re.S):
        names.update(name for name in match.groups() if name)
    for match in re.finditer(rf"^(?:struct|union) ({IDENTIFIER}) \{{", text, flags=re.M):
        names.add(match.group(1))
    return names


def renamed(text, names, suffix, members):
    """With another name for each: by a macro, which also finds words that ## puts together, but for
    what members are called too."""
    by_macro = sorted(name for name in names if name not in members)
    by_word = sorted((name for name in names if name in members), key=len, reverse=True)
    if by_word:
        pattern = re.compile(rf'"(?:\\.|[^"\\])*"|(?<![\w.])(?<!->)({"|".join(by_word)})\b')
        text = pattern.sub(lambda m: m.group(0) if m.group(1) is None else f"{m.group(1)}__{suffix}", text)
    before = "".join(f"#define {name} {name}__{suffix}\n" for name in by_macro)
    after = "".join(f"#undef {name}\n" for name in by_macro)
    return before + text + after


def with_internal_linkage(text):
    text = re.sub(r"^extern const (?=\w+ dvt_)", "static const ", text, flags=re.M)
    text = re.sub(r"^const (?=\w+ dvt_\w+ =)", "static const ", text, flags=re.M)
    return re.sub(rf"^(?!static|typedef|extern|return|else|DVT_INLINE)(?=[A-Za-z_][\w *]*?\bdvt_\w+\()", "static ", text,
                  flags=re.M)


def header_closure(source, headers, pieces):
    for path in headers:
        if path in pieces:
            continue
        piece = Piece(path, source, path)
        header_closure(source, piece.headers, pieces)
        piece.text = with_internal_linkage(piece.text)
        pieces[path] = piece  # After those that it includes.


def c_pieces(source, files, compiler):
    pieces = {}
    members = set(re.findall(rf"(?:\.|->)({IDENTIFIER})", "".join(map(source.read, files))))
    for path in files:
        stem = Path(path).stem
        if stem not in LEFT_OUT:
            pieces[stem] = Piece(stem, source, path)
    owners = {}
    for stem, piece in pieces.items():
        for name in own_names(preprocessed(compiler, source.root, piece.path)):
            owners.setdefault(name, []).append(stem)
    for stem, piece in pieces.items():
        shared = {name for name, stems in owners.items() if stem in stems and len(stems) > 1}
        piece.text = with_internal_linkage(renamed(piece.text, shared, stem, members))
        piece.text += "".join(f"#undef {macro}\n" for macro in sorted(piece.macros))
    return pieces


def used_pieces(pieces):
    """For each C piece, the others that define what it calls."""
    defined = {}
    for stem, piece in pieces.items():
        for match in re.finditer(r"^static [^;{}()]*?\b(dvt_\w+)(?:\([^;]*?\) \{| =)", piece.text, flags=re.M):
            defined[match.group(1)] = stem
    result = {}
    for stem, piece in pieces.items():
        words = set(re.findall(r"\bdvt_\w+", piece.text))
        result[stem] = sorted({defined[word] for word in words if word in defined} - {stem})
    return result


def cpp_string(text):
    parts = [text[i:i + 12000] for i in range(0, len(text), 12000)] or [""]
    return "\n".join(f'R"davit({part})davit"' for part in parts)


def main():
    output, depfile, root, *rest = sys.argv[1:]
    compiler, files = rest[:rest.index('--')], [str(Path(f).resolve().relative_to(Path(root).resolve())) for f in rest[rest.index('--') + 1:]]
    source = Source(root)
    chunks = c_pieces(source, files, compiler)
    headers = {}
    header_closure(source, ["davit/types.h", "davit/kernel.h"], headers)
    for piece in chunks.values():
        header_closure(source, piece.headers, headers)
    calls = used_pieces(chunks)
    order = {name: i for i, name in enumerate([*headers, *chunks])}
    rows = []
    families = []
    for name, piece in [*headers.items(), *chunks.items()]:
        uses = [order[h] for h in piece.headers] + [order[c] for c in calls.get(name, [])]
        system = [f"<{s}>" for s in dict.fromkeys(piece.system)]
        rows.append("    {\"%s\", \"%s\", {%s}, {%s},\n%s},\n" % (
            name, TARGETS.get(name, ""), ", ".join(f'"{s}"' for s in system), ", ".join(map(str, uses)),
            cpp_string(piece.text)))
        family = re.search(r"^static DvtKernelTable dvt_kernels_(\w+)\(void\) \{", piece.text, flags=re.M)
        if family:
            families.append(f'    {{"{family.group(1)}", &dvt_kernels_{family.group(1)}, {order[name]}}},\n')
    Path(output).write_text(
        "// Generated by codegen/amalgamate.py.\n"
        '#include "codegen/kernel_pieces.hpp"\n'
        '#include "ops/kernels/kernels.h"\n\n'
        "namespace davit::codegen {\n\n"
        "const std::vector<KernelPiece>& kernel_pieces() {\n"
        "  static const std::vector<KernelPiece> pieces = {\n" + "".join(rows) + "  };\n  return pieces;\n}\n\n"
        "const std::vector<KernelFamily>& kernel_families() {\n"
        "  static const std::vector<KernelFamily> families = {\n" + "".join(families) +
        "  };\n  return families;\n}\n\n}  // namespace davit::codegen\n", encoding="utf-8")
    Path(depfile).write_text(f"{output}: " + " ".join(map(str, source.paths)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
