#!/usr/bin/env python3
"""Tests the verdicts of scripts/gpu_check.sh on synthetic output of the tools it starts, and the GPU
architectures that make builds for.

    python3 test/test_gpu_check.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys

from gpu_check_rig import ROOT, SCRIPT, helper, program, run_phase, simulated_machine
from runner import expect, run_tests

CLEAN = "========= COMPUTE-SANITIZER\nstep 1/3\n========= ERROR SUMMARY: 0 errors\n"
CLEAN_RACES = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void {kernel}(float *)+0x130
=========     by thread (32,0,0) in block (1,0,0)
=========     Address 0x7f2a is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void {kernel}(float *)+0x30
=========     and Read access at void {kernel}(float *)+0x90 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
UNINITIALISED = OUT_OF_BOUNDS.replace("Invalid __global__ write", "Uninitialized __global__ memory read")
OURS, THEIRS = "llmc::activation_forward_kernel<llmc::bf16, llmc::TanhGelu>", "cutlass::Kernel2<cutlass_80_tensorop_gemm>"


def test_sanitizer_output_is_judged_by_reports_and_exit_code(folder):
    judge = helper("sanitize").judge
    cases = [("memcheck", 0, CLEAN, True), ("racecheck", 0, CLEAN_RACES, True),
             ("memcheck", 9, OUT_OF_BOUNDS.format(kernel=OURS), False),
             ("memcheck", 9, OUT_OF_BOUNDS.format(kernel=THEIRS), False),
             ("racecheck", 9, RACE.format(kernel=OURS), False),
             ("racecheck", 0, RACE.format(kernel=OURS).replace("Error: Race", "Warning: Race"), False),
             ("initcheck", 9, UNINITIALISED.format(kernel=OURS), False),
             ("initcheck", 9, UNINITIALISED.format(kernel=THEIRS), True),
             ("initcheck", 9, UNINITIALISED.format(kernel=THEIRS) + UNINITIALISED.format(kernel=OURS), False),
             ("memcheck", 1, CLEAN, False),        # the program failed under memcheck
             ("memcheck", -11, "", False),         # the program crashed
             ("memcheck", 9, CLEAN.replace("0 errors", "3 errors"), False)]
    for tool, code, output, good in cases:
        verdict, text = judge(tool, code, output)
        expect(verdict == good, f"{tool}, exit code {code}: '{text}' for\n{output}")
    good, text = judge("memcheck", 1, "========= Error: Device not supported. Please refer to ...\n")
    expect(good and text.startswith("not run"), text)
    _, text = judge("memcheck", 9, OUT_OF_BOUNDS.format(kernel=OURS))
    expect("Invalid __global__ write of size 4 bytes" in text, text)


def compare(folder, ours, theirs, steps, last):
    for name, losses in (("ours", ours), ("theirs", theirs)):
        lines = [json.dumps({"step": i + 1, "loss": loss}) for i, loss in enumerate(losses)]
        (folder / name).write_text("\n".join(lines + ['{"step": 1, "val_loss": 3.0}']) + "\n")
    done = subprocess.run([sys.executable, str(ROOT / "scripts/gpu_check/losses.py"), str(folder / "ours"),
                           str(folder / "theirs"), "--steps", str(steps), "--last", str(last), "--limit", "0.02",
                           "--out", str(folder / "both.jsonl")], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_losses_must_agree_over_the_last_steps(folder):
    ours = [10.0 - i / 10 for i in range(20)]
    code, text = compare(folder, ours, [loss + (0.5 if i < 10 else 0.019) for i, loss in enumerate(ours)], 20, 10)
    expect(code == 0 and "passed" in text, text)
    lines = [json.loads(line) for line in (folder / "both.jsonl").read_text().splitlines()]
    expect(len(lines) == 20 and lines[19] == {"step": 20, "ours": ours[19], "pytorch": ours[19] + 0.019}, f"{lines}")
    for i, shift in enumerate((0.021, -0.021)):
        code, text = compare(folder, ours, [loss + shift for loss in ours], 20, 10)
        expect(code == 1 and "FAILED" in text, text)


def test_runs_that_end_early_or_learn_nothing_fail(folder):
    ours = [10.0 - i / 10 for i in range(20)]
    for theirs, phrase in ((ours[:19], "PyTorch's run has no finite loss at step 20"),
                           (ours[:9] + [None] + ours[10:], "step 10")):
        code, text = compare(folder, ours, theirs, 20, 10)
        expect(code == 1 and phrase in text, text)
    code, text = compare(folder, [10.0] * 20, [10.0] * 20, 20, 10)
    expect(code == 1 and "our loss did not fall" in text, text)


def value_of(layout, flag):
    return layout.flags[layout.flags.index(flag) + 1] if flag in layout.flags else 1


def test_runs_of_ranks_are_compared_with_one_rank(folder):
    ranks = helper("ranks")
    for gpus, backends in ((1, {"mpi"}), (4, {"mpi", "nccl"})):
        layouts = ranks.layouts(gpus)
        expect({layout.flags[1] for layout in layouts} == backends, [layout.name for layout in layouts])
        for layout in layouts:  # the steps have the samples of one rank
            expect(value_of(layout, "--grad-accum") * layout.ranks ==
                   ranks.BATCHES * value_of(layout, "--tp") * value_of(layout, "--pp"), layout.flags)
        for backend in backends:
            expect({(True, True), (True, False)} <= {("--tp" in layout.flags, "--sequence-parallel" in layout.flags)
                                                     for layout in layouts if backend in layout.flags}, backend)
            expect({1, 2} <= {value_of(layout, "--pp-chunks") for layout in layouts
                              if backend in layout.flags and "--pp" in layout.flags}, backend)
    one = [(4.0, 2.0), (3.0, 1.0)]
    for other, right in (([(4.0, 2.0), (3.0 * (1 + 2e-3), 1.0)], False), ([(4.0, 2.0), (3.0, 1.0 + 2e-3)], True),
                         ([(4.0, 2.0 * (1 + 1e-2)), (3.0, 1.0)], False), ([(4.0, 2.0)], False), (None, False), (one, True)):
        with contextlib.redirect_stdout(None):
            expect(ranks.report("planted", other, one, ranks.TOLERANCE["bf16"]) == right, other)


def test_runs_in_less_memory_must_have_the_bits_of_the_plain_run(folder):
    memory = helper("memory")
    plain = [{"loss": 4.0, "grad_norm": 2.0}, {"loss": 3.0, "grad_norm": 1.0}]

    class Runs:
        text, options = folder / "text.txt", argparse.Namespace(work=folder)

        def __init__(self, planted):
            self.planted = planted

        def steps(self, *arguments):
            return self.planted if "full" in arguments else plain
    for planted, right in ((plain, True), ([plain[0], {"loss": 3.0, "grad_norm": 1.0 + 1e-15}], False), (None, False)):
        with contextlib.redirect_stdout(None):
            expect(memory.check_bits(Runs(planted)) == right, planted)


def test_fine_tuning_must_begin_with_the_loss_of_the_model_and_keep_its_bits(folder):
    finetune = helper("finetune")
    finetune.write_weights = lambda path, sizes: path
    base, plain = ([{"loss": 4.0, "grad_norm": norm}, {"loss": 3.0, "grad_norm": 1.0}] for norm in (2.0, 0.5))
    other_begin, other_end = ([{"loss": first, "grad_norm": 0.5}, {"loss": 3.0, "grad_norm": last}]
                              for first, last in ((4.0001, 1.0), (4.0, 1.0 + 1e-15)))

    class Runs:
        text, options = folder / "text.txt", argparse.Namespace(work=folder)

        def __init__(self, adapted, recomputed):
            self.adapted, self.recomputed = adapted, recomputed

        def steps(self, *arguments):
            if "--lora" not in arguments and "--ia3" not in arguments:
                return base
            return self.recomputed if "--recompute" in arguments else self.adapted
    for adapted, recomputed, right in ((plain, plain, True), (other_begin, other_begin, False), (plain, other_end, False),
                                       (plain, None, False), (None, None, False)):
        with contextlib.redirect_stdout(None):
            expect(finetune.check_bits(Runs(adapted, recomputed)) == right, (adapted, recomputed))
            expect(finetune.check_tasks(Runs(adapted, recomputed)) == (right or adapted is other_begin), (adapted, recomputed))


def start(folder, *arguments, **environment):
    return subprocess.run(["bash", str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


def test_errors_name_the_wrong_argument(folder):
    for arguments, phrase in (((), "phase"), (("nonsense", folder / "out"), "nonsense"), (("correct",), "phase")):
        done = start(folder, *arguments)
        expect(done.returncode == 2 and phrase in done.stderr and "correct" in done.stderr, done.stderr)
    (folder / "old").mkdir()
    (folder / "old/report.txt").write_text("old results")
    done = start(folder, "--dry", "correct", folder / "old")
    expect(done.returncode == 2 and "not empty" in done.stderr, done.stderr)
    expect((folder / "old/report.txt").read_text() == "old results", "results were overwritten")


def test_the_report_states_that_there_is_no_gpu(folder):
    program(folder / "bin/nvidia-smi", "exit 9")
    done = start(folder, "correct", folder / "out", PATH=f"{folder / 'bin'}:{os.environ['PATH']}", COMMIT="abc123")
    last = done.stdout.splitlines()[-1]
    expect(done.returncode == 1 and last.startswith("FAILED at step machine"), done.stdout)
    report = (folder / "out/report.txt").read_text()
    expect("commit:  abc123" in report and report.splitlines()[-1] == last, report)
    program(folder / "bin/git", "exit 128")  # a working tree without its git repository
    done = start(folder, "correct", folder / "no-git", PATH=f"{folder / 'bin'}:{os.environ['PATH']}", COMMIT="")
    expect("commit:  unknown" in done.stdout and "FAILED at step machine" in done.stdout, done.stdout + done.stderr)


# ---- phase profile -------------------------------------------------------------------------


def table_of(text):
    """The names of the compared lines, in the order of the table."""
    return [line.split("  ")[-1].strip() for line in text.splitlines() if re.match(r" *[+-][0-9.]+% ", line)]


def test_profile_lists_a_planted_slow_line_first(folder):
    simulated_machine(folder)
    code, text = run_phase(folder, "profile", folder / "out", PLANT="slow:backward/bias gradient")
    expect(code == 0 and text.splitlines()[-1].startswith("passed: phase profile"), text)
    files = sorted(path.name for path in (folder / "out").iterdir())
    expect(len(files) <= 8 and "comparison.txt" in files, files)
    table = (folder / "out/comparison.txt").read_text()
    first = next(line for line in table.splitlines() if "bias gradients (48)" in line)
    expect(table_of(table)[0].endswith("bias gradients (48)") and first.lstrip().startswith("+200.0% !"), table)
    # Some lines answer several predictions, and the time of the micro-step includes the slow line.
    expect(len(table_of(table)) >= 37 and "not measured" not in table, table)
    expect("linear_backward_weight" in table.split("Plans")[1].split("All measured")[0], table)
    expect(first.strip() in (folder / "out/report.txt").read_text(), "the report lacks the table")


def test_profile_continues_if_a_batch_does_not_fit(folder):
    simulated_machine(folder)
    code, text = run_phase(folder, "profile", folder / "out", PLANT="memory,slow:gelu_backward/used")
    expect(code == 0 and "B64: not run: it does not fit into the device's memory" in text, text)
    expect("not measured: linear forward (48)" in text and "speed, B = 32" in text, text)
    expect(table_of((folder / "out/comparison.txt").read_text())[0].startswith("GELU backward: gelu_backward/used"), text)


def test_profile_stops_at_a_planted_wrong_result(folder):
    simulated_machine(folder)
    for plant, step, phrase in (("bits", "toy-fp32", "two runs differ from step 50 on"),
                                ("weights", "toy-fp32", "differ in model"),
                                ("first", "toy-fp32", "on a CPU it is 5.3584"),
                                ("diverge", "run-B64", "did not fall"),
                                ("nan", "run-B64", "losses"),
                                ("rows", "run-B64-all-rows-speed", "losses differ from those of B64-speed"),
                                ("crash", "run-B64", "exit code 1"),
                                ("unplanted", "planted-faults", "did not report its planted faults"),
                                ("wrong", "bench_activation", "gelu_backward/used 32768x3072 bf16: wrong")):
        code, text = run_phase(folder, "profile", folder / plant, PLANT=plant)
        expect(code == 1 and text.splitlines()[-1].startswith(f"FAILED at step {step}:"), f"{plant}: {text}")
        expect(phrase in text, f"{plant}: '{phrase}' is not in: {text}")
        steps = [json.loads(line)["step"] for line in (folder / plant / "steps.jsonl").read_text().splitlines()]
        expect(steps[-1] == step, f"{plant}: steps after the wrong result: {steps}")
        if step.startswith("bench_"):  # the measurements before the wrong result are compared
            table = (folder / plant / "comparison.txt").read_text()
            expect(len(table_of(table)) > 20 and "WRONG: gelu_backward/used" in table, table)
            expect(not any(line.startswith("GELU backward:") for line in table_of(table)), "a wrong result's time was compared")


def test_a_phase_ends_at_its_time_limit(folder):
    simulated_machine(folder)
    code, text = run_phase(folder, "profile", folder / "out", PHASE_SECONDS="1")
    last = text.splitlines()[-1]
    expect(code == 1 and ("the phase's time limit of 1 s is reached" in last or "stopped after 1 s" in last), text)


def test_programs_built_elsewhere_are_not_built_again(folder):
    simulated_machine(folder)
    program(folder / "bin/make", "exit 7")
    program(folder / "scripts/run_tests.sh", 'echo "3 passed, 0 failed, 0 skipped"')
    program(folder / "build/cuda/train_gpt2", "exit 0")
    code, text = run_phase(folder, "correct", folder / "built", BUILT="1")
    expect("build:   on another machine (BUILT=1)" in text and "3 passed, 0 failed, 0 skipped" in text, text)
    (folder / "build/cuda/train_gpt2").unlink()
    code, text = run_phase(folder, "correct", folder / "missing", BUILT="1")
    expect(code == 1 and text.splitlines()[-1].startswith("FAILED at step build:"), text)
    code, text = run_phase(folder, "correct", folder / "not-built")
    expect(code == 1 and "on another machine" not in text and "exit code 7" in text, text)


def test_the_dry_profile_checks_that_each_prediction_matches_a_line(folder):
    simulated_machine(folder)
    program(folder / "bin/nvidia-smi", "exit 9")
    code, text = run_phase(folder, "profile", "--dry")
    expect(code == 0 and "each matches a line" in text and "a planted slow line is listed first" in text, text)
    code, text = run_phase(folder, "--dry", "profile", folder / "out", PLANT="renamed")
    expect(code == 1 and "no line matches these predictions: linear forward" in text, text)


def test_the_phase_study_keeps_its_runs_for_another_call(folder):
    simulated_machine(folder)
    program(folder / "scripts/study", f"""\
