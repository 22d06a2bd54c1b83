"""Files of a run in a form that can be compared: tensors, token files, JSON, text."""
import array
import json
import re
import struct
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import allowed

TOKEN_FILE_MAGIC = 20240520
_ELEMENT_SIZES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass
class Tensor:
    dtype: str
    shape: list
    data: bytes

    def element_size(self):
        return _ELEMENT_SIZES.get(self.dtype, 1)

    def element(self, index):
        """The element as a Python number; bytes of dtypes that are not in _ELEMENT_SIZES as integers."""
        size = self.element_size()
        piece = self.data[index * size:(index + 1) * size]
        if self.dtype == "BF16":
            return struct.unpack("<f", b"\0\0" + piece)[0]
        return struct.unpack({"F32": "<f", "F16": "<e"}.get(self.dtype, "B"), piece)[0]


def read_safetensors(path):
    """({tensor name: Tensor}, metadata)."""
    data = Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    return {name: Tensor(entry["dtype"], entry["shape"],
                         data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}, metadata


def is_token_file(path):
    with open(path, "rb") as file:
        return path.suffix == ".bin" and file.read(4) == struct.pack("<i", TOKEN_FILE_MAGIC)


def read_token_file(path):
    """(the 256 integers of the header, token ids)."""
    data = Path(path).read_bytes()
    ids = array.array("H")
    ids.frombytes(data[1024:1024 + (len(data) - 1024) // 2 * 2])
    return list(struct.unpack("<256i", data[:1024])), ids


def read_lines(path, file):
    """The lines of a text under the rules of allowed.py for `file`: ignored lines removed, flags renamed,
    parts masked, blocks sorted."""
    text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
    lines = text.removesuffix("\n").split("\n") if text else []
    for pattern, ignored, _ in allowed.IGNORED_LINES:
        if fnmatch(file, pattern):
            lines = [line for line in lines if not re.match(ignored, line)]
    lines = [allowed.with_new_names(line) for line in lines]
    for pattern, part, replacement, _ in allowed.MASKED_PARTS:
        if fnmatch(file, pattern):
            lines = [re.sub(part, replacement, line) for line in lines]
    for pattern, sortable, _ in allowed.SORTED_LINES:
        if fnmatch(file, pattern):
            lines = sort_neighbours(lines, sortable)
    return lines


def sort_neighbours(lines, sortable):
    """Sorts each block of consecutive lines that match `sortable`; the other lines keep their places."""
    result, block = [], []
    for line in lines:
        if re.match(sortable, line):
            block.append(line)
        else:
            result += sorted(block) + [line]
            block = []
    return result + sorted(block)
