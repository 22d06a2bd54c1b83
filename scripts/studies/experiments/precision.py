"""Number formats of training: time of a step, memory, loss curves. Three seeds per format."""
import statistics

from finetune_sentiment.metrics import mean_and_deviation, paired_difference
from studies.budget import shrunk_sizes
from studies.experiment import Experiment, ratio_of
from studies.experiments.common import (EPOCH_WINDOWS, SEEDS, Training, model_text, our_cost_runs, our_run, scale_facts)
from studies.figures import Bars, Curve, Curves
from studies.machine import SIMULATED
from studies.plans import read_plan
from studies.tables import TIMED, Column, Row, Table, middle

FORMATS = {"fp32": ("fp32", ()), "TF32": ("fp32", ("--tf32",)), "bf16": ("bf16", ()), "fp16": ("fp16", ())}
BATCH, TAIL = 32, 10  # samples of a step; steps at the end whose mean is the final loss
NO_TF32 = "a CPU has no TF32"


class Precision(Experiment):
    name, title = "precision", "Number formats"
    question = "How much time and memory do TF32, bf16 and fp16 save, and do they train as well as fp32?"

    cost_runs = staticmethod(our_cost_runs)

    def facts(self, study):
        formats = [name for name in FORMATS if name != "TF32" or study.machine.device == "cuda"]
        return {**scale_facts(study), "formats": formats}

    def sizes(self, study, facts):
        return shrunk_sizes([120, 80, 60, 40, 20], [SEEDS, SEEDS[:2], SEEDS[:1]], 1)

    def plan(self, study, facts, size):
        return [our_run(study, Training(f"precision-{name}", BATCH, size.samples, EPOCH_WINDOWS, cores=facts["all_cores"],
                                        layout=FORMATS[name][1], dtype=FORMATS[name][0], seed=seed, timed=False))
                for seed in size.points for name in facts["formats"]]

    @staticmethod
    def final_losses(results, name):
        """{seed: mean loss of the last steps}"""
        return {result.facts["seed"]: statistics.fmean(step["loss"] for step in result.steps()[-TAIL:])
                for result in results.finished(name) if all(step["loss"] is not None for step in result.steps()[-TAIL:])}

    def row(self, facts, results, format):
        name = f"precision-{format}"
        if not results.has(name):
            return Row({"format": format}, SIMULATED, None, why={"": NO_TF32})
        time, base = (results.spread(one, lambda result: 1000 * result.timed_mean("step_ms"))
                      for one in (name, "precision-fp32"))
        cells = {"format": format, "time": time, "faster": ratio_of(base, time)}
        finished, losses = results.finished(name), self.final_losses(results, name)
        if finished:
            plan, whole = read_plan(finished[0]), read_plan(results.finished("precision-fp32")[0])
            cells |= {"state": plan.state() / 2 ** 20, "activations": plan.largest(["activations"]) / 2 ** 20,
                      "planned": plan.total() / 2 ** 20, "memory": plan.total() / whole.total()}
        cells["loss"], cells["sd"] = mean_and_deviation(list(losses.values())) if losses else (None, None)
        _, cells["difference"], error = paired_difference(losses, self.final_losses(results, "precision-fp32"))
        cells["error"] = None if format == "fp32" else error
        return results.row(name, cells, {"error": "the format that others are compared with" if format == "fp32" else
                                         "needs two seeds", "sd": "needs two seeds"})

    def tables(self, facts, results):
        rows = [self.row(facts, results, format) for format in FORMATS]
        return [Table("precision", "Number formats: time, memory and loss", [
            Column("format", "format"), Column("time", "ms per step", TIMED, 1),
            Column("faster", "times as fast as fp32", TIMED, 2),
            Column("state", "training state, MiB", digits=1), Column("activations", "activations, MiB", digits=1),
            Column("planned", "planned, MiB", digits=1), Column("memory", "planned / fp32", digits=3),
            Column("loss", f"loss, last {TAIL} steps", digits=4), Column("sd", "sd over seeds", digits=4),
            Column("difference", "loss - fp32", digits=5), Column("error", "its standard error", digits=5)], rows,
            results.device, results.commit,
            [model_text(facts), f"{facts['samples']} steps of {BATCH} samples, seeds {', '.join(map(str, facts['points']))}; "
             "the loss difference is a mean over seeds with equal batches. bf16 and fp16 keep fp32 master weights, moments and "
             "gradients."])]

    def figures(self, facts, results, tables):
        curves = []
        for format in facts["formats"]:
            finished = results.finished(f"precision-{format}")
            first = next((result for result in finished if result.facts["seed"] == SEEDS[0]), None)
            if first:
                curves.append(Curve(format, [(step["step"], step["loss"]) for step in first.steps()
                                             if step["loss"] is not None]))
        rows = [(row.cells["format"], [middle(row.cells["time"])], False) for row in tables[0].rows if row.cells.get("time")]
        return [Bars("precision-time", "Time of a step", "ms", ["time"], rows),
                Curves("precision-loss", "Training loss, seed 1", "step", "loss (nats per token)", curves, from_zero=False)]