echo "$@" >>"{folder}/calls.txt"
for word; do runs=$word; done
mkdir -p "$runs/logs/run/weights" && touch "$runs/report.html" "$runs/logs/run/weights/large" "$runs/logs/run/log.jsonl"
echo "flash: $runs/flash.md, tables: 3, figures: 2; 1.0 of 2.0 minutes\"""")
    for name in ("first", "second"):
        code, text = run_phase(folder, "study", folder / name, TEXTS="/texts", SENTENCES="/sentences")
        expect(code == 0 and "         flash: 1.0 of 2.0 minutes" in text, text)
        files = sorted(path.name for path in (folder / name).iterdir())
        expect("report.html" in files and "study.tar.gz" in files and len(files) <= 8, f"{files}")
    listed = subprocess.run(["tar", "-tzf", folder / "first/study.tar.gz"], capture_output=True, text=True).stdout
    expect("log.jsonl" in listed and "large" not in listed, listed)
    first, report, *_ = (folder / "calls.txt").read_text().splitlines()
    expect(first.startswith("flash precision batch stack quantize finetune demo --budget ") and "--device cuda" in first
           and "--data /texts --sentences /sentences --out build/gpu_check/study/runs" in first, first)
    expect(report == "report --out build/gpu_check/study/runs", report)


