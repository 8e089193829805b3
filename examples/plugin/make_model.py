#!/usr/bin/env python3
"""Writes swish.onnx, the model beside it: y = m * sigmoid(m), m = acme::MovingAverage(x) of four
floats. acme.c has the first operator, and rewrites the other two into acme::Swish.

  make_model.py OUTPUT.onnx

With the package onnx this is helper.make_model(); the bytes are written here, so that nothing needs
to be installed. A protobuf message is a list of fields: number, kind (0: integer, 2: bytes), value.
"""

import sys

FLOAT = 1  # TensorProto.DataType


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def node(op, name, inputs, output, domain="", attributes=b""):
    return (b"".join(field(1, each) for each in inputs) + field(2, output) + field(3, name) +
            field(4, op) + attributes + (field(7, domain) if domain else b""))


def integer_attribute(name, value):
    return field(5, field(1, name) + field(3, value) + field(20, 2))


def tensor(name, extent):
    shape = field(2, field(1, field(1, extent)))
    return field(1, name) + field(2, field(1, field(1, FLOAT) + shape))


def model():
    average = integer_attribute("window", 2)
    graph = (field(1, node("MovingAverage", "average", ["x"], "m", "acme", average)) +
             field(1, node("Sigmoid", "gate", ["m"], "s")) +
             field(1, node("Mul", "swish", ["m", "s"], "y")) + field(2, "swish") +
             field(11, tensor("x", 4)) + field(12, tensor("y", 4)))
    opsets = field(8, field(2, 13)) + field(8, field(1, "acme") + field(2, 1))
    return field(1, 8) + field(7, graph) + opsets


with open(sys.argv[1], "wb") as file:
    file.write(model())
