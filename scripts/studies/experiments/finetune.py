"""Fine-tuning a classifier of sentences: which parameters learn, how ranks divide the work, and what the result costs.

Three seeds per method on one rank. The layouts train two methods from one seed, on fewer sentences: they must agree.
"""
from typing import NamedTuple

from finetune_sentiment.methods import LORA_RANK
from finetune_sentiment.runs import parameter_counts
from studies.budget import Size, shrunk_sizes
from studies.experiments.base import base_text
from studies.experiments.classification import (BATCH, SCORES, SUBSET, Classifying, Tuning, all_methods,
                                                epoch_seconds, mean_scores, peer_tuning, scores_of, step_seconds, test_of,
                                                tuning_run)
from studies.experiments.common import (KEEP_WEIGHTS, SEEDS, Training, checkpoint_of, infer_run, our_run, plan_run)
from studies.figures import Bars, Curve, Curves
from studies.plans import read_plan
from studies.tables import TIMED, Column, Row, Table, middle

LAYOUT_PART, LAYOUT_STEPS = 4, 4  # layouts see one sentence in so many, but have at least so many steps
SMALLEST = 80                # samples of the smallest size
MODELS = {"d12": "124M", "d24": "355M", "d36": "774M", "d48": "1558M"}
ADAPTERS = {"LoRA": ("--lora", LORA_RANK, "--lora-targets", "all"), "IA3": ("--ia3",)}
LEARNING = {f"LoRA of rank {LORA_RANK}, c_attn": ("--lora", LORA_RANK), f"LoRA of rank {LORA_RANK}, all layers": ADAPTERS["LoRA"],
            "IA3": ADAPTERS["IA3"]}
PROMPT, GENERATED = 64, 64   # tokens
EVALUATIONS = 2              # of the validation part, in runs on one rank


class Layout(NamedTuple):
    title: str
    ranks: int
    data_ranks: int
    flags: tuple
    micro_batches: int = 1


LAYOUTS = {"one": Layout("one rank", 1, 1, ("--zero", 0)), "dp": Layout("data parallel", 2, 2, ("--zero", 0)),
           "zero3": Layout("ZeRO-3", 2, 2, ("--zero", 3)), "tp": Layout("tensor parallel", 2, 1, ("--zero", 0, "--tp", 2)),
           "tp-pp": Layout("tensor x pipeline parallel", 4, 1, ("--zero", 0, "--tp", 2, "--pp", 2), 2)}
PEERS = {"one": Layout("transformers", 1, 1, ()), "ddp": Layout("transformers, DDP", 2, 2, ())}


