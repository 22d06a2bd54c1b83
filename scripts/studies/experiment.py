"""What an experiment is, and how it becomes runs, tables and figures."""
import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from measured_programs import RunError, note, write_json, write_text
from run_view.gnuplot import GnuplotError
from studies.budget import SHARE, Costs
from studies.figures import write_figure
from studies.runs import Result, spread
from studies.table_files import markdown, write_table
from studies.tables import Row, middle

NOTED_PLANS = 50  # one plan in so many is reported


class Experiment:
    """An experiment. `facts` are JSON: what the runs and the tables share. tables() and figures() read only facts and
    results, so that both can be made again elsewhere."""
    name = title = question = ""
    share = 1.0         # of the time of a command, relative to other experiments
    most_seconds = math.inf
    needs_base = False  # whether its runs start from the study's base model (experiments/base.py)

    def missing(self, study):
        """Why the experiment cannot run at all; empty if it can."""
        return ""

    def facts(self, study):
        raise NotImplementedError

    def sizes(self, study, facts):
        """Sizes from the largest to the smallest."""
        raise NotImplementedError

    def plan(self, study, facts, size):
        """The runs of one repeat, the most important ones first."""
        raise NotImplementedError

    def tables(self, facts, results):
        raise NotImplementedError

    def figures(self, facts, results, tables):
        return []


@dataclass
class Study:
    """What a command gives to its experiments."""
    out: Path
    machine: object
    inputs: object
    runner: object
    scale: object         # experiments/common.py: model and batches for the device
    ranks: list
    repeats: int
    peers: str            # "" if PyTorch takes part, else the reason why not
    words: list           # of the command line
    base: object = None   # experiments/base.py: the model that experiments share, once it is trained
    like: Path | None = None  # a study whose sizes are repeated


class Results:
    """The runs of an experiment, as plan.json lists them."""

    def __init__(self, plan, logs):
        self.plan, self._runs = plan, {}
        for run in plan["runs"]:
            self._runs.setdefault(run["name"], []).append((run, Result(logs / run["folder"])))

    @property
    def device(self):
        return self.plan["device"]

    @property
    def commit(self):
        return self.plan["commit"]

    def has(self, name):
        return name in self._runs

    def finished(self, name):
        return [result for _, result in self._runs.get(name, []) if result.exists() and not result.error]

    def reason(self, name):
        """Why a run has no result."""
        if name not in self._runs:
            return "not part of this size of the study"
        errors = [result.error for _, result in self._runs[name] if result.error]
        return errors[-1] if errors else "there was no time left for it"

    def spread(self, name, number):
        """The spread of number(result) over the repeats; None without a result."""
        return spread([number(result) for result in self.finished(name)])

    def exact(self, name, number):
        """number(result), which is the same in all repeats; None without a result. Throws RunError if they differ."""
        values = [value for value in (number(result) for result in self.finished(name)) if value is not None]
        if any(value != values[0] for value in values):
            raise RunError(f"{name}: a number that must be exact differs between repeats: {values}")
        return values[0] if values else None

    def wrong_tokens(self, name, title, tokens_per_step):
        """A problem for each run whose steps did not have this many tokens."""
        for result in self.finished(name):
            steps = result.steps()
            tokens = steps[-1].get("tokens")
            if tokens != len(steps) * tokens_per_step:
                yield (f"{title}, repeat {result.facts['repeat']}: {tokens} tokens in {len(steps)} steps, not "
                       f"{len(steps) * tokens_per_step}")

    def row(self, name, cells, why=None):
        """A row about the runs `name`."""
        seeds = sorted({run["seed"] for run, _ in self._runs[name]})
        seed = seeds[0] if len(seeds) == 1 else ", ".join(map(str, seeds))
        why = dict(why or {})
        if not self.finished(name):
            why[""] = self.reason(name)
        return Row(cells, self.evidence(name), seed, any(result.busy for result in self.finished(name)), why)

    def evidence(self, name):
        return self._runs[name][0][0]["evidence"]


def ratio_of(numerator, denominator):
    """The quotient of two cells, by their medians."""
    top, bottom = middle(numerator), middle(denominator)
    return None if top is None or not bottom else top / bottom


# ---- planning --------------------------------------------------------------------------------


def all_runs(specs, repeats):
    """Each repeat makes all timed runs, every second one in reverse order; the other runs have one repeat."""
    runs = []
    for repeat in range(1, repeats + 1):
        part = [spec._replace(repeat=repeat) for spec in specs if spec.timed or repeat == 1]
        runs += part[::-1] if repeat % 2 == 0 else part
    return runs


def choose_size(experiment, study, facts, costs, seconds):
    """(size, runs, what was dropped)"""
    all_sizes = experiment.sizes(study, facts)
    sizes = [size_of(experiment, study, all_sizes)] if study.like else all_sizes
    for size in sizes:
        runs = all_runs(experiment.plan(study, facts, size), size.repeats)
        missing = [spec for spec in runs if study.runner.find(spec) is None]
        if sum(costs.seconds(spec) for spec in missing) <= SHARE * seconds:
            break
    if study.like:
        return size, runs, [f"The size is that of {study.like / experiment.name}."]
    dropped = [] if size == sizes[0] else [f"The time allows {size.text()}, instead of {sizes[0].text()}."]
    return size, runs, dropped


