"""What fits a GPU: the largest model and the longest sequence by strategy, recomputation, offload and adapters. Only plans.
"""
from typing import NamedTuple

from studies.budget import shrunk_sizes
from studies.experiment import Experiment
from studies.experiments.common import plan_run
from studies.figures import Bars
from studies.machine import SIMULATED
from studies.plans import read_plan
from studies.tables import Column, Row, Table

CARDS, RESERVE = (16, 24, 32, 40, 80), 2   # GiB, of which some stay free, as with --gpu-memory
MODELS = {"d12": 124, "d24": 355, "d36": 774, "d48": 1558, "megatron-2.5b": 2500, "megatron-4.2b": 4200,
          "megatron-8.3b": 8300}           # millions of parameters
LENGTHS = tuple(1024 << i for i in range(8))
LENGTH_MODEL = "d48"


class Way(NamedTuple):
    title: str
    flags: tuple
    ranks: int


WAYS = (Way("one GPU", (), 1), Way("ZeRO-1", ("--zero", 1), 8), Way("ZeRO-2", ("--zero", 2), 8),
        Way("ZeRO-3", ("--zero", 3), 8), Way("pipeline of 8", ("--zero", 0, "--pp", 8), 8),
        Way("ZeRO-3 on 64", ("--zero", 3), 64))
RECOMPUTE = ("none", "selective", "full")
OFFLOAD = {"": (), "optimizer": ("--offload", "optimizer"), "all": ("--offload", "optimizer,gradients,parameters,activations")}
ADAPTERS = {"": (), "LoRA": ("--lora", 8, "--lora-targets", "all")}


class Case(NamedTuple):
    way: Way
    recompute: str
    offload: str = ""
    adapters: str = ""

    def name(self, model, T):
        words = [self.way.title, self.recompute, self.offload, self.adapters, model, str(T)]
        return "fits-" + "-".join(word.replace(" ", "-") for word in words if word)

    def flags(self, model, T):
        count = 8 if "--pp" in self.way.flags else 1
        return ("--model", model, "--vocab-size", 50257, "--dtype", "bf16", "--context", T, "--seq-len", T, "--batch-size", 1,
                "--grad-accum", count, "--ranks", self.way.ranks, "--recompute", self.recompute, *self.way.flags,
                *OFFLOAD[self.offload], *ADAPTERS[self.adapters])


def cases(kinds):
    """`kinds`: which of KINDS take part; "shortest" is plain, with full recomputation only."""
    for way in WAYS:
        for recompute in RECOMPUTE:
            for kind in kinds:
                if kind == "shortest" and recompute != "full":
                    continue
                if kind in ("plain", "shortest"):
                    yield Case(way, recompute)
                elif kind == "adapters":
                    yield Case(way, recompute, "", "LoRA")
                else:
                    yield Case(way, recompute, kind)


KINDS = ("plain", "optimizer", "adapters", "all")


class Fits(Experiment):
    name, title = "fits", "What fits a GPU"
    question = "Which is the largest model, and the longest sequence, that each way to save memory fits on a card?"

    @staticmethod
    def cost_runs(study, facts):
        return []

    def facts(self, study):
        return {"peers": study.peers}

    def sizes(self, study, facts):
        return shrunk_sizes([len(LENGTHS)], [KINDS, KINDS[:3], KINDS[:2], KINDS[:1], ("shortest",)], 1)

    def plan(self, study, facts, size):
        runs = []
        for case in cases(size.points):
            runs += [plan_run(case.name(model, 1024), case.flags(model, 1024)) for model in MODELS]
            runs += [plan_run(case.name(LENGTH_MODEL, T), case.flags(LENGTH_MODEL, T)) for T in LENGTHS[1:]]
        return runs

    @staticmethod
    def bytes_of(results, case, model, T):
        """(device, host) bytes of the rank with the most; None if the plan is refused."""
        finished = results.finished(case.name(model, T))
        if not finished:
            return None
        plan = read_plan(finished[0])
        return plan.total(), plan.host_total()

    def row(self, results, case):
        by_model = {model: self.bytes_of(results, case, model, 1024) for model in MODELS}
        by_length = {T: self.bytes_of(results, case, LENGTH_MODEL, T) for T in LENGTHS}
        cells = {"way": case.way.title, "ranks": case.way.ranks, "recompute": case.recompute, "offload": case.offload or "no",
                 "adapters": case.adapters or "no"}
        why = {}
        for card in CARDS:
            free = (card - RESERVE) * 2 ** 30
            fitting = [model for model, both in by_model.items() if both and both[0] <= free]
            longest = [T for T, both in by_length.items() if both and both[0] <= free]
            cells |= {f"model{card}": MODELS[fitting[-1]] if fitting else None,
                      f"length{card}": longest[-1] if longest else None}
            why |= {f"model{card}": "not even 124 million parameters fit",
                    f"length{card}": f"not even {LENGTHS[0]} tokens of {MODELS[LENGTH_MODEL]} million parameters fit"}
            if card == CARDS[-1] and fitting:
                cells["host"] = by_model[fitting[-1]][1] / 2 ** 30
        why["host"] = why[f"model{CARDS[-1]}"]
        return Row(cells, SIMULATED, None, why=why)

    def tables(self, facts, results):
        rows = [self.row(results, case) for case in cases(facts["points"])]
        notes = [f"Planned by --dry-run, in bf16, one sequence per rank and micro-batch; {RESERVE} GiB of a card stay free. "
                 f"Models: {', '.join(map(str, MODELS.values()))} million parameters. Host memory is that of the largest model "
                 f"on {CARDS[-1]} GiB, per rank."]
        first = [Column("way", "strategy"), Column("ranks", "ranks"), Column("recompute", "recompute"),
                 Column("offload", "offload"), Column("adapters", "adapters")]
        models = Table("fits", "The largest model, in millions of parameters, with 1,024 tokens", [
            *first, *(Column(f"model{card}", f"{card} GiB", digits=0) for card in CARDS),
            Column("host", "host memory, GiB", digits=1)], rows, results.device, results.commit, notes)
        lengths = Table("fits-length", f"The longest sequence, in tokens, of {MODELS[LENGTH_MODEL]} million parameters", [
            *first, *(Column(f"length{card}", f"{card} GiB", digits=0) for card in CARDS)], rows, results.device,
            results.commit, [f"Lengths: powers of two from {LENGTHS[0]:,} to {LENGTHS[-1]:,} tokens."])
        return [models, lengths]

    def figures(self, facts, results, tables):
        card = 24
        rows = [(", ".join([row.cells["way"], f"recompute {row.cells['recompute']}",
                            *([f"offload {row.cells['offload']}"] if row.cells["offload"] != "no" else []),
                            *([row.cells["adapters"]] if row.cells["adapters"] != "no" else [])]),
                 [row.cells[f"model{card}"] or 0], False) for row in tables[0].rows if row.cells["recompute"] == "full"]
        return [Bars("fits-model", f"The largest model on {card} GiB (planned)", "million parameters", ["parameters"], rows)]
