"""The baseline of the field (fp32, standard attention, one device, inference in fp32) against each improvement, alone, added
in turn and together."""
from typing import NamedTuple

from studies.budget import shrunk_sizes
from studies.experiment import ratio_of
from studies.experiments import inference
from studies.experiments.base import OnBase, base_text
from studies.experiments.common import Training, our_run, plan_run
from studies.figures import Bars
from studies.inputs import VALIDATION_TOKENS, Shape
from studies.plans import read_plan
from studies.runs import WARMUP_STEPS
from studies.tables import TIMED, Column, Row, Table, middle

BATCH = 16                        # sequences of a step
LENGTHS = tuple(128 << i for i in range(12))
MEMORY = {"host": 1, "cuda": 16}  # GiB in which the longest sequence must fit
MIB, GIB = 2 ** 20, 2 ** 30


class Part(NamedTuple):
    title: str
    attention: str = "standard"
    dtype: str = "fp32"
    ranks: int = 1

    def flags(self):
        return ("--attention", self.attention, "--zero", 0)


BASELINE = Part("fp32, standard attention, one device")
TRAINING = {"baseline": BASELINE, "flash": BASELINE._replace(title="flash attention alone", attention="flash"),
            "bf16": BASELINE._replace(title="bf16 alone", dtype="bf16"),
            "dp": BASELINE._replace(title="two data-parallel ranks alone", ranks=2),
            "flash-bf16": Part("flash attention and bf16", "flash", "bf16"),
            "together": Part("together: flash attention, bf16, two ranks", "flash", "bf16", 2)}
INFERENCE = {"fp32": "baseline: fp32", "bf16": "bf16 alone", "w8": "INT8 weights", "w8a8": "... and activations",
             "w8a8-cache": "together: ... and INT8 cache"}


