"""What the guides point to is there: links, headings, files that are named in the text."""

import json
import os
import re
import unittest

ROOT = os.environ["DAVIT_SOURCE"]
# With a folder before it: those alone say where they are.
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:cpp|hpp|c|h|py|sh|md|pml|fbs|json)(?!\w)")


def documents():
    paths = [name for name in os.listdir(ROOT) if name.endswith(".md")]
    return paths + [f"docs/{name}" for name in os.listdir(os.path.join(ROOT, "docs"))
                    if name.endswith(".md")] + ["schema/README.md"]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(path):
    """Of the headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(read(path)), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w -]", "", plain).replace(" ", "-"))
    return found


class DocsTest(unittest.TestCase):

    def test_links(self):
        for path in documents():
            for target in re.findall(r"\]\(([^)\s]+)\)", without_code(read(path))):
                if "://" in target:
                    continue
                file, _, anchor = target.partition("#")
                where = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
                with self.subTest(document=path, link=target):
                    self.assertTrue(os.path.exists(os.path.join(ROOT, where)), "no such file")
                    if anchor and where.endswith(".md"):
                        self.assertIn(anchor, anchors(where))

    def test_files_that_are_named(self):
        for path in documents():
            for code in re.findall(r"`([^`\n]+)`", without_code(read(path))):
                if "davit " in code:  # A command line names the reader's files.
                    continue
                for name in FILE.findall(code):
                    if name.startswith("DIR/"):
                        continue
                    there = [os.path.exists(os.path.join(ROOT, folder, name))
                             for folder in ("", "include")]
                    with self.subTest(document=path, file=name):
                        self.assertTrue(any(there), "no such file")

    def test_numbers(self):
        golden = json.loads(read("tests/data/golden_passes.json"))
        nodes = re.search(r"`lenet_mnist.onnx` has (\d+) nodes", read("docs/image.md")).group(1)
        self.assertEqual(int(nodes), golden["lenet_mnist"]["O0"]["nodes"])


if __name__ == "__main__":
    unittest.main()
