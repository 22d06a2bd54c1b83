#!/usr/bin/env python3
"""Holds what ptxas says about kernels against a table of budgets.

    scripts/resource_budgets.py --arch sm_80 --toolkit 13.0.88 --table dev/resources/sm_80.txt \\
        [--update] PTXAS_OUTPUT...

Each PTXAS_OUTPUT is what `nvcc -Xptxas -v` printed and is named for its program. The rules:

- No kernel spills, whatever the table says.
- Registers may grow as long as they cost no warps. Each of a multiprocessor's four schedulers has
  16384 registers, handed out to warps in steps of 8 a thread, and room for 16 warps: a thread with r
  registers leaves room for min(16, 512 / (r rounded up to 8)) warps. The budget is the largest r
  with as much room as the table's.
- Stack and static shared memory do not grow. (Dynamic shared memory is chosen at launch.)
- A kernel that is not in the table has no budget yet, which is an error too.

Compilers allot registers differently: where the table was made by another toolkit, all but spills is
only a warning. Exit codes: 0 good, 1 not, 2 usage.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HOW_TO_UPDATE = "make resources UPDATE=1 rewrites the table"
MOST_REGISTERS = 255


class Usage(NamedTuple):
    registers: int
    spill: int   # bytes stored and loaded
    stack: int   # bytes
    shared: int  # bytes of static shared memory


def budget(registers):
    """The most registers a thread may use so that as many warps fit as with `registers`."""
    def warps(r):
        return min(16, 512 // (8 * ((r + 7) // 8)))
    return max(r for r in range(registers, MOST_REGISTERS + 1) if warps(r) == warps(registers))


# ---- what ptxas says -----------------------------------------------------------------------


def parse_ptxas(text):
    """Mangled name -> Usage, of every kernel in ptxas's verbose output."""
    usages, kernel, stack, spill = {}, None, 0, 0
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '([^']+)'", line):
            kernel, stack, spill = found[1], 0, 0
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spill = int(found[1]), int(found[2]) + int(found[3])
        elif kernel and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            usages[kernel] = Usage(int(found[1]), spill, stack, int(shared[1]) if shared else 0)
            kernel = None
    return usages


def plain_names(mangled):
    """As in the sources: without return type, namespaces and parameters."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    names = []
    for name in text.splitlines():
        name = re.sub(r"^void ", "", name).replace("llmc::", "").replace("(anonymous namespace)::", "")
        names.append(re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)$", "", name))
    return names


def read_reports(paths):
    """(program, kernel) -> Usage."""
    found = {}
    for path in paths:
        usages = parse_ptxas(path.read_text())
        for name, usage in zip(plain_names(usages), usages.values()):
            found[path.name, name] = usage
    return found


# ---- the table -----------------------------------------------------------------------------


def read_table(path):
    """The toolkit that made it, and (program, kernel) -> Usage; None and {} where there is no file."""
    if not path.exists():
        return None, {}
    toolkit, table, program = None, {}, None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found := re.fullmatch(r"# nvcc (\S+)", line):
            toolkit = found[1]
        elif found := re.fullmatch(r"\[(.+)\]", line):
            program = found[1]
        elif found := re.fullmatch(r" *(\d+) +(\d+) +(\d+)  (.+)", line):
            if program is None:
                sys.exit(f"{path}:{number}: a kernel before the first [program]")
            table[program, found[4]] = Usage(int(found[1]), 0, int(found[2]), int(found[3]))
        elif line and not line.startswith("#"):
            sys.exit(f"{path}:{number}: cannot be read: '{line}'; {HOW_TO_UPDATE}")
    if toolkit is None:
        sys.exit(f"{path}: the line '# nvcc VERSION' is missing; {HOW_TO_UPDATE}")
    return toolkit, table


def write_table(path, arch, toolkit, found):
    lines = [f"# What kernels take on {arch}; written by make resources UPDATE=1, judged by",
             "# scripts/resource_budgets.py. Nothing spills.",
             f"# nvcc {toolkit}",
             "# registers, stack B, static shared B, kernel"]
    program = None
    for (source, kernel), usage in sorted(found.items()):
        if source != program:
            program = source
            lines.append(f"[{program}]")
        lines.append(f"{usage.registers:5d} {usage.stack:5d} {usage.shared:6d}  {kernel}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n".join(lines) + "\n")
    os.replace(temporary, path)


# ---- the judgement -------------------------------------------------------------------------


def complaints(usage, allowed):
    """What is wrong with a kernel, spills apart; `allowed` is its line of the table, or None."""
    if allowed is None:
        return [f"is not in the table ({HOW_TO_UPDATE})"]
    wrong = []
    if usage.registers > budget(allowed.registers):
        wrong.append(f"uses {usage.registers} registers, the budget is {budget(allowed.registers)}")
    if usage.stack > allowed.stack:
        wrong.append(f"has a stack of {usage.stack} bytes, the budget is {allowed.stack}")
    if usage.shared > allowed.shared:
        wrong.append(f"has {usage.shared} bytes of static shared memory, the budget is {allowed.shared}")
    return wrong


def show(arch, found, table):
    program = None
    for (source, kernel), usage in sorted(found.items()):
        if source != program:
            program = source
            print(f"{program}, {arch}\n registers  budget  spill B  stack B  shared B  kernel")
        allowed = table.get((source, kernel))
        most = budget(allowed.registers) if allowed else "-"
        print(f"{usage.registers:10d} {most:>7} {usage.spill:8d} {usage.stack:8d} {usage.shared:9d}  {kernel}")


def judge(found, table, same_toolkit):
    """Errors and warnings, a line each."""
    errors, warnings = [], []
    for (program, kernel), usage in sorted(found.items()):
        name = f"{program}: {kernel}"
        if usage.spill > 0:
            errors.append(f"{name} spills {usage.spill} bytes")
        for wrong in complaints(usage, table.get((program, kernel))):
            (errors if same_toolkit else warnings).append(f"{name} {wrong}")
    for program, kernel in sorted(set(table) - set(found)):
        if any(source == program for source, _ in found):
            warnings.append(f"{program}: {kernel} is in the table but was not compiled ({HOW_TO_UPDATE})")
    return errors, warnings


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--arch", required=True)
    parser.add_argument("--toolkit", required=True)
    parser.add_argument("--table", required=True, type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("reports", nargs="+", type=Path)
    arguments = parser.parse_args()
    found = read_reports(arguments.reports)
    if not found:
        print("resource_budgets.py: ptxas reported no kernel", file=sys.stderr)
        return 1
    made_by, table = read_table(arguments.table)
    if arguments.update:
        compiled = {program for program, _ in found}
        kept = {key: usage for key, usage in table.items() if key[0] not in compiled and Path(key[0]).exists()}
        write_table(arguments.table, arguments.arch, arguments.toolkit, {**kept, **found})
        made_by, table = read_table(arguments.table)
    show(arguments.arch, found, table)
    if made_by is None:
        errors, warnings = judge(found, found, True)
        errors.append(f"there is no table {arguments.table} ({HOW_TO_UPDATE})")
    else:
        same_toolkit = made_by == arguments.toolkit
        if not same_toolkit:
            print(f"{arguments.table} is of nvcc {made_by}, this is {arguments.toolkit}: differences are only warnings")
        errors, warnings = judge(found, table, same_toolkit)
    for line in warnings:
        print(f"warning: {arguments.arch}: {line}")
    for line in errors:
        print(f"FAILED {arguments.arch}: {line}")
    if not errors:
        print(f"ok     {arguments.arch}: {len(found)} kernels, no spills" + ("" if warnings else ", all within budget"))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
