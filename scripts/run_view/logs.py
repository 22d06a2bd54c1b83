"""Run logs: one JSON object per line; training lines have `step` and `loss`, evaluations `step` and `val_loss`."""
import bisect
import json
import math
from pathlib import Path

TRAIN_KEY, VALIDATION_KEY = "loss", "val_loss"


class LogError(Exception):
    """A log cannot be displayed; the text names the log and the reason."""


def printable(text):
    """The text with a ? for each byte of a file's name or an argument that is not UTF-8."""
    return text.encode("utf-8", "replace").decode()


class Run:
    """A log: `rows` {step: {key: number}} of training, `validation` {step: loss}, and warnings about it."""

    def __init__(self, path, name=None):
        self.path, self.name = Path(path), printable(name or Path(path).stem)
        self.rows, self.validation, self.warnings = {}, {}, []
        self._last_step = None
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
        values = {key: value for key, value in entry.items() if is_number(value)}
        if TRAIN_KEY in entry:
            self._add_row(step, values, number)
        if VALIDATION_KEY in values:
            self.validation[step] = values[VALIDATION_KEY]

    def _add_row(self, step, values, number):
        # The run was resumed from an earlier checkpoint: the steps after that checkpoint do not belong to it.
        if self._last_step is not None and step <= self._last_step:
            obsolete = [s for s in self.rows if s >= step]
            for s in obsolete:
                del self.rows[s]
            self.validation = {s: loss for s, loss in self.validation.items() if s < step}
            self._warn(number, f"goes back to step {step}; discarded {len(obsolete)} steps of earlier lines")
        self.rows[step] = values
        self._last_step = step

    def _warn(self, number, text):
        self.warnings.append(f"{self.path}:{number}: {text}")

    def series(self, key):
        """[(step, value)] of a key, in order. Steps whose value is missing, null or not finite are skipped."""
        if key == VALIDATION_KEY:
            return sorted(self.validation.items())
        return [(step, row[key]) for step, row in sorted(self.rows.items()) if key in row]

    def steps(self):
        """(step, {key: value}) in order, training and evaluation together."""
        for step in sorted({*self.rows, *self.validation}):
            values = {key: value for key, value in self.rows.get(step, {}).items() if key != "step"}
            if step in self.validation:
                values[VALIDATION_KEY] = self.validation[step]
            yield step, values

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
            figures["training loss (mean of the last 2%)"] = f"{sum(tail) / len(tail):.4f}"
        if self.validation:
            figures["validation loss, last"] = f"{self.series(VALIDATION_KEY)[-1][1]:.4f}"
            step, loss = min(self.validation.items(), key=lambda item: (item[1], item[0]))
            figures["validation loss, best"] = f"{loss:.4f} at step {step:,.0f}"
        for key, name, factor, form in MEANS:
            values = [value for _, value in self.series(key)]
            if values:
                figures[name] = form.format(factor * sum(values) / len(values))
        for key, name in (("host_mem_mb", "host memory, maximum"), ("gpu_mem_mb", "GPU memory, maximum")):
            values = [value for _, value in self.series(key)]
            if values:
                figures[name] = f"{max(values) / 1024:.2f} GiB"
        return figures


MEANS = [("tok_per_s", "tokens per second, mean", 1, "{:,.0f}"), ("mfu", "MFU, mean", 100, "{:.1f}%"),
         ("gpu_util", "GPU utilisation, mean", 1, "{:.0f}%"), ("gpu_power_w", "GPU power, mean", 1, "{:.0f} W"),
         ("cpu_percent", "CPU use, mean (100%: one core)", 1, "{:.0f}%")]


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


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
