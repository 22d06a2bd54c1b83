#!/usr/bin/env python3
"""Tests the phases of scripts/gpu_check.sh that generate text: infer and int8, on a simulated GPU.

    python3 test/test_gpu_check_generation.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import sys
import types

from gpu_check_rig import helper, program, run_phase, simulated_machine
from runner import expect, run_tests


def simulated_infer(folder):
    simulated_machine(folder)
    (folder / "scripts/gpu_check/infer_text.py").write_text("print('result: OK    planted')")


def infer(folder, modules="numpy torch", plant="", out="out", phase="infer"):
    """Runs the phase on a simulated machine whose Python has these modules."""
    if not (folder / "scripts").exists():
        simulated_infer(folder)
    program(folder / "bin/python", f"""\
case "$1 $2" in
  "-c import numpy") case "{modules}" in numpy*) exit 0;; *) exit 1;; esac;;
  "-c import numpy, torch"*) case "{modules}" in *torch) echo 2.9; exit 0;; *) exit 1;; esac;;
esac
exec {sys.executable} "$@\"""")
    return run_phase(folder, phase, folder / out, PLANT=plant, PYTHON=str(folder / "bin/python"))


def test_infer_puts_our_times_next_to_those_of_pytorch_and_the_aims(folder):
    code, text = infer(folder)
    expect(code == 0 and text.splitlines()[-1].startswith("passed: phase infer"), text)
    files = sorted(path.name for path in (folder / "out").iterdir())
    expect(len(files) <= 8 and {"speed.json", "speed.txt"} <= set(files), files)
    report = (folder / "out/report.txt").read_text()
    for name, us, joules, aim in (("124M", 196, 64, 196), ("1558M", 1258, 64, 1258)):
        for position in (1, 128, 512, 1023):
            start = f" {name} bf16, batch 1, position {position} "
            words = next(line.split(start)[1] for line in report.splitlines() if start in line).split()
            expect(words == [f"{us}.0", "(0.5)", "75.0", "67.5", f"{joules}.00", "-", "-", f"{1.5 * us:.1f}", "1.50",
                             str(aim)], words)
    expect("failed pytorch, 124M bf16, batch 1, graph: planted" in report and "copy in our processes: 2900" in report, report)
    table = (folder / "out/speed.txt").read_text().splitlines()
    expect(sum("batch" in line and "(0.5)" in line for line in table) == 2 * 2 * 3 * 6, f"{len(table)} lines")
    expect("batch 64, position 1023" in "".join(table) and "batch 64, position 1023" not in report, "the report is too long")


def test_infer_continues_without_pytorch_and_if_a_run_does_not_fit(folder):
    code, text = infer(folder, modules="numpy", plant="memory")
    expect(code == 0 and "not run pytorch" in text and "PyTorch: not run" in text, text)
    expect("not run: ours, 1558M fp32, batch 64: infer_gpt2: the model needs 99 MiB" in text, text)
    code, text = infer(folder, plant="pytorch", out="killed")
    expect(code == 0 and text.count("infer_pytorch.py ended with exit code 1") == 4, text)
    expect("1558M fp32, batch 64, position 512" in text, text)
    code, text = infer(folder, modules="", out="numpy")
    expect(code == 1 and "FAILED at step weights" in text and "cannot import NumPy" in text, text)


def test_infer_fails_if_a_run_of_ours_fails(folder):
    code, text = infer(folder, plant="crash")
    expect(code == 1 and text.splitlines()[-1].startswith("FAILED at step speed: exit code 1"), text)
    expect("FAILED ours, 124M bf16, batch 8: infer_gpt2: an illegal memory access" in text, text)
    report = (folder / "out/report.txt").read_text()
    expect("batch 64, position 512" in report and report.count("us/token") == 1, report)


