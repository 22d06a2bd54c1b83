"""Run logs: one JSON object per line; training lines have `step` and `loss`, evaluations `step` and `val_loss`.
Lines with `step` and `run` have the settings of a process, lines with `step` and `resumed` one change each.
"""
import bisect
import json
from pathlib import Path

from run_view.history import History, is_number, printable

TRAIN_KEY, VALIDATION_KEY = "loss", "val_loss"
RANKS_SUFFIX = "_ranks"  # keys whose text has a number per rank: host_mem_mb_ranks, gpu_mem_mb_ranks
COMPUTE_KEY, COMPUTE_PARTS = "compute_ms", ("fwd_ms", "bwd_ms", "optimizer_ms")  # not in the log: their sum
RECOMPUTE_KEY = "recompute_ms"  # a part too; logs of older programs lack it
TRAIN_BITS_KEY, VALIDATION_BITS_KEY = "bits_per_byte", "val_bits_per_byte"  # not in the log: from the losses


def numbers_of(text):
    """The numbers of a text such as "100.0 99.5"; none if it is damaged."""
    try:
        numbers = [float(word) for word in text.split()] if isinstance(text, str) else []
    except ValueError:
        return []
    return numbers if all(map(is_number, numbers)) else []


def rank_key(key, rank):
    """The key of one rank's part of a number."""
    return f"{key}_rank{rank}"


class LogError(Exception):
    """A log cannot be displayed; the text names the log and the reason."""


