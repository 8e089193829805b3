"""tool.py: runs the davit binary; tiny images, .npy files and bits of ONNX for the tests beside it."""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

DAVIT = os.environ["DAVIT"]
ONNX_TESTS = os.environ.get("DAVIT_ONNX_TESTS", "")

# davit waits until what it writes is on the disk; a busy disk makes that seconds. In memory it is
# nothing.
TEMPORARY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

# y = x + w on four floats, and two integers copied through.
IMAGE_TEXT = """davit 1.1 target cpu
arena 0 align 64
input x: f32[4]
input k: i64[2]
output y: f32[4]
output m: i64[2]
const w: f32[4] = {1, 2, 3, 4}
graph main {
  y = Add.f32(x, w) {axis=-1} origin="block/add_1" op="ai.onnx::Add(14)"
  m = Copy(k) origin="copy_1" op="ai.onnx::Identity(13)"
}
"""


class Result:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr
        lines = self.out.splitlines()
        self.first = lines[0] if lines else ""
        self.last = lines[-1] if lines else ""


def davit(*arguments, cwd=None, timeout=60, env=None):
    return Result(subprocess.run([DAVIT, *arguments], cwd=cwd, timeout=timeout, text=True,
                                 capture_output=True, check=False, env=env))


def npy(dtype, shape, values, code):
    """A .npy file, version 1.0; `code` is struct's letter."""
    shape_text = "(" + "".join(f"{extent}," for extent in shape) + ")"
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape_text}, }}"
    header = header.ljust(117) + "\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
            struct.pack(f"<{len(values)}{code}", *values))


def read_npy(path, code):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<H", content[8:10])[0]
    data = content[10 + length:]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def field(number, wire, payload):
    """One protobuf field: wire 0 an integer, wire 2 bytes."""
    def varint(value):
        out = b""
        while value > 0x7F:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])
    tag = varint(number << 3 | wire)
    return tag + (varint(payload) if wire == 0 else varint(len(payload)) + payload)


def value_info(name, element, dims):
    """dims: numbers; a text is a symbol."""
    shape = b"".join(field(1, 2, field(2, 2, dim.encode()) if isinstance(dim, str) else
                           field(1, 0, dim)) for dim in dims)
    tensor_type = field(1, 0, element) + field(2, 2, shape)
    return field(1, 2, name.encode()) + field(2, 2, field(1, 2, tensor_type))


def onnx_model(nodes, inputs, outputs, opset=13, initializers=(), extra=None):
    """nodes: (op, domain, name, inputs, outputs); inputs and outputs: (name, element type, dims);
    initializers: messages; extra: fields of a node, by its name."""
    graph = b""
    for op, domain, name, node_in, node_out in nodes:
        node = b"".join(field(1, 2, i.encode()) for i in node_in)
        node += b"".join(field(2, 2, o.encode()) for o in node_out)
        node += field(3, 2, name.encode()) + field(4, 2, op.encode())
        node += (extra or {}).get(name, b"")
        graph += field(1, 2, node + (field(7, 2, domain.encode()) if domain else b""))
    graph += field(2, 2, b"g")
    graph += b"".join(field(5, 2, tensor) for tensor in initializers)
    graph += b"".join(field(11, 2, value_info(*i)) for i in inputs)
    graph += b"".join(field(12, 2, value_info(*o)) for o in outputs)
    imports = field(8, 2, field(2, 0, opset))
    imports += field(8, 2, field(1, 2, b"acme") + field(2, 0, 3))
    return field(1, 0, 8) + field(7, 2, graph) + imports


class ToolTest(unittest.TestCase):
    """A folder per test; IMAGE_TEXT assembled in it on demand."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="davit_cli_", dir=TEMPORARY)
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def image(self, text=IMAGE_TEXT):
        out = self.path("model.davit")
        result = davit("compile", self.path("model.txt", text), "-o", out)
        self.assertEqual(result.code, 0, result.out + result.err)
        return out

    def davit_json(self, *arguments):
        """Runs with --json; returns (result, document)."""
        path = self.path("result.json")
        result = davit(*arguments, "--json", path)
        with open(path, encoding="utf-8") as file:
            return result, json.load(file)

    def check_passed(self, result):
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertEqual(result.last, "PASSED")

    def check_failed(self, result, code, stage, words=""):
        self.assertEqual(result.code, code, result.out + result.err)
        self.assertTrue(result.last.startswith(f"FAILED: {stage}: "), result.last)
        self.assertIn(words, result.last)
