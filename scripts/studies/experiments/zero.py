"""ZeRO's stages: bytes per parameter and per step, planned for 1, 8 and 64 ranks, and counted in runs on 2 and 4 ranks."""
from typing import NamedTuple

from studies.budget import shrunk_sizes
from studies.experiment import Experiment
from studies.experiments.common import Training, model_text, our_cost_runs, our_run, plan_run, scale_facts
from studies.figures import Bars
from studies.plans import read_plan
from studies.tables import Column, Table

MODELS = {"d12": "124M", "d24": "355M", "d36": "774M", "d48": "1558M"}
RANKS, HYBRID = (1, 8, 64), 8
COUNTED_STEPS, COUNTED_WINDOWS = 3, 320
PARTS = {"weights": ("weights",), "gradients": ("gradients",), "optimizer": ("master weights", "moments")}
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2, 4, 12   # ours: bf16 weights, fp32 gradients, masters and moments
PAPER_GRADIENT_BYTES = 2                                   # Rajbhandari et al., 2020: fp16 gradients


class Layout(NamedTuple):
    model: str
    ranks: int
    stage: int
    group: int   # ranks that divide one training state

    def name(self):
        return f"plan-zero{self.stage}-{self.model}-n{self.ranks}-group{self.group}"


def layouts(models):
    for model in models:
        yield Layout(model, 1, 0, 1)
        for n in RANKS[1:]:
            yield from (Layout(model, n, stage, n) for stage in range(4))
        yield Layout(model, RANKS[-1], 3, HYBRID)


def bytes_per_parameter(stage, group, gradient_bytes):
    """ZeRO's formula for one parameter of a training state."""
    return (WEIGHT_BYTES / (group if stage >= 3 else 1) + gradient_bytes / (group if stage >= 2 else 1)
            + OPTIMIZER_BYTES / (group if stage >= 1 else 1))


def stage_text(stage, group, ranks):
    return f"{stage}, groups of {group}" if group < ranks else str(stage)


class Counted(NamedTuple):
    """A run whose bytes are counted."""
    ranks: int
    stage: int
    group: int

    def name(self):
        return f"zero{self.stage}-n{self.ranks}-group{self.group}"

    def flags(self):
        return ("--zero", self.stage, *(("--shard-group", self.group) if self.group < self.ranks else ()))


COUNTED = [*(Counted(2, stage, 2) for stage in range(4)), *(Counted(4, stage, 2) for stage in (1, 2, 3))]


HOST_MODEL, HOST_RANKS = "d12", 8   # of the table of host memory


def host_name(stage):
    return f"zero-host-{stage}"