class Demo(OnBase):
    name, title = "demo", "Baseline against optimized"
    question = "How much do the improvements together save, in training and in inference?"
    share = 1.5

    def facts(self, study):
        return {**super().facts(study), "memory": MEMORY[study.machine.device]}

    def sizes(self, study, facts):
        return shrunk_sizes([24, 16, 8, 4, 2], [("training", "inference")], study.repeats)

    def plan(self, study, facts, size):
        shape, is_smallest = study.base.shape, size.samples == 2
        micro = min(study.scale.max_micro_batch, 8)
        runs = [our_run(study, Training(f"demo-{name}", BATCH, WARMUP_STEPS + size.samples, BATCH * 4, part.ranks, part.ranks,
                                        facts["cores"], part.flags(), shape=shape, dtype=part.dtype, max_micro_batch=micro))
                for name, part in TRAINING.items()]
        runs += inference.base_runs(study, INFERENCE, facts["all_cores"], 1 if is_smallest else 3,
                                    8 if is_smallest else VALIDATION_TOKENS // shape.T)
        return runs + [self.length_plan(shape._replace(T=T), name, part) for T in LENGTHS
                       for name, part in TRAINING.items()]

    @staticmethod
    def length_plan(shape, name, part):
        return plan_run(f"demo-plan-{name}-T{shape.T}", (
            *shape.flags(), "--vocab-size", shape.vocabulary, "--dtype", part.dtype, "--seq-len", shape.T, "--batch-size", 1,
            "--grad-accum", 1, "--ranks", part.ranks, *part.flags()))

    # ---- rows --------------------------------------------------------------------------------

    def longest(self, facts, results, name):
        fitting = [T for T in LENGTHS for result in results.finished(f"demo-plan-{name}-T{T}")
                   if read_plan(result).total() <= facts["memory"] * GIB]
        return fitting[-1] if fitting else None

    def training_row(self, facts, results, name, part):
        run = f"demo-{name}"
        time = results.spread(run, lambda result: 1000 * result.timed_mean("step_ms"))
        base = results.spread("demo-baseline", lambda result: 1000 * result.timed_mean("step_ms"))
        left = ratio_of(time, base)
        cells = {"way": part.title, "ranks": part.ranks, "time": time, "less": None if left is None else 100 * (1 - left),
                 "cpu": results.spread(run, lambda result: result.use_percent("cpu_percent_ranks")),
                 "gpu": results.spread(run, lambda result: result.use_percent("gpu_util_ranks")),
                 "longest": self.longest(facts, results, name)}
        for result in results.finished(run)[:1]:
            cells |= {"planned": read_plan(result).total() / MIB, "peak": result.peak_mib()}
        return results.row(run, cells, {"gpu": "no GPU", "longest": f"not even {LENGTHS[0]} tokens fit"})

    @staticmethod
    def inference_row(results, key, title):
        return results.row(f"infer-bench-{key}", {"way": title, **inference.base_cells(results, key)},
                           {"joules": inference.NO_ENERGY})

    @staticmethod
    def summary(facts, training, rows):
        """One line per quantity: baseline, together, and their ratio."""
        def line(title, pair, key, better):
            one, both = (row.cells.get(key) for row in pair)
            ratio = ratio_of(both, one)
            weakest = max((row.evidence for row in pair), key=("measured", "functional", "simulated").index)
            why = {"": next((row.why[key] for row in pair if row.cells.get(key) is None and key in row.why), "not measured")}
            return Row({"quantity": title, "baseline": one, "together": both, "ratio": ratio, "better": better}, weakest,
                       pair[0].seed, any(row.busy for row in pair), why)
        trained, inferred = (training[0], training[-1]), (rows[0], rows[-1])
        return [line("ms per training step", trained, "time", "lower"),
                line("planned memory of a rank, MiB", trained, "planned", "lower"),
                line(f"longest sequence in {facts['memory']} GiB, tokens (planned)", trained, "longest", "higher"),
                line("ms to the first token", inferred, "first", "lower"), line("ms per generated token", inferred, "token", "lower"),
                line("MiB of weights for inference", inferred, "size", "lower"),
                line("J per generated token", inferred, "joules", "lower"),
                line("perplexity", inferred, "perplexity", "lower")]

    # ---- tables and figures ------------------------------------------------------------------

    def tables(self, facts, results):
        device, commit, shape = results.device, results.commit, Shape(**facts["base"])
        training = [self.training_row(facts, results, name, part) for name, part in TRAINING.items()]
        rows = [self.inference_row(results, key, title) for key, title in INFERENCE.items()]
        sizes = f"Training: steps of {BATCH} sequences of {shape.T} tokens from random weights, with equal cores per rank"
        notes = [base_text(facts), f"{sizes}. Inference: all cores; prompts of {inference.prompt_tokens(shape)} tokens, "
                 f"{inference.GENERATED} generated."]
        return [Table("demo", "Baseline against all improvements together", [
            Column("quantity", "quantity"), Column("baseline", "baseline", TIMED), Column("together", "together", TIMED),
            Column("ratio", "together / baseline", TIMED, 3), Column("better", "better", "text")],
            self.summary(facts, training, rows), device, commit, notes),
            Table("demo-training", "Training, improvement by improvement", [
                Column("way", "way"), Column("ranks", "ranks"), Column("time", "ms per step", TIMED, 1),
                Column("less", "less time, %", TIMED, 1), Column("cpu", "CPU, % of a core, per rank, maximum", TIMED, 0),
                Column("gpu", "GPU, %, per rank, maximum", TIMED, 0),
                Column("planned", "planned per rank, maximum, MiB", digits=1),
                Column("peak", "peak of a process, MiB", TIMED, 0),
                Column("longest", f"longest sequence in {facts['memory']} GiB", digits=0)], training, device, commit,
                [f"{sizes}. The longest sequence, a power of two, is planned for one sequence per step and rank."]),
            Table("demo-inference", "Inference, improvement by improvement", [
                Column("way", "way"), Column("size", "weights, MiB", digits=1),
                Column("first", "ms to the first token", TIMED, 2), Column("token", "ms per token", TIMED, 3),
                Column("faster", "times as fast", TIMED, 2), Column("speed", f"tokens/s, batch {inference.BATCH}", TIMED, 0),
                Column("joules", "J per token", TIMED, 4), Column("perplexity", "perplexity", digits=3)], rows, device, commit)]

    def figures(self, facts, results, tables):
        def bars(key, table, column, title, label):
            rows = [(row.cells["way"], [middle(row.cells[column])], row.evidence == "functional") for row in table.rows
                    if row.cells.get(column)]
            return Bars(f"demo-{key}", title, label, [label], rows)
        return [bars("training", tables[1], "time", "Time of a training step", "ms"),
                bars("inference", tables[2], "token", "Time per generated token", "ms")]
