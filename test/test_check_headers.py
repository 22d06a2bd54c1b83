#!/usr/bin/env python3
"""Tests scripts/check_headers.py on small sets of headers, some of which do not compile alone.

    python3 test/test_check_headers.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import os
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from check_headers import Hubs, chains_of, closure  # noqa: E402

USES_VECTOR = "inline std::vector<int> {0}() {{ return {{}}; }}\n"


def write(folder, headers):
    for name, text in headers.items():
        (folder / name).write_text("#pragma once\n" + text)


def check(folder, **headers):
    """Returns (exit code, headers that do not compile alone, standard output)."""
    headers = {f"{name}.h": text for name, text in headers.items()}
    write(folder, headers)
    done = subprocess.run([sys.executable, str(ROOT / "scripts/check_headers.py"), "-I."], cwd=folder, text=True,
                          input="\n".join(headers), capture_output=True, timeout=120)
    expect(done.stderr == "", done.stderr)
    end = ": does not compile alone"
    return done.returncode, [line[:-len(end)] for line in done.stdout.splitlines() if line.endswith(end)], done.stdout


def test_headers_that_compile_alone_pass(folder):
    code, faulty, text = check(folder, a="#include <vector>\n" + USES_VECTOR.format("a"),
                               b='#include "a.h"\n' + USES_VECTOR.format("b"))
    expect(code == 0 and text == "", text)


def test_a_missing_include_is_reported_anywhere_in_a_chain(folder):
    # later.h includes <vector> before bad.h, which lacks it, and last.h includes later.h.
    with_vector = "#include <vector>\n"
    code, faulty, text = check(folder, bad=USES_VECTOR.format("bad"), later=with_vector + '#include "bad.h"\n',
                               last='#include "later.h"\n' + USES_VECTOR.format("last"))
    expect(code == 1 and faulty == ["bad.h"], text)
    expect("vector" in text, f"the compiler's message is not shown: {text}")


def test_a_missing_include_is_reported_among_many_headers(folder):
    # There are enough headers with the same includes that a precompiled header saves time.
    same = "#include <filesystem>\n#include <map>\n#include <string>\n#include <vector>\n"
    headers = {f"h{i}": same + USES_VECTOR.format(f"f{i}") for i in range(12)}
    headers["bad"] = same.replace("#include <map>\n", "") + "inline std::map<int, int> bad() { return {}; }\n"
    write(folder, {f"{name}.h": text for name, text in headers.items()})
    closures = {name: closure(str(folder / f"{name}.h"), {}) for name in headers}
    expect(any(Hubs(closures).choose().values()), "the test needs a precompiled header")
    code, faulty, text = check(folder, **headers)
    expect(faulty == ["bad.h"], text)


def test_warnings_are_reported(folder):
    code, faulty, text = check(folder, a="inline int f(int x) {\n  int unused;\n  return x;\n}\n")
    expect(code == 1 and "unused" in text, text)


def test_chains_and_hubs_have_only_code_that_a_header_includes(folder):
    """On the repository's headers: the code compiled before a header, in its chain or its precompiled hub,
    is only code that the header includes itself. Otherwise it could hide a missing include."""
    os.chdir(ROOT)
    headers = sorted(str(path) for path in Path("llmc").rglob("*.h"))
    known = {}
    closures = {name: closure(name, known) for name in headers}
    expect(len(chains_of(headers, closures)) < len(headers), "no header follows another")
    for chain in chains_of(headers, closures):
        for previous, name in zip(chain, chain[1:]):
            expect(previous in closures[name], f"{name} follows {previous}, which it does not include")
    hubs = Hubs(closures)
    for name, hub in hubs.choose().items():
        expect(set(hubs.includes(hub)) <= closures[name], f"{name} is checked with more than it includes")


def test_conditional_includes_are_ignored(folder):
    write(folder, {"a.h": "#include <map>\n#if X\n#include <set>\n#ifdef Y\n#endif\n#include <list>\n#endif\n#include <array>\n"})
    expect(closure(str(folder / "a.h"), {}) == {"map", "array"}, closure(str(folder / "a.h"), {}))


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:2]))
