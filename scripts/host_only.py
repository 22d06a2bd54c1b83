#!/usr/bin/env python3
"""Lists every function outside llmc/device that exists only for the host, or only for the GPU.

The claim under test: one source serves both targets. Every header and kernel of the engine and every main is
preprocessed twice, as g++ and as nvcc see it. Only the macro __CUDACC__ selects nvcc's view. The toolkit's
own headers contain none of our functions and are replaced by empty ones, so no toolkit is needed. A line
that only one of the two keeps belongs only to that target.

Only products may differ: the GEMM is a library call on both sides, and the product of inference has loops of its own
on the host. Any other host-only code is an error, and so
are conditional compilation and branches on the target, which could hide a second body.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import standard_output
from structure import CONDITIONAL, CONDITIONAL_ALLOWED, without_comments

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {f"llmc/ops/gemm/{name}.h" for name in ("gemm_host", "gemm_host_rows", "gemm_host_tile", "invariant_gemm_host",
                                                     "invariant_gemm_host_tile")}
TARGET_HEADER = re.compile(r'#define\s+LLMC_\w+_HEADER\s+"([^"]+)"')
MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"')
BRANCH = re.compile(r"\bif\s*(constexpr\s*)?\([^)]*\bkCudaTarget\b")


def translation_units():
    """(name, text) of everything to preprocess: the headers that both targets share, all kernels, each main."""
    target_headers = set(TARGET_HEADER.findall((ROOT / "llmc/device/target.h").read_text()))
    headers = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "llmc").rglob("*.h"))]
    shared = [h for h in headers if h not in target_headers and not h.startswith("llmc/device/")]
    kernels = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "llmc").rglob("*.cu"))]
    text = "".join(f'#include "{h}"\n' for h in ["llmc/device/device.h"] + shared + kernels)
    yield "all headers and kernels of llmc/", text
    for main in sorted(ROOT.glob("*.cu")):
        yield main.name, f'#include "{main.name}"\n'


def preprocess(text, cuda, stubs):
    """The text after preprocessing for one target, with markers of where each line comes from. Empty headers
    replace those of MPI and NCCL, which the machine may not have.
    """
    deps = os.environ.get("DEPS", "")
    includes = ["-I" + str(ROOT)]
    if deps:
        includes += ["-isystem", deps + "/usr/include", "-isystem", deps + "/usr/include/x86_64-linux-gnu",
                     "-isystem", deps + "/usr/include/x86_64-linux-gnu/openblas-pthread"]
    command = os.environ.get("CXX", "g++").split() + ["-std=c++20", "-E", "-x", "c++", *includes]
    command += ["-isystem", stubs] + (["-D__CUDACC__"] if cuda else [])
    while True:
        run = subprocess.run(command + ["-"], input=text, capture_output=True, text=True, cwd=ROOT)
        if run.returncode == 0:
            return run.stdout
        missing = re.search(r"fatal error: ([^:\s]+): No such file", run.stderr)
        stubbed = missing and (missing[1] in ("mpi.h", "nccl.h") or cuda and missing[1].startswith(("cu", "nccl", "nv")))
        if not stubbed:
            sys.exit(f"host_only.py: preprocessing for {'CUDA' if cuda else 'the host'} failed:\n{run.stderr}")
        stub = Path(stubs) / missing[1]
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("")


def code_lines(preprocessed):
    """The set of (file, line) outside llmc/device that carry text after preprocessing."""
    lines, file, number = set(), None, 0
    for line in preprocessed.splitlines():
        marker = MARKER.match(line)
        if marker:
            number, path = int(marker[1]), Path(ROOT, marker[2])
            inside = path.is_relative_to(ROOT) and "<" not in marker[2]
            file = path.relative_to(ROOT).as_posix() if inside else None
            if file is not None and (file.startswith("llmc/device/") or not path.is_file()):
                file = None
            continue
        if file is not None and line.strip():
            lines.add((file, number))
        number += 1
    return lines


def functions(path):
    """(first line, last line, name) of every function defined in a source file.

    A brace opens a function if the text before it, back to the last ; { or }, has a parameter list and the
    scope around it is a namespace, a class or the file.
    """
    code = without_comments(Path(ROOT, path).read_text())
    code = re.sub(r"^[ \t]*#.*?(?<!\\)$", lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.M)
    definitions, scopes, start, parentheses = [], [], 0, 0
    for index, c in enumerate(code):
        if c in "([":
            parentheses += 1
        elif c in ")]":
            parentheses -= 1
        elif parentheses > 0:
            continue
        elif c == ";":
            start = index + 1
        elif c == "{":
            head = " ".join(code[start:index].split())
            outer = all(kind == "scope" for kind, _, _ in scopes)
            plain = re.sub(r"template\s*<[^{]*?>\s*(?=\w)", "", head)
            first_line = code.count("\n", 0, start + len(code[start:index]) - len(code[start:index].lstrip())) + 1
            if outer and re.match(r"(inline )?(namespace|class|struct|union|extern)\b", plain) and ")" not in plain:
                scopes.append(("scope", None, None))
            elif outer and "(" in head and not re.search(r"\benum\b", plain):
                name = re.search(r"(operator\s*[^\s(]+|~?[\w:]+)\s*\(", plain)
                scopes.append(("function", name[1] if name else head, first_line))
            else:
                scopes.append(("other", None, None))
            start = index + 1
        elif c == "}" and scopes:
            kind, name, first_line = scopes.pop()
            if kind == "function":
                definitions.append((first_line, code.count("\n", 0, index) + 1, name))
            start = index + 1
    return definitions


def only_in(lines, other_lines):
    """{file: [(line, function)]} of functions with a line that only the first of two targets keeps."""
    lines_of_file = {}
    for file, number in sorted(lines - other_lines):
        lines_of_file.setdefault(file, set()).add(number)
    result = {}
    for file, numbers in lines_of_file.items():
        hits = [(a, name) for a, b, name in functions(file) if any(a <= n <= b for n in numbers)]
        result[file] = hits or [(min(numbers), "(no function, but lines)")]
    return result


def show(title, listing):
    print(title)
    for file in sorted(listing):
        for number, name in listing[file]:
            print(f"  {file}:{number}: {name}")
    if not listing:
        print("  none")


def suspicious_lines():
    """Lines outside llmc/device where code for one target could hide."""
    for path in sorted([*ROOT.glob("llmc/**/*.h"), *ROOT.glob("llmc/**/*.cu"), *ROOT.glob("*.cu"), *ROOT.glob("dev/**/*.cu")]):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("llmc/device/"):
            continue
        for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
            if CONDITIONAL.match(line) and name != CONDITIONAL_ALLOWED:
                yield f"{name}:{number}: conditional compilation outside llmc/device"
            # A main may choose other defaults per target; the code of the engine may not differ.
            if BRANCH.search(line) and name.startswith("llmc/"):
                yield f"{name}:{number}: a branch on the target outside llmc/device"


def main():
    host, cuda = set(), set()
    with tempfile.TemporaryDirectory() as stubs:
        for name, text in translation_units():
            host |= code_lines(preprocess(text, False, stubs))
            cuda |= code_lines(preprocess(text, True, stubs))
    host_only = only_in(host, cuda)
    show("Functions outside llmc/device that exist only for the host:", host_only)
    show("Functions outside llmc/device that exist only for CUDA:", only_in(cuda, host))
    errors = [f"{file}: host-only code outside the GEMM" for file in sorted(host_only) if file not in ALLOWED]
    errors += suspicious_lines()
    num_shared = len({file for file, _ in host & cuda})
    print(f"{num_shared} files outside llmc/device serve both targets with the same lines.")
    for line in errors:
        print("WRONG " + line)
    return 1 if errors else 0


if __name__ == "__main__":
    standard_output.run(main)
