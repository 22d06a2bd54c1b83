"""Every way to divide a run among ranks, and PyTorch's ways, on the same weights and samples.

All of them must compute the same losses. Their training state per rank is compared with the formulae of ZeRO, to the byte.
"""
from typing import NamedTuple

from studies.budget import Size, shrunk_sizes
from studies.experiment import Experiment
from studies.experiments.common import Training, cost_runs, model_text, our_run, peer_run, scale_facts
from studies.experiments.layout_plans import layout_plans, schedule_figure, tensor_table
from studies.figures import Bars, Curve, Curves
from studies.inputs import Shape
from studies.machine import FUNCTIONAL
from studies.plans import read_plan
from studies.tables import TIMED, Column, Table, middle

BATCH = 32          # samples of a step
EPOCHS = 3
MICRO_BATCHES = 4   # of a pipeline
PARTS = {"fwd_ms": "forward", "bwd_ms": "backward", "recompute_ms": "recomputation", "comm_ms": "communication",
         "bubble_ms": "bubble", "optimizer_ms": "optimizer", "other_ms": "other"}
ALIGNMENT, STATE_BYTES = 1024, {"weights": 4, "gradients": 4, "moments": 8}  # fp32
LOSS_LIMIT = 2e-5   # relative difference of losses to one device


class Strategy(NamedTuple):
    name: str
    title: str
    ranks: int
    data_ranks: int
    layout: tuple = ()
    at_least: int = 1       # micro-batches
    peer: str = ""          # strategy of train_distributed.py; else ours
    zero: int | None = None  # of a data-parallel strategy of ours
    shards: int = 1         # ranks that divide the training state

    def run_name(self):
        return f"strategy-{self.name}"


def our_strategies(n):
    """`n`: ranks of the strategies of one dimension; those of two dimensions need at least four."""
    two = max(4, n)
    return [Strategy("one", "one device", 1, 1, ("--zero", 0), zero=0),
            Strategy("dp", "data parallel", n, n, ("--zero", 0), zero=0),
            *(Strategy(f"zero{z}", f"ZeRO-{z}", n, n, ("--zero", z), zero=z, shards=n) for z in (1, 2, 3)),
            Strategy("hybrid", "hybrid sharding: ZeRO-3 in groups of 2", two, two, ("--zero", 3, "--shard-group", 2), zero=3,
                     shards=2),
            Strategy("tp", "tensor parallel", n, 1, ("--zero", 0, "--tp", n)),
            Strategy("pp", "pipeline parallel", n, 1, ("--zero", 0, "--pp", n), MICRO_BATCHES),
            Strategy("tp-pp", "tensor x pipeline parallel", 4, 1, ("--zero", 0, "--tp", 2, "--pp", 2), MICRO_BATCHES)]


def peer_strategies(n):
    two = max(4, n)
    return [Strategy("pytorch", "PyTorch, one device", 1, 1, peer="plain"),
            Strategy("pytorch-ddp", "PyTorch DDP", n, n, peer="ddp"),
            Strategy("pytorch-zero1", "PyTorch ZeroRedundancyOptimizer", n, n, peer="zero1"),
            Strategy("pytorch-fsdp-zero2", "PyTorch FSDP2, weights kept (ZeRO-2)", n, n, peer="fsdp-zero2"),
            Strategy("pytorch-fsdp-zero3", "PyTorch FSDP2 (ZeRO-3)", n, n, peer="fsdp-zero3"),
            Strategy("pytorch-hybrid", "PyTorch FSDP2, hybrid in groups of 2", two, two, peer="fsdp-hybrid")]


