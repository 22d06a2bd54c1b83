#!/usr/bin/env python3
"""Tests the experiments of scripts/study on the base model (base, finetune, stack, quantize, demo), on made-up runs.

    python3 test/test_study_tuning.py [PATTERN]

Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import sys

from runner import expect, expect_error, run_tests
from study_outputs import ADAPTER_US, SPEED
from study_samples import make_study, rows_of, run_experiment

from measured_programs import RunError
from studies import budget, command, experiment
from studies.experiments import EXPERIMENTS, common
from studies.experiments.base import BASES, SMALLEST, Base


def cell(table, key, **where):
    return rows_of(table, **where)[0].cells[key]


# ---- the base model --------------------------------------------------------------------------


def test_the_base_model_is_that_of_its_run(folder):
    study = make_study(folder)
    plan = experiment.make_runs(EXPERIMENTS["base"], study, budget.Clock(60), 1200)
    model = Base.model(study, plan)
    expect(model.shape == BASES["host"][0] and model.path.parent.parent.name == plan["runs"][0]["folder"], f"{model}")
    expect(model.path.name == f"step_{plan['size']['samples']:06d}", f"{model.path}")
    (table,), _ = experiment.write_results(EXPERIMENTS["base"], study.out / "base", plan)
    steps = plan["size"]["samples"]
    expect(table.rows[0].cells["tokens"] == steps * 16 * 256 and table.rows[0].cells["epochs"] > 0, f"{table.rows[0]}")


def test_a_short_study_has_a_smaller_base_model(folder):
    study = make_study(folder)
    plan = experiment.make_runs(EXPERIMENTS["base"], study, budget.Clock(1), 1)
    expect(Base.model(study, plan).shape == BASES["host"][4] and plan["size"]["samples"] == SMALLEST, f"{plan['size']}")


def test_a_larger_base_model_that_is_there_is_used(folder):
    study = make_study(folder)
    first = experiment.make_runs(EXPERIMENTS["base"], study, budget.Clock(60), 1200)
    second = experiment.make_runs(EXPERIMENTS["base"], study, budget.Clock(60), 5)
    expect(first["runs"] == second["runs"], f"{second['size']}")


def test_gpt2_weights_replace_the_base_model_on_a_gpu(folder):
    import os
    (folder / "gpt2").mkdir()
    (folder / "gpt2/config.json").write_text(json.dumps({"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024,
                                                        "vocab_size": 50257}))
    study = make_study(folder)
    study.machine = study.machine._replace(device="cuda", gpus=1)
    study.inputs.version_of = lambda path: "v"
    os.environ["GPT2_DIR"] = str(folder / "gpt2")
    try:
        plan = experiment.make_runs(EXPERIMENTS["base"], study, budget.Clock(60), 600)
        model = Base.model(study, plan)
    finally:
        del os.environ["GPT2_DIR"]
    expect(model.path == folder / "gpt2" and model.shape == common.CUDA.shape and not model.needs, f"{model}")
    (table,), _ = experiment.write_results(EXPERIMENTS["base"], study.out / "base", plan)
    expect("GPT2_DIR names" in table.rows[0].why[""], f"{table.rows}")


def test_base_comes_before_what_needs_it(folder):
    class Options:
        names = ["quantize", "strong"]
    names = [one.name for one in command.selected_experiments(None, Options)]
    expect(names == ["base", "quantize", "strong"], f"{names}")
    Options.names = ["quantize", "base"]
    expect([one.name for one in command.selected_experiments(None, Options)] == ["base", "quantize"], "base is not first")
    Options.names = ["strong"]
    expect([one.name for one in command.selected_experiments(None, Options)] == ["strong"], "strong needs no base model")


def test_without_sentences_all_leaves_out_and_a_name_is_an_error(folder):
    study = make_study(folder)
    study.inputs.has_sentences = lambda: False
    chosen = [EXPERIMENTS[name] for name in ("finetune", "quantize")]
    expect([one.name for one in command.able_experiments(chosen, study, True)] == ["quantize"], "finetune is not left out")
    expect_error(RunError, "finetune: there are no labelled sentences", lambda: command.able_experiments(chosen, study, False))
    plan = experiment.make_runs(EXPERIMENTS["quantize"], study, budget.Clock(60), 3600)
    tables, _ = experiment.write_results(EXPERIMENTS["quantize"], study.out / "quantize", plan)
    row = tables[0].rows[0]
    expect(row.cells.get("accuracy") is None and "no labelled sentences" in row.why["accuracy"], f"{row}")


# ---- finetune, stack -------------------------------------------------------------------------


def test_finetune_has_the_scores_of_its_runs(folder):
    _, plan, (methods, layouts, loaded, inference, parameters) = run_experiment(folder, "finetune", minutes=600)
    lora, whole = rows_of(methods, method="LoRA of rank 8")[0], rows_of(methods, method="all weights")[0]
    expect(abs(lora.cells["accuracy"] - 0.7) < 1e-9 and abs(whole.cells["accuracy"] - 0.9) < 1e-9, f"{lora.cells}")
    expect(lora.cells["sd"] == 0 and lora.seed == "1, 2, 3", f"{lora}")
    expect((lora.cells["trained"], lora.cells["share"], whole.cells["share"]) == (5000, 0.5, 100), f"{lora.cells}")
    expect(lora.cells["batch"]["median"] == 33.0 and lora.cells["cpu"] == 90.0, f"{lora.cells}")  # 2 ms x 16 + the repeat
    expect(whole.cells["epoch"]["median"] == 0.033 * 256 / 16 and "gpu" in whole.why, f"{whole}")
    for layout, changed in (("one rank", 0), ("ZeRO-3", 0), ("tensor parallel", 1)):
        expect(cell(layouts, "changed", method="all weights", layout=layout) == changed, f"{layout}")
    ddp = rows_of(layouts, layout="transformers, DDP", method="all weights")[0]
    expect(ddp.cells["batch"]["median"] == 50 and ddp.cells["epoch"]["median"] == 0.5 and ddp.cells["peak"] == 900, f"{ddp}")
    expect(loaded.rows[1].cells["difference"] == 0, f"{loaded.rows}")
    expect(cell(inference, "ratio", model="with LoRA, merged") == 1 + ADAPTER_US / SPEED["none"], f"{inference.rows}")
    expect(cell(parameters, "trained", model="124M", method="IA3") == 4096, f"{parameters.rows[0]}")
    functional = rows_of(layouts, layout="tensor x pipeline parallel", method="all weights")[0]
    expect(functional.evidence == "functional", f"{functional}")


def test_without_pytorch_finetune_says_so(folder):
    study = make_study(folder, peers="torch is missing")
    plan = experiment.make_runs(EXPERIMENTS["finetune"], study, budget.Clock(60), 3600)
    tables, _ = experiment.write_results(EXPERIMENTS["finetune"], study.out / "finetune", plan)
    expect(not rows_of(tables[1], layout="transformers") and "torch is missing" in tables[1].notes[-1], f"{tables[1].notes}")
    expect(tables[2].rows[1].why[""] == "torch is missing", f"{tables[2].rows}")


def test_stack_adds_parts_up(folder):
    _, plan, (table,) = run_experiment(folder, "stack", minutes=600)
    titles = [row.cells["case"] for row in table.rows]
    expect(len(titles) == 10 and titles[0] == "fp32, all weights" and titles[-1] == "... and offload", f"{titles}")
    spec = next(run for run in plan["runs"] if run["name"] == "stack-bf16+lora+recompute+zero3+offload")
    settings = json.loads((folder / "study/logs" / spec["folder"] / "result.json").read_text())["settings"]
    for words in (["--dtype", "bf16"], ["--lora", "8"], ["--recompute", "full"], ["--zero", "3"], ["--offload", "optimizer"],
                  ["--batch-size", "8"]):
        at = settings["flags"].index(words[0])
        expect(settings["flags"][at:at + 2] == words, f"{words}: {settings['flags']}")
    expect(settings["ranks"] == 2 and cell(table, "saved", case="fp32, all weights") == 0, f"{settings}")
    expect(table.rows[0].cells["speed"]["median"] == 128 * 16 / 0.033, f"{table.rows[0].cells['speed']}")


# ---- quantize, demo --------------------------------------------------------------------------


def test_quantize_compares_with_floats(folder):
    _, _, (modes, after, layouts) = run_experiment(folder, "quantize", minutes=600)
    w8a8 = rows_of(modes, mode="INT8 weights and activations (w8a8)")[0]
    expect(w8a8.cells["faster"] == 4 and w8a8.cells["size"] == 2.0 and abs(w8a8.cells["change"] - 0.2) < 1e-9, f"{w8a8.cells}")
    expect(abs(w8a8.cells["first"]["median"] - 255 * 0.010) < 1e-9 and w8a8.cells["accuracy"] == 0.6, f"{w8a8.cells}")
    peer = rows_of(modes, mode="PyTorch, dynamic INT8")[0]
    expect(peer.cells["token"]["median"] == 4 and peer.cells["first"]["median"] == 51 and abs(peer.cells["change"] - 1) < 1e-9,
           f"{peer.cells}")
    expect("no 4-bit weights" in rows_of(modes, mode="4-bit weights")[0].why[""], "4-bit weights")
    qat = rows_of(after, way="quantization-aware (QAT)")[0]
    expect(abs(qat.cells["change"] - 0.2) < 1e-9 and qat.seed == "1, 2, 3" and qat.cells["change_sd"] == 0, f"{qat}")
    expect(rows_of(layouts, layout="tensor x pipeline parallel")[0].cells["worst"] == 0, f"{layouts.rows}")


def test_a_classifier_of_another_number_of_texts_is_an_error(folder):
    study = make_study(folder)
    study.inputs.test_support = lambda lines: [6, 5]
    plan = experiment.make_runs(EXPERIMENTS["quantize"], study, budget.Clock(60), 3600)
    expect_error(ValueError, "shorter", lambda: experiment.write_results(EXPERIMENTS["quantize"], study.out / "quantize", plan))


def test_demo_sums_up_baseline_and_all_improvements(folder):
    _, _, (summary, training, inference) = run_experiment(folder, "demo", minutes=600)
    expect(cell(summary, "ratio", quantity="ms per generated token") == 0.25, f"{summary.rows}")
    together = rows_of(training, way="together: flash attention, bf16, two ranks")[0]
    expect(abs(together.cells["less"] - 100 * (1 - 28 / 34)) < 1e-9, f"{together.cells}")  # 16 x 2 + 2; 16 x 2 / 2 + 10 + 2
    expect(together.cells["longest"] == 512, f"{together.cells}")  # 1 MiB per token, and 1,024 tokens leave no room for weights
    expect([row.cells["perplexity"] for row in inference.rows] == [100, 100, 100.1, 100.2, 100.2], f"{inference.rows}")


def test_a_run_without_the_weights_that_it_needs_is_left_out(folder):
    study = make_study(folder)
    study.base = study.base._replace(needs=(folder / "absent",))
    plan = experiment.make_runs(EXPERIMENTS["demo"], study, budget.Clock(60), 3600)
    names = {run["name"] for run in plan["runs"]}
    expect("infer-bench-w8" not in names and "demo-flash" in names, f"{names}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