def layout_samples(samples):
    return max(LAYOUT_STEPS * BATCH, samples // LAYOUT_PART)


def methods_of_layouts(samples):
    return ("all",) if samples == SMALLEST else ("all", "lora")


def lines_of(samples):
    """Sentences of each class; None: all."""
    return SUBSET if samples == SMALLEST else None


class Finetune(Classifying):
    name, title = "finetune", "Fine-tuning"
    question = "What do the ways to fine-tune cost, how well do they classify, and do several ranks get the same classifier?"
    share = 5.0

    def facts(self, study):
        return {**super().facts(study),
                "methods": {name: method.title for name, method in all_methods(study).items()}}

    def sizes(self, study, facts):
        seeds = [SEEDS, SEEDS[:2], SEEDS[:1]]
        return shrunk_sizes([34112, 17056, 8528, 6144, 4096, 3072, 2048], seeds, study.repeats) + [Size(count, seeds[-1], 1)
                                                                                for count in (1024, SMALLEST)]

    def plan(self, study, facts, size):
        methods, lines = all_methods(study), lines_of(size.samples)
        runs = [tuning_run(study, Tuning(f"finetune-{name}", method, size.samples, seed, cores=facts["all_cores"], lines=lines,
                                         keep=name == "all" and seed == SEEDS[0], evaluations=EVALUATIONS))
                for seed in size.points for name, method in methods.items()]
        for name in methods_of_layouts(size.samples):
            runs += [tuning_run(study, self.of_layout(study, facts, size, name, f"finetune-{key}-{name}", layout))
                     for key, layout in LAYOUTS.items()]
        runs += self.inference(study, facts) + self.parameter_plans()
        return runs + ([] if facts["peers"] else self.peers(study, facts, size, runs))

    @staticmethod
    def of_layout(study, facts, size, name, run_name, layout):
        return Tuning(run_name, all_methods(study)[name], layout_samples(size.samples), ranks=layout.ranks,
                      data_ranks=layout.data_ranks, cores=facts["cores"], layout=layout.flags,
                      micro_batches=layout.micro_batches, lines=lines_of(size.samples))

    def peers(self, study, facts, size, runs):
        tuned = next(spec for spec in runs if spec.name == "finetune-all")
        loaded = Tuning("finetune-loaded", all_methods(study)["all"], 0, cores=facts["all_cores"], lines=lines_of(size.samples))
        specs = [peer_tuning(study, loaded, checkpoint_of(study, tuned, study.base.shape))]
        for key, layout in PEERS.items():
            for name in methods_of_layouts(size.samples):
                specs.append(peer_tuning(study, self.of_layout(study, facts, size, name, f"finetune-peer-{key}-{name}", layout)))
        return specs

    @staticmethod
    def inference(study, facts):
        """The base model alone, and with adapters that are merged when it is loaded."""
        words = ("bench", "--prompt-tokens", PROMPT, "--gen-tokens", GENERATED, "--batches", 1, "--positions", 0,
                 "--repetitions", 5, "--format", "json")
        tokens = 5 * (PROMPT + 8 * GENERATED)
        runs = [infer_run(study, "finetune-bench-base", study.base, words, tokens, facts["all_cores"])]
        for name, flags in ADAPTERS.items():
            trained = our_run(study, Training(f"finetune-adapter-{name}", 8, 4, 32, cores=facts["all_cores"], start=study.base,
                                              layout=(*flags, *KEEP_WEIGHTS), timed=False))
            adapter = checkpoint_of(study, trained, study.base.shape)
            merged = infer_run(study, f"finetune-bench-{name}", study.base, (*words, "--adapter", adapter.path), tokens,
                               facts["all_cores"])
            runs += [trained, merged._replace(inputs=(*merged.inputs, (str(adapter.path), adapter.digest)),
                                              needs=(*merged.needs, *adapter.needs))]
        return runs

    @staticmethod
    def parameter_plans():
        return [plan_run(f"finetune-plan-{model}-{index}", ("--model", model, "--vocab-size", 50257, "--dtype", "fp32", "--seq-len",
                                                       128, "--batch-size", 1, "--grad-accum", 1, "--ranks", 1, *flags))
                for model in MODELS for index, flags in enumerate(((), *LEARNING.values()))]

    # ---- rows --------------------------------------------------------------------------------

    @staticmethod
    def costs(results, name):
        """Cells of time and use, and why they are missing."""
        finished = results.finished(name)
        cells = {"batch": results.spread(name, lambda result: 1000 * step_seconds(result)),
                 "epoch": results.spread(name, epoch_seconds)}
        why = {"planned": "PyTorch does not report it", "gpu": "no GPU"}
        if finished and finished[0].facts["side"] == "transformers":
            cells |= {"peak": finished[0].peer()["peak_mib"], "cpu": 100 * finished[0].facts["cpu"] / finished[0].facts["ranks"]}
        elif finished:
            cells |= {"planned": read_plan(finished[0]).total() / 2 ** 20, "peak": finished[0].peak_mib(),
                      "cpu": finished[0].use_percent("cpu_percent_ranks"), "gpu": finished[0].use_percent("gpu_util_ranks")}
        return cells, why

    def method_row(self, facts, results, name, title):
        run = f"finetune-{name}"
        costs, why = self.costs(results, run)
        cells = {"method": title, **costs, **mean_scores(results.finished(run))}
        for result in results.finished(run)[:1]:
            trained, parameters = parameter_counts(result.text("output.txt"), result.folder / "output.txt")
            cells |= {"trained": trained, "share": 100 * trained / parameters}
        return results.row(run, cells, {**why, "sd": "needs two seeds"})

    def layout_row(self, results, name, method, layout, reference):
        costs, why = self.costs(results, name)
        is_peer = layout in PEERS.values()
        cells = {"program": "transformers" if is_peer else "train_gpt2", "method": method, "layout": layout.title,
                 "ranks": layout.ranks, **costs, **mean_scores(results.finished(name))}
        for result in results.finished(name)[:1]:
            if reference and not is_peer:
                matrix = test_of(result)["confusion_matrix"]
                cells["changed"] = sum(abs(a - b) for row, other in zip(matrix, test_of(reference)["confusion_matrix"])
                                       for a, b in zip(row, other)) // 2
        why["changed"] = "another order of batches, and another dropout"
        return results.row(name, cells, why)

    def layout_rows(self, facts, results):
        rows = []
        for method in methods_of_layouts(facts["samples"]):
            reference = next(iter(results.finished(f"finetune-one-{method}")), None)
            for key, layout in LAYOUTS.items():
                rows.append(self.layout_row(results, f"finetune-{key}-{method}", facts["methods"][method], layout, reference))
            if not facts["peers"]:
                for key, layout in PEERS.items():
                    rows.append(self.layout_row(results, f"finetune-peer-{key}-{method}", facts["methods"][method], layout,
                                                reference))
        return rows

    @staticmethod
    def inference_row(results, title, name):
        cells = {"model": title}
        for key, test in (("prompt", "prompt"), ("token", "generate")):
            cells[key] = results.spread(name, lambda result, test=test: result.bench(test)["us_per_token"])
        base = results.spread("finetune-bench-base", lambda result: result.bench("generate")["us_per_token"])
        cells["ratio"] = None if not base or not cells["token"] else middle(cells["token"]) / middle(base)
        return results.row(name, cells)

    @staticmethod
    def parameter_rows(results):
        rows = []
        for model, size in MODELS.items():
            whole = results.finished(f"finetune-plan-{model}-0")
            for index, title in enumerate(LEARNING, 1):
                name = f"finetune-plan-{model}-{index}"
                cells = {"model": size, "method": title}
                for result, all_weights in zip(results.finished(name), whole):
                    plan, parameters = read_plan(result), read_plan(all_weights).parameters
                    cells |= {"trained": plan.largest(["gradients"]) // 4, "parameters": parameters}
                    cells["share"] = 100 * cells["trained"] / parameters
                rows.append(results.row(name, cells))
        return rows

    @staticmethod
    def loaded_table(results, device, commit):
        rows, scores = [], {}
        for title, name in (("train_gpt2", "finetune-all"), ("the same weights in transformers", "finetune-loaded")):
            finished = results.finished(name)[:1]
            scores[name] = scores_of(finished[0]) if finished else {}
            rows.append(results.row(name, {"program": title, **scores[name]}) if results.has(name) else
                        Row({"program": title}, "measured", None, why={"": results.plan["peers"]}))
        one, other = scores["finetune-all"], scores["finetune-loaded"]
        rows[-1].cells["difference"] = max(abs(one[key] - other[key]) for key in SCORES) if one and other else None
        rows[0].why["difference"] = "the program to compare with"
        return Table("finetune-loaded", "A tuned classifier, loaded elsewhere", [
            Column("program", "test by"), *score_columns(), Column("difference", "largest difference", digits=6)], rows, device,
            commit, ["All weights, seed 1, after the last step."])

    # ---- tables and figures ------------------------------------------------------------------

    def tables(self, facts, results):
        device, commit, peers = results.device, results.commit, facts["peers"]
        notes = [base_text(facts), f"{facts['samples']:,} sentences per run, {BATCH} per batch"
                 + (f", of the first {SUBSET} of each class" if lines_of(facts["samples"]) else "")
                 + "; scores of the test part, means over seeds; precision, recall and F1 are means over classes."]
        methods = [self.method_row(facts, results, name, title) for name, title in facts["methods"].items()]
        layout_notes = [f"{layout_samples(facts['samples']):,} sentences per run. Changed: test sentences whose "
                        "class is another one than on one rank."] + ([f"PyTorch is left out: {peers}."] if peers else [])
        inference = [self.inference_row(results, title, f"finetune-bench-{name}") for title, name in
                     (("base model", "base"), *((f"with {name}, merged", name) for name in ADAPTERS))]
        first, costs = [Column("method", "method")], cost_columns()
        return [Table("finetune", "Ways to fine-tune", [
            *first, Column("trained", "parameters that learn", digits=0), Column("share", "of all, %", digits=3),
            *score_columns(), Column("sd", "sd of accuracy", digits=4), *costs], methods, device, commit, notes),
            Table("finetune-layouts", "Fine-tuning on several ranks", [
                Column("program", "program"), *first, Column("layout", "layout"), Column("ranks", "ranks"), *score_columns(),
                Column("changed", "changed", digits=0), *costs], self.layout_rows(facts, results), device, commit, layout_notes),
            self.loaded_table(results, device, commit),
            Table("finetune-inference", "Adapters at inference", [
                Column("model", "model"), Column("prompt", "µs per token of a prompt", TIMED, 1),
                Column("token", "µs per generated token", TIMED, 1), Column("ratio", "token, of the base model", TIMED, 3)],
                inference, device, commit, ["Adapters are merged when the model is loaded."]),
            Table("finetune-parameters", "Parameters of adapters", [
                Column("model", "model"), Column("method", "method"), Column("trained", "parameters that learn", digits=0),
                Column("parameters", "of", digits=0), Column("share", "%", digits=3)], self.parameter_rows(results), device,
                commit, ["Planned; tensors are padded to 1024 elements."])]

    def figures(self, facts, results, tables):
        curves = []
        for name, title in facts["methods"].items():
            for result in results.finished(f"finetune-{name}")[:1]:
                curves.append(Curve(title, result.metric("val_macro_f1"), dots=True))
        bars = [(row.cells["method"], [row.cells["accuracy"]], False) for row in tables[0].rows if row.cells.get("accuracy")]
        return [Bars("finetune-accuracy", "Accuracy of the test part", "accuracy", ["accuracy"], bars),
                Curves("finetune-convergence", f"Macro F1 of the validation part, seed {SEEDS[0]}", "step", "macro F1", curves)]


def score_columns():
    return [Column(key, "F1" if key == "f1" else key, digits=4) for key in SCORES]


def cost_columns():
    return [Column("batch", "ms per batch", TIMED, 1), Column("epoch", "s per epoch", TIMED, 1),
            Column("cpu", "CPU, % of a core, per rank, maximum", TIMED, 0), Column("gpu", "GPU, %, per rank, maximum", TIMED, 0),
            Column("planned", "planned per rank, maximum, MiB", digits=1), Column("peak", "peak of a process, MiB", TIMED, 0)]
