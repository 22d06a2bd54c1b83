"""Reads the tensors of safetensors files and of checkpoints, as bytes."""
import json
import math
import struct
from pathlib import Path


def read_safetensors(path):
    data = Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]]
            for name, t in header.items()}


def copy_slice(part, data, whole):
    """Copies the elements of a slice in a manifest, of four bytes each, to their places in the whole tensor."""
    axes, offset, extent = part.get("view", part["shape"]), part["offset"], part["extent"]
    begin, end = part["range"]
    row = extent[-1]
    for first in range(begin // row * row, end, row):  # rows of the box
        low, high, rest, place, stride = max(first, begin), min(first + row, end), first // row, offset[-1], axes[-1]
        for axis in reversed(range(len(axes) - 1)):
            place += (offset[axis] + rest % extent[axis]) * stride
            rest, stride = rest // extent[axis], stride * axes[axis]
        at = 4 * (place + low - first)
        whole[at:at + 4 * (high - low)] = data[4 * (low - begin):4 * (high - begin)]


def read_checkpoint(folder):
    """The bytes of all tensors of a checkpoint, whatever files and slices have them."""
    tensors = {}
    for file in json.loads((folder / "manifest.json").read_text())["files"]:
        if not file["name"].endswith(".safetensors"):
            continue
        stored = read_safetensors(folder / file["name"])
        for part in file.get("slices", []):
            size = 4 * math.prod(part["shape"])
            copy_slice(part, stored.pop(part.get("stored", part["name"])),
                       tensors.setdefault(part["name"], bytearray(size)))
        tensors |= stored
    return tensors


def same_state(a, b):
    return read_checkpoint(a) == read_checkpoint(b)
