"""Standard and flash attention, and recomputation, over the length of the sequences: time, memory, longest sequence."""
from studies.budget import shrunk_sizes
from studies.experiment import Experiment, ratio_of
from studies.experiments.common import Training, micro_batches, our_cost_runs, our_run, plan_run, scale_facts
from studies.figures import Curve, Curves
from studies.inputs import Shape
from studies.machine import SIMULATED
from studies.plans import read_plan
from studies.runs import WARMUP_STEPS
from studies.tables import TIMED, Column, Row, Table, middle

TOKENS = 4096               # of a step, at least one sequence
TIMED_STEPS = 3
LONGEST_TIMED = {"flash": 16384, "standard": 4096}
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PLANNED_LENGTHS = tuple(128 << i for i in range(14))
BUDGETS = (1, 8)            # GiB
RECOMPUTE = ("none", "selective", "full")
ACTIVATIONS = ("activations", "attention matrices", "recompute buffers")  # segments of a plan
MIB, GIB = 2 ** 20, 2 ** 30


class OverLength(Experiment):
    """An experiment whose rows are lengths and ways; a way is (label, attention, recompute)."""
    ways = ()

    cost_runs = staticmethod(our_cost_runs)

    def facts(self, study):
        shape = study.scale.shape
        model = Shape(2, 2, 128, 0, shape.vocabulary) if study.machine.device == "host" else shape
        return {**scale_facts(study), "model": model._asdict(), "device": study.machine.device}

    def sizes(self, study, facts):
        longest = [LENGTHS[:count] for count in range(len(LENGTHS), 0, -1)]
        return shrunk_sizes([TIMED_STEPS], longest, study.repeats)

    @staticmethod
    def flags(attention, recompute):
        return ("--attention", attention, "--recompute", recompute)

    def plan(self, study, facts, size):
        runs = []
        for T in size.points:
            batch = max(1, TOKENS // T)
            shape = Shape(**facts["model"])._replace(T=T)
            for label, attention, recompute in self.ways:
                if T > LONGEST_TIMED[attention]:
                    continue
                run = Training(f"{self.name}-{label}-T{T}", batch, WARMUP_STEPS + TIMED_STEPS, batch, cores=facts["cores"],
                               layout=self.flags(attention, recompute), shape=shape)
                runs.append(our_run(study, run))
        for T in PLANNED_LENGTHS:
            shape = Shape(**facts["model"])._replace(T=T)
            for label, attention, recompute in self.ways:
                runs.append(plan_run(f"{self.name}-plan-{label}-T{T}", (
                    *shape.flags(), "--vocab-size", shape.vocabulary, "--dtype", facts["dtype"], "--seq-len", T,
                    "--batch-size", micro_batches(max(1, TOKENS // T), facts["max_micro_batch"])[0], "--grad-accum", 1,
                    "--ranks", 1, *self.flags(attention, recompute))))
        return runs

    def planned(self, results, label, T):
        finished = results.finished(f"{self.name}-plan-{label}-T{T}")
        return read_plan(finished[0]) if finished else None

    def row(self, facts, results, T, way):
        label, attention, recompute = way
        name = f"{self.name}-{label}-T{T}"
        plan, twice = self.planned(results, label, T), self.planned(results, label, 2 * T)
        batch = max(1, TOKENS // T)
        cells = {"T": T, "way": label, "batch": batch}
        why = {"time": f"timed up to {LONGEST_TIMED[attention]:,} tokens" if T > LONGEST_TIMED[attention] else "",
               "growth": "no longer sequence was planned", "tflops": "for GPUs"}
        if plan:
            cells |= {"planned": plan.total() / MIB, "activations": plan.largest(ACTIVATIONS) / MIB}
        if plan and twice:
            # Batches of shorter sequences are larger, so sequences are compared.
            per = plan.largest(ACTIVATIONS) / batch
            cells["growth"] = twice.largest(ACTIVATIONS) / max(1, TOKENS // (2 * T)) / per
        if not results.has(name):
            why["token"] = why["peak"] = why["tflops"] = why["time"]
            return Row(cells, SIMULATED, None, why=why)
        cells["time"] = results.spread(name, lambda result: 1000 * result.timed_mean("step_ms"))
        cells["token"] = None if cells["time"] is None else 1000 * middle(cells["time"]) / (batch * T)
        cells["peak"] = results.spread(name, lambda result: result.peak_mib())
        if facts.get("device") == "cuda":
            cells["tflops"] = results.spread(name, lambda result: self.flop_per_token(facts, T) * batch * T / 1e12
                                             / result.timed_mean("step_ms"))
        return results.row(name, cells, why)

    @staticmethod
    def flop_per_token(facts, T):
        """6 N + 12 L T C, as in the paper on FlashAttention-2: both halves of the attention matrix count."""
        model = Shape(**facts["model"])._replace(T=T)
        return 6 * model.parameters() + 12 * model.layers * T * model.channels

    def tables(self, facts, results):
        rows = [self.row(facts, results, T, way) for T in facts["points"] for way in self.ways]
        model = Shape(**facts["model"])
        notes = [f"{model.layers} layers, {model.heads} heads, {model.channels} channels, {facts['dtype']}; steps of "
                 f"{TOKENS:,} tokens, at least one sequence. Activations include attention matrices and buffers of "
                 "recomputation. Planned: all memory of a run. Growth: activations of a sequence of twice the length / of "
                 "this length; 2 is linear, 4 quadratic."]
        longest = [self.longest_row(results, way) for way in self.ways]
        return [Table(self.name, f"{self.title}: time and memory of a step", [
            Column("T", "tokens per sequence", digits=0), Column("way", self.way_title), Column("batch", "sequences"),
            Column("time", "ms per step", TIMED, 1), Column("token", "µs per token", TIMED, 2),
            Column("tflops", "TFLOP/s", TIMED, 1),
            Column("activations", "activations, MiB", digits=1), Column("growth", "growth", digits=2),
            Column("planned", "planned, MiB", digits=1), Column("peak", "peak of the process, MiB", TIMED, 0)], rows,
            results.device, results.commit, notes),
            Table(f"{self.name}-longest", f"{self.title}: longest sequence", [
                Column("way", self.way_title), *(Column(f"fits{gib}", f"{gib} GiB", digits=0) for gib in BUDGETS)], longest,
                results.device, results.commit, [f"Powers of two up to {PLANNED_LENGTHS[-1]:,} tokens; planned."])]

    def longest_row(self, results, way):
        cells, why = {"way": way[0]}, {}
        for gib in BUDGETS:
            fitting = [T for T in PLANNED_LENGTHS if (plan := self.planned(results, way[0], T)) and plan.total() <= gib * GIB]
            cells[f"fits{gib}"] = fitting[-1] if fitting else None
            why[f"fits{gib}"] = f"not even {PLANNED_LENGTHS[0]} tokens fit"
        return Row(cells, SIMULATED, None, why=why)

    def figures(self, facts, results, tables):
        def curves(key, title, y_label):
            lines = []
            for label, *_ in self.ways:
                points = [(row.cells["T"], middle(row.cells[key])) for row in tables[0].rows
                          if row.cells["way"] == label and row.cells.get(key) is not None]
                lines.append(Curve(label, points, dots=True))
            return Curves(f"{self.name}-{key}", title, "tokens per sequence", y_label, lines)
        return [curves("token", f"{self.title}: time", "µs per token"),
                curves("activations", f"{self.title}: activations", "MiB")]


class Flash(OverLength):
    name, title = "flash", "Flash attention"
    question = "How do time and memory of standard and of flash attention grow with the length of the sequences?"
    way_title = "attention"
    ways = (("flash", "flash", "none"), ("standard", "standard", "none"))

    def tables(self, facts, results):
        tables = super().tables(facts, results)
        rows = []
        for T in facts["points"]:
            pair = {row.cells["way"]: row for row in tables[0].rows if row.cells["T"] == T}
            cells = {"T": T, "faster": ratio_of(pair["standard"].cells.get("time"), pair["flash"].cells.get("time")),
                     "smaller": ratio_of(pair["standard"].cells.get("activations"), pair["flash"].cells.get("activations"))}
            why = {"faster": pair["standard"].why.get("time") or "not timed"}
            rows.append(Row(cells, pair["standard"].evidence, pair["flash"].seed, pair["flash"].busy or pair["standard"].busy,
                            why))
        tables.append(Table("flash-gain", "Flash attention: standard / flash", [
            Column("T", "tokens per sequence", digits=0), Column("faster", "time", TIMED, 2),
            Column("smaller", "activations", digits=2)], rows, results.device, results.commit))
        return tables


class Recompute(OverLength):
    name, title = "recompute", "Recomputation"
    question = "What does recomputation cost in time, and how much memory does it save, next to flash and standard attention?"
    way_title = "recompute, attention"
    ways = tuple((f"{mode}, {attention}", attention, mode) for attention in ("flash", "standard") for mode in RECOMPUTE)