def test_a_stopped_infer_reports_its_runs(folder):
    simulated_infer(folder)
    script = folder / "scripts/gpu_check.sh"
    script.write_text(script.read_text().replace("step speed 460", "step speed 2"))
    code, text = infer(folder, plant="hang")
    expect(code == 1 and text.splitlines()[-1].startswith("FAILED at step speed: stopped after 2 s"), text)
    expect("124M bf16, batch 1, position 1023" in text and "batch 8" not in text, text)


def test_infer_measures_the_most_important_figures_first(folder):
    variants = helper("variant").variants_of
    jobs = lambda text: [(side, model, str(variant), batch) for side, model, variant, batch
                         in helper("infer_speed").jobs(["124M", "1558M"], variants(text), [1, 8, 64], True)]
    floats = jobs("bf16,fp32")
    expect(floats[:4] == [(side, model, "bf16", 1) for side in ("ours", "pytorch") for model in ("124M", "1558M")], floats)
    expect(len(floats) == len(set(floats)) == 24 and [job[3] for job in floats] == 8 * [1] + 8 * [8] + 8 * [64], floats)
    int8 = jobs("bf16+w8a8,bf16,fp32")
    expect(int8[:6] == [("ours", model, variant, 1) for variant in ("bf16+w8a8", "bf16") for model in ("124M", "1558M")] +
           [("pytorch", model, "bf16", 1) for model in ("124M", "1558M")], int8)
    expect(len(int8) == len(set(int8)) == 30 and not any("w8" in job[2] for job in int8 if job[0] == "pytorch"), int8)


def test_variants_are_flags_of_infer_gpt2(folder):
    parse = helper("variant").Variant.parse
    for text, flags in (("fp32", ["--dtype", "fp32", "--quant", "none"]), ("bf16+w8", ["--dtype", "bf16", "--quant", "w8"]),
                        ("bf16+kv8", ["--dtype", "bf16", "--quant", "none", "--kv-dtype", "int8"]),
                        ("bf16+w8a8+kv8", ["--dtype", "bf16", "--quant", "w8a8", "--kv-dtype", "int8"])):
        expect(parse(text).flags == flags and str(parse(text)) == text, parse(text))
        expect(parse(text).is_quantized == ("+" in text), text)


def test_int8_states_marks_prefill_and_the_gain_against_each_baseline(folder):
    code, text = infer(folder, phase="int8")
    expect(code == 0 and text.splitlines()[-1].startswith("passed: phase int8"), text)
    expect(len(list((folder / "out").iterdir())) <= 8, "too many files")
    report = (folder / "out/report.txt").read_text()
    for line in ("124M bf16+w8a8, batch 1, position 1: 78.4 us/token; "
                 "first mark 167: reached, goal 95: reached, stretch 75: missed",
                 "1558M bf16+w8a8+kv8, batch 1, position 1: 1006.4 us/token; first mark 897: missed, goal 627: missed",
                 "INT8 prefill (bf16+w8a8) is faster than bf16 at 1558M: yes, at all 9 measured sizes: 2.50 times",
                 "bf16+w8a8 against our bf16, tokens: 124M 2-4 (batch 1: 2.50, batch 8: 2.50, batch 64: 2.50); 1558M 2-4 (",
                 "bf16+w8a8 against our fp32, tokens: 124M above 4 (batch 1: 5.00,",
                 "bf16+w8 against our bf16, tokens: 124M below 2 (batch 1: 1.33,",
                 "bf16+w8a8 against PyTorch bf16 compiled, tokens: 124M 2-4 (batch 1: 3.75,",
                 "bf16+w8a8 against PyTorch bf16 eager, tokens: not measured"):
        expect(line in report, f"'{line}' is not in {report}")
    expect("compiled, prompts" not in report, "prompts are eager only")
    table = (folder / "out/speed.txt").read_text().split("times as fast as")[1].splitlines()
    gains = [line.split() for line in table if "batch" in line and not line.startswith("failed")]
    expect(len(gains) == 3 * 2 * 3 * (3 + 4), f"{len(gains)} lines")
    expect(any(line[:6] == ["124M", "bf16+w8a8,", "batch", "64,", "prompt", "1024"] and line[6:8] == ["5.00", "2.50"]
               for line in gains), table)


