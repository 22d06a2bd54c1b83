#!/usr/bin/env python3
"""Tests the experiments of scripts/study on logs that study_samples.py makes up: numbers of their tables, and marks of runs
that went wrong.

    python3 test/test_study_experiments.py [PATTERN]

Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import os
import sys

from runner import expect, expect_error, run_tests
from study_samples import rows_of, run_experiment

from measured_programs import RunError
from studies import plans, tables
from studies.experiments import gpt2_weights, megatron, scaling, strategies, zero
from studies.inputs import Shape

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
# The output of --dry-run --ranks 8 --zero 3 --offload optimizer --lora 8 --model megatron-8.3b, shortened.
OFFLOAD_DRY_RUN = """model: 8314143744 parameters, bf16
ranks 0 to 7, each:
  bytes                         device            host            disk
  weights                   2085668864               0               0
  gathered weights           770080768               0               0
  master weights                     0        14155776               0
  in all                    3634106880        42467328               0
  in all, MiB                   3465.8            40.5             0.0
a rank moves per step at most:
  from host: 42467328 bytes (40.5 MiB)
each rank sends per step:
  gradients: 99090432 bytes (94.5 MiB)
  in all: 28823658423 bytes (27488.4 MiB)
"""


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


def test_predicted_shares_stand_next_to_published_ones(folder):
    study, plan, (tensor, data, strong, methods) = run_experiment(folder, "megatron")
    expect(plan["facts"]["published"]["tensor"][3][-1] == 77, "tables need no other file")
    runs = megatron.Megatron().plan(study, plan["facts"], None)
    expect(all(len(run.inputs) == 2 for run in runs), "a run is made again if the constants of a machine or a program change")
    eight = rows_of(tensor, ranks=8)[0]
    expect(eight.evidence == "simulated" and eight.cells["published"] == 77, f"{eight}")
    one, rates = megatron.published("V100, tensor")[0], [row.cells["rate"] for row in tensor.rows]
    expect(abs(rates[0] - one.flops() / 1e12) < 1e-9 and eight.cells["share"] == 100 * rates[3] / rates[0], rates)
    expect([row.cells["ranks"] for row in data.rows] == [64, 128, 256, 512], "GPUs")
    expect(abs(rows_of(strong, ranks=128)[0].cells["speedup"] - 2 * 1.6 / 1.7) < 1e-9, f"{strong.rows}")
    expect(len(methods.rows) == 24 and all(row.cells["memory"] == 16 for row in methods.rows), "every method and size")


# ---- strategies ------------------------------------------------------------------------------


def test_state_follows_the_formulae_of_zero(folder):
    plan = plans.Plan(DRY_RUN)
    expect(len(plan.device) == 2 and plan.device[1]["moments"] == 5480448, f"{plan.device}")
    expect(plan.sent("gradients") == 2740224 and plan.parameters == 1325952, f"{plan.traffic}")
    zero2 = next(one for one in strategies.our_strategies(2) if one.name == "zero2")
    expect(strategies.state_formula(Shape(4, 4, 128, 64), zero2) == plan.state(), "the formula is not the plan of the program")
    _, _, (table, _) = run_experiment(folder, "strategies")
    states = {row.cells["strategy"]: row.cells["state"] for row in table.rows}
    falling = [states[name] for name in ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")]
    expect(falling == sorted(falling, reverse=True) and len(set(falling)) == 4, f"{falling}")
    expect(not table.problems and "equal" in table.notes[2], f"{table.problems}, {table.notes}")


def test_another_seed_for_one_strategy_is_marked(folder):
    def change(spec, lines):
        for line in lines:
            if spec.name == "strategy-zero2" and "loss" in line:
                line["loss"] += 1e-3
    _, _, (table, _) = run_experiment(folder, "strategies", change=change)
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


# ---- plans -----------------------------------------------------------------------------------


def test_a_plan_with_host_memory_is_read(folder):
    plan = plans.Plan(OFFLOAD_DRY_RUN)
    expect(len(plan.device) == 8 and plan.total() == 3634106880 and plan.host_total() == 42467328, f"{plan.device[0]}")
    expect(plan.slots() == 770080768 and plan.sent() == 28823658423, f"{plan.traffic[0]}")


def test_a_plan_of_different_ranks_has_the_largest(folder):
    text = """model: 9 parameters, fp32
rank 0:
  weights: 10 bytes (0.0 MiB)
  in all: 30 bytes (0.0 MiB)
