"""Megatron-LM's scaling to 512 GPUs and ways to divide a model on up to 4,608 GPUs: predicted by train_gpt2 --plan, next to
published figures. Nothing is measured: rows about V100s are about Megatron-LM of 2019, not about this engine."""
import json
from typing import NamedTuple

from measured_programs import ROOT
from studies.budget import shrunk_sizes
from studies.experiment import Experiment
from studies.experiments.common import hashed, plan_run
from studies.figures import Curve, Curves
from studies.tables import Column, Row, Table

MACHINES = ROOT / "scripts/machines"
OLD = ("v100-2019", "megatron-2019")   # machine and software
OURS = ("h100", "llmc")
MICRO_BATCH, STRONG_BATCH, STRONG_RANKS = 8, 512, (64, 128, 256, 512)
KINDS = ("tensor", "tensor and data")       # of published tables
ANY_MEMORY = ("--gpu-memory", 1_000_000)   # of programs whose memory is not ours
METHOD_RANKS, METHOD_BATCH = (8, 64, 512, 4608), 4608
METHOD_MODELS = {"megatron-1.2b": "1.2 billion", "megatron-8.3b": "8.3 billion"}
METHODS = {"data": ("--tp", 1, "--pp", 1, "--zero", 0), "zero3": ("--tp", 1, "--pp", 1, "--zero", 3),
           "tensor": ("--tp", 8, "--zero", 1)}
METHOD_TEXTS = {"data": "data parallel", "zero3": "ZeRO-3", "tensor": "tensor 8 x pipeline x data"}


class Published(NamedTuple):
    """A row of a published table: percent of the rate of one GPU."""
    billion: float
    layers: int
    channels: int
    tensor: int
    ranks: int
    percent: float

    def model(self):
        return f"megatron-{self.billion:g}b"

    def flops(self, T=1024, V=51200):
        """Of a step, as Megatron-LM counts it: with full recomputation."""
        L, C, B = self.layers, self.channels, MICRO_BATCH * self.ranks // self.tensor
        return 96 * B * T * L * C * C * (1 + T / (6 * C) + V / (16 * L * C))


def published(name):
    tables = json.loads((MACHINES / "published.json").read_text(encoding="utf-8"))["tables"]
    rows = next(table["rows"] for table in tables if table["name"] == name)
    return [Published(row["billion"], row["layers"], row["channels"], row["tensor"], row["ranks"], row["value"]) for row in rows]


def layouts_run(study, name, files, model, T, batch, ranks, flags):
    """A --plan of one layout, or of those that the flags leave open. `files`: machine and software."""
    machine, software = MACHINES / f"{files[0]}.json", MACHINES / "software" / f"{files[1]}.json"
    run = plan_run(name, ("--plan", "--machine", machine, "--software", software, "--model", model, "--vocab-size", 50257, "--seq-len", T, "--context", T, "--dtype", "bf16",
                          "--total-batch-tokens", batch * T, "--ranks", ranks, "--top", 1, *flags, "--plan-out",
                          "{run}/plan.json"))
    return run._replace(inputs=(hashed(study, machine), hashed(study, software)))


