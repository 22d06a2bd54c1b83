"""The content of a picture of runs: panels of curves, the same for every format."""
from dataclasses import dataclass, field

from run_view.logs import COMPUTE_KEY, MEMORY, RANKS_SUFFIX, numbers_of, rank_key
from run_view.logs import TRAIN_BITS_KEY, VALIDATION_BITS_KEY, VALIDATION_KEY, LogError

COLOURS = ["#1f5fa8", "#c44e1b", "#2f8f4e", "#7a4fa3", "#8a6d1a", "#0f8a94", "#b03a6b", "#5a6472"]
MAX_POINTS = 4000  # per curve: more than a screen has columns
X_LABELS = {"step": "step", "tokens": "tokens", "hours": "hours of training steps"}


@dataclass
class Metric:
    """A panel: its label, the keys of the log in it with a name each, and a factor for their values."""
    label: str
    keys: dict
    factor: float = 1.0
    noisy: bool = False  # a running mean is drawn over the values
    from_zero: bool = False


METRICS = {
    "loss": Metric("loss (nats per token)", {"loss": "training", "val_loss": "validation"}, noisy=True),
    "bits_per_byte": Metric("loss (bits per byte of validation text)",
                            {TRAIN_BITS_KEY: "training", VALIDATION_BITS_KEY: "validation"}, noisy=True),
    "grad_norm": Metric("gradient norm", {"grad_norm": ""}, noisy=True, from_zero=True),
    "lr": Metric("learning rate", {"lr": ""}, from_zero=True),
    "tok_per_s": Metric("tokens per second", {"tok_per_s": ""}, noisy=True, from_zero=True),
    "memory": Metric("memory in use (GiB)", {"gpu_mem_mb": "GPU", "host_mem_mb": "host"}, 1 / 1024, from_zero=True),
    "mfu": Metric("MFU (%)", {"mfu": ""}, 100, noisy=True, from_zero=True),
    "step_ms": Metric("time of a step (ms)", {"step_ms": ""}, noisy=True, from_zero=True),
    "parts": Metric("parts of a step (ms, means over ranks)",
                    {"step_ms": "step", COMPUTE_KEY: "computation", "comm_ms": "communication", "bubble_ms": "bubble"},
                    noisy=True, from_zero=True),
    "compute": Metric("time of computation per step (ms)", {COMPUTE_KEY: ""}, noisy=True, from_zero=True),
    "communication": Metric("time of communication per step (ms)", {"comm_ms": ""}, noisy=True, from_zero=True),
    "bubble": Metric("idle time in the pipeline per step (ms)", {"bubble_ms": ""}, noisy=True, from_zero=True),
    "rank_memory": Metric("memory of each rank (GiB)", {}, 1 / 1024, from_zero=True),
    "gpu": Metric("GPU utilisation (%)", {"gpu_util": ""}, from_zero=True),
    "power": Metric("GPU power (W)", {"gpu_power_w": ""}, from_zero=True),
    "temperature": Metric("GPU temperature (°C)", {"gpu_temp_c": ""}),
    "cpu": Metric("CPU use (%, 100: one core)", {"cpu_percent": ""}, noisy=True, from_zero=True),
}
DEFAULT_METRICS = ["loss", "grad_norm", "lr", "tok_per_s", "memory"]
# Also drawn if a run has several ranks. The parts of several runs have a panel each.
RANKS_METRICS, RUNS_METRICS = ["rank_memory", "parts"], ["rank_memory", "compute", "communication", "bubble"]
MAX_RANKS = 6  # ranks with a curve of their own; with more, the extremes are drawn


@dataclass
class Curve:
    run: int  # index of the run
    name: str  # for the legend
    part: int  # index among the panel's keys
    dots: bool  # evaluations: points without a line, because nothing is measured between them
    points: list
    trend: list  # a running mean, or empty


@dataclass
class Panel:
    key: str
    label: str
    from_zero: bool
    parts: int  # how many of the metric's keys have values
    note: str = ""  # what a reader must know to compare the runs
    levels: list = field(default_factory=list)  # (name, value) of dashed lines
    curves: list = field(default_factory=list)


@dataclass
class Mark:
    """A point at which a run was resumed."""
    run: int  # index of the run
    x: float
    text: str