def test_a_benchmark_without_a_checked_line_fails(folder):
    for text, phrase in (("exit 0", "no line was checked"), ("exit 3", "exit code 3")):
        program(folder / "bench_nothing", text)
        done = subprocess.run([sys.executable, str(ROOT / "scripts/gpu_check/profile_steps.py"), "bench", "--out",
                               str(folder / "out.jsonl"), "--", str(folder / "bench_nothing")], capture_output=True, text=True)
        expect(done.returncode == 1 and phrase in done.stdout, done.stdout + done.stderr)


def test_a_wrong_plan_is_never_the_fastest(folder):
    def line(op, variant, us, ok=True):
        return {"type": "result", "ok": ok, "op": op, "variant": variant, "shape": "8x8x8", "dtype": "bf16", "median_us": us,
                "faults": [] if ok else ["wrong"]}

    lines = [line("product", "used", 8.0), line("product", "split_k", 1.0), line("product", "split_k_1", 2.0, ok=False),
             line("product", "split_k_2", 4.0), line("product_1", "split_k", 0.0, ok=False)]
    expect(helper("compare").plan_lines(lines) == ["product 8x8x8 bf16: used 8.0 us, split_k_2 4.0 us (2.000x)"],
           helper("compare").plan_lines(lines))


def test_each_prediction_has_a_unit_and_a_band(folder):
    predictions = json.loads((ROOT / "dev/predictions.json").read_text())["predictions"]
    for p in predictions:
        expect(0 < p["low"] <= p["predicted"] <= p["high"], f"{p['name']}: the prediction is outside its band")
        expect(p["unit"] in ("ms", "tok/s", "GB/s", "TFLOP/s", "%"), f"{p['name']}: unit {p['unit']}")
        expect({"profile": "operations", "run": "field", "roofs": "field", "bench": "lines"}[p["from"]] in p, p)
    keys = [(p["name"], p["from"]) for p in predictions]
    expect(len(set(keys)) == len(keys), "two predictions have the same name")


