#!/usr/bin/env python3
"""Checks that every header compiles alone; prints what the compiler says about those that do not.

    git ls-files '*.h' | CXX=g++ scripts/check_headers.py [-j N] [include flags]

Nearly all of the time would be spent on the same few large headers. For some of them (hubs) this
script makes a precompiled header, and uses it for the headers that include the hub, directly or
through others. That cannot hide a missing include: what the hub declares is included by such a header
in any case. A hub itself is checked when its precompiled header is made, which includes nothing first.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)
# Relative cost of parsing; a header of the standard library or of ours counts as 1.
WEIGHTS = {"nlohmann/json.hpp": 20, "CLI/CLI.hpp": 30, "doctest/doctest.h": 10, "filesystem": 8, "regex": 15,
           "functional": 5, "thread": 4, "random": 5, "iostream": 4, "algorithm": 4, "string": 4, "memory": 4}
MAX_HUBS = 6  # each takes 50 to 150 MB in the folder for temporary files


def closure(name, known):
    """All that a header includes, directly or through headers of ours; system headers by name."""
    if name not in known:
        known[name] = set()  # ends a cycle
        found = set()
        for ours, system in INCLUDE.findall(Path(name).read_text()):
            if ours and Path(ours).is_file():
                found |= {ours} | closure(ours, known)
            elif system:
                found.add(system)
        known[name] = found
    return known[name]


def choose_hubs(headers, closures):
    """{header: its hub or None}: greedily, the hubs that save most."""
    cost = {name: 1 + sum(WEIGHTS.get(i, 1) for i in closures[name]) for name in headers}
    best = {name: None for name in headers}

    def saved_with(hub):
        return sum(max(0, cost[hub] - (cost[best[name]] if best[name] else 0))
                   for name in headers if hub in closures[name])

    for _ in range(MAX_HUBS):
        hub = max(headers, key=saved_with)
        if saved_with(hub) <= 2 * cost[hub]:  # a precompiled header takes longer to make than to parse
            break
        for name in headers:
            if hub in closures[name] and cost[hub] > (cost[best[name]] if best[name] else 0):
                best[name] = hub
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=os.cpu_count())
    options, flags = parser.parse_known_args()
    headers = sys.stdin.read().split()
    known = {}
    closures = {name: closure(name, known) for name in headers}
    best = choose_hubs(headers, closures)
    hubs = sorted({hub for hub in best.values() if hub})
    # The pragmas of the settings' rows, which switch this warning off, are lost in precompiled headers.
    compiler = os.environ.get("CXX", "g++").split() + ["-std=c++20", "-Wall", "-Wextra",
                                                        "-Wno-missing-field-initializers", *flags]

    def compiles(name, *arguments):
        """What the compiler says about the header; arguments of `-` read a line that includes it."""
        done = subprocess.run([*compiler, *arguments], input=f'#include "{name}"\n', text=True, capture_output=True)
        return done.stdout + done.stderr + (f"{name}: does not compile alone\n" if done.returncode else "")

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.j) as pool:
        stand_ins = {hub: Path(folder) / f"{i}.h" for i, hub in enumerate(hubs)}
        for hub, path in stand_ins.items():
            path.write_text(f'#include "{hub}"\n')
        made = {hub: pool.submit(compiles, hub, "-x", "c++-header", str(path), "-o", f"{path}.gch") for hub, path in stand_ins.items()}

        def check(name):
            if name in made:
                return made[name].result()
            hub = best[name]
            if hub is None or made[hub].result():
                return compiles(name, "-fsyntax-only", "-x", "c++", "-")
            return compiles(name, "-fsyntax-only", "-include", str(stand_ins[hub]), "-x", "c++", "-")

        # Those without a hub first: the precompiled headers are ready by then.
        order = sorted(headers, key=lambda name: best[name] is not None)
        reports = dict(zip(order, pool.map(check, order)))
    found = "".join(reports[name] for name in headers)
    print(found, end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