class Zero(Experiment):
    name, title = "zero", "ZeRO: memory and traffic of its stages"
    share = 0.5
    question = "How many bytes does each stage keep per parameter, and how many does it send?"

    cost_runs = staticmethod(our_cost_runs)

    def facts(self, study):
        return scale_facts(study)

    def sizes(self, study, facts):
        models = tuple(MODELS)
        return shrunk_sizes([COUNTED_STEPS], [models, models[:2], models[:1]], 1)

    def plan(self, study, facts, size):
        runs = [plan_run(layout.name(), ("--model", layout.model, "--vocab-size", 50257, "--dtype", "bf16", "--batch-size", 1,
                                         "--seq-len", 1024, "--grad-accum", 1, "--ranks", layout.ranks, "--zero", layout.stage,
                                         "--shard-group", layout.group if layout.group < layout.ranks else 0))
                for layout in layouts(size.points)]
        runs += [plan_run(host_name(stage), ("--model", HOST_MODEL, "--vocab-size", 50257, "--dtype", "bf16", "--batch-size", 1,
                                             "--seq-len", 1024, "--grad-accum", 1, "--ranks", HOST_RANKS, "--zero", stage,
                                             "--offload", "optimizer")) for stage in range(4)]
        for one in COUNTED:
            run = Training(one.name(), 32, COUNTED_STEPS, COUNTED_WINDOWS, one.ranks, one.ranks, facts["cores"], one.flags())
            runs.append(our_run(study, run)._replace(timed=False))
        return runs

    # ---- tables ------------------------------------------------------------------------------

    def row(self, results, layout):
        name, n, group = layout.name(), layout.ranks, layout.group
        cells = {"model": MODELS[layout.model], "ranks": n, "stage": stage_text(layout.stage, group, n),
                 "formula": bytes_per_parameter(layout.stage, group, GRADIENT_BYTES),
                 "paper": bytes_per_parameter(layout.stage, group, PAPER_GRADIENT_BYTES)}
        finished = results.finished(name)
        if not finished:
            return results.row(name, cells)
        plan, whole = read_plan(finished[0]), read_plan(results.finished(Layout(layout.model, 1, 0, 1).name())[0])
        cells |= {"state": plan.state(), "per_parameter": plan.state() / plan.parameters,
                  "less": whole.state() / plan.state(), "slots": plan.slots(), "total": plan.total() / 2 ** 20}
        why = dict.fromkeys(("elements", "sent", "inside", "between"), "one rank sends nothing")
        if n > 1:
            gradients, weights = plan.sent("gradients"), plan.sent("weights")
            elements = gradients / GRADIENT_BYTES + weights / WEIGHT_BYTES
            inside = self.inside(results, layout, gradients + weights)
            cells |= {"elements": elements * n / (n - 1) / plan.parameters if group == n else None, "sent": plan.sent(),
                      "inside": inside, "between": None if inside is None else gradients + weights - inside}
            why |= {"elements": "the factor (N - 1) / N applies to one group", "inside": "one group", "between": "one group"}
        return results.row(name, cells, why)

    @staticmethod
    def inside(results, layout, total):
        """Bytes that a rank sends within its group: those of a run of one group. None for a single group."""
        if layout.group == layout.ranks:
            return total
        alone = results.finished(Layout(layout.model, layout.group, layout.stage, layout.group).name())
        if not alone:
            return None
        plan = read_plan(alone[0])
        return plan.sent("gradients") + plan.sent("weights")

    @staticmethod
    def counted_row(results, one):
        cells = {"ranks": one.ranks, "stage": stage_text(one.stage, one.group, one.ranks)}
        for result in results.finished(one.name()):
            planned, counted = read_plan(result).sent(), result.steps()[-1]["comm_bytes"]
            cells |= {"planned": planned, "counted": counted, "difference": counted - planned}
        return results.row(one.name(), cells)

    def tables(self, facts, results):
        rows = [self.row(results, layout) for layout in layouts(facts["points"])]
        planned = Table("zero", "ZeRO: planned memory and traffic per rank", COLUMNS, rows, results.device, results.commit, [
            "GPT-2 in bf16 with fp32 gradients, masters and moments, one sequence of 1,024 tokens per rank. Planned by "
            "--dry-run.", "Training state: weights, gradients, masters and moments, padded. Formula: 2 + 4 + 12 bytes per "
            "parameter, each part divided by the ranks of a group from stage 3, 2 and 1 on. The paper counts 2 bytes for "
            "gradients.", "Elements sent: (gradients + weights) x N / (N - 1) / parameters; the paper has 2, 2, 2 and 3. "
            "Stage 3 sends less here: the embeddings are gathered once per step, and blocks at the turn of a pass stay.",
            "Slots are whole buckets in use, which the formulae leave out."], order_problems(rows))
        counted_rows = [self.counted_row(results, one) for one in COUNTED]
        problems = [f"{row.cells['ranks']} ranks, stage {row.cells['stage']}: {row.cells['counted']} bytes were sent, and "
                    f"{row.cells['planned']} were planned" for row in counted_rows if row.cells.get("difference")]
        counted = Table("zero-counted", "ZeRO: bytes counted in runs", COUNTED_COLUMNS, counted_rows, results.device,
                        results.commit, [model_text(facts), "Bytes of a step, of the rank that sends the most."], problems)
        return [planned, counted, self.host_table(results)]

    @staticmethod
    def host_table(results):
        rows = []
        for stage in range(4):
            cells = {"stage": str(stage)}
            for result in results.finished(host_name(stage)):
                cells["host"] = read_plan(result).host_total() / 2 ** 20
            rows.append(results.row(host_name(stage), cells))
        return Table("zero-host", "ZeRO: host memory of offloaded moments and master weights", [
            Column("stage", "stage"), Column("host", "host memory of each rank, MiB", digits=1)], rows, results.device,
            results.commit, [f"{MODELS[HOST_MODEL]} in bf16 on {HOST_RANKS} ranks, --offload optimizer, planned. Stage 0 keeps a "
                             "replica for every rank."])

    def figures(self, facts, results, tables):
        rows = []
        for layout in layouts(facts["points"]):
            finished = results.finished(layout.name())
            if layout.ranks != 8 and layout.group == layout.ranks and layout.ranks != 1 or not finished:
                continue
            plan = read_plan(finished[0])
            stage = stage_text(layout.stage, layout.group, layout.ranks)
            label = f"{MODELS[layout.model]}, {layout.ranks} ranks, stage {stage}"
            rows.append((label, [plan.largest(names) / 2 ** 30 for names in PARTS.values()], False))
        return [Bars("zero-memory", "Training state of a rank (planned)", "GiB", list(PARTS), rows)]


def order_problems(rows):
    """A later stage must not need more memory in all than an earlier one, for 124M on 8 ranks."""
    totals = [row.cells.get("total") for row in rows if row.cells["model"] == "124M" and row.cells["ranks"] == 8]
    if None in totals or totals == sorted(totals, reverse=True):
        return []
    return [f"124M on 8 ranks: the totals of stages 0 to 3 are {', '.join(f'{total:.0f}' for total in totals)} MiB, "
            "not in falling order"]


COLUMNS = [Column("model", "model"), Column("ranks", "ranks"), Column("stage", "stage"),
           Column("per_parameter", "state per rank, bytes per parameter", digits=3), Column("formula", "by formula", digits=3),
           Column("paper", "the paper's", digits=3), Column("less", "times less than one rank", digits=2),
           Column("state", "state, bytes", digits=0), Column("slots", "slots, bytes", digits=0),
           Column("total", "in all, MiB", digits=0), Column("elements", "elements sent / parameter", digits=3),
           Column("sent", "bytes sent per step", digits=0), Column("inside", "inside a group", digits=0),
           Column("between", "between groups", digits=0)]
COUNTED_COLUMNS = [Column("ranks", "ranks"), Column("stage", "stage"), Column("planned", "planned", digits=0),
                   Column("counted", "counted", digits=0), Column("difference", "difference", digits=0)]