ranks 1 to 2, each:
  weights: 20 bytes (0.0 MiB)
  in all: 25 bytes (0.0 MiB)
rank 0 sends per step:
  in all: 5 bytes (0.0 MiB)
ranks 1 to 2, each sends per step:
  in all: 7 bytes (0.0 MiB)
"""
    plan = plans.Plan(text)
    expect((plan.total(), plan.state(), plan.sent()) == (30, 20, 7), f"{plan.device}, {plan.traffic}")


def test_zero_has_the_bytes_of_the_paper_and_of_its_plans(folder):
    def change(spec, lines):
        if spec.name.startswith("zero"):
            lines[-1]["comm_bytes"] = 4242 + (spec.name == "zero2-n2-group2")
    _, plan, (planned, counted, host) = run_experiment(folder, "zero", change=change)
    two = rows_of(planned, model="355M", ranks=8, stage="2")[0]
    expect(abs(two.cells["formula"] - (2 + 16 / 8)) < 1e-12 and abs(two.cells["paper"] - (2 + 14 / 8)) < 1e-12, f"{two.cells}")
    expect(abs(two.cells["per_parameter"] - two.cells["formula"]) < 1e-6 and two.evidence == "simulated", f"{two.cells}")
    expect(abs(two.cells["elements"] - 2) < 1e-6, f"{two.cells['elements']}")
    hybrid = rows_of(planned, model="124M", ranks=64, stage="3, groups of 8")[0]
    expect(hybrid.cells["between"] > 0 and hybrid.cells["elements"] is None, f"{hybrid.cells}")
    expect(len(counted.problems) == len(counted.rows), "made-up runs send other bytes than planned, and must be marked")
    expect(not planned.problems, f"{planned.problems}")


def test_replicas_cost_host_memory(folder):
    _, _, (_, _, table) = run_experiment(folder, "zero")
    expect([row.cells["stage"] for row in table.rows] == ["0", "1", "2", "3"], f"{table.rows}")


def test_tensor_parallelism_has_two_all_reduces_per_layer_and_pass(folder):
    study, _, (_, table) = run_experiment(folder, "strategies")
    for row, ranks in zip(table.rows, (2, 4)):
        expect(row.cells["one"] == 2 * (ranks - 1) * 64 * 128 * 4 // ranks and row.cells["reduces"] == 2, f"{row}")
    svg = study.out / "strategies/strategies-schedule.svg"
    expect(not svg.exists() or "rank 1" in svg.read_text(), "the timeline has no ranks")


def test_gpt2_weights_are_looked_up_in_folders(folder):
    def model(path, layers):
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps({"n_layer": layers, "n_head": 2, "n_embd": 8, "n_positions": 16,
                                                      "vocab_size": 300}))
        (path / "model.safetensors").write_text("weights")
        return path
    many, one = folder / "many", model(folder / "one", 48)
    small = model(many / "gpt2-124M", 12)
    for given, expected in ((many, {"124M": small}), (one, {"1558M": one})):
        os.environ["GPT2_DIR"] = str(given)
        try:
            expect(gpt2_weights.find_weights() == expected, f"{given}: {gpt2_weights.find_weights()}")
        finally:
            del os.environ["GPT2_DIR"]
    _, _, (_, table) = run_experiment(folder, "model-size")
    expect(all("scripts/get_gpt2.sh" in row.why[""] for row in table.rows), f"{table.rows}")


def test_a_rising_total_is_marked(folder):
    def rows(totals):
        return [tables.Row({"model": "124M", "ranks": 8, "total": total}, "simulated") for total in totals]
    expect(not zero.order_problems(rows([4.0, 3.0, 2.5, 2.0])), "a falling order")
    expect("not in falling order" in zero.order_problems(rows([4.0, 3.0, 3.5, 2.0]))[0], "a rising one")


def test_fits_names_the_largest_model_and_the_longest_sequence(folder):
    _, _, (models, lengths) = run_experiment(folder, "fits")
    one = rows_of(models, way="one GPU", recompute="full", offload="no", adapters="no")[0]
    # 18 bytes per parameter and 1 GiB of activations: 774M needs 14.0 GiB, 1558M 27.1.
    expect((one.cells["model16"], one.cells["model24"], one.cells["model32"]) == (774, 774, 1558), f"{one.cells}")
    longest = rows_of(lengths, way="one GPU", recompute="full", offload="no", adapters="no")[0]
    expect((longest.cells["length24"], longest.cells["length40"]) == (None, 8192), f"{longest.cells}")
    expect("not even" in longest.why["length24"], f"{longest.why}")


# ---- attention, formats, convergence ---------------------------------------------------------


def test_flash_grows_linearly_and_standard_attention_does_not(folder):
    _, _, (times, longest, gain) = run_experiment(folder, "flash")
    flash, standard = (rows_of(times, T=8192, way=way)[0] for way in ("flash", "standard"))
    expect(abs(flash.cells["growth"] - 2) < 1e-9, f"{flash.cells}")
    expect(abs(standard.cells["growth"] - 2 * 17 / 9) < 1e-9, f"{standard.cells}")  # 1 MiB + T / 1024 MiB per token
    expect(standard.evidence == "simulated" and "timed up to 4,096" in standard.why["time"], f"{standard}")
    expect(flash.cells["time"]["median"] > 0 and flash.evidence == "measured", f"{flash}")
    expect(rows_of(longest, way="flash")[0].cells["fits8"] > rows_of(longest, way="standard")[0].cells["fits8"], "longest")
    expect(abs(rows_of(gain, T=4096)[0].cells["smaller"] - 5) < 1e-9, f"{gain.rows}")


def test_recompute_has_a_row_per_mode_and_attention(folder):
    _, _, (times, _) = run_experiment(folder, "recompute")
    expect(len(rows_of(times, T=1024)) == 6, f"{len(rows_of(times, T=1024))}")


def test_precision_compares_seeds_with_equal_batches(folder):
    def change(spec, lines):
        for line in lines:
            if "loss" in line:
                line["loss"] += 0.1 * spec.seed + (0.01 * spec.seed if spec.name == "precision-bf16" else 0)
    _, _, (table,) = run_experiment(folder, "precision", change=change)
    bf16, tf32 = rows_of(table, format="bf16")[0], rows_of(table, format="TF32")[0]
    expect(abs(bf16.cells["difference"] - 0.02) < 1e-9 and abs(bf16.cells["error"] - 0.01 / 3 ** 0.5) < 1e-9, f"{bf16.cells}")
    expect(bf16.seed == "1, 2, 3" and tf32.why[""] == "a CPU has no TF32", f"{bf16}, {tf32}")


def test_one_seed_has_no_standard_error(folder):
    _, plan, (table,) = run_experiment(folder, "precision", minutes=0.06)
    expect(len(plan["size"]["points"]) == 1 and plan["dropped"], f"{plan['size']}")
    row = rows_of(table, format="bf16")[0]
    expect(row.cells["error"] is None and row.why["error"] == "needs two seeds", f"{row}")


def test_batch_finds_where_larger_batches_stop_helping(folder):
    def change(spec, lines):
        # A loss that falls with the square root of tokens x batch: larger batches need fewer tokens, up to 16.
        for line in lines:
            if "loss" in line:
                line["loss"] = 8.0 - 1e-3 * (line["tokens"] * min(spec.samples, 16)) ** 0.5
    _, _, (table, sent) = run_experiment(folder, "batch", change=change)
    tokens = [row.cells["tokens"] for row in table.rows]
    expect(tokens[0] > tokens[1] > tokens[2] > tokens[3] and None not in tokens, f"{tokens}")
    expect("the fewest tokens" in table.notes[-1], table.notes[-1])
    per_token = [row.cells["per_token"] for row in sent.rows]
    expect(per_token == sorted(per_token, reverse=True), f"accumulation must send less per token: {per_token}")


def test_model_size_finds_the_tokens_to_a_loss(folder):
    def change(spec, lines):
        layers = int(spec.flags[spec.flags.index("--layers") + 1]) if "--layers" in spec.flags else 1
        for line in lines:
            if "val_loss" in line:
                line["val_loss"] = 8.0 - 0.01 * layers * line["step"]
    _, _, (table, _) = run_experiment(folder, "model-size", change=change)
    tokens = [row.cells["tokens2"] for row in table.rows]
    expect(tokens[0] == 8192 * 64 and tokens[0] > tokens[1] > tokens[2] == tokens[3], f"{tokens}")


def test_an_exact_number_that_differs_is_an_error(folder):
    def change(spec, lines):
        lines[-1]["comm_bytes_dp"] += spec.repeat
    expect_error(RunError, "must be exact", lambda: run_experiment(folder, "strong", change=change))


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