def test_kernels_are_compiled_for_the_gpu_of_the_machine(folder):
    """The simulated toolkit lists architectures as nvcc does, without suffixes such as the a of sm_90a."""
    program(folder / "toolkit/bin/nvcc", "echo sm_80; echo sm_90")
    (folder / "toolkit/include").mkdir()
    (folder / "toolkit/include/cublasLt.h").write_text("")
    cases = [("8.0", "sm_80", "sm_80"), ("9.0", "sm_90a", "sm_90a"),
             ("10.0", "[compute_80,sm_80]", "[compute_80,sm_80]"),  # newer than the toolkit: the GPU's driver compiles PTX
             ("", "compute_80", "compute_80")]                      # no GPU: PTX, which the driver of any later GPU compiles
    environment = {key: value for key, value in os.environ.items() if key != "CUDA"}  # of `make test CUDA=0`
    for capability, mains, tests in cases:
        program(folder / "bin/nvidia-smi", f"echo {capability}")
        done = subprocess.run(["make", "-n", "--no-print-directory", f"CUDA_HOME={folder / 'toolkit'}", "HOST_BUILD=0",
                               "CUDA_ARCH=", "CUDA_OPTIMIZE=-O1", "build/cuda/train_gpt2", "build/cuda/test/test_activation.cu.o"],
                              cwd=ROOT, text=True, capture_output=True, timeout=120,
                              env={**environment, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "MAKEFLAGS": ""})
        commands = [line for line in done.stdout.splitlines() if "-gencode" in line]
        for source, code in (("train_gpt2.cu", mains), ("test/test_activation.cu", tests)):
            command = next((line for line in commands if f" {source} " in line), done.stderr)
            expect(f"code={code} " in command, f"compute capability '{capability}', {source}: {command}")
            expect((" -O0 " in command) == (capability == "" and source.startswith("test")), command)


