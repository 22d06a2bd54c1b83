#!/usr/bin/env python3
"""Checks what keeps the house in order, and prints each breach as file:line.

- A folder of llmc/ includes only itself and folders above it in ORDER; so do those within llmc/io.
- Only the mains and llmc/io include the options and JSON libraries.
- Outside llmc/device there is no conditional compilation and no raw CUDA (tests may have #ifdef).
- Every header has #pragma once.
"""
import re
import sys
from pathlib import Path

ORDER = ["device", "ops", "comm",
         "io", "io/tokenizer", "io/data", "io/tokenize", "io/checkpoint", "io/options",
         "model", "parallel", "infer", "train"]
ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")
# What has a named twin in llmc/device, so that g++ can read every kernel.
RAW_CUDA = re.compile(
    r"<<<|\b(threadIdx|blockIdx|blockDim|gridDim|__shared__|__syncthreads|__syncwarp|asm|atomicAdd"
    r"|__\w+_sync|cuda[A-Z]\w+)\b")
OPTIONS_AND_JSON = re.compile(r"^(CLI/|nlohmann/)")


def sources(*folders):
    for folder in folders:
        yield from sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cu", ".cpp"))


def without_comments(text):
    """The text with comments and string contents blanked, line numbers kept."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
    return token.sub(lambda m: '""' if m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0]), text)


def folder_of(path):
    """The folder of llmc/ a path such as llmc/io/data/batches.h is in, as ORDER has it, or None."""
    parts = Path(path).parts
    if len(parts) < 3 or parts[0] != "llmc":
        return None
    return "/".join(parts[1:-1]) if parts[1] == "io" else parts[1]


def breaches():
    mains = sorted(ROOT.glob("*.cu"))
    files = list(sources("llmc", "data", "dev")) + mains
    for path in files + list(sources("test")):
        name = path.relative_to(ROOT)
        parts = name.parts
        text = path.read_text()
        folder = folder_of(name)
        if folder is not None and folder not in ORDER:
            yield f"{name}:1: llmc/{folder} has no place in the order {' > '.join(ORDER)}"
            folder = None
        if path.suffix == ".h" and "#pragma once" not in text:
            yield f"{name}:1: a header without #pragma once"
        for number, line in enumerate(text.splitlines(), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            other = folder_of(include[1])
            if folder and other in ORDER and ORDER.index(other) > ORDER.index(folder):
                yield f"{name}:{number}: llmc/{folder} includes llmc/{other}, which stands below it"
            in_io = folder is not None and folder.split("/")[0] == "io"
            if OPTIONS_AND_JSON.match(include[1]) and not (in_io or path in mains
                                                           or (parts[0] != "llmc" and path.suffix != ".h")):
                yield f"{name}:{number}: only mains and llmc/io include {include[1]}"
            if parts[0] == "test" and path.suffix == ".cu" and OPTIONS_AND_JSON.match(include[1]):
                yield f"{name}:{number}: kernel tests do not include {include[1]}"
        if folder == "device" or parts[0] == "test":
            continue
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            if CONDITIONAL.match(line):
                yield f"{name}:{number}: conditional compilation outside llmc/device"
            raw = RAW_CUDA.search(line)
            # The GEMM talks to cuBLASLt and to its stream itself.
            if raw and name.name not in ("gemm_cublaslt.h", "gemm_cublaslt_plan.h"):
                yield f"{name}:{number}: '{raw[0]}' outside llmc/device"


def main():
    found = list(breaches())
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
