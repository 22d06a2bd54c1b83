#!/usr/bin/env python3
"""Tests the check of `make resources` on synthetic ptxas output. Needs no compiler and no GPU.

    python3 test/test_resources.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
TOOLKIT = "13.0.88"
PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{name}' for 'sm_80'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers{shared}, 400 bytes cmem[0]
"""
# void llmc::gelu_kernel<float>(float*, long), void llmc::fill_kernel<llmc::bf16>(llmc::bf16*)
GELU, FILL = "_ZN4llmc11gelu_kernelIfEEvPT_l", "_ZN4llmc11fill_kernelINS_4bf16EEEvPT_"


def kernel(name, registers=40, stack=0, stores=0, loads=0, shared=0):
    shared_text = f", {shared} bytes smem" if shared else ""
    return PTXAS.format(name=name, registers=registers, stack=stack, stores=stores, loads=loads, shared=shared_text)


LAUNCHES = {GELU: [(128, 0), (256, 0)], FILL: [(32, 0)]}  # threads, bytes of shared memory


class Judge:
    """resource_budgets.py with a table in a folder of its own."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.table = self.folder / "sm_80.txt"

    def run(self, *kernels, toolkit=TOOLKIT, flags=(), launches=LAUNCHES, others=()):
        report, other = self.folder / "train.cu", self.folder / "other.cu"
        report.write_text("".join(kernels))
        other.write_text("".join(others))
        (self.folder / "launches").write_text(
            "".join(f"{threads} {shared} {name}\n" for name in launches for threads, shared in launches[name]))
        done = subprocess.run([sys.executable, str(ROOT / "scripts/resource_budgets.py"), "--arch", "sm_80", "--toolkit",
                               toolkit, "--table", str(self.table), "--launches", str(self.folder / "launches"), *flags, str(report), str(other)],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def update(self, *kernels):
        code, output = self.run(*kernels, flags=["--update"])
        expect(code == 0, f"--update ended with {code}: {output}")

    def passes(self, *kernels, phrases=(), **options):
        code, output = self.run(*kernels, **options)
        expect(code == 0, f"exit code {code}: {output}")
        for part in phrases:
            expect(part in output, f"'{part}' is not in: {output}")

    def fails(self, *kernels, phrases, **options):
        code, output = self.run(*kernels, **options)
        expect(code == 1, f"exit code {code}, not 1: {output}")
        lines = [line for line in output.splitlines() if line.startswith("FAILED")]
        expect(len(lines) == 1, f"not exactly one error: {output}")
        for part in phrases:
            expect(part in lines[0], f"'{part}' is not in: {lines[0]}")


def test_usages_equal_to_the_table_pass(judge):
    kernels = kernel(GELU, 58, stack=16, shared=128), kernel(FILL)
    judge.update(*kernels)
    judge.passes(*kernels, phrases=["gelu_kernel<float>", "fill_kernel<bf16>", "within budget"])


def test_a_spill_fails_even_if_the_table_is_new(judge):
    for spilled in ({"stores": 8}, {"loads": 4}):
        judge.update(kernel(GELU))
        judge.fails(kernel(GELU, **spilled), phrases=["gelu_kernel<float>", "spills"])
    code, _ = judge.run(kernel(GELU, stores=8), flags=["--update"])
    expect(code == 1, "--update accepted a spill")


def test_registers_may_grow_until_fewer_warps_fit(judge):
    # Four schedulers with 16384 registers each, allocated in steps of 8 per thread: 33 to 40 registers
    # allow 12 warps per scheduler, 41 to 48 allow 10.
    for registers, max_registers in ((10, 32), (33, 40), (40, 40), (41, 48), (65, 72), (129, 168), (169, 255), (200, 255)):
        judge.update(kernel(GELU, registers))
        judge.passes(kernel(GELU, max_registers))
        if max_registers < 255:
            judge.fails(kernel(GELU, max_registers + 1),
                        phrases=["gelu_kernel<float>", f"{max_registers + 1} registers", str(max_registers)])


def test_stack_and_shared_memory_must_not_grow(judge):
    judge.update(kernel(GELU, stack=8, shared=128))
    judge.fails(kernel(GELU, stack=16, shared=128), phrases=["gelu_kernel<float>", "stack of 16", "8"])
    judge.fails(kernel(GELU, stack=8, shared=136), phrases=["gelu_kernel<float>", "136 bytes of shared", "128"])
    judge.passes(kernel(GELU, 32))


def test_dynamic_shared_memory_of_launches_counts(judge):
    launched = {GELU: [(256, 1000), (128, 2000)]}
    judge.run(kernel(GELU, 40, shared=100), flags=["--update"], launches=launched)
    expect("   40     0   2100   256  gelu_kernel<float>" in judge.table.read_text(), judge.table.read_text())
    judge.passes(kernel(GELU, 40, shared=100), launches=launched)
    judge.fails(kernel(GELU, 40, shared=100), launches={GELU: [(256, 2001)]}, phrases=["2101 bytes of shared", "2100"])


def test_resident_warps_are_limited_by_registers_threads_and_shared_memory(judge):
    # An sm_80 multiprocessor has 65536 registers, 164 KB of shared memory, and room for 64 warps and 32
    # blocks. Each block takes 1 KB of shared memory in addition to what it requests.
    for registers, threads, shared, warps in ((32, 256, 0, 64), (128, 256, 0, 16), (255, 128, 0, 8), (32, 32, 0, 32),
                                              (32, 128, 80 * 1024, 8), (32, 128, 81 * 1024, 8), (32, 128, 82 * 1024, 4)):
        code, output = judge.run(kernel(GELU, registers), flags=["--update"], launches={GELU: [(threads, shared)]})
        line = next(line for line in output.splitlines() if line.endswith("gelu_kernel<float>"))
        expect(code == 0 and line.split()[-2] == str(warps), f"{warps} warps were expected: {line}")


def test_a_kernel_that_is_never_launched_fails(judge):
    judge.update(kernel(GELU), kernel(FILL))
    judge.fails(kernel(GELU), kernel(FILL), launches={GELU: [(256, 0)]}, phrases=["fill_kernel<bf16>", "never launched"])
    code, output = judge.run(kernel(GELU), launches={})
    expect(code == 1 and "threads, bytes and a kernel's name" in output, output)


def test_a_kernel_without_a_budget_fails(judge):
    judge.update(kernel(GELU))
    judge.fails(kernel(GELU), kernel(FILL), phrases=["fill_kernel<bf16>", "not in the table", "UPDATE=1"])


def test_a_missing_table_is_one_error(judge):
    judge.fails(kernel(GELU), kernel(FILL), phrases=["sm_80.txt is missing", "UPDATE=1"])


def test_with_another_toolkit_only_spills_are_errors(judge):
    judge.update(kernel(GELU))
    judge.passes(kernel(GELU, 90, stack=8), kernel(FILL), toolkit="12.4.131",
                 phrases=["is of nvcc 13.0.88", "warning: sm_80: gelu_kernel<float> uses 90 registers",
                          "warning: sm_80: fill_kernel<bf16> is not in the table"])
    judge.fails(kernel(GELU, 90, stores=8), toolkit="12.4.131", phrases=["spills 8 bytes"])


def test_a_removed_kernel_is_a_warning_if_the_sources_are_complete(judge):
    judge.update(kernel(GELU), kernel(FILL))
    code, output = judge.run(kernel(GELU))
    expect(code == 0 and "was not compiled" not in output, output)
    (judge.folder / "src").mkdir()
    judge.passes(kernel(GELU), flags=["--complete", str(judge.folder / "src")],
                 phrases=["warning: sm_80: fill_kernel<bf16>", "was not compiled"])
    judge.update(kernel(GELU))
    expect("fill_kernel" not in judge.table.read_text(), "--update kept a removed kernel")


def test_every_kernel_of_complete_sources_must_be_compiled(judge):
    sources = judge.folder / "src" / "ops"
    sources.mkdir(parents=True)
    (sources / "gelu.cu").write_text("template <class T>\n__global__ __launch_bounds__(256) void gelu_kernel(T* x) {}\n")
    judge.update(kernel(GELU))
    judge.passes(kernel(GELU), flags=["--complete", str(judge.folder / "src")])
    for name in ("fill.cu", "fill.h"):
        (sources / name).write_text("__global__ void fill_kernel(float* x) {}\n")
        judge.fails(kernel(GELU), flags=["--complete", str(judge.folder / "src")], phrases=[name, "fill_kernel is not compiled"])
        (sources / name).unlink()
    (sources / "fill_one_thread.h").write_text("__global__ void fill_one_thread_kernel(float* x) {}\n")
    judge.passes(kernel(GELU), flags=["--complete", str(judge.folder / "src")])


def test_a_kernel_of_several_sources_counts_once_with_the_most(judge):
    judge.run(kernel(GELU, 40, stack=8), flags=["--update"], others=[kernel(GELU, 48, stores=0)])
    expect(judge.table.read_text().count("gelu_kernel") == 1, judge.table.read_text())
    expect("   48     8      0   256  gelu_kernel<float>" in judge.table.read_text(), judge.table.read_text())
    judge.fails(kernel(GELU, 40, stack=8), others=[kernel(GELU, 49)], phrases=["gelu_kernel<float> uses 49 registers"])
    judge.fails(kernel(GELU), others=[kernel(GELU, 40, loads=4)], phrases=["gelu_kernel<float>", "spills"])


def test_output_without_kernels_and_a_damaged_table_are_errors(judge):
    code, output = judge.run("ptxas info    : 0 bytes gmem\n")
    expect(code == 1 and "no kernel" in output, output)
    judge.update(kernel(GELU))
    judge.table.write_text(judge.table.read_text() + "nonsense\n")
    code, output = judge.run(kernel(GELU))
    expect(code == 1 and "sm_80.txt:6" in output and "nonsense" in output, output)
    judge.update(kernel(GELU))
    judge.passes(kernel(GELU))


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Judge(folder)], *sys.argv[1:2]))
