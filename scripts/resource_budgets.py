#!/usr/bin/env python3
"""Compares the resources of kernels, as ptxas reports them, with a table of budgets.

    scripts/resource_budgets.py --arch sm_80 --toolkit 13.0.88 --table dev/resources/sm_80.txt \\
        --launches LAUNCHES [--update] [--complete FOLDER] PTXAS_OUTPUT...

Each PTXAS_OUTPUT is the output of `nvcc -Xptxas -v`. A kernel that several of them report counts once, with
the most of each resource. LAUNCHES is the output of dev/launches.cu: the largest block and the most shared
memory of each kernel's launches. Kernels of benchmarks (namespace llmc_dev) are not reported. The rules:

- No kernel spills, whatever the table allows.
- Registers may grow if that costs no warps. Each of a multiprocessor's four schedulers has 16384
  registers, allocated to warps in steps of 8 per thread, and room for 16 warps: a thread with r
  registers leaves room for min(16, 512 / (r rounded up to 8)) warps. The budget is the largest r
  with as much room as the table's.
- Stack and shared memory do not grow.
- A kernel that is not in the table has no budget yet, which is an error too. So is a kernel that is never
  launched, because its block size and its dynamic shared memory are unknown.
- With --complete, every kernel in the sources of FOLDER must have been compiled, and a line of the table whose
  kernel was not compiled gives a warning.

The report also shows how many warps of such blocks fit on a multiprocessor at the same time, of 64.

Compilers allocate registers differently: if another toolkit made the table, only spills and kernels that are
never launched are errors, and everything else is a warning. Exit codes: 0 no errors, 1 errors, 2 wrong
usage.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import standard_output

HOW_TO_UPDATE = "make resources UPDATE=1 rewrites the table"
MAX_REGISTERS = 255
BENCHMARK_PREFIX = "_ZN8llmc_dev"  # of mangled names
KERNEL = re.compile(r"__global__\s+(?:\w+\s+)*?(\w+)\s*\(")


class Usage(NamedTuple):
    registers: int
    spill: int    # bytes stored and loaded
    stack: int    # bytes
    shared: int   # bytes of shared memory, static and dynamic
    threads: int  # threads of the largest block it is launched with; 0: never launched


def scheduler_warps(registers):
    return min(16, 512 // (8 * ((registers + 7) // 8)))


def budget(registers):
    """The maximum registers per thread with which as many warps fit as with `registers`."""
    warps = scheduler_warps(registers)
    return max(r for r in range(registers, MAX_REGISTERS + 1) if scheduler_warps(r) == warps)


def warps_at_once(arch, usage):
    """Warps that fit on a multiprocessor at the same time. A block uses 1 KB of its shared memory in addition
    to what it requests."""
    kilobytes = 228 if arch.startswith("sm_9") else 164
    warps = (usage.threads + 31) // 32
    blocks = min(4 * scheduler_warps(usage.registers) // warps, kilobytes * 1024 // (usage.shared + 1024), 32)
    return blocks * warps


# ---- the output of ptxas -------------------------------------------------------------------


def parse_ptxas(text):
    """{mangled name: Usage} of every kernel in ptxas's verbose output."""
    usages, kernel, stack, spill = {}, None, 0, 0
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            kernel, stack, spill = match[1], 0, 0
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spill = int(match[1]), int(match[2]) + int(match[3])
        elif kernel and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            usages[kernel] = Usage(int(match[1]), spill, stack, int(shared[1]) if shared else 0, 0)
            kernel = None
    return {kernel: usage for kernel, usage in usages.items() if not kernel.startswith(BENCHMARK_PREFIX)}


def parse_launches(text, path):
    """{plain name: (threads of the largest block, most bytes of dynamic shared memory)}."""
    lines = [line.split() for line in text.splitlines()]
    if not lines or any(len(line) != 3 for line in lines):
        sys.exit(f"{path}: expected lines of threads, bytes and a kernel's name")
    largest = {}
    for name, (threads, shared, _) in zip(plain_names([line[2] for line in lines]), lines):
        previous = largest.get(name, (0, 0))
        largest[name] = max(previous[0], int(threads)), max(previous[1], int(shared))
    return largest