def size_of(experiment, study, sizes):
    """The size that the experiment has in the study of --like."""
    expected = read_plan(study.like / experiment.name)["size"]
    for size in sizes:
        if json.loads(json.dumps(size._asdict())) == expected:
            return size
    raise RunError(f"--like {study.like}: its {experiment.name} has a size that this command does not have; allowed: a study "
                   "with the same --device and the same --repeats")


def measure_costs(experiment, study, facts):
    """Costs from a short run of each side on one rank."""
    sample, start = {}, {}
    for spec in experiment.cost_runs(study, facts):
        result = study.runner.find(spec) or study.runner.run(spec)
        if result.error:
            study.peers = result.error
            continue
        busy = sum(step["step_ms"] for step in result.steps()) / 1000
        steady = [step["step_ms"] / 1000 for step in result.steps()][1:]
        sample[spec.side] = min(steady) * spec.cores / spec.samples
        start[spec.side] = max(0.2, result.facts["wall_s"] - busy)
        note(f"{experiment.name}: {spec.side}: {1000 * min(steady):.1f} ms for {spec.samples} samples on one rank, "
             f"{start[spec.side]:.1f} s to start")
    return Costs(len(study.machine.cores), sample, start)


def make_runs(experiment, study, clock, seconds):
    """Makes the runs of an experiment in about `seconds`, and writes plan.json. Returns its content."""
    begin = clock.left()
    facts = experiment.facts(study)
    costs = measure_costs(experiment, study, facts)
    facts["peers"] = study.peers
    size, runs, dropped = choose_size(experiment, study, facts, costs, seconds - (begin - clock.left()))
    facts |= {"samples": size.samples, "points": list(size.points)}
    note(f"{experiment.name}: {len(runs)} runs ({size.text()})")
    for text in dropped:
        note(f"{experiment.name}: {text}")
    left_out = []
    missing = [spec for spec in runs if study.runner.find(spec) is None]
    for index, spec in enumerate(missing):
        left = seconds - (begin - clock.left())
        if (spec.is_repeat() and costs.seconds(spec) > left) or not study.runner.can_start(spec):
            left_out.append(spec)
            continue
        result = study.runner.run(spec)
        if not result.error:
            costs.add(spec, result.facts["wall_s"])
        if spec.side == "plan" and index % NOTED_PLANS:
            continue
        remaining = sum(map(costs.seconds, missing[index + 1:]))
        outcome = result.error or f"{result.facts['wall_s']:.1f} s"
        note(f"{experiment.name}: {index + 1 + len(runs) - len(missing)}/{len(runs)} {spec.label()}: {outcome}; "
             f"ETA {remaining / 60:.1f} min")
    if left_out:
        dropped.append(f"{len(left_out)} repeats were left out at the end, because the time was used up.")
    plan = {"experiment": experiment.name, "command": "scripts/study " + shlex.join(study.words), "facts": facts,
            "size": size._asdict(), "dropped": dropped, "device": study.machine.description(),
            "commit": study.machine.commit, "peers": study.peers,
            "runs": [{"name": spec.name, "repeat": spec.repeat, "seed": spec.seed, "ranks": spec.ranks,
                      "evidence": study.runner.evidence(spec),
                      "folder": study.runner.folder(spec).name} for spec in runs if spec not in left_out]}
    folder = study.out / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", plan)
    return plan


# ---- results ---------------------------------------------------------------------------------


def page(experiment, plan, tables, figures):
    parts = [f"# {experiment.title}", experiment.question,
             f"{plan['device']}, commit {plan['commit']}. Made by `{plan['command']}`."]
    if plan["dropped"]:
        parts.append("\n".join("- " + text for text in plan["dropped"]))
    for table in tables:
        parts += [f"## {table.title}", markdown(table)]
    parts += [f"![{figure.title}]({figure.name}.svg)" for figure in figures]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_results(experiment, folder, plan):
    """Writes tables, figures and the page from plan.json and the logs."""
    results = Results(plan, folder.parent / "logs")
    facts = plan["facts"]
    tables = experiment.tables(facts, results)
    figures = [figure for figure in experiment.figures(facts, results, tables) if not figure.is_empty()]
    for table in tables:
        write_table(folder, table)
    try:
        for figure in figures:
            write_figure(folder, figure)
    except GnuplotError as error:
        note(f"{experiment.name}: no figures: {error}")
        figures = []
    write_text(folder / f"{experiment.name}.md", page(experiment, plan, tables, figures))
    return tables, figures


def read_plan(folder):
    try:
        return json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    except OSError:
        raise RunError(f"{folder} has no plan.json; allowed: a folder that scripts/study wrote, such as "
                       "runs/study/strong") from None
    except ValueError:
        raise RunError(f"{folder / 'plan.json'} is not JSON") from None
