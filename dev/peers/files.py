"""Reads and writes the files of both sides of a comparison as NumPy arrays: token files and safetensors."""
import json
import struct

import numpy as np

from token_files import HEADER, MAGIC, VERSION, replace_file

# ---- token files ---------------------------------------------------------------------------


def read_tokens(path):
    """Returns the tokens of a .bin file as a memory-mapped array of 16-bit integers."""
    header = np.fromfile(path, dtype="<i4", count=HEADER)
    if len(header) < HEADER or header[0] != MAGIC or header[1] != VERSION:
        raise SystemExit(f"{path} is not a token file; expected llm.c's .bin, version 1")
    tokens = np.memmap(path, dtype="<u2", mode="r", offset=header.nbytes)
    if len(tokens) != header[2]:
        raise SystemExit(f"{path} has {len(tokens)} tokens, but its header states {header[2]}")
    return tokens


# ---- weights -------------------------------------------------------------------------------


def write_safetensors(path, tensors):
    """Writes `tensors`, a dict of name -> fp32 array."""
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    def write(file):
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            values.astype("<f4", copy=False).tofile(file)
    replace_file(path, write)


def read_safetensors(path):
    """Returns a dict of name -> memory-mapped fp32 array."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {entry['dtype']}; expected F32")
        tensors[name] = np.memmap(path, dtype="<f4", mode="r", offset=8 + length + entry["data_offsets"][0],
                                  shape=tuple(entry["shape"]))
    return tensors
