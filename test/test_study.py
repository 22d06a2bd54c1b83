#!/usr/bin/env python3
"""Tests scripts/study on logs that this file makes up: plans, budgets, tables, and marks of runs that went wrong. The
real programs are in test_study_runs.py.

    python3 test/test_study.py [PATTERN]

Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import os
import shutil
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from measured_programs import RunError, Usage  # noqa: E402
from run_view.gnuplot import GnuplotError, find_gnuplot  # noqa: E402
from studies import budget, experiment, figures, machine, runs, table_files, tables  # noqa: E402
from studies.experiments import EXPERIMENTS, common, scaling, strategies  # noqa: E402
from studies.inputs import Shape  # noqa: E402

MACHINE = machine.Machine("host", "Test CPU", [0, 1], 0, "abc1234", "0123456789abcdef")
# The output of --dry-run --ranks 2 --zero 2 --layers 4 --heads 4 --channels 128 --context 64 --vocab-size 4097.
DRY_RUN = """model: 1325952 parameters, fp32
ranks 0 to 1, each:
  weights: 5480448 bytes (5.2 MiB)
  staging: 301312 bytes (0.3 MiB)
  gradients: 2740224 bytes (2.6 MiB)
  gradient buckets: 4931584 bytes (4.7 MiB)
  moments: 5480448 bytes (5.2 MiB)
  in all: 46825728 bytes (44.7 MiB)
each rank sends per step:
  gradients: 2740224 bytes (2.6 MiB)
