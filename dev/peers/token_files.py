"""llm.c's token files (.bin), written without NumPy."""
import os
import sys
from array import array
from pathlib import Path

MAGIC, VERSION, HEADER = 20240520, 1, 256  # HEADER: 32-bit integers before the tokens


def replace_file(path, write):
    """Writes a temporary file with `write(file)`, then renames it to `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
    os.replace(temporary, path)


def little_endian(values):
    if sys.byteorder == "big":
        values.byteswap()
    return values


def write_tokens(path, tokens):
    """Writes a token file; `tokens` are integers below 65536."""
    header = array("i", [MAGIC, VERSION, len(tokens)] + [0] * (HEADER - 3))
    body = array("H", tokens)

    def write(file):
        little_endian(header).tofile(file)
        little_endian(body).tofile(file)
    replace_file(path, write)