def running_mean(points, width):
    """A centred mean over `width` points, fewer at the ends so that it stays centred."""
    reach = max(0, (width - 1) // 2)
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    out = []
    for i, (x, _) in enumerate(points):
        r = min(reach, i, len(points) - 1 - i)
        out.append((x, (sums[i + r + 1] - sums[i - r]) / (2 * r + 1)))
    return out


def thin_out(points, max_points=MAX_POINTS):
    """At most `max_points` points: the lowest and the highest of each stretch, so that no spike is lost."""
    if len(points) <= max_points:
        return points
    stretch = -(-2 * len(points) // max_points)
    out = []
    for start in range(0, len(points), stretch):
        part = points[start:start + stretch]
        ends = {min(range(len(part)), key=lambda i: part[i][1]), max(range(len(part)), key=lambda i: part[i][1])}
        out += [part[i] for i in sorted(ends)]
    return out


def loss_note(runs):
    """The reason why losses per token of these runs may not be comparable, or an empty text."""
    known = {run.history.tokenizer() for run in runs} - {None}
    unknown = [run.name for run in runs if run.history.tokenizer() is None]
    notes = ["the runs have different tokenizers, so their losses cannot be compared"] if len(known) > 1 else []
    if known and unknown:
        notes.append("unknown tokenizer: " + ", ".join(unknown)
                     + ("" if notes else "; losses of different tokenizers cannot be compared"))
    return "; ".join(notes)


def note_of(name, runs):
    if name == "loss":
        return loss_note(runs)
    without = [run.name for run in runs if not run.series(TRAIN_BITS_KEY) and not run.series(VALIDATION_BITS_KEY)]
    return "no bytes per token in the log of " + ", ".join(without) if name == "bits_per_byte" and without else ""


def default_metrics(runs):
    """DEFAULT_METRICS, with losses in bits per byte if the runs have different tokenizers and all bytes per token."""
    in_bits = loss_note(runs) and all(run.has_bits() for run in runs)
    more = RANKS_METRICS if len(runs) == 1 else RUNS_METRICS
    metrics = DEFAULT_METRICS + (more if any(run.ranks() > 1 for run in runs) else [])
    return ["bits_per_byte" if name == "loss" and in_bits else name for name in metrics]


def memory_curves(runs):
    """[(run, key of the log's rows, label)] of the panel of memory by rank, whose labels name rank and memory."""
    curves = []
    for i, run in enumerate(runs):
        # The planned memory is that of the GPU, if there is one.
        keys = [key for key in reversed(MEMORY) if run.series(rank_key(key, 0))][:1]
        for key, name in ((key, MEMORY[key]) for key in keys):
            means = [sum(v for _, v in series) / len(series) for series in
                     (run.series(rank_key(key, rank)) for rank in range(run.ranks())) if series]
            ranks = range(len(means))
            if len(means) > MAX_RANKS or len(runs) > 1:
                ranks = sorted({max(ranks, key=lambda rank: means[rank]), min(ranks, key=lambda rank: means[rank])}) \
                    if means else []
            curves += [(i, rank_key(key, rank), f"rank {rank}, {name}") for rank in ranks]
    return curves


def planned_levels(runs):
    """(name, GiB) of dashed lines: the planned memory of ranks, one line for equal numbers."""
    levels = []
    for run in runs:
        planned = numbers_of(run.history.planned_memory())
        if run.ranks() < 2:
            continue
        for value in sorted(set(planned), reverse=True)[:MAX_RANKS]:
            ranks = [rank for rank, number in enumerate(planned) if number == value]
            levels.append((f"{run.name}: " * (len(runs) > 1) + f"planned, {ranks_text(ranks)}", value / 1024))
    return levels


def ranks_text(ranks):
    """"rank 3", "ranks 0 to 3" or "ranks 0, 2"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")


def rank_memory_panel(runs, positions):
    """The panel of memory by rank; None if no log has it."""
    metric = METRICS["rank_memory"]
    curves = memory_curves(runs)
    if not curves:
        return None
    panel = Panel("rank_memory", metric.label, metric.from_zero, len(curves), levels=planned_levels(runs))
    for part, (i, key, label) in enumerate(curves):
        points = [(positions[i](step), metric.factor * value) for step, value in runs[i].series(key)]
        name = f"{runs[i].name}: {label}" if len(runs) > 1 else label
        panel.curves.append(Curve(i, name, part, False, thin_out(points), []))
    return panel


def make_panels(runs, metrics=None, x="step", smooth=None, levels=()):
    """The panels of these metrics, by default those of default_metrics() with values. `smooth`: steps in a
    running mean (1: none; None: a fiftieth of the run). `levels`: (name, value) of dashed lines among the losses,
    in the unit of the first panel of losses. Throws LogError for a metric that no run has.
    """
    panels = []
    positions = [run.axis(x) for run in runs]
    for name in metrics or default_metrics(runs):
        if name == "rank_memory":
            panel = rank_memory_panel(runs, positions)
            if panel:
                panels.append(panel)
            elif metrics:
                raise LogError("--metrics rank_memory: no line of these logs has "
                               + " or ".join(key + RANKS_SUFFIX for key in MEMORY) + ", which runs of several ranks write")
            continue
        metric = METRICS[name]
        present = [key for key in metric.keys if any(run.series(key) for run in runs)]
        if not present:
            if metrics:
                reason = "no log has a loss and bytes_per_token" if name == "bits_per_byte" else \
                    f"no line of these logs has {' or '.join(metric.keys)}"
                raise LogError(f"--metrics {name}: {reason}")
            continue
        panel = Panel(name, metric.label, metric.from_zero, len(present), note_of(name, runs))
        for i, run in enumerate(runs):
            for part, key in enumerate(present):
                points = [(positions[i](step), metric.factor * value) for step, value in run.series(key)]
                if points:
                    panel.curves.append(make_curve(i, run, metric, key, part, points, smooth, len(runs)))
        panels.append(panel)
    if not panels:
        raise LogError("these logs have none of " + ", ".join(DEFAULT_METRICS))
    for panel in [p for p in panels if p.key in ("loss", "bits_per_byte")][:1]:
        panel.levels = list(levels)
    return panels


def make_marks(runs, x="step"):
    """A Mark for each time that a run was resumed. With several runs, its text names the run."""
    return [Mark(i, run.axis(x)(process.step), f"{run.name} " * (len(runs) > 1) + process.description())
            for i, run in enumerate(runs) for process in run.history.resumes()]


def make_curve(i, run, metric, key, part, points, smooth, runs):
    dots = key in (VALIDATION_KEY, VALIDATION_BITS_KEY)
    width = smooth or max(3, len(points) // 50)
    trend = running_mean(points, width) if metric.noisy and not dots and width > 1 else []
    kind = metric.keys[key]
    name = kind if runs == 1 and kind else f"{run.name}: {kind}" if kind else run.name
    return Curve(i, name, part, dots, thin_out(points), thin_out(trend))
