#!/usr/bin/env python3
"""Checks the project's rules that need no compiler, and prints each violation as file:line.

    scripts/structure.py [ROOT]     (default: the repository of this file)

- A folder of llmc/ includes only itself and folders before it in ORDER; so do those within llmc/io.
- No file includes itself, directly or through other files.
- Only the files of LIBRARY_USERS include the options and JSON libraries, which take seconds to compile.
- Outside llmc/device there is no conditional compilation and no raw CUDA. Exceptions: tests, the GEMM's calls
  of cuBLASLt, and comm/open_world.h, which selects the libraries of communication.
- Above parallel/, no class and no function has a dtype as a template parameter (T or KV): the interfaces in
  infer/ and parallel/ hide it. Exceptions: the files that implement these interfaces.
- Every header has #pragma once.
- The texts in the folders before config name no flags: their errors name quantities. Exception: a model
  card has a command to type.
- A source file has at most 400 lines, a function at most 80. A lambda counts as a part of its function.
  A long block is also reported if function_bodies() classifies it as neither function, scope nor list of
  values. Macros are not measured.
"""
import ast
import re
import sys
from pathlib import Path

import standard_output

ORDER = ["base", "device", "ops", "comm", "control", "io", "io/tokenizer", "io/data", "io/checkpoint",
         "pipeline", "config", "tokenize", "offload", "nn", "models", "parallel", "plan", "quantize", "infer", "eval", "finetune",
         "train", "serve", "instances"]
LIBRARY_USERS = ("llmc/base/json.cpp", "llmc/config/command_line.cpp", "data/toy_language.cpp")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 80
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')
# Selects the libraries of communication that a build has, for both targets alike.
CONDITIONAL_ALLOWED = "llmc/comm/open_world.h"
CONDITIONAL = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b")
# CUDA constructs that have a named wrapper in llmc/device, so that g++ can read every kernel.
RAW_CUDA = re.compile(
    r"<<<|\b(threadIdx|blockIdx|blockDim|gridDim|__shared__|__syncthreads|__syncwarp|asm|atomicAdd"
    r"|__\w+_sync|cuda[A-Z]\w+)\b")
FLAG_IN_TEXT = re.compile(r'"[^"\n]*(?<![\w-])--[a-z]')
FOLDERS_WITHOUT_FLAGS = ("base", "device", "ops", "comm", "io", "pipeline")
DTYPE_PARAMETER = re.compile(r"\btemplate\s*<[^;{]*?\b(?:class|typename)\s+(T|KV)\b")
FOLDERS_WITHOUT_DTYPES = ("plan", "quantize", "infer", "eval", "finetune", "train", "serve")
DTYPE_FILES = ("llmc/infer/model_pass.h", "llmc/infer/generation_engine.h", "llmc/infer/kv_cache.h")
OPTIONS_AND_JSON = re.compile(r"^(CLI/|nlohmann/)")


def sources(root, *folders):
    for folder in folders:
        yield from sorted(p for p in (root / folder).rglob("*") if p.suffix in (".h", ".cu", ".cpp"))


def without_comments(text):
    """The text with comments and string contents blanked, line numbers kept."""
    tokens = (r"//[^\n]*", r"/\*.*?\*/", r'R"([^\s()]*)\(.*?\)\1"', r'"(?:\\.|[^"\\\n])*"', r"'(?:\\.[^'\n]*|[^'\\\n])'")
    return re.sub("|".join(tokens),
                  lambda m: (" " if m[0][0] == "/" else '""') + "\n" * m[0].count("\n"), text, flags=re.S)


def folder_of(path):
    """The folder of llmc/ that contains a path such as llmc/io/data/batches.h, as named in ORDER, or None."""
    parts = Path(path).parts
    if len(parts) < 3 or parts[0] != "llmc":
        return None
    return "/".join(parts[1:-1]) if parts[1] == "io" else parts[1]


def breaches(root):
    mains = sorted(root.glob("*.cu"))
    files = list(sources(root, "llmc", "data", "dev")) + mains
    for path in files + list(sources(root, "test")):
        name = path.relative_to(root)
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
            if OPTIONS_AND_JSON.match(include[1]) and str(name) not in LIBRARY_USERS:
                yield f"{name}:{number}: only {', '.join(LIBRARY_USERS)} include {include[1]}"
        if folder and folder.split("/")[0] in FOLDERS_WITHOUT_FLAGS and path.stem != "model_card":
            for number, line in enumerate(text.splitlines(), 1):
                if FLAG_IN_TEXT.search(line.split("//")[0]):
                    yield f"{name}:{number}: a flag in a text; use quantity() of base/error.h"
        is_program = len(parts) == 1
        if (is_program or folder in FOLDERS_WITHOUT_DTYPES) and str(name) not in DTYPE_FILES:
            for number, line in enumerate(without_comments(text).splitlines(), 1):
                if dtype := DTYPE_PARAMETER.search(line):
                    yield f"{name}:{number}: the template parameter {dtype[1]} above the model; use its interface"
        if folder == "device" or parts[0] == "test":
            continue
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            if CONDITIONAL.match(line) and str(name) != CONDITIONAL_ALLOWED:
                yield f"{name}:{number}: conditional compilation outside llmc/device"
            raw = RAW_CUDA.search(line)
            # The GEMM calls cuBLASLt and uses its stream directly.
            if raw and name.name not in ("gemm_cublaslt.h", "gemm_cublaslt_plan.h"):
                yield f"{name}:{number}: '{raw[0]}' outside llmc/device"