class Run:
    """A log: `rows` {step: {key: number}} of training, `validation` {step: loss} and `validation_bits` {step: bits
    per byte}, the history of its processes, and warnings about it."""

    def __init__(self, path, name=None):
        self.path, self.name = Path(path), printable(name or Path(path).stem)
        self.rows, self.validation, self.validation_bits, self.warnings = {}, {}, {}, []
        self.history = History()
        self._last_step, self._ranks = None, 0
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}") from None
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._read_line(line, number, torn=number == len(lines))
        if not self.rows and not self.validation:
            raise LogError(f"{path}: no line has a step with a loss or val_loss; train_gpt2 --log "
                           "writes such a log" + "".join(f"\n  {w}" for w in self.warnings[:3]))

    def _read_line(self, line, number, torn):
        try:
            entry = json.loads(line.decode())
        except ValueError:
            self._warn(number, "cut off, skipped" if torn else "not JSON, skipped")
            return
        step = entry.get("step") if isinstance(entry, dict) else None
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            self._warn(number, "without a step, skipped")
            return
        if isinstance(entry.get("run"), str):
            self._discard_after(step, number)
            self.history.begin(step, entry["run"] == "resumed", entry)
            return
        if isinstance(entry.get("resumed"), str):
            self._discard_after(step, number)
            self.history.add_note(step, entry["resumed"])
            return
        values = {key: value for key, value in entry.items() if is_number(value)}
        if all(part in values for part in COMPUTE_PARTS):
            values[COMPUTE_KEY] = sum(values[part] for part in COMPUTE_PARTS) + values.get(RECOMPUTE_KEY, 0)
        for key in MEMORY:
            numbers = numbers_of(entry.get(key + RANKS_SUFFIX))
            self._ranks = max(self._ranks, len(numbers))
            values |= {rank_key(key, rank): number for rank, number in enumerate(numbers)}
        if TRAIN_KEY in entry:
            self._add_row(step, values, number)
        if VALIDATION_KEY in values:
            self._add_validation(step, values[VALIDATION_KEY])

    def _add_row(self, step, values, number):
        if self._last_step is not None and step <= self._last_step:
            # The run was resumed from an earlier checkpoint by a program that does not log this.
            self._discard_after(step - 1, number)
            self.history.begin(step - 1, resumed=True)
        bits = self.history.bits_per_byte(values[TRAIN_KEY]) if TRAIN_KEY in values else None
        self.rows[step] = values if bits is None else {**values, TRAIN_BITS_KEY: bits}
        self._last_step = step

    def _add_validation(self, step, loss):
        self.validation[step] = loss
        self.validation_bits.pop(step, None)
        bits = self.history.bits_per_byte(loss)
        if bits is not None:
            self.validation_bits[step] = bits

    def _discard_after(self, step, number):
        """Discards the steps after the checkpoint from which the run was resumed: they do not belong to it."""
        if self._last_step is None or step >= self._last_step:
            return
        obsolete = [s for s in self.rows if s > step]
        self.rows = {s: row for s, row in self.rows.items() if s <= step}
        self.validation = {s: loss for s, loss in self.validation.items() if s <= step}
        self.validation_bits = {s: bits for s, bits in self.validation_bits.items() if s <= step}
        self._last_step = step
        self._warn(number, f"goes back to step {step + 1}; discarded {len(obsolete)} steps of earlier lines")

    def _warn(self, number, text):
        self.warnings.append(f"{self.path}:{number}: {text}")

    def series(self, key):
        """[(step, value)] of a key, in order. Steps whose value is missing, null or not finite are skipped."""
        if key in (VALIDATION_KEY, VALIDATION_BITS_KEY):
            return sorted((self.validation if key == VALIDATION_KEY else self.validation_bits).items())
        return [(step, row[key]) for step, row in sorted(self.rows.items()) if key in row]

    def ranks(self):
        """The number of ranks whose memory the log has; 0 if it has only that of all ranks together."""
        return self._ranks

    def memory_of_ranks(self):
        """For each rank {label: MiB}: what it planned on its device, and its maximum in use. Empty for one rank."""
        planned = numbers_of(self.history.planned_memory())
        out = []
        for rank in range(self.ranks()):
            row = {"planned on its device": planned[rank]} if rank < len(planned) else {}
            for key, name in MEMORY.items():
                values = [value for _, value in self.series(rank_key(key, rank))]
                if values:
                    row[f"{name} memory in use, maximum"] = max(values)
            out.append(row)
        return out

    def steps(self):
        """(step, {key: value}) in order, training and evaluation together."""
        for step in sorted({*self.rows, *self.validation}):
            values = {key: value for key, value in self.rows.get(step, {}).items() if key != "step"}
            if step in self.validation:
                values[VALIDATION_KEY] = self.validation[step]
            if step in self.validation_bits:
                values[VALIDATION_BITS_KEY] = self.validation_bits[step]
            yield step, values

    def has_bits(self):
        """Whether every loss is also known in bits per byte."""
        return all(len(self.series(bits)) == len(self.series(loss))
                   for loss, bits in ((TRAIN_KEY, TRAIN_BITS_KEY), (VALIDATION_KEY, VALIDATION_BITS_KEY)))

    def axis(self, x):
        """A function from a step to its position on the axis `x`: step, tokens or hours (of training steps)."""
        if x == "step":
            return lambda step: step
        positions, hours = {}, 0.0
        for step, row in sorted(self.rows.items()):
            key = "tokens" if x == "tokens" else "step_ms"
            if key not in row:
                raise LogError(f"{self.path}: step {step} has no {key}, which --x {x} needs")
            hours += row.get("step_ms", 0) / 3.6e6
            positions[step] = row["tokens"] if x == "tokens" else hours
        steps = sorted(positions)

        def position(step):
            # An evaluation has the position of the training step before it; before the first step it is at 0.
            count = bisect.bisect_right(steps, step)
            return positions[steps[count - 1]] if count else 0
        return position

    def summary(self):
        """{label: text} of the final figures, in the order of display."""
        last = max(self.rows, default=max(self.validation, default=0))
        figures = {"steps": f"{last:,.0f}"}
        tokens = self.series("tokens")
        if tokens:
            figures["tokens"] = f"{tokens[-1][1]:,.0f}"
        hours = sum(ms for _, ms in self.series("step_ms")) / 3.6e6
        if hours:
            figures["training time"] = duration(3600 * hours)
        losses = [loss for _, loss in self.series("loss")]
        if losses:
            tail = losses[-max(1, len(losses) // 50):]
            figures["training loss, mean of the last 2% (nats per token)"] = f"{sum(tail) / len(tail):.4f}"
        if self.validation:
            last = max(self.validation)
            figures["validation loss, last (nats per token)"] = f"{self.validation[last]:.4f}"
            if last in self.validation_bits:
                figures["validation loss, last (bits per byte)"] = f"{self.validation_bits[last]:.4f}"
            step, loss = min(self.validation.items(), key=lambda item: (item[1], item[0]))
            figures["validation loss, best (nats per token)"] = f"{loss:.4f} at step {step:,.0f}"
        for key, name, factor, form in MEANS:
            values = [value for _, value in self.series(key)]
            if values:
                figures[name] = form.format(factor * sum(values) / len(values))
        for key, name in MEMORY.items():
            values = [value for _, value in self.series(key)]
            if values:
                figures[f"{name} memory, maximum"] = f"{max(values) / 1024:.2f} GiB"
        return figures


MEMORY = {"host_mem_mb": "host", "gpu_mem_mb": "GPU"}
MEANS = [("tok_per_s", "tokens per second, mean", 1, "{:,.0f}"), ("mfu", "MFU, mean", 100, "{:.1f}%"),
         ("gpu_util", "GPU utilisation, mean", 1, "{:.0f}%"), ("gpu_power_w", "GPU power, mean", 1, "{:.0f} W"),
         ("cpu_percent", "CPU use, mean (100%: one core)", 1, "{:.0f}%")]


def duration(seconds):
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def load_runs(paths, names=None):
    """A Run for each path, with different names unless `names` sets them. Throws LogError."""
    if names and len(names) != len(paths):
        raise LogError(f"{len(names)} names for {len(paths)} logs; give one name per log")
    runs = [Run(path, names[i] if names else None) for i, path in enumerate(paths)]
    runs_by_name = {}
    for run in runs:
        runs_by_name.setdefault(run.name, []).append(run)
    for name, namesakes in runs_by_name.items():
        for i, run in enumerate(namesakes):
            if len(namesakes) > 1 and not names:
                folder = printable(run.path.resolve().parent.name)
                run.name = f"{folder}/{name}" if len({r.path.resolve().parent for r in namesakes}) == len(namesakes) \
                    else f"{name} ({i + 1})"
    return runs