def padded_parameters(shape, shards):
    """Elements of all buckets: the embeddings, each block, the last norm. Each tensor is padded to whole groups of 1024
    elements, and each bucket so that every rank owns a whole number of groups."""
    C = shape.channels
    rows = -(-shape.vocabulary // 128) * 128
    block = [C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C]
    buckets = [[rows * C, shape.T * C], *[block] * shape.layers, [C, C]]
    groups = [sum(-(-size // ALIGNMENT) for size in bucket) for bucket in buckets]
    return ALIGNMENT * sum(-(-count // shards) * shards for count in groups)


def state_formula(shape, strategy):
    """Bytes of weights, gradients and moments of a rank in fp32, by ZeRO's formulae; None for other layouts."""
    if strategy.zero is None:
        return None
    elements, N = padded_parameters(shape, strategy.shards), strategy.shards
    divided = {"moments": strategy.zero >= 1, "gradients": strategy.zero >= 2, "weights": strategy.zero >= 3}
    return sum(elements * size // (N if divided[name] else 1) for name, size in STATE_BYTES.items())


def ranks_text(n):
    return f"{n} rank{'s' * (n > 1)}"


def mean_loss(steps):
    return sum(step["loss"] for step in steps) / len(steps) if steps else None


class Strategies(Experiment):
    name, title = "strategies", "Strategies of parallel training"
    share = 3.0
    question = "What does each way to divide a run cost in time and memory, and do all of them train the same model?"

    cost_runs = staticmethod(cost_runs)

    def facts(self, study):
        facts = scale_facts(study)
        measured = [n for n in study.ranks if study.machine.evidence(n, facts["cores"]) != FUNCTIONAL]
        n = max([2, *measured])
        return {**facts, "n": n, "batch": BATCH}

    def sizes(self, study, facts):
        samples = [EPOCHS * BATCH * steps for steps in (8, 4)]
        return shrunk_sizes(samples, [("ours", "PyTorch")], study.repeats) + [Size(EPOCHS * BATCH * 2, ("ours", "PyTorch"), 1)]

    def strategies(self, facts):
        return our_strategies(facts["n"]) + ([] if facts["peers"] else peer_strategies(facts["n"]))

    def plan(self, study, facts, size):
        runs = []
        for strategy in self.strategies(facts):
            layout = (*strategy.layout, *(("--recompute", "none") if not strategy.peer else ()))
            run = Training(strategy.run_name(), BATCH, size.samples // BATCH, size.samples // EPOCHS, strategy.ranks,
                           strategy.data_ranks, facts["cores"], layout, strategy.at_least)
            runs.append(peer_run(study, run, strategy.peer) if strategy.peer else our_run(study, run))
        return runs + layout_plans(facts, facts["n"])

    # ---- numbers of a row --------------------------------------------------------------------

    @staticmethod
    def memory(result):
        """{"state", "slots", "planned", "peak"}: MiB of the rank with the most."""
        first = result.first_line()
        if "state_bytes_ranks" in first:  # a peer
            state = [int(word) for word in first["state_bytes_ranks"].split()]
            return {"state": max(state), "slots": None, "planned": None, "peak": result.peak_mib()}
        plan = read_plan(result)
        return {"state": plan.state(), "slots": plan.slots(), "planned": plan.total(), "peak": result.peak_mib()}

    def row(self, facts, results, strategy, baseline):
        name = strategy.run_name()
        per_step = facts["batch"] * facts["shape"]["T"]
        time = results.spread(name, lambda result: result.timed_sum("step_ms"))
        cells = {"strategy": strategy.title, "ranks": strategy.ranks, "time": time}
        cells["tok_per_s"] = results.spread(name, lambda result: per_step / result.timed_mean("step_ms"))
        finished = results.finished(name)
        why = {"slots": "PyTorch does not report it", "formula": "ZeRO's formulae are for data parallel strategies",
               "difference": "ZeRO's formulae are for data parallel strategies"}
        if strategy.peer:
            why |= dict.fromkeys(("formula", "difference"), "for our buckets")
        if finished:
            last = finished[0].steps()
            memory = self.memory(finished[0])
            expected = None if strategy.peer else state_formula(Shape(**facts["shape"]), strategy)
            cells |= {"epochs": round(last[-1]["epoch"], 3),
                      "state": memory["state"], "slots": memory["slots"], "formula": expected,
                      "difference": None if expected is None else memory["state"] - expected,
                      "planned": None if memory["planned"] is None else memory["planned"] / 2 ** 20,
                      "peak": memory["peak"], "loss": mean_loss(last[-(len(last) // EPOCHS):]), "norm": last[-1]["grad_norm"],
                      "worst": self.worst_difference(last, baseline), "bytes": last[-1].get("comm_bytes")}
            why["bytes"] = why["planned"] = "PyTorch does not report it"
        return results.row(name, cells, why)

    @staticmethod
    def worst_difference(steps, baseline):
        """The largest relative difference of a step's loss to that of one device."""
        if not baseline or len(steps) != len(baseline):
            return None
        return max((abs(a["loss"] / b["loss"] - 1) for a, b in zip(steps, baseline)), default=None)

    def baseline(self, results):
        finished = results.finished("strategy-one")
        return finished[0].steps() if finished else []

    # ---- tables and figures ------------------------------------------------------------------

    def tables(self, facts, results):
        baseline = self.baseline(results)
        rows = [self.row(facts, results, strategy, baseline) for strategy in self.strategies(facts)]
        known = [(row.cells["worst"], row) for row in rows if row.cells.get("worst") is not None]
        differences = [worst for worst, _ in known]
        verdict = "equal" if differences and max(differences) <= LOSS_LIMIT else "NOT EQUAL"
        problems = [f"{row.cells['strategy']}: a loss differs by {worst:.1e} from that of one device; allowed: "
                    f"{LOSS_LIMIT:.0e}" for worst, row in known if worst > LOSS_LIMIT]
        problems += [f"{row.cells['strategy']}: the training state differs by {row.cells['difference']:,} bytes from ZeRO's "
                     "formula" for row in rows if row.cells.get("difference")]
        for strategy in self.strategies(facts):
            problems += results.wrong_tokens(strategy.run_name(), strategy.title, facts["batch"] * facts["shape"]["T"])
        notes = [model_text(facts), f"{EPOCHS} epochs of {facts['samples'] // EPOCHS} samples, {facts['batch']} per step. Time is that "
                 "of all steps but the first two.",
                 f"Losses are {verdict}: the largest relative difference of a step to one device is "
                 f"{max(differences, default=0):.1e}; allowed: {LOSS_LIMIT:.0e}.",
                 "Training state: weights, gradients, moments of the rank with the most, in bytes. Formula: ZeRO's, with "
                 "each tensor padded to 1024 elements and each bucket to whole pieces of the ranks. Slots hold gathered "
                 "weights and whole gradients of a few buckets."]
        if facts["peers"]:
            notes.append(f"PyTorch is left out: {facts['peers']}.")
        return [Table("strategies", f"{self.title}: {EPOCHS} epochs", COLUMNS, rows, results.device, results.commit, notes,
                      problems), tensor_table(facts, results)]

    def figures(self, facts, results, tables):
        strategies = self.strategies(facts)
        shown = [(strategy, row) for strategy, row in zip(strategies, tables[0].rows) if row.cells.get("time") is not None]

        def bars(key, title, label, parts, values):
            rows = [(f"{strategy.title}, {ranks_text(strategy.ranks)}", values(row), row.evidence == FUNCTIONAL)
                    for strategy, row in shown]
            return Bars(f"strategies-{key}", title, label, parts, rows)

        def curves(key, x, title, label):
            lines = []
            for strategy, _ in shown:
                steps = results.finished(strategy.run_name())[0].steps()
                lines.append(Curve(strategy.title, [(step[x], step[key]) for step in steps]))
            return Curves(f"strategies-{key}", title, x, label, lines, from_zero=False)

        def parts(strategy):
            seconds = [results.spread(strategy.run_name(), lambda result, key=key: result.timed_mean(key)) for key in PARTS]
            return (f"{strategy.title}, {ranks_text(strategy.ranks)}", [1000 * (middle(one) or 0) for one in seconds],
                    results.evidence(strategy.run_name()) == FUNCTIONAL)
        mib, schedule = 2 ** 20, schedule_figure(results)
        return [bars("throughput", "Throughput", "tokens per second", ["tokens per second"],
                     lambda row: [middle(row.cells["tok_per_s"])]),
                bars("time", f"Training time of {EPOCHS} epochs", "seconds", ["time"],
                     lambda row: [middle(row.cells["time"])]),
                bars("memory", "Training state and gathered slots of a rank", "MiB", ["training state", "slots"],
                     lambda row: [row.cells["state"] / mib, (row.cells["slots"] or 0) / mib]),
                curves("loss", "epoch", "Training loss by epoch", "loss (nats per token)"),
                curves("grad_norm", "step", "Gradient norm", "gradient norm"),
                Bars("strategies-parts", "Where the time of a step goes, of the slowest rank", "ms", list(PARTS.values()),
                     [parts(strategy) for strategy, _ in shown if not strategy.peer]),
                *([schedule] if schedule else [])]


COLUMNS = [Column("strategy", "strategy"), Column("ranks", "ranks"), Column("time", "time, s", TIMED, 2),
           Column("tok_per_s", "tokens/s", TIMED, 0), Column("epochs", "epochs", digits=1),
           Column("loss", "loss, last epoch", TIMED, 6), Column("worst", "largest difference of a loss", TIMED),
           Column("norm", "last gradient norm", TIMED, 4), Column("state", "training state per rank, bytes", digits=0),
           Column("formula", "by formula", digits=0), Column("difference", "difference", digits=0),
           Column("slots", "slots per rank, bytes", digits=0), Column("planned", "planned per rank, MiB", digits=1),
           Column("peak", "peak of a process, MiB", TIMED, 0), Column("bytes", "bytes sent per step and rank", digits=0)]