def include_cycles(root):
    """Reports each chain of includes in llmc/ that leads back to its first file."""
    graph = {str(p.relative_to(root)): [m[1] for m in map(INCLUDE.match, p.read_text().splitlines()) if m]
             for p in sources(root, "llmc")}
    visited, chain = set(), []

    def visit(name):
        if name in chain:
            yield f"{name}:1: includes itself: {' > '.join(chain[chain.index(name):] + [name])}"
        elif name in graph and name not in visited:
            chain.append(name)
            for other in graph[name]:
                yield from visit(other)
            visited.add(chain.pop())

    for name in graph:
        yield from visit(name)


SCOPE = re.compile(r'(inline\s+)?namespace\b|extern\s+""\s*$|TEST_SUITE\b|(class|struct|union|enum)\b(?!.*\)$)', re.S)
# Parentheses that do not enclose a function's parameters, and heads that only qualify the rest.
NO_PARAMETERS = re.compile(
    r"\b(alignas|__align__|decltype|noexcept|explicit|requires|__attribute__|__launch_bounds__)\s*\(\)|^\s*(template\s+)+")


def kind_of_block(head):
    """Classifies the block after `head`: "scope", "function" or "values". The head is the text since the last
    statement, without the content of its parentheses and blocks.
    """
    while (shorter := re.sub(r"(?<=\w)\s*<[^<>]*>", " ", head)) != head:  # template arguments, innermost first
        head = shorter
    head = NO_PARAMETERS.sub(" ", re.sub(r"\boperator\s*(\(\)|[^\w\s(]+)", "operator_", head)).strip()
    if SCOPE.match(head):
        return "scope"
    value = re.search(r"=\s*(.*)$", head, re.S)
    if value:
        return "function" if value[1].startswith("[") else "values"  # a lambda with a name is a function
    if "(" not in head:
        return "values"
    # In `X(int a) : a_{a}, b_(2) {` a member's name is followed by its value.
    members = re.search(r"\)[^:]*:(?!:)(.*)$", head, re.S)
    return "values" if members and re.search(r"\w$", members[1].strip()) else "function"


def function_bodies(text):
    """(line, lines, kind) of each outermost block of C++ text that is not a scope. kind: "function", "values",
    "statements" if it is neither, "unbalanced" if the text ends within a block or parentheses.
    """
    text = without_comments(text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)
    head, head_line, line = "", 1, 1
    kind, depth, parentheses = None, 0, 0  # the current block: its kind, its braces; parentheses before it
    for c in text:
        line += c == "\n"
        if kind is not None:
            depth += (c == "{") - (c == "}")
            if c == ";" and kind == "values":
                kind = "statements"
            if depth == 0:
                yield head_line, line - head_line + 1, kind
                head, kind = ("" if kind == "function" else head + "{}"), None
        elif c == "{":
            kind = "values" if parentheses > 0 else kind_of_block(head)
            depth = 1
            if kind == "scope":
                head, kind = "", None
        elif c in "()":
            parentheses += 1 if c == "(" else -1
            if (c, parentheses) in (("(", 1), (")", 0)):
                head += c
        elif parentheses > 0:
            continue
        elif c in ";}" or (c == ":" and head.strip() in ("public", "private", "protected")):
            head = ""
        else:
            head_line = head_line if head.strip() else line
            head += c
    if kind is not None or parentheses != 0:
        yield head_line, 0, "unbalanced"


def python_bodies(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, "function"


def long_parts(root):
    """Reports files and functions above the limits."""
    python = sorted(p for folder in ("scripts", "test", "data", "dev") for p in (root / folder).rglob("*.py"))
    for path in list(sources(root, "llmc", "data", "dev", "test")) + sorted(root.glob("*.cu")) + python:
        name, text = path.relative_to(root), path.read_text()
        count = len(text.splitlines())
        if count > MAX_FILE_LINES:
            yield f"{name}:1: {count} lines; at most {MAX_FILE_LINES}"
        for line, lines, kind in (python_bodies if path.suffix == ".py" else function_bodies)(text):
            if kind == "unbalanced":
                yield f"{name}:{line}: braces or parentheses that do not match: its functions are not measured"
            elif lines > MAX_FUNCTION_LINES and kind == "function":
                yield f"{name}:{line}: a function of {lines} lines; at most {MAX_FUNCTION_LINES}"
            elif lines > MAX_FUNCTION_LINES and kind == "statements":
                yield f"{name}:{line}: {lines} lines with statements outside functions; at most {MAX_FUNCTION_LINES}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    violations = [*breaches(root), *include_cycles(root), *long_parts(root)]
    print("\n".join(violations), end="\n" if violations else "")
    return 1 if violations else 0


if __name__ == "__main__":
    standard_output.run(main)
