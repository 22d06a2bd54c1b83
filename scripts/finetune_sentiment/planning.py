"""Number of epochs and size of the grid of learning rates, so that all runs fit into a time budget.

For each method, the first seed runs with each learning rate of the grid. The other seeds run only with the rate whose
validation macro F1 was the best. So a method has grid + seeds - 1 runs of equal length.
"""
import time
from typing import NamedTuple

from finetune_sentiment.methods import EVALUATIONS

SHARE = 0.88         # of the budget: the rest is for checks and for machines that slow down
MIN_EPOCHS = 0.25
GRIDS = ((3, 4.0), (2, 1.5), (1, MIN_EPOCHS))  # size of the grid, epochs that every method must have with it


class PlanError(Exception):
    """The budget is too small."""


class Cost(NamedTuple):
    """Measured times of a method in seconds. `overhead`: everything but the steps of a short run, which has two
    evaluations of the validation part and one of the test part."""
    step: float
    overhead: float

    def fixed(self):
        """Time of a run without its steps. Evaluations take less than a third of `overhead`, and the evaluation of the
        best checkpoint, a process of its own, less than all of it."""
        return self.overhead * (2 + max(0, EVALUATIONS - 1) / 3)

    def run(self, steps):
        return self.fixed() + steps * self.step


class Plan(NamedTuple):
    grid: int            # learning rates per method
    seeds: int
    steps: dict          # of a run of each method
    epoch_steps: int
    run_seconds: dict    # of a run of each method

    def runs(self):
        return self.grid + self.seeds - 1

    def seconds(self):
        return self.runs() * sum(self.run_seconds.values())

    def epochs(self, method):
        return self.steps[method] / self.epoch_steps


def divide_time(costs, limits, runs, seconds, epoch_steps):
    """Epochs of each method. Each gets the same time; what a method with its maximum of epochs does not need is divided
    among the others."""
    epochs, remaining, left = {}, seconds, dict(costs)
    while left:
        share = remaining / len(left)
        possible = {name: (share / runs - cost.fixed()) / (cost.step * epoch_steps) for name, cost in left.items()}
        capped = [name for name in left if possible[name] >= limits[name]]
        for name in capped or list(left):
            epochs[name] = min(possible[name], limits[name])
            remaining -= runs * left.pop(name).run(epochs[name] * epoch_steps)
    # Both are compared, so neither may train for longer.
    if "scratch" in epochs and "all" in epochs:
        epochs["scratch"] = epochs["all"] = min(epochs["scratch"], epochs["all"])
    return epochs


def make_plan(costs, methods, seconds, seeds, epoch_steps, limit=None, max_grid=GRIDS[0][0]):
    """The plan with the largest grid in GRIDS, up to `max_grid`, that leaves enough epochs. `limit`: maximum number of
    epochs."""
    limits = {name: min(methods[name].max_epochs, limit or methods[name].max_epochs) for name in costs}
    for grid, minimum in GRIDS:
        if grid > max_grid:
            continue
        runs = grid + seeds - 1
        epochs = divide_time(costs, limits, runs, SHARE * seconds, epoch_steps)
        if all(epochs[name] >= min(minimum, limits[name]) for name in costs):
            steps = {name: max(1, int(epochs[name] * epoch_steps)) for name in costs}
            return Plan(grid, seeds, steps, epoch_steps, {name: costs[name].run(steps[name]) for name in costs})
    needed = seeds * len(costs) * max(cost.run(MIN_EPOCHS * epoch_steps) for cost in costs.values()) / SHARE
    raise PlanError(f"{seconds / 60:.1f} minutes are left of the budget, but equal times for {len(costs)} methods, each "
                    f"with {seeds} runs of at least a quarter of an epoch, take {needed / 60:.1f}; give a larger --budget, "
                    "or fewer --methods or --seeds")


def plan_text(plan, costs, methods):
    lines = [f"plan: {len(costs)} methods, {plan.runs()} runs each (learning rates of the first seed: {plan.grid}; other "
             f"seeds: {plan.seeds - 1}), about {plan.seconds() / 60:.1f} minutes"]
    for name, cost in costs.items():
        rates = ", ".join(f"{rate:g}" for rate in methods[name].rates[:plan.grid])
        lines.append(f"  {name:10} {1000 * cost.step:8.1f} ms per step, {plan.steps[name]:5} steps "
                     f"({plan.epochs(name):.2f} epochs), {plan.run_seconds[name]:6.1f} s per run, learning rates {rates}")
    return "\n".join(lines)


class Progress:
    """Times of finished runs next to the plan, and the remaining time."""

    def __init__(self, plan, budget_seconds, spent=0.0):
        self._plan, self._budget, self._spent = plan, budget_seconds, spent
        self._left = {name: plan.runs() for name in plan.steps}
        self._number = 0
        self._planned = self._actual = 0.0
        self._total = sum(self._left.values())

    def add(self, name, seconds):
        self._left[name] -= 1
        self._number += 1
        self._planned += self._plan.run_seconds[name]
        self._actual += seconds

    def eta(self):
        """Seconds of the remaining runs, if they differ from the plan as the finished ones do."""
        ratio = self._actual / self._planned if self._planned else 1.0
        return ratio * sum(count * self._plan.run_seconds[name] for name, count in self._left.items())

    def text(self):
        eta = self.eta()
        total = self._spent + self._actual + eta
        late = f"; this exceeds the budget of {self._budget / 60:.0f} minutes" if total > self._budget else ""
        return (f"{self._number}/{self._total} runs, ETA {eta / 60:.1f} min, at "
                f"{time.strftime('%H:%M', time.localtime(time.time() + eta))}{late}")
