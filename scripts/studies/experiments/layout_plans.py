"""What plans tell about two layouts: the traffic of a layer with tensor parallelism, and the timeline of a pipeline."""
from studies.experiments.common import plan_run
from studies.figures import Timeline
from studies.inputs import Shape
from studies.plans import read_plan
from studies.tables import Column, Table

TENSOR_RANKS, PIPELINE_MICRO_BATCHES = (2, 4), 4
PASSES = 2   # forward and backward
ACTIVATION_BYTES = 4


def tensor_name(ranks, layers):
    return f"strategy-tensor-{ranks}-L{layers}"


def plan_flags(facts, shape, ranks, more):
    return (*shape.flags(), "--vocab-size", shape.vocabulary, "--dtype", "fp32", "--seq-len", shape.T, "--ranks", ranks, "--zero",
            0, *more)


def layout_plans(facts, pipeline_ranks):
    """Plans of models that differ by their layers, and a schedule."""
    shape, runs = Shape(**facts["shape"]), []
    for ranks in TENSOR_RANKS:
        for layers in (shape.layers, 2 * shape.layers):
            flags = ("--tp", ranks, "--batch-size", 1, "--grad-accum", 1)
            runs.append(plan_run(tensor_name(ranks, layers), plan_flags(facts, shape._replace(layers=layers), ranks, flags)))
    flags = ("--pp", pipeline_ranks, "--batch-size", 1, "--grad-accum", PIPELINE_MICRO_BATCHES, "--dump-schedule",
             "{run}/schedule.csv")
    return [*runs, plan_run("strategy-schedule", plan_flags(facts, shape, pipeline_ranks, flags))]


def tensor_table(facts, results):
    """All-reduces of a layer: what another layer sends, divided by what an all-reduce of its activations sends."""
    shape, rows = Shape(**facts["shape"]), []
    for ranks in TENSOR_RANKS:
        plans = [read_plan(result) for layers in (shape.layers, 2 * shape.layers)
                 for result in results.finished(tensor_name(ranks, layers))]
        cells = {"ranks": ranks, "one": 2 * (ranks - 1) * shape.T * shape.channels * ACTIVATION_BYTES // ranks}
        if len(plans) == 2:
            sent = [plan.sent("activations, to tensor ranks") for plan in plans]
            cells["layer"] = (sent[1] - sent[0]) / shape.layers
            cells["reduces"] = cells["layer"] / cells["one"] / PASSES
        rows.append(results.row(tensor_name(ranks, shape.layers), cells))
    return Table("strategies-tensor", "Tensor parallelism: what a layer sends", [
        Column("ranks", "ranks"), Column("layer", "bytes per layer and rank, both passes", digits=0),
        Column("one", "bytes of an all-reduce", digits=0), Column("reduces", "all-reduces per layer and pass", digits=3)], rows,
        results.device, results.commit, ["Planned, one sequence. An all-reduce of the activations sends 2 (N - 1) / N of their "
                                         "bytes."])


def schedule_figure(results):
    """The timeline of the pipeline's schedule; None without one."""
    for result in results.finished("strategy-schedule"):
        lines = result.text("schedule.csv").splitlines()
        rows = []
        for rank, line in enumerate(lines):
            cells = [cell.strip('"') for cell in line.split(",")]
            rows.append((f"rank {rank}", [(slot, slot + 1, "B" in cell, cell.lstrip("0123456789")[1:])
                                          for slot, cell in enumerate(cells) if cell]))
        return Timeline("strategies-schedule", f"Timeline of a step: pipeline, {PIPELINE_MICRO_BATCHES} micro-batches",
                        "slots of equal time", ["forward", "backward"], rows)
    return None
