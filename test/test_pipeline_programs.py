#!/usr/bin/env python3
"""Tests train_gpt2 with pipelines of ranks, which are processes that scripts/run.sh starts.

    python3 test/test_pipeline_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

from runner import expect
from stored_tensors import read_checkpoint
from test_checkpoint_programs import wait_for, with_flags
from test_programs import run_program_tests
from test_rank_programs import (RUN, SECONDS_TO_END, close, environment, expect_equal_runs, expect_interrupted, mpirun,
                                require_mpi, steps)
from test_tensor_programs import MODEL as TWO_LAYERS
from test_tensor_programs import SEQUENCE, expect_equal_logs, write_tasks

MODEL = with_flags(TWO_LAYERS, layers=4)
BATCHES = 8  # micro-batches of a step


class Layout:
    def __init__(self, ranks, tp, pp, zero, *more):
        self.ranks, self.name = ranks, f"{ranks}-{tp}-{pp}-{zero}{''.join(map(str, more))}"
        self.flags = ["--tp", tp, "--pp", pp, "--zero", zero, *more, "--grad-accum", BATCHES * tp * pp // ranks]

    def run(self, program, *arguments, code=0):
        """Returns stdout and stderr."""
        return mpirun(program, self.ranks, *arguments, *self.flags, code=code)


TENSORS, DATA = Layout(4, 2, 2, 1, SEQUENCE), Layout(4, 1, 2, 3)
LAYOUTS = [Layout(2, 1, 2, 0), Layout(3, 1, 3, 0, "--pp-layers", "2,1,1"), TENSORS, DATA,
           Layout(2, 1, 2, 0, "--pp-chunks", 2)]


def write_scores(program, log):
    """Writes the validation losses and the scores of the tasks to a log of their own. Returns its name."""
    lines = [line for line in (program.folder / log).read_text().splitlines(True) if '"loss"' not in line]
    (program.folder / f"{log}.scores").write_text("".join(lines))
    return f"{log}.scores"


def test_pipelines_compute_the_run_of_one_rank(program):
    require_mpi(program)
    # Trained weights predict some words.
    program.run(*with_flags(MODEL, batch_size=8), "--steps", 150, "--lr", 1e-2, "--warmup", 2, "--out", "base")
    run = [*with_flags(MODEL, eval_every=2), *write_tasks(program)[0], "--eval-batches", 5, "--init-from", "base", "--steps", 4,
           "--dropout", 0.1, "--grad-clip", 0.5, "--final-samples-tokens", 60]
    one = program.run(*run, "--grad-accum", BATCHES, "--log", "one", "--final-samples-out", "one.txt").stdout
    for task in ("lambada", "hellaswag"):
        line = [line for line in program.log("one") if line.get("eval") == task][-1]
        expect(0 < line["accuracy"] < 1, line)
    samples = (program.folder / "one.txt").read_bytes()
    expect(len(samples) >= 60, samples)
    for layout in LAYOUTS:
        log = layout.name
        out, messages = layout.run(program, *run, "--verify-every", 1, "--log", log, "--final-samples-out", "ours.txt")
        expect_equal_runs(program, log, "one")
        expect_equal_logs(program, write_scores(program, log), write_scores(program, "one"))
        expect((program.folder / "ours.txt").read_bytes() == samples, f"{log}: other samples")
        expect(re.sub(r"[0-9.]+", "#", out) == re.sub(r"[0-9.]+", "#", one), f"{log}: {out}")
        for text in ("model:", "run:", "done:", "MFU:"):
            expect(messages.count(f"\n{text}") + messages.startswith(text) == 1, f"'{text}' is not there once: {messages}")


def planned_bytes(plan):
    """What the rank that sends the most sends per step, by the keys of the log; of each key separately."""
    parts = {"_tp": ("activations, to tensor ranks", "gradients and norm, to tensor ranks"),
             "_pp": ("activations and their gradients, to pipeline ranks",
                     "gradient of token embeddings, norm and loss, to pipeline ranks"),
             "_dp": ("gradients", "weights", "norm and loss"), "": ("in all",)}
    paragraphs = re.split(r"^.*sends per step:\n", plan, flags=re.M)[1:]
    largest = dict.fromkeys(parts, 0)
    for paragraph in paragraphs:
        lines = {name: int(count) for name, count in re.findall(r"^  (.*): (\d+) bytes", paragraph, re.M)}
        sums = {key: sum(lines.get(name, 0) for name in names) for key, names in parts.items()}
        expect(sums["_tp"] + sums["_pp"] + sums["_dp"] + lines["decisions and times"] == sums[""], paragraph)
        largest = {key: max(count, sums[key]) for key, count in largest.items()}
    return largest, len(paragraphs)


def test_a_step_s_parts_add_up_and_its_bytes_are_those_of_the_dry_run(program):
    require_mpi(program)
    for layout, dtype in ((TENSORS, "bf16"), (DATA, "fp32"), (LAYOUTS[1], "fp32"), (LAYOUTS[4], "bf16")):
        run = [*MODEL, "--steps", 3, "--dtype", dtype]
        layout.run(program, *run, "--log", layout.name)
        planned, paragraphs = planned_bytes(program.run(*run, *layout.flags, "--dry-run", "--ranks", layout.ranks).stdout)
        # With two ranks and two chunks, both ranks send the same.
        expect((paragraphs > 1) == (layout is not LAYOUTS[4]), (layout.name, paragraphs))
        expect(planned["_pp"] > 0 and (planned["_tp"] > 0) == (layout is TENSORS), (layout.name, planned))
        for line in steps(program, layout.name)[1:]:
            parts = [line[f"{part}_ms"] for part in ("fwd", "bwd", "comm", "bubble", "optimizer", "data", "other")]
            expect(close(sum(parts), line["step_ms"], 1e-9) and min(parts) >= 0, line)
            waits = [line[f"comm_ms_{part}"] for part in ("tp", "pp", "dp")]
            expect(close(sum(waits), line["comm_ms"], 1e-9) and min(waits) >= 0, line)
            expect(line["bubble_ms"] > 0 and waits[1] > 0 and (waits[0] > 0) == (layout is TENSORS), line)
            for key, count in planned.items():
                expect(line[f"comm_bytes{key}"] == count, (layout.name, key, count, line))
    program.run(*MODEL, "--steps", 2, "--log", "one")
    for line in steps(program, "one"):
        expect([line[key] for key in ("comm_bytes_pp", "comm_ms_pp", "bubble_ms")] == [0] * 3, line)


# ---- schedules -----------------------------------------------------------------------------


def write_schedule(program, name, rows):
    (program.folder / name).write_text("".join(",".join(row.split()) + "\n" for row in rows))
    return ["--pp-schedule", name]


def losses(program, log):
    return [(line["loss"], line["grad_norm"]) for line in steps(program, log)]


def passes_of(program, schedule):
    """The ranks and passes of a schedule in order."""
    rows = (program.folder / schedule).read_text().splitlines()
    return [[str(rank), cell] for rank, row in enumerate(rows) for cell in row.split(",") if cell]


def measured_passes(program, file):
    """The ranks and passes of a file of measured times in order."""
    rows = [row.split(",") for row in (program.folder / file).read_text().splitlines()]
    expect(rows[0] == ["rank", "pass", "begin_ms", "end_ms"], rows)
    expect(all(0 <= float(begin) <= float(end) for _, _, begin, end in rows[1:]), rows)
    return [row[:2] for row in rows[1:]]


def test_a_dumped_schedule_can_be_run_and_has_measured_times(program):
    require_mpi(program)
    run = [*MODEL, "--steps", 2]
    for layout, stages in ((LAYOUTS[0], 2), (LAYOUTS[4], 4), (TENSORS, 2)):
        name = layout.name
        messages = layout.run(program, *run, "--log", f"{name}-own", "--dump-schedule", f"{name}.csv")[1]
        report = re.findall(r"^schedule: bubble ([0-9.]+)% if all passes take equal time, ([0-9.]+)% measured in step 2, "
                            r"written to (.*) and (.*)$", messages, re.M)
        expect(len(report) == 1 and report[0][2:] == (f"{name}.csv", f"{name}.measured.csv"), messages)
        expect(abs(float(report[0][0]) - 100 / BATCHES / (stages // 2)) < 0.06, report)  # (ranks - 1) / (chunks x batches)
        passes = measured_passes(program, f"{name}.measured.csv")
        expect(passes == passes_of(program, f"{name}.csv") and len(passes) == 2 * stages * BATCHES, passes)
        layout.run(program, *run, "--log", f"{name}-file", "--pp-schedule", f"{name}.csv")
        expect(losses(program, f"{name}-own") == losses(program, f"{name}-file"), f"{name}: other losses")


def test_the_page_of_a_schedule_has_both_timelines(program):
    require_mpi(program)
    layout, page = LAYOUTS[4], program.folder / "page.html"
    dump = [*MODEL, "--steps", 2, "--dump-schedule", "page.html"]
    messages = layout.run(program, *dump)[1]
    computed, measured = re.search(r"schedule: bubble ([0-9.]+%).*, ([0-9.]+%) measured", messages).groups()
    text = page.read_text()
    expect(text.count("<svg") == 2 and text.count("<rect") == 2 * 2 * 4 * BATCHES and "http" not in text, text)
    first, second = text.split("<h2>")[1:]
    expect(first.startswith("Computed: ") and f"bubble {computed}" in first, first[:200])
    expect(second.startswith("Measured: step 2 of the run") and f"bubble {measured}" in second, second[:200])
    page.unlink()
    # Without a run there is only the computed timeline.
    planned = [*layout.flags, "--dry-run", "--ranks", layout.ranks]
    expect(f"bubble {computed} if all passes" in program.run(*dump, *planned).stderr, "the dry run has another bubble")
    text = page.read_text()
    expect(text.count("<svg") == 1 and f"bubble {computed}" in text and "Measured" not in text, text)
    program.run(*with_flags(dump, dump_schedule="plan.csv"), *planned)
    expect(len((program.folder / "plan.csv").read_text().splitlines()) == 2, "not a row per rank")
    expect(not (program.folder / "plan.measured.csv").exists(), "a dry run measures")


def trace_of(program, file):
    """Of a trace: the passes of each process in order, and where its last pass ends, in microseconds."""
    events = json.loads((program.folder / file).read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    passes, ends = {name: [] for name in names.values()}, {}
    for event in events:
        if event["ph"] == "X":
            name, expected = event["name"], "{stage}{kind}{micro_batch}".format(kind=event["cat"][0].upper(), **event["args"])
            expect(name == expected and event["ts"] > ends.get(event["pid"], 0) - 1e-4 and event["dur"] > 0, event)
            passes[names[event["pid"]]].append(name)
            ends[event["pid"]] = event["ts"] + event["dur"]
    return passes, {names[process]: end for process, end in ends.items()}


def test_the_trace_of_a_schedule_has_planned_and_measured_passes(program):
    require_mpi(program)
    layout = LAYOUTS[4]
    dump = [*MODEL, "--steps", 2, "--dump-schedule", "trace.json"]
    messages = layout.run(program, *dump)[1]
    bubbles = re.search(r"schedule: bubble ([0-9.]+)%.*, ([0-9.]+)% measured in step 2, written to trace.json$", messages, re.M)
    passes, ends = trace_of(program, "trace.json")
    kinds = ("planned", "measured")
    expect(list(passes) == [f"rank {rank}, {kind}" for rank in (0, 1) for kind in kinds], list(passes))
    expect(all(len(names) == 4 * BATCHES for names in passes.values()), passes)
    for rank in (0, 1):
        expect(passes[f"rank {rank}, planned"] == passes[f"rank {rank}, measured"], passes)
    # Planned and measured passes have the same busy time, so the bubbles determine the ratio of their durations.
    durations = [max(ends[f"rank {rank}, {kind}"] for rank in (0, 1)) for kind in kinds]
    ratio = (100 + float(bubbles[1])) / (100 + float(bubbles[2]))
    expect(math.isclose(durations[0] / durations[1], ratio, rel_tol=2e-3), f"{durations}, {bubbles.groups()}")
    # Without a run there are only planned passes, each of a millisecond.
    program.run(*with_flags(dump, dump_schedule="plan.json"), *layout.flags, "--dry-run", "--ranks", layout.ranks)
    planned, ends = trace_of(program, "plan.json")
    expect(planned == {name: passes[name] for name in passes if "planned" in name}, planned)
    expect(all(end % 1000 == 0 for end in ends.values()), ends)


def test_a_gpipe_schedule_has_the_losses_of_one_rank(program):
    require_mpi(program)
    gpipe = write_schedule(program, "gpipe.csv", [
        " ".join(f"{stage}{kind}{i}" for kind in "FB" for i in range(BATCHES)) for stage in (0, 1)])
    run = [*MODEL, "--steps", 4, "--dropout", 0.1]
    program.run(*run, "--grad-accum", BATCHES, "--log", "one")
    for layout in (LAYOUTS[0], TENSORS):
        layout.run(program, *run, *gpipe, "--log", layout.name, "--dump-schedule", f"{layout.name}.csv")
        expect_equal_runs(program, layout.name, "one")
        expect(measured_passes(program, f"{layout.name}.measured.csv") == passes_of(program, "gpipe.csv"), "another order")


def test_a_schedule_that_cannot_run_is_refused(program):
    valid = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    bad = {"missing": ([valid[0], "1F0 1B0 1F1"], "rank 1: 1B1 is missing"),
           "order": (["0F0 0B1 0F1 0B0", valid[1]], "rank 0, cell 0B1: a backward pass before its forward pass"),
           "neighbours": ([valid[0], "1F1 1B1 1F0 1B0"],
                          "rank 1, cell 1F1: rank 0 sends the input of 1F0 before"),
           "deadlock": (["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"],
                        "deadlock: rank 0, cell 0B0 waits for 1B0; rank 1, cell 1F1 waits for 0F1"),
           "action": ([valid[0], "1F0 1I0 1F1 1B1"], "rank 1, cell 2: '1I0': action 'I' is not supported"),
           "twice": ([valid[0], "1F0 1F0 1B0 1F1 1B1"], "rank 1, cell 1F0: the pass is there twice")}
    run = [*MODEL, "--steps", 2, "--grad-accum", 2, "--pp", 2]
    program.run(*run, *write_schedule(program, "valid.csv", valid), "--dry-run", "--ranks", 2)
    for name, (rows, text) in bad.items():
        flags = write_schedule(program, f"{name}.csv", rows)
        message = program.run(*run, *flags, "--dry-run", "--ranks", 2, code=1).stderr
        expect(message.count(f"--pp-schedule {name}.csv: ") == 1 and text in message and "hint: " in message, message)
        if name in ("missing", "deadlock"):
            messages = mpirun(program, 2, *run, *flags, code=1)[1]
            expect(messages.count("train_gpt2: ") == messages.count(text) == 1, messages)


# ---- refusals, mesh, checkpoints, signals -----------------------------------------------------


def test_impossible_pipelines_are_refused_with_a_remedy(program):
    few = with_flags(MODEL, layers=3)
    for ranks, arguments, text, hint in (
            (4, [*few, "--pp", 4], "--pp 4 is more than the 3 layers of the model", "use one of 1, 2"),
            (2, [*few, "--pp", 2, "--pp-chunks", 2], "--pp 2 x --pp-chunks 2 are more stages than the 3 layers of the model",
             "use --pp-chunks of at most 1"),
            (2, [*MODEL, "--pp", 2, "--pp-chunks", 2, "--grad-accum", 3],
             "--pp-chunks 2 needs micro-batches that are a multiple of --pp 2; --grad-accum is 3", "such as --grad-accum 4"),
            (3, [*MODEL, "--pp", 2], "--pp 2 does not divide the 3 ranks", "use one of 1, 3"),
            (6, [*MODEL, "--tp", 2, "--pp", 2], "--pp 2 does not divide the 3 tensor groups: 6 ranks / --tp 2",
             "a number of ranks that is a multiple of --tp x --pp = 2 x 2"),
            (2, [*MODEL, "--pp", 2, "--pp-layers", "2,1"], "--pp-layers 2,1 has another sum than the 4 layers of the model",
             "give numbers with this sum")):
        message = program.run(*arguments, "--dry-run", "--ranks", ranks, code=2).stderr
        expect(message.count(text) == 1 and hint in message, message)
        if "--tp" in arguments or "--pp-chunks" in arguments:
            messages = mpirun(program, ranks, *arguments, code=2)[1]
            expect(messages.count("train_gpt2: ") == messages.count(text) == 1 and hint in messages, messages)


MESH_8_2_2 = "".join(
    f"rank {rank}: pipeline rank {p} of 2, replica 0 of 1, shard {shard} of 2, tensor rank {t} of 2; shard group {shards}; "
    f"replica group {rank}; tensor group {tensor}; pipeline group {pipeline}\n"
    for rank, p, shard, t, shards, tensor, pipeline in (
        (0, 0, 0, 0, "0 2", "0 1", "0 4"), (1, 0, 0, 1, "1 3", "0 1", "1 5"), (2, 0, 1, 0, "0 2", "2 3", "2 6"),
        (3, 0, 1, 1, "1 3", "2 3", "3 7"), (4, 1, 0, 0, "4 6", "4 5", "0 4"), (5, 1, 0, 1, "5 7", "4 5", "1 5"),
        (6, 1, 1, 0, "4 6", "6 7", "2 6"), (7, 1, 1, 1, "5 7", "6 7", "3 7")))


def test_the_mesh_is_printed_without_a_run(program):
    mesh = ["--print-mesh", "--tp", 2, "--pp", 2]
    expect(program.run(*mesh, "--ranks", 8).stdout == MESH_8_2_2, "8 ranks planned")
    expect(mpirun(program, 8, *mesh)[0] == MESH_8_2_2, "8 ranks started")


def test_a_checkpoint_resumes_with_other_pipelines(program):
    require_mpi(program)
    run = [*MODEL, "--dropout", 0.1, "--steps", 10]
    program.run(*run, "--grad-accum", BATCHES, "--log", "whole")
    start, resume = [*run, "--out", "run", "--log", "run.jsonl"], ["--out", "run", "--resume"]
    TENSORS.run(program, *start, "--stop-after", 4)
    messages = Layout(4, 1, 4, 0, SEQUENCE + "=false").run(program, *resume, "--stop-after", 2)[1]
    for note in ("--tp was 2, it is 1 now", "--pp was 2, it is 4 now", "--zero was 1, it is 0 now"):
        expect(f"resume: {note}\n" in messages, messages)
    DATA.run(program, *resume, "--stop-after", 2)
    messages = program.run(*resume, "--grad-accum", BATCHES).stderr
    for note in ("--pp was 2, it is 1 now", "--ranks was 4, it is 1 now"):
        expect(f"resume: {note}\n" in messages, messages)
    expect_equal_runs(program, "run.jsonl", "whole")


def test_a_state_that_is_loaded_and_saved_has_the_same_bits(program):
    """The loss scale grows until gradients overflow: such a step changes no tensor."""
    require_mpi(program)
    run = [*MODEL, "--dtype", "fp16", "--loss-scale", 2 ** 19, "--loss-scale-window", 1, "--steps", 6]
    program.run(*run, "--grad-accum", BATCHES, "--log", "whole.jsonl")
    skipped = next(line["step"] for line in steps(program, "whole.jsonl") if line["grad_norm"] is None)
    expect(skipped > 2, f"step {skipped} overflows")
    folder = program.folder
    TENSORS.run(program, *run, "--out", "run", "--stop-after", skipped - 1)
    saved = read_checkpoint(folder / f"run/step_{skipped - 1:06}")
    expect(any(any(data) for name, data in saved.items() if name.startswith("first_moment")), "no moments")
    for layout in (Layout(4, 1, 4, 0, SEQUENCE + "=false"), Layout(4, 1, 2, 3, SEQUENCE + "=false"), Layout(1, 1, 1, 0)):
        shutil.copytree(folder / "run", folder / layout.name, symlinks=True)
        layout.run(program, "--out", layout.name, "--resume", "--stop-after", 1, "--log", layout.name + ".jsonl")
        expect(steps(program, layout.name + ".jsonl")[-1]["grad_norm"] is None, f"step {skipped} does not overflow")
        expect(read_checkpoint(folder / layout.name / f"step_{skipped:06}") == saved, f"{layout.name}: other bits")


def start_with_pid(program, layout, rank, *arguments):
    """Starts ranks without an end; the process of `rank` writes its number to the file pid."""
    script = f'exec 9<&0; if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then echo $$ > pid; fi; exec "$@"'
    return subprocess.Popen([str(word) for word in [
        RUN, "-np", layout.ranks, "bash", "-c", script, "x", program.binary, *MODEL, *layout.flags, "--steps", 10 ** 9,
        *arguments]], cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())


def test_a_signal_ends_pipelines_with_everything_saved(program):
    require_mpi(program)
    for name, layout in (("all", TENSORS), ("one", LAYOUTS[4])):  # the signal is for all ranks, then only for the last
        process = start_with_pid(program, layout, layout.ranks - 1, "--out", name, "--log", name + ".jsonl")
        text = wait_for(process, "step 1/")
        os.kill(process.pid if name == "all" else int((program.folder / "pid").read_text()), signal.SIGTERM)
        expect_interrupted(program, process, name + ".jsonl", text)


def test_a_killed_rank_ends_its_pipeline(program):
    require_mpi(program)
    process = start_with_pid(program, LAYOUTS[1], 1)
    wait_for(process, "step 1/")
    os.kill(int((program.folder / "pid").read_text()), signal.SIGKILL)
    process.communicate(timeout=SECONDS_TO_END)
    expect(process.returncode != 0, "exit code 0")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
