#!/usr/bin/env python3
"""Checks that every header compiles alone; prints the compiler's messages about those that do not.

    git ls-files '*.h' | CXX=g++ scripts/check_headers.py [-j N] [include flags]

One compiler call per header would spend nearly all of its time on the same few large headers. So one call
checks a chain of headers, each of which includes the previous one, directly or through others. A chain
begins with a precompiled header of a set of includes (a hub), all of which the first header of the chain
also includes. Neither can hide a missing include: a header includes everything that precedes it.

The compiler stops where the headers end: what follows, the instantiation of templates, takes half of the time,
and the builds of programs and tests check it.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import standard_output

DIRECTIVE = re.compile(r'^\s*#\s*(?:(if|endif)|include\s+(?:"([^"]+)"|<([^>]+)>))', re.M)
# Time to parse, in units of about 20 ms, in addition to what other headers have usually included already.
WEIGHTS = {"nlohmann/json.hpp": 70, "CLI/CLI.hpp": 80, "filesystem": 15, "regex": 25, "string": 15, "memory": 12,
           "chrono": 10, "thread": 10, "random": 10, "functional": 8, "iostream": 6, "algorithm": 6, "fstream": 5,
           "condition_variable": 5}
OURS, SYSTEM = 2, 1  # the weights of all others
LOAD_COST = 6        # the cost of using a precompiled header
MAX_HUBS = 6         # each takes 30 to 150 MB in the folder for temporary files


def closure(name, known):
    """Everything that a header always includes, directly or through headers of ours; system headers by name.

    Conditional includes are excluded, and so are C headers, some of which need a macro first.
    """
    if name not in known:
        known[name] = set()  # ends a cycle
        includes, depth = set(), 0
        for condition, ours, system in DIRECTIVE.findall(Path(name).read_text()):
            if condition:
                depth += 1 if condition.startswith("if") else -1
            elif depth == 0 and ours and Path(ours).is_file():
                includes |= {ours} | closure(ours, known)
            elif depth == 0 and system and not system.endswith(".h"):
                includes.add(system)
        known[name] = includes
    return known[name]


class Hubs:
    """Sets of includes as bits of an integer, and the cost of parsing them."""

    def __init__(self, closures):
        self.names = sorted(set().union(*closures.values()))
        index = {name: i for i, name in enumerate(self.names)}
        self.sets = {name: sum(1 << index[i] for i in includes) for name, includes in closures.items()}
        self.weights = [WEIGHTS.get(n, OURS if Path(n).is_file() else SYSTEM) for n in self.names]
        self.costs = {}

    def cost(self, bits):
        if bits not in self.costs:
            self.costs[bits] = sum(w for i, w in enumerate(self.weights) if bits >> i & 1)
        return self.costs[bits]

    def includes(self, bits):
        return [name for i, name in enumerate(self.names) if bits >> i & 1]

    def choose(self):
        """{header: its hub, or 0}: greedily chooses the hubs that save most."""
        sets = list(self.sets.values())
        candidates = {a & b for a in set(sets) for b in set(sets)} - {0}
        saving = {name: 0 for name in self.sets}
        hub_of = {name: 0 for name in self.sets}

        def gain(hub):
            saved = self.cost(hub) - LOAD_COST
            return sum(saved - saving[n] for n, bits in self.sets.items() if saved > saving[n] and hub & bits == hub)

        for _ in range(MAX_HUBS):
            gains = {hub: gain(hub) for hub in candidates}
            hub = max(gains, key=lambda h: (gains[h], h), default=0)
            if not hub or gains[hub] <= 2 * self.cost(hub):  # precompiling one takes longer than parsing it
                break
            candidates = {h for h in candidates if gains[h] > 2 * self.cost(h)}  # gains only shrink
            for name, bits in self.sets.items():
                if hub & bits == hub and self.cost(hub) - LOAD_COST > saving[name]:
                    saving[name], hub_of[name] = self.cost(hub) - LOAD_COST, hub
        return hub_of


def chains_of(headers, closures):
    """Lists of headers, each of which includes the previous one."""
    chains = []
    for name in sorted(headers, key=lambda n: len(closures[n])):
        candidates = [chain for chain in chains if chain[-1] in closures[name]]
        if candidates:
            max(candidates, key=lambda chain: len(closures[chain[-1]])).append(name)
        else:
            chains.append([name])
    return chains


END = "end of headers"  # the message of the error that stops the compiler


class Checker:
    """Calls the compiler, and makes the precompiled headers for it."""

    def __init__(self, flags, folder):
        # Precompiled headers lose the pragmas that switch this warning off for the settings' rows.
        self.compiler = os.environ.get("CXX", "g++").split() + ["-std=c++20", "-Wall", "-Wextra",
                                                                 "-Wno-missing-field-initializers", *flags]
        self.folder = Path(folder)

    def precompile(self, number, includes):
        """The path of a precompiled header, or None if it does not compile: one of its headers is at fault."""
        path = self.folder / f"{number}.h"
        path.write_text(include_lines(includes))
        done = subprocess.run([*self.compiler, "-x", "c++-header", str(path), "-o", f"{path}.gch"], capture_output=True)
        return None if done.returncode else path

    def compile(self, headers, hub=None):
        """Compiles headers that are included one after the other. Returns the compiler's messages."""
        arguments = ["-fsyntax-only", "-Wfatal-errors", *(["-include", str(hub)] if hub else []), "-x", "c++", "-"]
        text = f'{include_lines(headers)}static_assert(false, "{END}");\n'
        done = subprocess.run([*self.compiler, *arguments], input=text, text=True, capture_output=True)
        messages, end, _ = (done.stdout + done.stderr).partition(f"<stdin>:{len(headers) + 1}:")
        return messages or ("" if end else "the compiler failed without a message\n")

    def check(self, chain, hub):
        """Reports about a chain; each of its headers is tried alone if the chain is not clean."""
        if not self.compile(chain, hub):
            return ""
        reports = [(name, self.compile([name])) for name in chain]
        return "".join(f"{name}: does not compile alone\n{messages}" for name, messages in reports if messages)


def include_lines(names):
    return "".join(f'#include "{name}"\n' for name in names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=os.cpu_count(), metavar="N",
                        help="compiler calls at the same time [number of cores]")
    options, flags = parser.parse_known_args()
    headers = sys.stdin.read().split()
    known = {}
    closures = {name: closure(name, known) for name in headers}
    hubs = Hubs(closures)
    hub_of = hubs.choose()

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.j) as pool:
        checker = Checker(flags, folder)
        # The precompiled headers first: everything else waits for them.
        order = sorted(set(hub_of.values()), key=hubs.cost, reverse=True)
        hub_files = {hub: pool.submit(checker.precompile, i, hubs.includes(hub)) for i, hub in enumerate(order) if hub}
        reports = []
        for hub in order:
            for chain in chains_of([name for name in headers if hub_of[name] == hub], closures):
                reports.append(pool.submit(lambda c=chain, h=hub: checker.check(c, hub_files[h].result() if h else None)))
        output = "".join(report.result() for report in reports)
    print(output, end="")
    return 1 if output else 0


if __name__ == "__main__":
    standard_output.run(main)