def test_libraries_of_an_unpacked_folder_are_passed_to_the_linker(folder):
    """nvcc itself refuses a file called libhwloc.so.15."""
    program(folder / "toolkit/bin/nvcc", "echo sm_90")
    (folder / "toolkit/include").mkdir()
    (folder / "toolkit/include/cublasLt.h").write_text("")
    multiarch = subprocess.run(["g++", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
    libraries = folder / "deps/usr/lib" / multiarch
    (libraries / "openmpi/include").mkdir(parents=True)
    for name in ("openmpi/include/mpi.h", "libhwloc.so.15", "libopen-pal.so.40"):
        (libraries / name).write_text("")
    environment = {key: value for key, value in os.environ.items() if key != "CUDA"}
    done = subprocess.run(["make", "-n", "--no-print-directory", f"CUDA_HOME={folder / 'toolkit'}", f"DEPS={folder / 'deps'}",
                           "HOST_BUILD=0", "build/cuda/train_gpt2"], cwd=ROOT, text=True, capture_output=True, timeout=120,
                          env={**environment, "MAKEFLAGS": ""})
    links = [line for line in done.stdout.splitlines() if line.startswith(str(folder)) and "-lcublasLt" in line]
    expect(len(links) == 1, done.stdout[-2000:] + done.stderr)
    words = links[0].split()
    files = [i for i, word in enumerate(words) if re.search(r"\.so\.\d+$", word)]
    expect(len(files) == 2 and all(words[i - 1] == "-Xlinker" for i in files), links[0])


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
