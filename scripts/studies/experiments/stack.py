"""Ways to save memory when a model is fine-tuned, each alone and one on top of the other."""
from typing import NamedTuple

from studies.budget import Size, shrunk_sizes
from studies.experiments.base import base_text
from studies.experiments.classification import (BATCH, SUBSET, Classifying, Tuning, all_methods, mean_scores,
                                                tokens_per_second, tuning_run)
from studies.experiments.common import SEEDS
from studies.figures import Bars
from studies.plans import read_plan
from studies.tables import TIMED, Column, Table

SMALLEST = 80   # samples of the smallest size
MIB = 2 ** 20


class Part(NamedTuple):
    title: str
    flags: tuple = ()
    method: str = ""   # of fine-tuning, instead of all weights
    ranks: int = 1


PARTS = {"bf16": Part("bf16", ("--dtype", "bf16")), "lora": Part("LoRA", method="lora"),
         "recompute": Part("recomputation", ("--recompute", "full")), "zero3": Part("ZeRO-3", ("--zero", 3), ranks=2),
         "offload": Part("offload", ("--offload", "optimizer"))}


def all_cases():
    """{name: (title, parts)}: the baseline, each part alone, and the parts on top of each other, of which the first is also
    alone."""
    names = list(PARTS)
    cases = {"baseline": ("fp32, all weights", ())}
    cases |= {name: (f"{PARTS[name].title} alone", (name,)) for name in names}
    cases |= {"+".join(names[:count]): (f"... and {PARTS[names[count - 1]].title}", tuple(names[:count]))
              for count in range(2, len(names) + 1)}
    return cases


class Stack(Classifying):
    name, title = "stack", "Savings of memory, added up"
    question = "How much memory do bf16, LoRA, recomputation, ZeRO-3 and offload save, alone and together, and at what price?"
    share = 2.0

    def sizes(self, study, facts):
        seeds = [SEEDS, SEEDS[:2], SEEDS[:1]]
        return shrunk_sizes([17056, 8528, 4096, 2048, 1024], seeds, 1) + [Size(count, seeds[-1], 1) for count in (512, SMALLEST)]

    def plan(self, study, facts, size):
        methods, lines = all_methods(study), SUBSET if size.samples == SMALLEST else None
        runs = []
        for seed in size.points:
            for name, (_, parts) in all_cases().items():
                chosen = [PARTS[part] for part in parts]
                ranks = max((part.ranks for part in chosen), default=1)
                method = next((part.method for part in chosen if part.method), "all")
                flags = tuple(flag for part in chosen for flag in part.flags)
                runs.append(tuning_run(study, Tuning(f"stack-{name}", methods[method], size.samples, seed, ranks, ranks,
                                                     facts["cores"], flags, lines=lines)))
        return runs

    @staticmethod
    def planned(results, name):
        finished = results.finished(f"stack-{name}")
        return read_plan(finished[0]) if finished else None

    def row(self, results, name, title, parts):
        run, plan, whole = f"stack-{name}", self.planned(results, name), self.planned(results, "baseline")
        finished = results.finished(run)
        cells = {"case": title, "ranks": max((PARTS[part].ranks for part in parts), default=1), **mean_scores(finished)}
        if plan:
            cells |= {"state": plan.state() / MIB, "activations": plan.largest(["activations"]) / MIB,
                      "planned": plan.total() / MIB, "host": plan.host_total() / MIB if plan.host[0] else 0.0,
                      "peak": finished[0].peak_mib(), "speed": results.spread(run, tokens_per_second)}
        if plan and whole:
            cells["saved"] = 100 * (1 - plan.total() / whole.total())
        return results.row(run, cells, {"sd": "needs two seeds"})

    def tables(self, facts, results):
        rows = [self.row(results, name, title, parts) for name, (title, parts) in all_cases().items()]
        return [Table("stack", "Memory and speed of fine-tuning", [
            Column("case", "with"), Column("ranks", "ranks"), Column("planned", "planned per rank, maximum, MiB", digits=1),
            Column("saved", "saved, %", digits=1), Column("state", "training state, MiB", digits=1),
            Column("activations", "activations, MiB", digits=1), Column("host", "host memory, MiB", digits=1),
            Column("peak", "peak of a process, MiB", TIMED, 0), Column("speed", "tokens/s", TIMED, 0),
            Column("accuracy", "accuracy", digits=4), Column("sd", "sd over seeds", digits=4)], rows, results.device,
            results.commit, [base_text(facts), f"{facts['samples']:,} sentences per run, {BATCH} per batch, on all ranks "
                             "together; scores of the test part, means over seeds. Host memory is that of offloaded state; on "
                             "a CPU, the device's memory is host memory as well."])]

    def figures(self, facts, results, tables):
        rows = [(row.cells["case"], [row.cells["planned"]], False) for row in tables[0].rows if row.cells.get("planned")]
        return [Bars("stack-memory", "Planned memory of a rank", "MiB", ["planned"], rows)]