"""


class FakeInputs:
    """Paths of files that are not read."""
    texts = Path("/texts")

    def tokenizer(self):
        return Path("/inputs/tokenizer")

    def windows(self, count, T):
        return Path(f"/inputs/train-{count}x{T}.bin")

    def validation(self, T):
        return Path(f"/inputs/heldout-{T}.bin")

    def weights(self, shape):
        return Path("/inputs/weights")

    def hash_of(self, path):
        return path.name


class FakeRunner(runs.Runner):
    """Writes the log that a run would have: each rank takes 2 ms per sample, and ranks that communicate take 10 ms more.
    `change(spec, lines)` plants an error; `load(spec)` is that of other programs."""

    def __init__(self, out, change=None, load=None):
        super().__init__(out, MACHINE, runs.Launcher(MACHINE))
        self.change, self.load, self.executed = change or (lambda *_: None), load or (lambda _: 0.0), []

    def _execute(self, spec, folder):
        self.executed.append(spec.label())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        words = list(spec.flags)
        T, data_ranks = 64, spec.ranks if "--tp" not in words and "--pp" not in words else 1
        communication = 10.0 if spec.ranks > 1 else 0.0
        compute = 2.0 * spec.samples / min(spec.ranks, 2)
        lines = [{"step": 0, "run": "started", **({"state_bytes_ranks": "100 90"} if spec.side == "pytorch" else {})}]
        for step in range(1, spec.steps + 1):
            lines.append({"step": step, "loss": 8.0 - 0.01 * step, "grad_norm": 1.0, "tokens": step * spec.samples * T,
                          "epoch": step * spec.samples / 320, "step_ms": compute + communication + spec.repeat,
                          "fwd_ms": 0.3 * compute, "bwd_ms": 0.6 * compute, "recompute_ms": 0.0, "offload_ms": 0.0,
                          "optimizer_ms": 0.1 * compute, "comm_ms": communication, "bubble_ms": 0.0, "data_ms": 0.0,
                          "other_ms": float(spec.repeat), "comm_bytes": 1000, "comm_bytes_dp": 900 + data_ranks,
                          "host_mem_mb_ranks": "50.0 51.5"})
        self.change(spec, lines)
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        (folder / "plan.txt").write_text(plan_text(spec, words), encoding="utf-8")
        return Usage(0.2 + sum(line.get("step_ms", 0) for line in lines) / 1000, 1.0, None), self.load(spec)


def plan_text(spec, words):
    """What --dry-run prints for a run of ours."""
    if spec.side != "ours":
        return ""
    zero = int(words[words.index("--zero") + 1]) if "--zero" in words else 1
    shards = int(words[words.index("--shard-group") + 1]) if "--shard-group" in words else spec.ranks
    elements = strategies.padded_parameters(common.HOST.shape, shards)
    sizes = {"weights": 4 * elements // (shards if zero == 3 else 1), "gradients": 4 * elements // (shards if zero > 1 else 1),
             "moments": 8 * elements // (shards if zero else 1)}
    lines = "".join(f"  {name}: {size} bytes (1.0 MiB)\n" for name, size in {**sizes, "in all": sum(sizes.values())}.items())
    return f"model: 1 parameters, fp32\nranks 0 to {spec.ranks - 1}, each:\n" * (spec.ranks > 1) + "rank 0:\n" * \
        (spec.ranks == 1) + lines


def make_study(folder, peers="", **planted):
    out = folder / "study"
    out.mkdir(exist_ok=True)
    return experiment.Study(out, MACHINE, FakeInputs(), FakeRunner(out, **planted), common.HOST, [1, 2, 4], 3, peers, ["strong"])


def run_experiment(folder, name, minutes=60, **planted):
    """(study, plan, tables) of an experiment on made-up logs."""
    study = make_study(folder, **planted)
    plan = experiment.make_runs(EXPERIMENTS[name], study, budget.Clock(minutes), 60 * minutes)
    return study, plan, experiment.write_results(EXPERIMENTS[name], study.out / name, plan)[0]


def expect_error(kind, part, action):
    try:
        action()
    except kind as error:
        expect(part in str(error), f"the error is {str(error)!r}, without {part!r}")
        return
    raise AssertionError(f"no {kind.__name__}")


def rows_of(table, **cells):
    return [row for row in table.rows if all(row.cells.get(key) == value for key, value in cells.items())]


# ---- machine, runs, budget -------------------------------------------------------------------


def test_more_ranks_than_cores_are_functional(folder):
    expect([MACHINE.evidence(n, 1) for n in (1, 2, 4)] == ["measured", "measured", "functional"], "one core per rank")
    gpu = MACHINE._replace(device="cuda", gpus=1)
    expect([gpu.evidence(n, 1) for n in (1, 2)] == ["measured", "functional"], "ranks that share a GPU")


def test_the_load_meter_sees_other_programs_and_not_its_own_children(folder):
    with machine.LoadMeter() as meter:
        os.system("timeout 0.5 sh -c 'while :; do :; done'")
    load = meter.elsewhere()
    expect(load is None or load < 8, f"load {load}")
    own = machine.own_seconds()
    expect(own > 0, f"{own}")


def test_pin_gives_each_rank_its_cores(folder):
    have = sorted(os.sched_getaffinity(0))
    if len(have) < 2:
        raise Skip("needs two cores")
    for rank, cores, expected in (("0", 1, have[:1]), ("1", 1, have[1:2]), ("2", 1, have[:1]), ("0", 2, have[:2])):
        out = folder / "cores.txt"
        command = f"{runs.PIN} {cores} {','.join(map(str, have[:2]))} {sys.executable} -c " \
                  f"'import os; print(sorted(os.sched_getaffinity(0)))' > {out}"
        code = os.system(f"env OMPI_COMM_WORLD_LOCAL_RANK={rank} sh -c \"{command}\"")
        expect(code == 0 and json.loads(out.read_text()) == expected, f"rank {rank}: {out.read_text()}")


def test_a_run_is_found_again_only_with_equal_settings(folder):
    study = make_study(folder)
    run = common.Training("r", 32, 4, 320)
    spec = common.our_run(study, run)
    first = study.runner.run(spec)
    expect(study.runner.find(spec).folder == first.folder, "the run is not found")
    for other in (run._replace(seed=2), run._replace(layout=("--zero", 1)), run._replace(steps=5), run._replace(repeat=2)):
        expect(study.runner.find(common.our_run(study, other)) is None, f"{other} is taken for another run")
    changed = FakeRunner(study.out)
    changed._machine = MACHINE._replace(program="other")
    expect(changed.find(spec) is None, "another program is taken for the same")


def test_a_budget_drops_steps_then_points_then_repeats(folder):
    sizes = budget.shrunk_sizes([100, 50], [(1, 2), (1,)], 3)
    expect([(size.samples, size.points, size.repeats) for size in sizes] ==
           [(100, (1, 2), 3), (50, (1, 2), 3), (50, (1,), 3), (50, (1,), 2), (50, (1,), 1)], f"{sizes}")


def test_a_small_budget_says_what_it_dropped(folder):
    _, plan, _ = run_experiment(folder, "strong", minutes=0.3)
    expect(plan["size"]["samples"] < 1024 and plan["dropped"], f"{plan['size']}, {plan['dropped']}")
    page = (folder / "study/strong/strong.md").read_text()
    expect("The time allows" in page, "the page does not say what was dropped")


def test_an_interrupted_study_continues(folder):
    study = make_study(folder)
    stop_at = [5]

    class Stopped(FakeRunner):
        def run(self, spec):
            if len(self.executed) == stop_at[0]:
                raise KeyboardInterrupt
            return super().run(spec)
    study.runner = Stopped(study.out)
    for _ in range(2):
        try:
            experiment.make_runs(EXPERIMENTS["weak"], study, budget.Clock(60), 3600)
        except KeyboardInterrupt:
            stop_at[0] = -1
    names = study.runner.executed
    expect(len(names) == len(set(names)) > 5, f"runs were repeated: {names}")


# ---- scaling ---------------------------------------------------------------------------------


def test_strong_scaling_has_the_speed_up_of_the_logs(folder):
    _, _, (times, parts, fit) = run_experiment(folder, "strong")
    two = rows_of(times, ranks=2, batch=64)[0]
    # One rank: 64 x 2 ms, two: 32 x 2 + 10 ms; each and 1, 2, 3 ms by repeat: medians 130 and 76.
    expect(abs(two.cells["speedup"] - 130 / 76) < 1e-9 and two.evidence == "measured", f"{two}")
    expect(abs(two.cells["time"]["median"] - 16 * 0.076) < 1e-9, f"{two.cells['time']}")
    expect(len(two.cells["time"]["values"]) == 3 and two.cells["time"]["min"] < two.cells["time"]["median"], "the spread")
    cost = rows_of(parts, ranks=2, batch=64)[0].cells["cost"]
    expect(abs(cost - 10 / 64) < 1e-9, f"communication / computation is {cost}")
    serial = rows_of(fit, batch=64)[0].cells["serial"]
    expect(abs(serial - (2 * 76 / 130 - 1)) < 1e-9, f"serial fraction {serial}")


def test_functional_rows_have_no_speed_up(folder):
    _, _, (times, *_) = run_experiment(folder, "strong")
    for row in rows_of(times, ranks=4):
        expect(row.evidence == "functional", row.evidence)
        for key in ("speedup", "efficiency", "ddp_speedup", "ratio"):
            expect(row.cells[key] is None and "share cores" in row.why[key], f"{key}: {row.cells[key]}")
    text = (folder / "study/strong/strong-time.svg").read_text() if (folder / "study/strong/strong-time.svg").exists() else ""
    expect(not text or "hatched" in text, "the figure does not explain hatched bars")


def test_the_fit_recovers_a_serial_fraction(folder):
    points = [(n, 1 / (0.07 + 0.93 / n)) for n in (1, 2, 4, 8)]
    expect(abs(scaling.serial_fraction(points) - 0.07) < 1e-12, "serial fraction")
    expect(scaling.serial_fraction([(1, 1.0)]) is None, "one rank has no serial fraction")


def test_weak_scaling_keeps_the_batch_of_a_rank(folder):
    _, _, (times, _) = run_experiment(folder, "weak")
    expect([(row.cells["ranks"], row.cells["batch"]) for row in times.rows[:3]] == [(1, 32), (2, 64), (4, 128)], "batches")
    two = rows_of(times, ranks=2, batch=64)[0]
    expect(abs(two.cells["efficiency"] - 66 / 76) < 1e-9, f"{two.cells['efficiency']}")


# ---- strategies ------------------------------------------------------------------------------


def test_state_follows_the_formulae_of_zero(folder):
    rank = strategies.planned_segments(DRY_RUN)
    expect(len(rank) == 2 and rank[1]["moments"] == 5480448, f"{rank}")
    zero2 = next(one for one in strategies.our_strategies(2) if one.name == "zero2")
    state = sum(rank[0].get(name, 0) for name in strategies.STATE_SEGMENTS)
    expect(strategies.state_formula(Shape(4, 4, 128, 64), zero2) == state, "the formula is not the plan of the program")
    _, _, (table,) = run_experiment(folder, "strategies")
    states = {row.cells["strategy"]: row.cells["state"] for row in table.rows}
    falling = [states[name] for name in ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")]
    expect(falling == sorted(falling, reverse=True) and len(set(falling)) == 4, f"{falling}")
    expect(not table.problems and "equal" in table.notes[2], f"{table.problems}, {table.notes}")


def test_another_seed_for_one_strategy_is_marked(folder):
    def change(spec, lines):
        for line in lines:
            if spec.name == "strategy-zero2" and "loss" in line:
                line["loss"] += 1e-3
    _, _, (table,) = run_experiment(folder, "strategies", change=change)
    expect(len(table.problems) == 1 and table.problems[0].startswith("ZeRO-2: a loss differs"), f"{table.problems}")
    expect("MARKED" in (folder / "study/strategies/strategies.md").read_text(), "the page has no mark")


def test_a_halved_batch_is_marked(folder):
    def change(spec, lines):
        for line in lines:
            if spec.name == scaling.ours(2, 64) and "tokens" in line:
                line["tokens"] //= 2
    _, _, (times, *_) = run_experiment(folder, "strong", change=change)
    expect(len(times.problems) == 3 and "2 ranks, batch 64, repeat 1" in times.problems[0], f"{times.problems}")


def test_a_busy_machine_is_marked_and_its_run_repeated(folder):
    busy = scaling.ours(2, 64)
    study, _, (times, *_) = run_experiment(folder, "strong", load=lambda spec: 0.9 * (spec.name == busy))
    expect([row.cells["ranks"] for row in times.rows if row.busy and row.cells["batch"] == 64] == [2], "the marked rows")
    again = study.runner.executed.count(f"{busy}, repeat 1")
    expect(again == 2, f"the run was made {again} times")
    expect("| busy |" in (folder / "study/strong/strong.md").read_text(), "the page has no column for it")


def test_a_peer_that_cannot_run_says_why(folder):
    def change(spec, lines):
        if spec.name.startswith("pytorch-ddp2"):
            raise RunError("no module named gloo")
    _, _, (times, *_) = run_experiment(folder, "strong", change=change)
    row = rows_of(times, ranks=2, batch=64)[0]
    expect(row.cells["ddp"] is None and "gloo" in row.why["ddp"] and row.cells["speedup"], f"{row}")
    page = (folder / "study/strong/strong.md").read_text()
    expect("no module named gloo" in page, "the page does not say why")


# ---- tables ----------------------------------------------------------------------------------


def sample_table():
    row = tables.Row({"a": 1, "b": {"median": 2.0, "min": 1.5, "max": 2.5, "values": [1.5, 2.0, 2.5]}}, "measured", 1)
    empty = tables.Row({"a": 2, "b": None}, "functional", 1, why={"b": "cores are shared"})
    return tables.Table("t", "A_title", [tables.Column("a", "a"), tables.Column("b", "b, s", tables.TIMED, 2)], [row, empty],
                        "CPU", "abc", ["A note."])


def test_a_table_has_the_same_numbers_in_all_forms(folder):
    table = sample_table()
    text = table_files.markdown(table)
    expect("| 1 | 2.00 (1.50–2.50) | measured | 1 |" in text and "| 2 | — [1] | functional | 1 |" in text, text)
    expect("- [1] cores are shared\n- A note." in text, text)
    expect(table_files.csv_text(table).splitlines() ==
           ["a,b,b_min,b_max,evidence,seed,device,commit", "1,2.0,1.5,2.5,measured,1,CPU,abc",
            "2,,,,functional,1,CPU,abc"], table_files.csv_text(table))
    latex = table_files.latex(table)
    for part in (r"\toprule", r"\label{tab:t}", r"A\_title. CPU, commit abc; evidence: measured, functional.",
                 r"1 & 2.00 (1.50--2.50) & measured & 1 \\", r"---\textsuperscript{1}"):
        expect(part in latex, f"no {part!r} in {latex}")
    exact = table_files.exact_part(table_files.json_value(table))
    expect(exact == [{"a": 1, "seed": 1}, {"a": 2, "seed": 1}], f"{exact}")


def test_tables_come_from_logs_alone(folder):
    study, plan, _ = run_experiment(folder, "strong")
    written = {path.name: path.read_bytes() for path in (study.out / "strong").iterdir() if path.suffix in (".md", ".csv", ".json",
                                                                                                        ".tex")}
    copy = folder / "elsewhere"
    shutil.copytree(study.out / "logs", copy / "logs")
    (copy / "strong").mkdir()
    shutil.copy(study.out / "strong/plan.json", copy / "strong")
    code = os.system(f"{sys.executable} {ROOT}/scripts/study tables {copy}/strong > {folder}/out.txt")
    expect(code == 0, "study tables failed")
    for name, content in written.items():
        expect((copy / "strong" / name).read_bytes() == content, f"{name} differs")
    log = copy / "logs" / plan["runs"][0]["folder"] / "log.jsonl"
    log.write_text(log.read_text().replace('"step_ms": 1', '"step_ms": 9'))
    os.system(f"{sys.executable} {ROOT}/scripts/study tables {copy}/strong > {folder}/out.txt")
    expect((copy / "strong/strong.csv").read_bytes() != written["strong.csv"], "a changed log changes no table")


def test_an_exact_number_that_differs_is_an_error(folder):
    def change(spec, lines):
        lines[-1]["comm_bytes_dp"] += spec.repeat
    expect_error(RunError, "must be exact", lambda: run_experiment(folder, "strong", change=change))


def test_figures_are_drawn_in_three_formats(folder):
    try:
        find_gnuplot()
    except GnuplotError as error:
        raise Skip(str(error).splitlines()[0])
    bars = figures.Bars("bars", "Title's \"bars\"", "s", ["one", "two"], [("a_b", [1.0, 2.0], False), ("c", [2.0, 1.0], True)])
    curves = figures.Curves("curves", "T", "x", "y", [figures.Curve("a", [(1, 1.0), (2, 1.9, 1.8, 2.0)], dots=True),
                                                      figures.Curve("ideal", [(1, 1), (2, 2)], dashed=True)], x_ticks=[1, 2])
    for figure in (bars, curves):
        figures.write_figure(folder, figure)
        for suffix in figures.FORMATS:
            expect((folder / (figure.name + suffix)).stat().st_size > 1000, f"{figure.name}{suffix}")
    expect("a_b" in (folder / "bars.svg").read_text() and "hatched" in (folder / "bars.svg").read_text(), "labels")


def test_errors_of_the_command_name_the_cause(folder):
    cases = [("nothing", "'nothing' is not an experiment"), ("strong strong", "is repeated"), ("strong --budget 0", "--budget"),
             ("strong --ranks 0,1", "--ranks"), ("strong --ranks 2,4", "has no 1"), ("tables", "tables needs folders"),
             ("tables /nowhere", "has no plan.json"), ("strong --data /nowhere", "does not exist"),
             ("strong --launcher srun", "has no {ranks}"), ("strong --repeats 0", "--repeats")]
    programs = folder / "programs"
    programs.mkdir()
    for name in ("train_gpt2", "tokenize"):
        (programs / name).write_text("#!/bin/sh\necho target: host\n")
        (programs / name).chmod(0o755)
    for words, part in cases:
        code = os.system(f"PROGRAMS={programs} {sys.executable} {ROOT}/scripts/study {words} --out {folder}/out "
                         f"> {folder}/out.txt 2>&1")
        text = (folder / "out.txt").read_text()
        expect(code != 0 and part in text and "Traceback" not in text, f"{words}: {text}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