def test_int8_states_what_is_slower_or_not_measured(folder):
    code, text = infer(folder, phase="int8", modules="numpy", plant="slow prefill")
    expect(code == 0 and "prefill (bf16+w8a8) is faster than bf16 at 1558M: no, 3 of 9 measured sizes are not: "
           "batch 1, prompt 16: 0.83 times; batch 8," in text, text)
    expect("bf16+w8a8 against our bf16, prompts: 124M below 2 to 2-4 (batch 1: 0.83-2.50," in text, text)
    expect("bf16+w8 against PyTorch fp32 compiled, tokens: not measured" in text, text)


def test_int8_that_ends_early_keeps_its_verdicts(folder):
    simulated_infer(folder)
    script = folder / "scripts/gpu_check.sh"
    script.write_text(script.read_text().replace("step speed 460", "step speed 4"))
    code, text = infer(folder, phase="int8", plant="hang")
    expect(code == 1 and text.splitlines()[-1].startswith("FAILED at step speed: stopped after 4 s"), text)
    expect("bf16+w8a8 against our bf16, tokens: 124M 2-4 (batch 1: 2.50)" in text and "batch 8" not in text, text)


def test_int8_stops_at_a_wrong_product(folder):
    code, text = infer(folder, phase="int8", plant="crash:bench_invariant_gemm_int8")
    expect(code == 1 and text.splitlines()[-1].startswith("FAILED at step products: exit code 1"), text)


def test_a_killed_step_is_not_called_a_slow_one(folder):
    code, text = infer(folder, phase="int8", plant="killed:bench_invariant_gemm_int8")
    last = text.splitlines()[-1]
    expect(code == 1 and last.startswith("FAILED at step products: killed, perhaps because memory was short"), text)


def test_greedy_texts_are_compared_with_the_definition(folder):
    sys.modules.setdefault("numpy", types.ModuleType("numpy"))  # the verdict needs none
    infer_text, parse = helper("infer_text"), helper("variant").Variant.parse
    n, prompts = infer_text.TOKENS, len(infer_text.PROMPTS)
    exact, rounded, coarse = map(infer_text.tolerance_of, map(parse, ("fp32+w8", "fp32+w8a8", "bf16+w8a8+kv8")))
    expect(infer_text.tolerance_of(parse("fp32+kv8")) == rounded, "the codes of a cache depend on activations")
    texts = [[(i, -1.0) for i in range(n)]] * prompts

    def scores(count, lead, logprob):
        """Of texts in which the first `count` tokens of each prompt differ."""
        return [[(lead, logprob)] * count + [(0.0, -1.0)] * (n - count)] * prompts

    for expected, tolerance, right in ((scores(0, 0, 0), exact, True), (scores(1, 0.0005, -1.00005), exact, True),
                                       (scores(1, 0.002, -1.0), exact, False), (scores(1, 0.0, -1.0002), exact, False),
                                       (scores(1, float("nan"), float("nan")), coarse, False),
                                       (scores(n // 3, 0.05, -1.05), rounded, True), (scores(n, 0.0, -1.002), rounded, False),
                                       (scores(1, 0.0, -1.2), rounded, False), (scores(1, 0.2, -1.0), rounded, False),
                                       (scores(n, 0.0, -1.02), coarse, True), (scores(n, 0.0, -1.04), coarse, False)):
        good, reason = infer_text.verdict(expected, texts, tolerance)
        expect(good == right, reason)
    good, reason = infer_text.verdict(scores(0, 0, 0), [*texts[:-1], texts[-1][:-1]], exact)
    expect(not good and f"{n - 1} tokens" in reason, reason)


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
