#!/usr/bin/env python3
"""Checks the rules of the house that need no compiler, and prints each breach as file:line.

- A folder of llmc/ includes only itself and folders before it in ORDER; so do those within llmc/io.
- No file includes itself, directly or through others.
- Only the mains, llmc/base, llmc/io, llmc/config and llmc/tokenize include the options and JSON
  libraries.
- Outside llmc/device there is no conditional compilation and no raw CUDA (tests may have #ifdef).
- Every header has #pragma once.
- A source file has at most 400 lines, a function at most 80.
"""
import ast
import re
import sys
from pathlib import Path

ORDER = ["base", "device", "ops", "comm", "io", "io/tokenizer", "io/data", "io/checkpoint",
         "config", "tokenize", "model", "parallel", "plan", "infer", "eval", "finetune",
         "train", "serve"]
JSON_FOLDERS = ("base", "io", "config", "tokenize")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 80
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
                yield f"{name}:{number}: llmc/{folder} includes llmc/{other}, which comes after it"
            allowed = folder is not None and folder.split("/")[0] in JSON_FOLDERS
            if OPTIONS_AND_JSON.match(include[1]) and not (allowed or path in mains
                                                           or (parts[0] != "llmc" and path.suffix != ".h")):
                yield f"{name}:{number}: {include[1]} is for mains, base, io, config and tokenize"
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


def include_cycles():
    """Each chain of includes in llmc/ that leads back to its first file."""
    graph = {str(p.relative_to(ROOT)): [m[1] for m in map(INCLUDE.match, p.read_text().splitlines()) if m]
             for p in sources("llmc")}
    done, chain = set(), []

    def visit(name):
        if name in chain:
            yield f"{name}:1: includes itself: {' > '.join(chain[chain.index(name):] + [name])}"
        elif name in graph and name not in done:
            chain.append(name)
            for other in graph[name]:
                yield from visit(other)
            done.add(chain.pop())

    for name in graph:
        yield from visit(name)


def functions(text):
    """(name line, lines) of each outermost function body of C++ text; lambdas belong to theirs."""
    text = without_comments(text)
    depth, body, line, head, head_line = 0, None, 1, "", 1
    for c in text:
        if c == "\n":
            line += 1
        if body is None and c in ";{}":
            opens = c == "{" and re.search(r"\)\s*(const|noexcept|override|final|->[^;{}]*|:[^:].*)*\s*$", head, re.S)
            if opens and not re.match(r"\s*(namespace|enum|struct|class|union|TEST_SUITE)\b", head):
                body = (depth, head_line)
            head = ""
        elif body is None:
            head_line = line if not head.strip() else head_line
            head += c
        depth += (c == "{") - (c == "}")
        if body and c == "}" and depth == body[0]:
            yield body[1], line - body[1] + 1
            body, head = None, ""


def long_parts():
    """Files and functions above the limits."""
    python = sorted(p for folder in ("scripts", "test", "data", "dev") for p in (ROOT / folder).rglob("*.py"))
    for path in list(sources("llmc", "data", "dev", "test")) + sorted(ROOT.glob("*.cu")) + python:
        name, text = path.relative_to(ROOT), path.read_text()
        count = len(text.splitlines())
        if count > MAX_FILE_LINES:
            yield f"{name}:1: {count} lines; at most {MAX_FILE_LINES}"
        if path.suffix == ".py":
            bodies = [(n.lineno, n.end_lineno - n.lineno + 1) for n in ast.walk(ast.parse(text))
                      if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        else:
            bodies = functions(text)
        for line, lines in bodies:
            if lines > MAX_FUNCTION_LINES:
                yield f"{name}:{line}: a function of {lines} lines; at most {MAX_FUNCTION_LINES}"


def main():
    found = [*breaches(), *include_cycles(), *long_parts()]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