def plain_names(mangled):
    """Names as in the sources: without return type, namespaces and parameters."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    names = []
    for name in text.splitlines():
        name = re.sub(r"^void ", "", name).replace("llmc::", "").replace("(anonymous namespace)::", "")
        names.append(re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)$", "", name))
    return names


def most(one, other):
    return Usage(*map(max, one, other))


def read_reports(paths, launches):
    """{kernel: Usage}."""
    all_usages = {}
    for path in paths:
        usages = parse_ptxas(path.read_text())
        for name, usage in zip(plain_names(usages), usages.values()):
            threads, shared = launches.get(name, (0, 0))
            usage = usage._replace(threads=threads, shared=usage.shared + shared)
            all_usages[name] = most(usage, all_usages.get(name, usage))
    return all_usages


# ---- the table -----------------------------------------------------------------------------


class DamagedTable(Exception):
    """A table cannot be read; the text names the line."""


def read_table(path):
    """The toolkit that made the table, and {kernel: Usage}; None and {} if there is no file."""
    if not path.exists():
        return None, {}
    toolkit, table = None, {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := re.fullmatch(r"# nvcc (\S+)", line):
            toolkit = match[1]
        elif match := re.fullmatch(r" *(\d+) +(\d+) +(\d+) +(\d+)  (.+)", line):
            registers, stack, shared, threads = (int(match[i]) for i in range(1, 5))
            table[match[5]] = Usage(registers, 0, stack, shared, threads)
        elif line and not line.startswith("#"):
            raise DamagedTable(f"{path}:{number}: not a line of the table: '{line}'; {HOW_TO_UPDATE}")
    if toolkit is None:
        raise DamagedTable(f"{path}: the line '# nvcc VERSION' is missing; {HOW_TO_UPDATE}")
    return toolkit, table


def write_table(path, arch, toolkit, usages):
    lines = [f"# Resources of kernels on {arch}; written by make resources UPDATE=1, checked by",
             "# scripts/resource_budgets.py. Nothing spills.",
             f"# nvcc {toolkit}",
             "# registers, stack B, shared B, threads of a block, kernel"]
    for kernel, usage in sorted(usages.items()):
        lines.append(f"{usage.registers:5d} {usage.stack:5d} {usage.shared:6d} {usage.threads:5d}  {kernel}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text("\n".join(lines) + "\n")
    os.replace(temporary, path)


# ---- the checks ----------------------------------------------------------------------------


def violations(usage, allowed):
    """The rules that a kernel breaks, except spills; `allowed` is its line of the table, or None."""
    if allowed is None:
        return [f"is not in the table ({HOW_TO_UPDATE})"]
    messages = []
    if usage.registers > budget(allowed.registers):
        messages.append(f"uses {usage.registers} registers, the budget is {budget(allowed.registers)}")
    if usage.stack > allowed.stack:
        messages.append(f"has a stack of {usage.stack} bytes, the budget is {allowed.stack}")
    if usage.shared > allowed.shared:
        messages.append(f"uses {usage.shared} bytes of shared memory, the budget is {allowed.shared}")
    return messages


def print_usages(arch, usages, table):
    print(f"{arch}\n registers  budget  spill B  stack B  shared B  budget  threads  warps of 64  kernel")
    for kernel, usage in sorted(usages.items()):
        allowed = table.get(kernel)
        max_registers = budget(allowed.registers) if allowed else "-"
        shared = allowed.shared if allowed else "-"
        warps = warps_at_once(arch, usage) if usage.threads else "-"
        print(f"{usage.registers:10d} {max_registers:>7} {usage.spill:8d} {usage.stack:8d} {usage.shared:9d} {shared:>7} "
              f"{usage.threads:8d} {warps:>12}  {kernel}")


def judge(usages, table, same_toolkit):
    """Errors and warnings, one line each."""
    errors, warnings = [], []
    for kernel, usage in sorted(usages.items()):
        if usage.spill > 0:
            errors.append(f"{kernel} spills {usage.spill} bytes")
        if usage.threads == 0:
            errors.append(f"{kernel} is never launched by dev/launches.cu; add a case to dev/ops")
        for message in violations(usage, table.get(kernel)):
            (errors if same_toolkit else warnings).append(f"{kernel} {message}")
    return errors, warnings


def kernels_in(folder):
    """{name: file} of the kernels in a folder that GPUs run: those of *_one_thread.h are only for the host."""
    return {name: path for path in sorted(folder.rglob("*"))
            if path.suffix in (".h", ".cu") and not path.stem.endswith("_one_thread")
            for name in KERNEL.findall(re.sub(r"//[^\n]*|__launch_bounds__\([^)]*\)", "", path.read_text()))}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--arch", required=True, help="GPU architecture, such as sm_80")
    parser.add_argument("--toolkit", required=True, help="version of nvcc")
    parser.add_argument("--table", required=True, type=Path, help="table of budgets")
    parser.add_argument("--launches", required=True, type=Path, help="output of dev/launches.cu")
    parser.add_argument("--complete", type=Path, metavar="FOLDER", help="every kernel in FOLDER must have been compiled")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("reports", nargs="+", type=Path, help="output of ptxas, one file per source")
    arguments = parser.parse_args()
    launches = parse_launches(arguments.launches.read_text(), arguments.launches)
    usages = read_reports(arguments.reports, launches)
    if not usages:
        print("resource_budgets.py: ptxas reported no kernel", file=sys.stderr)
        return 1
    try:
        table_toolkit, table = read_table(arguments.table)
    except DamagedTable as error:
        if not arguments.update:
            sys.exit(str(error))
        print(f"{error}: its entries are discarded")
        table_toolkit, table = None, {}
    if arguments.update:
        write_table(arguments.table, arguments.arch, arguments.toolkit, usages)
        table_toolkit, table = read_table(arguments.table)
    print_usages(arguments.arch, usages, table)
    if table_toolkit is None:
        errors, warnings = judge(usages, usages, True)
        errors.append(f"{arguments.table} is missing ({HOW_TO_UPDATE})")
    else:
        same_toolkit = table_toolkit == arguments.toolkit
        if not same_toolkit:
            print(f"{arguments.table} is of nvcc {table_toolkit}, but this is nvcc {arguments.toolkit}: differences are "
                  "only warnings")
        errors, warnings = judge(usages, table, same_toolkit)
    if arguments.complete:
        warnings += [f"{kernel} is in the table but was not compiled ({HOW_TO_UPDATE})" for kernel in sorted(set(table) - set(usages))]
        compiled = {re.split("<", kernel)[0] for kernel in usages}
        errors += [f"{path}: {name} is not compiled by {', '.join(r.name for r in arguments.reports)}; add a case to dev/ops"
                   for name, path in kernels_in(arguments.complete).items() if name not in compiled]
    for line in warnings:
        print(f"warning: {arguments.arch}: {line}")
    for line in errors:
        print(f"FAILED {arguments.arch}: {line}")
    if not errors:
        print(f"ok     {arguments.arch}: {len(usages)} kernels, no spills" + ("" if warnings else ", all within budget"))
    return 1 if errors else 0


if __name__ == "__main__":
    standard_output.run(main)