def old_run(study, name, model, tensor, ranks, batch):
    """Megatron-LM of 2019: one micro-batch per data rank as long as the batch allows it."""
    micro = min(MICRO_BATCH, batch * tensor // ranks)
    return layouts_run(study, name, OLD, model, 1024, batch, ranks,
                       (*ANY_MEMORY, "--tp", tensor, "--pp", 1, "--zero", 0, "--batch-size", micro, "--recompute", "full",
                        "--sequence-parallel=false"))


def fastest(results, name):
    """The fastest layout of a plan; None without one."""
    for result in results.finished(name):
        return json.loads(result.text("plan.json"))["layouts"][0]
    return None


class Megatron(Experiment):
    name, title = "megatron", "Megatron-LM's scaling, simulated"
    question = "How far does tensor and data parallelism scale to 512 V100s, and which layout suits 8 to 4,608 H100s?"
    share = 0.1

    def cost_runs(self, study, facts):
        return []

    def facts(self, study):
        return {"published": {kind: published(f"V100, {kind}") for kind in KINDS}}

    def sizes(self, study, facts):
        return shrunk_sizes([1], [("all",)], 1)

    def plan(self, study, facts, size):
        runs = []
        for kind in KINDS:
            for row in self.rows(facts, kind):
                runs.append(old_run(study, self.old_name(row), row.model(), row.tensor, row.ranks, MICRO_BATCH * row.ranks // row.tensor))
        runs += [old_run(study, f"megatron-strong-{ranks}", "megatron-8.3b", 8, ranks, STRONG_BATCH) for ranks in STRONG_RANKS]
        for model in METHOD_MODELS:
            for ranks in METHOD_RANKS:
                runs += [layouts_run(study, self.method_name(model, method, ranks), OURS, model, 1024, METHOD_BATCH, ranks, flags)
                         for method, flags in METHODS.items()]
        return runs

    @staticmethod
    def rows(facts, kind):
        return [Published(*row) for row in facts["published"][kind]]

    @staticmethod
    def old_name(row):
        return f"megatron-{row.billion:g}b-n{row.ranks}"

    @staticmethod
    def method_name(model, method, ranks):
        return f"megatron-{method}-{model.removeprefix('megatron-')}-n{ranks}"

    # ---- tables ------------------------------------------------------------------------------

    def rate(self, results, row):
        """TFLOP/s of each GPU; None without a plan."""
        layout = fastest(results, self.old_name(row))
        return None if layout is None else row.flops() / (1e9 * layout["step_ms"]) / row.ranks

    def share_table(self, facts, results, kind, title):
        one = self.rate(results, self.rows(facts, "tensor")[0])
        rows = []
        for row in self.rows(facts, kind):
            rate = self.rate(results, row)
            share = None if not rate or not one else 100 * rate / one
            rows.append(results.row(self.old_name(row), {
                "billion": row.billion, "ranks": row.ranks, "tensor": row.tensor, "rate": rate, "share": share,
                "published": row.percent, "difference": None if share is None else share - row.percent}))
        return Table(f"megatron-{kind.split()[-1]}", title, [
            Column("billion", "billion parameters"), Column("ranks", "GPUs"), Column("tensor", "tensor ranks"),
            Column("rate", "predicted TFLOP/s per GPU", digits=1), Column("share", "predicted, % of one GPU", digits=1),
            Column("published", "published, %", digits=0), Column("difference", "difference, points", digits=1)], rows,
            results.device, results.commit,
            ["Megatron-LM of 2019 on DGX-2H: predicted, with constants that are not fitted to these figures, except for the rate of one "
             "GPU. Published: Shoeybi et al. (2019); only 77% and 74% are verified."])

    def strong_table(self, results):
        rows, first = [], fastest(results, f"megatron-strong-{STRONG_RANKS[0]}")
        for ranks in STRONG_RANKS:
            layout = fastest(results, f"megatron-strong-{ranks}")
            cells = {"ranks": ranks, "batch": STRONG_BATCH}
            if layout and first:
                cells |= {"time": layout["step_ms"] / 1000, "speedup": first["step_ms"] / layout["step_ms"],
                          "efficiency": first["step_ms"] / layout["step_ms"] * STRONG_RANKS[0] / ranks}
            rows.append(results.row(f"megatron-strong-{ranks}", cells))
        return Table("megatron-strong", "Strong scaling of 8.3 billion parameters, 8 tensor ranks", [
            Column("ranks", "GPUs"), Column("batch", "global batch"), Column("time", "predicted step, s", digits=2),
            Column("speedup", f"speed-up over {STRONG_RANKS[0]} GPUs", digits=2), Column("efficiency", "efficiency", digits=2)],
            rows, results.device, results.commit, ["Megatron-LM of 2019 on DGX-2H, predicted."])

    def method_table(self, results):
        rows = []
        for model, text in METHOD_MODELS.items():
            for ranks in METHOD_RANKS:
                for method in METHODS:
                    name = self.method_name(model, method, ranks)
                    cells, layout = {"model": text, "ranks": ranks, "method": METHOD_TEXTS[method]}, fastest(results, name)
                    if layout:
                        cells |= {"time": layout["step_ms"] / 1000, "memory": layout["bytes"] / 2 ** 30,
                                  "rate": layout["tokens_per_s"] / ranks, "flags": layout["flags"]}
                    rows.append(results.row(name, cells))
        return Table("megatron-methods", "Ways to divide a model on H100s", [
            Column("model", "parameters"), Column("ranks", "GPUs"), Column("method", "method"),
            Column("time", "predicted step, s", digits=3), Column("rate", "tokens/s per GPU", digits=0),
            Column("memory", "GiB per GPU", digits=1), Column("flags", "fastest layout that fits")], rows, results.device,
            results.commit, [f"This engine on DGX H100, predicted and not measured: {METHOD_BATCH:,} sequences of 1,024 tokens per "
                             "step. Memory is what the allocator would reserve."])

    def tables(self, facts, results):
        return [self.share_table(facts, results, "tensor", "Weak scaling by tensor parallelism"),
                self.share_table(facts, results, "tensor and data", "Weak scaling by tensor and data parallelism"),
                self.strong_table(results), self.method_table(results)]

    def figures(self, facts, results, tables):
        curves = []
        for table, name in zip(tables, ("tensor", "tensor x data")):
            for key, text in (("share", "predicted"), ("published", "published")):
                points = [(row.cells["ranks"], row.cells[key]) for row in table.rows if row.cells.get(key) is not None]
                curves.append(Curve(f"{name}, {text}", points, dots=True, dashed=key == "published"))
        return [Curves("megatron-scaling", "Weak scaling of Megatron-LM on V100s", "GPUs", "% of one GPU", curves)]
