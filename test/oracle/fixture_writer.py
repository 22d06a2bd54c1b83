"""Writes the fixture format that fixture.h reads: a text header, then raw little-endian data.

    llmc-fixture 1
    text KEY VALUE                                VALUE extends to the end of the line
    number KEY VALUE                              a decimal that parses to the same double
    parameter NAME INDEX AMPLITUDE OFFSET D0 ...  computed by a hash, not stored: see hashed.py
    tensor KEY f64|f32|i32 OFFSET D0 ...          row-major; OFFSET in bytes from the start of the data
    data                                          spaces pad this line: the data starts at a multiple of 64
"""

import numpy as np

DTYPES = {np.dtype("<f8"): "f64", np.dtype("<f4"): "f32", np.dtype("<i4"): "i32"}


class FixtureWriter:
    def __init__(self):
        self.lines = ["llmc-fixture 1"]
        self.blobs = []
        self.size = 0

    def text(self, key, value):
        self.lines.append(f"text {key} {value}")

    def number(self, key, value):
        self.lines.append(f"number {key} {float(value)!r}")

    def parameter(self, name, index, amplitude, offset, shape):
        sizes = " ".join(str(d) for d in shape)
        self.lines.append(f"parameter {name} {index} {amplitude!r} {offset!r} {sizes}")

    def tensor(self, key, array):
        array = np.ascontiguousarray(array)
        shape = " ".join(str(d) for d in array.shape)
        self.lines.append(f"tensor {key} {DTYPES[array.dtype]} {self.size} {shape}")
        blob = array.tobytes()
        self.blobs.append(blob + b"\0" * (-len(blob) % 8))
        self.size += len(self.blobs[-1])

    def save(self, path):
        head = ("\n".join(self.lines) + "\ndata").encode()
        padding = b" " * (-(len(head) + 1) % 64)
        path.write_bytes(head + padding + b"\n" + b"".join(self.blobs))
