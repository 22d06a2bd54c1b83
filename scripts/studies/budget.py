"""Costs of runs, and how an experiment shrinks to its budget.

An experiment has sizes, from the largest to the smallest. The first one whose runs fit is chosen. Sizes shrink in this
order: steps, points of the sweep, repeats. What was dropped is reported on the page.
"""
import time
from typing import NamedTuple

SHARE = 0.9           # of the budget that a plan may use: the rest is for runs that take longer than planned
PLAN_SECONDS = 0.15   # of a --dry-run
# Of sides whose costs no short run measures: processor seconds of a sample, relative to ours, and seconds of a start.
RELATIVE = {"infer": (0.4, 0.5), "transformers": (2.0, 15.0), "int8-peer": (2.0, 15.0)}


class Size(NamedTuple):
    """Size of an experiment. `samples`, or steps, of a run; `points` of the sweep."""
    samples: int
    points: tuple
    repeats: int

    def text(self):
        def words(points):
            return ", ".join(f"({words(point)})" if isinstance(point, tuple) else str(point) for point in points)
        return f"length {self.samples}, points {words(self.points)}, repeats {self.repeats}"


def shrunk_sizes(samples, points, repeats):
    """Sizes from the largest to the smallest: fewer samples, then fewer points, then fewer repeats. `samples` and `points`
    are lists, from the largest on."""
    sizes = [Size(count, points[0], repeats) for count in samples]
    sizes += [Size(samples[-1], some, repeats) for some in points[1:]]
    return sizes + [Size(samples[-1], points[-1], count) for count in range(repeats - 1, 0, -1)]


class Costs:
    """Predicted times of runs, corrected by those that have ended."""

    def __init__(self, num_cores, sample_core_seconds, start_seconds):
        """By side: processor seconds of a sample, and of the start of a rank."""
        self._cores = num_cores
        ours = sample_core_seconds.get("ours", 0.0)
        self._sample = {"plan": 0.0, **{side: part * ours for side, (part, _) in RELATIVE.items()}, **sample_core_seconds}
        self._start = {"plan": PLAN_SECONDS, **{side: start for side, (_, start) in RELATIVE.items()}, **start_seconds}
        self._predicted = dict.fromkeys(self._sample, 0.0)
        self._actual = dict.fromkeys(self._sample, 0.0)

    def _raw(self, spec):
        if spec.side == "plan":
            return PLAN_SECONDS
        busy = min(spec.ranks * spec.cores, self._cores)
        work = spec.steps * spec.samples * spec.work * self._sample[spec.side] / busy
        # A start uses one core per rank, whatever the rank has.
        return work + self._start[spec.side] * spec.ranks / min(spec.ranks, self._cores)

    def ratio(self, side):
        return self._actual[side] / self._predicted[side] if self._predicted[side] else 1.0

    def seconds(self, spec):
        return self._raw(spec) * self.ratio(spec.side)

    def add(self, spec, seconds):
        self._predicted[spec.side] += self._raw(spec)
        self._actual[spec.side] += seconds


class Clock:
    """The time of a command: what is left for its experiments."""

    def __init__(self, minutes):
        self._end = time.monotonic() + 60 * minutes

    def left(self):
        return self._end - time.monotonic()
